//! Times of any year.
//!
//! A timestamp of SQL is one of nanoseconds to DataFusion, which hold the years 1677 to 2262: a literal beyond these fails, and so does a
//! comparison of a column of microseconds with a date or a literal, since both sides become nanoseconds. Here, before types are brought
//! together, what stands beside a coarser time gets its unit, and literals that nanoseconds do not hold are microseconds. Nothing is
//! narrowed but what stays the same value. In the same places, floats are brought together with decimals (`floats`), and whole numbers
//! with those that have no sign (`quotients`).

mod at_zone;
mod days;
mod finer;
mod floats;
mod lengths;
mod operands;
mod parts;
mod quotients;
mod results;
mod series;
mod series_rows;
mod written;
mod written_intervals;
mod zones;

use std::cell::Cell;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::expr::{
    Between, BinaryExpr, Case, InList, InSubquery, ScalarFunction, SetComparison,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, Operator, TryCast, Union};
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer};
use kelpie_datafusion::{AnyYear, KelpieOptions, WrittenTimes, map_named};

pub(crate) use self::at_zone::AT_TIME_ZONE;
use self::lengths::compare_lengths;
pub(crate) use self::lengths::{is_interval, length_of};
pub(crate) use self::operands::is_beyond;
use self::operands::{
    beyond_nanoseconds, bring_together, exact_comparison, is_date, is_of_nanoseconds, is_text_of_row,
};
pub(crate) use self::series::SERIES;
use self::series_rows::SeriesRows;
use self::written::{completed_expr, may_read};
pub(crate) use self::written_intervals::in_known_units;
use crate::inserted::as_the_table_has_it;

/// Adds the rule to a session, before the one that brings types together, and functions of times that know all years.
pub(crate) fn add_times(builder: &mut SessionStateBuilder) {
    let rules = &mut builder.analyzer().get_or_insert_with(Analyzer::new).rules;
    // grouping(…) finds its key by how both are written.
    let resolved = rules.iter().position(|rule| rule.name() == "resolve_grouping_function");
    rules.insert(resolved.map_or(0, |place| place + 1), Arc::new(Times));
    builder.optimizer().get_or_insert_with(Optimizer::new).rules.insert(0, Arc::new(SeriesRows));
    let mut relations = vec![];
    for function in builder.scalar_functions().iter_mut().flatten() {
        if let Some(of_times) = AnyYear::of(function).or_else(|| WrittenTimes::of(function)) {
            *function = Arc::new(of_times);
        } else if let Some([value, relation]) = series::of(function) {
            *function = Arc::new(value);
            relations.push(Arc::new(relation));
        }
    }
    let functions = builder.scalar_functions().get_or_insert_default();
    functions.extend(relations);
    functions.push(Arc::new(at_zone::at_time_zone()));
}

/// Functions that take nanoseconds where they are given a date or a text.
const OF_TIMES: [&str; 2] = ["date_trunc", "date_bin"];
/// A function that gives nanoseconds.
const TO_TIMESTAMP: &str = "to_timestamp";

#[derive(Debug)]
struct Times;

impl AnalyzerRule for Times {
    fn name(&self) -> &str {
        "kelpie_times"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        match KelpieOptions::of(config).corrections {
            true => {
                let changed = Cell::new(false);
                Ok(plan.transform_up_with_subqueries(|plan| mended(plan, &changed))?.data)
            }
            false => Ok(plan),
        }
    }
}

/// A node with its expressions mended; once one has changed, those above it may have got other types too.
fn mended(plan: LogicalPlan, changed: &Cell<bool>) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        let columns = scan.source.schema();
        schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &columns)?);
    }
    let names = NamePreserver::new(&plan);
    let rewritten = plan.map_expressions(|expr| {
        if !expr.exists(|expr| Ok(has_times(expr, &schema) || may_read(expr)))? {
            return Ok(Transformed::no(expr));
        }
        map_named(expr, &names, &mut |expr| {
            expr.transform_up(|expr| {
                completed_expr(expr, &schema)?.transform_data(|expr| mended_expr(expr, &schema))
            })
        })
    })?;
    let rewritten = rewritten.transform_data(|plan| match plan {
        LogicalPlan::Values(values) => results::of_values(values),
        LogicalPlan::Union(union) => results::of_union(union),
        LogicalPlan::Join(join) => Ok(results::of_join(join)),
        write @ LogicalPlan::Dml(_) if changed.get() => as_the_table_has_it(write).map(Transformed::yes),
        LogicalPlan::Sort(mut sort) => {
            let mut has_intervals = false;
            for key in sort.expr.iter_mut().filter(|key| is_interval(&key.expr, &schema)) {
                key.expr = length_of(std::mem::take(&mut key.expr));
                has_intervals = true;
            }
            Ok(Transformed::new_transformed(LogicalPlan::Sort(sort), has_intervals))
        }
        other => Ok(Transformed::no(other)),
    })?;
    changed.set(changed.get() || rewritten.transformed);
    match (changed.get(), &rewritten.data) {
        // Its schema would stay as it was.
        (true, LogicalPlan::Union(union)) => {
            let union = Union::try_new_with_loose_types(union.inputs.clone())?;
            Ok(Transformed::yes(LogicalPlan::Union(union)))
        }
        (true, _) => rewritten.map_data(LogicalPlan::recompute_schema),
        (false, _) => Ok(rewritten),
    }
}

