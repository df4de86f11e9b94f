//! Parquet files of all encodings, page versions and compressions, read in the forms that are cheapest to store: the answers are those of
//! DataFusion's reader.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::*;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, Int16Type, Schema, TimeUnit};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use datafusion::parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

/// Some texts, of several bytes a character too; every eleventh is NULL.
fn text(row: usize, distinct: usize) -> Option<String> {
    (row % 11 != 4).then(|| match row * 7919 % distinct {
        0 => String::new(),
        n if n % 3 == 0 => format!("größer als {n}"),
        n => format!("n{n}"),
    })
}

fn texts(rows: usize, distinct: usize) -> ArrayRef {
    Arc::new((0..rows).map(|row| text(row, distinct)).collect::<StringArray>())
}

fn decimals(rows: usize, precision: u8, scale: i8) -> ArrayRef {
    let most = 10i128.pow(u32::from(precision.min(30)));
    let value = |row: usize| (row % 13 != 7).then(|| (row as i128 * 982_451_653_123_457) % most - most / 2);
    let array: Decimal128Array = (0..rows).map(value).collect();
    Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
}

/// Rows from some number on; a row group apart has nothing but NULLs in `gap`.
fn rows(first: usize, rows: usize) -> RecordBatch {
    let dictionary: DictionaryArray<Int16Type> =
        (first..first + rows).map(|row| (row % 5 != 2).then(|| ["x", "", "zß"][row * 31 % 3])).collect();
    let number = |row: usize| (row % 17 != 3).then(|| (row as i64).wrapping_mul(0x5851_f42d_4c95_7f2d));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values((first..first + rows).map(|row| row as i64)))),
        ("few", texts(rows, 5)),
        ("some", texts(rows, 3_000)),
        ("many", texts(rows, usize::MAX)),
        ("plain", texts(rows, 40)),
        ("lengths", texts(rows, 500)),
        ("prefixes", texts(rows, 700)),
        (
            "gap",
            Arc::new(
                (0..rows).map(|row| text(row, 9).filter(|_| row / 20_000 != 1)).collect::<StringArray>(),
            ),
        ),
        ("none", Arc::new(StringArray::new_null(rows))),
        ("dict", Arc::new(dictionary)),
        ("d9", decimals(rows, 9, 2)),
        ("d18", decimals(rows, 18, 4)),
        ("d30", decimals(rows, 30, 10)),
        ("i32", Arc::new((0..rows).map(|row| number(row).map(|n| n as i32)).collect::<Int32Array>())),
        ("i64", Arc::new((0..rows).map(number).collect::<Int64Array>())),
        ("u16", Arc::new((0..rows).map(|row| number(row).map(|n| n as u16)).collect::<UInt16Array>())),
        (
            "b",
            Arc::new((0..rows).map(|row| (row % 7 != 1).then_some(row % 3 == 0)).collect::<BooleanArray>()),
        ),
        (
            "f",
            Arc::new(
                (0..rows).map(|row| (row % 9 != 1).then_some(row as f64 / 8.0)).collect::<Float64Array>(),
            ),
        ),
        ("day", Arc::new((0..rows).map(|row| Some(row as i32 % 30_000 - 9_000)).collect::<Date32Array>())),
        (
            "at",
            Arc::new(
                (0..rows).map(|row| number(row).map(|n| n >> 12)).collect::<TimestampMicrosecondArray>(),
            ),
        ),
    ];
    let fields = columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    assert_eq!(
        schema.field_with_name("at").unwrap().data_type(),
        &DataType::Timestamp(TimeUnit::Microsecond, None)
    );
    RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect()).unwrap()
}

fn write(path: &Path, batch: &RecordBatch, properties: WriterPropertiesBuilder) {
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties.build())).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// Row groups and pages that end in unlike places, with dictionaries that get full.
fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_max_row_group_row_count(Some(20_000))
        .set_data_page_row_count_limit(3_000)
        .set_write_batch_size(500)
        .set_dictionary_page_size_limit(40_000)
        .set_column_dictionary_enabled("plain".into(), false)
        .set_column_dictionary_enabled("lengths".into(), false)
        .set_column_encoding("lengths".into(), Encoding::DELTA_LENGTH_BYTE_ARRAY)
        .set_column_dictionary_enabled("prefixes".into(), false)
        .set_column_encoding("prefixes".into(), Encoding::DELTA_BYTE_ARRAY)
        .set_column_dictionary_enabled("i64".into(), false)
        .set_column_encoding("i64".into(), Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled("f".into(), false)
        .set_column_encoding("f".into(), Encoding::BYTE_STREAM_SPLIT)
}

