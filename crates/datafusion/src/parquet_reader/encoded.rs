//! Columns of row groups as their pages stand in a file, for a device that decodes them (`engine::columns::encoded`). Here only headers are
//! looked at, and dictionaries decoded, which are a small part of a file; where anything is in a form that devices do not
//! decode, the column is read otherwise.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::FieldRef;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig};
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::parquet::basic::{Compression, Encoding};
use datafusion::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use kelpie_engine::source::{ChunkConsumer, EncodedChunk, EncodedPage, EncodedValues, PageCodec, PageLevels};
use kelpie_engine::{CancelToken, EngineError};
use parking_lot::Mutex;

use super::chunks::LocalFile;
use super::compressed::Decompressor;
use super::forms::{FileColumns, Read};
use super::integers::Integers;
use super::pages::PageValues;
use super::recycled::Recycled;
use crate::byte_ranges::has_row_group;
use crate::cores::on_all_cores;
use crate::page_header::{DATA, DATA_V2, DICTIONARY, PageHeader};
use crate::parts::{footer_of, is_narrowed};
use crate::row_group_pruning::KeptRowGroups;
use crate::thrift::Reader;

/// Parquet's numbers of encodings.
const PLAIN: i64 = 0;
const PLAIN_DICTIONARY: i64 = 2;
const RLE: i64 = 3;
const RLE_DICTIONARY: i64 = 8;
/// A column of a row group has fewer bytes, or is read otherwise.
const MOST_BYTES: usize = 1 << 30;

/// The files of a table, of which columns may be handed on as their pages.
pub(crate) struct EncodedFiles {
    files: Vec<EncodedFile>,
    groups: Vec<Group>,
    /// Whether NaN is one value: then floats are handed on too.
    one_nan: bool,
}

struct EncodedFile {
    path: PathBuf,
    footer: Arc<ParquetMetaData>,
}

/// A row group that is read.
#[derive(Clone, Copy)]
struct Group {
    file: usize,
    number: usize,
    /// Which of the table's rows it begins with.
    first_row: u64,
}

/// A column of a file.
#[derive(Clone, Copy)]
struct Leaf {
    number: usize,
    integers: Integers,
}

impl EncodedFiles {
    /// The row groups of a scan's local files, or those of them that are kept; `None` where a footer is not at hand.
    pub(crate) fn new(
        config: &FileScanConfig,
        footers: &FileMetadataCache,
        kept: Option<&KeptRowGroups>,
        one_nan: bool,
    ) -> Option<EncodedFiles> {
        let (mut files, mut groups, mut first_row) = (Vec::new(), Vec::new(), 0u64);
        for (at, file) in config.file_groups.iter().flat_map(FileGroup::iter).enumerate() {
            if is_narrowed(file) {
                return None;
            }
            let footer = footer_of(file, footers)?;
            for (number, group) in footer.row_groups().iter().enumerate() {
                let is_kept = kept.is_none_or(|kept| kept.of_file(at).binary_search(&number).is_ok());
                if is_kept && has_row_group(file, group) {
                    groups.push(Group { file: at, number, first_row });
                    first_row = first_row.checked_add(u64::try_from(group.num_rows()).ok()?)?;
                }
            }
            let path = LocalFileSystem::new().path_to_filesystem(&file.object_meta.location).ok()?;
            files.push(EncodedFile { path, footer });
        }
        Some(EncodedFiles { files, groups, one_nan })
    }

    /// Whether a column of the table is in all row groups in a form that can be handed on, as far as footers say.
    pub(crate) fn has(&self, field: &FieldRef) -> bool {
        let leaves: Vec<Option<Leaf>> = self.files.iter().map(|file| self.leaf(file, field)).collect();
        self.groups.iter().all(|group| {
            let (Some(file), Some(Some(leaf))) = (self.files.get(group.file), leaves.get(group.file)) else {
                return false;
            };
            is_decodable(file.footer.row_group(group.number).column(leaf.number))
        })
    }

