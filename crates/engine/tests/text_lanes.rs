//! Texts that the lanes of a warp compare together are equal where a lane finds its own equal: of all lengths, equal, different in one
//! byte or in length, NULL, beside other conditions, in warps of several widths.

use std::collections::HashMap;
use std::sync::Arc;

use crate::common::cases::{covering, facets_and, is_whole};
use crate::plans::{aggregate, join, rows_of, run};
use arrow::array::*;
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::plan::{AggregateFunction, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal};
use kelpie_engine::testing::gpu;
use kelpie_engine::{DeviceChoice, Engine, Forced, QueryOptions, QueryOutput, ShapeChoices, TableSource};

use crate::common::Table;

const ROWS: usize = 300;

/// A text of a length, of which no two rows have the same.
fn text(row: usize, length: usize) -> String {
    let start = format!("{row:03}é ");
    (0..length)
        .map(|place| start.chars().nth(place).unwrap_or(char::from(b'a' + (place * 7 % 26) as u8)))
        .collect()
}

/// The text with one byte changed: the first, the last, or one between.
fn changed(text: &str, place: usize) -> String {
    let places: Vec<usize> = (0..text.len()).filter(|at| text.as_bytes()[*at].is_ascii()).collect();
    let Some(at) = places.get(place.min(places.len().saturating_sub(1))) else { return "x".into() };
    let mut bytes = text.as_bytes().to_vec();
    bytes[*at] ^= 1;
    String::from_utf8(bytes).expect("ASCII in place of ASCII")
}

/// `n`: `0..rows`; `a`: texts of up to 300 characters, some NULL; `b`: the same, or others; `d`: few texts.
fn table() -> Arc<dyn TableSource> {
    let schema = Schema::new(vec![
        ArrowField::new("n", ArrowType::Int64, false),
        ArrowField::new("a", ArrowType::Utf8, true),
        ArrowField::new("b", ArrowType::Utf8, true),
        ArrowField::new("d", ArrowType::Utf8, false),
    ]);
    let left =
        |row: usize| text(row, [0, 1, 5, 7, 8, 9, 15, 16, 17, 40, 63, 64, 65, 255, 256, 257, 300][row % 17]);
    let right = |row: usize| match row * 5 % 8 {
        0..4 => left(row),
        4 => changed(&left(row), 0),
        5 => changed(&left(row), usize::MAX),
        6 => changed(&left(row), row % 50),
        _ => format!("{}+", left(row)),
    };
    let all = 0..ROWS;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(all.clone().map(|row| row as i64))),
        Arc::new(StringArray::from_iter(all.clone().map(|row| (row % 13 != 4).then(|| left(row))))),
        Arc::new(StringArray::from_iter(all.clone().map(|row| (row % 17 != 5).then(|| right(row))))),
        Arc::new(StringArray::from_iter_values(all.map(|row| ["few", "texts"][row % 2]))),
    ];
    Arc::new(Table(vec![RecordBatch::try_new(Arc::new(schema), columns).expect("a batch")]))
}

fn scan(source: usize) -> Plan {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![
        field("n", DataType::Int64, false),
        field("a", DataType::Utf8, true),
        field("b", DataType::Utf8, true),
        field("d", DataType::Utf8, false),
    ];
    Plan::Scan(Scan { source, table: "t".into(), columns: (0..4).collect(), fields })
}

fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
    let nullable = left.nullable || right.nullable;
    let kind = ExprKind::Compare(op, Box::new(left), Box::new(right));
    Expr { kind, data_type: DataType::Boolean, nullable }
}

fn all(conditions: Vec<Expr>) -> Expr {
    let and = |left: Expr, right: Expr| {
        let nullable = left.nullable || right.nullable;
        let kind = ExprKind::And(Box::new(left), Box::new(right));
        Expr { kind, data_type: DataType::Boolean, nullable }
    };
    conditions.into_iter().reduce(and).expect("conditions")
}

fn keep(input: Plan, predicate: Expr) -> Plan {
    Plan::Filter { input: Box::new(input), predicate }
}

fn number(op: CompareOp, value: i128) -> Expr {
    let column = Expr::column(0, DataType::Int64, false);
    compare(op, column, Expr::literal(Literal::Int(value), DataType::Int64))
}

fn of(column: usize) -> Expr {
    Expr::column(column, DataType::Utf8, column < 3)
}

fn literal(row: usize, length: usize) -> Expr {
    Expr::literal(Literal::Utf8(text(row, length).into()), DataType::Utf8)
}

