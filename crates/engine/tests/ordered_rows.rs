//! Rows that come in the order that is asked for are not sorted: whatever filters and probes leave of them, however they are gone through, and
//! whichever of them are wanted. The order is that of the columns' values as they were read.

use std::ops::Range;

use crate::common::*;

const ROWS: i64 = 5000;

const COLUMNS: [Column; 7] = [
    ("id", DataType::Int64, false),
    ("rising", DataType::Int32, false),
    ("falling", DataType::Date32, false),
    ("word", DataType::Utf8, false),
    ("value", DataType::Int64, false),
    ("maybe", DataType::Int64, true),
    ("nearly", DataType::Int64, false),
];

/// A batch a partition, of lengths that are no multiples of anything.
fn table(rows: i64) -> Arc<Table> {
    let batch = |rows: Range<i64>| {
        let all = || rows.clone();
        let columns: Vec<ArrayRef> = vec![
            longs(all()),
            ints(all().map(|row| (row / 7) as i32)),
            Arc::new(Date32Array::from_iter_values(all().map(|row| 20_000 - (row / 3) as i32))),
            texts(all().map(|row| format!("w{:03}", row / 50))),
            longs(all().map(value)),
            maybe_longs(all().map(|row| (row != 0).then_some(row))),
            longs(all().map(|row| if row == rows_less_one() { 0 } else { row })),
        ];
        batch_of(&COLUMNS, columns)
    };
    let starts = (0..rows.max(1)).step_by(1231);
    Arc::new(Table(starts.map(|start| batch(start..rows.min(start + 1231))).collect()))
}

/// The row that is out of the order of the last column.
fn rows_less_one() -> i64 {
    ROWS - 1
}

/// In no order: a tenth of them is below 10.
fn value(row: i64) -> i64 {
    (row.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_right(29)).rem_euclid(100)
}

fn scan() -> Plan {
    scan_of(0, &COLUMNS)
}

fn few(input: Plan) -> Plan {
    let value = column(&input, 4);
    keep(input, compare_with(CompareOp::Lt, value, 10))
}

/// The rows with those of other rows of the table whose `id` is their `value`, of which every one has one.
fn with_others(probe: Plan) -> Plan {
    let build = values_of(scan(), vec![column_of(&COLUMNS, 0), column_of(&COLUMNS, 1)]);
    let keys = vec![(column(&build, 0), column(&probe, 4))];
    Plan::Join(Box::new(join_of(JoinKind::Inner, build, probe, keys)))
}

/// Which rows a plan keeps, by their `id`.
type Kept = fn(i64) -> bool;

/// What stands below the sort: the plan, where `id` and the columns behind it begin, and the rows that it keeps.
fn inputs() -> Vec<(&'static str, Plan, usize, Kept)> {
    let swapped = values_of(scan(), (0..7).rev().map(|index| column_of(&COLUMNS, index)).collect());
    let back = values_of(swapped.clone(), (0..7).rev().map(|index| column(&swapped, index)).collect());
    let matched = |probe: Plan| {
        let build = keep(scan(), compare_with(CompareOp::Lt, column_of(&COLUMNS, 0), 50));
        let keys = vec![(column(&build, 0), column(&probe, 4))];
        Plan::Join(Box::new(join_of(JoinKind::ProbeSemi, build, probe, keys)))
    };
    vec![
        ("all", scan(), 0, |_| true),
        ("columns", back, 0, |_| true),
        ("few", few(scan()), 0, |row| value(row) < 10),
        ("none", keep(scan(), compare_with(CompareOp::Lt, column_of(&COLUMNS, 4), -1)), 0, |_| false),
        ("matched", matched(scan()), 0, |row| value(row) < 50),
        ("joined", with_others(scan()), 2, |_| true),
        ("few joined", with_others(few(scan())), 2, |row| value(row) < 10),
    ]
}

/// Columns and whether they descend.
const ORDERS: [&[(usize, bool)]; 6] = [
    &[(1, false)],
    &[(2, true)],
    &[(3, false), (1, false)],
    &[(1, false), (2, true), (3, false)],
    &[(0, false), (4, true)],
    &[(6, false)],
];

fn ordered(input: &Plan, (order, at): (&[(usize, bool)], usize), fetch: Option<usize>) -> Plan {
    let keys =
        order.iter().map(|(index, descending)| sort_key(column(input, index + at), *descending, false));
    sorted(input.clone(), keys.collect(), fetch)
}

fn ids(batch: &RecordBatch, at: usize) -> Vec<i64> {
    batch.column(at).as_primitive::<Int64Type>().values().to_vec()
}

/// Ways to go through the rows, with what is forced.
fn ways() -> Vec<QueryOptions> {
    let forced = [("sort_place", "input")];
    let threads = |threads| QueryOptions { threads: Some(threads), ..on(DeviceChoice::Cpu, &forced) };
    let model = |micro_model| QueryOptions { micro_model, ..threads(2) };
    let blocks = |options: QueryOptions| QueryOptions { block_rows: Some(777), ..options };
    let loops = |name| forcing(&threads(3), &[("row_loop", name)]);
    vec![
        threads(1),
        threads(3),
        blocks(threads(2)),
        model(MicroModel::Pipelined),
        model(MicroModel::MultiPass),
        loops("single"),
        loops("wide"),
        loops("selected"),
        in_blocks(4, 3, &forced),
        blocks(in_blocks(4, 2, &forced)),
        in_blocks(32, 1, &forced),
        forcing(&in_blocks(8, 2, &forced), &[("predication", "flags")]),
        forcing(&in_blocks(8, 2, &forced), &[("lane_refill", "all")]),
        forcing(&in_blocks(8, 2, &forced), &[("thread_rows", "4")]),
    ]
}

