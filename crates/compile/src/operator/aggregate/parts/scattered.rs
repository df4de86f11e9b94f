//! How large a table of groups is thought to be, by what is known of their keys.

use super::part_rule::TableSize;
use crate::layout::ColumnInfo;
use crate::operator::aggregate::functions::Cells;
use crate::operator::aggregate::keys::{KnownKeys, groups_known, scattered_groups, values_of};
use crate::operator::aggregate::local::{BlockLayout, CellForms, KeyWindow, least_slots};
use crate::operator::aggregate::tables::dense_slots;
use crate::operator::partition::PartStore;
use crate::plan::Aggregate;
use crate::shape::LaunchShape;
use crate::table::packed::pack;
use crate::types::DataType;

/// What is thought of the table of groups that lie anywhere in it; `None` where they may lie near each other, or be few.
pub(crate) fn scattered_table(
    known: KnownKeys<'_>,
    aggregates: &[Aggregate],
    columns: &[ColumnInfo],
    row_bound: u64,
    shape: &LaunchShape,
) -> Option<TableSize> {
    // Only a CPU's worker brings texts into parts by their bytes.
    let of_codes = |key: &ColumnInfo| match key.scattered {
        Some(own) if own.text_bytes > 0 && !shape.is_serial() => {
            ColumnInfo { scattered: None, is_clustered: false, ..key.clone() }
        }
        _ => key.clone(),
    };
    let table =
        |keys: &[ColumnInfo]| table_of(KnownKeys { keys, ..known }, aggregates, columns, row_bound, shape);
    let keys: Vec<ColumnInfo> = known.keys.iter().map(of_codes).collect();
    let own = table(&keys)?;
    // Rows that were brought into parts have their values, and no codes.
    let is_near = own.dense.is_some_and(|bytes| bytes <= shape.table_bytes().into());
    if is_near || keys.iter().all(|key| key.coded.is_none()) {
        return Some(own);
    }
    let keys: Vec<ColumnInfo> = keys.iter().map(ColumnInfo::stored).collect();
    table(&keys)
}

/// The same of keys as they are.
fn table_of(
    known: KnownKeys<'_>,
    aggregates: &[Aggregate],
    columns: &[ColumnInfo],
    row_bound: u64,
    shape: &LaunchShape,
) -> Option<TableSize> {
    let keys = known.keys;
    // Columns may depend on each other: there are no more groups than there are combinations.
    let groups = scattered_groups(keys).into_iter().chain(known.multi_column_distinct).min()?.min(row_bound);
    let is_packed = pack(keys).is_some();
    let mut cells = Cells::plan(aggregates, columns, row_bound, true).ok()?;
    let is_dense = !known.has_dependent && keys.iter().all(|key| values_of(key).is_some());
    let domain = is_dense
        .then(|| groups_known(keys))
        .flatten()
        .filter(|slots| *slots <= dense_slots(groups, row_bound));
    if domain.is_some() {
        cells.row_count();
    }
    let bytes = |slots: u64, forms| BlockLayout::plan(&cells, row_bound, forms, shape).bytes(slots, 1);
    let plain = |slots| bytes(slots, CellForms::PLAIN);
    let text_bytes = keys
        .iter()
        .filter(|key| key.data_type == DataType::Utf8 && key.dictionary.is_none())
        .try_fold(0, |all: u64, key| Some(all + u64::from(key.scattered?.text_bytes)));
    Some(TableSize {
        groups,
        bytes: match domain {
            // A part of a direct-addressed table has a power of two of slots.
            Some(slots) => plain(slots.next_power_of_two()),
            // Windows have keys of their own, for half of their places.
            None if is_packed => {
                plain(groups).saturating_add(groups.saturating_mul(KeyWindow::BYTES)).saturating_mul(2)
            }
            // A table that has grown has two and a half slots a group.
            None => (plain(groups).saturating_mul(5) / 4).saturating_mul(2),
        },
        dense: domain.map(plain),
        slice: domain.map(|slots| bytes(least_slots(slots), CellForms::NARROW)),
        slots: domain.unwrap_or(0),
        words: cells.words(),
        are_even: keys.iter().all(|key| key.scattered.is_none_or(|own| own.are_even)),
        text_bytes,
        lines: PartStore::lines(columns, domain.is_none() && !is_packed),
    })
}
