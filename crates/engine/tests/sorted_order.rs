//! A search in the order of the build side's rows gives the rows of a nested loop: every kind of join, by keys, by inequalities, by
//! both, with what an order does not decide besides; keys and bounds that are NULL, equal, first and last of their type, sides that are
//! empty or have one row, ranges that are empty or have every row; texts that differ behind their first bytes; any side built.

use crate::common::*;
use crate::joined::{self, Choice, ENDS, numbered, with_nulls};
use crate::sides::{Condition, Row, Spread, batch, expected, expected_where, plan, plan_where, rows, table};

/// A CPU, and warps of several widths.
const DEVICES: [(DeviceChoice, u32); 3] =
    [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 4), (DeviceChoice::Simt, 32)];

/// What a search in an order goes with.
const WAYS: [&[Choice]; 5] = [
    &[("join", "sorted"), ("build_side", "written")],
    &[("join", "sorted"), ("build_side", "other")],
    &[("join", "sorted"), ("expansion", "warp"), ("morsel_rows", "4096")],
    &[("join", "sorted"), ("sort_passes", "tiles"), ("row_loop", "selected")],
    &[("join", "sorted"), ("writes.count_places", "on"), ("sort_passes", "sweep")],
];

fn all_sides() -> Vec<(Vec<Row>, Vec<Row>)> {
    let long = |from: i64, to: i64| -> Vec<Row> {
        let text = |key: i64| format!("the same fifteen bytes and more {}", key % 7);
        (from..to).map(|key| (Some(key / 3), Some(text(key)), (key % 5) as i32)).collect()
    };
    vec![
        (rows(0, Spread::Dense, 0), rows(40, Spread::Dense, 1)),
        (rows(5, Spread::Dense, 0), rows(0, Spread::Dense, 1)),
        (rows(1, Spread::One, 0), rows(50, Spread::One, 0)),
        (with_nulls(Vec::new()), with_nulls(numbered(0..3))),
        (with_nulls(numbered((0..9).map(|row| i64::MIN + row))), numbered(ENDS)),
        (with_nulls(numbered(ENDS)), with_nulls(numbered(ENDS))),
        (rows(25, Spread::Duplicates, 0), rows(40, Spread::Dense, 1)),
        (rows(50, Spread::DenseSkewed, 1), rows(40, Spread::Skewed, 1)),
        (rows(40, Spread::Sparse, 3), rows(60, Spread::SparseDuplicates, 1)),
        (long(0, 40), long(10, 60)),
    ]
}

/// Searches by keys alone, with and without a condition that is a range.
#[test]
fn keys_are_found_in_their_order() {
    let engine = Engine::new();
    let (sides, mut turn, mut cases) = (all_sides(), 0usize, Vec::new());
    for side in 0..sides.len() {
        for keys in [&[0][..], &[1], &[0, 1], &[3], &[3, 1, 0]] {
            for (residual, null_equal) in [(false, false), (true, false), (false, true)] {
                let condition = Condition { keys, residual, null_equal };
                for kind in JoinKind::ALL {
                    for (number, device) in DEVICES.iter().enumerate() {
                        let options = joined::options(*device, &[WAYS[(turn + number) % WAYS.len()]]);
                        cases.push((side, condition, kind, options));
                    }
                    turn += 1;
                }
            }
        }
    }
    let cases = covering("keys in order", cases, 200, |(side, condition, kind, options)| {
        facets_and(options, &[&(side, kind), condition, &(kind, options.device)])
    });
    let mut sorted = 0;
    for (side, condition, kind, options) in cases {
        let (build, probe) = &sides[side];
        let got = run(&engine, plan(kind, condition, false), &[table(build), table(probe)], &options);
        let what = format!("{kind:?} {condition:?} {build:?} {probe:?} {options:?}");
        assert_eq!(rows_of(&got.batch, false), expected(kind, condition, build, probe), "{what}");
        sorted += usize::from(has(&got, ("join", "sorted")));
    }
    assert!(sorted >= floor(150), "{sorted}");
}

/// What pairs are asked to have, by the build side's columns 0 to 3 and the probe side's columns 4 to 7.
type Holds = fn(&Row, &Row) -> Option<bool>;

fn ordered<T: PartialOrd>(a: Option<T>, op: CompareOp, b: Option<T>) -> Option<bool> {
    let (a, b) = (a?, b?);
    Some(match op {
        CompareOp::Lt => a < b,
        CompareOp::Le => a <= b,
        CompareOp::Gt => a > b,
        CompareOp::Ge => a >= b,
        CompareOp::Eq => a == b,
        CompareOp::Ne => a != b,
    })
}

fn both(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (a, b) => Some(a? && b?),
    }
}

/// The decimal behind an integer key.
fn wide(row: &Row) -> Option<i128> {
    row.0.map(|key| i128::from(key) * 100_000_000_000_000_000 + 7)
}

