//! Joins whose rows come in parts give the rows of a nested loop, or those of the join without parts: every kind and form of index, NULL
//! keys, duplicates, skew, parts that flow over, empty sides, several joins in one pipeline, blocks of rows.

use crate::common::*;
use crate::sides::{Condition, Row, Spread, batch, column, expected, plan, rows, scan, table};
use kelpie_engine::Batches;

/// A device with rows in so many parts; whether those of the build side too; and what else is forced.
fn options(
    device: (DeviceChoice, u32),
    (parts, build): (&str, &str),
    others: &[(&str, &str)],
) -> QueryOptions {
    // Few codes of texts have fewer parts than are asked for.
    let forced = [("join_parts", parts), ("build_parts", build), ("text_join", "texts")];
    on_lanes(device, &[&forced, others].concat())
}

/// A CPU, and warps of several widths.
const DEVICES: [(DeviceChoice, u32); 4] =
    [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 4), (DeviceChoice::Simt, 8), (DeviceChoice::Simt, 32)];
const PARTS: [(&str, &str); 5] = [("16", "on"), ("64", "off"), ("1024", "on"), ("64", "on"), ("16", "off")];

fn output(engine: &Engine, plan: Plan, sides: &[&[Row]], options: QueryOptions) -> QueryOutput {
    let sources: Vec<_> = sides.iter().map(|rows| table(rows)).collect();
    run(engine, plan, &sources, options)
}

/// The same for the second time, when it is known whether keys are unique: no pipeline has run in vain.
fn second_output(engine: &Engine, plan: Plan, sides: &[&[Row]], options: QueryOptions) -> QueryOutput {
    let sources: Vec<_> = sides.iter().map(|rows| table(rows)).collect();
    run(engine, &plan, &sources, &options);
    run(engine, plan, &sources, options)
}

/// How often rows are brought into parts.
fn times_in_parts(output: &QueryOutput, parts: &str) -> usize {
    let into = format!("into {parts} parts");
    output.metrics.pipelines.iter().filter(|pipeline| pipeline.name.contains(&into)).count()
}

fn on(keys: &'static [usize]) -> Condition {
    Condition { keys, residual: false, null_equal: false }
}

/// All of them, and a GPU where there is one.
fn devices() -> impl Iterator<Item = (DeviceChoice, u32)> {
    DEVICES.into_iter().chain(gpu().map(|device| (device, 32)))
}

#[test]
fn every_kind_equals_a_nested_loop() {
    let (engine, gpu) = (Engine::new(), gpu());
    let sides: Vec<(Vec<Row>, Vec<Row>)> = vec![
        (rows(0, Spread::Dense, 0), rows(5, Spread::Dense, 1)),
        (rows(5, Spread::Dense, 0), rows(0, Spread::Dense, 1)),
        (rows(1, Spread::Dense, 0), rows(1, Spread::Dense, 0)),
        (rows(40, Spread::Dense, 0), rows(60, Spread::Dense, 1)),
        (rows(40, Spread::Sparse, 3), rows(60, Spread::Sparse, 1)),
        (rows(30, Spread::Duplicates, 2), rows(30, Spread::Duplicates, 1)),
        (rows(12, Spread::One, 2), rows(40, Spread::One, 1)),
        (rows(30, Spread::SparseDuplicates, 2), rows(30, Spread::SparseDuplicates, 1)),
        (rows(70, Spread::Skewed, 1), rows(40, Spread::Skewed, 1)),
        (rows(70, Spread::DenseSkewed, 1), rows(40, Spread::DenseSkewed, 1)),
        (rows(40, Spread::NearlyDense, 0), rows(60, Spread::Dense, 1)),
    ];
    let key_sets: [&[usize]; 4] = [&[0], &[1], &[0, 1], &[3]];
    let (mut turn, mut cases) = (0, Vec::new());
    for side in 0..sides.len() {
        for keys in key_sets {
            for (residual, null_equal) in [(false, false), (true, false), (false, true)] {
                let condition = Condition { keys, residual, null_equal };
                for kind in JoinKind::ALL {
                    turn += 1;
                    let on_cpu = PARTS[..3].iter().map(|parts| options(DEVICES[0], *parts, &[]));
                    let mut all: Vec<QueryOptions> = on_cpu.collect();
                    all.push(options(DEVICES[1 + turn % 3], PARTS[turn % PARTS.len()], &[]));
                    // A GPU compiles each kernel for a while.
                    let gpu = gpu.filter(|_| turn % 37 == 0).map(|device| (device, 32));
                    let of_gpu = |device| options(device, PARTS[turn / 37 % PARTS.len()], &[]);
                    all.extend(gpu.map(of_gpu));
                    cases.extend(all.into_iter().map(|options| (side, condition, kind, options)));
                }
            }
        }
    }
    let cases = covering("joins in parts", cases, 130, |(side, condition, kind, options)| {
        facets_and(options, &[&(side, kind), condition])
    });
    for (side, condition, kind, options) in cases {
        let (build, probe) = &sides[side];
        let expected = expected(kind, condition, build, probe);
        let got = output(&engine, plan(kind, condition, false), &[build, probe], options.clone());
        let what = format!("{kind:?} {condition:?} {:?} {options:?}", (build.len(), probe.len()));
        assert_eq!(rows_of(&got.batch, false), expected, "{what}");
    }
}

