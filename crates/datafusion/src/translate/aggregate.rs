//! Aggregates.

mod passes;
mod ranked;
mod states;

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::functions_aggregate::{
    all_default_aggregate_functions, average, bit_and_or_xor, bool_and_or, correlation, count, covariance,
    min_max, regr, stddev, sum, variance,
};
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal as LiteralExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use kelpie_compile::expr::{Expr, ExprKind, Function};
use kelpie_compile::plan::{Aggregate, AggregateFunction, GroupingSet, GroupingSets, PairStatistic, Plan};
use kelpie_compile::types::{DataType, Field, Literal};

use super::derive::Below;
use super::translator::Translator;
use crate::corrections::exact::ExactSum;
use crate::node::{Node, pass_through};
use crate::types;
use crate::window_functions::own_aggregate;

/// Most grouping sets of an aggregate: each may read the input again.
const GROUPING_SET_LIMIT: usize = 32;

/// An aggregate: in one step, the final step with its partial step below, or one of the steps by itself.
pub(super) fn aggregate(translator: &mut Translator, node: &AggregateExec) -> Option<Plan> {
    use AggregateMode::*;
    let first = match node.mode() {
        Single | SinglePartitioned | Partial => node,
        Final | FinalPartitioned => match partial(node) {
            Some(partial) => partial,
            None => return states::merge(translator, node),
        },
        PartialReduce => return states::merge(translator, node),
    };
    if first.aggr_expr().iter().any(|call| ranked::is_ranked(call)) {
        return ranked::aggregate(translator, node, first);
    }
    let input = translator.plan(first.input());
    let group = first.group_expr();
    let schema = first.input().schema();
    let mut over_input = translator.exprs_over(Below::Node(first.input()), &schema, "AggregateExec");
    let keys = over_input.exprs(group.expr().iter().map(|(key, _)| key));
    let output = node.schema();
    let mut aggregates = Vec::new();
    let mut position = group.expr().len() + usize::from(has_sets(first));
    for (i, call) in first.aggr_expr().iter().enumerate() {
        let filter = first.filter_expr().get(i).and_then(Option::as_ref);
        let translated = one(translator, (first.input(), "AggregateExec"), call, filter);
        // A partial step's columns are what the function accumulates.
        let count = match node.mode() {
            Partial => call.state_fields().map_or(1, |fields| fields.len()),
            _ => 1,
        };
        let fields = fields_from(&output, position, count);
        position += count;
        let made = match (translated, fields) {
            (Some((function, argument)), Some(fields)) if *node.mode() == Partial => {
                states::of(translator, call, function, argument, fields)
            }
            (Some((function, argument)), Some(fields)) => {
                let distinct = call.is_distinct();
                let whole = |field| Aggregate { function, argument: argument.clone(), distinct, field };
                Some(fields.into_iter().map(whole).collect())
            }
            (Some(_), None) if *node.mode() == Partial => states::refuse(translator, call),
            (Some(_), None) => {
                let reason = format!("AggregateExec: {}: the result's type is not compiled", call.name());
                translator.refuse(&reason)
            }
            (None, _) => None,
        };
        aggregates.push(made);
    }
    let aggregates = aggregates.into_iter().collect::<Option<Vec<Vec<_>>>>();
    let (input, keys, aggregates) = (input?, keys?, aggregates?.concat());
    if !has_sets(first) {
        let names = output.fields().iter().map(|field| field.name().clone()).collect();
        return Some(Plan::Aggregate { input: Box::new(input), keys, aggregates, names });
    }
    let (sets, fields) = sets_of(translator, first, &output)?;
    Some(Plan::GroupingSets(Box::new(GroupingSets { input, keys, sets, aggregates, fields })))
}

/// Whether an aggregation has several grouping sets, or marks its only one.
fn has_sets(first: &AggregateExec) -> bool {
    let group = first.group_expr();
    group.has_grouping_set() || group.groups().len() > 1
}

