//! JSON: a value a line, values over several lines, or one array of them.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::ReaderBuilder;
use datafusion::arrow::json::reader::Decoder;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::FormatOptions;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::error::Result;
use serde::de::{DeserializeSeed, IgnoredAny};

use kelpie_datafusion::Batches;

use super::file_scan::{FileScan, Filling, JsonLayout, Layout, Shape};
use super::json_keys::{Keys, KeysOfLines};
use super::json_types::{Row, Seen, as_written, becomes_text, fields, nested_as_text};
use super::json_value::Json;
use super::text::{self, Piece, Text};
use crate::files::error::at;
use crate::files::misfit::{Misfit, What};
use crate::files::options::ReadOptions;
use crate::files::unite::places;

/// Bytes at the beginning of a file that show how its values stand in lines.
const SNIFFED_BYTES: u64 = 1 << 16;
/// Rows that are read at once until one fails.
const ROWS_AT_ONCE: usize = 8192;

/// What a file is like.
pub(super) fn shape(path: &Path, compression: FileCompressionType, options: &ReadOptions) -> Result<Shape> {
    text::check_compression(path, compression)?;
    let mut start = Vec::new();
    let text = text::whole(path, compression)?.take(8).read_to_end(&mut start);
    text.map_err(|error| at(path, error))?;
    text::check_encoding(path, &start)?;
    let (is_array, is_lines) = look(text::whole(path, compression)?).map_err(|error| at(path, error))?;
    let whole = || {
        text::whole(path, compression)
            .and_then(|text| values(text, is_array).map_err(|error| at(path, error)))
    };
    let most = options.infer_rows.unwrap_or(usize::MAX);
    // What stands otherwise than the first lines do is told by whoever reads value by value.
    let by_lines = if is_lines { of_lines(whole()?, most) } else { None };
    let (keys, rows) = match by_lines {
        Some(seen) => seen,
        None => of_values(whole()?, most).map_err(|problem| at(path, problem))?,
    };
    let has_nested_text = keys.has_nested_text();
    let keys = if let Seen::Object(keys) = keys { keys } else { Vec::new() };
    let layout = Layout::Json(JsonLayout { is_array, is_lines, has_nested_text });
    Ok(Shape { schema: Arc::new(Schema::new(fields(&keys))), layout, is_complete: rows < most, note: None })
}

/// The keys of the objects of the first lines, and how many these are; nothing where a line is no object.
fn of_lines(mut text: Text, most: usize) -> Option<(Seen, usize)> {
    let (mut keys, mut rows, mut line) = (Seen::Object(Vec::new()), 0, Vec::new());
    while rows < most {
        line.clear();
        if text.read_until(b'\n', &mut line).ok()? == 0 {
            break;
        }
        let value = line.trim_ascii();
        if value.is_empty() {
            continue;
        }
        let mut parser = serde_json::Deserializer::from_slice(value);
        Row(&mut keys).deserialize(&mut parser).ok()?;
        parser.end().ok()?;
        rows += 1;
    }
    Some((keys, rows))
}

/// The same of the first values, wherever they stand.
fn of_values(text: Text, most: usize) -> std::result::Result<(Seen, usize), String> {
    let (mut keys, mut rows) = (Seen::Object(Vec::new()), 0);
    let mut parser = serde_json::Deserializer::from_reader(text);
    while rows < most && parser.end().is_err() {
        Row(&mut keys).deserialize(&mut parser).map_err(|error| match error.is_data() {
            true => format!("value {} is no object", rows + 1),
            false => error.to_string(),
        })?;
        rows += 1;
    }
    Ok((keys, rows))
}

/// Whether a file is one array, and whether its values are each on a line.
fn look(text: Text) -> io::Result<(bool, bool)> {
    let mut start = Vec::new();
    without_mark(text)?.take(SNIFFED_BYTES).read_to_end(&mut start)?;
    if start.trim_ascii_start().starts_with(b"[") {
        return Ok((true, false));
    }
    let is_cut = start.len() as u64 == SNIFFED_BYTES;
    let mut lines: Vec<&[u8]> = start.split(|byte| *byte == b'\n').collect();
    if is_cut {
        lines.pop();
    }
    lines.retain(|line| !line.trim_ascii().is_empty());
    let is_whole = |line: &&[u8]| serde_json::from_slice::<IgnoredAny>(line).is_ok();
    Ok((false, !lines.is_empty() && lines.iter().all(is_whole)))
}

