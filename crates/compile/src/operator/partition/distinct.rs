//! The groups of rows in parts, where nothing is added up of them: a CPU's worker delivers those of a part when it has seen the part's rows.
//!
//! What a group without sums is wanted for is that it is there: its keys go on (to another aggregation, which counts them, or into the
//! result). A table of all groups has them when all rows have come, and lies beyond any cache: it is cleared, filled and read from one end to
//! the other, for each run. But rows of equal keys are in the same part, and a part is one worker's. So the worker has a
//! table for as many rows as a part has, which stays in its cache and is used for part after part: of a slot it has a piece of the hash and
//! the number of the first row with such keys, which is compared where it lies, among the part's rows. The places of first rows are written down, and
//! are the places of this source, on which the pipeline goes on at once.
//!
//! A part that has more rows than its share of the places, or than the worker's table has room for, comes to the table of all groups as it
//! would without ([`PartRows::beyond`](super::read::PartRows)), from where another pipeline delivers its groups.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, Builtin, Scalar, Type};

use super::{CHUNK, CHUNK_SHIFT, PartStore, RowParts};
use crate::context::{Argument, Context, Unsupported};
use crate::expr::{Expr, ExprKind, columns_read};
use crate::layout::ColumnInfo;
use crate::lower::lower;
use crate::operator::roles::{Parts, Piece, Pieces, Source};
use crate::primitives::partition::{Shares, cursor};
use crate::program::{Growth, RowCount, States};
use crate::shape::LaunchShape;
use crate::table::joined::Joined;
use crate::table::stored::StoredColumn;

/// Slots for each row, at least: short searches.
const SLOTS_A_ROW: u32 = 2;
/// Slots of a worker's table, at least and at most. What most rows need lies in a core's second-level cache.
const LEAST_SLOTS: u64 = 1 << 10;
const MOST_SLOTS: u64 = 1 << 16;
/// Slots that are cleared in a turn of a loop: no table has fewer.
const CLEARED_AT_ONCE: u32 = 16;
/// Bits of a slot's entry that number a row in its part, from 1 on. Above them are as many of the hash.
const NUMBER_BITS: u64 = 32;

/// The tables of a CPU's workers for the groups of one part at a time.
#[derive(Debug)]
pub(crate) struct OwnTables {
    /// State of one `u64` a slot, of each worker as many.
    state: usize,
    slots: u32,
}

impl OwnTables {
    /// How many slots a worker's table has for rows in so many parts, where parts have about as many each.
    fn slots(rows: u64, parts: u64) -> u64 {
        // What is left of chunks, and parts that have more rows than others.
        let of_part = (rows / parts.max(1)).saturating_mul(5) / 4 + 2 * u64::from(CHUNK);
        of_part.saturating_mul(SLOTS_A_ROW.into()).next_power_of_two().max(LEAST_SLOTS)
    }

    /// Whether a worker's table has room for the rows of a part where there are so many.
    pub(crate) fn suit(rows: u64, parts: u64) -> bool {
        OwnTables::slots(rows, parts) <= MOST_SLOTS
    }

    /// Declares them.
    pub(crate) fn plan((rows, parts): (u64, u64), shape: &LaunchShape, states: &mut States) -> OwnTables {
        let slots = OwnTables::slots(rows, parts).min(MOST_SLOTS);
        let class = states.class(u64::from(shape.workers()) * slots, Growth::Fixed);
        OwnTables { state: states.state("part_slots", 8, class), slots: slots as u32 }
    }

    /// Whether a worker finds the groups of a part by itself of which so many places were asked for (`u32` both): its rows have all found a
    /// place there, and the table has room for them.
    pub(super) fn admit(&self, b: &mut Builder, (shares, part): (&Shares, V), asked: V) -> V {
        let (parts, most) = (b.u32(shares.parts), b.u32(self.slots / SLOTS_A_ROW));
        let most = b.binary(BinaryOp::Min, most, shares.part_places);
        let (is_part, fits) = (b.lt(part, parts), b.ge(most, asked));
        b.and(is_part, fits)
    }

