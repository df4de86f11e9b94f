//! An index by the ranks of keys gives the rows of a nested loop, as slots and a hash table do: every kind of join, residual conditions,
//! keys that are NULL, negative, twice there, the first and the last of their range, at the ends of words; sides that are empty or have
//! one row; chains and buckets; morsels of several workers, warps of several widths. And where few of many values have rows, less memory
//! is gone through than with a slot a value.

use crate::common::*;
use crate::joined;
use crate::joined::{Choice, ENDS, counted, numbered, with_nulls};
use crate::sides::{Condition, Row, Spread, expected, plan, rows, table};

/// A CPU, and warps of several widths.
const DEVICES: [(DeviceChoice, u32); 3] =
    [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 4), (DeviceChoice::Simt, 32)];

/// What an index by ranks goes with, and the forms beside it.
const WAYS: [&[(&str, &str)]; 9] = [
    &[("join", "rank")],
    &[("join", "rank"), ("index_rows", "chains"), ("row_places", "packed")],
    &[("join", "rank"), ("index_rows", "buckets")],
    &[("join", "rank"), ("row_arrangement", "striped")],
    &[("join", "rank"), ("index_rows", "buckets"), ("bucket_entries", "rows"), ("pruning", "off")],
    &[("join", "rank"), ("join_parts", "16"), ("build_parts", "on"), ("runtime_filters", "off")],
    &[("join", "rank"), ("row_loop", "selected"), ("init", "kernel"), ("index_rows", "chains")],
    &[("join", "direct")],
    &[("join", "hash")],
];

fn options(device: (DeviceChoice, u32), way: &[Choice]) -> QueryOptions {
    joined::options(device, &[way])
}

/// Whether keys were found by their ranks.
fn has_ranks(output: &QueryOutput) -> bool {
    has(output, ("join", "rank"))
}

fn all_sides() -> Vec<(Vec<Row>, Vec<Row>)> {
    let sparse = || (0..40i64).map(|row| -20_000 + row * 1013);
    vec![
        (rows(0, Spread::Dense, 0), rows(70, Spread::Dense, 1)),
        (rows(5, Spread::Dense, 0), rows(0, Spread::Dense, 1)),
        (rows(1, Spread::One, 0), rows(70, Spread::One, 0)),
        (with_nulls(Vec::new()), with_nulls(numbered(0..3))),
        // All values of the range, then few of them.
        (numbered(-50..50), numbered(-70..70)),
        (
            with_nulls(numbered(sparse())),
            with_nulls(numbered(sparse().flat_map(|key| [key - 1, key, key, key + 1]))),
        ),
        // The first and the last bit of words, and of the range.
        (numbered([0, 31, 32, 63, 64, 95, 1000, 1023]), numbered((-2..1030).filter(|key| key % 31 < 3))),
        (numbered((0..9).map(|row| i64::MIN + row)), numbered(ENDS)),
        (numbered((0..9).map(|row| i64::MAX - row)), numbered(ENDS.into_iter().cycle().take(40))),
        // One key twice, and few keys on many rows.
        (rows(40, Spread::NearlyDense, 0), rows(60, Spread::Dense, 1)),
        (numbered(sparse().chain([-20_000])), numbered(sparse().chain([20_000]))),
        (rows(25, Spread::Duplicates, 0), rows(60, Spread::Dense, 1)),
        (rows(70, Spread::DenseSkewed, 1), rows(40, Spread::DenseSkewed, 1)),
    ]
}

