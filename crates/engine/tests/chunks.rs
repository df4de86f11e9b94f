//! Places that a CPU's workers take by the thousand, of which the last rows fill those that are left: results and sorts behind filters
//! and joins, beside an atomic a row.

use crate::common::*;
use crate::plans::{filter, join, project, scan, sort, table, union};
use kelpie_compile::expr::CompareOp::{Gt, Lt};

/// So many that workers take chunks by rule.
const ROWS: usize = 40_001;

/// Plans, whether their rows have an order, and how many rows they have.
fn wanted() -> Vec<(&'static str, Plan, bool, usize)> {
    let few = || filter(scan(0), 1, Lt, 300);
    let most = || filter(scan(0), 1, Gt, 99);
    // Each `k` of 40 has 1,000 rows of 40,000, of which a seventh are NULL.
    let expanded = || join(JoinKind::Inner, filter(scan(1), 1, Lt, 60), most(), &[(0, 0)], false);
    vec![
        ("all filtered", filter(scan(0), 1, Lt, 0), false, 0),
        ("one row", filter(scan(0), 1, Lt, 1), false, 1),
        ("few rows", few(), false, 300),
        ("most rows, with texts", project(most(), &[0, 2, 3, 4], 1), false, ROWS - 100),
        ("two branches", union(vec![few(), most()]), false, ROWS + 200),
        ("several matches", expanded(), false, 43_596),
        ("sorted", sort(most(), &[1], None), true, ROWS - 100),
        ("few rows sorted", sort(few(), &[4], None), true, 300),
        ("none sorted", sort(filter(scan(0), 1, Lt, 0), &[4], None), true, 0),
        ("branches sorted", sort(union(vec![few(), most()]), &[1, 0], None), true, ROWS + 200),
        ("matches sorted", sort(expanded(), &[6, 1], None), true, 43_596),
        ("many of an order", sort(most(), &[4], Some(30_000)), true, 30_000),
    ]
}

fn options(threads: usize, places: &str) -> QueryOptions {
    QueryOptions { threads: Some(threads), ..on(DeviceChoice::Cpu, &[("write_places", places)]) }
}

#[test]
fn every_place_has_its_row() {
    let engine = Engine::new();
    let sources = [table(ROWS), table(100)];
    for (name, plan, ordered, rows) in wanted() {
        let expected = run(&engine, &plan, &sources, options(2, "atomic"));
        let expected = rows_of(&expected.batch, ordered);
        assert_eq!(expected.len(), rows, "{name}");
        for threads in [1, 2, 7] {
            let output = run(&engine, &plan, &sources, options(threads, "rule"));
            assert!(has(&output, ("write_places", "chunks")), "{name}: by rule");
            assert_eq!(rows_of(&output.batch, ordered), expected, "{name}, {threads} workers");
        }
    }
}

/// Room for the rows is made as they come, and rows leave while others are made.
#[test]
fn with_little_memory_and_in_blocks() {
    let engine = Engine::new();
    let sources = [table(ROWS), table(100)];
    for (name, plan, ordered, rows) in wanted() {
        for (threads, memory, block_bytes) in [(2, 24 << 20, None), (3, 256 << 20, Some(64 << 10))] {
            let little = QueryOptions { memory_limit: Some(memory), block_bytes, ..options(threads, "rule") };
            let output = run(&engine, &plan, &sources, &little);
            let expected = run(&engine, &plan, &sources, options(2, "atomic"));
            assert_eq!(output.batch.num_rows(), rows, "{name}, {memory} bytes");
            assert_eq!(
                rows_of(&output.batch, ordered),
                rows_of(&expected.batch, ordered),
                "{name}, {memory} bytes"
            );
        }
    }
}
