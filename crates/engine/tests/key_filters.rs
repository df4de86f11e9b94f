//! Bloom filters of hash tables give the rows of a nested loop: every kind of join, one key and several, NULLs that match and NULLs that do
//! not, duplicates, extremes, empty sides, more rows than foreseen, several joins in a pipeline; asked row by row, for a selection vector,
//! and by several rows of a thread. And they leave out most of what matches nothing.

use crate::common::*;
use crate::sides::{Condition, Row, Spread, column, expected, plan, rows, scan, table};

/// A CPU, and warps of several widths.
const DEVICES: [(DeviceChoice, u32); 3] =
    [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 4), (DeviceChoice::Simt, 32)];

/// In which ways a filter is asked.
const WAYS: [&[(&str, &str)]; 3] = [
    &[("runtime_filters", "on")],
    &[("runtime_filters", "off")],
    &[("runtime_filters", "on"), ("row_arrangement", "striped"), ("index_rows", "buckets")],
];

fn options(device: (DeviceChoice, u32), others: &[&[(&str, &str)]]) -> QueryOptions {
    on_lanes(device, &[&[("key_filter", "bloom"), ("join", "hash")], &others.concat()[..]].concat())
}

fn output(
    engine: &Engine,
    plan: Plan,
    sources: &(impl Sources + ?Sized),
    options: &QueryOptions,
) -> Option<QueryOutput> {
    match try_run(engine, plan, sources, options) {
        Ok(output) => Some(output),
        // What is no choice of a plan, or impossible beside the others, is not tried.
        Err(error) if error.to_string().contains("is not possible") => None,
        Err(error) => panic!("{:?}: {error}", options.variants),
    }
}

/// Whether a pipeline asks a Bloom filter.
fn asks(output: &QueryOutput) -> bool {
    is_told(output, "→ bloom filter")
}

/// The same join of the rows of the build side whose number is below another one: they are thought to be few.
fn narrowed(plan: Plan, below: i32) -> Plan {
    let Plan::Join(join) = plan else { return plan };
    let Join { build, .. } = *join;
    let build = keep(build, compare_with(CompareOp::Lt, column(2), below));
    Plan::Join(Box::new(Join { build, ..*join }))
}

#[test]
fn every_kind_equals_a_nested_loop() {
    let engine = Engine::new();
    let extremes: Vec<Row> = [i64::MIN, i64::MAX, 0, -1, 1, i64::MIN + 1, i64::MAX - 1, 1 << 32, -(1 << 32)]
        .into_iter()
        .enumerate()
        .map(|(index, key)| (Some(key), (index % 3 > 0).then(|| format!("{key}")), index as i32))
        .chain([(None, None, 1)])
        .collect();
    let sides: Vec<(Vec<Row>, Vec<Row>)> = vec![
        (rows(0, Spread::Sparse, 0), rows(5, Spread::Sparse, 1)),
        (rows(5, Spread::Sparse, 0), rows(0, Spread::Sparse, 1)),
        (rows(1, Spread::Sparse, 0), rows(1, Spread::Sparse, 0)),
        (rows(1, Spread::Sparse, 0), rows(60, Spread::Sparse, 0)),
        (rows(40, Spread::Sparse, 3), rows(90, Spread::Sparse, 1)),
        (rows(30, Spread::SparseDuplicates, 2), rows(30, Spread::SparseDuplicates, 1)),
        (rows(12, Spread::One, 2), rows(40, Spread::One, 1)),
        (rows(70, Spread::Skewed, 1), rows(40, Spread::Skewed, 1)),
        (rows(70, Spread::DenseSkewed, 1), rows(40, Spread::DenseSkewed, 1)),
        (rows(40, Spread::NearlyDense, 0), rows(60, Spread::Dense, 1)),
        (rows(25, Spread::Duplicates, 0), rows(60, Spread::Dense, 1)),
        (extremes.clone(), rows(20, Spread::Sparse, 0).into_iter().chain(extremes).collect()),
    ];
    // Texts have a filter where both sides have dictionaries, so that they are told by codes.
    let key_sets: [&[usize]; 5] = [&[0], &[3], &[3, 0], &[1], &[1, 0]];
    let (mut turn, mut cases) = (0, Vec::new());
    for side in 0..sides.len() {
        for keys in key_sets {
            for (residual, null_equal) in [(false, false), (true, false), (false, true)] {
                let condition = Condition { keys, residual, null_equal };
                for kind in JoinKind::ALL {
                    // All rows of the build side, most, and none.
                    let below = [100, 7, -1][turn / 2 % 3];
                    let options = options(DEVICES[turn % 3], &[WAYS[turn / 3 % WAYS.len()]]);
                    turn += 1;
                    cases.push((side, condition, kind, below, options));
                }
            }
        }
    }
    // Each kind of each pair of sides.
    let cases = covering("key filters", cases, 130, |(side, condition, kind, below, options)| {
        facets_and(options, &[&(side, kind), condition, &(below, kind)])
    });
    let mut asked = 0;
    for (side, condition, kind, below, options) in cases {
        let (build, probe) = &sides[side];
        let kept: Vec<Row> = build.iter().filter(|row| row.2 < below).cloned().collect();
        let plan = narrowed(plan(kind, condition, false), below);
        let sources = [table(build), table(probe)];
        let Some(got) = output(&engine, plan, &sources, &options) else { continue };
        let what = format!("{kind:?} {condition:?} {below} {options:?}");
        assert_eq!(rows_of(&got.batch, false), expected(kind, condition, &kept, probe), "{what}");
        asked += usize::from(asks(&got));
    }
    assert!(asked >= floor(300), "{asked}");
}

