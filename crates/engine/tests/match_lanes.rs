//! Lanes that take other rows between the steps of matching texts keep the rows that lanes keep which match their own to the end: of all
//! lengths, NULL, with characters of several bytes, beside other conditions, behind and before joins, in warps of several widths; and
//! their warps are nearly full.

use crate::common::*;
use crate::plans::{aggregate, filter, join, like};
use crate::texts;
use crate::texts::{contains, matches, mixed, number, scan, table, text};
use kelpie_engine::PipelineMetrics;

/// Conditions whose texts are matched in steps.
fn conditions() -> Vec<(&'static str, Expr)> {
    let few = like(&scan(0), 2, "%e%w%", false);
    vec![
        ("contains", contains("%needle%", false)),
        ("contains one byte", contains("%q%", false)),
        ("contains not", contains("%abc%", true)),
        ("contains a character of two bytes", contains("%ü%", false)),
        ("pieces", contains("%abc%xé%b7%", false)),
        ("pieces with ends", contains("start%abc%d", false)),
        ("not pieces with ends", contains("start%a%ne%d", true)),
        ("no such text", contains("%no such text%anywhere%", false)),
        ("all texts", contains("%no such text%", true)),
        ("a piece longer than most texts", contains(&format!("%{}%", "abc".repeat(40)), true)),
        ("a regular expression", matches("b7.*(need|xé)", false)),
        ("one that is anchored", matches("^start.*[a-f]$", false)),
        ("one that does not match", matches("[üé]a*b", true)),
        ("one that matches everything", matches("", false)),
        ("one that matches nothing", matches("[a&&b]", false)),
        ("one that empty texts match", matches("^$", false)),
        ("any character", contains("%b_%d", false)),
        ("any character between pieces", contains("%ab_%é_%c%", false)),
        ("not any character at the ends", contains("_t%_", true)),
        ("so many characters", contains("%_%__%____%", false)),
        ("characters to go back for", contains("%a_a_c_%", true)),
        ("not", not(contains("%needle%", true))),
        (
            "other conditions",
            all(vec![number(CompareOp::Ge, 20), contains("%b7%", false), few, number(CompareOp::Lt, 250)]),
        ),
        ("two matches", all(vec![matches("abc", true), contains("%c%d%", false), contains("%x%", false)])),
    ]
}

fn plans() -> Vec<(String, Plan)> {
    use AggregateFunction::{Count, Max, Sum};
    let sums = [(Count, None, false), (Sum, Some(0), false), (Max, Some(1), false)];
    let mut plans: Vec<(String, Plan)> = conditions()
        .into_iter()
        .map(|(name, condition)| (name.to_string(), keep(scan(0), condition)))
        .collect();
    let kept = |source| keep(scan(source), contains("%b7%", false));
    let near = |source| filter(kept(source), 0, CompareOp::Lt, 60);
    let twice = || keep(filter(kept(0), 0, CompareOp::Ge, 9), matches("a.*e", false));
    plans.push(("groups".into(), aggregate(kept(0), &[2], &sums)));
    plans.push(("sums".into(), aggregate(kept(0), &[], &sums[..2])));
    plans.push(("two filters".into(), twice()));
    plans.push(("sums of two filters".into(), aggregate(twice(), &[], &sums[..2])));
    let joined = join(JoinKind::Inner, near(1), filter(scan(0), 0, CompareOp::Lt, 80), &[(3, 3)], false);
    let condition = like(&joined, 5, "%c%d%", false);
    let behind = keep(joined, condition);
    plans.push(("behind a join".into(), aggregate(behind, &[], &[sums[0], (Sum, Some(4), false)])));
    for kind in [JoinKind::Inner, JoinKind::ProbeOuter, JoinKind::BuildSemi] {
        let joined = join(kind, near(1), twice(), &[(3, 3)], false);
        plans.push((format!("before a join, {kind:?}"), aggregate(joined, &[], &sums[..2])));
    }
    plans
}

