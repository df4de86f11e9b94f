//! Why a text file cannot be read: the first row that does not fit the table, by its true place.
//!
//! Readers count rows from the beginning of the range of bytes that each of them reads, and do not name the file. Where one has
//! failed, the files of its scan are read once more from their beginnings.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::csv::ReaderBuilder;
use datafusion::arrow::datatypes::{DataType, SchemaRef};

use super::dialect::Dialect;
use super::format::{Format, Kind};
use super::reader::{is_cut_off, wider_type};

/// Rows that are read at once until one fails.
pub(super) const ROWS_AT_ONCE: usize = 8192;
/// Characters of a value that an error shows.
const SHOWN_CHARS: usize = 80;

/// What is wrong with a text in another encoding, and what helps.
pub(super) const NOT_UTF8: &str =
    "the text is not UTF-8. Other encodings are an option: read_csv('…', encoding = 'latin-1')";

/// What helps where lines have more values than others, or fewer.
pub(super) fn other_lengths(found: usize, columns: usize) -> &'static str {
    match found < columns {
        true => {
            "; null_padding = true takes what is missing for NULL, ignore_errors = true leaves such lines out"
        }
        false => "; ignore_errors = true leaves such lines out",
    }
}

/// A row of a file that does not fit its table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    pub(super) path: PathBuf,
    /// Where the row begins; the first line is 1.
    pub(super) line: u64,
    pub(super) what: What,
}

/// What does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    Value {
        column: String,
        value: String,
        data_type: DataType,
        /// Whether somebody gave the type.
        is_given: bool,
    },
    Encoding {
        column: String,
    },
    Values {
        found: usize,
        columns: usize,
    },
    /// Of a JSON object.
    Key {
        key: String,
    },
    /// No JSON at all.
    Syntax {
        message: String,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: line {}", self.path.display(), self.line)?;
        match &self.what {
            What::Value { column, value, data_type, is_given } => {
                let shown: String = value.chars().take(SHOWN_CHARS).collect();
                let cut = if shown.len() < value.len() { "…" } else { "" };
                write!(f, ", column {column}: '{shown}{cut}' is no {data_type}, ")?;
                if *is_given {
                    return write!(
                        f,
                        "the type that the statement gives the column; one that has such values is '{}', and \
                         ignore_errors = true leaves such rows out",
                        wider_type(value, data_type)
                    );
                }
                f.write_str(
                    "which the column is taken for. Types that nobody gave come from the first rows: \
                     SET kelpie.infer_rows = 0 takes all of them into account",
                )?;
                match Format::of(&self.path).is_some_and(|format| format.kind == Kind::Json) {
                    true => Ok(()),
                    false => write!(
                        f,
                        "; or give the types: read_csv('…', types = {{'{column}': '{}'}})",
                        wider_type(value, data_type)
                    ),
                }
            }
            What::Encoding { column } => write!(f, ", column {column}: {NOT_UTF8}"),
            What::Key { key } => write!(
                f,
                ": the key {key} is in none of the rows that the table's columns were taken from: SET kelpie.infer_rows = 0 \
                 takes them from all rows"
            ),
            What::Syntax { message } => write!(f, ": no JSON: {message}"),
            What::Values { found, columns } => {
                let other = other_lengths(*found, *columns);
                write!(f, " has {found} values, and the table {columns} columns{other}")
            }
        }
    }
}

/// How the lines of a file are read.
pub(super) struct Scan<'a> {
    pub dialect: &'a Dialect,
    /// The columns of the file.
    pub schema: &'a SchemaRef,
    /// Those that are read.
    pub columns: &'a [usize],
}