/// Sums over the rows of a join, so that what they are is known in short.
fn counted(input: Plan) -> Plan {
    let fields = input.fields();
    let key = fields.iter().position(|field| field.data_type == DataType::Int64).unwrap_or(0);
    let sum = Expr::column(key, fields[key].data_type.clone(), true);
    let aggregate = |function, argument| of_longs(function, argument);
    let aggregates = vec![
        aggregate(AggregateFunction::Count, None),
        aggregate(AggregateFunction::Min, Some(sum.clone())),
        aggregate(AggregateFunction::Max, Some(sum)),
    ];
    groups_of(input, Vec::new(), aggregates)
}

/// Rows whose keys are multiples of two numbers, of which few have a partner; and of so many the number is far larger than that of all
/// others, so that the filter `below` is thought to keep hardly any.
fn multiples(count: i64, of: i64, far: usize) -> Vec<Row> {
    let number = |index: i64| if (index as usize) < far { 1_000_000 } else { 0 };
    (0..count).map(|index| (Some(index * of * 0x1_0000_0001), None, number(index))).collect()
}

/// More build rows than were foreseen: the filter has the size of the rows that there are. Far more rows of the probe side are looked up, and
/// what passes by mistake makes no row.
#[test]
fn more_rows_than_foreseen() {
    let engine = Engine::new();
    for device in lanes() {
        let (build, probe) = if device.0 == DeviceChoice::Simt { (2_000, 4_000) } else { (60_000, 200_000) };
        let sources = [multiples(build, 7, 5), multiples(probe, 3, 0)].map(|rows| table(&rows));
        let partners = (5..build).filter(|index| index * 7 % 3 == 0 && index * 7 / 3 < probe).count();
        for kind in [JoinKind::Inner, JoinKind::ProbeSemi, JoinKind::BuildSemi] {
            let condition = Condition { keys: &[0], residual: false, null_equal: false };
            for way in WAYS {
                let options = options(device, &[way]);
                let plan = counted(narrowed(plan(kind, condition, false), 10));
                // What is known after the first time decides the second, which may not be waited for.
                for time in 0..3 {
                    let got = output(&engine, plan.clone(), &sources, &options);
                    let Some(got) = got else { continue };
                    let first = got.batch.column(0);
                    let found = array_value_to_string(first, 0).expect("a number");
                    assert_eq!(found, partners.to_string(), "{kind:?} {time} {options:?}");
                    assert!(asks(&got), "{options:?}");
                }
            }
        }
    }
}

/// More rows of the build side than its store has room for at first (4 million): it grows, is filled anew, and the filter with it.
#[test]
fn a_store_that_grows() {
    let engine = Engine::new();
    let (each, probe_rows) = (2_100, 6_000);
    let sources = [multiples(each, 7, 0), multiples(probe_rows, 3, 0)].map(|rows| table(&rows));
    // Every row of the first table with every other: their numbers are the same.
    let Plan::Join(semi) =
        plan(JoinKind::ProbeSemi, Condition { keys: &[0], residual: false, null_equal: false }, false)
    else {
        panic!("a join")
    };
    let pairs = Join {
        build: scan(0),
        probe: scan(0),
        kind: JoinKind::Inner,
        keys: vec![(column(2), column(2))],
        ..*semi.clone()
    };
    let semi = Join { build: Plan::Join(Box::new(pairs)), ..*semi };
    let partners = (0..each).filter(|index| index * 7 % 3 == 0 && index * 7 / 3 < probe_rows).count();
    let options = options(DEVICES[0], &[]);
    for _ in 0..2 {
        let got = output(&engine, Plan::Join(Box::new(semi.clone())), &sources, &options).expect("a filter");
        let built = got.metrics.pipelines.iter().find(|pipeline| pipeline.name.contains("→ index (hash)"));
        assert_eq!(built.and_then(|index| index.rows_out), Some((each * each) as u64));
        assert_eq!(got.batch.num_rows(), partners);
        assert!(asks(&got));
    }
}

