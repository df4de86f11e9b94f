//! Variants of pipelines, on blocks of one run.

use std::collections::BTreeSet;

use kelpie_compile::variant::{Choice, Forced, Genome, Level};
use kelpie_tuner::{Schedule, Search, Verdict, VwGreedy};

use super::record::{Arm, Race, renew};
use super::space::{Around, ChoiceSpace, Values, forced};
use super::state::{Purpose, RunFacts, StageState};
use crate::stage::Prepared;

/// Runs in which variants of pipelines race before there is a rest.
pub(super) const RACES: u32 = 3;
/// Runs that a race takes at most, where the rows are few blocks.
const RACE_RUNS: u32 = 8;

impl StageState {
    /// Fills the pools of the pipelines that are worth a race.
    pub(super) fn new_races(&mut self, genome: &Genome, search: (Search, Option<usize>)) {
        for index in self.racing.clone() {
            let site = format!("p{index}");
            let space = self.space_of(&site, genome, BTreeSet::new());
            let mut arms = Vec::new();
            if space.len() > 0 && renew(&mut arms, &space, search, &mut self.rng) {
                self.record.races.push(Race { site, arms });
            }
        }
        if self.record.races.is_empty() {
            self.record.raced = RACES;
        }
        self.places.remove(&Purpose::Race);
    }

    /// The variants of a pipeline around what is chosen, but those that were tried.
    fn space_of(&self, site: &str, genome: &Genome, tried: BTreeSet<Values>) -> ChoiceSpace {
        let is_wanted = |choice: &Choice| choice.site == site && choice.axis.level == Level::Chunk;
        let (chosen, experience) = (&self.record.chosen, &*self.experience);
        ChoiceSpace::around(Around { genome, chosen, tried, experience }, is_wanted)
    }

    /// What the variants of this number of all races are forced by.
    pub(super) fn set(&self, number: usize, chosen: &Forced) -> Option<Forced> {
        let arms = self.record.races.iter().filter_map(|race| race.arms.get(number));
        let values: Values = arms.flat_map(|arm| arm.values.clone()).collect();
        forced(chosen, &values)
    }

    /// Who chooses the variants of each pipeline's blocks in a race, by how many there are of each: what the last race knows, where it goes on.
    pub fn race(&mut self, variants: &[usize]) -> Vec<Option<VwGreedy>> {
        if self.unfinished.len() == variants.len() {
            return std::mem::take(&mut self.unfinished);
        }
        let begin = |(index, count): (usize, &usize)| {
            let seed = u64::from(self.record.raced) << 32 | index as u64;
            (*count > 1).then(|| VwGreedy::new(*count, Schedule::default(), seed))
        };
        variants.iter().enumerate().map(begin).collect()
    }

    /// Whether a race goes on in the next one: some variant has not had its first blocks.
    fn goes_on(&mut self, races: &[Option<VwGreedy>]) -> bool {
        self.race_runs += 1;
        let goes_on = self.race_runs < RACE_RUNS && races.iter().flatten().any(VwGreedy::begins);
        if !goes_on {
            self.race_runs = 0;
        }
        goes_on
    }

    /// Variants of pipelines have raced.
    pub fn raced(
        &mut self,
        facts: &RunFacts,
        prepared: &Prepared,
        races: Vec<Option<VwGreedy>>,
        search: Search,
    ) {
        self.tried(Purpose::Race, facts);
        if self.goes_on(&races) {
            self.unfinished = races;
            return;
        }
        self.record.raced += 1;
        let mut won: Option<Values> = None;
        for (index, race) in races.iter().enumerate() {
            let (Some(race), Some(pipeline)) = (race, prepared.program.pipelines.get(index)) else {
                continue;
            };
            let Some(first) = race.cost(0) else { continue };
            let site = format!("p{index}");
            let Some(own) = self.record.races.iter_mut().find(|race| race.site == site) else { continue };
            for (turn, other) in pipeline.others.iter().enumerate() {
                let Some(cost) = race.cost(turn + 1) else { continue };
                let made = |name: &str, value: &str| {
                    other.genome.0.iter().any(|choice| choice.qualified() == name && choice.value == value)
                };
                let is_own = |arm: &&mut Arm| {
                    arm.values
                        .iter()
                        .all(|(name, value)| !name.starts_with(&format!("{site}.")) || made(name, value))
                };
                let Some(arm) = own.arms.iter_mut().find(is_own) else { continue };
                let as_ns = |cost: f64| (cost * 1e6) as u64;
                if let Verdict::Faster(_) = arm.add(as_ns(cost), as_ns(first)) {
                    won = Some(arm.values.clone());
                }
            }
        }
        if let Some(values) = won {
            self.fared(&values, true);
            let mut chosen = self.record.chosen.clone();
            chosen.extend(values);
            self.record.choose(chosen, Default::default());
            self.record.raced = 0;
            self.begin_again();
        } else if self.record.raced < RACES {
            self.renew_races(search);
        }
    }

    /// The slow ones make room for others.
    fn renew_races(&mut self, search: Search) {
        let Some(genome) = self.genome.clone() else { return };
        let mut races = std::mem::take(&mut self.record.races);
        let arms = races.iter().flat_map(|race| &race.arms).filter(|arm| arm.ended.is_some());
        arms.for_each(|arm| self.fared(&arm.values, false));
        for race in &mut races {
            let tried = race.arms.iter().filter(|arm| arm.ended.is_some()).map(|arm| arm.values.clone());
            let space = self.space_of(&race.site, &genome, tried.collect());
            let size = race.arms.len() + 1;
            race.arms.retain(|arm| arm.ended.is_none());
            renew(&mut race.arms, &space, (search, Some(size)), &mut self.rng);
        }
        races.retain(|race| !race.arms.is_empty());
        self.record.races = races;
        self.places.remove(&Purpose::Race);
    }
}
