//! Damaged files: small Parquet and Arrow files of which something is changed, and what queries over them must keep to.
//!
//! A query over a damaged file gives an answer, or an error that names the file. It never panics, ends the process, or says one thing of
//! all rows and another of the same rows in groups.

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, ListArray, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::Int32Type;
use datafusion::arrow::ipc::CompressionType;
use datafusion::arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::common::exec_datafusion_err;
use datafusion::error::Result;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, Encoding, ZstdLevel};
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use fastrand::Rng;
use kelpie_engine::Engine;
use tokio::time::timeout;

use super::thrift_integers::integers;
use crate::{KelpieSession, SessionOptions};

/// Rows of a file.
const ROWS: i64 = 90;

/// A query that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// The columns, and whether there is a least of their values.
const COLUMNS: [(&str, bool); 7] =
    [("a", true), ("s", true), ("f", true), ("d", true), ("t", true), ("b", true), ("l", false)];

/// A file as it should be.
#[derive(Debug, Clone)]
pub struct SoundFile {
    /// What it is, for people.
    pub name: &'static str,
    /// Of its name.
    pub extension: &'static str,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// What was found over damaged files.
#[derive(Debug, Default)]
pub struct DamageReport {
    /// Queries that gave an answer.
    pub answers: usize,
    /// Queries that failed, as they should.
    pub errors: usize,
    /// What must not be.
    pub problems: Vec<String>,
}

/// Some rows of several types, from a number on.
fn batch(first: i64, rows: i64) -> Result<RecordBatch> {
    let numbers = || first..first + rows;
    let some = |n: i64, value: i64| (n % 7 != 0).then_some(value);
    let decimals: Decimal128Array = numbers().map(|n| some(n, n * 31).map(i128::from)).collect();
    let lists = numbers().map(|n| some(n, n).map(|n| (0..n % 4).map(|item| Some(item as i32))));
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("a", Arc::new(numbers().map(|n| some(n, n * 7919 % 1009)).collect::<Int64Array>()), true),
        ("s", Arc::new(StringArray::from_iter_values(numbers().map(|n| format!("text {}", n % 11)))), false),
        ("f", Arc::new(Float64Array::from_iter_values(numbers().map(|n| n as f64 / 3.0))), false),
        ("d", Arc::new(decimals.with_precision_and_scale(12, 2)?), true),
        (
            "t",
            Arc::new(TimestampMicrosecondArray::from_iter_values(numbers().map(|n| n * 86_400_000_000))),
            false,
        ),
        ("b", Arc::new(numbers().map(|n| some(n, n).map(|n| n % 2 == 0)).collect::<BooleanArray>()), true),
        ("l", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)), true),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

/// Files of all formats, encodings and compressions, each with all columns.
pub fn sound_files() -> Result<Vec<SoundFile>> {
    let plain = || WriterProperties::builder().set_max_row_group_row_count(Some(40));
    let pages = || plain().set_data_page_row_count_limit(10).set_write_batch_size(5);
    let delta = |properties: datafusion::parquet::file::properties::WriterPropertiesBuilder| {
        properties
            .set_column_encoding("a".into(), Encoding::DELTA_BINARY_PACKED)
            .set_column_encoding("t".into(), Encoding::DELTA_BINARY_PACKED)
            .set_column_encoding("s".into(), Encoding::DELTA_BYTE_ARRAY)
    };
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let mut files = Vec::new();
    for (name, properties) in [
        ("dictionaries, snappy", pages().set_compression(Compression::SNAPPY)),
        ("plain, uncompressed", plain().set_dictionary_enabled(false)),
        (
            "plain, version 2, lz4",
            pages()
                .set_dictionary_enabled(false)
                .set_writer_version(WriterVersion::PARQUET_2_0)
                .set_compression(Compression::LZ4_RAW),
        ),
        (
            "deltas, version 2, zstd",
            delta(pages().set_dictionary_enabled(false))
                .set_writer_version(WriterVersion::PARQUET_2_0)
                .set_compression(zstd),
        ),
        ("no statistics", plain().set_statistics_enabled(EnabledStatistics::None)),
        (
            "Bloom filters",
            plain().set_bloom_filter_enabled(true).set_compression(Compression::GZIP(Default::default())),
        ),
    ] {
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch(0, 1)?.schema(), Some(properties.build()))?;
        writer.write(&batch(0, ROWS)?)?;
        writer.close()?;
        files.push(SoundFile { name, extension: "parquet", bytes });
    }
    let compressed = |with| IpcWriteOptions::default().try_with_compression(Some(with)).ok();
    for (name, options) in [
        ("Arrow, uncompressed", Some(IpcWriteOptions::default())),
        ("Arrow, lz4", compressed(CompressionType::LZ4_FRAME)),
        ("Arrow, zstd", compressed(CompressionType::ZSTD)),
    ] {
        let (Some(options), schema) = (options, batch(0, 1)?.schema()) else { continue };
        let mut bytes = Vec::new();
        let mut file = FileWriter::try_new_with_options(&mut bytes, &schema, options.clone())?;
        let mut stream = StreamWriter::try_new_with_options(Cursor::new(Vec::new()), &schema, options)?;
        for first in (0..ROWS).step_by(40) {
            let batch = batch(first, 40.min(ROWS - first))?;
            file.write(&batch)?;
            stream.write(&batch)?;
        }
        file.finish()?;
        drop(file);
        files.push(SoundFile { name, extension: "arrow", bytes });
        files.push(SoundFile { name, extension: "arrow", bytes: stream.into_inner()?.into_inner() });
    }
    Ok(files)
}

