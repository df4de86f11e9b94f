//! The pages of a column of integers, or of texts of a dictionary, in a row group.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::parquet::basic::Encoding;
use datafusion::parquet::column::page::{Page, PageMetadata, PageReader};
use datafusion::parquet::column::reader::{get_column_reader, get_typed_column_reader};
use datafusion::parquet::data_type::{DataType, Int32Type, Int64Type};
use datafusion::parquet::errors::Result as ParquetResult;
use datafusion::parquet::file::metadata::RowGroupMetaData;
use datafusion::parquet::file::page_index::offset_index::PageLocation;
use datafusion::parquet::file::serialized_reader::SerializedPageReader;
use datafusion::parquet::schema::types::ColumnDescPtr;

use super::chunks::Chunks;
use super::integers::{Batch, Integers, Values};
use super::packed::{Numbers, Run, valid_rows};
use super::texts;

/// What the values of pages are.
#[derive(Debug, Clone, Copy)]
pub(super) enum PageValues {
    Integers(Integers),
    /// Texts, of which each page refers to the dictionary.
    Texts,
}

/// A column that is being read.
pub(super) struct PageColumn {
    column: ColumnDescPtr,
    values: PageValues,
    pages: SerializedPageReader<Chunks>,
    /// Rows of the row group behind the open page.
    rows_behind: usize,
    dictionary: Option<Dictionary>,
    page: Option<OpenPage>,
}

/// What pages refer to.
enum Dictionary {
    /// As it is in the file, and decoded.
    Integers(Page, Values),
    Texts(ArrayRef),
}

impl Dictionary {
    /// Adds the entries at some places to the rows of a batch; `false` where there are none there.
    fn push(&self, places: &Run<'_>, batch: &mut Batch) -> bool {
        match self {
            Dictionary::Integers(_, values) => batch.push_places(values, places),
            Dictionary::Texts(texts) => batch.push_as_places(texts.len(), places),
        }
    }
}

/// A page of which rows are left.
struct OpenPage {
    next_row: usize,
    rows: usize,
    /// Which rows have a value; `None`: all.
    valid: Option<BooleanBuffer>,
    unread: Unread,
}

/// Values that were not read yet.
enum Unread {
    /// Places in the dictionary.
    Places(Numbers),
    /// Integers as they are.
    Plain(Integers, Bytes),
}

impl OpenPage {
    /// Which of the next rows have a value, where some have none, and how many have one.
    fn valid(&self, rows: usize) -> (Option<BooleanBuffer>, usize) {
        let valid = self.valid.as_ref().map(|valid| valid.slice(self.next_row, rows));
        let values = valid.as_ref().map_or(rows, BooleanBuffer::count_set_bits);
        (valid, values)
    }
}

/// The first bytes of a page's, or what is wrong.
fn first(bytes: &Bytes, length: usize) -> Result<Bytes, String> {
    match length <= bytes.len() {
        true => Ok(bytes.slice(..length)),
        false => Err("a page has fewer values than it says".into()),
    }
}

impl PageColumn {
    /// A column of a row group, by what was read of the file and, where not all of its pages were, where they are.
    pub(super) fn new(
        (column, values): (ColumnDescPtr, PageValues),
        (group, leaf): (&RowGroupMetaData, usize),
        chunks: Arc<Chunks>,
        locations: Option<Vec<PageLocation>>,
    ) -> Result<PageColumn, String> {
        let rows = usize::try_from(group.num_rows()).map_err(|error| error.to_string())?;
        let pages = SerializedPageReader::new(chunks, group.column(leaf), rows, locations);
        let pages = pages.map_err(|error| error.to_string())?;
        Ok(PageColumn { column, values, pages, rows_behind: rows, dictionary: None, page: None })
    }

    /// The rows that were read into a batch, as an array.
    pub(super) fn finish(&self, batch: Batch) -> Result<ArrayRef, String> {
        match (self.values, &self.dictionary) {
            (PageValues::Integers(integers), _) => batch.finish(integers),
            (PageValues::Texts, dictionary) => {
                let (places, nulls) = batch.into_values();
                let texts = dictionary.as_ref().and_then(|dictionary| match dictionary {
                    Dictionary::Texts(texts) => Some(texts),
                    Dictionary::Integers(..) => None,
                });
                texts::of_places(places, nulls, texts)
            }
        }
    }

