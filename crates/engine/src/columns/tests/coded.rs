//! Codes beside the values of columns: made of what was read before, by all cores, and kept.

use arrow::array::Int64Array;

use super::caching::no_cancel;
use super::*;

/// One of so many values, far from each other; NULL now and then.
fn value(row: usize, values: u64) -> Option<i64> {
    let mixed = (row as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)) >> 20;
    (!mixed.is_multiple_of(11)).then(|| ((mixed / 11) % values).wrapping_mul(0x1234_5678_9ABC_DEF1) as i64)
}

/// A column of so many rows in two partitions of two batches.
fn column(rows: usize, value: impl Fn(usize) -> Option<i64>) -> TestTable {
    let part = |from: usize, to: usize| Arc::new(Int64Array::from_iter((from..to).map(&value))) as ArrayRef;
    let ends = [0, rows / 7, rows / 3, rows / 2, rows];
    let batch = |number: usize| part(ends[number], ends[number + 1]);
    TestTable::new(&[("a", vec![vec![batch(0), batch(1)], vec![batch(2), batch(3)]])])
}

/// What the codes of a column stand for, where it got some when it was asked for them.
fn coded(device: &Arc<dyn Device>, table: &TestTable) -> Option<Vec<i128>> {
    let (cache, cancel) = (ColumnCache::default(), no_cancel());
    let load = || cache.load_all(device, table, &[0], Placement::Device, &cancel).unwrap().0.remove(0);
    let read = load();
    assert!(read.codes().is_none() && read.coded.get().is_none(), "nobody has asked for them");
    let bytes = read.stored_bytes();
    cache.give_codes(device, &read, bytes, &cancel).unwrap();
    assert!(read.coded.get().is_some());
    let kept = load();
    assert_eq!(table.reads(), 1);
    let codes = kept.codes()?;
    assert!(kept.stored_bytes() > bytes);
    let entries = integers(device, &codes.entries, Scalar::I64);
    assert!(entries.is_sorted_by(|a, b| a < b) && entries.len() as u32 == codes.layout.entries);
    let of_rows = integers(device, &codes.codes, codes.layout.code);
    assert_eq!(of_rows.len() as u64, kept.rows);
    let values = of_rows.into_iter().map(|code| entries[code as usize]).collect();
    Some(values)
}

#[test]
fn a_column_gets_codes_when_it_is_asked_for_them() {
    let device = device();
    for (rows, values) in [(5_000, 40), (5_000, 300), (300_000, 2_000)] {
        let found = coded(&device, &column(rows, |row| value(row, values))).expect("few values");
        let is_its_value =
            |(row, found): (usize, &i128)| value(row, values).is_none_or(|own| i128::from(own) == *found);
        assert!(found.iter().enumerate().all(is_its_value), "{rows} rows, {values} values");
    }
}

#[test]
fn what_is_not_worth_it_gets_none() {
    let device = device();
    assert_eq!(coded(&device, &column(5_000, |row| value(row, 2_000))), None, "many values");
    assert_eq!(coded(&device, &column(5_000, |row| Some(row as i64 % 100))), None, "near each other");
    assert_eq!(coded(&device, &column(5_000, |_| None)), None, "no values");
    assert_eq!(coded(&device, &column(0, |_| None)), None, "no rows");
    // Numbers of 32 bits with a base.
    let far = |row: usize| Some(10_000_000_000 + (row as i64 % 7).pow(2) * 30_000_019 + row as i64 % 7);
    let found = coded(&device, &column(5_000, far)).expect("seven values");
    assert!(
        found.iter().enumerate().all(|(row, found)| far(row).is_some_and(|own| i128::from(own) == *found))
    );
}
