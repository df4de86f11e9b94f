//! Keys that are columns of few integers, far from each other: a column has codes beside its values, and groups are direct-addressed with a
//! slot a value, wherever the key's row is at hand, and else by a search.

use std::ops::Range;

use crate::common::*;
use crate::plans::{aggregate, filter, grouping_sets, join, union};
use kelpie_compile::types::TimeUnit;

const TIME: DataType = DataType::Timestamp { unit: TimeUnit::Nanosecond, timezone: None };
const COLUMNS: [Column; 6] = [
    ("far", DataType::Int64, true),
    ("moment", TIME, true),
    ("price", DataType::Decimal128 { precision: 20, scale: 2 }, true),
    ("unsigned", DataType::UInt64, true),
    ("many", DataType::Int64, true),
    ("amount", DataType::Int64, false),
];
const VALUES: u64 = 40;

fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 7)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// The value of a column with few ones; both ends of the 64 bits are among them. NULL now and then.
fn value_of(column: u64, row: u64) -> Option<i64> {
    let pick = mixed(row * 8 + column) >> 20;
    if pick.is_multiple_of(11) {
        return None;
    }
    let value = pick / 11 % VALUES;
    Some(match (column, value) {
        (0, 0) => i64::MIN,
        (0, 1) => i64::MAX,
        (0, _) => mixed(value + 1000) as i64,
        // Prices of at most 15 digits, times, and numbers without a sign.
        _ => (mixed(value + 1000 * column) >> 16) as i64,
    })
}

/// A table in batches.
fn table(rows: usize, batches: usize) -> Arc<dyn TableSource> {
    let batch = |rows: Range<usize>| {
        let values = |column: u64| rows.clone().map(move |row| value_of(column, row as u64));
        let columns: Vec<ArrayRef> = vec![
            maybe_longs(values(0)),
            Arc::new(TimestampNanosecondArray::from_iter(values(1))),
            decimals(values(2).map(|value| value.map(i128::from)), 20, 2),
            Arc::new(UInt64Array::from_iter(values(3).map(|value| value.map(|value| value as u64)))),
            maybe_longs(rows.clone().map(|row| Some(mixed(row as u64) as i64))),
            longs(rows.clone().map(|row| row as i64 % 17)),
        ];
        batch_of(&COLUMNS, columns)
    };
    in_batches(rows, batches, batch)
}

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

fn by_amount(plan: Plan, keys: &[usize], amount: usize) -> Plan {
    use AggregateFunction::{Count, Max, Sum};
    aggregate(plan, keys, &[(Count, None, false), (Sum, Some(amount), false), (Max, Some(amount), false)])
}

/// Groups by the rules and in other ways on all devices; the slots by the rules on a CPU.
fn compare(
    engine: &Engine,
    plan: &Plan,
    (keys, amount): (&[usize], usize),
    sources: &[Arc<dyn TableSource>],
    ways: &[&[(&str, &str)]],
) -> Option<u64> {
    let rows = run(engine, plan, sources, on(DeviceChoice::Cpu, &[]));
    let expected = grouped(&rows_of(&rows.batch, false), keys, amount);
    let plan = by_amount(plan.clone(), keys, amount);
    let mut by_rule = None;
    for device in devices() {
        for way in [&[][..], &[("group_table", "hash")]].iter().chain(ways) {
            let output = run(engine, &plan, sources, on(device, way));
            assert_eq!(rows_of(&output.batch, false), expected, "{device:?} {way:?} {keys:?}");
            if way.is_empty() && device == DeviceChoice::Cpu {
                by_rule = slots(&output);
            }
        }
    }
    by_rule
}

#[test]
fn few_values_far_from_each_other_have_a_slot_each() {
    let engine = Engine::new();
    for batches in [1, 7] {
        let sources = [table(5000, batches)];
        let slots = |keys: &[usize]| compare(&engine, &scan(0), (keys, 5), &sources, &[]);
        for key in 0..4 {
            // NULL has a slot too.
            assert_eq!(slots(&[key]), Some(VALUES + 1), "{key}");
        }
        assert_eq!(slots(&[3, 0]), Some((VALUES + 1) * (VALUES + 1)));
        assert_eq!(slots(&[2, 5]), Some((VALUES + 1) * 17));
        assert_eq!(slots(&[4]), None, "many values");
    }
}