/// Rows are in parts wherever that is forced, in every form of the index.
#[test]
fn forms_of_the_index() {
    let engine = Engine::new();
    let (dense, twice) = (rows(90, Spread::Dense, 0), rows(90, Spread::Duplicates, 0));
    let mut cases = Vec::new();
    for device in devices() {
        for others in [
            &[("join", "direct"), ("row_places", "slot")][..],
            &[("join", "direct"), ("row_places", "packed"), ("empty_slots", "cleared")],
            &[("join", "direct"), ("row_places", "packed"), ("index_rows", "chains")],
            &[("join", "direct"), ("row_places", "packed"), ("index_rows", "buckets")],
            &[("join", "hash"), ("index_rows", "chains")],
            &[("join", "hash"), ("index_rows", "buckets")],
            &[("join", "hash"), ("hash_function", "multiply_shift")],
            &[("join", "hash"), ("hash_function", "fnv1a")],
        ] {
            for is_unique in [true, false] {
                for kind in [JoinKind::Inner, JoinKind::FullOuter, JoinKind::BuildAnti, JoinKind::ProbeSemi] {
                    cases.push((is_unique, kind, options(device, ("16", "on"), others)));
                }
            }
        }
    }
    let cases = covering("forms of the index", cases, 60, |(is_unique, kind, options)| {
        facets_and(options, &[&(is_unique, kind), &options.variants])
    });
    for (is_unique, kind, options) in cases {
        let (build, probe) = if is_unique { (&dense, &twice) } else { (&twice, &dense) };
        let sides: [&[Row]; 2] = [build, probe];
        let got = second_output(&engine, plan(kind, on(&[0]), false), &sides, options.clone());
        assert_eq!(
            rows_of(&got.batch, false),
            expected(kind, on(&[0]), build, probe),
            "{kind:?} {options:?}"
        );
        // A dense range has as many parts as powers of two leave it.
        let names: Vec<_> = got.metrics.pipelines.iter().map(|p| p.name.clone()).collect();
        assert_eq!(names.iter().filter(|name| name.contains("into ")).count(), 2, "{names:?}");
    }
}

/// Without keys there is nothing by which rows could be in parts, and on a GPU a join that makes several rows of one leaves no parts to
/// those behind it: the rule says so, and what is forced for that join alone is an error.
#[test]
fn what_is_not_possible_has_a_reason() {
    let engine = Engine::new();
    let some = rows(20, Spread::Duplicates, 0);
    let pairs = output(
        &engine,
        plan(JoinKind::Inner, on(&[]), false),
        &[&some, &some],
        options(DEVICES[0], ("16", "on"), &[]),
    );
    assert_eq!(pairs.batch.num_rows(), 400);
    assert!(pairs.metrics.choices().all(|choice| choice.axis.name != "join_parts"));
    for (device, times) in [(DEVICES[0], 4), (DEVICES[2], 2)] {
        let both = twice(JoinKind::Inner, JoinKind::Inner);
        let sides: [&[Row]; 3] = [&some, &some, &some];
        let got = second_output(&engine, both, &sides, options(device, ("16", "on"), &[]));
        let reasons: Vec<_> =
            got.metrics.choices().filter(|choice| choice.axis.name == "join_parts").collect();
        let lacks = reasons.iter().any(|choice| choice.reason.contains("may make several rows of one"));
        assert_eq!(lacks, times == 2, "{reasons:?}");
        assert_eq!(times_in_parts_of_any(&got), times, "{device:?}");
    }
}

/// How often the rows of parts are counted before.
fn times_in_parts_of_any(output: &QueryOutput) -> usize {
    output.metrics.pipelines.iter().filter(|pipeline| pipeline.name.contains("→ into ")).count()
}

