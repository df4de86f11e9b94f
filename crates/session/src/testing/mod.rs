//! Generated queries that Kelpie and plain DataFusion must answer alike.
//!
//! Everything follows from a seed. A [`Generator`] makes queries over one table with a column of every type (`data`, `queries`; `windows`), over
//! random tables (`relational`), such as look for trouble (`adversarial`), or such as have SQL's answers beside them (`reference`, which
//! compares with no DataFusion); [`fuzz`] runs them. [`Check`] runs statements written by
//! hand. [`compare`] runs a query on both and compares the answers as multisets, in order where the query orders all of its columns.

mod adversarial;
mod check;
mod compare;
mod damage;
mod data;
mod fuzzing;
mod queries;
mod reference;
mod relational;
mod report;
mod thrift_integers;
mod variants;
mod windows;

use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::logical_expr::AggregateUDF;
use datafusion::prelude::{SessionConfig, SessionContext};
use fastrand::Rng;
use kelpie_datafusion::PercentileCont;
use kelpie_engine::Engine;

pub use check::{Check, Settings, check_all, configurations, side_by_side};
pub use fuzzing::{Generator, Piece, Scale, fuzz};
pub use kelpie_engine::testing::{has_cuda, sample};

use self::compare::Nature;
use self::variants::Subject;

pub use compare::{Outcome, compare, same};
pub use damage::{
    DamageReport, SoundFile, damage, damage_and_query, footer_of, replace_integer, sound_files,
};
pub use data::tables;
pub use queries::{Generated, QueryGenerator};
pub use report::{Difference, FuzzReport};
pub use thrift_integers::integers;

pub use crate::messages::worded;
pub use kelpie_datafusion::uncompiled_reasons;
pub use kelpie_datafusion::{Translated, translate};

use crate::{KelpieExec, KelpieSession, SessionOptions};

/// The variable that names the step of a change of a database at which a process ends, as in a crash.
pub const STOP_VARIABLE: &str = "KELPIE_STOP_DATABASE_AT";

/// Queries that share the random tables of a seed.
const QUERIES_A_SEED: usize = 25;

/// How many differing queries of a seed are made smaller.
const SHRUNK_A_SEED: usize = 3;

/// The rule of DataFusion's that drops keys of ORDER BY.
const UNIQUE_KEYS_RULE: &str = "eliminate_duplicated_expr";

/// Queries of a seed.
struct Seeded {
    /// What they and their tables follow from.
    seed: u64,
    /// Which of the seed's.
    numbers: std::ops::Range<usize>,
}

/// How Kelpie runs the queries.
#[derive(Debug, Clone, Copy)]
pub struct Conditions<'a> {
    /// Options of its session.
    pub settings: &'a [(&'a str, &'a str)],
    /// Random genomes under which each query runs besides, once more for each.
    pub genomes: usize,
}

/// The numbers that choose the genomes of a query: the same wherever its seed begins.
fn genome_numbers(seed: u64, number: usize) -> Rng {
    Rng::with_seed(
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number as u64).wrapping_mul(0xff51_afd7_ed55_8ccd),
    )
}

/// Hears of every query before it runs: its place, its number in the seed, its text. Should the process die, this is known.
pub type Observer<'a> = dyn Fn(&str, usize, &str) + Sync + 'a;

/// Kelpie's plan of a compiled part.
pub fn translated(exec: &KelpieExec) -> &Translated {
    exec.translated()
}

/// Both sessions, over the same generated tables.
pub fn sessions(seed: u64, settings: &[(&str, &str)]) -> Result<(SessionContext, KelpieSession)> {
    sessions_of(seed, settings, Arc::default())
}

fn sessions_of(
    seed: u64,
    settings: &[(&str, &str)],
    engine: Arc<Engine>,
) -> Result<(SessionContext, KelpieSession)> {
    let tables = tables(seed)?;
    sessions_over(tables.iter().map(|(name, batches)| (*name, batches.as_slice())), settings, engine)
}

/// Both sessions, over the same tables of at least one batch each.
fn sessions_over<'a>(
    tables: impl Iterator<Item = (&'a str, &'a [RecordBatch])>,
    settings: &[(&str, &str)],
    engine: Arc<Engine>,
) -> Result<(SessionContext, KelpieSession)> {
    // Its check of its own plans fails where these are right; Kelpie's sessions leave it out too.
    let config = SessionConfig::new()
        .with_target_partitions(1)
        .set_bool("datafusion.execution.skip_physical_aggregate_schema_check", true);
    let plain = with_percentiles(SessionContext::new_with_config(config));
    let options = SessionOptions::default().with_engine(engine);
    // What is compared is DataFusion as it is.
    let mut options = options.with("kelpie.corrections", "off");
    for (name, value) in settings {
        options = options.with(*name, *value);
    }
    let kelpie = KelpieSession::new(options)?;
    for (name, batches) in tables {
        let schema = batches[0].schema();
        let partitions: Vec<_> = batches.iter().map(|batch| vec![batch.clone()]).collect();
        let table = Arc::new(MemTable::try_new(schema, partitions)?);
        plain.register_table(name, Arc::clone(&table) as _)?;
        kelpie.context().register_table(name, table)?;
    }
    Ok((plain, kelpie))
}

/// DataFusion with percentiles whose weights are not cut off, which Kelpie's sessions have without corrections, too.
fn with_percentiles(context: SessionContext) -> SessionContext {
    context.register_udaf(AggregateUDF::new_from_impl(PercentileCont::default()));
    context
}

/// Both sessions over random tables, where orders by all columns are total.
fn ordering_sessions<'a>(
    tables: impl Iterator<Item = (&'a str, &'a [RecordBatch])>,
    settings: &[(&str, &str)],
    engine: &Arc<Engine>,
) -> Result<(SessionContext, KelpieSession)> {
    let (plain, kelpie) = sessions_over(tables, settings, Arc::clone(engine))?;
    // It drops keys of ORDER BY that follow a column taken for unique, which after a join none need be: which rows a limit
    // keeps is then left to chance.
    for context in [&plain, kelpie.context()] {
        context.remove_optimizer_rule(UNIQUE_KEYS_RULE);
    }
    Ok((plain, kelpie))
}

/// Runs generated queries over one table on both: those of the given numbers.
async fn fuzz_single(
    next: fn(&mut QueryGenerator) -> Generated,
    Seeded { seed, numbers }: Seeded,
    conditions: Conditions<'_>,
    engine: &Arc<Engine>,
    observer: &Observer<'_>,
) -> Result<FuzzReport> {
    let (plain, kelpie) = sessions_of(seed, conditions.settings, Arc::clone(engine))?;
    let mut generator = QueryGenerator::new(seed);
    let mut report = FuzzReport::default();
    for number in 0..numbers.end {
        let query = next(&mut generator);
        if number < numbers.start {
            continue;
        }
        let place = format!("seed {seed} query {number}");
        observer(&place, number, &query.sql);
        let outcome = compare(&plain, &kelpie, &query).await;
        let subject = Subject { plain: &plain, kelpie: &kelpie, query: &query, nature: Nature::GUARDED };
        let genomes = (conditions.genomes, &mut genome_numbers(seed, number));
        let observe = |sql: &str| observer(&place, number, sql);
        let (outcome, forcing) = subject.force(outcome, genomes, &mut report, observe).await;
        report.add(&place, forcing.before(&query.sql), outcome);
    }
    Ok(report)
}
