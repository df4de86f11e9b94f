//! Variants: every choice that changes how a plan runs and never what it gives is a value of an *axis*.
//!
//! An axis ([`Variant`]) has a name, the values that it may have, and a level: a *plan* axis belongs to an operator, whose
//! state depends on it (all its pipelines share the value), a *chunk* axis to a pipeline, whose state stays the same, so that
//! it may change from block to block. Where an operator or pipeline stands before a choice, it asks the [`Chooser`] with the
//! rule's value, the rule's reason, and what each other value presupposes. The chooser takes the rule's value unless the
//! session forces another, and notes the choice with its alternatives: the notes of a program are its [`Genome`], which
//! `EXPLAIN` and `kelpie variants` show. Where a rule goes by sizes, the choice has these as a short text, its `variant/estimate`.
//!
//! Adding an axis: a type in [`axes`], its line in [`axes::ALL`], and the call of [`Chooser::choose`] where the choice is made.

pub mod axes;
pub(crate) mod estimate;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use crate::unsupported::Unsupported;

/// What an axis belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// An operator: its pipelines share the value.
    Plan,
    /// A pipeline: its state does not depend on the value.
    Chunk,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Plan => "plan",
            Level::Chunk => "chunk",
        })
    }
}

/// Why an axis has the values that it has: each of them is one that some rule returns, on a CPU or a GPU, or else as this says. What is none of
/// these goes, with its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// There are no others.
    Rule,
    /// The others are of one of the papers that Kelpie unites (`docs/techniques.md`).
    Paper,
    /// It is a number or a switch that people turn.
    Knob,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Rule => "rule",
            Status::Paper => "paper",
            Status::Knob => "knob",
        })
    }
}

/// An axis, for people and for who goes through all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Axis {
    /// As `kelpie.variant.<name>` has it.
    pub name: &'static str,
    /// What it belongs to.
    pub level: Level,
    /// Why it may be what it may be.
    pub status: Status,
    /// What it may be.
    pub values: &'static [&'static str],
    /// What it decides, in a sentence.
    pub about: &'static str,
}

/// A value of an axis.
pub trait Variant: Copy + PartialEq + 'static {
    /// The axis.
    const AXIS: Axis;
    /// Its values, in the order of [`Axis::values`].
    const ALL: &'static [Self];

    /// The value's name.
    fn name(self) -> &'static str {
        let position = Self::ALL.iter().position(|value| *value == self).unwrap_or(0);
        Self::AXIS.values.get(position).copied().unwrap_or("")
    }
}

/// A choice that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The operator or pipeline: `aggregate0`, `join1`, `p2`.
    pub site: String,
    /// The axis.
    pub axis: Axis,
    /// What was chosen.
    pub value: &'static str,
    /// The rule's reason, or who forced it.
    pub reason: String,
    /// What was estimated of rows, tables and time when it was made, where that is told: for people.
    pub estimate: Option<String>,
    /// The values of the axis, each with what it lacks here, if it lacks something.
    pub values: Vec<(&'static str, Option<String>)>,
}

impl Choice {
    /// The values that are possible here.
    pub fn possible(&self) -> impl Iterator<Item = &'static str> {
        self.values.iter().filter(|(_, lacks)| lacks.is_none()).map(|(value, _)| *value)
    }

    /// The name by which `kelpie.variant.<name>` forces this choice alone.
    pub fn qualified(&self) -> String {
        format!("{}.{}", self.site, self.axis.name)
    }

    /// The estimate, where there is one, and the reason.
    pub fn why(&self) -> Cow<'_, str> {
        match &self.estimate {
            Some(estimate) => format!("{estimate}: {}", self.reason).into(),
            None => self.reason.as_str().into(),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} ({})", self.qualified(), self.value, self.why())
    }
}

/// The choices of a program: a point in the space of its variants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Genome(pub Vec<Choice>);

