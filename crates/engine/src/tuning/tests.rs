//! What a stage does next, by times that are told.

use kelpie_compile::variant::axes::GroupForm;
use kelpie_compile::variant::{Chooser, Forced, Genome};

use super::record::{Arm, Ended};
use super::space::Values;
use super::state::{Purpose, RunFacts, StageState};
use super::*;
use crate::stage::Course;

fn genome() -> Arc<Genome> {
    let chooser = Chooser::new(Forced::none());
    chooser.choose("aggregate0", (GroupForm::Direct, "a rule"), |_| Ok(())).expect("possible");
    Arc::new(chooser.into_genome())
}

fn facts(time_ns: u64) -> RunFacts {
    RunFacts { course: Course::pretended(time_ns), ..RunFacts::default() }
}

fn hash() -> Values {
    [("aggregate0.group_table".to_string(), "hash".to_string())].into()
}

/// A stage that has run by the rules, with one variant that is to be tried.
fn stage(rules_ns: u64) -> StageState {
    let mut state = StageState::new(TunedStage::default(), Fingerprint::of(&1), Arc::default());
    (0..2).for_each(|_| state.ran(facts(rules_ns), &genome(), &["scan t"]));
    state.record.arms.push(Arm::new(hash()));
    state
}

const ARM: Purpose = Purpose::Arm(0);

#[test]
fn the_first_run_of_a_variant_only_says_that_it_is_not_hopeless() {
    let mut state = stage(1000);
    assert!(state.bound(ARM).is_some());
    state.tried(ARM, &facts(10));
    assert!(state.bound(ARM).is_none() && state.record.arms[0].pairs.is_empty());
    (0..2).for_each(|_| state.tried(ARM, &facts(500)));
    assert_eq!((&state.record.chosen, state.record.beside_rules.len()), (&hash(), 2));
    assert!(state.record.arms.is_empty());
}

#[test]
fn a_run_that_tells_nothing_is_not_counted() {
    let mut state = stage(1000);
    state.tried(ARM, &facts(900));
    state.tried(ARM, &RunFacts { was_first: true, ..facts(1) });
    state.tried(ARM, &RunFacts { rows_out: 50, ..facts(1) });
    assert!(state.record.arms[0].pairs.is_empty());
    let before = state.record.runs;
    state.ran(RunFacts { was_first: true, ..facts(1) }, &genome(), &[]);
    assert_eq!((state.record.runs, state.chosen_ns()), (before, 1000));
}

/// Another process slows half of the runs: of both, next to each other.
#[test]
fn a_machine_that_is_slow_now_and_then_changes_no_verdict() {
    let mut state = stage(1000);
    state.tried(ARM, &facts(1000));
    for run in 0..6_u64 {
        let load = 1 + run / 2 % 2 * 2;
        state.ran(facts(1000 * load), &genome(), &[]);
        state.tried(ARM, &facts(1005 * load));
    }
    assert_eq!((&state.record.chosen, &state.record.arms[0].ended), (&Values::new(), &Some(Ended::Same)));
}

#[test]
fn what_was_chosen_is_dropped_where_the_rules_are_faster() {
    let mut state = stage(1000);
    (0..3).for_each(|_| state.tried(ARM, &facts(500)));
    assert_eq!(state.record.chosen, hash());
    state.ran(facts(1500), &genome(), &[]);
    (0..8).for_each(|_| state.tried(Purpose::Rules, &facts(1000)));
    assert!(state.record.chosen.is_empty() && state.record.tried.contains(&hash()));
}

#[test]
fn what_was_given_up_costs_and_no_more_than_a_part_is_lost() {
    let mut state = stage(1000);
    let mut tried = 0;
    while state.record.regret.left() >= 0.5 && tried < 100 {
        state.record.arms = vec![Arm::new(hash())];
        state.gave_up(ARM, 400);
        assert_eq!(state.record.arms[0].ended, Some(Ended::GivenUp));
        tried += 1;
    }
    assert!(tried == 2, "{tried}");
    assert!(state.record.regret.lost() <= 1.2, "{}", state.record.regret.lost());
}

#[test]
fn a_tuner_keeps_a_bounded_number_of_stages() {
    let (tuner, learned) = (Tuner::default(), Learned::default());
    let first = tuner.stage(Fingerprint::of(&0), &learned);
    assert!(Arc::ptr_eq(&first, &tuner.stage(Fingerprint::of(&0), &learned)));
    (1..=STAGES).for_each(|number| drop(tuner.stage(Fingerprint::of(&number), &learned)));
    assert_eq!(tuner.stages.lock().known.len(), STAGES);
    assert!(!Arc::ptr_eq(&first, &tuner.stage(Fingerprint::of(&0), &learned)));
}
