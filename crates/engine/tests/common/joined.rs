//! Joins of two sides that are carried out with axes forced, and what is looked at of their results.

use crate::common::*;
use crate::sides::{Row, column};

/// An axis and its value.
pub type Choice = (&'static str, &'static str);

/// Keys at the ends of what 64 and 32 bits hold.
pub const ENDS: [i64; 9] =
    [i64::MIN, i64::MAX, 0, -1, i64::MIN + 5, i64::MAX - 5, 1 << 32, -(1 << 32), 1 << 31];

/// Options of a device with warps of so many lanes and two threads, and what is forced.
pub fn options(device: (DeviceChoice, u32), forced: &[&[Choice]]) -> QueryOptions {
    on_lanes(device, &forced.concat())
}

/// How many rows there are, and the sum of an expression, where there is one.
pub fn counted(input: Plan, summed: Option<Expr>) -> Plan {
    let sum = summed.map(|argument| of_longs(AggregateFunction::Sum, Some(argument)));
    let aggregates = [of_longs(AggregateFunction::Count, None)].into_iter().chain(sum).collect();
    groups_of(input, Vec::new(), aggregates)
}

/// The cells of a result's only row.
pub fn cells(output: &QueryOutput) -> Vec<String> {
    cells_of(&output.batch).remove(0)
}

/// Rows of these keys, with numbers from 0 to 9 in turn.
pub fn numbered(keys: impl IntoIterator<Item = i64>) -> Vec<Row> {
    (0..).zip(keys).map(|(row, key)| (Some(key), None, row % 10)).collect()
}

/// The same rows between some without a key.
pub fn with_nulls(rows: Vec<Row>) -> Vec<Row> {
    let nulls = (0..5).map(|row| (None, None, row));
    nulls.clone().chain(rows).chain(nulls).collect()
}

/// Numbers below which the rows of either side are kept: all rows, most, and none.
pub const LIMITS: [(i32, i32); 5] = [(100, 100), (7, 100), (100, 6), (100, -1), (-1, 100)];

/// The rows of a table whose number compares so with another one.
pub fn kept(input: Plan, op: CompareOp, limit: i32) -> Plan {
    keep(input, compare_with(op, column(2), limit))
}

/// A join of the rows of either side whose numbers are below others, and these rows.
pub fn narrowed(
    joined: Plan,
    (build, probe): (&[Row], &[Row]),
    limits: (i32, i32),
) -> (Plan, Vec<Row>, Vec<Row>) {
    let below = |rows: &[Row], limit| rows.iter().filter(|row| row.2 < limit).cloned().collect();
    let rows = (below(build, limits.0), below(probe, limits.1));
    let Plan::Join(join) = joined else { panic!("no join") };
    let Join { build, probe, .. } = *join;
    let (build, probe) = (kept(build, CompareOp::Lt, limits.0), kept(probe, CompareOp::Lt, limits.1));
    (Plan::Join(Box::new(Join { build, probe, ..*join })), rows.0, rows.1)
}
