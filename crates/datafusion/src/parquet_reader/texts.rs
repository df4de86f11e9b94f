//! Texts of pages: those that refer to a dictionary as this and each row's place in it, others one after the other.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use datafusion::arrow::array::{
    Array, ArrayRef, DictionaryArray, LargeStringArray, NullBufferBuilder, PrimitiveArray, StringArray,
};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::{ArrowDictionaryKeyType, Int32Type, UInt8Type, UInt16Type};

use super::integers::{Batch, Values};
use super::packed::Run;

/// The texts of a batch, while it is read.
pub(super) enum TextBatch {
    /// All rows so far refer to a dictionary.
    Places(Batch),
    Rows(TextRows),
}

/// Texts one after the other.
pub(super) struct TextRows {
    /// Where each row's text ends, behind a 0.
    ends: Vec<i64>,
    bytes: Vec<u8>,
    nulls: NullBufferBuilder,
}

/// What is wrong with a page whose last text is longer than what is left of it.
const CUT: &str = "a page has fewer values than it says";

/// The next text of some bytes, behind its length in four bytes.
fn split_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, behind) = bytes.split_first_chunk::<4>()?;
    behind.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// Passes over so many texts.
pub(super) fn skip(page: &mut Bytes, count: usize) -> Result<(), String> {
    let mut rest: &[u8] = page;
    for _ in 0..count {
        (_, rest) = split_text(rest).ok_or(CUT)?;
    }
    let passed = page.len() - rest.len();
    page.advance(passed);
    Ok(())
}

impl TextRows {
    fn new(rows: usize) -> TextRows {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        TextRows { ends, bytes: Vec::new(), nulls: NullBufferBuilder::new(rows) }
    }

    /// Values that are there.
    fn len(&self) -> usize {
        self.ends.len() - 1
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as i64);
    }

    /// Says which rows the values have that were added since there were so many; `None`: one each. A row without one has no bytes.
    fn end_rows(&mut self, from: usize, valid: Option<BooleanBuffer>) {
        let Some(valid) = valid else {
            return self.nulls.append_n_non_nulls(self.len() - from);
        };
        let own: Vec<i64> = self.ends.drain(from + 1..).collect();
        let mut own = own.into_iter();
        let mut end = self.ends.last().copied().unwrap_or_default();
        self.ends.extend(valid.iter().map(|valid| {
            if valid {
                end = own.next().unwrap_or(end);
            }
            end
        }));
        self.nulls.append_buffer(&NullBuffer::new(valid));
    }

    /// Adds the texts at some places of a dictionary; `false` where it has not all of these.
    fn push_places(&mut self, dictionary: &StringArray, places: &Run<'_>) -> bool {
        let mut has_all = true;
        let mut push = |place: u32| {
            let place = place as usize;
            has_all &= place < dictionary.len();
            self.push(if place < dictionary.len() { dictionary.value(place).as_bytes() } else { &[] });
        };
        match places {
            Run::Same(place, count) => (0..*count).for_each(|_| push(*place)),
            Run::Each(places) => places.iter().for_each(|place| push(*place)),
        }
        has_all
    }

    fn finish(mut self) -> Result<ArrayRef, String> {
        let nulls = self.nulls.finish();
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        // Whether they are UTF-8 is looked at here, in one go.
        let texts = LargeStringArray::try_new(offsets, Buffer::from_vec(self.bytes), nulls);
        Ok(Arc::new(texts.map_err(|error| error.to_string())?))
    }
}

impl TextBatch {
    /// For so many rows.
    pub(super) fn new(rows: usize) -> TextBatch {
        TextBatch::Places(Batch::new(rows))
    }

    /// Values that are there.
    pub(super) fn len(&self) -> usize {
        match self {
            TextBatch::Places(places) => places.len(),
            TextBatch::Rows(rows) => rows.len(),
        }
    }

    /// See [`Batch::end_rows`].
    pub(super) fn end_rows(&mut self, from: usize, valid: Option<BooleanBuffer>) {
        match self {
            TextBatch::Places(places) => places.end_rows(from, valid),
            TextBatch::Rows(rows) => rows.end_rows(from, valid),
        }
    }

    /// Adds the texts at some places of a dictionary; `false` where it has not all of these.
    pub(super) fn push_places(&mut self, dictionary: &StringArray, places: &Run<'_>) -> bool {
        match self {
            TextBatch::Places(batch) => batch.push_as_places(dictionary.len(), places),
            TextBatch::Rows(rows) => rows.push_places(dictionary, places),
        }
    }

