//! How a column lies in device memory: what the column store promises and generated code relies on; and what is known of
//! columns before there are rows.

use kelpie_kir::Scalar;

use crate::types::{DataType, Range, Spacing};

/// Layout of a resident column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ColumnLayout {
    /// The values.
    pub storage: Storage,
    /// A validity bitmap (bit i of byte i / 8, set = not NULL) exists; a value under a NULL is unspecified but readable.
    pub has_nulls: bool,
    /// Bounds of the values that are not NULL, where they are integers inside.
    pub range: Option<Range>,
}

/// What is known of a column of a scan: how it lies, and what was found while it was read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ColumnFacts {
    /// How it lies in memory.
    pub layout: ColumnLayout,
    /// Where it has many values, equal ones far from each other.
    pub scattered: Option<Scattered>,
    /// Values that have more than a thousandth of the rows each have together a sixty-fourth of them or more, by a sample.
    pub has_frequent: bool,
    /// Rows that follow each other have values that are near each other.
    pub is_clustered: bool,
    /// No value comes twice, and no NULL, by all of its rows.
    pub is_unique: bool,
    /// The distances of its values, by all of its rows, where they have one.
    pub spacing: Option<Spacing>,
    /// The codes that lie beside its values, where these are few.
    pub codes: Option<ValueCodes>,
    /// The order of its values from row to row, by all of its rows, where they have one and none is NULL.
    pub order: Option<Direction>,
}

/// The order of values that follow each other; equal ones may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// None is less than the one before it.
    Ascending,
    /// None is greater than the one before it.
    Descending,
}

impl From<ColumnLayout> for ColumnFacts {
    /// A column of which no more is known.
    fn from(layout: ColumnLayout) -> ColumnFacts {
        ColumnFacts {
            layout,
            scattered: None,
            has_frequent: false,
            is_clustered: false,
            is_unique: false,
            spacing: None,
            codes: None,
            order: None,
        }
    }
}

/// Storage of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Storage {
    /// One scalar a row. Integers inside (also dates, timestamps, decimals): value = stored + base, where the base is
    /// given at the launch (0 unless `has_base`); `Boolean` is `U8` with 0 or 1; floats are themselves.
    Fixed {
        /// The stored scalar: the narrowest that fits.
        scalar: Scalar,
        /// A base other than 0 is to be added: the least value of the column's range.
        has_base: bool,
    },
    /// Text: row i is `bytes[offsets[i]..offsets[i + 1]]`.
    Text {
        /// `U32`, or `U64` above 4 GiB, less a word.
        offset: Scalar,
    },
    /// Text by code: row i is entry `codes[i]` of a dictionary laid out as `Text` with `U32` offsets. Entries are distinct
    /// and in the order of their bytes, so that codes have the texts' order.
    Dictionary {
        /// `U8`, `U16` or `U32`.
        code: Scalar,
        /// Entries; at least 1.
        entries: u32,
    },
}

/// Codes that lie beside the integers of a column which has few values, far from each other: the value of row i is entry `codes[i]` of these
/// values in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValueCodes {
    /// `U8` or `U16`. A code under a NULL is that of some entry.
    pub code: Scalar,
    /// Entries, each of 64 bits; at least 1.
    pub entries: u32,
}

/// A column of a scan that has [`ValueCodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodedColumn {
    /// The scan.
    pub scan: usize,
    /// The column's place there.
    pub column: usize,
    /// Its values; at least 1.
    pub entries: u32,
}

/// What is known of a column that has many values, equal ones far from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scattered {
    /// About how many values there are.
    pub values: u64,
    /// None of them is frequent: rows that are brought into parts by them are about as many in each part.
    pub are_even: bool,
    /// Bytes of a value on average where they are texts that have no dictionary, rounded up to words; else 0.
    pub text_bytes: u32,
}

impl Scattered {
    /// No more than so many values.
    pub fn min(self, values: u64) -> Scattered {
        Scattered { values: self.values.min(values), ..self }
    }
}

/// What is known of a column.
#[derive(Debug, Clone)]
pub struct ColumnInfo {
    /// Type.
    pub data_type: DataType,
    /// Whether NULL is possible.
    pub nullable: bool,
    /// Bounds of its values, where they are integers inside.
    pub range: Option<Range>,
    /// The scan, column and entries of the dictionary where it is an unchanged dictionary column.
    pub dictionary: Option<(usize, usize, u32)>,
    /// Where it has many values, equal ones far from each other.
    pub scattered: Option<Scattered>,
    /// Frequent values have a good share of the rows, as in [`ColumnFacts`].
    pub has_frequent: bool,
    /// Rows that follow each other have values that are near each other, as in a column that is sorted, or nearly.
    pub is_clustered: bool,
    /// The distances of its values, where they are integers inside and all distances are multiples of one.
    pub spacing: Option<Spacing>,
    /// The scan and column whose values these are, where they are those of one, unchanged.
    pub origin: Option<(usize, usize)>,
    /// Where it is a column of the scan that the pipeline goes over, unchanged, whose few values have codes.
    pub coded: Option<CodedColumn>,
}

impl ColumnInfo {
    /// A column of which no more is known.
    pub fn new(data_type: DataType, nullable: bool, range: Option<Range>) -> ColumnInfo {
        ColumnInfo {
            data_type,
            nullable,
            range,
            dictionary: None,
            scattered: None,
            has_frequent: false,
            is_clustered: false,
            spacing: None,
            origin: None,
            coded: None,
        }
    }

    /// How many values it has, at most, or about.
    pub(crate) fn values(&self) -> Option<u64> {
        // The range of a wide decimal has no width that is a number of 128 bits.
        let width = |range: Range| u64::try_from(range.max.checked_sub(range.min)?.checked_add(1)?).ok();
        let most = self.dictionary.map(|(_, _, entries)| u64::from(entries)).or(self.range.and_then(width));
        most.into_iter().chain(self.scattered.map(|own| own.values)).min()
    }

    /// The same of values that were stored, so that the row of the scan is not at hand.
    pub(crate) fn stored(&self) -> ColumnInfo {
        ColumnInfo { coded: None, ..self.clone() }
    }
}