/// An aggregation for each of its grouping sets, all of them together. `grouped` makes the aggregation by some keys, whose columns
/// are these and then the aggregates; it is given names for all of them.
fn over_sets(
    translator: &mut Translator,
    first: &AggregateExec,
    (output, keys): (&Schema, &[Expr]),
    grouped: &Grouped<'_>,
) -> Option<Plan> {
    if !has_sets(first) {
        return grouped(keys.to_vec(), output.fields().iter().map(|field| field.name().clone()).collect());
    }
    let (sets, fields) = sets_of(translator, first, output)?;
    let of_set = |set: &GroupingSet| {
        let present = keys.iter().zip(&set.has).filter(|(_, has)| **has);
        let present: Vec<Expr> = present.map(|(key, _)| key.clone()).collect();
        // The identifier is no column of it.
        let names = vec![String::new(); present.len() + fields.len() - keys.len() - 1];
        Some(set.rows(grouped(present, names)?, &fields))
    };
    let inputs = sets.iter().map(of_set).collect::<Option<_>>()?;
    Some(Plan::Union { inputs, fields })
}

/// The grouping sets of an aggregation with the columns `output`, and these columns.
fn sets_of(
    translator: &mut Translator,
    first: &AggregateExec,
    output: &Schema,
) -> Option<(Vec<GroupingSet>, Vec<Field>)> {
    let groups = first.group_expr().groups();
    if groups.len() > GROUPING_SET_LIMIT {
        let reason = format!("AggregateExec: more than {GROUPING_SET_LIMIT} grouping sets are not compiled");
        return translator.refuse(&reason);
    }
    let fields: Option<Vec<Field>> = output.fields().iter().map(|field| types::field(field)).collect();
    let Some(fields) = fields else {
        return translator.refuse("AggregateExec: a grouping set's type is not compiled");
    };
    Some((identified(groups), fields))
}

/// Makes an aggregation by keys, with names of its columns.
type Grouped<'g> = dyn Fn(Vec<Expr>, Vec<String>) -> Option<Plan> + 'g;

/// Grouping sets with their values of `__grouping_id`: a bit for each absent key, the last key lowest, and above these
/// bits how often the same set stood before.
fn identified(groups: &[Vec<bool>]) -> Vec<GroupingSet> {
    let identify = |(index, group): (usize, &Vec<bool>)| {
        let before = groups[..index].iter().filter(|other| *other == group).count() as i128;
        let identifier = group.iter().fold(before, |bits, absent| bits << 1 | i128::from(*absent));
        GroupingSet { has: group.iter().map(|absent| !absent).collect(), identifier }
    };
    groups.iter().enumerate().map(identify).collect()
}

/// Some columns of a schema, where all are of types that are compiled.
fn fields_from(schema: &Schema, position: usize, count: usize) -> Option<Vec<Field>> {
    let fields = schema.fields().get(position..position + count)?;
    fields.iter().map(|field| types::field(field)).collect()
}

/// The partial step below a final one; rows may be repartitioned in between.
fn partial(node: &AggregateExec) -> Option<&AggregateExec> {
    let mut below = node.input();
    loop {
        if let Some(aggregate) = below.downcast_ref::<AggregateExec>() {
            return (*aggregate.mode() == AggregateMode::Partial).then_some(aggregate);
        }
        below = pass_through(below)?;
    }
}

/// An aggregate over the rows of the node below an operator, whose name it is for people.
pub(super) fn one(
    translator: &mut Translator,
    (below, operator): (&Node, &str),
    call: &AggregateFunctionExpr,
    filter: Option<&Arc<dyn PhysicalExpr>>,
) -> Option<(AggregateFunction, Option<Expr>)> {
    let refuse = |translator: &mut Translator, why: &str| {
        translator.refuse(&format!("{operator}: {}: {why}", call.name()))
    };
    let Some(function) = function(call.fun()) else {
        return refuse(translator, &unknown(call.fun()));
    };
    if !call.order_bys().is_empty() {
        return refuse(translator, "ORDER BY inside an aggregate is not compiled");
    }
    let expressions = call.expressions();
    let (argument, second) = match expressions.as_slice() {
        [argument] if !takes_pairs(call.fun()) => (argument, None),
        [first, second] if takes_pairs(call.fun()) && !call.is_distinct() => (first, Some(second)),
        _ => return refuse(translator, "other arguments are expected"),
    };
    // `count(*)` arrives as the count of a constant.
    let counts_rows = function == AggregateFunction::Count
        && !call.is_distinct()
        && argument.downcast_ref::<LiteralExpr>().is_some_and(|literal| !literal.value().is_null());
    if counts_rows && filter.is_none() {
        return Some((function, None));
    }
    let schema = below.schema();
    let mut exprs = translator.exprs_over(Below::Node(below), &schema, operator);
    let argument = match counts_rows {
        true => Some(Expr::literal(Literal::Boolean(true), DataType::Boolean)),
        false => exprs.expr(argument),
    };
    let argument = match filter {
        Some(filter) => filtered(exprs.expr(filter), argument)?,
        None => argument?,
    };
    let argument = match second {
        Some(second) => pair(argument, exprs.expr(second)?),
        None => argument,
    };
    Some((function, Some(argument)))
}

