//! Writes results as their rows come: to the standard output or a file, in any of the formats.

mod binary;
mod csv;
mod display;
mod file;
mod json;
mod table;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::config::FormatOptions;
use flate2::write::GzEncoder;

use crate::args::Format;
use crate::progress::Progress;
use file::ResultFile;
pub use table::escaped;

/// Rows of a table on a terminal where nobody asked for more or less.
const ROWS_ON_A_TERMINAL: usize = 40;
/// Written at once: a slow reader must not delay the answer to Ctrl-C by more.
const WRITE_BYTES: usize = 64 << 10;

/// Takes the rows of one result.
pub trait RowWriter: Send {
    /// Writes rows.
    fn write(&mut self, batch: &RecordBatch) -> Result<()>;

    /// Writes what comes after the last row.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Where the bytes of a result go.
pub type Out = BufWriter<Pipe>;

/// A file or the standard output that takes nothing more once it is stopped.
pub struct Pipe {
    sink: Sink,
    stopped: Arc<AtomicBool>,
    /// A spinner that vanishes before the first byte.
    spinner: Option<Arc<Progress>>,
}

enum Sink {
    Plain(File),
    /// Flushed at the end of a result, which is the end of what is compressed together.
    Gzip(Box<GzEncoder<File>>),
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(spinner) = self.spinner.take() {
            spinner.clear();
        }
        if self.stopped.load(Ordering::Relaxed) {
            return Err(io::Error::other("cancelled"));
        }
        let bytes = &bytes[..bytes.len().min(WRITE_BYTES)];
        match &mut self.sink {
            Sink::Plain(file) => file.write(bytes),
            Sink::Gzip(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Plain(file) => file.flush(),
            Sink::Gzip(encoder) => encoder.try_finish(),
        }
    }
}

/// How a file is written: as the user says, else as its name does, else as a table; and whether its name says that it is compressed.
fn format_of(chosen: Option<Format>, path: Option<&Path>) -> Result<(Format, bool)> {
    let name =
        path.and_then(Path::file_name).map_or_else(String::new, |name| name.to_string_lossy().to_lowercase());
    let (plain, compression) = match name.rsplit_once('.') {
        Some((plain, ending @ ("gz" | "zst" | "bz2" | "xz"))) => (plain, Some(ending)),
        _ => (name.as_str(), None),
    };
    let named = match plain.rsplit_once('.').map(|(_, ending)| ending) {
        Some("csv") => Some(Format::Csv),
        Some("json" | "jsonl" | "ndjson") => Some(Format::Json),
        Some("parquet") => Some(Format::Parquet),
        Some("arrow" | "ipc" | "feather") => Some(Format::Arrow),
        _ => None,
    };
    let is_text = matches!(chosen.or(named), Some(Format::Csv | Format::Json));
    match compression {
        None => Ok((chosen.or(named).unwrap_or(Format::Table), false)),
        Some("gz") if is_text => Ok((chosen.or(named).unwrap_or(Format::Table), true)),
        Some(other) if named.is_some() && chosen.is_none() => {
            bail!("{name} cannot be written: only .csv and .json are compressed here, as .gz (not .{other})")
        }
        Some(_) => Ok((chosen.unwrap_or(Format::Table), false)),
    }
}

/// Where results go. A file is made when the first result is there, and takes its name when all are: a query that fails
/// replaces nothing.
pub struct Output {
    format: Format,
    is_compressed: bool,
    /// How the session shows values to people.
    pub display: FormatOptions,
    path: Option<PathBuf>,
    file: Option<ResultFile>,
    results: usize,
    /// Rows of a table that are shown: the user's number, or the default. 0 is all.
    pub max_rows: Option<usize>,
}

impl Output {
    pub fn new(format: Option<Format>, path: Option<PathBuf>, max_rows: Option<usize>) -> Result<Output> {
        let (format, is_compressed) = format_of(format, path.as_deref())?;
        let display = FormatOptions::default();
        Ok(Output { format, is_compressed, display, path, file: None, results: 0, max_rows })
    }

