//! The first rows of an order are the same where rows that cannot be among them are not stored, by the words of the rows that stand
//! first in their source; and fewer bytes are written then. What groups become is sized by their number.

use crate::common::*;
use crate::plans::{aggregate, filter};
use kelpie_compile::plan::AggregateFunction::{Count, Max, Sum};

/// Groups of the tests: several times as many as one block sorts.
const GROUPS: i64 = 60_000;

/// `k`: keys, of which those from 0 on are dense, and NULLs; `v`: values, and NULLs.
fn table(keys: impl Fn(i64) -> Option<i64>, values: impl Fn(i64) -> Option<i64>) -> Arc<dyn TableSource> {
    let columns = vec![maybe_longs((0..GROUPS).map(keys)), maybe_longs((0..GROUPS).map(values))];
    table_of(&COLUMNS, columns)
}

const COLUMNS: [Column; 2] = [("k", DataType::Int64, true), ("v", DataType::Int64, true)];

fn scan() -> Plan {
    scan_of(0, &COLUMNS)
}

fn first(input: Plan, keys: &[(usize, bool)], fetch: usize) -> Plan {
    let key = |&(index, descending): &(usize, bool)| sort_key(column(&input, index), descending, descending);
    let keys = keys.iter().map(key).collect();
    sorted(input, keys, Some(fetch))
}

fn options(device: DeviceChoice, forced: &[(&str, &str)]) -> QueryOptions {
    QueryOptions { meter: true, ..on(device, forced) }
}

/// Bytes that were written to stores.
fn stored(metrics: &QueryMetrics) -> u64 {
    metrics.traffic.expect("counts").store.written
}

/// Far keys, in an order of their own.
fn spread(row: i64) -> i64 {
    (row * 7_919) % GROUPS
}

#[test]
fn few_groups_are_stored_where_the_first_of_them_bound_the_others() {
    let table = table(|row| Some(spread(row) * 1_000_003), |row| Some((row * row) % 99_991));
    let groups = || aggregate(scan(), &[0], &[(Sum, Some(1), false), (Count, None, false)]);
    let plan = first(groups(), &[(1, true), (0, false)], 10);
    let engine = Engine::new();
    let sources = [Arc::clone(&table), Arc::clone(&table)];
    let expected = rows_of(&run(&engine, &plan, &sources, options(DeviceChoice::Cpu, &[])).batch, true);
    assert_eq!(expected.len(), 10);
    for device in devices_with_warps() {
        let mut written = Vec::new();
        for value in ["off", "sample"] {
            let options = options(device, &[("top_bound", value), ("group_table", "hash")]);
            // Then again, as launches nobody waits for.
            for _ in 0..3 {
                let output = run(&engine, &plan, &sources, &options);
                assert!(has(&output, ("top_bound", value)));
                assert_eq!(rows_of(&output.batch, true), expected, "{device:?}, {value}");
                written.push(stored(&output.metrics));
            }
        }
        let (all, few) = (written[0], written[3]);
        assert!(few * 5 < all, "{device:?}: {written:?}");
    }
}

/// The first rows of a table by two keys, each a column and whether it is descending.
struct Case {
    name: &'static str,
    table: Arc<dyn TableSource>,
    fetch: usize,
    keys: [(usize, bool); 2],
    plan: Plan,
}

/// What each form of rows gives: first words that are alike, NULLs, few rows that pass, an order in which the first rows bound nothing.
#[test]
fn any_rows_are_the_first_of_all() {
    let same = table(|row| Some(spread(row)), |row| Some(row % 3));
    let nulls = table(|row| (row % 5 > 0).then(|| spread(row)), |row| (row % 7 > 1).then_some(row));
    let worst = table(Some, Some);
    let by_key = || aggregate(scan(), &[0], &[(Max, Some(1), false)]);
    let few = || filter(by_key(), 1, CompareOp::Lt, 2);
    let engine = Engine::new();
    let mut cases = Vec::new();
    for (name, table) in [("same", same), ("nulls", nulls), ("worst", worst)] {
        for (plan, keys) in [
            (scan(), [(1, true), (0, true)]),
            (scan(), [(1, false), (0, false)]),
            (by_key(), [(1, true), (0, true)]),
            (by_key(), [(0, false), (1, true)]),
            (few(), [(0, true), (1, true)]),
        ] {
            let plans = [1, 100, 500].map(|fetch| (fetch, first(plan.clone(), &keys, fetch)));
            cases.extend(plans.map(|(fetch, plan)| Case {
                name,
                table: Arc::clone(&table),
                fetch,
                keys,
                plan,
            }));
        }
    }
    let facets = |Case { name, fetch, keys, .. }: &Case| {
        vec![name.to_string(), format!("{name} {fetch}"), format!("{keys:?}")]
    };
    for Case { name, table, fetch, keys, plan } in covering("first rows", cases, 14, facets) {
        let sources = [Arc::clone(&table), Arc::clone(&table)];
        let run = |options| rows_of(&run(&engine, &plan, &sources, &options).batch, true);
        let expected = run(options(DeviceChoice::Cpu, &[("top_bound", "off")]));
        for device in devices_with_warps() {
            let found = run(options(device, &[("top_bound", "sample")]));
            assert_eq!(found, expected, "{device:?}, {name}, {keys:?}, {fetch}");
        }
    }
}

