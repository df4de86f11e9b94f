//! Keys that come in about their order, whose groups are in a direct-addressed table however many values there are: a CPU's workers
//! come to slots near each other. Compared with a plain evaluation and with hash tables.

use crate::common::*;
use crate::plans::{aggregate, filter};

/// So many that columns are looked at, and more values than a direct-addressed table has slots anywhere.
const ROWS: i64 = 360_000;
const LEAST_SLOTS: i64 = 1 << 20;

/// Key, value, and a key of few values.
type Row = (Option<i64>, i64, i64);

/// A batch a zone.
fn table(rows: &[Row]) -> Arc<Table> {
    let batch = |rows: &[Row]| {
        let columns = vec![
            maybe_longs(rows.iter().map(|row| row.0)),
            longs(rows.iter().map(|row| row.1)),
            longs(rows.iter().map(|row| row.2)),
        ];
        batch_of(&COLUMNS, columns)
    };
    Arc::new(Table(rows.chunks(1 << 13).map(batch).collect()))
}

const COLUMNS: [Column; 3] =
    [("key", DataType::Int64, true), ("value", DataType::Int64, false), ("few", DataType::Int64, false)];

/// `count(*)`, `sum`, `min` and `max` of the values by keys, of rows whose value is below `limit`.
fn plan(keys: &[usize], limit: Option<i64>) -> Plan {
    let mut rows = scan_of(0, &COLUMNS);
    if let Some(limit) = limit {
        rows = filter(rows, 1, CompareOp::Lt, limit.into());
    }
    let functions = [
        (AggregateFunction::Count, None, false),
        (AggregateFunction::Sum, Some(1), false),
        (AggregateFunction::Min, Some(1), false),
        (AggregateFunction::Max, Some(1), false),
    ];
    aggregate(rows, keys, &functions)
}

fn expected(rows: &[Row], keys: &[usize], limit: Option<i64>) -> Vec<Vec<Option<i64>>> {
    let mut groups = BTreeMap::new();
    for row in rows.iter().filter(|row| limit.is_none_or(|limit| row.1 < limit)) {
        let of_row = [row.0, Some(row.1), Some(row.2)];
        let key: Vec<Option<i64>> = keys.iter().map(|key| of_row[*key]).collect();
        let (count, sum, least, most) = groups.entry(key).or_insert((0, 0i64, i64::MAX, i64::MIN));
        *count += 1;
        *sum = sum.wrapping_add(row.1);
        *least = row.1.min(*least);
        *most = row.1.max(*most);
    }
    let values = |(n, sum, least, most)| [Some(n), Some(sum), Some(least), Some(most)];
    groups.into_iter().map(|(key, cells)| key.into_iter().chain(values(cells)).collect()).collect()
}

fn rows_of(batch: &RecordBatch) -> Vec<Vec<Option<i64>>> {
    let columns: Vec<&Int64Array> =
        batch.columns().iter().map(|column| column.as_primitive::<Int64Type>()).collect();
    let row =
        |row: usize| columns.iter().map(|column| column.is_valid(row).then(|| column.value(row))).collect();
    let mut rows: Vec<Vec<Option<i64>>> = (0..batch.num_rows()).map(row).collect();
    rows.sort();
    rows
}

/// Whether the rows came to a direct-addressed table in the order in which they lie.
fn is_direct(output: &QueryOutput) -> bool {
    is_told(output, "aggregate (direct") && !is_told(output, "parts")
}

fn cpu(threads: usize, forced: &[(&str, &str)]) -> QueryOptions {
    QueryOptions { threads: Some(threads), ..on(DeviceChoice::Cpu, forced) }
}

/// A scramble of a number.
fn mixed(number: i64) -> i64 {
    number.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_right(29)
}

/// Keys by the numbers of rows.
const KEYS: [&str; 4] = [
    "upwards, four rows a key",
    "downwards, before zero, with disorder and NULL",
    "NULL by the zone",
    "i64's least values",
];

fn key(of: &str, number: i64) -> Option<i64> {
    let near = 59 * number / 20 + mixed(number).rem_euclid(64);
    match KEYS.iter().position(|name| *name == of) {
        Some(0) => Some(number / 4 * 118 / 10),
        Some(1) => (number % 1000 != 7).then_some(-near),
        Some(2) => (number / 10_000 % 3 != 1).then_some(near),
        _ => Some(i64::MIN + near),
    }
}

