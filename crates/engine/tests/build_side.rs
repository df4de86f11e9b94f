//! Inner joins whose sides change places give the rows of a nested loop, as those that are carried out as written do: keys of every type,
//! NULLs, duplicates, empty sides, residual conditions, several joins, what fails; and the rule takes the side whose keys are unique.

use crate::common::*;
use crate::joined::{Choice, LIMITS, cells, counted, narrowed, options};
use crate::sides::{Condition, Row, Spread, column, expected, plan, rows, scan, table};

const WRITTEN: Choice = ("build_side", "written");
const OTHER: Choice = ("build_side", "other");
/// A CPU, and warps of several widths.
const DEVICES: [(DeviceChoice, u32); 4] =
    [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 4), (DeviceChoice::Simt, 8), (DeviceChoice::Simt, 32)];

/// All of them, and a GPU where there is one.
fn devices() -> impl Iterator<Item = (DeviceChoice, u32)> {
    DEVICES.into_iter().chain(gpu().map(|device| (device, 32)))
}

fn on(keys: &'static [usize]) -> Condition {
    Condition { keys, residual: false, null_equal: false }
}

fn tables(sides: &[&[Row]]) -> Vec<Arc<dyn TableSource>> {
    sides.iter().map(|rows| table(rows)).collect()
}

fn join(build: Plan, probe: Plan, keys: (Expr, Expr), residual: Option<Expr>) -> Plan {
    let (kind, keys) = (JoinKind::Inner, vec![keys]);
    Plan::Join(Box::new(Join { residual, ..join_of(kind, build, probe, keys) }))
}

fn cast(text: Expr) -> Expr {
    crate::common::cast(text, DataType::Int64)
}

/// Whether the pipelines show an index of this form.
fn has_index(engine: &Engine, query: &Query, form: &str) -> bool {
    let names = engine.explain(query, ExplainStage::Pipelines).expect("an explanation");
    ["index", "build side"].iter().any(|sink| names.contains(&format!("→ {sink} ({form})\n")))
}

#[test]
fn both_sides_give_the_rows_of_a_nested_loop() {
    let engine = Engine::new();
    let all: Vec<(Vec<Row>, Vec<Row>)> = vec![
        (rows(0, Spread::Dense, 0), rows(5, Spread::Dense, 1)),
        (rows(5, Spread::Dense, 0), rows(0, Spread::Dense, 1)),
        (rows(0, Spread::Dense, 0), rows(0, Spread::Dense, 1)),
        (rows(1, Spread::Dense, 0), rows(1, Spread::Dense, 0)),
        (rows(40, Spread::Dense, 0), rows(60, Spread::Dense, 1)),
        (rows(40, Spread::Sparse, 3), rows(60, Spread::Sparse, 1)),
        (rows(30, Spread::Duplicates, 0), rows(25, Spread::Dense, 1)),
        (rows(25, Spread::Sparse, 0), rows(30, Spread::Duplicates, 1)),
        (rows(30, Spread::Duplicates, 2), rows(30, Spread::Duplicates, 1)),
        (rows(12, Spread::One, 2), rows(40, Spread::One, 1)),
        (rows(30, Spread::SparseDuplicates, 2), rows(30, Spread::SparseDuplicates, 1)),
        (rows(70, Spread::Skewed, 1), rows(40, Spread::DenseSkewed, 1)),
        (rows(40, Spread::NearlyDense, 0), rows(60, Spread::Dense, 1)),
    ];
    let key_sets: [&[usize]; 6] = [&[0], &[1], &[0, 1], &[], &[3], &[3, 1, 0]];
    let (mut turn, mut cases) = (0, Vec::new());
    for number in 0..all.len() {
        for keys in key_sets {
            for (residual, null_equal) in [(false, false), (true, false), (false, true), (true, true)] {
                if keys.is_empty() && null_equal {
                    continue;
                }
                turn += 1;
                let condition = Condition { keys, residual, null_equal };
                for device in [DEVICES[0], DEVICES[1 + turn % 3]] {
                    cases.extend([WRITTEN, OTHER].map(|side| (number, condition, device, side)));
                }
            }
        }
    }
    let cases = covering("both sides", cases, 80, |(number, condition, device, side)| {
        [format!("{number} {device:?}"), format!("{number} {side:?}"), format!("{condition:?} {side:?}")]
            .into()
    });
    for (number, condition, device, side) in cases {
        let (build, probe) = &all[number];
        let plan = plan(JoinKind::Inner, condition, false);
        let output = run(&engine, plan, &tables(&[build, probe]), options(device, &[&[side]]));
        let what = format!("{condition:?} {device:?} {side:?} {}", build.len());
        assert!(has(&output, side), "{what}");
        assert_eq!(
            rows_of(&output.batch, false),
            expected(JoinKind::Inner, condition, build, probe),
            "{what}"
        );
    }
}