/// Of the rows that match nothing hardly any come to the join: as the interpreter counts them.
#[test]
fn what_matches_nothing_is_left_out() {
    let engine = Engine::new();
    let sides = [multiples(3_000, 7, 1), multiples(6_000, 3, 0)];
    let matches = (1..3_000_u64).filter(|index| index * 7 % 3 == 0 && index * 7 / 3 < 6_000).count() as u64;
    for keys in [&[0][..], &[3, 0]] {
        let condition = Condition { keys, residual: false, null_equal: false };
        let ways: [&[(&str, &str)]; 2] =
            [&[("runtime_filters", "off"), ("row_loop", "single")], &[("runtime_filters", "on")]];
        for way in ways {
            let plan = counted(narrowed(plan(JoinKind::Inner, condition, false), 10));
            let sources = [table(&sides[0]), table(&sides[1])];
            let options = options(DEVICES[2], &[way]);
            let got = output(&engine, plan, &sources, &options).expect("a way to ask");
            let asking = got.metrics.pipelines.iter().find(|pipeline| pipeline.name.contains("bloom filter"));
            let lanes = &asking.expect("a filter").lanes;
            // Rows come to the join where the filter leaves them, and to the sink where they have a match.
            let at = |step: &str| lanes.iter().find(|lanes| lanes.step.starts_with(step));
            let (left, found) = (at("join").expect("a join"), lanes.last().expect("a sink"));
            assert_eq!(found.rows(), matches, "{way:?}: {lanes:?}");
            assert!(at("bloom filter").is_none_or(|all| all.rows() == 6_000), "{way:?}: {lanes:?}");
            let mistakes = left.rows() - matches;
            assert!(mistakes * 20 < 6_000 - matches, "{way:?}: {mistakes}");
        }
    }
}

/// Two joins of one pipeline: the filter of the second is asked before the first.
#[test]
fn a_filter_is_asked_before_other_joins() {
    let engine = Engine::new();
    let sides = [rows(90, Spread::Sparse, 2), rows(60, Spread::Sparse, 1), rows(300, Spread::Sparse, 0)];
    for (kind, offset) in [(JoinKind::Inner, 4), (JoinKind::ProbeSemi, 0), (JoinKind::ProbeOuter, 4)] {
        let condition = Condition { keys: &[0], residual: false, null_equal: false };
        let Plan::Join(inner) = plan(kind, condition, false) else { panic!("a join") };
        let inner = Plan::Join(Box::new(Join { build: scan(1), probe: scan(2), ..*inner }));
        let keys = vec![(column(0), Expr::column(offset, DataType::Int64, true))];
        let (residual, null_equal, null_aware) = (None, false, false);
        let kind = JoinKind::Inner;
        let both = Join { residual, null_equal, null_aware, ..join_of(kind, scan(0), inner, keys) };
        let both = narrowed(Plan::Join(Box::new(both)), 5);
        let sources = sides.each_ref().map(|rows| table(rows));
        let mut plain = options(DEVICES[0], &[]);
        plain.variants.set("key_filter", "off").expect("an axis and its value");
        let plain = output(&engine, both.clone(), &sources, &plain).expect("no filter");
        assert!(!asks(&plain) && plain.batch.num_rows() > 0);
        for device in lanes() {
            for way in WAYS {
                for (macro_model, block_bytes) in
                    [(MacroModel::RunToFinish, None), (MacroModel::Batch, Some(1031))]
                {
                    let options = QueryOptions { macro_model, block_bytes, ..options(device, &[way]) };
                    let Some(got) = output(&engine, both.clone(), &sources, &options) else { continue };
                    assert_eq!(
                        rows_of(&got.batch, false),
                        rows_of(&plain.batch, false),
                        "{kind:?} {options:?}"
                    );
                    let probe = got.metrics.pipelines.iter().find(|one| one.name.contains("→ bloom filter"));
                    let name = &probe.expect("a filter").name;
                    let (filter, first) = (name.find("bloom filter"), name.find("join"));
                    assert!(filter < first, "{name}");
                }
            }
        }
    }
}

