//! The rows of a key as a range of positions, so that many lanes can take one each.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Scalar, Type};

use super::search::live;
use super::{Index, Kind, SlotRows, offset_from, scalar_of};
use crate::context::{Argument, Context, Lowered, Unsupported};
use crate::table::buckets::Buckets;
use crate::table::rows::RowStore;
use crate::table::slots::Slots;
use crate::table::together::Found;

/// Positions of rows: the first one, and how many there are, `u32`.
#[derive(Debug, Clone, Copy)]
pub struct Positions {
    /// The first one.
    pub begin: Var,
    /// How many.
    pub count: Var,
}

impl Index {
    /// Whether the rows of a key stand at positions one after the other; or why not.
    pub fn has_positions(&self, store: &RowStore) -> Result<(), String> {
        match (self.kind, self.buckets()) {
            (_, Some(_)) => Ok(()),
            (Kind::All, None) if store.is_dense() => Ok(()),
            (Kind::All, None) => Err("rows are stored with holes".into()),
            _ => Err("the rows of a key stand in no bucket".into()),
        }
    }

    /// Sets `positions` to those of the rows whose keys equal `keys`; leaves them, which are of none, where there are none.
    pub fn find_positions(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        keys: &[Lowered],
        positions: Positions,
    ) -> Result<(), Unsupported> {
        match self.kind {
            Kind::All => {
                let state = Argument::State(store.place_count());
                let count = cx.argument("place_count", Type::global(Scalar::U64), state);
                let count = cx.builder.load(count);
                let count = cx.builder.convert(count, Scalar::U32);
                cx.builder.assign(positions.count, count);
            }
            Kind::Direct { min, max, slots: Slots::Many(buckets) } => {
                let value = scalar_of(&keys[0])?;
                let live = live(cx, &keys[0], value, (min, max));
                if let Some(live) = live {
                    cx.begin_if(live);
                }
                let slot = offset_from(cx, value, min);
                set_bounds(cx, buckets, slot, positions);
                if live.is_some() {
                    cx.end();
                }
            }
            Kind::Direct { min, max, slots: Slots::Ranked(ranks) } => {
                let buckets = self.buckets();
                let buckets = buckets.ok_or_else(|| Unsupported::internal("ranks that lead to no bucket"))?;
                let value = scalar_of(&keys[0])?;
                let live = live(cx, &keys[0], value, (min, max));
                if let Some(live) = live {
                    cx.begin_if(live);
                }
                let slot = offset_from(cx, value, min);
                ranks.if_taken(cx, slot, |cx, rank| {
                    let rank = cx.builder.convert(rank, Scalar::I64);
                    set_bounds(cx, buckets, rank, positions);
                });
                if live.is_some() {
                    cx.end();
                }
            }
            Kind::Hashed { table, rows: SlotRows::Buckets(buckets) } => {
                let valid = if self.null_equal { None } else { self.all_valid(cx, keys) };
                if let Some(valid) = valid {
                    cx.begin_if(valid);
                }
                let zero = cx.builder.u32(0);
                let cursor = cx.builder.var_of("cursor", zero);
                let slot = table
                    .find(cx, store, (keys, &self.wide), cursor, |cx, number| buckets.place_at(cx, number))?;
                set_bounds_where_found(cx, buckets, Found { slot, hit: cursor }, positions);
                if valid.is_some() {
                    cx.end();
                }
            }
            Kind::Direct { .. } | Kind::Hashed { .. } => {
                return Err(Unsupported::internal("positions of rows that stand in no bucket"));
            }
        }
        Ok(())
    }

    /// The same of a search that has ended ([`Index::find_together`]).
    pub(crate) fn positions_of(
        &self,
        cx: &mut Context<'_>,
        found: Found,
        positions: Positions,
    ) -> Result<(), Unsupported> {
        let Kind::Hashed { rows: SlotRows::Buckets(buckets), .. } = self.kind else {
            return Err(Unsupported::internal("positions of rows that stand in no bucket"));
        };
        set_bounds_where_found(cx, buckets, found, positions);
        Ok(())
    }

    /// The place (`i64`) of the row at a position (`u32`).
    pub fn place_at_position(&self, cx: &mut Context<'_>, position: V) -> V {
        match self.buckets() {
            Some(buckets) => buckets.place_of_position(cx, position),
            None => cx.builder.convert(position, Scalar::I64),
        }
    }
}

fn set_bounds_where_found(cx: &mut Context<'_>, buckets: Buckets, found: Found, positions: Positions) {
    let (number, zero) = (cx.builder.read(found.hit), cx.builder.u32(0));
    let is_found = cx.builder.ne(number, zero);
    cx.begin_if(is_found);
    let slot = cx.builder.read(found.slot);
    set_bounds(cx, buckets, slot, positions);
    cx.end();
}

fn set_bounds(cx: &mut Context<'_>, buckets: Buckets, slot: V, positions: Positions) {
    let (begin, end) = buckets.bounds(cx, slot);
    let count = cx.builder.sub(end, begin);
    cx.builder.assign(positions.begin, begin);
    cx.builder.assign(positions.count, count);
}
