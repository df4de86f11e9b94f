//! The tables `keyed`, `levels`, `star` and the dimensions of the last, and `sparse`, which is one of `keyed`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::TABLES;
use crate::output::{Table, keyed_table};
use crate::random::Column;

const FEW: Column = Column::new("shapes few");
const THOUSANDS: Column = Column::new("shapes thousands");
const MANY: Column = Column::new("shapes many");
const UNIQUE: Column = Column::new("shapes unique");
const HEAVY: Column = Column::new("shapes heavy");
const VALUE: Column = Column::new("shapes value");
const OTHER: Column = Column::new("shapes other");
const LEVELS: Column = Column::new("shapes levels");
const DIMENSION: Column = Column::new("shapes dimension");
const POWER: Column = Column::new("shapes power");
const SPARSE: Column = Column::new("shapes sparse");
const ATTRIBUTE: Column = Column::new("shapes attribute");

/// A prime by which keys are multiplied, so that they are no dense domain.
const SPREAD: i64 = 7919;
/// How many dimensions `star` has.
const DIMENSIONS: u64 = 18;

/// All tables at a scale factor.
pub(super) fn of(scale: f64) -> Vec<Table> {
    let rows = |millions: f64| ((millions * 1e6 * scale).round() as u64).max(1);
    let mut tables: Vec<Table> =
        TABLES.iter().zip(0..DIMENSIONS).map(|(name, n)| dimension(name, n)).collect();
    tables.extend([star(rows(3.0)), levels(rows(12.0)), keyed(rows(6.0), rows(0.4)), sparse(rows(0.4))]);
    tables
}

/// Rows of a dimension: 500 to 5,600.
fn dimension_rows(number: u64) -> u64 {
    500 + 300 * number
}

fn schema(integers: &[String], texts: &[String]) -> SchemaRef {
    let field = |name: &String, data_type: &DataType| Field::new(name, data_type.clone(), false);
    let integers = integers.iter().map(|name| field(name, &DataType::Int64));
    let texts = texts.iter().map(|name| field(name, &DataType::Utf8));
    Arc::new(Schema::new(integers.chain(texts).collect::<Vec<_>>()))
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn integers(rows: &[u64], value: impl Fn(u64) -> i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| value(*row))))
}

fn texts(rows: &[u64], value: impl Fn(u64) -> String) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(rows.iter().map(|row| value(*row))))
}

/// A text for a key: of 12 to 20 bytes, with no order of its own.
fn text_of(key: u64) -> String {
    let bits = UNIQUE.bits(key);
    format!("key/{:x}/{:04x}", bits >> 32, bits & 0xffff)
}

/// Groups of 4, 10 thousand, a quarter of the rows, and about as many as rows; 350 thousand, one with a sixth of the rows; a quarter of
/// the rows whose rows lie side by side; the key of one of `sparse` rows of [`sparse`]; and as many as `heavy` by a power law.
fn keyed(rows: u64, sparse: u64) -> Table {
    let sparse = u32::try_from(sparse).unwrap_or(u32::MAX);
    let many = u32::try_from(rows / 4).unwrap_or(u32::MAX).max(1);
    let columns = move |rows: &[u64]| {
        let heavy = |row| match HEAVY.below(row, 6) {
            0 => 77,
            _ => i64::from(HEAVY.below(row + (1 << 40), 350_000)) * SPREAD,
        };
        vec![
            integers(rows, |row| i64::from(FEW.below(row, 4)) * SPREAD),
            integers(rows, |row| i64::from(THOUSANDS.below(row, 10_000)) * SPREAD),
            integers(rows, |row| i64::from(MANY.below(row, many)) * SPREAD),
            integers(rows, |row| (UNIQUE.bits(row) >> 20) as i64),
            integers(rows, heavy),
            integers(rows, |row| (row / 4) as i64),
            integers(rows, |row| sparse_key(SPARSE.below(row + (1 << 40), sparse).into())),
            integers(rows, |row| power_key(row) * SPREAD),
            integers(rows, |row| i64::from(VALUE.below(row, 1000))),
            integers(rows, |row| i64::from(OTHER.below(row, 1_000_000))),
            texts(rows, |row| text_of(FEW.below(row, 4).into())),
            texts(rows, |row| text_of(THOUSANDS.below(row, 10_000).into())),
            texts(rows, |row| text_of(MANY.below(row, many).into())),
            texts(rows, text_of),
        ]
    };
    let schema = schema(
        &names(&["i4", "i10k", "i1500k", "i6m", "heavy", "ordered", "sparse", "power", "v", "w"]),
        &names(&["t4", "t10k", "t1500k", "t6m"]),
    );
    keyed_table("keyed", schema, rows, columns)
}

