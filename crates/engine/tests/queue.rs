//! Long ranges of matches that go through a queue give what warps give that take all of their rows' matches: of every kind of join, in
//! front of every kind of sink, through a queue that has room and through one that is full, in blocks that stream, and where the
//! stage has run before. And where one key has all matches, no warp is left with them.

use crate::common::*;
use crate::plans::{aggregate, filter, join, project};
use kelpie_engine::{PipelineMetrics, Transfer};

const COLUMNS: [Column; 6] = [
    ("k", DataType::Int64, true),
    ("n", DataType::Int32, false),
    ("s", DataType::Utf8, false),
    ("u", DataType::Utf8, true),
    // What is made of these is carried in 128 bits.
    ("d", DataType::Decimal128 { precision: 20, scale: 2 }, false),
    ("f", DataType::Float64, true),
];

/// `k`: a key, of which one has half of the rows, another a quarter, some are NULL, and the rest are of their own; `n`: `0..rows`; `s`,
/// `u`: texts; `d`: decimals; `f`: doubles, some NULL.
fn skewed(rows: usize) -> Arc<dyn TableSource> {
    let key = |row: usize| match row * 5 % 8 {
        0..4 => Some(1),
        4 | 5 => Some(2),
        6 => None,
        _ => Some(row as i64),
    };
    let all = 0..rows;
    let columns: Vec<ArrayRef> = vec![
        maybe_longs(all.clone().map(key)),
        ints(all.clone().map(|row| row as i32)),
        texts(all.clone().map(|row| ["x", "", "zß", "long text"][row % 4])),
        maybe_texts(all.clone().map(|row| key(row).map(|key| format!("key é {key}")))),
        decimals(all.clone().map(|row| row as i128 * 1_000_000_007), 20, 2),
        Arc::new(Float64Array::from_iter(all.map(|row| (row % 5 > 0).then_some(row as f64 / 4.0)))),
    ];
    table_of(&COLUMNS, columns)
}

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

/// The rows of a table whose number is below.
fn first(source: usize, below: i128) -> Plan {
    filter(scan(source), 1, CompareOp::Lt, below)
}

/// Plans over a build side (source 1) and a probe side (source 0).
fn plans() -> Vec<(String, Plan)> {
    use AggregateFunction::{Count, Max, Min, Sum};
    use JoinKind::*;
    let sums = [(Count, None, false), (Sum, Some(1), false), (Min, Some(2), false), (Max, Some(9), false)];
    let mut plans = Vec::new();
    for kind in [Inner, BuildOuter, ProbeOuter, FullOuter, ProbeSemi] {
        for (keys, residual) in [(&[(0, 0)][..], false), (&[(0, 0)], true), (&[(3, 3), (0, 0)], false)] {
            let joined = join(kind, first(1, 70), first(0, 50), keys, residual);
            plans.push((format!("{kind:?} on {keys:?}, {residual}"), joined));
        }
    }
    let joined = |kind| join(kind, scan(1), first(0, 90), &[(0, 0)], false);
    plans.push(("every pair".into(), join(Inner, first(1, 40), first(0, 30), &[], true)));
    for kind in [Inner, ProbeOuter] {
        plans.push((format!("groups by text, {kind:?}"), aggregate(joined(kind), &[2], &sums)));
        plans.push((format!("groups by both sides, {kind:?}"), aggregate(joined(kind), &[3, 7], &sums[..2])));
        plans.push((format!("sums, {kind:?}"), aggregate(joined(kind), &[], &sums)));
        plans.push((
            format!("a least of NULLs, {kind:?}"),
            aggregate(joined(kind), &[], &[(Min, Some(5), false)]),
        ));
    }
    // The rows of groups stand on what the groups have: texts, 128 bits, doubles, and whether they are NULL.
    let group_sums =
        [(Max, Some(3), false), (Max, Some(4), false), (Min, Some(5), false), (Sum, Some(1), false)];
    let groups = |keys: &[usize]| aggregate(first(0, 60), keys, &group_sums);
    plans.push(("groups that meet rows".into(), join(Inner, scan(1), groups(&[0, 2]), &[(0, 0)], false)));
    plans.push(("groups that may".into(), join(ProbeOuter, scan(1), groups(&[0]), &[(0, 0)], false)));
    // What is computed before the join is carried as it is.
    let computed = project(first(0, 60), &[0, 1, 2, 3, 4, 5], 1);
    plans.push(("computed columns".into(), join(Inner, scan(1), computed, &[(0, 0)], true)));
    let twice = join(
        Inner,
        first(1, 40),
        join(Inner, first(1, 40), first(0, 20), &[(0, 0)], false),
        &[(0, 6)],
        false,
    );
    plans.push(("two expansions".into(), aggregate(twice, &[2, 8], &sums[..2])));
    let semi = join(ProbeSemi, first(1, 80), first(0, 70), &[(0, 0)], true);
    plans.push(("behind an existence".into(), join(Inner, first(1, 50), semi, &[(0, 0)], false)));
    // All of its rows would be too many for a result that has room for as many as there can be.
    let inside = join(Inner, joined(Inner), first(0, 9), &[(1, 1)], false);
    plans.push(("in a build side".into(), aggregate(inside, &[2, 12], &sums[..2])));
    plans
}