#[test]
fn where_rows_cannot_come_in_two_launches_all_are_stored() {
    let table = table(|row| Some(spread(row)), |row| Some(row % 1_000));
    let sources = [Arc::clone(&table), Arc::clone(&table)];
    let engine = Engine::new();
    let plan = first(scan(), &[(1, true), (0, true)], 5);
    let expected = rows_of(&run(&engine, &plan, &sources, options(DeviceChoice::Cpu, &[])).batch, true);
    for micro_model in [MicroModel::MultiPass, MicroModel::OperatorAtATime] {
        let options = options(DeviceChoice::Simt, &[("top_bound", "sample")]);
        let options = QueryOptions { micro_model, ..options };
        let output = run(&engine, &plan, &sources, &options);
        assert_eq!(rows_of(&output.batch, true), expected, "{micro_model:?}");
        assert!(has(&output, ("top_bound", "off")), "{micro_model:?}");
    }
    // As many as the first rows are, or more, cannot be bounded by them.
    let plan = first(scan(), &[(1, true), (0, true)], 4_000);
    let output = run(&engine, &plan, &sources, options(DeviceChoice::Simt, &[("top_bound", "sample")]));
    assert!(has(&output, ("top_bound", "off")));
    assert_eq!(output.batch.num_rows(), 4_000);
}

/// Of few groups of many rows, what they become takes memory for the groups: the result, and what is stored to be sorted.
#[test]
fn what_groups_become_has_room_for_as_many() {
    let sources_of = |groups: i64| {
        let table = table(|row| Some((row % groups) * 1_000_003), Some);
        [Arc::clone(&table), table]
    };
    let groups =
        || aggregate(scan(), &[0], &[(Sum, Some(1), false), (Count, None, false), (Max, Some(1), false)]);
    let sorted = || {
        let Plan::Sort { input, keys, .. } = first(groups(), &[(1, true), (0, false)], 1) else {
            return groups();
        };
        Plan::Sort { input, keys, fetch: None }
    };
    for device in devices_with_warps().into_iter().chain([DeviceChoice::Cpu]) {
        for (plan, behind) in [(groups(), 1), (sorted(), 2), (filter(groups(), 2, CompareOp::Gt, 1), 1)] {
            let options = QueryOptions { meter: false, ..options(device, &[("sort_place", "device")]) };
            let (few, many) = (sources_of(50), sources_of(GROUPS / 2));
            let bytes = |sources: &[Arc<dyn TableSource>; 2], engine: &Engine| {
                let output = run(engine, &plan, sources, &options);
                let last = output.metrics.pipelines.iter().rev().take(behind);
                let launched: Vec<u32> = last.clone().map(|pipeline| pipeline.launches).collect();
                assert!(launched.iter().all(|launches| *launches == 1), "{device:?}: {launched:?}");
                (last.map(|pipeline| pipeline.bytes_written).sum::<u64>(), output.batch.num_rows())
            };
            // What two workers may leave unused, and little beside.
            let ((of_few, rows), (of_many, all)) =
                (bytes(&few, &Engine::new()), bytes(&many, &Engine::new()));
            assert_eq!((rows, all as i64), (50, GROUPS / 2), "{device:?}");
            assert!(of_few < 400 << 10, "{device:?}: {of_few} bytes for {rows} groups");
            assert!(of_many > 20 * all as u64, "{device:?}: {of_many} bytes for {all} groups");
            // A second run takes little more: launches that nobody waits for may come to an eighth more rows.
            let engine = Engine::new();
            let twice = [bytes(&few, &engine).0, bytes(&few, &engine).0];
            assert!(twice[1] <= twice[0] * 2, "{device:?}: {twice:?}");
        }
    }
}
