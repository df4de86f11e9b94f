//! One query on both, and whether the answers agree.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatchOptions};
use datafusion::arrow::compute::{SortColumn, cast, concat_batches, lexsort_to_indices, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use futures::FutureExt;

use super::{Generated, UNIQUE_KEYS_RULE, with_percentiles};
use crate::KelpieSession;

/// How a query went.
#[derive(Debug)]
pub enum Outcome {
    /// The answers agree.
    Equal {
        /// Whether Kelpie ran all of it.
        compiled: bool,
        /// Why not.
        reasons: Vec<String>,
    },
    /// Both fail: DataFusion's error.
    BothFailed(String),
    /// Only DataFusion fails, where the query leaves open for which rows an operand is computed.
    OnlyPlainFailed,
    /// Only Kelpie fails, and only under its own order of joins: DataFusion's leaves out the rows that fail.
    OnlyReorderedFailed,
    /// Kelpie's kernels fail where DataFusion does not, and its operators then answered: the answers agree, and the query is
    /// one that leaves open for which rows an operand is computed.
    AnsweredByPlain,
    /// DataFusion gives another answer where the tables have one batch, and that is Kelpie's: the difference.
    PlainContradictsItself(String),
    /// DataFusion panics, so that there is nothing to compare with: its message.
    PlainPanicked(String),
    /// They differ: how.
    Different(String),
}

/// A value of an answer.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Null,
    Float(f64),
    Other(String),
}

impl Value {
    fn is_nan(&self) -> bool {
        matches!(self, Value::Float(value) if value.is_nan())
    }
}

/// Runs a query on both, which leaves open for which rows an operand is computed: see `compare_by`.
pub async fn compare(plain: &SessionContext, kelpie: &KelpieSession, query: &Generated) -> Outcome {
    compare_by(plain, kelpie, query, Nature::GUARDED).await
}

/// What is known of a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nature {
    /// Whether it leaves open for which rows an operand is computed.
    pub guarded: bool,
    /// Whether no two rows of its answer are equal: DISTINCT, groups, a set operation without ALL. DataFusion gives NaN several
    /// times where an order with a limit follows.
    pub is_set: bool,
}

impl Nature {
    /// Of queries of which nothing else is known.
    pub const GUARDED: Nature = Nature { guarded: true, is_set: false };
}

/// Runs a query on both.
///
/// A panic of Kelpie is a difference, whatever DataFusion does, unless DataFusion panics with the same message: then it is
/// DataFusion's own, met on its operators. Errors must be of one class ([`class`]); their texts may differ, as the two may
/// meet different failing rows first. Where only DataFusion fails, the query must be guarded. Where only Kelpie fails, the
/// two differ, unless they agree without Kelpie's order of joins: it may compute a row that fails before a join that would
/// have left it out. Where the answers differ, DataFusion is asked again over tables of one batch each, and with four
/// partitions: an answer that depends on these is wrong, as is a set that has a row twice, and one that depends on
/// where filters of the physical plan stand ([`without_pushed_filters`]). A sum beyond its type
/// is an error of Kelpie's and a wrong number of DataFusion's.
pub(super) async fn compare_by(
    plain: &SessionContext,
    kelpie: &KelpieSession,
    query: &Generated,
    nature: Nature,
) -> Outcome {
    let Nature { guarded, is_set } = nature;
    let outcome = compare_once(plain, kelpie, query, guarded).await;
    if let Outcome::Different(difference) = &outcome
        && difference.starts_with("compiled=")
    {
        if is_set && has_twins(plain, &query.sql).await.unwrap_or(false) {
            return Outcome::PlainContradictsItself(difference.clone());
        }
        let unpushed = without_pushed_filters(plain);
        if let Outcome::Equal { .. } = compare_once(&unpushed, kelpie, query, guarded).await {
            return Outcome::PlainContradictsItself(difference.clone());
        }
        for partitions in [1, 4] {
            if let Ok(again) = again(plain, partitions).await
                && let Outcome::Equal { .. } = compare_once(&again, kelpie, query, guarded).await
            {
                return Outcome::PlainContradictsItself(difference.clone());
            }
        }
    }
    let reordered = matches!(&outcome, Outcome::Different(how) if how.starts_with(ONLY_KELPIE))
        && query.sql.contains("JOIN")
        && kelpie.set("kelpie.join_order", "false").is_ok();
    if !reordered {
        return outcome;
    }
    let again = compare_once(plain, kelpie, query, guarded).await;
    match (kelpie.set("kelpie.join_order", "true"), again) {
        (Ok(()), Outcome::Equal { .. }) => Outcome::OnlyReorderedFailed,
        _ => outcome,
    }
}

