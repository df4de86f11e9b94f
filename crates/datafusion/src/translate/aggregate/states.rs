//! Partial and final steps by themselves, as in distributed plans: the columns between them are the states of
//! DataFusion's accumulators (`AggregateFunctionExpr::state_fields`), so that either side may be DataFusion's.
//!
//! | function | state |
//! |---|---|
//! | `count` | the count |
//! | `sum`, `min`, `max`, `bool_*`, `bit_*` | the result so far |
//! | `avg` | the count (`UInt64`), the sum; both NULL in a group without a value, or DataFusion divides by zero |
//!
//! Lists of distinct values, sums of 256 bits and moments (`stddev`, `var`: no expression merges them exactly) are not
//! compiled.

use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use kelpie_compile::expr::{ArithmeticOp, Expr, ExprKind, Function};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan};
use kelpie_compile::types::{DataType, Field, Literal};

use super::super::Translator;
use super::{fields_from, function};

/// The aggregates that are a function's state; `fields` are those of the state.
pub(super) fn of(
    translator: &mut Translator,
    call: &AggregateFunctionExpr,
    function: AggregateFunction,
    argument: Option<Expr>,
    fields: Vec<Field>,
) -> Option<Vec<Aggregate>> {
    let parts = match parts(call, function, fields.len()) {
        Some(parts) => parts,
        None => return refuse(translator, call),
    };
    let state = |(part, field): (&AggregateFunction, Field)| match (part, &argument) {
        (AggregateFunction::Count, Some(argument))
            if function == AggregateFunction::Avg && argument.nullable =>
        {
            present(argument, field)
        }
        _ => Aggregate {
            function: *part,
            argument: argument.clone(),
            distinct: false,
            field: Field { nullable: field.nullable && *part != AggregateFunction::Count, ..field },
        },
    };
    Some(parts.iter().zip(fields).map(state).collect())
}

/// How many arguments are not NULL; NULL rather than 0.
fn present(argument: &Expr, field: Field) -> Aggregate {
    let condition = Expr {
        kind: ExprKind::IsNotNull(Box::new(argument.clone())),
        data_type: DataType::Boolean,
        nullable: false,
    };
    let one = Expr::literal(Literal::Int(1), field.data_type.clone());
    let kind = ExprKind::Case { branches: vec![(condition, one)], otherwise: None };
    let ones = Expr { kind, data_type: field.data_type.clone(), nullable: true };
    Aggregate { function: AggregateFunction::Sum, argument: Some(ones), distinct: false, field }
}

/// The reason against a function's state.
pub(super) fn refuse<T>(translator: &mut Translator, call: &AggregateFunctionExpr) -> Option<T> {
    let distinct = if call.is_distinct() { " of distinct values" } else { "" };
    let name = call.fun().name();
    translator.refuse(&format!(
        "AggregateExec: {}: the state of {name}{distinct} between partial and final steps is not compiled",
        call.name()
    ))
}

/// What makes the columns of a function's state.
fn parts(
    call: &AggregateFunctionExpr,
    function: AggregateFunction,
    columns: usize,
) -> Option<&'static [AggregateFunction]> {
    use AggregateFunction::*;
    let ignores_duplicates = matches!(function, Min | Max | BitAnd | BitOr);
    if call.is_distinct() && !ignores_duplicates {
        return None;
    }
    let parts: &[AggregateFunction] = match function {
        Count => &[Count],
        Sum => &[Sum],
        SumExact => &[SumExact],
        Min => &[Min],
        Max => &[Max],
        BitAnd => &[BitAnd],
        BitOr => &[BitOr],
        BitXor => &[BitXor],
        Avg => &[Count, Sum],
        VarSample | VarPopulation | StddevSample | StddevPopulation | LeastBound(_) | GreatestBound(_)
        | OfPairs(_) => {
            return None;
        }
    };
    (parts.len() == columns).then_some(parts)
}

