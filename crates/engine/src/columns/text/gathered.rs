//! Texts of many batches in one piece of memory.
//!
//! What is kept of a batch until the whole column is there must not lie between what the reader takes and gives back for each
//! batch: it would pin memory that the next batch needs, and every batch would pay for fresh pages. So texts go into few
//! large pieces, which are uploaded as they are.

use arrow::array::OffsetSizeTrait;
use arrow::buffer::Buffer;
use kelpie_device::prefer_huge_pages;

use super::{TextChunk, TextOffsets};

/// The most bytes of texts in one piece: more than glibc's allocator ever takes from memory that it shares out, so that the
/// system gives it apart. What is not used of it is never touched.
const MOST_BYTES: usize = 40 << 20;
/// The most rows.
const MOST_ROWS: usize = 1 << 22;
/// How much larger than the one before a piece is, at most: what a small table reserves in vain is little.
const GROWTH: usize = 4;

/// Texts one after the other.
#[derive(Debug)]
pub(in crate::columns) struct Gathered {
    /// Where each text ends.
    ends: Vec<u32>,
    /// At most [`MOST_BYTES`], unless the texts of a single batch are more.
    bytes: Vec<u8>,
}

impl Gathered {
    /// Room for a batch, and for more the more came before.
    fn with_room(rows: usize, bytes: usize, before: Option<&Gathered>) -> Gathered {
        let (rows_before, bytes_before) = before.map_or((0, 0), |g| (g.ends.capacity(), g.bytes.capacity()));
        let mut ends = Vec::with_capacity((GROWTH * rows_before).min(MOST_ROWS).max(rows));
        let mut bytes = Vec::with_capacity((GROWTH * bytes_before).min(MOST_BYTES).max(bytes));
        prefer_huge_pages(&mut ends);
        prefer_huge_pages(&mut bytes);
        Gathered { ends, bytes }
    }

    /// Whether a batch fits without moving what is there.
    fn has_room(&self, rows: usize, bytes: usize) -> bool {
        self.ends.capacity() - self.ends.len() >= rows && self.bytes.capacity() - self.bytes.len() >= bytes
    }

    /// Rows.
    pub(in crate::columns) fn rows(&self) -> usize {
        self.ends.len()
    }

    /// Where each text ends.
    pub(in crate::columns) fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The texts.
    pub(in crate::columns) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Adds texts of `bytes` bytes in all, which it returns, to the last chunk, or as a new one where that has no room.
pub(super) fn add<'a>(
    texts: impl ExactSizeIterator<Item = Option<&'a str>>,
    bytes: usize,
    chunks: &mut Vec<TextChunk>,
) -> usize {
    if bytes > MOST_BYTES {
        chunks.push(apart(texts, bytes));
        return bytes;
    }
    if let Some(piece) = with_room(texts.len(), bytes, chunks) {
        for text in texts {
            piece.bytes.extend_from_slice(text.unwrap_or_default().as_bytes());
            piece.ends.push(piece.bytes.len() as u32);
        }
    }
    bytes
}

/// Adds texts that lie one after the other, in the same way. `None` where they are too many bytes for a piece, and nothing is added.
pub(super) fn add_run<O: OffsetSizeTrait>(
    offsets: &[O],
    texts: &[u8],
    chunks: &mut Vec<TextChunk>,
) -> Option<usize> {
    let (first, last) = (offsets.first()?.as_usize(), offsets.last()?.as_usize());
    let bytes = texts.get(first..last).filter(|bytes| bytes.len() <= MOST_BYTES)?;
    let piece = with_room(offsets.len() - 1, bytes.len(), chunks)?;
    let start = piece.bytes.len();
    piece.bytes.extend_from_slice(bytes);
    piece.ends.extend(offsets.iter().skip(1).map(|end| (start + end.as_usize() - first) as u32));
    Some(bytes.len())
}

/// The last chunk where it has room for some texts, or else a new one.
fn with_room(rows: usize, bytes: usize, chunks: &mut Vec<TextChunk>) -> Option<&mut Gathered> {
    let fits = matches!(chunks.last(), Some(TextChunk::Gathered(last)) if last.has_room(rows, bytes));
    if !fits {
        let last = chunks.iter().rev().find_map(|chunk| match chunk {
            TextChunk::Gathered(gathered) => Some(gathered),
            _ => None,
        });
        let new = Gathered::with_room(rows, bytes, last);
        chunks.push(TextChunk::Gathered(new));
    }
    match chunks.last_mut() {
        Some(TextChunk::Gathered(piece)) => Some(piece),
        _ => None,
    }
}

/// Texts that are too many bytes for a piece.
fn apart<'a>(texts: impl ExactSizeIterator<Item = Option<&'a str>>, bytes: usize) -> TextChunk {
    let mut offsets = Vec::with_capacity(texts.len() + 1);
    let mut gathered = Vec::with_capacity(bytes);
    offsets.push(0);
    for text in texts {
        gathered.extend_from_slice(text.unwrap_or_default().as_bytes());
        offsets.push(gathered.len() as i64);
    }
    TextChunk::Raw(TextOffsets::I64(offsets.into()), Buffer::from_vec(gathered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_share_pieces_that_grow_up_to_a_limit() {
        let mut chunks = Vec::new();
        let text = "0123456789".repeat(10);
        for _ in 0..200 {
            let texts = (0..8192).map(|row| (row % 8 > 0).then_some(text.as_str()));
            add(texts, 8192 / 8 * 7 * 100, &mut chunks);
        }
        let pieces: Vec<&Gathered> = chunks
            .iter()
            .map(|chunk| match chunk {
                TextChunk::Gathered(gathered) => gathered,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(pieces.iter().map(|piece| piece.rows()).sum::<usize>(), 200 * 8192);
        assert!(pieces.len() < 10, "{}", pieces.len());
        for piece in pieces {
            assert!(piece.rows() <= MOST_ROWS && piece.bytes().len() <= MOST_BYTES);
            assert_eq!(piece.ends().last().map(|end| *end as usize), Some(piece.bytes().len()));
        }
    }

    #[test]
    fn a_batch_of_very_long_texts_lies_alone() {
        let long = "x".repeat(MOST_BYTES);
        let mut chunks = Vec::new();
        add([Some("a")].into_iter(), 1, &mut chunks);
        add([Some(long.as_str()), None, Some("b")].into_iter(), long.len() + 1, &mut chunks);
        add([Some("c")].into_iter(), 1, &mut chunks);
        let rows: Vec<usize> = chunks.iter().map(TextChunk::rows).collect();
        assert_eq!(rows, [1, 3, 1]);
        assert!(matches!(&chunks[1], TextChunk::Raw(..)));
    }
}