const STATEMENTS: [&str; 7] = [
    "SELECT count(*), count(few), count(DISTINCT few), min(few), max(few), count(DISTINCT some), max(some), count(DISTINCT many), \
     min(many), max(many) FROM t",
    "SELECT count(plain), count(DISTINCT plain), max(plain), count(DISTINCT lengths), min(lengths), count(DISTINCT prefixes), \
     max(prefixes), count(gap), max(gap), count(none), count(DISTINCT dict), max(dict) FROM t",
    "SELECT sum(d9), min(d9), max(d9), sum(d18), min(d18), max(d18), count(DISTINCT d30), min(d30), max(d30) FROM t",
    "SELECT sum(i32), min(i32), min(i64), max(i64), sum(u16), count(b), sum(f), min(day), max(day), min(at), max(at) FROM t",
    "SELECT few, gap, dict, count(*), sum(d9), max(many) FROM t GROUP BY few, gap, dict ORDER BY 1, 2, 3",
    "SELECT id, few, some, many, plain, lengths, prefixes, gap, dict, d9, d18, d30, i32, i64, u16, b, f, day, at FROM t \
     WHERE id % 997 = 5 ORDER BY id",
    "SELECT a.few, count(*) FROM t a JOIN t b ON a.some = b.prefixes AND a.id = b.id WHERE a.many > 'n5' GROUP BY 1 ORDER BY 1",
];

async fn answers(session: &KelpieSession, statements: &[&str]) -> Vec<String> {
    let mut answers = Vec::new();
    for sql in statements {
        let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        answers.push(pretty_format_batches(&result.batches).unwrap().to_string());
    }
    answers
}

