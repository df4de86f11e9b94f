//! Whether two engines gave the same rows.

use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::Result;

/// Sums of another order round differently.
const TOLERANCE: f64 = 1e-9;

/// A value, with the distance that another engine's may have: half of the last digit is rounded away from a decimal.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Null,
    Number { value: f64, unit: f64 },
    Text(String),
}

/// The first difference between the rows of two engines, whose types may differ: numbers are compared as numbers. The rows
/// are compared as a multiset, as equal keys of an order leave their order open.
pub(crate) fn difference(own: &[RecordBatch], peer: &[RecordBatch]) -> Result<Option<String>> {
    let (mut own, mut peer) = (rows(own)?, rows(peer)?);
    if own.len() != peer.len() {
        return Ok(Some(format!("{} rows, not {}", peer.len(), own.len())));
    }
    own.sort_by(|a, b| order(a, b));
    peer.sort_by(|a, b| order(a, b));
    let mut pairs = own.iter().zip(&peer);
    let differs = pairs.find(|(a, b)| a.len() != b.len() || !a.iter().zip(b.iter()).all(|(a, b)| same(a, b)));
    Ok(differs.map(|(own, peer)| format!("{}, not {}", shown(peer), shown(own))))
}

fn shown(row: &[Value]) -> String {
    let value = |value: &Value| match value {
        Value::Null => "NULL".to_string(),
        Value::Number { value, .. } => value.to_string(),
        Value::Text(text) => text.clone(),
    };
    format!("({})", row.iter().map(value).collect::<Vec<_>>().join(", "))
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number { value: a, unit: x }, Value::Number { value: b, unit: y }) => {
            let tolerance = (TOLERANCE * a.abs().max(b.abs())).max(x.max(*y));
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance
        }
        (a, b) => a == b,
    }
}

/// An order in which numbers that are nearly the same stay together: texts decide first.
fn order(a: &[Value], b: &[Value]) -> std::cmp::Ordering {
    let texts = |row: &[Value]| -> Vec<String> {
        let text = |value: &Value| match value {
            Value::Null => Some(String::new()),
            Value::Text(text) => Some(format!("x{text}")),
            Value::Number { .. } => None,
        };
        row.iter().filter_map(text).collect()
    };
    let numbers = |row: &[Value]| -> Vec<f64> {
        let number = |value: &Value| match value {
            Value::Number { value, .. } => Some(*value),
            _ => None,
        };
        row.iter().filter_map(number).collect()
    };
    texts(a).cmp(&texts(b)).then_with(|| {
        let pairs = numbers(a).into_iter().zip(numbers(b));
        pairs.fold(std::cmp::Ordering::Equal, |known, (a, b)| known.then(a.total_cmp(&b)))
    })
}

fn rows(batches: &[RecordBatch]) -> Result<Vec<Vec<Value>>> {
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter().map(|column| values(column)).collect::<Result<Vec<_>>>()?;
        rows.extend(
            (0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()),
        );
    }
    Ok(rows)
}

fn values(array: &dyn Array) -> Result<Vec<Value>> {
    let array = match array.data_type() {
        DataType::Dictionary(_, values) => cast(array, values)?,
        _ => array.slice(0, array.len()),
    };
    let unit = match array.data_type() {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale)
            if *scale > 0 =>
        {
            10f64.powi(-i32::from(*scale))
        }
        _ => 0.0,
    };
    let is_number = array.data_type().is_numeric();
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(array.as_ref(), &options)?;
    let value = |row| {
        if array.is_null(row) {
            return Ok(Value::Null);
        }
        let text = formatter.value(row).try_to_string()?;
        Ok(match text.parse() {
            Ok(value) if is_number => Value::Number { value, unit },
            _ => Value::Text(text),
        })
    };
    (0..array.len()).map(value).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, StringArray};

    use super::*;

    fn batch(columns: Vec<ArrayRef>) -> Vec<RecordBatch> {
        let named = columns.into_iter().enumerate().map(|(i, column)| (format!("c{i}"), column, true));
        vec![RecordBatch::try_from_iter_with_nullable(named).unwrap()]
    }

    #[test]
    fn numbers_of_other_types_are_the_same_and_others_are_not() {
        let texts = |texts: [&str; 2]| Arc::new(StringArray::from(texts.to_vec())) as ArrayRef;
        let decimals =
            Decimal128Array::from(vec![Some(12_345), None]).with_precision_and_scale(10, 2).unwrap();
        let own = batch(vec![texts(["a", "b"]), Arc::new(decimals)]);
        let peer =
            |number| batch(vec![texts(["b", "a"]), Arc::new(Float64Array::from(vec![None, Some(number)]))]);
        assert_eq!(difference(&own, &peer(123.4507)).unwrap(), None);
        let found = difference(&own, &peer(123.47)).unwrap().unwrap();
        assert!(found.contains("(a, 123.47), not (a, 123.45)"), "{found}");
        let one = batch(vec![Arc::new(Int64Array::from(vec![1]))]);
        assert!(difference(&one, &batch(vec![Arc::new(Int64Array::from(vec![2]))])).unwrap().is_some());
        assert!(difference(&one, &[]).unwrap().is_some());
    }
}
