//! Statements written by hand that must compile as a whole, or in part for a stated reason, with DataFusion's answers.

use datafusion::error::Result;
use datafusion::prelude::SessionContext;

use super::{Generated, Outcome, compare, sessions};
use crate::KelpieSession;

/// The seed of the tables.
const SEED: u64 = 11;

/// Sessions on the CPU and the interpreter, with one partition and several.
pub fn configurations() -> Vec<Vec<(&'static str, &'static str)>> {
    let simt = [("kelpie.device", "simt"), ("kelpie.simt_lanes", "32")];
    let partitions = |number| ("datafusion.execution.target_partitions", number);
    vec![
        vec![("kelpie.device", "cpu"), partitions("1")],
        vec![("kelpie.device", "cpu"), ("kelpie.micro_model", "pipelined"), partitions("4")],
        vec![simt[0], simt[1], partitions("4")],
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
