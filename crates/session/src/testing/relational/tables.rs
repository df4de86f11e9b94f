//! Tables of random columns, whose values meet: every column draws small numbers and shows them in its own type, so that
//! keys of one kind join whatever their types.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int64Array,
    RecordBatch, RecordBatchOptions, StringArray, TimestampNanosecondArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::error::Result;
use fastrand::Rng;

use super::super::Scale;
use super::super::queries::Kind;

impl Scale {
    /// The most rows that a join may have.
    pub(super) fn joined_rows(self) -> usize {
        match self {
            Scale::Normal => 20_000,
            Scale::Small => 400,
        }
    }
}

/// A column of a table.
#[derive(Debug, Clone)]
pub(super) struct Column {
    /// Its name; in a scope, with the relation's.
    pub name: String,
    pub kind: Kind,
    /// Upper bound of the rows that share a value.
    pub most: usize,
    /// Whether it may be computed with: sums of its values are exact in any order, and nothing overflows.
    pub plain: bool,
}

/// A table.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub name: String,
    pub columns: Vec<Column>,
    pub rows: usize,
    pub batches: Vec<RecordBatch>,
}

/// A seed's tables, `t0` and on.
pub(super) fn tables(seed: u64, scale: Scale) -> Result<Vec<Table>> {
    let mut rng = Rng::with_seed(seed ^ 0x7ab1e5);
    let count = rng.usize(3..=5);
    (0..count).map(|i| table(&mut rng, format!("t{i}"), scale)).collect()
}

fn table(rng: &mut Rng, name: String, scale: Scale) -> Result<Table> {
    let sizes: &[usize] = match scale {
        Scale::Normal => &[0, 1, 2, 9, 30, 60, 100, 100, 150, 200, 250, 300],
        Scale::Small => &[0, 1, 3, 8, 20, 33, 33, 40, 40],
    };
    let rows = sizes[rng.usize(0..sizes.len())];
    let mut columns = Vec::new();
    let mut fields = Vec::new();
    let mut arrays = Vec::new();
    for i in 0..rng.usize(3..=7) {
        let kind = match i {
            0 => Kind::Int,
            _ => {
                let kinds = [Kind::Int, Kind::Int, Kind::Text, Kind::Text, Kind::Decimal, Kind::Date];
                let others = [Kind::Float, Kind::Bool, Kind::Timestamp];
                if rng.u8(0..3) > 0 { kinds[rng.usize(0..6)] } else { others[rng.usize(0..3)] }
            }
        };
        let name = format!("{}{i}", letter(kind));
        let made = column(rng, kind, rows)?;
        fields.push(Field::new(&name, made.array.data_type().clone(), made.nullable));
        arrays.push(made.array);
        columns.push(Column { name, kind, most: made.most, plain: made.plain });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
    let cut = rng.usize(0..=rows);
    let batches = match rng.bool() {
        true => vec![batch],
        false => vec![batch.slice(0, cut), batch.slice(cut, rows - cut)],
    };
    Ok(Table { name, columns, rows, batches })
}

fn letter(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "b",
        Kind::Int => "i",
        Kind::Float => "f",
        Kind::Decimal => "d",
        Kind::Date => "dt",
        Kind::Timestamp => "ts",
        Kind::Text => "s",
    }
}

struct Made {
    array: ArrayRef,
    nullable: bool,
    most: usize,
    plain: bool,
}

/// A column of random numbers in a random type of a kind.
fn column(rng: &mut Rng, kind: Kind, rows: usize) -> Result<Made> {
    let nulls_of_ten = [0, 0, 0, 0, 1, 1, 1, 5, 10][rng.usize(0..9)];
    let nullable = nulls_of_ten > 0 || rng.bool();
    let numbers = numbers(rng, rows);
    let special = matches!(kind, Kind::Int | Kind::Float) && rng.u8(0..8) == 0;
    let sparse = matches!(kind, Kind::Int | Kind::Decimal | Kind::Text) && rng.u8(0..4) == 0;
    let numbers: Vec<Option<i64>> = numbers
        .into_iter()
        .map(|v| if sparse { v * 1_000_003 } else { v })
        .map(|v| (rng.u8(0..10) >= nulls_of_ten).then_some(v))
        .collect();
    let array = match kind {
        Kind::Bool => Arc::new(numbers.iter().map(|v| v.map(|v| v & 1 == 1)).collect::<BooleanArray>()) as _,
        Kind::Int => integers(rng, &numbers, special)?,
        Kind::Float => floats(rng, &numbers, special),
        Kind::Decimal => decimals(rng, &numbers)?,
        Kind::Date => Arc::new(numbers.iter().map(|v| v.map(date)).collect::<Date32Array>()) as _,
        Kind::Timestamp => {
            let values: TimestampNanosecondArray =
                numbers.iter().map(|v| v.map(|v| timestamp_seconds(v) * 1_000_000_000)).collect();
            let units =
                [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
            cast(&values, &DataType::Timestamp(units[rng.usize(0..4)], None))?
        }
        Kind::Text => texts(rng, &numbers)?,
    };
    let most = most(&array)?;
    Ok(Made { array, nullable, most, plain: !special })
}

/// Small numbers: unique, few, skewed or all the same.
fn numbers(rng: &mut Rng, rows: usize) -> Vec<i64> {
    let limit = rows.max(1) as i64;
    match rng.u8(0..10) {
        0..3 => {
            let mut unique: Vec<i64> = (0..limit).take(rows).collect();
            rng.shuffle(&mut unique);
            unique
        }
        3..6 => (0..rows).map(|_| rng.i64(0..limit)).collect(),
        6..8 => {
            let few = [2, 5, 12][rng.usize(0..3)];
            (0..rows).map(|_| rng.i64(0..few)).collect()
        }
        8 => (0..rows).map(|_| if rng.u8(0..5) < 3 { 0 } else { rng.i64(0..limit) }).collect(),
        _ => vec![rng.i64(0..5); rows],
    }
}

fn integers(rng: &mut Rng, numbers: &[Option<i64>], extreme: bool) -> Result<ArrayRef> {
    use DataType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let (data_type, low, high) = [
        (Int8, i64::from(i8::MIN), i64::from(i8::MAX)),
        (Int16, i64::from(i16::MIN), i64::from(i16::MAX)),
        (Int32, i64::from(i32::MIN), i64::from(i32::MAX)),
        (Int32, i64::from(i32::MIN), i64::from(i32::MAX)),
        (Int64, i64::MIN, i64::MAX),
        (Int64, i64::MIN, i64::MAX),
        (UInt8, 0, i64::from(u8::MAX)),
        (UInt16, 0, i64::from(u16::MAX)),
        (UInt32, 0, i64::from(u32::MAX)),
        (UInt64, 0, i64::MAX),
    ][rng.usize(0..10)]
    .clone();
    let value = |v: i64| match (extreme, v % 6) {
        (true, 0) => low,
        (true, 1) => high,
        // A narrow type takes what fits.
        _ => {
            if v > high {
                v % 128
            } else {
                v
            }
        }
    };
    let values: Int64Array = numbers.iter().map(|v| v.map(value)).collect();
    Ok(cast(&values, &data_type)?)
}

fn floats(rng: &mut Rng, numbers: &[Option<i64>], special: bool) -> ArrayRef {
    const SPECIAL: [f64; 5] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0];
    let value = |v: i64| if special && v < 10 { SPECIAL[v as usize % 5] } else { v as f64 * 0.25 };
    let values = numbers.iter().map(|v| v.map(value));
    match rng.bool() {
        true => Arc::new(values.collect::<Float64Array>()),
        false => Arc::new(values.map(|v| v.map(|v| v as f32)).collect::<Float32Array>()),
    }
}

