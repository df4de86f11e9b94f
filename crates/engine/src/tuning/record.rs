//! What was measured of the variants of a stage: samples, and what was chosen by them.

use std::collections::BTreeSet;
use std::fmt;

use kelpie_tuner::{Arm as PoolArm, Pairs, Pool, Regret, Rng, Search, Space, Verdict};
use serde::{Deserialize, Serialize};

use super::space::{ChoiceSpace, Values};

/// Variants that are remembered as tried, at most.
const TRIED: usize = 256;
/// A ratio from which one run suffices to know that a variant is slower.
const MUCH_SLOWER: f64 = 1.3;
/// Pairs after which a variant that is neither faster nor slower is the same.
const ENOUGH: usize = 6;

/// What was measured of a stage, and what it runs by.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TunedStage {
    /// The name of the device.
    pub device: String,
    /// Its pipelines, for people.
    pub about: Vec<String>,
    /// Runs of what is chosen that were measured.
    pub runs: u32,
    /// Nanoseconds of kernels in the last of them.
    pub time_ns: u64,
    /// What it has otherwise than the rules.
    pub chosen: Values,
    /// What is chosen, beside the rules' choice.
    pub beside_rules: Pairs,
    /// Variants of its operators, each tried in a run of its own.
    pub arms: Vec<Arm>,
    /// Variants of its pipelines, tried on blocks of one run.
    pub races: Vec<Race>,
    /// Runs in which variants of pipelines raced.
    pub raced: u32,
    /// What is known to be no faster.
    pub tried: BTreeSet<Values>,
    /// What all of that has cost and saved.
    pub regret: Regret,
    /// How often the pool was renewed since something faster was found.
    pub idle_renewals: u32,
    /// Nothing is tried before so many runs.
    pub rests_until: u32,
}

/// A variant that is tried.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arm {
    /// What it has otherwise than the rules.
    pub values: Values,
    /// Its runs, or chunks, beside those of what is chosen.
    pub pairs: Pairs,
    /// It ran as a whole, and is not hopeless.
    pub was_probed: bool,
    /// Why it is not tried any more.
    pub ended: Option<Ended>,
}

/// Why a variant is not tried any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ended {
    /// It was cut off, as it fell behind.
    GivenUp,
    /// It takes so much of the time of what is chosen.
    Slower(f32),
    /// There is no difference.
    Same,
    /// It does not compile, or fails.
    Failed(String),
}

/// Variants of a pipeline.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Race {
    /// Its name, `p0`.
    pub site: String,
    pub arms: Vec<Arm>,
}

impl Arm {
    pub fn new(values: Values) -> Arm {
        Arm { values, ..Arm::default() }
    }

    /// Adds a run, or a chunk, of it; what its runs tell so far.
    pub fn add(&mut self, time_ns: u64, chosen_ns: u64) -> Verdict {
        self.pairs.add(time_ns, chosen_ns);
        let verdict = self.pairs.verdict();
        match (verdict, self.pairs.median()) {
            (Verdict::Slower(ratio), _) => self.ended = Some(Ended::Slower(ratio as f32)),
            (Verdict::Open, Some(ratio)) if ratio > MUCH_SLOWER => {
                self.ended = Some(Ended::Slower(ratio as f32));
            }
            (Verdict::Open, _) if self.pairs.len() >= ENOUGH => self.ended = Some(Ended::Same),
            _ => {}
        }
        verdict
    }

    /// What it takes of the time of what is chosen, for the search.
    fn cost(&self) -> Option<f64> {
        match &self.ended {
            Some(Ended::GivenUp | Ended::Failed(_)) => Some(MUCH_SLOWER * 2.0),
            Some(Ended::Slower(ratio)) => Some(f64::from(*ratio)),
            _ => self.pairs.median(),
        }
    }
}

/// What it is and how its trials went.
impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> =
            self.values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        write!(f, "{}: ", values.join(", "))?;
        match (&self.ended, self.pairs.median()) {
            (Some(Ended::GivenUp), _) => write!(f, "given up, as it fell behind"),
            (Some(Ended::Slower(ratio)), _) => write!(f, "slower, {ratio:.2} of the time"),
            (Some(Ended::Same), _) => write!(f, "no difference"),
            (Some(Ended::Failed(why)), _) => write!(f, "cannot run: {why}"),
            (None, Some(ratio)) => write!(f, "{ratio:.2} of the time in {} runs so far", self.pairs.len()),
            (None, None) => write!(f, "not measured yet"),
        }
    }
}

