//! Lanes that are given rows of all warps of a block (`refill_buffer = shared`) in front of every kind of sink: each gives what a CPU
//! gives, also where its table overflows while rows wait, where no more rows are wanted, and where an expression fails. The interpreter
//! reports barriers that not all threads of a block reach, and accesses that race.

use crate::common::*;
use crate::plans::{aggregate, filter, join, scan, sort, table};
use kelpie_engine::testing::shrink_tables;

type Variants = &'static [(&'static str, &'static str)];

const SUMS: [(AggregateFunction, Option<usize>, bool); 4] = [
    (AggregateFunction::Count, None, false),
    (AggregateFunction::Sum, Some(1), false),
    (AggregateFunction::Min, Some(0), false),
    (AggregateFunction::Max, Some(3), false),
];

const INTEGERS: &[(AggregateFunction, Option<usize>, bool)] = &[SUMS[0], SUMS[1]];

/// Rows with a number below one of 40: so many of 47 are kept, and lie far apart.
fn few(source: usize, below: i128) -> Plan {
    filter(scan(source), 0, CompareOp::Lt, below)
}

/// A plan, what is forced beside the refill, and whether a table overflows that is a thousand times too small.
struct Case {
    name: &'static str,
    plan: Plan,
    variants: Variants,
    overflows: bool,
}

const HASH: (&str, &str) = ("group_table", "hash");
const ALONE: (&str, &str) = ("local_preaggregation", "0");

fn groups() -> Vec<Case> {
    let by = |name, keys: &[usize], variants, overflows| Case {
        name,
        plan: aggregate(few(0, 12), keys, &SUMS),
        variants,
        overflows,
    };
    let of_numbers = |name, keys: &[usize], variants, overflows| Case {
        name,
        plan: aggregate(few(0, 12), keys, INTEGERS),
        variants,
        overflows,
    };
    let distinct = [SUMS[0], (AggregateFunction::Count, Some(4), true)];
    vec![
        by("sums", &[], &[], false),
        of_numbers("sums of numbers", &[], &[], false),
        by("direct", &[0], &[("group_table", "direct"), ("accumulator_memory", "global")], false),
        of_numbers(
            "direct in blocks",
            &[0],
            &[("group_table", "direct"), ("accumulator_memory", "block")],
            false,
        ),
        of_numbers(
            "direct in threads",
            &[0],
            &[("group_table", "direct"), ("accumulator_memory", "thread")],
            false,
        ),
        of_numbers(
            "direct in threads of the device's memory",
            &[0],
            &[("group_table", "direct"), ("accumulator_memory", "thread_global")],
            false,
        ),
        by("packed", &[1], &[HASH, ALONE, ("segments", "off")], true),
        of_numbers(
            "packed, near by slot",
            &[1],
            &[HASH, ("local_preaggregation", "256"), ("preaggregation_search", "slot")],
            true,
        ),
        of_numbers(
            "packed, near by key",
            &[1],
            &[HASH, ("local_preaggregation", "256"), ("preaggregation_search", "key")],
            true,
        ),
        of_numbers("segments of warps", &[1], &[HASH, ("segments", "warp")], true),
        of_numbers("segments of blocks", &[1], &[HASH, ("segments", "block")], true),
        of_numbers("last groups", &[1], &[HASH, ("run_accumulator", "majority")], true),
        by("latched", &[4, 0], &[HASH, ALONE, ("key_claims", "latch")], true),
        of_numbers("by words", &[4, 0], &[HASH, ALONE, ("key_claims", "words")], true),
        by("texts", &[3], &[HASH], true),
        by("texts together", &[3, 0], &[HASH, ("key_text_lanes", "warp")], true),
        Case {
            name: "values that count once",
            plan: aggregate(few(0, 12), &[0], &distinct),
            variants: &[("distinct_values", "set")],
            overflows: true,
        },
        Case {
            name: "groups behind a join",
            plan: aggregate(
                join(JoinKind::Inner, few(1, 20), few(0, 20), &[(1, 1)], false),
                &[6, 4],
                INTEGERS,
            ),
            variants: &[HASH, ALONE],
            overflows: false,
        },
        by("sorted", &[1], &[("group_order", "sorted")], false),
    ]
}

