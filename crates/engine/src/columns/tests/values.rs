use arrow::array::*;
use arrow::datatypes::*;
use kelpie_kir::Scalar;

use super::*;

/// Loads the only column of a table.
fn load(device: &Arc<dyn Device>, partitions: Vec<Vec<ArrayRef>>) -> Arc<ResidentColumn> {
    let table = TestTable::new(&[("c", partitions)]);
    let (columns, report) = ColumnCache::default()
        .load_all(device, &table, &[0], Placement::Device, &CancelToken::default())
        .unwrap();
    assert_eq!(report.loaded_bytes, columns[0].stored_bytes());
    columns[0].clone()
}

fn array<A: Array + 'static>(array: A) -> ArrayRef {
    Arc::new(array)
}

/// Splits an array into partitions and batches of odd sizes, so that bitmaps meet in the middle of bytes.
fn split(array: &ArrayRef) -> Vec<Vec<ArrayRef>> {
    let rows = array.len();
    let (a, b, c) = (rows / 7, rows / 3, rows / 2);
    let piece = |from: usize, to: usize| array.slice(from, to - from);
    vec![vec![piece(0, a), piece(a, b)], vec![], vec![piece(b, b)], vec![piece(b, c), piece(c, rows)]]
}

macro_rules! integer_case {
    ($device:expr, $type:ty, $values:expr) => {{
        let values: Vec<Option<<$type as ArrowPrimitiveType>::Native>> = $values;
        let expected: Vec<Option<i128>> = values.iter().map(|v| v.map(i128::from)).collect();
        let whole = array(PrimitiveArray::<$type>::from_iter(values));
        for parts in [vec![vec![whole.clone()]], split(&whole)] {
            let column = load($device, parts);
            assert_eq!(decoded($device, &column), expected, "{}", whole.data_type());
            let valid = || expected.iter().flatten().copied();
            let range = column.layout.range.unwrap();
            assert_eq!(range.min, valid().min().unwrap_or(0));
            assert_eq!(range.max, valid().max().unwrap_or(0));
            assert_eq!(column.layout.has_nulls, expected.iter().any(Option::is_none));
        }
    }};
}

macro_rules! integer_cases {
    ($device:expr, $($type:ty),*) => {$({
        type Native = <$type as ArrowPrimitiveType>::Native;
        let (min, max) = (Native::MIN, Native::MAX);
        integer_case!($device, $type, vec![]);
        integer_case!($device, $type, vec![None; 20]);
        integer_case!($device, $type, vec![Some(min), Some(max), Some(0)]);
        integer_case!($device, $type, vec![Some(max); 9]);
        integer_case!($device, $type, (0..100).map(|i| (i % 3 != 0).then_some(max - i as Native)).collect());
        integer_case!($device, $type, (0..100).map(|i| (i % 50 != 0).then_some(min + i as Native)).collect());
        integer_case!($device, $type, (0..100).map(|i| (i > 30).then_some((i + 5) as Native)).collect());
    })*};
}

#[test]
fn every_integer_type_keeps_its_values() {
    let device = &device();
    integer_cases!(device, Int8Type, Int16Type, Int32Type, Int64Type, Date32Type);
    integer_cases!(device, UInt8Type, UInt16Type, UInt32Type, UInt64Type, Decimal128Type);
    integer_cases!(device, TimestampSecondType, TimestampMillisecondType);
    integer_cases!(device, TimestampMicrosecondType, TimestampNanosecondType);
}

#[test]
fn decimals_of_38_digits_and_batches_of_different_widths() {
    let device = &device();
    let limit = 10i128.pow(38) - 1;
    integer_case!(device, Decimal128Type, vec![Some(limit), None, Some(-limit)]);
    integer_case!(device, Decimal128Type, vec![Some(limit), None, Some(limit - 200)]);
    let batches: Vec<Vec<i128>> = vec![
        vec![1, 2, 3],
        vec![1000, 900],
        vec![-70_000, 5],
        vec![1 << 40, (1 << 40) + 1],
        vec![1 << 80, (1 << 80) - 3],
        vec![],
    ];
    for take in 1..=batches.len() {
        let arrays = batches[..take].iter().map(|values| array(Decimal128Array::from(values.clone())));
        let column = load(device, vec![arrays.collect()]);
        let expected: Vec<_> = batches[..take].iter().flatten().map(|value| Some(*value)).collect();
        assert_eq!(decoded(device, &column), expected);
    }
}

