//! Rows in groups, whose keys are of several kinds, and the table of them.

use crate::common::*;

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

pub const DECIMAL: DataType = DataType::Decimal128 { precision: 38, scale: 2 };

pub const COLUMNS: [Column; 8] = [
    ("dense", DataType::Int32, false),
    ("wide", DataType::Int64, false),
    ("text", DataType::Utf8, true),
    ("float", DataType::Float64, false),
    ("number", DataType::Int64, true),
    ("decimal", DECIMAL, false),
    ("value", DataType::Float64, false),
    ("string", DataType::Utf8, false),
];

pub fn table(rows: &[Row]) -> Arc<Table> {
    let float = |row: &Row| match (row.group, row.odd) {
        (0, _) => f64::NAN,
        (1, true) => -0.0,
        (1, false) => 0.0,
        (group, _) => group as f64,
    };
    let text = |row: &Row| (row.group != 0).then(|| format!("key ß {}", row.group));
    let columns: Vec<ArrayRef> = vec![
        ints(rows.iter().map(|row| row.group as i32)),
        longs(rows.iter().map(|row| wide(row.group))),
        maybe_texts(rows.iter().map(text)),
        doubles(rows.iter().map(float)),
        maybe_longs(rows.iter().map(|row| row.number)),
        decimals(rows.iter().map(|row| row.decimal), 38, 2),
        doubles(rows.iter().map(|row| row.float)),
        texts(rows.iter().map(|row| &row.text)),
    ];
    table_of(&COLUMNS, columns)
}