/// Text after the mark that says that it is UTF-8.
fn without_mark(mut text: Text) -> io::Result<Text> {
    if text.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
        text.consume(3);
    }
    Ok(text)
}

/// The values of a file one after the other.
fn values(text: Text, is_array: bool) -> io::Result<Text> {
    let text = without_mark(text)?;
    if !is_array {
        return Ok(text);
    }
    let elements = Elements { text, depth: 0, in_text: false, escaped: false, begun: false };
    Ok(BufReader::new(Box::new(elements)))
}

/// The elements of an array: its brackets and the commas between them are blanks.
struct Elements {
    text: Text,
    depth: usize,
    in_text: bool,
    escaped: bool,
    begun: bool,
}

impl Elements {
    fn shown(&mut self, byte: u8) -> u8 {
        if self.in_text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_text = false,
                _ => {}
            }
            return byte;
        }
        match byte {
            b'"' => self.in_text = true,
            b'[' if self.depth == 0 && !self.begun => {
                (self.depth, self.begun) = (1, true);
                return b' ';
            }
            b'[' | b'{' => self.depth += 1,
            b']' if self.depth == 1 => {
                self.depth = 0;
                return b' ';
            }
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            b',' if self.depth == 1 => return b' ',
            _ => {}
        }
        byte
    }
}

impl Read for Elements {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read(buffer)?;
        if read == 0 && self.depth > 0 && !buffer.is_empty() {
            return Err(io::Error::other("the array of the file has no end"));
        }
        for byte in &mut buffer[..read] {
            *byte = self.shown(*byte);
        }
        Ok(read)
    }
}

/// How the rows of a file are decoded.
struct Decoding {
    /// What is decoded, by the names of the file.
    schema: SchemaRef,
    /// As numbers are written.
    written: SchemaRef,
    /// A key that nothing is known of is an error.
    is_strict: bool,
    /// The keys that are known but nobody asked for, where they are left out before.
    left_out: Vec<String>,
    has_nested_text: bool,
    is_array: bool,
    filling: Filling,
}

impl Decoding {
    fn of(scan: &FileScan, leaves_out: bool) -> Decoding {
        let (own, is_strict) = (&scan.shape.schema, !scan.shape.is_complete);
        let name = |column: usize, place: Option<usize>| {
            place.map_or(scan.wanted.field(column).name(), |place| own.field(place).name()).clone()
        };
        let mut fields: Vec<Field> = scan
            .places
            .iter()
            .enumerate()
            .filter(|(_, place)| is_strict || place.is_some())
            .map(|(column, place)| {
                Field::new(name(column, *place), scan.wanted.field(column).data_type().clone(), true)
            })
            .collect();
        let wanted = fields.len();
        let from = scan
            .places
            .iter()
            .enumerate()
            .map(|(column, place)| fields.iter().position(|field| *field.name() == name(column, *place)));
        let filling = Filling { wanted: Arc::clone(&scan.wanted), from: from.collect() };
        if is_strict {
            // All other keys that the table knows are no surprise.
            let places = places(&scan.table, own);
            let of_table = scan.table.fields().iter().zip(places).map(|(field, place)| {
                let name = place.map_or(field.name(), |place| own.field(place).name());
                Field::new(name, field.data_type().clone(), true)
            });
            let known = of_table.chain(own.fields().iter().map(|field| field.as_ref().clone()));
            for field in known {
                if fields.iter().all(|decoded| decoded.name() != field.name()) {
                    fields.push(field);
                }
            }
        }
        let left_out = match leaves_out {
            true => fields.split_off(wanted),
            false => Vec::new(),
        };
        let becomes_text = |field: &Field| {
            own.field_with_name(field.name())
                .is_ok_and(|own| becomes_text(own.data_type(), field.data_type()))
        };
        let (has_nested_text, is_array) = match &scan.shape.layout {
            Layout::Json(layout) => (layout.has_nested_text, layout.is_array),
            _ => (false, false),
        };
        let has_nested_text = has_nested_text || fields.iter().any(becomes_text);
        let written = |field: &Field| match is_strict {
            true => field.clone().with_data_type(as_written(field.data_type())),
            false => field.clone(),
        };
        Decoding {
            written: Arc::new(Schema::new(fields.iter().map(written).collect::<Vec<_>>())),
            schema: Arc::new(Schema::new(fields)),
            is_strict,
            left_out: left_out.into_iter().map(|field| field.name().clone()).collect(),
            has_nested_text,
            is_array,
            filling,
        }
    }

