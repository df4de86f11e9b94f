//! Writes results as their rows come: to the standard output or a file, in any of the formats.

mod binary;
mod csv;
mod display;
mod file;
mod fitted;
mod json;
mod layout;
mod line;
mod markdown;
mod pager;
mod plan;
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
pub use file::ResultFile;
use fitted::{Fit, FittedWriter};
use pager::Pager;
use plan::PlanWriter;
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

/// Writes text that has nothing behind the last row.
trait TextWriter: Send {
    /// Writes rows.
    fn rows(&mut self, batch: &RecordBatch) -> Result<()>;

    /// Where they go.
    fn out(&mut self) -> &mut Out;
}

impl<W: TextWriter> RowWriter for W {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows(batch)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        Ok(self.out().flush()?)
    }
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
    Paged(Pager),
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
            Sink::Paged(pager) => pager.write(bytes),
            Sink::Gzip(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Plain(file) => file.flush(),
            Sink::Paged(pager) => pager.flush(),
            Sink::Gzip(encoder) => encoder.try_finish(),
        }
    }
}

/// Endings of names that say how a file is written, for people.
const ENDINGS: &str = ".csv, .tsv, .json, .jsonl, .ndjson, .parquet, .arrow, .feather, .md or .txt (a table); .csv, .tsv and .json \
                       also with .gz";

/// How a file is written: as the user says, else as its name does, which must be known where it has an ending, else as a table; and
/// whether its name says that it is compressed.
fn format_of(chosen: Option<Format>, path: Option<&Path>) -> Result<(Format, bool)> {
    let name =
        path.and_then(Path::file_name).map_or_else(String::new, |name| name.to_string_lossy().to_lowercase());
    let (plain, compression) = match name.rsplit_once('.') {
        Some((plain, ending @ ("gz" | "zst" | "bz2" | "xz"))) => (plain, Some(ending)),
        _ => (name.as_str(), None),
    };
    let named = match plain.rsplit_once('.').map(|(_, ending)| ending) {
        Some("csv") => Some(Format::Csv),
        Some("tsv" | "tab") => Some(Format::Tsv),
        Some("json" | "jsonl" | "ndjson") => Some(Format::Json),
        Some("md") => Some(Format::Markdown),
        Some("parquet") => Some(Format::Parquet),
        Some("arrow" | "ipc" | "feather") => Some(Format::Arrow),
        Some("txt") => Some(Format::Table),
        None if compression.is_none() => Some(Format::Table),
        _ => None,
    };
    if chosen.is_none() && named.is_none() {
        bail!("{name}: no format is known by this ending: it may be {ENDINGS}; or say --format")
    }
    let is_text = matches!(chosen.or(named), Some(Format::Csv | Format::Tsv | Format::Json));
    match compression {
        None => Ok((chosen.or(named).unwrap_or(Format::Table), false)),
        Some("gz") if is_text => Ok((chosen.or(named).unwrap_or(Format::Table), true)),
        Some(other) if named.is_some() && chosen.is_none() => {
            bail!(
                "{name} cannot be written: only .csv, .tsv and .json are compressed here, as .gz (not .{other})"
            )
        }
        Some(_) => Ok((chosen.unwrap_or(Format::Table), false)),
    }
}

/// Where results go. A file is made when the first result is there, and takes its name when all are: a query that fails
/// replaces nothing.
pub struct Output {
    /// What the user said; where absent, the name of the file says it.
    chosen: Option<Format>,
    format: Format,
    is_compressed: bool,
    /// How the session shows values to people.
    pub display: FormatOptions,
    path: Option<PathBuf>,
    file: Option<ResultFile>,
    results: usize,
    /// Rows of a table that are shown: the user's number, or the default. 0 is all.
    pub max_rows: Option<usize>,
    /// Places that a table may be wide: the user's number, or the default. 0 is any.
    pub max_width: Option<usize>,
    /// Whether a pager shows what is longer than the screen.
    pub has_pager: bool,
}

impl Output {
    pub fn new(format: Option<Format>, path: Option<PathBuf>) -> Result<Output> {
        let (max_rows, max_width, display) = (None, None, FormatOptions::default());
        let (chosen, (format, is_compressed)) = (format, format_of(format, path.as_deref())?);
        let (file, results, has_pager) = (None, 0, false);
        Ok(Output {
            chosen,
            format,
            is_compressed,
            display,
            path,
            file,
            results,
            max_rows,
            max_width,
            has_pager,
        })
    }

    /// How results are written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Writes results in another form from now on.
    pub fn set_format(&mut self, format: Format) -> Result<()> {
        (self.format, self.is_compressed) = format_of(Some(format), self.path.as_deref())?;
        self.chosen = Some(format);
        Ok(())
    }

