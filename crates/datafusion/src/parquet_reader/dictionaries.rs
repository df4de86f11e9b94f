//! Dictionaries of texts, checked once each.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, StringArray};
use datafusion::arrow::datatypes::{DataType, Int32Type};

/// The last dictionary of a column.
///
/// The reader makes an array of it anew for each batch, over the same bytes, and does not look whether they are text.
#[derive(Debug, Default)]
pub(super) struct LastDictionary {
    read: Option<StringArray>,
    checked: Option<ArrayRef>,
}

impl LastDictionary {
    /// The array over a dictionary that was checked, the same one for all batches that share it. Other arrays stay as they are.
    pub(super) fn checked(&mut self, array: ArrayRef) -> Result<ArrayRef, String> {
        let DataType::Dictionary(_, _) = array.data_type() else { return Ok(array) };
        let Some(dictionary) = array.as_dictionary_opt::<Int32Type>() else { return Ok(array) };
        let Some(values) = dictionary.values().as_string_opt::<i32>() else { return Ok(array) };
        if values.is_empty() && dictionary.null_count() < dictionary.len() {
            return Err("its pages refer to a dictionary that has no entries".into());
        }
        let is_last = self.read.as_ref().is_some_and(|read| {
            read.len() == values.len()
                && read.offsets().ptr_eq(values.offsets())
                && read.values().ptr_eq(values.values())
        });
        if !is_last {
            let (offsets, bytes) = (values.offsets().clone(), values.values().clone());
            let texts = StringArray::try_new(offsets, bytes, None).map_err(|error| error.to_string())?;
            self.checked = Some(Arc::new(texts));
            self.read = Some(values.clone());
        }
        match &self.checked {
            Some(checked) => Ok(Arc::new(with_values(dictionary, checked))),
            None => Ok(array),
        }
    }
}

fn with_values(dictionary: &DictionaryArray<Int32Type>, values: &ArrayRef) -> DictionaryArray<Int32Type> {
    dictionary.with_values(Arc::clone(values))
}
