//! The bytes of a row group's columns that were read of a file, as a file of their own.

use std::ops::Range;

use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use datafusion::parquet::errors::{ParquetError, Result};
use datafusion::parquet::file::reader::{ChunkReader, Length};

/// Parts of a file, by where they begin in it.
#[derive(Debug, Clone)]
pub(super) struct Chunks {
    /// Of the whole file.
    bytes: u64,
    parts: Vec<(u64, Bytes)>,
}

impl Chunks {
    /// The parts that were read of `ranges` of a file of so many bytes.
    pub(super) fn new(bytes: u64, ranges: &[Range<u64>], parts: Vec<Bytes>) -> Chunks {
        let mut parts: Vec<_> = ranges.iter().map(|range| range.start).zip(parts).collect();
        parts.sort_by_key(|(start, _)| *start);
        Chunks { bytes, parts }
    }

    /// What was read from a place on.
    fn from(&self, start: u64) -> Result<Bytes> {
        let after = self.parts.partition_point(|(first, _)| *first <= start);
        let part = after.checked_sub(1).and_then(|at| self.parts.get(at));
        let found = part.and_then(|(first, bytes)| {
            let within = usize::try_from(start - first).ok()?;
            (within <= bytes.len()).then(|| bytes.slice(within..))
        });
        found.ok_or_else(|| {
            ParquetError::EOF(format!("a page is said to stand at {start}, which was not read"))
        })
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Chunks {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Reader<Bytes>> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let bytes = self.from(start)?;
        match length <= bytes.len() {
            true => Ok(bytes.slice(..length)),
            false => Err(ParquetError::EOF(format!(
                "{length} bytes are said to stand at {start}, and {} were read",
                bytes.len()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_was_read_is_found_and_nothing_else() {
        let (first, second) = (Bytes::from_static(b"abc"), Bytes::from_static(b"defg"));
        let chunks = Chunks::new(100, &[20..24, 10..13], vec![second, first]);
        assert_eq!(chunks.len(), 100);
        assert_eq!(chunks.get_bytes(11, 2).unwrap(), "bc");
        assert_eq!(chunks.get_bytes(20, 4).unwrap(), "defg");
        assert_eq!(chunks.get_bytes(13, 0).unwrap(), "");
        let mut text = String::new();
        chunks.get_read(22).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "fg");
        for (start, length) in [(0, 1), (9, 1), (12, 2), (14, 1), (24, 1), (25, 0), (u64::MAX, 1)] {
            assert!(chunks.get_bytes(start, length).is_err(), "{length} bytes from {start}");
        }
    }
}
