//! Generated single-table queries that Kelpie and plain DataFusion must answer alike.
//!
//! Everything follows from a seed: `data` makes the tables, `queries` the queries, [`compare`] runs one of them on
//! both and compares the answers as multisets (in order where the query orders all of its columns).

mod compare;
mod data;
mod queries;

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::prelude::{SessionConfig, SessionContext};

pub use compare::{Outcome, compare};
pub use data::tables;
pub use queries::{Generated, QueryGenerator};

use crate::{KelpieSession, SessionOptions};

/// What a run of generated queries found.
#[derive(Debug, Default)]
pub struct FuzzReport {
    /// Queries with equal answers.
    pub equal: usize,
    /// Of these, queries that Kelpie ran as a whole.
    pub compiled: usize,
    /// Queries that fail in both.
    pub both_failed: usize,
    /// Queries that fail in DataFusion only, by an operand that Kelpie does not need.
    pub only_plain_failed: usize,
    /// Queries that differ: the query and how.
    pub different: Vec<(String, String)>,
    /// Why queries were not compiled, with how often.
    pub reasons: BTreeMap<String, usize>,
}

impl std::fmt::Display for FuzzReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} equal ({} compiled as a whole), {} fail in both, {} in DataFusion only, {} different",
            self.equal,
            self.compiled,
            self.both_failed,
            self.only_plain_failed,
            self.different.len()
        )?;
        for (reason, count) in &self.reasons {
            writeln!(f, "  not compiled, {count} times: {reason}")?;
        }
        for (sql, how) in &self.different {
            writeln!(f, "{sql}\n  {how}")?;
        }
        Ok(())
    }
}

/// Both sessions, over the same generated tables.
pub fn sessions(seed: u64, settings: &[(&str, &str)]) -> Result<(SessionContext, KelpieSession)> {
    let plain = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    let mut options = SessionOptions::default();
    for (name, value) in settings {
        options = options.with(*name, *value);
    }
    let kelpie = KelpieSession::new(options)?;
    for (name, batches) in tables(seed)? {
        let schema = batches[0].schema();
        let partitions: Vec<_> = batches.into_iter().map(|batch| vec![batch]).collect();
        let table = Arc::new(MemTable::try_new(schema, partitions)?);
        plain.register_table(name, Arc::clone(&table) as _)?;
        kelpie.context().register_table(name, table)?;
    }
    Ok((plain, kelpie))
}

/// Runs `queries` generated queries on both.
pub async fn fuzz(queries: usize, seed: u64, settings: &[(&str, &str)]) -> Result<FuzzReport> {
    let (plain, kelpie) = sessions(seed, settings)?;
    let mut generator = QueryGenerator::new(seed);
    let mut report = FuzzReport::default();
    for _ in 0..queries {
        let query = generator.query();
        match compare(&plain, &kelpie, &query).await {
            Outcome::Equal { compiled, reasons } => {
                report.equal += 1;
                report.compiled += usize::from(compiled);
                for reason in reasons {
                    *report.reasons.entry(general(&reason)).or_default() += 1;
                }
            }
            Outcome::BothFailed => report.both_failed += 1,
            Outcome::OnlyPlainFailed => report.only_plain_failed += 1,
            Outcome::Different(how) => report.different.push((query.sql, how)),
        }
    }
    Ok(report)
}

/// A reason without the expression that it names, to count alike ones.
fn general(reason: &str) -> String {
    match (reason.split_once(": "), reason.rsplit_once(": ")) {
        (Some((operator, _)), Some((_, why))) => format!("{operator}: {why}"),
        _ => reason.into(),
    }
}
