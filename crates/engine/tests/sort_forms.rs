//! The forms of the device's radix sort (`sort_passes`) give one order: keys whose words differ in bits of all kinds, several
//! keys, NULLs, extremes and duplicates, around the borders of tiles, on the CPU, on interpreters of several widths, and on a GPU where
//! there is one.

use crate::common::*;

/// Every value of the axis.
const FORMS: [&str; 3] = ["tiles", "sweep", "leading"];

/// Columns: the row's number; one bit; a digit; few integers; 12 bits far up; 32 bits; 40 bits; extremes; doubles; extremes and NULLs; few
/// numbers and NULLs; one value.
const COLUMNS: [Column; 12] = [
    ("id", DataType::Int64, false),
    ("bit", DataType::Int32, false),
    ("digit", DataType::Int32, false),
    ("few", DataType::Int64, false),
    ("far", DataType::Int64, false),
    ("int", DataType::Int32, false),
    ("forty", DataType::Int64, false),
    ("extremes", DataType::Int64, false),
    ("double", DataType::Float64, false),
    ("maybe", DataType::Int64, true),
    ("maybe_few", DataType::Int32, true),
    ("constant", DataType::Int32, false),
];

fn mixed(row: usize, column: u64) -> u64 {
    let value = (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (column << 56);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value ^ (value >> 31)
}

fn extreme(value: u64) -> i64 {
    match value % 8 {
        0 => i64::MIN,
        1 => i64::MAX,
        2 => 0,
        3 => -1,
        4 => i64::MIN + 1,
        _ => value as i64,
    }
}

fn table(rows: usize) -> (Arc<Table>, Plan) {
    let longs = |of: &dyn Fn(usize) -> i64| longs((0..rows).map(of));
    let ints = |of: &dyn Fn(usize) -> i32| ints((0..rows).map(of));
    let some = |row: usize| !mixed(row, 20).is_multiple_of(5);
    let maybe = |row: usize| some(row).then(|| extreme(mixed(row, 9)));
    let maybe_few = |row: usize| some(row).then(|| (mixed(row, 10) % 3) as i32 - 1);
    let arrays: Vec<ArrayRef> = vec![
        longs(&|row| row as i64),
        ints(&|row| (mixed(row, 1) % 2) as i32),
        ints(&|row| (mixed(row, 2) % 200) as i32 - 100),
        longs(&|row| (mixed(row, 3) % 7) as i64 * 1000),
        longs(&|row| ((mixed(row, 4) % 4096) << 40) as i64),
        ints(&|row| mixed(row, 5) as i32),
        longs(&|row| (mixed(row, 6) >> 24) as i64),
        longs(&|row| extreme(mixed(row, 7))),
        doubles((0..rows).map(|row| mixed(row, 8) as i64 as f64 / 3.0)),
        maybe_longs((0..rows).map(maybe)),
        maybe_ints((0..rows).map(maybe_few)),
        ints(&|_| 7),
    ];
    (table_of(&COLUMNS, arrays), scan_of(0, &COLUMNS))
}

fn find(name: &str) -> usize {
    COLUMNS.iter().position(|column| column.0 == name).expect("a column")
}

fn column(name: &str) -> Expr {
    column_of(&COLUMNS, find(name))
}

/// Rows by keys, of which every other one is descending.
fn sorted(scan: &Plan, keys: &[&str]) -> Plan {
    let key = |(number, name): (usize, &&str)| sort_key(column(name), number % 2 == 1, number % 3 == 0);
    crate::common::sorted(scan.clone(), keys.iter().enumerate().map(key).collect(), None)
}

fn options(device: DeviceChoice, lanes: u32, choices: &[(&str, &str)]) -> QueryOptions {
    QueryOptions { host_sort_rows: Some(0), threads: Some(3), ..on_lanes((device, lanes), choices) }
}

/// The rows' numbers in order: a stable sort by the same keys.
fn expected(batch: &RecordBatch, keys: &[&str]) -> Vec<i64> {
    let key = |(number, name): (usize, &&str)| {
        let options =
            arrow::compute::SortOptions { descending: number % 2 == 1, nulls_first: number % 3 == 0 };
        arrow::compute::SortColumn { values: Arc::clone(batch.column(find(name))), options: Some(options) }
    };
    let mut columns: Vec<_> = keys.iter().enumerate().map(key).collect();
    // Equal rows stay in their order.
    columns.push(arrow::compute::SortColumn { values: Arc::clone(batch.column(0)), options: None });
    let order = arrow::compute::lexsort_to_indices(&columns, None).expect("sorts");
    order.values().iter().map(|row| i64::from(*row)).collect()
}

/// What was chosen of an axis.
fn first(output: &QueryOutput, axis: &str) -> Option<&'static str> {
    chosen(output, axis).first().copied()
}