/// Filters below either side, and rows in parts, with filters of keys at the scan that streams.
#[test]
fn filtered_sides_change_places() {
    let engine = Engine::new();
    let (build, probe) = (rows(70, Spread::SparseDuplicates, 1), rows(90, Spread::SparseDuplicates, 2));
    let sources = tables(&[&build, &probe]);
    let others: [&[Choice]; 4] =
        [&[], &[("key_filter", "bloom")], &[("join_parts", "16")], &[("join", "hash"), ("pruning", "off")]];
    let mut cases = Vec::new();
    for limits in LIMITS {
        for keys in [&[0][..], &[0, 1]] {
            let ways = devices().flat_map(|device| others.map(|other| options(device, &[&[OTHER], other])));
            cases.extend(ways.map(|options| (limits, keys, options)));
        }
    }
    for (limits, keys, options) in covering("filtered sides", cases, 40, |(limits, keys, options)| {
        facets_and(options, &[&(limits, keys)])
    }) {
        let joined = plan(JoinKind::Inner, on(keys), false);
        let (plan, build, probe) = narrowed(joined, (&build, &probe), limits);
        let expected = expected(JoinKind::Inner, on(keys), &build, &probe);
        let output = run(&engine, plan, &sources, &options);
        assert!(has(&output, OTHER));
        assert_eq!(rows_of(&output.batch, false), expected, "{limits:?} {keys:?} {options:?}");
    }
}

/// Three joins, of which any may have its sides changed: one in the build side of another, or in its probe side.
#[test]
fn any_of_several_joins_may_change_its_sides() {
    let engine = Engine::new();
    let all = [
        rows(40, Spread::Dense, 0),
        rows(30, Spread::Duplicates, 1),
        rows(12, Spread::NearlyDense, 2),
        rows(25, Spread::Dense, 3),
    ];
    let sources: Vec<_> = all.iter().map(|rows| table(rows)).collect();
    let less = |a, b| compare(CompareOp::Le, column(a), column(b));
    let key = |own: usize, other: usize| (column(own), column(other));
    let first = || join(scan(0), scan(1), key(0, 0), Some(less(2, 6)));
    let left_deep = join(join(first(), scan(2), key(4, 0), None), scan(3), key(8, 0), None);
    let right_deep = join(scan(3), join(scan(2), first(), key(0, 4), None), key(0, 8), None);
    let bushy = join(first(), join(scan(2), scan(3), key(1, 1), None), key(4, 0), None);
    for (name, plan) in [("left", left_deep), ("right", right_deep), ("bushy", bushy)] {
        for device in DEVICES {
            for micro_model in MicroModel::ALL {
                // The interpreter of four lanes tries all models, the others the usual one.
                if micro_model != MicroModel::Resolution && device != DEVICES[1] {
                    continue;
                }
                let run = |choices: &[Choice]| {
                    let options = QueryOptions { micro_model, ..options(device, &[choices]) };
                    run(&engine, plan.clone(), &sources, &options)
                };
                let expected = rows_of(&run(&[WRITTEN]).batch, false);
                assert!(!expected.is_empty(), "{name}");
                for changed in sample(&format!("{name} {device:?} {micro_model:?}"), 1..8, 2) {
                    let side = |join: u32| if changed >> join & 1 == 1 { "other" } else { "written" };
                    let choices = [
                        ("join0.build_side", side(0)),
                        ("join1.build_side", side(1)),
                        ("join2.build_side", side(2)),
                    ];
                    let output = run(&choices);
                    let made = output.metrics.choices().filter(|choice| choice.axis.name == "build_side");
                    let mut made: Vec<_> = made.map(|choice| (choice.qualified(), choice.value)).collect();
                    made.sort();
                    assert_eq!(made, choices.map(|(name, value)| (name.to_string(), value)), "{name}");
                    let what = format!("{name} {device:?} {micro_model:?} {changed:03b}");
                    assert_eq!(rows_of(&output.batch, false), expected, "{what}");
                }
            }
        }
    }
}