/// Answers over a table, compiled with other numbers of readers, are those of DataFusion's operators.
async fn agree(path: &Path, statements: &[&str]) {
    let session = |settings: &[(&str, &str)]| {
        let all =
            settings.iter().fold(SessionOptions::default(), |all, &(name, value)| all.with(name, value));
        KelpieSession::new(all).unwrap()
    };
    let plain = session(&[("kelpie.enabled", "false")]);
    plain.register_path("t", path).await.unwrap();
    let expected = answers(&plain, statements).await;
    for settings in [
        &[("kelpie.device", "cpu"), ("kelpie.fallback", "deny")][..],
        &[("kelpie.device", "cpu"), ("kelpie.dictionaries", "off")],
        &[("kelpie.device", "simt")],
    ] {
        let session = session(settings);
        session.register_path("t", path).await.unwrap();
        for (found, (expected, sql)) in
            answers(&session, statements).await.iter().zip(expected.iter().zip(statements))
        {
            assert_eq!(found, expected, "{settings:?} {}: {sql}", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_encoding() {
    let folder = TempDir::new().unwrap();
    let zstd = Compression::ZSTD(ZstdLevel::default());
    for (name, version, compression) in
        [("one", WriterVersion::PARQUET_1_0, Compression::SNAPPY), ("two", WriterVersion::PARQUET_2_0, zstd)]
    {
        let path = folder.path().join(format!("{name}.parquet"));
        let properties = properties().set_writer_version(version).set_compression(compression);
        write(&path, &rows(0, 70_000), properties);
        agree(&path, &STATEMENTS).await;
    }
}

/// Pages that are not compressed, and those that Parquet's reader decompresses; of a page version 2 the levels are as they are.
#[tokio::test(flavor = "multi_thread")]
async fn every_compression() {
    let folder = TempDir::new().unwrap();
    for (place, compression) in [
        Compression::UNCOMPRESSED,
        Compression::GZIP(GzipLevel::default()),
        Compression::LZ4_RAW,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
    ]
    .into_iter()
    .enumerate()
    {
        let versions = [WriterVersion::PARQUET_2_0, WriterVersion::PARQUET_1_0];
        let path = folder.path().join(format!("{place}.parquet"));
        let properties = properties().set_writer_version(versions[place % 2]).set_compression(compression);
        write(&path, &rows(0, 25_000), properties);
        agree(&path, &STATEMENTS[..4]).await;
    }
}

/// Pages that a device decodes, of all page versions and compressions, and columns beside them that the host decodes.
#[tokio::test(flavor = "multi_thread")]
async fn pages_that_a_device_decodes() {
    let folder = TempDir::new().unwrap();
    let zstd = Compression::ZSTD(ZstdLevel::default());
    for (place, compression) in
        [Compression::UNCOMPRESSED, Compression::LZ4_RAW, Compression::SNAPPY, zstd].into_iter().enumerate()
    {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            let path = folder.path().join(format!("{place}{version:?}.parquet"));
            let properties = properties()
                .set_max_row_group_row_count(Some(300))
                .set_data_page_row_count_limit(80)
                .set_write_batch_size(20);
            // Of the second version, what gets no dictionary is in an encoding that the host decodes.
            let properties = match version {
                WriterVersion::PARQUET_1_0 => properties.set_dictionary_page_size_limit(400),
                WriterVersion::PARQUET_2_0 => properties,
            };
            let properties = properties.set_writer_version(version).set_compression(compression);
            write(&path, &rows(0, 700), properties);
            let statement = "SELECT id, d9, d18, i32, i64, u16, day, at, few FROM t ORDER BY id";
            let mut found = Vec::new();
            for settings in [
                &[("kelpie.enabled", "false")][..],
                &[("kelpie.device", "simt"), ("kelpie.decoding", "device"), ("kelpie.min_rows", "0")],
            ] {
                let options = settings
                    .iter()
                    .fold(SessionOptions::default(), |all, (name, value)| all.with(*name, *value));
                let session = KelpieSession::new(options).unwrap();
                session.register_path("t", &path).await.unwrap();
                if settings.len() > 1 {
                    let explained = format!("EXPLAIN ANALYZE {statement}");
                    let text = answers(&session, &[&explained]).await.remove(0);
                    assert!(text.contains("pages="), "{} {version:?}: {text}", path.display());
                }
                found.push(answers(&session, &[statement]).await.remove(0));
            }
            assert_eq!(found[0], found[1], "{} {version:?}", path.display());
        }
    }
}

/// Floats with and without a dictionary, NULL, NaN of any bits, and zeros with a sign.
#[tokio::test(flavor = "multi_thread")]
async fn floats() {
    let folder = TempDir::new().unwrap();
    let value = |row: usize| match row % 23 {
        3 => None,
        5 => Some(f64::NAN),
        6 => Some(-f64::NAN),
        7 => Some(-0.0),
        8 => Some(f64::NEG_INFINITY),
        _ => Some((row * 7919 % 5_003) as f64 / 16.0 - 90.0),
    };
    let singles = |gap: usize| -> ArrayRef {
        let single = move |row: usize| value(row).filter(|_| row / 6_000 != gap).map(|value| value as f32);
        Arc::new((0..30_000).map(single).collect::<Float32Array>())
    };
    let columns: [(&str, ArrayRef); 4] = [
        ("f", Arc::new((0..30_000).map(value).collect::<Float64Array>())),
        ("p", Arc::new((0..30_000).map(|row| value(row * 3 + 1)).collect::<Float64Array>())),
        ("s", singles(1)),
        ("q", singles(9)),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)));
    let batch = batch.unwrap();
    let path = folder.path().join("t.parquet");
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(6_000))
        .set_data_page_row_count_limit(1_000)
        .set_write_batch_size(100)
        .set_dictionary_page_size_limit(8_000)
        .set_column_dictionary_enabled("p".into(), false)
        .set_column_dictionary_enabled("q".into(), false)
        .set_compression(Compression::SNAPPY);
    write(&path, &batch, properties);
    let statements = [
        "SELECT count(f), count(DISTINCT f), min(f), max(f), count(DISTINCT p), min(p), count(s), count(DISTINCT s), max(q), min(q) FROM t",
        "SELECT f, s, count(*), count(q), min(p) FROM t WHERE f < -89.5 OR f <> f OR f IS NULL GROUP BY f, s ORDER BY 1, 2",
        "SELECT s, q, f, p FROM t ORDER BY p, f, s, q LIMIT 50",
    ];
    agree(&path, &statements).await;
}

