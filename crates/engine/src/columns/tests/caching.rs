use arrow::array::*;
use arrow::datatypes::DataType;
use kelpie_device::DeviceError;

use super::*;

/// A table of `columns` columns of `rows` incompressible 8-byte integers in two partitions.
fn table(columns: usize, rows: usize) -> TestTable {
    let half = rows / 2;
    let values = |c: usize, rows: std::ops::Range<usize>| -> ArrayRef {
        let wide = |row: usize| (row as i64).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) ^ c as i64;
        Arc::new(Int64Array::from_iter_values(rows.map(wide)))
    };
    let names: Vec<String> = (0..columns).map(|c| format!("column_{c}")).collect();
    let columns: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(c, name)| (name.as_str(), vec![vec![values(c, 0..half)], vec![values(c, half..rows)]]))
        .collect();
    TestTable::new(&columns)
}

pub(super) fn no_cancel() -> CancelToken {
    CancelToken::default()
}

#[test]
fn cached_columns_are_not_read_again() {
    let (cache, device, table) = (ColumnCache::default(), device(), table(4, 1000));
    let (first, report) = cache.load_all(&device, &table, &[0, 2], Placement::Device, &no_cancel()).unwrap();
    assert_eq!((table.reads(), report.loaded_bytes), (1, 2 * 8000));
    let (second, report) =
        cache.load_all(&device, &table, &[2, 0, 2], Placement::Device, &no_cancel()).unwrap();
    assert_eq!((table.reads(), report.loaded_bytes), (1, 0));
    assert!(Arc::ptr_eq(&first[0], &second[1]) && Arc::ptr_eq(&first[1], &second[0]));
    let (third, report) =
        cache.load_all(&device, &table, &[3, 0, 3], Placement::Device, &no_cancel()).unwrap();
    assert_eq!((table.reads(), report.loaded_bytes), (2, 8000));
    assert!(Arc::ptr_eq(&third[1], &first[0]) && Arc::ptr_eq(&third[0], &third[2]));
    assert_eq!(cache.cached_bytes(&device), 3 * 8000);
    // Another device, other data, no identity: each is read.
    cache
        .load_all(
            &CpuDevice::new(Some(1)).map(|d| d as Arc<dyn Device>).unwrap(),
            &table,
            &[0],
            Placement::Device,
            &no_cancel(),
        )
        .unwrap();
    assert_eq!(table.reads(), 3);
    let changed = TestTable { identity: Some("version 2".into()), ..self::table(4, 1000) };
    cache.load_all(&device, &changed, &[0], Placement::Device, &no_cancel()).unwrap();
    assert_eq!(changed.reads(), 1);
    let fleeting = TestTable { identity: None, ..self::table(4, 1000) };
    for reads in 1..3 {
        let (columns, _) =
            cache.load_all(&device, &fleeting, &[1, 1], Placement::Device, &no_cancel()).unwrap();
        assert_eq!((fleeting.reads(), columns.len()), (reads, 2));
    }
    assert!(cache.load_all(&device, &table, &[], Placement::Device, &no_cancel()).unwrap().0.is_empty());
    cache.clear();
    assert_eq!(cache.cached_bytes(&device), 0);
    cache.load_all(&device, &table, &[0], Placement::Device, &no_cancel()).unwrap();
    assert_eq!(table.reads(), 4);
}

#[test]
fn the_least_recently_used_columns_that_nobody_holds_are_evicted() {
    let (cache, device, table) = (ColumnCache::default(), device(), table(5, 1000));
    cache.set_limit(Some(3 * 8000));
    for column in [0, 1, 2, 0, 3] {
        cache.load_all(&device, &table, &[column], Placement::Device, &no_cancel()).unwrap();
    }
    assert_eq!((table.reads(), cache.cached_bytes(&device)), (4, 3 * 8000));
    cache.load_all(&device, &table, &[0, 2, 3], Placement::Device, &no_cancel()).unwrap();
    assert_eq!(table.reads(), 4, "column 1 was evicted");
    let (_held, _) = cache.load_all(&device, &table, &[0, 1, 2], Placement::Device, &no_cancel()).unwrap();
    assert_eq!(table.reads(), 5);
    let (_more, _) = cache.load_all(&device, &table, &[3, 4], Placement::Device, &no_cancel()).unwrap();
    assert_eq!(cache.cached_bytes(&device), 5 * 8000, "columns in use are not evicted");
    drop((_held, _more));
    assert_eq!(cache.release(&device, 10_000), 16_000);
    assert_eq!(cache.cached_bytes(&device), 3 * 8000);
}

