//! What was learned of stages, for people and for other machines with the same device.

use serde::{Deserialize, Serialize};

use super::{TunedStage, TunedSummary};
use crate::learned::Fingerprint;
use crate::query::Engine;

/// The form of what is exported.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exported {
    version: u32,
    stages: Vec<Stage>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stage {
    key: String,
    stage: TunedStage,
}

impl Engine {
    /// What the tuner has learned of stages, the one that takes longest first.
    pub fn tuned(&self) -> Vec<TunedSummary> {
        let mut all: Vec<_> =
            self.known_stages().iter().map(|(key, stage)| TunedSummary::of(*key, stage)).collect();
        all.sort_by(|a, b| b.time_ns.cmp(&a.time_ns).then_with(|| a.key.cmp(&b.key)));
        all
    }

    /// Forgets it, in this process and in its file; how many stages it was of.
    pub fn forget_tuned(&self) -> usize {
        self.tuner.forget();
        let all = self.known_stages();
        // Another process may keep in the file what it does not know to be forgotten; an empty record takes its place.
        all.iter().for_each(|(key, _)| self.learned.keep_tuned(*key, TunedStage::default()));
        all.len()
    }

    /// It as text, for [`Engine::import_tuned`].
    pub fn export_tuned(&self) -> String {
        let mut known = self.known_stages();
        known.sort_by_key(|(key, _)| key.to_string());
        let stages = known.into_iter().map(|(key, stage)| Stage { key: key.to_string(), stage });
        let exported = Exported { version: VERSION, stages: stages.collect() };
        serde_json::to_string_pretty(&exported).unwrap_or_default()
    }

    /// Takes what another engine has exported, of stages of which less is known here; how many these are, or what is wrong with the text.
    pub fn import_tuned(&self, text: &str) -> Result<usize, String> {
        let exported: Exported = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if exported.version != VERSION {
            return Err(format!("it has version {}, and {VERSION} can be read", exported.version));
        }
        let mut taken = 0;
        for Stage { key, stage } in exported.stages {
            let key: Fingerprint = key.parse().map_err(|_| format!("{key:?} is no key of a stage"))?;
            let known = self.learned.tuned(key).map_or(0, |known| known.runs);
            if stage.runs > known {
                self.learned.keep_tuned(key, stage);
                taken += 1;
            }
        }
        // What this process has begun to measure begins again with what came.
        self.tuner.forget();
        Ok(taken)
    }

    fn known_stages(&self) -> Vec<(Fingerprint, TunedStage)> {
        let all = self.learned.all_tuned().into_iter();
        all.filter(|(_, stage)| *stage != TunedStage::default()).collect()
    }
}
