//! Keys whose values lie at equal distances: whole days in nanoseconds, decimals of whole units, numbers in tens, and times that are
//! truncated to a day or an hour. Groups are direct-addressed with a slot for each value that there may be.

use std::ops::Range;

use crate::common::*;
use crate::plans::{aggregate, union};
use kelpie_compile::expr::Granularity;
use kelpie_compile::types::TimeUnit;

const HOUR: i64 = 3_600_000_000_000;
const DAY: i64 = 24 * HOUR;
/// Columns: a time of whole days (no day before 1969-12-22), a time of any nanosecond of these days, a price in whole units, tens from
/// near the least 64-bit number to near the greatest, and an amount. All but the last may be NULL.
const COLUMNS: [Column; 5] = [
    ("day", TIME, true),
    ("moment", TIME, true),
    ("price", DataType::Decimal128 { precision: 15, scale: 2 }, true),
    ("tens", DataType::Int64, true),
    ("amount", DataType::Int64, false),
];
const TIME: DataType = DataType::Timestamp { unit: TimeUnit::Nanosecond, timezone: None };
const DAYS: i64 = 40;
/// The least of the tens and their distance: both ends of the 64 bits are such.
const TENS: (i64, i64) = (i64::MIN + 8, (i64::MAX / 10 - 1) * 10);

fn mixed(row: usize) -> u64 {
    let mixed = (row as u64 ^ (row as u64 >> 7)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 20
}

fn value_of(column: usize, row: usize, offset: i64) -> Option<i64> {
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
    let batch = |rows: Range<usize>| {
        let values =
            |column: usize| rows.clone().map(move |row| value_of(column, row, i64::from(odd == Some(row))));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampNanosecondArray::from_iter(values(0))),
            Arc::new(TimestampNanosecondArray::from_iter(values(1))),
            decimals(values(2).map(|value| value.map(i128::from)), 15, 2),
            maybe_longs(values(3)),
            longs(rows.clone().map(|row| row as i64 % 17)),
        ];
        batch_of(&COLUMNS, columns)
    };
    in_batches(rows, batches, batch)
}

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

/// The columns, and behind them the moment truncated to an hour, a day, a week and a month, the price with more digits, and numbers that
/// are computed of one column by constants: the amount in tens of thousands, from a million downwards in threes, and the tens times 3, which
/// is beyond 64 bits.
fn computed(input: Plan) -> Plan {
    let column = |index: usize| column_of(&COLUMNS, index);
    let truncated = |granularity| call(Function::DateTrunc(granularity), vec![column(1)], TIME);
    let finer = cast(column(2), DataType::Decimal128 { precision: 30, scale: 10 });
    let granularities = [Granularity::Hour, Granularity::Day, Granularity::Week, Granularity::Month];
    let times = |expr, factor: i64| arithmetic(ArithmeticOp::Multiply, expr, int(factor));
    let downwards = arithmetic(ArithmeticOp::Subtract, int(1_000_000), times(column(4), 3));
    let numbers = [times(column(4), 10_000), downwards, times(column(3), 3)];
    let own = (0..COLUMNS.len()).map(column).chain(granularities.map(truncated));
    values_of(input, own.chain([finer]).chain(numbers).collect())
}

fn options(device: DeviceChoice, form: &str) -> QueryOptions {
    on(device, &[("group_table", form)])
}

fn compare(engine: &Engine, plan: &Plan, keys: &[usize], sources: &[Arc<dyn TableSource>]) -> Option<u64> {
    use AggregateFunction::{Count, Max, Sum};
    let rows = run(engine, plan, sources, options(DeviceChoice::Cpu, "rule"));
    let expected = grouped(&rows_of(&rows.batch, false), keys, 4);
    let plan =
        aggregate(plan.clone(), keys, &[(Count, None, false), (Sum, Some(4), false), (Max, Some(4), false)]);
    let mut by_rule = None;
    for device in devices() {
        for form in ["rule", "hash"] {
            let output = run(engine, &plan, sources, options(device, form));
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
            .find(|row| (0..4).all(|column| value_of(column, *row, 0).is_some()));
        let sources = [table(5000, 3, odd)];
        for keys in [0, 2, 3] {
            // Far from the others, it makes them values with codes: a slot each, and not one for each distance.
            let slots = compare(&engine, &scan(0), &[keys], &sources);
            assert!(slots.is_none_or(|slots| !(43..2000).contains(&slots)), "{keys}: {slots:?}");
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