/// What would fail on a side is not come to where the other one is empty: such a join stays as it is written.
#[test]
fn what_may_fail_keeps_its_side() {
    let engine = Engine::new();
    let (some, bad) = (rows(3, Spread::Dense, 0), vec![(Some(-2), Some("ключ".to_string()), 1)]);
    let casted = || vec![cast(column(1)), column(1), column(2), column(3)];
    let filtered = |input: Plan| {
        let one = literal(1, DataType::Int32);
        let zero = arithmetic(ArithmeticOp::Subtract, column(2), column(2));
        keep(input, compare(CompareOp::Eq, arithmetic(ArithmeticOp::Divide, one.clone(), zero), one))
    };
    let grouped = groups_of(scan(1), casted(), Vec::new());
    for (name, probe, key) in [
        ("key", scan(1), cast(column(1))),
        ("projection", values_of(scan(1), casted()), column(0)),
        ("filter", filtered(scan(1)), column(0)),
        ("groups", grouped, column(0)),
    ] {
        let plan = join(scan(0), probe, (column(0), key), None);
        for device in DEVICES {
            for (build, fails) in [(&[][..], false), (some.as_slice(), true)] {
                let sources = tables(&[build, &bad]);
                for forced in [&[][..], &[OTHER]] {
                    let got = try_run(&engine, plan.clone(), &sources, options(device, &[forced]));
                    let rows = got.ok().map(|output| output.batch.num_rows());
                    assert_eq!(rows, (!fails).then_some(0), "{name} {device:?} {forced:?}");
                }
                let here = options(device, &[&[("join0.build_side", "other")]]);
                let error = try_run(&engine, plan.clone(), &sources, &here).expect_err("it may fail");
                let text = "kelpie.variant.join0.build_side = other is not possible: a ";
                assert!(error.to_string().contains(text), "{name} {error}");
            }
        }
    }
}

/// Keys 0, 1, 2, … in order, each once, and as many others in no order, of which some are there several times.
fn primary_and_foreign(count: i64) -> (Vec<Row>, Vec<Row>) {
    let primary = (0..count).map(|key| (Some(key), None, (key % 10) as i32)).collect();
    let foreign = (0..count).map(|row| (Some(row * row % count), None, (row % 7) as i32)).collect();
    (primary, foreign)
}

fn choice(output: &QueryOutput) -> (&'static str, String) {
    let mut choices = output.metrics.choices().filter(|choice| choice.axis.name == "build_side");
    choices.next().map(|choice| (choice.value, choice.why().into_owned())).expect("a choice")
}

/// The side of unique keys is built, at their slots, whatever was found of the other one's before.
#[test]
fn the_side_of_unique_keys_is_built() {
    const ROWS: i64 = 20_000;
    let engine = Engine::new();
    let (primary, foreign) = primary_and_foreign(ROWS);
    let sources = tables(&[&foreign, &primary]);
    let plan = || counted(plan(JoinKind::Inner, on(&[0]), false), Some(column(6)));
    for device in devices() {
        let run = |forced: &[Choice]| run(&engine, plan(), &sources, options(device, &[forced]));
        let written = run(&[WRITTEN]);
        let by_rule = run(&[]);
        let (value, why) = choice(&by_rule);
        let expected = "about 20000 rows built, about 20000 rows of unique keys looked up: \
                        the probe side has unique keys, which need no buckets, and no more rows";
        assert_eq!(
            (value, why.replace("about ", "")),
            ("other", expected.replace("about ", "")),
            "{device:?}"
        );
        assert_eq!(cells(&by_rule), cells(&written), "{device:?}");
        assert_eq!(cells(&by_rule)[0], ROWS.to_string(), "{device:?}");
        let query = query_of(plan(), &sources, options(device, &[]));
        assert!(has_index(&engine, &query, "rows at their keys, all"), "{device:?}");
        let query = query_of(plan(), &sources, options(device, &[&[WRITTEN]]));
        assert!(!has_index(&engine, &query, "rows at their keys, all"), "{device:?}");
    }
    // The other way round there is nothing to change.
    let sources = tables(&[&primary, &foreign]);
    let (value, why) = choice(&run(&engine, plan(), &sources, options(DEVICES[0], &[])));
    assert!(value == "written" && why.contains("nothing is known"), "{why}");
}

/// A side is built where it has far fewer rows, and few rows stay where they are.
#[test]
fn the_side_of_far_fewer_rows_is_built() {
    let engine = Engine::new();
    for (build, probe, value) in
        [(20_000, 5_000, "other"), (20_000, 5_001, "written"), (10_000, 100, "written")]
    {
        let sides = [rows(build, Spread::Duplicates, 1), rows(probe, Spread::Sparse, 1)];
        let sources = tables(&[&sides[0], &sides[1]]);
        let plan = || counted(plan(JoinKind::Inner, on(&[0]), false), Some(column(6)));
        let by_rule = run(&engine, plan(), &sources, options(DEVICES[0], &[]));
        assert_eq!(choice(&by_rule).0, value, "{build} {probe}");
        let written = run(&engine, plan(), &sources, options(DEVICES[0], &[&[WRITTEN]]));
        assert_eq!(cells(&by_rule), cells(&written), "{build} {probe}");
    }
}