fn others() -> Vec<Case> {
    let case = |name, plan, variants| Case { name, plan, variants, overflows: false };
    let joined = |kind, keys: &[(usize, usize)]| join(kind, few(1, 20), few(0, 20), keys, false);
    let counted = |fetch| {
        let limited = limit(few(0, 12), 3, Some(fetch));
        aggregate(limited, &[], &SUMS[..1])
    };
    vec![
        case("result", few(0, 12), &[("write_places", "atomic")]),
        case("result of blocks", few(0, 12), &[("write_places", "block")]),
        case("few rows", counted(7), &[]),
        case("more rows than there are", counted(100_000), &[]),
        case("build side", joined(JoinKind::Inner, &[(1, 1)]), &[("join", "hash")]),
        case("build side of texts", joined(JoinKind::ProbeSemi, &[(3, 3)]), &[("join", "hash")]),
        case("build side of ranks", joined(JoinKind::Inner, &[(1, 1)]), &[("join", "rank")]),
        case("build side at places", joined(JoinKind::Inner, &[(1, 1)]), &[("join", "direct")]),
        case("build side in buckets", joined(JoinKind::Inner, &[(0, 0)]), &[("index_rows", "buckets")]),
        case("build side in parts", joined(JoinKind::Inner, &[(4, 4)]), &[("join_parts", "16")]),
        case("marks", joined(JoinKind::BuildSemi, &[(1, 1)]), &[]),
        case("outer", joined(JoinKind::FullOuter, &[(1, 1)]), &[]),
        case("sort", sort(few(0, 12), &[1], None), &[]),
        case("first rows", sort(few(0, 12), &[4, 1], Some(9)), &[]),
    ]
}

fn options(device: DeviceChoice, lanes: u32, blocks: u32, variants: &[(&str, &str)]) -> QueryOptions {
    QueryOptions { device, ..in_blocks(lanes, blocks, variants) }
}

fn refilled(case: &Case, refill: &'static str, threshold: &'static str) -> Vec<(&'static str, &'static str)> {
    let mut variants =
        vec![("lane_refill", refill), ("refill_buffer", "shared"), ("refill_threshold", threshold)];
    variants.extend(case.variants);
    variants
}

/// Whether rows wait in blocks.
fn waits_in_blocks(output: &QueryOutput) -> bool {
    has(output, ("refill_buffer", "shared"))
}

#[test]
fn every_sink_gets_its_rows() {
    let all: Vec<Case> = groups().into_iter().chain(others()).collect();
    let tables = [[0, 9], [9, 0], [1, 1], [3_000, 200]].map(|sizes| sizes.map(table));
    let mut cases = Vec::new();
    for (number, case) in all.iter().enumerate() {
        for size in 0..tables.len() {
            for (index, lanes) in [4, 8, 32].into_iter().enumerate() {
                let refill = ["last", "all", "filters"][(number + index) % 3];
                let threshold = ["28", "8", "32", "1"][(number / 3 + index) % 4];
                let variants = refilled(case, refill, threshold);
                cases.push((number, size, in_blocks(lanes, 1 + (number + index) as u32 % 3, &variants)));
            }
        }
    }
    // Many rows of each case, and few of some.
    let cases = covering("every sink", cases, 50, |(number, size, options)| {
        facets_and(options, &[&(number, *size == 3), size, &options.shape.blocks])
    });
    for (number, size, options) in cases {
        let (case, sources) = (&all[number], &tables[size]);
        let is_sorted = matches!(case.plan, Plan::Sort { .. });
        let expected = rows_of(&run(&Engine::new(), &case.plan, sources, cpu()).batch, is_sorted);
        let output = run(&Engine::new(), &case.plan, sources, &options);
        let what = format!("{}: {options:?}, {size}", case.name);
        assert!(rows_of(&output.batch, is_sorted) == expected, "{what}");
        assert!(waits_in_blocks(&output), "{what}: {:?}", output.metrics.variants);
        let are_held = size < 3 || case.variants.iter().all(|forced| has(&output, *forced));
        assert!(are_held, "{what}: {:?}", output.metrics.variants);
    }
}

/// Warps find a table full while rows of others wait, and the block leaves the row loop together.
#[test]
fn tables_overflow_while_rows_wait() {
    let sources = [4_000, 200].map(table);
    let (groups, mut cases) = (groups(), Vec::new());
    for (number, case) in groups.iter().enumerate() {
        for (index, lanes) in [4, 8, 32].into_iter().enumerate() {
            let threshold = ["28", "1", "32", "8"][(number + index) % 4];
            let variants = refilled(case, ["last", "filters"][(number + index) % 2], threshold);
            cases.push((number, in_blocks(lanes, 1 + index as u32, &variants)));
        }
    }
    let cases = covering("tables overflow", cases, 20, |(number, options)| facets_and(options, &[number]));
    for (number, options) in cases {
        let (case, engine) = (&groups[number], Engine::new());
        let expected = rows_of(&run(&Engine::new(), &case.plan, &sources, cpu()).batch, false);
        let what = format!("{}: {options:?}", case.name);
        let rows = |output: &QueryOutput| rows_of(&output.batch, false);
        assert!(rows(&run(&engine, &case.plan, &sources, &options)) == expected, "{what}");
        shrink_tables(&engine, 1000);
        let output = run(&engine, &case.plan, &sources, &options);
        assert!(rows(&output) == expected, "too small: {what}");
        assert!(waits_in_blocks(&output), "{what}");
        assert!(!case.overflows || fillings(&output) > 1, "{} launches: {what}", fillings(&output));
    }
}