fn conditions() -> Vec<(&'static str, Expr, Holds)> {
    use CompareOp::*;
    let at = crate::sides::column;
    let cmp = |op, a: usize, b: usize| compare(op, at(a), at(b));
    vec![
        ("k > k", cmp(Gt, 0, 4), |b, p| ordered(b.0, Gt, p.0)),
        ("k <= k, mirrored", cmp(Ge, 4, 0), |b, p| ordered(b.0, Le, p.0)),
        ("v >= v and v <= v", and(cmp(Ge, 2, 6), cmp(Le, 2, 6)), |b, p| ordered(Some(b.2), Eq, Some(p.2))),
        ("v > v and v < v", and(cmp(Gt, 2, 6), cmp(Lt, 2, 6)), |_, _| Some(false)),
        ("t < t", cmp(Lt, 1, 5), |b, p| ordered(b.1.as_ref(), Lt, p.1.as_ref())),
        ("t >= t and t <= t", and(cmp(Ge, 1, 5), cmp(Le, 1, 5)), |b, p| {
            ordered(b.1.as_ref(), Eq, p.1.as_ref())
        }),
        ("w < w", cmp(Lt, 3, 7), |b, p| ordered(wide(b), Lt, wide(p))),
        ("k >= k and v < v", and(cmp(Ge, 0, 4), cmp(Lt, 2, 6)), |b, p| {
            both(ordered(b.0, Ge, p.0), ordered(Some(b.2), Lt, Some(p.2)))
        }),
        ("k < k and v <> v", and(cmp(Lt, 0, 4), cmp(Ne, 2, 6)), |b, p| {
            both(ordered(b.0, Lt, p.0), ordered(Some(b.2), Ne, Some(p.2)))
        }),
        ("v > v and v > v", and(cmp(Gt, 2, 6), cmp(Gt, 2, 6)), |b, p| ordered(Some(b.2), Gt, Some(p.2))),
    ]
}

#[test]
fn ranges_are_found_in_their_order() {
    let engine = Engine::new();
    let (sides, conditions, mut turn, mut cases) = (all_sides(), conditions(), 0usize, Vec::new());
    for side in 0..sides.len() {
        for condition in 0..conditions.len() {
            for keys in [&[][..], &[0], &[1]] {
                for kind in JoinKind::ALL {
                    for (number, device) in DEVICES.iter().enumerate() {
                        let options = joined::options(*device, &[WAYS[(turn + number) % WAYS.len()]]);
                        cases.push((side, condition, keys, kind, options));
                    }
                    turn += 1;
                }
            }
        }
    }
    let cases = covering("ranges in order", cases, 250, |(side, condition, keys, kind, options)| {
        facets_and(options, &[&(side, kind), &(condition, keys), &(condition, kind), &(kind, options.device)])
    });
    let mut sorted = 0;
    for (side, condition, keys, kind, options) in cases {
        let ((build, probe), (name, residual, holds)) = (&sides[side], &conditions[condition]);
        let by = Condition { keys, residual: false, null_equal: false };
        let got =
            run(&engine, plan_where(kind, by, residual.clone()), &[table(build), table(probe)], &options);
        let what = format!("{kind:?} {name} {keys:?} {build:?} {probe:?} {options:?}");
        assert_eq!(rows_of(&got.batch, false), expected_where(kind, by, *holds, (build, probe)), "{what}");
        sorted += usize::from(has(&got, ("join", "sorted")));
    }
    assert!(sorted >= floor(200), "{sorted}");
}

/// More rows than a morsel has, on several workers and blocks, beside a nested loop.
#[test]
fn many_rows_are_searched_for() {
    let engine = Engine::new();
    let build = numbered((0..20_000i64).map(|row| (row * 7_919) % 20_000 * 53 - 500_000));
    let probe = numbered((0..3_000i64).map(|row| (row * 1_048_573) % 1_100_000 - 520_000));
    let at = crate::sides::column;
    let near = |op, distance: i64| {
        compare(op, at(0), arithmetic(ArithmeticOp::Add, at(4), literal(distance, DataType::Int64)))
    };
    let band = || and(near(CompareOp::Gt, -100), near(CompareOp::Le, 100));
    let sources: Vec<Arc<dyn TableSource>> = [&build, &probe]
        .map(|rows| Arc::new(Table(rows.chunks(7_000).map(batch).collect())) as Arc<dyn TableSource>)
        .into();
    let by = Condition { keys: &[], residual: false, null_equal: false };
    for device in [DEVICES[0], DEVICES[2]] {
        for kind in sample(
            "many rows",
            [JoinKind::Inner, JoinKind::FullOuter, JoinKind::BuildAnti, JoinKind::ProbeMark],
            2,
        ) {
            let rows = |way: &[Choice]| {
                let options = joined::options(device, &[way]);
                rows_of(&run(&engine, plan_where(kind, by, band()), &sources, &options).batch, false)
            };
            let looped = rows(&[("join", "nested_loop"), ("build_side", "written")]);
            for way in [WAYS[0], WAYS[1], WAYS[2]] {
                assert!(rows(way) == looped, "{kind:?} {device:?} {way:?}");
            }
        }
    }
}
