//! Groups of groups: the kernels of grouping sets validate for every target and micro model, and NVRTC accepts those of a GPU; the
//! rows are read once where that is thought to pay.

use kelpie_compile::MicroModel;
use kelpie_compile::expr::Expr;
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{Program, RowCount, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, GroupingSet, GroupingSets, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Range};
use kelpie_kir::{Scalar, Target};

use crate::common::{accepts, compile_as, gpu};

const DECIMAL: DataType = DataType::Decimal128 { precision: 38, scale: 2 };

fn field(name: &str, data_type: DataType) -> Field {
    Field { name: name.into(), data_type, nullable: true }
}

/// Keys of `keys` values each, a key of any values, and what is aggregated.
fn table(keys: i128) -> (Plan, ScanInfo) {
    let fields = vec![
        field("few", DataType::Int32),
        field("text", DataType::Utf8),
        field("any", DataType::Int64),
        field("number", DataType::Int64),
        field("decimal", DECIMAL),
        field("float", DataType::Float64),
    ];
    let fixed = |scalar, range| ColumnLayout {
        storage: Storage::Fixed { scalar, has_base: false },
        has_nulls: true,
        range,
    };
    let entries = u32::try_from(keys).expect("few keys");
    let dictionary = Storage::Dictionary { code: Scalar::U16, entries };
    let layouts = vec![
        fixed(Scalar::I32, Some(Range { min: 1, max: keys })),
        ColumnLayout { storage: dictionary, has_nulls: true, range: None },
        fixed(Scalar::I64, None),
        fixed(Scalar::I64, None),
        fixed(Scalar::I128, None),
        fixed(Scalar::F64, None),
    ];
    let scan = Scan { source: 0, table: "t".into(), columns: (0..fields.len()).collect(), fields };
    (Plan::Scan(scan), ScanInfo::new(6_000_000, layouts))
}

/// A ROLLUP by some columns of the table.
fn rollup(
    keys: &[usize],
    values: i128,
    functions: &[(AggregateFunction, usize, DataType)],
) -> (Plan, ScanInfo) {
    use AggregateFunction::Count;
    let (input, info) = table(values);
    let columns = input.fields();
    let column = |index: usize| Expr::column(index, columns[index].data_type.clone(), true);
    let aggregate = |function, argument, data_type| Aggregate {
        function,
        argument,
        distinct: false,
        field: field("value", data_type),
    };
    let mut aggregates = vec![aggregate(Count, None, DataType::Int64)];
    let more = functions
        .iter()
        .map(|(function, index, data_type)| aggregate(*function, Some(column(*index)), data_type.clone()));
    aggregates.extend(more);
    let set = |count: usize| GroupingSet {
        has: (0..keys.len()).map(|key| key < count).collect(),
        identifier: count as i128,
    };
    let sets = (0..=keys.len()).map(set).collect();
    let mut fields: Vec<Field> = keys.iter().map(|key| columns[*key].clone()).collect();
    fields.push(field("set", DataType::Int32));
    fields.extend(aggregates.iter().map(|aggregate| aggregate.field.clone()));
    let keys = keys.iter().copied().map(column).collect();
    let plan = GroupingSets { input, keys, sets, aggregates, fields };
    (Plan::GroupingSets(Box::new(plan)), info)
}

fn compile(query: &(Plan, ScanInfo), target: &Target, micro_model: MicroModel, levels: &str) -> Program {
    compile_as(query, target, micro_model, &[("grouping_levels", levels)])
}

/// How many pipelines read the table.
fn scans(program: &Program) -> usize {
    program.pipelines.iter().filter(|pipeline| matches!(pipeline.rows, RowCount::Scan(_))).count()
}

#[test]
fn kernels_of_groups_of_groups_are_accepted() {
    use AggregateFunction::*;
    let every = [
        (Sum, 3, DataType::Int64),
        (Min, 1, DataType::Utf8),
        (Max, 4, DECIMAL),
        (Sum, 4, DECIMAL),
        (Avg, 5, DataType::Float64),
        (StddevSample, 5, DataType::Float64),
        (BitXor, 3, DataType::Int64),
        (BitAnd, 3, DataType::Int64),
    ];
    let gpu = gpu();
    for target in [&gpu, &Target::simt(4, 8, 200 << 10, 4), &Target::cpu(2)] {
        for functions in [&every[..], &every[..1]] {
            for query in [rollup(&[0, 1], 9, functions), rollup(&[0, 1, 2], 900, functions)] {
                for micro_model in MicroModel::ALL {
                    let program = compile(&query, target, micro_model, "upwards");
                    assert!(scans(&program) <= 2);
                    accepts(program, target);
                }
            }
        }
    }
}

#[test]
fn rows_are_read_once_where_that_is_thought_to_pay() {
    let sum = [(AggregateFunction::Sum, 3, DataType::Int64)];
    for (keys, values, levels, expected) in [
        (&[0, 1][..], 9, "rule", 1),
        (&[0, 1], 9, "direct", 3),
        // A million groups of six million rows, then four of them.
        (&[0, 1], 999, "rule", 1),
        (&[0, 1], 3000, "rule", 2),
        // Nobody knows how many groups there are.
        (&[0, 1, 2], 9, "rule", 2),
        (&[2, 0], 9, "rule", 3),
        (&[2, 0], 9, "upwards", 1),
    ] {
        let query = rollup(keys, values, &sum);
        let program = compile(&query, &Target::cpu(2), MicroModel::Resolution, levels);
        assert_eq!(scans(&program), expected, "{keys:?} {values} {levels}");
    }
}
