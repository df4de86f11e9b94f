//! One query on both, and whether the answers agree.

use std::panic::AssertUnwindSafe;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use futures::FutureExt;

use super::Generated;
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
    /// Only DataFusion fails: it evaluates operands of AND, OR and CASE for rows that do not need them.
    OnlyPlainFailed,
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

/// Runs a query on both.
pub async fn compare(plain: &SessionContext, kelpie: &KelpieSession, query: &Generated) -> Outcome {
    let expected = unless_panicking(plain_answer(plain, &query.sql)).await;
    let expected = expected.unwrap_or_else(|message| exec_err!("DataFusion panics: {message}"));
    let actual = match unless_panicking(kelpie.sql(&query.sql)).await {
        Ok(actual) => actual,
        Err(message) if expected.is_err() => exec_err!("Kelpie panics: {message}"),
        Err(message) => return Outcome::Different(format!("Kelpie panics: {message}")),
    };
    let (expected, actual) = match (expected, actual) {
        (Ok(expected), Ok(actual)) => (expected, actual),
        (Err(error), Err(_)) => return Outcome::BothFailed(error.find_root().strip_backtrace()),
        (Err(_), Ok(_)) => return Outcome::OnlyPlainFailed,
        (Ok(_), Err(error)) => {
            return Outcome::Different(format!("only Kelpie fails: {}", error.strip_backtrace()));
        }
    };
    let timing = actual.timing;
    if let Some(error) = timing.failures.first() {
        return Outcome::Different(format!("only Kelpie fails: {error}"));
    }
    match same(&expected, &actual.batches, query.ordered) {
        Ok(None) => Outcome::Equal { compiled: timing.compiled, reasons: timing.reasons },
        Ok(Some(difference)) => Outcome::Different(format!("compiled={}: {difference}", timing.compiled)),
        Err(error) => Outcome::Different(error.to_string()),
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

/// The first difference, if any; floats may differ by 1e-9, relatively.
pub fn same(expected: &[RecordBatch], actual: &[RecordBatch], ordered: bool) -> Result<Option<String>> {
    let (mut left, mut right) = (rows(expected)?, rows(actual)?);
    if left.len() != right.len() {
        return Ok(Some(format!("{} rows, not {}", right.len(), left.len())));
    }
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

fn close(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => {
            (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
        }
        (a, b) => a == b,
    }
}

/// An order in which floats that are close stay together: all other columns decide first.
fn order(a: &[Value], b: &[Value]) -> std::cmp::Ordering {
    let text = |row: &[Value]| {
        let key = |value: &Value| match value {
            Value::Null => Some(String::new()),
            Value::Other(text) => Some(format!("x{text}")),
            Value::Float(_) => None,
        };
        row.iter().filter_map(key).collect::<Vec<_>>()
    };
    let floats = |row: &[Value]| {
        let key = |value: &Value| match value {
            Value::Float(v) if v.is_nan() => Some(f64::NAN),
            // -0.0 and 0.0 are close.
            Value::Float(v) => Some(v + 0.0),
            _ => None,
        };
        row.iter().filter_map(key).collect::<Vec<_>>()
    };
    text(a).cmp(&text(b)).then_with(|| {
        let pairs = floats(a).into_iter().zip(floats(b));
        pairs.fold(std::cmp::Ordering::Equal, |known, (x, y)| known.then(x.total_cmp(&y)))
    })
}

fn rows(batches: &[RecordBatch]) -> Result<Vec<Vec<Value>>> {
    let Some(first) = batches.first() else { return Ok(Vec::new()) };
    let batch = concat_batches(&first.schema(), batches)?;
    let columns = batch.columns().iter().map(values).collect::<Result<Vec<_>>>()?;
    Ok((0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect())
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
    let array = match array.data_type() {
        DataType::Dictionary(_, values) => &cast(array, values)?,
        _ => array,
    };
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(array.as_ref(), &options)?;
    let value = |row| match array.is_null(row) {
        true => Ok(Value::Null),
        false => Ok(Value::Other(format!("{}:{}", array.data_type(), formatter.value(row).try_to_string()?))),
    };
    (0..array.len()).map(value).collect()
}