#[test]
fn when_the_device_is_full_columns_make_room() {
    let (cache, device, table) = (ColumnCache::default(), device(), table(4, 10_000));
    device.set_memory_limit(Some(3 * 81_000));
    cache.set_limit(Some(u64::MAX));
    for column in 0..4 {
        cache.load_all(&device, &table, &[column], Placement::Device, &no_cancel()).unwrap();
    }
    assert!(cache.cached_bytes(&device) <= 3 * 80_000);
    cache.load_all(&device, &table, &[1, 2, 3], Placement::Device, &no_cancel()).unwrap();
    assert_eq!(table.reads(), 4);
}

#[test]
fn columns_that_cannot_fit_are_an_error_that_names_them() {
    let (cache, device, table) = (ColumnCache::default(), device(), table(3, 10_000));
    device.set_memory_limit(Some(200_000));
    for columns in [&[0usize, 1, 2][..], &[2, 1, 0]] {
        let error = cache.load_all(&device, &table, columns, Placement::Device, &no_cancel()).unwrap_err();
        assert!(matches!(error, EngineError::Device(DeviceError::OutOfMemory { .. })), "{error}");
        let message = error.to_string();
        assert!(message.contains("test_table") && message.contains("column_1"), "{message}");
        assert!(message.contains("200000"), "{message}");
    }
    assert_eq!((cache.cached_bytes(&device), device.memory().0), (0, 0));
    cache.load_all(&device, &table, &[0, 1], Placement::Device, &no_cancel()).unwrap();
    // One more beside two that the query itself holds.
    assert!(cache.load_all(&device, &table, &[0, 1, 2], Placement::Device, &no_cancel()).is_err());
    cache.load_all(&device, &table, &[2], Placement::Device, &no_cancel()).unwrap();
}

#[test]
fn a_source_that_fails_leaves_nothing_behind() {
    let (cache, device) = (ColumnCache::default(), device());
    for rejected in [true, false] {
        let mut broken = table(2, 1000);
        if rejected {
            broken.fail_after = Some(0);
        } else {
            // The second partition's batch does not match the schema.
            let wrong = RecordBatch::try_from_iter([
                ("column_0", Arc::new(Float64Array::from(vec![1.0])) as ArrayRef),
                ("column_1", Arc::new(Int64Array::from(vec![1])) as ArrayRef),
            ]);
            broken.partitions[1] = vec![wrong.unwrap()];
        }
        let error = cache.load_all(&device, &broken, &[0, 1], Placement::Device, &no_cancel()).unwrap_err();
        assert!(matches!(error, EngineError::Source { .. }), "{error}");
        assert_eq!((cache.cached_bytes(&device), device.memory().0), (0, 0));
        let whole = table(2, 1000);
        cache.load_all(&device, &whole, &[0, 1], Placement::Device, &no_cancel()).unwrap();
        assert_eq!(whole.reads(), 1);
        cache.clear();
    }
    let error = cache.load_all(&device, &table(2, 10), &[7], Placement::Device, &no_cancel()).unwrap_err();
    assert!(matches!(error, EngineError::Source { .. }), "{error}");
}

#[test]
fn cancelled_loads_end_and_can_be_repeated() {
    let (cache, device) = (ColumnCache::default(), device());
    let cancelling = TestTable { cancels: true, ..table(2, 1000) };
    let error = cache.load_all(&device, &cancelling, &[0, 1], Placement::Device, &no_cancel()).unwrap_err();
    assert!(matches!(error, EngineError::Cancelled), "{error}");
    let cancelled = no_cancel();
    cancelled.cancel();
    let table = table(2, 1000);
    assert!(matches!(
        cache.load_all(&device, &table, &[0], Placement::Device, &cancelled),
        Err(EngineError::Cancelled)
    ));
    assert_eq!(table.reads(), 0);
    cache.load_all(&device, &table, &[0, 1], Placement::Device, &no_cancel()).unwrap();
    assert_eq!(table.reads(), 1);
}

