//! Writes results as their rows come: to the standard output or a file, in any of the formats.

mod binary;
mod csv;
mod file;
mod json;
mod table;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;

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
    file: File,
    stopped: Arc<AtomicBool>,
    /// A spinner that vanishes before the first byte.
    spinner: Option<Arc<Progress>>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(spinner) = self.spinner.take() {
            spinner.clear();
        }
        match self.stopped.load(Ordering::Relaxed) {
            true => Err(io::Error::other("cancelled")),
            false => self.file.write(&bytes[..bytes.len().min(WRITE_BYTES)]),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Where results go. A file is made when the first result is there, and takes its name when all are: a query that fails
/// replaces nothing.
pub struct Output {
    format: Format,
    path: Option<PathBuf>,
    file: Option<ResultFile>,
    results: usize,
    /// Rows of a table that are shown: the user's number, or the default. 0 is all.
    pub max_rows: Option<usize>,
}

impl Output {
    pub fn new(format: Format, path: Option<PathBuf>, max_rows: Option<usize>) -> Output {
        Output { format, path, file: None, results: 0, max_rows }
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
        let out = BufWriter::with_capacity(WRITE_BYTES, Pipe { file, stopped: Arc::clone(stopped), spinner });
        let writer: Result<Box<dyn RowWriter>> = match self.format {
            Format::Table => Ok(Box::new(table::TableWriter::new(out, schema, self.row_limit()))),
            Format::Csv => csv::CsvWriter::new(out, schema).map(|writer| Box::new(writer) as _),
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
