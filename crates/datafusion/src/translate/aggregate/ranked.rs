//! Aggregates over the sorted rows of a group: `median`, `percentile_cont`, `quantile_disc`, `mode`, `first_value`, `last_value`, `nth_value`
//! and `string_agg`.
//!
//! | function | order | rows without a rank | value |
//! |---|---|---|---|
//! | `median(x)` | `x` | NULL | the mean of the middle ones; of texts and truth values the first of these |
//! | `percentile_cont(x, p)`, `percentile_cont(p) WITHIN GROUP (ORDER BY x)` | `x` | NULL | at `p`, or at `1 - p` where `x` descends |
//! | `quantile_disc(x, p)` | `x` | NULL | the first one up to which there is the share `p` |
//! | `mode(x)` | how often `x` comes, most often first, then `x` | none: over the groups of `x` | `x` of the first one |
//! | `first_value(x ORDER BY y)`, `last_value`, `nth_value(x, n ORDER BY y)` | `y` | none, or under IGNORE NULLS where `x` is NULL | `x` |
//! | `string_agg(x, ',' ORDER BY y)` | `y` | none | all `x` that are not NULL, with the delimiter between |
//! | `string_agg(x, ',')` | none: that of the input | none | the same |
//! | `string_agg(DISTINCT x, ',')`, with `ORDER BY x` or without | `x` | none | the same, each once |
//!
//! DataFusion promises no order of texts without ORDER BY: where it has one partition it is that of its rows, where it has several any
//! of the orders in which they come, and with DISTINCT that of a hash table. So the order of the input and that of the texts are among
//! those that it may give.
//!
//! Of values that come equally often the least is the mode; DataFusion's operators take the one that reached them first, which may be any.
//!
//! Rows that FILTER leaves out have no rank either. Calls whose orders agree sort the rows once. Others are aggregations of their
//! own, which read the input again and are joined by the keys.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::ScalarValue;
use datafusion::functions_aggregate::{median, nth_value, percentile_cont, string_agg};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal as LiteralExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use kelpie_compile::expr::{Expr, ExprKind};
use kelpie_compile::plan::{Aggregate, Plan, Rank, RankedValue, SortKey};
use kelpie_compile::types::{DataType, Field, Literal};

use super::passes::{Call, Mode, PASS_LIMIT, integer, joined, passes};
use super::{Below, Node, Translator, fields_from, filtered, has_sets, one, over_sets, states};
use crate::aggregates::{Counted, End, GroupedStringAgg, Median, PercentileCont, QuantileDisc};
use crate::translate::order;

/// The functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Median,
    Percentile,
    Discrete,
    Mode,
    First,
    Last,
    Nth,
    Texts,
}

/// The function that a call is of, if it is one of DataFusion's own: names tell nothing.
fn function(call: &AggregateFunctionExpr) -> Option<Function> {
    let implementation = call.fun().inner().as_ref();
    let end = End::of(implementation);
    match () {
        () if implementation.is::<median::Median>() || implementation.is::<Median>() => {
            Some(Function::Median)
        }
        () if implementation.is::<percentile_cont::PercentileCont>()
            || implementation.is::<PercentileCont>() =>
        {
            Some(Function::Percentile)
        }
        () if implementation.is::<QuantileDisc>() => Some(Function::Discrete),
        () if implementation.downcast_ref::<Counted>().is_some_and(Counted::is_mode) => Some(Function::Mode),
        () if end == Some(End::First) => Some(Function::First),
        () if end == Some(End::Last) => Some(Function::Last),
        () if implementation.is::<nth_value::NthValueAgg>() => Some(Function::Nth),
        () if implementation.is::<string_agg::StringAgg>() || implementation.is::<GroupedStringAgg>() => {
            Some(Function::Texts)
        }
        () => None,
    }
}

/// Whether a call needs the rows of its group in an order.
pub(super) fn is_ranked(call: &AggregateFunctionExpr) -> bool {
    function(call).is_some()
}