#[test]
fn loads_at_the_same_time_read_once() {
    let (cache, device, table) = (ColumnCache::default(), device(), table(3, 100_000));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                cache.load_all(&device, &table, &[0, 1, 2], Placement::Device, &no_cancel()).unwrap()
            });
        }
    });
    assert_eq!(table.reads(), 1);
}

#[test]
fn columns_of_different_lengths_are_not_combined() {
    let (cache, device) = (ColumnCache::default(), device());
    cache.load_all(&device, &table(2, 1000), &[0], Placement::Device, &no_cancel()).unwrap();
    let grown = table(2, 1001);
    let error = cache.load_all(&device, &grown, &[0, 1], Placement::Device, &no_cancel()).unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
    cache.load_all(&device, &grown, &[0, 1], Placement::Device, &no_cancel()).unwrap();
}

#[test]
fn computed_columns_are_kept_under_their_number_or_not_at_all() {
    let (cache, device) = (ColumnCache::default(), device());
    let keys = vec![None, Some(ColumnKey::Computed(7)), Some(ColumnKey::Stored(2))];
    let first = TestTable { keys, ..table(3, 1000) };
    let load = |table: &TestTable, columns: &[usize]| {
        let (found, report) =
            cache.load_all(&device, table, columns, Placement::Device, &no_cancel()).unwrap();
        assert_eq!(found.len(), columns.len());
        report.loaded_bytes
    };
    // What is not kept is read beside the others, in one pass.
    assert_eq!((load(&first, &[2, 0, 1]), first.reads()), (3 * 8000, 1));
    assert_eq!((load(&first, &[2, 0, 1, 0]), first.reads()), (8000, 2));
    // The same number elsewhere is the same column; the same place with another number is another.
    let keys = vec![Some(ColumnKey::Computed(7)), Some(ColumnKey::Computed(8))];
    let second = TestTable { keys, ..table(2, 1000) };
    assert_eq!((load(&second, &[0]), second.reads()), (0, 0));
    assert_eq!((load(&second, &[1]), second.reads()), (8000, 1));
}

#[test]
fn columns_go_with_the_lease_of_their_data() {
    let (cache, device) = (ColumnCache::default(), device());
    let data: Arc<dyn std::any::Any + Send + Sync> = Arc::new(());
    let leased = TestTable { lease: Some(Arc::downgrade(&data)), ..table(2, 1000) };
    let other = TestTable { identity: Some("other data".into()), ..table(1, 1000) };
    for table in [&leased, &other, &leased] {
        cache.load_all(&device, table, &[0], Placement::Device, &no_cancel()).unwrap();
    }
    assert_eq!((leased.reads(), cache.cached_bytes(&device)), (1, 2 * 8000));
    drop(data);
    cache.load_all(&device, &other, &[0], Placement::Device, &no_cancel()).unwrap();
    assert_eq!((other.reads(), cache.cached_bytes(&device)), (1, 8000));
}

#[test]
fn rows_are_counted_once_without_a_column() {
    let cache = ColumnCache::default();
    let table = table(2, 1001);
    for _ in 0..2 {
        assert_eq!(cache.count_rows(&table, &no_cancel()).unwrap(), 1001);
        assert_eq!(table.reads(), 1);
    }
    cache.clear();
    assert_eq!(cache.count_rows(&table, &no_cancel()).unwrap(), 1001);
    assert_eq!(table.reads(), 2);
}

