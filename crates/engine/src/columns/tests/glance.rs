//! What is told of columns while they are read.

use std::sync::Mutex;

use arrow::array::{Float64Array, Int64Array, StringArray, TimestampSecondArray};
use kelpie_compile::layout::ColumnLayout;
use kelpie_compile::types::Range;

use super::*;

const WISH: Wish =
    Wish { placement: Placement::Device, dictionaries: Dictionaries::Auto, decoding: Decoding::Auto };
const PARTITIONS: usize = 3;
const BATCHES: usize = 40;
const BATCH_ROWS: usize = 10_000;

/// A column of a value a row, by partition and batch.
fn column(make: impl Fn(&mut dyn Iterator<Item = usize>) -> ArrayRef) -> Vec<Vec<ArrayRef>> {
    let batch = |first: usize| make(&mut (first..first + BATCH_ROWS));
    let partition = |p: usize| (0..BATCHES).map(|b| batch((p * BATCHES + b) * BATCH_ROWS)).collect();
    (0..PARTITIONS).map(partition).collect()
}

fn table() -> TestTable {
    let texts = |rows: &mut dyn Iterator<Item = usize>, of: &dyn Fn(usize) -> Option<String>| {
        Arc::new(rows.map(of).collect::<StringArray>()) as ArrayRef
    };
    TestTable::new(&[
        ("code", column(|rows| texts(rows, &|row| Some(format!("text {}", row % 300))))),
        ("name", column(|rows| texts(rows, &|row| (row % 9 > 0).then(|| format!("text {row}"))))),
        ("small", column(|rows| Arc::new(rows.map(|row| row as i64 % 50 - 7).collect::<Int64Array>()))),
        (
            "moment",
            column(|rows| {
                Arc::new(TimestampSecondArray::from_iter_values(rows.map(|row| row as i64 + (1 << 40))))
            }),
        ),
        ("price", column(|rows| Arc::new(rows.map(|row| row as f64).collect::<Float64Array>()))),
    ])
}

/// The columns' layouts, and what was told before.
fn loaded(
    cache: &ColumnCache,
    table: &TestTable,
    columns: &[usize],
) -> (Vec<ColumnLayout>, Vec<Vec<ColumnLayout>>) {
    let told = Mutex::new(Vec::new());
    let (seen, cancel) = (|layouts| told.lock().unwrap().push(layouts), CancelToken::default());
    let watch = Watch { cancel: &cancel, seen: &seen };
    let (columns, _) = cache.load(&device(), table, columns, WISH, &watch).unwrap();
    let layouts = columns.iter().map(|column| column.layout.clone()).collect();
    (layouts, told.into_inner().unwrap())
}

#[test]
fn columns_are_told_of_once_and_before_they_are_there() {
    let table = TestTable { rows: Some((PARTITIONS * BATCHES * BATCH_ROWS) as u64), ..table() };
    let (layouts, told) = loaded(&ColumnCache::default(), &table, &[0, 2, 1, 4, 0]);
    assert_eq!(told, [layouts]);
    // The least and greatest moments need not be among the first, but their width is known.
    let (layouts, told) = loaded(&ColumnCache::default(), &table, &[3]);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0][0].storage, layouts[0].storage);
}

#[test]
fn columns_that_are_cached_are_told_of_with_the_others() {
    let table = TestTable { rows: Some((PARTITIONS * BATCHES * BATCH_ROWS) as u64), ..table() };
    let (cache, device, cancel) = (ColumnCache::default(), device(), CancelToken::default());
    let told = Mutex::new(Vec::new());
    let seen = |layouts| told.lock().unwrap().push(layouts);
    let watch = Watch { cancel: &cancel, seen: &seen };
    let (first, _) = cache.load(&device, &table, &[1], WISH, &watch).unwrap();
    let (both, _) = cache.load(&device, &table, &[2, 1], WISH, &watch).unwrap();
    cache.load(&device, &table, &[2, 1], WISH, &watch).unwrap();
    let layouts = |columns: &[Arc<ResidentColumn>]| -> Vec<_> {
        columns.iter().map(|column| column.layout.clone()).collect()
    };
    assert_eq!(told.into_inner().unwrap(), [layouts(&first), layouts(&both)]);
}

#[test]
fn columns_of_which_something_is_expected_are_told_of_before_any_is_read() {
    let rows = (PARTITIONS * BATCHES * BATCH_ROWS) as i64;
    let moments = Range::new(1i64 << 40, (1i64 << 40) + rows - 1);
    let expected = |range| Some(Expected { range, has_nulls: false });
    let mut table = TestTable { rows: Some(rows as u64), ..table() };
    table.expected =
        vec![None, None, expected(Some(Range::new(-7, 42))), expected(Some(moments)), expected(None)];
    let (cache, cancel, told) = (ColumnCache::default(), CancelToken::default(), Mutex::new(Vec::new()));
    let seen = |layouts| {
        assert_eq!(table.reads(), 0);
        told.lock().unwrap().push(layouts);
    };
    let watch = Watch { cancel: &cancel, seen: &seen };
    let (columns, _) = cache.load(&device(), &table, &[4, 3, 2], WISH, &watch).unwrap();
    let layouts: Vec<_> = columns.iter().map(|column| column.layout.clone()).collect();
    assert_eq!(told.into_inner().unwrap(), [layouts]);
    // With one that has to be seen, what is expected of the others holds all the same.
    let (layouts, told) = loaded(&ColumnCache::default(), &table, &[0, 3]);
    assert_eq!(told, [layouts]);
}

#[test]
fn tables_that_are_small_or_of_unknown_size_are_only_read() {
    for rows in [None, Some(1000)] {
        let (_, told) = loaded(&ColumnCache::default(), &TestTable { rows, ..table() }, &[0]);
        assert!(told.is_empty());
    }
}
