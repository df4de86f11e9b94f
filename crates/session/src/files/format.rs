//! Formats of files, by the extension of their names.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::error::{DataFusionError, Result};

use super::dialect::Dialect;
use super::error::at;
use super::options::ReadOptions;

/// What is read, for people.
pub(super) const KNOWN: &str = "Parquet, CSV, JSON or Arrow file (.parquet, .csv, .tsv, .tab, .txt, .json, .jsonl, .ndjson, \
                                .arrow, .arrows, .ipc, .feather; text also as .gz, .bz2, .xz, .zst)";

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    pub kind: Kind,
    pub compression: FileCompressionType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Parquet,
    Csv,
    /// Fields between tabs.
    Tsv,
    /// Lines of whatever the first one shows. A folder may have such files for people beside its data.
    Txt,
    Json,
    Arrow,
}

impl Format {
    /// The format of a file, by its name.
    pub fn of(path: &Path) -> Option<Format> {
        let (extension, compression) = match lower_extension(path)?.as_str() {
            "gz" => (Path::new(path.file_stem()?), FileCompressionType::GZIP),
            "bz2" => (Path::new(path.file_stem()?), FileCompressionType::BZIP2),
            "xz" => (Path::new(path.file_stem()?), FileCompressionType::XZ),
            "zst" => (Path::new(path.file_stem()?), FileCompressionType::ZSTD),
            _ => (path, FileCompressionType::UNCOMPRESSED),
        };
        let kind = match lower_extension(extension)?.as_str() {
            "csv" => Kind::Csv,
            "tsv" | "tab" => Kind::Tsv,
            "txt" => Kind::Txt,
            "json" | "jsonl" | "ndjson" => Kind::Json,
            "parquet" if !compression.is_compressed() => Kind::Parquet,
            "arrow" | "arrows" | "ipc" | "feather" if !compression.is_compressed() => Kind::Arrow,
            _ => return None,
        };
        Some(Format { kind, compression })
    }

    /// The format of a file that is one of a kind, whatever its name ends in; nothing where a file of that kind is never compressed so.
    pub fn read_as(path: &Path, kind: Kind) -> Option<Format> {
        match Format::of(path) {
            Some(format) if format.kind == kind || kind == Kind::Csv && format.is_text_by_place() => {
                Some(format)
            }
            Some(format) => Some(Format { kind, ..format }),
            None => {
                let compression = match lower_extension(path).as_deref() {
                    Some("gz") => FileCompressionType::GZIP,
                    Some("bz2") => FileCompressionType::BZIP2,
                    Some("xz") => FileCompressionType::XZ,
                    Some("zst") => FileCompressionType::ZSTD,
                    _ => FileCompressionType::UNCOMPRESSED,
                };
                let is_text = !matches!(kind, Kind::Parquet | Kind::Arrow);
                (is_text || !compression.is_compressed()).then_some(Format { kind, compression })
            }
        }
    }

    /// Whether a column is what stands at its place in a line, so that none can be left out.
    pub fn is_text_by_place(self) -> bool {
        matches!(self.kind, Kind::Csv | Kind::Tsv | Kind::Txt)
    }

    /// What writes such files; text in the dialect of the files that are there.
    pub fn writer(self, dialect: Option<&Dialect>, options: &ReadOptions) -> Arc<dyn FileFormat> {
        match self.kind {
            Kind::Parquet => {
                Arc::new(ParquetFormat::default().with_options(options.parquet.as_ref().clone()))
            }
            Kind::Arrow => Arc::new(ArrowFormat),
            Kind::Json => Arc::new(JsonFormat::default().with_file_compression_type(self.compression)),
            Kind::Csv | Kind::Tsv | Kind::Txt => {
                let mut format = CsvFormat::default().with_options(options.csv.as_ref().clone());
                format = format.with_has_header(options.has_header.unwrap_or(true));
                if let Some(dialect) = dialect {
                    format = format.with_delimiter(dialect.delimiter).with_has_header(dialect.has_header);
                }
                Arc::new(format.with_file_compression_type(self.compression))
            }
        }
    }
}

/// That a file is of no known format.
pub(super) fn not_read(path: &Path) -> DataFusionError {
    const ANY_NAME: &str = "read_csv('…'), read_parquet('…') and read_json('…') read files of any name";
    match lower_extension(path) {
        Some(ending) => at(path, format!("no {KNOWN}: .{ending} is not read. {ANY_NAME}")),
        None => at(path, format!("no {KNOWN}: its name has no ending. {ANY_NAME}")),
    }
}

fn lower_extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

/// Whether a file is one JSON array.
pub(super) fn begins_with_bracket(path: &Path) -> Result<bool> {
    const LOOKED_AT: u64 = 4096;
    let mut start = Vec::new();
    let file = File::open(path).map_err(|error| at(path, error))?;
    file.take(LOOKED_AT).read_to_end(&mut start).map_err(|error| at(path, error))?;
    Ok(start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'['))
}