/// Whether DataFusion's answer has a row twice.
async fn has_twins(plain: &SessionContext, sql: &str) -> Result<bool> {
    let Some(answer) = whole(&plain_answer(plain, sql).await?)? else { return Ok(false) };
    let mut rows = rows(&answer)?;
    rows.sort_by(|a, b| order(a, b));
    let same =
        |a: &Vec<Value>, b: &Vec<Value>| a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
    Ok(rows.windows(2).any(|pair| matches!(pair, [a, b] if same(a, b))))
}

/// How a difference begins where only Kelpie fails.
const ONLY_KELPIE: &str = "only Kelpie fails";

/// The plain session without the rule that pushes filters of the physical plan down by the names of columns: where both sides of a
/// join have a column of one name, a filter over both may end up below it, over one side's column twice.
fn without_pushed_filters(plain: &SessionContext) -> SessionContext {
    let state = plain.state();
    let rules = state.physical_optimizers().iter().filter(|rule| rule.name() != "FilterPushdown");
    let rules = rules.cloned().collect();
    let state = SessionStateBuilder::new_from_existing(state.clone()).with_physical_optimizer_rules(rules);
    SessionContext::new_with_state(state.build())
}

/// Another plain session over the same tables: with one partition, each table has one batch.
async fn again(plain: &SessionContext, partitions: usize) -> Result<SessionContext> {
    let config = plain.copied_config().with_target_partitions(partitions);
    let other = with_percentiles(SessionContext::new_with_config(config));
    other.remove_optimizer_rule(UNIQUE_KEYS_RULE);
    let schema = plain.catalog("datafusion").and_then(|catalog| catalog.schema("public"));
    for name in schema.map(|schema| schema.table_names()).unwrap_or_default() {
        let batches = plain.table(&name).await?.collect().await?;
        match batches.first() {
            Some(first) if partitions == 1 => {
                let schema = first.schema();
                let batch = concat_batches(&schema, &batches)?;
                other.register_table(name, Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))?;
            }
            _ => {
                let provider = plain.table_provider(name.as_str()).await?;
                other.register_table(name, provider)?;
            }
        }
    }
    Ok(other)
}

