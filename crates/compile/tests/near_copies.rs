//! Near copies of groups that are found by keys: kernels are valid, NVRTC accepts those of a GPU, and what has no such copies says why.

use kelpie_compile::expr::Expr;
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Range};
use kelpie_kir::{Scalar, Target};

use crate::common::{compile, compiles, cuda_of, gpu};

const PACKED: usize = 0;
const WIDE: usize = 1;
const TEXT: usize = 2;
const DENSE: usize = 3;

/// A count and a sum of the last column by `keys`, or which keys there are.
fn grouped(keys: &[usize], is_set: bool) -> (Plan, ScanInfo) {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![
        field("packed", DataType::Int64, true),
        field("wide", DataType::Int64, true),
        field("text", DataType::Utf8, true),
        field("dense", DataType::Int32, false),
        field("value", DataType::Int64, true),
    ];
    let fixed = |scalar, max: Option<i128>| ColumnLayout {
        storage: Storage::Fixed { scalar, has_base: false },
        has_nulls: true,
        range: max.map(|max| Range { min: 0, max }),
    };
    let text = ColumnLayout { storage: Storage::Text { offset: Scalar::U32 }, has_nulls: true, range: None };
    let dense = ColumnLayout { has_nulls: false, ..fixed(Scalar::U8, Some(200)) };
    let value = fixed(Scalar::U32, Some(1 << 30));
    let packed = fixed(Scalar::I64, Some(1 << 50));
    let info = ScanInfo::new(10_000_000, vec![packed, fixed(Scalar::I64, None), text, dense, value]);
    let column = |index: usize| Expr::column(index, fields[index].data_type.clone(), fields[index].nullable);
    let aggregate = |function, argument| Aggregate {
        function,
        argument,
        distinct: false,
        field: field("a", DataType::Int64, true),
    };
    let aggregates = match is_set {
        true => Vec::new(),
        false => vec![
            aggregate(AggregateFunction::Count, None),
            aggregate(AggregateFunction::Sum, Some(column(4))),
        ],
    };
    let names = vec![String::new(); keys.len() + aggregates.len()];
    let scan = Scan { source: 0, table: "t".into(), columns: (0..5).collect(), fields: fields.clone() };
    let keys = keys.iter().copied().map(column).collect();
    (Plan::Aggregate { input: Box::new(Plan::Scan(scan)), keys, aggregates, names }, info)
}

/// How copies are found, and why.
fn search(program: &Program) -> (&'static str, String) {
    let mut choices = program.genome.of("aggregate0");
    let choice = choices.find(|choice| choice.axis.name == "preaggregation_search").expect("copies");
    (choice.value, choice.reason.clone())
}

#[test]
fn kernels_of_copies_by_keys_pass_nvrtc() {
    let near = [("group_table", "hash"), ("local_preaggregation", "1024"), ("preaggregation_search", "key")];
    let ways: [&[(&str, &str)]; 6] = [
        &[],
        &[("segments", "warp")],
        &[("segments", "block"), ("block_threads", "128")],
        &[("run_accumulator", "majority")],
        &[("slot_layout", "beside"), ("cell_packing", "packed")],
        &[("group_parts", "64"), ("part_memory", "global")],
    ];
    for keys in [&[PACKED][..], &[WIDE], &[WIDE, PACKED, DENSE]] {
        for way in ways {
            let forced = [&near[..], &[("key_claims", "words")], way].concat();
            for is_set in [false, true] {
                for target in [gpu(), Target::simt(4, 8, 200 << 10, 4)] {
                    let program = compile(&grouped(keys, is_set), &target, &forced);
                    assert_eq!(search(&program).0, "key", "{keys:?} {forced:?}: {:?}", search(&program));
                    accepts(program, &target);
                }
            }
        }
    }
}

/// Every kernel validates, and NVRTC accepts those of near copies.
fn accepts(program: Program, target: &Target) {
    for pipeline in program.pipelines {
        let name = pipeline.name.clone();
        for module in pipeline.into_modules() {
            let source = cuda_of(&name, module, target).filter(|_| name.contains("near copies"));
            source.iter().for_each(|source| compiles(&name, source));
        }
    }
}
/// A worker whose column of keys shows no many values does not let rows wait for slots that its copies spare it; of two columns nobody knows
/// how many values there are together.
#[test]
fn rows_do_not_wait_for_groups_that_a_worker_has() {
    for (keys, rows) in [(&[PACKED][..], "0"), (&[PACKED, DENSE], "256")] {
        let program = compile(&grouped(keys, false), &Target::cpu(2), &[("group_table", "hash")]);
        let mut choices = program.genome.of("aggregate0");
        let choice = choices.find(|choice| choice.axis.name == "batch_rows").expect("rows that may wait");
        assert_eq!(choice.value, rows, "{keys:?}: {}", choice.reason);
    }
}

/// By keys, where a block's memory can tell them.
#[test]
fn how_copies_are_found() {
    let near = [("group_table", "hash"), ("local_preaggregation", "256")];
    let by_rule = |target| search(&compile(&grouped(&[PACKED], false), &target, &near));
    assert_eq!(by_rule(Target::cpu(2)).0, "key");
    assert_eq!(by_rule(gpu()).0, "key");
    for (keys, more, lacks) in [
        (
            &[DENSE][..],
            &[("group_table", "direct"), ("accumulator_memory", "global")][..],
            "groups have no word of their keys",
        ),
        (
            &[PACKED],
            &[("group_parts", "64"), ("part_memory", "keys")],
            "rows beyond their part have looked for their slot",
        ),
        (
            &[TEXT],
            &[("text_keys", "texts")],
            "keys that are no words are compared in the table of all groups",
        ),
        (
            &[WIDE],
            &[("key_claims", "latch")],
            "keys that are no words are compared in the table of all groups",
        ),
    ] {
        let forced = [&near, more, &[("preaggregation_search", "key")]].concat();
        let (value, reason) = search(&compile(&grouped(keys, false), &gpu(), &forced));
        assert_eq!(value, "slot", "{keys:?}");
        assert!(reason.ends_with(&format!("key is not possible: {lacks}")), "{reason}");
    }
}

/// Blocks of a GPU keep copies of few of many groups where values of the key are frequent, and of none where they are not.
#[test]
fn frequent_groups_have_copies_among_many() {
    let copies = |keys: &[usize], has_frequent: bool| {
        let (plan, mut info) = grouped(keys, false);
        info.columns[PACKED].layout.range = Some(Range { min: 0, max: 350_000 });
        info.columns[PACKED].has_frequent = has_frequent;
        let program = compile(&(plan, info), &gpu(), &[]);
        let mut choices = program.genome.of("aggregate0");
        let choice = choices.find(|choice| choice.axis.name == "local_preaggregation").expect("a choice");
        (choice.value.to_string(), choice.reason.clone())
    };
    assert_eq!(copies(&[PACKED], true).0, "1024", "{:?}", copies(&[PACKED], true));
    assert_eq!(copies(&[PACKED], false).0, "0", "{:?}", copies(&[PACKED], false));
    // The frequent values of one of two keys need not be those of groups.
    assert_eq!(copies(&[PACKED, DENSE], true).0, "0", "{:?}", copies(&[PACKED, DENSE], true));
}
