//! What a stage is to run by next, and what comes of it.

use std::collections::HashMap;
use std::sync::Arc;

use kelpie_compile::variant::{Choice, Forced, Genome, Level, Status};
use kelpie_device::DeviceKind;
use kelpie_tuner::{Rng, Verdict, VwGreedy};

use super::behind::{Behind, Place, Slot};
use super::experience::Experience;
use super::racing::RACES;
use super::record::{Arm, Ended, TunedStage, renew};
use super::space::{Around, ChoiceSpace, Values, forced};
use crate::learned::Fingerprint;
use crate::options::TunerOptions;
use crate::stage::{Blueprint, Course, Prepared};

/// Runs of what is chosen before anything else is tried: the first is slower than later ones.
const BEFORE_TRIALS: u32 = 2;
/// Trials after a run of what is chosen, until that is measured again.
const TRIALS_IN_A_ROW: u32 = 2;
/// Nanoseconds of kernels below which a stage is not worth a trial.
const LEAST_GPU_NS: u64 = 100_000;
const LEAST_CPU_NS: u64 = 1_000_000;
/// And before its pipelines race: their variants share out its blocks, and those that are slow are not to be a large part of it.
const LEAST_GPU_RACE_NS: u64 = 1_000_000;
const LEAST_CPU_RACE_NS: u64 = 3_000_000;
/// What has to be left to lose, in runs, before what is unknown is tried, and before what is known not to be hopeless.
const LEAST_LEFT: f64 = 0.5;
const LEAST_LEFT_IF_PROBED: f64 = 0.1;
/// Runs between the measurements of the rules' choice beside what was chosen in its place.
const BESIDE_RULES: u32 = 16;
/// Runs of rest after the pool was renewed without success, at first; each rest is twice the one before.
const REST: u32 = 16;
/// The share of a stage's time from which a pipeline's variants race.
const RACING_SHARE: f64 = 0.15;
/// How far numbers of rows may be apart in a pair of runs: constants differ from run to run.
const ROWS_APART: f64 = 1.25;

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// What is chosen.
    Chosen,
    /// The rules' choice, where another is chosen.
    Rules,
    /// A variant of its operators, by number.
    Arm(usize),
    /// Variants of its pipelines, on blocks.
    Race,
}

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunFacts {
    pub course: Course,
    /// Rows of the result, where they were counted. Those that pipelines hand on are not compared: variants have other pipelines.
    pub rows_out: u64,
    /// It was the first of its program, or some state grew: its time tells nothing.
    pub was_first: bool,
}

/// Who asks, and for what.
pub(crate) struct Request<'r> {
    pub options: TunerOptions,
    /// What the session forces.
    pub forced: &'r Forced,
    /// What programs are made from.
    pub blueprint: &'r Blueprint<'r>,
    /// The stage, of which these are programs.
    pub stage: Fingerprint,
    pub behind: &'r Behind,
}

impl Request<'_> {
    /// What a stage takes at least that is worth a trial, and a race.
    fn least_ns(&self) -> (u64, u64) {
        match (self.options.deterministic, self.blueprint.device.kind()) {
            (true, _) => (0, 0),
            (false, DeviceKind::Cuda) => (LEAST_GPU_NS, LEAST_GPU_RACE_NS),
            (false, _) => (LEAST_CPU_NS, LEAST_CPU_RACE_NS),
        }
    }
}

/// A stage that is tuned.
#[derive(Debug)]
pub(crate) struct StageState {
    pub record: TunedStage,
    pub(super) rng: Rng,
    /// How values fared in other stages.
    pub(super) experience: Arc<Experience>,
    /// The choices of what is chosen, once it has run.
    pub(super) genome: Option<Arc<Genome>>,
    /// Runs of it, in this process, that were measured.
    measured: u32,
    /// The last of them.
    baseline: Option<RunFacts>,
    /// The pipelines worth a race, by number.
    pub(super) racing: Vec<usize>,
    trials: u32,
    pub(super) places: HashMap<Purpose, Place>,
    /// What a race knows that had too few blocks for all of its variants: it goes on in the next one, by pipeline.
    pub(super) unfinished: Vec<Option<VwGreedy>>,
    /// Runs that it has taken.
    pub(super) race_runs: u32,
}

impl StageState {
    /// Begins with what earlier processes have left.
    pub fn new(record: TunedStage, key: Fingerprint, experience: Arc<Experience>) -> StageState {
        StageState {
            rng: Rng::with_seed(key.seed() ^ u64::from(record.runs)),
            record,
            experience,
            genome: None,
            measured: 0,
            baseline: None,
            racing: Vec::new(),
            trials: 0,
            places: HashMap::new(),
            unfinished: Vec::new(),
            race_runs: 0,
        }
    }

    /// What the next run is for, with its program where that is not what is chosen.
    pub fn next(&mut self, request: &Request<'_>) -> (Purpose, Option<Arc<Prepared>>) {
        if self.is_due(request) {
            self.renew_pools(request);
            let wanted = self.wanted(request);
            self.make_ready(&wanted, request);
            for purpose in wanted {
                let slot = self.places.get(&purpose).map(|place| place.lock().clone());
                match slot {
                    Some(Slot::Ready(prepared)) => return (purpose, Some(prepared)),
                    Some(Slot::Failed(why)) => self.failed(purpose, why),
                    Some(Slot::Compiling) | None => {}
                }
            }
        }
        (Purpose::Chosen, None)
    }

