//! Plan to text.

use super::super::{Join, Plan, Scan};
use super::aggregates::{aggregation_text, named_list, ranked_text, sets_text};
use super::expr_printer::{equality_text, expr_text};
use super::operators::{field_text, fields_text, order_text};
use super::scope::{BUILD, PROBE, Scope, name_text};
use super::windows::window_text;
use super::words;
use crate::types::Field;

/// The text of a plan, one operator a line, its inputs below it.
pub fn print(plan: &Plan) -> String {
    let mut text = String::new();
    push(plan, 0, &mut text);
    text
}

fn push(plan: &Plan, depth: usize, text: &mut String) {
    text.push_str(&"  ".repeat(depth));
    text.push_str(&line(plan));
    text.push('\n');
    for input in plan.inputs() {
        push(input, depth + 1, text);
    }
}

fn scope_of(input: &Plan) -> Scope {
    Scope::of(input.fields())
}

fn line(plan: &Plan) -> String {
    match plan {
        Plan::Scan(scan) => scan_text(scan),
        Plan::Filter { input, predicate } => format!("filter {}", expr_text(predicate, &scope_of(input))),
        Plan::Project { input, exprs, names } => {
            let list = named_list(exprs, names.iter().map(String::as_str), &scope_of(input));
            format!("project {list}").trim_end().to_string()
        }
        Plan::Aggregate { input, keys, aggregates, names } => {
            aggregation_text(keys, aggregates, names, &scope_of(input))
        }
        Plan::GroupingSets(sets) => sets_text(sets, &scope_of(&sets.input)),
        Plan::Ranked(ranked) => ranked_text(ranked, &scope_of(&ranked.input)),
        Plan::Window(window) => window_text(window, &scope_of(&window.input)),
        Plan::Join(join) => join_text(join),
        Plan::Union { inputs, fields } => {
            let is_usual = united(inputs) == *fields;
            if is_usual { "union".into() } else { format!("union ({})", fields_text(fields)) }
        }
        Plan::Scalars { .. } => "scalars".into(),
        Plan::Sort { input, keys, fetch } => {
            words_text(["sort".into(), order_text(keys, &scope_of(input)), counted("fetch", *fetch)])
        }
        Plan::Limit { skip, fetch, .. } => {
            let skip = counted("skip", (*skip > 0).then_some(*skip));
            words_text(["limit".into(), skip, counted("fetch", *fetch)])
        }
    }
}

/// Those that are not empty, with a space between them.
fn words_text(words: [String; 3]) -> String {
    let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

fn counted(word: &str, rows: Option<usize>) -> String {
    rows.map_or_else(String::new, |rows| format!("{word} {rows}"))
}

/// The columns of a union where nothing else is said: the first input's, which may be NULL where any input's may.
pub(super) fn united(inputs: &[Plan]) -> Vec<Field> {
    let mut all = inputs.iter().map(Plan::fields);
    let mut fields = all.next().unwrap_or_default();
    for other in all {
        for (field, other) in fields.iter_mut().zip(other) {
            field.nullable |= other.nullable;
        }
    }
    fields
}

fn scan_text(scan: &Scan) -> String {
    let column = |(index, (field, place)): (usize, (&Field, &usize))| {
        let at = if *place == index { String::new() } else { format!(" at {place}") };
        field_text(field) + &at
    };
    let columns: Vec<String> = scan.fields.iter().zip(&scan.columns).enumerate().map(column).collect();
    format!("scan {} source {} ({})", name_text(&scan.table), scan.source, columns.join(", "))
}

fn join_text(join: &Join) -> String {
    let build = || Scope::of_side(BUILD, join.build.fields());
    let probe = || Scope::of_side(PROBE, join.probe.fields());
    let mut text = format!("join {}", words::join_kind(join.kind).unwrap_or_default());
    for (index, (left, right)) in join.keys.iter().enumerate() {
        text.push_str(if index == 0 { " on " } else { ", " });
        text.push_str(&equality_text((left, &build()), (right, &probe())));
    }
    if let Some(residual) = &join.residual {
        text.push_str(&format!(" residual {}", expr_text(residual, &build().followed_by(probe()))));
    }
    text.push_str(if join.null_equal { " null_equal" } else { "" });
    text.push_str(if join.null_aware { " null_aware" } else { "" });
    text
}