/// Sorts in every form. Rows are stored in their order, as their places are counted before, so that equal ones stay in it.
fn every_form(device: DeviceChoice, lanes: u32, rows: usize, lists: &[&[&str]]) {
    let engine = Engine::new();
    let (source, scan) = table(rows);
    for keys in lists {
        let order = expected(&source.0[0], keys);
        let plan = sorted(&scan, keys);
        let name = format!("{rows} rows by {keys:?} on {device:?} {lanes}");
        let most = if device == DeviceChoice::Simt { 1 } else { 2 };
        for passes in sample(&name, FORMS, most) {
            let what = format!("{device:?} {lanes} lanes, {rows} rows by {keys:?}: {passes}");
            // A single row is in order.
            let place = if rows > 0 { "device" } else { "host" };
            let choices = [("sort_passes", passes), ("count_places", "on"), ("sort_place", place)];
            let output = run(&engine, &plan, &source, options(device, lanes, &choices));
            let lacks = if device == DeviceChoice::Cpu { "sweep" } else { "leading" };
            let rule = if device == DeviceChoice::Cpu { "leading" } else { "sweep" };
            let passes = if passes == lacks { rule } else { passes };
            // Where there are no rows, nothing is compiled.
            assert_eq!(first(&output, "sort_passes"), (rows > 0).then_some(passes), "{what}");
            let found = output.batch.column(0).as_primitive::<Int64Type>().values().to_vec();
            let differs = found.iter().zip(&order).position(|(found, wanted)| found != wanted);
            assert!(found == order, "{what}: row {differs:?} of {} and {}", found.len(), order.len());
            for row in (0..rows).step_by(97) {
                for column in 1..COLUMNS.len() {
                    let from = found[row] as usize;
                    assert_eq!(
                        cell(output.batch.column(column), row),
                        cell(source.0[0].column(column), from),
                        "{what}"
                    );
                }
            }
        }
    }
}

/// One key of each kind, and several.
const LISTS: [&[&str]; 14] = [
    &["bit"],
    &["digit"],
    &["few"],
    &["far"],
    &["int"],
    &["forty"],
    &["extremes"],
    &["double"],
    &["maybe"],
    &["maybe_few"],
    &["constant"],
    &["constant", "maybe", "bit"],
    &["bit", "extremes", "few"],
    &["maybe_few", "far", "double", "digit"],
];

#[test]
fn rows_on_the_cpu() {
    for rows in [0, 1, (16 << 10) - 1, 16 << 10, (16 << 10) + 1] {
        every_form(DeviceChoice::Cpu, 32, rows, &[&["maybe_few", "far"]]);
    }
    every_form(DeviceChoice::Cpu, 32, 40_000, &LISTS);
}

/// More rows than one block sorts, around the borders of tiles of 128, 256 and 1024 rows.
#[test]
fn rows_on_interpreters() {
    for lanes in [4, 8, 32] {
        for rows in [0, 1, 5119, 5120, 5121] {
            every_form(DeviceChoice::Simt, lanes, rows, &[&["maybe_few", "far"]]);
        }
    }
    every_form(DeviceChoice::Simt, 8, 4500, &LISTS);
}

#[test]
fn rows_on_a_gpu() {
    if kelpie_engine::testing::has_cuda(&Engine::new()) {
        for rows in [0, 1, 8191, 8192, 8193] {
            every_form(DeviceChoice::Cuda, 32, rows, &[&["maybe_few", "far"]]);
        }
        every_form(DeviceChoice::Cuda, 32, 1_000_000, &LISTS);
    }
}

/// Groups of sorted rows, as a whole and by strides, read the words that come out of the sort.
#[test]
fn groups_of_sorted_rows() {
    let engine = Engine::new();
    let (source, scan) = table(9000);
    for keys in [&["digit"][..], &["far"], &["extremes"], &["maybe_few", "few"]] {
        let sum = of_longs(AggregateFunction::Sum, Some(column("few")));
        let aggregates = vec![of_longs(AggregateFunction::Count, None), sum];
        let plan = groups_of(scan.clone(), keys.iter().map(|name| column(name)).collect(), aggregates);
        let arrival = run(&engine, &plan, &source, options(DeviceChoice::Cpu, 32, &[]));
        let arrival = rows_of(&arrival.batch, false);
        for device in [DeviceChoice::Cpu, DeviceChoice::Simt] {
            for passes in sample(&format!("groups by {keys:?} on {device:?}"), FORMS, 2) {
                for order in ["sorted", "strided"] {
                    let choices = [("group_order", order), ("sort_passes", passes)];
                    let choices = [&choices[..], &[("stride_rows", "65536")]].concat();
                    let what = format!("{device:?} {keys:?} {choices:?}");
                    let output = run(&engine, &plan, &source, options(device, 8, &choices));
                    assert!(rows_of(&output.batch, false) == arrival, "{what}");
                    // Words that do not have all of their keys are no runs of groups.
                    let is_sorted = first(&output, "group_order") != Some("arrival");
                    assert_eq!(first(&output, "sort_passes").is_some(), is_sorted, "{what}");
                }
            }
        }
    }
}

#[test]
fn rules_and_what_a_cpu_lacks() {
    let engine = Engine::new();
    let (source, scan) = table(100);
    let plan = sorted(&scan, &["int"]);
    for (device, passes) in [(DeviceChoice::Cpu, 2), (DeviceChoice::Simt, 2)] {
        let output = run(&engine, &plan, &source, options(device, 8, &[]));
        let possible = |axis: &str| {
            let choice = output.metrics.choices().find(|choice| choice.axis.name == axis);
            choice.map_or(0, |choice| choice.possible().count())
        };
        assert_eq!(possible("sort_passes"), passes, "{device:?}");
        let values = output.batch.column(find("int")).as_primitive::<Int32Type>().values().to_vec();
        assert!(values.is_sorted(), "{device:?}");
    }
    let options = options(DeviceChoice::Cpu, 8, &[("sort_passes", "sweep")]);
    let output = run(&engine, &plan, &source, &options);
    let choice = output.metrics.choices().find(|choice| choice.axis.name == "sort_passes");
    let text =
        "a few digits tell most rows apart, and a worker puts the others in order; sweep is not possible: ";
    assert!(choice.is_some_and(|choice| choice.reason.starts_with(text)), "{choice:?}");
}
