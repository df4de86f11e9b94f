//! Lanes that exchange rows give what lanes that keep theirs give: filters that keep few rows or all, joins in which one key
//! has nearly all matches, NULL keys, texts, and hardly any rows; in warps of several widths, and in few of them, so that
//! each has many turns.

use crate::common::*;
use crate::plans::{aggregate, filter, join, keyed, project, scan};
use kelpie_engine::{LaneProfile, Profile};

/// As `plans::table`, but `k`, the key of joins, is skewed: three of four rows have 1, one of eight is NULL, and the others
/// have keys of their own.
fn skewed(rows: usize) -> Arc<dyn TableSource> {
    let key = |row: usize| match row * 5 % 8 {
        0..6 => Some(1),
        6 => None,
        _ => Some(row as i64),
    };
    keyed(rows, key, |row| key(row).map(|key| format!("unique é {key}")))
}

/// Rows of which one in `every` is kept, more or less; they lie far apart.
fn few(source: usize, below: i128) -> Plan {
    let input = project(scan(source), &[0, 1, 2, 3, 4], 1);
    filter(filter(input, 5, CompareOp::Lt, below), 1, CompareOp::Ge, 0)
}

fn plans() -> Vec<(String, Plan)> {
    use AggregateFunction::{Count, Max, Min, Sum};
    use JoinKind::*;
    let sums = [(Count, None, false), (Sum, Some(1), false), (Min, Some(0), false), (Max, Some(3), false)];
    let mut plans = Vec::new();
    for below in [-1, 2, 30, 150, 10_000] {
        plans.push((format!("rows below {below}"), few(0, below)));
        plans.push((format!("groups of rows below {below}"), aggregate(few(0, below), &[2], &sums)));
        plans.push((format!("sums of rows below {below}"), aggregate(few(0, below), &[], &sums[..2])));
    }
    let kinds = [Inner, BuildOuter, ProbeOuter, FullOuter, ProbeSemi, ProbeAnti, ProbeMark, BuildSemi];
    for kind in kinds {
        for (keys, residual) in
            [(&[(0, 0)][..], false), (&[(0, 0)], true), (&[(3, 3)], false), (&[(1, 1)], false), (&[], true)]
        {
            let joined = join(kind, few(1, 60), few(0, 120), keys, residual);
            plans.push((format!("{kind:?} on {keys:?}, {residual}"), joined));
        }
    }
    let stars = |kind| {
        join(kind, few(1, 40), join(Inner, few(1, 90), few(0, 200), &[(1, 1)], false), &[(1, 7)], false)
    };
    plans.push(("two joins".into(), stars(Inner)));
    plans.push(("a join, and one that keeps all".into(), stars(ProbeOuter)));
    plans.push(("groups behind joins".into(), aggregate(stars(Inner), &[2], &sums)));
    let twice =
        join(Inner, few(1, 50), join(Inner, few(1, 90), few(0, 90), &[(0, 0)], false), &[(0, 6)], false);
    plans.push(("groups behind expansions".into(), aggregate(twice, &[2, 8], &sums)));
    plans
}

