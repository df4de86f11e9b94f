//! Every value of every axis gives equal rows: wherever a plan leaves a choice, each possible value alone, and random genomes, on
//! the CPU, on the interpreter, and on a GPU where there is one.

use std::sync::Mutex;

use crate::common::*;
use crate::plans;
use crate::plans::{plans, table};
use kelpie_engine::Choice;
use kelpie_engine::variant::axes;

/// Random genomes a plan.
const GENOMES: u64 = 3;
/// Tests that share out the plans of a device.
const PARTS: usize = 4;
/// Genomes of a part that run, where not all of them do.
const MOST: usize = 150;

/// What was compared.
#[derive(Default)]
struct Tally {
    pairs: usize,
    /// Genomes in which one forced value leaves another nothing to stand on.
    impossible: usize,
    /// Values that were chosen, by a rule or by force.
    values: BTreeSet<(&'static str, &'static str)>,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.pairs += other.pairs;
        self.impossible += other.impossible;
        self.values.extend(&other.values);
    }
}

/// A plan that ran by the rules: its rows, and the choices that it leaves.
struct Surveyed {
    name: String,
    plan: Plan,
    ordered: bool,
    expected: Vec<String>,
    choices: Vec<Choice>,
}

impl Surveyed {
    /// Whether a value may lack what another one, or a pipeline of the same name in another stage, has to leave.
    fn may_lack(&self, genome: &[(Choice, &'static str)]) -> bool {
        let same = |name: String| self.choices.iter().filter(|choice| choice.qualified() == name).count();
        genome.len() > 1 || genome.iter().any(|(choice, _)| same(choice.qualified()) > 1)
    }
}

/// What is forced of a plan, by its place among those that were surveyed.
struct Case {
    plan: usize,
    genome: Vec<(Choice, &'static str)>,
}

impl Case {
    /// The value that is forced alone.
    fn alone(&self) -> Option<(&'static str, &'static str)> {
        if let [(choice, value)] = &self.genome[..] { Some((choice.axis.name, *value)) } else { None }
    }
}

fn forced(choices: &[(Choice, &'static str)]) -> Forced {
    let mut forced = Forced::default();
    for (choice, value) in choices {
        forced.set(&choice.qualified(), value).expect("an axis and its value");
    }
    forced
}

/// What runs plans on a device.
struct Runner {
    engine: Engine,
    sources: [Arc<dyn TableSource>; 2],
    options: QueryOptions,
}

impl Runner {
    fn new(device: DeviceChoice) -> Runner {
        let options = on(device, &[]);
        Runner { engine: Engine::new(), sources: [150, 60].map(table), options }
    }

    fn survey(&self, (name, plan, ordered): (String, Plan, bool)) -> Surveyed {
        let output = run(&self.engine, &plan, &self.sources, &self.options);
        let expected = rows_of(&output.batch, ordered);
        let choices = output.metrics.choices().cloned().collect();
        Surveyed { name, plan, ordered, expected, choices }
    }

    /// Runs genomes, and what their values leave open besides: with it each value is tried, or with one of the values of its axis that
    /// leave that open. Of a sample those alone that no other case has had.
    fn compare(&self, plans: &[Surveyed], cases: Vec<Case>) -> Tally {
        let mut tally = Tally::default();
        let own = plans.iter().flat_map(|plan| &plan.choices).map(|choice| (choice.axis.name, choice.value));
        tally.values.extend(own);
        let (mut seen, mut opened) = (BTreeSet::new(), Vec::new());
        for case in cases {
            for new in self.run(plans, &case, &mut tally) {
                for other in new.possible().filter(|value| *value != new.value) {
                    let (choice, value) = &case.genome[0];
                    if seen.insert((case.plan, choice.qualified(), new.qualified(), other)) {
                        let genome = vec![(choice.clone(), *value), (new.clone(), other)];
                        opened.push(Case { plan: case.plan, genome });
                    }
                }
            }
        }
        for case in opened {
            let has_been = |(choice, value): &(Choice, _)| tally.values.contains(&(choice.axis.name, *value));
            if is_whole() || !case.genome.iter().all(has_been) {
                self.run(plans, &case, &mut tally);
            }
        }
        tally
    }

    /// Runs a genome, and gives the choices that a value which is forced alone has left open.
    fn run(&self, plans: &[Surveyed], Case { plan, genome }: &Case, tally: &mut Tally) -> Vec<Choice> {
        let plan = &plans[*plan];
        let options = QueryOptions { variants: forced(genome), ..self.options.clone() };
        let output = match try_run(&self.engine, &plan.plan, &self.sources, &options) {
            Ok(output) => output,
            Err(error) if plan.may_lack(genome) && error.to_string().contains("is not possible") => {
                tally.impossible += 1;
                return Vec::new();
            }
            Err(error) => panic!("{}: {:?}: {error}", plan.name, options.variants),
        };
        let rows = rows_of(&output.batch, plan.ordered);
        assert_eq!(rows, plan.expected, "{}: {:?}", plan.name, options.variants);
        // A choice may come with another: how the first rows are found, where the device sorts.
        tally.values.extend(output.metrics.choices().map(|choice| (choice.axis.name, choice.value)));
        tally.values.extend(genome.iter().map(|(choice, value)| (choice.axis.name, *value)));
        tally.pairs += 1;
        let is_new = |new: &&Choice| plan.choices.iter().all(|old| old.qualified() != new.qualified());
        let is_alone = genome.len() == 1;
        output.metrics.choices().filter(is_new).filter(|_| is_alone).cloned().collect()
    }
}

/// Each possible value alone, and random genomes. `seed` tells plans apart.
fn genomes(choices: &[Choice], seed: u64) -> Vec<Vec<(Choice, &'static str)>> {
    let mut genomes = Vec::new();
    for choice in choices {
        let others = choice.possible().filter(|value| *value != choice.value);
        genomes.extend(others.map(|value| vec![(choice.clone(), value)]));
    }
    let mut random = Random(seed);
    for _ in 0..GENOMES {
        let pick = |choice: &Choice| {
            let possible: Vec<_> = choice.possible().collect();
            (choice.clone(), possible[random.below(possible.len())])
        };
        genomes.push(choices.iter().map(pick).collect());
    }
    genomes
}

/// Runs the plans of a part on a device under each possible value alone and under random genomes.
fn compare(device: DeviceChoice, part: usize, every: usize) -> Tally {
    let runner = Runner::new(device);
    let own: Vec<_> = plans().into_iter().enumerate().step_by(every).collect();
    // Plans that differ in their keys alone leave the same choices.
    let kind = |name: &str| name.split(" on [").next().unwrap_or_default().to_string();
    let keys = |name: &str| name.split(" on [").nth(1).map(str::to_string);
    let own = covering("plans", own, 0, |(_, (name, ..))| vec![Some(kind(name)), keys(name)]);
    let own = own.into_iter().skip(part).step_by(PARTS);
    let (seeds, plans): (Vec<usize>, Vec<Surveyed>) =
        own.map(|(number, plan)| (number, runner.survey(plan))).unzip();
    let cases = plans.iter().zip(seeds).enumerate().flat_map(|(plan, (surveyed, seed))| {
        let genomes = genomes(&surveyed.choices, seed as u64);
        genomes.into_iter().map(move |genome| Case { plan, genome })
    });
    let name = format!("genomes of part {part} on {device:?}");
    let cases = covering(&name, cases, MOST, |case| vec![case.alone()]);
    runner.compare(&plans, cases)
}

/// What the parts have seen in this process where every case runs.
static SEEN: Mutex<Vec<(DeviceChoice, Tally)>> = Mutex::new(Vec::new());

/// Runs a part. The last of all parts of the CPU and the interpreter to end sees that nothing in the registry is out of reach: each value
/// of each axis was chosen on one of the two.
fn check(device: DeviceChoice, part: usize) {
    let is_gpu = device == DeviceChoice::Cuda;
    if is_gpu && !has_cuda(&Engine::new()) {
        return;
    }
    // A compiler's work for each kernel is long, so a GPU has every fifth plan.
    let tally = compare(device, part, if is_gpu { 5 } else { 1 });
    assert!(tally.pairs > if is_gpu && is_whole() { 50 } else { 0 }, "{} pairs", tally.pairs);
    if is_gpu || !is_whole() {
        return;
    }
    let mut seen = SEEN.lock().expect("no other part has failed here");
    seen.push((device, tally));
    if seen.len() < 2 * PARTS {
        return;
    }
    let mut values = BTreeSet::new();
    for (device, least) in [(DeviceChoice::Cpu, 500), (DeviceChoice::Simt, 100)] {
        let mut all = Tally::default();
        seen.iter().filter(|(own, _)| *own == device).for_each(|(_, tally)| all.add(tally));
        assert!(all.pairs >= least, "{}", all.pairs);
        assert!(all.impossible * 10 < all.pairs, "{}", all.impossible);
        values.extend(all.values);
    }
    let known = axes::ALL.iter().flat_map(|axis| axis.values.iter().map(|value| (axis.name, *value)));
    let missing: Vec<_> = known.filter(|value| !values.contains(value)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A test for each part of the plans on a device.
macro_rules! parts {
    ($($name:ident: $device:ident $part:literal;)+) => {
        $(#[test]
        fn $name() {
            check(DeviceChoice::$device, $part);
        })+
    };
}

parts! {
    every_value_gives_the_same_rows_on_cpu_0: Cpu 0;
    every_value_gives_the_same_rows_on_cpu_1: Cpu 1;
    every_value_gives_the_same_rows_on_cpu_2: Cpu 2;
    every_value_gives_the_same_rows_on_cpu_3: Cpu 3;
    every_value_gives_the_same_rows_on_simt_0: Simt 0;
    every_value_gives_the_same_rows_on_simt_1: Simt 1;
    every_value_gives_the_same_rows_on_simt_2: Simt 2;
    every_value_gives_the_same_rows_on_simt_3: Simt 3;
    every_value_gives_the_same_rows_on_cuda_0: Cuda 0;
    every_value_gives_the_same_rows_on_cuda_1: Cuda 1;
    every_value_gives_the_same_rows_on_cuda_2: Cuda 2;
    every_value_gives_the_same_rows_on_cuda_3: Cuda 3;
}

#[test]
fn a_value_that_is_not_possible_names_what_it_lacks() {
    let engine = Engine::new();
    let sources = [table(150), table(60)];
    let (_, plan, _) = plans().into_iter().find(|(name, ..)| name == "groups by more").expect("such a plan");
    let variants = force([("aggregate0.group_table", "direct")]);
    let options = QueryOptions { variants, ..cpu() };
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
        let variants = force([("aggregate0.computed_keys", "values")]);
        let options = QueryOptions { variants, ..cpu() };
        let outcome = try_run(&engine, &plan, &sources, &options);
        assert_eq!(outcome.is_ok(), is_possible, "{column}");
        let error = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error.contains("keys are computed of floats"), !is_possible, "{error}");
    }
}
