//! What a run of generated queries found.

use std::collections::BTreeMap;
use std::fmt;

use super::compare::Outcome;

/// What a run of generated queries found.
#[derive(Debug, Default)]
pub struct FuzzReport {
    /// Queries with equal answers.
    pub equal: usize,
    /// Of these, queries that Kelpie ran as a whole.
    pub compiled: usize,
    /// Of these, queries with nothing to compile: DataFusion plans a constant or a bare scan.
    pub trivial: usize,
    /// Queries that fail in both.
    pub both_failed: usize,
    /// Queries that fail in DataFusion only, by an operand that Kelpie does not need.
    pub only_plain_failed: usize,
    /// Queries that differ.
    pub different: Vec<Difference>,
    /// Why queries were not compiled: how often, and the first such query.
    pub reasons: BTreeMap<String, (usize, String)>,
    /// Errors of queries that fail in both: how often, and the first such query.
    pub errors: BTreeMap<String, (usize, String)>,
}

/// A query that Kelpie and DataFusion answer differently.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Its seed and number.
    pub place: String,
    /// Its text.
    pub sql: String,
    /// How the answers differ.
    pub how: String,
    /// A smaller query, its tables and how its answers differ; empty where there is none.
    pub smaller: String,
}

impl FuzzReport {
    /// Queries that were run.
    pub fn run(&self) -> usize {
        self.equal + self.both_failed + self.only_plain_failed + self.different.len()
    }

    /// Of the queries with equal answers and something to compile, how many were compiled as a whole.
    pub fn compiled_percent(&self) -> f64 {
        100.0 * self.compiled as f64 / (self.equal - self.trivial).max(1) as f64
    }

    /// All counts, as text.
    pub fn counts(&self) -> String {
        let mut text = String::new();
        for (what, counts) in [("fail in both", &self.errors), ("not compiled", &self.reasons)] {
            let mut counts: Vec<_> = counts.iter().collect();
            counts.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
            for (reason, (count, first)) in counts {
                text.push_str(&format!("  {what}, {count} times, first {first}: {reason}\n"));
            }
        }
        let (run, different, equal, compiled) = (self.run(), self.different.len(), self.equal, self.compiled);
        let FuzzReport { trivial, both_failed, only_plain_failed, .. } = self;
        text.push_str(&format!(
            "{run} queries: {different} different; {equal} equal, {compiled} of them compiled as a whole ({:.1} %), \
             {trivial} with nothing to compile; {both_failed} fail in both, {only_plain_failed} in DataFusion only",
            self.compiled_percent(),
        ));
        text
    }

    /// Counts a query.
    pub(super) fn add(&mut self, place: &str, sql: String, outcome: Outcome) {
        let count = |counts: &mut BTreeMap<String, (usize, String)>, what: String| {
            counts.entry(what).or_insert_with(|| (0, place.into())).0 += 1;
        };
        match outcome {
            Outcome::Equal { compiled, reasons } => {
                self.equal += 1;
                self.compiled += usize::from(compiled);
                self.trivial += usize::from(!compiled && reasons.is_empty());
                reasons.iter().for_each(|reason| count(&mut self.reasons, general(reason)));
            }
            Outcome::BothFailed(error) => {
                self.both_failed += 1;
                count(&mut self.errors, error.lines().next().unwrap_or_default().chars().take(100).collect());
            }
            Outcome::OnlyPlainFailed => self.only_plain_failed += 1,
            Outcome::Different(how) => {
                let place = place.into();
                self.different.push(Difference { place, sql, how, smaller: String::new() });
            }
        }
    }

    /// Adds the queries of another run.
    pub fn merge(&mut self, other: FuzzReport) {
        self.equal += other.equal;
        self.compiled += other.compiled;
        self.trivial += other.trivial;
        self.both_failed += other.both_failed;
        self.only_plain_failed += other.only_plain_failed;
        self.different.extend(other.different);
        for (mine, others) in [(&mut self.reasons, other.reasons), (&mut self.errors, other.errors)] {
            for (what, (count, first)) in others {
                mine.entry(what).or_insert((0, first)).0 += count;
            }
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { place, sql, how, smaller } = self;
        writeln!(f, "DIFFERENT, {place}: {how}\n  {sql}\n{smaller}")
    }
}

impl fmt::Display for FuzzReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.different.iter().try_for_each(|different| different.fmt(f))?;
        f.write_str(&self.counts())
    }
}

/// A reason without the expression that it names, to count alike ones.
fn general(reason: &str) -> String {
    match (reason.split_once(": "), reason.rsplit_once(": ")) {
        (Some((operator, _)), Some((_, why))) => format!("{operator}: {why}"),
        _ => reason.into(),
    }
}