async fn compare_once(
    plain: &SessionContext,
    kelpie: &KelpieSession,
    query: &Generated,
    guarded: bool,
) -> Outcome {
    let expected = unless_panicking(plain_answer(plain, &query.sql)).await;
    let actual = unless_panicking(kelpie.sql(&query.sql)).await;
    let (expected, actual) = match (expected, actual) {
        (Ok(expected), Ok(actual)) => (expected, actual),
        (Err(expected), Err(message)) if expected != message => {
            return Outcome::Different(format!("Kelpie panics: {message}; DataFusion too: {expected}"));
        }
        (Ok(_), Err(message)) => return Outcome::Different(format!("Kelpie panics: {message}")),
        (Err(message), _) => return Outcome::PlainPanicked(message),
    };
    let (expected, actual) = match (expected, actual) {
        (Ok(expected), Ok(actual)) => (expected, actual),
        (Err(expected), Err(actual)) => {
            if is_misplanned(&expected) || is_misplanned(&actual) {
                return Outcome::BothFailed(expected.find_root().strip_backtrace());
            }
            let (expected_class, actual_class) = (class(&expected), class(&actual));
            if expected_class != actual_class {
                let (expected, actual) = (expected.strip_backtrace(), actual.strip_backtrace());
                return Outcome::Different(format!(
                    "{actual_class}: {actual}, not {expected_class}: {expected}"
                ));
            }
            return Outcome::BothFailed(expected.find_root().strip_backtrace());
        }
        (Err(_), Ok(_)) if guarded => return Outcome::OnlyPlainFailed,
        (Err(error), Ok(_)) if is_misplanned(&error) => {
            return Outcome::PlainContradictsItself(error.strip_backtrace());
        }
        (Err(error), Ok(actual)) => {
            let compiled = actual.timing.compiled;
            let error = error.strip_backtrace();
            return Outcome::Different(format!("compiled={compiled}: only DataFusion fails: {error}"));
        }
        (Ok(_), Err(error)) if error.strip_backtrace().contains("is beyond the range of its type") => {
            return Outcome::PlainContradictsItself(error.strip_backtrace());
        }
        (Ok(_), Err(error)) => {
            return Outcome::Different(format!("{ONLY_KELPIE}: {}", error.strip_backtrace()));
        }
    };
    let timing = actual.timing;
    let failed = timing.failures.first();
    match same(&expected, &actual.batches, query.ordered) {
        Ok(None) if failed.is_some() && guarded => Outcome::AnsweredByPlain,
        Ok(None) if let Some(error) = failed => Outcome::Different(format!("{ONLY_KELPIE}: {error}")),
        Ok(None) => match differs_again(kelpie, query, &expected).await {
            Some(difference) => Outcome::Different(difference),
            None => Outcome::Equal { compiled: timing.compiled, reasons: timing.reasons },
        },
        Ok(Some(difference)) => Outcome::Different(format!("compiled={}: {difference}", timing.compiled)),
        Err(error) => Outcome::Different(error.to_string()),
    }
}

/// How a query's answer differs when it runs again, by the plan that was kept of it.
async fn differs_again(
    kelpie: &KelpieSession,
    query: &Generated,
    expected: &[RecordBatch],
) -> Option<String> {
    let again = match unless_panicking(kelpie.sql(&query.sql)).await {
        Ok(Ok(again)) => again,
        Ok(Err(error)) => return Some(format!("Kelpie fails only when it runs again: {error}")),
        Err(message) => return Some(format!("Kelpie panics when it runs again: {message}")),
    };
    let kept = again.timing.plan_kept;
    match same(expected, &again.batches, query.ordered) {
        Ok(difference) => difference.map(|how| format!("run again, with the plan kept={kept}: {how}")),
        Err(error) => Some(error.to_string()),
    }
}

/// Whether DataFusion meets decimals of unlike types, which its planner should have made alike: it takes `round` to keep the
/// scale, and computes another.
fn is_misplanned(error: &DataFusionError) -> bool {
    let error = error.find_root().strip_backtrace();
    error.contains("Invalid comparison operation: Decimal128")
        || error.contains("MIN/MAX is not expected to receive scalars of incompatible types (Decimal128")
}

/// What kind of failure an error is: of a value, of the statement, of resources, or a bug.
fn class(error: &DataFusionError) -> &'static str {
    match error.find_root() {
        DataFusionError::Internal(_) => "internal error",
        DataFusionError::ResourcesExhausted(_) => "resources exhausted",
        DataFusionError::Plan(_) | DataFusionError::SchemaError(..) | DataFusionError::SQL(..) => {
            "bad statement"
        }
        DataFusionError::NotImplemented(_) => "not implemented",
        _ => "failed evaluation",
    }
}

/// What a future gives, or the message of its panic.
pub(super) async fn unless_panicking<T>(future: impl Future<Output = T>) -> std::result::Result<T, String> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default()
    })
}

async fn plain_answer(plain: &SessionContext, sql: &str) -> Result<Vec<RecordBatch>> {
    plain.sql(sql).await?.collect().await
}

/// Floats may differ by this, relatively: sums of another order round differently.
const TOLERANCE: f64 = 1e-9;

