//! How many groups there are, and how large their table, by what is known of their keys.

use super::block_table::BlockLayout;
use super::cell_forms::CellForms;
use super::dependent::KnownKeys;
use super::functions::Cells;
use super::key_window::KeyWindow;
use super::part_rule::TableSize;
use super::table_slices::least_slots;
use super::{domain, tables};
use crate::layout::ColumnInfo;
use crate::operator::partition::PartStore;
use crate::plan::Aggregate;
use crate::shape::LaunchShape;
use crate::table::packed::pack;
use crate::types::DataType;

/// About how many groups of rows there are that are far from each other, where that is known: at least one key has many values, and
/// of the others it is known how many they have.
pub(super) fn scattered_groups(keys: &[ColumnInfo]) -> Option<u64> {
    let some = keys.iter().any(|key| key.scattered.is_some());
    let all = keys.iter().map(key_values).reduce(|all, own| Some(all?.saturating_mul(own?)));
    all.flatten().filter(|_| some)
}

/// Whether a key is a text without a dictionary.
fn is_raw_text(key: &ColumnInfo) -> bool {
    key.data_type == DataType::Utf8 && key.dictionary.is_none()
}

/// What is thought of the table of groups that lie anywhere in it; `None` where they may lie near each other, or be few.
pub(crate) fn scattered_table(
    KnownKeys { keys, multi_column_distinct, are_carried }: KnownKeys<'_>,
    aggregates: &[Aggregate],
    columns: &[ColumnInfo],
    (row_bound, shape): (u64, &LaunchShape),
) -> Option<TableSize> {
    // Only a CPU's worker brings texts into parts by their bytes.
    let of_codes = |key: &ColumnInfo| match key.scattered {
        Some(own) if own.text_bytes > 0 && !shape.is_serial() => {
            ColumnInfo { scattered: None, is_clustered: false, ..key.clone() }
        }
        _ => key.clone(),
    };
    let keys: &[ColumnInfo] = &keys.iter().map(of_codes).collect::<Vec<_>>();
    let known = KnownKeys { keys, multi_column_distinct, are_carried };
    let table = table_of(known, aggregates, columns, (row_bound, shape))?;
    // Rows that were brought into parts have their values, and no codes.
    let is_near = table.dense.is_some_and(|bytes| bytes <= shape.table_bytes().into());
    if is_near || keys.iter().all(|key| key.coded.is_none()) {
        return Some(table);
    }
    let keys: &[ColumnInfo] = &keys.iter().map(ColumnInfo::stored).collect::<Vec<_>>();
    table_of(KnownKeys { keys, multi_column_distinct, are_carried }, aggregates, columns, (row_bound, shape))
}

/// The same of keys as they are.
fn table_of(
    KnownKeys { keys, multi_column_distinct, are_carried }: KnownKeys<'_>,
    aggregates: &[Aggregate],
    columns: &[ColumnInfo],
    (row_bound, shape): (u64, &LaunchShape),
) -> Option<TableSize> {
    // Columns may depend on each other: there are no more groups than there are combinations.
    let groups = scattered_groups(keys).into_iter().chain(multi_column_distinct).min()?.min(row_bound);
    let is_packed = pack(keys).is_some();
    let mut cells = Cells::plan(aggregates, columns, row_bound, true).ok()?;
    let is_dense = !are_carried && keys.iter().all(|key| domain::values_of(key).is_some());
    let domain = is_dense.then(|| groups_known(keys));
    let text_bytes = keys
        .iter()
        .filter(|key| is_raw_text(key))
        .try_fold(0, |all: u64, key| Some(all + u64::from(key.scattered?.text_bytes)));
    let are_even = keys.iter().all(|key| key.scattered.is_none_or(|own| own.are_even));
    let Some(slots) = domain.filter(|slots| *slots <= tables::dense_slots(groups, row_bound)) else {
        let layout = BlockLayout::plan(&cells, row_bound, CellForms::PLAIN, shape);
        let bytes = match is_packed {
            // Windows have keys of their own, for half of their places.
            true => layout.bytes(groups, 1).saturating_add(groups.saturating_mul(KeyWindow::BYTES)),
            // A table that has grown has two and a half slots a group.
            false => layout.bytes(groups, 1).saturating_mul(5) / 4,
        };
        let bytes = bytes.saturating_mul(2);
        let words = cells.words();
        return Some(TableSize {
            groups,
            bytes,
            dense: None,
            slice: None,
            slots: 0,
            words,
            are_even,
            text_bytes,
            lines: PartStore::lines(columns, !is_packed),
        });
    };
    cells.row_count();
    let layout = BlockLayout::plan(&cells, row_bound, CellForms::PLAIN, shape);
    // A part of a direct-addressed table has a power of two of slots.
    let bytes = layout.bytes(slots.next_power_of_two(), 1);
    let dense = Some(layout.bytes(slots, 1));
    let narrow = BlockLayout::plan(&cells, row_bound, CellForms::NARROW, shape);
    let slice = Some(narrow.bytes(least_slots(slots), 1));
    let lines = PartStore::lines(columns, false);
    Some(TableSize { groups, bytes, dense, slice, slots, words: cells.words(), are_even, text_bytes, lines })
}

/// How many values a key has at most, or about, where that is known; NULL is one.
pub(crate) fn key_values(key: &ColumnInfo) -> Option<u64> {
    let most = domain::values_of(key).map(|values| values.saturating_add(key.nullable.into()));
    most.into_iter().chain(key.scattered.map(|own| own.values)).min()
}

/// Upper bound of the groups by the keys whose number of values is known.
pub(super) fn groups_known(keys: &[ColumnInfo]) -> u64 {
    let values = |key| domain::values_of(key).unwrap_or(1);
    keys.iter().map(values).fold(1, u64::saturating_mul)
}