#[test]
fn rows_whose_texts_match_are_the_same_rows() {
    let (engine, plans) = (Engine::new(), plans());
    let tables = [[300, 60], [0, 5], [1, 1], [33, 0]].map(|sizes| sizes.map(mixed));
    let mut cases = Vec::new();
    for size in 0..tables.len() {
        for number in 0..plans.len() {
            for (index, threshold) in ["1", "8", "16", "24", "28", "32"].into_iter().enumerate() {
                for (turn, lanes) in [4, 8, 32, 3].into_iter().enumerate() {
                    // Few rows are in one turn whatever is forced.
                    let other = index + turn + number;
                    if size > 0 && other % 4 != 0 {
                        continue;
                    }
                    let variants = [
                        ("text_lanes", "refill"),
                        ("refill_threshold", threshold),
                        ("lane_refill", ["off", "last", "filters", "all"][other % 4]),
                        ("expansion", ["packed", "lane", "refill"][other % 3]),
                        ("live_columns", ["places", "values"][other % 2]),
                    ];
                    cases.push((size, number, in_blocks(lanes, 1 + other as u32 % 2, &variants)));
                }
            }
        }
    }
    let cases = covering("rows whose texts match", cases, 90, |(size, number, options)| {
        facets_and(options, &[size, number])
    });
    let (mut refilled, mut expected) = (0, HashMap::new());
    for (size, number, options) in cases {
        let (sources, (name, plan)) = (&tables[size], &plans[number]);
        let expected = expected.entry((size, number)).or_insert_with(|| rows(&engine, plan, sources, cpu()));
        let output = run(&engine, plan, sources, &options);
        refilled += usize::from(has(&output, ("text_lanes", "refill")));
        assert_eq!(rows_of(&output.batch, false), *expected, "{name}: {options:?}, {size}");
    }
    assert!(refilled >= floor(600), "{refilled}");
}

/// A GPU's lanes may come apart where the interpreter's do not.
#[test]
fn a_gpu_keeps_the_same_rows() {
    let Some(device) = gpu() else { return };
    let engine = Engine::new();
    let sources = [3000, 60].map(mixed);
    for (number, (name, plan)) in plans().into_iter().enumerate() {
        let expected = rows(&engine, &plan, &sources, cpu());
        for (index, threshold) in ["8", "28", "32"].into_iter().enumerate() {
            let variants = [
                ("text_lanes", "refill"),
                ("refill_threshold", threshold),
                ("lane_refill", ["off", "last", "all"][(index + number) % 3]),
                ("live_columns", ["places", "values"][(index + number) % 2]),
            ];
            let options = QueryOptions { device, ..in_blocks(32, 1 + index as u32, &variants) };
            let output = run(&engine, &plan, &sources, &options);
            assert!(has(&output, variants[0]), "{name}");
            assert_eq!(rows_of(&output.batch, false), expected, "{name}: {variants:?}");
        }
    }
}

/// What only NULLs and empty texts are.
#[test]
fn hardly_any_texts() {
    let engine = Engine::new();
    for texts in
        [vec![None; 70], vec![Some(String::new()); 70], vec![None, Some("a".into()), Some(String::new())]]
    {
        let sources = [table(texts.clone().into_iter()), table(texts.into_iter())];
        for (name, condition) in conditions() {
            let plan = keep(scan(0), condition);
            let expected = run(&engine, &plan, &sources, in_blocks(32, 1, &[("text_lanes", "lane")]));
            let options = in_blocks(8, 1, &[("text_lanes", "refill")]);
            let output = run(&engine, &plan, &sources, &options);
            assert_eq!(rows_of(&output.batch, false), rows_of(&expected.batch, false), "{name}");
        }
    }
}

/// Nobody takes other rows by rule, and it is said why; nor where there is nothing to match in steps. What is looked for in all rows of a table is
/// looked for in all of their texts at once.
#[test]
fn lanes_match_their_own_texts_by_rule() {
    let engine = Engine::new();
    let sources = [mixed(300), mixed(60)];
    let choice = |condition| {
        let output = run(&engine, keep(scan(0), condition), &sources, in_blocks(32, 1, &[]));
        let mut choices = output.metrics.choices();
        choices.find(|choice| choice.axis.name == "text_lanes").expect("a choice").clone()
    };
    let own = choice(matches("needle.*d", false));
    assert_eq!(own.value, "lane");
    assert_eq!(own.possible().collect::<Vec<_>>(), ["lane", "refill"]);
    assert!(own.reason.contains("not measured on a GPU"), "{}", own.reason);
    let rows = choice(contains("%needle%", false));
    assert_eq!(rows.value, "run");
    assert_eq!(rows.possible().collect::<Vec<_>>(), ["lane", "run", "refill"]);
    let few = choice(all(vec![number(CompareOp::Lt, 30), contains("%needle%", false)]));
    assert_eq!(few.value, "lane");
    assert!(few.reason.contains("few texts"), "{}", few.reason);
    for pattern in ["needle", "needle%", "%needle", "a%b", "a_b"] {
        let plan = keep(scan(0), contains(pattern, false));
        let output = run(&engine, &plan, &sources, in_blocks(32, 1, &[]));
        assert!(output.metrics.choices().all(|choice| choice.axis.name != "text_lanes"), "{pattern}");
    }
}