/// The first rows that come, as many as are wanted: each is one of the input, and none comes twice.
#[test]
fn blocks_leave_together_where_there_are_enough_rows() {
    let sources = [3_000, 10].map(table);
    let all = rows_of(&run(&Engine::new(), few(0, 12), &sources, cpu()).batch, false);
    for (index, (lanes, fetch)) in [(4, 7), (8, 1), (32, 300), (32, 100_000)].into_iter().enumerate() {
        for places in ["atomic", "warp"] {
            let plan = limit(few(0, 12), 0, Some(fetch));
            let variants = [("lane_refill", "last"), ("refill_buffer", "shared"), ("write_places", places)];
            let options = options(DeviceChoice::Simt, lanes, 1 + index as u32 % 2, &variants);
            let output = run(&Engine::new(), &plan, &sources, &options);
            assert!(waits_in_blocks(&output), "{:?}", output.metrics.variants);
            let rows = rows_of(&output.batch, false);
            assert_eq!(rows.len(), fetch.min(all.len()), "{variants:?}");
            let mut once = rows.clone();
            once.dedup();
            assert!(once.len() == rows.len() && rows.iter().all(|row| all.binary_search(row).is_ok()));
        }
    }
}

/// A quotient of which one row in the middle divides by zero, in front of the filter's rows that wait or behind them.
fn failing(at: i128, is_before: bool) -> Plan {
    let input = if is_before { scan(0) } else { few(0, 12) };
    let number = |value: i128| literal(value, DataType::Int32);
    let divisor = arithmetic(ArithmeticOp::Subtract, column(&input, 1), number(at));
    let mut exprs: Vec<Expr> = (0..5).map(|index| column(&input, index)).collect();
    exprs[1] = arithmetic(ArithmeticOp::Divide, number(1_000_000), divisor);
    let plan = values_of(input, exprs);
    if is_before { filter(filter(plan, 1, CompareOp::Ne, 5), 0, CompareOp::Lt, 12) } else { plan }
}

#[test]
fn an_expression_fails_in_the_middle() {
    let sources = [3_000, 10].map(table);
    for is_before in [false, true] {
        // Row 1,604 has number 4, row 1,630 number 30.
        for (at, fails) in [(1_604, true), (1_630, is_before), (-1, false)] {
            let input = || failing(at, is_before);
            let plans = [
                ("result", input(), &[][..]),
                ("sums", aggregate(input(), &[], INTEGERS), &[]),
                ("groups", aggregate(input(), &[4], INTEGERS), &[HASH, ALONE]),
                ("narrow groups", aggregate(input(), &[1], INTEGERS), &[HASH]),
                ("build side", join(JoinKind::Inner, input(), scan(1), &[(0, 0)], false), &[]),
                ("sort", sort(input(), &[1], None), &[]),
            ];
            for (number, (name, plan, variants)) in plans.into_iter().enumerate() {
                let case = Case { name, plan, variants, overflows: false };
                let expected = try_run(&Engine::new(), &case.plan, &sources, cpu());
                for lanes in [4, 32] {
                    let variants = refilled(&case, ["last", "all"][number % 2], "28");
                    let options = on_lanes((DeviceChoice::Simt, lanes), &variants);
                    let what = format!("{name}, {is_before}, {at}: {variants:?} in warps of {lanes}");
                    match (&expected, try_run(&Engine::new(), &case.plan, &sources, &options)) {
                        (Ok(expected), Ok(output)) => {
                            assert!(
                                rows_of(&output.batch, false) == rows_of(&expected.batch, false),
                                "{what}"
                            );
                            assert!(waits_in_blocks(&output), "{what}: {:?}", output.metrics.variants);
                            assert!(!fails, "{what}");
                        }
                        (
                            Err(EngineError::Query(QueryError::DivideByZero)),
                            Err(EngineError::Query(QueryError::DivideByZero)),
                        ) => assert!(fails, "{what}"),
                        (_, result) => panic!("{what}: {result:?}"),
                    }
                }
            }
        }
    }
}

/// The same on a GPU.
#[test]
fn a_gpu_gives_every_sink_its_rows() {
    let Some(device) = gpu() else { return };
    let sources: [Arc<dyn TableSource>; 2] = [40_000, 2_000].map(table);
    for (number, case) in groups().into_iter().chain(others()).enumerate() {
        let is_sorted = matches!(case.plan, Plan::Sort { .. });
        let expected = rows_of(&run(&Engine::new(), &case.plan, &sources, cpu()).batch, is_sorted);
        let threshold = ["28", "8", "32", "1"][number % 4];
        let variants = refilled(&case, ["last", "all"][number % 2], threshold);
        let options = options(device, 32, 4, &variants);
        let engine = Engine::new();
        for part in [1, 1000] {
            shrink_tables(&engine, part);
            let output = run(&engine, &case.plan, &sources, &options);
            assert!(rows_of(&output.batch, is_sorted) == expected, "{}: {variants:?}", case.name);
            assert!(waits_in_blocks(&output), "{}", case.name);
        }
    }
}
