//! Columns whose values are written to their places while they are read, whether what was promised of them is true or not.

use std::iter;

use arrow::array::*;
use arrow::datatypes::*;
use kelpie_compile::types::Range;
use kelpie_kir::Scalar;

use super::*;

fn range(min: i128, max: i128) -> Option<Range> {
    Some(Range { min, max })
}

/// Rows by partition.
fn rows_of(partitions: &[Vec<ArrayRef>]) -> Vec<u64> {
    partitions.iter().map(|batches| batches.iter().map(|batch| batch.len() as u64).sum()).collect()
}

/// A table of one column that promises some bounds, and its partitions' rows.
fn table(partitions: &[Vec<ArrayRef>], range: Option<Range>, partition_rows: Vec<u64>) -> TestTable {
    TestTable {
        expected: vec![Some(Expected { range, has_nulls: false })],
        partition_rows: Some(partition_rows),
        ..TestTable::new(&[("c", partitions.to_vec())])
    }
}

fn load(device: &Arc<dyn Device>, table: &TestTable) -> Arc<ResidentColumn> {
    let cache = ColumnCache::default();
    let (columns, _) =
        cache.load_all(device, table, &[0], Placement::Device, &CancelToken::default()).unwrap();
    assert_eq!(table.reads(), 1);
    assert_eq!(cache.cached_bytes(device), columns[0].stored_bytes());
    columns[0].clone()
}

/// Batches of some lengths, of values by their row.
fn batches<A: Array + 'static>(
    lengths: &[&[usize]],
    make: impl Fn(std::ops::Range<usize>) -> A,
) -> Vec<Vec<ArrayRef>> {
    let mut row = 0;
    let mut batch = |rows: usize| {
        row += rows;
        Arc::new(make(row - rows..row)) as ArrayRef
    };
    lengths.iter().map(|lengths| lengths.iter().map(|rows| batch(*rows)).collect()).collect()
}

const ODD: &[&[usize]] = &[&[1], &[], &[13, 0, 7, 129], &[70_001, 70_003, 5], &[0], &[2, 1]];

#[test]
fn values_are_written_where_they_were_promised_to_be() {
    let device = &device();
    let value = |row: usize| (row as i64 * 7919) % 60_001;
    let parts = batches(ODD, |rows| Int64Array::from_iter_values(rows.map(value)));
    let rows = rows_of(&parts).iter().sum::<u64>() as usize;
    let expected: Vec<_> = (0..rows).map(|row| Some(i128::from(value(row)))).collect();
    // The base tells which way a column came: in the general way it has none.
    for (promised, scalar, base) in [
        (range(-5, 60_001), Scalar::U16, -5),
        (range(0, 60_000), Scalar::U16, 0),
        // Too wide for what comes, too narrow for it, and none.
        (range(-5, 100_000), Scalar::U16, 0),
        (range(-5, 200), Scalar::U16, 0),
        (range(-5, 59_000), Scalar::U16, 0),
        (None, Scalar::U16, 0),
    ] {
        let column = load(device, &table(&parts, promised, rows_of(&parts)));
        assert_eq!(decoded(device, &column), expected, "{promised:?}");
        // Values with a base are counted from it.
        assert_eq!(column.layout.range, range(base, 60_000));
        let Storage::Fixed { scalar: stored, .. } = column.layout.storage else { panic!() };
        assert_eq!((stored, column.base), (scalar, base), "{promised:?}");
        let zones: u64 = column.zones.iter().map(|zone| zone.rows).sum();
        assert_eq!(zones, rows as u64);
    }
}

