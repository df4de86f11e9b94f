//! The tuner at work: stages that run again and again are tried in other variants now and then, and keep what was faster (Rosenfeld et
//! al., section 3; `docs/tuning.md`).
//!
//! A stage is what it runs over, without constants: its [`record`] has what was measured. The rules' choice is where it begins. What its
//! *operators* are made of is tried in a run of its own ([`Purpose::Arm`]), beside runs of what is chosen; how *pipelines* go through their
//! rows is tried on blocks of one run ([`racing`]), by vw-greedy. [`state`] decides what a run is for, and what follows from
//! it; [`space`] has the variants that there could be; [`behind`] compiles them while queries run by others; [`exchange`] shows what was learned, and [`experience`] has what
//! values of axes came to elsewhere. What all of it may cost is
//! bounded ([`kelpie_tuner::Regret`]), and a trial that falls behind is given up ([`crate::stage::Trial`]).

mod behind;
mod exchange;
mod experience;
mod racing;
mod record;
mod space;
mod state;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

pub(crate) use self::behind::Behind;
use self::experience::Experience;
pub(crate) use self::record::TunedStage;
use self::space::Values;
pub(crate) use self::state::{Purpose, Request, RunFacts, StageState};
use crate::learned::{Fingerprint, Learned};

/// Stages that are tuned at the same time.
const STAGES: usize = 256;

/// The stages that an engine tunes.
#[derive(Debug, Default)]
pub(crate) struct Tuner {
    stages: Mutex<Stages>,
    pub behind: Behind,
    experience: OnceLock<Arc<Experience>>,
}

#[derive(Debug, Default)]
struct Stages {
    known: HashMap<Fingerprint, Entry>,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    state: Arc<Mutex<StageState>>,
    used: u64,
}

impl Tuner {
    /// A stage, as it was left by earlier runs.
    pub fn stage(&self, key: Fingerprint, learned: &Learned) -> Arc<Mutex<StageState>> {
        let mut stages = self.stages.lock();
        stages.uses += 1;
        let used = stages.uses;
        if stages.known.len() >= STAGES && !stages.known.contains_key(&key) {
            let oldest = stages.known.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
            oldest.and_then(|key| stages.known.remove(&key));
        }
        let entry = stages.known.entry(key).or_insert_with(|| {
            let record = learned.tuned(key).unwrap_or_default();
            let state = StageState::new(record, key, self.experience(learned));
            Entry { state: Arc::new(Mutex::new(state)), used }
        });
        entry.used = used;
        Arc::clone(&entry.state)
    }

    /// How values fared, in all stages.
    fn experience(&self, learned: &Learned) -> Arc<Experience> {
        let of_all = || {
            let stages: Vec<_> = learned.all_tuned().into_iter().map(|(_, stage)| stage).collect();
            Arc::new(Experience::of(&stages))
        };
        Arc::clone(self.experience.get_or_init(of_all))
    }

    /// Forgets the stages of this process.
    pub fn forget(&self) {
        self.stages.lock().known.clear();
    }
}

/// What was learned of a stage, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct TunedSummary {
    /// What its record is kept by, in 32 digits.
    pub key: String,
    /// The name of the device.
    pub device: String,
    /// Its pipelines.
    pub about: Vec<String>,
    /// Runs that were measured.
    pub runs: u32,
    /// Nanoseconds of kernels in the last of them.
    pub time_ns: u64,
    /// What it has otherwise than the rules, by the name that forces it.
    pub chosen: Vec<(String, String)>,
    /// The part of the time of the rules' choice that it takes, and in how many pairs of runs, where that was measured.
    pub beside_rules: Option<(f64, usize)>,
    /// What was tried and how that went, a line each.
    pub trials: Vec<String>,
    /// Time lost to trials and saved by what was chosen, in runs of the rules' choice.
    pub lost: f64,
    /// As `lost`.
    pub saved: f64,
}

impl TunedSummary {
    pub(crate) fn of(key: Fingerprint, record: &TunedStage) -> TunedSummary {
        let arms = record.arms.iter().chain(record.races.iter().flat_map(|race| &race.arms));
        let beside = record.beside_rules.median().map(|ratio| (ratio, record.beside_rules.len()));
        TunedSummary {
            key: key.to_string(),
            device: record.device.clone(),
            about: record.about.clone(),
            runs: record.runs,
            time_ns: record.time_ns,
            chosen: record.chosen.clone().into_iter().collect(),
            beside_rules: beside,
            trials: arms.map(ToString::to_string).collect(),
            lost: record.regret.lost(),
            saved: record.regret.saved(),
        }
    }
}

/// Why a stage runs by what the tuner has chosen.
pub(crate) fn reason(record: &TunedStage) -> String {
    match record.beside_rules.median() {
        Some(ratio) => {
            let pairs = record.beside_rules.len();
            format!("learned: {ratio:.2} of the time of the rules' choice in {pairs} pairs of runs")
        }
        None => format!("learned: faster than what ran before, in {} runs", record.runs),
    }
}

/// The forced choices of a session with what the tuner has chosen; `None` where that is not of this build, or nothing is chosen.
pub(crate) fn with_chosen(
    forced: &kelpie_compile::variant::Forced,
    chosen: &Values,
) -> Option<kelpie_compile::variant::Forced> {
    if chosen.is_empty() {
        return None;
    }
    space::forced(forced, chosen)
}
