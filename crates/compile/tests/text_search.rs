//! Searches of batches of texts: for which texts, patterns and devices they are possible, when the rule takes one, and that the kernels are
//! valid for offsets of every width.

use std::collections::BTreeMap;

use kelpie_backend::cpu;
use kelpie_backend::simt::{self, Config, Memory};
use kelpie_compile::MicroModel;
use kelpie_compile::context::{Argument, ColumnPart, Constant};
use kelpie_compile::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Function};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal, Range};
use kelpie_compile::variant::Choice;
use kelpie_kir::{Scalar, Target, validate};

use crate::common::{compile_as, gpu};

/// A table of a text and a number below 1,000.
fn table(storage: Storage) -> (Plan, ScanInfo) {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![field("t", DataType::Utf8, true), field("v", DataType::Int32, false)];
    let number = ColumnLayout {
        storage: Storage::Fixed { scalar: Scalar::U16, has_base: false },
        has_nulls: false,
        range: Some(Range { min: 0, max: 999 }),
    };
    let layouts = vec![ColumnLayout { storage, has_nulls: true, range: None }, number];
    let scan = Scan { source: 0, table: "t".into(), columns: vec![0, 1], fields };
    (Plan::Scan(scan), ScanInfo::new(10_000_000, layouts))
}

fn like(input: Expr, pattern: &str, case_insensitive: bool) -> Expr {
    let pattern = Box::new(Expr::literal(Literal::Utf8(pattern.into()), DataType::Utf8));
    let kind = ExprKind::Like { input: Box::new(input), pattern, negated: true, case_insensitive };
    Expr { kind, data_type: DataType::Boolean, nullable: true }
}

fn text() -> Expr {
    Expr::column(0, DataType::Utf8, true)
}

/// The rows that a condition keeps, counted.
fn count(table: (Plan, ScanInfo), conditions: Vec<Expr>) -> (Plan, ScanInfo) {
    let (mut input, info) = table;
    for predicate in conditions {
        input = Plan::Filter { input: Box::new(input), predicate };
    }
    let field = Field { name: "n".into(), data_type: DataType::Int64, nullable: false };
    let count = Aggregate { function: AggregateFunction::Count, argument: None, distinct: false, field };
    let (input, keys, names) = (Box::new(input), Vec::new(), Vec::new());
    (Plan::Aggregate { input, keys, aggregates: vec![count], names }, info)
}

fn number() -> Expr {
    Expr::column(1, DataType::Int32, false)
}

fn below(limit: i128) -> Expr {
    let limit = Expr::literal(Literal::Int(limit), DataType::Int32);
    let kind = ExprKind::Compare(CompareOp::Lt, Box::new(number()), Box::new(limit));
    Expr { kind, data_type: DataType::Boolean, nullable: false }
}

fn chosen(query: &(Plan, ScanInfo), target: &Target, model: MicroModel) -> Option<Choice> {
    let program = compile_as(query, target, model, &[]);
    program.genome.0.into_iter().find(|choice| choice.axis.name == "text_search")
}

const RAW: Storage = Storage::Text { offset: Scalar::U32 };

#[test]
fn the_rule_asks_what_other_conditions_leave() {
    let cpu = Target::cpu(2);
    let value =
        |conditions, model| chosen(&count(table(RAW), conditions), &cpu, model).map(|choice| choice.value);
    let found = || like(text(), "%fox%", false);
    let model = MicroModel::Resolution;
    assert_eq!(value(vec![found()], model), Some("batches"));
    assert_eq!(value(vec![below(800), found()], model), Some("batches"));
    assert_eq!(value(vec![found(), below(800)], model), Some("batches"));
    assert_eq!(value(vec![below(100), found()], model), Some("rows"));
    assert_eq!(value(vec![found()], MicroModel::Pipelined), Some("rows"));
    assert_eq!(value(vec![below(800)], model), None);
}

#[test]
fn what_is_not_searched_in_batches_says_why() {
    let cpu = Target::cpu(2);
    let dictionary = Storage::Dictionary { code: Scalar::U16, entries: 1000 };
    let upper = ExprKind::Function(Function::Upper, vec![text()]);
    let upper = Expr { kind: upper, data_type: DataType::Utf8, nullable: true };
    let cases = [
        (table(dictionary), like(text(), "%fox%", false), "or have a dictionary"),
        (table(RAW), like(text(), "%fox%", true), "case does not matter"),
        (table(RAW), like(upper, "%fox%", false), "the text is computed"),
        (table(RAW), like(text(), "%f_x%", false), "_ stands in the pattern"),
        (table(RAW), like(text(), "%f%", false), "shorter than two bytes"),
    ];
    for (table, condition, reason) in cases {
        let choice = chosen(&count(table, vec![condition]), &cpu, MicroModel::Resolution).expect("a choice");
        assert_eq!(choice.value, "rows", "{reason}");
        let (_, lacks) = choice.values.iter().find(|(value, _)| *value == "batches").expect("such a value");
        assert!(lacks.as_ref().is_some_and(|lacks| lacks.contains(reason)), "{reason}: {lacks:?}");
    }
    // A row that a condition fails for is to be seen by it.
    let by_zero = ExprKind::Arithmetic(ArithmeticOp::Divide, Box::new(number()), Box::new(number()));
    let by_zero = Expr { kind: by_zero, data_type: DataType::Int32, nullable: false };
    let kind = ExprKind::Compare(CompareOp::Lt, Box::new(by_zero.clone()), Box::new(by_zero));
    let fails = Expr { kind, data_type: DataType::Boolean, nullable: false };
    let found = || like(text(), "%fox%", false);
    for (conditions, value) in [(vec![fails.clone(), found()], "rows"), (vec![found(), fails], "batches")] {
        let choice = chosen(&count(table(RAW), conditions), &cpu, MicroModel::Resolution);
        assert_eq!(choice.map(|choice| choice.value), Some(value));
    }
    // A GPU is not asked.
    let gpu = gpu();
    let query = count(table(RAW), vec![like(text(), "%fox%", false)]);
    assert!(chosen(&query, &gpu, MicroModel::Resolution).is_none());
}

