//! How plans are cut, and what their pipelines keep for each other.

use std::collections::BTreeSet;

use kelpie_kir::{Scalar, Target};

use super::*;
use crate::context::Argument;
use crate::expr::{CompareOp, Expr, ExprKind};
use crate::layout::{ColumnLayout, Storage};
use crate::plan::{Join, JoinKind, Scan};
use crate::types::{DataType, Field, Literal, Range};
use crate::variant::Level;

/// A table of three integer columns without NULLs.
fn table(source: usize, rows: u64) -> (Plan, ScanInfo) {
    let fields =
        ["a", "b", "c"].map(|name| Field { name: name.into(), data_type: DataType::Int64, nullable: false });
    let layout = ColumnLayout {
        storage: Storage::Fixed { scalar: Scalar::I32, has_base: false },
        has_nulls: false,
        range: Some(Range { min: 0, max: 1 << 20 }),
    };
    let scan = Scan { source, table: format!("t{source}"), columns: vec![0, 1, 2], fields: fields.to_vec() };
    (Plan::Scan(scan), ScanInfo::new(rows, vec![layout; 3]))
}

fn column(index: usize) -> Expr {
    Expr::column(index, DataType::Int64, false)
}

fn below(index: usize, value: i128) -> Expr {
    let value = Expr::literal(Literal::Int(value), DataType::Int64);
    let kind = ExprKind::Compare(CompareOp::Lt, Box::new(column(index)), Box::new(value));
    Expr { kind, data_type: DataType::Boolean, nullable: false }
}

fn project(input: Plan, columns: &[usize]) -> Plan {
    let exprs = columns.iter().map(|index| column(*index)).collect();
    let names = columns.iter().map(|index| format!("c{index}")).collect();
    Plan::Project { input: Box::new(input), exprs, names }
}

fn join(build: Plan, probe: Plan) -> Plan {
    let (kind, keys) = (JoinKind::Inner, vec![(column(0), column(0))]);
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

fn compiled(plan: &Plan, scans: &[ScanInfo], model: MicroModel) -> Program {
    compile(plan, scans, &Target::simt(32, 256, 48 << 10, 8), model, &BTreeSet::new()).expect("it compiles")
}

#[test]
fn a_filter_is_part_of_the_pipeline_of_its_scan() {
    let (scan, info) = table(0, 1000);
    let plan = Plan::Filter { input: Box::new(scan), predicate: below(0, 7) };
    let names = |model| -> Vec<String> {
        let program = compiled(&plan, std::slice::from_ref(&info), model);
        program.pipelines.into_iter().map(|pipeline| pipeline.name).collect()
    };
    assert_eq!(names(MicroModel::Resolution).len(), 1);
    // One kernel an operator: the filter's rows are stored before they become the result.
    assert_eq!(names(MicroModel::OperatorAtATime).len(), 2);
}

#[test]
fn a_join_is_a_store_an_index_and_a_probe() {
    let (build, built) = table(0, 1000);
    let (probe, probed) = table(1, 100_000);
    let program = compiled(&join(build, probe), &[built, probed], MicroModel::Resolution);
    let rows: Vec<RowCount> = program.pipelines.iter().map(|pipeline| pipeline.rows).collect();
    assert!(matches!(rows[..], [RowCount::Scan(0), RowCount::Counted(_), RowCount::Scan(1)]), "{rows:?}");
    let last = program.pipelines.last().expect("the probe side");
    assert!(last.variant.tasks(When::BeforeChain).any(|task| matches!(task, Task::SkipIfEmpty(_))));
}

#[test]
fn columns_that_nobody_reads_are_not_stored() {
    let stored = |columns: &[usize]| {
        let (build, built) = table(0, 1000);
        let (probe, probed) = table(1, 100_000);
        let plan = project(join(build, probe), columns);
        let program = compiled(&plan, &[built, probed], MicroModel::Resolution);
        let first = program.pipelines.first().expect("the build side");
        let state = |argument: &Argument| match argument {
            Argument::State(state) => Some(program.states[*state].name.clone()),
            _ => None,
        };
        let states: Vec<String> = first.variant.all_arguments().filter_map(state).collect();
        states.iter().filter(|name| *name == "values").count()
    };
    // The key, and those of the build side's other columns (1 and 2) that the result has.
    assert_eq!([stored(&[3]), stored(&[1, 3]), stored(&[1, 2, 3])], [1, 2, 3]);
}

/// One pipeline compiled anew is what it is in a program that is compiled under the same choices, and the others stay as they are.
#[test]
fn a_pipeline_is_compiled_anew_without_the_others() {
    let (build, built) = table(0, 1000);
    let (probe, probed) = table(1, 100_000);
    let (plan, infos) =
        (join(build, Plan::Filter { input: Box::new(probe), predicate: below(1, 7) }), [built, probed]);
    let none = BTreeSet::new();
    let target = Target::cpu(2);
    let compilation =
        plan_with(&plan, &infos, &target, &Choices::new(MicroModel::Resolution, &none)).expect("it compiles");
    let mut forced = Forced::default();
    forced.set("predication", "flags").expect("an axis and its value");
    forced.set("row_loop", "single").expect("an axis and its value");
    let choices = Choices { forced: &forced, ..Choices::new(MicroModel::Resolution, &none) };
    let whole = compile_with(&plan, &infos, &target, &choices).expect("it compiles");
    assert!(!whole.pipelines.is_empty());
    for (index, pipeline) in whole.pipelines.iter().enumerate() {
        let own = compilation.recipe.variant(index, &forced).expect("it compiles");
        assert_eq!(own.kernel.module, pipeline.variant.kernel.module, "{}", pipeline.name);
        assert_eq!(own.kernel.arguments, pipeline.variant.kernel.arguments, "{}", pipeline.name);
        assert!(own.genome.0.iter().all(|choice| choice.axis.level == Level::Chunk), "{:?}", own.genome);
    }
    assert!(compilation.recipe.variant(whole.pipelines.len(), &forced).is_err());
}