/// More rows than one part has: readers begin within row groups, and within pages.
#[tokio::test(flavor = "multi_thread")]
async fn parts_of_row_groups() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t.parquet");
    let properties =
        properties().set_max_row_group_row_count(Some(400_000)).set_compression(Compression::LZ4_RAW);
    write(&path, &rows(0, 450_000), properties);
    agree(&path, &STATEMENTS[..6]).await;
}

/// Columns of folders' names, files in another order of columns, and files of which some columns are adapted by DataFusion's reader.
#[tokio::test(flavor = "multi_thread")]
async fn folders() {
    let folder = TempDir::new().unwrap();
    let of_folders =
        "SELECT year, kind, count(*), sum(d9), max(few), min(many) FROM t GROUP BY 1, 2 ORDER BY 1, 2";
    let batch = rows(0, 30_000);
    for (year, kind) in [(2023, "a"), (2024, "ß"), (2024, "__HIVE_DEFAULT_PARTITION__")] {
        let part = folder.path().join(format!("year={year}/kind={kind}"));
        fs::create_dir_all(&part).unwrap();
        let order: Vec<usize> = (0..batch.num_columns()).rev().collect();
        write(&part.join("x.parquet"), &batch.project(&order).unwrap(), properties());
        write(&part.join("y.parquet"), &rows(30_000, 100), properties());
    }
    let statements = [&STATEMENTS[..], &[of_folders]].concat();
    agree(folder.path(), &statements[..5]).await;
    agree(folder.path(), &statements[7..]).await;
    // One of them has a narrower type, and no `many`.
    let other = batch.project(&[0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12]).unwrap();
    write(&folder.path().join("year=2023/kind=a/z.parquet"), &other, properties());
    agree(folder.path(), &statements[..3]).await;
    agree(folder.path(), &statements[7..]).await;
}

/// Files without rows, and row groups without rows.
#[tokio::test(flavor = "multi_thread")]
async fn no_rows() {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("a.parquet"), &rows(0, 0), properties());
    write(&folder.path().join("b.parquet"), &rows(0, 1), properties());
    agree(folder.path(), &STATEMENTS[..5]).await;
}

/// Integers of all kinds, with dictionaries of all widths, that get full, and that have what rows before them have not. Every `gap`-th
/// row is NULL; none where that is 0.
fn integers(first: usize, rows: usize, gap: usize) -> RecordBatch {
    let mixed = |row: usize| (row as i64 + 1).wrapping_mul(0x5851_f42d_4c95_7f2d) >> 7;
    let is_null = |row: usize| gap > 0 && row % gap == gap / 2;
    macro_rules! column {
        ($array:ty, $value:expr) => {{
            let value = $value;
            let values = (first..first + rows).map(|row| (!is_null(row)).then(|| value(row)));
            Arc::new(values.collect::<$array>()) as ArrayRef
        }};
    }
    let decimal = |values: ArrayRef, precision, scale| -> ArrayRef {
        let values = values.as_primitive::<Decimal128Type>().clone();
        Arc::new(values.with_precision_and_scale(precision, scale).unwrap())
    };
    let id = (first..first + rows).map(|row| row as i64);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(id))),
        ("i8", column!(Int8Array, |row| mixed(row) as i8)),
        ("i16", column!(Int16Array, |row| mixed(row) as i16)),
        ("u8", column!(UInt8Array, |row| mixed(row) as u8)),
        ("u16", column!(UInt16Array, |row| mixed(row) as u16)),
        ("u32", column!(UInt32Array, |row| u32::MAX - (row % 7) as u32)),
        ("u32s", column!(UInt32Array, |row| mixed(row) as u32)),
        ("u64", column!(UInt64Array, |row| u64::MAX - (row % 5) as u64)),
        ("u64s", column!(UInt64Array, |row| mixed(row) as u64)),
        ("same", column!(Int32Array, |_| -7)),
        ("bytes", column!(Int64Array, |row| (row % 256) as i64)),
        ("words", column!(Int64Array, |row| mixed(row) & 0xffff)),
        ("below", column!(Int64Array, |row| (row % 90) as i64 - 3)),
        ("long", column!(Int64Array, |row| mixed(row % 60))),
        ("runs", column!(Int32Array, |row| (row / 700 % 5) as i32 * 40_000)),
        // Small at first, then beyond what a dictionary has room for, then small again.
        ("full", column!(Int64Array, |row| if row / 5_000 % 3 == 1 { mixed(row) } else { (row % 9) as i64 })),
        ("none", Arc::new(Int32Array::new_null(rows))),
        ("day", column!(Date32Array, |row| (row % 3_000) as i32 - 900)),
        ("s", column!(TimestampSecondArray, |row| mixed(row) % 1_000_000_000)),
        ("ms", column!(TimestampMillisecondArray, |row| (row % 300) as i64 * 86_400_000)),
        ("us", column!(TimestampMicrosecondArray, |row| mixed(row) >> 8)),
        ("ns", column!(TimestampNanosecondArray, |row| mixed(row) >> 2)),
        ("d4", decimal(column!(Decimal128Array, |row| i128::from(mixed(row) % 10_000)), 4, 2)),
        ("d9", decimal(column!(Decimal128Array, |row| i128::from(mixed(row) % 1_000_000_000)), 9, 0)),
        ("d15", decimal(column!(Decimal128Array, |row| (row % 4_000) as i128 * 25), 15, 2)),
        ("d18", decimal(column!(Decimal128Array, |row| i128::from(mixed(row) % 1_000_000_000_000)), 18, 6)),
        ("d25", decimal(column!(Decimal128Array, |row| i128::from(mixed(row))), 25, 3)),
    ];
    let fields = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), gap > 0 || array.null_count() > 0));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect()).unwrap()
}