/// What is forced, and in warps of how many lanes.
fn ways() -> Vec<(Vec<(&'static str, &'static str)>, u32)> {
    let mut ways = Vec::new();
    for (number, refill) in ["filters", "all", "last", "estimated"].into_iter().enumerate() {
        for (index, threshold) in ["1", "8", "16", "24", "28", "32"].into_iter().enumerate() {
            let lanes = [4, 8, 32, 3][(index + number) % 4];
            ways.push((vec![("lane_refill", refill), ("refill_threshold", threshold)], lanes));
            let shared = ("refill_buffer", "shared");
            ways.push((vec![("lane_refill", refill), ("refill_threshold", threshold), shared], lanes));
        }
    }
    for (index, expansion) in ["warp", "packed", "staged"].into_iter().enumerate() {
        for (number, refill) in ["off", "last", "all"].into_iter().enumerate() {
            for more in 0..2 {
                let lanes = [4, 8, 32, 3, 5][(index + 2 * number + more) % 5];
                let rows = [("index_rows", "buckets"), ("join", "hash")];
                let forced = [("lane_refill", refill), ("expansion", expansion), rows[more]];
                ways.push((forced.into(), lanes));
            }
        }
    }
    for (number, refill) in ["off", "last", "all"].into_iter().enumerate() {
        for (index, threshold) in ["1", "8", "16", "24", "28", "32"].into_iter().enumerate() {
            let lanes = [4, 8, 32, 3, 5][(index + 2 * number) % 5];
            let rows = [("index_rows", "buckets"), ("join", "hash")][(index + number) % 2];
            let forced =
                [("expansion", "refill"), ("refill_threshold", threshold), ("lane_refill", refill), rows];
            ways.push((forced.into(), lanes));
        }
    }
    for (number, expansion) in ["lane", "warp", "packed", "refill", "staged"].into_iter().enumerate() {
        for (index, refill) in ["off", "filters", "all"].into_iter().enumerate() {
            let lanes = [4, 8, 32, 3][(index + number) % 4];
            let rows = [("index_rows", "buckets"), ("join", "hash")][index % 2];
            let forced =
                [("live_columns", "values"), ("expansion", expansion), ("lane_refill", refill), rows];
            ways.push((forced.into(), lanes));
        }
    }
    ways
}

#[test]
fn exchanged_rows_are_the_same_rows() {
    let (engine, plans, ways) = (Engine::new(), plans(), ways());
    let tables = [[0, 5], [5, 0], [1, 1], [170, 60]].map(|sizes| sizes.map(skewed));
    let mut cases = Vec::new();
    for size in 0..tables.len() {
        for plan in 0..plans.len() {
            // Few rows are in one turn whatever is forced.
            let ways = (0..ways.len()).filter(|way| size == 3 || way % 3 == 0);
            cases.extend(ways.map(|way| [size, plan, way]));
        }
    }
    // Each kind of plan has rows of each number.
    let kind = |plan: usize| plans[plan].0.split(' ').next();
    let cases = covering("exchanged rows", cases, 150, |&[size, plan, way]| {
        vec![format!("{size} {:?}", kind(plan)), format!("plan {plan}"), format!("way {way}")]
    });
    let (mut exchanged, mut shared, mut walked, mut staged) = (0, 0, 0, 0);
    let mut expected = HashMap::new();
    for [size, number, way] in cases {
        let ((name, plan), (variants, lanes)) = (&plans[number], &ways[way]);
        let sources = &tables[size];
        let expected = expected.entry([size, number]).or_insert_with(|| rows(&engine, plan, sources, cpu()));
        // One block has all rows: its warps have many turns.
        let options = in_blocks(*lanes, 1 + way as u32 % 2, variants);
        let output = run(&engine, plan, sources, &options);
        let has = |forced| has(&output, forced);
        exchanged += usize::from(variants.iter().all(|forced| has(*forced)));
        shared += usize::from(has(("expansion", "packed")) || has(("expansion", "warp")));
        walked += usize::from(has(("expansion", "refill")));
        staged += usize::from(has(("expansion", "staged")));
        let rows = rows_of(&output.batch, false);
        assert_eq!(rows, *expected, "{name}: {variants:?} in warps of {lanes}, {size}");
    }
    let floors = [1000, 300, 300, 150].map(floor);
    let all = [exchanged, shared, walked, staged];
    assert!(all.iter().zip(floors).all(|(count, least)| *count >= least), "{all:?}");
}

