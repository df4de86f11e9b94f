//! First look-ups of several rows of a thread at once, in an index whose keys are unique and slots: all of them look at the bitmap, then all
//! at the rows' numbers, without a branch, so that the loads of all rows are in flight together.

use kelpie_kir::Scalar;
use kelpie_kir::builder::{V, Var};

use super::filter::narrow_slot;
use super::search::Search;
use super::{Index, Kind, array, scalar_of};
use crate::context::{Context, Lowered, Unsupported};
use crate::table::ranks::{Ranks, RowsOfRank};
use crate::table::slots::{Slots, is_taken_for_good};

/// Where a row is looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotOfRow {
    /// Its slot, `u32`; 0 where it has none.
    slot: V,
    /// Whether it has one (`bool`).
    live: V,
}

impl Index {
    /// What it lacks for several rows to be looked up at once.
    pub(crate) fn lacks_look_ups(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Direct { slots: Slots::Single { .. } | Slots::Placed { .. }, .. } => None,
            Kind::Direct { slots: Slots::Ranked(Ranks { rows: RowsOfRank::One(_), .. }), .. } => None,
            Kind::Direct { slots: Slots::Exists { .. }, .. } => Some("only a bit is looked at"),
            Kind::Direct { .. } | Kind::All => Some("a key may have several rows"),
            Kind::Hashed { .. } => Some("a search goes from slot to slot"),
        }
    }

    /// Where a row is looked up that is `active` (`bool`), whose only key is given.
    pub(crate) fn slot_of_row(
        &self,
        cx: &mut Context<'_>,
        key: &Lowered,
        active: V,
    ) -> Result<SlotOfRow, Unsupported> {
        let Kind::Direct { min, max, .. } = self.kind else {
            return Err(Unsupported::internal("the slot of keys that are none"));
        };
        let value = scalar_of(key)?;
        let (slot, within) = narrow_slot(cx, (value, key.range), (min, max));
        let mut live = active;
        for condition in within.into_iter().chain(key.valid) {
            live = cx.builder.and(live, condition);
        }
        let zero = cx.builder.u32(0);
        Ok(SlotOfRow { slot: cx.builder.select(live, slot, zero), live })
    }

    /// What searches for rows find at their slots: the place + 1 (`u32`), or 0.
    pub(crate) fn look_up(&self, cx: &mut Context<'_>, rows: &[SlotOfRow]) -> Result<Vec<V>, Unsupported> {
        let Kind::Direct { slots, .. } = self.kind else {
            return Err(Unsupported::internal("several rows are looked up where keys are no slots"));
        };
        let (bits, heads) = match slots {
            Slots::Single { bits, heads, cleared } => ((!cleared).then_some(bits), Some(heads)),
            Slots::Placed { bits, full } => ((!full).then_some(bits), None),
            Slots::Ranked(ranks) => return by_ranks(cx, ranks, rows),
            _ => return Err(Unsupported::internal("several rows are looked up by keys that have many")),
        };
        let zero = cx.builder.u32(0);
        let mut found = Vec::new();
        for row in rows {
            found.push(match bits {
                Some(bits) => {
                    let taken = is_taken_for_good(cx, bits, row.slot);
                    cx.builder.and(row.live, taken)
                }
                None => row.live,
            });
        }
        let mut numbers = Vec::new();
        for (row, found) in rows.iter().zip(found) {
            let number = match heads {
                Some(heads) => {
                    let heads = array(cx, "heads", heads);
                    // Rows that find nothing look at the same word: what costs memory is where there is a row.
                    let slot = cx.builder.select(found, row.slot, zero);
                    cx.builder.element(heads, slot)
                }
                None => {
                    let one = cx.builder.u32(1);
                    cx.builder.add(row.slot, one)
                }
            };
            numbers.push(cx.builder.select(found, number, zero));
        }
        Ok(numbers)
    }

    /// The place (`i64`) of what was found; 0, where a store always has a place, where nothing was.
    pub(crate) fn place_found(&self, cx: &mut Context<'_>, number: V) -> V {
        let b = &mut *cx.builder;
        let (zero, one) = (b.u32(0), b.u32(1));
        let found = b.ne(number, zero);
        let place = b.sub(number, one);
        let place = b.select(found, place, zero);
        b.convert(place, Scalar::I64)
    }

    /// The search that has found what is in `number`.
    pub(crate) fn search_found(&self, cx: &mut Context<'_>, number: V) -> Search {
        let cursor: Var = cx.builder.var_of("cursor", number);
        Search { cursor }
    }
}

/// The same where keys have ranks: all rows look at the bits, then all at the counts, then all at the numbers.
fn by_ranks(cx: &mut Context<'_>, ranks: Ranks, rows: &[SlotOfRow]) -> Result<Vec<V>, Unsupported> {
    let RowsOfRank::One(numbers) = ranks.rows else {
        return Err(Unsupported::internal("several rows are looked up by keys that have many"));
    };
    let bits: Vec<_> = rows.iter().map(|row| ranks.bit(cx, row.slot)).collect();
    let mut at_ranks = Vec::new();
    for (row, bit) in rows.iter().zip(bits) {
        let taken = bit.is_set(cx);
        let found = cx.builder.and(row.live, taken);
        at_ranks.push((ranks.rank_if(cx, bit, found), found));
    }
    let zero = cx.builder.u32(0);
    let load = |(rank, found)| {
        let numbers = array(cx, "ranked_rows", numbers);
        let number = cx.builder.element(numbers, rank);
        cx.builder.select(found, number, zero)
    };
    Ok(at_ranks.into_iter().map(load).collect())
}