    fn leaf(&self, file: &EncodedFile, field: &FieldRef) -> Option<Leaf> {
        let columns = FileColumns::find(&file.footer, std::slice::from_ref(field))?;
        let (Some(Read::Pages(PageValues::Integers(integers))), Some(column)) =
            (columns.readers().first().copied(), columns.wanted.first())
        else {
            return None;
        };
        let levels = file.footer.file_metadata().schema_descr().column(column.leaf).max_def_level();
        let is_fit = levels <= 1 && (!integers.are_floats() || self.one_nan);
        is_fit.then_some(Leaf { number: column.leaf, integers })
    }

    /// Hands on columns of all row groups.
    pub(crate) fn read(
        &self,
        fields: &[FieldRef],
        consumer: &ChunkConsumer<'_>,
        cancel: &CancelToken,
    ) -> Result<(), EngineError> {
        let memories: Mutex<Vec<Recycled>> = Mutex::default();
        let read = |item: usize| {
            if cancel.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            let (group, column) = (item / fields.len(), item % fields.len());
            let (Some(group), Some(field)) = (self.groups.get(group), fields.get(column)) else {
                return Ok(());
            };
            let memory = memories.lock().pop().unwrap_or_default();
            let taken = consumer(column, self.chunk(*group, field, &memory));
            memories.lock().push(memory);
            taken
        };
        on_all_cores(self.groups.len() * fields.len(), &read, None)
    }

    /// A column of a row group.
    fn chunk(&self, group: Group, field: &FieldRef, memory: &Recycled) -> Option<EncodedChunk> {
        let file = self.files.get(group.file)?;
        let leaf = self.leaf(file, field)?;
        let column = file.footer.row_group(group.number).column(leaf.number);
        let rows = usize::try_from(file.footer.row_group(group.number).num_rows()).ok()?;
        let (start, length) = column.byte_range();
        let length = usize::try_from(length).ok().filter(|length| *length <= MOST_BYTES)?;
        let bytes = LocalFile::open(&file.path, memory.clone()).ok()?.bytes(start, length).ok()?;
        let has_levels = file.footer.file_metadata().schema_descr().column(leaf.number).max_def_level() > 0;
        let mut pages = Pages::new(column, leaf.integers, has_levels, memory)?;
        pages.read(&bytes, rows)?;
        let bytes = match pages.decompressed {
            Some(decompressed) => Buffer::from_vec(decompressed),
            None => Buffer::from(bytes),
        };
        let values = match (leaf.integers.bytes, leaf.integers.are_floats()) {
            (4, false) => EncodedValues::I32,
            (_, false) => EncodedValues::I64,
            (4, true) => EncodedValues::F32,
            (_, true) => EncodedValues::F64,
        };
        let dictionary = pages.dictionary.unwrap_or_default();
        Some(EncodedChunk { first_row: group.first_row, values, bytes, pages: pages.found, dictionary })
    }
}

/// Whether a column of a row group is compressed and encoded as devices can undo it, or the host can beforehand.
fn is_decodable(column: &ColumnChunkMetaData) -> bool {
    let compression = matches!(
        column.compression(),
        Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::LZ4_RAW | Compression::ZSTD(_)
    );
    let is_rare = |encoding: Encoding| {
        matches!(
            encoding,
            Encoding::DELTA_BINARY_PACKED
                | Encoding::DELTA_LENGTH_BYTE_ARRAY
                | Encoding::DELTA_BYTE_ARRAY
                | Encoding::BYTE_STREAM_SPLIT
        )
    };
    compression && !column.encodings().any(is_rare)
}

/// The pages of a column of a row group.
struct Pages {
    codec: PageCodec,
    decompressor: Option<Decompressor>,
    /// Where the host decompresses: what it has of pages so far.
    decompressed: Option<Vec<u8>>,
    integers: Integers,
    has_levels: bool,
    found: Vec<EncodedPage>,
    dictionary: Option<Vec<i64>>,
}