/// Where one of two floats is exactly 0, the other may be this far from it: what is left of values that cancel out in
/// another order of additions is no larger than this for values up to a thousand.
const CANCELLED: f64 = 1e-12;

/// The first difference, if any; floats may differ by 1e-9, relatively.
pub fn same(expected: &[RecordBatch], actual: &[RecordBatch], ordered: bool) -> Result<Option<String>> {
    let (expected, actual) = (whole(expected)?, whole(actual)?);
    let counts = [&expected, &actual].map(|batch| batch.as_ref().map_or(0, RecordBatch::num_rows));
    if counts[0] != counts[1] {
        return Ok(Some(format!("{} rows, not {}", counts[1], counts[0])));
    }
    let (Some(expected), Some(actual)) = (expected, actual) else { return Ok(None) };
    // Mostly it is so, and found sooner than by a text of each value; what has no order in Arrow is compared by texts.
    if are_identical(&expected, &actual, ordered).unwrap_or(false) {
        return Ok(None);
    }
    let (mut left, mut right) = (rows(&expected)?, rows(&actual)?);
    if !ordered {
        left.sort_by(|a, b| order(a, b));
        right.sort_by(|a, b| order(a, b));
    }
    let differs = |(_, (l, r)): &(usize, (&Vec<Value>, &Vec<Value>))| {
        l.len() != r.len() || !l.iter().zip(r.iter()).all(|(a, b)| close(a, b))
    };
    Ok(left
        .iter()
        .zip(&right)
        .enumerate()
        .find(differs)
        .map(|(i, (l, r))| format!("row {i} of {}: {r:?}, not {l:?}", left.len())))
}

/// All rows in one batch, dictionaries as their values; `None` where there is no batch.
fn whole(batches: &[RecordBatch]) -> Result<Option<RecordBatch>> {
    let Some(first) = batches.first() else { return Ok(None) };
    let batch = concat_batches(&first.schema(), batches)?;
    let column = |array: &ArrayRef| match array.data_type() {
        DataType::Dictionary(_, values) => cast(array, values),
        _ => Ok(Arc::clone(array)),
    };
    let columns = batch.columns().iter().map(column).collect::<std::result::Result<Vec<_>, _>>()?;
    let field =
        |(index, array): (usize, &ArrayRef)| Field::new(index.to_string(), array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(Some(RecordBatch::try_new_with_options(schema, columns, &options)?))
}

/// Whether the rows are the same to the last bit.
fn are_identical(expected: &RecordBatch, actual: &RecordBatch, ordered: bool) -> Result<bool> {
    if ordered {
        return Ok(expected == actual);
    }
    let sorted = |batch: &RecordBatch| {
        let column = |array: &ArrayRef| SortColumn { values: Arc::clone(array), options: None };
        let columns: Vec<_> = batch.columns().iter().map(column).collect();
        take_record_batch(batch, &lexsort_to_indices(&columns, None)?)
    };
    Ok(expected.schema() == actual.schema() && sorted(expected)? == sorted(actual)?)
}

fn close(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => {
            let cancelled = (*a == 0.0 || *b == 0.0) && (a - b).abs() <= CANCELLED;
            let close = (a - b).abs() <= TOLERANCE * a.abs().max(b.abs());
            // Infinity is within a tolerance of nothing but itself.
            (a.is_nan() && b.is_nan()) || a == b || (close && a.is_finite() && b.is_finite()) || cancelled
        }
        (Value::Other(a), Value::Other(b)) => a == b || is_cut(a, b),
        (a, b) => a == b,
    }
}

/// Whether a text is a number of 39 digits of which DataFusion prints 38: a product of integers beyond the range of its type.
fn is_cut(cut: &str, whole: &str) -> bool {
    let digits = whole.bytes().rev().take_while(u8::is_ascii_digit).count();
    digits == 39 && whole.len() == cut.len() + 1 && whole.starts_with(cut)
}