/// The interpreter, with warps of so many lanes in so many blocks.
fn simt(lanes: u32, blocks: u32, variants: &[(&str, &str)]) -> QueryOptions {
    // The rules would build the side without frequent keys, past which rows have few matches.
    in_blocks(lanes, blocks, &[&[("build_side", "written")], variants].concat())
}

fn queued(output: &QueryOutput) -> u64 {
    output.metrics.pipelines.iter().map(|pipeline| pipeline.queued).sum()
}

#[test]
fn queued_matches_are_the_same_matches() {
    let (engine, plans) = (Engine::new(), plans());
    let tables = [[0, 5], [1, 90], [170, 90]].map(|sizes| sizes.map(skewed));
    let mut cases = Vec::new();
    for size in 0..tables.len() {
        for number in 0..plans.len() {
            let matches = ["0", "2", "32"];
            let ways = matches.iter().flat_map(|matches| {
                let ways = [
                    (4, 2, "packed", "off"),
                    (8, 1, "warp", "last"),
                    (32, 2, "packed", "all"),
                    (3, 2, "warp", "off"),
                    (8, 2, "staged", "off"),
                    (32, 1, "staged", "all"),
                ];
                ways.map(|way| (*matches, way))
            });
            for (matches, (lanes, blocks, expansion, refill)) in ways {
                let variants =
                    [("queue_matches", matches), ("expansion", expansion), ("lane_refill", refill)];
                cases.push((size, number, matches, simt(lanes, blocks, &variants)));
            }
        }
    }
    let cases = covering("queued matches", cases, 100, |(size, number, matches, options)| {
        facets_and(options, &[&(number, *size == 2), size, &(matches, options.simt_lanes)])
    });
    let (mut with, mut without, mut expected) = (0, 0, HashMap::new());
    for (size, number, matches, options) in cases {
        let (sources, (name, plan)) = (&tables[size], &plans[number]);
        let expected = expected
            .entry((size, number))
            .or_insert_with(|| rows_of(&run(&engine, plan, sources, cpu()).batch, false));
        let output = run(&engine, plan, sources, &options);
        assert_eq!(rows_of(&output.batch, false), *expected, "{name}: {options:?}, {size}");
        let pieces = queued(&output);
        assert!(matches != "0" || pieces == 0, "{name}: {pieces} pieces");
        match pieces {
            0 => without += 1,
            _ => with += 1,
        }
    }
    assert!(with >= floor(200) && without >= floor(200), "{with} with a queue, {without} without");
}

