//! Stages that run again are tried in other variants: whatever is tried and chosen, the rows are the same. Times are made of the names of
//! variants here, so that what happens is the same in every run.

use crate::common::*;
use crate::plans::{plans, table};
use kelpie_engine::{TunedSummary, TunerMode, TunerOptions};

/// Rows of the tables of [`plans`].
const ROWS: [usize; 2] = [250, 130];

fn tuned(options: QueryOptions, mode: TunerMode) -> QueryOptions {
    QueryOptions { tuner: TunerOptions { mode, deterministic: true, ..TunerOptions::default() }, ..options }
}

/// What the engine has tried and chosen so far.
fn tried(engine: &Engine) -> (usize, usize) {
    let all = engine.tuned();
    let ended = all.iter().flat_map(|stage| &stage.trials).filter(|line| !line.contains("not measured"));
    (ended.count(), all.iter().map(|stage| stage.chosen.len()).sum())
}

#[test]
fn every_run_gives_the_same_rows_whatever_is_tried() {
    let (sources, plans) = (ROWS.map(table), plans());
    let cases = plans.iter().flat_map(|plan| lanes().into_iter().map(move |on| (plan, on_lanes(on, &[]))));
    let cases = covering("tuned stages", cases, 60, |((name, ..), options)| {
        facets_and(options, &[&name.split(" on [").next()])
    });
    let engine = Engine::new();
    for ((name, plan, ordered), options) in cases {
        let expected = rows_of(&run(&engine, plan, &sources, &options).batch, *ordered);
        let options = tuned(options, TunerMode::Genetic);
        for round in 0..if cfg!(debug_assertions) { 14 } else { 60 } {
            let output = run(&engine, plan, &sources, &options);
            let genome = output.metrics.variants.last();
            assert_eq!(rows_of(&output.batch, *ordered), expected, "{name}, run {round}: {genome:?}");
        }
    }
    let (tried, chosen) = tried(&engine);
    assert!(tried > 30 && chosen > 15, "{tried} tried, {chosen} chosen");
}

/// A plan whose stage has choices of operators and of pipelines.
fn grouped() -> (Plan, [Arc<dyn TableSource>; 2], bool) {
    let found = plans().into_iter().find(|(name, ..)| name == "groups by text");
    let (_, plan, ordered) = found.expect("the plan");
    (plan, ROWS.map(table), ordered)
}

fn runs(engine: &Engine, count: usize, options: &QueryOptions) -> Vec<QueryOutput> {
    let (plan, sources, _) = grouped();
    (0..count).map(|_| run(engine, &plan, &sources, options)).collect()
}

#[test]
fn what_is_faster_is_chosen_and_explained() {
    let engine = Engine::new();
    let options = tuned(cpu(), TunerMode::Greedy);
    // Until what was chosen has been measured beside the rules' choice.
    let is_measured = |stage: &TunedSummary| {
        !stage.chosen.is_empty() && stage.beside_rules.is_some_and(|(ratio, _)| ratio < 1.0)
    };
    let found = (0..60).find_map(|_| {
        runs(&engine, 10, &options);
        engine.tuned().into_iter().find(is_measured)
    });
    let stage = found.expect("something is faster");
    assert!(stage.saved > 0.0, "{stage:?}");
    let (plan, sources, _) = grouped();
    let query = Query { plan, sources: sources.to_vec(), options: options.clone() };
    let text = engine.explain(&query, ExplainStage::Variants).expect("it is explained");
    assert!(text.contains("learned: "), "{text}");
    // Nothing of it where the rules decide.
    for mode in [TunerMode::Off, TunerMode::Rules] {
        let query = Query { options: tuned(cpu(), mode), ..query.clone() };
        let text = engine.explain(&query, ExplainStage::Variants).expect("it is explained");
        assert!(!text.contains("learned: "), "{text}");
    }
}

#[test]
fn engines_that_see_the_same_learn_the_same() {
    let learn = || {
        let engine = Engine::new();
        runs(&engine, 60, &tuned(cpu(), TunerMode::Genetic));
        engine.tuned()
    };
    let first = learn();
    assert!(!first.is_empty());
    assert_eq!(first, learn());
}

#[test]
fn nothing_is_tried_unless_it_is_wanted() {
    let engine = Engine::new();
    for mode in [TunerMode::Off, TunerMode::Rules] {
        let outputs = runs(&engine, 12, &tuned(cpu(), mode));
        let genomes = outputs.iter().map(|output| &output.metrics.variants);
        assert!(genomes.clone().all(|genome| genome == &outputs[0].metrics.variants));
        assert_eq!(tried(&engine), (0, 0));
    }
}

#[test]
fn what_was_learned_goes_to_another_engine_and_is_forgotten() {
    let engine = Engine::new();
    let options = tuned(cpu(), TunerMode::Genetic);
    runs(&engine, 80, &options);
    let (text, learned) = (engine.export_tuned(), engine.tuned());
    let other = Engine::new();
    assert_eq!(other.import_tuned(&text), Ok(learned.len()));
    assert_eq!(other.tuned(), learned);
    assert_eq!(other.import_tuned(&text), Ok(0));
    // The first run of it takes what was chosen.
    let chosen = &learned[0].chosen;
    let genome = runs(&other, 1, &options)[0].metrics.variants.clone();
    let is_taken = |(name, value): &(String, String)| {
        genome.iter().flat_map(|genome| &genome.0).any(|own| own.qualified() == *name && own.value == value)
    };
    assert!(!chosen.is_empty() && chosen.iter().all(is_taken), "{chosen:?} {genome:?}");
    assert_eq!(engine.forget_tuned(), learned.len());
    assert!(engine.tuned().is_empty());
    for wrong in ["", "{}", "{\"version\": 9, \"stages\": []}", "{\"version\": 1, \"stages\": [7]}"] {
        assert!(other.import_tuned(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_engine_begins_with_what_was_tuned_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = tuned(cpu(), TunerMode::Genetic);
    let engine = Engine::calibrated_from(folder.path());
    runs(&engine, 60, &options);
    let learned = engine.tuned();
    drop(engine);
    assert!(!learned.is_empty());
    assert_eq!(Engine::calibrated_from(folder.path()).tuned(), learned);
}
