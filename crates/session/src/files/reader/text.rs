//! The bytes of a text file.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::error::Result;
use kelpie_datafusion::{OpenQuotes, Quoting};

use super::encoding::utf16;
use crate::files::error::at;

/// What is wrong with rows of CSV that end within quotes.
pub(super) const OPEN_QUOTE: &str = "the last value begins with a quote that is never closed. Where quotes are part of values: \
     read_csv('…', quote = '')";
/// Bytes that are read at once.
pub(super) const READ_BYTES: usize = 1 << 18;

/// Opens a file.
pub(super) fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| at(path, error))
}

/// What compressed files begin with, and what they are called.
const MAGIC: [(&[u8], FileCompressionType, &str); 4] = [
    (b"\x1f\x8b", FileCompressionType::GZIP, "gzip (.gz)"),
    (b"BZh", FileCompressionType::BZIP2, "bzip2 (.bz2)"),
    (b"\xfd7zXZ\0", FileCompressionType::XZ, "xz (.xz)"),
    (b"\x28\xb5\x2f\xfd", FileCompressionType::ZSTD, "Zstandard (.zst)"),
];

/// A file that is compressed in another way than its name says, or an archive, is an error that says so.
pub(super) fn check_compression(path: &Path, compression: FileCompressionType) -> Result<()> {
    let mut start = Vec::new();
    let bytes = open(path)?.take(8).read_to_end(&mut start);
    bytes.map_err(|error| at(path, error))?;
    let found = MAGIC.iter().find(|(magic, _, _)| start.starts_with(magic));
    let named = MAGIC.iter().find(|(_, known, _)| *known == compression);
    match (found, named) {
        (Some((_, found, _)), _) if *found == compression => Ok(()),
        (Some((_, _, name)), _) => {
            Err(at(path, format!("the file is compressed by {name}, and its name says otherwise")))
        }
        (None, Some((_, _, name))) => Err(at(path, format!("the name says {name}, and the file is not"))),
        (None, None) if is_parquet(path, &start)? => {
            Err(at(path, "a Parquet file, whatever its name says: read_parquet('…') reads it"))
        }
        (None, None) if start.starts_with(b"ARROW1\0\0") => {
            Err(at(path, "an Arrow file, whatever its name says: read_arrow('…') reads it"))
        }
        (None, None) if start.starts_with(b"PK\x03\x04") => {
            Err(at(path, "a ZIP archive, which is not read: unpack it"))
        }
        (None, None) => Ok(()),
    }
}

/// Whether a file that begins so is one of Parquet, which ends as it begins.
fn is_parquet(path: &Path, start: &[u8]) -> Result<bool> {
    const MAGIC: &[u8] = b"PAR1";
    if !start.starts_with(MAGIC) {
        return Ok(false);
    }
    let (mut file, mut end) = (open(path)?, Vec::new());
    let read = file.seek(SeekFrom::End(-(MAGIC.len() as i64))).and_then(|_| file.read_to_end(&mut end));
    read.map_err(|error| at(path, error))?;
    Ok(end == MAGIC)
}

/// A text of two bytes a letter is an error that says so: by its mark, or since every second one of its first bytes is 0.
pub(super) fn check_encoding(path: &Path, start: &[u8]) -> Result<()> {
    match utf16(start) {
        Some(_) => Err(at(
            path,
            "the text is UTF-16, and only UTF-8 is read: `iconv -f UTF-16 -t UTF-8` writes it so",
        )),
        None => Ok(()),
    }
}

/// Which bytes of a file are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub start: u64,
    pub end: u64,
}

pub(super) type Text = BufReader<Box<dyn Read + Send>>;

/// The text of a whole file as it is now.
pub(super) fn whole(path: &Path, compression: FileCompressionType) -> Result<Text> {
    let file = open(path)?;
    Ok(BufReader::with_capacity(READ_BYTES, compression.convert_read(file)?))
}

/// The text of a piece of a file, which must have all of it.
pub(super) fn piece(path: &Path, compression: FileCompressionType, piece: Piece) -> Result<Text> {
    let mut file = open(path)?;
    let bytes = file.metadata().map_err(|error| at(path, error))?.len();
    if bytes < piece.end {
        return Err(at(path, shorter(piece.end - bytes)));
    }
    file.seek(SeekFrom::Start(piece.start)).map_err(|error| at(path, error))?;
    let left = piece.end.saturating_sub(piece.start);
    let exactly = Exactly { file, left, path: path.to_path_buf() };
    let text: Box<dyn Read + Send> = match compression.is_compressed() {
        true => compression.convert_read(exactly)?,
        false => Box::new(exactly),
    };
    Ok(BufReader::with_capacity(READ_BYTES, text))
}

/// The text of rows of CSV, which must not end within quotes: all of it after such a quote would be one value.
pub(super) fn closed(text: Text, path: &Path, quoting: Quoting) -> Text {
    let (path, quotes) = (path.to_path_buf(), OpenQuotes::new(quoting));
    BufReader::with_capacity(READ_BYTES, Box::new(Closed { text, quotes, path }))
}

struct Closed {
    text: Text,
    quotes: OpenQuotes,
    path: PathBuf,
}

impl Read for Closed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read(buffer)?;
        self.quotes.see(&buffer[..read]);
        if read == 0 && !buffer.is_empty() && self.quotes.is_open() {
            return Err(io::Error::other(format!("{}: {OPEN_QUOTE}", self.path.display())));
        }
        Ok(read)
    }
}

fn shorter(bytes: u64) -> String {
    format!("the file has become shorter while it was read: {bytes} bytes are missing")
}

/// So many bytes of a file: fewer are an error.
struct Exactly {
    file: File,
    left: u64,
    path: PathBuf,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.file.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(io::Error::other(format!("{}: {}", self.path.display(), shorter(self.left))));
        }
        self.left -= read as u64;
        Ok(read)
    }
}
