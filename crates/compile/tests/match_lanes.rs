//! Lanes that take other rows between the steps of matching texts: for which texts and devices that is possible, what is said where it is
//! not, and that NVRTC accepts the kernels.

use std::collections::BTreeSet;

use kelpie_backend::cuda;
use kelpie_compile::MicroModel;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind, Regex};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, CompiledPipeline, Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::shape::ShapeChoices;
use kelpie_compile::types::{DataType, Field, Literal, Range};
use kelpie_kir::{Scalar, Target, validate};

use crate::common::{self, compiles, gpu};

/// A table of a text and a number.
fn table(has_dictionary: bool) -> (Plan, ScanInfo) {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![field("t", DataType::Utf8, true), field("v", DataType::Int32, false)];
    let storage = match has_dictionary {
        true => Storage::Dictionary { code: Scalar::U16, entries: 1000 },
        false => Storage::Text { offset: Scalar::U32 },
    };
    let number = ColumnLayout {
        storage: Storage::Fixed { scalar: Scalar::U16, has_base: false },
        has_nulls: false,
        range: Some(Range { min: 0, max: 999 }),
    };
    let layouts = vec![ColumnLayout { storage, has_nulls: true, range: None }, number];
    let scan = Scan { source: 0, table: "t".into(), columns: vec![0, 1], fields };
    (Plan::Scan(scan), ScanInfo::new(10_000_000, layouts))
}

fn text() -> Box<Expr> {
    Box::new(Expr::column(0, DataType::Utf8, true))
}

fn like(pattern: &str) -> Expr {
    let pattern = Box::new(Expr::literal(Literal::Utf8(pattern.into()), DataType::Utf8));
    let kind = ExprKind::Like { input: text(), pattern, negated: true, case_insensitive: false };
    Expr { kind, data_type: DataType::Boolean, nullable: true }
}

fn matches(pattern: &str) -> Expr {
    let regex = Regex::new(pattern, "").expect("a regular expression");
    let kind = ExprKind::Regex { input: text(), regex, negated: false };
    Expr { kind, data_type: DataType::Boolean, nullable: true }
}

fn keep(input: Plan, predicate: Expr) -> Plan {
    Plan::Filter { input: Box::new(input), predicate }
}

/// The rows that a condition keeps of those with small numbers; or their sums.
fn query(condition: Expr, has_dictionary: bool, sums: bool) -> (Plan, ScanInfo) {
    let (scan, info) = table(has_dictionary);
    let number = || Expr::column(1, DataType::Int32, false);
    let limit = Expr::literal(Literal::Int(500), DataType::Int32);
    let kind = ExprKind::Compare(CompareOp::Lt, Box::new(number()), Box::new(limit));
    let small = Expr { kind, data_type: DataType::Boolean, nullable: false };
    let kept = keep(scan, {
        let kind = ExprKind::And(Box::new(small), Box::new(condition));
        Expr { kind, data_type: DataType::Boolean, nullable: true }
    });
    let aggregate = |function, argument| {
        let field = Field { name: format!("{function:?}"), data_type: DataType::Int64, nullable: true };
        Aggregate { function, argument, distinct: false, field }
    };
    let plan = match sums {
        true => Plan::Aggregate {
            input: Box::new(kept),
            keys: Vec::new(),
            aggregates: vec![
                aggregate(AggregateFunction::Count, None),
                aggregate(AggregateFunction::Sum, Some(number())),
            ],
            names: Vec::new(),
        },
        false => kept,
    };
    (plan, info)
}

fn compile(
    (plan, info): &(Plan, ScanInfo),
    target: &Target,
    threads: Option<u32>,
    forced: &[(&str, &str)],
) -> Program {
    let set = common::forced(forced);
    let duplicates = BTreeSet::new();
    let shape = ShapeChoices { block_threads: threads, ..ShapeChoices::default() };
    let choices = Choices { forced: &set, shape, ..Choices::new(MicroModel::Resolution, &duplicates) };
    pipeline::compile_with(plan, std::slice::from_ref(info), target, &choices).expect("the plan compiles")
}

