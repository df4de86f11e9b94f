//! Batches of rows of a CPU's worker that are looked up before the first goes on give the rows of a nested loop: every kind of join, hashed
//! and direct-addressed, unique keys and others, keys that are NULL or texts, residual conditions, sides that are empty, batches that are
//! not full, several joins one after the other. And an expression fails for rows alone that come to it.

use std::path::Path;

use crate::common::*;
use crate::joined;
use crate::joined::{Choice, LIMITS, cells, counted, kept, narrowed, numbered, with_nulls};
use crate::sides::{Condition, Row, Spread, batch, column, expected, plan, rows, scan, table};
use kelpie_device::disk_cache::file_name;
use kelpie_engine::DeviceKind;

/// What rows are looked up in, and how they come to it.
const WAYS: [&[(&str, &str)]; 8] = [
    &[("join", "hash"), ("selection_rows", "256")],
    &[("join", "hash"), ("index_rows", "buckets"), ("selection_rows", "256")],
    &[("join", "hash"), ("runtime_filters", "off"), ("row_loop", "single"), ("pruning", "off")],
    &[("join", "hash"), ("key_filter", "bloom"), ("row_loop", "selected"), ("selection_rows", "256")],
    &[("join", "direct"), ("row_places", "packed"), ("selection_rows", "256")],
    &[("join", "direct"), ("row_places", "slot"), ("runtime_filters", "off")],
    &[("join", "direct"), ("index_rows", "buckets"), ("row_loop", "single")],
    &[("join", "direct"), ("empty_slots", "cleared"), ("row_loop", "selected"), ("selection_rows", "256")],
];

fn options(look_ups: &'static str, way: &[Choice]) -> QueryOptions {
    joined::options((DeviceChoice::Cpu, 32), &[&[("first_look_ups", look_ups)], way])
}

/// Whether rows were looked up together.
fn looks_up(output: &QueryOutput) -> bool {
    has(output, ("first_look_ups", "together"))
}

fn number(value: i32) -> Expr {
    literal(value, DataType::Int32)
}

/// How many rows there are, and a sum.
fn summed(input: Plan, argument: Expr) -> Plan {
    counted(input, Some(argument))
}

fn sides() -> Vec<(Vec<Row>, Vec<Row>)> {
    vec![
        (rows(0, Spread::Dense, 0), rows(70, Spread::Dense, 1)),
        (rows(40, Spread::Dense, 0), rows(0, Spread::Dense, 1)),
        (rows(1, Spread::One, 0), rows(70, Spread::One, 0)),
        // Several batches, the last of which is not full; and rows that find nothing.
        (rows(40, Spread::Dense, 3), rows(600, Spread::Dense, 1)),
        (rows(300, Spread::Sparse, 3), rows(513, Spread::Sparse, 1)),
        (with_nulls(rows(40, Spread::Dense, 3)), with_nulls(rows(67, Spread::Dense, 1))),
        (with_nulls(rows(60, Spread::Sparse, 3)), with_nulls(rows(256, Spread::Sparse, 1))),
        // The assumption of unique keys is wrong.
        (rows(40, Spread::NearlyDense, 0), rows(60, Spread::Dense, 1)),
        (rows(25, Spread::Duplicates, 0), rows(60, Spread::Dense, 1)),
        (rows(30, Spread::SparseDuplicates, 0), rows(80, Spread::SparseDuplicates, 1)),
        (rows(50, Spread::Skewed, 0), rows(90, Spread::Skewed, 1)),
    ]
}

#[test]
fn every_kind_equals_a_nested_loop() {
    let (sides, mut turn, mut cases) = (sides(), 0usize, Vec::new());
    for side in 0..sides.len() {
        for (keys, residual, null_equal) in [
            (&[0][..], false, false),
            (&[0], true, false),
            (&[0], false, true),
            (&[1], false, false),
            (&[0, 1], true, false),
            (&[3], false, true),
        ] {
            let condition = Condition { keys, residual, null_equal };
            for kind in JoinKind::ALL {
                let limits = LIMITS[(turn + turn / 10) % LIMITS.len()];
                let options = options("together", WAYS[(turn + turn / 10 * 3) % WAYS.len()]);
                cases.push((side, condition, kind, limits, options));
                turn += 1;
            }
        }
    }
    // Each kind of each pair of sides.
    let cases = covering("batched look-ups", cases, 110, |(side, condition, kind, limits, options)| {
        facets_and(options, &[&(side, kind), condition, &(limits, kind)])
    });
    let (engine, mut together) = (Engine::new(), 0);
    for (side, condition, kind, limits, options) in cases {
        let (build, probe) = &sides[side];
        let (joined, left, right) = narrowed(plan(kind, condition, false), (build, probe), limits);
        let got = run(&engine, joined, &[table(build), table(probe)], &options);
        let what = format!("{kind:?} {condition:?} {limits:?} {build:?} {probe:?} {options:?}");
        assert_eq!(rows_of(&got.batch, false), expected(kind, condition, &left, &right), "{what}");
        together += usize::from(looks_up(&got));
    }
    assert!(together >= floor(150), "{together} of {turn}");
}