#[test]
fn kernels_are_valid_for_offsets_of_every_width() {
    let target = Target::cpu(2);
    for offset in [Scalar::U32, Scalar::U64] {
        for pattern in ["%fox%", "%a long needle%", "%fox%hen%", "%a long needle%and another"] {
            let found = like(text(), pattern, false);
            let query = count(table(Storage::Text { offset }), vec![found, below(900)]);
            let program =
                compile_as(&query, &target, MicroModel::Resolution, &[("p0.text_search", "batches")]);
            for pipeline in &program.pipelines {
                let valid = validate(pipeline.variant.kernel.module.clone()).expect("a valid module");
                cpu::compile(&valid).expect("it compiles");
            }
        }
    }
}

/// Bytes behind a column's texts that a search may read.
const MARGIN: usize = 16;

/// Runs a query's first kernel over texts, with nothing in memory behind its buffers but a margin of junk behind the texts, which is a part
/// of needles: the interpreter reports other reads. Whether a state begins with a count.
fn counts(program: &Program, texts: &[&str], count: u64) -> bool {
    let pipeline = program.pipelines.first().expect("a pipeline");
    let module = validate(pipeline.variant.kernel.module.clone()).expect("a valid module");
    let mut memory = Memory::new();
    let mut states = BTreeMap::new();
    let upload = |memory: &mut Memory, bytes: &[u8], margin: &[u8]| {
        let all = [bytes, margin].concat();
        let id = memory.allocate(all.len().max(1));
        if let Some(data) = memory.data_mut(id) {
            data[..all.len()].copy_from_slice(&all);
        }
        id
    };
    let ends = texts.iter().scan(0, |end, text| {
        *end += text.len() as u32;
        Some(*end)
    });
    let offsets: Vec<u8> = std::iter::once(0).chain(ends).flat_map(u32::to_le_bytes).collect();
    let mut arguments = Vec::new();
    for argument in &pipeline.variant.kernel.arguments {
        let id = match argument {
            Argument::Column { part: ColumnPart::Data, .. } => {
                upload(&mut memory, texts.concat().as_bytes(), &b"x needle xx fox x"[..MARGIN])
            }
            Argument::Column { part: ColumnPart::Offsets, .. } => upload(&mut memory, &offsets, &[]),
            Argument::Column { .. } => upload(&mut memory, &vec![255; texts.len().div_ceil(8)], &[]),
            Argument::Bytes(bytes) => upload(&mut memory, bytes, &[0; MARGIN]),
            Argument::State(state) => {
                *states.entry(*state).or_insert_with(|| upload(&mut memory, &[0; 256], &[]))
            }
            Argument::RowCount => {
                arguments.push(simt::Argument::Scalar(texts.len() as i128));
                continue;
            }
            Argument::FirstRow => {
                arguments.push(simt::Argument::Scalar(0));
                continue;
            }
            Argument::Constant(Constant::Int(_, value)) => {
                arguments.push(simt::Argument::Scalar(*value));
                continue;
            }
            other => panic!("argument {other:?}"),
        };
        arguments.push(simt::Argument::Pointer(memory.address(id)));
    }
    let config = Config { lanes: 1, block_threads: 1, step_limit: 10_000_000, ..Config::default() };
    simt::Program::new(&module, &pipeline.variant.kernel.name)
        .and_then(|program| program.run(&arguments, &mut memory, &config, &|| false))
        .unwrap_or_else(|fault| panic!("{texts:?}: {fault}"));
    let begins = |id| memory.data(id).is_some_and(|data| data[..8] == count.to_le_bytes());
    states.into_values().any(begins)
}

#[test]
fn no_read_goes_far_beyond_the_texts() {
    let target = Target::cpu(1);
    let fillers = [
        "", "fo", "nee", "a needle and a fox", "x", "foxneedle", "f", "needle fox needle fox",
        "0123456789abcdef",
    ];
    for (pattern, needle, rest) in [
        ("%fox%", "fox", None),
        ("%needle and a%", "needle and a", None),
        ("%needle%fox%", "needle", Some("fox")),
        ("%de%", "de", None),
    ] {
        let query = count(table(RAW), vec![like(text(), pattern, false)]);
        let program = compile_as(&query, &target, MicroModel::Resolution, &[("p0.text_search", "batches")]);
        for rows in (1..40).chain([120]) {
            for first in 0..fillers.len() {
                let texts: Vec<&str> =
                    (0..rows).map(|row| fillers[(first + row * 5) % fillers.len()]).collect();
                let matches = |text: &&&str| {
                    let behind = text.find(needle).map(|place| &text[place + needle.len()..]);
                    behind.is_some_and(|behind| rest.is_none_or(|rest| behind.contains(rest)))
                };
                let expected = rows - texts.iter().filter(matches).count();
                assert!(counts(&program, &texts, expected as u64), "{pattern}: {texts:?}");
            }
        }
    }
}
