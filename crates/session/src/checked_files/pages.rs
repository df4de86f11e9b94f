//! The headers of a column's pages, and the indexes of them.

use super::footer::{Chunk, Leaf, MOST_BYTES_OF_ONE};
use kelpie_datafusion::page_header::{DATA, DATA_V2, DICTIONARY, PageHeader};
use kelpie_datafusion::thrift::{Damaged, Fields, Kind, Reader};

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
            match PageHeader::read(&mut reader) {
                Err(_) if !is_all => least = found.len().saturating_mul(16),
                Err(what) => break (0, Err(what.to_string())),
                Ok(header) => break (reader.at() as u64, Ok(header)),
            }
        };
        let header = header.and_then(|header| check(&header, (left - length) as i64, leaf).map(|()| header));
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
        let Ok(header) = PageHeader::read(&mut reader) else { break };
        check_header_sizes(&header, (left.len() - reader.at()) as i64).map_err(|what| (at, what))?;
        at = at.saturating_add(reader.at()).saturating_add(header.compressed as usize);
    }
    Ok(())
}

/// Whether a page can have the sizes that it says, with so many bytes left for it.
fn check_header_sizes(header: &PageHeader, left: i64) -> Result<(), String> {
    if !(0..=left).contains(&header.compressed) {
        return Err(format!("is said to have {} bytes, and {left} are left", header.compressed));
    }
    let most = header.compressed.saturating_add(1).saturating_mul(MOST_BYTES_OF_ONE);
    if !(0..=most.min(i64::from(i32::MAX))).contains(&header.uncompressed) {
        return Err(format!(
            "of {} bytes is said to have {} uncompressed",
            header.compressed, header.uncompressed
        ));
    }
    Ok(())
}

/// Whether it can be the header of a page of a column, with so many bytes left for it.
fn check(header: &PageHeader, left: i64, leaf: &Leaf) -> Result<(), String> {
    check_header_sizes(header, left)?;
    let [definitions, repetitions] = header.levels;
    let levels = definitions.saturating_add(repetitions);
    if definitions < 0 || repetitions < 0 || levels > header.compressed.min(header.uncompressed) {
        return Err(format!("is said to have {levels} bytes of levels, and has {}", header.compressed));
    }
    let rows = header.rows.unwrap_or(0);
    let counts = [header.values, header.nulls, rows];
    if counts.iter().any(|count| *count < 0) || header.nulls > header.values || rows > header.values {
        return Err(format!(
            "is said to have {} values, {} NULLs and {rows} rows",
            header.values, header.nulls
        ));
    }
    // A dictionary has its values one after the other; texts have their lengths before them.
    let least = header.values.saturating_mul(leaf.width.unwrap_or(4));
    match header.kind == DICTIONARY && least > header.uncompressed {
        true => Err(format!(
            "is a dictionary that is said to have {} values in {} bytes",
            header.values, header.uncompressed
        )),
        false => Ok(()),
    }
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
