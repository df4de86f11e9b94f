//! What is asked of experiments.

use std::path::PathBuf;
use std::time::Duration;

use super::experiment::Experiment;
use crate::Progress;
use crate::bench::PeerKind;

/// What to run.
#[derive(Debug, Clone)]
pub struct ExperimentOptions {
    /// Which experiments: not none.
    pub experiments: Vec<Experiment>,
    /// The folder of the folders with data (`ssb-sf1`, ...), which are made where they are missing. Tables in memory need none.
    pub data: PathBuf,
    /// Scale factors; experiments but the fifth take the first. That of groupings is 335 million rows, that of joins of keys 10 million,
    /// that of sorts 100 million keys at most.
    pub scales: Vec<f64>,
    /// Names of queries, or positions (`0.5`); all where empty.
    pub only: Vec<String>,
    /// Measured runs, after one that warms up.
    pub runs: usize,
    /// A run that takes longer is given up.
    pub time_limit: Duration,
    /// Threads of Kelpie and of the peers.
    pub threads: usize,
    /// Engines to compare with, where times are from SQL to rows.
    pub against: Vec<PeerKind>,
    /// Settings of Kelpie's session.
    pub settings: Vec<(String, String)>,
}

/// Hears of every step.
pub trait Listener: Sync {
    /// What is done now.
    fn step(&self, step: &str);
    /// How far the data is.
    fn data(&self, progress: Progress);
}