    /// Adds so many texts as a page has them.
    pub(super) fn push_plain(
        &mut self,
        page: &mut Bytes,
        count: usize,
        dictionary: Option<&StringArray>,
    ) -> Result<(), String> {
        let rows = self.rows(dictionary)?;
        rows.ends.reserve(count);
        let mut rest: &[u8] = page;
        for _ in 0..count {
            let (text, behind) = split_text(rest).ok_or(CUT)?;
            rows.push(text);
            rest = behind;
        }
        let passed = page.len() - rest.len();
        page.advance(passed);
        Ok(())
    }

    /// The batch as texts: those that are in a dictionary are looked up.
    fn rows(&mut self, dictionary: Option<&StringArray>) -> Result<&mut TextRows, String> {
        if let TextBatch::Places(places) = self {
            let places = std::mem::replace(places, Batch::new(0));
            let (places, nulls) = places.into_values();
            let places = places.into_wide();
            let mut rows = TextRows::new(places.len());
            for (row, place) in places.iter().enumerate() {
                let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
                let text = dictionary.and_then(|texts| {
                    let place = usize::try_from(*place).ok().filter(|place| *place < texts.len())?;
                    Some(texts.value(place))
                });
                match text {
                    _ if is_null => rows.push(&[]),
                    Some(text) => rows.push(text.as_bytes()),
                    None => return Err("a page refers to what its dictionary does not have".into()),
                }
            }
            match nulls {
                Some(nulls) => rows.nulls.append_buffer(&nulls),
                None => rows.nulls.append_n_non_nulls(places.len()),
            }
            *self = TextBatch::Rows(rows);
        }
        match self {
            TextBatch::Rows(rows) => Ok(rows),
            TextBatch::Places(_) => Err("texts are still places".into()),
        }
    }

    /// The rows, as an array.
    pub(super) fn finish(self, dictionary: Option<&ArrayRef>) -> Result<ArrayRef, String> {
        match self {
            TextBatch::Places(places) => {
                let (places, nulls) = places.into_values();
                of_places(places, nulls, dictionary)
            }
            TextBatch::Rows(rows) => rows.finish(),
        }
    }
}

