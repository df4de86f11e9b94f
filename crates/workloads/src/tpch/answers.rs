//! Reference answers of the 22 queries, and the comparison with a result.
//!
//! The answers are those of DuckDB 2.0 on the standard data: `|`-separated, with a header. Integers, text, dates, counts
//! and decimal sums must be equal, in the query's order; averages and quotients agree to 1e-6 relative, or to the last
//! digit of the result's type.

use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

macro_rules! answers {
    ($scale:literal: $($number:literal),* $(,)?) => {
        [$(include_str!(concat!("../../answers/tpch-sf", $scale, "/q", $number, ".csv"))),*]
    };
}

const SCALE_0_01: [&str; 22] = answers!("0.01":
    "01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12", "13", "14", "15", "16", "17", "18",
    "19", "20", "21", "22");

const SCALE_0_1: [&str; 22] = answers!("0.1":
    "01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12", "13", "14", "15", "16", "17", "18",
    "19", "20", "21", "22");

const SCALE_1_UP_TO_15: [&str; 15] = answers!("1":
    "01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12", "13", "14", "15");

const SCALE_1_FROM_17: [&str; 6] = answers!("1": "17", "18", "19", "20", "21", "22");

/// Query 16 at scale factor 1 has too many rows to keep: rows, and the FNV-1a hash of the lines without quotes.
const SCALE_1_Q16: Answer = Answer::Checksum { rows: 18_314, hash: 0x7efb_410e_da51_e093 };

enum Answer {
    /// All rows.
    Rows(&'static str),
    /// Rows, and the hash of their text.
    Checksum { rows: usize, hash: u64 },
}

/// The scale factors that have answers.
pub fn answer_scales() -> [f64; 3] {
    [0.01, 0.1, 1.0]
}

fn answer(scale: f64, query: usize) -> Option<Answer> {
    let index = query.checked_sub(1)?;
    let [small, medium, large] = answer_scales();
    if scale == small {
        SCALE_0_01.get(index).copied().map(Answer::Rows)
    } else if scale == medium {
        SCALE_0_1.get(index).copied().map(Answer::Rows)
    } else if scale != large {
        None
    } else if query == 16 {
        Some(SCALE_1_Q16)
    } else {
        let text = if query < 16 { SCALE_1_UP_TO_15.get(index) } else { SCALE_1_FROM_17.get(query - 17) };
        text.copied().map(Answer::Rows)
    }
}

/// Columns (from 0) that are averages or quotients: the reference computed them as doubles.
fn approximate_columns(query: usize) -> &'static [usize] {
    match query {
        1 => &[6, 7, 8],
        8 => &[1],
        14 | 17 => &[0],
        _ => &[],
    }
}

/// Compares a result with the reference answer of a query (1 to 22) at a scale factor that has one.
///
/// # Errors
/// What differs, or that there is no answer.
pub fn check_answer(scale: f64, query: usize, batches: &[RecordBatch]) -> Result<(), String> {
    let answer = answer(scale, query)
        .ok_or_else(|| format!("there is no reference answer for query {query} at scale factor {scale}"))?;
    let rows = text_rows(batches).map_err(|e| e.to_string())?;
    match answer {
        Answer::Rows(text) => compare_rows(text, query, batches, &rows),
        Answer::Checksum { rows: expected, hash } => {
            if rows.len() != expected {
                return Err(format!("{} rows, expected {expected}", rows.len()));
            }
            let found = checksum(&rows);
            if found == hash {
                Ok(())
            } else {
                Err(format!("the rows' checksum is {found:#x}, not {hash:#x}"))
            }
        }
    }
}

fn compare_rows(
    text: &str,
    query: usize,
    batches: &[RecordBatch],
    rows: &[Vec<String>],
) -> Result<(), String> {
    let mut lines = text.lines().map(split_line);
    let header = lines.next().unwrap_or_default();
    let expected: Vec<Vec<String>> = lines.collect();
    if rows.len() != expected.len() {
        return Err(format!("{} rows, expected {}", rows.len(), expected.len()));
    }
    let types: Vec<DataType> = batches
        .first()
        .map(|b| b.schema().fields().iter().map(|f| f.data_type().clone()).collect())
        .unwrap_or_default();
    if !rows.is_empty() && types.len() != header.len() {
        return Err(format!("{} columns, expected {}", types.len(), header.len()));
    }
    for (number, (row, expected)) in rows.iter().zip(&expected).enumerate() {
        for (column, (found, expected)) in row.iter().zip(expected).enumerate() {
            let equal = if approximate_columns(query).contains(&column) {
                nearly_equal(found, expected, &types[column])
            } else {
                found == expected || equal_numbers(found, expected, &types[column])
            };
            if !equal {
                let name = &header[column];
                return Err(format!("row {}, {name}: `{found}`, expected `{expected}`", number + 1));
            }
        }
    }
    Ok(())
}

/// Text of every value; NULL is empty.
fn text_rows(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>, datafusion::arrow::error::ArrowError> {
    let options = FormatOptions::default();
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c.as_ref(), &options))
            .collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let text = |(i, f): (usize, &ArrayFormatter<'_>)| {
                if batch.column(i).is_null(row) { String::new() } else { f.value(row).to_string() }
            };
            rows.push(columns.iter().enumerate().map(text).collect());
        }
    }
    Ok(rows)
}