/// Runs a plan in one block of the interpreter, in warps of 32 lanes.
/// The same on a GPU, of each plan in some ways, as each kernel is compiled for a while.
#[test]
fn a_gpu_exchanges_the_same_rows() {
    let Some(device) = gpu() else { return };
    let (engine, sources) = (Engine::new(), [700, 60].map(skewed));
    let mut exchanged = 0;
    for (number, (name, plan)) in plans().into_iter().enumerate() {
        let expected = rows(&engine, &plan, &sources, cpu());
        for (index, (variants, _)) in ways().into_iter().enumerate() {
            if (index + number) % 17 != 0 {
                continue;
            }
            let options = QueryOptions { device, ..in_blocks(32, 1 + index as u32 % 2, &variants) };
            let output = run(&engine, &plan, &sources, &options);
            exchanged += usize::from(variants.iter().all(|forced| has(&output, *forced)));
            assert_eq!(rows_of(&output.batch, false), expected, "{name}: {variants:?}");
        }
    }
    assert!(exchanged > 0);
}

fn profiled(plan: &Plan, sources: &[Arc<Table>], variants: &[(&str, &str)]) -> QueryOutput {
    run(&Engine::new(), plan, sources, in_blocks(32, 1, variants))
}

/// The lanes that have rows behind a filter which keeps 9 % of them, on average (DogQC, section 5.2).
#[test]
fn refilled_warps_are_nearly_full() {
    let rows = 20_000;
    // Rows whose number, scattered, is below 9 % of all.
    let sources = [keys_alone((0..rows as i64).map(|row| row * 7919 % rows as i64))];
    let scan = scan_of(0, &KEY);
    let kept = filter(scan.clone(), 0, CompareOp::Lt, i128::from(rows as i64 * 9 / 100));
    let plan = aggregate(kept, &[], &[(AggregateFunction::Sum, Some(0), false)]);
    let mean = |variants: &[(&str, &str)]| {
        let output = profiled(&plan, &sources, variants);
        let lanes = &output.metrics.pipelines[0].lanes;
        let sink = lanes.last().expect("a sink");
        assert_eq!((lanes[0].rows(), sink.rows()), (rows, rows * 9 / 100), "{lanes:?}");
        sink.mean()
    };
    let off = [("row_loop", "single"), ("predication", "branches"), ("lane_refill", "off")];
    assert!(mean(&off) < 4.0, "{}", mean(&off));
    for (threshold, least) in [("16", 16.0), ("24", 24.0), ("28", 28.0), ("32", 31.0)] {
        for refill in ["filters", "estimated"] {
            let on = [("row_loop", "single"), ("lane_refill", refill), ("refill_threshold", threshold)];
            assert!(mean(&on) >= least, "{refill} {threshold}: {}", mean(&on));
        }
    }
    // Where most rows are kept lanes are not refilled by what is thought of them, and it is refused to force that.
    let kept = filter(scan, 0, CompareOp::Lt, i128::from(rows as i64 * 9 / 10));
    let plan = aggregate(kept, &[], &[(AggregateFunction::Sum, Some(0), false)]);
    let output = profiled(&plan, &sources, &[("row_loop", "single"), ("lane_refill", "estimated")]);
    assert!(!output.metrics.choices().any(|choice| choice.value == "estimated"));
}

