//! CSV: a file's own columns by its header, and its rows in the types of the table.

use std::io::{BufRead, Read};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::FormatOptions;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::error::Result;

use kelpie_datafusion::{Batches, Quoting};

use super::csv_columns::{CsvBatches, reads};
use super::csv_rows::{CsvRows, Cut};
use super::csv_types::{Kinds, is_cut_off};
use super::encoding::{decoded, encoding_of};
use super::file_scan::{FileScan, Filling, Layout, Shape};
use super::header::{FirstFile, Named, add, first_line, given_names, given_types, named};
use super::rewritten::{Rewriting, rewritten};
use super::sniffed::{Beginning, sniffed};
use super::text::{self, Piece, Text};
use crate::files::dialect::Dialect;
use crate::files::error::at;
use crate::files::format::{Format, Kind};
use crate::files::forms::Forms;
use crate::files::given::Given;
use crate::files::misfit::{NOT_UTF8, other_lengths};
use crate::files::options::ReadOptions;

/// What some programs write at the beginning of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Bytes at the beginning of a file that show how its lines are written.
const SNIFFED_BYTES: usize = 1 << 16;
/// Rows that are looked at at once.
const ROWS_AT_ONCE: usize = 8192;

/// A file, and what is said of how it is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct CsvFile<'a> {
    pub path: &'a Path,
    pub format: Format,
    pub options: &'a ReadOptions,
}

impl CsvFile<'_> {
    /// How its lines are written.
    fn dialect(&self) -> Result<Dialect> {
        let CsvFile { path, format, options } = *self;
        let (csv, given) = (&options.csv, &options.given);
        text::check_compression(path, format.compression)?;
        let failed = |error| at(path, error);
        let mut bytes = Vec::new();
        text::whole(path, format.compression)?.take(4).read_to_end(&mut bytes).map_err(failed)?;
        let mut dialect = Dialect {
            has_header: options.has_header.unwrap_or(true),
            terminator: csv.terminator,
            truncated_rows: csv.truncated_rows.unwrap_or(false),
            skip: given.skip.unwrap_or(0),
            nulls: given.nulls.clone(),
            encoding: encoding_of(path, &bytes, given.encoding)?,
            forms: given.forms.clone(),
            rewriting: Rewriting { comment: csv.comment, ..Rewriting::default() },
            ..Dialect::plain(b',', csv.quote)
        };
        let mut start = Vec::new();
        let text = whole(path, format.compression, &dialect)?;
        text.take(SNIFFED_BYTES as u64).read_to_end(&mut start).map_err(failed)?;
        let sniffed = sniffed(
            Beginning {
                text: &start,
                is_cut: start.len() == SNIFFED_BYTES,
                delimiter: self.delimiter(),
                quote: csv.quote,
                may_have_title: given.skip.is_none() && csv.terminator.is_none(),
            },
            &dialect,
        );
        dialect.delimiter = sniffed.delimiter;
        dialect.skip += sniffed.title_lines;
        dialect.rewriting.escape =
            csv.escape.or(sniffed.escape).filter(|escape| *escape != csv.quote && *escape != 0);
        dialect.rewriting.empty_rows = sniffed.is_one_column && csv.terminator.is_none();
        Ok(dialect)
    }

    /// What is known to stand between values.
    fn delimiter(&self) -> Option<u8> {
        let of_session = Some(self.options.csv.delimiter).filter(|delimiter| *delimiter != b',');
        let of_name = (self.format.kind == Kind::Tsv).then_some(b'\t');
        self.options.given.delimiter.or(of_session).or(of_name)
    }
}

/// The text of a file from its header on, as readers take it.
pub(super) fn whole(path: &Path, compression: FileCompressionType, dialect: &Dialect) -> Result<Text> {
    readable(text::whole(path, compression)?, dialect, path)
}

