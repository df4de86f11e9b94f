//! Texts that the lanes of a warp match as one run of bytes keep the rows that lanes keep which match their own: of all lengths, NULL, with
//! needles that lie across the ends of texts, beside other conditions, before joins, in warps of several widths.

use crate::common::*;
use crate::plans::{aggregate, filter, join, like};
use crate::texts::{contains, mixed, number, scan, table};

/// Conditions with a needle.
fn conditions() -> Vec<(&'static str, Expr)> {
    let few = like(&scan(0), 2, "%e%w%", false);
    vec![
        ("contains", contains("%needle%", false)),
        ("two bytes", contains("%ab%", false)),
        ("three bytes", contains("%abc%", true)),
        ("four bytes", contains("%need%", false)),
        ("a character of two bytes", contains("%ü%", false)),
        ("pieces", contains("%abc%xé%b7%", false)),
        ("pieces with an end", contains("%abc%d", false)),
        ("not pieces with an end", contains("%ab%ne%d", true)),
        ("the same piece again", contains("%ab%ab%ab%", false)),
        ("no such text", contains("%no such text%anywhere%", false)),
        ("all texts", contains("%no such text%", true)),
        ("a piece longer than most texts", contains(&format!("%{}%", "abc".repeat(40)), true)),
        ("not", not(contains("%needle%", true))),
        (
            "other conditions",
            all(vec![number(CompareOp::Ge, 20), contains("%b7%", false), few, number(CompareOp::Lt, 250)]),
        ),
        ("two needles", all(vec![contains("%ab%", false), contains("%needle%", true)])),
    ]
}

fn plans_of(condition: &Expr) -> Vec<(&'static str, Plan)> {
    use AggregateFunction::{Count, Sum};
    let sums = [(Count, None, false), (Sum, Some(0), false)];
    let kept = || keep(scan(0), condition.clone());
    let near = filter(scan(1), 0, CompareOp::Lt, 30);
    vec![
        ("rows", kept()),
        ("groups", aggregate(kept(), &[3], &sums)),
        ("sums behind another filter", aggregate(filter(kept(), 0, CompareOp::Ge, 9), &[], &sums)),
        ("sums before a join", {
            let joined = join(JoinKind::Inner, near.clone(), kept(), &[(3, 3)], false);
            aggregate(joined, &[], &sums)
        }),
        ("rows before a join that keeps them", join(JoinKind::ProbeOuter, near, kept(), &[(3, 3)], false)),
    ]
}

fn options(device: DeviceChoice, (lanes, blocks): (u32, u32), variants: &[(&str, &str)]) -> QueryOptions {
    QueryOptions { device, ..in_blocks(lanes, blocks, variants) }
}

#[test]
fn rows_whose_texts_match_are_the_same_rows() {
    let (engine, conditions) = (Engine::new(), conditions());
    let tables = [[300, 60], [0, 5], [1, 1], [33, 0]].map(|sizes| sizes.map(mixed));
    let mut cases = Vec::new();
    for size in 0..tables.len() {
        for (number, (_, condition)) in conditions.iter().enumerate() {
            for index in 0..plans_of(condition).len() {
                for (turn, lanes) in [4, 8, 32, 3].into_iter().enumerate() {
                    let other = index + turn + number;
                    let variants = [
                        ("text_lanes", "run"),
                        ("lane_refill", ["off", "last", "filters", "all"][other % 4]),
                        ("expansion", ["packed", "lane", "refill", "staged"][other / 2 % 4]),
                        ("live_columns", ["places", "values"][other % 2]),
                    ];
                    let options = options(DeviceChoice::Simt, (lanes, 1 + other as u32 % 2), &variants);
                    cases.push((size, number, index, options));
                }
            }
        }
    }
    // Each condition over many rows and over few, in each plan.
    let cases = covering("texts that match", cases, 70, |(size, number, index, options)| {
        facets_and(options, &[&(number, *size == 0), &(index, size)])
    });
    let mut runs = 0;
    for (size, number, index, options) in cases {
        let (sources, (condition_name, condition)) = (&tables[size], &conditions[number]);
        let (name, plan) = plans_of(condition).swap_remove(index);
        let expected = rows(&engine, &plan, sources, cpu());
        let output = run(&engine, &plan, sources, &options);
        runs += usize::from(has(&output, ("text_lanes", "run")));
        assert_eq!(rows_of(&output.batch, false), expected, "{condition_name}, {name}: {options:?}, {size}");
    }
    assert!(runs >= floor(500), "{runs}");
}

/// The needle lies across the ends of texts nowhere, though the bytes of neighbours do; and it begins and ends texts.
#[test]
fn needles_are_in_one_text() {
    let engine = Engine::new();
    // All differ, or they would be looked at in a dictionary.
    let (ends, begins) = (["need", "n", "xneedl", "needle", ""], ["le", "eedle", "e needle", "needlenee"]);
    let text = |row: usize| match row % 2 {
        _ if row % 13 == 12 => None,
        0 => Some(format!("{row}{}", ends[row / 2 % ends.len()])),
        _ => Some(format!("{}{row}", begins[row / 2 % begins.len()])),
    };
    let sources = [table((0..400).map(text)), mixed(5)];
    for pattern in ["%needle%", "%ee%", "%needle%nee%", "%needle%7"] {
        for negated in [false, true] {
            let plan = keep(scan(0), contains(pattern, negated));
            let expected = rows(&engine, &plan, &sources, cpu());
            assert!(!expected.is_empty());
            for lanes in [2, 5, 8, 32] {
                let options = options(DeviceChoice::Simt, (lanes, 2), &[("text_lanes", "run")]);
                let output = run(&engine, &plan, &sources, &options);
                assert!(has(&output, ("text_lanes", "run")));
                assert_eq!(rows_of(&output.batch, false), expected, "{pattern}, {negated}, {lanes}");
            }
        }
    }
}

#[test]
fn a_gpu_keeps_the_same_rows() {
    let Some(device) = gpu() else { return };
    let engine = Engine::new();
    for sizes in [[30_000, 60], [33, 0]] {
        let sources = sizes.map(mixed);
        for (number, (condition_name, condition)) in conditions().into_iter().enumerate() {
            for (index, (name, plan)) in plans_of(&condition).into_iter().enumerate() {
                let expected = rows(&engine, &plan, &sources, cpu());
                let refill = ("lane_refill", ["off", "last", "all"][(index + number) % 3]);
                let variants = [("text_lanes", "run"), refill];
                let output = run(&engine, &plan, &sources, options(device, (32, 3), &variants));
                assert_eq!(rows_of(&output.batch, false), expected, "{condition_name}, {name}: {variants:?}");
            }
        }
    }
}

/// What only NULLs and empty texts are.
#[test]
fn hardly_any_texts() {
    let engine = Engine::new();
    for texts in
        [vec![None; 70], vec![Some(String::new()); 70], vec![None, Some("ab".into()), Some(String::new())]]
    {
        let sources = [table(texts.clone().into_iter()), table(texts.into_iter())];
        for (name, condition) in conditions() {
            let plan = keep(scan(0), condition);
            let expected = run(&engine, &plan, &sources, cpu());
            let options = options(DeviceChoice::Simt, (8, 1), &[("text_lanes", "run")]);
            let output = run(&engine, &plan, &sources, &options);
            assert_eq!(rows_of(&output.batch, false), rows_of(&expected.batch, false), "{name}");
        }
    }
}
