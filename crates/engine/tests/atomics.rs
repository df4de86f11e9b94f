//! Atomics that an aggregation issues, as the interpreter counts them: none for what changes nothing.

use crate::common::*;
use kelpie_engine::Atomics;

use AggregateFunction::*;

const ROWS: i64 = 6_000;
const GROUPS: i64 = 20;
/// One of so many rows has a value.
const SPARSE: i64 = 30;

const COLUMNS: [Column; 4] = [
    ("k", DataType::Int64, false),
    ("wide", DataType::Int64, false),
    ("x", DataType::Int64, true),
    ("y", DataType::Int64, false),
];

/// `k`: a few dense keys; `wide`: the same far from each other; `x`: mostly NULL; `y`: 1 to 60.
fn table() -> Arc<Table> {
    let rows = || 0..ROWS;
    let key = |row: i64| row * 7 % GROUPS;
    let columns: Vec<ArrayRef> = vec![
        longs(rows().map(key)),
        longs(rows().map(|row| key(row).wrapping_mul(0x5851_f42d_4c95_7f2d))),
        maybe_longs(rows().map(|row| (row % SPARSE == 0).then_some(row + 1))),
        longs(rows().map(|row| row % 60 + 1)),
    ];
    table_of(&COLUMNS, columns)
}

fn column(index: usize) -> Expr {
    column_of(&COLUMNS, index)
}

/// `y <= 2`: of one row in [`SPARSE`].
fn is_small() -> Expr {
    compare_with(CompareOp::Le, column(3), 2)
}

/// `CASE WHEN y <= 2 THEN y [ELSE otherwise] END`.
fn small(otherwise: Option<Expr>) -> Expr {
    let nullable = otherwise.is_none();
    let kind = ExprKind::Case { branches: vec![(is_small(), column(3))], otherwise: otherwise.map(Box::new) };
    Expr { kind, data_type: DataType::Int64, nullable }
}

fn cast_small() -> Expr {
    cast(is_small(), DataType::Int64)
}

/// `count(*)`, and what else is asked for, by a key or without.
fn plan(key: Option<usize>, more: &[Aggregate]) -> Plan {
    let aggregates = [of_longs(Count, None)].into_iter().chain(more.iter().cloned()).collect();
    groups_of(scan_of(0, &COLUMNS), key.map(column).into_iter().collect(), aggregates)
}

fn run(plan: &Plan, options: &QueryOptions) -> QueryOutput {
    crate::common::run(&Engine::new(), plan, &table(), options)
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
    let micro_model = MicroModel::Pipelined;
    QueryOptions { micro_model, ..on_lanes((DeviceChoice::Simt, lanes), forced) }
}

/// Strategies: their keys, what is forced, and whether rows are added up in a block's memory.
type Strategy = (Option<usize>, &'static [(&'static str, &'static str)], bool);

const STRATEGIES: &[Strategy] = &[
    (None, &[("single_sum", "atomic")], false),
    (Some(0), &[("group_table", "direct"), ("accumulator_memory", "global")], false),
    (Some(1), &[("group_table", "hash")], false),
    (Some(0), &[("accumulator_memory", "block"), ("table_copies", "1")], true),
    (Some(0), &[("accumulator_memory", "block"), ("table_copies", "4"), ("block_sums", "digits")], true),
    (Some(0), &[("accumulator_memory", "block"), ("count_bytes", "2")], true),
    (Some(0), &[("accumulator_memory", "block"), ("count_bytes", "1")], true),
    (
        Some(1),
        &[("group_table", "hash"), ("local_preaggregation", "256"), ("preaggregation_search", "slot")],
        true,
    ),
    (
        Some(1),
        &[("group_table", "hash"), ("local_preaggregation", "256"), ("preaggregation_search", "key")],
        true,
    ),
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
        ("NULL", of_longs(Sum, Some(column(2))), 2 * ROWS / SPARSE),
        ("a count of NULL", of_longs(Count, Some(column(2))), ROWS / SPARSE),
        ("a maximum of NULL", of_longs(Max, Some(column(2))), 2 * ROWS / SPARSE),
        ("FILTER", of_longs(Sum, Some(small(None))), 2 * ROWS / SPARSE),
        ("ELSE 0", of_longs(Sum, Some(small(Some(int(0))))), ROWS / SPARSE),
        ("a boolean", of_longs(Sum, Some(cast_small())), ROWS / SPARSE),
        ("a value", of_longs(Sum, Some(column(3))), ROWS),
        ("ELSE 3", of_longs(Sum, Some(small(Some(int(3))))), ROWS),
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
        assert_eq!(more(single, &[of_longs(Sum, Some(column(2)))], lanes), 2 * ROWS / SPARSE);
        assert_eq!(more(single, &[of_longs(Sum, Some(small(Some(int(0)))))], lanes), ROWS / SPARSE);
        assert_eq!(more(single, &[of_longs(Sum, Some(column(3)))], lanes), ROWS);
    }
}