/// A join of the third source with what a join of the first two gives.
fn chain(kinds: [JoinKind; 2], conditions: [Condition; 2]) -> Plan {
    let first = plan(kinds[0], conditions[0], false);
    let Plan::Join(second) = plan(kinds[1], conditions[1], false) else { panic!("no join") };
    let Join { keys, .. } = *second;
    // The probe side of the first comes behind its build side, where that is there.
    let has_build = matches!(kinds[0], JoinKind::Inner | JoinKind::ProbeOuter);
    let shifted = |key: Expr| match key.kind {
        ExprKind::Column(index) if has_build => column(index + 4),
        _ => key,
    };
    let keys = keys.into_iter().map(|(build, probe)| (build, shifted(probe))).collect();
    Plan::Join(Box::new(Join { build: scan(2), probe: first, keys, ..*second }))
}

#[test]
fn tables_one_after_the_other_equal_rows_one_by_one() {
    let engine = Engine::new();
    let tables = [rows(90, Spread::Sparse, 2), rows(700, Spread::Sparse, 1), rows(60, Spread::Duplicates, 3)];
    let dense = [rows(90, Spread::Dense, 2), rows(700, Spread::Dense, 1), rows(60, Spread::NearlyDense, 3)];
    let unique = [rows(300, Spread::Sparse, 2), rows(700, Spread::Sparse, 1), rows(200, Spread::Sparse, 3)];
    let tables = [&tables, &dense, &unique].map(|sides| sides.each_ref().map(|rows| table(rows)));
    let mut cases = Vec::new();
    for number in 0..tables.len() {
        for (turn, kinds) in [
            [JoinKind::Inner, JoinKind::Inner],
            [JoinKind::ProbeSemi, JoinKind::Inner],
            [JoinKind::Inner, JoinKind::ProbeAnti],
            [JoinKind::ProbeOuter, JoinKind::ProbeOuter],
            [JoinKind::ProbeMark, JoinKind::ProbeSemi],
            [JoinKind::ProbeAnti, JoinKind::Inner],
        ]
        .into_iter()
        .enumerate()
        {
            let condition = |keys, residual| Condition { keys, residual, null_equal: false };
            let conditions = [condition(&[0], turn % 2 == 1), condition(&[1], false)];
            cases.extend(WAYS.map(|way| (number, kinds, conditions, way)));
        }
    }
    let cases = covering("tables one after the other", cases, 30, |(number, kinds, _, way)| {
        [format!("{number} {kinds:?}"), format!("{way:?}")].into()
    });
    let mut together = 0;
    for (number, kinds, conditions, way) in cases {
        let (plan, sources) = (chain(kinds, conditions), &tables[number]);
        let alone = run(&engine, plan.clone(), sources, options("row", way));
        let got = run(&engine, plan, sources, options("together", way));
        assert_eq!(rows_of(&got.batch, false), rows_of(&alone.batch, false), "{kinds:?} {way:?}");
        together += usize::from(looks_up(&got));
    }
    assert!(together >= floor(100), "{together}");
}

/// `20 / v`: it fails where `v` is 0.
fn quotient(index: usize) -> Expr {
    arithmetic(ArithmeticOp::Divide, number(20), column(index))
}

/// `Some` number of rows and sum, or the error, whether rows are looked up together or not.
fn answer(plan: &Plan, sources: &[Arc<dyn TableSource>]) -> Option<Vec<String>> {
    let engine = Engine::new();
    let mut answers = Vec::new();
    for look_ups in ["row", "together"] {
        for way in sample(&format!("ways of {look_ups}: {plan:?}"), WAYS, 3) {
            answers.push(match try_run(&engine, plan.clone(), sources, options(look_ups, way)) {
                Ok(output) => {
                    assert_eq!(looks_up(&output), look_ups == "together", "{way:?}");
                    Some(cells(&output))
                }
                Err(EngineError::Query(QueryError::DivideByZero)) => None,
                Err(error) => panic!("{look_ups} {way:?}: {error}"),
            });
        }
    }
    let first = answers[0].clone();
    assert!(answers.iter().all(|answer| *answer == first), "{answers:?}");
    first
}

