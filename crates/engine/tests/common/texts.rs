//! Texts of all lengths in a table, and conditions on them.

use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind, Regex};
use kelpie_compile::plan::{Plan, Scan};
use kelpie_compile::types::{DataType, Field};
use kelpie_engine::TableSource;

use super::common::Table;
use super::plans::{filter, like};

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
pub fn table(texts: impl Iterator<Item = Option<String>>) -> Arc<dyn TableSource> {
    let schema = Schema::new(vec![
        ArrowField::new("n", ArrowType::Int64, false),
        ArrowField::new("a", ArrowType::Utf8, true),
        ArrowField::new("d", ArrowType::Utf8, false),
        ArrowField::new("k", ArrowType::Int64, false),
    ]);
    let texts: StringArray = texts.collect();
    let all = 0..texts.len();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(all.clone().map(|row| row as i64))),
        Arc::new(texts),
        Arc::new(StringArray::from_iter_values(all.clone().map(|row| ["few", "texts"][row % 2]))),
        Arc::new(Int64Array::from_iter_values(all.map(|row| row as i64 % 7))),
    ];
    Arc::new(Table(vec![RecordBatch::try_new(Arc::new(schema), columns).expect("a batch")]))
}

pub fn mixed(rows: usize) -> Arc<dyn TableSource> {
    table((0..rows).map(|row| (row % 11 != 4).then(|| text(row, length(row)))))
}

pub fn scan(source: usize) -> Plan {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![
        field("n", DataType::Int64, false),
        field("a", DataType::Utf8, true),
        field("d", DataType::Utf8, false),
        field("k", DataType::Int64, false),
    ];
    Plan::Scan(Scan { source, table: "t".into(), columns: (0..4).collect(), fields })
}

pub fn matches(pattern: &str, negated: bool) -> Expr {
    let regex = Regex::new(pattern, "").expect("a regular expression");
    let input = Box::new(Expr::column(1, DataType::Utf8, true));
    let kind = ExprKind::Regex { input, regex, negated };
    Expr { kind, data_type: DataType::Boolean, nullable: true }
}

pub fn contains(pattern: &str, negated: bool) -> Expr {
    like(&scan(0), 1, pattern, negated)
}

pub fn not(input: Expr) -> Expr {
    Expr { data_type: DataType::Boolean, nullable: true, kind: ExprKind::Not(Box::new(input)) }
}

pub fn all(conditions: Vec<Expr>) -> Expr {
    let and = |left: Expr, right: Expr| {
        let nullable = left.nullable || right.nullable;
        let kind = ExprKind::And(Box::new(left), Box::new(right));
        Expr { kind, data_type: DataType::Boolean, nullable }
    };
    conditions.into_iter().reduce(and).expect("conditions")
}

pub fn keep(input: Plan, predicate: Expr) -> Plan {
    Plan::Filter { input: Box::new(input), predicate }
}

/// The condition of a filter of rows by their numbers.
pub fn number(op: CompareOp, value: i128) -> Expr {
    let Plan::Filter { predicate, .. } = filter(scan(0), 0, op, value) else { panic!("no filter") };
    predicate
}
