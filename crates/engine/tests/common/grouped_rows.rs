//! Rows in groups, whose keys are of several kinds, and the table of them.

use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use kelpie_compile::expr::Expr;
use kelpie_compile::plan::{Plan, Scan};
use kelpie_compile::types::{DataType, Field};

use crate::common::Table;

/// A decimal of so many digits that nothing proves sums of it to be within 128 bits; with either sign they are.
pub const LARGE: i128 = 99_999_999_999_999_999_999_999_999_999_999_999;

/// A row: its group, and the values.
#[derive(Clone)]
pub struct Row {
    pub group: usize,
    /// Which of the two zeros.
    pub odd: bool,
    pub number: Option<i64>,
    pub decimal: i128,
    pub float: f64,
    pub text: String,
}

pub fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

/// `rows` rows in `groups` groups; under `skew` nine of ten are in group 2.
pub fn rows(rows: usize, groups: usize, skew: bool) -> Vec<Row> {
    let mut next = random(groups as u64 + 11);
    let mut row = |index: usize| {
        let (pick, value) = (next() as usize, next());
        let number = match value % 11 {
            0 => None,
            1 => Some(i64::MIN),
            2 => Some(i64::MAX),
            _ => Some(value as i64 % 50 - 20),
        };
        let float = match value % 97 {
            0 => f64::NAN,
            1 => -0.0,
            2 => f64::NEG_INFINITY,
            _ => (value % 4096) as f64 / 4.0,
        };
        Row {
            group: if skew && pick % 10 > 0 { 2 } else { (pick + index) % groups },
            odd: value % 2 == 1,
            number,
            decimal: match value % 6 {
                0 => LARGE,
                3 => -LARGE,
                _ => i128::from(value) - 1_000_000,
            },
            float,
            text: format!("text é {}", value % 30),
        }
    };
    (0..rows).map(&mut row).collect()
}

/// The keys of a group, each of another kind: dense, hashed, text with a NULL, a float with NaN and both zeros.
pub const KEYS: [&str; 4] = ["dense", "wide", "text", "float"];

pub fn wide(group: usize) -> i64 {
    match group {
        0 => i64::MIN,
        1 => i64::MAX,
        _ => (group as i64).wrapping_mul(0x5851_f42d_4c95_7f2d),
    }
}

pub fn table(rows: &[Row]) -> Arc<Table> {
    let field = |name: &str, data_type, nullable| ArrowField::new(name, data_type, nullable);
    let schema = Schema::new(vec![
        field("dense", ArrowType::Int32, false),
        field("wide", ArrowType::Int64, false),
        field("text", ArrowType::Utf8, true),
        field("float", ArrowType::Float64, false),
        field("number", ArrowType::Int64, true),
        field("decimal", ArrowType::Decimal128(38, 2), false),
        field("value", ArrowType::Float64, false),
        field("string", ArrowType::Utf8, false),
    ]);
    let float = |row: &Row| match (row.group, row.odd) {
        (0, _) => f64::NAN,
        (1, true) => -0.0,
        (1, false) => 0.0,
        (group, _) => group as f64,
    };
    let text = |row: &Row| (row.group != 0).then(|| format!("key ß {}", row.group));
    let decimals = Decimal128Array::from_iter_values(rows.iter().map(|row| row.decimal));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.group as i32))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| wide(row.group)))),
        Arc::new(StringArray::from_iter(rows.iter().map(text))),
        Arc::new(Float64Array::from_iter_values(rows.iter().map(float))),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.number))),
        Arc::new(decimals.with_precision_and_scale(38, 2).expect("a decimal")),
        Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| row.float))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.text))),
    ];
    Arc::new(Table(vec![RecordBatch::try_new(Arc::new(schema), columns).expect("a batch")]))
}

/// The type of column `decimal`.
pub const DECIMAL: DataType = DataType::Decimal128 { precision: 38, scale: 2 };

/// All columns of [`table`].
pub fn scan() -> Plan {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![
        field("dense", DataType::Int32, false),
        field("wide", DataType::Int64, false),
        field("text", DataType::Utf8, true),
        field("float", DataType::Float64, false),
        field("number", DataType::Int64, true),
        field("decimal", DECIMAL, false),
        field("value", DataType::Float64, false),
        field("string", DataType::Utf8, false),
    ];
    Plan::Scan(Scan { source: 0, table: "t".into(), columns: (0..fields.len()).collect(), fields })
}

/// One of them.
pub fn column(index: usize) -> Expr {
    let field = &scan().fields()[index];
    Expr::column(index, field.data_type.clone(), field.nullable)
}