/// On a GPU, whose warps are in as many blocks as share out the rows.
#[test]
fn a_gpu_queues_the_same_matches() {
    let Some(device) = gpu() else { return };
    let (engine, sources) = (Engine::new(), [skewed(2000), skewed(900)]);
    let mut pieces = 0;
    for (index, (name, plan)) in plans().into_iter().enumerate() {
        let expected = rows_of(&run(&engine, &plan, &sources, cpu()).batch, false);
        for (number, expansion) in ["packed", "warp", "staged"].into_iter().enumerate() {
            let refill = ["off", "last", "all"][(index + number) % 3];
            let variants = [("queue_matches", "2"), ("expansion", expansion), ("lane_refill", refill)];
            let options = QueryOptions { device, ..simt(32, 1 + index as u32 % 3, &variants) };
            let output = run(&engine, &plan, &sources, &options);
            assert_eq!(rows_of(&output.batch, false), expected, "{name}: {variants:?}");
            pieces += queued(&output);
        }
    }
    assert!(pieces > 0);
}

/// Warps of one lane have nobody to share with, and of two hardly anybody.
#[test]
fn narrow_warps() {
    let engine = Engine::new();
    let sources = [skewed(170), skewed(90)];
    for (name, plan) in plans().into_iter().step_by(4) {
        let expected = rows_of(&run(&engine, &plan, &sources, cpu()).batch, false);
        for lanes in [1, 2] {
            let output = run(&engine, &plan, &sources, simt(lanes, 3, &[("queue_matches", "2")]));
            assert_eq!(rows_of(&output.batch, false), expected, "{name} in warps of {lanes}");
            assert!(lanes > 1 || queued(&output) == 0, "{name}");
        }
    }
}

/// What has no room in the queue is its warp's; and the next time there is room.
#[test]
fn a_full_queue_leaves_rows_to_their_warps() {
    let sources = [skewed(120), skewed(200)];
    let joined = join(JoinKind::Inner, scan(1), scan(0), &[(0, 0)], false);
    let plan = aggregate(joined, &[2, 8], &[(AggregateFunction::Count, None, false)]);
    for lanes in [2, 4] {
        let engine = Engine::new();
        let expected = rows_of(&run(&engine, &plan, &sources, cpu()).batch, false);
        let mut pieces = Vec::new();
        for _ in 0..4 {
            let output = run(&engine, &plan, &sources, simt(lanes, 1, &[("queue_matches", "2")]));
            assert_eq!(rows_of(&output.batch, false), expected, "in warps of {lanes}");
            pieces.push(queued(&output));
        }
        assert!(pieces[0] > 0 && pieces[1] > 2 * pieces[0], "{pieces:?}");
    }
}

/// A launch that drains finds a table too small, and all runs again; and what fails there fails.
#[test]
fn drains_grow_and_fail() {
    let engine = Engine::new();
    let sources = [skewed(2), skewed(30_000)];
    let joined = join(JoinKind::Inner, scan(1), scan(0), &[(0, 0)], false);
    let plan = aggregate(joined.clone(), &[1, 2], &[(AggregateFunction::Count, None, false)]);
    let expected = rows_of(&run(&engine, &plan, &sources, cpu()).batch, false);
    // Of the first table's slots a quarter may be taken, which is fewer than there are groups.
    let table = [("group_table", "hash"), ("slot_fill", "25"), ("group_parts", "1")];
    let options = simt(8, 2, &[&[("queue_matches", "32")], &table[..]].concat());
    for run_number in 0..3 {
        let output = run(&engine, &plan, &sources, &options);
        assert_eq!(rows_of(&output.batch, false), expected);
        let probe = output.metrics.pipelines.iter().find(|pipeline| pipeline.queued > 0).expect("a queue");
        assert!(run_number > 0 || probe.launches > 2, "{}", probe.launches);
    }
    // A match of a frequent key has the number 8,996.
    let number = Box::new(Expr::column(1, DataType::Int32, false));
    let last = Box::new(literal(8996, DataType::Int32));
    let arithmetic =
        |op, a, b| Expr { kind: ExprKind::Arithmetic(op, a, b), data_type: DataType::Int32, nullable: false };
    let difference = Box::new(arithmetic(ArithmeticOp::Subtract, number, last.clone()));
    let exprs = vec![arithmetic(ArithmeticOp::Divide, last, difference)];
    let quotients = Plan::Project { input: Box::new(joined), exprs, names: vec!["q".into()] };
    let plan = aggregate(quotients, &[], &[(AggregateFunction::Sum, Some(0), false)]);
    for _ in 0..2 {
        let error = try_run(&engine, &plan, &sources, &options).expect_err("a number is zero");
        assert!(matches!(error, EngineError::Query(QueryError::DivideByZero)), "{error:?}");
    }
}