/// What tells of all columns of [`integers`] whether they have the same values in the same rows.
fn of_integers(batch: &RecordBatch) -> Vec<String> {
    let names: Vec<_> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
    let facts: Vec<_> = names.iter().map(|name| format!("count({name}), min({name}), max({name})")).collect();
    vec![
        format!("SELECT {} FROM t", facts.join(", ")),
        "SELECT sum(i8), sum(i16), sum(u8), sum(u16), sum(u32), sum(u32s), sum(same), sum(bytes), sum(words), sum(below), \
         sum(runs), sum(d4), sum(d9), sum(d15), sum(d18), sum(d25), count(DISTINCT long), count(DISTINCT \"full\"), \
         count(DISTINCT day), count(DISTINCT ms) FROM t"
            .into(),
        "SELECT bytes, d15, count(*), min(id), max(u64) FROM t WHERE day < DATE '1970-03-01' GROUP BY 1, 2 ORDER BY 1, 2 \
         LIMIT 50"
            .into(),
        format!("SELECT {} FROM t WHERE id % 1009 < 2 ORDER BY id", names.join(", ").replace("full", "\"full\"")),
    ]
}

fn unlike_encodings(properties: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
    let of = |properties: WriterPropertiesBuilder, (name, encoding): (&str, Encoding)| {
        properties
            .set_column_dictionary_enabled(name.into(), false)
            .set_column_encoding(name.into(), encoding)
    };
    [
        ("i16", Encoding::DELTA_BINARY_PACKED),
        ("u64s", Encoding::DELTA_BINARY_PACKED),
        ("ns", Encoding::DELTA_BINARY_PACKED),
        ("same", Encoding::PLAIN),
        ("u32", Encoding::BYTE_STREAM_SPLIT),
        ("d9", Encoding::BYTE_STREAM_SPLIT),
        ("long", Encoding::BYTE_STREAM_SPLIT),
        ("d15", Encoding::DELTA_BINARY_PACKED),
        ("u8", Encoding::PLAIN),
        ("none", Encoding::PLAIN),
    ]
    .into_iter()
    .fold(properties, of)
}

