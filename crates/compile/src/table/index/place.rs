//! Rows that lie at the slots of their keys: a direct-addressed index whose store is addressed by the keys too.
//!
//! Where keys are unique and dense, the slot of a key is all that a search has to know: the columns of the row are at that place of
//! the store, and no row's number is looked up before. What is left is a bit that says whether there is such a row; and where as many
//! rows are promised as there are slots, no two with one key, every slot has one, and not even that is looked at.

use kelpie_kir::builder::V;

use super::form::Dense;
use super::{Index, KeyEncoding, Kind, SLOT_BYTES, Wants, code_of, in_range, offset_from, scalar_of};
use crate::context::{Context, Lowered, Unsupported, register_type};
use crate::layout::ColumnInfo;
use crate::table::bounds::Bounds;
use crate::table::probing::report_broken;
use crate::types::DataType;
use crate::variant::Site;
use crate::variant::axes::RowPlaces;

/// Slots a row, at most, where several columns are read of a row: with more of them a row's columns, each in a line of a cache that
/// it shares with no other row, are dearer than the look-up of its number.
const SLOTS_PER_ROW: u64 = 2;
/// Bytes of a text: its address and its length.
const TEXT_BYTES: u64 = 12;

/// What is known of the rows of a build side.
#[derive(Debug, Clone, Copy)]
pub struct BuildSide {
    /// Rows at most.
    pub bound: u64,
    /// There are exactly so many.
    pub is_exact: bool,
    /// Rows that are thought to come, of a table; how many a join leaves is not foreseen well.
    pub expected: Option<u64>,
}

/// Whether the rows lie at their slots; and then whether each slot will have one. The first `keys` of the store's columns are the keys;
/// `has_all`: each row that has them has a slot.
pub(super) fn choose(
    columns: &[ColumnInfo],
    (keys, has_all): (usize, bool),
    dense: Option<Dense>,
    build: &BuildSide,
    (wants, site): (Wants, Site<'_>),
) -> Result<Option<bool>, Unsupported> {
    let payload = &columns[keys..];
    let slots = dense.map_or(0, |dense| dense.slots);
    let bytes = slots.saturating_mul(payload.iter().map(bytes_of).sum::<u64>().max(SLOT_BYTES));
    let lacks = match () {
        () if dense.is_none() => Some("keys are no slots".to_string()),
        () if dense.is_some_and(|dense| dense.is_ranked) => Some("rows are found by ranks".into()),
        () if !wants.unique && !wants.first_only => Some("several rows may have a key".into()),
        () if wants.direct_bytes.is_some_and(|most| bytes > most && !wants.first_only) => {
            Some(format!("memory for {bytes} bytes"))
        }
        () => wants.not_placed.map(Into::into),
    };
    let rule = match &lacks {
        Some(lacks) => (RowPlaces::Packed, lacks.as_str()),
        None if !wants.places_by_rule => {
            (RowPlaces::Packed, "the micro model stores rows, then indexes them")
        }
        None if wants.first_only => (RowPlaces::Slot, "only whether there is a row is asked"),
        None if payload.len() <= 1 => (RowPlaces::Slot, "a row's column is where its number would be"),
        None if build.expected.is_some_and(|rows| slots <= rows.saturating_mul(SLOTS_PER_ROW)) => {
            (RowPlaces::Slot, "most slots have a row")
        }
        None => (RowPlaces::Packed, "rows with several columns would lie far apart"),
    };
    let chosen = site.choose(rule, |value| match (value, &lacks) {
        (RowPlaces::Slot, Some(lacks)) => Err(lacks.clone()),
        _ => Ok(()),
    })?;
    let is_full =
        has_all && build.is_exact && build.bound == slots && columns[..keys].iter().all(|key| !key.nullable);
    Ok((chosen == RowPlaces::Slot).then_some(is_full))
}

/// Bytes of a stored column, at most, a place.
fn bytes_of(column: &ColumnInfo) -> u64 {
    let value = match column.data_type {
        DataType::Null => 0,
        DataType::Utf8 if column.dictionary.is_some() => 4,
        DataType::Utf8 => TEXT_BYTES,
        _ => register_type(&column.data_type, column.range).bytes().into(),
    };
    value + u64::from(column.nullable)
}

impl Index {
    /// Whether rows are put in with their columns, or leave nothing but a bit, so that there is no store to be indexed.
    pub fn is_placed(&self) -> bool {
        self.placed
    }

    /// Emits `write` with the place (`i64`) of a new row, whose only key is `key`, where its slot was free. Rows with a NULL key are
    /// left out. `is_stored`: the key lies in memory as it is; one that is computed is looked at before it indexes anything.
    pub fn place(
        &self,
        cx: &mut Context<'_>,
        (key, is_stored): (&Lowered, bool),
        bounds: Option<Bounds>,
        write: impl FnOnce(&mut Context<'_>, V) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        let Kind::Direct { min, max, slots } = self.kind else {
            return Err(Unsupported::internal("rows at the slots of keys that have none"));
        };
        let code = match self.encodings.first() {
            Some(KeyEncoding::Code) => Some(code_of(cx, key)?),
            _ => None,
        };
        let key = code.as_ref().unwrap_or(key);
        let value = scalar_of(key)?;
        let range = key.range.filter(|_| is_stored);
        let conditions = [key.valid, in_range(cx, value, range, (min, max))];
        let opened = conditions.into_iter().flatten().map(|condition| cx.begin_if(condition)).count();
        if let Some(bounds) = bounds {
            bounds.widen(cx, key)?;
        }
        let slot = offset_from(cx, value, min);
        let was_free = slots.take(cx, slot).ok_or_else(|| Unsupported::internal("slots without a bitmap"))?;
        cx.begin_if(was_free);
        write(cx, slot)?;
        if let Some(broken) = self.broken {
            cx.begin_else();
            report_broken(cx, broken);
        }
        cx.end();
        for _ in 0..opened {
            cx.end();
        }
        Ok(())
    }
}