/// Columns that stream: each block leaves pieces of its own.
#[test]
fn blocks_have_queues_of_their_own() {
    let engine = Engine::new();
    let sources = [skewed(6000), skewed(40)];
    let joined = join(JoinKind::Inner, scan(1), scan(0), &[(0, 0)], false);
    let plan = aggregate(joined, &[3, 8], &[(AggregateFunction::Count, None, false)]);
    let expected = rows_of(&run(&engine, &plan, &sources, cpu()).batch, false);
    for transfer in [Transfer::Copy, Transfer::ZeroCopy] {
        let options = QueryOptions {
            macro_model: MacroModel::Batch,
            block_bytes: Some(1),
            transfer,
            ..simt(8, 2, &[("queue_matches", "2")])
        };
        for _ in 0..3 {
            let output = run(&engine, &plan, &sources, &options);
            assert_eq!(rows_of(&output.batch, false), expected, "{transfer:?}");
            let streamed = output.metrics.pipelines.iter().find(|pipeline| pipeline.blocks > 1);
            let streamed = streamed.expect("a pipeline in blocks");
            assert!(streamed.queued > 0 && u64::from(streamed.launches) > streamed.blocks, "{streamed:?}");
        }
    }
}

/// The sum of the probe side's keys over a join on the only column of two tables.
fn sum_of_matches() -> Plan {
    let joined = join(JoinKind::Inner, scan_of(0, &KEY), scan_of(1, &KEY), &[(0, 0)], false);
    aggregate(joined, &[], &[(AggregateFunction::Sum, Some(1), false)])
}

fn probe(output: &QueryOutput) -> &PipelineMetrics {
    let probes = |pipeline: &&PipelineMetrics| pipeline.name.contains("join");
    output.metrics.pipelines.iter().find(probes).expect("a probe side")
}

/// One key has all matches, or one of many keys nearly all: the warp with most work has hardly more than the others.
#[test]
fn a_frequent_key_is_no_warps_alone() {
    let (build, warps) = (12_000, 6);
    let one = [keys_alone((0..build).map(|_| 7)), keys_alone([7])];
    let many = |row: i64| if row % 4 == 0 { row % 400 } else { 7 };
    let many = [keys_alone((0..build).map(many)), keys_alone(0..400)];
    for sources in [one, many] {
        let steps = |matches: &str| {
            let options = QueryOptions {
                device: DeviceChoice::Simt,
                simt_lanes: 8,
                variants: force([("queue_matches", matches), ("predication", "branches")]),
                ..QueryOptions::default()
            };
            let output = run(&Engine::new(), sum_of_matches(), &sources, &options);
            let expected = rows_of(&run(&Engine::new(), sum_of_matches(), &sources, cpu()).batch, false);
            assert_eq!(rows_of(&output.batch, false), expected);
            let probe = probe(&output);
            let sink = probe.lanes.last().expect("a sink");
            (probe.most_warp_steps.expect("steps"), sink.rows(), sink.mean(), probe.queued)
        };
        let (alone, rows, ..) = steps("0");
        for matches in ["32", "64", "128", "256", "1024"] {
            let (most, rows_of_queue, lanes, pieces) = steps(matches);
            println!("{matches}: {most} of {alone} steps, {lanes:.1} lanes, {pieces} pieces");
            assert_eq!(rows_of_queue, rows, "each match comes once");
            assert!(pieces >= warps && lanes > 7.5, "{matches}: {pieces} pieces, {lanes} lanes");
            // Six warps share what one had; what a warp does besides is little.
            assert!(most * (warps - 1) < alone * 2, "{matches}: {most} of {alone} steps");
        }
    }
}