impl TunedStage {
    /// Remembers a variant as tried.
    pub fn remember(&mut self, values: &Values) {
        if self.tried.len() < TRIED {
            self.tried.insert(values.clone());
        }
    }

    /// Takes other values than before.
    pub fn choose(&mut self, values: Values, pairs: Pairs) {
        let was_rules = std::mem::replace(&mut self.chosen, values).is_empty();
        // What was faster than the rules' choice was compared with it; what is faster than that was not.
        self.beside_rules = if was_rules { pairs } else { Pairs::default() };
        self.forget_arms();
        self.idle_renewals = 0;
    }

    /// Goes back to the rules.
    pub fn back_to_rules(&mut self) {
        let lost = std::mem::take(&mut self.chosen);
        self.remember(&lost);
        self.beside_rules = Pairs::default();
        self.forget_arms();
    }

    fn forget_arms(&mut self) {
        self.arms.clear();
        self.races.clear();
    }
}

/// Renews variants: those that are still open stay, and the search makes others of what was measured. `size`: of the pool, or as many as
/// it takes for one that competes, most likely. Whether there are new ones.
pub(super) fn renew(
    arms: &mut Vec<Arm>,
    space: &ChoiceSpace,
    (search, size): (Search, Option<usize>),
    rng: &mut Rng,
) -> bool {
    let known = arms.iter().filter_map(|arm| Some((space.genome(&arm.values)?, arm.cost())));
    let rule = PoolArm { genome: vec![0; space.counts().len()], cost: Some(1.0) };
    let known = known.map(|(genome, cost)| PoolArm { genome, cost });
    let mut pool = Pool { arms: std::iter::once(rule).chain(known).collect(), is_seeded: true };
    let size = size.unwrap_or_else(|| pool.fitting_size());
    match pool.arms.len() {
        1 => pool.fill(space, size, rng),
        _ => search.renew(&mut pool, size, space, rng),
    }
    let before = std::mem::take(arms);
    for arm in pool.arms.iter().skip(1) {
        let values = space.values(&arm.genome);
        match before.iter().find(|known| known.values == values) {
            Some(known) => arms.push(known.clone()),
            None if arm.genome.iter().any(|value| *value > 0) => arms.push(Arm::new(values)),
            None => {}
        }
    }
    arms.iter().any(|arm| arm.ended.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(of: &str) -> Values {
        [("aggregate0.group_table".to_string(), of.to_string())].into()
    }

    #[test]
    fn an_arm_ends_where_it_is_slower_or_the_same() {
        let mut slow = Arm::new(values("hash"));
        slow.add(1500, 1000);
        assert!(matches!(slow.ended, Some(Ended::Slower(_))));
        let mut same = Arm::new(values("hash"));
        for run in 0..6 {
            assert_eq!(same.ended, None);
            same.add(990 + run * 4, 1000);
        }
        assert_eq!(same.ended, Some(Ended::Same));
        let mut fast = Arm::new(values("hash"));
        fast.add(500, 1000);
        assert_eq!((fast.add(600, 1000), fast.ended), (Verdict::Faster(0.6000000238418579), None));
    }

    #[test]
    fn what_is_chosen_is_measured_beside_the_rules() {
        let (mut stage, mut pairs) = (TunedStage::default(), Pairs::default());
        pairs.add(1, 2);
        stage.choose(values("direct"), pairs.clone());
        assert_eq!((&stage.chosen, &stage.beside_rules), (&values("direct"), &pairs));
        stage.choose(values("hash"), pairs);
        assert!(stage.beside_rules.is_empty());
        stage.back_to_rules();
        assert!(stage.chosen.is_empty() && stage.tried.contains(&values("hash")));
    }

    #[test]
    fn a_record_is_read_back() {
        let mut stage = TunedStage { runs: 3, ..TunedStage::default() };
        let mut arm = Arm::new(values("direct"));
        arm.add(3, 2);
        stage.arms.push(arm);
        let text = serde_json::to_string(&stage).expect("it has a form");
        assert_eq!(serde_json::from_str::<TunedStage>(&text).expect("its own form"), stage);
        assert!(serde_json::from_str::<TunedStage>("{\"runs\": 1}").is_err());
    }
}
