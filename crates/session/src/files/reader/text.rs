//! The bytes of a text file.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::error::Result;

use crate::files::error::at;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 18;

/// Opens a file.
pub(super) fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| at(path, error))
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