    /// Begins a result. One without columns (of `SET`, `CREATE TABLE`) is nothing.
    pub fn begin(
        &mut self,
        schema: &SchemaRef,
        stopped: &Arc<AtomicBool>,
        spinner: &Arc<Progress>,
    ) -> Result<Option<Box<dyn RowWriter>>> {
        if schema.fields().is_empty() {
            return Ok(None);
        }
        let binary = matches!(self.format, Format::Parquet | Format::Arrow);
        if binary && self.results > 0 {
            bail!("a Parquet or Arrow file holds one result: run one query");
        }
        if binary && self.path.is_none() && io::stdout().is_terminal() {
            bail!("this format is not for a terminal: give --output FILE, or redirect the output");
        }
        let (file, spinner) = match &self.path {
            None => (standard_output()?, Some(Arc::clone(spinner))),
            Some(path) => {
                let file = match &mut self.file {
                    Some(file) => file,
                    None => self.file.insert(ResultFile::create(path)?),
                };
                (file.begin()?, None)
            }
        };
        self.results += 1;
        let sink = match self.is_compressed {
            true => Sink::Gzip(Box::new(GzEncoder::new(file, flate2::Compression::default()))),
            false => Sink::Plain(file),
        };
        let out = BufWriter::with_capacity(WRITE_BYTES, Pipe { sink, stopped: Arc::clone(stopped), spinner });
        let writer: Result<Box<dyn RowWriter>> = match self.format {
            Format::Table => {
                Ok(Box::new(table::TableWriter::new(out, schema, self.row_limit(), &self.display)))
            }
            Format::Csv => {
                csv::CsvWriter::new(out, schema, &self.display).map(|writer| Box::new(writer) as _)
            }
            Format::Json => Ok(Box::new(json::JsonWriter::new(out))),
            Format::Parquet => binary::ParquetWriter::new(out, schema).map(|writer| Box::new(writer) as _),
            Format::Arrow => binary::ArrowFileWriter::new(out, schema).map(|writer| Box::new(writer) as _),
        };
        writer.with_context(|| self.place()).map(Some)
    }

    /// Rows of a table that are shown.
    fn row_limit(&self) -> Option<usize> {
        let on_terminal = self.path.is_none() && io::stdout().is_terminal();
        match self.max_rows {
            Some(0) => None,
            None if on_terminal => Some(ROWS_ON_A_TERMINAL),
            limit => limit,
        }
    }

    /// What a failed write says.
    pub fn place(&self) -> String {
        match &self.path {
            Some(path) => format!("cannot write {}", path.display()),
            None => "cannot write to the standard output".into(),
        }
    }

    /// Forgets the result that was begun last: it failed.
    pub fn take_back(&mut self) -> Result<()> {
        match &mut self.file {
            Some(file) => file.take_back(),
            None => Ok(()),
        }
    }

    /// All results are written: the file takes its name.
    pub fn complete(&mut self) -> Result<()> {
        match self.file.take() {
            Some(file) => file.complete(),
            None => Ok(()),
        }
    }
}

/// The standard output without a buffer and a lock: a thread that waits for a slow reader must not hold up the end of the
/// program.
fn standard_output() -> Result<File> {
    io::stdout().flush().context("cannot write to the standard output")?;
    #[cfg(unix)]
    let handle = std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned();
    #[cfg(windows)]
    let handle = std::os::windows::io::AsHandle::as_handle(&io::stdout()).try_clone_to_owned();
    Ok(handle.context("cannot write to the standard output")?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_how_a_file_is_written_unless_the_user_does() {
        let of = |chosen, name: &str| format_of(chosen, Some(Path::new(name))).ok();
        assert_eq!(of(None, "a/x.parquet"), Some((Format::Parquet, false)));
        assert_eq!(of(None, "X.CSV"), Some((Format::Csv, false)));
        assert_eq!(of(None, "x.csv.gz"), Some((Format::Csv, true)));
        assert_eq!(of(None, "x.jsonl.gz"), Some((Format::Json, true)));
        assert_eq!(of(None, "x.feather"), Some((Format::Arrow, false)));
        assert_eq!(of(None, "x.txt"), Some((Format::Table, false)));
        assert_eq!(of(None, "parquet"), Some((Format::Table, false)));
        assert_eq!(of(Some(Format::Json), "x.csv"), Some((Format::Json, false)));
        assert_eq!(of(Some(Format::Csv), "x.gz"), Some((Format::Csv, true)));
        assert_eq!(of(Some(Format::Table), "x.csv.gz"), Some((Format::Table, false)));
        assert_eq!(of(None, "x.csv.zst"), None);
        assert_eq!(of(None, "x.parquet.gz"), None);
        assert_eq!(format_of(None, None).ok(), Some((Format::Table, false)));
    }
}
