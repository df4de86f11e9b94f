//! Expressions over texts whose rows refer to a dictionary: they are computed once an entry of it. Batches of one row group have the same
//! dictionary, for which that is done once.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{AnyDictionaryArray, Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::error::ArrowError;
use parking_lot::Mutex;

use super::{Derived, keeps_null};

/// A dictionary may have so many times as many entries as a batch has rows, which are the first of many of its row group.
const ENTRIES_OF_ROW: usize = 4;

/// Dictionaries that are remembered: a few for each thread that reads.
const KNOWN: usize = 64;

/// The values of expressions over dictionaries.
#[derive(Debug, Default)]
pub(crate) struct DictionaryValues(Mutex<VecDeque<Known>>);

#[derive(Debug, Clone)]
struct Known {
    /// Which of a reading's expressions.
    expression: usize,
    entries: ArrayRef,
    /// Nothing where they cannot be computed apart from rows.
    values: Option<ArrayRef>,
}

impl DictionaryValues {
    /// The values of an expression over a batch of its one column, where that has a dictionary. Entries that no row has may fail:
    /// then nothing is said.
    pub fn evaluate(
        &self,
        (expression, derived): (usize, &Derived),
        column: &ArrayRef,
    ) -> Result<Option<ArrayRef>, ArrowError> {
        let Some(column) = column.as_any_dictionary_opt() else { return Ok(None) };
        let entries = column.values();
        if entries.is_empty() || entries.len() > column.keys().len().saturating_mul(ENTRIES_OF_ROW) {
            return Ok(None);
        }
        let is_it = |known: &&Known| known.expression == expression && Arc::ptr_eq(&known.entries, entries);
        let known = self.0.lock().iter().find(is_it).map(|known| known.values.clone());
        let values = match known {
            Some(values) => values,
            None => {
                let values = over_entries(derived, entries);
                let mut all = self.0.lock();
                all.push_front(Known { expression, entries: Arc::clone(entries), values: values.clone() });
                all.truncate(KNOWN);
                values
            }
        };
        values.map(|values| of_rows(column, values)).transpose()
    }
}

fn over_entries(derived: &Derived, entries: &ArrayRef) -> Option<ArrayRef> {
    let data_type = derived.inputs().first()?;
    let schema = Arc::new(Schema::new(vec![Field::new("entry", data_type.clone(), true)]));
    if !keeps_null(&derived.local, &schema) {
        return None;
    }
    let batch = RecordBatch::try_new(schema, vec![cast(entries, data_type).ok()?]).ok()?;
    let values = derived.evaluate_all(&batch).ok()?;
    // Views are no form of a dictionary's entries that others know.
    match values.data_type() {
        DataType::Utf8View => cast(&values, &DataType::Utf8).ok(),
        _ => Some(values),
    }
}

/// Texts stay a dictionary, whose entries are looked at once each when they are stored.
fn of_rows(column: &dyn AnyDictionaryArray, values: ArrayRef) -> Result<ArrayRef, ArrowError> {
    match values.data_type() {
        DataType::Utf8 if values.null_count() == 0 => Ok(column.with_values(values)),
        _ => take(&values, column.keys(), None),
    }
}
