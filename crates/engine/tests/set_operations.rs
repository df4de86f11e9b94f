//! INTERSECT and EXCEPT give what a plain evaluation gives, for columns of every kind with NULLs, however the groups of the distinct side are
//! found.

use crate::common::*;

use JoinKind::{BuildAnti, BuildSemi, ProbeAnti, ProbeSemi};

const DECIMAL: DataType = DataType::Decimal128 { precision: 38, scale: 2 };

const COLUMNS: [Column; 5] = [
    ("dense", DataType::Int32, true),
    ("wide", DataType::Int64, false),
    ("text", DataType::Utf8, true),
    ("decimal", DECIMAL, true),
    ("float", DataType::Float64, false),
];

/// Rows of which some have the same values, and of two tables some are in both.
fn table(rows: usize, first: usize) -> Arc<Table> {
    let value = |row: usize, of: usize| (first + row * 7919) % of;
    let all = |of: usize| (0..rows).map(move |row| value(row, of));
    let some = |of: usize| all(of).map(|value| (value % 11 != 3).then_some(value));
    let text = |value: usize| if value == 5 { String::new() } else { format!("ß {value}") };
    let arrays: Vec<ArrayRef> = vec![
        maybe_ints(some(40).map(|value| value.map(|value| value as i32 - 9))),
        longs(all(300).map(|value| (value as i64).wrapping_mul(0x5851_f42d_4c95_7f2d))),
        maybe_texts(some(60).map(|value| value.map(text))),
        decimals(some(97).map(|value| value.map(|value| value as i128 * 10i128.pow(34) - 5)), 38, 2),
        doubles(all(9).map(|value| value as f64)),
    ];
    table_of(&COLUMNS, arrays)
}

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

fn distinct(input: Plan, columns: &[usize]) -> Plan {
    let keys = columns.iter().map(|index| column(&input, *index)).collect();
    groups_of(input, keys, Vec::new())
}

/// The rows whose first column is below a number.
fn below(input: Plan, limit: i128) -> Plan {
    let predicate = compare_with(CompareOp::Lt, column(&input, 0), limit);
    keep(input, predicate)
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
    Plan::Join(Box::new(Join { residual, null_equal, ..join_of(kind, build, probe, keys) }))
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
    columns.iter().map(|column| cell(batch.column(*column), row)).collect::<Vec<_>>().join("|")
}

/// The rows, sorted.
fn run(
    plan: &Plan,
    tables: &[Arc<Table>; 2],
    options: &QueryOptions,
    values: &[(&str, &str)],
) -> Result<Vec<String>, EngineError> {
    let output = try_run(&Engine::new(), plan, tables, forcing(options, values))?;
    Ok(rows_of(&output.batch, false))
}

const COLUMN_LISTS: [&[usize]; 4] = [&[0], &[1], &[2, 0], &[3, 1, 2]];

fn compare(options: &QueryOptions, sizes: [usize; 2], ways: &[&[(&str, &str)]]) {
    let tables = [table(sizes[0], 0), table(sizes[1], 17)];
    let mut cases = Vec::new();
    for kind in [BuildSemi, BuildAnti, ProbeSemi, ProbeAnti] {
        for columns in COLUMN_LISTS {
            for (limit, is_distinct) in [(None, false), (None, true), (Some(11), false), (Some(-100), true)] {
                cases.extend(ways.iter().map(|way| (kind, columns, limit, is_distinct, *way)));
            }
        }
    }
    let name = format!("{sizes:?} {:?} {:?}", options.device, options.micro_model);
    let cases = covering(&name, cases, 10, |(kind, columns, limit, is_distinct, way)| {
        [format!("{kind:?}"), format!("{columns:?}"), format!("{limit:?} {is_distinct}"), format!("{way:?}")]
            .into()
    });
    for (kind, columns, limit, is_distinct, way) in cases {
        let what = format!("{way:?} {kind:?} {columns:?} {limit:?} {is_distinct} {options:?}");
        let found = run(&plan(kind, columns, limit, is_distinct), &tables, options, way);
        let found = found.unwrap_or_else(|error| panic!("{error}: {what}"));
        assert_eq!(found, expected(&tables, kind, columns, limit), "{what}");
    }
}

const WAYS: [&[(&str, &str)]; 4] = [
    &[],
    &[("group_parts", "16"), ("group_table", "hash")],
    &[("group_order", "sorted")],
    &[("batch_rows", "64"), ("group_table", "hash"), ("local_preaggregation", "256")],
];

#[test]
fn set_operations_give_distinct_rows() {
    compare(&on(DeviceChoice::Cpu, &[]), [700, 500], &WAYS);
    compare(&on(DeviceChoice::Simt, &[]), [90, 120], &WAYS[..2]);
    for sizes in [[0, 50], [50, 0], [0, 0], [1, 1]] {
        compare(&on(DeviceChoice::Cpu, &[]), sizes, &WAYS[..2]);
    }
}

#[test]
fn set_operations_on_cuda() {
    if kelpie_engine::testing::has_cuda(&Engine::new()) {
        compare(&on(DeviceChoice::Cuda, &[]), [700, 500], &WAYS);
    }
}

#[test]
fn under_every_micro_model_and_in_blocks() {
    for micro_model in MicroModel::ALL {
        compare(&QueryOptions { micro_model, ..cpu() }, [120, 150], &[&[]]);
    }
    let blocks = QueryOptions { macro_model: MacroModel::Batch, block_bytes: Some(4 << 10), ..cpu() };
    compare(&blocks, [700, 500], &[&[]]);
}

/// More rows than a first table has room for.
#[test]
fn tables_that_are_too_small_grow() {
    let numbers = |first: i64| {
        let schema = Schema::new(vec![ArrowField::new("wide", ArrowType::Int64, false)]);
        let numbers = (first..first + 150_000).map(|row| row.wrapping_mul(0x5851_f42d_4c95_7f2d));
        let numbers: ArrayRef = longs(numbers);
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
        let join = Join { residual, null_equal, ..join_of(kind, build, probe, keys) };
        let plan = Plan::Join(Box::new(join));
        for values in [&[][..], &[("group_parts", "16")]] {
            let found = run(&plan, &tables, &on(DeviceChoice::Cpu, &[]), values).expect("it runs");
            assert_eq!(found.len(), count);
        }
    }
}
