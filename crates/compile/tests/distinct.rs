//! DISTINCT inside aggregates by way of groups by pairs of group and value: the kernels validate for every target and micro model, and
//! NVRTC accepts those of a GPU; the rule takes them where the pairs are many and come in parts.

use kelpie_compile::MicroModel;
use kelpie_compile::expr::Expr;
use kelpie_compile::layout::{ColumnLayout, Scattered, Storage};
use kelpie_compile::pipeline::{Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Range};
use kelpie_kir::{Scalar, Target};

use crate::common::{accepts, compile_as, gpu};

const DECIMAL: DataType = DataType::Decimal128 { precision: 38, scale: 2 };

fn field(name: &str, data_type: DataType) -> Field {
    Field { name: name.into(), data_type, nullable: true }
}

/// A key of few values, one of any values, a text; a value, a decimal, a text, a float.
fn table(rows: u64, scattered: [Option<u64>; 7]) -> (Plan, ScanInfo) {
    let fields = vec![
        field("few", DataType::Int32),
        field("any", DataType::Int64),
        field("name", DataType::Utf8),
        field("value", DataType::Int64),
        field("decimal", DECIMAL),
        field("text", DataType::Utf8),
        field("float", DataType::Float64),
    ];
    let fixed = |scalar, range| ColumnLayout {
        storage: Storage::Fixed { scalar, has_base: false },
        has_nulls: true,
        range,
    };
    let text = |storage| ColumnLayout { storage, has_nulls: true, range: None };
    let layouts = vec![
        fixed(Scalar::I32, Some(Range { min: 1, max: 9 })),
        fixed(Scalar::I64, None),
        text(Storage::Dictionary { code: Scalar::U16, entries: 9000 }),
        fixed(Scalar::I64, None),
        fixed(Scalar::I128, None),
        text(Storage::Text { offset: Scalar::U32 }),
        fixed(Scalar::F64, None),
    ];
    let mut info = ScanInfo::new(rows, layouts);
    for (column, values) in scattered.into_iter().enumerate() {
        let text_bytes = if column == 5 { 16 } else { 0 };
        info.columns[column].scattered =
            values.map(|values| Scattered { values, are_even: true, text_bytes });
    }
    let scan = Scan { source: 0, table: "t".into(), columns: (0..fields.len()).collect(), fields };
    (Plan::Scan(scan), info)
}

/// Groups by `keys` with the number of rows, more of them, and what counts a column's values once.
fn grouped(
    (scan, info): (Plan, ScanInfo),
    keys: &[usize],
    once: &[(AggregateFunction, usize, DataType)],
    more: &[(AggregateFunction, usize, DataType)],
) -> (Plan, ScanInfo) {
    let fields = scan.fields();
    let column = |index: usize| Expr::column(index, fields[index].data_type.clone(), true);
    let aggregate = |function, argument: Option<usize>, data_type| {
        let field = field("value", data_type);
        Aggregate { function, argument: argument.map(column), distinct: false, field }
    };
    let mut aggregates = vec![aggregate(AggregateFunction::Count, None, DataType::Int64)];
    for (all, distinct) in [(once, true), (more, false)] {
        aggregates.extend(all.iter().map(|(function, index, data_type)| Aggregate {
            distinct,
            ..aggregate(*function, Some(*index), data_type.clone())
        }));
    }
    let names = keys.iter().map(|_| "key".to_string()).collect();
    let keys = keys.iter().copied().map(column).collect();
    (Plan::Aggregate { input: Box::new(scan), keys, aggregates, names }, info)
}

fn chosen(program: &Program) -> (&'static str, String) {
    let mut choices = program.genome.of("aggregate0");
    let choice = choices.find(|choice| choice.axis.name == "distinct_values").expect("distinct values");
    (choice.value, choice.reason.clone())
}