/// The rows of two joins in one pipeline, both of which look up the first key of the last table's rows.
fn twice(first: JoinKind, second: JoinKind) -> Plan {
    let join = |build, probe, kind, keys| Plan::Join(Box::new(join_of(kind, build, probe, keys)));
    // The columns of an inner join are the build side's, then the probe side's.
    let offset = |kind: JoinKind| if kind == JoinKind::ProbeSemi { 0 } else { 4 };
    let inner = join(scan(1), scan(2), first, vec![(column(0), column(0))]);
    let key = Expr::column(offset(first), DataType::Int64, true);
    join(scan(0), inner, second, vec![(column(0), key)])
}

/// Several joins in a pipeline have their rows in parts one after the other, and the rows of the scan that a later join drops are still
/// left out at the scan.
#[test]
fn joins_in_one_pipeline() {
    let engine = Engine::new();
    let (small, middle, large) =
        (rows(30, Spread::Dense, 0), rows(100, Spread::Dense, 3), rows(600, Spread::Dense, 5));
    for (first, second) in [
        (JoinKind::Inner, JoinKind::Inner),
        (JoinKind::ProbeSemi, JoinKind::ProbeOuter),
        (JoinKind::ProbeOuter, JoinKind::BuildSemi),
    ] {
        let sides: [&[Row]; 3] = [&small, &middle, &large];
        let plain = output(&engine, twice(first, second), &sides, options(DEVICES[0], ("1", "off"), &[]));
        assert_eq!(times_in_parts_of_any(&plain), 0);
        let ways = devices().flat_map(|device| PARTS.map(|parts| (device, parts)));
        for (device, parts) in covering(&format!("{first:?}"), ways, 10, |(device, parts)| {
            vec![format!("{device:?}"), format!("{parts:?}")]
        }) {
            let options = options(device, parts, &[]);
            let got = output(&engine, twice(first, second), &sides, options.clone());
            assert_eq!(
                rows_of(&got.batch, false),
                rows_of(&plain.batch, false),
                "{first:?} {second:?} {options:?}"
            );
            let times = if parts.1 == "on" { 4 } else { 2 };
            assert_eq!(times_in_parts_of_any(&got), times, "{options:?}");
        }
    }
}

/// More rows than workers have chunks: even, one key that most rows have, whose part flows over, and NULLs. Each runs again with what is
/// known after the first time.
#[test]
fn larger_sides() {
    let engine = Engine::new();
    let nulls = |count: usize| -> Vec<Row> { (0..count).map(|_| (None, None, 3)).collect() };
    let sides: Vec<(Vec<Row>, Vec<Row>)> = vec![
        (rows(5_000, Spread::Dense, 1), rows(70_003, Spread::Dense, 2)),
        (rows(20_000, Spread::Sparse, 1), rows(50_000, Spread::Sparse, 2)),
        (rows(300, Spread::Skewed, 1), rows(20_000, Spread::Skewed, 2)),
        (rows(20_000, Spread::Skewed, 1), rows(300, Spread::Sparse, 2)),
        (rows(100, Spread::Dense, 1), nulls(9_000).into_iter().chain(rows(100, Spread::Dense, 2)).collect()),
        (nulls(9_000).into_iter().chain(rows(100, Spread::Dense, 2)).collect(), rows(100, Spread::Dense, 1)),
    ];
    let mut cases = Vec::new();
    for number in 0..sides.len() {
        for (keys, residual) in [(&[0][..], false), (&[1], false), (&[0], true)] {
            let condition = Condition { keys, residual, null_equal: false };
            for kind in [JoinKind::Inner, JoinKind::FullOuter, JoinKind::BuildAnti, JoinKind::ProbeAnti] {
                // All pairs of equal keys would be too many.
                if number == 2 && matches!(kind, JoinKind::Inner | JoinKind::FullOuter) {
                    continue;
                }
                for (parts, threads) in [(PARTS[0], 2), (PARTS[1], 3), (PARTS[2], 1)] {
                    let base = options(DEVICES[0], parts, &[]);
                    let options = QueryOptions { threads: Some(threads), ..base };
                    cases.push((number, condition, kind, options));
                }
            }
        }
    }
    let cases = covering("larger sides", cases, 9, |(number, condition, kind, options)| {
        facets_and(options, &[number, condition, kind])
    });
    for (number, condition, kind, forced) in cases {
        let (build, probe) = &sides[number];
        let run = |options: &QueryOptions| {
            let got = output(&engine, plan(kind, condition, false), &[build, probe], options.clone());
            rows_of(&got.batch, false)
        };
        let expected = run(&options(DEVICES[0], ("1", "off"), &[]));
        for _ in 0..2 {
            assert!(run(&forced) == expected, "{number} {kind:?} {condition:?} {forced:?}");
        }
    }
}

