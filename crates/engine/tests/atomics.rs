//! Atomics that an aggregation issues, as the interpreter counts them: none for what changes nothing.

use std::sync::Arc;

use crate::common::Table;
use crate::common::cases::{covering, facets_and};
use AggregateFunction::*;
use arrow::array::*;
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use kelpie_compile::expr::{ArithmeticOp, CompareOp, Expr, ExprKind};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal};
use kelpie_engine::{
    Atomics, CancelToken, DeviceChoice, Engine, Forced, MicroModel, Query, QueryOptions, QueryOutput,
};

const ROWS: i64 = 6_000;
const GROUPS: i64 = 20;
/// One of so many rows has a value.
const SPARSE: i64 = 30;

/// `k`: a few dense keys; `wide`: the same far from each other; `x`: mostly NULL; `y`: 1 to 60.
fn table() -> Arc<Table> {
    let field = |name: &str, nullable| ArrowField::new(name, ArrowType::Int64, nullable);
    let schema =
        Schema::new(vec![field("k", false), field("wide", false), field("x", true), field("y", false)]);
    let rows = || 0..ROWS;
    let key = |row: i64| row * 7 % GROUPS;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows().map(key))),
        Arc::new(Int64Array::from_iter_values(
            rows().map(|row| key(row).wrapping_mul(0x5851_f42d_4c95_7f2d)),
        )),
        Arc::new(Int64Array::from_iter(rows().map(|row| (row % SPARSE == 0).then_some(row + 1)))),
        Arc::new(Int64Array::from_iter_values(rows().map(|row| row % 60 + 1))),
    ];
    Arc::new(Table(vec![RecordBatch::try_new(Arc::new(schema), columns).expect("a batch")]))
}

fn scan() -> Plan {
    let field = |name: &str, nullable| Field { name: name.into(), data_type: DataType::Int64, nullable };
    let fields = vec![field("k", false), field("wide", false), field("x", true), field("y", false)];
    Plan::Scan(Scan { source: 0, table: "t".into(), columns: vec![0, 1, 2, 3], fields })
}

fn column(index: usize) -> Expr {
    Expr::column(index, DataType::Int64, index == 2)
}

fn int(value: i128) -> Expr {
    Expr::literal(Literal::Int(value), DataType::Int64)
}

/// `y <= 2`: of one row in [`SPARSE`].
fn is_small() -> Expr {
    let kind = ExprKind::Compare(CompareOp::Le, Box::new(column(3)), Box::new(int(2)));
    Expr { kind, data_type: DataType::Boolean, nullable: false }
}

/// `CASE WHEN y <= 2 THEN y [ELSE otherwise] END`.
fn small(otherwise: Option<Expr>) -> Expr {
    let nullable = otherwise.is_none();
    let kind = ExprKind::Case { branches: vec![(is_small(), column(3))], otherwise: otherwise.map(Box::new) };
    Expr { kind, data_type: DataType::Int64, nullable }
}

fn cast_small() -> Expr {
    let kind = ExprKind::Cast { input: Box::new(is_small()), safe: false };
    Expr { kind, data_type: DataType::Int64, nullable: false }
}

fn aggregate(function: AggregateFunction, argument: Option<Expr>) -> Aggregate {
    let field = Field { name: "a".into(), data_type: DataType::Int64, nullable: true };
    Aggregate { function, argument, distinct: false, field }
}

/// `count(*)`, and what else is asked for, by a key or without.
fn plan(key: Option<usize>, more: &[Aggregate]) -> Plan {
    let keys: Vec<Expr> = key.map(column).into_iter().collect();
    let aggregates: Vec<Aggregate> =
        [aggregate(Count, None)].into_iter().chain(more.iter().cloned()).collect();
    let names = vec![String::new(); keys.len() + aggregates.len()];
    Plan::Aggregate { input: Box::new(scan()), keys, aggregates, names }
}

fn run(plan: &Plan, options: &QueryOptions) -> QueryOutput {
    let query = Query { plan: plan.clone(), sources: vec![table() as _], options: options.clone() };
    Engine::new().execute(&query, &CancelToken::default()).expect("an answer")
}

fn atomics(plan: &Plan, options: &QueryOptions) -> Atomics {
    let output = run(plan, options);
    let counted = output.metrics.pipelines.iter().filter_map(|pipeline| pipeline.atomics);
    counted.fold(Atomics::default(), |all, own| Atomics {
        block: all.block + own.block,
        device: all.device + own.device,
    })
}

fn options(lanes: u32, forced: &[(&str, &str)]) -> QueryOptions {
    let mut variants = Forced::default();
    for (axis, value) in forced {
        variants.set(axis, value).expect("an axis and its value");
    }
    let micro_model = MicroModel::Pipelined;
    let device = DeviceChoice::Simt;
    QueryOptions { device, simt_lanes: lanes, micro_model, variants, ..QueryOptions::default() }
}

