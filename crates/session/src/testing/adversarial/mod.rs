//! Queries that look for trouble: extremes in every column, expressions as keys of everything, expressions that fail.
//!
//! Each seed makes its tables and [`QUERIES_A_SEED`] queries. This generator shares nothing with `relational` but the
//! comparison. What DataFusion itself answers by chance is left out: limits without a total order, sums of floats that are
//! not exact, minima of floats with NaN.
//!
//! **When the two may part.** Both answer: values, types and NULLs are the same. Both fail: the same (with errors of one
//! class: see [`compare_by`]). Only DataFusion fails: different, unless the query has a *guard*, which leaves open for which
//! rows an operand is computed: an operand of AND, OR, IN, BETWEEN, CASE or COALESCE, an argument of an aggregate with
//! FILTER, a column with a dictionary (of which DataFusion also computes entries that no row has), a side of a join,
//! semi-join, INTERSECT or EXCEPT whose other side has no partner. Only Kelpie fails: different, unless it agrees with
//! `kelpie.join_order = false`. Only Kelpie's kernels fail, and DataFusion's operators then answer: different, unless the
//! query has a guard. A quarter of the queries have no guards of expressions on purpose. What these
//! exceptions let pass is counted, and the tests bound it.

mod expressions;
mod grammar;
mod shrink;
mod statements;
mod tables;
mod tree;

use std::sync::Arc;

use datafusion::error::Result;
use kelpie_engine::Engine;

use self::statements::{Query, Statements};
use super::compare::compare_by;
use super::report::FuzzReport;
use super::variants::Subject;
use super::{
    Conditions, Observer, QUERIES_A_SEED, SHRUNK_A_SEED, Scale, Seeded, genome_numbers, ordering_sessions,
};

/// Runs generated queries of a seed on both: those of the given numbers, below `QUERIES_A_SEED`.
pub(super) async fn fuzz_adversarial(
    Seeded { seed, numbers }: Seeded,
    scale: Scale,
    conditions: Conditions<'_>,
    engine: &Arc<Engine>,
    observer: &Observer<'_>,
) -> Result<FuzzReport> {
    let tables = tables::tables(seed, scale)?;
    let (plain, kelpie) = ordering_sessions(
        tables.iter().map(|(name, rows)| (*name, rows.as_slice())),
        conditions.settings,
        engine,
    )?;
    let mut report = FuzzReport::default();
    let mut failing = Vec::new();
    for number in numbers.start..numbers.end.min(QUERIES_A_SEED) {
        let query = query(seed, number);
        let generated = query.generated();
        let place = format!("seed {seed} query {number}");
        observer(&place, number, &generated.sql);
        let outcome = compare_by(&plain, &kelpie, &generated, query.nature()).await;
        let subject = Subject { plain: &plain, kelpie: &kelpie, query: &generated, nature: query.nature() };
        let genomes = (conditions.genomes, &mut genome_numbers(seed, number));
        let observe = |sql: &str| observer(&place, number, sql);
        let (outcome, forcing) = subject.force(outcome, genomes, &mut report, observe).await;
        report.add(&place, forcing.before(&generated.sql), outcome);
        if report.different.len() > failing.len() {
            failing.push((query, forcing));
        }
    }
    for ((query, forcing), different) in failing.into_iter().zip(&mut report.different).take(SHRUNK_A_SEED) {
        forcing.apply(&kelpie);
        different.smaller = shrink::shrink(query, &different.how, &plain, &kelpie).await;
        forcing.undo(&kelpie);
    }
    Ok(report)
}

fn query(seed: u64, number: usize) -> Query {
    let seed = seed.wrapping_mul(0x2545_f491_4f6c_dd1d).rotate_left(17)
        ^ (number as u64).wrapping_mul(0x9e6c_63d0_876a_68ef);
    Statements::new(seed).query()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_tables_and_queries() {
        let make = || {
            let queries: Vec<_> = (0..200).map(|i| query(7, i).generated().sql).collect();
            (tables::tables(7, Scale::Normal).unwrap(), queries)
        };
        let ((tables, queries), again) = (make(), make());
        assert_eq!(queries, again.1);
        for ((_, one), (_, other)) in tables.iter().zip(&again.0) {
            // NaN is not equal to itself.
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
        }
    }
}