/// One key on all rows of both sides: all of them are of one part.
#[test]
fn a_key_on_all_rows() {
    let engine = Engine::new();
    for device in devices() {
        let (build, probe) = (rows(9, Spread::One, 0), rows(700, Spread::One, 0));
        for (parts, kind) in PARTS.into_iter().zip([JoinKind::Inner, JoinKind::FullOuter].into_iter().cycle())
        {
            let options = options(device, parts, &[]);
            let sides: [&[Row]; 2] = [&build, &probe];
            let got = second_output(&engine, plan(kind, on(&[0, 1]), false), &sides, options.clone());
            assert_eq!(
                rows_of(&got.batch, false),
                expected(kind, on(&[0, 1]), &build, &probe),
                "{options:?}"
            );
            assert_eq!(times_in_parts(&got, parts.0), if parts.1 == "on" { 2 } else { 1 });
        }
    }
}

/// Rows go into parts block by block where tables stream, and under every micro model.
#[test]
fn models_and_blocks() {
    let engine = Engine::new();
    let build: Vec<Row> = rows(400, Spread::Sparse, 1);
    let batches: Vec<Vec<Row>> = (0..5).map(|salt| rows(900, Spread::Sparse, salt)).collect();
    let sources = || {
        let parts = batches.iter().map(|rows| batch(rows)).collect();
        vec![table(&build), Arc::new(Table(parts)) as Arc<_>]
    };
    let mut cases = Vec::new();
    for kind in JoinKind::ALL {
        for keys in [&[0][..], &[1], &[0, 1]] {
            for micro_model in MicroModel::ALL {
                for (macro_model, block_bytes) in [
                    (MacroModel::default(), None),
                    (MacroModel::Batch, Some(1 << 10)),
                    (MacroModel::KernelAtATime, Some(4 << 10)),
                ] {
                    let base = options(DEVICES[0], ("64", "on"), &[]);
                    cases.push((kind, keys, QueryOptions { micro_model, macro_model, block_bytes, ..base }));
                }
            }
        }
    }
    for (kind, keys, forced) in covering("models and blocks", cases, 20, |(kind, keys, options)| {
        facets_and(options, &[kind, keys, &(options.micro_model, options.macro_model)])
    }) {
        let run = |options: QueryOptions| {
            let got = crate::common::run(&engine, plan(kind, on(keys), false), &sources(), options);
            (rows_of(&got.batch, false), times_in_parts(&got, "64"))
        };
        let (expected, _) = run(options(DEVICES[0], ("1", "off"), &[]));
        let what = format!("{kind:?} {keys:?} {forced:?}");
        let (got, times) = run(forced);
        assert!(got == expected, "{what}");
        assert_eq!(times, 2, "{what}");
    }
}

/// Rows of parts that follow each other are counted before any is written, also where tables stream.
#[test]
fn counted_parts_of_blocks() {
    let engine = Engine::new();
    let (build, probe) = (rows(200, Spread::Sparse, 1), rows(1_100, Spread::Skewed, 2));
    let on = on(&[1]);
    for kind in [JoinKind::BuildAnti, JoinKind::FullOuter, JoinKind::ProbeSemi] {
        let run = |options: QueryOptions| {
            let got = output(&engine, plan(kind, on, false), &[&build, &probe], options);
            (rows_of(&got.batch, false), times_in_parts(&got, "64"))
        };
        let (expected, ..) = run(options(DEVICES[0], ("1", "off"), &[]));
        let devices =
            MicroModel::ALL.into_iter().flat_map(|model| [(model, DEVICES[0]), (model, DEVICES[3])]);
        for (micro_model, device) in devices {
            for (macro_model, block_bytes) in [
                (MacroModel::default(), None),
                (MacroModel::Batch, Some(1 << 10)),
                (MacroModel::KernelAtATime, Some(4 << 10)),
            ] {
                let base = options(device, ("64", "on"), &[]);
                let options = QueryOptions { micro_model, macro_model, block_bytes, ..base };
                assert_eq!(run(options.clone()), (expected.clone(), 2), "{kind:?} {options:?}");
            }
        }
    }
}