/// Rows come to the hash table in parts: the filter's words are in the same order.
#[test]
fn rows_in_parts() {
    let engine = Engine::new();
    let sides = [rows(200, Spread::Sparse, 2), rows(500, Spread::Sparse, 0)];
    let condition = Condition { keys: &[0], residual: false, null_equal: false };
    for kind in [JoinKind::Inner, JoinKind::BuildOuter, JoinKind::BuildAnti] {
        let kept: Vec<Row> = sides[0].iter().filter(|row| row.2 < 5).cloned().collect();
        let expected = expected(kind, condition, &kept, &sides[1]);
        for device in lanes() {
            for build in ["on", "off"] {
                let parts = [("join_parts", "16"), ("build_parts", build)];
                let options = options(device, &[&parts]);
                let plan = narrowed(plan(kind, condition, false), 5);
                let sources = sides.each_ref().map(|rows| table(rows));
                let got = output(&engine, plan, &sources, &options).expect("parts");
                assert_eq!(rows_of(&got.batch, false), expected, "{kind:?} {options:?}");
                assert!(asks(&got), "{options:?}");
            }
        }
    }
}

/// Both zeros are one key, NaN equals itself, whichever bits it has, and infinities are values like others.
#[test]
fn doubles_as_keys() {
    let engine = Engine::new();
    let build = [Some(-0.0), Some(f64::NAN), None, Some(f64::INFINITY), Some(f64::MIN_POSITIVE), Some(2.5)];
    let probe = (0..200).map(|row| match row % 9 {
        0 => Some(0.0),
        1 => Some(-0.0),
        2 => Some(f64::NAN),
        3 => None,
        4 => Some(f64::NEG_INFINITY),
        5 => Some(f64::INFINITY),
        6 => Some(2.5),
        _ => Some(f64::from(row)),
    });
    let columns = [("f", DataType::Float64, true)];
    let sources = [Float64Array::from_iter(build), Float64Array::from_iter(probe)]
        .map(|array| table_of(&columns, vec![Arc::new(array)]));
    let side = |source| scan_of(source, &columns);
    let key = || column_of(&columns, 0);
    for (null_equal, kind) in
        [(false, JoinKind::Inner), (true, JoinKind::Inner), (false, JoinKind::ProbeSemi)]
    {
        let join = Join { null_equal, ..join_of(kind, side(0), side(1), vec![(key(), key())]) };
        let plan = Plan::Join(Box::new(join));
        let lines = |options: &QueryOptions| {
            let got = output(&engine, plan.clone(), &sources, options).expect("keys of a table");
            let last = got.batch.columns().last().expect("a column");
            let line = |row| array_value_to_string(last, row).expect("a number");
            let mut lines: Vec<String> = (0..got.batch.num_rows()).map(line).collect();
            lines.sort();
            (lines, asks(&got))
        };
        let mut plain = options(DEVICES[0], &[]);
        plain.variants.set("key_filter", "off").expect("an axis and its value");
        let (expected, _) = lines(&plain);
        // Of nine rows five have a partner, and where NULLs are equal six, in a build side that has each once.
        assert!(expected.len() >= 200 / 9 * 5, "{expected:?}");
        for device in lanes() {
            assert_eq!(lines(&options(device, &[])), (expected.clone(), true), "{null_equal} {device:?}");
        }
    }
}

/// Keys of texts without a dictionary, and keys that are computed, have no filter, and the reason is given.
#[test]
fn what_a_filter_lacks() {
    let engine = Engine::new();
    let sources = [table(&rows(40, Spread::Sparse, 0)), table(&rows(60, Spread::Sparse, 1))];
    for keys in [&[1][..], &[0, 1]] {
        let condition = Condition { keys, residual: false, null_equal: false };
        let texts = [("text_join", "texts"), ("join0.key_filter", "bloom")];
        let options = options(DEVICES[0], &[&texts]);
        let error = try_run(&engine, plan(JoinKind::Inner, condition, false), &sources, options);
        let error = error.expect_err("no filter").to_string();
        assert!(error.contains("texts are hashed byte by byte"), "{error}");
    }
    let key = column_of(&KEY, 0);
    let negated = Expr { kind: ExprKind::Negate(Box::new(key.clone())), ..key.clone() };
    let join = join_of(JoinKind::Inner, scan_of(0, &KEY), scan_of(1, &KEY), vec![(key, negated)]);
    let options = options(DEVICES[0], &[&[("join0.key_filter", "bloom")]]);
    let sources = [keys_alone(0..10), keys_alone(0..20)];
    let error = try_run(&engine, Plan::Join(Box::new(join)), &sources, options);
    let error = error.expect_err("no filter").to_string();
    assert!(error.contains("keys are no columns of a table"), "{error}");
}