#[test]
fn kernels_of_pairs_are_accepted() {
    use AggregateFunction::*;
    let all = [
        (Sum, 4, DECIMAL),
        (Max, 5, DataType::Utf8),
        (Avg, 6, DataType::Float64),
        (StddevSample, 6, DataType::Float64),
        (BitXor, 3, DataType::Int64),
    ];
    let sum = |column, data_type| [(Count, column, DataType::Int64), (Sum, column, data_type)];
    let gpu = gpu();
    for target in [&gpu, &Target::simt(4, 8, 200 << 10, 4), &Target::cpu(2)] {
        for (keys, once, more) in [
            (&[][..], &sum(3, DataType::Int64)[..], &all[..]),
            (&[0], &sum(4, DECIMAL), &all[..]),
            (&[1, 2], &sum(3, DataType::Int64)[..1], &[]),
            (&[0, 2], &[(Count, 5, DataType::Int64)], &all[..1]),
        ] {
            let query = grouped(table(6_000_000, [None; 7]), keys, once, more);
            for micro_model in MicroModel::ALL {
                let program = compile_as(&query, target, micro_model, &[("distinct_values", "groups")]);
                assert_eq!(chosen(&program).0, "groups");
                accepts(program, target);
            }
            for more in [("group_parts", "64"), ("group_order", "sorted"), ("local_preaggregation", "256")] {
                let values = [("distinct_values", "groups"), more];
                accepts(compile_as(&query, target, MicroModel::Resolution, &values), target);
            }
        }
    }
}

#[test]
fn pairs_that_are_many_and_far_from_each_other_are_groups() {
    let (gpu, cpu) = (gpu(), Target::cpu(2));
    let of = |target: &Target, keys: &[usize], value: usize, (rows, known): (u64, [Option<u64>; 7])| {
        let once = [(AggregateFunction::Count, value, DataType::Int64)];
        let query = grouped(table(rows, known), keys, &once, &[]);
        let program = compile_as(&query, target, MicroModel::Resolution, &[]);
        let parts = program.genome.of("aggregate0").find(|choice| choice.axis.name == "group_parts");
        let parts = parts.is_some_and(|choice| choice.value != "1");
        let (value, reason) = chosen(&program);
        assert_eq!(value == "groups", parts, "{reason}");
        (value, reason)
    };
    let known = |value: u64| [None, None, None, Some(value), None, Some(value), None];
    // Nine groups of a hundred thousand values each, and all rows.
    for keys in [&[0][..], &[]] {
        assert_eq!(of(&gpu, keys, 3, (60_000_000, known(100_000))).0, "groups");
        let (value, reason) = of(&cpu, keys, 3, (60_000_000, known(100_000)));
        assert_eq!((value, reason.contains("rows of a worker")), ("set", true), "{reason}");
        // Nothing is known of the values, or the rows are few.
        let (value, reason) = of(&gpu, keys, 3, (60_000_000, [None; 7]));
        assert_eq!((value, reason.contains("not known to be many")), ("set", true), "{reason}");
        assert_eq!(of(&gpu, keys, 3, (100_000, known(90_000))).0, "set");
    }
    // Texts come in parts of a CPU's worker alone.
    assert_eq!(of(&gpu, &[0], 5, (9_000_000, known(100_000))).0, "set");
    // Nine thousand groups of so many values that three rows come to a pair, then hardly more than one.
    assert_eq!(of(&gpu, &[2], 3, (60_000_000, known(2000))).0, "groups");
    let (value, reason) = of(&gpu, &[2], 3, (60_000_000, known(20_000)));
    assert_eq!((value, reason.contains("few rows a group")), ("set", true), "{reason}");
}

/// Where the groups are as far from each other as their values, one is as good as the other.
#[test]
fn groups_that_are_far_from_each_other_keep_a_set() {
    let known = [None, Some(1 << 20), None, Some(9), None, None, None];
    let target = gpu();
    let once = [(AggregateFunction::Count, 3, DataType::Int64)];
    let query = grouped(table(60_000_000, known), &[1], &once, &[]);
    let (value, reason) = chosen(&compile_as(&query, &target, MicroModel::Resolution, &[]));
    assert_eq!((value, reason.contains("not only their values")), ("set", true), "{reason}");
}
