//! The first row of each key: `row_number() OVER (PARTITION BY k ORDER BY o)` below a filter that keeps number 1 alone, which is
//! how SQL asks for the latest or the largest row of each key.
//!
//! No row needs its number for that. What is left of a partition is the row at rank 0 of its group, so such a filter and the window
//! below it are one `Ranked`, whose values are all of one row, also where the order does not tell rows apart. Where nothing but
//! keys is asked for, it is an aggregation, and where everything is one partition, the first row of a sort (of an input without
//! rows that has none, while an aggregation without keys has one). In what stands above, the number is the constant 1.
//!
//! Windows whose numbers are asked for otherwise are windows (`window`).

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::functions_window::row_number::RowNumber;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal as LiteralExpr};
use datafusion::physical_expr::utils::{collect_columns, split_conjunction};
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec, WindowUDFExpr};
use kelpie_compile::expr::{Expr, ExprKind};
use kelpie_compile::plan::{Plan, Rank, Ranked, RankedValue, SortKey};
use kelpie_compile::types::{DataType, Field, Literal};

use super::derive::Below;
use super::order;
use super::order::ordered;
use super::plans::{limited, projected};
use super::translator::Translator;
use crate::derived::mapped;
use crate::node::{Node, name_of, pass_through};
use crate::window_functions::own_window;

type PhysicalRef = Arc<dyn PhysicalExpr>;

/// A filter over numbered rows that keeps the first ones.
pub(super) struct FirstRows<'p> {
    window: &'p Node,
    /// Below the window. All expressions are over its columns.
    input: &'p Node,
    /// What the rows are numbered by.
    numbers: &'p Arc<dyn WindowExpr>,
    /// What else the filter asks for.
    rest: Vec<PhysicalRef>,
    /// The filter's columns.
    output: Vec<PhysicalRef>,
    names: Vec<String>,
}

