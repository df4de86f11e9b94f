//! Parquet files whose metadata are wrong: what is answered is what is in the pages, whoever answers, or an error that names the file.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{ConvertedType, Repetition, Type as PhysicalType};
use datafusion::parquet::data_type::{FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type};
use datafusion::parquet::file::metadata::SortingColumn;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use datafusion::parquet::file::writer::SerializedFileWriter;
use datafusion::parquet::schema::types::Type;
use kelpie_session::testing::{SoundFile, footer_of, integers, replace_integer};
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

/// Devices, and from how many rows on queries are compiled.
const SESSIONS: [(&str, &str); 3] = [("cpu", "0"), ("simt", "0"), ("cpu", "1000000")];

struct Lies {
    folder: TempDir,
    sessions: Vec<KelpieSession>,
}

impl Lies {
    fn new() -> Lies {
        let session = |(device, least): (&str, &str)| {
            let options = SessionOptions::default().with("kelpie.device", device);
            KelpieSession::new(options.with("kelpie.min_rows", least).with("kelpie.decoding", "device"))
                .unwrap()
        };
        Lies { folder: TempDir::new().unwrap(), sessions: SESSIONS.map(session).into() }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// All sessions give the same rows.
    async fn answers(&self, sql: &str, expected: &[&str]) {
        for (session, settings) in self.sessions.iter().zip(SESSIONS) {
            let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{settings:?} {sql}: {error}"));
            let row = |batch: &RecordBatch, row| -> String {
                let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
                values.collect::<Vec<_>>().join("|")
            };
            let rows =
                result.batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |at| row(batch, at)));
            assert_eq!(rows.collect::<Vec<_>>(), expected, "{settings:?} {sql}");
        }
    }

    /// All sessions fail, and say what is wrong where.
    async fn fails(&self, sql: &str, parts: &[&str]) {
        for (session, settings) in self.sessions.iter().zip(SESSIONS) {
            let error = match session.sql(sql).await {
                Ok(result) => panic!("{settings:?} {sql}: {:?}", result.batches),
                Err(error) => error.strip_backtrace(),
            };
            assert!(parts.iter().all(|part| error.contains(part)), "{settings:?} {sql}: {error}");
        }
    }
}

