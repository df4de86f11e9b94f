//! The variants of a stage as a space for the tuner: its choices, each with what else is possible.

use std::collections::{BTreeMap, BTreeSet};

use kelpie_compile::variant::{Choice, Forced, Genome};
use kelpie_tuner::{Rng, Space};

use super::experience::Experience;

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

/// What a space is around.
pub(super) struct Around<'a> {
    /// The choices of the program in use.
    pub genome: &'a Genome,
    /// What it has otherwise than the rules.
    pub chosen: &'a Values,
    /// What is not to be tried again.
    pub tried: BTreeSet<Values>,
    /// How values fared elsewhere.
    pub experience: &'a Experience,
}

/// A choice.
#[derive(Debug)]
struct Variable {
    name: String,
    /// What is possible; what is in use comes first.
    values: Vec<&'static str>,
    /// How likely each is to be worth a trial; what is in use never.
    weights: Vec<f64>,
}

impl ChoiceSpace {
    /// The space around a program's genome, of those choices that are wanted.
    pub fn around(around: Around<'_>, is_wanted: impl Fn(&Choice) -> bool) -> ChoiceSpace {
        let Around { genome, chosen, tried, experience } = around;
        let wanted = genome.0.iter().filter(|choice| is_wanted(choice));
        let choices: Vec<Variable> = wanted
            .filter_map(|choice| {
                let name = choice.qualified();
                let others: Vec<_> = choice.possible().filter(|value| *value != choice.value).collect();
                let weigh = |value: &&str| experience.weight(&name, value);
                let weights: Vec<f64> = std::iter::once(0.0).chain(others.iter().map(weigh)).collect();
                let values = std::iter::once(choice.value).chain(others).collect();
                (weights.len() > 1).then_some(Variable { name, values, weights })
            })
            .collect();
        let counts = choices.iter().map(|choice| choice.values.len() as u16).collect();
        ChoiceSpace { chosen: chosen.clone(), choices, counts, tried }
    }

    /// Changes one choice of a genome to another value: likely one that was worth it elsewhere.
    fn change(&self, genome: &mut [u16], rng: &mut Rng) {
        let mut left = rng.f64() * self.choices.iter().flat_map(|choice| &choice.weights).sum::<f64>();
        for (choice, own) in self.choices.iter().zip(genome) {
            for (value, weight) in (0..).zip(&choice.weights).skip(1) {
                left -= weight;
                if left <= 0.0 {
                    *own = value;
                    return;
                }
            }
        }
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
                self.change(&mut genome, rng);
            }
            let differs = genome.iter().any(|value| *value > 0);
            (differs && self.allows(&genome)).then_some(genome)
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

    fn around(is_wanted: impl Fn(&Choice) -> bool) -> ChoiceSpace {
        let (chosen, experience) = (Values::new(), Experience::default());
        let around =
            Around { genome: &genome(), chosen: &chosen, tried: BTreeSet::new(), experience: &experience };
        ChoiceSpace::around(around, is_wanted)
    }

    #[test]
    fn a_space_has_what_is_possible_otherwise() {
        let space = around(|_| true);
        assert_eq!(space.len(), 2);
        assert_eq!(space.values(&[0, 0]), Values::new());
        let direct: Values = [("aggregate0.group_table".to_string(), "direct".to_string())].into();
        assert_eq!(space.values(&[1, 0]), direct);
        assert_eq!(space.genome(&direct), Some(vec![1, 0]));
        let elsewhere: Values = [("aggregate1.group_table".to_string(), "direct".to_string())].into();
        assert_eq!(space.genome(&elsewhere), None);
        let only = around(|choice| choice.axis.name == "group_table");
        let tried = [direct].into();
        let none = ChoiceSpace { tried, ..only };
        assert_eq!(none.random(&mut Rng::with_seed(1)), None);
    }

    #[test]
    fn what_is_drawn_is_another_variant_and_can_be_forced() {
        let space = around(|_| true);
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