/// Four texts of 5, 20, 100 and 1000 values.
fn levels(rows: u64) -> Table {
    let columns = |rows: &[u64]| {
        let level = |values: u32, column: u64| {
            texts(rows, move |row| format!("level {}", LEVELS.below(row * 4 + column, values)))
        };
        vec![
            integers(rows, |row| i64::from(VALUE.below(row, 1000))),
            level(5, 0),
            level(20, 1),
            level(100, 2),
            level(1000, 3),
        ]
    };
    keyed_table("levels", schema(&names(&["v"]), &names(&["a", "b", "c", "d"])), rows, columns)
}

/// A key of each dimension, and a value.
fn star(rows: u64) -> Table {
    let columns = |rows: &[u64]| {
        let key = |number: u64| {
            let keys = dimension_rows(number) as u32;
            integers(rows, move |row| i64::from(DIMENSION.below(row * DIMENSIONS + number, keys)) + 1)
        };
        let mut columns: Vec<ArrayRef> = (0..DIMENSIONS).map(key).collect();
        columns.push(integers(rows, |row| i64::from(VALUE.below(row, 1000))));
        columns
    };
    let mut integers: Vec<String> = (0..DIMENSIONS).map(|number| format!("k{number}")).collect();
    integers.push("m".into());
    keyed_table("star", schema(&integers, &[]), rows, columns)
}

/// One of about 350 thousand keys, of which a row has the first more often than the second and so on: `key` or a greater one with a
/// probability that falls with its fourth root. A sixth of the rows has the first.
fn power_key(row: u64) -> i64 {
    const KEYS: f64 = 350_000.0;
    let uniform = (POWER.bits(row) >> 11) as f64 / (1u64 << 53) as f64;
    // Roots and products alone, which are the same on all machines.
    let root = 1.0 - uniform * (1.0 - 1.0 / KEYS.sqrt().sqrt());
    (1.0 / (root * root * root * root)) as i64
}

/// The key of a row of [`sparse`]: any number of 64 bits.
fn sparse_key(number: u64) -> i64 {
    SPARSE.bits(number) as i64
}

/// Keys of 64 bits, and a number below 1000.
fn sparse(rows: u64) -> Table {
    let columns = |rows: &[u64]| {
        vec![
            integers(rows, |row| sparse_key(row - 1)),
            integers(rows, |row| i64::from(ATTRIBUTE.below(row + (1 << 50), 1000))),
        ]
    };
    keyed_table("sparse", schema(&names(&["k", "a"]), &[]), rows, columns)
}

/// Keys from 1, a number and a text of ten.
fn dimension(name: &'static str, number: u64) -> Table {
    let columns = move |rows: &[u64]| {
        let own = |row: u64| row * DIMENSIONS + number;
        vec![
            integers(rows, |row| row as i64),
            integers(rows, |row| i64::from(ATTRIBUTE.below(own(row), 1000))),
            texts(rows, |row| format!("text {}", ATTRIBUTE.below(own(row) + (1 << 40), 10))),
        ]
    };
    keyed_table(name, schema(&names(&["k", "a"]), &names(&["t"])), dimension_rows(number), columns)
}
