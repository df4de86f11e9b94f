//! Sums under locks (deviations of floats): where a GPU's threads have few groups, copies and large blocks keep them from waiting for each
//! other, threads outside a block pause before they try again, and NVRTC accepts the kernels.

use kelpie_backend::cuda;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::layout::{ColumnLayout, Scattered, Storage};
use kelpie_compile::pipeline::{Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal, Range};
use kelpie_kir::{Scalar, validate};

use crate::common::{self, compiles, gpu};

fn field(name: &str, data_type: DataType) -> Field {
    Field { name: name.into(), data_type, nullable: false }
}

/// Deviations of a float by a text of the statement, of which there are so many.
fn by_texts(texts: i128) -> (Plan, ScanInfo) {
    let fields = vec![field("x", DataType::Int64), field("f", DataType::Float64)];
    let fixed = |scalar, range| ColumnLayout {
        storage: Storage::Fixed { scalar, has_base: false },
        has_nulls: false,
        range,
    };
    let layouts = vec![fixed(Scalar::U32, Some(Range { min: 0, max: 100_000 })), fixed(Scalar::F64, None)];
    let scan = Plan::Scan(Scan { source: 0, table: "t".into(), columns: vec![0, 1], fields });
    let x = Expr::column(0, DataType::Int64, false);
    let is_less = |number: i128| {
        let most = Expr::literal(Literal::Int(number * 1000), DataType::Int64);
        let kind = ExprKind::Compare(CompareOp::Lt, Box::new(x.clone()), Box::new(most));
        Expr { kind, data_type: DataType::Boolean, nullable: false }
    };
    let text = |number: i128| Expr::literal(Literal::Utf8(format!("text {number}").into()), DataType::Utf8);
    let branches = (1..texts).map(|number| (is_less(number), text(number))).collect();
    let kind = ExprKind::Case { branches, otherwise: Some(Box::new(text(0))) };
    let key = Expr { kind, data_type: DataType::Utf8, nullable: false };
    let deviation = Aggregate {
        function: AggregateFunction::StddevSample,
        argument: Some(Expr::column(1, DataType::Float64, false)),
        distinct: false,
        field: Field { name: "s".into(), data_type: DataType::Float64, nullable: true },
    };
    let plan = Plan::Aggregate {
        input: Box::new(scan),
        keys: vec![key],
        aggregates: vec![deviation],
        names: vec!["key".into()],
    };
    (plan, ScanInfo::new(20_000_000, layouts))
}

/// Sums or deviations of the float by the number, which is known to have a million values.
fn by_many(function: AggregateFunction) -> (Plan, ScanInfo) {
    let (plan, info) = by_texts(3);
    let Plan::Aggregate { input, aggregates, names, .. } = plan else { return (plan, info) };
    let range = Some(Range::new(i64::MIN, i64::MAX));
    let mut info = info;
    info.columns[0].layout = ColumnLayout {
        storage: Storage::Fixed { scalar: Scalar::I64, has_base: false },
        has_nulls: false,
        range,
    };
    let scattered = Scattered { values: 1 << 20, are_even: false, text_bytes: 0 };
    let info = info.with_scattered(0, Some(scattered));
    let aggregates = aggregates.into_iter().map(|aggregate| Aggregate { function, ..aggregate }).collect();
    let keys = vec![Expr::column(0, DataType::Int64, false)];
    (Plan::Aggregate { input, keys, aggregates, names }, info)
}

fn compile(query: &(Plan, ScanInfo), forced: &[(&str, &str)]) -> Program {
    common::compile(query, &gpu(), forced)
}

fn chosen(program: &Program, site: &str, axis: &str) -> String {
    let mut choices = program.genome.of(site);
    choices.find(|choice| choice.axis.name == axis).map_or(String::new(), |choice| choice.value.to_string())
}

/// CUDA of all kernels; NVRTC has accepted it, where there is one.
fn code(program: Program) -> String {
    let mut all = String::new();
    for pipeline in program.pipelines {
        for module in pipeline.into_modules() {
            let module = validate(module).expect("a module that validates");
            let source = cuda::print(&module).expect("CUDA");
            compiles("locks", &source);
            all.push_str(&source);
        }
    }
    all
}

#[test]
fn a_table_of_texts_has_as_many_slots_as_there_are_texts() {
    for (texts, placement, copies) in
        [(3, "thread", ""), (4, "thread", ""), (6, "block", "32"), (60, "block", "32")]
    {
        let program = compile(&by_texts(texts), &[]);
        assert_eq!(chosen(&program, "aggregate0", "accumulator_memory"), placement, "{texts}");
        assert_eq!(chosen(&program, "aggregate0", "table_copies"), copies, "{texts}");
        assert_eq!(chosen(&program, "p0", "block_threads"), "1024", "{texts}");
    }
}

#[test]
fn threads_of_the_device_pause_before_they_try_again_and_those_of_a_block_do_not() {
    let program = compile(&by_texts(6), &[("accumulator_memory", "block")]);
    let code = code(program);
    assert!(code.contains("__nanosleep(") && code.contains("__threadfence_block();"), "{code}");
    let program = compile(&by_texts(6), &[("accumulator_memory", "global")]);
    assert!(self::code(program).contains("__nanosleep("));
}

/// On an H200 one value in a sixth of 5 million rows made deviations in a million groups take 4.4 s.
#[test]
fn blocks_have_copies_of_locked_groups_however_many_there_are() {
    for (function, has_copies) in [(AggregateFunction::StddevSample, true), (AggregateFunction::Sum, false)] {
        let program = compile(&by_many(function), &[("group_parts", "1"), ("group_table", "hash")]);
        let copies = chosen(&program, "aggregate0", "local_preaggregation");
        assert_eq!(copies != "0", has_copies, "{function:?}: {copies}");
        code(program);
    }
}