impl Genome {
    /// How many points the space has: the product of the possible values, at most `u64::MAX`.
    pub fn points(&self) -> u64 {
        let counts = self.0.iter().map(|choice| choice.possible().count().max(1) as u64);
        counts.fold(1, u64::saturating_mul)
    }

    /// The choices of a site.
    pub fn of<'g>(&'g self, site: &'g str) -> impl Iterator<Item = &'g Choice> {
        self.0.iter().filter(move |choice| choice.site == site)
    }
}

/// What a session forces: values by the name of an axis, everywhere, or by `site.axis`, for one operator or pipeline.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Forced(BTreeMap<String, &'static str>);

/// What is wrong with a forced value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForcedError {
    /// There is no such axis.
    #[error("there is no variant axis {name:?}; there are {axes}")]
    Axis {
        /// What was given.
        name: String,
        /// The names of all axes.
        axes: String,
    },
    /// The axis has no such value.
    #[error("variant axis {axis} has no value {value:?}; it may be {values}")]
    Value {
        /// The axis.
        axis: &'static str,
        /// What was given.
        value: String,
        /// What it may be.
        values: String,
    },
}

impl Forced {
    /// Forces `name`, an axis or `site.axis`, to a value; an empty one or `rule` leaves it to the rule again.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ForcedError> {
        let (site, own) = name.rsplit_once('.').map_or((None, name), |(site, own)| (Some(site), own));
        let own = axes::FORMER.iter().find(|(former, _)| *former == own).map_or(own, |(_, today)| today);
        let axis = axes::ALL.iter().find(|axis| axis.name == own).ok_or_else(|| ForcedError::Axis {
            name: name.into(),
            axes: axes::ALL.iter().map(|axis| axis.name).collect::<Vec<_>>().join(", "),
        })?;
        let name = site.map_or(own.to_string(), |site| format!("{site}.{own}"));
        if value.is_empty() || value == "rule" {
            self.0.remove(&name);
            return Ok(());
        }
        let known = axis.values.iter().find(|known| **known == value);
        let known = known.ok_or_else(|| ForcedError::Value {
            axis: axis.name,
            value: value.into(),
            values: axis.values.join(", "),
        })?;
        self.0.insert(name, known);
        Ok(())
    }

    /// Nothing: the rules decide.
    pub fn none() -> &'static Forced {
        static NONE: Forced = Forced(BTreeMap::new());
        &NONE
    }

    /// Whether nothing is forced.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is forced, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    fn of(&self, site: &str, axis: &Axis) -> Option<(&'static str, bool)> {
        let own = self.0.get(&format!("{site}.{}", axis.name)).map(|value| (*value, true));
        own.or_else(|| self.0.get(axis.name).map(|value| (*value, false)))
    }
}

/// Makes the choices of one program, and notes them.
#[derive(Debug)]
pub struct Chooser<'a> {
    forced: &'a Forced,
    made: RefCell<Vec<Choice>>,
}

