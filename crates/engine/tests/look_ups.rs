//! Rows of a thread that are looked up at once, before they go on one by one, give the rows of a nested loop: every kind of join, keys that
//! are NULL, beyond the range, or extremes, sides that are empty or have one row, filters that leave all or nothing; rows side by side or
//! apart, warps of several widths, tables of any size around those of blocks; keys that are slots, have ranks, or are hashed, one or several,
//! also of 128 bits, of one row or of many. And cache hints change no answer beside them.

use crate::common::*;
use crate::joined::{Choice, ENDS, LIMITS, cells, counted, narrowed, numbered, options, with_nulls};
use crate::sides::{Condition, Row, Spread, column, expected, plan, rows, table};

/// Warps of several widths, and a CPU, which has batches of rows (`batched_look_ups`).
const DEVICES: [(DeviceChoice, u32); 4] =
    [(DeviceChoice::Simt, 4), (DeviceChoice::Simt, 32), (DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 8)];

/// In which ways rows are held, and what they are looked up in.
const WAYS: [&[(&str, &str)]; 9] = [
    &[("row_places", "slot")],
    &[("row_places", "packed"), ("row_arrangement", "striped"), ("cache_hints", "all")],
    &[("row_places", "packed"), ("empty_slots", "cleared"), ("sieves", "off")],
    &[("row_places", "slot"), ("row_arrangement", "striped"), ("sieves", "off"), ("thread_rows", "2")],
    &[("row_places", "packed"), ("row_loop", "selected"), ("cache_hints", "loads")],
    &[
        ("row_places", "slot"),
        ("row_arrangement", "striped"),
        ("thread_rows", "8"),
        ("cache_hints", "stores"),
    ],
    &[("row_places", "packed"), ("lane_refill", "last"), ("carried", "values"), ("refill_threshold", "32")],
    &[("row_places", "slot"), ("lane_refill", "all"), ("carried", "places"), ("refill_buffer", "shared")],
    &[("row_places", "slot"), ("lane_refill", "off"), ("write_places", "atomic")],
];

/// The same for hash tables, whose searches may go on behind their first slots.
const HASHED: [&[(&str, &str)]; 9] = [
    &[("row_arrangement", "blocked")],
    &[("row_arrangement", "striped"), ("slot_fill", "75"), ("cache_hints", "all")],
    &[("index_rows", "chains"), ("expansion", "lane"), ("lane_refill", "off")],
    &[("index_rows", "buckets"), ("expansion", "lane"), ("lane_refill", "off")],
    &[("index_rows", "buckets"), ("bucket_entries", "rows"), ("expansion", "lane"), ("lane_refill", "off")],
    &[("key_filter", "bloom"), ("sieves", "off"), ("expansion", "lane"), ("lane_refill", "last")],
    &[("hash_function", "multiply_shift"), ("slot_fill", "75"), ("thread_rows", "4"), ("expansion", "lane")],
    &[("hash_function", "fnv1a"), ("slot_claims", "swap"), ("carried", "values"), ("lane_refill", "all")],
    &[("index_rows", "chains"), ("row_arrangement", "striped"), ("thread_rows", "2"), ("expansion", "lane")],
];

/// The same where several rows may have a key that is a slot, or has a rank.
const SEVERAL: [&[(&str, &str)]; 7] = [
    &[("index_form", "direct"), ("index_rows", "chains")],
    &[("index_form", "direct"), ("index_rows", "buckets")],
    &[("index_form", "direct"), ("index_rows", "buckets"), ("bucket_entries", "rows")],
    &[("index_form", "rank"), ("index_rows", "chains"), ("row_arrangement", "striped")],
    &[("index_form", "rank"), ("index_rows", "buckets")],
    &[("index_form", "rank"), ("index_rows", "buckets"), ("bucket_entries", "rows")],
    &[("index_form", "rank"), ("index_rows", "chains"), ("row_arrangement", "blocked")],
];

/// All of them, and a GPU where there is one.
fn devices() -> Vec<(DeviceChoice, u32)> {
    DEVICES.into_iter().chain(gpu().map(|device| (device, 32))).collect()
}

/// What is forced in all ways.
const TOGETHER: Choice = ("first_look_ups", "together");

/// Whether rows were looked up together.
fn looks_up(output: &QueryOutput) -> bool {
    has(output, TOGETHER)
}

/// So many rows with keys from `first` on, each its own.
fn keys_from(first: i64, count: i64) -> Vec<Row> {
    numbered((0..count).map(|row| first + row))
}

