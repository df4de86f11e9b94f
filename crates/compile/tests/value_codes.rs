//! Groups by columns with codes beside their values: kernels are valid, NVRTC accepts those of a GPU, and the values are not read where the
//! codes are at hand.

use kelpie_compile::context::{Argument, ColumnPart};
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::layout::{ColumnLayout, Scattered, Storage, ValueCodes};
use kelpie_compile::pipeline::{Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal, Range};
use kelpie_kir::{Scalar, Target};

use crate::common::{accepts, compile, gpu};

const ROWS: u64 = 10_000_000;

/// A count and a sum by a key anywhere in 64 bits with so many values, of rows that a filter leaves.
fn grouped(entries: u32) -> (Plan, ScanInfo) {
    let field = |name: &str, nullable| Field { name: name.into(), data_type: DataType::Int64, nullable };
    let fields = vec![field("key", true), field("value", false)];
    let fixed = |scalar, has_nulls, range| ColumnLayout {
        storage: Storage::Fixed { scalar, has_base: false },
        has_nulls,
        range: Some(range),
    };
    let layouts = vec![
        fixed(Scalar::I64, true, Range::new(i64::MIN, i64::MAX)),
        fixed(Scalar::I32, false, Range::new(0, 1 << 30)),
    ];
    let codes = vec![Some(ValueCodes { code: Scalar::U16, entries }), None];
    let scattered = Scattered { values: entries.next_power_of_two().into(), are_even: true, text_bytes: 0 };
    let mut info =
        ScanInfo::new(ROWS, layouts).with_scattered(0, Some(scattered).filter(|_| entries > 1 << 13));
    for (facts, codes) in info.columns.iter_mut().zip(codes) {
        facts.codes = codes;
    }
    let column = |index: usize| Expr::column(index, DataType::Int64, index == 0);
    let scan = Scan { source: 0, table: "t".into(), columns: vec![0, 1], fields };
    let literal = Expr::literal(Literal::Int(1000), DataType::Int64);
    let predicate = Expr {
        kind: ExprKind::Compare(CompareOp::Lt, Box::new(column(1)), Box::new(literal)),
        data_type: DataType::Boolean,
        nullable: false,
    };
    let aggregate = |function, argument| {
        let field = Field { name: "a".into(), data_type: DataType::Int64, nullable: true };
        Aggregate { function, argument, distinct: false, field }
    };
    let aggregates =
        vec![aggregate(AggregateFunction::Count, None), aggregate(AggregateFunction::Sum, Some(column(1)))];
    let input = Plan::Filter { input: Box::new(Plan::Scan(scan)), predicate };
    let names = vec![String::new(); 3];
    (Plan::Aggregate { input: Box::new(input), keys: vec![column(0)], aggregates, names }, info)
}

/// The parts of the key's column that kernels read, which are accepted.
fn parts_read(program: Program, target: &Target) -> Vec<ColumnPart> {
    let kernels = program.pipelines.iter().flat_map(|pipeline| pipeline.variant.kernels());
    let part = |argument: &Argument| match argument {
        Argument::Column { column: 0, part, .. } => Some(*part),
        _ => None,
    };
    let parts = kernels.flat_map(|kernel| &kernel.arguments).filter_map(part).collect();
    accepts(program, target);
    parts
}

#[test]
fn kernels_read_codes_and_pass_nvrtc() {
    let ways: [&[(&str, &str)]; 7] = [
        &[],
        &[("row_loop", "single")],
        &[("row_arrangement", "blocked")],
        &[("accumulator_memory", "global")],
        &[("accumulator_memory", "block")],
        &[("lane_refill", "all"), ("live_columns", "places")],
        &[("segments", "warp"), ("accumulator_memory", "global")],
    ];
    for way in ways {
        let forced = [&[("group_table", "direct")], way].concat();
        for target in [gpu(), Target::simt(4, 8, 200 << 10, 4), Target::cpu(2)] {
            let parts = parts_read(compile(&grouped(5000), &target, &forced), &target);
            assert!(parts.contains(&ColumnPart::Codes) && parts.contains(&ColumnPart::Entries), "{way:?}");
            // Where a thread's rows are held, their columns are loaded at once, whatever of them is read.
            let are_held = way.iter().any(|choice| {
                [("accumulator_memory", "block"), ("row_arrangement", "blocked")].contains(choice)
            });
            assert!(are_held || !parts.contains(&ColumnPart::Data), "{way:?} on {target:?}: {parts:?}");
        }
    }
}

/// Rows that change lanes as values, or were stored, have no codes: these are looked for, or the table is another.
#[test]
fn rows_without_codes_pass_nvrtc() {
    let ways: [&[(&str, &str)]; 4] = [
        &[("lane_refill", "all"), ("live_columns", "values"), ("group_table", "direct")],
        &[("group_order", "sorted")],
        &[("group_parts", "64")],
        &[("group_table", "hash")],
    ];
    for way in ways {
        for target in [gpu(), Target::simt(4, 8, 200 << 10, 4)] {
            let parts = parts_read(compile(&grouped(5000), &target, way), &target);
            assert!(parts.contains(&ColumnPart::Data), "{way:?}: {parts:?}");
            assert!(!parts.contains(&ColumnPart::Codes), "{way:?}: {parts:?}");
        }
    }
}

/// Of the groups of the first aggregation, the value that was chosen on an axis.
fn chosen(entries: u32, target: &Target, axis: &str) -> String {
    let program = compile(&grouped(entries), target, &[]);
    let choice = program.genome.0.iter().find(|choice| choice.axis.name == axis);
    choice.map_or("none".into(), |choice| format!("{}: {}", choice.value, choice.reason))
}

#[test]
fn groups_have_a_slot_a_value_where_a_table_near_has_room() {
    for target in [gpu(), Target::cpu(2)] {
        let form = chosen(5000, &target, "group_table");
        assert!(form.starts_with("direct"), "{form}");
    }
    // A worker's cache has room for all that have codes, and few rows come to the device's table as they are.
    for target in [gpu(), Target::cpu(2)] {
        let (form, parts) = (chosen(60_000, &target, "group_table"), chosen(60_000, &target, "group_parts"));
        assert!(form.starts_with("direct") && parts.starts_with("1:"), "{form}, {parts}");
    }
}
