//! Batches of rows of a CPU's worker that are looked up together.

use std::collections::BTreeSet;

use kelpie_compile::MicroModel;
use kelpie_compile::expr::{ArithmeticOp, Expr, ExprKind};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::Program;
use kelpie_compile::pipeline::{self, Choices, ScanInfo};
use kelpie_compile::plan::{Join, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal, Range};
use kelpie_kir::{Scalar, Target};

use crate::common;

/// A table of a dense key, which may be NULL, a number, a key of 128 bits, and a text.
fn table(source: usize, rows: u64) -> (Plan, ScanInfo) {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let decimal = DataType::Decimal128 { precision: 38, scale: 0 };
    let fields = vec![
        field("k", DataType::Int64, true),
        field("n", DataType::Int32, false),
        field("w", decimal, true),
        field("t", DataType::Utf8, true),
    ];
    let fixed = |has_nulls, max| ColumnLayout {
        storage: Storage::Fixed { scalar: Scalar::U32, has_base: false },
        has_nulls,
        range: Some(Range { min: 0, max }),
    };
    let any = |storage| ColumnLayout { storage, has_nulls: true, range: None };
    let wide = any(Storage::Fixed { scalar: Scalar::I128, has_base: false });
    let text = any(Storage::Text { offset: Scalar::U32 });
    let layouts = vec![fixed(true, (1 << 20) - 1), fixed(false, 99), wide, text];
    let scan = Scan { source, table: "t".into(), columns: vec![0, 1, 2, 3], fields };
    (Plan::Scan(scan), ScanInfo::new(rows, layouts))
}

/// A column of the build side, and what of the probe side equals it.
type Key = (usize, Expr);

/// The same by any keys of the probe side, for a device.
fn compiled(
    kind: JoinKind,
    (keys, unique): (&[Key], bool),
    variants: &[(&str, &str)],
    target: &Target,
) -> Program {
    let forced = common::forced(variants);
    let ((build, build_info), (probe, probe_info)) = (table(0, 1 << 19), table(1, 100_000_000));
    let own = |key: usize| {
        let Field { data_type, nullable, .. } = build.fields()[key].clone();
        Expr::column(key, data_type, nullable)
    };
    let keys = keys.iter().map(|(key, probe)| (own(*key), probe.clone())).collect();
    let (residual, null_equal, null_aware) = (None, false, false);
    let plan = Plan::Join(Box::new(Join { build, probe, kind, keys, residual, null_equal, null_aware }));
    let duplicates = if unique { BTreeSet::new() } else { BTreeSet::from([0]) };
    let choices = Choices { forced: &forced, ..Choices::new(MicroModel::Resolution, &duplicates) };
    let program = pipeline::compile_with(&plan, &[build_info, probe_info], target, &choices);
    program.expect("the plan compiles")
}

/// On a CPU a key that costs much is computed where the search of a row of a batch begins, and known where it ends; what takes few
/// instructions is computed twice.
#[test]
fn keys_of_batches_that_cost_much_are_computed_once() {
    let all = [("join", "hash"), ("selection_rows", "256")];
    let thousand = || Expr::literal(Literal::Int(1000), DataType::Int64);
    let of_key = |op| {
        let key = Expr::column(0, DataType::Int64, true);
        let kind = ExprKind::Arithmetic(op, Box::new(thousand()), Box::new(key));
        Expr { kind, data_type: DataType::Int64, nullable: true }
    };
    let count = |keys: &[Key], look_ups: &'static str, operation: &str| {
        let variants = [&all[..], &[("first_look_ups", look_ups)]].concat();
        let program = compiled(JoinKind::Inner, (keys, true), &variants, &Target::cpu(2));
        let probing = program.pipelines.into_iter().find(|pipeline| pipeline.name.contains("→ join"));
        let module = probing.expect("a pipeline that joins").into_modules().next();
        format!("{:?}", module.expect("a kernel")).matches(operation).count()
    };
    let quotient = [(0, of_key(ArithmeticOp::Divide))];
    let [alone, together] = ["row", "together"].map(|look_ups| count(&quotient, look_ups, "(Div,"));
    assert!(alone > 0 && alone == together, "{alone}, {together}");
    let difference = [(0, of_key(ArithmeticOp::Subtract))];
    let [alone, together] = ["row", "together"].map(|look_ups| count(&difference, look_ups, "batch_keys"));
    assert_eq!((alone, together), (0, 0));
    assert_eq!(count(&quotient, "together", "batch_keys"), 1);
}
