//! CSV: a file's own columns by its header, and its rows in the types of the table.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::FormatOptions;
use datafusion::error::Result;

use kelpie_datafusion::{Batches, Quoting};

use super::csv_types::{Kinds, is_cut_off};
use super::file_scan::{FileScan, Filling, Layout, Shape};
use super::text::{self, Piece};
use crate::files::dialect::Dialect;
use crate::files::error::at;
use crate::files::format::{Format, Kind};
use crate::files::given::Given;
use crate::files::options::ReadOptions;

/// Bytes at the beginning of a file that show what is between its values.
const SNIFFED_BYTES: usize = 1 << 16;
/// Lines of these that are compared.
const SNIFFED_LINES: usize = 20;
/// What may stand between values, where no comma does.
const OTHER_DELIMITERS: [u8; 3] = [b';', b'\t', b'|'];

/// How the lines of a file are written.
fn dialect_of(path: &Path, format: Format, options: &ReadOptions) -> Result<Dialect> {
    let csv = &options.csv;
    let chosen = options.given.delimiter.or((csv.delimiter != b',').then_some(csv.delimiter));
    text::check_compression(path, format.compression)?;
    let mut start = Vec::new();
    let mut dialect = Dialect {
        has_header: options.has_header,
        delimiter: b',',
        quote: csv.quote,
        escape: csv.escape,
        comment: csv.comment,
        terminator: csv.terminator,
        truncated_rows: csv.truncated_rows.unwrap_or(false),
        skip: options.given.skip,
        nulls: options.given.nulls.clone(),
    };
    let text = text::whole(path, format.compression)?;
    let text = dialect.after_skipped(text).map_err(|error| at(path, error))?;
    text.take(SNIFFED_BYTES as u64).read_to_end(&mut start).map_err(|error| at(path, error))?;
    text::check_encoding(path, &start)?;
    dialect.delimiter = match (chosen, format.kind) {
        (Some(chosen), _) => chosen,
        (None, Kind::Tsv) => b'\t',
        (None, _) => delimiter_of(&start, csv.quote),
    };
    Ok(dialect)
}

/// What stands between the values of these lines: a comma, unless none is in the first line and another one clearly is, or all
/// lines have as many of another one and not of commas.
fn delimiter_of(start: &[u8], quote: u8) -> u8 {
    let lines: Vec<&[u8]> = start.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    // The last line may be cut off.
    let whole = if start.len() < SNIFFED_BYTES { lines.len() } else { lines.len().saturating_sub(1).max(1) };
    let lines = &lines[..lines.len().min(whole).min(SNIFFED_LINES)];
    let Some((first, others)) = lines.split_first() else { return b',' };
    let commas = count(first, b',', quote);
    let is_even = |delimiter: u8| {
        let wanted = count(first, delimiter, quote);
        wanted > 0 && others.iter().all(|line| count(line, delimiter, quote) == wanted)
    };
    let best =
        OTHER_DELIMITERS.into_iter().max_by_key(|other| (is_even(*other), count(first, *other, quote)));
    match best {
        Some(other)
            if commas == 0
                && count(first, other, quote) > 0
                && (others.is_empty() || appears(others, other, quote)) =>
        {
            other
        }
        Some(other) if is_even(other) && !is_even(b',') && !others.is_empty() => other,
        _ => b',',
    }
}

fn appears(lines: &[&[u8]], delimiter: u8, quote: u8) -> bool {
    lines.iter().any(|line| count(line, delimiter, quote) > 0)
}

/// How often a byte stands in a line outside of quotes.
fn count(line: &[u8], wanted: u8, quote: u8) -> usize {
    let mut quoted = false;
    let mut found = 0;
    for byte in line {
        match *byte {
            byte if byte == quote => quoted = !quoted,
            byte if byte == wanted && !quoted => found += 1,
            _ => {}
        }
    }
    found
}