#[test]
fn partitions_may_have_other_rows_than_they_promised() {
    let device = &device();
    let parts = batches(ODD, |rows| Int64Array::from_iter_values(rows.map(|row| row as i64)));
    let floats = batches(ODD, |rows| Float64Array::from_iter_values(rows.map(|row| row as f64)));
    let told = rows_of(&parts);
    let rows = told.iter().sum::<u64>() as usize;
    let changed = |partition: usize, rows: u64| {
        let mut told = told.clone();
        told[partition] = rows;
        told
    };
    let lies = [
        changed(0, 0),
        changed(0, 2),
        changed(3, 100_000),
        changed(3, 70_001),
        changed(3, 999_999),
        changed(5, 0),
        vec![0; told.len()],
        vec![1; told.len() - 1],
        vec![u64::MAX; told.len()],
        vec![u64::from(u32::MAX); told.len()],
    ];
    for told in lies.into_iter().chain([told.clone()]) {
        device.set_memory_limit(Some(1 << 30));
        let column = load(device, &table(&parts, range(-1, rows as i128 + 5), told.clone()));
        let expected: Vec<_> = (0..rows).map(|row| Some(row as i128)).collect();
        assert_eq!(decoded(device, &column), expected, "{told:?}");
        let column = load(device, &table(&floats, None, told.clone()));
        let expected: Vec<u8> = (0..rows).flat_map(|row| (row as f64).to_ne_bytes()).collect();
        assert!(bytes_of(device, &column.data) == expected, "{told:?}");
    }
}

#[test]
fn nulls_are_left_out_wherever_they_are() {
    let device = &device();
    let shapes: [fn(usize) -> bool; 5] = [
        |row| row % 3 != 0,
        // Whole batches, at the beginning, in the middle, at the end; all of them.
        |row| row > 21,
        |row| !(21..70_200).contains(&row),
        |row| row < 140_000,
        |_| false,
    ];
    for valid in shapes {
        let value = |row: usize| valid(row).then_some(row as i64 % 1000 + (1 << 40));
        let parts = batches(ODD, |rows| rows.map(value).collect::<Int64Array>());
        let rows = rows_of(&parts).iter().sum::<u64>() as usize;
        let expected: Vec<_> = (0..rows).map(|row| value(row).map(i128::from)).collect();
        for promised in [range(1 << 40, (1 << 40) + 1000), range((1 << 40) + 1, (1 << 40) + 998)] {
            let column = load(device, &table(&parts, promised, rows_of(&parts)));
            assert_eq!(decoded(device, &column), expected);
            assert!(column.layout.has_nulls);
        }
        let parts =
            batches(ODD, |rows| rows.map(|row| valid(row).then_some(row as f32)).collect::<Float32Array>());
        let column = load(device, &table(&parts, None, rows_of(&parts)));
        let stored: Vec<f32> = bytes_of(device, &column.data)
            .chunks_exact(4)
            .map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap()))
            .collect();
        for (row, (stored, is_valid)) in stored.into_iter().zip(validity(device, &column)).enumerate() {
            assert_eq!(is_valid.then_some(stored), valid(row).then_some(row as f32));
        }
    }
}

macro_rules! extremes {
    ($device:expr, $($type:ty),*) => {$({
        type Native = <$type as ArrowPrimitiveType>::Native;
        let (min, max) = (Native::MIN, Native::MAX);
        for values in [vec![min, max, 0, 1], vec![max, max - 1], vec![min, min + 1], vec![0, 1], vec![7]] {
            let values: Vec<Native> = values;
            let bounds = Range {
                min: values.iter().copied().min().unwrap().into(),
                max: values.iter().copied().max().unwrap().into(),
            };
            let expected: Vec<_> = values.iter().map(|value| Some(i128::from(*value))).collect();
            let parts = vec![vec![Arc::new(PrimitiveArray::<$type>::from_iter_values(values)) as ArrayRef]];
            for promised in [Some(bounds), range(i128::MIN, i128::MAX), range(0, 0)] {
                let column = load($device, &table(&parts, promised, rows_of(&parts)));
                assert_eq!(decoded($device, &column), expected, "{promised:?}");
            }
        }
    })*};
}

#[test]
fn every_type_keeps_its_extremes() {
    let device = &device();
    extremes!(
        device, Int8Type, Int16Type, Int32Type, Int64Type, Date32Type, UInt8Type, UInt16Type, UInt32Type
    );
    extremes!(device, UInt64Type, TimestampSecondType, TimestampMicrosecondType, Decimal128Type);
    let masks: [fn(usize) -> Option<bool>; 4] = [
        |row| Some(row % 3 == 0),
        |row| (row % 2 == 0).then_some(true),
        |row| (row % 2 == 0).then_some(false),
        |_| None,
    ];
    for mask in masks {
        let parts = batches(ODD, |rows| rows.map(mask).collect::<BooleanArray>());
        let expected: Vec<_> =
            (0..rows_of(&parts).iter().sum::<u64>()).map(|row| mask(row as usize).map(i128::from)).collect();
        for promised in [range(0, 1), range(1, 1), range(0, 0), None] {
            let column = load(device, &table(&parts, promised, rows_of(&parts)));
            assert_eq!(decoded(device, &column), expected);
        }
    }
}