fn sides() -> Vec<(Vec<Row>, Vec<Row>)> {
    vec![
        (rows(0, Spread::Dense, 0), rows(70, Spread::Dense, 1)),
        (rows(1, Spread::Dense, 0), rows(1, Spread::Dense, 0)),
        (rows(1, Spread::One, 0), rows(70, Spread::One, 0)),
        (rows(40, Spread::Dense, 3), rows(300, Spread::Dense, 1)),
        (with_nulls(rows(40, Spread::Dense, 3)), with_nulls(rows(67, Spread::Dense, 1))),
        (numbered((0..30).map(|row| 3 * row - 20)), with_nulls(keys_from(-40, 259))),
        (keys_from(i64::MIN, 9), numbered(ENDS)),
        (keys_from(i64::MAX - 8, 9), numbered(ENDS.into_iter().cycle().take(40))),
        // The promise of unique keys is broken.
        (rows(40, Spread::NearlyDense, 0), rows(60, Spread::Dense, 1)),
        (rows(25, Spread::Duplicates, 0), rows(60, Spread::Dense, 1)),
    ]
}

/// Joins of every kind with some conditions, each on so many devices in some ways in turn: how many times rows were looked up together.
fn check(
    sides: &[(Vec<Row>, Vec<Row>)],
    conditions: &[Condition],
    (forced, ways): (&[Choice], &[&[Choice]]),
    times: usize,
) -> usize {
    let (devices, mut turn, mut cases) = (devices(), 0usize, Vec::new());
    for side in 0..sides.len() {
        for condition in conditions.iter().copied() {
            for kind in JoinKind::ALL {
                let limits = LIMITS[turn % LIMITS.len()];
                for shift in 0..times {
                    let device = devices[(turn + shift) % devices.len()];
                    let way = ways[(turn + 4 * shift) % ways.len()];
                    let options = options(device, &[&[TOGETHER], forced, way]);
                    cases.push((side, condition, kind, limits, options));
                }
                turn += 1;
            }
        }
    }
    let name = format!("{forced:?} {:?}, {} sides", conditions[0], sides.len());
    let cases = covering(&name, cases, 100, |(side, condition, kind, limits, options)| {
        facets_and(options, &[&(side, kind), condition, &(limits, kind), &(kind, options.device)])
    });
    let (engine, mut together) = (Engine::new(), 0);
    for (side, condition, kind, limits, options) in cases {
        let (build, probe) = &sides[side];
        let all = plan(kind, condition, false);
        let (narrow, kept_build, kept_probe) = narrowed(all.clone(), (build, probe), limits);
        let joined = if limits == (100, 100) { all } else { narrow };
        let got = run(&engine, joined, &[table(build), table(probe)], &options);
        let what = format!("{kind:?} {condition:?} {limits:?} {build:?} {probe:?} {options:?}");
        assert_eq!(rows_of(&got.batch, false), expected(kind, condition, &kept_build, &kept_probe), "{what}");
        together += usize::from(looks_up(&got));
    }
    together
}

/// What is asserted of all cases, where all run.
fn floor(least: usize) -> usize {
    if is_whole() { least } else { 0 }
}

const DIRECT: &[Choice] = &[("index_form", "direct")];

fn conditions(keys: &'static [usize]) -> [Condition; 3] {
    [(false, false), (true, false), (false, true)].map(|(residual, null_equal)| Condition {
        keys,
        residual,
        null_equal,
    })
}

#[test]
fn every_kind_equals_a_nested_loop() {
    let together = check(&sides(), &conditions(&[0]), (DIRECT, &WAYS), 3);
    assert!(together > floor(100), "{together}");
}

/// Sides with keys far apart too, of which several may have a slot before their own.
fn hashed_sides() -> Vec<(Vec<Row>, Vec<Row>)> {
    let mut all = sides();
    all.extend([
        (rows(60, Spread::Sparse, 3), rows(300, Spread::Sparse, 1)),
        (rows(300, Spread::Sparse, 3), rows(67, Spread::Sparse, 1)),
        (rows(30, Spread::SparseDuplicates, 0), rows(80, Spread::SparseDuplicates, 1)),
        (rows(50, Spread::Skewed, 0), rows(90, Spread::Skewed, 1)),
    ]);
    all
}

#[test]
fn hashed_keys_equal_a_nested_loop() {
    let hash = ("index_form", "hash");
    let together = check(&hashed_sides(), &conditions(&[0]), (&[hash], &HASHED), 1);
    assert!(together > floor(150), "{together}");
}