    /// Sends results to another file from now on, or to the standard output. The file so far takes its name.
    pub fn redirect(&mut self, path: Option<PathBuf>) -> Result<()> {
        let (format, is_compressed) = format_of(self.chosen, path.as_deref())?;
        self.complete()?;
        (self.format, self.is_compressed, self.path, self.results) = (format, is_compressed, path, 0);
        Ok(())
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
        display::check(&self.display)?;
        let binary = matches!(self.format, Format::Parquet | Format::Arrow);
        if binary && self.is_on_terminal() {
            bail!("this format is not for a terminal: give --output FILE, or redirect the output");
        }
        if binary && self.results > 0 {
            bail!("a Parquet or Arrow file holds one result: run one query");
        }
        let (sink, spinner) = match &self.path {
            None if self.is_paged() => {
                (Sink::Paged(Pager::new(standard_output()?, terminal().rows)), Some(Arc::clone(spinner)))
            }
            None => (Sink::Plain(standard_output()?), Some(Arc::clone(spinner))),
            Some(path) => {
                let file = match &mut self.file {
                    Some(file) => file,
                    None => self.file.insert(ResultFile::create(path)?),
                };
                let file = file.begin()?;
                let sink = match self.is_compressed {
                    true => Sink::Gzip(Box::new(GzEncoder::new(file, flate2::Compression::default()))),
                    false => Sink::Plain(file),
                };
                (sink, None)
            }
        };
        self.results += 1;
        let out = BufWriter::with_capacity(WRITE_BYTES, Pipe { sink, stopped: Arc::clone(stopped), spinner });
        self.writer(out, schema).with_context(|| self.place()).map(Some)
    }

    fn writer(&self, out: Out, schema: &SchemaRef) -> Result<Box<dyn RowWriter>> {
        let display = &self.display;
        Ok(match self.format {
            Format::Table => match self.fit() {
                Some(fit) if PlanWriter::<Out>::is_for(schema) => Box::new(PlanWriter::new(out, fit.width)),
                Some(fit) => Box::new(FittedWriter::new(out, schema, fit, display)),
                None => Box::new(table::TableWriter::new(out, schema, self.row_limit(), display)),
            },
            Format::Line => Box::new(line::LineWriter::new(out, schema, display)),
            Format::Csv => Box::new(csv::CsvWriter::new(out, ',', schema, display)?),
            Format::Tsv => Box::new(csv::CsvWriter::new(out, '\t', schema, display)?),
            Format::Json => Box::new(json::JsonWriter::new(out)),
            Format::Markdown => Box::new(markdown::MarkdownWriter::new(out, schema, display)?),
            Format::Parquet => Box::new(binary::ParquetWriter::new(out, schema)?),
            Format::Arrow => Box::new(binary::ArrowFileWriter::new(out, schema)?),
        })
    }

    fn is_on_terminal(&self) -> bool {
        self.path.is_none() && io::stdout().is_terminal()
    }

    /// Whether a pager shows what is longer than the screen.
    pub fn is_paged(&self) -> bool {
        self.has_pager && self.is_on_terminal()
    }

    /// How tables are fitted, where they are: on a terminal, and wherever the user gave a width. A program that reads a table gets
    /// all of it.
    fn fit(&self) -> Option<Fit> {
        let on_terminal = self.is_on_terminal();
        let width = match self.max_width {
            Some(0) if on_terminal => usize::MAX,
            Some(0) => return None,
            Some(width) => width,
            // The pager shows what is beside the screen.
            None if self.is_paged() => usize::MAX,
            None if on_terminal => terminal().columns,
            None => return None,
        };
        // Not every pager passes colours on.
        let is_coloured = on_terminal && !self.is_paged() && console::colors_enabled();
        Some(Fit { width, row_limit: self.row_limit(), is_coloured })
    }

    /// Rows of a table that are shown.
    fn row_limit(&self) -> Option<usize> {
        match self.max_rows {
            Some(0) => None,
            None if self.is_on_terminal() && !self.is_paged() => Some(ROWS_ON_A_TERMINAL),
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

    /// The result that was begun is whole: no later statement that fails takes it back.
    pub fn keep(&mut self) {
        if let Some(file) = &mut self.file {
            file.keep();
        }
    }

    /// Forgets the result of a statement that failed, where one was begun.
    pub fn take_back(&mut self) -> Result<()> {
        if let Some(file) = &mut self.file
            && file.take_back()?
        {
            self.results -= 1;
        }
        Ok(())
    }

    /// All results are written: the file takes its name.
    pub fn complete(&mut self) -> Result<()> {
        match self.file.take() {
            Some(file) => file.complete(),
            None => Ok(()),
        }
    }
}

/// Writes a plan, or the like, to the standard output: on a terminal in lines that fit.
pub fn write_text(text: &str) -> Result<()> {
    match io::stdout().is_terminal() {
        true => PlanWriter::new(io::stdout().lock(), terminal().columns).text(text),
        false => Ok(writeln!(io::stdout(), "{text}")?),
    }
}

/// The size of the terminal.
struct Terminal {
    rows: usize,
    columns: usize,
}

/// What the variables `LINES` and `COLUMNS` say, else the terminal; where neither does, as terminals once were.
fn terminal() -> Terminal {
    let variable = |name| std::env::var(name).ok().and_then(|text| text.trim().parse::<usize>().ok());
    let said = |name| variable(name).filter(|number| *number > 0);
    let (rows, columns) = console::Term::stdout().size_checked().unwrap_or_default();
    let of = |number: u16, usual| if number > 0 { usize::from(number) } else { usual };
    Terminal {
        rows: said("LINES").unwrap_or_else(|| of(rows, 24)),
        columns: said("COLUMNS").unwrap_or_else(|| of(columns, 80)),
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
