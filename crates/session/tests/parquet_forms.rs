//! Parquet files of all encodings, page versions and compressions, read in the forms that are cheapest to store: the answers are those of
//! DataFusion's reader.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::*;
use datafusion::arrow::datatypes::{DataType, Field, Int16Type, Schema, TimeUnit};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, Encoding, ZstdLevel};
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