impl<'a> Chooser<'a> {
    /// A chooser that keeps to what is forced.
    pub fn new(forced: &'a Forced) -> Chooser<'a> {
        Chooser { forced, made: RefCell::default() }
    }

    /// The value of an axis at a site. `rule`: today's value and why; `admits`: what a value lacks here. What is forced
    /// everywhere and not possible here is left to the rule, which says so; what is forced here and not possible is an
    /// error that names what it lacks.
    pub fn choose<T: Variant>(
        &self,
        site: &str,
        rule: (T, &str),
        admits: impl Fn(T) -> Result<(), String>,
    ) -> Result<T, Unsupported> {
        self.choose_by(site, (rule, None), admits)
    }

    /// As [`Chooser::choose`], where the rule has an estimate, which is noted whatever is chosen.
    pub fn choose_by<T: Variant>(
        &self,
        site: &str,
        (rule, estimate): ((T, &str), Option<String>),
        admits: impl Fn(T) -> Result<(), String>,
    ) -> Result<T, Unsupported> {
        let axis = T::AXIS;
        let values: Vec<_> = T::ALL.iter().map(|value| (value.name(), admits(*value).err())).collect();
        let (mut chosen, mut reason) = (rule.0, rule.1.to_string());
        if let Some((name, here)) = self.forced.of(site, &axis) {
            let lacks = values.iter().find(|(value, _)| *value == name).and_then(|(_, lacks)| lacks.clone());
            match (lacks, here) {
                (None, _) => {
                    chosen = T::ALL.iter().copied().find(|value| value.name() == name).unwrap_or(rule.0);
                    reason = "forced".into();
                }
                (Some(lacks), true) => {
                    let name = format!("kelpie.variant.{site}.{} = {name}", axis.name);
                    return Err(Unsupported(format!("{name} is not possible: {lacks}")));
                }
                (Some(lacks), false) => reason = format!("{}; {name} is not possible: {lacks}", rule.1),
            }
        }
        let choice = Choice { site: site.into(), axis, value: chosen.name(), reason, estimate, values };
        self.made.borrow_mut().push(choice);
        Ok(chosen)
    }

    /// The choices that were made.
    pub fn into_genome(self) -> Genome {
        Genome(self.made.into_inner())
    }
}

/// What admits every value of an axis but one, where there is a reason why not.
pub(crate) fn all_but<T: Variant>(
    value: T,
    why_not: &Option<impl fmt::Display>,
) -> impl Fn(T) -> Result<(), String> {
    move |chosen| match why_not {
        Some(why_not) if chosen == value => Err(why_not.to_string()),
        _ => Ok(()),
    }
}

/// An operator or pipeline before its choices.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// Who chooses.
    pub chooser: &'a Chooser<'a>,
    /// Its name.
    pub name: &'a str,
}

impl Site<'_> {
    /// As [`Chooser::choose`].
    pub fn choose<T: Variant>(
        &self,
        rule: (T, &str),
        admits: impl Fn(T) -> Result<(), String>,
    ) -> Result<T, Unsupported> {
        self.chooser.choose(self.name, rule, admits)
    }

    /// As [`Chooser::choose_by`].
    pub fn choose_by<T: Variant>(
        &self,
        rule: ((T, &str), Option<String>),
        admits: impl Fn(T) -> Result<(), String>,
    ) -> Result<T, Unsupported> {
        self.chooser.choose_by(self.name, rule, admits)
    }
}