impl Pages {
    fn new(
        column: &ColumnChunkMetaData,
        integers: Integers,
        has_levels: bool,
        memory: &Recycled,
    ) -> Option<Pages> {
        let codec = match column.compression() {
            Compression::UNCOMPRESSED | Compression::ZSTD(_) => PageCodec::Stored,
            Compression::SNAPPY => PageCodec::Snappy,
            Compression::LZ4_RAW => PageCodec::Lz4,
            _ => return None,
        };
        Some(Pages {
            codec,
            decompressor: Decompressor::of(column, memory.clone()),
            decompressed: matches!(column.compression(), Compression::ZSTD(_)).then(Vec::new),
            integers,
            has_levels,
            found: Vec::new(),
            dictionary: None,
        })
    }

    /// Finds the pages of so many rows; `None` where they are not as devices decode them.
    fn read(&mut self, bytes: &Bytes, rows: usize) -> Option<()> {
        let (mut at, mut left) = (0, rows);
        while left > 0 {
            let mut reader = Reader::new(bytes.get(at..)?);
            let header = PageHeader::read(&mut reader).ok()?;
            at += reader.at();
            let length = usize::try_from(header.compressed).ok()?;
            let page = bytes.get(at..at.checked_add(length)?)?;
            match header.kind {
                DICTIONARY => self.read_dictionary(&header, bytes.slice_ref(page))?,
                DATA | DATA_V2 => {
                    let rows = usize::try_from(header.values).ok().filter(|rows| *rows <= left)?;
                    if rows > 0 {
                        self.add(&header, (at, bytes.slice_ref(page)), rows)?;
                    }
                    left -= rows;
                }
                _ => {}
            }
            at += length;
        }
        Some(())
    }

    fn read_dictionary(&mut self, header: &PageHeader, page: Bytes) -> Option<()> {
        if self.dictionary.is_some() || !matches!(header.encoding, PLAIN | PLAIN_DICTIONARY) {
            return None;
        }
        let bytes = match &mut self.decompressor {
            Some(decompressor) => decompressor.bytes(&page, 0).ok()?,
            None => page,
        };
        let entries = usize::try_from(header.values).ok()?;
        self.dictionary = Some(self.integers.dictionary(&bytes, entries).ok()?.into_wide());
        Some(())
    }

    /// Adds a page with so many rows, which begins at some place of its column.
    fn add(&mut self, header: &PageHeader, (start, page): (usize, Bytes), rows: usize) -> Option<()> {
        let is_dictionary = match header.encoding {
            PLAIN => false,
            PLAIN_DICTIONARY | RLE_DICTIONARY if self.dictionary.is_some() => true,
            _ => return None,
        };
        let (levels, plain_bytes) = match (header.kind, self.has_levels) {
            (DATA, true) if header.level_encoding == RLE => (PageLevels::BehindLength, 0),
            (DATA, true) => return None,
            (DATA, false) => (PageLevels::None, 0),
            (_, has_levels) => {
                let [definitions, repetitions] = header.levels;
                let bytes = usize::try_from(definitions).ok().filter(|_| repetitions == 0)?;
                match has_levels {
                    true => (PageLevels::Plain, bytes),
                    false if bytes == 0 => (PageLevels::None, 0),
                    false => return None,
                }
            }
        };
        // A page without a value need not have any that are compressed.
        let is_compressed = header.is_compressed && page.len() > plain_bytes;
        let mut found = EncodedPage {
            start,
            bytes: page.len(),
            decompressed: usize::try_from(header.uncompressed).ok()?,
            plain_bytes,
            rows,
            codec: if is_compressed { self.codec } else { PageCodec::Stored },
            is_dictionary,
            levels,
        };
        if let (Some(all), Some(decompressor)) = (&mut self.decompressed, &mut self.decompressor) {
            let bytes = if is_compressed { decompressor.bytes(&page, plain_bytes).ok()? } else { page };
            (found.start, found.bytes, found.decompressed) = (all.len(), bytes.len(), bytes.len());
            all.extend_from_slice(&bytes);
        }
        self.found.push(found);
        Some(())
    }
}