    /// Whether something may be tried now.
    fn is_due(&self, request: &Request<'_>) -> bool {
        let Some(baseline) = &self.baseline else { return false };
        request.options.mode.search().is_some()
            && self.measured >= BEFORE_TRIALS
            && self.trials < TRIALS_IN_A_ROW
            && self.record.runs >= self.record.rests_until
            && baseline.course.total_ns() >= request.least_ns().0
    }

    /// What is worth a run, best first.
    fn wanted(&self, request: &Request<'_>) -> Vec<Purpose> {
        let left = self.record.regret.left();
        let open = |(number, arm): (usize, &Arm)| {
            let least = if arm.was_probed { LEAST_LEFT_IF_PROBED } else { LEAST_LEFT };
            (arm.ended.is_none() && left >= least).then_some((!arm.was_probed, Purpose::Arm(number)))
        };
        let mut arms: Vec<_> = self.record.arms.iter().enumerate().filter_map(open).collect();
        arms.sort_by_key(|(is_new, _)| *is_new);
        let beside_rules = !self.record.chosen.is_empty()
            && (self.record.beside_rules.len() < 2 || self.record.runs.is_multiple_of(BESIDE_RULES));
        let may_race = !self.record.races.is_empty()
            && self.record.raced < RACES
            && self.chosen_ns() >= request.least_ns().1;
        let rules = beside_rules.then_some(Purpose::Rules);
        let race = (may_race && left >= LEAST_LEFT).then_some(Purpose::Race);
        rules.into_iter().chain(race).chain(arms.into_iter().map(|(_, arm)| arm)).collect()
    }

    /// Lets the first program that is missing be compiled.
    fn make_ready(&mut self, wanted: &[Purpose], request: &Request<'_>) {
        let Some(missing) = wanted.iter().find(|purpose| !self.places.contains_key(purpose)) else { return };
        let chosen = forced(request.forced, &self.record.chosen);
        let variants = match missing {
            Purpose::Chosen => return,
            Purpose::Rules => Some((request.forced.clone(), Vec::new())),
            Purpose::Arm(number) => {
                let arm = self.record.arms.get(*number);
                arm.and_then(|arm| forced(request.forced, &arm.values)).map(|forced| (forced, Vec::new()))
            }
            Purpose::Race => chosen.map(|chosen| {
                let most = self.record.races.iter().map(|race| race.arms.len()).max().unwrap_or(0);
                let set = |number: usize| self.set(number, &chosen);
                let rotation = (0..most).filter_map(set).collect();
                (chosen.clone(), rotation)
            }),
        };
        let Some((forced, rotation)) = variants else {
            self.failed(*missing, "it is not one of this build".into());
            return;
        };
        let blueprint = request.blueprint.with(forced, rotation).into_owned();
        if let Some(place) = request.behind.begin(blueprint, request.stage, request.options.deterministic) {
            self.places.insert(*missing, place);
        }
    }

    /// A variant cannot run.
    fn failed(&mut self, purpose: Purpose, why: String) {
        match purpose {
            Purpose::Arm(number) => self.end(number, Ended::Failed(why)),
            // A race of which one variant does not compile is none; the next one has others.
            Purpose::Race => {
                self.record.raced += 1;
                self.record.races.clear();
            }
            Purpose::Chosen | Purpose::Rules => {}
        }
        self.places.remove(&purpose);
    }

    /// Notes how what a variant has otherwise than what is chosen fared.
    pub(super) fn fared(&self, values: &Values, has_won: bool) {
        let chosen = &self.record.chosen;
        let own = values.iter().filter(|(name, value)| chosen.get(*name) != Some(*value));
        self.experience.add(&own.map(|(name, value)| (name.clone(), value.clone())).collect(), has_won);
    }

    fn end(&mut self, number: usize, ended: Ended) {
        if let Some(arm) = self.record.arms.get_mut(number) {
            arm.ended = Some(ended);
            let values = arm.values.clone();
            self.fared(&values, false);
            self.record.remember(&values);
        }
        self.places.remove(&Purpose::Arm(number));
    }

    /// Fills pools that are empty, and renews one in which nothing is open any more.
    fn renew_pools(&mut self, request: &Request<'_>) {
        let (Some(genome), Some(search)) = (self.genome.clone(), request.options.mode.search()) else {
            return;
        };
        let size = request.options.pool;
        if self.record.races.is_empty() && self.record.raced < RACES {
            self.new_races(&genome, (search, size));
        }
        if self.record.arms.iter().all(|arm| arm.ended.is_some()) {
            let was_used = !self.record.arms.is_empty();
            let is_wanted = |choice: &Choice| is_tried(choice) && choice.axis.level == Level::Plan;
            let experience = &*self.experience;
            let (chosen, tried) = (&self.record.chosen, self.record.tried.clone());
            let space = ChoiceSpace::around(Around { genome: &genome, chosen, tried, experience }, is_wanted);
            let mut arms = std::mem::take(&mut self.record.arms);
            let is_new = space.len() > 0 && renew(&mut arms, &space, (search, size), &mut self.rng);
            self.record.arms = arms;
            self.places.retain(|purpose, _| !matches!(purpose, Purpose::Arm(_)));
            if was_used || !is_new {
                self.rest();
            }
        }
    }