impl Scan<'_> {
    /// The first row of a file that does not fit.
    pub fn find<R: Read>(&self, path: &Path, open: impl Fn() -> Option<R>) -> Option<Misfit> {
        if !self.dialect.forms.are_plain() {
            return self.find_by_row(path, open);
        }
        let builder = self.dialect.reader(self.schema.as_ref().clone());
        let builder = builder.with_projection(self.columns.to_vec()).with_batch_size(ROWS_AT_ONCE);
        let mut good_rows = 0;
        for batch in builder.build(open()?).ok()? {
            match batch {
                Ok(batch) => good_rows += batch.num_rows(),
                Err(_) => {
                    let (start, what) = self.find_after(good_rows, open()?)?;
                    let line = line_at(start, open()?)? + self.dialect.skip as u64;
                    return Some(Misfit { path: path.to_path_buf(), line, what });
                }
            }
        }
        // Readers take all of them, and cut off what some have more than their type.
        self.find_by_row(path, open)
    }

    /// The same, looking at each row by itself.
    fn find_by_row<R: Read>(&self, path: &Path, open: impl Fn() -> Option<R>) -> Option<Misfit> {
        let (start, what) = self.find_after(0, open()?)?;
        let line = line_at(start, open()?)? + self.dialect.skip as u64;
        Some(Misfit { path: path.to_path_buf(), line, what })
    }

    /// What does not fit in the first row that does not, after so many that do, and where it begins.
    fn find_after(&self, good_rows: usize, input: impl Read) -> Option<(u64, What)> {
        let mut records = self.dialect.records(input, false);
        let mut record = csv::ByteRecord::new();
        for _ in 0..good_rows {
            records.read_byte_record(&mut record).ok().filter(|more| *more)?;
        }
        while records.read_byte_record(&mut record).ok()? {
            if let Some(what) = self.misfit(&record) {
                return Some((record.position()?.byte(), what));
            }
        }
        None
    }

    /// A value as Arrow reads it in the type of its column.
    fn plain<'a>(&self, value: &'a str, data_type: &DataType) -> Option<Cow<'a, str>> {
        let forms = &self.dialect.forms;
        if forms.concern(data_type) { forms.plain_as(value, data_type) } else { Some(Cow::Borrowed(value)) }
    }

    /// What does not fit in a row.
    fn misfit(&self, record: &csv::ByteRecord) -> Option<What> {
        let (found, columns) = (record.len(), self.schema.fields().len());
        if found > columns || (found < columns && !self.dialect.truncated_rows) {
            return Some(What::Values { found, columns });
        }
        let name = |column: usize| self.schema.field(column).name().clone();
        if let Some(column) = record.iter().position(|value| std::str::from_utf8(value).is_err()) {
            return Some(What::Encoding { column: name(column) });
        }
        let shown = |column: usize, value: &[u8]| {
            let value = String::from_utf8_lossy(value).into_owned();
            What::Value {
                column: name(column),
                value,
                data_type: self.schema.field(column).data_type().clone(),
                is_given: false,
            }
        };
        let cut_off = self.columns.iter().find_map(|column| {
            let value = record.get(*column)?;
            let data_type = self.schema.field(*column).data_type();
            let text = self.plain(std::str::from_utf8(value).ok()?, data_type);
            let is_cut_off = text.is_none_or(|text| is_cut_off(&text, data_type));
            is_cut_off.then(|| shown(*column, value))
        });
        if cut_off.is_some() {
            return cut_off;
        }
        // The row alone, as any reader of CSV takes it.
        let mut alone = csv::Writer::from_writer(Vec::new());
        let mut whole = csv::ByteRecord::new();
        for (column, value) in record.iter().enumerate() {
            let plain = std::str::from_utf8(value).ok().and_then(|text| {
                self.plain(text, self.schema.field(column).data_type()).map(Cow::into_owned)
            });
            whole.push_field(plain.as_deref().map_or(value, str::as_bytes));
        }
        (found..columns).for_each(|_| whole.push_field(b""));
        alone.write_byte_record(&whole).ok()?;
        let alone = alone.into_inner().ok()?;
        let column = self.columns.iter().copied().find(|column| {
            let mut builder = ReaderBuilder::new(Arc::clone(self.schema)).with_projection(vec![*column]);
            if let Some(nulls) = self.dialect.null_pattern() {
                builder = builder.with_null_regex(nulls);
            }
            let batch = builder.build(alone.as_slice()).ok().and_then(|mut reader| reader.next());
            matches!(batch, Some(Err(_)))
        })?;
        Some(shown(column, record.get(column)?))
    }
}

/// The line of the row that begins at a byte, or after the ends of lines that are there.
fn line_at(start: u64, input: impl Read) -> Option<u64> {
    let mut line = 1;
    for (offset, byte) in std::io::BufReader::new(input).bytes().enumerate() {
        match byte.ok()? {
            b'\n' => line += 1,
            b'\r' => {}
            _ if offset as u64 >= start => return Some(line),
            _ => {}
        }
    }
    None
}
