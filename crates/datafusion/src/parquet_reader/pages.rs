//! The pages of a column of integers, floats or texts in a row group.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::parquet::basic::Encoding;
use datafusion::parquet::column::page::{Page, PageMetadata, PageReader};
use datafusion::parquet::column::reader::{get_column_reader, get_typed_column_reader};
use datafusion::parquet::data_type::{
    ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use datafusion::parquet::errors::Result as ParquetResult;
use datafusion::parquet::schema::types::ColumnDescPtr;

use super::compressed::Pages;
use super::integers::{Batch, Integers, Values};
use super::packed::{Numbers, Run, valid_rows};
use super::texts::{self, TextBatch};

/// What the values of pages are.
#[derive(Debug, Clone, Copy)]
pub(super) enum PageValues {
    Integers(Integers),
    Texts,
}

/// A column that is being read.
pub(super) struct PageColumn {
    column: ColumnDescPtr,
    values: PageValues,
    pages: Pages,
    /// Rows of the row group behind the open page.
    rows_behind: usize,
    dictionary: Option<Dictionary>,
    page: Option<OpenPage>,
}

/// What pages refer to.
enum Dictionary {
    /// As it is in the file, and decoded.
    Integers(Page, Values),
    Texts(Page, Arc<StringArray>),
}

impl Dictionary {
    /// Adds the entries at some places to the rows of a batch; `false` where there are none there.
    fn push(&self, places: &Run<'_>, batch: &mut Rows) -> bool {
        match (self, batch) {
            (Dictionary::Integers(_, values), Rows::Integers(batch)) => batch.push_places(values, places),
            (Dictionary::Texts(_, texts), Rows::Texts(batch)) => batch.push_places(texts, places),
            (Dictionary::Integers(..), Rows::Texts(_)) | (Dictionary::Texts(..), Rows::Integers(_)) => false,
        }
    }

    fn page(&self) -> &Page {
        match self {
            Dictionary::Integers(page, _) | Dictionary::Texts(page, _) => page,
        }
    }

    fn texts(&self) -> Option<&Arc<StringArray>> {
        match self {
            Dictionary::Integers(..) => None,
            Dictionary::Texts(_, texts) => Some(texts),
        }
    }
}

/// The rows of a batch, while it is read.
pub(super) enum Rows {
    Integers(Batch),
    Texts(TextBatch),
}

impl Rows {
    /// Values that are there.
    fn len(&self) -> usize {
        match self {
            Rows::Integers(batch) => batch.len(),
            Rows::Texts(batch) => batch.len(),
        }
    }

    /// See [`Batch::end_rows`].
    fn end_rows(&mut self, from: usize, valid: Option<BooleanBuffer>) {
        match self {
            Rows::Integers(batch) => batch.end_rows(from, valid),
            Rows::Texts(batch) => batch.end_rows(from, valid),
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
    /// Texts, each behind its length.
    Texts(Bytes),
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
    /// A column by its pages in a row group of so many rows.
    pub(super) fn new(column: ColumnDescPtr, values: PageValues, pages: Pages, rows: usize) -> PageColumn {
        PageColumn { column, values, pages, rows_behind: rows, dictionary: None, page: None }
    }

    /// A batch of so many rows, before any is read.
    pub(super) fn batch(&self, rows: usize) -> Rows {
        match self.values {
            PageValues::Integers(_) => Rows::Integers(Batch::new(rows)),
            PageValues::Texts => Rows::Texts(TextBatch::new(rows)),
        }
    }

    /// The rows that were read into a batch, as an array.
    pub(super) fn finish(&self, batch: Rows) -> Result<ArrayRef, String> {
        match (self.values, batch) {
            (PageValues::Integers(integers), Rows::Integers(batch)) => batch.finish(integers),
            (_, Rows::Texts(batch)) => {
                let texts = self.dictionary.as_ref().and_then(Dictionary::texts);
                let texts = texts.map(|texts| Arc::clone(texts) as ArrayRef);
                batch.finish(texts.as_ref())
            }
            (PageValues::Texts, Rows::Integers(_)) => Err("integers are no texts".into()),
        }
    }

    /// The next rows.
    pub(super) fn read(&mut self, rows: usize, batch: &mut Rows) -> Result<(), String> {
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
                    if let Rows::Integers(batch) = batch {
                        batch.push_plain(*integers, &of_rows);
                    }
                }
                Unread::Texts(bytes) => {
                    let dictionary = self.dictionary.as_ref().and_then(Dictionary::texts);
                    if let Rows::Texts(batch) = batch {
                        batch.push_plain(bytes, values, dictionary.map(Arc::as_ref))?;
                    }
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
                Unread::Texts(bytes) => texts::skip(bytes, values)?,
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
        let next = self.pages.peek()?;
        // Of what repeats nothing, each level is a row.
        let rows = next.filter(|next| !next.is_dict).and_then(|next| next.num_rows.or(next.num_levels));
        match rows.filter(|rows| *rows <= most.min(self.rows_behind)) {
            Some(rows) => {
                self.pages.skip()?;
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
        let page = self.pages.next()?.ok_or("it has fewer rows than its row group")?;
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
                PageValues::Texts => {
                    let texts = texts::dictionary(buf, entries)?;
                    Dictionary::Texts(page, texts)
                }
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
            (Encoding::PLAIN, PageValues::Texts) => Unread::Texts(bytes),
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

    /// Opens a page in one of the rarer encodings: Arrow decodes it.
    fn open_by_arrow(&self, page: Page, rows: usize) -> Result<OpenPage, String> {
        let dictionary = self.dictionary.as_ref().map(|dictionary| dictionary.page().clone());
        let pages = OnePage(dictionary.into_iter().chain([page]).collect());
        let kind = match self.values {
            PageValues::Texts => None,
            PageValues::Integers(integers) => Some((integers.bytes, integers.are_floats())),
        };
        let decoded = match kind {
            None => decoded::<ByteArrayType, _>(&self.column, pages, rows, with_length),
            Some((4, false)) => decoded::<Int32Type, _>(&self.column, pages, rows, i32::to_le_bytes),
            Some((_, false)) => decoded::<Int64Type, _>(&self.column, pages, rows, i64::to_le_bytes),
            Some((4, true)) => decoded::<FloatType, _>(&self.column, pages, rows, f32::to_le_bytes),
            Some((_, true)) => decoded::<DoubleType, _>(&self.column, pages, rows, f64::to_le_bytes),
        };
        let (values, levels) = decoded.map_err(|error| error.to_string())?;
        let has_nulls = self.column.max_def_level() > 0;
        let valid = has_nulls.then(|| levels.iter().map(|level| *level > 0).collect::<BooleanBuffer>());
        if valid.as_ref().is_some_and(|valid| valid.len() < rows) {
            return Err("a page has fewer values than it says".into());
        }
        let unread = match self.values {
            PageValues::Texts => Unread::Texts(values.into()),
            PageValues::Integers(integers) => Unread::Plain(integers, values.into()),
        };
        Ok(OpenPage { next_row: 0, rows, valid, unread })
    }
}

/// The bytes of a page's values, and the definition level of each row.
fn decoded<T: DataType, B: IntoIterator<Item = u8>>(
    column: &ColumnDescPtr,
    pages: OnePage,
    rows: usize,
    bytes_of: impl Fn(T::T) -> B,
) -> ParquetResult<(Vec<u8>, Vec<i16>)> {
    let mut reader = get_typed_column_reader::<T>(get_column_reader(Arc::clone(column), Box::new(pages)));
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    Ok((values.into_iter().flat_map(bytes_of).collect(), levels))
}

/// A text behind its length, as pages have it.
fn with_length(text: ByteArray) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes(), text.data()].concat()
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