    /// The worker's table, `ptr<global, u64>`.
    fn begin(&self, cx: &mut Context<'_>) -> V {
        let all = cx.argument("part_slots", Type::global(Scalar::U64), Argument::State(self.state));
        let b = &mut *cx.builder;
        let (worker, slots) = (b.builtin(Builtin::BlockId), b.i64(self.slots.into()));
        let worker = b.convert(worker, Scalar::I64);
        let before = b.mul(worker, slots);
        b.offset(all, before)
    }
}

/// The first row of each group, of all parts whose groups a worker finds by itself.
#[derive(Debug)]
pub(crate) struct DistinctRows {
    store: Arc<PartStore>,
    /// What gives rows their parts, by a hash of keys that are columns.
    by: Arc<dyn RowParts>,
    tables: Arc<OwnTables>,
    /// State of one `u32` a place: from the first place of a part on, the places of its groups' first rows.
    firsts: usize,
}

impl fmt::Display for DistinctRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "groups of {} parts", self.store.parts)
    }
}

impl DistinctRows {
    /// Why groups by such keys, nothing of which is added up, cannot be delivered by workers.
    pub(crate) fn lacks(store: &PartStore, keys: &[ColumnInfo]) -> Option<&'static str> {
        match () {
            () if !store.has_chunks => Some("a part is not the range of a worker's chunks"),
            // The first row of a group may have the one zero or the other.
            () if keys.iter().any(|key| key.data_type.is_float()) => Some("keys of floats are made equal"),
            () => None,
        }
    }

    /// Declares the states.
    pub(crate) fn plan(
        store: Arc<PartStore>,
        by: Arc<dyn RowParts>,
        tables: Arc<OwnTables>,
        states: &mut States,
    ) -> DistinctRows {
        let firsts = states.state("first_rows", 4, store.class);
        DistinctRows { store, by, tables, firsts }
    }

    /// The columns that are keys.
    fn key_columns(&self) -> Result<Vec<(&Expr, &StoredColumn)>, Unsupported> {
        let column = |key: &'_ Expr| match key.kind {
            ExprKind::Column(column) => self.store.column(column),
            _ => Err(Unsupported::internal("keys in parts that are no columns")),
        };
        self.by.keys().iter().map(|key| Ok((key, column(key)?))).collect()
    }

    /// Makes the row at a place (`i64`) of the parts the current one.
    fn bind_place(&self, cx: &mut Context<'_>, place: V) {
        let columns = self.store.columns.iter();
        cx.push_joined(columns.map(|column| Joined::stored(column, place, None)).collect());
    }

    /// `ptr<global, u32>`.
    fn firsts(&self, cx: &mut Context<'_>) -> V {
        cx.argument("first_rows", Type::global(Scalar::U32), Argument::State(self.firsts))
    }

    /// Writes down the places of the first rows of the groups of a part, which has so many places from `first` on (both `i64`), from there
    /// on. `next`: where the next one goes (`i64`).
    fn find(&self, cx: &mut Context<'_>, (first, places): (V, V), next: Var) -> Result<(), Unsupported> {
        let table = self.tables.begin(cx);
        let slots = Slots::clear(cx, table, places);
        let fills = self.store.fills(cx);
        let end = cx.builder.add(first, places);
        let chunk = cx.builder.var_of("chunk", first);
        cx.begin_loop();
        let b = &mut *cx.builder;
        let begin = b.read(chunk);
        let done = b.ge(begin, end);
        b.break_if(done);
        let number = b.shr_int(begin, CHUNK_SHIFT);
        let rows = b.element(fills, number);
        let rows = b.convert(rows, Scalar::I64);
        let rows_end = b.add(begin, rows);
        let place = b.var_of("place", begin);
        cx.begin_loop();
        let b = &mut *cx.builder;
        let current = b.read(place);
        let done = b.ge(current, rows_end);
        b.break_if(done);
        self.bind_place(cx, current);
        self.look(cx, &slots, (first, current), next)?;
        cx.pop_layer();
        let b = &mut *cx.builder;
        let after = b.add_int(current, 1);
        b.assign(place, after);
        cx.end();
        let b = &mut *cx.builder;
        let after = b.add_int(begin, CHUNK);
        b.assign(chunk, after);
        cx.end();
        Ok(())
    }

    /// Looks for the keys of the current row, which is at a place of a part that begins with `first`, and writes the place down if they
    /// are new.
    fn look(
        &self,
        cx: &mut Context<'_>,
        slots: &Slots,
        (first, place): (V, V),
        next: Var,
    ) -> Result<(), Unsupported> {
        let hash = self.hash(cx, place)?;
        let b = &mut *cx.builder;
        let (one, half) = (b.i64(1), b.u64(NUMBER_BITS));
        let (number, tag) = (b.sub(place, first), b.binary(BinaryOp::Shl, hash, half));
        let number = b.add(number, one);
        let number = b.bitcast(number, Scalar::U64);
        let own = b.or(tag, number);
        let rest = b.shl_int(hash, self.store.bits);
        let home = b.binary(BinaryOp::Shr, rest, slots.shift);
        let slot = b.var_of("slot", home);
        cx.begin_loop();
        let b = &mut *cx.builder;
        let (current, free) = (b.read(slot), b.u64(0));
        let pointer = b.offset(slots.table, current);
        let entry = b.load(pointer);
        let is_free = b.eq(entry, free);
        cx.begin_if(is_free);
        cx.builder.store(pointer, own);
        let firsts = self.firsts(cx);
        let b = &mut *cx.builder;
        let to = b.read(next);
        let pointer = b.offset(firsts, to);
        let narrow = b.convert(place, Scalar::U32);
        b.store(pointer, narrow);
        let after = b.add(to, one);
        b.assign(next, after);
        b.break_loop();
        cx.end();
        let b = &mut *cx.builder;
        let difference = b.binary(BinaryOp::Xor, entry, own);
        let difference = b.binary(BinaryOp::Shr, difference, half);
        let is_alike = b.eq(difference, free);
        cx.begin_if(is_alike);
        let b = &mut *cx.builder;
        let mask = b.u64((1 << NUMBER_BITS) - 1);
        let number = b.and(entry, mask);
        let number = b.bitcast(number, Scalar::I64);
        let number = b.sub(number, one);
        let other = b.add(first, number);
        let mut same = b.bool(true);
        for (key, column) in self.key_columns()? {
            let value = lower(cx, key)?;
            let equal = column.equals(cx, &value, other)?;
            same = cx.builder.and(same, equal);
        }
        cx.builder.break_if(same);
        cx.end();
        let b = &mut *cx.builder;
        let after = b.add_int(current, 1);
        let after = b.and(after, slots.mask);
        b.assign(slot, after);
        cx.end();
        Ok(())
    }

    /// The hash (`u64`) of the keys of the current row, at a place (`i64`).
    fn hash(&self, cx: &mut Context<'_>, place: V) -> Result<V, Unsupported> {
        if let Some(state) = self.store.hashes {
            let hashes = cx.argument("part_hashes", Type::global(Scalar::U64), Argument::State(state));
            return Ok(cx.builder.element(hashes, place));
        }
        let (_, hash) = self.by.part(cx, self.store.bits)?;
        hash.ok_or_else(|| Unsupported::internal("groups that are not found by a hash"))
    }
}

