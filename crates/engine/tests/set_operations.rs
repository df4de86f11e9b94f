//! INTERSECT and EXCEPT: what groups of the rows of both sides give is what a join gives, and what a plain evaluation gives, for columns
//! of every kind with NULLs, however the groups are found.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::Table;
use crate::common::cases::covering;
use JoinKind::{BuildAnti, BuildSemi, ProbeAnti, ProbeSemi};
use arrow::array::*;
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::plan::{Join, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal};
use kelpie_engine::{
    CancelToken, DeviceChoice, Engine, EngineError, MacroModel, MicroModel, Query, QueryOptions,
};

const DECIMAL: DataType = DataType::Decimal128 { precision: 38, scale: 2 };
const FLOAT: usize = 4;

fn fields() -> Vec<Field> {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    vec![
        field("dense", DataType::Int32, true),
        field("wide", DataType::Int64, false),
        field("text", DataType::Utf8, true),
        field("decimal", DECIMAL, true),
        field("float", DataType::Float64, false),
    ]
}

/// Rows of which some have the same values, and of two tables some are in both.
fn table(rows: usize, first: usize) -> Arc<Table> {
    let value = |row: usize, of: usize| (first + row * 7919) % of;
    let all = |of: usize| (0..rows).map(move |row| value(row, of));
    let some = |of: usize| all(of).map(|value| (value % 11 != 3).then_some(value));
    let text = |value: usize| if value == 5 { String::new() } else { format!("ß {value}") };
    let decimals = Decimal128Array::from_iter(
        some(97).map(|value| value.map(|value| value as i128 * 10i128.pow(34) - 5)),
    );
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter(some(40).map(|value| value.map(|value| value as i32 - 9)))),
        Arc::new(Int64Array::from_iter_values(
            all(300).map(|value| (value as i64).wrapping_mul(0x5851_f42d_4c95_7f2d)),
        )),
        Arc::new(StringArray::from_iter(some(60).map(|value| value.map(text)))),
        Arc::new(decimals.with_precision_and_scale(38, 2).expect("decimals")),
        Arc::new(Float64Array::from_iter_values(all(9).map(|value| value as f64))),
    ];
    let arrow_type = |data_type: &DataType| match data_type {
        DataType::Int32 => ArrowType::Int32,
        DataType::Int64 => ArrowType::Int64,
        DataType::Utf8 => ArrowType::Utf8,
        DataType::Float64 => ArrowType::Float64,
        _ => ArrowType::Decimal128(38, 2),
    };
    let schema = fields();
    let schema =
        schema.iter().map(|field| ArrowField::new(&field.name, arrow_type(&field.data_type), field.nullable));
    let schema = Schema::new(schema.collect::<Vec<_>>());
    Arc::new(Table(vec![RecordBatch::try_new(Arc::new(schema), arrays).expect("a batch")]))
}

fn scan(source: usize) -> Plan {
    let columns = (0..fields().len()).collect();
    Plan::Scan(Scan { source, table: "t".into(), columns, fields: fields() })
}

fn column(plan: &Plan, index: usize) -> Expr {
    let field = &plan.fields()[index];
    Expr::column(index, field.data_type.clone(), field.nullable)
}

fn distinct(input: Plan, columns: &[usize]) -> Plan {
    let keys: Vec<Expr> = columns.iter().map(|index| column(&input, *index)).collect();
    let names = keys.iter().map(|_| "k".to_string()).collect();
    Plan::Aggregate { input: Box::new(input), keys, aggregates: Vec::new(), names }
}

/// The rows whose first column is below a number.
fn below(input: Plan, limit: i128) -> Plan {
    let literal = Expr::literal(Literal::Int(limit), DataType::Int32);
    let kind = ExprKind::Compare(CompareOp::Lt, Box::new(column(&input, 0)), Box::new(literal));
    let predicate = Expr { kind, data_type: DataType::Boolean, nullable: true };
    Plan::Filter { input: Box::new(input), predicate }
}

/// Distinct rows of the first table with a partner in the second, or without, where either may be the build side; by columns of the one
/// that are in another order in the other.
fn plan(kind: JoinKind, columns: &[usize], limit: Option<i128>, is_distinct: bool) -> Plan {
    let of = |source| limit.map_or(scan(source), |limit| below(scan(source), limit));
    let kept = distinct(of(0), columns);
    let turned: Vec<usize> = columns.iter().rev().copied().collect();
    let (other, places): (Plan, Vec<usize>) = match is_distinct {
        true => (distinct(of(1), &turned), (0..columns.len()).rev().collect()),
        false => (of(1), columns.to_vec()),
    };
    let pairs = places.iter().enumerate().map(|(own, place)| (column(&kept, own), column(&other, *place)));
    let pairs: Vec<(Expr, Expr)> = pairs.collect();
    let is_build = matches!(kind, BuildSemi | BuildAnti);
    let (build, probe, keys) = match is_build {
        true => (kept, other, pairs),
        false => (other, kept, pairs.into_iter().map(|(own, other)| (other, own)).collect()),
    };
    let (residual, null_equal) = (None, true);
    Plan::Join(Box::new(Join { build, probe, kind, keys, residual, null_equal, null_aware: false }))
}

