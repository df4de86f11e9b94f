//! Pages of a column, decompressed into memory that was used before.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::column::page::{Page, PageMetadata, PageReader};
use datafusion::parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use datafusion::parquet::file::page_index::offset_index::PageLocation;
use datafusion::parquet::file::serialized_reader::SerializedPageReader;
use lz4_flex::block::DecompressError;

use super::chunks::Chunks;
use super::recycled::Recycled;

/// A page of so many bytes may have more than its column says that it has in all.
const LARGE_PAGE: usize = 64 << 20;
/// Most bytes that one byte of a page stands for: what is said to be more is damaged, and nobody makes room for it. Zstandard writes a
/// block of 128 KB that has one value in four bytes.
const MOST_BYTES_OF_ONE: usize = 1 << 15;
/// How many times its bytes a page of which nothing is known has room for at first.
const FIRST_ROOM: usize = 4;

/// What pages are compressed by, where it is undone here. The rest is left to Parquet's reader, which takes new memory for each page.
#[derive(Debug, Clone, Copy)]
enum Codec {
    Snappy,
    Zstd,
    Lz4,
}

impl Codec {
    fn of(compression: Compression) -> Option<Codec> {
        match compression {
            Compression::SNAPPY => Some(Codec::Snappy),
            Compression::ZSTD(_) => Some(Codec::Zstd),
            Compression::LZ4_RAW => Some(Codec::Lz4),
            _ => None,
        }
    }
}

/// Whether pages in a compression get no more room than what is checked here, whatever their headers say.
pub(super) fn makes_checked_room(compression: Compression) -> bool {
    compression == Compression::UNCOMPRESSED || Codec::of(compression).is_some()
}

/// The pages of a column in a row group.
pub(super) struct Pages {
    reader: SerializedPageReader<Chunks>,
    decompressor: Option<Decompressor>,
}

impl Pages {
    /// Those of a row group's column, where not all of them were read by where they are.
    pub(super) fn new(
        (group, leaf): (&RowGroupMetaData, usize),
        chunks: Arc<Chunks>,
        locations: Option<Vec<PageLocation>>,
        memory: Recycled,
    ) -> Result<Pages, String> {
        let rows = usize::try_from(group.num_rows()).map_err(|error| error.to_string())?;
        let column = group.column(leaf);
        let decompressor = Decompressor::of(column, memory);
        // A reader that is told of no compression hands pages on as they are.
        let plain = decompressor
            .is_some()
            .then(|| column.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build());
        let plain = plain.transpose().map_err(|error| error.to_string())?;
        let reader = SerializedPageReader::new(chunks, plain.as_ref().unwrap_or(column), rows, locations);
        let reader = reader.map_err(|error| error.to_string())?;
        Ok(Pages { reader, decompressor })
    }

    /// What is known of the next page before it is read.
    pub(super) fn peek(&mut self) -> Result<Option<PageMetadata>, String> {
        self.reader.peek_next_page().map_err(|error| error.to_string())
    }

    /// Passes over the next page.
    pub(super) fn skip(&mut self) -> Result<(), String> {
        self.reader.skip_next_page().map_err(|error| error.to_string())
    }

    /// The next page; `None` behind the last.
    pub(super) fn next(&mut self) -> Result<Option<Page>, String> {
        let page = self.reader.get_next_page().map_err(|error| error.to_string())?;
        match (page, &mut self.decompressor) {
            (Some(page), Some(decompressor)) => decompressor.page(page).map(Some),
            (page, _) => Ok(page),
        }
    }
}

/// Decompresses the pages of a column.
pub(super) struct Decompressor {
    codec: Codec,
    memory: Recycled,
    /// Most bytes of a page.
    most: usize,
    /// Of pages that do not say how long they are: as many bytes as the longest so far had.
    longest: usize,
}

impl Decompressor {
    /// For what a column is compressed by, where it is undone here.
    pub(super) fn of(column: &ColumnChunkMetaData, memory: Recycled) -> Option<Decompressor> {
        let codec = Codec::of(column.compression())?;
        let most = usize::try_from(column.uncompressed_size()).unwrap_or(0).max(LARGE_PAGE);
        Some(Decompressor { codec, memory, most, longest: 0 })
    }

    fn page(&mut self, mut page: Page) -> Result<Page, String> {
        match &mut page {
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => *buf = self.bytes(buf, 0)?,
            Page::DataPageV2 { buf, is_compressed, def_levels_byte_len, rep_levels_byte_len, .. } => {
                let levels = (*def_levels_byte_len as usize).saturating_add(*rep_levels_byte_len as usize);
                // A page without a value need not have any that are compressed.
                if *is_compressed && buf.len() > levels {
                    *buf = self.bytes(buf, levels)?;
                }
            }
        }
        Ok(page)
    }

    /// The bytes of a page, of which the first ones are as they are.
    pub(super) fn bytes(&mut self, page: &Bytes, plain: usize) -> Result<Bytes, String> {
        let (plain, compressed) = page.split_at_checked(plain).ok_or("a page is too short")?;
        if compressed.is_empty() {
            return Ok(page.clone());
        }
        match self.codec {
            Codec::Snappy => {
                let length = snap::raw::decompress_len(compressed).map_err(|error| error.to_string())?;
                self.of_length((plain, compressed), length, |values| {
                    snap::raw::Decoder::new()
                        .decompress(compressed, values)
                        .map_err(|error| error.to_string())
                })
            }
            Codec::Zstd => match zstd::bulk::Decompressor::upper_bound(compressed) {
                Some(length) => self.of_length((plain, compressed), length, |values| {
                    let decompressor = zstd::bulk::Decompressor::new();
                    let written =
                        decompressor.and_then(|mut own| own.decompress_to_buffer(compressed, values));
                    written.map_err(|error| error.to_string())
                }),
                None => self.of_frames(plain, compressed),
            },
            Codec::Lz4 => self.of_unknown_length(plain, compressed),
        }
    }

