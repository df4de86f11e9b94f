//! Keys whose values lie at equal distances: whole days in nanoseconds, decimals of whole units, numbers in tens, and times that are
//! truncated to a day or an hour. Groups are direct-addressed with a slot for each value that there may be.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::Table;
use crate::plans::{aggregate, rows_of, run, union};
use arrow::array::*;
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema, TimeUnit as ArrowUnit};
use arrow::record_batch::RecordBatch;
use kelpie_compile::expr::{ArithmeticOp, Expr, ExprKind, Function, Granularity};
use kelpie_compile::plan::{AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal, TimeUnit};
use kelpie_engine::testing::has_cuda;
use kelpie_engine::{DeviceChoice, Engine, Forced, QueryOptions, QueryOutput, TableSource};

const HOUR: i64 = 3_600_000_000_000;
const DAY: i64 = 24 * HOUR;
/// Columns: a time of whole days (no day before 1969-12-22), a time of any nanosecond of these days, a price in whole units, tens from
/// near the least 64-bit number to near the greatest, and an amount. All but the last may be NULL.
const NAMES: [&str; 5] = ["day", "moment", "price", "tens", "amount"];
const DAYS: i64 = 40;
/// The least of the tens and their distance: both ends of the 64 bits are such.
const TENS: (i64, i64) = (i64::MIN + 8, (i64::MAX / 10 - 1) * 10);

fn mixed(row: usize) -> u64 {
    let mixed = (row as u64 ^ (row as u64 >> 7)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 20
}

fn cell(column: usize, row: usize, offset: i64) -> Option<i64> {
    let mixed = mixed(row * 5 + column);
    if mixed.is_multiple_of(11) {
        return None;
    }
    let of = |values: i64| (mixed / 11 % values as u64) as i64;
    let day = of(DAYS) - 10;
    Some(match column {
        0 => day * DAY + offset,
        1 => day * DAY + (mixed % DAY as u64) as i64,
        2 => (of(50) + 1) * 100 + offset,
        _ => TENS.0.wrapping_add(of(3).wrapping_mul(TENS.1)) + offset,
    })
}

/// A table in batches. `odd`: a row whose values lie beside the others'.
fn table(rows: usize, batches: usize, odd: Option<usize>) -> Arc<dyn TableSource> {
    let time = ArrowType::Timestamp(ArrowUnit::Nanosecond, None);
    let types = [time.clone(), time, ArrowType::Decimal128(15, 2), ArrowType::Int64, ArrowType::Int64];
    let field =
        |(name, data_type): (&str, &ArrowType)| ArrowField::new(name, data_type.clone(), name != "amount");
    let schema = Arc::new(Schema::new(NAMES.into_iter().zip(&types).map(field).collect::<Vec<_>>()));
    let batch = |first: usize, end: usize| {
        let values = |column: usize| {
            let value = move |row| cell(column, row, i64::from(odd == Some(row)));
            (first..end).map(value)
        };
        let prices = Decimal128Array::from_iter(values(2).map(|value| value.map(i128::from)));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampNanosecondArray::from_iter(values(0))),
            Arc::new(TimestampNanosecondArray::from_iter(values(1))),
            Arc::new(prices.with_precision_and_scale(15, 2).expect("a decimal")),
            Arc::new(Int64Array::from_iter(values(3))),
            Arc::new(Int64Array::from_iter_values((first..end).map(|row| row as i64 % 17))),
        ];
        RecordBatch::try_new(Arc::clone(&schema), columns).expect("a batch")
    };
    let length = rows.div_ceil(batches).max(1);
    let mut all: Vec<RecordBatch> =
        (0..rows).step_by(length).map(|first| batch(first, (first + length).min(rows))).collect();
    if all.is_empty() {
        all.push(batch(0, 0));
    }
    Arc::new(Table(all))
}

fn scan(source: usize) -> Plan {
    let time = DataType::Timestamp { unit: TimeUnit::Nanosecond, timezone: None };
    let price = DataType::Decimal128 { precision: 15, scale: 2 };
    let types = [time.clone(), time, price, DataType::Int64, DataType::Int64];
    let field = |(name, data_type): (&str, DataType)| Field {
        name: name.into(),
        data_type,
        nullable: name != "amount",
    };
    let fields = NAMES.into_iter().zip(types).map(field).collect();
    Plan::Scan(Scan { source, table: format!("t{source}"), columns: (0..NAMES.len()).collect(), fields })
}