/// A warp that has no row adds nothing at its end.
#[test]
fn warps_without_rows_add_nothing() {
    let options = options(4, &[("single_sum", "warp")]);
    let Plan::Aggregate { input, keys, aggregates, .. } = plan(None, &[]) else { panic!("no groups") };
    let predicate = compare(CompareOp::Gt, column(3), int(60));
    let none = groups_of(keep(*input, predicate), keys, aggregates);
    let output = run(&none, &options);
    // Behind it the result is written.
    let filling = output.metrics.pipelines.first().and_then(|pipeline| pipeline.atomics);
    assert_eq!(filling, Some(Atomics::default()));
}

/// By a key: counts and sums that share words, some of which are below zero.
fn packable(key: usize) -> Plan {
    let negative = |value: Expr| arithmetic(ArithmeticOp::Subtract, int(20), value);
    let more = [
        of_longs(Sum, Some(negative(column(3)))),
        of_longs(Sum, Some(column(2))),
        of_longs(Max, Some(column(3))),
        of_longs(Sum, Some(small(Some(int(0))))),
        of_longs(Count, Some(small(None))),
        of_longs(Sum, Some(negative(small(Some(int(7)))))),
        of_longs(
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

/// Every way to add rows up that a plan leaves open, with cells in words together.
#[test]
fn packed_cells_are_the_cells() {
    let ways: &[&[(&str, &str)]] = &[
        &[("group_table", "direct"), ("accumulator_memory", "global")],
        &[("group_table", "direct"), ("accumulator_memory", "thread")],
        &[("group_table", "direct"), ("accumulator_memory", "thread_global")],
        &[("group_table", "direct"), ("accumulator_memory", "block")],
        &[
            ("group_table", "direct"),
            ("accumulator_memory", "block"),
            ("table_copies", "8"),
            ("block_sums", "digits"),
        ],
        &[("group_table", "direct"), ("accumulator_memory", "block"), ("table_slices", "2")],
        &[("group_table", "direct"), ("accumulator_memory", "block"), ("count_bytes", "1")],
        &[("group_table", "hash")],
        &[("group_table", "hash"), ("local_preaggregation", "256"), ("preaggregation_search", "key")],
        &[("group_table", "hash"), ("local_preaggregation", "256"), ("preaggregation_search", "slot")],
        &[("group_table", "hash"), ("run_accumulator", "on")],
        &[("group_table", "hash"), ("run_accumulator", "majority")],
        &[("group_table", "hash"), ("segments", "warp")],
        &[("group_table", "hash"), ("segments", "block")],
        &[("group_table", "hash"), ("batch_rows", "64")],
        &[("group_table", "hash"), ("group_parts", "16")],
        &[("group_table", "direct"), ("accumulator_memory", "global"), ("group_parts", "16")],
        &[("group_order", "sorted"), ("sorted_groups", "table")],
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
    let expected = plans.each_ref().map(|plan| rows_of(&run(plan, &options(4, &[])).batch, false));
    assert!(expected.iter().all(|rows| rows.len() as i64 == GROUPS));
    for (key, forced, options) in cases {
        let (plan, expected) = (&plans[key], &expected[key]);
        assert_eq!(rows_of(&run(plan, &options).batch, false), *expected, "{key} {options:?}");
        let options = QueryOptions { micro_model: MicroModel::Resolution, ..options };
        let output = run(plan, &options);
        assert_eq!(rows_of(&output.batch, false), *expected, "{key} {options:?}");
        let is_packed = has(&output, ("cell_packing", "packed"));
        assert!(is_packed || forced[0].1 == "strided", "{options:?}");
    }
}

/// Cells of one word take the atomics of one, whatever a row adds to them.
#[test]
fn packed_cells_take_one_atomic() {
    let sums = [of_longs(Sum, Some(column(3))), of_longs(Count, Some(column(2)))];
    for (key, table) in [(0, "direct"), (1, "hash")] {
        for lanes in [4, 32] {
            let [plain, packed] = ["off", "packed"].map(|packing| {
                let forced =
                    [("group_table", table), ("accumulator_memory", "global"), ("cell_packing", packing)];
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