/// Strategies: their keys, what is forced, and whether rows are added up in a block's memory.
type Strategy = (Option<usize>, &'static [(&'static str, &'static str)], bool);

const STRATEGIES: &[Strategy] = &[
    (None, &[("single_sum", "atomic")], false),
    (Some(0), &[("group_table", "direct"), ("placement", "global")], false),
    (Some(1), &[("group_table", "hash")], false),
    (Some(0), &[("placement", "block"), ("table_copies", "1")], true),
    (Some(0), &[("placement", "block"), ("table_copies", "4"), ("block_sums", "digits")], true),
    (Some(0), &[("placement", "block"), ("count_bytes", "2")], true),
    (Some(0), &[("placement", "block"), ("count_bytes", "1")], true),
    (Some(1), &[("group_table", "hash"), ("near_groups", "256"), ("near_search", "slot")], true),
    (Some(1), &[("group_table", "hash"), ("near_groups", "256"), ("near_search", "key")], true),
];

/// How many atomics more a plan takes than one that only counts rows, in the memory where rows are added up.
fn more(strategy: Strategy, more: &[Aggregate], lanes: u32) -> i64 {
    let (key, forced, is_near) = strategy;
    // Cells that share a word would take one atomic together.
    let options = options(lanes, &[forced, &[("cell_packing", "off")]].concat());
    let [few, many] = [&[][..], more].map(|more| {
        let all = atomics(&plan(key, more), &options);
        if is_near { all.block } else { all.device }
    });
    many as i64 - few as i64
}

#[test]
fn what_changes_nothing_issues_no_atomic() {
    // What a claim of a key or of a copy takes depends on who comes first.
    const CLAIMS: i64 = 400;
    let cases = [
        ("NULL", aggregate(Sum, Some(column(2))), 2 * ROWS / SPARSE),
        ("a count of NULL", aggregate(Count, Some(column(2))), ROWS / SPARSE),
        ("a maximum of NULL", aggregate(Max, Some(column(2))), 2 * ROWS / SPARSE),
        ("FILTER", aggregate(Sum, Some(small(None))), 2 * ROWS / SPARSE),
        ("ELSE 0", aggregate(Sum, Some(small(Some(int(0))))), ROWS / SPARSE),
        ("a boolean", aggregate(Sum, Some(cast_small())), ROWS / SPARSE),
        ("a value", aggregate(Sum, Some(column(3))), ROWS),
        ("ELSE 3", aggregate(Sum, Some(small(Some(int(3))))), ROWS),
    ];
    for strategy in STRATEGIES {
        for (name, aggregate, expected) in &cases {
            for lanes in [4, 32] {
                let more = more(*strategy, std::slice::from_ref(aggregate), lanes);
                // A sum may have several digits.
                let most = if *expected < ROWS { 2 * expected } else { 3 * expected };
                let few = !strategy.2;
                let most = if few { *expected } else { most };
                let range = expected - CLAIMS..=most + CLAIMS;
                assert!(range.contains(&more), "{strategy:?}, {lanes} lanes: {name}: {more}, {range:?}");
            }
        }
    }
}

/// Of the same rows the only group takes exactly as many atomics as there are values.
#[test]
fn a_value_is_one_atomic() {
    let single = STRATEGIES[0];
    for lanes in [4, 32] {
        assert_eq!(more(single, &[aggregate(Sum, Some(column(2)))], lanes), 2 * ROWS / SPARSE);
        assert_eq!(more(single, &[aggregate(Sum, Some(small(Some(int(0)))))], lanes), ROWS / SPARSE);
        assert_eq!(more(single, &[aggregate(Sum, Some(column(3)))], lanes), ROWS);
    }
}

/// A warp that has no row adds nothing at its end.
#[test]
fn warps_without_rows_add_nothing() {
    let options = options(4, &[("single_sum", "warp")]);
    let Plan::Aggregate { input, keys, aggregates, names } = plan(None, &[]) else { panic!("no groups") };
    let kind = ExprKind::Compare(CompareOp::Gt, Box::new(column(3)), Box::new(int(60)));
    let predicate = Expr { kind, data_type: DataType::Boolean, nullable: false };
    let none =
        Plan::Aggregate { input: Box::new(Plan::Filter { input, predicate }), keys, aggregates, names };
    let output = run(&none, &options);
    // Behind it the result is written.
    let filling = output.metrics.pipelines.first().and_then(|pipeline| pipeline.atomics);
    assert_eq!(filling, Some(Atomics::default()));
}

/// By a key: counts and sums that share words, some of which are below zero.
fn packable(key: usize) -> Plan {
    let negative = |value: Expr| {
        let kind = ExprKind::Arithmetic(ArithmeticOp::Subtract, Box::new(int(20)), Box::new(value));
        Expr { kind, data_type: DataType::Int64, nullable: false }
    };
    let more = [
        aggregate(Sum, Some(negative(column(3)))),
        aggregate(Sum, Some(column(2))),
        aggregate(Max, Some(column(3))),
        aggregate(Sum, Some(small(Some(int(0))))),
        aggregate(Count, Some(small(None))),
        aggregate(Sum, Some(negative(small(Some(int(7)))))),
        aggregate(
            Avg,
            Some(Expr {
                data_type: DataType::Float64,
                kind: ExprKind::Cast { input: Box::new(column(3)), safe: false },
                nullable: false,
            }),
        ),
    ];
    plan(Some(key), &more)
}

fn rows_of(batch: &RecordBatch) -> Vec<String> {
    let mut rows: Vec<String> = (0..batch.num_rows())
        .map(|row| {
            let values =
                batch.columns().iter().map(|column| array_value_to_string(column, row).expect("a value"));
            values.collect::<Vec<_>>().join(" ")
        })
        .collect();
    rows.sort_unstable();
    rows
}

/// Every way to add rows up that a plan leaves open, with cells in words together.
#[test]
fn packed_cells_are_the_cells() {
    let ways: &[&[(&str, &str)]] = &[
        &[("group_table", "direct"), ("placement", "global")],
        &[("group_table", "direct"), ("placement", "thread")],
        &[("group_table", "direct"), ("placement", "block")],
        &[("group_table", "direct"), ("placement", "block"), ("table_copies", "8"), ("block_sums", "digits")],
        &[("group_table", "direct"), ("placement", "block"), ("table_slices", "2")],
        &[("group_table", "direct"), ("placement", "block"), ("count_bytes", "1")],
        &[("group_table", "hash")],
        &[("group_table", "hash"), ("near_groups", "256"), ("near_search", "key")],
        &[("group_table", "hash"), ("near_groups", "256"), ("near_search", "slot")],
        &[("group_table", "hash"), ("last_group", "on")],
        &[("group_table", "hash"), ("last_group", "majority")],
        &[("group_table", "hash"), ("segments", "warp")],
        &[("group_table", "hash"), ("segments", "block")],
        &[("group_table", "hash"), ("batch_rows", "64")],
        &[("group_table", "hash"), ("group_parts", "16")],
        &[("group_table", "direct"), ("placement", "global"), ("group_parts", "16")],
        &[("group_order", "sorted")],
        &[("group_order", "strided"), ("stride_rows", "1024")],
    ];
    let mut cases = Vec::new();
    for key in [0, 1] {
        for forced in ways {
            for (device, lanes) in
                [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 4), (DeviceChoice::Simt, 32)]
            {
                let forced: Vec<_> = forced.iter().copied().chain([("cell_packing", "packed")]).collect();
                let options = QueryOptions { device, ..options(lanes, &forced) };
                cases.push((key, forced, options));
            }
        }
    }
    // Each way by each key.
    let cases = covering("packed cells", cases, 40, |(key, forced, options)| {
        facets_and(options, &[&(key, forced), &(key, options.device)])
    });
    let plans = [0, 1].map(packable);
    let expected = plans.each_ref().map(|plan| rows_of(&run(plan, &options(4, &[])).batch));
    assert!(expected.iter().all(|rows| rows.len() as i64 == GROUPS));
    for (key, forced, options) in cases {
        let (plan, expected) = (&plans[key], &expected[key]);
        assert_eq!(rows_of(&run(plan, &options).batch), *expected, "{key} {options:?}");
        let options = QueryOptions { micro_model: MicroModel::Resolution, ..options };
        let output = run(plan, &options);
        assert_eq!(rows_of(&output.batch), *expected, "{key} {options:?}");
        let is_packed = output
            .metrics
            .choices()
            .any(|choice| choice.axis.name == "cell_packing" && choice.value == "packed");
        assert!(is_packed || forced[0].1 == "strided", "{options:?}");
    }
}

/// Cells of one word take the atomics of one, whatever a row adds to them.
#[test]
fn packed_cells_take_one_atomic() {
    let sums = [aggregate(Sum, Some(column(3))), aggregate(Count, Some(column(2)))];
    for (key, table) in [(0, "direct"), (1, "hash")] {
        for lanes in [4, 32] {
            let [plain, packed] = ["off", "packed"].map(|packing| {
                let forced = [("group_table", table), ("placement", "global"), ("cell_packing", packing)];
                atomics(&plan(Some(key), &sums), &options(lanes, &forced)).device as i64
            });
            let spared = ROWS + ROWS / SPARSE;
            let claims = 400;
            assert!(
                (spared - claims..=spared + claims).contains(&(plain - packed)),
                "{table}: {plain} {packed}"
            );
        }
    }
}