    fn reader(&self, rows: usize) -> ReaderBuilder {
        ReaderBuilder::new(Arc::clone(&self.written))
            .with_coerce_primitive(true)
            .with_strict_mode(self.is_strict && self.left_out.is_empty())
            .with_batch_size(rows)
    }

    /// A batch of the wanted columns.
    fn finish(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let options = CastOptions { safe: false, format_options: FormatOptions::default() };
        self.filling.fill(batch, |array, column| {
            let to = self.filling.wanted.field(column).data_type();
            match to == array.data_type() {
                true => Ok(Arc::clone(array)),
                false => Ok(cast_with_options(array, to, &options)?),
            }
        })
    }

    /// Rows that were parsed before.
    fn decode(
        &self,
        decoder: &mut Decoder,
        rows: &mut [Json],
    ) -> std::result::Result<Option<RecordBatch>, ArrowError> {
        if self.has_nested_text {
            let row = DataType::Struct(self.schema.fields().clone());
            rows.iter_mut().for_each(|value| nested_as_text(value, &row));
        }
        decoder.serialize(rows)?;
        decoder.flush()
    }
}

/// The rows of a piece of a file.
pub(super) fn open(scan: &FileScan, piece: Piece) -> Result<Batches> {
    let Layout::Json(layout) = &scan.shape.layout else { return opened(scan, piece, false) };
    let wanted = scan.places.iter().flatten().count();
    if !layout.is_lines || wanted == 0 || wanted >= scan.shape.schema.fields().len() {
        return opened(scan, piece, false);
    }
    let whole = scan.clone();
    Ok(Box::new(WithFallback {
        batches: opened(scan, piece, true)?,
        rows: 0,
        whole: Some(Box::new(move || opened(&whole, piece, false))),
    }))
}

/// The same, of lines with all of their keys or with those alone that are wanted.
fn opened(scan: &FileScan, piece: Piece, leaves_out: bool) -> Result<Batches> {
    let decoding = Decoding::of(scan, leaves_out);
    let path = scan.path.clone();
    let text = text::piece(&path, scan.format.compression, piece)?;
    let mut text = values(text, decoding.is_array).map_err(|error| at(&path, error))?;
    if leaves_out {
        let wanted = decoding.schema.fields().iter().map(|field| field.name().clone()).collect();
        let known = decoding.is_strict.then(|| decoding.left_out.clone());
        let lines = KeysOfLines::new(Box::new(text), Keys { wanted, known });
        text = BufReader::with_capacity(text::READ_BYTES, Box::new(lines));
    }
    if !decoding.has_nested_text {
        let batches = decoding.reader(scan.batch_size).build(text).map_err(|error| at(&path, error))?;
        return Ok(Box::new(batches.map(move |batch| decoding.finish(&batch?))));
    }
    let rows = scan.batch_size;
    let mut decoder = decoding.reader(rows).build_decoder().map_err(|error| at(&path, error))?;
    let mut stream = serde_json::Deserializer::from_reader(text).into_iter::<Json>();
    let mut next = move || -> Result<Option<RecordBatch>> {
        let values: std::result::Result<Vec<Json>, _> = stream.by_ref().take(rows).collect();
        let mut values = values.map_err(|error| at(&path, format!("Json error: {error}")))?;
        if values.is_empty() {
            return Ok(None);
        }
        decoding.decode(&mut decoder, &mut values)?.map(|batch| decoding.finish(&batch)).transpose()
    };
    Ok(Box::new(std::iter::from_fn(move || next().transpose())))
}

