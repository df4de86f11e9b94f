//! A column in memory that a device addresses.

use std::sync::{Arc, OnceLock};

use kelpie_compile::layout::{ColumnFacts, ColumnLayout, Direction, Scattered, ValueCodes};
use kelpie_compile::types::Spacing;
use kelpie_device::Buffer;

use super::sample::Sample;
use super::spread::{self, Zone};

/// A column of every row of a table in device memory.
#[derive(Debug, Clone)]
pub struct ResidentColumn {
    /// How it lies there.
    pub layout: ColumnLayout,
    /// Rows.
    pub rows: u64,
    /// Values, validity and offsets lie in host memory that the device addresses; a small dictionary is on the device.
    pub on_host: bool,
    /// What is added to a stored value (`Storage::Fixed` with `has_base`), else 0.
    pub base: i128,
    /// Values, codes or text bytes.
    pub data: Buffer,
    /// Validity bitmap.
    pub validity: Option<Buffer>,
    /// Offsets of text.
    pub offsets: Option<Buffer>,
    /// Offsets and bytes of the dictionary's entries.
    pub dictionary: Option<(Buffer, Buffer)>,
    /// What is known of the column's rows, one part after the other; empty where nothing is.
    pub zones: Vec<Zone>,
    /// Where there are many values, equal ones far from each other.
    pub scattered: Option<Scattered>,
    /// Frequent values have a good share of the rows.
    pub has_frequent: bool,
    /// Values of some rows, where there are many rows.
    pub sample: Option<Arc<Sample>>,
    /// [`Self::is_clustered`], once it was asked: there may be thousands of zones.
    pub clustered: OnceLock<bool>,
    /// All of its rows were looked at: no value is there twice, and none is NULL. Of most columns nobody knows.
    pub is_unique: bool,
    /// The order of its values from row to row, by all of its rows, where they have one and none is NULL.
    pub order: Option<Direction>,
    /// The distances of its values, by all of its rows, where they have one.
    pub spacing: Option<Spacing>,
    /// Codes beside its values, where these are few integers far from each other, once rows were grouped by it.
    pub coded: OnceLock<Option<ColumnCodes>>,
}

/// Codes beside a column's values.
#[derive(Debug, Clone)]
pub struct ColumnCodes {
    /// How they lie there.
    pub layout: ValueCodes,
    /// One a row.
    pub codes: Buffer,
    /// The values that they stand for, in order.
    pub entries: Buffer,
}

impl ResidentColumn {
    /// Whether rows that follow each other have values near each other ([`spread::are_clustered`]).
    pub fn is_clustered(&self) -> bool {
        *self.clustered.get_or_init(|| spread::are_clustered(&self.zones, self.rows))
    }

    /// The codes beside its values, where it has some.
    pub fn codes(&self) -> Option<&ColumnCodes> {
        self.coded.get()?.as_ref()
    }

    /// What the compiler must know of it.
    pub fn facts(&self) -> ColumnFacts {
        ColumnFacts {
            layout: self.layout.clone(),
            scattered: self.scattered,
            has_frequent: self.has_frequent,
            is_clustered: self.is_clustered(),
            is_unique: self.is_unique,
            spacing: self.spacing,
            codes: self.codes().map(|coded| coded.layout),
            order: self.order,
        }
    }

    /// Bytes of all buffers.
    pub fn stored_bytes(&self) -> u64 {
        let pair = self.dictionary.iter().flat_map(|(offsets, bytes)| [offsets, bytes]);
        let codes = self.codes().into_iter().flat_map(|coded| [&coded.codes, &coded.entries]);
        let all = [Some(&self.data), self.validity.as_ref(), self.offsets.as_ref()]
            .into_iter()
            .flatten()
            .chain(pair)
            .chain(codes);
        all.map(|buffer| buffer.bytes() as u64).sum()
    }
}

/// About how many combinations of values the columns of a table have, where these are many, equal ones far from each other, and few
/// have many rows; `None` too where it is not known.
pub(crate) fn multi_column_distinct(columns: &[&ResidentColumn]) -> Option<u64> {
    let rows = columns.first()?.rows;
    // Near each other in the order of one column, they are so together.
    if columns.iter().any(|column| column.rows != rows || column.is_clustered()) {
        return None;
    }
    let samples = columns.iter().map(|column| column.sample.as_ref()).collect::<Option<Vec<_>>>()?;
    let (first, others) = samples.split_first()?;
    first.combinations(others, rows)
}