/// Rows are grouped by what is to count once, too.
#[test]
fn few_values_that_count_once() {
    let (engine, sources) = (Engine::new(), [table(5000, 3)]);
    let distinct = aggregate(scan(0), &[5], &[(AggregateFunction::Count, Some(2), true)]);
    let expected = run(&engine, &distinct, &sources, on(DeviceChoice::Cpu, &[("group_table", "hash")]));
    for device in devices() {
        let output = run(&engine, &distinct, &sources, on(device, &[]));
        assert_eq!(rows_of(&output.batch, false), rows_of(&expected.batch, false), "{device:?}");
    }
}

#[test]
fn few_rows_and_none_have_groups_too() {
    let engine = Engine::new();
    for rows in [0, 1, 2, 40, 700] {
        let sources = [table(rows, 2)];
        for keys in [&[0][..], &[2, 3], &[1]] {
            compare(&engine, &scan(0), (keys, 5), &sources, &[]);
        }
    }
}

/// Lanes that exchange rows have values or row numbers of them; threads load several rows at once; rows come sorted or in parts, or behind
/// joins that expand them.
#[test]
fn rows_that_came_from_elsewhere_find_their_slots() {
    let engine = Engine::new();
    let sources = [table(3000, 3), table(90, 1)];
    let ways: [&[(&str, &str)]; 9] = [
        &[("lane_refill", "all"), ("live_columns", "values")],
        &[("lane_refill", "all"), ("live_columns", "places")],
        &[("lane_refill", "last"), ("group_table", "direct")],
        &[("group_order", "sorted"), ("group_table", "direct")],
        &[("group_order", "strided")],
        &[("group_parts", "64")],
        &[("accumulator_memory", "global"), ("group_table", "direct")],
        &[("accumulator_memory", "block"), ("group_table", "direct")],
        &[("row_arrangement", "blocked"), ("group_table", "direct")],
    ];
    let kept = filter(scan(0), 5, CompareOp::Lt, 5);
    assert_eq!(compare(&engine, &kept, (&[0], 5), &sources, &ways), Some(VALUES + 1));
    compare(&engine, &kept, (&[1, 3], 5), &sources, &ways);
    // Keys of the probe side and of the build side, which is stored.
    let joined = join(JoinKind::Inner, scan(1), scan(0), &[(5, 5)], false);
    compare(&engine, &joined, (&[6], 11), &sources, &ways);
    compare(&engine, &joined, (&[0], 11), &sources, &ways);
    compare(&engine, &joined, (&[6, 1], 11), &sources, &ways);
}

#[test]
fn groups_of_groups_and_of_several_tables() {
    let engine = Engine::new();
    let sources = [table(1400, 2), table(900, 1)];
    for keys in [&[0][..], &[2, 3]] {
        compare(&engine, &union(vec![scan(0), scan(1)]), (keys, 5), &sources, &[]);
    }
    // Groups by one of the keys of groups, whose values were loaded by their codes.
    let finer = by_amount(scan(0), &[0, 3], 5);
    compare(&engine, &finer, (&[0], 3), &sources, &[]);
    use AggregateFunction::{Count, Sum};
    let sets = grouping_sets(
        scan(0),
        (&[0, 3], &[&[0, 1], &[0], &[1], &[]]),
        &[(Count, None, false), (Sum, Some(5), false)],
    );
    let expected = run(&engine, &sets, &sources, on(DeviceChoice::Cpu, &[("group_table", "hash")]));
    for device in devices() {
        let output = run(&engine, &sets, &sources, on(device, &[]));
        assert_eq!(rows_of(&output.batch, false), rows_of(&expected.batch, false), "{device:?}");
    }
}

/// Columns that stream over a link, or for which memory is short, have no codes.
#[test]
fn blocks_and_little_memory() {
    let engine = Engine::new();
    let sources = [table(5000, 2)];
    let plan = by_amount(scan(0), &[0, 2], 5);
    let expected = run(&engine, &plan, &sources, on(DeviceChoice::Cpu, &[("group_table", "hash")]));
    for device in devices() {
        for macro_model in [MacroModel::Batch, MacroModel::KernelAtATime] {
            let options = QueryOptions { macro_model, ..on(device, &[]) };
            let output = run(&engine, &plan, &sources, &options);
            assert_eq!(rows_of(&output.batch, false), rows_of(&expected.batch, false), "{device:?}");
        }
    }
}