/// Batches of lines without the keys that nobody asked for. Where that fails, as one is no line of an object, or has a key that nobody
/// knows, the lines are read with all of their keys from there on: it fails as well, and says why, or can be read so.
struct WithFallback {
    batches: Batches,
    /// Rows that were handed out.
    rows: usize,
    whole: Option<Box<dyn FnOnce() -> Result<Batches> + Send>>,
}

impl Iterator for WithFallback {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        match self.batches.next()? {
            Ok(batch) => {
                self.rows += batch.num_rows();
                Some(Ok(batch))
            }
            Err(error) => {
                let Some(whole) = self.whole.take() else { return Some(Err(error)) };
                self.batches = match whole() {
                    Ok(batches) => Box::new(after(batches, std::mem::take(&mut self.rows))),
                    Err(error) => return Some(Err(error)),
                };
                self.next()
            }
        }
    }
}

/// Batches without so many first rows.
fn after(batches: Batches, mut rows: usize) -> impl Iterator<Item = Result<RecordBatch>> + Send {
    batches.filter_map(move |batch| match batch {
        Ok(batch) => {
            let skipped = rows.min(batch.num_rows());
            rows -= skipped;
            let left = batch.num_rows() - skipped;
            (left > 0).then(|| Ok(batch.slice(skipped, left)))
        }
        error => Some(error),
    })
}

/// The first row of a file that its table cannot hold.
pub(super) fn find_misfit(scan: &FileScan) -> Option<Misfit> {
    let decoding = Decoding::of(scan, false);
    let input = || values(text::whole(&scan.path, scan.format.compression).ok()?, decoding.is_array).ok();
    let mut stream = serde_json::Deserializer::from_reader(input()?).into_iter::<Json>();
    let mut decoder = decoding.reader(ROWS_AT_ONCE).build_decoder().ok()?;
    loop {
        let mut rows = Vec::with_capacity(ROWS_AT_ONCE);
        while rows.len() < ROWS_AT_ONCE {
            let start = stream.byte_offset();
            match stream.next() {
                None => break,
                Some(Ok(value)) => rows.push((start, value)),
                Some(Err(error)) => {
                    let line = error.line() as u64;
                    let what = What::Syntax { message: error.to_string() };
                    return Some(Misfit { path: scan.path.clone(), line, what });
                }
            }
        }
        if rows.is_empty() {
            return None;
        }
        let mut values: Vec<Json> = rows.iter().map(|(_, value)| value.clone()).collect();
        let fits = |decoder: &mut Decoder, values: &mut [Json]| {
            decoding
                .decode(decoder, values)
                .is_ok_and(|batch| batch.is_none_or(|batch| decoding.finish(&batch).is_ok()))
        };
        if fits(&mut decoder, &mut values) {
            continue;
        }
        let (start, what) =
            rows.into_iter().find_map(|(start, value)| Some((start, decoding.misfit(value)?)))?;
        let line = line_after(start, input()?)?;
        return Some(Misfit { path: scan.path.clone(), line, what });
    }
}

impl Decoding {
    /// What of a row does not fit.
    fn misfit(&self, row: Json) -> Option<What> {
        let Json::Object(entries) = row else {
            return Some(What::Syntax { message: "a value that is no object".into() });
        };
        entries.into_iter().find_map(|(key, value)| {
            let field = self.schema.field_with_name(&key).ok();
            if field.is_none() && self.is_strict {
                return Some(What::Key { key });
            }
            let shown = value.to_string();
            let mut decoder = self.reader(1).build_decoder().ok()?;
            let row = Json::Object(vec![(key.clone(), value)]);
            let decoded =
                self.decode(&mut decoder, &mut [row]).map(|batch| batch.map(|batch| self.finish(&batch)));
            match decoded {
                Ok(None | Some(Ok(_))) => None,
                _ => Some(What::Value {
                    column: key,
                    value: shown,
                    data_type: field?.data_type().clone(),
                    is_given: false,
                }),
            }
        })
    }
}

/// The line of the value that comes after a byte.
fn line_after(start: usize, input: impl Read) -> Option<u64> {
    let mut line = 1;
    for (offset, byte) in BufReader::new(input).bytes().enumerate() {
        match byte.ok()? {
            b'\n' => line += 1,
            byte if offset >= start && !byte.is_ascii_whitespace() => return Some(line),
            _ => {}
        }
    }
    None
}
