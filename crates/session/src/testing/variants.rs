//! Queries run again under random genomes: the answers must stay the same whatever variants are forced.

use std::collections::BTreeMap;

use datafusion::prelude::SessionContext;
use fastrand::Rng;
use kelpie_engine::variant::{Axis, axes};

use super::Generated;
use super::compare::{Nature, Outcome, compare_by, unless_panicking};
use super::report::FuzzReport;
use crate::KelpieSession;

/// How often a genome is tried again without the value that turned out to be impossible beside the others.
const ATTEMPTS: usize = 20;

/// What is forced: options and their values.
#[derive(Debug, Clone, Default)]
pub(super) struct Forcing(Vec<(String, &'static str)>);

impl Forcing {
    /// As options of a session.
    pub fn settings(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value)).collect()
    }

    /// As statements, before a query that they belong to.
    pub fn before(&self, sql: &str) -> String {
        let set = |(name, value): &(String, &str)| format!("SET {name} = '{value}';\n  ");
        self.0.iter().map(set).chain([sql.to_string()]).collect()
    }

    /// Forces it in a session. All of the names and values were told by the engine itself.
    pub fn apply(&self, kelpie: &KelpieSession) {
        self.0.iter().for_each(|(name, value)| drop(kelpie.set(name, value)));
    }

    /// Leaves to the rules again what it forces.
    pub fn undo(&self, kelpie: &KelpieSession) {
        self.0.iter().for_each(|(name, _)| drop(kelpie.set(name, "rule")));
    }

    fn without(&self, index: usize) -> Forcing {
        let others = self.0.iter().enumerate().filter(|(other, _)| *other != index);
        Forcing(others.map(|(_, setting)| setting.clone()).collect())
    }

    /// Without the value that an error says is not possible; `None` where it says so of none.
    fn possible(&self, error: &str) -> Option<Forcing> {
        let is_named =
            |(name, value): &(String, &str)| error.contains(&format!("{name} = {value} is not possible: "));
        self.0.iter().position(is_named).map(|index| self.without(index))
    }
}

/// A query, and the sessions that answer it.
pub(super) struct Subject<'a> {
    pub plain: &'a SessionContext,
    pub kelpie: &'a KelpieSession,
    pub query: &'a Generated,
    pub nature: Nature,
}

impl Subject<'_> {
    /// Runs the query, by the rules of its first run, under so many random genomes more. A difference takes the place of the first
    /// run's outcome; what is forced comes with it. `observe` is told what runs.
    pub async fn force(
        &self,
        outcome: Outcome,
        (genomes, random): (usize, &mut Rng),
        report: &mut FuzzReport,
        observe: impl Fn(&str),
    ) -> (Outcome, Forcing) {
        // A query that fails leaves no notes of its choices.
        let notes = matches!(outcome, Outcome::Equal { .. });
        if !notes && !matches!(outcome, Outcome::BothFailed(_)) {
            return (outcome, Forcing::default());
        }
        let mut choices = BTreeMap::new();
        if notes {
            self.add_choices(&mut choices);
        }
        for _ in 0..genomes {
            let forcing = match notes {
                true => genome(&choices, random),
                false => axes_at_random(random),
            };
            if forcing.0.is_empty() {
                break;
            }
            observe(&forcing.before(&self.query.sql));
            match self.under(forcing).await {
                // Also what differed was an error that said so: some values turn out to be impossible while the query runs.
                (_, forcing) if forcing.0.is_empty() => {
                    report.impossible += 1;
                    continue;
                }
                (Outcome::Different(how), forcing) => {
                    let (forcing, how) = self.fewer(forcing, how).await;
                    return (Outcome::Different(how), forcing);
                }
                (Outcome::Equal { .. }, _) if notes => self.add_choices(&mut choices),
                _ => {}
            }
            report.forced += 1;
        }
        (outcome, Forcing::default())
    }

    /// The possible values of all choices of the last run, by the names of options. What a genome opens besides is forced by the next.
    fn add_choices(&self, known: &mut BTreeMap<String, Vec<&'static str>>) {
        let parts = self.kelpie.last_metrics().map(|timing| timing.parts).unwrap_or_default();
        for choice in parts.iter().flat_map(|part| part.choices()) {
            let name = format!("kelpie.variant.{}", choice.qualified());
            known.entry(name).or_insert_with(|| choice.possible().collect());
        }
    }

    /// How the query goes under a genome, less what is not possible in it.
    async fn under(&self, mut forcing: Forcing) -> (Outcome, Forcing) {
        for _ in 0..ATTEMPTS {
            forcing.apply(self.kelpie);
            let first = unless_panicking(self.kelpie.sql(&self.query.sql)).await;
            let impossible = match &first {
                Ok(Err(error)) => forcing.possible(&error.strip_backtrace()),
                _ => None,
            };
            forcing.undo(self.kelpie);
            match impossible {
                Some(fewer) => forcing = fewer,
                None => break,
            }
        }
        let outcome = self.compared(&forcing).await;
        match &outcome {
            // One value after the other was impossible: there is nothing to compare.
            Outcome::Different(how) if forcing.possible(how).is_some() => (outcome, Forcing::default()),
            _ => (outcome, forcing),
        }
    }

    async fn compared(&self, forcing: &Forcing) -> Outcome {
        forcing.apply(self.kelpie);
        let outcome = compare_by(self.plain, self.kelpie, self.query, self.nature).await;
        forcing.undo(self.kelpie);
        outcome
    }

    /// The genome without values that make no difference to the difference.
    async fn fewer(&self, mut forcing: Forcing, mut how: String) -> (Forcing, String) {
        let mut index = 0;
        while index < forcing.0.len() {
            let fewer = forcing.without(index);
            match self.compared(&fewer).await {
                Outcome::Different(other) if fewer.possible(&other).is_none() => {
                    (forcing, how) = (fewer, other);
                }
                _ => index += 1,
            }
        }
        (forcing, how)
    }
}

/// A value for each choice of a share of all of them: with everything forced, what one value presupposes is mostly taken by another.
fn genome(choices: &BTreeMap<String, Vec<&'static str>>, random: &mut Rng) -> Forcing {
    let quarters = random.u32(1..=4);
    let chosen = choices.iter().filter(|(_, values)| values.len() > 1);
    let pick = |(name, values): (&String, &Vec<&'static str>)| {
        let value = values[random.usize(..values.len())];
        (random.u32(0..4) < quarters).then(|| (name.clone(), value))
    };
    Forcing(chosen.filter_map(pick).collect())
}

/// A value for some axes, wherever it is possible.
fn axes_at_random(random: &mut Rng) -> Forcing {
    let pick = |axis: &Axis| {
        let value = axis.values[random.usize(..axis.values.len())];
        random.bool().then(|| (format!("kelpie.variant.{}", axis.name), value))
    };
    Forcing(axes::ALL.iter().filter_map(pick).collect())
}