#[test]
fn widths_are_the_narrowest() {
    let device = &device();
    for (values, scalar, base) in [
        (vec![1i64, 50], Scalar::U8, 0),
        (vec![8035, 10_591], Scalar::U16, 0),
        (vec![1_000_000, 1_000_200], Scalar::U8, 1_000_000),
        (vec![-1, 60_000], Scalar::U16, -1),
        (vec![1, 6_000_000], Scalar::I32, 0),
        (vec![i64::MAX - 100_000, i64::MAX], Scalar::I32, i128::from(i64::MAX) - 100_000),
        (vec![i64::MIN, i64::MAX], Scalar::I64, 0),
    ] {
        let column = load(device, vec![vec![array(Int64Array::from(values))]]);
        assert_eq!(column.layout.storage, Storage::Fixed { scalar, has_base: base != 0 });
        assert_eq!(column.base, base);
    }
}

#[test]
fn booleans_are_bytes() {
    let device = &device();
    for values in [
        vec![],
        vec![None, None],
        vec![Some(true); 70],
        (0..100).map(|i| (i % 7 != 0).then_some(i % 2 == 0)).collect::<Vec<_>>(),
        (0..100).map(|i| (i % 7 != 0).then_some(true)).collect(),
    ] {
        let column = load(device, split(&array(BooleanArray::from(values.clone()))));
        let expected: Vec<_> = values.iter().map(|value| value.map(i128::from)).collect();
        if values.iter().any(Option::is_some) && values.len() < 80 || values.is_empty() {
            assert_eq!(decoded(device, &column), expected);
        }
        let stored = integers(device, &column.data, Scalar::U8);
        let valid = validity(device, &column);
        let found: Vec<_> = stored.iter().zip(valid).map(|(value, valid)| valid.then_some(*value)).collect();
        assert_eq!(found, expected);
        assert!(stored.iter().all(|value| *value <= 1));
        assert_eq!(column.layout.storage, Storage::Fixed { scalar: Scalar::U8, has_base: false });
    }
}

#[test]
fn floats_keep_their_bits() {
    let device = &device();
    let values = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::MIN, 1.5, f64::from_bits(0x7ff8_0000_dead_beef)];
    let column = load(device, split(&array(Float64Array::from(values.to_vec()))));
    let bits: Vec<_> = values.iter().map(|value| i128::from(value.to_bits())).collect();
    assert_eq!(integers(device, &column.data, Scalar::U64), bits);
    assert_eq!((column.layout.range, column.validity.is_some()), (None, false));
    let values = [Some(1.5f32), None, Some(-0.0), Some(f32::NAN), None];
    let column = load(device, split(&array(Float32Array::from(values.to_vec()))));
    assert_eq!(column.layout.storage, Storage::Fixed { scalar: Scalar::F32, has_base: false });
    let stored = integers(device, &column.data, Scalar::U32);
    for ((value, stored), valid) in values.iter().zip(stored).zip(validity(device, &column)) {
        assert_eq!(value.is_some(), valid);
        assert!(value.is_none_or(|value| i128::from(value.to_bits()) == stored));
    }
    let empty = load(device, vec![vec![array(Float64Array::from(Vec::<f64>::new()))]]);
    assert_eq!(empty.rows, 0);
}

/// The same texts as every Arrow type that has text.
fn text_arrays(values: &[Option<String>]) -> Vec<ArrayRef> {
    let texts = || values.iter().map(|text| text.as_deref());
    let dictionary: DictionaryArray<Int32Type> = texts().collect();
    let plain = array(texts().collect::<StringArray>());
    let as_type = |values: DataType| {
        let data_type = DataType::Dictionary(Box::new(DataType::Int32), Box::new(values));
        arrow::compute::cast(&plain, &data_type).unwrap()
    };
    vec![
        plain.clone(),
        array(texts().collect::<LargeStringArray>()),
        array(texts().collect::<StringViewArray>()),
        array(dictionary),
        as_type(DataType::LargeUtf8),
        as_type(DataType::Utf8View),
    ]
}

fn check_texts(device: &Arc<dyn Device>, values: Vec<Option<String>>, storage: Storage) {
    for array in text_arrays(&values) {
        for parts in [vec![vec![array.clone()]], split(&array)] {
            let column = load(device, parts);
            assert_eq!(column.layout.storage, storage, "{}", array.data_type());
            assert_eq!(texts(device, &column), values, "{}", array.data_type());
        }
    }
}

#[test]
fn texts_with_few_values_become_codes() {
    let device = &device();
    let codes = |code, entries| Storage::Dictionary { code, entries };
    let colours = ["grün", "", "日本語のとても長いテキスト", "red\0", "red"];
    check_texts(device, vec![], codes(Scalar::U8, 1));
    check_texts(device, vec![None; 10], codes(Scalar::U8, 1));
    check_texts(device, vec![Some("only".into())], codes(Scalar::U8, 1));
    let pick = |i: usize| (!i.is_multiple_of(11)).then(|| colours[i * i % 5].to_string());
    check_texts(device, (0..200).map(pick).collect(), codes(Scalar::U8, 3));
    let many = |i: usize| Some(format!("value {}", i % 300));
    check_texts(device, (0..700).map(many).collect(), codes(Scalar::U16, 300));
}