    /// The next rows.
    pub(super) fn read(&mut self, rows: usize, batch: &mut Batch) -> Result<(), String> {
        let mut left = rows;
        while left > 0 {
            let Some(page) = &mut self.page else {
                self.open_next()?;
                continue;
            };
            let rows = left.min(page.rows - page.next_row);
            let (valid, values) = page.valid(rows);
            let before = batch.len();
            match &mut page.unread {
                Unread::Plain(integers, bytes) => {
                    let of_rows = first(bytes, values * integers.bytes)?;
                    bytes.advance(of_rows.len());
                    batch.push_plain(*integers, &of_rows);
                }
                Unread::Places(places) => {
                    let dictionary = self.dictionary.as_ref();
                    while batch.len() < before + values {
                        let run = places.next(before + values - batch.len())?;
                        if !dictionary.is_some_and(|dictionary| dictionary.push(&run, batch)) {
                            return Err("a page refers to what its dictionary does not have".into());
                        }
                    }
                }
            }
            batch.end_rows(before, valid);
            self.passed(rows);
            left -= rows;
        }
        Ok(())
    }

    /// Passes over the next rows.
    pub(super) fn skip(&mut self, rows: usize) -> Result<(), String> {
        let mut left = rows;
        while left > 0 {
            let Some(page) = &mut self.page else {
                left -= self.skip_page(left)?;
                continue;
            };
            let rows = left.min(page.rows - page.next_row);
            let (_, values) = page.valid(rows);
            match &mut page.unread {
                Unread::Plain(integers, bytes) => {
                    let skipped = first(bytes, values * integers.bytes)?.len();
                    bytes.advance(skipped);
                }
                Unread::Places(places) => places.skip(values)?,
            }
            self.passed(rows);
            left -= rows;
        }
        Ok(())
    }

    /// Notes that rows of the open page were read or passed over.
    fn passed(&mut self, rows: usize) {
        if let Some(page) = &mut self.page {
            page.next_row += rows;
            if page.next_row >= page.rows {
                self.page = None;
            }
        }
    }

    /// Passes over the next page where it has at most so many rows, else opens it; the rows that were passed over.
    fn skip_page(&mut self, most: usize) -> Result<usize, String> {
        let next = self.pages.peek_next_page().map_err(|error| error.to_string())?;
        // Of what repeats nothing, each level is a row.
        let rows = next.filter(|next| !next.is_dict).and_then(|next| next.num_rows.or(next.num_levels));
        match rows.filter(|rows| *rows <= most.min(self.rows_behind)) {
            Some(rows) => {
                self.pages.skip_next_page().map_err(|error| error.to_string())?;
                self.rows_behind -= rows;
                Ok(rows)
            }
            None => self.take_next().map(|()| 0),
        }
    }

    /// Opens the next page that has rows.
    fn open_next(&mut self) -> Result<(), String> {
        while self.page.is_none() {
            self.take_next()?;
        }
        Ok(())
    }