impl<'p> FirstRows<'p> {
    /// What a filter is, if it is such a one.
    pub fn of(filter: &'p FilterExec) -> Option<FirstRows<'p>> {
        let (window, projections) = window_below(filter.input())?;
        let (input, exprs) = window_of(window)?;
        let width = input.schema().fields().len();
        let over_window =
            |expr: &PhysicalRef| projections.iter().try_fold(Arc::clone(expr), through_projection);
        let predicate = over_window(filter.predicate())?;
        let conjuncts = split_conjunction(&predicate);
        let (place, number) = conjuncts.iter().enumerate().find_map(|(place, conjunct)| {
            let number = first_only(conjunct)?.checked_sub(width)?;
            is_row_number(exprs.get(number)?).then_some((place, number))
        })?;
        let numbers = exprs.get(number)?;
        // Groups tell the two zeros apart from each other as little as partitions do, but show one of them for both.
        let schema = input.schema();
        let is_float =
            |key: &PhysicalRef| key.data_type(&schema).is_ok_and(|data_type| data_type.is_floating());
        if numbers.partition_by().iter().any(is_float) {
            return None;
        }
        // Other numbers by the same keys and order may be taken from the same rows.
        let is_same = |other: &Arc<dyn WindowExpr>| {
            is_row_number(other)
                && other.partition_by() == numbers.partition_by()
                && other.order_by() == numbers.order_by()
        };
        let over_input = |expr: &PhysicalRef| {
            mapped(expr, &|column| match column.index().checked_sub(width) {
                None => Some(Arc::new(column.clone())),
                Some(number) => one(exprs.get(number).filter(|other| is_same(other))?),
            })
        };
        let rest = conjuncts.iter().enumerate().filter(|(other, _)| *other != place);
        let rest = rest.map(|(_, conjunct)| over_input(conjunct)).collect::<Option<_>>()?;
        let schema = filter.input().schema();
        let columns: Vec<usize> = match filter.projection() {
            Some(projection) => projection.to_vec(),
            None => (0..schema.fields().len()).collect(),
        };
        let column = |index: &usize| {
            let column: PhysicalRef = Arc::new(Column::new(schema.fields().get(*index)?.name(), *index));
            over_input(&over_window(&column)?)
        };
        let output = columns.iter().map(column).collect::<Option<_>>()?;
        let names = filter.schema().fields().iter().map(|field| field.name().clone()).collect();
        Some(FirstRows { window, input, numbers, rest, output, names })
    }

    /// The plan; `None` with the reasons where it is not compiled.
    pub fn plan(&self, translator: &mut Translator) -> Option<Plan> {
        let input = translator.plan(self.input);
        let schema = self.input.schema();
        let operator = name_of(self.window);
        let mut over_input = translator.exprs_over(Below::Node(self.input), &schema, &operator);
        let keys = over_input.exprs(self.numbers.partition_by());
        let order = self.numbers.order_by().iter().map(|key| {
            let expr = over_input.expr(&key.expr)?;
            let nulls_first = key.options.nulls_first && expr.nullable;
            Some(SortKey { expr, descending: key.options.descending, nulls_first })
        });
        // All reasons are wanted.
        let order: Vec<Option<SortKey>> = order.collect();
        let (input, keys) = (input?, keys?);
        let order = order.into_iter().collect::<Option<Vec<SortKey>>>()?;
        let (rows, positions) = self.first_rows(input, keys, order, translator)?;
        let mut above = translator.exprs(&schema, "FilterExec");
        above.positions = Some(&positions);
        let rest = match self.rest.is_empty() {
            true => None,
            false => Some(above.expr(&conjunction(self.rest.clone()))),
        };
        let output = above.exprs(&self.output);
        let rows = match rest {
            Some(predicate) => Plan::Filter { input: Box::new(rows), predicate: predicate? },
            None => rows,
        };
        Some(projected(rows, output?, self.names.clone()))
    }

    /// The first rows, and where the input's columns are that are read of them.
    fn first_rows(
        &self,
        input: Plan,
        keys: Vec<Expr>,
        order: Vec<SortKey>,
        translator: &mut Translator,
    ) -> Option<(Plan, Vec<usize>)> {
        let fields = input.fields();
        if keys.is_empty() {
            let rows = match order.is_empty() {
                true => limited(ordered(input, self.input, translator)?, 0, Some(1)),
                false => Plan::Sort { input: Box::new(order::unsorted(input)), keys: order, fetch: Some(1) },
            };
            return Some((rows, (0..fields.len()).collect()));
        }
        let mut positions = vec![usize::MAX; fields.len()];
        let mut values = Vec::new();
        for column in self.columns_read() {
            let field = fields.get(column)?;
            let expr = Expr::column(column, field.data_type.clone(), field.nullable);
            // All rows of a group have its keys.
            let key = keys.iter().position(|key| key.kind == ExprKind::Column(column));
            *positions.get_mut(column)? = key.unwrap_or_else(|| {
                values.push(first(expr, field.clone()));
                keys.len() + values.len() - 1
            });
        }
        let input = order::unsorted(input);
        let names = keys.iter().map(|key| match key.kind {
            ExprKind::Column(column) => fields.get(column).map(|field| field.name.clone()),
            _ => None,
        });
        let names = names.map(Option::unwrap_or_default).collect();
        let rows = match values.is_empty() {
            true => Plan::Aggregate { input: Box::new(input), keys, aggregates: Vec::new(), names },
            false => {
                Plan::Ranked(Box::new(Ranked { input, keys, order, aggregates: Vec::new(), values, names }))
            }
        };
        Some((rows, positions))
    }

    /// Columns of the input that stand above the window.
    fn columns_read(&self) -> BTreeSet<usize> {
        let exprs = self.rest.iter().chain(&self.output);
        exprs.flat_map(|expr| collect_columns(expr).into_iter().map(|column| column.index())).collect()
    }
}

/// The window below projections and what hands rows on, and these projections from the top.
fn window_below(node: &Node) -> Option<(&Node, Vec<&ProjectionExec>)> {
    let (mut node, mut projections) = (node, Vec::new());
    loop {
        if window_of(node).is_some() {
            return Some((node, projections));
        }
        node = match node.downcast_ref::<ProjectionExec>() {
            Some(projection) => {
                projections.push(projection);
                projection.input()
            }
            None => pass_through(node).filter(|_| node.fetch().is_none())?,
        };
    }
}

/// The input and the expressions of a window.
pub(super) fn window_of(node: &Node) -> Option<(&Node, &[Arc<dyn WindowExpr>])> {
    if let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() {
        Some((window.input(), window.window_expr()))
    } else {
        let window = node.downcast_ref::<WindowAggExec>()?;
        Some((window.input(), window.window_expr()))
    }
}

/// An expression over a projection's columns as one over those below it.
fn through_projection(expr: PhysicalRef, projection: &&ProjectionExec) -> Option<PhysicalRef> {
    mapped(&expr, &|column| Some(Arc::clone(&projection.expr().get(column.index())?.expr)))
}

/// Whether it is DataFusion's own `row_number`: names tell nothing. A frame does not change what it gives.
fn is_row_number(expr: &Arc<dyn WindowExpr>) -> bool {
    let standard = expr.as_any().downcast_ref::<StandardWindowExpr>();
    let call =
        standard.and_then(|expr| expr.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>());
    call.is_some_and(|call| own_window(call.fun()).inner().as_ref().is::<RowNumber>())
}

/// The column that a condition keeps at 1, if its values are numbers from 1 on.
fn first_only(condition: &PhysicalRef) -> Option<usize> {
    let condition = condition.downcast_ref::<BinaryExpr>()?;
    let (column, op, literal) =
        match (condition.left().downcast_ref::<Column>(), condition.right().downcast_ref::<Column>()) {
            (Some(column), None) => (column, *condition.op(), condition.right()),
            (None, Some(column)) => (column, condition.op().swap()?, condition.left()),
            _ => return None,
        };
    let number = match literal.downcast_ref::<LiteralExpr>()?.value() {
        ScalarValue::UInt64(Some(number)) => *number,
        ScalarValue::Int64(Some(number)) => u64::try_from(*number).ok()?,
        _ => return None,
    };
    let keeps_first = matches!((op, number), (Operator::Eq | Operator::LtEq, 1) | (Operator::Lt, 2));
    keeps_first.then(|| column.index())
}

/// The number of a first row, in the type of a function that numbers rows.
fn one(numbers: &Arc<dyn WindowExpr>) -> Option<PhysicalRef> {
    let one = ScalarValue::UInt64(Some(1)).cast_to(numbers.field().ok()?.data_type()).ok()?;
    Some(Arc::new(LiteralExpr::new(one)))
}

/// A column in the first row.
fn first(argument: Expr, field: Field) -> RankedValue {
    let rank = Rank::FromFirst(Expr::literal(Literal::Int(0), DataType::Int64));
    RankedValue { rank, argument, counted: None, field }
}
