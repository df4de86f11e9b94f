//! Texts of keys that the lanes of a warp look at together: kernels are valid for every micro model, and NVRTC accepts them; which lanes it is
//! changes no kernel of a CPU.

use std::collections::BTreeSet;

use kelpie_backend::cuda;
use kelpie_compile::MicroModel;
use kelpie_compile::expr::Expr;
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, CompiledPipeline, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Join, JoinKind, Plan, Scan};
use kelpie_compile::shape::ShapeChoices;
use kelpie_compile::types::{DataType, Field, Range};
use kelpie_kir::{Scalar, Target, validate};

use crate::common::{self, compiles, gpu};

/// A table of two texts and a number.
fn table(source: usize) -> Plan {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![
        field("t", DataType::Utf8, true),
        field("u", DataType::Utf8, false),
        field("v", DataType::Int32, false),
    ];
    Plan::Scan(Scan { source, table: "t".into(), columns: vec![0, 1, 2], fields })
}

fn info() -> ScanInfo {
    let text =
        |has_nulls| ColumnLayout { storage: Storage::Text { offset: Scalar::U32 }, has_nulls, range: None };
    let number = ColumnLayout {
        storage: Storage::Fixed { scalar: Scalar::U16, has_base: false },
        has_nulls: false,
        range: Some(Range { min: 0, max: 999 }),
    };
    ScanInfo::new(10_000_000, vec![text(true), text(false), number])
}

fn column(index: usize) -> Expr {
    match index {
        2 => Expr::column(2, DataType::Int32, false),
        index => Expr::column(index, DataType::Utf8, index == 0),
    }
}

fn groups(input: Plan, keys: &[usize]) -> Plan {
    let field = Field { name: "count".into(), data_type: DataType::Int64, nullable: true };
    let count = Aggregate { function: AggregateFunction::Count, argument: None, distinct: false, field };
    Plan::Aggregate {
        input: Box::new(input),
        keys: keys.iter().map(|key| column(*key)).collect(),
        aggregates: vec![count],
        names: keys.iter().map(|key| format!("k{key}")).collect(),
    }
}

fn join(kind: JoinKind, keys: &[usize]) -> Plan {
    let keys = keys.iter().map(|key| (column(*key), column(*key))).collect();
    let (build, probe) = (table(0), table(1));
    Plan::Join(Box::new(Join {
        build,
        probe,
        kind,
        keys,
        residual: None,
        null_equal: false,
        null_aware: false,
    }))
}

fn plans() -> Vec<Plan> {
    use JoinKind::*;
    let mut plans = vec![groups(table(0), &[0]), groups(table(0), &[1, 2, 0])];
    plans.extend([Inner, FullOuter, BuildSemi, ProbeAnti].map(|kind| join(kind, &[0])));
    plans.push(groups(join(Inner, &[1, 2]), &[0]));
    plans
}

/// The kernels of a plan.
fn kernels(
    plan: &Plan,
    target: &Target,
    model: MicroModel,
    (threads, forced): (Option<u32>, &[(&str, &str)]),
) -> Vec<kelpie_kir::ValidModule> {
    let set = common::forced(forced);
    // Keys of the build side are not unique.
    let duplicates = BTreeSet::from([0]);
    let shape = ShapeChoices { block_threads: threads, ..ShapeChoices::default() };
    let choices = Choices { forced: &set, shape, ..Choices::new(model, &duplicates) };
    let program =
        pipeline::compile_with(plan, &[info(), info()], target, &choices).expect("the plan compiles");
    let modules = program.pipelines.into_iter().flat_map(CompiledPipeline::into_modules);
    modules.map(|module| validate(module).expect("valid")).collect()
}

/// Compiles what was not `seen` before.
fn compile(
    modules: &[kelpie_kir::ValidModule],
    seen: &mut BTreeSet<String>,
    plan: &Plan,
    forced: &[(&str, &str)],
) {
    for module in modules {
        let source = cuda::print(module).expect("prints");
        if !seen.insert(source.clone()) {
            continue;
        }
        compiles(&format!("{plan:?}, {forced:?}"), &source);
    }
}

#[test]
fn kernels_that_share_texts_of_keys_pass_nvrtc() {
    let gpu = gpu();
    let mut seen = BTreeSet::new();
    for plan in plans() {
        for (number, carried) in ["places", "values"].into_iter().enumerate() {
            for (turn, model) in MicroModel::ALL.into_iter().enumerate() {
                let threads = [None, Some(8)][(number + turn) % 2];
                let others = [
                    ("key_text_lanes", "warp"),
                    ("lane_refill", ["off", "last"][turn / 2]),
                    ("expansion", ["packed", "lane", "refill"][(number + turn) % 3]),
                    ("live_columns", carried),
                ];
                compile(&kernels(&plan, &gpu, model, (threads, &others)), &mut seen, &plan, &others);
            }
        }
    }
    let shared = seen.iter().filter(|source| source.contains("text_part")).count();
    assert!(shared >= 24, "{shared} of {}", seen.len());
}

#[test]
fn a_cpu_has_the_same_kernels_whatever_lanes_are_forced() {
    for plan in plans() {
        let printed = |texts| {
            let kernels =
                kernels(&plan, &Target::cpu(2), MicroModel::Resolution, (None, &[("key_text_lanes", texts)]));
            kernels.iter().map(|module| cuda::print(module).expect("prints")).collect::<Vec<_>>()
        };
        assert_eq!(printed("warp"), printed("lane"));
    }
}