fn decimals(rng: &mut Rng, numbers: &[Option<i64>]) -> Result<ArrayRef> {
    let (precision, scale) = [(5, 2), (15, 2), (15, 2), (38, 10), (20, 0)][rng.usize(0..5)];
    let unit = 10i128.pow(scale);
    let limit = 10i64.pow(u32::from(precision.min(10u8)) - 2);
    let value = |v: i64| i128::from(v % limit) * unit / if scale > 0 { 4 } else { 1 };
    let values: Decimal128Array = numbers.iter().map(|v| v.map(value)).collect();
    Ok(Arc::new(values.with_precision_and_scale(precision, scale as i8)?))
}

fn texts(rng: &mut Rng, numbers: &[Option<i64>]) -> Result<ArrayRef> {
    let flavour = rng.i64(0..5);
    let values: StringArray = numbers.iter().map(|v| v.map(|v| word(flavour, v))).collect();
    Ok(match rng.u8(0..8) {
        0 => cast(&values, &DataType::Utf8View)?,
        1 => cast(&values, &DataType::LargeUtf8)?,
        2 => {
            let keys = Box::new(DataType::Int32);
            cast(&values, &DataType::Dictionary(keys, Box::new(DataType::Utf8)))?
        }
        _ => Arc::new(values),
    })
}

/// Days since 1970 of a number: some before.
fn date(v: i64) -> i32 {
    (v % 20_011 * 37 - 100) as i32
}

fn timestamp_seconds(v: i64) -> i64 {
    v % 20_011 * 86_461 - 1_000_000
}

/// The text of a number in one of five flavours; the last has all of the others.
fn word(flavour: i64, v: i64) -> String {
    match (flavour, v % 5) {
        (0, _) | (4, 0) => format!("k{v}"),
        (1, _) | (4, 1) => format!("a longer text with a common beginning: {v}"),
        (2, _) | (4, 2) => format!("日本ß{v}"),
        (3, _) | (4, 3) => "x".repeat(v as usize % 40),
        _ => format!("{v}"),
    }
}

/// A literal that columns of a kind are likely to have.
pub(super) fn literal(rng: &mut Rng, kind: Kind) -> String {
    let v = match rng.u8(0..4) {
        0 => rng.i64(0..3),
        1 => rng.i64(0..12),
        _ => rng.i64(0..100),
    };
    let quarter = |v: i64| format!("{}.{:02}", v / 4, v % 4 * 25);
    match kind {
        Kind::Bool => ["TRUE", "FALSE"][v as usize % 2].into(),
        Kind::Int => v.to_string(),
        Kind::Float => format!("CAST({} AS DOUBLE)", quarter(v)),
        Kind::Decimal => format!("CAST({} AS DECIMAL(10, 2))", quarter(v)),
        Kind::Date => format!("(DATE '1970-01-01' + INTERVAL '{} days')", date(v)),
        Kind::Timestamp => {
            format!("(TIMESTAMP '1970-01-01 00:00:00' + INTERVAL '{} seconds')", timestamp_seconds(v))
        }
        Kind::Text => format!("'{}'", word(rng.i64(0..5), v)),
    }
}

/// The rows of the most frequent value that is not NULL; at least 1.
fn most(array: &ArrayRef) -> Result<usize> {
    use datafusion::common::ScalarValue;
    let mut counts: HashMap<ScalarValue, usize> = HashMap::new();
    for row in 0..array.len() {
        let value = ScalarValue::try_from_array(array, row)?;
        if !value.is_null() {
            *counts.entry(value).or_default() += 1;
        }
    }
    Ok(counts.into_values().max().unwrap_or(1))
}