#[test]
fn rows_keep_the_order_in_which_they_come() {
    let (engine, table) = (Engine::new(), table(ROWS));
    let fetches = [None, Some(1), Some(13), Some(100_000)];
    let mut cases = Vec::new();
    for (what, input, at, kept) in inputs() {
        for order in &ORDERS[..5] {
            for (options, fetch) in ways().into_iter().zip(fetches.into_iter().cycle()) {
                cases.push((what, input.clone(), at, kept, *order, fetch, options));
            }
        }
    }
    for (what, input, at, kept, order, fetch, options) in sample("rows in order", cases, 60) {
        let plan = ordered(&input, (order, at), fetch);
        let output = run(&engine, &plan, &table, &options);
        let expected: Vec<i64> =
            (0..ROWS).filter(|row| kept(*row)).take(fetch.unwrap_or(usize::MAX)).collect();
        assert!(ids(&output.batch, at) == expected, "{what} {order:?} {fetch:?} {options:?}");
        assert_eq!(chosen(&output, "sort_place"), ["input"], "{what} {order:?}");
    }
}

#[test]
fn the_first_rows_are_skipped() {
    let (engine, table) = (Engine::new(), table(ROWS));
    for (what, input, at, kept) in inputs() {
        for options in sample(what, ways(), 3) {
            let order = ordered(&input, (&[(1, false)], at), None);
            let output = run(&engine, limit(order, 11, Some(30)), &table, &options);
            let expected: Vec<i64> = (0..ROWS).filter(|row| kept(*row)).skip(11).take(30).collect();
            assert!(ids(&output.batch, at) == expected, "{what} {options:?}");
        }
    }
}

/// One value out of its place, a NULL, or rows from several sources, and rows are sorted.
#[test]
fn rows_in_no_order_are_sorted() {
    let (engine, table) = (Engine::new(), table(ROWS));
    let options = |device| QueryOptions { host_sort_rows: Some(0), ..on(device, &[]) };
    let union = Plan::Union { inputs: vec![scan(), scan()], fields: scan().fields() };
    let some = keep(scan(), compare_with(CompareOp::Lt, column_of(&COLUMNS, 0), 60));
    let twice = values_of(some, vec![column_of(&COLUMNS, 4)]);
    let keys = vec![(column(&twice, 0), column_of(&COLUMNS, 4))];
    let many = Plan::Join(Box::new(join_of(JoinKind::Inner, twice, scan(), keys)));
    for device in devices() {
        for (what, input, key) in [
            ("a value", scan(), (6, false)),
            ("a NULL", scan(), (5, false)),
            ("the other way", scan(), (1, true)),
            ("two inputs", union.clone(), (1, false)),
            ("several matches", many.clone(), (2, false)),
        ] {
            let plan = ordered(&input, (&[key], 0), None);
            let output = run(&engine, &plan, &table, options(device));
            assert_eq!(chosen(&output, "sort_place"), ["device"], "{what}");
            let (index, descending) = key;
            let column = output.batch.column(index);
            let column = arrow::compute::cast(column, &arrow::datatypes::DataType::Int64).expect("a number");
            let values: Vec<Option<i64>> = column.as_primitive::<Int64Type>().iter().collect();
            // NULLs come last.
            let place =
                |value: &Option<i64>| value.map_or(i64::MAX, |value| if descending { -value } else { value });
            assert!(values.iter().map(place).is_sorted(), "{what} {device:?}");
        }
    }
}

/// Rows of an inner sort are not sorted again by its first key.
#[test]
fn rows_of_an_inner_sort_are_in_order() {
    let (engine, table) = (Engine::new(), table(ROWS));
    for device in devices() {
        // With so many rows there is a NULL among them.
        for (key, fetch, is_kept) in [((4, true), 1000, true), ((5, false), 6000, false)] {
            let options = QueryOptions { host_sort_rows: Some(0), ..on(device, &[]) };
            let inner = ordered(&scan(), (&[key], 0), Some(fetch));
            let around = values_of(inner, (0..7).map(|index| column_of(&COLUMNS, index)).collect());
            let output = run(&engine, ordered(&around, (&[key], 0), None), &table, &options);
            let expected = run(&engine, ordered(&scan(), (&[key], 0), Some(fetch)), &table, &options);
            // Of rows that are equal at the end of the first ones, any are.
            let (own, other) = (output.batch.column(key.0), expected.batch.column(key.0));
            assert!(own == other, "{device:?} {key:?}");
            let places = chosen(&output, "sort_place");
            assert!(places.contains(&"input") == is_kept, "{device:?} {key:?} {places:?}");
        }
    }
}

#[test]
fn explain_says_what_is_known_of_rows() {
    let (engine, table) = (Engine::new(), table(ROWS));
    let input = values_of(few(scan()), vec![column_of(&COLUMNS, 2), column_of(&COLUMNS, 0)]);
    let query = query_of(
        ordered(&input, (&[(0, true)], 0), None),
        &table,
        forcing(&cpu(), &[("sort_place", "input")]),
    );
    let text = engine.explain(&query, ExplainStage::Pipelines).expect("a plan");
    for line in [
        "   scan: in order of id; in order of rising; in order of falling desc; in order of word; unique by id\n",
        "   result: in order of c1; in order of c0 desc; unique by c1\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
