//! An index by the ranks of keys: what searches look at, and what is gone through before each run, is two bits a value of the range and a
//! few bytes a row, where slots take four bytes a value and more; the rule has ranks where several rows may have a key; rows of a thread
//! that are looked up at once load before the first goes on; and NVRTC accepts the kernels.

use std::collections::BTreeSet;

use kelpie_backend::cuda;
use kelpie_compile::MicroModel;
use kelpie_compile::context::Argument;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, Program, ScanInfo, Task};
use kelpie_compile::plan::{Join, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal, Range};
use kelpie_kir::{Scalar, Target, validate};

use crate::common::{self, compiles, gpu};

/// Values of the keys' range.
const VALUES: u64 = 60_000_000;
/// Rows of the build side.
const ROWS: u64 = 1_000_000;

/// A table of a key of a large range, which may be NULL, and a number.
fn table(source: usize, rows: u64) -> (Plan, ScanInfo) {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![field("k", DataType::Int64, true), field("n", DataType::Int32, false)];
    let fixed = |has_nulls, max| ColumnLayout {
        storage: Storage::Fixed { scalar: Scalar::U32, has_base: false },
        has_nulls,
        range: Some(Range { min: 0, max }),
    };
    let layouts = vec![fixed(true, i128::from(VALUES) - 1), fixed(false, 99)];
    let scan = Scan { source, table: "t".into(), columns: vec![0, 1], fields };
    (Plan::Scan(scan), ScanInfo::new(rows, layouts))
}

fn compile(kind: JoinKind, residual: bool, target: &Target, variants: &[(&str, &str)]) -> Program {
    compile_join(table(0, ROWS), (kind, residual), target, variants)
}

fn compile_join(
    (build, build_info): (Plan, ScanInfo),
    (kind, residual): (JoinKind, bool),
    target: &Target,
    variants: &[(&str, &str)],
) -> Program {
    let forced = common::forced(variants);
    let (probe, probe_info) = table(1, 100_000_000);
    let key = |plan: &Plan| Expr::column(0, plan.fields()[0].data_type.clone(), true);
    let keys = vec![(key(&build), key(&probe))];
    let number = |index| Box::new(Expr::column(index, DataType::Int32, false));
    let less = ExprKind::Compare(CompareOp::Lt, number(1), number(3));
    let residual = residual.then_some(Expr { kind: less, data_type: DataType::Boolean, nullable: false });
    let (null_equal, null_aware) = (false, false);
    let plan = Plan::Join(Box::new(Join { build, probe, kind, keys, residual, null_equal, null_aware }));
    let none = BTreeSet::new();
    let choices = Choices { forced: &forced, ..Choices::new(MicroModel::Resolution, &none) };
    pipeline::compile_with(&plan, &[build_info, probe_info], target, &choices).expect("the plan compiles")
}

/// Bytes of a state at first.
fn bytes_of(program: &Program, state: usize) -> u64 {
    let state = &program.states[state];
    program.classes[state.class].initial * u64::from(state.element_bytes)
}

/// Bytes that are written or read in each run whatever the rows: cleared, or made a prefix sum.
fn bytes_gone_through(program: &Program) -> u64 {
    let tasks =
        program.pipelines.iter().flat_map(|pipeline| &pipeline.variant.around).map(|action| &action.task);
    let bytes = tasks.map(|task| match task {
        Task::Clear(state) => bytes_of(program, *state),
        Task::PrefixSum(state) => 2 * bytes_of(program, *state),
        Task::Rank(words) => bytes_of(program, words.bits) + bytes_of(program, words.ranks),
        _ => 0,
    });
    bytes.sum()
}

/// Bytes of the states that the probe side's kernel is given of the index.
fn bytes_searched(program: &Program) -> u64 {
    let mut probing = program.pipelines.iter().filter(|pipeline| pipeline.name.contains("→ join"));
    let kernel = &probing.next().expect("a pipeline that joins").variant.kernel;
    let states: BTreeSet<usize> = kernel
        .arguments
        .iter()
        .filter_map(|argument| match argument {
            Argument::State(state) => Some(*state),
            _ => None,
        })
        .collect();
    let of_index = ["taken", "heads", "ranks", "ranked_rows", "next", "bucket_offsets", "bucket_rows"];
    let is_index = |state: &usize| of_index.contains(&program.states[*state].name.as_str());
    states.into_iter().filter(is_index).map(|state| bytes_of(program, state)).sum()
}