/// A text from the beginning of its file on.
fn readable(text: Text, dialect: &Dialect, path: &Path) -> Result<Text> {
    let failed = |error| at(path, error);
    let mut text = decoded(text, dialect.encoding, path);
    if text.fill_buf().map_err(failed)?.starts_with(BYTE_ORDER_MARK) {
        text.consume(BYTE_ORDER_MARK.len());
    }
    let text = dialect.after_skipped(text).map_err(failed)?;
    Ok(rewritten(text, dialect.rewriting, dialect.delimiter, dialect.quote))
}

/// What a file is like, as far as nothing that a table's first file says makes it clearer.
pub(super) fn shape(file: &CsvFile<'_>, of_table: Option<&FirstFile>) -> Result<Shape> {
    let CsvFile { path, options, .. } = *file;
    let mut dialect = file.dialect()?;
    let most = options.infer_rows.unwrap_or(usize::MAX);
    let looked = match LookedAt::of(file, &dialect, most) {
        Some(looked) => Some(looked),
        None => LookedAt::row_by_row(file, &dialect, most)?,
    };
    let Some(LookedAt { first, mut columns, rows }) = looked else {
        let (schema, layout) = (Arc::new(Schema::empty()), Layout::Csv(dialect));
        return Ok(Shape { schema, layout, is_complete: true, note: None });
    };
    let is_complete = rows < most;
    let looks = first_line(&first, (rows > 0).then_some(&columns.kinds[..]), &dialect);
    let named = named(&first, options.has_header, looks, of_table);
    dialect.has_header = named.has_header;
    if !named.has_header {
        columns
            .add(&first, &dialect)
            .map_err(|problem| at(path, format!("line {}{problem}", dialect.skip + 1)))?;
    }
    let note = note(path, &named, &dialect, &options.given);
    let names = given_names(named.names, &options.given).map_err(|problem| at(path, problem))?;
    let fields = names.into_iter().zip(columns.kinds).map(|(name, kinds)| {
        let data_type = match kinds.data_type() {
            // Values may come after the rows that were looked at.
            DataType::Null if !is_complete => DataType::Utf8,
            other => other,
        };
        Field::new(name, data_type, true)
    });
    let fields = given_types(fields.collect(), &options.given).map_err(|problem| at(path, problem))?;
    Ok(Shape { schema: Arc::new(Schema::new(fields)), layout: Layout::Csv(dialect), is_complete, note })
}

/// What somebody may not expect of how a file was taken.
fn note(path: &Path, named: &Named, dialect: &Dialect, given: &Given) -> Option<String> {
    let is_named = !given.names.is_empty() || !given.columns.is_empty();
    let header = (named.has_made_names && !is_named).then(|| {
        let names = named.names.iter().take(2).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if named.names.len() > 2 { ", …" } else { "" };
        format!(
            "the first line looks like data and is a row, so the columns are named {names}{more}: read_csv('…', header = true) \
             takes it for a header"
        )
    });
    let title = (given.skip.is_none() && dialect.skip > 0).then(|| {
        format!(
            "the table begins at line {}, and what stands before it is left out: read_csv('…', skip = 0) reads it too",
            dialect.skip + 1
        )
    });
    let notes: Vec<String> = title.into_iter().chain(header).collect();
    (!notes.is_empty()).then(|| format!("{}: {}", path.display(), notes.join("; ")))
}