/// Numbers that writers would not write.
const EXTREMES: [i64; 14] =
    [0, 1, -1, 2, 7, 39, 41, 1 << 20, i32::MAX as i64, i32::MIN as i64, 1 << 40, 1 << 62, i64::MAX, i64::MIN];

/// Changes something of a file; what, for people.
pub fn damage(file: &SoundFile, random: &mut Rng) -> (Vec<u8>, String) {
    let mut bytes = file.bytes.clone();
    let footer = footer_of(file);
    let anywhere = |random: &mut Rng| match random.bool() {
        true => random.usize(0..file.bytes.len()),
        // Footers are small, and most lies are there.
        false => random.usize(footer.start..footer.end.max(footer.start + 1)).min(file.bytes.len() - 1),
    };
    let what = match random.u8(0..10) {
        0 | 1 => {
            let (at, bit) = (anywhere(random), random.u8(0..8));
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} is flipped")
        }
        2 => {
            let (at, value) = (anywhere(random), [0, 0x7f, 0x80, 0xff][random.usize(0..4)]);
            let end = (at + random.usize(1..=8)).min(bytes.len());
            bytes[at..end].fill(value);
            format!("bytes {at}..{end} are {value}")
        }
        3 => {
            let (at, value) = (anywhere(random) & !7, EXTREMES[random.usize(0..EXTREMES.len())]);
            let end = (at + 8).min(bytes.len());
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            format!("bytes {at}..{end} are the number {value}")
        }
        4 if random.u8(0..4) == 0 => {
            let length = random.usize(0..bytes.len());
            bytes.truncate(length);
            format!("it is cut off at {length}")
        }
        _ if file.extension == "parquet" => {
            let places = integers(&bytes[footer.clone()]);
            let place = places[random.usize(0..places.len())].clone();
            let value = EXTREMES[random.usize(0..EXTREMES.len())];
            replace_integer(&mut bytes, &footer, &place, value);
            format!("the integer at {} of its footer is {value}", place.start)
        }
        _ => {
            let (at, value) =
                (random.usize(0..bytes.len() / 4) * 4, EXTREMES[random.usize(0..EXTREMES.len())]);
            let end = (at + 4).min(bytes.len());
            bytes[at..end].copy_from_slice(&(value as i32).to_le_bytes()[..end - at]);
            format!("bytes {at}..{end} are the number {}", value as i32)
        }
    };
    (bytes, format!("{}: {what}", file.name))
}