/// Equal but for zeros at the end of the fraction.
fn equal_numbers(found: &str, expected: &str, data_type: &DataType) -> bool {
    fn trimmed(text: &str) -> &str {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
    }
    data_type.is_numeric() && trimmed(found) == trimmed(expected)
}

fn nearly_equal(found: &str, expected: &str, data_type: &DataType) -> bool {
    if found.is_empty() || expected.is_empty() {
        return found == expected;
    }
    let (Ok(found), Ok(expected)) = (found.parse::<f64>(), expected.parse::<f64>()) else { return false };
    let last_digit = match data_type {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => 10f64.powi(-i32::from(*scale)),
        _ => 0.0,
    };
    (found - expected).abs() <= f64::max(expected.abs() * 1e-6, last_digit)
}

/// A line of `|`-separated values; `"` quotes, and is doubled inside.
fn split_line(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            '|' if !quoted => fields.push(std::mem::take(&mut field)),
            _ => field.push(c),
        }
    }
    fields.push(field);
    fields
}

/// FNV-1a (64 bits) of the values, `|` between them and a line feed after a row.
fn checksum(rows: &[Vec<String>]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for row in rows {
        for byte in row.join("|").bytes().chain([b'\n']) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, StringArray};
    use std::sync::Arc;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> Vec<RecordBatch> {
        vec![RecordBatch::try_from_iter(columns).unwrap()]
    }

    fn decimal(value: i128, scale: i8) -> ArrayRef {
        Arc::new(Decimal128Array::from(vec![value]).with_precision_and_scale(38, scale).unwrap())
    }

    #[test]
    fn every_scale_and_query_has_an_answer() {
        for scale in answer_scales() {
            for query in 1..=22 {
                assert!(answer(scale, query).is_some(), "{scale} {query}");
            }
        }
        for (scale, query) in [(0.5, 1), (1.0, 0), (1.0, 23), (0.01, 23)] {
            assert!(check_answer(scale, query, &[]).is_err());
        }
        match answer(1.0, 17) {
            Some(Answer::Rows(text)) => assert!(text.starts_with("avg_yearly")),
            _ => panic!("query 17 has rows"),
        }
    }

    #[test]
    fn sums_are_exact_at_any_scale() {
        for (value, scale, equal) in [
            (11_930_532_253, 4, true),
            (119_305_322_530, 5, true),
            (11_930_532_254, 4, false),
            (119_305_322, 2, false),
        ] {
            let result = check_answer(0.01, 6, &batch(vec![("revenue", decimal(value, scale))]));
            assert_eq!(result.is_ok(), equal, "{value} {scale}: {result:?}");
        }
        let none: ArrayRef = Arc::new(Int64Array::from(vec![None::<i64>]));
        let error = check_answer(0.01, 6, &batch(vec![("revenue", none)])).unwrap_err();
        assert_eq!(error, "row 1, revenue: ``, expected `1193053.2253`");
        assert_eq!(check_answer(0.01, 6, &[]).unwrap_err(), "0 rows, expected 1");
    }

    #[test]
    fn quotients_agree_to_a_millionth_or_the_last_digit() {
        // 15.48654581228407
        for (column, equal) in [
            (Arc::new(Float64Array::from(vec![15.486_545])) as ArrayRef, true),
            (Arc::new(Float64Array::from(vec![15.4866])), false),
            (decimal(154_865, 4), true),
            (decimal(154_867, 4), false),
        ] {
            assert_eq!(check_answer(0.01, 14, &batch(vec![("promo_revenue", column)])).is_ok(), equal);
        }
        // NULL at this scale.
        let null: ArrayRef = Arc::new(Float64Array::from(vec![None::<f64>]));
        assert_eq!(check_answer(0.01, 17, &batch(vec![("avg_yearly", null)])), Ok(()));
        let zero: ArrayRef = Arc::new(Float64Array::from(vec![0.0]));
        assert!(check_answer(0.01, 17, &batch(vec![("avg_yearly", zero)])).is_err());
    }

    #[test]
    fn order_and_columns_count() {
        // Query 4: o_orderpriority, order_count.
        let text = SCALE_0_01[3];
        let rows: Vec<Vec<String>> = text.lines().skip(1).map(split_line).collect();
        let make = |rows: &[Vec<String>]| {
            let names: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r[0].as_str())));
            let counts: ArrayRef =
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r[1].parse::<i64>().unwrap())));
            (names, counts)
        };
        let (names, counts) = make(&rows);
        assert_eq!(check_answer(0.01, 4, &batch(vec![("a", names.clone()), ("b", counts)])), Ok(()));
        assert!(check_answer(0.01, 4, &batch(vec![("a", names)])).unwrap_err().contains("1 columns"));
        let reversed: Vec<Vec<String>> = rows.into_iter().rev().collect();
        let (names, counts) = make(&reversed);
        assert!(check_answer(0.01, 4, &batch(vec![("a", names), ("b", counts)])).is_err());
    }

    #[test]
    fn lines_split_at_bars_outside_quotes() {
        for (line, fields) in [
            ("a|b", vec!["a", "b"]),
            ("", vec![""]),
            ("|", vec!["", ""]),
            ("\"a|b\"|\"say \"\"x\"\"\"", vec!["a|b", "say \"x\""]),
        ] {
            assert_eq!(split_line(line), fields);
        }
    }
}