#[test]
fn ranks_take_bits_where_slots_take_words() {
    for target in [gpu(), Target::cpu(2)] {
        for (kind, rows, gone_through) in [
            (JoinKind::Inner, ("row_places", "packed"), VALUES / 2),
            (JoinKind::BuildSemi, ("index_rows", "chains"), VALUES * 4),
            (JoinKind::BuildSemi, ("index_rows", "buckets"), VALUES * 12),
        ] {
            let [ranks, slots] =
                ["rank", "direct"].map(|form| compile(kind, true, &target, &[("join", form), rows]));
            // The bits are cleared and counted, and the counts written; of rows there are a few words.
            let gone = bytes_gone_through(&ranks);
            assert!(gone <= VALUES / 32 * 12 + ROWS * 16, "{kind:?} {rows:?}: {gone}");
            let slots_gone = bytes_gone_through(&slots);
            let is_many = kind == JoinKind::BuildSemi;
            assert_eq!(slots_gone >= gone_through, is_many, "{kind:?} {rows:?}: {slots_gone}");
            let (ranks, slots) = (bytes_searched(&ranks), bytes_searched(&slots));
            assert!(ranks <= VALUES / 4 + 8 + ROWS * 12, "{kind:?} {rows:?}: {ranks}");
            assert!(slots >= VALUES * 4, "{kind:?} {rows:?}: {slots}");
        }
    }
}

/// Fifteen million rows, of which a filter leaves a tenth: with so many slots are direct.
fn filtered() -> (Plan, ScanInfo) {
    let (input, info) = table(0, 15 * ROWS);
    let ten = Expr { kind: ExprKind::Literal(Literal::Int(10)), data_type: DataType::Int32, nullable: false };
    let number = Box::new(Expr::column(1, DataType::Int32, false));
    let kind = ExprKind::Compare(CompareOp::Lt, number, Box::new(ten));
    let predicate = Expr { kind, data_type: DataType::Boolean, nullable: false };
    (Plan::Filter { input: Box::new(input), predicate }, info)
}

/// Where several rows may have a key, slots are cleared and summed up; what ranks are worth to a CPU was not measured.
#[test]
fn the_rule_has_ranks_where_several_rows_may_have_a_key() {
    for (kind, on_gpu) in
        [(JoinKind::Inner, "direct"), (JoinKind::BuildSemi, "rank"), (JoinKind::ProbeSemi, "direct")]
    {
        for (target, expected) in [(gpu(), on_gpu), (Target::cpu(2), "direct")] {
            let program = compile_join(filtered(), (kind, false), &target, &[]);
            let mut choices = program.genome.0.iter().filter(|choice| choice.axis.name == "join");
            let choice = choices.next().expect("a choice");
            assert_eq!(choice.value, expected, "{kind:?}");
            // Where only the bits are asked for, there is nothing to be ranked.
            let is_possible = choice.possible().any(|value| value == "rank");
            assert_eq!(is_possible, kind != JoinKind::ProbeSemi, "{kind:?}");
        }
    }
}

/// The CUDA code of all kernels, each of which compiles.
fn code(program: Program) -> Vec<String> {
    let mut sources = Vec::new();
    for module in program.pipelines.into_iter().flat_map(|pipeline| pipeline.into_modules()) {
        let source = cuda::print(&validate(module).expect("a valid kernel")).expect("code");
        compiles("a kernel", &source);
        sources.push(source);
    }
    sources
}

#[test]
fn kernels_pass_nvrtc() {
    for kind in [JoinKind::Inner, JoinKind::FullOuter, JoinKind::BuildMark, JoinKind::ProbeSemi] {
        for rows in ["chains", "buckets"] {
            let variants = [("join", "rank"), ("index_rows", rows), ("expansion", "warp")];
            let sources = code(compile(kind, true, &gpu(), &variants));
            assert!(sources.iter().any(|source| source.contains("::__popc(")), "{kind:?} {rows}");
        }
    }
}
