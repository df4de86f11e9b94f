//! The bytes of a row group's columns: those that were read of a file, as a file of their own, or a local file, which is read page by page.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use datafusion::parquet::errors::{ParquetError, Result};
use datafusion::parquet::file::reader::{ChunkReader, Length};

use super::recycled::Recycled;

/// Where pages are read from.
#[derive(Debug, Clone)]
pub(super) enum Chunks {
    Parts(FileParts),
    Local(LocalFile),
}

/// Parts of a file, by where they begin in it.
#[derive(Debug, Clone)]
pub(super) struct FileParts {
    /// Of the whole file.
    bytes: u64,
    parts: Vec<(u64, Bytes)>,
}

/// A file of this machine. A page is read when it is wanted, into memory that was used before: it is still in the core's caches when it
/// is decoded.
#[derive(Debug, Clone)]
pub(super) struct LocalFile {
    file: Arc<File>,
    bytes: u64,
    memory: Recycled,
}

/// About what the header of a page takes.
const HEADER_BYTES: usize = 256;

/// A file from some place on.
struct FileFrom {
    file: Arc<File>,
    at: u64,
}

impl Read for FileFrom {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(out, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl LocalFile {
    /// Opens a file for a reader that has some memory to use.
    pub(super) fn open(path: &Path, memory: Recycled) -> io::Result<LocalFile> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok(LocalFile { file: Arc::new(file), bytes, memory })
    }

    /// Some of its bytes.
    pub(super) fn bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start.checked_add(length as u64);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(ParquetError::EOF(format!(
                "{length} bytes are said to stand at {start}, and the file has {}",
                self.bytes
            )));
        }
        Ok(self.memory.bytes(length, |out| self.file.read_exact_at(out, start))?)
    }
}

impl FileParts {
    /// The parts that were read of `ranges` of a file of so many bytes.
    pub(super) fn new(bytes: u64, ranges: &[Range<u64>], parts: Vec<Bytes>) -> FileParts {
        let mut parts: Vec<_> = ranges.iter().map(|range| range.start).zip(parts).collect();
        parts.sort_by_key(|(start, _)| *start);
        FileParts { bytes, parts }
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

    fn bytes(&self, start: u64, length: usize) -> Result<Bytes> {
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

impl Length for Chunks {
    fn len(&self) -> u64 {
        match self {
            Chunks::Parts(parts) => parts.bytes,
            Chunks::Local(file) => file.bytes,
        }
    }
}

impl ChunkReader for Chunks {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Box<dyn Read>> {
        Ok(match self {
            Chunks::Parts(parts) => Box::new(parts.from(start)?.reader()),
            Chunks::Local(LocalFile { file, .. }) => {
                let from = FileFrom { file: Arc::clone(file), at: start };
                Box::new(BufReader::with_capacity(HEADER_BYTES, from))
            }
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        match self {
            Chunks::Parts(parts) => parts.bytes(start, length),
            Chunks::Local(file) => file.bytes(start, length),
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
        let chunks = Chunks::Parts(FileParts::new(100, &[20..24, 10..13], vec![second, first]));
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
    #[test]
    fn a_local_file_is_read_where_it_is_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"0123456789").unwrap();
        let chunks = Chunks::Local(LocalFile::open(&path, Recycled::default()).unwrap());
        assert_eq!(chunks.len(), 10);
        assert_eq!(chunks.get_bytes(2, 3).unwrap(), "234");
        let mut rest = String::new();
        chunks.get_read(7).unwrap().read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "789");
        for (start, length) in [(8, 3), (10, 1), (u64::MAX, 1), (1, usize::MAX)] {
            assert!(chunks.get_bytes(start, length).is_err(), "{length} bytes from {start}");
        }
        // What was there when it was opened is gone.
        std::fs::write(&path, b"0123").unwrap();
        assert!(chunks.get_bytes(2, 3).is_err());
        assert!(LocalFile::open(&directory.path().join("none"), Recycled::default()).is_err());
    }
}