/// Where the build side is empty, kinds that need its rows do not look at the probe side, whose keys cannot be computed here.
#[test]
fn an_empty_build_side() {
    use JoinKind::*;
    let engine = Engine::new();
    let key = cast(column(1), DataType::Int64);
    let (none, bad) = (rows(0, Spread::Dense, 0), vec![(Some(1), Some("ключ".to_string()), 1)]);
    for kind in JoinKind::ALL {
        let join = Plan::Join(Box::new(join_of(kind, scan(0), scan(1), vec![(column(0), key.clone())])));
        for device in [DEVICES[0], DEVICES[2]] {
            let sources = [&none, &bad].map(|rows| table(rows));
            let got = try_run(&engine, &join, &sources, options(device, ("16", "on"), &[]));
            let fails = matches!(kind, ProbeOuter | FullOuter | ProbeAnti | ProbeMark);
            assert_eq!(got.is_err(), fails, "{kind:?} {device:?}");
        }
    }
}

/// Places that are counted before rows are written: of parts only the device knows how many rows there are.
#[test]
fn places_of_rows_in_parts_are_counted() {
    let engine = Engine::new();
    let (build, probe) = (rows(40, Spread::Dense, 0), rows(300, Spread::Dense, 1));
    for kind in [JoinKind::ProbeAnti, JoinKind::ProbeSemi, JoinKind::Inner] {
        let expected = expected(kind, on(&[0]), &build, &probe);
        for device in devices() {
            let options = options(device, ("16", "on"), &[("count_places", "on")]);
            let got = output(&engine, plan(kind, on(&[0]), false), &[&build, &probe], options);
            assert_eq!(rows_of(&got.batch, false), expected, "{kind:?} {device:?}");
        }
    }
}

/// `NOT IN` knows the NULLs of rows that came in parts.
#[test]
fn not_in_knows_nulls() {
    let engine = Engine::new();
    let outer: Vec<Row> = rows(6, Spread::Dense, 0).into_iter().chain([(None, None, 1)]).collect();
    for (inner, passes) in
        [(vec![], 7), (vec![(Some(0), None, 0)], 5), (vec![(Some(99), None, 0), (None, None, 0)], 0)]
    {
        for (device, side) in devices().flat_map(|device| [(device, "written"), (device, "other")]) {
            let plan = plan(JoinKind::BuildAnti, on(&[0]), true);
            let options = options(device, ("16", "on"), &[("build_side", side)]);
            let got = output(&engine, plan, &[&outer, &inner], options);
            assert_eq!(got.batch.num_rows(), passes, "{inner:?} {device:?} {side}");
        }
    }
}

/// Results that leave the device in blocks, each of which is made of some of the places of the parts; and little memory.
#[test]
fn results_in_blocks_and_little_memory() {
    let engine = Engine::new();
    let mut sides = vec![
        (DEVICES[0], rows(9_000, Spread::Sparse, 1), rows(40_000, Spread::Sparse, 2)),
        (DEVICES[3], rows(900, Spread::Dense, 1), rows(9_000, Spread::Dense, 2)),
    ];
    // Nearly all of these match 54 rows.
    let skewed = |count| (DEVICES[0], rows(60, Spread::Skewed, 1), rows(count, Spread::Skewed, 2));
    sides.extend(sizes(4_000, 9_000).into_iter().map(skewed));
    let mut cases = Vec::new();
    for number in 0..sides.len() {
        for kind in [JoinKind::Inner, JoinKind::ProbeOuter] {
            cases.extend([PARTS[0], PARTS[1]].map(|parts| (number, kind, parts)));
        }
    }
    let cases = covering("results in blocks", cases, 0, |(number, kind, parts)| {
        [format!("{number}"), format!("{kind:?}"), format!("{parts:?}")].into()
    });
    for (number, kind, parts) in cases {
        let (device, build, probe) = &sides[number];
        let rows = |options: QueryOptions, device_bytes: Option<u64>| {
            let sources = [build, probe].map(|rows| table(rows));
            let query = query_of(plan(kind, on(&[0]), false), &sources, options);
            let device_bytes = device_bytes.unwrap_or(Batches::default().device_bytes);
            let (batches, mut all) = (Batches { device_bytes, ..Batches::default() }, Vec::new());
            let mut receive = |batch| {
                all.extend(rows_of(&batch, false));
                Ok(())
            };
            let outcome = engine.stream(&query, batches, &CancelToken::default(), &mut receive);
            outcome.expect("the join runs");
            all.sort();
            all
        };
        let expected = rows(options(*device, ("1", "off"), &[]), None);
        let plain = options(*device, parts, &[]);
        assert!(rows(plain.clone(), Some(1 << 14)) == expected, "{kind:?} {plain:?}");
        let little = QueryOptions { memory_limit: Some(16 << 20), ..plain };
        assert!(rows(little.clone(), None) == expected, "{kind:?} {little:?}");
    }
}