/// An order in which floats that are close stay together: all other columns decide first. Sorts ask it often: it makes no texts.
fn order(a: &[Value], b: &[Value]) -> std::cmp::Ordering {
    // NULLs and floats keep their places.
    fn but_floats(value: &Value) -> (u8, &str) {
        match value {
            Value::Null => (0, ""),
            Value::Float(_) => (1, ""),
            Value::Other(text) => (2, text),
        }
    }
    fn floats(row: &[Value]) -> impl Iterator<Item = f64> {
        row.iter().filter_map(|value| match value {
            Value::Float(v) if v.is_nan() => Some(f64::NAN),
            // -0.0 and 0.0 are close.
            Value::Float(v) => Some(v + 0.0),
            _ => None,
        })
    }
    a.iter().map(but_floats).cmp(b.iter().map(but_floats)).then_with(|| {
        let mut pairs = floats(a).zip(floats(b)).map(|(x, y)| x.total_cmp(&y));
        pairs.find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
    })
}

fn rows(batch: &RecordBatch) -> Result<Vec<Vec<Value>>> {
    let columns = batch.columns().iter().map(values).collect::<Result<Vec<_>>>()?;
    let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    Ok((0..batch.num_rows()).map(|_| columns.iter_mut().filter_map(Iterator::next).collect()).collect())
}

fn values(array: &ArrayRef) -> Result<Vec<Value>> {
    let floats: Option<Vec<Option<f64>>> = match array.data_type() {
        DataType::Float32 => {
            Some(array.as_primitive::<Float32Type>().iter().map(|v| v.map(f64::from)).collect())
        }
        DataType::Float64 => Some(array.as_primitive::<Float64Type>().iter().collect()),
        _ => None,
    };
    if let Some(floats) = floats {
        return Ok(floats.into_iter().map(|v| v.map_or(Value::Null, Value::Float)).collect());
    }
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(array.as_ref(), &options)?;
    let name = array.data_type().to_string();
    let value = |row| match array.is_null(row) {
        true => Ok(Value::Null),
        false => Ok(Value::Other(format!("{name}:{}", formatter.value(row).try_to_string()?))),
    };
    (0..array.len()).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_compared_relatively() {
        let float = |a: f64, b: f64| close(&Value::Float(a), &Value::Float(b));
        for (a, b) in
            [(1.0, 1.0 + 1e-10), (1e-5, 1e-5 * (1.0 + 1e-10)), (1e300, 1e300), (0.0, 1e-13), (-0.0, 0.0)]
        {
            assert!(float(a, b), "{a} {b}");
        }
        assert!(float(f64::NAN, -f64::NAN) && float(f64::INFINITY, f64::INFINITY));
        for (a, b) in [
            (1e-5, 2e-5),
            (1e-10, 1.1e-10),
            (1.0, 1.0 + 1e-8),
            (0.0, 1e-9),
            (1e308, f64::INFINITY),
            (f64::NAN, 0.0),
        ] {
            assert!(!float(a, b), "{a} {b}");
        }
        assert!(!float(f64::INFINITY, f64::NEG_INFINITY));
    }

    #[test]
    fn rows_with_close_floats_stay_together() {
        let (null, text) = (Value::Null, |text: &str| Value::Other(text.into()));
        let (zero, nan) = (Value::Float(-0.0), Value::Float(-f64::NAN));
        let ascending = [
            vec![null.clone(), text("a")],
            vec![zero.clone(), null],
            vec![Value::Float(1.0), text("a")],
            vec![nan, text("a")],
            vec![Value::Float(0.5), text("b")],
            vec![text("a"), zero],
        ];
        for (at, row) in ascending.iter().enumerate() {
            for (other_at, other) in ascending.iter().enumerate() {
                assert_eq!(order(row, other), at.cmp(&other_at), "{row:?} {other:?}");
            }
        }
        assert!(order(&[Value::Float(0.0)], &[Value::Float(-0.0)]).is_eq());
        assert!(order(&[Value::Float(f64::NAN)], &[Value::Float(-f64::NAN)]).is_eq());
    }
}