/// Columns of 100 rows in two partitions: few texts, texts that are all different, only NULLs, only empty texts, texts that
/// Arrow has as a dictionary; and a number.
fn text_table(rows: usize) -> TestTable {
    let half = rows / 2;
    let column = |array: ArrayRef| vec![vec![array.slice(0, half)], vec![array.slice(half, rows - half)]];
    let texts = |text: &dyn Fn(usize) -> Option<String>| -> ArrayRef {
        Arc::new((0..rows).map(text).collect::<StringArray>())
    };
    let few = texts(&|row| (row % 7 > 0).then(|| ["é", "", "abc"][row % 3].into()));
    let arrow =
        arrow::compute::cast(&few, &DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)));
    TestTable::new(&[
        ("few", column(few)),
        ("many", column(texts(&|row| Some(format!("text {row}"))))),
        ("nulls", column(texts(&|_| None))),
        ("empty", column(texts(&|_| Some(String::new())))),
        ("arrow", column(arrow.unwrap())),
        ("number", column(Arc::new(Int64Array::from_iter_values(0..rows as i64)))),
    ])
}

/// The columns of a table in a form, and how often it was read then.
fn in_form(
    cache: &ColumnCache,
    device: &Arc<dyn Device>,
    table: &TestTable,
    (columns, dictionaries): (&[usize], Dictionaries),
) -> (Vec<Arc<ResidentColumn>>, usize) {
    let cancel = no_cancel();
    let wish = Wish { placement: Placement::Device, dictionaries, decoding: Decoding::Auto };
    let watch = Watch { cancel: &cancel, seen: &|_| () };
    (cache.load(device, table, columns, wish, &watch).unwrap().0, table.reads())
}

#[test]
fn texts_without_a_dictionary_are_kept_beside_those_with_one() {
    use Dictionaries::{Auto, Off};
    let (cache, device, table) = (ColumnCache::default(), device(), text_table(100));
    let in_form = |columns: &[usize], dictionaries| in_form(&cache, &device, &table, (columns, dictionaries));
    let has_dictionary = |column: &Arc<ResidentColumn>| match column.layout.storage {
        Storage::Dictionary { .. } => column.dictionary.is_some() && column.offsets.is_none(),
        Storage::Text { .. } => !(column.dictionary.is_none() && column.offsets.is_some()),
        Storage::Fixed { .. } => false,
    };
    let all = [0, 1, 2, 3, 4, 5];
    let (codes, reads) = in_form(&all, Auto);
    assert_eq!(reads, 1);
    assert_eq!(codes.iter().map(has_dictionary).collect::<Vec<_>>(), [true, false, true, true, true, false]);
    assert!(cache.resident(&device, &table, 0, Off).is_none());
    let (plain, reads) = in_form(&all, Off);
    assert_eq!(reads, 2);
    assert!(!plain.iter().any(has_dictionary));
    for column in 0..5 {
        assert_eq!(texts(&device, &codes[column]), texts(&device, &plain[column]), "{column}");
        let resident = |dictionaries| cache.resident(&device, &table, column, dictionaries).unwrap();
        assert!(Arc::ptr_eq(&resident(Auto), &codes[column]), "{column}");
        assert!(Arc::ptr_eq(&resident(Off), &plain[column]), "{column}");
    }
    // What has one form alone is there once.
    for column in [1, 5] {
        assert!(Arc::ptr_eq(&codes[column], &plain[column]), "{column}");
    }
    // Both are found again.
    for (dictionaries, columns) in [(Auto, &codes), (Off, &plain)] {
        let (again, reads) = in_form(&all, dictionaries);
        assert_eq!(reads, 2);
        assert!(again.iter().zip(columns).all(|(a, b)| Arc::ptr_eq(a, b)), "{dictionaries:?}");
    }
}

#[test]
fn a_table_without_rows_has_texts_of_either_form() {
    let (cache, device, table) = (ColumnCache::default(), device(), text_table(0));
    for (dictionaries, has_dictionary) in [(Dictionaries::Off, false), (Dictionaries::Auto, true)] {
        let (columns, _) = in_form(&cache, &device, &table, (&[0, 1, 4], dictionaries));
        for column in columns {
            assert_eq!(column.dictionary.is_some(), has_dictionary, "{column:?}");
            assert_eq!(texts(&device, &column), []);
        }
    }
}
