//! Searching an index: the rows of the store that have the keys of the current row.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Scalar, Type};

use super::{Index, Kind, SlotRows, array, in_range, offset_from, scalar_of};
use crate::context::{Argument, Context, Lowered, Unsupported};
use crate::table::probing::place_of;
use crate::table::ranks::{Ranks, RowsOfRank};
use crate::table::rows::RowStore;
use crate::table::slots::Slots;

/// A search for the rows of a key: `cursor` (`u32`) is 0 where there is none left. Else it is the place of the next one + 1,
/// or, where there are buckets, its position + 1.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// What comes next.
    pub cursor: Var,
}

impl SlotRows {
    /// The place (`i64`) of the first row of a slot that has a number.
    pub(super) fn first_place(self, cx: &mut Context<'_>, number: V) -> V {
        match self {
            SlotRows::Buckets(buckets) => buckets.place_at(cx, number),
            SlotRows::One | SlotRows::Chained(_) => place_of(cx, number),
        }
    }
}

impl Index {
    /// Begins the search for rows whose keys equal `keys`.
    pub fn search(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        keys: &[Lowered],
    ) -> Result<Search, Unsupported> {
        let zero = cx.builder.u32(0);
        let cursor = cx.builder.var_of("cursor", zero);
        let valid = if self.null_equal { None } else { self.all_valid(cx, keys) };
        match self.kind {
            Kind::All => {
                let count = cx.argument(
                    "place_count",
                    Type::global(Scalar::U64),
                    Argument::State(store.place_count()),
                );
                let count = cx.builder.load(count);
                let count = cx.builder.convert(count, Scalar::U32);
                cx.builder.assign(cursor, count);
            }
            Kind::Direct { min, max, slots } => {
                let value = scalar_of(&keys[0])?;
                let live = live(cx, &keys[0], value, (min, max));
                if let Some(live) = live {
                    cx.begin_if(live);
                }
                let slot = offset_from(cx, value, min);
                slots.search(cx, slot, cursor);
                if live.is_some() {
                    cx.end();
                }
            }
            Kind::Hashed { table, rows } => {
                if let Some(valid) = valid {
                    cx.begin_if(valid);
                }
                table
                    .find(cx, store, (keys, &self.wide), cursor, |cx, number| rows.first_place(cx, number))?;
                if valid.is_some() {
                    cx.end();
                }
            }
        }
        Ok(Search { cursor })
    }

    /// Takes the next row: its place (`i64`). Leaves the innermost loop where there is none.
    pub fn advance(&self, cx: &mut Context<'_>, store: &RowStore, search: Search) -> V {
        let current = cx.builder.read(search.cursor);
        let zero = cx.builder.u32(0);
        let none = cx.builder.eq(current, zero);
        cx.builder.break_if(none);
        let (place, following) = match (self.kind, self.buckets()) {
            (_, Some(buckets)) => buckets.step(cx, current),
            (Kind::All, None) => {
                let place = place_of(cx, current);
                (place, store.taken_before(cx, place))
            }
            (
                Kind::Hashed { rows: SlotRows::Chained(next), .. }
                | Kind::Direct {
                    slots:
                        Slots::Chained { next, .. }
                        | Slots::Ranked(Ranks { rows: RowsOfRank::Chained(_, next), .. }),
                    ..
                },
                None,
            ) => {
                let place = place_of(cx, current);
                let next = array(cx, "next", next);
                (place, cx.builder.element(next, place))
            }
            _ => (place_of(cx, current), zero),
        };
        cx.builder.assign(search.cursor, following);
        place
    }

    /// Whether several rows may have a key.
    fn has_several(&self) -> bool {
        match self.kind {
            Kind::Direct { slots: Slots::Ranked(ranks), .. } => !matches!(ranks.rows, RowsOfRank::One(_)),
            Kind::Direct { slots, .. } => matches!(slots, Slots::Many(_) | Slots::Chained { .. }),
            Kind::Hashed { rows, .. } => !matches!(rows, SlotRows::One),
            Kind::All => true,
        }
    }

    /// Opens `if` a search has found a row, which is the first of several with the key: its place (`i64`). `None` where no
    /// key has several.
    pub fn begin_if_several(&self, cx: &mut Context<'_>, search: Search) -> Option<V> {
        if !self.is_built() || !self.has_several() {
            return None;
        }
        let cursor = cx.builder.read(search.cursor);
        let zero = cx.builder.u32(0);
        let found = cx.builder.ne(cursor, zero);
        cx.begin_if(found);
        Some(match self.buckets() {
            Some(buckets) => buckets.place_at(cx, cursor),
            None => place_of(cx, cursor),
        })
    }

    /// Where no key has two rows that a search gives: whether there is one (`bool`), and its place (`i64`, else 0).
    pub fn only(&self, cx: &mut Context<'_>, search: Search) -> Option<(V, V)> {
        if self.has_several() {
            return None;
        }
        let cursor = cx.builder.read(search.cursor);
        let (zero, one) = (cx.builder.u32(0), cx.builder.u32(1));
        let found = cx.builder.ne(cursor, zero);
        let place = cx.builder.sub(cursor, one);
        let place = cx.builder.select(found, place, zero);
        Some((found, cx.builder.convert(place, Scalar::I64)))
    }

    /// Whether no key is NULL; `None` where none can be.
    pub(super) fn all_valid(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Option<V> {
        let mut all: Option<V> = None;
        for valid in keys.iter().filter_map(|key| key.valid) {
            all = Some(match all {
                Some(all) => cx.builder.and(all, valid),
                None => valid,
            });
        }
        all
    }
}

/// Whether a key that is looked up is within bounds and not NULL; `None` where it always is. One side is never NULL: a NULL
/// of the other equals nothing, whatever the rule.
pub(super) fn live(cx: &mut Context<'_>, key: &Lowered, value: V, bounds: (i128, i128)) -> Option<V> {
    match (in_range(cx, value, key.range, bounds), key.valid) {
        (Some(within), Some(valid)) => Some(cx.builder.and(within, valid)),
        (within, valid) => within.or(valid),
    }
}