/// A worker's table while it is used for a part.
struct Slots {
    /// `ptr<global, u64>`.
    table: V,
    /// How far a hash without the part's bits is shifted to be a slot, `u64`.
    shift: V,
    /// One less than there are slots, `u64`.
    mask: V,
}

impl Slots {
    /// So many empty slots as are enough for rows at so many places (`i64`).
    fn clear(cx: &mut Context<'_>, table: V, places: V) -> Slots {
        let b = &mut *cx.builder;
        let (least, times) = (b.i64(CLEARED_AT_ONCE.into()), b.i64(SLOTS_A_ROW.into()));
        let wanted = b.mul(places, times);
        let highest = b.u64(u64::from(u64::BITS - CLEARED_AT_ONCE.ilog2()));
        let (slots, shift) = (b.var_of("slots", least), b.var_of("shift", highest));
        b.begin_loop();
        let (current, distance, one, twice) = (b.read(slots), b.read(shift), b.u64(1), b.i64(1));
        let is_enough = b.ge(current, wanted);
        b.break_if(is_enough);
        let (more, less) = (b.binary(BinaryOp::Shl, current, twice), b.sub(distance, one));
        b.assign(slots, more);
        b.assign(shift, less);
        b.end();
        let (count, zero, nothing) = (b.read(slots), b.i64(0), b.u64(0));
        let index = b.var_of("cleared", zero);
        b.begin_loop();
        let current = b.read(index);
        let done = b.ge(current, count);
        b.break_if(done);
        let first = b.offset(table, current);
        for more in 0..CLEARED_AT_ONCE {
            let more = b.i64(more.into());
            let pointer = b.offset(first, more);
            b.store(pointer, nothing);
        }
        let after = b.add(current, least);
        b.assign(index, after);
        b.end();
        let (count, one, shift) = (b.bitcast(count, Scalar::U64), b.u64(1), b.read(shift));
        Slots { table, shift, mask: b.sub(count, one) }
    }
}