/// The names of a first line as they stand there.
fn names_for_errors(first: &csv::ByteRecord) -> Vec<String> {
    first.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// The first rows of a file.
struct LookedAt {
    first: csv::ByteRecord,
    columns: Columns,
    /// Rows behind the first.
    rows: usize,
}

impl LookedAt {
    /// Some rows of a file, column by column; nothing where there is none, or one is odd.
    fn of(file: &CsvFile<'_>, dialect: &Dialect, most: usize) -> Option<LookedAt> {
        if !dialect.rows_are_plain() || file.options.given.ignores_errors {
            return None;
        }
        let text = || whole(file.path, file.format.compression, dialect).ok();
        let mut first = csv::ByteRecord::new();
        dialect.records(text()?, true).read_byte_record(&mut first).ok().filter(|is_there| *is_there)?;
        let mut columns = Columns::of(&first);
        let all: Vec<usize> = (0..first.len()).collect();
        let quoting = Quoting { delimiter: dialect.delimiter, quote: dialect.quote };
        let cut = Cut { quoting, columns: Some(first.len()), may_be_short: dialect.truncated_rows };
        let mut cut_rows = CsvRows::new(text()?, cut, &all);
        cut_rows.advance(1).ok()?;
        let mut rows = 0;
        while rows < most {
            let Some(more) = cut_rows.advance((most - rows).min(ROWS_AT_ONCE)).ok()? else { break };
            rows += more.rows;
            for (column, kinds) in columns.kinds.iter_mut().enumerate() {
                for value in more.values(column) {
                    if kinds.are_texts() {
                        break;
                    }
                    add(kinds, &value?, dialect);
                }
            }
        }
        Some(LookedAt { first, columns, rows })
    }

    /// The same row by row, to name the line that is none; nothing of a file without rows.
    fn row_by_row(file: &CsvFile<'_>, dialect: &Dialect, most: usize) -> Result<Option<LookedAt>> {
        let CsvFile { path, format, options } = *file;
        let mut records = dialect.records(whole(path, format.compression, dialect)?, true);
        let (mut first, mut record) = (csv::ByteRecord::new(), csv::ByteRecord::new());
        let mut next =
            |record: &mut csv::ByteRecord| records.read_byte_record(record).map_err(|error| at(path, error));
        if !next(&mut first)? {
            return Ok(None);
        }
        let mut columns = Columns::of(&first);
        let mut rows = 0;
        while rows < most && next(&mut record)? {
            rows += 1;
            let added = columns.add(&record, dialect);
            if let Some(problem) = added.err().filter(|_| !options.given.ignores_errors) {
                let line = record.position().map_or(0, csv::Position::line) + dialect.skip as u64;
                return Err(at(path, format!("line {line}{problem}")));
            }
        }
        Ok(Some(LookedAt { first, columns, rows }))
    }
}

/// The columns of a file, and what was seen of them.
#[derive(Debug)]
struct Columns {
    names: Vec<String>,
    kinds: Vec<Kinds>,
}

impl Columns {
    /// Those of which a first line has the names.
    fn of(first: &csv::ByteRecord) -> Columns {
        Columns { names: names_for_errors(first), kinds: vec![Kinds::default(); first.len()] }
    }

    /// Adds a row, or says why it is none.
    fn add(&mut self, record: &csv::ByteRecord, dialect: &Dialect) -> std::result::Result<(), String> {
        let (found, columns) = (record.len(), self.names.len());
        if found > columns || (found < columns && !dialect.truncated_rows) {
            return Err(format!(
                " has {found} values, and the first line {columns}. Other signs between values, other quotes, and lines that are no \
                 data are options of: read_csv('…', delim = ';', quote = '', skip = 1, comment = '#'){}",
                other_lengths(found, columns)
            ));
        }
        for ((name, kinds), value) in self.names.iter().zip(&mut self.kinds).zip(record) {
            let text = std::str::from_utf8(value);
            let text = text.map_err(|_| format!(", column {name}: {NOT_UTF8}"))?;
            add(kinds, text, dialect);
        }
        Ok(())
    }
}

/// The columns of a file in the types of the table.
pub(super) fn schema_of(scan: &FileScan) -> Schema {
    let fields = scan.shape.schema.fields().iter().enumerate().map(|(place, field)| {
        let wanted = scan.places.iter().position(|known| *known == Some(place));
        let data_type = wanted.map_or(DataType::Utf8, |column| scan.wanted.field(column).data_type().clone());
        Field::new(field.name(), data_type, true)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// The same as they are read: as they are written where the reader would cut off what a value has more than its type, and not all values
/// were looked at, or where it is written in another form than the reader takes.
pub(super) fn schema_as_read(scan: &FileScan, forms: &Forms) -> Schema {
    let mut schema = schema_of(scan);
    let fields = schema.fields.iter().map(|field| match field.data_type() {
        DataType::Date32 | DataType::Timestamp(..) | DataType::Decimal128(..) if !scan.shape.is_complete => {
            Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8))
        }
        other if forms.concern(other) => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
        _ => Arc::clone(field),
    });
    schema.fields = fields.collect();
    schema
}

/// Values as they are written in the type of their column.
pub(super) fn typed(values: &ArrayRef, data_type: &DataType, forms: &Forms) -> Result<ArrayRef> {
    if values.data_type() == data_type {
        return Ok(Arc::clone(values));
    }
    let written = match values.as_string_opt::<i32>() {
        Some(texts) if forms.concern(data_type) => Some(plain(texts, data_type, forms)?),
        _ => None,
    };
    let values = written.as_ref().unwrap_or(values);
    if let Some(texts) = values.as_string_opt::<i32>()
        && let Some(value) = texts.iter().flatten().find(|value| is_cut_off(value, data_type))
    {
        return Err(ArrowError::CastError(format!("'{value}' is no {data_type}")).into());
    }
    let options = CastOptions { safe: false, format_options: FormatOptions::default() };
    Ok(cast_with_options(values, data_type, &options)?)
}

/// Values in the form that Arrow reads.
fn plain(texts: &StringArray, data_type: &DataType, forms: &Forms) -> Result<ArrayRef> {
    let plain = texts.iter().map(|value| {
        let Some(value) = value else { return Ok(None) };
        match forms.plain_as(value, data_type) {
            Some(plain) => Ok(Some(plain)),
            None => Err(ArrowError::CastError(format!("'{value}' is no {data_type}"))),
        }
    });
    Ok(Arc::new(plain.collect::<std::result::Result<StringArray, ArrowError>>()?))
}

/// Rows of a batch: a reader has memory for all values of one, however few there are in the file.
fn rows_at_once(scan: &FileScan) -> usize {
    const MOST_VALUES: usize = 1 << 20;
    const LEAST_ROWS: usize = 64;
    let columns = scan.shape.schema.fields().len().max(1);
    scan.batch_size.min((MOST_VALUES / columns).max(LEAST_ROWS))
}

/// The rows of a piece of a file.
pub(super) fn open(scan: &FileScan, dialect: &Dialect, piece: Piece) -> Result<Batches> {
    // A file of blank lines, if any.
    if scan.shape.schema.fields().is_empty() {
        return Ok(Box::new(std::iter::empty()));
    }
    let dialect = Dialect { has_header: dialect.has_header && piece.start == 0, ..dialect.clone() };
    let mut text = text::piece(&scan.path, scan.format.compression, piece)?;
    text = match piece.start {
        0 => readable(text, &dialect, &scan.path)?,
        _ => rewritten(text, dialect.rewriting, dialect.delimiter, dialect.quote),
    };
    let filling = Filling::new(scan);
    let quoting = Quoting { delimiter: dialect.delimiter, quote: dialect.quote };
    if dialect.rows_are_plain() {
        let (schema, read) = (schema_of(scan), scan.read());
        if read.iter().all(|place| reads(schema.field(*place).data_type(), &dialect)) {
            let cut =
                Cut { quoting, columns: Some(schema.fields().len()), may_be_short: dialect.truncated_rows };
            let mut batches = CsvBatches {
                rows: CsvRows::new(text, cut, &read),
                schema: Arc::new(schema.project(&read)?),
                is_complete: scan.shape.is_complete,
                path: scan.path.clone(),
                batch_size: scan.batch_size,
                dialect,
            };
            if batches.dialect.has_header {
                batches.skip_row()?;
            }
            return Ok(Box::new(
                batches.map(move |batch| filling.fill(&batch?, |array, _| Ok(Arc::clone(array)))),
            ));
        }
        text = text::closed(text, &scan.path, quoting);
    }
    let builder = dialect.reader(schema_as_read(scan, &dialect.forms));
    let builder = builder.with_batch_size(rows_at_once(scan)).with_projection(scan.read());
    let batches = builder.build_buffered(text).map_err(|error| at(&scan.path, error))?;
    Ok(Box::new(batches.map(move |batch| {
        filling.fill(&batch?, |array, column| {
            typed(array, filling.wanted.field(column).data_type(), &dialect.forms)
        })
    })))
}
