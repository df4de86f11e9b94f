//! Forms of the cells and keys of groups: their kernels validate, NVRTC accepts those of a GPU, and cells share a word exactly where all rows
//! fit.

use kelpie_compile::expr::Expr;
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Range};
use kelpie_kir::{Scalar, Target};

use crate::common::{accepts, compile, gpu};

/// A name, a type, how values are stored, whether some are NULL, and their range.
type Column = (&'static str, DataType, Scalar, bool, Option<(i128, i128)>);

const COLUMNS: [Column; 6] = [
    ("few", DataType::Int32, Scalar::U16, true, Some((0, 5_000))),
    ("wide", DataType::Int64, Scalar::I64, true, None),
    ("float", DataType::Float64, Scalar::F64, false, None),
    ("half", DataType::Float32, Scalar::F32, true, None),
    ("signed", DataType::Int32, Scalar::I8, true, Some((-100, 100))),
    ("huge", DataType::Int64, Scalar::I64, false, None),
];

/// Sums of `sums` by `keys`, with a count, of so many rows.
fn grouped(keys: &[usize], sums: &[usize], rows: u64) -> (Plan, ScanInfo) {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields: Vec<Field> = COLUMNS
        .iter()
        .map(|(name, data_type, _, nullable, _)| field(name, data_type.clone(), *nullable))
        .collect();
    let layouts = COLUMNS.iter().map(|(_, _, scalar, has_nulls, range)| ColumnLayout {
        storage: Storage::Fixed { scalar: *scalar, has_base: false },
        has_nulls: *has_nulls,
        range: range.map(|(min, max)| Range { min, max }),
    });
    let info = ScanInfo::new(rows, layouts.collect());
    let column = |index: usize| Expr::column(index, fields[index].data_type.clone(), fields[index].nullable);
    let aggregate = |function, argument: Option<usize>| Aggregate {
        function,
        argument: argument.map(column),
        distinct: false,
        field: field("a", DataType::Int64, true),
    };
    let sums = sums.iter().map(|sum| aggregate(AggregateFunction::Sum, Some(*sum)));
    let aggregates = [aggregate(AggregateFunction::Count, None)].into_iter().chain(sums).collect();
    let keys: Vec<Expr> = keys.iter().copied().map(column).collect();
    let names = keys.iter().map(|_| "key".to_string()).collect();
    let columns = (0..COLUMNS.len()).collect();
    let scan = Plan::Scan(Scan { source: 0, table: "t".into(), columns, fields: fields.clone() });
    (Plan::Aggregate { input: Box::new(scan), keys, aggregates, names }, info)
}

fn chosen(program: &Program, axis: &str) -> Option<&'static str> {
    program.genome.of("aggregate0").find(|choice| choice.axis.name == axis).map(|choice| choice.value)
}

fn targets() -> [Target; 3] {
    [gpu(), Target::simt(4, 8, 200 << 10, 4), Target::cpu(2)]
}

#[test]
fn kernels_of_keys_of_words_are_accepted() {
    for target in targets() {
        for keys in [&[1][..], &[2, 3], &[1, 2, 4], &[3]] {
            for more in [("local_preaggregation", "256"), ("group_parts", "64"), ("segments", "warp")] {
                let forced = [("group_table", "hash"), ("key_claims", "words"), more];
                let program = compile(&grouped(keys, &[4, 5], 10_000_000), &target, &forced);
                assert_eq!(chosen(&program, "key_claims"), Some("words"), "{keys:?}");
                accepts(program, &target);
            }
        }
    }
}

#[test]
fn kernels_of_packed_cells_are_accepted() {
    for target in targets() {
        for forced in [
            &[("group_table", "direct"), ("accumulator_memory", "global")][..],
            &[("group_table", "direct"), ("accumulator_memory", "block")],
            &[("group_table", "hash"), ("local_preaggregation", "256")],
            &[("group_table", "hash"), ("group_parts", "64")],
        ] {
            let forced: Vec<_> = forced.iter().copied().chain([("cell_packing", "packed")]).collect();
            let program = compile(&grouped(&[0], &[4, 5], 1_000_000), &target, &forced);
            assert_eq!(chosen(&program, "cell_packing"), Some("packed"));
            accepts(program, &target);
        }
    }
}

/// By rule no cells are packed, and none are that could overflow.
#[test]
fn cells_are_packed_where_all_rows_fit() {
    let target = Target::cpu(2);
    let value = |sums: &[usize], rows, forced: &[(&str, &str)]| {
        chosen(&compile(&grouped(&[0], sums, rows), &target, forced), "cell_packing")
    };
    let packed = [("cell_packing", "packed")];
    assert_eq!(value(&[4], 1_000_000, &[]), Some("off"));
    assert_eq!(value(&[4], 1_000_000, &packed), Some("packed"));
    // Of two counts of 41 bits and a sum of 48 no two fit, and a sum of any numbers fits nothing.
    assert_eq!(value(&[4], 1 << 40, &packed), Some("off"));
    assert_eq!(value(&[5], 1_000, &packed), Some("off"));
}