/// What a file is like.
pub(super) fn shape(path: &Path, format: Format, options: &ReadOptions) -> Result<Shape> {
    let dialect = dialect_of(path, format, options)?;
    let most = options.infer_rows.unwrap_or(usize::MAX);
    let text =
        dialect.after_skipped(text::whole(path, format.compression)?).map_err(|error| at(path, error))?;
    let mut records = dialect.records(text, true);
    let mut record = csv::ByteRecord::new();
    let mut columns: Option<Columns> = None;
    let mut rows = 0;
    while rows < most && records.read_byte_record(&mut record).map_err(|error| at(path, error))? {
        let columns = match &mut columns {
            None if dialect.has_header => {
                columns = Some(Columns::new(names_of(&record)));
                continue;
            }
            columns => columns.get_or_insert_with(|| {
                Columns::new((1..=record.len()).map(|number| format!("column_{number}")).collect())
            }),
        };
        rows += 1;
        columns.add(&record, &dialect).map_err(|problem| {
            let line = record.position().map_or(0, csv::Position::line) + dialect.skip as u64;
            at(path, format!("line {line}{problem}"))
        })?;
    }
    let is_complete = rows < most;
    let Columns { names, kinds } = columns.unwrap_or_default();
    let names = given_names(names, &options.given).map_err(|problem| at(path, problem))?;
    let fields = names.into_iter().zip(kinds).map(|(name, kinds)| {
        let data_type = match kinds.data_type() {
            // Values may come after the rows that were looked at.
            DataType::Null if !is_complete => DataType::Utf8,
            other => other,
        };
        Field::new(name, data_type, true)
    });
    let fields = given_types(fields.collect(), &options.given).map_err(|problem| at(path, problem))?;
    Ok(Shape { schema: Arc::new(Schema::new(fields)), layout: Layout::Csv(dialect), is_complete })
}

/// The names that a statement gives columns, the first ones or all.
fn given_names(mut names: Vec<String>, given: &Given) -> std::result::Result<Vec<String>, String> {
    let all: Vec<&String> = given.columns.iter().map(|(name, _)| name).collect();
    let wanted = if all.is_empty() { given.names.iter().collect() } else { all };
    if wanted.len() > names.len() || !given.columns.is_empty() && wanted.len() != names.len() {
        return Err(format!(
            "{} columns are given, and the first line has {} values",
            wanted.len(),
            names.len()
        ));
    }
    for (name, wanted) in names.iter_mut().zip(wanted) {
        name.clone_from(wanted);
    }
    match names.iter().enumerate().find(|(place, name)| names[..*place].contains(name)) {
        Some((_, twice)) => Err(format!("two columns are named {twice}")),
        None => Ok(names),
    }
}

/// Columns in the types that a statement gives them.
fn given_types(mut fields: Vec<Field>, given: &Given) -> std::result::Result<Vec<Field>, String> {
    if given.all_text {
        fields.iter_mut().for_each(|field| field.set_data_type(DataType::Utf8));
    }
    let columns = given.columns.iter().map(|(_, data_type)| data_type);
    for (field, data_type) in fields.iter_mut().zip(columns) {
        field.set_data_type(data_type.clone());
    }
    for (place, (name, data_type)) in given.types.iter().enumerate() {
        let found = match name {
            None => fields.get_mut(place),
            Some(name) => fields.iter_mut().find(|field| field.name().eq_ignore_ascii_case(name)),
        };
        match found {
            Some(field) => field.set_data_type(data_type.clone()),
            None => {
                let shown = name.clone().unwrap_or_else(|| format!("number {}", place + 1));
                return Err(format!("there is no column {shown}, which a type is given for"));
            }
        }
    }
    Ok(fields)
}

/// The columns of a file, and what was seen of them.
#[derive(Debug, Default)]
struct Columns {
    names: Vec<String>,
    kinds: Vec<Kinds>,
}

impl Columns {
    fn new(names: Vec<String>) -> Columns {
        Columns { kinds: vec![Kinds::default(); names.len()], names }
    }