/// 128 bits, several columns, and texts, which are looked up together where they are codes.
#[test]
fn hashed_keys_of_any_type_equal_a_nested_loop() {
    let hash = [("index_form", "hash"), ("text_join", "codes")];
    let sides = [&hashed_sides()[4..5], &hashed_sides()[10..]].concat();
    for (keys, least) in [(&[3][..], 50), (&[0, 3], 50), (&[1, 0], 10)] {
        let together = check(&sides, &conditions(keys), (&hash, &HASHED), 1);
        assert!(together > floor(least), "{keys:?}: {together}");
    }
}

#[test]
fn several_rows_of_slots_and_ranks_equal_a_nested_loop() {
    let lanes = [("expansion", "lane"), ("lane_refill", "off")];
    let sides = &sides()[3..];
    let together = check(sides, &conditions(&[0]), (&lanes, &SEVERAL), 1);
    assert!(together > floor(50), "{together}");
}

/// Keys that are computed in a few instructions and cannot fail are computed for all rows of a thread; others for those alone that come.
#[test]
fn computed_keys_fail_for_rows_alone_that_come_to_the_join() {
    let engine = Engine::new();
    let sources = [table(&keys_from(5, 60)), table(&keys_from(-50, 900))];
    let number = |value: i64| int(value);
    let of_key = |op| arithmetic(op, number(100), column(0));
    let positive = |input: Plan| {
        let predicate = compare(CompareOp::Gt, column(0), number(0));
        keep(input, predicate)
    };
    let condition = Condition { keys: &[0], residual: false, null_equal: false };
    let (mut together, mut alone) = (0, 0);
    for device in devices() {
        for (turn, form) in ["direct", "hash", "rank"].into_iter().enumerate() {
            for (op, fails) in [(ArithmeticOp::Subtract, false), (ArithmeticOp::Divide, true)] {
                let Plan::Join(join) = plan(JoinKind::Inner, condition, false) else { panic!("no join") };
                let keys = vec![(column(0), of_key(op))];
                let probe = if fails { positive(join.probe.clone()) } else { join.probe.clone() };
                let joined = Plan::Join(Box::new(Join { probe, keys, ..*join }));
                let joined = counted(joined, Some(column(2)));
                let options = options(device, &[&[TOGETHER, ("index_form", form)], HASHED[turn]]);
                let got = run(&engine, joined, &sources, &options);
                let keys = (-50..850i64).filter(|key| !fails || *key > 0);
                let keys = keys.map(|key| if fails { 100 / key } else { 100 - key });
                let found: Vec<i64> = keys.filter(|key| (5..65).contains(key)).collect();
                let sum: i64 = found.iter().map(|key| (key - 5) % 10).sum();
                assert_eq!(cells(&got), [found.len().to_string(), sum.to_string()], "{op:?} {options:?}");
                if device.0 != DeviceChoice::Cpu {
                    *(if fails { &mut alone } else { &mut together }) += usize::from(looks_up(&got));
                }
            }
        }
    }
    assert!(together >= 9 && alone == 0, "{together} {alone}");
}

/// Numbers of rows around those of blocks, of which threads hold several; what comes of a match is loaded with its look-up, or behind it.
#[test]
fn rows_of_any_number_are_looked_up_once_each() {
    let engine = Engine::new();
    let devices: Vec<_> = devices().into_iter().filter(|(device, _)| *device != DeviceChoice::Cpu).collect();
    let build = keys_from(5, 100);
    let counts = [1i64, 7, 8, 9, 31, 255, 256, 257, 1023, 2049, 5000].into_iter().enumerate();
    let cases = counts.flat_map(|(turn, count)| (0..WAYS.len()).map(move |way| (turn, count, way)));
    let cases = covering("rows of any number", cases, 45, |(turn, count, way)| {
        [format!("{count} rows"), format!("way {way}"), format!("device {}", (turn + way) % devices.len())]
            .into()
    });
    for (turn, count, way) in cases {
        let sources = [table(&build), table(&keys_from(-50, count))];
        let found: Vec<i64> = (5..105).filter(|key| key + 50 < count).collect();
        let sum: i64 = found.iter().map(|key| (key - 5) % 10).sum();
        let options = options(devices[(turn + way) % devices.len()], &[&[TOGETHER], DIRECT, WAYS[way]]);
        let condition = Condition { keys: &[0], residual: false, null_equal: false };
        let joined = plan(JoinKind::Inner, condition, false);
        let got = run(&engine, counted(joined, Some(column(2))), &sources, &options);
        let sum = if found.is_empty() { "-".into() } else { sum.to_string() };
        assert_eq!(cells(&got), [found.len().to_string(), sum], "{count} {options:?}");
        // Threads that wait for their block in each turn have one row at a time.
        let waits = WAYS[way].contains(&("refill_buffer", "shared"));
        assert_eq!(looks_up(&got), !waits, "{options:?}");
    }
}