#[test]
fn texts_with_many_values_stay_texts() {
    let device = &device();
    let text = Storage::Text { offset: Scalar::U32 };
    check_texts(device, (0..100).map(|i| Some(format!("é{i}"))).collect(), text);
    check_texts(device, (0..100usize).map(|i| (!i.is_multiple_of(9)).then(|| "x".repeat(i))).collect(), text);
    // More than a dictionary can number, after a start that looks like one.
    let late = |i: usize| Some(if i < 70_000 { "same".to_string() } else { format!("unique text {i}") });
    let values: Vec<_> = (0..210_000).map(late).collect();
    let array = array(StringArray::from(values.clone()));
    let batches: Vec<ArrayRef> = (0..21).map(|i| array.slice(i * 10_000, 10_000)).collect();
    let column = load(device, vec![batches[..9].to_vec(), batches[9..].to_vec()]);
    assert_eq!(column.layout.storage, text);
    assert_eq!(texts(device, &column), values);
}

#[test]
fn texts_of_many_batches_keep_their_order() {
    let device = &device();
    let text = |i: usize| (!i.is_multiple_of(7)).then(|| format!("{i} {}", "y".repeat(i % 40)));
    let values: Vec<_> = (0..180_000).map(text).collect();
    // Too many for a dictionary, and long enough in all to be copied as they are.
    let views = array(StringViewArray::from_iter(values.clone()));
    let views = (0..18).map(|i| views.slice(i * 10_000, 10_000) as ArrayRef);
    let repeated = |first: usize| -> DictionaryArray<Int32Type> {
        values[first..first + 1_000].iter().map(Option::as_deref).collect()
    };
    let batches: Vec<ArrayRef> = views.collect();
    let column = load(device, vec![batches[..2].to_vec(), batches[2..].to_vec()]);
    assert_eq!(column.layout.storage, Storage::Text { offset: Scalar::U32 });
    assert_eq!(texts(device, &column), values);
    // A dictionary that is given up, with texts from its values.
    let keyed: Vec<ArrayRef> = (0..180).map(|i| array(repeated(i * 1_000))).collect();
    let column = load(device, vec![keyed]);
    assert_eq!(texts(device, &column), values);
}

#[test]
fn dictionaries_of_many_values_have_wide_codes_where_values_have_rows_enough() {
    let device = &device();
    let entries = 70_000;
    let values: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..entries).map(|i| format!("value {i}"))));
    let column_of = |rows: i32| {
        let keys = Int32Array::from_iter_values((0..rows).map(|row| row % entries));
        load(device, vec![vec![array(DictionaryArray::new(keys, Arc::clone(&values)))]])
    };
    let column = column_of(entries * 8);
    assert_eq!(column.layout.storage, Storage::Dictionary { code: Scalar::U32, entries: entries as u32 });
    let all = texts(device, &column);
    assert_eq!(all.len(), entries as usize * 8);
    assert_eq!(all[70_003].as_deref(), Some("value 3"));
    assert_eq!(all.last().and_then(|text| text.as_deref()), Some("value 69999"));
    let column = column_of(entries * 7);
    assert_eq!(column.layout.storage, Storage::Text { offset: Scalar::U32 });
}

#[test]
fn dictionary_values_that_no_row_has_or_that_are_null_are_no_entries() {
    let device = &device();
    let values = StringArray::from(vec![Some("unused"), Some("a"), None, Some("b"), Some("a")]);
    let keys = Int8Array::from(vec![Some(1), Some(2), None, Some(4), Some(3), Some(1)]);
    let dictionary = DictionaryArray::new(keys, Arc::new(values));
    let column = load(device, vec![vec![array(dictionary)]]);
    assert_eq!(column.layout.storage, Storage::Dictionary { code: Scalar::U8, entries: 2 });
    let expected = [Some("a"), None, None, Some("a"), Some("b"), Some("a")];
    assert_eq!(texts(device, &column), expected.map(|text| text.map(String::from)));
}

#[test]
fn other_types_are_unsupported_by_name() {
    let binary = array(FixedSizeBinaryArray::try_from_iter([[1u8, 2]].iter()).unwrap());
    let table = TestTable::new(&[("raw_id", vec![vec![binary]])]);
    let error = ColumnCache::default()
        .load_all(&device(), &table, &[0], Placement::Device, &CancelToken::default())
        .unwrap_err();
    assert!(matches!(error, EngineError::Unsupported(_)));
    let message = error.to_string();
    assert!(message.contains("raw_id") && message.contains("FixedSizeBinary"), "{message}");
}
