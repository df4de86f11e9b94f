//! Statements written by hand that must compile as a whole, or in part for a stated reason, with DataFusion's answers.

use std::panic::resume_unwind;

use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use futures::StreamExt;

use super::sample::covering;
use super::{Generated, Outcome, compare, sessions};
use crate::KelpieSession;

/// The seed of the tables.
const SEED: u64 = 11;

/// Options of a session.
pub type Settings = Vec<(&'static str, &'static str)>;

/// Sessions on the CPU and the interpreter, each under two models, with one partition and several, where exchanges stand between
/// operators.
pub fn configurations() -> Vec<Settings> {
    let (cpu, simt) = (("kelpie.device", "cpu"), ("kelpie.device", "simt"));
    let (lanes, pipelined) = (("kelpie.simt_lanes", "32"), ("kelpie.micro_model", "pipelined"));
    let partitions = |number| ("datafusion.execution.target_partitions", number);
    vec![
        vec![cpu, partitions("1")],
        vec![cpu, pipelined, partitions("4")],
        vec![simt, lanes, partitions("4")],
        vec![simt, lanes, pipelined, partitions("1")],
    ]
}

/// Runs queries on both, over the tables of a seed; [`Check::finish`] panics with all that differ, fail, or are not compiled as they
/// should be.
pub struct Check {
    plain: SessionContext,
    kelpie: KelpieSession,
    settings: String,
    wrong: Vec<String>,
}

impl Check {
    /// Both sessions.
    pub fn new(settings: &[(&str, &str)]) -> Result<Check> {
        let (plain, kelpie) = sessions(SEED, settings)?;
        Ok(Check { plain, kelpie, settings: format!("{settings:?}"), wrong: Vec::new() })
    }

    /// A query that is compiled as a whole.
    pub async fn query(&mut self, sql: &str) {
        self.outcome(sql, |compiled, reasons| compiled || reasons.is_empty()).await;
    }

    /// One of which a part stays DataFusion's, for a reason that says `reason`.
    pub async fn in_part(&mut self, sql: &str, reason: &str) {
        self.outcome(sql, |compiled, reasons| !compiled && reasons.join("\n").contains(reason)).await;
    }

    /// One that is compiled as a whole and whose answer depends on the order of a table's rows: DataFusion's does on the order in which
    /// it comes to read a table's partitions, so that its answer over tables of one batch counts.
    pub async fn in_row_order(&mut self, sql: &str) {
        let outcome = self.compare(sql).await;
        let is_fine = match &outcome {
            Outcome::Equal { compiled, .. } => *compiled,
            Outcome::PlainContradictsItself(difference) => difference.starts_with("compiled=true"),
            _ => false,
        };
        self.note(is_fine, sql, &outcome);
    }

    /// One that fails in Kelpie, whatever DataFusion does, with an error that says all `parts`.
    pub async fn fails(&mut self, sql: &str, parts: &[&str]) {
        let error = match self.kelpie.sql(sql).await {
            Ok(_) => "no error".to_string(),
            Err(error) => error.strip_backtrace(),
        };
        if !parts.iter().all(|part| error.contains(part)) {
            self.wrong.push(format!("{sql}\n  {error}"));
        }
    }

    async fn outcome(&mut self, sql: &str, fine: impl Fn(bool, &[String]) -> bool) {
        let outcome = self.compare(sql).await;
        let is_fine = matches!(&outcome, Outcome::Equal { compiled, reasons } if fine(*compiled, reasons));
        self.note(is_fine, sql, &outcome);
    }

    async fn compare(&self, sql: &str) -> Outcome {
        let query = Generated { sql: sql.into(), ordered: false };
        compare(&self.plain, &self.kelpie, &query).await
    }

    fn note(&mut self, is_fine: bool, sql: &str, outcome: &Outcome) {
        if !is_fine {
            self.wrong.push(format!("{sql}\n  {outcome:?}"));
        }
    }

    /// Panics unless all queries were as they should be.
    pub fn finish(self) {
        let wrong = self.wrong;
        assert!(wrong.is_empty(), "{}: {} wrong\n{}", self.settings, wrong.len(), wrong.join("\n"));
    }
}

/// Statements that are compiled as a whole: each under one of the configurations, all of which are seen, and where the whole matrix
/// runs under every one of them.
pub async fn check_all<S: Into<String>>(
    name: &str,
    configurations: Vec<Settings>,
    statements: impl IntoIterator<Item = S>,
) -> Result<()> {
    let statements: Vec<String> = statements.into_iter().map(Into::into).collect();
    let cases = configurations.iter().flat_map(|settings| statements.iter().map(move |sql| (settings, sql)));
    let cases = covering(name, cases, 0, |(settings, sql)| vec![format!("{settings:?}"), (*sql).clone()]);
    let mut tasks = Vec::new();
    for settings in &configurations {
        let mut check = Check::new(settings)?;
        let mine = cases.iter().filter(|(other, _)| *other == settings);
        let mine: Vec<String> = mine.map(|(_, sql)| (*sql).clone()).collect();
        tasks.push(async move {
            for sql in &mine {
                check.query(sql).await;
            }
            check.finish();
        });
    }
    side_by_side(tasks).await;
    Ok(())
}

/// Runs futures on all cores, as many at once as there are; what they give is in their order. A panic goes on to the caller.
pub async fn side_by_side<T: Send + 'static>(
    futures: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let cores = std::thread::available_parallelism().map_or(1, Into::into);
    let running = futures::stream::iter(futures).map(tokio::spawn).buffered(cores);
    let results: Vec<_> = running.collect().await;
    let or_panic = |result: std::result::Result<T, tokio::task::JoinError>| {
        result.unwrap_or_else(|error| resume_unwind(error.into_panic()))
    };
    results.into_iter().map(or_panic).collect()
}
