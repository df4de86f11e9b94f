//! Every value of every axis gives equal rows: wherever a plan leaves a choice, each possible value alone, and random genomes, on
//! the CPU, on the interpreter, and on a GPU where there is one.

use crate::plans;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};

use crate::plans::{plans, rows_of, run, table, try_run};
use kelpie_compile::expr::{Expr, ExprKind};
use kelpie_compile::plan::{AggregateFunction, Plan};
use kelpie_engine::variant::axes;
use kelpie_engine::{Choice, DeviceChoice, Engine, Forced, QueryOptions, TableSource};

/// Random genomes a plan.
const GENOMES: u64 = 3;

/// A generator of numbers (Steele et al., SplitMix64): the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % count.max(1) as u64) as usize
    }
}

/// What was compared.
#[derive(Default)]
struct Tally {
    pairs: usize,
    /// Genomes in which one forced value leaves another nothing to stand on.
    impossible: usize,
    /// Values that were chosen, by a rule or by force.
    values: BTreeSet<(&'static str, &'static str)>,
}

fn force(choices: &[(&Choice, &'static str)]) -> Forced {
    let mut forced = Forced::default();
    for (choice, value) in choices {
        forced.set(&choice.qualified(), value).expect("an axis and its value");
    }
    forced
}

/// Runs every plan on a device under each possible value alone and under random genomes.
fn compare(device: DeviceChoice, sizes: [usize; 2], every: usize) -> Tally {
    let engine = Engine::new();
    let sources: [Arc<dyn TableSource>; 2] = sizes.map(table);
    let (mut tally, mut random) = (Tally::default(), Random(sizes[0] as u64));
    for (name, plan, ordered) in plans().into_iter().step_by(every) {
        let options = QueryOptions { device, threads: Some(2), ..QueryOptions::default() };
        let output = run(&engine, &plan, &sources, &options);
        let expected = rows_of(&output.batch, ordered);
        let choices: Vec<Choice> = output.metrics.choices().cloned().collect();
        tally.values.extend(choices.iter().map(|choice| (choice.axis.name, choice.value)));
        let mut genomes = Vec::new();
        for choice in &choices {
            let others = choice.possible().filter(|value| *value != choice.value);
            genomes.extend(others.map(|value| vec![(choice, value)]));
        }
        for _ in 0..GENOMES {
            let pick = |choice| -> (&Choice, &'static str) {
                let choice: &Choice = choice;
                let possible: Vec<_> = choice.possible().collect();
                (choice, possible[random.below(possible.len())])
            };
            genomes.push(choices.iter().map(pick).collect());
        }
        // A pipeline of another stage may have the same name.
        let same = |name: String| choices.iter().filter(|choice| choice.qualified() == name).count();
        let may_lack = |genome: &[(&Choice, _)]| {
            genome.len() > 1 || genome.iter().any(|(choice, _)| same(choice.qualified()) > 1)
        };
        // What a value leaves open besides is tried with it, or with one of the values of its axis that leave that open.
        let mut opened = BTreeSet::new();
        let mut genomes: VecDeque<Vec<(Choice, &'static str)>> = genomes
            .into_iter()
            .map(|genome| genome.into_iter().map(|(choice, value)| (choice.clone(), value)).collect())
            .collect();
        while let Some(genome) = genomes.pop_front() {
            let genome: Vec<(&Choice, &'static str)> =
                genome.iter().map(|(choice, value)| (choice, *value)).collect();
            let options = QueryOptions { variants: force(&genome), ..options.clone() };
            match try_run(&engine, &plan, &sources, &options) {
                Ok(output) => {
                    assert_eq!(rows_of(&output.batch, ordered), expected, "{name}: {:?}", options.variants);
                    // A choice may come with another: how the first rows are found, where the device sorts.
                    let chosen = output.metrics.choices();
                    tally.values.extend(chosen.map(|choice| (choice.axis.name, choice.value)));
                    if let [(choice, value)] = genome[..] {
                        let is_new =
                            |new: &&Choice| choices.iter().all(|known| known.qualified() != new.qualified());
                        for new in output.metrics.choices().filter(is_new) {
                            let is_first = |other: &&'static str| {
                                opened.insert((choice.qualified(), new.qualified(), *other))
                            };
                            let others = new.possible().filter(|value| *value != new.value).filter(is_first);
                            genomes.extend(
                                others.map(|other| vec![(choice.clone(), value), (new.clone(), other)]),
                            );
                        }
                    }
                }
                Err(error) if may_lack(&genome) && error.to_string().contains("is not possible") => {
                    tally.impossible += 1;
                    continue;
                }
                Err(error) => panic!("{name}: {:?}: {error}", options.variants),
            }
            tally.pairs += 1;
            tally.values.extend(genome.iter().map(|(choice, value)| (choice.axis.name, *value)));
        }
    }
    tally
}

static ON_CPU: LazyLock<Tally> = LazyLock::new(|| compare(DeviceChoice::Cpu, [150, 60], 1));
static ON_SIMT: LazyLock<Tally> = LazyLock::new(|| compare(DeviceChoice::Simt, [150, 60], 1));

#[test]
fn every_value_gives_the_same_rows_on_cpu() {
    let tally = &*ON_CPU;
    assert!(tally.pairs >= 500, "{}", tally.pairs);
    assert!(tally.impossible * 10 < tally.pairs, "{}", tally.impossible);
}

#[test]
fn every_value_gives_the_same_rows_on_simt() {
    let tally = &*ON_SIMT;
    assert!(tally.pairs >= 100, "{}", tally.pairs);
    assert!(tally.impossible * 10 < tally.pairs, "{}", tally.impossible);
}

#[test]
fn every_value_gives_the_same_rows_on_cuda() {
    if kelpie_engine::testing::has_cuda(&Engine::new()) {
        let tally = compare(DeviceChoice::Cuda, [150, 60], 5);
        assert!(tally.pairs >= 200, "{}", tally.pairs);
    }
}

/// Nothing in the registry is out of reach: the plans of these tests run under each value of each axis on some device.
#[test]
fn every_value_is_chosen_somewhere() {
    let is_chosen = |value: &(&'static str, &'static str)| {
        [&ON_CPU, &ON_SIMT].iter().any(|tally| tally.values.contains(value))
    };
    let all = axes::ALL.iter().flat_map(|axis| axis.values.iter().map(|value| (axis.name, *value)));
    let missing: Vec<_> = all.filter(|value| !is_chosen(value)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_value_that_is_not_possible_names_what_it_lacks() {
    let engine = Engine::new();
    let sources = [table(150), table(60)];
    let (_, plan, _) = plans().into_iter().find(|(name, ..)| name == "groups by more").expect("such a plan");
    let mut variants = Forced::default();
    variants.set("aggregate0.group_table", "direct").expect("an axis and its value");
    let options = QueryOptions { device: DeviceChoice::Cpu, variants, ..QueryOptions::default() };
    let error = try_run(&engine, &plan, &sources, &options).expect_err("keys of any text");
    let text = "kelpie.variant.aggregate0.group_table = direct is not possible: ";
    assert!(error.to_string().contains(text), "{error}");
}

/// 0.0 and -0.0 are one group, and what is computed of them may differ: such keys are computed of rows.
#[test]
fn keys_computed_of_floats_are_computed_of_rows() {
    let engine = Engine::new();
    let sources = [table(150), table(60)];
    for (column, is_possible) in [(4, false), (1, true)] {
        let counted = plans::aggregate(plans::scan(0), &[column], &[(AggregateFunction::Count, None, false)]);
        let Plan::Aggregate { input, mut keys, aggregates, names } = counted else { panic!("no groups") };
        keys[0] = Expr { kind: ExprKind::Negate(Box::new(keys[0].clone())), ..keys[0].clone() };
        let plan = Plan::Aggregate { input, keys, aggregates, names };
        let mut variants = Forced::default();
        variants.set("aggregate0.computed_keys", "values").expect("an axis and its value");
        let options = QueryOptions { device: DeviceChoice::Cpu, variants, ..QueryOptions::default() };
        let outcome = try_run(&engine, &plan, &sources, &options);
        assert_eq!(outcome.is_ok(), is_possible, "{column}");
        let error = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error.contains("keys are computed of floats"), !is_possible, "{error}");
    }
}