fn parquet(column: ArrayRef, properties: WriterPropertiesBuilder) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable([("k", column, true)]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// The integers of the footer that have a value get another.
fn lie(bytes: &[u8], value: i64, instead: i64) -> Vec<u8> {
    let mut file = SoundFile { name: "", extension: "parquet", bytes: bytes.to_vec() };
    let footer = footer_of(&file);
    let places = integers(&bytes[footer.clone()]);
    let has = |place: &&Range<usize>| {
        let mut written = (value << 1) as u64;
        let of_place = &bytes[footer.start + place.start..footer.start + place.end];
        of_place.iter().enumerate().all(|(at, byte)| {
            let expected = (written & 0x7f) as u8 | if at + 1 < of_place.len() { 0x80 } else { 0 };
            written >>= 7;
            *byte == expected
        }) && written == 0
    };
    let places: Vec<_> = places.iter().filter(has).collect();
    assert!(!places.is_empty(), "no integer of the footer is {value}");
    // From the last on, so that the places of the others stay.
    for place in places.into_iter().rev() {
        let footer = footer_of(&file);
        replace_integer(&mut file.bytes, &footer, place, instead);
    }
    file.bytes
}

/// Bytes get others as long, wherever they stand in the second half of a file, behind the pages.
fn replaced(bytes: &[u8], from: usize, value: &[u8], instead: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut found = 0;
    for at in from..bytes.len() - value.len() {
        if bytes[at..].starts_with(value) {
            bytes[at..at + value.len()].copy_from_slice(instead);
            found += 1;
        }
    }
    assert!(found > 0, "{value:?} is not in the file");
    bytes
}

fn plain() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_dictionary_enabled(false).set_statistics_enabled(EnabledStatistics::Chunk)
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_nulls_are_counted() {
    let lies = Lies::new();
    let some = |n: i64| n % 8 != 3;
    let columns: [ArrayRef; 3] = [
        Arc::new((0..104).map(|n| some(n).then_some(n * 1000)).collect::<Int64Array>()),
        Arc::new((0..104).map(|n| some(n).then(|| format!("text number {n}"))).collect::<StringArray>()),
        Arc::new((0..104).map(|n| some(n).then_some(n as i32 * 500)).collect::<Date32Array>()),
    ];
    for (number, column) in columns.into_iter().enumerate() {
        let bytes = parquet(column, plain());
        for claimed in [0, 1, 77, 104, 1 << 40] {
            let path = lies.write(&format!("n{number}.{claimed}.parquet"), &lie(&bytes, 13, claimed));
            let table = path.display();
            lies.answers(&format!("select count(*), count(k) from '{table}'"), &["104|91"]).await;
            let grouped = "select sum(n), sum(c) from (select count(*) n, count(k) c";
            lies.answers(&format!("{grouped} from '{table}' group by k)"), &["104|91"]).await;
            lies.answers(&format!("select count(*) from '{table}' where k is null"), &["13"]).await;
            lies.answers(&format!("select count(*) from '{table}' where k is not null"), &["91"]).await;
        }
        let path = lies.write(&format!("n{number}.parquet"), &lie(&bytes, 13, -1));
        lies.fails(&format!("select count(k) from '{}'", path.display()), &[&format!("n{number}.parquet")])
            .await;
    }
}

/// A condition, a column, its least and greatest value as bytes, what is written instead, and how both are shown.
type Bounded<'a> = (&'a str, ArrayRef, [&'a [u8]; 2], [&'a [u8]; 2], [&'a str; 2]);

#[tokio::test(flavor = "multi_thread")]
async fn bounds_are_not_answers_and_leave_nothing_out() {
    let lies = Lies::new();
    let numbers = || (0..100i64).map(|n| n * 37 % 101 * 1_000_000_007);
    let decimals = Decimal128Array::from_iter_values(numbers().map(i128::from));
    let cases: [Bounded<'_>; 4] = [
        (
            "k > 3000000000",
            Arc::new(Int64Array::from_iter_values(numbers())),
            [&0i64.to_le_bytes(), &100_000_000_700i64.to_le_bytes()],
            [&5i64.to_le_bytes(), &6i64.to_le_bytes()],
            ["0", "100000000700"],
        ),
        (
            "k > 1030",
            Arc::new(Int32Array::from_iter_values((0..100).map(|n| n * 37 % 101 + 1000))),
            [&1000i32.to_le_bytes(), &1100i32.to_le_bytes()],
            [&7i32.to_le_bytes(), &7i32.to_le_bytes()],
            ["1000", "1100"],
        ),
        (
            "k > 'word 050'",
            Arc::new(StringArray::from_iter_values((0..100).map(|n| format!("word {:03}!", n * 37 % 101)))),
            [b"word 000!", b"word 100!"],
            [b"a", b"b"],
            ["word 000!", "word 100!"],
        ),
        (
            "k > 30000000.00",
            Arc::new(decimals.with_precision_and_scale(15, 2).unwrap()),
            [&0i64.to_le_bytes(), &100_000_000_700i64.to_le_bytes()],
            [&5i64.to_le_bytes(), &5i64.to_le_bytes()],
            ["0.00", "1000000007.00"],
        ),
    ];
    for (number, (condition, column, bounds, instead, [least, greatest])) in cases.into_iter().enumerate() {
        let bytes = parquet(column, plain());
        let footer = footer_of(&SoundFile { name: "", extension: "parquet", bytes: bytes.clone() });
        let mut lying = bytes.clone();
        for (bound, instead) in bounds.into_iter().zip(instead) {
            let mut wrong = instead.to_vec();
            wrong.resize(bound.len(), b'a');
            lying = replaced(&lying, footer.start, bound, &wrong);
        }
        let path = lies.write(&format!("b{number}.parquet"), &lying);
        let table = path.display();
        let expected = format!("{least}|{greatest}");
        lies.answers(&format!("select min(k), max(k) from '{table}'"), &[&expected]).await;
        lies.answers(&format!("select max(k) from '{table}' group by k is null"), &[greatest]).await;
        let counted = format!("select sum(case when {condition} then 1 else 0 end) from '{table}'");
        let rows = lies.sessions[0].sql(&counted).await.unwrap();
        let rows = array_value_to_string(rows.batches[0].column(0), 0).unwrap();
        assert_ne!(rows, "0");
        lies.answers(&format!("select count(*) from '{table}' where {condition}"), &[&rows]).await;
        lies.answers(&format!("select k from '{table}' order by k desc limit 1"), &[greatest]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_that_are_cut_short_are_not_values() {
    let lies = Lies::new();
    let texts = (0..50).map(|n| format!("the same beginning, and then {}", n * 7 % 50 + 10));
    let properties = plain().set_statistics_truncate_length(Some(8));
    let path =
        lies.write("cut.parquet", &parquet(Arc::new(StringArray::from_iter_values(texts)), properties));
    let table = path.display();
    let expected = "the same beginning, and then 10|the same beginning, and then 59";
    lies.answers(&format!("select min(k), max(k) from '{table}'"), &[expected]).await;
    lies.answers(
        &format!("select count(*) from '{table}' where k = 'the same beginning, and then 59'"),
        &["1"],
    )
    .await;
    lies.answers(&format!("select count(distinct k) from '{table}'"), &["50"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_sorted_whatever_a_file_says_of_its_order() {
    let lies = Lies::new();
    let columns: [ArrayRef; 3] = [
        Arc::new(Int64Array::from_iter_values((0..60).map(|n| n * 7 % 61))),
        Arc::new(StringArray::from_iter_values((0..60).map(|n| format!("{:02}", n * 7 % 61)))),
        Arc::new((0..60).map(|n| (n > 0).then_some(n * 7 % 61)).collect::<Date32Array>()),
    ];
    for (number, column) in columns.into_iter().enumerate() {
        for descending in [false, true] {
            let order = SortingColumn { column_idx: 0, descending, nulls_first: false };
            let bytes = parquet(Arc::clone(&column), plain().set_sorting_columns(Some(vec![order])));
            let path = lies.write(&format!("s{number}.{descending}.parquet"), &bytes);
            let table = path.display();
            let sorted = format!(
                "select count(*) from (select k, lag(k) over (order by k) before from '{table}') where before > k"
            );
            lies.answers(&sorted, &["0"]).await;
            let order = if descending { "desc" } else { "asc" };
            for session in &lies.sessions {
                let rows = format!("select k from '{table}' order by k {order} nulls last");
                let result = session.sql(&rows).await.unwrap();
                let values: Vec<String> = result
                    .batches
                    .iter()
                    .flat_map(|batch| {
                        (0..batch.num_rows()).map(|row| array_value_to_string(batch.column(0), row).unwrap())
                    })
                    .filter(|value| !value.is_empty())
                    .collect();
                let is_sorted = match descending {
                    true => values.is_sorted_by(|a, b| a.len() != b.len() || a >= b),
                    false => values.is_sorted_by(|a, b| a.len() != b.len() || a <= b),
                };
                assert!(is_sorted, "{rows}: {values:?}");
            }
            lies.answers(&format!("select count(*) from (select k from '{table}' group by k)"), &["60"])
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_that_cannot_be_are_errors_that_name_the_column() {
    let lies = Lies::new();
    let columns: [ArrayRef; 3] = [
        Arc::new(Int64Array::from_iter_values(0..117)),
        Arc::new(StringArray::from_iter_values((0..117).map(|n| format!("text {n}")))),
        Arc::new((0..117).map(|n| (n % 5 > 0).then_some(n)).collect::<Int32Array>()),
    ];
    for (number, column) in columns.into_iter().enumerate() {
        for claimed in [0, 116, 118, 1 << 35] {
            // Rows of the file, of the row group and values of the column alike: only the pages say otherwise.
            let bytes = lie(&parquet(Arc::clone(&column), plain()), 117, claimed);
            let name = format!("r{number}.{claimed}.parquet");
            let path = lies.write(&name, &bytes);
            for sql in ["select count(*) from", "select count(k) from", "select k from", "select max(k) from"]
            {
                let sql = format!("{sql} '{}'", path.display());
                lies.fails(&sql, &[&name, "column k", "117"]).await;
            }
        }
    }
}

/// Files that are too large to be gone through before are checked as they are read.
#[tokio::test(flavor = "multi_thread")]
async fn sizes_of_pages_that_cannot_be_are_errors_in_large_files_too() {
    const ROWS: i64 = (18 << 20) / 8;
    let lies = Lies::new();
    let column: ArrayRef =
        Arc::new(Int64Array::from_iter_values((0..ROWS).map(|n| n.wrapping_mul(n) ^ 0x5bd1)));
    let large = parquet(column, plain().set_dictionary_enabled(false));
    assert!(large.len() > 16 << 20, "{} bytes", large.len());
    // The first page stands behind the four letters that every file begins with: what it is, its sizes uncompressed and compressed.
    let header = 4..4 + 64;
    let sizes = &integers(&large[header.clone()])[1..3];
    for (number, place) in sizes.iter().enumerate() {
        // As long as what stood there, with bits that say that more follows: less than nothing.
        let mut bytes = large.clone();
        let (from, length) = (header.start + place.start, place.len());
        bytes[from..from + length].fill(0xff);
        bytes[from + length - 1] = 0x7f;
        let name = format!("large{number}.parquet");
        let path = lies.write(&name, &bytes);
        let sql = format!("select max(k) from '{}'", path.display());
        lies.fails(&sql, &[&name, "column k"]).await;
        fs::remove_file(path).unwrap();
    }
}

/// Decimals with more digits than their type has are wrong in any column: an error that names it, wherever they are read.
#[tokio::test(flavor = "multi_thread")]
async fn decimals_of_more_digits_than_declared_are_errors() {
    let lies = Lies::new();
    let physical = [PhysicalType::INT32, PhysicalType::INT64, PhysicalType::FIXED_LEN_BYTE_ARRAY];
    for (number, physical) in physical.into_iter().enumerate() {
        let column = Type::primitive_type_builder("k", physical)
            .with_repetition(Repetition::REQUIRED)
            .with_converted_type(ConvertedType::DECIMAL)
            .with_precision(5)
            .with_scale(2)
            .with_length(if physical == PhysicalType::FIXED_LEN_BYTE_ARRAY { 8 } else { -1 });
        let fields = vec![Arc::new(column.build().unwrap())];
        let schema = Type::group_type_builder("schema").with_fields(fields).build().unwrap();
        let mut bytes = Vec::new();
        let properties = Arc::new(plain().build());
        let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values = [12_345i64, -99_999, 123_456_789, 7];
        match physical {
            PhysicalType::INT32 => {
                let values = values.map(|value| value as i32);
                column.typed::<Int32Type>().write_batch(&values, None, None).unwrap()
            }
            PhysicalType::INT64 => column.typed::<Int64Type>().write_batch(&values, None, None).unwrap(),
            _ => {
                let values = values.map(|value| FixedLenByteArray::from(value.to_be_bytes().to_vec()));
                column.typed::<FixedLenByteArrayType>().write_batch(&values, None, None).unwrap()
            }
        };
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let name = format!("d{number}.parquet");
        let path = lies.write(&name, &bytes);
        for sql in ["select max(k) from", "select sum(k) from", "select k, count(*) from", "select k from"] {
            let tail = if sql.contains("k, count") { " group by k" } else { "" };
            let sql = format!("{sql} '{}'{tail}", path.display());
            lies.fails(&sql, &[&name, "column k", "1234567.89"]).await;
        }
    }
}

/// The digits of large files are looked at as they are read, on DataFusion's operators too.
#[tokio::test(flavor = "multi_thread")]
async fn decimals_of_large_files_are_looked_at_as_they_are_read() {
    let lies = Lies::new();
    let column = Type::primitive_type_builder("k", PhysicalType::INT64)
        .with_repetition(Repetition::REQUIRED)
        .with_converted_type(ConvertedType::DECIMAL)
        .with_precision(12)
        .with_scale(2);
    let fields = vec![Arc::new(column.build().unwrap())];
    let schema = Arc::new(Type::group_type_builder("schema").with_fields(fields).build().unwrap());
    let operators = KelpieSession::new(SessionOptions::default().with("kelpie.enabled", "false")).unwrap();
    let rows = (17 << 20) / 8;
    for (name, wrong) in [("sound", None), ("first", Some(0)), ("last", Some(rows - 1))] {
        let mut values: Vec<i64> = (0..rows as i64).map(|n| n * 7919 % 999_999_999_999).collect();
        if let Some(wrong) = wrong {
            values[wrong] = 1_234_567_890_123;
        }
        let mut bytes = Vec::new();
        let mut writer =
            SerializedFileWriter::new(&mut bytes, Arc::clone(&schema), Arc::new(plain().build())).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let path = lies.write(&format!("{name}.parquet"), &bytes);
        for sql in ["select sum(k) from", "select max(k) from"] {
            let answer = operators.sql(&format!("{sql} '{}'", path.display())).await;
            match (wrong, answer) {
                (None, Ok(_)) => {}
                (Some(_), Err(error)) => {
                    let text = error.strip_backtrace();
                    let parts = [&format!("{name}.parquet"), "column k", "12345678901.23"];
                    assert!(parts.iter().all(|part| text.contains(part)), "{sql}: {text}");
                }
                (_, answer) => panic!("{name}: {sql}: {:?}", answer.map(|answer| answer.batches)),
            }
        }
    }
}