    /// Adds a row, or says why it is none.
    fn add(&mut self, record: &csv::ByteRecord, dialect: &Dialect) -> std::result::Result<(), String> {
        let (found, columns) = (record.len(), self.names.len());
        if found > columns || (found < columns && !dialect.truncated_rows) {
            return Err(format!(
                " has {found} values, and the first line {columns}. Other signs between values, and other quotes, are options of: \
                 read_csv('…', delim = ';', quote = '')"
            ));
        }
        for ((name, kinds), value) in self.names.iter().zip(&mut self.kinds).zip(record) {
            let text = std::str::from_utf8(value);
            let text = text.map_err(|_| format!(", column {name}: the text is not UTF-8"))?;
            if !dialect.is_null(text) {
                kinds.add(text);
            }
        }
        Ok(())
    }
}

/// The names of a header: those that are empty, or there before, get numbers.
fn names_of(record: &csv::ByteRecord) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(record.len());
    let given: Vec<String> = record.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    for (place, name) in given.iter().enumerate() {
        let stem = if name.is_empty() { format!("column_{}", place + 1) } else { name.clone() };
        let mut unique = stem.clone();
        let mut number = 0;
        while names.contains(&unique) || (number > 0 && given.contains(&unique)) {
            number += 1;
            unique = format!("{stem}_{number}");
        }
        names.push(unique);
    }
    names
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
/// were looked at.
fn schema_as_read(scan: &FileScan) -> Schema {
    let mut schema = schema_of(scan);
    if scan.shape.is_complete {
        return schema;
    }
    let fields = schema.fields.iter().map(|field| match field.data_type() {
        DataType::Date32 | DataType::Timestamp(..) | DataType::Decimal128(..) => {
            Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8))
        }
        _ => Arc::clone(field),
    });
    schema.fields = fields.collect();
    schema
}

/// Values as they are written in the type of their column.
fn typed(values: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if values.data_type() == data_type {
        return Ok(Arc::clone(values));
    }
    if let Some(texts) = values.as_string_opt::<i32>()
        && let Some(value) = texts.iter().flatten().find(|value| is_cut_off(value, data_type))
    {
        return Err(ArrowError::CastError(format!("'{value}' is no {data_type}")).into());
    }
    let options = CastOptions { safe: false, format_options: FormatOptions::default() };
    Ok(cast_with_options(values, data_type, &options)?)
}

/// The rows of a piece of a file.
pub(super) fn open(scan: &FileScan, dialect: &Dialect, piece: Piece) -> Result<Batches> {
    // A file of blank lines, if any.
    if scan.shape.schema.fields().is_empty() {
        return Ok(Box::new(std::iter::empty()));
    }
    let dialect = Dialect { has_header: dialect.has_header && piece.start == 0, ..dialect.clone() };
    let builder = dialect.reader(schema_as_read(scan));
    let builder = builder.with_batch_size(scan.batch_size).with_projection(scan.read());
    let mut text = text::piece(&scan.path, scan.format.compression, piece)?;
    if piece.start == 0 {
        text = dialect.after_skipped(text).map_err(|error| at(&scan.path, error))?;
    }
    if dialect.is_plain() {
        let quoting = Quoting { delimiter: dialect.delimiter, quote: dialect.quote };
        text = text::closed(text, &scan.path, quoting);
    }
    let filling = Filling::new(scan);
    let batches = builder.build_buffered(text).map_err(|error| at(&scan.path, error))?;
    Ok(Box::new(batches.map(move |batch| {
        filling.fill(&batch?, |array, column| typed(array, filling.wanted.field(column).data_type()))
    })))
}

#[cfg(test)]
mod tests {
    use super::delimiter_of;

    #[test]
    fn what_is_between_values_shows_clearly_or_is_a_comma() {
        for (text, expected) in [
            ("a,b\n1;2,3\n", b','),
            ("a;b;c\n1,5;2;3\n", b';'),
            ("a\tb\n1\t2\n", b'\t'),
            ("a|b\n1|x;y\n", b'|'),
            ("\"a;b\"\nx\n", b','),
            ("a;b\nx\n", b','),
            ("a, in m;b\n1;2\n3;4\n", b';'),
            ("one\n", b','),
            ("", b','),
            ("a;b", b';'),
        ] {
            assert_eq!(delimiter_of(text.as_bytes(), b'"') as char, expected as char, "{text}");
        }
    }
}