/// A number of 64 bits.
fn number(value: i64) -> Expr {
    let kind = ExprKind::Literal(Literal::Int(value.into()));
    Expr { kind, data_type: DataType::Int64, nullable: false }
}

fn arithmetic(op: ArithmeticOp, a: Expr, b: Expr) -> Expr {
    let nullable = a.nullable || b.nullable;
    let kind = ExprKind::Arithmetic(op, Box::new(a), Box::new(b));
    Expr { kind, data_type: DataType::Int64, nullable }
}

/// The columns, and behind them the moment truncated to an hour, a day, a week and a month, the price with more digits, and numbers that
/// are computed of one column by constants: the amount in tens of thousands, from a million downwards in threes, and the tens times 3, which
/// is beyond 64 bits.
fn computed(input: Plan) -> Plan {
    let fields = input.fields();
    let column = |index: usize| Expr::column(index, fields[index].data_type.clone(), fields[index].nullable);
    let truncated = |granularity| {
        let kind = ExprKind::Function(Function::DateTrunc(granularity), vec![column(1)]);
        Expr { kind, data_type: fields[1].data_type.clone(), nullable: true }
    };
    let finer = Expr {
        kind: ExprKind::Cast { input: Box::new(column(2)), safe: false },
        data_type: DataType::Decimal128 { precision: 30, scale: 10 },
        nullable: true,
    };
    let granularities = [Granularity::Hour, Granularity::Day, Granularity::Week, Granularity::Month];
    let times = |expr, factor| arithmetic(ArithmeticOp::Multiply, expr, number(factor));
    let downwards = arithmetic(ArithmeticOp::Subtract, number(1_000_000), times(column(4), 3));
    let numbers = [times(column(4), 10_000), downwards, times(column(3), 3)];
    let exprs: Vec<Expr> = (0..NAMES.len())
        .map(column)
        .chain(granularities.map(truncated))
        .chain([finer])
        .chain(numbers)
        .collect();
    let names = (0..exprs.len()).map(|index| format!("c{index}")).collect();
    Plan::Project { input: Box::new(input), exprs, names }
}

fn options(device: DeviceChoice, form: &str) -> QueryOptions {
    let mut variants = Forced::default();
    if form != "rule" {
        variants.set("group_table", form).expect("an axis and its value");
    }
    QueryOptions { device, threads: Some(2), variants, ..QueryOptions::default() }
}

fn devices(engine: &Engine) -> Vec<DeviceChoice> {
    let gpu = has_cuda(engine).then_some(DeviceChoice::Cuda);
    [DeviceChoice::Cpu, DeviceChoice::Simt].into_iter().chain(gpu).collect()
}

/// The groups of a plan's rows by some columns, each with its number of rows, sum and greatest amount.
fn grouped(rows: &[String], keys: &[usize]) -> Vec<String> {
    let mut groups: BTreeMap<Vec<&str>, (u64, i64, i64)> = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').collect();
        let (count, sum, most) = groups.entry(keys.iter().map(|key| cells[*key]).collect()).or_default();
        let amount: i64 = cells[4].parse().expect("a number");
        (*count, *sum, *most) = (*count + 1, *sum + amount, amount.max(*most));
    }
    let line = |(keys, (count, sum, most)): (&Vec<&str>, &(u64, i64, i64))| {
        format!("{}|{count}|{sum}|{most}", keys.join("|"))
    };
    let mut lines: Vec<String> = groups.iter().map(line).collect();
    lines.sort();
    lines
}

/// Slots of the direct-addressed table that a query's rows came to, if they came to one.
fn slots(output: &QueryOutput) -> Option<u64> {
    let pipelines = output.metrics.pipelines.iter().map(|pipeline| pipeline.name.as_str());
    let behind = pipelines.filter_map(|text| text.split_once("direct, ")).map(|(_, behind)| behind).next()?;
    behind.split(' ').next()?.parse().ok()
}

