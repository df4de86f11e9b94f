//! Rows in parts, part after part, as a source.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Builtin, Scalar};

use super::distinct::OwnTables;
use super::{CHUNK, CHUNK_SHIFT, PartStore};
use crate::context::{Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::roles::{Parts, Piece, Pieces, Source};
use crate::primitives::partition::{Shares, cursor};
use crate::program::RowCount;
use crate::table::joined::Joined;
use crate::table::stored::StoredColumn;

/// The rows, with places in between that have none.
#[derive(Debug)]
pub(crate) struct PartRows {
    pub store: Arc<PartStore>,
    /// Whether blocks, or workers, take the parts one after the other.
    pub in_blocks: bool,
    /// Where a worker delivers the groups of parts by itself: its tables, in which the rows of these parts come.
    pub beyond: Option<Arc<OwnTables>>,
}

impl fmt::Display for PartRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rows in {} parts", self.store.parts)
    }
}

impl Source for PartRows {
    fn rows(&self) -> RowCount {
        RowCount::Counted(self.store.end)
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        self.store.infos()
    }

    /// A block comes to places with rows only; a worker to all of its chunks.
    fn is_speculative(&self) -> bool {
        self.in_blocks && !self.store.has_chunks
    }

    /// A CPU's chunk notes how many rows it has. Otherwise the rows of a part are those before its cursor.
    fn live(&self, cx: &mut Context<'_>, row: V) -> Option<V> {
        if self.store.has_chunks {
            let fills = self.store.fills(cx);
            let b = &mut *cx.builder;
            let (shift, mask) = (b.i64(CHUNK_SHIFT.into()), b.i64(i64::from(CHUNK) - 1));
            let chunk = b.binary(BinaryOp::Shr, row, shift);
            let fill = b.element(fills, chunk);
            let within = b.and(row, mask);
            let within = b.convert(within, Scalar::U8);
            return Some(b.lt(within, fill));
        }
        if self.in_blocks {
            return None;
        }
        let (layout, cursors) = (self.store.shares(cx), self.store.cursors(cx));
        let b = &mut *cx.builder;
        let place = b.convert(row, Scalar::U32);
        let divisor = b.max_int(layout.part_places, 1);
        let part = b.div(place, divisor);
        let last = b.u32(self.store.parts);
        let is_overflow = b.ge(place, layout.overflow);
        let part = b.select(is_overflow, last, part);
        let start = b.mul(part, layout.part_places);
        let within = b.sub(place, start);
        let pointer = cursor(b, cursors, part);
        let taken = b.load(pointer);
        Some(b.lt(within, taken))
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let columns = self.store.columns.iter();
        cx.push_joined(columns.map(|column| Joined::stored(column, row, None)).collect());
        Ok(())
    }

    fn parts(&self) -> Option<&dyn Parts> {
        self.in_blocks.then_some(self as &dyn Parts)
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        let columns = columns.iter().filter_map(|column| self.store.columns.get(*column));
        states.extend(columns.flat_map(StoredColumn::states).chain(self.store.hashes));
    }
}

impl Parts for PartRows {
    /// Each block has as many pieces as another, where parts have as many rows: there are no more of them than blocks, or one a part.
    fn pieces(&self, cx: &mut Context<'_>) -> Pieces {
        let layout = self.store.shares(cx);
        let overflow = cx.builder.u32(self.store.parts);
        let asked = self.asked(cx, overflow);
        let rows = self.within(cx, (&layout, overflow), asked);
        let b = &mut *cx.builder;
        let (blocks, used, one) = (b.builtin(Builtin::GridDim), b.u32(self.store.parts.max(1)), b.u32(1));
        let shares = b.div(blocks, used);
        let shares = b.binary(BinaryOp::Max, shares, one);
        let of_parts = b.mul(shares, used);
        let of_others = b.binary(BinaryOp::Min, blocks, rows);
        let count = b.add(of_parts, of_others);
        Pieces { count, shares, of_parts, of_others }
    }

    fn piece(&self, cx: &mut Context<'_>, pieces: &Pieces, number: V) -> Result<Piece, Unsupported> {
        let layout = self.store.shares(cx);
        let b = &mut *cx.builder;
        let is_other = b.ge(number, pieces.of_parts);
        let part = b.div(number, pieces.shares);
        let (any, share) = (b.u32(self.store.parts), b.rem(number, pieces.shares));
        let part = b.select(is_other, any, part);
        let other = b.sub(number, pieces.of_parts);
        let share = b.select(is_other, other, share);
        let shares = b.select(is_other, pieces.of_others, pieces.shares);
        let start = b.mul(part, layout.part_places);
        let asked = self.asked(cx, part);
        let rows = self.within(cx, (&layout, part), asked);
        let b = &mut *cx.builder;
        // Only a part whose own rows have flown over has some elsewhere.
        let is_complete = b.ge(layout.part_places, asked);
        let (first, end) = share_of(b, (start, rows), (share, shares));
        let end = match &self.beyond {
            None => end,
            Some(tables) => {
                let is_own = tables.admit(b, (&layout, part), asked);
                b.select(is_own, first, end)
            }
        };
        let is_whole = b.eq_int(pieces.shares, 1);
        let is_part = b.not(is_other);
        let is_sole = b.and(is_part, is_complete);
        let is_crowded = b.not(is_sole);
        Ok(Piece { part, is_alone: b.and(is_whole, is_sole), is_crowded, first, end })
    }
}

impl PartRows {
    /// Places that were asked for, `u32`: of a part (`u32`), or of the overflow where it is the number of parts.
    fn asked(&self, cx: &mut Context<'_>, part: V) -> V {
        let cursors = self.store.cursors(cx);
        let pointer = cursor(cx.builder, cursors, part);
        cx.builder.load_read_only(pointer)
    }

    /// Those of them that there are.
    fn within(&self, cx: &mut Context<'_>, (layout, part): (&Shares, V), asked: V) -> V {
        let b = &mut *cx.builder;
        let is_overflow = b.ge_int(part, self.store.parts);
        let most = b.select(is_overflow, layout.overflow_places, layout.part_places);
        b.binary(BinaryOp::Min, asked, most)
    }
}

/// The first place of a share, by number, of `rows` places from `start` on, of so many shares (all `u32`), and its end (both `i64`).
fn share_of(b: &mut Builder, (start, rows): (V, V), (share, shares): (V, V)) -> (V, V) {
    let mut wide = |value| b.convert(value, Scalar::I64);
    let (start, rows, share, shares) = (wide(start), wide(rows), wide(share), wide(shares));
    let one = b.i64(1);
    let (shares, next) = (b.binary(BinaryOp::Max, shares, one), b.add(share, one));
    let mut place = |share| {
        let before = b.mul(rows, share);
        let before = b.div(before, shares);
        b.add(start, before)
    };
    (place(share), place(next))
}