/// What a plain evaluation gives.
fn expected(tables: &[Arc<Table>; 2], kind: JoinKind, columns: &[usize], limit: Option<i128>) -> Vec<String> {
    let rows = |table: &Table| -> BTreeSet<String> {
        let batch = &table.0[0];
        let first = batch.column(0).as_primitive::<arrow::datatypes::Int32Type>();
        let is_in = |row: &usize| {
            limit.is_none_or(|limit| first.is_valid(*row) && i128::from(first.value(*row)) < limit)
        };
        (0..batch.num_rows()).filter(is_in).map(|row| text_of(batch, columns, row)).collect()
    };
    let (kept, other) = (rows(&tables[0]), rows(&tables[1]));
    match kind {
        BuildSemi | ProbeSemi => kept.intersection(&other).cloned().collect(),
        _ => kept.difference(&other).cloned().collect(),
    }
}

fn text_of(batch: &RecordBatch, columns: &[usize], row: usize) -> String {
    let cell = |column: &usize| match batch.column(*column) {
        column if column.is_null(row) => "-".into(),
        column => array_value_to_string(column, row).expect("prints"),
    };
    columns.iter().map(cell).collect::<Vec<_>>().join("|")
}

/// The rows, sorted, and what was chosen.
fn run(
    plan: &Plan,
    tables: &[Arc<Table>; 2],
    options: &QueryOptions,
    values: &[(&str, &str)],
) -> Result<(Vec<String>, Vec<&'static str>), EngineError> {
    let mut options = options.clone();
    values.iter().for_each(|(axis, value)| options.variants.set(axis, value).expect("an axis and its value"));
    let sources = tables.iter().map(|table| Arc::clone(table) as _).collect();
    let query = Query { plan: plan.clone(), sources, options };
    let output = Engine::new().execute(&query, &CancelToken::default())?;
    let batch = &output.batch;
    let columns: Vec<usize> = (0..batch.num_columns()).collect();
    let mut rows: Vec<String> = (0..batch.num_rows()).map(|row| text_of(batch, &columns, row)).collect();
    rows.sort();
    let choices = output.metrics.choices().filter(|choice| choice.axis.name == "set_operation");
    Ok((rows, choices.map(|choice| choice.value).collect()))
}

fn options(device: DeviceChoice) -> QueryOptions {
    QueryOptions { device, threads: Some(2), ..QueryOptions::default() }
}

const COLUMNS: [&[usize]; 4] = [&[0], &[1], &[2, 0], &[3, 1, 2]];

fn compare(options: &QueryOptions, sizes: [usize; 2], ways: &[&[(&str, &str)]]) {
    let tables = [table(sizes[0], 0), table(sizes[1], 17)];
    let mut cases = Vec::new();
    for kind in [BuildSemi, BuildAnti, ProbeSemi, ProbeAnti] {
        for columns in COLUMNS {
            for (limit, is_distinct) in [(None, false), (None, true), (Some(11), false), (Some(-100), true)] {
                let groups = ways.iter().map(|way| ("groups", *way));
                let all = groups.chain([("join", &[][..])]);
                cases.extend(all.map(|way| (kind, columns, limit, is_distinct, way)));
            }
        }
    }
    let name = format!("{sizes:?} {:?} {:?}", options.device, options.micro_model);
    let cases = covering(&name, cases, 10, |(kind, columns, limit, is_distinct, way)| {
        [format!("{kind:?}"), format!("{columns:?}"), format!("{limit:?} {is_distinct}"), format!("{way:?}")]
            .into()
    });
    for (kind, columns, limit, is_distinct, (value, way)) in cases {
        let what = format!("{way:?} {kind:?} {columns:?} {limit:?} {is_distinct} {options:?}");
        let values: Vec<_> = [("set_operation", value)].iter().chain(way).copied().collect();
        let found = run(&plan(kind, columns, limit, is_distinct), &tables, options, &values);
        let found = found.unwrap_or_else(|error| panic!("{error}: {what}"));
        assert_eq!(found, (expected(&tables, kind, columns, limit), vec![value]), "{what}");
    }
}