impl Source for DistinctRows {
    fn rows(&self) -> RowCount {
        RowCount::Counted(self.store.end)
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        self.store.infos()
    }

    /// A worker comes to places with groups only.
    fn is_speculative(&self) -> bool {
        true
    }

    fn live(&self, _cx: &mut Context<'_>, _row: V) -> Option<V> {
        None
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let firsts = self.firsts(cx);
        let pointer = cx.builder.offset(firsts, row);
        // It was written in this launch.
        let place = cx.builder.load(pointer);
        let place = cx.builder.convert(place, Scalar::I64);
        self.bind_place(cx, place);
        Ok(())
    }

    fn parts(&self) -> Option<&dyn Parts> {
        Some(self)
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        let keys: BTreeSet<usize> = self.by.keys().iter().flat_map(columns_read).collect();
        let columns = columns.union(&keys).filter_map(|column| self.store.columns.get(*column));
        states.extend(columns.flat_map(StoredColumn::states).chain(self.store.hashes));
    }
}

impl Parts for DistinctRows {
    /// One of each part.
    fn pieces(&self, cx: &mut Context<'_>) -> Pieces {
        let b = &mut *cx.builder;
        let (count, one, none) = (b.u32(self.store.parts), b.u32(1), b.u32(0));
        Pieces { count, shares: one, of_parts: count, of_others: none }
    }

    /// The groups are found here: a launch that is told to work on some of the rows finds those of the same places whatever it is told.
    fn piece(&self, cx: &mut Context<'_>, _: &Pieces, part: V) -> Result<Piece, Unsupported> {
        let (shares, cursors) = (self.store.shares(cx), self.store.cursors(cx));
        let from = cx.argument("first_row", Scalar::I64, Argument::FirstRow);
        let until = cx.argument("rows", Scalar::I64, Argument::RowCount);
        let b = &mut *cx.builder;
        let pointer = cursor(b, cursors, part);
        let asked = b.load_read_only(pointer);
        let is_own = self.tables.admit(b, (&shares, part), asked);
        let first = b.mul(part, shares.part_places);
        let (first, places) = (b.convert(first, Scalar::I64), b.convert(asked, Scalar::I64));
        let behind = b.add(first, places);
        let (begins, ends) = (b.lt(first, until), b.lt(from, behind));
        let is_asked = b.and(begins, ends);
        let is_own = b.and(is_own, is_asked);
        let next = b.var_of("next_first", first);
        cx.begin_if(is_own);
        self.find(cx, (first, places), next)?;
        cx.end();
        let b = &mut *cx.builder;
        let end = b.read(next);
        let (yes, no) = (b.bool(true), b.bool(false));
        Ok(Piece { part, is_alone: yes, is_crowded: no, first, end })
    }
}
