//! Rows that are looked up at once: all loads of a thread's rows stand one after the other without a branch between them, and NVRTC accepts
//! the kernels, with cache hints and without.

use std::collections::BTreeSet;

use kelpie_backend::cuda;
use kelpie_compile::MicroModel;
use kelpie_compile::expr::{ArithmeticOp, Expr, ExprKind};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::Program;
use kelpie_compile::pipeline::{self, Choices, ScanInfo};
use kelpie_compile::plan::{Join, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal, Range};
use kelpie_compile::variant::Forced;
use kelpie_device::nvrtc;
use kelpie_kir::{Scalar, Target, validate};

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
    (Plan::Scan(scan), ScanInfo { scattered: vec![None; 4], ..ScanInfo::new(rows, layouts) })
}

/// A join by columns of the same numbers, whether keys are unique or not.
fn program(kind: JoinKind, (keys, unique): (&[usize], bool), variants: &[(&str, &str)]) -> Program {
    let column = |plan: &Plan, key: usize| {
        let Field { data_type, nullable, .. } = plan.fields()[key].clone();
        Expr::column(key, data_type, nullable)
    };
    let keys: Vec<Key> = keys.iter().map(|index| (*index, column(&table(1, 0).0, *index))).collect();
    let target = Target::simt(32, 256, 227 << 10, 1056);
    compiled(kind, (&keys, unique), variants, &target)
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
    let mut forced = Forced::default();
    for (axis, value) in variants {
        forced.set(axis, value).expect("an axis and its value");
    }
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

/// The CUDA code of the pipeline that looks rows up by the first column, whose values are unique.
fn code(kind: JoinKind, variants: &[(&str, &str)]) -> String {
    code_of(kind, (&[0], true), variants)
}

/// The same by any columns.
fn code_of(kind: JoinKind, keys: (&[usize], bool), variants: &[(&str, &str)]) -> String {
    let program = program(kind, keys, variants);
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

const KINDS: [JoinKind; 6] = [
    JoinKind::Inner,
    JoinKind::BuildOuter,
    JoinKind::ProbeOuter,
    JoinKind::ProbeSemi,
    JoinKind::ProbeAnti,
    JoinKind::ProbeMark,
];

/// All rows look at their first slots, then all at the keys of those that have their tags; the rest of a search is a loop of each row.
#[test]
fn the_first_slots_of_all_rows_of_a_thread_are_looked_at_before_the_first_goes_on() {
    let all = [("index_form", "hash"), ("first_look_ups", "together"), ("expansion", "lane")];
    for (turn, kind) in KINDS.into_iter().enumerate() {
        for (keys, unique) in
            [(&[0][..], true), (&[0], false), (&[2], true), (&[0, 2], false), (&[0, 1], true)]
        {
            let arrangement = if turn % 2 == 0 { "blocked" } else { "striped" };
            let rows = if turn % 3 == 2 { "chains" } else { "buckets" };
            let mut others = vec![("row_arrangement", arrangement), ("index_rows", rows)];
            // Wide rows of 128 bits there are none.
            if arrangement == "striped" || keys.contains(&2) {
                others.push(("thread_rows", "8"));
            }
            let code = code_of(kind, (keys, unique), &[&all[..], &others].concat());
            assert_eq!(loads_together(&code, "ldg(slots"), 8, "{kind:?} {keys:?} {unique}: {code}");
            // The keys of their first candidates too.
            let run = code.split(['{', '}']).max_by_key(|run| run.matches("ldg(slots").count());
            let compared = run.map_or(0, |run| run.lines().filter(|line| line.contains("= stored_")).count());
            assert!(compared >= 8 * keys.len(), "{kind:?} {keys:?} {unique}: {code}");
        }
    }
}

#[test]
fn chains_and_buckets_of_slots_and_ranks_are_looked_at_together() {
    let all = [
        ("first_look_ups", "together"),
        ("expansion", "lane"),
        ("row_arrangement", "striped"),
        ("thread_rows", "8"),
    ];
    for (form, rows, array) in [
        ("direct", "chains", "ldg(heads"),
        ("direct", "buckets", "bucket"),
        ("rank", "chains", "ldg(ranked_rows"),
        ("rank", "buckets", "ldg(ranks"),
    ] {
        for kind in [JoinKind::Inner, JoinKind::ProbeOuter] {
            let own = [("index_form", form), ("index_rows", rows)];
            let code = code_of(kind, (&[0], false), &[&all[..], &own].concat());
            let loads = loads_together(&code, array);
            assert!(loads >= 8, "{form} {rows} {loads}: {code}");
        }
    }
}

/// What rows cannot be looked up together by has a reason.
#[test]
fn texts_and_bits_are_looked_up_row_by_row() {
    for (keys, form, reason) in [
        (&[3][..], "hash", "texts are hashed and compared in loops"),
        (&[0, 3], "hash", "texts are hashed and compared in loops"),
        (&[0], "direct", "only a bit is looked at"),
    ] {
        let program = program(JoinKind::ProbeSemi, (keys, false), &[("index_form", form)]);
        let choice = program.genome.0.iter().find(|choice| choice.axis.name == "first_look_ups");
        let choice = choice.expect("a choice");
        let together = choice.values.iter().find(|(value, _)| *value == "together").expect("a level");
        assert_eq!(together.1.as_deref(), Some(reason), "{keys:?}");
    }
}

/// On a CPU a key that costs much is computed where the search of a row of a batch begins, and known where it ends; what takes few
/// instructions is computed twice.
#[test]
fn keys_of_batches_that_cost_much_are_computed_once() {
    let all = [("index_form", "hash"), ("selection_rows", "256")];
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