/// A lane that has short texts while another has a long one gets more rows than the grid shares out to it: sums that are proven to fit
/// a few bytes by the rows of a thread fit those too.
#[test]
fn sums_hold_all_rows_that_a_lane_may_take() {
    let (lanes, turns) = (4, 500);
    let long = |row: usize| if row.is_multiple_of(40) { 1500 } else { 3 };
    let rows = lanes * turns;
    for bits in [31, 32] {
        // As many rows as a thread has by itself, and in turns that bring none, just fit.
        let value = (1_u64 << bits) / (turns as u64 + 4);
        let columns: Vec<ArrayRef> = vec![
            longs((0..rows).map(|row| (value - row as u64 % 2) as i64)),
            texts((0..rows).map(|row| format!("{row}{}", "x".repeat(long(row))))),
            texts((0..rows).map(|_| "one")),
            longs((0..rows).map(|_| 1)),
        ];
        let sources = [table_of(&texts::COLUMNS, columns)];
        let kept = keep(scan(0), contains("%y%", true));
        let plan = aggregate(kept, &[3], &[(AggregateFunction::Sum, Some(0), false)]);
        let expected = rows as u64 / 2 * (2 * value - 1);
        for texts in ["lane", "refill"] {
            let variants = [
                ("text_lanes", texts),
                ("accumulator_memory", "thread"),
                ("group_table", "direct"),
                ("row_loop", "single"),
            ];
            let mut options = in_blocks(lanes as u32, 1, &variants);
            options.shape.block_threads = Some(lanes as u32);
            let output = run(&Engine::new(), &plan, &sources, &options);
            assert!(has(&output, variants[0]) && has(&output, variants[1]), "{texts}");
            assert_eq!(rows_of(&output.batch, false), [format!("1|{expected}")], "{texts}, {bits} bits");
        }
    }
}

/// Lanes with work in the loop of steps, of 32, and the share of active lanes over all of the kernel.
fn lanes_in_loop(pipeline: &PipelineMetrics) -> (f64, f64) {
    let steps = pipeline.lanes.iter().find(|lanes| lanes.step == "matching");
    (steps.map_or(0.0, |lanes| lanes.mean()), pipeline.lane_activity.expect("the interpreter counts"))
}

/// Of texts one of sixteen is long, and where a match is found early depends on the row.
#[test]
fn warps_that_match_texts_are_nearly_full() {
    let rows = 6000;
    let skewed = |row: usize| match row * 7919 % 16 {
        3 => 400 + row * 31 % 1600,
        other => other * 5,
    };
    let sources = [table((0..rows).map(|row| Some(text(row, skewed(row))))), mixed(1)];
    for (name, condition, bytes) in [
        ("contains", contains("%needles%", true), 32),
        ("pieces", contains("%abc%no such piece%", true), 32),
        ("any character", contains("%abc%no_such piece%", true), 16),
        ("a regular expression", matches("needl[^e]", true), 16),
    ] {
        let plan = aggregate(keep(scan(0), condition), &[], &[(AggregateFunction::Count, None, false)]);
        let measured = |texts, threshold| {
            let variants = [
                ("text_lanes", texts),
                ("refill_threshold", threshold),
                ("predication", "branches"),
                ("row_loop", "single"),
                ("block_threads", "32"),
            ];
            let variants =
                if texts == "lane" { [&variants[..1], &variants[2..]].concat() } else { variants.into() };
            let output = run(&Engine::new(), &plan, &sources, in_blocks(32, 1, &variants));
            assert!(has(&output, ("text_lanes", texts)));
            (rows_of(&output.batch, false), lanes_in_loop(&output.metrics.pipelines[0]))
        };
        let (expected, (_, before)) = measured("lane", "28");
        // Where each lane has its own, a warp takes as many steps as the longest of its texts.
        let steps: Vec<usize> = (0..rows).map(|row| skewed(row).div_ceil(bytes).max(1)).collect();
        let longest: usize = steps.chunks(32).map(|warp| warp.iter().max().expect("a warp")).sum();
        let own = steps.iter().sum::<usize>() as f64 / longest as f64;
        for (threshold, least) in [("16", 16.0), ("24", 24.0), ("28", 28.0), ("32", 30.0)] {
            let (kept, (mean, activity)) = measured("refill", threshold);
            println!(
                "{name}, at {threshold} lanes: {mean:.1} of 32 where each has its own {own:.1}; of all statements {:.1} \
                 for {:.1}",
                activity * 32.0,
                before * 32.0
            );
            assert_eq!(kept, expected, "{name}");
            assert!(mean >= least && mean > 2.0 * own, "{name}, {threshold}: {mean}, {own}");
            assert!(activity > 1.5 * before, "{name}, {threshold}: {activity}, {before}");
        }
    }
}