/// An aggregation of which some calls need an order, in one step or as the final step of `first`.
pub(super) fn aggregate(
    translator: &mut Translator,
    node: &AggregateExec,
    first: &AggregateExec,
) -> Option<Plan> {
    let input = translator.plan(first.input());
    let group = first.group_expr();
    let schema = first.input().schema();
    let mut over_input = translator.exprs_over(Below::Node(first.input()), &schema, "AggregateExec");
    let keys = over_input.exprs(group.expr().iter().map(|(key, _)| key));
    let output = node.schema();
    let mut calls = Vec::new();
    let position = group.expr().len() + usize::from(has_sets(first));
    for (i, call) in first.aggr_expr().iter().enumerate() {
        let filter = first.filter_expr().get(i).and_then(Option::as_ref);
        let field = fields_from(&output, position + i, 1).and_then(|mut fields| fields.pop());
        calls.push(match (function(call), field) {
            _ if *node.mode() == AggregateMode::Partial => states::refuse(translator, call),
            (Some(function), Some(field)) => {
                Maker { translator: &mut *translator, below: first.input(), call, filter }
                    .made(function, field)
            }
            (None, Some(field)) => {
                one(translator, (first.input(), "AggregateExec"), call, filter).map(|(function, argument)| {
                    Call::Plain(Aggregate { function, argument, distinct: call.is_distinct(), field })
                })
            }
            (_, None) => {
                let reason = format!("AggregateExec: {}: the result's type is not compiled", call.name());
                translator.refuse(&reason)
            }
        });
    }
    let (input, keys, calls) = (input?, keys?, calls.into_iter().collect::<Option<Vec<Call>>>()?);
    if calls.iter().any(|call| matches!(call, Call::Ranked(order, _) if order.is_empty()))
        && order::unsorted(input.clone()) != input
    {
        return translator.refuse("AggregateExec: string_agg in the order of sorted rows is not compiled");
    }
    let input = order::unsorted(input);
    let (passes, places) = passes(calls);
    if passes.len() > PASS_LIMIT {
        let reason =
            format!("AggregateExec: more than {PASS_LIMIT} orders in one aggregation are not compiled");
        return translator.refuse(&reason);
    }
    if let Some(picks) = takes_some_rows(&input).filter(|_| passes.len() > 1) {
        return translator
            .refuse(&format!("AggregateExec: two orders of rows that {picks} are not compiled"));
    }
    over_sets(translator, first, (&output, &keys), &|keys, names| {
        joined(&input, keys, names, (&passes, &places))
    })
}

/// What picks rows that may be others when they are picked again, if something does.
fn takes_some_rows(plan: &Plan) -> Option<&'static str> {
    let is_end = |value: &RankedValue| match value.rank {
        Rank::FromFirst(_) | Rank::FromLast(_) | Rank::Texts { .. } => true,
        Rank::Median | Rank::Percentile(_) | Rank::Discrete(_) => false,
    };
    match plan {
        Plan::Limit { .. } | Plan::Sort { fetch: Some(_), .. } => Some("LIMIT picks"),
        // Which of the rows that the order does not tell apart.
        Plan::Ranked(ranked) if ranked.values.iter().any(is_end) => Some("are the first or last of others"),
        plan => plan.inputs().into_iter().find_map(takes_some_rows),
    }
}

/// Translates a call.
struct Maker<'m> {
    translator: &'m mut Translator,
    below: &'m Node,
    call: &'m AggregateFunctionExpr,
    filter: Option<&'m Arc<dyn PhysicalExpr>>,
}

