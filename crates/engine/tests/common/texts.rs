//! Texts of all lengths in a table, and conditions on them.

use super::plans::like;
use crate::common::*;
use kelpie_compile::expr::Regex;

/// Bytes of a row's text: most are short, one of sixteen has up to 2,000.
pub fn length(row: usize) -> usize {
    match row % 16 {
        0 => 0,
        5 => row * 7919 % 2001,
        9 => [7, 8, 9, 15, 16, 17, 31, 32, 33, 34, 64, 65][row / 16 % 12],
        _ => row * 31 % 41,
    }
}

/// A text of so many bytes, in which some words stand at places of their own.
pub fn text(row: usize, length: usize) -> String {
    let words = ["abc", "xé", "b7", "needle", "ü", "end"];
    let (mut text, mut number) = (if row % 5 == 1 { "start".into() } else { String::new() }, row);
    while text.len() < length {
        number = number.wrapping_mul(0x9E37_79B9).wrapping_add(row) % 0x7FFF_FFFF;
        match number % 23 {
            word @ 0..6 if number % 3 == 0 || word < 2 => text.push_str(words[word]),
            other => text.push(char::from(b'a' + other as u8)),
        }
    }
    while text.len() > length {
        text.pop();
    }
    text
}

/// `n`: `0..rows`; `a`: texts; `d`: few texts; `k`: few numbers.
pub fn table(rows: impl Iterator<Item = Option<String>>) -> Arc<dyn TableSource> {
    let rows: StringArray = rows.collect();
    let all = 0..rows.len();
    let columns: Vec<ArrayRef> = vec![
        longs(all.clone().map(|row| row as i64)),
        Arc::new(rows),
        texts(all.clone().map(|row| ["few", "texts"][row % 2])),
        longs(all.map(|row| row as i64 % 7)),
    ];
    table_of(&COLUMNS, columns)
}

pub fn mixed(rows: usize) -> Arc<dyn TableSource> {
    table((0..rows).map(|row| (row % 11 != 4).then(|| text(row, length(row)))))
}

pub const COLUMNS: [Column; 4] = [
    ("n", DataType::Int64, false),
    ("a", DataType::Utf8, true),
    ("d", DataType::Utf8, false),
    ("k", DataType::Int64, false),
];

pub fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

pub fn matches(pattern: &str, negated: bool) -> Expr {
    let regex = Regex::new(pattern, "").expect("a regular expression");
    boolean(ExprKind::Regex { input: Box::new(column_of(&COLUMNS, 1)), regex, negated }, true)
}

pub fn contains(pattern: &str, negated: bool) -> Expr {
    like(&scan(0), 1, pattern, negated)
}

/// The condition of a filter of rows by their numbers.
pub fn number(op: CompareOp, value: i128) -> Expr {
    compare_with(op, column_of(&COLUMNS, 0), value)
}