fn join(kind: JoinKind, (build, probe): (Plan, Plan), keys: (Expr, Expr), residual: Option<Expr>) -> Plan {
    let (null_equal, null_aware) = (false, false);
    Plan::Join(Box::new(Join { residual, null_equal, null_aware, ..join_of(kind, build, probe, vec![keys]) }))
}

#[test]
fn keys_fail_for_rows_alone_that_come_to_the_join() {
    // Each number from 0 to 9 once, so that `20 / v` finds 4, 5, 6 and not 20 and 10.
    let sources = [table(&numbered(0..10)), table(&numbered(0..1000))];
    let keys = || (column(2), quotient(2));
    let fails = join(JoinKind::Inner, (scan(0), scan(1)), keys(), None);
    assert_eq!(answer(&summed(fails, column(6)), &sources), None);
    let probe = kept(scan(1), CompareOp::Gt, 0);
    let passes = join(JoinKind::Inner, (scan(0), probe), keys(), None);
    // 3 → 6, 4 → 5, 5 → 4, 6 → 3, 7 → 2, 8 → 2, 9 → 2: a hundred rows each.
    let expected = Some(vec!["700".to_string(), (100 * (3 + 4 + 5 + 6 + 7 + 8 + 9)).to_string()]);
    assert_eq!(answer(&summed(passes, column(6)), &sources), expected);
}

#[test]
fn what_comes_behind_a_join_fails_for_matches_alone() {
    // Rows whose number is 0 have no match.
    let build = numbered((0..500).map(|row| if row % 10 == 0 { -row - 1 } else { row }));
    let sources = [table(&build), table(&numbered(0..700))];
    let keys = || (column(0), column(0));
    let sum: i64 = (0..500).map(|row| row % 10).filter(|v| *v > 0).map(|v| 20 / v).sum();
    let expected = Some(vec!["450".to_string(), sum.to_string()]);
    let inner = join(JoinKind::Inner, (scan(0), scan(1)), keys(), None);
    assert_eq!(answer(&summed(inner, quotient(6)), &sources), expected);
    let semi = join(JoinKind::ProbeSemi, (scan(0), scan(1)), keys(), None);
    assert_eq!(answer(&summed(semi, quotient(2)), &sources), expected);
    // Rows without a match go on.
    let outer = join(JoinKind::ProbeOuter, (scan(0), scan(1)), keys(), None);
    assert_eq!(answer(&summed(outer, quotient(6)), &sources), None);
    let residual = || Some(compare(CompareOp::Gt, quotient(6), number(3)));
    let some = join(JoinKind::Inner, (scan(0), scan(1)), keys(), residual());
    // 20 / v > 3 of 1 to 5.
    let expected = Some(vec!["250".to_string(), (50 * (1 + 2 + 3 + 4 + 5)).to_string()]);
    assert_eq!(answer(&summed(some, column(6)), &sources), expected);
    let all = [table(&numbered(0..500)), table(&numbered(0..700))];
    let fails = join(JoinKind::Inner, (scan(0), scan(1)), keys(), residual());
    assert_eq!(answer(&summed(fails, column(6)), &all), None);
}

#[test]
fn keys_of_the_next_join_fail_for_rows_alone_that_the_first_leaves() {
    let build = numbered((0..500).map(|row| if row % 10 == 0 { -row - 1 } else { row }));
    let third = numbered(0..10);
    let sources = [table(&build), table(&numbered(0..700)), table(&third)];
    for (kind, at) in [(JoinKind::ProbeSemi, 2), (JoinKind::Inner, 6)] {
        let first = join(kind, (scan(0), scan(1)), (column(0), column(0)), None);
        let second = join(JoinKind::Inner, (scan(2), first), (column(2), quotient(at)), None);
        // The build side of the second comes first.
        let expected = Some(vec!["350".to_string(), (50 * (3 + 4 + 5 + 6 + 7 + 8 + 9)).to_string()]);
        assert_eq!(answer(&summed(second, column(at + 4)), &sources), expected);
    }
    let all = [table(&numbered(0..500)), table(&numbered(0..700)), table(&third)];
    let first = join(JoinKind::ProbeSemi, (scan(0), scan(1)), (column(0), column(0)), None);
    let second = join(JoinKind::Inner, (scan(2), first), (column(2), quotient(2)), None);
    assert_eq!(answer(&summed(second, column(6)), &all), None);
}

