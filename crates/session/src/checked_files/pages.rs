//! The headers of a column's pages, and the indexes of them.

use super::footer::{Chunk, Leaf, MOST_BYTES_OF_ONE};
use super::thrift::{Damaged, Fields, Kind, Reader};

/// What a page is.
const DATA: i64 = 0;
const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;

/// The header of a page.
#[derive(Debug, Default)]
struct Header {
    kind: i64,
    uncompressed: i64,
    compressed: i64,
    values: i64,
    /// Of pages of version 2.
    rows: Option<i64>,
    nulls: i64,
    levels: [i64; 2],
}

/// The bytes of a column, of which the headers of pages alone are looked at.
pub(super) trait PageBytes {
    /// How many there are.
    fn len(&self) -> u64;
    /// Some of them from a place on: at least so many, or all that there are.
    fn from(&mut self, at: u64, least: usize) -> Result<&[u8], String>;
}

/// Bytes in which nearly every header ends; those with long bounds do not.
const HEADER_BYTES: usize = 1 << 10;

/// Goes through the pages of a column in a row group of so many rows; what cannot be is an error.
pub(super) fn check_pages(
    bytes: &mut impl PageBytes,
    chunk: &Chunk,
    leaf: &Leaf,
    rows: i64,
) -> Result<(), String> {
    let (mut at, mut values, mut counted) = (0u64, 0i64, Some(0i64));
    while at < bytes.len() {
        let left = bytes.len() - at;
        let mut least = HEADER_BYTES;
        let (length, header) = loop {
            let found = bytes.from(at, least)?;
            let is_all = found.len() as u64 >= left;
            let mut reader = Reader::new(found);
            match header(&mut reader) {
                Err(_) if !is_all => least = found.len().saturating_mul(16),
                Err(what) => break (0, Err(what.to_string())),
                Ok(header) => break (reader.at() as u64, Ok(header)),
            }
        };
        let header = header.and_then(|header| header.check((left - length) as i64, leaf).map(|()| header));
        let header = match header {
            Ok(header) => header,
            // Nothing is read of what comes after the last value.
            Err(_) if values >= chunk.values => break,
            Err(what) => return Err(format!("a page at {at} {what}")),
        };
        if matches!(header.kind, DATA | DATA_V2) {
            values = values.saturating_add(header.values);
            counted = counted.zip(header.rows).map(|(all, rows)| all.saturating_add(rows));
        }
        at += length + header.compressed as u64;
    }
    if values != chunk.values {
        return Err(format!("its pages have {values} values, and it is said to have {}", chunk.values));
    }
    match counted {
        Some(counted) if chunk.values > 0 && counted != rows => {
            Err(format!("its pages have {counted} rows, and the row group is said to have {rows}"))
        }
        _ => Ok(()),
    }
}

/// Goes through the headers of pages that stand one behind the other; the place of the first whose sizes cannot be, and what is wrong.
/// What is no header is the reader's to find.
pub(super) fn check_sizes(bytes: &[u8]) -> Result<(), (usize, String)> {
    let mut at = 0usize;
    while let Some(left) = bytes.get(at..).filter(|left| !left.is_empty()) {
        let mut reader = Reader::new(left);
        let Ok(header) = header(&mut reader) else { break };
        header.check_sizes((left.len() - reader.at()) as i64).map_err(|what| (at, what))?;
        at = at.saturating_add(reader.at()).saturating_add(header.compressed as usize);
    }
    Ok(())
}

impl Header {
    /// Whether a page can have the sizes that it says, with so many bytes left for it.
    fn check_sizes(&self, left: i64) -> Result<(), String> {
        if !(0..=left).contains(&self.compressed) {
            return Err(format!("is said to have {} bytes, and {left} are left", self.compressed));
        }
        let most = self.compressed.saturating_add(1).saturating_mul(MOST_BYTES_OF_ONE);
        if !(0..=most.min(i64::from(i32::MAX))).contains(&self.uncompressed) {
            return Err(format!(
                "of {} bytes is said to have {} uncompressed",
                self.compressed, self.uncompressed
            ));
        }
        Ok(())
    }

