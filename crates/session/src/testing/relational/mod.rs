//! Queries with joins, subqueries, groups and set operations over random tables.
//!
//! Each seed makes its tables and [`QUERIES_A_SEED`] queries. What DataFusion itself answers by chance is left out:
//! limits without a total order, sums whose digits depend on the order of the rows where anything is decided by them,
//! minima of floats with NaN.

mod expressions;
mod from;
mod generator;
mod shrink;
mod subqueries;
mod tables;
mod tree;

use std::sync::Arc;

use datafusion::error::Result;
use kelpie_engine::Engine;

use self::generator::{Generator, Query};
use self::tables::Table;
use super::compare::{Nature, compare};
use super::report::FuzzReport;
use super::variants::Subject;
use super::{
    Conditions, Observer, QUERIES_A_SEED, SHRUNK_A_SEED, Scale, Seeded, genome_numbers, ordering_sessions,
};

/// Runs generated queries of a seed on both: those of the given numbers, of which a seed has [`QUERIES_A_SEED`].
pub(super) async fn fuzz_relational(
    Seeded { seed, numbers }: Seeded,
    scale: Scale,
    conditions: Conditions<'_>,
    engine: &Arc<Engine>,
    observer: &Observer<'_>,
) -> Result<FuzzReport> {
    let tables = tables::tables(seed, scale)?;
    let named = tables.iter().map(|table| (table.name.as_str(), table.batches.as_slice()));
    let (plain, kelpie) = ordering_sessions(named, conditions.settings, engine)?;
    let mut report = FuzzReport::default();
    let mut failing = Vec::new();
    for number in numbers.start..numbers.end.min(QUERIES_A_SEED) {
        let query = query(seed, number, &tables, scale);
        let generated = query.generated();
        let place = format!("seed {seed} query {number}");
        observer(&place, number, &generated.sql);
        let outcome = compare(&plain, &kelpie, &generated).await;
        let subject = Subject { plain: &plain, kelpie: &kelpie, query: &generated, nature: Nature::GUARDED };
        let genomes = (conditions.genomes, &mut genome_numbers(seed, number));
        let observe = |sql: &str| observer(&place, number, sql);
        let (outcome, forcing) = subject.force(outcome, genomes, &mut report, observe).await;
        report.add(&place, forcing.before(&generated.sql), outcome);
        if report.different.len() > failing.len() {
            failing.push((query, forcing));
        }
    }
    for ((query, forcing), different) in failing.into_iter().zip(&mut report.different).take(SHRUNK_A_SEED) {
        let settings = [conditions.settings, &forcing.settings()].concat();
        different.smaller = shrink::shrink((query, &different.how), &tables, &settings, engine).await?;
    }
    Ok(report)
}

fn query(seed: u64, number: usize, tables: &[Table], scale: Scale) -> Query {
    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number as u64).wrapping_mul(0xd1b5_4a32_d192_ed03);
    Generator::new(seed, tables, scale).query()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_tables_and_queries() {
        let make = || {
            let tables = tables::tables(7, Scale::Normal).unwrap();
            let batches: Vec<_> = tables.iter().flat_map(|table| table.batches.clone()).collect();
            let queries: Vec<_> =
                (0..40).map(|i| query(7, i, &tables, Scale::Normal).generated().sql).collect();
            (batches, queries)
        };
        assert_eq!(make(), make());
    }
}