/// All axes as a table of Markdown, each with its values: `docs/techniques.md` has it.
pub fn axes_as_markdown() -> String {
    let mut table =
        String::from("| axis | level | status | values | what is chosen |\n|---|---|---|---|---|\n");
    for Axis { name, level, status, values, about, .. } in axes::ALL {
        table += &format!("| `{name}` | {level} | {status} | {} | {about} |\n", values.join(", "));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::axes::{self, GroupForm, MorselRows};
    use super::{Chooser, Forced, ForcedError, Status, Variant};

    fn direct_only_if(possible: bool) -> impl Fn(GroupForm) -> Result<(), String> {
        move |value| match value {
            GroupForm::Direct if !possible => Err("no dense domain".into()),
            _ => Ok(()),
        }
    }

    #[test]
    fn the_rule_decides_unless_something_possible_is_forced() {
        let mut forced = Forced::default();
        forced.set("group_table", "direct").expect("an axis and its value");
        forced.set("aggregate1.group_table", "hash").expect("an axis and its value");
        let chooser = Chooser::new(&forced);
        let rule = (GroupForm::Hash, "few groups");
        let chosen =
            [("aggregate0", true), ("aggregate1", true), ("aggregate2", false)].map(|(site, possible)| {
                chooser.choose(site, rule, direct_only_if(possible)).expect("a possible value")
            });
        assert!(chosen == [GroupForm::Direct, GroupForm::Hash, GroupForm::Hash]);
        let genome = chooser.into_genome();
        assert_eq!(genome.points(), 4);
        let reasons: Vec<_> = genome.0.iter().map(|choice| choice.reason.as_str()).collect();
        assert_eq!(reasons, ["forced", "forced", "few groups; direct is not possible: no dense domain"]);
    }

    #[test]
    fn an_axis_may_be_forced_by_its_former_name() {
        let mut forced = Forced::default();
        forced.set("sieves", "off").expect("an axis and its value");
        forced.set("aggregate0.last_group", "on").expect("an axis and its value");
        let names: Vec<_> = forced.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["aggregate0.run_accumulator", "runtime_filters"]);
        forced.set("aggregate0.last_group", "rule").expect("an axis");
        forced.set("runtime_filters", "").expect("an axis");
        assert!(forced.is_empty());
    }

    #[test]
    fn an_estimate_stands_before_the_reason_whatever_is_chosen() {
        let mut forced = Forced::default();
        forced.set("aggregate1.group_table", "direct").expect("an axis and its value");
        let chooser = Chooser::new(&forced);
        let rule = (GroupForm::Hash, "few groups");
        for (site, estimate) in [("aggregate0", Some("3 rows")), ("aggregate1", Some("5 rows")), ("a2", None)]
        {
            let estimate = estimate.map(String::from);
            let chosen = chooser.choose_by(site, (rule, estimate), |_| Ok(()));
            assert_eq!(chosen.ok() == Some(GroupForm::Direct), site == "aggregate1");
        }
        let genome = chooser.into_genome();
        let why: Vec<_> = genome.0.iter().map(|choice| choice.why()).collect();
        assert_eq!(why, ["3 rows: few groups", "5 rows: forced", "few groups"]);
        assert_eq!(genome.0[0].to_string(), "aggregate0.group_table = hash (3 rows: few groups)");
    }

    #[test]
    fn what_is_forced_here_and_not_possible_names_what_it_lacks() {
        let mut forced = Forced::default();
        forced.set("aggregate0.group_table", "direct").expect("an axis and its value");
        let chooser = Chooser::new(&forced);
        let error = chooser.choose("aggregate0", (GroupForm::Hash, "few groups"), direct_only_if(false));
        let error = error.err().map(|error| error.to_string());
        let text = "kelpie.variant.aggregate0.group_table = direct is not possible: no dense domain";
        assert_eq!(error.as_deref(), Some(text));
    }

    #[test]
    fn unknown_axes_and_values_are_named() {
        let mut forced = Forced::default();
        assert!(matches!(forced.set("colour", "red"), Err(ForcedError::Axis { .. })));
        assert!(matches!(forced.set("group_table", "red"), Err(ForcedError::Value { .. })));
        forced.set("morsel_rows", "4096").expect("an axis and its value");
        forced.set("morsel_rows", "rule").expect("the rule");
        assert!(forced.is_empty());
    }

    /// Of an axis with one value there is nothing to choose.
    #[test]
    fn axes_have_a_choice_and_a_status() {
        for axis in axes::ALL {
            assert!(axis.values.len() > 1, "{}", axis.name);
            assert!(["rule", "paper", "knob"].contains(&axis.status.to_string().as_str()), "{}", axis.name);
        }
        let knobs = axes::ALL.iter().filter(|axis| axis.status == Status::Knob);
        // So much as fills the cache is a number too.
        let is_number = |value: &&str| value.parse::<u64>().is_ok() || *value == "cache";
        let is_switch = |values: &[&str]| values.len() == 2;
        for axis in knobs {
            assert!(is_switch(axis.values) || axis.values.iter().all(is_number), "{}", axis.name);
        }
    }

    #[test]
    fn axes_have_different_names_and_as_many_names_as_values() {
        let mut names: Vec<_> = axes::ALL.iter().map(|axis| axis.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), axes::ALL.len());
        assert_eq!(MorselRows::ALL.len(), MorselRows::AXIS.values.len());
        assert!(MorselRows::ALL.iter().all(|value| value.0.to_string() == value.name()));
    }
}