    /// Whether it can be the header of a page of a column, with so many bytes left for it.
    fn check(&self, left: i64, leaf: &Leaf) -> Result<(), String> {
        self.check_sizes(left)?;
        let [definitions, repetitions] = self.levels;
        let levels = definitions.saturating_add(repetitions);
        if definitions < 0 || repetitions < 0 || levels > self.compressed.min(self.uncompressed) {
            return Err(format!("is said to have {levels} bytes of levels, and has {}", self.compressed));
        }
        let rows = self.rows.unwrap_or(0);
        let counts = [self.values, self.nulls, rows];
        if counts.iter().any(|count| *count < 0) || self.nulls > self.values || rows > self.values {
            return Err(format!(
                "is said to have {} values, {} NULLs and {rows} rows",
                self.values, self.nulls
            ));
        }
        // A dictionary has its values one after the other; texts have their lengths before them.
        let least = self.values.saturating_mul(leaf.width.unwrap_or(4));
        match self.kind == DICTIONARY && least > self.uncompressed {
            true => Err(format!(
                "is a dictionary that is said to have {} values in {} bytes",
                self.values, self.uncompressed
            )),
            false => Ok(()),
        }
    }
}

fn header(reader: &mut Reader<'_>) -> Result<Header, Damaged> {
    let (mut header, mut fields) = (Header::default(), Fields::default());
    while let Some((field, kind)) = reader.field(&mut fields)? {
        match (field, kind) {
            (1, Kind::Integer) => header.kind = reader.integer()?,
            (2, Kind::Integer) => header.uncompressed = reader.integer()?,
            (3, Kind::Integer) => header.compressed = reader.integer()?,
            (5 | 7, Kind::Struct) => counts(reader, &mut header, false)?,
            (8, Kind::Struct) => counts(reader, &mut header, true)?,
            _ => reader.skip(kind)?,
        }
    }
    Ok(header)
}

/// How much a page has of what.
fn counts(reader: &mut Reader<'_>, header: &mut Header, second: bool) -> Result<(), Damaged> {
    let mut fields = Fields::default();
    while let Some((field, kind)) = reader.field(&mut fields)? {
        match (field, kind) {
            (1, Kind::Integer) => header.values = reader.integer()?,
            (2, Kind::Integer) if second => header.nulls = reader.integer()?,
            (3, Kind::Integer) if second => header.rows = Some(reader.integer()?),
            (5, Kind::Integer) if second => header.levels[0] = reader.integer()?,
            (6, Kind::Integer) if second => header.levels[1] = reader.integer()?,
            _ => reader.skip(kind)?,
        }
    }
    Ok(())
}

/// Whether an index of pages tells of pages that are within a column's bytes, from `start` to `end`, and of its rows in order.
pub(super) fn check_offsets(bytes: &[u8], (start, end): (u64, u64), rows: i64) -> Result<(), String> {
    let (mut reader, mut fields, mut pages) = (Reader::new(bytes), Fields::default(), Vec::new());
    let damaged = |what: Damaged| format!("its index of pages is damaged: {what}");
    while let Some((field, kind)) = reader.field(&mut fields).map_err(damaged)? {
        match (field, kind) {
            (1, Kind::List) => pages = reader.structures(place).map_err(damaged)?,
            _ => reader.skip(kind).map_err(damaged)?,
        }
    }
    let mut next = 0;
    for (number, [offset, length, first_row]) in pages.into_iter().enumerate() {
        let inside = offset >= 0
            && length >= 0
            && offset as u64 >= start
            && (offset as u64).saturating_add(length as u64) <= end;
        if !inside || first_row < next || first_row > rows || (number == 0 && first_row != 0) {
            return Err(format!(
                "its index of pages says that {length} bytes from {offset} on begin with row {first_row}"
            ));
        }
        next = first_row;
    }
    Ok(())
}

/// Offset, length and first row of a page.
fn place(reader: &mut Reader<'_>) -> Result<[i64; 3], Damaged> {
    let (mut place, mut fields) = ([0; 3], Fields::default());
    while let Some((field, kind)) = reader.field(&mut fields)? {
        match (field, kind) {
            (1, Kind::Integer) => place[0] = reader.integer()?,
            (2, Kind::Integer) => place[1] = reader.integer()?,
            (3, Kind::Integer) => place[2] = reader.integer()?,
            _ => reader.skip(kind)?,
        }
    }
    Ok(place)
}

/// Whether the lists of an index of bounds are of as many pages.
pub(super) fn check_bounds(bytes: &[u8]) -> Result<(), String> {
    let (mut reader, mut fields, mut pages) = (Reader::new(bytes), Fields::default(), None);
    let damaged = |what: Damaged| format!("its index of bounds is damaged: {what}");
    while let Some((field, kind)) = reader.field(&mut fields).map_err(damaged)? {
        if matches!((field, kind), (1 | 2 | 3 | 5, Kind::List)) {
            let (_, length) = reader.clone().list().map_err(damaged)?;
            if *pages.get_or_insert(length) != length {
                return Err("its index of bounds has lists of unlike lengths".into());
            }
        }
        reader.skip(kind).map_err(damaged)?;
    }
    Ok(())
}
