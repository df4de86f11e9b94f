//! Whether what an Arrow file or stream says of itself can be. Its structures are checked by their own reader; what is not are the
//! places and sizes in them, by which memory is allocated and cut.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use datafusion::arrow::ipc::{Block, Message, MessageHeader, RecordBatch, root_as_footer, root_as_message};

use super::arrow_schema;
use super::footer::MOST_BYTES_OF_ONE;

const MAGIC: &[u8] = b"ARROW1";
const CONTINUATION: u32 = u32::MAX;
/// The magic at the start of a file, and what fills it up.
const HEAD_BYTES: u64 = 8;
/// The length of the footer and the magic after it.
const TRAILER_BYTES: u64 = 10;

/// An error says what is wrong.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let bytes = file.metadata().map_err(|error| error.to_string())?.len();
    let mut input = Input { file: &mut file, bytes };
    let is_file = bytes >= MAGIC.len() as u64 && input.read(0, MAGIC.len() as u64)? == MAGIC;
    let checked = if is_file { input.check_file() } else { input.check_stream() };
    checked.map_err(|what| format!("a damaged Arrow file: {what}"))
}

struct Input<'a> {
    file: &'a mut File,
    bytes: u64,
}

impl Input<'_> {
    fn read(&mut self, start: u64, length: u64) -> Result<Vec<u8>, String> {
        if start.checked_add(length).is_none_or(|end| end > self.bytes) {
            return Err(format!("the {length} bytes of a message from {start} on are not within the file"));
        }
        let mut bytes = vec![0; length as usize];
        let read = self.file.seek(SeekFrom::Start(start)).and_then(|_| self.file.read_exact(&mut bytes));
        read.map(|()| bytes).map_err(|error| error.to_string())
    }

    fn check_file(&mut self) -> Result<(), String> {
        let start = self.bytes.checked_sub(TRAILER_BYTES).ok_or("it is cut off")?;
        let trailer = self.read(start, TRAILER_BYTES)?;
        let Some(([a, b, c, d], MAGIC)) = trailer.split_first_chunk().map(|(a, b)| (*a, b)) else {
            return Err("it is cut off: its end is not that of one".into());
        };
        let length = u64::from(u32::from_le_bytes([a, b, c, d]));
        let start = start.checked_sub(length).ok_or("its footer is longer than the file")?;
        let footer = self.read(start, length)?;
        let footer = root_as_footer(&footer).map_err(|error| format!("its footer: {error}"))?;
        arrow_schema::check(footer.schema())?;
        self.check_head()?;
        for (number, block) in footer.dictionaries().into_iter().flatten().enumerate() {
            self.check_block(block).map_err(|what| format!("dictionary {number}: {what}"))?;
        }
        for (number, block) in footer.recordBatches().into_iter().flatten().enumerate() {
            self.check_block(block).map_err(|what| format!("batch {number}: {what}"))?;
        }
        Ok(())
    }

    /// The first message of a file has its schema as well, and some readers take it from there.
    fn check_head(&mut self) -> Result<(), String> {
        let mut at = HEAD_BYTES;
        let metadata = self.message(&mut at)?;
        if metadata.is_empty() {
            // Filled up further, as arrow-rs does: whoever looks here finds none.
            return Ok(());
        }
        let message = root_as_message(&metadata).map_err(|error| format!("its first message: {error}"))?;
        arrow_schema::check(message.header_as_schema())
    }

    /// The bytes of the message at a place, which is then behind them; none where a stream says that it ends.
    fn message(&mut self, at: &mut u64) -> Result<Vec<u8>, String> {
        let mut length = self.length(at)?;
        if length == CONTINUATION {
            length = self.length(at)?;
        }
        let metadata = self.read(*at, u64::from(length))?;
        *at += u64::from(length);
        Ok(metadata)
    }

    fn check_block(&mut self, block: &Block) -> Result<(), String> {
        let negative = |_| "a place or size is negative".to_string();
        let start = u64::try_from(block.offset()).map_err(negative)?;
        let length = u64::try_from(block.metaDataLength()).map_err(negative)?;
        let body = u64::try_from(block.bodyLength()).map_err(negative)?;
        let metadata = self.read(start, length)?;
        let text = match metadata.first_chunk().map(|first| u32::from_le_bytes(*first)) {
            Some(CONTINUATION) => metadata.get(8..),
            _ => metadata.get(4..),
        };
        let text = text.ok_or("its message is cut off")?;
        let message = root_as_message(text).map_err(|error| format!("its message: {error}"))?;
        self.check_message(&message, start + length, body)
    }

    fn check_stream(&mut self) -> Result<(), String> {
        let mut at = 0;
        for number in 0.. {
            // A stream may end without its last mark.
            if at == self.bytes {
                return Ok(());
            }
            let metadata = self.message(&mut at)?;
            if metadata.is_empty() {
                return Ok(());
            }
            let wrong = |what: String| format!("message {number}: {what}");
            let message = root_as_message(&metadata).map_err(|error| wrong(error.to_string()))?;
            let body = u64::try_from(message.bodyLength()).map_err(|_| wrong("a negative size".into()))?;
            self.check_message(&message, at, body).map_err(wrong)?;
            at += body;
        }
        Ok(())
    }

    fn length(&mut self, at: &mut u64) -> Result<u32, String> {
        let bytes = self.read(*at, 4)?;
        *at += 4;
        Ok(bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }

    /// Whether a message fits its body, which begins at a place.
    fn check_message(&mut self, message: &Message<'_>, start: u64, body: u64) -> Result<(), String> {
        if start.checked_add(body).is_none_or(|end| end > self.bytes) {
            return Err(format!("its {body} bytes from {start} on are not within the file"));
        }
        match message.header_type() {
            MessageHeader::Schema => arrow_schema::check(message.header_as_schema()),
            MessageHeader::RecordBatch => {
                let batch = message.header_as_record_batch().ok_or("a batch without a header")?;
                self.check_batch(&batch, start, body)
            }
            MessageHeader::DictionaryBatch => {
                let batch = message.header_as_dictionary_batch().ok_or("a dictionary without a header")?;
                let batch = batch.data().ok_or("a dictionary without values")?;
                self.check_batch(&batch, start, body)
            }
            _ => Ok(()),
        }
    }

    fn check_batch(&mut self, batch: &RecordBatch<'_>, start: u64, body: u64) -> Result<(), String> {
        // Rows that nobody reads a column of are only counted: they must be those of a column, and fit the bytes.
        let first = batch.nodes().filter(|nodes| !nodes.is_empty()).map(|nodes| nodes.get(0).length());
        let of_one = if batch.compression().is_some() { 8 * MOST_BYTES_OF_ONE } else { 8 };
        let most = i64::try_from(body).unwrap_or(i64::MAX).saturating_mul(of_one).max(i64::from(i32::MAX));
        let rows = batch.length();
        if !(0..=most).contains(&rows) || first.is_some_and(|first| first != rows) {
            return Err(format!("it is said to have {rows} rows"));
        }
        for (number, node) in batch.nodes().into_iter().flatten().enumerate() {
            if node.length() < 0 || !(0..=node.length()).contains(&node.null_count()) {
                let (rows, nulls) = (node.length(), node.null_count());
                return Err(format!("column {number} is said to have {rows} values, {nulls} of them NULL"));
            }
        }
        if batch.variadicBufferCounts().into_iter().flatten().any(|count| count < 0) {
            return Err("a column of texts has fewer than no buffers".into());
        }
        for (number, buffer) in batch.buffers().into_iter().flatten().enumerate() {
            let (offset, length) = (u64::try_from(buffer.offset()), u64::try_from(buffer.length()));
            let (Ok(offset), Ok(length)) = (offset, length) else {
                return Err(format!("the place of buffer {number} is negative"));
            };
            if offset.checked_add(length).is_none_or(|end| end > body) {
                return Err(format!(
                    "buffer {number}: its {length} bytes from {offset} on are not within the batch"
                ));
            }
            if batch.compression().is_some() && length > 0 {
                self.check_compressed(start + offset, length)
                    .map_err(|what| format!("buffer {number}: {what}"))?;
            }
        }
        Ok(())
    }

    /// A compressed buffer begins with the size that it has uncompressed; -1 where it is not compressed after all.
    fn check_compressed(&mut self, start: u64, length: u64) -> Result<(), String> {
        if length < 8 {
            return Err(format!("its {length} bytes are too few for a compressed one"));
        }
        let size = self.read(start, 8)?;
        let size = size.first_chunk().map_or(0, |size| i64::from_le_bytes(*size));
        let most = i64::try_from(length).unwrap_or(i64::MAX).saturating_mul(MOST_BYTES_OF_ONE);
        match (-1..=most).contains(&size) {
            true => Ok(()),
            false => Err(format!("its {length} bytes are said to be {size} uncompressed")),
        }
    }
}