/// The sum of the probe side's keys over a join on the only column; and the lanes that have rows at the sum, on average.
fn mean_behind_join(matches: &[usize], variants: &[(&str, &str)]) -> f64 {
    let build = matches.iter().enumerate().flat_map(|(key, count)| (0..*count).map(move |_| key as i64));
    // Rows of a key do not stand side by side.
    let mut build: Vec<i64> = build.collect();
    build.sort_by_key(|key| key.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let sources = [keys_alone(build), keys_alone(0..matches.len() as i64)];
    let joined = join(JoinKind::Inner, scan_of(0, &KEY), scan_of(1, &KEY), &[(0, 0)], false);
    let plan = aggregate(joined, &[], &[(AggregateFunction::Sum, Some(1), false)]);
    // The rules would build the side of unique keys, past which every row has one match.
    let mut forced = vec![("predication", "branches"), ("build_side", "written")];
    forced.extend(variants);
    let output = profiled(&plan, &sources, &forced);
    let expected: usize = matches.iter().enumerate().map(|(key, count)| key * count).sum();
    assert_eq!(rows_of(&output.batch, false), [expected.to_string()], "{variants:?}");
    let probe = output.metrics.pipelines.last().filter(|last| last.lanes.len() > 1);
    let probe = probe.or_else(|| output.metrics.pipelines.iter().rev().nth(1)).expect("a probe side");
    let sink = probe.lanes.last().expect("a sink");
    assert_eq!(sink.rows(), matches.iter().sum::<usize>() as u64, "{}: {:?}", probe.name, probe.lanes);
    sink.mean()
}

/// Each key of the build side 32 times, and keys by Zipf's law with z = 0.75 (DogQC, section 5.1).
#[test]
fn matches_fill_warps() {
    let packed = [("expansion", "packed"), ("lane_refill", "all")];
    let even = vec![32; 640];
    let law = |count: usize, rows: f64| {
        let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-0.75)).collect();
        let all: f64 = weights.iter().sum();
        let mut keys: Vec<usize> =
            weights.iter().map(|weight| (weight / all * rows).round() as usize).collect();
        // Frequent keys are not neighbours.
        keys.sort_by_key(|count| count.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7);
        keys
    };
    let zipf = law(4000, 16_000.0);
    let means = |matches: &[usize]| {
        let expansion = |lanes| [("expansion", lanes)];
        let [lane, warp, dealt, staged] = ["lane", "warp", "packed", "staged"].map(expansion);
        [&lane[..], &warp, &dealt, &packed, &staged].map(|variants| mean_behind_join(matches, variants))
    };
    let [lane, warp, dealt, refilled, staged] = means(&even);
    assert!(
        lane > 31.9 && warp > 31.9 && dealt > 31.9 && refilled > 31.9 && staged > 31.9,
        "{lane} {warp} {dealt} {refilled} {staged}"
    );
    let [lane, warp, dealt, refilled, staged] = means(&zipf);
    println!(
        "lanes with rows: {lane:.1}, by leaders {warp:.1}, packed {dealt:.1}, refilled {refilled:.1}, staged {staged:.1}"
    );
    assert!(
        lane < 8.0 && warp < 16.0 && dealt > 26.0 && refilled >= 28.0 && staged > 30.0,
        "{lane} {warp} {dealt} {refilled} {staged}"
    );
    walks_fill_warps(&even, &law(10_000, 40_000.0));
}

/// Lanes that take other rows while one walks a long range (DogQC, section 5.3). One warp has the range of the frequent key among many
/// others; of several warps one is left with it when all the others are through, which is the paper's pipeline flush.
fn walks_fill_warps(even: &[usize], zipf: &[usize]) {
    let mean = |matches: &[usize], expansion, threads, threshold| {
        let shape = [("block_threads", threads), ("refill_threshold", threshold)];
        mean_behind_join(matches, &[("expansion", expansion), shape[0], shape[1]])
    };
    let all = mean(even, "refill", "32", "28");
    assert!(all > 31.9, "{all}");
    for threads in ["32", "128", "256"] {
        let [lane, by_8, by_16, by_28] =
            [("lane", "28"), ("refill", "8"), ("refill", "16"), ("refill", "28")]
                .map(|(expansion, threshold)| mean(zipf, expansion, threads, threshold));
        println!(
            "{threads} threads: {lane:.1}, refilled at 8 lanes {by_8:.1}, at 16 {by_16:.1}, at 28 {by_28:.1}"
        );
        assert!(by_28 > 1.5 * lane && by_28 >= by_16 && by_16 >= by_8 && by_8 > lane);
        if threads == "32" {
            assert!(by_28 > 24.0 && by_16 > 20.0 && by_8 > 16.0, "{by_8} {by_16} {by_28}");
        }
    }
}