const WAYS: [&[(&str, &str)]; 4] = [
    &[],
    &[("group_parts", "16"), ("group_table", "hash")],
    &[("group_order", "sorted")],
    &[("batch_rows", "64"), ("group_table", "hash"), ("near_groups", "256")],
];

#[test]
fn groups_of_both_sides_are_as_good_as_a_join() {
    compare(&options(DeviceChoice::Cpu), [700, 500], &WAYS);
    compare(&options(DeviceChoice::Simt), [90, 120], &WAYS[..2]);
    for sizes in [[0, 50], [50, 0], [0, 0], [1, 1]] {
        compare(&options(DeviceChoice::Cpu), sizes, &WAYS[..2]);
    }
}

#[test]
fn groups_of_both_sides_on_cuda() {
    if kelpie_engine::testing::has_cuda(&Engine::new()) {
        compare(&options(DeviceChoice::Cuda), [700, 500], &WAYS);
    }
}

#[test]
fn under_every_micro_model_and_in_blocks() {
    for micro_model in MicroModel::ALL {
        compare(&QueryOptions { micro_model, ..options(DeviceChoice::Cpu) }, [120, 150], &[&[]]);
    }
    let blocks = QueryOptions {
        macro_model: MacroModel::Batch,
        block_bytes: Some(4 << 10),
        ..options(DeviceChoice::Cpu)
    };
    compare(&blocks, [700, 500], &[&[]]);
}

/// More rows than a first table has room for.
#[test]
fn tables_that_are_too_small_grow() {
    let numbers = |first: i64| {
        let schema = Schema::new(vec![ArrowField::new("wide", ArrowType::Int64, false)]);
        let numbers = (first..first + 150_000).map(|row| row.wrapping_mul(0x5851_f42d_4c95_7f2d));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        Arc::new(Table(vec![RecordBatch::try_new(Arc::new(schema), vec![numbers]).expect("a batch")]))
    };
    let tables = [numbers(0), numbers(100_000)];
    let field = Field { name: "wide".into(), data_type: DataType::Int64, nullable: false };
    let scan = |source| {
        Plan::Scan(Scan { source, table: "t".into(), columns: vec![0], fields: vec![field.clone()] })
    };
    for (kind, count) in [(BuildSemi, 50_000), (BuildAnti, 100_000)] {
        let (build, probe) = (distinct(scan(0), &[0]), scan(1));
        let keys = vec![(column(&build, 0), column(&probe, 0))];
        let (residual, null_equal) = (None, true);
        let join = Join { build, probe, kind, keys, residual, null_equal, null_aware: false };
        let plan = Plan::Join(Box::new(join));
        let values = [("set_operation", "groups"), ("group_parts", "16")];
        for values in [&values[..1], &values] {
            let found = run(&plan, &tables, &options(DeviceChoice::Cpu), values).expect("it runs");
            assert_eq!((found.0.len(), found.1), (count, vec!["groups"]));
        }
    }
}

/// A join of other rows than distinct ones, by some columns, in which NULLs are not equal or whose columns are floats, is no such thing.
#[test]
fn joins_that_are_no_set_operations() {
    let tables = [table(90, 0), table(90, 17)];
    let kinds = |change: &dyn Fn(&mut Join)| {
        let Plan::Join(mut join) = plan(BuildSemi, &[0, 1], None, false) else { panic!("no join") };
        change(&mut join);
        let values = [("set_operation", "groups")];
        run(&Plan::Join(join), &tables, &options(DeviceChoice::Cpu), &values).expect("it runs").1
    };
    assert_eq!(kinds(&|_| {}), ["groups"]);
    assert!(kinds(&|join| join.null_equal = false).is_empty());
    assert!(kinds(&|join| join.keys.truncate(1)).is_empty());
    assert!(kinds(&|join| join.kind = JoinKind::Inner).is_empty());
    assert!(kinds(&|join| join.build = scan(0)).is_empty());
    let floats = plan(BuildSemi, &[1, FLOAT], None, false);
    let values = [("set_operation", "groups")];
    let found = run(&floats, &tables, &options(DeviceChoice::Cpu), &values).expect("it runs");
    assert_eq!(found.1, ["join"]);
    assert_eq!(found.0, expected(&tables, BuildSemi, &[1, FLOAT], None));
    let here = [("join0.set_operation", "groups")];
    let error = run(&floats, &tables, &options(DeviceChoice::Cpu), &here).expect_err("not possible");
    assert!(error.to_string().contains("floats of one group may be two values"), "{error}");
}
