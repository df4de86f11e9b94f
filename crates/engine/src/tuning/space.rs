//! The variants of a stage as a space for the tuner: its choices, each with what else is possible.

use std::collections::{BTreeMap, BTreeSet};

use kelpie_compile::variant::{Choice, Forced, Genome};
use kelpie_tuner::{Rng, Space};

/// Values by the name that forces them, `site.axis`: what a variant has otherwise than the rules.
pub(crate) type Values = BTreeMap<String, String>;

/// How often a variant that is drawn differs in two choices: one in so many. Choices that are far from all others are mostly bad.
const IN_TWO: u32 = 4;
/// How many are drawn for one that is new.
const DRAWS: usize = 64;

/// The variants around the one that is in use, whose genome is all zeros.
#[derive(Debug)]
pub(super) struct ChoiceSpace {
    /// What the one in use has otherwise than the rules.
    chosen: Values,
    choices: Vec<Variable>,
    counts: Vec<u16>,
    /// Those that are not to be tried again.
    tried: BTreeSet<Values>,
}

/// A choice.
#[derive(Debug)]
struct Variable {
    name: String,
    /// What is possible; what is in use comes first.
    values: Vec<&'static str>,
}

impl ChoiceSpace {
    /// The space around a program's genome, of those choices that are wanted.
    pub fn around(
        genome: &Genome,
        chosen: &Values,
        tried: BTreeSet<Values>,
        is_wanted: impl Fn(&Choice) -> bool,
    ) -> ChoiceSpace {
        let wanted = genome.0.iter().filter(|choice| is_wanted(choice));
        let choices: Vec<Variable> = wanted
            .filter_map(|choice| {
                let others = choice.possible().filter(|value| *value != choice.value);
                let values: Vec<_> = std::iter::once(choice.value).chain(others).collect();
                (values.len() > 1).then(|| Variable { name: choice.qualified(), values })
            })
            .collect();
        let counts = choices.iter().map(|choice| choice.values.len() as u16).collect();
        ChoiceSpace { chosen: chosen.clone(), choices, counts, tried }
    }

    /// How many choices there are.
    pub fn len(&self) -> usize {
        self.choices.len()
    }

    /// What a variant has otherwise than the rules.
    pub fn values(&self, genome: &[u16]) -> Values {
        let mut values = self.chosen.clone();
        for (choice, value) in self.choices.iter().zip(genome).filter(|(_, value)| **value > 0) {
            if let Some(value) = choice.values.get(usize::from(*value)) {
                values.insert(choice.name.clone(), (*value).to_string());
            }
        }
        values
    }

    /// The genome of a variant; `None` where it is not in the space.
    pub fn genome(&self, values: &Values) -> Option<Vec<u16>> {
        let known = |name: &String| self.choices.iter().any(|choice| choice.name == *name);
        let differs = |(name, value): &(&String, &String)| self.chosen.get(*name) != Some(*value);
        if values.iter().filter(differs).any(|(name, _)| !known(name)) {
            return None;
        }
        let of = |choice: &Variable| match values.get(&choice.name) {
            Some(value) => choice.values.iter().position(|known| known == value).map(|value| value as u16),
            None => Some(0),
        };
        self.choices.iter().map(of).collect()
    }
}

impl Space for ChoiceSpace {
    fn counts(&self) -> &[u16] {
        &self.counts
    }

    fn allows(&self, genome: &[u16]) -> bool {
        !self.tried.contains(&self.values(genome))
    }

    /// A neighbour of the one in use: another value of one choice, or of two.
    fn random(&self, rng: &mut Rng) -> Option<Vec<u16>> {
        (0..DRAWS).find_map(|_| {
            let mut genome = vec![0; self.counts.len()];
            for _ in 0..1 + u32::from(rng.u32(0..IN_TWO) == 0) {
                let choice = rng.usize(0..self.counts.len().max(1));
                let count = self.counts.get(choice).filter(|count| **count > 1)?;
                genome[choice] = rng.u16(1..*count);
            }
            self.allows(&genome).then_some(genome)
        })
    }
}

/// What a session forces, and a variant beside it; `None` where the variant is not one of this build.
pub(super) fn forced(by_session: &Forced, values: &Values) -> Option<Forced> {
    let mut all = by_session.clone();
    for (name, value) in values {
        all.set(name, value).ok()?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelpie_compile::variant::axes::{BatchRows, GroupForm};
    use kelpie_compile::variant::{Chooser, Variant};

    fn genome() -> Genome {
        let chooser = Chooser::new(Forced::none());
        let rule = (GroupForm::Hash, "few groups");
        chooser.choose("aggregate0", rule, |_| Ok(())).expect("possible");
        let batch = BatchRows::ALL[0];
        chooser.choose("aggregate0", (batch, "a rule"), |_| Ok(())).expect("possible");
        let only_hash = |form| if form == GroupForm::Hash { Ok(()) } else { Err("no domain".into()) };
        chooser.choose("aggregate1", rule, only_hash).expect("possible");
        chooser.into_genome()
    }

    #[test]
    fn a_space_has_what_is_possible_otherwise() {
        let space = ChoiceSpace::around(&genome(), &Values::new(), BTreeSet::new(), |_| true);
        assert_eq!(space.len(), 2);
        assert_eq!(space.values(&[0, 0]), Values::new());
        let direct: Values = [("aggregate0.group_table".to_string(), "direct".to_string())].into();
        assert_eq!(space.values(&[1, 0]), direct);
        assert_eq!(space.genome(&direct), Some(vec![1, 0]));
        let elsewhere: Values = [("aggregate1.group_table".to_string(), "direct".to_string())].into();
        assert_eq!(space.genome(&elsewhere), None);
        let only = ChoiceSpace::around(&genome(), &Values::new(), BTreeSet::new(), |choice| {
            choice.axis.name == "group_table"
        });
        let tried = [direct].into();
        let none = ChoiceSpace { tried, ..only };
        assert_eq!(none.random(&mut Rng::with_seed(1)), None);
    }

    #[test]
    fn what_is_drawn_is_another_variant_and_can_be_forced() {
        let space = ChoiceSpace::around(&genome(), &Values::new(), BTreeSet::new(), |_| true);
        let mut rng = Rng::with_seed(3);
        for _ in 0..50 {
            let drawn = space.random(&mut rng).expect("there are others");
            let values = space.values(&drawn);
            assert!(!values.is_empty() && space.genome(&values) == Some(drawn));
            assert!(forced(Forced::none(), &values).is_some());
        }
        let strange: Values = [("aggregate0.colour".to_string(), "red".to_string())].into();
        assert_eq!(forced(Forced::none(), &strange), None);
    }
}