/// What kernels count at their marks is what the interpreter counts there itself (DogQC, section 2.1), and changes no answer, with the
/// meter too.
#[test]
fn kernels_count_what_the_interpreter_counts() {
    let sources = [170, 60].map(skewed);
    let mut compared = 0;
    let all = plans().into_iter().enumerate();
    let kind = |name: &str| name.split(' ').next().map(str::to_string);
    for (index, (name, plan)) in covering("kernels count", all, 20, |(_, (name, _))| vec![kind(name)]) {
        let (variants, lanes) = ways().swap_remove(index % ways().len());
        for variants in [force(&variants), Forced::default()] {
            // Of a new engine: the interpreter's order of warps depends on how often it has launched.
            let counted = |profile, meter| {
                let options = QueryOptions {
                    device: DeviceChoice::Simt,
                    simt_lanes: lanes,
                    variants: variants.clone(),
                    profile,
                    meter,
                    ..QueryOptions::default()
                };
                let output = run(&Engine::new(), &plan, &sources, &options);
                let pipelines = output.metrics.pipelines.into_iter();
                let lanes: Vec<_> = pipelines.map(|pipeline| (pipeline.name, pipeline.lanes)).collect();
                (rows_of(&output.batch, false), lanes)
            };
            let by_interpreter = counted(Profile::Off, false);
            assert_eq!(counted(Profile::Lanes, false), by_interpreter, "{name}, {variants:?}, {lanes} lanes");
            compared += by_interpreter.1.iter().map(|(_, lanes)| lanes.len()).sum::<usize>();
            if index % 8 == 0 {
                // The meter changes the order of warps, and with it who comes together.
                let (rows, lanes) = counted(Profile::Lanes, true);
                let came = |lanes: &[(String, Vec<LaneProfile>)]| -> Vec<Vec<u64>> {
                    lanes.iter().map(|(_, steps)| steps.iter().map(LaneProfile::rows).collect()).collect()
                };
                assert_eq!(rows, by_interpreter.0, "{name}, metered");
                assert_eq!(came(&lanes), came(&by_interpreter.1), "{name}, metered");
            }
        }
    }
    assert!(compared >= floor(400), "{compared}");
}

/// A CPU's warps have one lane, which nobody counts; a GPU's kernels count.
#[test]
fn other_devices_count_what_they_have() {
    let sources = [20_000, 60].map(skewed);
    let plan = aggregate(few(0, 150), &[], &[(AggregateFunction::Count, None, false)]);
    let engine = Engine::new();
    let profiled = |device| {
        let variants = force([("row_loop", "single"), ("predication", "branches"), ("lane_refill", "off")]);
        let options = QueryOptions { device, variants, profile: Profile::Lanes, ..QueryOptions::default() };
        run(&engine, &plan, &sources, &options)
    };
    let cpu = profiled(DeviceChoice::Cpu);
    assert!(cpu.metrics.pipelines.iter().all(|pipeline| pipeline.lanes.is_empty()));
    let mut devices = vec![DeviceChoice::Simt];
    if kelpie_engine::testing::has_cuda(&engine) {
        devices.push(DeviceChoice::Cuda);
    }
    for device in devices {
        let output = profiled(device);
        assert_eq!(rows_of(&output.batch, false), rows_of(&cpu.batch, false), "{device:?}");
        let lanes = &output.metrics.pipelines[0].lanes;
        let sink = lanes.last().expect("a sink");
        assert_eq!(rows_of(&output.batch, false), [sink.rows().to_string()], "{device:?}: {lanes:?}");
        assert!(lanes[0].rows() == 20_000 && lanes[0].by_lanes.len() == 32, "{device:?}: {lanes:?}");
        assert!(sink.warps() <= sink.rows() && lanes[0].warps() >= 20_000 / 32, "{device:?}: {lanes:?}");
    }
}