/// The texts of a dictionary's page, each behind its length in four bytes; or what is wrong with them.
pub(super) fn dictionary(bytes: &[u8], entries: usize) -> Result<Arc<StringArray>, String> {
    let cut = || "its dictionary has fewer entries than it says".to_string();
    let (mut rest, mut texts, mut ends) = (bytes, Vec::with_capacity(bytes.len()), vec![0]);
    for _ in 0..entries {
        let (text, behind) = split_text(rest).ok_or_else(cut)?;
        texts.extend_from_slice(text);
        ends.push(i32::try_from(texts.len()).map_err(|_| "its dictionary has more than 2 GB")?);
        rest = behind;
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
    // Whether they are UTF-8 is looked at here, once a dictionary.
    let texts = StringArray::try_new(offsets, Buffer::from_vec(texts), None);
    Ok(Arc::new(texts.map_err(|error| error.to_string())?))
}

/// The texts of some rows by their places in a dictionary; nothing but NULLs where there is none.
fn of_places(
    places: Values,
    nulls: Option<NullBuffer>,
    dictionary: Option<&ArrayRef>,
) -> Result<ArrayRef, String> {
    fn keyed<K: ArrowDictionaryKeyType>(
        places: Vec<K::Native>,
        nulls: Option<NullBuffer>,
        texts: ArrayRef,
    ) -> Result<ArrayRef, String> {
        let places = PrimitiveArray::<K>::try_new(places.into(), nulls);
        let keyed = places.and_then(|places| DictionaryArray::try_new(places, texts));
        Ok(Arc::new(keyed.map_err(|error| error.to_string())?))
    }
    let none = || Arc::new(StringArray::new_null(0)) as ArrayRef;
    let texts = dictionary.map_or_else(none, Arc::clone);
    match places {
        Values::U8(places) => keyed::<UInt8Type>(places, nulls, texts),
        Values::U16(places) => keyed::<UInt16Type>(places, nulls, texts),
        Values::I32(places) => keyed::<Int32Type>(places, nulls, texts),
        Values::I64(_) => Err("its dictionary has too many entries".into()),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, AsArray};
    use datafusion::arrow::datatypes::DataType;

    use super::*;

    fn page(texts: &[&[u8]]) -> Vec<u8> {
        let one = |text: &&[u8]| [&(text.len() as u32).to_le_bytes(), *text].concat();
        texts.iter().flat_map(one).collect()
    }

    #[test]
    fn dictionaries_are_read_and_checked() {
        let texts = dictionary(&page(&[b"b", b"", "größe".as_bytes()]), 3).unwrap();
        assert_eq!(texts.iter().flatten().collect::<Vec<_>>(), ["b", "", "größe"]);
        assert_eq!(dictionary(&[], 0).unwrap().len(), 0);
        let whole = page(&[b"abc", b"d"]);
        for bytes in [&whole[..9], &whole[..8], &whole[..3], &[]] {
            assert!(dictionary(bytes, 2).is_err(), "{bytes:?}");
        }
        assert!(dictionary(&[0xff, 0xff, 0xff, 0xff, 1], 1).is_err());
        // Half a letter, and a letter that begins in one text and ends in the next.
        assert!(dictionary(&page(&[&[0xc3]]), 1).is_err());
        assert!(dictionary(&page(&[&[b'a', 0xc3], &[0xb6]]), 2).is_err());
    }

    #[test]
    fn rows_have_the_texts_of_their_places() {
        let texts: ArrayRef = dictionary(&page(&[b"x", b"y"]), 2).unwrap();
        let nulls = NullBuffer::from(vec![true, false, true]);
        let array = of_places(Values::U16(vec![1, 0, 0]), Some(nulls), Some(&texts)).unwrap();
        assert_eq!(
            array.data_type(),
            &DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8))
        );
        let array = array.as_dictionary::<UInt16Type>().downcast_dict::<StringArray>().unwrap();
        assert_eq!(array.into_iter().collect::<Vec<_>>(), [Some("y"), None, Some("x")]);
        assert!(of_places(Values::U8(vec![2]), None, Some(&texts)).is_err());
        let nothing = of_places(Values::U8(vec![0, 0]), Some(NullBuffer::new_null(2)), None).unwrap();
        assert_eq!(nothing.logical_null_count(), 2);
    }

    #[test]
    fn rows_of_a_dictionary_and_texts_behind_it_make_one_batch() {
        let texts = dictionary(&page(&[b"x", b"longer"]), 2).unwrap();
        let mut plain = Bytes::from(page(&[b"skipped", b"", "größe".as_bytes(), b"z"]));
        skip(&mut plain, 1).unwrap();
        let mut batch = TextBatch::new(9);
        assert!(batch.push_places(&texts, &Run::Each(&[1, 0])));
        batch.end_rows(0, Some(BooleanBuffer::from(vec![true, false, true])));
        batch.push_plain(&mut plain, 2, Some(&texts)).unwrap();
        batch.end_rows(3, Some(BooleanBuffer::from(vec![false, true, true, false])));
        assert_eq!(batch.len(), 7);
        assert!(batch.push_places(&texts, &Run::Same(0, 1)));
        batch.push_plain(&mut plain, 1, Some(&texts)).unwrap();
        batch.end_rows(7, None);
        assert!(plain.is_empty() && batch.push_plain(&mut plain, 1, None).is_err());
        let array = batch.finish(None).unwrap();
        let rows: Vec<_> = array.as_string::<i64>().iter().collect();
        let expected =
            [Some("longer"), None, Some("x"), None, Some(""), Some("größe"), None, Some("x"), Some("z")];
        assert_eq!(rows, expected);
    }

    #[test]
    fn damaged_texts_are_told() {
        let texts = dictionary(&page(&[b"x"]), 1).unwrap();
        let whole = page(&[b"abc"]);
        for bytes in [&whole[..6], &whole[..3], &[0xff, 0xff, 0xff, 0xff, b'a']] {
            let mut bytes = Bytes::copy_from_slice(bytes);
            assert!(TextBatch::new(1).push_plain(&mut bytes.clone(), 1, None).is_err());
            assert!(skip(&mut bytes, 1).is_err());
        }
        let mut batch = TextBatch::new(2);
        batch.push_plain(&mut Bytes::from(page(&[&[b'a', 0xc3], &[0xb6]])), 2, None).unwrap();
        assert!(!batch.push_places(&texts, &Run::Same(1, 1)));
        batch.end_rows(0, None);
        assert!(batch.finish(None).is_err());
        // Places that the dictionary has not are found when they become texts, too.
        let mut batch = TextBatch::new(2);
        assert!(!batch.push_places(&texts, &Run::Same(1, 1)));
        batch.end_rows(0, None);
        assert!(batch.push_plain(&mut Bytes::from(page(&[b"a"])), 1, Some(&texts)).is_err());
    }
}
