//! What EXPLAIN says of windows: which share a sort, which need none, and of which not all rows are sorted, with the reasons.

use std::collections::BTreeSet;

use kelpie_compile::plan::{JoinKind, Plan, Window, WindowCall};
use kelpie_compile::variant::{Choice, Variant, axes};

/// One line a window of a plan, and one for each choice about its rows and its order.
pub(crate) fn lines<'a>(plan: &Plan, choices: impl Iterator<Item = &'a Choice>) -> Vec<String> {
    let mut lines = Vec::new();
    push(plan, &mut lines);
    let is_left_out = |choice: &Choice| {
        choice.axis.name == axes::SortPlace::AXIS.name && choice.value == axes::SortPlace::Input.name()
    };
    for choice in choices {
        if choice.axis.name == axes::WindowRows::AXIS.name {
            let rows = match choice.value == axes::WindowRows::First.name() {
                true => "rows that may be among the first are sorted",
                false => "all rows are sorted",
            };
            lines.push(format!("window of {}: {rows}: {}", choice.site, choice.reason));
        }
        if is_left_out(choice) {
            lines.push(format!("sort: left out: {}", choice.reason));
        }
    }
    lines
}

fn push(plan: &Plan, lines: &mut Vec<String>) {
    match plan {
        Plan::Window(window) => lines.push(line(window)),
        // This is how windows over whole partitions are translated.
        Plan::Join(join) if join.null_equal && join.kind == JoinKind::Inner => {
            if let Plan::Aggregate { input, aggregates, .. } = &join.build
                && contains(&join.probe, input)
            {
                let count = aggregates.len();
                lines.push(format!(
                    "window over whole partitions, {count} in all: a table of groups, no sort: no order is asked for"
                ));
            }
        }
        _ => {}
    }
    plan.inputs().into_iter().for_each(|input| push(input, lines));
}

/// Whether a plan's rows are those of another one, with columns of such joins.
fn contains(plan: &Plan, base: &Plan) -> bool {
    plan == base
        || match plan {
            Plan::Project { input, .. } => contains(input, base),
            Plan::Join(join) => contains(&join.probe, base),
            _ => false,
        }
}

fn line(window: &Window) -> String {
    let names: Vec<&str> = window.functions.iter().map(|function| name(&function.call)).collect();
    let orders: BTreeSet<(usize, usize)> =
        window.functions.iter().map(|function| (function.partition, function.order)).collect();
    let keys = window.keys.len();
    let way = match (keys, orders.len()) {
        (0, _) => "no sort: rows stay in the order in which they come".to_string(),
        (_, 1) => format!("a sort by {keys} keys"),
        (_, orders) => format!("a shared sort by {keys} keys: it is the order of {orders} windows"),
    };
    format!("window of {}: {way}", names.join(", "))
}

fn name(call: &WindowCall) -> &'static str {
    match call {
        WindowCall::RowNumber => "row_number",
        WindowCall::Rank => "rank",
        WindowCall::DenseRank => "dense_rank",
        WindowCall::PercentRank => "percent_rank",
        WindowCall::CumeDist => "cume_dist",
        WindowCall::Ntile(_) => "ntile",
        WindowCall::Shifted { offset, .. } if *offset < 0 => "lag",
        WindowCall::Shifted { .. } => "lead",
        WindowCall::At { .. } => "nth_value",
        WindowCall::Aggregate { .. } => "aggregate",
    }
}