/// The function that an implementation is, if it is one of DataFusion's own: a session may have another one of the same
/// name, so names tell nothing.
fn function(udf: &AggregateUDF) -> Option<AggregateFunction> {
    use AggregateFunction::*;
    let udf = own_aggregate(udf);
    let implementation = udf.inner().as_ref();
    macro_rules! known {
        ($($name:ty => $function:expr,)*) => {
            $(if implementation.is::<$name>() {
                return Some($function);
            })*
        };
    }
    known! {
        count::Count => Count,
        sum::Sum => Sum,
        ExactSum => SumExact,
        min_max::Min => Min,
        min_max::Max => Max,
        // false < true
        bool_and_or::BoolAnd => Min,
        bool_and_or::BoolOr => Max,
        average::Avg => Avg,
        variance::VarianceSample => VarSample,
        variance::VariancePopulation => VarPopulation,
        stddev::Stddev => StddevSample,
        stddev::StddevPop => StddevPopulation,
        covariance::CovarianceSample => OfPairs(PairStatistic::CovarianceSample),
        covariance::CovariancePopulation => OfPairs(PairStatistic::CovariancePopulation),
        correlation::Correlation => OfPairs(PairStatistic::Correlation),
    }
    // One type for several of them: equal where the operation is.
    let several = [
        (bit_and_or_xor::bit_and_udaf(), BitAnd),
        (bit_and_or_xor::bit_or_udaf(), BitOr),
        (bit_and_or_xor::bit_xor_udaf(), BitXor),
        (regr::regr_count_udaf(), Count),
        (regr::regr_slope_udaf(), OfPairs(PairStatistic::Slope)),
        (regr::regr_intercept_udaf(), OfPairs(PairStatistic::Intercept)),
        (regr::regr_r2_udaf(), OfPairs(PairStatistic::Determination)),
        (regr::regr_avgx_udaf(), OfPairs(PairStatistic::MeanX)),
        (regr::regr_avgy_udaf(), OfPairs(PairStatistic::MeanY)),
        (regr::regr_sxx_udaf(), OfPairs(PairStatistic::SquaresX)),
        (regr::regr_syy_udaf(), OfPairs(PairStatistic::SquaresY)),
        (regr::regr_sxy_udaf(), OfPairs(PairStatistic::Products)),
    ];
    several.into_iter().find(|(known, _)| **known == *udf).map(|(_, function)| function)
}

/// Whether a function is one over pairs.
fn takes_pairs(udf: &AggregateUDF) -> bool {
    matches!(function(udf), Some(AggregateFunction::OfPairs(_)))
        || *own_aggregate(udf) == *regr::regr_count_udaf()
}

/// Two values, of which an aggregate skips those pairs that have a NULL.
fn pair(first: Expr, second: Expr) -> Expr {
    Expr {
        data_type: first.data_type.clone(),
        nullable: first.nullable || second.nullable,
        kind: ExprKind::Function(Function::Pair, vec![first, second]),
    }
}

/// Whether a function is one of those that are compiled, all of which skip NULL.
pub fn skips_nulls(udf: &AggregateUDF) -> bool {
    function(udf).is_some()
}

/// Why a function is not compiled.
fn unknown(udf: &AggregateUDF) -> String {
    let udf = own_aggregate(udf);
    let name = udf.name();
    let known = all_default_aggregate_functions();
    let own = known.iter().any(|known| known.name() == name) && !known.iter().any(|known| **known == *udf);
    match own {
        true => format!("{name} is the session's own aggregate function, not DataFusion's"),
        false => format!("the aggregate function {name} is not compiled"),
    }
}

/// `f(x) FILTER (WHERE p)` is `f(CASE WHEN p THEN x END)`, as every aggregate skips NULL.
fn filtered(filter: Option<Expr>, argument: Option<Expr>) -> Option<Expr> {
    let (filter, argument) = (filter?, argument?);
    Some(Expr {
        data_type: argument.data_type.clone(),
        nullable: true,
        kind: ExprKind::Case { branches: vec![(filter, argument)], otherwise: None },
    })
}