#[test]
fn every_kind_equals_a_nested_loop() {
    let engine = Engine::new();
    let mut devices = DEVICES.to_vec();
    if kelpie_engine::testing::has_cuda(&engine) {
        devices.push((DeviceChoice::Cuda, 32));
    }
    let (sides, mut turn, mut cases) = (all_sides(), 0usize, Vec::new());
    for side in 0..sides.len() {
        for (residual, null_equal) in [(false, false), (true, false), (false, true)] {
            let condition = Condition { keys: &[0], residual, null_equal };
            for kind in JoinKind::ALL {
                // Each device, and each way in turn.
                for (number, device) in devices.iter().enumerate() {
                    let options = options(*device, WAYS[(turn + 2 * number) % WAYS.len()]);
                    cases.push((side, condition, kind, options));
                }
                turn += 1;
            }
        }
    }
    // Each kind of each pair of sides.
    let cases = covering("ranks of keys", cases, 150, |(side, condition, kind, options)| {
        facets_and(options, &[&(side, kind), condition, &(kind, options.device)])
    });
    let mut ranked = 0;
    for (side, condition, kind, options) in cases {
        let (build, probe) = &sides[side];
        let got = run(&engine, plan(kind, condition, false), &[table(build), table(probe)], &options);
        let what = format!("{kind:?} {condition:?} {build:?} {probe:?} {options:?}");
        assert_eq!(rows_of(&got.batch, false), expected(kind, condition, build, probe), "{what}");
        ranked += usize::from(has_ranks(&got));
    }
    assert!(ranked >= floor(400), "{ranked}");
}

/// Keys far apart in a range of a million, more of them than a morsel has rows; then some of them twice. The answer says what form the
/// index has had.
#[test]
fn morsels_and_blocks_make_the_ranks_together() {
    let engine = Engine::new();
    let unique = numbered((0..20_000i64).map(|row| (row * 7_919) % 20_000 * 53 - 500_000));
    let twice: Vec<Row> = unique.iter().chain(unique.iter().step_by(3)).cloned().collect();
    let probe = numbered((0..30_000i64).map(|row| (row * 1_048_573) % 1_100_000 - 520_000));
    for (build, form) in [(&unique, "ranks, unique"), (&twice, "ranks, chains"), (&twice, "ranks, buckets")] {
        let sources = [table(build), table(&probe)];
        let rows = form.rsplit(' ').next().filter(|rows| *rows != "unique").unwrap_or("chains");
        for device in [DEVICES[0], DEVICES[2]] {
            let ranks = options(device, &[("join", "rank"), ("index_rows", rows), ("morsel_rows", "4096")]);
            let hashed = options(device, &[("join", "hash")]);
            let kinds = [JoinKind::Inner, JoinKind::FullOuter, JoinKind::BuildAnti, JoinKind::BuildMark];
            for kind in sample(&format!("{form} on {device:?}, {} rows", build.len()), kinds, 2) {
                let condition = Condition { keys: &[0], residual: false, null_equal: false };
                let joined = || plan(kind, condition, false);
                let got = run(&engine, joined(), &sources, &ranks);
                let expected = run(&engine, joined(), &sources, &hashed);
                assert!(
                    rows_of(&got.batch, false) == rows_of(&expected.batch, false),
                    "{kind:?} {form} {device:?}"
                );
                assert!(has_ranks(&got));
                let names = engine.explain(&query_of(joined(), &sources, &ranks), ExplainStage::Pipelines);
                let names = names.expect("an explanation");
                // What keeps the build side is not assumed to have unique keys.
                let is_assumed = matches!(kind, JoinKind::Inner | JoinKind::FullOuter);
                let form = if is_assumed { form } else { &format!("ranks, {rows}") };
                assert!(names.contains(&format!("→ index ({form})\n")), "{kind:?} {form}: {names}");
            }
        }
    }
}

