//! What values of axes have come to in other stages: those that were faster there are tried first here.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::TunedStage;
use super::space::Values;

/// How a value fared.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    tries: f64,
    wins: f64,
}

/// By `axis = value`, wherever it was tried.
#[derive(Debug, Default)]
pub(crate) struct Experience(Mutex<BTreeMap<String, Tally>>);

impl Experience {
    /// What earlier processes have left: of what was chosen and of what was no faster.
    pub fn of(stages: &[TunedStage]) -> Experience {
        let experience = Experience::default();
        for stage in stages {
            experience.add(&stage.chosen, true);
            stage.tried.iter().for_each(|values| experience.add(values, false));
        }
        experience
    }

    /// A variant with these values was faster than what is chosen, or not.
    pub fn add(&self, values: &Values, has_won: bool) {
        let mut known = self.0.lock();
        for (name, value) in values {
            let tally = known.entry(key(name, value)).or_default();
            tally.tries += 1.0;
            tally.wins += f64::from(u8::from(has_won));
        }
    }

    /// How likely it is that a value is worth a trial, beside others: a fourth where nothing is known of it.
    pub fn weight(&self, name: &str, value: &str) -> f64 {
        let tally = self.0.lock().get(&key(name, value)).copied().unwrap_or_default();
        (tally.wins + 0.5) / (tally.tries + 2.0)
    }
}

/// The axis and the value: of `aggregate0.group_table` and `hash`, without the site.
fn key(name: &str, value: &str) -> String {
    let axis = name.rsplit_once('.').map_or(name, |(_, axis)| axis);
    format!("{axis} = {value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_faster_elsewhere_weighs_more() {
        let values = |site: &str, value: &str| -> Values {
            [(format!("{site}.group_table"), value.to_string())].into()
        };
        let mut stage = TunedStage { chosen: values("aggregate0", "hash"), ..TunedStage::default() };
        stage.remember(&values("aggregate1", "direct"));
        let experience = Experience::of(&[stage]);
        let weight = |value| experience.weight("aggregate7.group_table", value);
        assert!(weight("hash") > weight("other") && weight("other") > weight("direct"));
        (0..20).for_each(|_| experience.add(&values("aggregate2", "hash"), false));
        assert!(experience.weight("aggregate7.group_table", "hash") < 0.1);
    }
}