fn plans() -> Vec<(&'static str, Plan)> {
    use AggregateFunction::{Count, Max, Sum};
    let equal = || compare(CompareOp::Eq, of(1), of(2));
    let sums = [(Count, None, false), (Sum, Some(0), false), (Max, Some(2), false)];
    let few = || keep(scan(0), all(vec![number(CompareOp::Ge, 20), equal(), number(CompareOp::Lt, 250)]));
    let dictionary =
        compare(CompareOp::Eq, of(3), Expr::literal(Literal::Utf8("few".into()), DataType::Utf8));
    vec![
        ("equal texts", keep(scan(0), equal())),
        ("a long literal", keep(scan(0), compare(CompareOp::Eq, of(1), literal(33, 300)))),
        ("a short literal", keep(scan(0), compare(CompareOp::Eq, literal(2, 5), of(2)))),
        ("other conditions", few()),
        ("two equalities", keep(few(), all(vec![dictionary, compare(CompareOp::Eq, of(2), of(1))]))),
        ("groups", aggregate(few(), &[3], &sums)),
        ("sums", aggregate(few(), &[], &sums)),
        ("behind a join", {
            let joined = join(JoinKind::Inner, scan(1), scan(0), &[(3, 3)], false);
            let near = compare(
                CompareOp::Lt,
                Expr::column(0, DataType::Int64, false),
                Expr::literal(Literal::Int(20), DataType::Int64),
            );
            let sides = compare(
                CompareOp::Eq,
                Expr::column(1, DataType::Utf8, true),
                Expr::column(6, DataType::Utf8, true),
            );
            aggregate(
                keep(joined, all(vec![near, sides])),
                &[],
                &[(Count, None, false), (Sum, Some(4), false)],
            )
        }),
    ]
}

/// What is forced of who looks at texts, and of what else rows change lanes for.
fn variants(texts: &'static str, number: usize) -> [(&'static str, &'static str); 4] {
    [
        ("text_lanes", texts),
        ("lane_refill", ["off", "last", "all"][number % 3]),
        ("expansion", ["packed", "lane", "refill"][number / 3 % 3]),
        ("carried", ["places", "values", "read"][(number + number / 3) % 3]),
    ]
}

fn is_forced(output: &QueryOutput, texts: &str) -> bool {
    output.metrics.choices().any(|choice| choice.axis.name == "text_lanes" && choice.value == texts)
}

#[test]
fn lanes_find_equal_what_one_lane_finds_equal() {
    let engine = Engine::new();
    let sources = [table(), table()];
    let (gpu, plans) = (gpu(), plans());
    let mut cases = Vec::new();
    for at in 0..plans.len() {
        let widths = [4, 8, 32, 3].into_iter().map(|lanes| (DeviceChoice::Simt, lanes));
        for (index, (device, lanes)) in widths.chain(gpu.map(|device| (device, 32))).enumerate() {
            for texts in ["lane", "warp", "packed"] {
                for number in 0..3 {
                    // A GPU compiles each kernel for a while.
                    if device == DeviceChoice::Cuda && number != at % 3 {
                        continue;
                    }
                    let mut forced = Forced::default();
                    for (axis, value) in variants(texts, 3 * index + number) {
                        forced.set(axis, value).expect("an axis and its value");
                    }
                    let options = QueryOptions {
                        device,
                        simt_lanes: lanes,
                        shape: ShapeChoices { blocks: Some(1), ..ShapeChoices::default() },
                        variants: forced,
                        ..QueryOptions::default()
                    };
                    cases.push((at, texts, options));
                }
            }
        }
    }
    let cases = covering("texts of lanes", cases, 60, |(at, texts, options)| {
        facets_and(options, &[&(at, texts), &(texts, options.simt_lanes)])
    });
    let (mut together, mut expected) = (0, HashMap::new());
    for (at, texts, options) in cases {
        let (name, plan) = &plans[at];
        let expected = expected.entry(at).or_insert_with(|| {
            let cpu = QueryOptions { device: DeviceChoice::Cpu, threads: Some(2), ..QueryOptions::default() };
            rows_of(&run(&engine, plan, &sources, &cpu).batch, false)
        });
        assert!(!expected.is_empty(), "{name}");
        let output = run(&engine, plan, &sources, &options);
        together += usize::from(texts != "lane" && is_forced(&output, texts));
        assert_eq!(rows_of(&output.batch, false), *expected, "{name}: {options:?}");
    }
    assert!(together >= if is_whole() { 6 * 4 * 2 * 3 } else { 1 }, "{together}");
}