/// Texts that have dictionaries are told by codes, which have ranks as any numbers of a range; those of one side alone are in no range.
#[test]
fn codes_of_texts_have_ranks() {
    let engine = Engine::new();
    let sides = [
        (rows(30, Spread::Duplicates, 2), rows(30, Spread::Duplicates, 1)),
        (rows(12, Spread::Dense, 0), rows(70, Spread::DenseSkewed, 1)),
    ];
    let mut ranked = 0;
    for (build, probe) in &sides {
        let sources = [table(build), table(probe)];
        let condition = Condition { keys: &[1], residual: false, null_equal: false };
        for kind in JoinKind::ALL {
            let expected = expected(kind, condition, build, probe);
            for (number, device) in DEVICES.into_iter().enumerate() {
                let way = [("text_join", "codes"), ("join", "rank"), WAYS[1 + number % 2][1]];
                let options = options(device, &way);
                let got = run(&engine, plan(kind, condition, false), &sources, &options);
                assert_eq!(rows_of(&got.batch, false), expected, "{kind:?} {build:?} {probe:?} {options:?}");
                ranked += usize::from(has_ranks(&got));
            }
        }
    }
    assert!(ranked >= 21, "{ranked}");
}

/// `NOT IN`: a NULL of the probe side, and one of the build side.
#[test]
fn not_in_knows_nulls() {
    let engine = Engine::new();
    let condition = Condition { keys: &[0], residual: false, null_equal: false };
    let outer: Vec<Row> = numbered([-5, 0, 70]).into_iter().chain([(None, None, 1)]).collect();
    for (inner, passes) in [
        (vec![], 4),
        (numbered([0]), 2),
        (numbered([99]), 3),
        (numbered([99]).into_iter().chain([(None, None, 0)]).collect(), 0),
    ] {
        for device in DEVICES {
            for (way, side) in WAYS[..3].iter().flat_map(|way| [(way, "written"), (way, "other")]) {
                let sources = [table(&outer), table(&inner)];
                let joined = plan(JoinKind::BuildAnti, condition, true);
                let way = [&way[..], &[("build_side", side)]].concat();
                let got = run(&engine, joined, &sources, options(device, &way));
                assert_eq!(got.batch.num_rows(), passes, "{inner:?} {device:?} {way:?}");
                assert!(side == "other" || has_ranks(&got));
            }
        }
    }
}

/// Where a key may have several rows, its bucket's bounds are found at its rank alone, where there is one, and not at each slot that is
/// asked for; where it has one row, a match takes one word more, and a row without one takes none.
#[test]
fn few_of_many_values_take_fewer_bytes_than_slots() {
    let engine = Engine::new();
    let unique = numbered((0..500).map(|row| row * 997));
    let twice: Vec<Row> = unique.iter().chain(&unique[..9]).cloned().collect();
    let probe = numbered((0..2_000).map(|row| row * 251));
    let matches = unique.iter().filter(|row| row.0.is_some_and(|key| key % 251 == 0 && key < 502_000));
    let matches = matches.count() as u64;
    let condition = Condition { keys: &[0], residual: false, null_equal: false };
    let packed =
        [("row_places", "packed"), ("empty_slots", "bitmap"), ("pruning", "off"), ("runtime_filters", "off")];
    for (build, rows) in [(&twice, ("index_rows", "buckets")), (&unique, ("index_rows", "chains"))] {
        let sources = [table(build), table(&probe)];
        for device in DEVICES {
            let [ranks, slots] = ["rank", "direct"].map(|form| {
                let way: Vec<_> = [rows, ("join", form)].into_iter().chain(packed).collect();
                let options = QueryOptions { meter: true, ..options(device, &way) };
                let joined = counted(plan(JoinKind::Inner, condition, false), None);
                let got = run(&engine, joined, &sources, &options);
                assert_eq!(has_ranks(&got), form == "rank", "{way:?}");
                let is_probe = |name: &str| name.contains("→ join Inner");
                let mut pipelines = got.metrics.pipelines.iter();
                let probing = pipelines.rfind(|pipeline| is_probe(&pipeline.name)).expect("a probe side");
                probing.traffic.expect("counts").table.read
            });
            let is_unique = build.len() == unique.len();
            match is_unique {
                true => assert!(ranks <= slots + 4 * matches, "{device:?}: {ranks}, {slots}, {matches}"),
                false => assert!(ranks < slots * 3 / 4, "{device:?}: {ranks} of {slots}"),
            }
        }
    }
}