async fn integers_agree(path: &Path, batch: &RecordBatch, properties: WriterPropertiesBuilder) {
    write(path, batch, properties);
    let statements = of_integers(batch);
    agree(path, &statements.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn integers_of_every_kind() {
    let folder = TempDir::new().unwrap();
    let zstd = Compression::ZSTD(ZstdLevel::default());
    for (number, (gap, version, compression)) in [
        (0, WriterVersion::PARQUET_1_0, Compression::UNCOMPRESSED),
        (3, WriterVersion::PARQUET_1_0, Compression::SNAPPY),
        (97, WriterVersion::PARQUET_2_0, zstd),
        (0, WriterVersion::PARQUET_2_0, Compression::GZIP(GzipLevel::default())),
    ]
    .into_iter()
    .enumerate()
    {
        let batch = integers(0, 22_000, gap);
        let properties = || properties().set_writer_version(version).set_compression(compression);
        let path = |kind: &str| folder.path().join(format!("{kind}{number}.parquet"));
        integers_agree(&path("dictionaries"), &batch, properties()).await;
        integers_agree(&path("others"), &batch, unlike_encodings(properties())).await;
    }
}

/// Pages of a row, and a dictionary of an entry.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_row() {
    let folder = TempDir::new().unwrap();
    for (name, rows, gap) in [("some", 600, 4), ("one", 1, 0), ("null", 1, 1), ("all", 40, 0), ("no", 0, 0)] {
        let properties = properties()
            .set_data_page_row_count_limit(1)
            .set_write_batch_size(1)
            .set_max_row_group_row_count(Some(151));
        integers_agree(&folder.path().join(format!("{name}.parquet")), &integers(7, rows, gap), properties)
            .await;
    }
}

/// Readers begin within row groups, within pages, and pass over whole ones: with the index that says where they are, and without.
#[tokio::test(flavor = "multi_thread")]
async fn integers_of_parts_of_row_groups() {
    let folder = TempDir::new().unwrap();
    for (name, index, gap) in [("with", false, 5), ("without", true, 0)] {
        let properties = unlike_encodings(properties())
            .set_max_row_group_row_count(Some(250_000))
            .set_offset_index_disabled(index)
            .set_compression(Compression::LZ4_RAW);
        integers_agree(
            &folder.path().join(format!("{name}.parquet")),
            &integers(0, 270_000, gap),
            properties,
        )
        .await;
    }
}

/// Sums of decimals of 32 and 64 bits wrap around in DataFusion, and times of day of unlike units are not compared there.
#[tokio::test(flavor = "multi_thread")]
async fn decimals_and_times_of_all_widths_are_computed_with() {
    const ROWS: usize = 30_000;
    let seconds = |row: usize| (row * 86_399 / ROWS) as i64;
    let price = Decimal32Array::from_iter_values((0..ROWS).map(|_| 99_999)).with_precision_and_scale(7, 2);
    let large =
        Decimal64Array::from_iter_values((0..ROWS).map(|row| row as i64)).with_precision_and_scale(18, 0);
    let millis = Time32MillisecondArray::from_iter_values((0..ROWS).map(|row| seconds(row) as i32 * 1_000));
    let micros = Time64MicrosecondArray::from_iter_values((0..ROWS).map(|row| seconds(row) * 1_000_000));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("p", Arc::new(price.unwrap())),
        ("l", Arc::new(large.unwrap())),
        ("ms", Arc::new(millis)),
        ("us", Arc::new(micros)),
    ];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t.parquet");
    // Row groups that bounds leave out.
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(5_000)).build();
    let mut writer =
        ArrowWriter::try_new(File::create(&path).unwrap(), rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    for enabled in ["true", "false"] {
        let options = SessionOptions::default().with("kelpie.device", "cpu").with("kelpie.enabled", enabled);
        let session = KelpieSession::new(options.with("kelpie.min_rows", "0")).unwrap();
        session.register_path("t", &path).await.unwrap();
        for (sql, expected) in [
            ("select sum(p), max(p * 2), min(p / 2) > 499 from t", "29999700.00 1999.98 true"),
            ("select count(*), max(l) from t where l > 29000", "999 29999"),
            ("select count(*) from t where us >= time '12:00:00' and us < time '18:00:00'", "7500"),
            ("select count(*) from t where ms >= time '12:00:00' and ms < time '18:00:00'", "7500"),
            ("select count(*), min(us) from t where us = ms", "30000 00:00:00"),
        ] {
            let found = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            let shown = pretty_format_batches(&found.batches).unwrap().to_string();
            let row = shown.lines().nth(3).unwrap();
            let row: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            assert_eq!(row.join(" "), expected, "{sql}");
        }
    }
}