/// What lanes do by rule, and what they can do.
fn chosen(query: &(Plan, ScanInfo), target: &Target) -> Option<(&'static str, Vec<&'static str>)> {
    let program = compile(query, target, None, &[]);
    let choice = program.genome.of("p0").find(|choice| choice.axis.name == "text_lanes")?;
    Some((choice.value, choice.possible().collect()))
}

#[test]
fn lanes_take_other_rows_where_a_long_text_takes_many_steps() {
    for condition in [like("%a%"), like("a%b%c"), like("%a%b%"), like("%a_b"), matches("ab*c"), matches("^a")]
    {
        let possible = Some(("lane", vec!["lane", "refill"]));
        assert_eq!(chosen(&query(condition.clone(), false, false), &gpu()), possible, "{condition:?}");
        assert_eq!(chosen(&query(condition.clone(), false, true), &gpu()), possible, "{condition:?}");
        // A worker of a CPU has no lanes, and a dictionary's texts are matched once each.
        let alone = Some(("lane", vec!["lane"]));
        assert_eq!(chosen(&query(condition.clone(), false, false), &Target::cpu(2)), alone, "{condition:?}");
        assert_eq!(chosen(&query(condition, true, false), &gpu()), None);
    }
    // What a text begins and ends with is known at once, whatever its length. An automaton that gives up could fail for a row too many.
    for condition in [like("a"), like("a%"), like("%a"), like("a%b"), like("%"), like("a_"), matches(r"\ba")]
    {
        assert_eq!(chosen(&query(condition.clone(), false, false), &gpu()), None, "{condition:?}");
    }
}

/// Whether NVRTC accepts the kernels of a program; those that were not seen yet.
fn pass_nvrtc(program: Program, seen: &mut BTreeSet<String>, case: &str) {
    for module in program.pipelines.into_iter().flat_map(CompiledPipeline::into_modules) {
        let module = validate(module).expect("valid");
        let source = cuda::print(&module).expect("prints");
        if !seen.insert(source.clone()) {
            continue;
        }
        compiles(case, &source);
    }
}

/// Places have as many bits as the column's offsets.
#[test]
fn kernels_that_match_texts_as_one_run_pass_nvrtc() {
    let mut seen = BTreeSet::new();
    for pattern in ["%ab%", "%abc%", "%abcd%", "%abcdefghij%", "%ab%cd%e"] {
        for (offset, sums) in [(Scalar::U32, false), (Scalar::U64, true)] {
            let (plan, mut info) = query(like(pattern), false, sums);
            info.columns[0].layout.storage = Storage::Text { offset };
            let query = (plan, info);
            let possible = vec!["lane", "run", "refill"];
            assert_eq!(chosen(&query, &gpu()), Some(("run", possible)), "{pattern}");
            pass_nvrtc(compile(&query, &gpu(), None, &[]), &mut seen, pattern);
        }
    }
    assert!(seen.len() >= 9, "{}", seen.len());
}

#[test]
fn kernels_that_match_texts_in_steps_pass_nvrtc() {
    let mut seen = BTreeSet::new();
    for condition in [like("%a%"), like("a%b%c"), like("%a_b"), matches("ab*c$")] {
        for (sums, threads) in [(false, None), (true, None), (true, Some(8))] {
            let query = query(condition.clone(), false, sums);
            for (carried, refill) in [("places", "off"), ("values", "last"), ("places", "all")] {
                let forced = [("text_lanes", "refill"), ("live_columns", carried), ("lane_refill", refill)];
                let program = compile(&query, &gpu(), threads, &forced);
                pass_nvrtc(program, &mut seen, &format!("{condition:?}"));
            }
        }
    }
    assert!(seen.len() >= 24, "{}", seen.len());
}
