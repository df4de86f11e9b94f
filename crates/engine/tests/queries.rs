//! Plans through the whole engine on the CPU and on the interpreter, under both micro models.

use crate::common::*;

use AggregateFunction::{Avg, Count, Max, Min, Sum};

/// `a`: 0..rows modulo 100; `b`: i64 extremes and NULLs; `s`: text; `u`: unique text, some NULL; `f`: doubles.
fn table(rows: usize, partitions: usize) -> Arc<Table> {
    let part = |from: usize, to: usize| {
        let rows = from..to;
        let b = |row: usize| match row % 5 {
            0 => None,
            1 => Some(i64::MAX - row as i64),
            2 => Some(i64::MIN + row as i64),
            _ => Some(row as i64 - 50),
        };
        let u = |row: usize| (row % 11 != 3).then(|| format!("unique é {row}"));
        let columns: Vec<ArrayRef> = vec![
            ints(rows.clone().map(|row| (row % 100) as i32)),
            maybe_longs(rows.clone().map(b)),
            texts(rows.clone().map(|row| ["x", "", "zß"][row % 3])),
            maybe_texts(rows.clone().map(u)),
            doubles(rows.map(|row| row as f64 / 4.0)),
        ];
        batch_of(&COLUMNS, columns)
    };
    let cut = |index: usize| rows * index / partitions;
    let batches = (0..partitions).map(|index| part(cut(index), cut(index + 1))).collect();
    Arc::new(Table(batches))
}

const COLUMNS: [Column; 5] = [
    ("a", DataType::Int32, false),
    ("b", DataType::Int64, true),
    ("s", DataType::Utf8, false),
    ("u", DataType::Utf8, true),
    ("f", DataType::Float64, false),
];

fn scan() -> Plan {
    scan_of(0, &COLUMNS)
}

fn less(expr: Expr, value: i128) -> Expr {
    compare_with(CompareOp::Lt, expr, value)
}

fn aggregate(input: Plan, keys: &[usize], aggregates: &[(AggregateFunction, Option<usize>)]) -> Plan {
    let keys: Vec<Expr> = keys.iter().map(|key| column(&input, *key)).collect();
    let aggregates = aggregates.iter().map(|(function, argument)| {
        let argument = argument.map(|index| column(&input, index));
        let data_type = match (function, &argument) {
            (AggregateFunction::Count, _) => DataType::Int64,
            (AggregateFunction::Sum, Some(expr)) if expr.data_type.is_integer() => DataType::Int64,
            (AggregateFunction::Avg, _) => DataType::Float64,
            (_, Some(expr)) => expr.data_type.clone(),
            _ => DataType::Int64,
        };
        of(*function, argument, data_type)
    });
    let aggregates = aggregates.collect();
    groups_of(input, keys, aggregates)
}

fn sort(input: Plan, keys: &[usize], fetch: Option<usize>) -> Plan {
    let key = |index: &usize| sort_key(column(&input, *index), false, true);
    let keys = keys.iter().map(key).collect();
    sorted(input, keys, fetch)
}

fn configurations() -> Vec<QueryOptions> {
    let is_wanted = |options: &QueryOptions| {
        matches!(options.micro_model, MicroModel::Pipelined | MicroModel::Resolution)
    };
    models(&lanes()).into_iter().filter(is_wanted).collect()
}

/// Every configuration gives these rows.
fn expect(plan: &Plan, rows: usize, expected: &[&str]) {
    let engine = Engine::new();
    let source = table(rows, 3);
    for options in configurations() {
        let output = run(&engine, plan, &source, &options);
        assert_eq!(rows_of(&output.batch, true), expected, "{options:?}");
    }
}

#[test]
fn aggregates_without_keys() {
    let all =
        [(Count, None), (Count, Some(1)), (Sum, Some(0)), (Min, Some(1)), (Max, Some(1)), (Avg, Some(4))];
    let plan = aggregate(keep(scan(), less(column(&scan(), 0), 50)), &[], &all);
    expect(&plan, 1000, &["500|400|12250|-9223372036854775806|9223372036854775806|118.625"]);
}

#[test]
fn no_rows_give_one_row_of_nulls_and_zeros() {
    let plan = aggregate(scan(), &[], &[(Count, None), (Sum, Some(0)), (Min, Some(4)), (Avg, Some(4))]);
    expect(&plan, 0, &["0|-|-|-"]);
}

#[test]
fn groups_by_text() {
    let plan = sort(aggregate(scan(), &[2], &[(Count, None), (Sum, Some(0)), (Max, Some(4))]), &[0], None);
    expect(&plan, 100, &["|33|1617|24.25", "x|34|1683|24.75", "zß|33|1650|24.5"]);
}

#[test]
fn more_groups_than_expected() {
    // Unique text with NULLs (stored keys) and the full range of i64 with NULLs, more groups than the first table has.
    let groups = aggregate(scan(), &[3, 1], &[(Count, None)]);
    let plan = aggregate(groups, &[], &[(Count, None), (Sum, Some(2))]);
    let engine = Engine::new();
    let options = cpu();
    let source = table(150_000, 4);
    let batch = run(&engine, &plan, &source, &options).batch;
    assert_eq!(batch.column(1).as_primitive::<Int64Type>().value(0), 150_000);
    let distinct: HashSet<(Option<usize>, Option<usize>)> =
        (0..150_000).map(|row| ((row % 11 != 3).then_some(row), (row % 5 != 0).then_some(row))).collect();
    let groups = batch.column(0).as_primitive::<Int64Type>().value(0);
    assert_eq!(groups as usize, distinct.len());
}

#[test]
fn rows_with_text_and_nulls() {
    let plan = sort(keep(scan(), less(column(&scan(), 1), -40)), &[4], Some(4));
    let expected = [
        "2|-9223372036854775806|zß|unique é 2|0.5",
        "3|-47|x|-|0.75",
        "4|-46||unique é 4|1.0",
        "7|-9223372036854775801||unique é 7|1.75",
    ];
    expect(&plan, 40, &expected);
}

#[test]
fn a_limit_inside_is_carried_out_first() {
    let plan = aggregate(sort(scan(), &[4], Some(10)), &[], &[(Count, None), (Sum, Some(0))]);
    expect(&plan, 500, &["10|45"]);
}

#[test]
fn a_second_run_compiles_nothing() {
    let engine = Engine::new();
    let source = table(1000, 1);
    let options = cpu();
    let plan = aggregate(scan(), &[0], &[(Count, None)]);
    let first = run(&engine, &plan, &source, &options);
    let second = run(&engine, &plan, &source, &options);
    assert!(first.metrics.pipelines.iter().any(|pipeline| pipeline.compile_ns > 0));
    assert!(second.metrics.pipelines.iter().all(|pipeline| pipeline.compile_ns == 0));
    assert_eq!(first.batch.num_rows(), 100);
    assert_eq!(
        first.metrics.pipelines.iter().map(|pipeline| pipeline.rows_out).collect::<Vec<_>>(),
        [Some(100), Some(100)]
    );
}
