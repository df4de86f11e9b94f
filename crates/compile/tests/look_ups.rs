//! Rows that are looked up at once: all loads of a thread's rows stand one after the other without a branch between them, and NVRTC accepts
//! the kernels, with cache hints and without.

#![expect(clippy::expect_used, reason = "a test fails where its helpers do")]

use std::collections::BTreeSet;

use kelpie_backend::cuda;
use kelpie_compile::MicroModel;
use kelpie_compile::expr::Expr;
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, ScanInfo};
use kelpie_compile::plan::{Join, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Range};
use kelpie_compile::variant::Forced;
use kelpie_device::nvrtc;
use kelpie_kir::{Scalar, Target, validate};

/// A table of a dense key, which may be NULL, and a number.
fn table(source: usize, rows: u64) -> (Plan, ScanInfo) {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![field("k", DataType::Int64, true), field("n", DataType::Int32, false)];
    let fixed = |has_nulls, max| ColumnLayout {
        storage: Storage::Fixed { scalar: Scalar::U32, has_base: false },
        has_nulls,
        range: Some(Range { min: 0, max }),
    };
    let layouts = vec![fixed(true, (1 << 20) - 1), fixed(false, 99)];
    let scan = Scan { source, table: "t".into(), columns: vec![0, 1], fields };
    (Plan::Scan(scan), ScanInfo { scattered: vec![None; 2], ..ScanInfo::new(rows, layouts) })
}

/// The CUDA code of the pipeline that looks rows up.
fn code(kind: JoinKind, variants: &[(&str, &str)]) -> String {
    let mut forced = Forced::default();
    for (axis, value) in variants {
        forced.set(axis, value).expect("an axis and its value");
    }
    let ((build, build_info), (probe, probe_info)) = (table(0, 1 << 19), table(1, 100_000_000));
    let key = |plan: &Plan| Expr::column(0, plan.fields()[0].data_type.clone(), true);
    let keys = vec![(key(&build), key(&probe))];
    let (residual, null_equal, null_aware) = (None, false, false);
    let plan = Plan::Join(Box::new(Join { build, probe, kind, keys, residual, null_equal, null_aware }));
    let none = BTreeSet::new();
    let choices = Choices { forced: &forced, ..Choices::new(MicroModel::Resolution, &none) };
    let target = Target::simt(32, 256, 227 << 10, 1056);
    let program = pipeline::compile_with(&plan, &[build_info, probe_info], &target, &choices);
    let program = program.expect("the plan compiles");
    let probing = program.pipelines.into_iter().find(|pipeline| pipeline.name.contains("→ join"));
    let module = probing.expect("a pipeline that joins").into_modules().next();
    let module = validate(module.expect("a kernel")).expect("a valid kernel");
    let source = cuda::print(&module).expect("code");
    match nvrtc::get() {
        Err(error) => eprintln!("skipped: {error}"),
        Ok(nvrtc) => {
            let compiled = nvrtc.compile(&source, "sm_90", "look_ups");
            assert!(compiled.is_ok(), "{kind:?} {variants:?}: {:?}", compiled.err());
        }
    }
    source
}

/// The longest run of lines without a branch, by how many of them read an array.
fn loads_together(code: &str, array: &str) -> usize {
    let runs = code.split(['{', '}']);
    runs.map(|run| run.lines().filter(|line| line.contains(array)).count()).max().unwrap_or(0)
}

#[test]
fn the_loads_of_all_rows_of_a_thread_come_before_the_first_goes_on() {
    let packed = [("index_form", "direct"), ("row_places", "packed"), ("first_look_ups", "together")];
    let placed = [("index_form", "direct"), ("row_places", "slot"), ("first_look_ups", "together")];
    for kind in [JoinKind::Inner, JoinKind::BuildOuter, JoinKind::ProbeOuter] {
        for arrangement in ["blocked", "striped"] {
            for hints in ["none", "all"] {
                let others = [("row_arrangement", arrangement), ("thread_rows", "8"), ("cache_hints", hints)];
                let others =
                    if arrangement == "blocked" { [others[0], others[2], others[2]] } else { others };
                let code_packed = code(kind, &[packed, others].concat());
                assert_eq!(loads_together(&code_packed, "ldg(heads"), 8, "{code_packed}");
                assert_eq!(code_packed.contains("::__ldcs("), hints == "all", "{code_packed}");
                assert_eq!(code_packed.contains("::__stcs("), hints == "all", "{code_packed}");
                let code_placed = code(kind, &[placed, others].concat());
                assert_eq!(loads_together(&code_placed, "ldg(taken"), 8, "{code_placed}");
            }
        }
    }
    let alone = code(JoinKind::Inner, &packed[..2]);
    assert_eq!(loads_together(&alone, "ldg(heads"), 1, "{alone}");
    assert!(!alone.contains("::__ldcs("));
}
