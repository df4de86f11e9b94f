//! A table as a source.

use std::collections::BTreeSet;
use std::fmt;

use kelpie_kir::builder::V;

use super::roles::Source;
use crate::context::{Context, RawTexts, Unsupported, prefetched_bytes};
use crate::layout::{ColumnInfo, ColumnLayout, Storage, ValueCodes};
use crate::program::RowCount;
use crate::types::DataType;

/// Columns of a table.
#[derive(Debug)]
pub(crate) struct ScanSource {
    /// Number of the scan in the query.
    pub scan: usize,
    /// The table's name.
    pub table: String,
    /// The columns' types.
    pub types: Vec<DataType>,
    /// How they lie in memory.
    pub layouts: Vec<ColumnLayout>,
    /// The codes beside their values, where there are some; of no column where there are none.
    pub codes: Vec<Option<ValueCodes>>,
    /// What is known of them.
    pub columns: Vec<ColumnInfo>,
}

impl fmt::Display for ScanSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scan {}", self.table)
    }
}

impl Source for ScanSource {
    fn rows(&self) -> RowCount {
        RowCount::Scan(self.scan)
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        self.columns.clone()
    }

    fn has_every_row(&self) -> bool {
        true
    }

    fn is_speculative(&self) -> bool {
        true
    }

    fn is_scan(&self) -> bool {
        true
    }

    fn raw_texts(&self, column: usize) -> Option<RawTexts> {
        let ColumnLayout { storage, has_nulls, .. } = *self.layouts.get(column)?;
        let Storage::Text { offset } = storage else { return None };
        Some(RawTexts { column: (self.scan, column), offset, has_nulls })
    }

    fn live(&self, _cx: &mut Context<'_>, _row: V) -> Option<V> {
        None
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        cx.begin_scan(self.scan, (self.layouts.clone(), self.codes.clone()), self.types.clone(), row);
        Ok(())
    }

    fn prefetched_bytes(&self) -> u32 {
        prefetched_bytes(&self.layouts, &self.codes)
    }

    fn prefetch(&self, cx: &mut Context<'_>, row: V) {
        cx.prefetch(self.scan, (&self.layouts, &self.codes), row);
    }

    fn read(&self, _columns: &BTreeSet<usize>, _states: &mut BTreeSet<usize>) {}
}