    /// Nothing faster was found: there is a rest, longer each time.
    fn rest(&mut self) {
        let rest = REST.saturating_mul(1 << self.record.idle_renewals.min(12));
        self.record.rests_until = self.record.runs.saturating_add(rest);
        self.record.idle_renewals += 1;
        self.record.raced = 0;
    }

    /// What is chosen has run: a program of these choices and pipelines.
    pub fn ran(&mut self, facts: RunFacts, genome: &Arc<Genome>, pipelines: &[&str]) {
        self.genome = Some(Arc::clone(genome));
        if facts.was_first {
            return;
        }
        self.measured += 1;
        self.trials = 0;
        let all = facts.course.total_ns();
        self.record.runs = self.record.runs.saturating_add(1);
        self.record.time_ns = all;
        if !self.record.chosen.is_empty() {
            self.record.regret.ran(self.record.beside_rules.median().unwrap_or(1.0));
        }
        if self.record.about.is_empty() {
            self.record.about = pipelines.iter().map(|name| (*name).to_string()).collect();
        }
        let least = (all as f64 * RACING_SHARE) as u64;
        self.racing = facts.course.longer_than(least.max(1));
        self.baseline = Some(facts);
    }

    /// Another variant has run as a whole. Whether anything was decided.
    pub fn tried(&mut self, purpose: Purpose, facts: &RunFacts) {
        self.trials += 1;
        let Some((chosen_ns, rows)) =
            self.baseline.as_ref().map(|baseline| (baseline.course.total_ns(), baseline.rows_out))
        else {
            return;
        };
        let time_ns = facts.course.total_ns();
        self.record.regret.ran(time_ns as f64 / chosen_ns.max(1) as f64);
        let apart = (facts.rows_out.max(1) as f64 / rows.max(1) as f64).ln().abs();
        let tells = !facts.was_first && apart <= ROWS_APART.ln();
        match purpose {
            Purpose::Arm(number) => self.tried_arm(number, tells.then_some((time_ns, chosen_ns))),
            Purpose::Rules if tells => {
                self.record.beside_rules.add(chosen_ns, time_ns);
                if let Verdict::Slower(_) = self.record.beside_rules.verdict() {
                    self.record.back_to_rules();
                    self.begin_again();
                }
            }
            _ => {}
        }
    }

    fn tried_arm(&mut self, number: usize, times: Option<(u64, u64)>) {
        let Some(arm) = self.record.arms.get_mut(number) else { return };
        // The first run of an arm goes in blocks, and tells no more than that it is not hopeless.
        let was_probed = std::mem::replace(&mut arm.was_probed, true);
        let Some((time_ns, chosen_ns)) = times.filter(|_| was_probed) else { return };
        let verdict = arm.add(time_ns, chosen_ns);
        match (verdict, arm.ended.clone()) {
            (Verdict::Faster(_), _) => {
                let (values, pairs) = (arm.values.clone(), arm.pairs.clone());
                self.fared(&values, true);
                self.record.choose(values, pairs);
                self.begin_again();
            }
            (_, Some(ended)) => self.end(number, ended),
            _ => {}
        }
    }

    /// A trial was given up after so many nanoseconds.
    pub fn gave_up(&mut self, purpose: Purpose, time_ns: u64) {
        self.trials = TRIALS_IN_A_ROW;
        let chosen_ns = self.baseline.as_ref().map_or(1, |baseline| baseline.course.total_ns().max(1));
        self.record.regret.wasted(time_ns as f64 / chosen_ns as f64);
        if let Purpose::Arm(number) = purpose {
            self.end(number, Ended::GivenUp);
        }
    }

    /// Whether a variant is to run in blocks, so that it can be given up; what the stage takes otherwise.
    pub fn bound(&self, purpose: Purpose) -> Option<Course> {
        let Purpose::Arm(number) = purpose else { return None };
        let is_new = self.record.arms.get(number).is_some_and(|arm| !arm.was_probed);
        self.baseline.as_ref().filter(|_| is_new).map(|baseline| baseline.course.clone())
    }

    /// What what is chosen takes, in nanoseconds.
    pub fn chosen_ns(&self) -> u64 {
        self.baseline.as_ref().map_or(0, |baseline| baseline.course.total_ns())
    }

    /// Another choice than before: what was measured of it is not known yet.
    pub fn begin_again(&mut self) {
        (self.measured, self.baseline, self.genome, self.trials) = (0, None, None, 0);
        self.places.clear();
        self.unfinished.clear();
    }
}

/// Whether the values of a choice are tried. Those of axes that papers have beside what any rule takes are for experiments.
fn is_tried(choice: &Choice) -> bool {
    choice.axis.status != Status::Paper
}
