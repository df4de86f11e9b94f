//! A glance at columns that are still being read: what they will most likely be like, so that code for them can be generated
//! meanwhile.

use std::collections::HashMap;
use std::sync::Arc;

use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::types::Range;
use kelpie_device::CancelToken;

use super::integers::IntegerChunk;
use super::read::{self, Kind, PartitionColumn, Values, Wanted};
use super::resident::ResidentColumn;
use super::store::{dictionary_storage, text_storage};
use super::text::{Interner, entries_worth_it};
use super::width::Width;
use crate::source::{Expected, TableSource};

/// Tables of fewer rows are read before code is generated.
const LEAST_ROWS: u64 = 1 << 20;
/// The share of a table's rows after which it is looked at: enough to know most columns by, and early enough to gain
/// something.
const SHARE: u64 = 16;

/// Takes what columns will most likely be like, while they are still being read.
pub(super) type Seen<'a> = dyn Fn(Vec<ColumnLayout>) + Sync + 'a;

/// What goes along with a load.
pub struct Watch<'a> {
    /// Ends it.
    pub cancel: &'a CancelToken,
    /// Takes what all its columns will most likely be like, in order, before some are read or while they are. Called at most
    /// once, maybe in a thread that reads: it should not take long.
    pub seen: &'a (dyn Fn(Vec<ColumnLayout>) + Sync),
}

impl Watch<'_> {
    /// Tells what the columns of a load will be like: those that are found, and those that are being read now. Nothing where
    /// another query reads some of them.
    pub(super) fn tell(
        &self,
        columns: &[usize],
        found: &HashMap<usize, Arc<ResidentColumn>>,
        (read, layouts): (&[usize], Vec<ColumnLayout>),
    ) {
        let layout = |column: &usize| match read.iter().position(|read| read == column) {
            Some(place) => layouts.get(place).cloned(),
            None => found.get(column).map(|resident| resident.layout.clone()),
        };
        if let Some(layouts) = columns.iter().map(layout).collect() {
            (self.seen)(layouts);
        }
    }
}

/// The rows after which a table of `rows` rows is looked at, if at all.
pub(super) fn rows_before(rows: Option<u64>) -> Option<u64> {
    rows.filter(|rows| *rows >= LEAST_ROWS).map(|rows| rows / SHARE)
}

/// Whether a table of so many rows is looked at while it is read.
pub fn is_looked_at(rows: Option<u64>) -> bool {
    rows_before(rows).is_some()
}

/// How a column will be stored by what is known before it is read; `None` where that does not tell.
pub(super) fn expected_layout(kind: Kind, expected: Expected) -> Option<ColumnLayout> {
    let Expected { range, has_nulls } = expected;
    Some(match (kind, range) {
        (Kind::Integer, Some(range)) => {
            ColumnLayout { storage: Width::of(range).storage(), has_nulls, range: Some(range) }
        }
        (Kind::Float(scalar), _) => {
            ColumnLayout { storage: Storage::Fixed { scalar, has_base: false }, has_nulls, range: None }
        }
        (Kind::Integer, None) | (Kind::Text, _) => return None,
    })
}

/// What will most likely be known of columns of a source, before any of them is read.
pub fn expected_layouts(source: &dyn TableSource, columns: &[usize]) -> Option<Vec<ColumnLayout>> {
    let schema = source.schema();
    let layout = |column: &usize| {
        let kind = read::kind_of(schema.fields().get(*column)?.data_type())?;
        expected_layout(kind, source.expected(*column)?)
    };
    columns.iter().map(layout).collect()
}

/// Code that is compiled for about so many entries of a dictionary is not for the number that there will be.
const MANY_ENTRIES: usize = 1 << 14;

/// What was seen of a column so far.
#[derive(Debug)]
pub(super) struct Glance {
    kind: Kind,
    rows: u64,
    /// Rows of the whole table.
    all_rows: u64,
    has_nulls: bool,
    range: Option<Range>,
    /// Distinct texts, while they are worth a dictionary.
    entries: Option<Interner>,
    text_bytes: u64,
}

impl Glance {
    pub(super) fn new(wanted: &Wanted, all_rows: u64) -> Glance {
        let entries = (!wanted.is_raw_text()).then(|| Interner::new(entries_worth_it(all_rows as usize)));
        let Wanted { kind, expected, .. } = *wanted;
        let has_nulls = expected.is_some_and(|expected| expected.has_nulls);
        let range = expected.and_then(|expected| expected.range);
        Glance { kind, rows: 0, all_rows, has_nulls, range, entries, text_bytes: 0 }
    }

    /// Looks at what has been read of a partition.
    pub(super) fn at(&mut self, part: &PartitionColumn) {
        self.rows += part.rows() as u64;
        self.has_nulls |= part.validity.iter().any(|(_, nulls)| nulls.is_some());
        match &part.values {
            Values::Integers(chunks) => {
                let ranges = chunks.iter().filter_map(IntegerChunk::range);
                self.range = self.range.into_iter().chain(ranges).reduce(Range::union);
            }
            Values::Floats(_) => {}
            Values::Text(texts) => match &mut self.entries {
                // Nobody knows yet how many more there will be.
                Some(_) if texts.entries.len() > MANY_ENTRIES => self.entries = None,
                Some(entries) => {
                    let mut codes = 0..texts.entries.len();
                    if !codes.all(|code| entries.intern(texts.entries.entry(code)).is_some()) {
                        self.entries = None;
                    }
                }
                None => {
                    let bytes = texts.chunks.iter().map(|chunk| chunk.text_bytes(&texts.entries));
                    self.text_bytes += bytes.sum::<u64>();
                }
            },
        }
    }

    /// How the column will be stored if the rest of it is like what was seen.
    pub(super) fn layout(&self) -> ColumnLayout {
        let integers = self.range.unwrap_or(Range { min: 0, max: 0 });
        let storage = match (self.kind, &self.entries) {
            (Kind::Integer, _) => Width::of(integers).storage(),
            (Kind::Float(scalar), _) => Storage::Fixed { scalar, has_base: false },
            (Kind::Text, Some(entries)) => dictionary_storage(entries.len().max(1)),
            (Kind::Text, None) => {
                let bytes = u128::from(self.text_bytes) * u128::from(self.all_rows);
                let bytes = bytes / u128::from(self.rows.max(1));
                text_storage(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
        };
        let range = (self.kind == Kind::Integer).then_some(integers);
        ColumnLayout { storage, has_nulls: self.has_nulls, range }
    }
}