/// Whether an expression, apart from those in it, has to do with times, or with decimals that may stand beside floats: most have not, and
/// their names need not be kept.
fn has_times(expr: &Expr, schema: &DFSchema) -> bool {
    let is_one = |expr: &Expr, meant: fn(&DataType) -> bool| expr.get_type(schema).is_ok_and(|of| meant(&of));
    let is_time = |expr: &Expr| is_one(expr, DataType::is_temporal);
    let may_differ = |expr: &Expr| is_one(expr, |of| of.is_temporal() || of.is_decimal());
    match expr {
        Expr::Cast(cast) => matches!(cast.field.data_type(), DataType::Timestamp(..)),
        Expr::TryCast(cast) => matches!(cast.field.data_type(), DataType::Timestamp(..)),
        Expr::BinaryExpr(binary) => {
            is_time(&binary.left) || is_time(&binary.right) || quotients::is_one(binary, schema)
        }
        Expr::Between(Between { expr, low, high, .. }) => is_time(expr) || is_time(low) || is_time(high),
        Expr::InList(InList { expr, list, .. }) => is_time(expr) || list.iter().any(is_time),
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().any(|(when, then)| is_time(when) || may_differ(then));
            results || case.else_expr.as_deref().is_some_and(|result| is_one(result, DataType::is_decimal))
        }
        Expr::InSubquery(_) | Expr::SetComparison(_) => true,
        Expr::ScalarFunction(call) => {
            call.args.iter().any(may_differ)
                || OF_TIMES.contains(&call.func.name())
                || call.func.name() == TO_TIMESTAMP
        }
        _ => false,
    }
}

fn mended_expr(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if let Expr::ScalarFunction(call) = &expr
        && let Some(mended) = parts::mended_call(call, schema)?
    {
        return Ok(Transformed::yes(mended));
    }
    if let Expr::BinaryExpr(comparison) = &mut expr
        && parts::mend_year(comparison, schema)
    {
        return Ok(Transformed::yes(expr));
    }
    let rounded = finer::round(&mut expr, schema);
    let changed = match &mut expr {
        Expr::Cast(cast) => {
            return Ok(match mended_cast(cast, schema) {
                Some(mended) => Transformed::yes(mended),
                None => Transformed::no(expr),
            });
        }
        Expr::TryCast(TryCast { expr: inner, field }) => {
            let strict = Cast::new(inner.clone(), field.data_type().clone());
            return Ok(match mended_cast(&strict, schema) {
                Some(Expr::Cast(cast)) => {
                    let microseconds = cast.field.data_type().clone();
                    Transformed::yes(Expr::TryCast(TryCast::new(cast.expr, microseconds)))
                }
                Some(literal @ Expr::Literal(..)) => Transformed::yes(literal),
                _ => Transformed::no(expr),
            });
        }
        Expr::BinaryExpr(binary) => {
            let exact = exact_comparison(binary, schema)
                .or_else(|| days::shifted(binary, schema))
                .or_else(|| quotients::whole(binary, schema));
            match exact {
                Some(exact) => return Ok(Transformed::yes(exact)),
                None => mend_binary(binary, schema)?,
            }
        }
        Expr::Between(Between { expr, low, high, .. }) => {
            let operands: &mut [&mut Expr] = &mut [expr, low, high];
            compare_lengths(operands, schema) || bring_together(operands, |_| schema, true)?
        }
        Expr::InList(InList { expr, list, .. }) => {
            let mut operands = vec![expr.as_mut()];
            operands.extend(list.iter_mut());
            compare_lengths(&mut operands, schema) || bring_together(&mut operands, |_| schema, true)?
        }
        Expr::Case(case) => mend_case(case, schema)?,
        Expr::InSubquery(InSubquery { expr, subquery, .. })
        | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
            floats::beside_rows(expr, subquery, schema)?
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            const ALIKE: [&str; 8] =
                ["coalesce", "nullif", "greatest", "least", "nvl", "nvl2", "ifnull", "make_array"];
            match func.name() {
                name if ALIKE.contains(&name) => {
                    bring_together(&mut args.iter_mut().collect::<Vec<_>>(), |_| schema, false)?
                }
                name if OF_TIMES.contains(&name) => {
                    let mut times = args.iter_mut().skip(1);
                    let changed = mend_argument(times.next(), schema);
                    mend_argument(times.next(), schema) || changed
                }
                _ => false,
            }
        }
        _ => false,
    };
    Ok(Transformed::new_transformed(expr, changed || rounded))
}

