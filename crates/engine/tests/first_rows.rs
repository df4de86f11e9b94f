//! What groups become is sized by their number.

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