impl Maker<'_> {
    fn refuse<T>(&mut self, why: &str) -> Option<T> {
        self.translator.refuse(&format!("AggregateExec: {}: {why}", self.call.name()))
    }

    fn expr(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Option<Expr> {
        let schema = self.below.schema();
        self.translator.exprs_over(Below::Node(self.below), &schema, "AggregateExec").expr(expr)
    }

    fn made(mut self, function: Function, field: Field) -> Option<Call> {
        if self.call.is_distinct() && function != Function::Texts {
            return self.refuse("DISTINCT values in an order are not compiled");
        }
        let expressions = self.call.expressions();
        let constant = expressions.get(1).and_then(|expr| expr.downcast_ref::<LiteralExpr>());
        let constant = constant.map(LiteralExpr::value);
        let argument = match expressions.first() {
            Some(argument) => self.expr(argument),
            None => self.refuse("an argument is expected"),
        };
        let filter = self.filter.map(|filter| self.expr(filter));
        match function {
            Function::Median => {
                let rank = self.median(argument.as_ref())?;
                self.of_values(rank, filter, argument, field)
            }
            Function::Percentile => {
                if argument.as_ref().is_some_and(|argument| !argument.data_type.is_float()) {
                    return self.refuse("what lies between two times is not compiled");
                }
                let rank = self.percentile(constant)?;
                self.of_values(rank, filter, argument, field)
            }
            Function::Discrete => {
                let share = float(self.share(constant)?);
                self.of_values(Rank::Discrete(share), filter, argument, field)
            }
            Function::Mode => {
                let argument = match filter {
                    Some(filter) => filtered(filter, argument)?,
                    None => argument?,
                };
                Some(Call::Mode(Mode { argument, field }))
            }
            Function::First => self.of_rows(Rank::FromFirst(integer(0)), filter, argument, field),
            Function::Last => self.of_rows(Rank::FromLast(integer(0)), filter, argument, field),
            Function::Nth => {
                let rank = self.nth(constant)?;
                self.of_rows(rank, filter, argument, field)
            }
            Function::Texts => {
                let delimiter = self.delimiter(constant)?;
                self.texts(delimiter, filter, argument, field)
            }
        }
    }

    /// All texts of the argument. Those that FILTER leaves out are NULL, and so no part of the result.
    fn texts(
        &mut self,
        delimiter: Expr,
        filter: Option<Option<Expr>>,
        argument: Option<Expr>,
        field: Field,
    ) -> Option<Call> {
        let (mut order, argument) = (self.order()?, argument?);
        // The order of a call that was turned round is too.
        if self.call.is_reversed() {
            for key in &mut order {
                key.descending = !key.descending;
                key.nulls_first = !key.nulls_first && key.expr.nullable;
            }
        }
        let distinct = self.call.is_distinct();
        if distinct && order.first().is_some_and(|key| key.expr != argument) {
            return self.refuse("DISTINCT texts in another order than their own are not compiled");
        }
        let argument = match filter {
            Some(filter) => filtered(filter, Some(argument))?,
            None => argument,
        };
        if distinct {
            let descending = order.first().is_some_and(|key| key.descending);
            order = vec![SortKey { expr: argument.clone(), descending, nulls_first: false }];
        }
        let rank = Rank::Texts { delimiter, distinct };
        Some(Call::Ranked(order, Box::new(RankedValue { rank, argument, counted: None, field })))
    }

    /// What stands between texts: NULL is nothing.
    fn delimiter(&mut self, constant: Option<&ScalarValue>) -> Option<Expr> {
        let text = match constant {
            Some(
                ScalarValue::Utf8(Some(text))
                | ScalarValue::LargeUtf8(Some(text))
                | ScalarValue::Utf8View(Some(text)),
            ) => text.as_str(),
            Some(value) if value.is_null() => "",
            _ => return self.refuse("a delimiter that is no literal is not compiled"),
        };
        Some(Expr::literal(Literal::Utf8(text.into()), DataType::Utf8))
    }

    /// The keys of ORDER BY.
    fn order(&mut self) -> Option<Vec<SortKey>> {
        let mut order = Vec::new();
        for key in self.call.order_bys() {
            let options = key.options;
            order.push(self.expr(&key.expr).map(|expr| SortKey {
                nulls_first: options.nulls_first && expr.nullable,
                descending: options.descending,
                expr,
            }));
        }
        order.into_iter().collect()
    }

    /// A value between those of the argument in their own order.
    fn of_values(
        &mut self,
        rank: Rank,
        filter: Option<Option<Expr>>,
        argument: Option<Expr>,
        field: Field,
    ) -> Option<Call> {
        let argument = match filter {
            Some(filter) => filtered(filter, argument)?,
            None => argument?,
        };
        let key = SortKey { expr: argument.clone(), descending: false, nulls_first: false };
        let counted = argument.nullable.then(|| argument.clone());
        Some(Call::Ranked(vec![key], Box::new(RankedValue { rank, argument, counted, field })))
    }

    /// The argument in a row.
    fn of_rows(
        &mut self,
        rank: Rank,
        filter: Option<Option<Expr>>,
        argument: Option<Expr>,
        field: Field,
    ) -> Option<Call> {
        if self.call.order_bys().is_empty() {
            return self.refuse("without ORDER BY any row is the first one, and DataFusion's is its own");
        }
        let (mut order, argument) = (self.order()?, argument?);
        let present = (self.call.ignore_nulls() && argument.nullable).then(|| Expr {
            kind: ExprKind::IsNotNull(Box::new(argument.clone())),
            data_type: DataType::Boolean,
            nullable: false,
        });
        let counted = match (filter, present) {
            (None, None) => None,
            (Some(filter), None) => Some(where_true(filter?)),
            (None, Some(present)) => Some(where_true(present)),
            (Some(filter), Some(present)) => {
                let filter = filter?;
                let nullable = filter.nullable;
                let kind = ExprKind::And(Box::new(filter), Box::new(present));
                Some(where_true(Expr { kind, data_type: DataType::Boolean, nullable }))
            }
        };
        if let Some(counted) = &counted {
            order.insert(0, SortKey { expr: counted.clone(), descending: false, nulls_first: false });
        }
        Some(Call::Ranked(order, Box::new(RankedValue { rank, argument, counted, field })))
    }

    /// Of texts and truth values one of them is the median.
    fn median(&mut self, argument: Option<&Expr>) -> Option<Rank> {
        match &argument?.data_type {
            DataType::Utf8 | DataType::Boolean => Some(Rank::Discrete(float(0.5))),
            DataType::Decimal128 { .. } => Some(Rank::Median),
            data_type if data_type.is_float() => Some(Rank::Median),
            _ => self.refuse("the median of times is not compiled"),
        }
    }

    /// DataFusion looks at the direction of the first key alone: the order is that of the argument.
    fn percentile(&mut self, share: Option<&ScalarValue>) -> Option<Rank> {
        let share = self.share(share)?;
        let descending = self.call.order_bys().first().is_some_and(|key| key.options.descending);
        let share = if descending { 1.0 - share } else { share };
        Some(Rank::Percentile(float(share)))
    }

    /// A share of all rows that is written out.
    fn share(&mut self, share: Option<&ScalarValue>) -> Option<f64> {
        let number = share.and_then(|share| share.cast_to(&ArrowType::Float64).ok());
        let Some(ScalarValue::Float64(Some(share))) = number else {
            return self.refuse("a percentile that is no literal is not compiled");
        };
        match (0.0..=1.0).contains(&share) {
            true => Some(share),
            false => self.refuse("a percentile is from 0 to 1"),
        }
    }

    /// Of a call that was turned round, the order is too.
    fn nth(&mut self, n: Option<&ScalarValue>) -> Option<Rank> {
        let Some(ScalarValue::Int64(Some(n))) = n else {
            return self.refuse("a number of a row that is no literal is not compiled");
        };
        if self.call.ignore_nulls() {
            return self.refuse("IGNORE NULLS of nth_value is not compiled");
        }
        let n = if self.call.is_reversed() { i128::from(*n).checked_neg()? } else { i128::from(*n) };
        match n {
            0 => self.refuse("the number of a row is not 0"),
            1.. => Some(Rank::FromFirst(integer(n - 1))),
            _ => Some(Rank::FromLast(integer(-1 - n))),
        }
    }
}

fn float(value: f64) -> Expr {
    Expr::literal(Literal::Float(value), DataType::Float64)
}

/// TRUE where a condition is, else NULL.
fn where_true(condition: Expr) -> Expr {
    let yes = Expr::literal(Literal::Boolean(true), DataType::Boolean);
    let kind = ExprKind::Case { branches: vec![(condition, yes)], otherwise: None };
    Expr { kind, data_type: DataType::Boolean, nullable: true }
}
