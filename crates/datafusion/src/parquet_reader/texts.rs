//! Texts of pages that refer to a dictionary: the dictionary, and each row's place in it.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, DictionaryArray, PrimitiveArray, StringArray};
use datafusion::arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::{ArrowDictionaryKeyType, Int32Type, UInt8Type, UInt16Type};

use super::integers::Values;

/// The texts of a dictionary's page, each behind its length in four bytes; or what is wrong with them.
pub(super) fn dictionary(bytes: &[u8], entries: usize) -> Result<ArrayRef, String> {
    let cut = || "its dictionary has fewer entries than it says".to_string();
    let (mut rest, mut texts, mut ends) = (bytes, Vec::with_capacity(bytes.len()), vec![0]);
    for _ in 0..entries {
        let (length, behind) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| cut())?;
        let (text, behind) = behind.split_at_checked(length).ok_or_else(cut)?;
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
pub(super) fn of_places(
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
        assert_eq!(texts.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["b", "", "größe"]);
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
        let texts = dictionary(&page(&[b"x", b"y"]), 2).unwrap();
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
}