    /// Takes the next page: a dictionary is kept, and one that has rows is opened.
    fn take_next(&mut self) -> Result<(), String> {
        let page = self.pages.get_next_page().map_err(|error| error.to_string())?;
        let page = page.ok_or("it has fewer rows than its row group")?;
        if let Page::DictionaryPage { buf, num_values, encoding, .. } = &page {
            if !matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY) {
                return Err(format!("its dictionary is encoded as {encoding}"));
            }
            let entries = *num_values as usize;
            self.dictionary = Some(match self.values {
                PageValues::Integers(integers) => {
                    let values = integers.dictionary(buf, entries)?;
                    Dictionary::Integers(page, values)
                }
                // Rows of a batch that were read already would have other texts.
                PageValues::Texts if self.dictionary.is_some() => {
                    return Err("it has two dictionaries".into());
                }
                PageValues::Texts => Dictionary::Texts(texts::dictionary(buf, entries)?),
            });
            return Ok(());
        }
        // More rows than the row group has nobody asks for.
        let rows = (page.num_values() as usize).min(self.rows_behind);
        if rows > 0 {
            self.rows_behind -= rows;
            self.page = Some(self.open(page, rows)?);
        }
        Ok(())
    }

    /// Opens a page for so many rows.
    fn open(&self, page: Page, rows: usize) -> Result<OpenPage, String> {
        let has_nulls = self.column.max_def_level() > 0;
        let (bytes, levels) = match &page {
            Page::DataPage { def_level_encoding, .. }
                if has_nulls && *def_level_encoding != Encoding::RLE =>
            {
                return self.open_by_arrow(page, rows);
            }
            Page::DataPage { buf, .. } if has_nulls => {
                let length =
                    first(buf, 4)?.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte));
                (buf.slice(4..), length)
            }
            Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
                let before = first(buf, *rep_levels_byte_len as usize)?.len();
                (buf.slice(before..), *def_levels_byte_len as usize)
            }
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => (buf.clone(), 0),
        };
        let levels = first(&bytes, levels)?;
        let bytes = bytes.slice(levels.len()..);
        let unread = match (page.encoding(), self.values) {
            (Encoding::PLAIN, PageValues::Integers(integers)) => Unread::Plain(integers, bytes),
            (Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY, _) => {
                // A page without a value need not say anything.
                let width = bytes.first().copied().unwrap_or(0);
                Unread::Places(Numbers::new(bytes.slice(bytes.len().min(1)..), width)?)
            }
            _ => return self.open_by_arrow(page, rows),
        };
        let valid = if has_nulls { valid_rows(&levels, rows)? } else { None };
        Ok(OpenPage { next_row: 0, rows, valid, unread })
    }

    /// Opens a page of integers in one of the rarer encodings: Arrow decodes it.
    fn open_by_arrow(&self, page: Page, rows: usize) -> Result<OpenPage, String> {
        let PageValues::Integers(integers) = self.values else {
            let encoding = page.encoding();
            return Err(format!(
                "a page is encoded as {encoding}, where all are said to refer to a dictionary"
            ));
        };
        let dictionary = self.dictionary.as_ref().and_then(|dictionary| match dictionary {
            Dictionary::Integers(page, _) => Some(page.clone()),
            Dictionary::Texts(_) => None,
        });
        let pages = OnePage(dictionary.into_iter().chain([page]).collect());
        let decoded = match integers.bytes {
            4 => decoded::<Int32Type>(&self.column, pages, rows).map(|(values, levels)| {
                (values.into_iter().flat_map(i32::to_le_bytes).collect::<Vec<u8>>(), levels)
            }),
            _ => decoded::<Int64Type>(&self.column, pages, rows).map(|(values, levels)| {
                (values.into_iter().flat_map(i64::to_le_bytes).collect::<Vec<u8>>(), levels)
            }),
        };
        let (values, levels) = decoded.map_err(|error| error.to_string())?;
        let has_nulls = self.column.max_def_level() > 0;
        let valid = has_nulls.then(|| levels.iter().map(|level| *level > 0).collect::<BooleanBuffer>());
        if valid.as_ref().is_some_and(|valid| valid.len() < rows) {
            return Err("a page has fewer values than it says".into());
        }
        Ok(OpenPage { next_row: 0, rows, valid, unread: Unread::Plain(integers, values.into()) })
    }
}

/// The values of a page, and the definition level of each row.
fn decoded<T: DataType>(
    column: &ColumnDescPtr,
    pages: OnePage,
    rows: usize,
) -> ParquetResult<(Vec<T::T>, Vec<i16>)> {
    let mut reader = get_typed_column_reader::<T>(get_column_reader(Arc::clone(column), Box::new(pages)));
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    Ok((values, levels))
}

/// A page, maybe behind its dictionary.
struct OnePage(VecDeque<Page>);

impl Iterator for OnePage {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.pop_front().map(Ok)
    }
}

impl PageReader for OnePage {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        Ok(self.0.pop_front())
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        Ok(None)
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.0.pop_front();
        Ok(())
    }
}