fn compare(engine: &Engine, plan: &Plan, keys: &[usize], sources: &[Arc<dyn TableSource>]) -> Option<u64> {
    use AggregateFunction::{Count, Max, Sum};
    let rows = run(engine, plan, sources, &options(DeviceChoice::Cpu, "rule"));
    let expected = grouped(&rows_of(&rows.batch, false), keys);
    let plan =
        aggregate(plan.clone(), keys, &[(Count, None, false), (Sum, Some(4), false), (Max, Some(4), false)]);
    let mut by_rule = None;
    for device in devices(engine) {
        for form in ["rule", "hash"] {
            let output = run(engine, &plan, sources, &options(device, form));
            assert_eq!(rows_of(&output.batch, false), expected, "{device:?} {form} {keys:?}");
            by_rule = if form == "rule" { slots(&output) } else { by_rule };
        }
    }
    by_rule
}

#[test]
fn values_at_equal_distances_have_a_slot_each() {
    let engine = Engine::new();
    for batches in [1, 7] {
        let sources = [table(5000, batches, None)];
        let slots = |keys: &[usize]| compare(&engine, &computed(scan(0)), keys, &sources);
        // NULL has a slot too.
        assert_eq!(slots(&[0]), Some(DAYS as u64 + 1));
        assert_eq!(slots(&[2]), Some(51));
        assert_eq!(slots(&[3]), Some(4));
        assert_eq!(slots(&[0, 2]), Some(41 * 51));
        assert_eq!(slots(&[1]), None, "any nanosecond");
        // Of the moments' days all hours and weeks, and of months all days from 31 before the first day on.
        assert!(slots(&[5]).is_some_and(|hours| (900..=24 * DAYS as u64 + 1).contains(&hours)));
        assert_eq!(slots(&[6]), Some(DAYS as u64 + 1));
        assert_eq!(slots(&[9]), Some(51));
        assert!(slots(&[7]).is_some_and(|weeks| weeks <= 9));
        assert!(slots(&[8, 6]).is_some_and(|slots| slots <= 72 * 41));
    }
}

#[test]
fn numbers_that_constants_make_of_others_have_a_slot_each() {
    let engine = Engine::new();
    for rows in [0, 1, 5000] {
        let sources = [table(rows, 2, None)];
        let slots = |keys: &[usize]| compare(&engine, &computed(scan(0)), keys, &sources);
        let (tens_of_thousands, downwards) = (slots(&[10]), slots(&[11]));
        if rows == 5000 {
            assert_eq!((tens_of_thousands, downwards), (Some(17), Some(17)));
            assert_eq!(slots(&[10, 3]), Some(17 * 4));
        }
        let beyond = slots(&[12]);
        assert!(rows < 5000 || beyond.is_none(), "numbers begin anew beyond 64 bits: {beyond:?}");
    }
}

#[test]
fn few_rows_and_none_have_groups_too() {
    let engine = Engine::new();
    for rows in [0, 1, 2, 3] {
        let sources = [table(rows, 1, None)];
        for keys in [&[0][..], &[2, 3], &[6], &[7, 8], &[9]] {
            compare(&engine, &computed(scan(0)), keys, &sources);
        }
    }
}

#[test]
fn one_value_beside_the_others_is_a_group_of_its_own() {
    let engine = Engine::new();
    for odd in [0, 2500, 4999] {
        // Next to what is odd nobody is NULL.
        let odd = (odd..5000)
            .chain((0..odd).rev())
            .find(|row| (0..4).all(|column| cell(column, *row, 0).is_some()));
        let sources = [table(5000, 3, odd)];
        for keys in [0, 2, 3] {
            let slots = compare(&engine, &scan(0), &[keys], &sources);
            assert!(slots.is_none_or(|slots| slots > 2000), "{keys}: {slots:?}");
        }
    }
}

#[test]
fn rows_of_several_tables_have_groups_together() {
    let engine = Engine::new();
    let sources = [table(700, 2, None), table(900, 1, Some(450))];
    for keys in [&[0][..], &[2, 3], &[0, 2]] {
        compare(&engine, &union(vec![scan(0), scan(1)]), keys, &sources);
    }
}