/// Where no range is long, nothing is launched for a queue, whether launches are waited for or not.
#[test]
fn an_empty_queue_costs_no_launch() {
    let engine = Engine::new();
    let sources = [keys_alone((0..600).map(|row| row / 2)), keys_alone(0..300)];
    for run_number in 0..3 {
        let output = run(&engine, sum_of_matches(), &sources, simt(8, 2, &[("queue_matches", "2")]));
        let probe = probe(&output);
        assert_eq!((probe.launches, probe.queued), (1, 0), "run {run_number}");
        assert_eq!(output.metrics.deferred > 0, run_number > 0);
    }
}

/// Other data under the same program: what was empty is not, and the other way round.
#[test]
fn what_waits_though_nothing_did_is_noticed() {
    let engine = Engine::new();
    // The same values stored alike; of the last kind one key has most rows.
    let rows = |kind: i64| match kind {
        0 => keys_alone((0..600).map(|row| row / 2)),
        1 => keys_alone((0..600).map(|row| if row % 3 == 0 { row / 2 } else { 299 - row % 2 })),
        2 => keys_alone((0..600).map(|row| if row % 50 == 0 { row / 2 } else { 299 * (row % 2) })),
        // Many times as many pieces as of the others.
        _ => keys_alone((0..600).map(|row| row % 12 * 27 + row / 588 * 2)),
    };
    let mut deferred = 0;
    for kind in [0, 0, 1, 1, 0, 2, 2, 3, 3, 3, 0, 0, 1, 3, 2, 3, 0, 0] {
        let sources = [rows(kind), keys_alone(0..300)];
        let expected = rows_of(&run(&engine, sum_of_matches(), &sources, cpu()).batch, false);
        let output = run(&engine, sum_of_matches(), &sources, simt(4, 2, &[("queue_matches", "32")]));
        assert_eq!(rows_of(&output.batch, false), expected, "{kind}");
        assert_eq!(queued(&output) > 0, kind > 0, "{kind}");
        deferred += u64::from(output.metrics.deferred > 0);
    }
    assert!(deferred > 3, "{deferred}");
}

/// The rule takes the queue where a build side is large, and its keys are not unique; and never where few rows are wanted.
#[test]
fn the_rule_is_for_large_build_sides() {
    let chosen = |build: i64, plan: &Plan| {
        let sources = [keys_alone((0..build).map(|row| row / 2)), keys_alone(0..100)];
        let options = QueryOptions { device: DeviceChoice::Simt, ..QueryOptions::default() };
        let output = run(&Engine::new(), plan, &sources, &options);
        let of_axis = output.metrics.choices().filter(|choice| choice.axis.name == "queue_matches");
        of_axis.map(|choice| choice.value).collect::<Vec<_>>()
    };
    assert_eq!(chosen(5000, &sum_of_matches()), ["64"]);
    assert_eq!(chosen(500, &sum_of_matches()), ["0"]);
    let Plan::Aggregate { input, .. } = sum_of_matches() else { panic!("an aggregation") };
    let few = Plan::Limit { input, skip: 0, fetch: Some(3) };
    assert_eq!(chosen(5000, &few), ["0"]);
}