/// Rows of so many whose keys are such, and their table.
fn in_order(of: &str, count: i64) -> (Vec<Row>, Arc<Table>) {
    let row = |number| (key(of, number), mixed(number) >> 24, number % 3);
    let rows: Vec<Row> = (0..count).map(row).collect();
    let source = table(&rows);
    (rows, source)
}

/// By what rows are grouped, and which of them.
const GROUPINGS: [(&[usize], Option<i64>); 3] = [(&[0], None), (&[2, 0], None), (&[0], Some(0))];

#[test]
fn keys_in_about_their_order() {
    let engine = Engine::new();
    let ways: [(usize, &[(&str, &str)]); 5] = [
        (1, &[]),
        (3, &[]),
        (3, &[("run_accumulator", "off")]),
        (2, &[("group_table", "direct"), ("local_preaggregation", "256"), ("run_accumulator", "on")]),
        (2, &[("group_table", "hash")]),
    ];
    for what in sample("keys in order", KEYS, 2) {
        let (rows, source) = in_order(what, ROWS);
        let keys = || rows.iter().filter_map(|row| row.0);
        let range = keys().max().expect("keys") - keys().min().expect("keys");
        assert!(range >= LEAST_SLOTS, "{what}");
        for (by, limit) in sample(what, GROUPINGS, 1) {
            let (plan, expected) = (plan(by, limit), expected(&rows, by, limit));
            for (threads, forced) in sample(what, ways, 3) {
                let output = run(&engine, &plan, &source, cpu(threads, forced));
                assert!(rows_of(&output.batch) == expected, "{what} {by:?} {limit:?} {forced:?}");
            }
        }
    }
}

/// Warps add up neighbours before; in a hash table they do not.
#[test]
fn warps_add_up_neighbours() {
    let engine = Engine::new();
    let gpu = has_cuda(&engine).then_some(DeviceChoice::Cuda);
    let by_key = KEYS.map(|what| (what, &[0][..], "direct"));
    let cases = by_key.into_iter().chain([(KEYS[0], &[2, 0][..], "hash")]);
    let cases = cases.flat_map(|case| [Some(DeviceChoice::Simt), gpu].map(|device| (case, device)));
    for ((what, by, form), device) in sample("neighbours", cases, 3) {
        let Some(device) = device else { continue };
        let options = QueryOptions { device, ..cpu(2, &[("group_table", form)]) };
        for count in sizes(20_000, ROWS as usize) {
            let (rows, source) = in_order(what, count as i64);
            let output = run(&engine, plan(by, None), &source, &options);
            assert!(rows_of(&output.batch) == expected(&rows, by, None), "{what} {by:?} {device:?}");
            let by_warps = |name: &str| name.contains("segments in warps");
            let segments = output.metrics.pipelines.iter().any(|pipeline| by_warps(&pipeline.name));
            // Few rows tell the rule less.
            assert!(segments == (by == [0]) || count < ROWS as usize, "{what} {device:?}");
        }
    }
}

/// The rule takes a direct-addressed table where rows follow each other, and enough of them; else, and where memory is short, another.
#[test]
fn the_rule_goes_by_the_order_of_rows_and_their_number() {
    let engine = Engine::new();
    let rows = |key: &dyn Fn(i64) -> i64| -> Vec<Row> {
        (0..ROWS).map(|number| (Some(key(number)), number, 0)).collect()
    };
    let ordered = rows(&|number| 59 * number / 20);
    let scattered = rows(&|number| mixed(number).rem_euclid(59 * ROWS / 20));
    // At distances that have no common divisor.
    let sparse = rows(&|number| 100 * number + number % 2);
    for (what, rows, direct) in
        [("ordered", &ordered, true), ("scattered", &scattered, false), ("sparse", &sparse, false)]
    {
        let output = run(&engine, plan(&[0], None), &table(rows), cpu(2, &[]));
        assert_eq!(is_direct(&output), direct, "{what}");
        assert!(rows_of(&output.batch) == expected(rows, &[0], None), "{what}");
    }
    let little = QueryOptions { memory_limit: Some(32 << 20), ..cpu(2, &[]) };
    let output = run(&engine, plan(&[0], None), &table(&ordered), &little);
    assert!(rows_of(&output.batch) == expected(&ordered, &[0], None));
}