/// A cast to nanoseconds of what these do not hold: of a literal beyond them, or of a date or a text of a row, which may be of any year.
fn mended_cast(cast: &Cast, schema: &DFSchema) -> Option<Expr> {
    if let Some(value) = beyond_nanoseconds(cast) {
        return Some(Expr::Literal(value, None));
    }
    if let Some(in_zone) = zones::mended_cast(cast, schema) {
        return Some(in_zone);
    }
    if let Some(narrowed) = parts::narrowed(cast, schema) {
        return Some(narrowed);
    }
    let DataType::Timestamp(TimeUnit::Nanosecond, zone) = cast.field.data_type() else { return None };
    let microseconds = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
    let is_mended = is_date(&cast.expr, schema) || is_text_of_row(&cast.expr, schema);
    is_mended.then(|| Expr::Cast(Cast::new(cast.expr.clone(), microseconds)))
}

fn mend_binary(binary: &mut BinaryExpr, schema: &DFSchema) -> Result<bool> {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    let BinaryExpr { left, op, right } = binary;
    let compares = matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom);
    let (adds, subtracts) = (*op == Operator::Plus, *op == Operator::Minus);
    if adds && is_date(right, schema) && has_time(left) {
        make_timestamp(right, left);
        return Ok(true);
    }
    if (adds || subtracts) && is_date(left, schema) && has_time(right) {
        make_timestamp(left, right);
        return Ok(true);
    }
    if (adds || subtracts) && is_far(right) && is_of_nanoseconds(left, schema) {
        operands::cast(left, DataType::Timestamp(TimeUnit::Microsecond, None));
        return Ok(true);
    }
    match compares || subtracts {
        true => {
            let by_length = compares && compare_lengths(&mut [left, right], schema);
            Ok(by_length || bring_together(&mut [left, right], |_| schema, compares)?)
        }
        false => Ok(false),
    }
}

/// Whether an expression is an interval with a part of a day: a date and it are a timestamp.
fn has_time(expr: &Expr) -> bool {
    const DAY_NS: i64 = 86_400_000_000_000;
    match expr {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), _) => value.nanoseconds % DAY_NS != 0,
        Expr::Literal(ScalarValue::IntervalDayTime(Some(value)), _) => {
            i64::from(value.milliseconds) * 1_000_000 % DAY_NS != 0
        }
        _ => false,
    }
}

/// Whether an interval may lead out of the years that nanoseconds hold.
fn is_far(expr: &Expr) -> bool {
    const YEARS: i64 = 100;
    match expr {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), _) => {
            i64::from(value.months).abs() > 12 * YEARS || i64::from(value.days).abs() > 366 * YEARS
        }
        Expr::Literal(ScalarValue::IntervalYearMonth(Some(months)), _) => {
            i64::from(*months).abs() > 12 * YEARS
        }
        Expr::Literal(ScalarValue::IntervalDayTime(Some(value)), _) => {
            i64::from(value.days).abs() > 366 * YEARS
        }
        _ => false,
    }
}

/// Makes a date its first moment, in a unit that holds an interval.
fn make_timestamp(date: &mut Expr, interval: &Expr) {
    let unit = match interval {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), _) if value.nanoseconds % 1000 != 0 => {
            TimeUnit::Nanosecond
        }
        _ => TimeUnit::Microsecond,
    };
    operands::cast(date, DataType::Timestamp(unit, None));
}

/// A date or a text for which a function takes nanoseconds.
fn mend_argument(argument: Option<&mut Expr>, schema: &DFSchema) -> bool {
    let Some(argument) = argument else { return false };
    let written = Cast::new(Box::new(argument.clone()), DataType::Timestamp(TimeUnit::Nanosecond, None));
    if let Some(value) = beyond_nanoseconds(&written) {
        *argument = Expr::Literal(value, None);
        return true;
    }
    let is_date = is_date(argument, schema);
    if is_date {
        operands::cast(argument, DataType::Timestamp(TimeUnit::Microsecond, None));
    }
    is_date
}

fn mend_case(case: &mut Case, schema: &DFSchema) -> Result<bool> {
    let Case { expr, when_then_expr, else_expr } = case;
    let mut compared = Vec::new();
    let mut results: Vec<&mut Expr> = else_expr.iter_mut().map(AsMut::as_mut).collect();
    for (when, then) in when_then_expr {
        compared.push(when.as_mut());
        results.push(then.as_mut());
    }
    let mut changed = bring_together(&mut results, |_| schema, false)?;
    if let Some(expr) = expr {
        compared.push(expr.as_mut());
        changed |= bring_together(&mut compared, |_| schema, true)?;
    }
    Ok(changed)
}