    /// The bytes of a page of Zstandard whose frames do not say how many they are.
    fn of_frames(&self, plain: &[u8], compressed: &[u8]) -> Result<Bytes, String> {
        let mut bytes = plain.to_vec();
        let decoder = zstd::stream::read::Decoder::new(compressed).map_err(|error| error.to_string())?;
        let read = decoder.take(self.most as u64 + 1).read_to_end(&mut bytes);
        match read.map_err(|error| error.to_string())? {
            read if read > self.most => Err(format!("a page has more than {} bytes uncompressed", self.most)),
            _ => Ok(bytes.into()),
        }
    }

    /// The bytes of a page that says how many they are, behind those that are as they are.
    fn of_length(
        &self,
        (plain, compressed): (&[u8], &[u8]),
        length: usize,
        decompress: impl FnOnce(&mut [u8]) -> Result<usize, String>,
    ) -> Result<Bytes, String> {
        if length > self.most.min(compressed.len().saturating_mul(MOST_BYTES_OF_ONE)) {
            let bytes = compressed.len();
            return Err(format!("a page of {bytes} bytes is said to have {length} uncompressed"));
        }
        self.memory.bytes(plain.len() + length, |out| {
            let (levels, values) = out.split_at_mut(plain.len());
            levels.copy_from_slice(plain);
            match decompress(values)? {
                written if written == length => Ok(()),
                written => Err(format!("a page has {written} bytes where {length} are promised")),
            }
        })
    }

    /// The bytes of a page of LZ4, which does not say how many they are: mostly about as many as those of the page before.
    fn of_unknown_length(&mut self, plain: &[u8], compressed: &[u8]) -> Result<Bytes, String> {
        let mut room = compressed.len().saturating_mul(FIRST_ROOM).max(self.longest + self.longest / 8);
        loop {
            room = room.min(self.most);
            let mut written = Ok(0);
            let page = self.memory.bytes(plain.len() + room, |out| {
                let (levels, values) = out.split_at_mut(plain.len());
                levels.copy_from_slice(plain);
                written = lz4_flex::block::decompress_into(compressed, values);
                Ok::<(), String>(())
            })?;
            match written {
                Ok(written) => {
                    self.longest = self.longest.max(written);
                    return Ok(page.slice(..plain.len() + written));
                }
                Err(DecompressError::OutputTooSmall { .. }) if room < self.most => room *= 2,
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decompressor(codec: Codec) -> Decompressor {
        Decompressor { codec, memory: Recycled::default(), most: LARGE_PAGE, longest: 0 }
    }

    /// Values behind some levels, as each codec has them.
    fn pages(levels: &[u8], values: &[u8]) -> [(Codec, Bytes); 3] {
        let snappy = snap::raw::Encoder::new().compress_vec(values).unwrap();
        let zstd = zstd::bulk::compress(values, 1).unwrap();
        let lz4 = lz4_flex::block::compress(values);
        let page = |compressed: Vec<u8>| Bytes::from([levels, &compressed].concat());
        [(Codec::Snappy, page(snappy)), (Codec::Zstd, page(zstd)), (Codec::Lz4, page(lz4))]
    }

    #[test]
    fn pages_of_all_lengths_are_decompressed() {
        let all_alike = vec![7u8; 1 << 20];
        let unlike: Vec<u8> =
            (0..100_000u32).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
        for values in [&all_alike[..], &all_alike[..1], &unlike[..], &unlike[..9]] {
            for (codec, page) in pages(b"levels", values) {
                let mut decompressor = decompressor(codec);
                // Memory that was used before.
                for _ in 0..3 {
                    let bytes = decompressor.bytes(&page, 6).unwrap();
                    assert!(bytes == [b"levels", values].concat(), "{codec:?} {}", values.len());
                }
                assert_eq!(decompressor.bytes(&page.slice(..6), 6).unwrap(), "levels");
                assert!(decompressor.bytes(&page, page.len() + 1).is_err());
            }
        }
    }

    #[test]
    fn frames_need_not_say_how_long_they_are() {
        let values = vec![3u8; 300_000];
        let stream = Bytes::from(zstd::stream::encode_all(&values[..], 1).unwrap());
        let mut large = decompressor(Codec::Zstd);
        assert_eq!(large.bytes(&stream, 0).unwrap().len(), values.len());
        assert_eq!(large.of_frames(b"", &stream).unwrap(), values);
        let small = Decompressor { most: 1_000, ..decompressor(Codec::Zstd) };
        assert!(small.of_frames(b"", &stream).unwrap_err().contains("more than 1000 bytes"));
    }

    #[test]
    fn pages_that_lie_are_told_and_get_no_room() {
        // A byte that is said to be 4 GB, and 1 GB that a frame says it has, of which nothing is there.
        let snappy = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0]);
        assert!(decompressor(Codec::Snappy).bytes(&snappy, 0).is_err());
        let zstd = Bytes::from_static(&[0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x40, 1, 0, 0]);
        assert!(decompressor(Codec::Zstd).bytes(&zstd, 0).is_err());
        for (codec, page) in pages(b"", &vec![1; 1 << 16]) {
            let mut small = Decompressor { most: 1 << 15, ..decompressor(codec) };
            assert!(small.bytes(&page, 0).is_err(), "{codec:?}");
            assert!(decompressor(codec).bytes(&page.slice(..page.len() - 3), 0).is_err(), "{codec:?}");
        }
    }
}