/// Where the metadata of a file stand.
pub fn footer_of(file: &SoundFile) -> Range<usize> {
    let trailer = if file.extension == "parquet" { 8 } else { 10 };
    let end = file.bytes.len().saturating_sub(trailer);
    let length = file.bytes.get(end..end + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    end.saturating_sub(length.unwrap_or(0) as usize)..end
}

/// Writes another integer into the footer of a Parquet file, which may become longer or shorter by that.
pub fn replace_integer(bytes: &mut Vec<u8>, footer: &Range<usize>, place: &Range<usize>, value: i64) {
    let mut left = ((value << 1) ^ (value >> 63)) as u64;
    let mut written = Vec::new();
    while left > 0x7f {
        written.push(left as u8 | 0x80);
        left >>= 7;
    }
    written.push(left as u8);
    let length = footer.len() - place.len() + written.len();
    bytes.splice(footer.start + place.start..footer.start + place.end, written);
    let trailer = footer.start + length;
    bytes[trailer..trailer + 4].copy_from_slice(&(length as u32).to_le_bytes());
}

/// Damages files by seeds and queries each, every second one on either device, and every second one of these by DataFusion's operators
/// alone.
pub async fn damage_and_query(
    seeds: Range<u64>,
    folder: &Path,
    engine: &Arc<Engine>,
    hear: impl Fn(u64, &str),
) -> Result<DamageReport> {
    let (files, mut report) = (sound_files()?, DamageReport::default());
    let mut sessions = Vec::new();
    for (device, least) in [("cpu", "0"), ("simt", "0"), ("cpu", "auto"), ("simt", "1000000")] {
        let options = SessionOptions::default().with_engine(Arc::clone(engine));
        let options = options
            .with("kelpie.device", device)
            .with("kelpie.min_rows", least)
            .with("kelpie.decoding", "device");
        sessions.push(KelpieSession::new(options)?);
    }
    for seed in seeds {
        let mut random = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let file = &files[random.usize(0..files.len())];
        let (bytes, what) = damage(file, &mut random);
        let name = format!("case{seed}.{}", file.extension);
        hear(seed, &what);
        let path = folder.join(&name);
        fs::write(&path, bytes)?;
        let session = &sessions[seed as usize % sessions.len()];
        let case = Case { session, path: &path, name: &name, what: &what };
        let column = COLUMNS[random.usize(0..COLUMNS.len())];
        case.query(column, &mut report).await?;
        fs::remove_file(&path)?;
    }
    Ok(report)
}

/// Whether an error says where in its file the damage is: in a column, or in what is none's.
fn names_a_part(text: &str) -> bool {
    const OF_NO_COLUMN: [&str; 12] = [
        "metadata", "schema", "its end", "not a Parquet file", "not an Arrow file", "cut off", "row group",
        "footer", "batch", "message", "dictionary", "header",
    ];
    text.contains("column ") || OF_NO_COLUMN.iter().any(|part| text.contains(part))
}

/// A damaged file.
struct Case<'a> {
    session: &'a KelpieSession,
    path: &'a Path,
    name: &'a str,
    what: &'a str,
}

impl Case<'_> {
    /// The same things of a column, asked of all rows and of groups.
    async fn query(&self, (column, ordered): (&str, bool), report: &mut DamageReport) -> Result<()> {
        let from = format!("from '{}'", self.path.display());
        let (least, of_least) = match ordered {
            true => (format!(", min({column}) lo, max({column}) hi"), ", min(lo), max(hi)"),
            false => (String::new(), ""),
        };
        let counts = format!("select count(*) n, count({column}) c{least} {from}");
        let queries = [
            counts.clone(),
            format!(
                "select coalesce(sum(n), 0), coalesce(sum(c), 0){of_least} from ({counts} group by {column} is null)"
            ),
            format!(
                "select count(*) n, coalesce(sum(case when {column} is null then 0 else 1 end), 0){} {from}",
                least.replace(" lo", "").replace(" hi", "")
            ),
            format!("select count(*) {from}"),
            format!("select count(*) {from} where {column} is not null"),
            format!("select {column} {from}"),
        ];
        let mut answers = BTreeMap::new();
        for (number, sql) in queries.iter().enumerate() {
            let Ok(answer) = timeout(PATIENCE, self.session.sql(sql)).await else {
                report.problems.push(format!("{} ({}): {sql}\n  hangs", self.name, self.what));
                return Ok(());
            };
            match answer {
                Ok(result) => {
                    report.answers += 1;
                    let rows = result.batches.iter().filter(|_| number < 5).flat_map(|batch| {
                        batch.columns().iter().map(|column| array_value_to_string(column, 0))
                    });
                    answers.insert(number, rows.collect::<std::result::Result<Vec<_>, _>>()?);
                }
                Err(error) => {
                    report.errors += 1;
                    let text = error.strip_backtrace();
                    // A file whose schema is another one has other columns.
                    let names_file = text.contains(self.name) && names_a_part(&text);
                    if !names_file && !text.contains("there is no column") {
                        report.problems.push(format!("{} ({}): {sql}\n  {text}", self.name, self.what));
                    }
                }
            }
        }
        let differ = |other: &usize, place: usize, of: usize| {
            let (all, other) = (answers.get(&0)?, answers.get(other)?);
            (all.get(of)? != other.get(place)?).then(|| format!("{all:?} and {other:?}"))
        };
        let pairs = [
            (1, 0, 0),
            (1, 1, 1),
            (1, 2, 2),
            (1, 3, 3),
            (2, 0, 0),
            (2, 1, 1),
            (2, 2, 2),
            (3, 0, 0),
            (4, 0, 1),
        ];
        for (query, place, of) in pairs {
            if let Some(difference) = differ(&query, place, of) {
                let sql = queries.get(query).ok_or_else(|| exec_datafusion_err!("there is such a query"))?;
                report.problems.push(format!("{} ({}): {sql}\n  {difference}", self.name, self.what));
            }
        }
        Ok(())
    }
}
