//! Whether what a Parquet file says of itself can be.

use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::CheckedParquet;
use super::bounds::are_sound;
use super::footer::{Chunk, Footer, Leaf};
use super::pages::{PageBytes, check_bounds, check_offsets, check_pages};

const FOOTER_BYTES: u64 = 8;
const MAGIC_BYTES: u64 = 4;
/// Indexes of pages stand together: so many bytes of them are read at once.
const MOST_INDEX_BYTES: u64 = 256 << 20;

/// What a file says of itself; an error says what is wrong. The headers of pages are looked at where that is asked for.
pub(super) fn check(path: &Path, with_pages: bool) -> Result<CheckedParquet, String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let bytes = file.metadata().map_err(|error| error.to_string())?.len();
    let metadata = metadata(&mut file, bytes)?;
    let footer = Footer::parse(&metadata)
        .map_err(|what| format!("a damaged Parquet file: its metadata cannot be read: {what}"))?;
    footer.check(bytes)?;
    let mut pages = Pages { file, bytes, with_pages, held: (0, Vec::new()) };
    pages.hold(&footer)?;
    for (number, group) in footer.row_groups.iter().enumerate() {
        for (chunk, leaf) in group.columns.iter().zip(&footer.leaves) {
            pages.check(chunk, leaf, group.rows).map_err(|what| {
                format!("a damaged Parquet file: row group {number}, column {}: {what}", leaf.name)
            })?;
        }
    }
    Ok(CheckedParquet { sound_bounds: are_sound(&footer), odd_columns: footer.has_odd_columns() })
}

/// The bytes of the footer.
fn metadata(file: &mut File, bytes: u64) -> Result<Vec<u8>, String> {
    let mut footer = [0; FOOTER_BYTES as usize];
    if bytes >= FOOTER_BYTES + MAGIC_BYTES {
        footer.copy_from_slice(&read(file, bytes - FOOTER_BYTES, bytes)?);
    }
    let [a, b, c, d, magic @ ..] = footer;
    match &magic {
        b"PAR1" => {}
        b"PARE" => return Err("an encrypted Parquet file, which is not read".into()),
        _ => return Err("not a Parquet file, or cut off: its end is not that of one".into()),
    }
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    match length + FOOTER_BYTES + MAGIC_BYTES <= bytes {
        true => read(file, bytes - FOOTER_BYTES - length, bytes - FOOTER_BYTES),
        false => Err("a damaged Parquet file: its metadata is longer than the file".into()),
    }
}

fn read(file: &mut File, start: u64, end: u64) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; (end - start) as usize];
    let read = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut bytes));
    read.map(|()| bytes).map_err(|error| error.to_string())
}

struct Pages {
    file: File,
    bytes: u64,
    with_pages: bool,
    /// What was read ahead, and where it begins.
    held: (u64, Vec<u8>),
}

impl Pages {
    /// Reads all indexes ahead.
    fn hold(&mut self, footer: &Footer) -> Result<(), String> {
        let chunks = footer.row_groups.iter().flat_map(|group| &group.columns);
        let parts = chunks.flat_map(|chunk| [chunk.offset_index, chunk.column_index]);
        let parts = parts.filter_map(|part| part.within(self.bytes).ok().flatten());
        let (start, end) =
            parts.fold((u64::MAX, 0), |(start, end), part| (start.min(part.0), end.max(part.1)));
        if start < end && end - start <= MOST_INDEX_BYTES {
            self.held = (start, read(&mut self.file, start, end)?);
        }
        Ok(())
    }

    fn check(&mut self, chunk: &Chunk, leaf: &Leaf, rows: i64) -> Result<(), String> {
        let outside = |()| "it is not within the file".to_string();
        let range = chunk.range(self.bytes).map_err(outside)?;
        if let Some(index) = chunk.offset_index.within(self.bytes).map_err(outside)? {
            check_offsets(&self.part(index)?, range, rows)?;
        }
        if let Some(index) = chunk.column_index.within(self.bytes).map_err(outside)? {
            check_bounds(&self.part(index)?)?;
        }
        match self.with_pages && chunk.described {
            true => {
                let (start, end) = range;
                let mut bytes = Window { file: &mut self.file, start, end, at: 0, held: Vec::new() };
                check_pages(&mut bytes, chunk, leaf, rows)
            }
            false => Ok(()),
        }
    }

    fn part(&mut self, (start, end): (u64, u64)) -> Result<Cow<'_, [u8]>, String> {
        let (first, held) = &self.held;
        let place = |at: u64| at.checked_sub(*first).and_then(|at| usize::try_from(at).ok());
        match place(start).zip(place(end)).and_then(|(start, end)| held.get(start..end)) {
            Some(part) => Ok(Cow::Borrowed(part)),
            None => read(&mut self.file, start, end).map(Cow::Owned),
        }
    }
}

/// Bytes that are read at a time to look at headers: few of pages of a megabyte, and all of small ones.
const WINDOW_BYTES: usize = 16 << 10;

/// A part of a file, of which few bytes are held at a time.
struct Window<'a> {
    file: &'a mut File,
    start: u64,
    end: u64,
    /// From the beginning of the part, where the bytes are from that are held.
    at: u64,
    held: Vec<u8>,
}

impl PageBytes for Window<'_> {
    fn len(&self) -> u64 {
        self.end - self.start
    }

    fn from(&mut self, at: u64, least: usize) -> Result<&[u8], String> {
        let left = self.len().saturating_sub(at);
        let place = at.checked_sub(self.at).and_then(|place| usize::try_from(place).ok());
        let held = place.map_or(0, |place| self.held.len().saturating_sub(place));
        if (held as u64) < left.min(least as u64) {
            let more = left.min(least.max(WINDOW_BYTES) as u64);
            self.held = read(self.file, self.start + at, self.start + at + more)?;
            self.at = at;
        }
        let place = usize::try_from(at - self.at).map_err(|error| error.to_string())?;
        Ok(self.held.get(place..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_window_has_what_is_asked_for_wherever_it_stands() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..100_000u32).map(|place| (place % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let (start, end) = (1_000, 90_000);
        let part = &bytes[1_000..90_000];
        let mut window = Window { file: &mut file, start, end, at: 0, held: Vec::new() };
        for (at, least) in [
            (0, 10),
            (5, 10),
            (16_380, 10),
            (50_000, 30_000),
            (49_999, 1),
            (88_999, 100),
            (89_000, 1),
            (0, 1 << 20),
        ] {
            let found = window.from(at, least).unwrap();
            let wanted = &part[at as usize..];
            assert!(found.len() >= least.min(wanted.len()), "{at}");
            assert_eq!(found, &wanted[..found.len()], "{at}");
        }
    }
}