/// Keys that cost much are computed where searches begin, and known where they end: also doubles, and those that are NULL.
#[test]
fn keys_that_cost_much_are_kept_as_what_they_are() {
    let with_nulls = |count: i64| -> Vec<Row> {
        let key = |row: i64| (row % 7 != 3).then_some(row % 100 + 1);
        (0..count).map(|row| (key(row), None, (row % 10) as i32)).collect()
    };
    let double = |expr| cast(expr, DataType::Float64);
    let own = || column(0);
    let inverse = || arithmetic(ArithmeticOp::Divide, int(1000), column(0));
    let sources = [table(&with_nulls(60)), table(&with_nulls(900))];
    let mut rows = Vec::new();
    for kind in [JoinKind::Inner, JoinKind::ProbeOuter, JoinKind::ProbeSemi, JoinKind::ProbeAnti] {
        for (build, probe) in [(own(), inverse()), (double(own()), double(inverse()))] {
            let joined = join(kind, (scan(0), scan(1)), (build, probe), None);
            rows.push(answer(&summed(joined, column(2)), &sources).expect("no key is 0"));
        }
    }
    // Integers and doubles of them agree, and some have matches.
    for pair in rows.chunks(2) {
        assert_eq!(pair[0], pair[1]);
    }
    assert_ne!(rows[4], rows[6]);
}

#[test]
fn batches_of_any_length_are_looked_up_once_each() {
    let engine = Engine::new();
    let build = numbered((0..100).map(|row| row * 1_000_003));
    for count in [1i64, 2, 255, 256, 257, 511, 1024, 1025, 3000] {
        let probe = numbered((0..count).map(|row| (row % 150) * 1_000_003));
        let sources: [Arc<dyn TableSource>; 2] = [table(&build), Arc::new(Table(vec![batch(&probe)]))];
        let joined = join(JoinKind::Inner, (scan(0), scan(1)), (column(0), column(0)), None);
        let found: Vec<i64> = (0..count).filter(|row| row % 150 < 100).collect();
        let sum: i64 = found.iter().map(|row| row % 150 % 10).sum();
        for way in sample(&format!("{count} rows"), WAYS, 4) {
            let plan = summed(joined.clone(), column(2));
            let got = run(&engine, plan, &sources, options("together", way));
            assert_eq!(cells(&got), [found.len().to_string(), sum.to_string()], "{count} {way:?}");
        }
    }
}

/// An engine whose CPU's last cache has room for hardly any hash table, as a file in a folder says.
fn with_small_cache(folder: &Path) -> Engine {
    let devices = Engine::new().devices();
    let (_, cpu) = devices.into_iter().find(|(kind, _)| *kind == DeviceKind::Cpu).expect("a CPU");
    let identity = cpu.expect("it is usable").identity();
    let point = |bytes: u64, per_second: f64| serde_json::json!({"bytes": bytes, "per_second": per_second});
    let measured = serde_json::json!({
        "memory": 20.0, "link": 20.0, "reads": [], "page_reads": [], "took_ms": 1,
        "atomics": [point(64, 1e8), point(16 << 10, 2e9), point(128 << 10, 5e8)],
        "core_cache": 4 << 10, "last_cache": 32 << 10, "tlb_reach": null,
    });
    let content = serde_json::json!({"version": 1, "device": identity, "measured": measured});
    let path = folder.join(format!("{}.json", file_name(&identity)));
    std::fs::write(path, content.to_string()).expect("the folder is there");
    Engine::calibrated_from(folder)
}

#[test]
fn tables_that_are_far_are_looked_up_together_by_rule_behind_others_that_are_near() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = with_small_cache(folder.path());
    let sides = [rows(90, Spread::Dense, 2), rows(700, Spread::Dense, 1), rows(2000, Spread::Dense, 3)];
    let sources: Vec<Arc<dyn TableSource>> = sides.iter().map(|rows| table(rows)).collect();
    let condition = |keys| Condition { keys, residual: false, null_equal: false };
    for first in [JoinKind::Inner, JoinKind::ProbeSemi, JoinKind::ProbeOuter, JoinKind::ProbeAnti] {
        // Keys of 64 bits are slots; those of 128 are hashed.
        let joined = chain([first, JoinKind::Inner], [condition(&[0]), condition(&[3])]);
        let number = if matches!(first, JoinKind::Inner | JoinKind::ProbeOuter) { 10 } else { 6 };
        let plan = summed(joined, column(number));
        let by_rule = QueryOptions { device: DeviceChoice::Cpu, ..QueryOptions::default() };
        let got = run(&engine, plan.clone(), &sources, &by_rule);
        let alone = run(&engine, plan, &sources, options("row", &[]));
        assert_eq!(cells(&got), cells(&alone), "{first:?}");
        let choice = got.metrics.choices().find(|choice| choice.axis.name == "first_look_ups");
        let choice = choice.expect("a choice");
        assert_eq!(choice.value, "together", "{choice}");
        assert!(choice.reason.contains("(measured)"), "{choice}");
    }
}
