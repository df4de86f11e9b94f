//! The micro models give equal rows: a table of plans under every model and resolution, on the CPU and on the interpreter.

use crate::common::*;
use crate::plans::{aggregate, filter, join, plans, project, scan, table};
use kelpie_compile::plan::AggregateFunction::Count;
use kelpie_compile::plan::JoinKind::Inner;
use kelpie_engine::Transfer;

fn options() -> Vec<QueryOptions> {
    let with = |resolution| {
        // A sort is the host's unless that is forbidden.
        let more = move |options| QueryOptions { resolution, host_sort_rows: Some(0), ..options };
        models(&lanes()).into_iter().map(more)
    };
    Resolution::ALL.into_iter().flat_map(with).collect()
}

/// Every plan over tables of so many rows gives the same rows under all options, also when it runs again.
fn compare_models(sizes: [usize; 2], plans: &[(String, Plan, bool)], all: &[QueryOptions], most: usize) {
    let engine = Engine::new();
    let sources = sizes.map(table);
    let reference = QueryOptions { micro_model: MicroModel::Pipelined, threads: Some(1), ..cpu() };
    let cases = (0..plans.len()).flat_map(|plan| all.iter().map(move |options| (plan, options)));
    // Joins of a kind differ in their keys.
    let kind = |plan: &usize| plans[*plan].0.split(" on [").next();
    let cases = covering(&format!("models, {sizes:?} rows"), cases, most, |(plan, options)| {
        facets_and(options, &[&kind(plan), &(options.micro_model, options.device)])
    });
    let mut expected = HashMap::new();
    for (number, options) in cases {
        let (name, plan, ordered) = &plans[number];
        let rows = |options| rows_of(&run(&engine, plan, &sources, options).batch, *ordered);
        let expected = expected.entry(number).or_insert_with(|| rows(&reference));
        // A second run starts with the sizes of the first.
        for _ in 0..if options.device == DeviceChoice::Simt { 1 } else { 2 } {
            assert_eq!(rows(options), *expected, "{name}: {options:?}");
        }
    }
}

#[test]
fn every_model_gives_the_same_rows() {
    compare_models([150, 60], &plans(), &options(), 70);
}

#[test]
fn no_rows_of_the_first_table() {
    compare_models([0, 60], &plans(), &options(), 70);
}

#[test]
fn no_rows_of_the_second_table() {
    compare_models([60, 0], &plans(), &options(), 70);
}

#[test]
fn no_rows_at_all() {
    compare_models([0, 0], &plans(), &options(), 70);
}

/// Chains run block by block; where the host is between any two kernels, each by itself.
#[test]
fn blocks() {
    let mut all = Vec::new();
    for micro_model in MicroModel::ALL {
        for (macro_model, block_bytes) in
            [(MacroModel::Batch, 1 << 10), (MacroModel::Batch, 5 << 10), (MacroModel::KernelAtATime, 1 << 10)]
        {
            all.push(QueryOptions {
                device: DeviceChoice::Cpu,
                micro_model,
                macro_model,
                block_bytes: Some(block_bytes),
                host_sort_rows: Some(0),
                ..QueryOptions::default()
            });
        }
    }
    compare_models([4_500, 200], &plans(), &all, 60);
}

/// With zero-copy kernels write results of many rows to memory of the host: rows of a scan, of a join, and groups.
#[test]
fn results_that_are_written_to_the_host() {
    let joined = join(Inner, scan(1), scan(0), &[(0, 0)], false);
    let groups = aggregate(scan(0), &[1], &[(Count, None, false)]);
    let plans = [("a scan", scan(0)), ("a join", joined), ("groups", groups)];
    let plans = plans.map(|(name, plan)| (name.to_string(), plan, false));
    let moves = [MacroModel::default(), MacroModel::RunToFinish, MacroModel::Batch];
    let with = |device| {
        let options = QueryOptions { transfer: Transfer::ZeroCopy, ..on_lanes(device, &[]) };
        moves.map(|macro_model| QueryOptions { macro_model, ..options.clone() })
    };
    let all: Vec<QueryOptions> = lanes().into_iter().flat_map(with).collect();
    compare_models([20_000, 50], &plans, &all, 12);
}

#[test]
fn rows_keep_the_order_of_the_source() {
    let engine = Engine::new();
    let sources = [table(5_000), table(0)];
    let plan = project(filter(scan(0), 1, CompareOp::Ge, 100), &[1, 3], 1);
    for micro_model in [MicroModel::OperatorAtATime, MicroModel::MultiPass] {
        let options = QueryOptions { micro_model, ..cpu() };
        let output = run(&engine, &plan, &sources, &options);
        let first = output.batch.column(0).as_primitive::<Int32Type>();
        assert!(first.values().iter().copied().eq(100..5_000), "{micro_model:?}");
    }
}

#[test]
fn pipelines_show_what_they_materialise() {
    let engine = Engine::new();
    let sources = [table(150), table(60)];
    let inner = join(Inner, scan(1), filter(scan(0), 1, CompareOp::Lt, 90), &[(1, 1)], false);
    let plan = aggregate(inner, &[2], &[(Count, None, false)]);
    let names = |micro_model| {
        let options = QueryOptions { micro_model, ..cpu() };
        let output = run(&engine, &plan, &sources, &options);
        output.metrics.pipelines.into_iter().map(|pipeline| pipeline.name).collect::<Vec<_>>()
    };
    let sinks = |name: &str| name.matches('→').count();
    let (fused, multi, single) =
        (names(MicroModel::Pipelined), names(MicroModel::MultiPass), names(MicroModel::OperatorAtATime));
    assert_eq!(multi.len(), fused.len() + 2, "{multi:?}");
    assert_eq!(single.len(), fused.len() + 4, "{single:?}");
    assert!(single.contains(&"scan t → filter → rows".into()), "{single:?}");
    assert!(single.iter().all(|name| sinks(name) <= 2), "{single:?}");
}