/// A step over states: groups with their states merged, and in a final step the results.
pub(super) fn merge(translator: &mut Translator, node: &AggregateExec) -> Option<Plan> {
    let input = translator.plan(node.input());
    let schema = node.input().schema();
    let keys = {
        let mut exprs = translator.exprs(&schema, "AggregateExec");
        exprs.exprs(node.group_expr().expr().iter().map(|(key, _)| key))
    };
    let groups = node.group_expr().expr().len();
    let keeps_states = *node.mode() == AggregateMode::PartialReduce;
    let output = node.schema();
    let mut merged: Vec<Aggregate> = Vec::new();
    let mut results = Vec::new();
    let (mut from, mut to) = (groups, groups);
    for call in node.aggr_expr() {
        let columns = call.state_fields().map_or(1, |fields| fields.len());
        let states = fields_from(&schema, from, columns);
        let fields = fields_from(&output, to, if keeps_states { columns } else { 1 });
        let function = function(call.fun());
        let parts = function.and_then(|function| parts(call, function, columns));
        let made = match (function, parts, states, fields) {
            (Some(function), Some(parts), Some(states), Some(fields)) => {
                let place = groups + merged.len();
                let states = parts.iter().zip(states).zip(from..);
                merged.extend(states.map(|((part, field), column)| merged_state(*part, field, column)));
                let states = &merged[place - groups..];
                match keeps_states {
                    true => Some(kept(function, states, place, &fields)),
                    false => result(function, states, place, &fields),
                }
            }
            _ => None,
        };
        results.push(made.or_else(|| refuse(translator, call)));
        (from, to) = (from + columns, to + if keeps_states { columns } else { 1 });
    }
    let results = results.into_iter().collect::<Option<Vec<Vec<Expr>>>>();
    let (input, keys, results) = (input?, keys?, results?.concat());
    let column = |(i, key): (usize, &Expr)| Expr::column(i, key.data_type.clone(), key.nullable);
    let exprs: Vec<Expr> = keys.iter().enumerate().map(column).chain(results).collect();
    let names: Vec<String> = output.fields().iter().map(|field| field.name().clone()).collect();
    let inner = vec![String::new(); groups + merged.len()];
    let plan = Plan::Aggregate { input: Box::new(input), keys, aggregates: merged, names: inner };
    Some(Plan::Project { input: Box::new(plan), exprs, names })
}

/// The aggregate that merges a column of states: counts are added, the others merge as they were made.
fn merged_state(part: AggregateFunction, field: Field, column: usize) -> Aggregate {
    let argument = Expr::column(column, field.data_type.clone(), field.nullable);
    let function = match part {
        AggregateFunction::Count => AggregateFunction::Sum,
        other => other,
    };
    Aggregate {
        function,
        argument: Some(argument),
        distinct: false,
        field: Field { nullable: true, ..field },
    }
}

/// A function's merged states as its state; the first is column `place`.
fn kept(function: AggregateFunction, states: &[Aggregate], place: usize, fields: &[Field]) -> Vec<Expr> {
    let states = states.iter().zip(place..).map(|(state, column)| column_of(state, column));
    states
        .zip(fields)
        .map(|(state, field)| match function {
            AggregateFunction::Count => count(state, field.data_type.clone()),
            _ => state,
        })
        .collect()
}

/// A function's result from its merged states, of which the first is column `place`.
fn result(
    function: AggregateFunction,
    states: &[Aggregate],
    place: usize,
    fields: &[Field],
) -> Option<Vec<Expr>> {
    let data_type = fields.first()?.data_type.clone();
    let first = column_of(states.first()?, place);
    let value = match function {
        AggregateFunction::Count => count(first, data_type),
        AggregateFunction::Avg => {
            let sum = column_of(states.get(1)?, place + 1);
            average(count(first, DataType::UInt64), sum, data_type)?
        }
        _ if first.data_type == data_type => first,
        _ => return None,
    };
    Some(vec![value])
}

fn column_of(state: &Aggregate, column: usize) -> Expr {
    Expr::column(column, state.field.data_type.clone(), state.field.nullable)
}

/// A sum of counts: 0 over no rows.
fn count(sum: Expr, data_type: DataType) -> Expr {
    let zero = Expr::literal(Literal::Int(0), sum.data_type.clone());
    let from = sum.data_type.clone();
    let kind = ExprKind::Function(Function::Coalesce, vec![sum, zero]);
    cast(Expr { kind, data_type: from, nullable: false }, data_type)
}

fn cast(input: Expr, data_type: DataType) -> Expr {
    if input.data_type == data_type {
        return input;
    }
    let nullable = input.nullable;
    Expr { kind: ExprKind::Cast { input: Box::new(input), safe: false }, data_type, nullable }
}

/// The sum over the count; NULL where the sum is. DataFusion divides a decimal sum scaled up by four digits towards
/// zero, and so does Arrow's division of decimals.
fn average(count: Expr, sum: Expr, data_type: DataType) -> Option<Expr> {
    let (divisor, quotient) = match (&sum.data_type, &data_type) {
        (DataType::Float64, DataType::Float64) => (DataType::Float64, DataType::Float64),
        (DataType::Decimal128 { precision: 38, scale }, DataType::Decimal128 { scale: to, .. })
            if *to == scale + 4 =>
        {
            (
                DataType::Decimal128 { precision: 20, scale: 0 },
                DataType::Decimal128 { precision: 38, scale: *to },
            )
        }
        _ => return None,
    };
    // Over no row the sum is NULL and the count 0, by which nothing may be divided.
    let one = Expr::literal(Literal::Int(1), count.data_type.clone());
    let none =
        Expr { kind: ExprKind::IsNull(Box::new(sum.clone())), data_type: DataType::Boolean, nullable: false };
    let from = count.data_type.clone();
    let branches = vec![(none, one)];
    let kind = ExprKind::Case { branches, otherwise: Some(Box::new(count)) };
    let count = cast(Expr { kind, data_type: from, nullable: false }, divisor);
    let kind = ExprKind::Arithmetic(ArithmeticOp::Divide, Box::new(sum), Box::new(count));
    Some(cast(Expr { kind, data_type: quotient, nullable: true }, data_type))
}