#[test]
fn columns_of_which_nothing_is_known_are_read_beside_others() {
    let device = &device();
    let whole = batches(ODD, |rows| Int64Array::from_iter_values(rows.map(|row| row as i64 % 60_000)));
    let names = batches(ODD, |rows| StringArray::from_iter_values(rows.map(|row| format!("t{}", row % 9))));
    let partition_rows = rows_of(&whole);
    let rows = partition_rows.iter().sum::<u64>() as usize;
    let promised = Some(Expected { range: range(-7, 60_000), has_nulls: true });
    let table = TestTable {
        expected: vec![promised, None, None],
        partition_rows: Some(partition_rows),
        ..TestTable::new(&[("a", whole.clone()), ("b", names), ("c", whole)])
    };
    for placement in [Placement::Device, Placement::Either, Placement::Host] {
        let cache = ColumnCache::default();
        let (columns, _) =
            cache.load_all(device, &table, &[0, 1, 2], placement, &CancelToken::default()).unwrap();
        let expected: Vec<_> = (0..rows).map(|row| Some(row as i128 % 60_000)).collect();
        assert_eq!(decoded(device, &columns[0]), expected);
        assert_eq!(decoded(device, &columns[2]), expected);
        let names: Vec<_> = (0..rows).map(|row| Some(format!("t{}", row % 9))).collect();
        assert_eq!(texts(device, &columns[1]), names);
        let bases = columns.iter().map(|column| column.base);
        let placed = if placement == Placement::Host { 0 } else { -7 };
        assert!(bases.eq([placed, 0, 0]), "{placement:?}");
        assert!(columns.iter().all(|column| column.on_host == (placement == Placement::Host)));
    }
}

#[test]
fn what_fails_leaves_no_memory_behind() {
    let device = &device();
    let parts = batches(&[&[9_000; 40], &[9_000; 40]], |rows| {
        Int64Array::from_iter_values(rows.map(|row| row as i64))
    });
    let promised = range(0, 720_000);
    let failing = TestTable { fail_after: Some(30), ..table(&parts, promised, rows_of(&parts)) };
    let cancelling = TestTable { cancels: true, ..table(&parts, promised, rows_of(&parts)) };
    let cache = ColumnCache::default();
    for table in [&failing, &cancelling] {
        let cancel = CancelToken::default();
        assert!(cache.load_all(device, table, &[0], Placement::Device, &cancel).is_err());
        assert_eq!(device.memory().0, 0);
        assert_eq!(cache.cached_bytes(device), 0);
    }
    // What does not fit is an error, or goes to the host.
    device.set_memory_limit(Some(1 << 20));
    let table = table(&parts, promised, rows_of(&parts));
    let load = |placement| cache.load_all(device, &table, &[0], placement, &CancelToken::default());
    assert!(load(Placement::Device).is_err());
    assert_eq!(device.memory().0, 0);
    let (columns, _) = load(Placement::Either).unwrap();
    assert!(columns[0].on_host);
    assert_eq!(columns[0].rows, 720_000);
}

#[test]
fn room_is_made_for_a_column_before_it_is_read() {
    let device = &device();
    let parts = batches(&[&[50_000; 4]], |rows| Int64Array::from_iter_values(rows.map(|row| row as i64)));
    let cache = ColumnCache::default();
    cache.set_limit(Some(2_000_000));
    for version in 0..5 {
        let identity = Some(format!("version {version}"));
        let table = TestTable { identity, ..table(&parts, range(0, 199_999), rows_of(&parts)) };
        cache.load_all(device, &table, &[0], Placement::Device, &CancelToken::default()).unwrap();
        assert!(cache.cached_bytes(device) <= 2_000_000);
    }
    assert_eq!(cache.cached_bytes(device), 1_600_000);
    let expected: Vec<u64> = iter::repeat_n(50_000, 4).collect();
    let table = table(&parts, range(0, 199_999), rows_of(&parts));
    let column = load(device, &table);
    assert_eq!(column.zones.iter().map(|zone| zone.rows).collect::<Vec<_>>(), expected);
}
