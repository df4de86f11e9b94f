//! Pieces of parts that follow each other in their array.
//!
//! A part is one range of places, and may have any number of rows. So that no block has to take all rows of a frequent value alone, the
//! pieces of a part take its first rows, up to twice as many as a part has on average, and the other pieces are ranges of the array: of
//! its places, as many each as that, those are taken whose rows the pieces of parts leave. They are all of the part that has the range's
//! first place: a part that begins further on has its first rows there. So each piece is of one part, and finds its groups in a window.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Builtin, Scalar};

use crate::context::Context;
use crate::operator::roles::{Piece, Pieces};
use crate::primitives::partition::Starts;

/// Rows of the pieces of a part, at most: so many times as many as a part has on average.
const OF_MEAN: u32 = 2;

/// The parts.
pub(super) struct Ranges {
    pub starts: Starts,
    /// How many there are.
    pub parts: u32,
}

impl Ranges {
    /// Each block has as many pieces as another, where parts have as many rows. There are no more ranges than blocks where these are fewer
    /// than parts: mostly nothing is left of them.
    pub fn pieces(&self, cx: &mut Context<'_>) -> Pieces {
        let total = self.total(cx.builder);
        let b = &mut *cx.builder;
        let (blocks, parts, one) = (b.builtin(Builtin::GridDim), b.u32(self.parts.max(1)), b.u32(1));
        let shares = b.div(blocks, parts);
        let shares = b.binary(BinaryOp::Max, shares, one);
        let of_parts = b.mul(shares, parts);
        let (mean, times, of_block) = (b.div(total, parts), b.u32(OF_MEAN), b.div(total, blocks));
        let most = b.mul(mean, times);
        let most = b.binary(BinaryOp::Max, most, of_block);
        let most = b.add(most, one);
        // The last one may be empty.
        let ranges = b.div(total, most);
        let ranges = b.add(ranges, one);
        let ranges = b.binary(BinaryOp::Min, ranges, total);
        let of_others = b.mul(ranges, shares);
        let count = b.add(of_parts, of_others);
        Pieces { count, shares, of_parts, of_others, most }
    }

    pub fn piece(&self, cx: &mut Context<'_>, pieces: &Pieces, number: V) -> Piece {
        let total = self.total(cx.builder);
        let b = &mut *cx.builder;
        let (part, share) = (b.div(number, pieces.shares), b.rem(number, pieces.shares));
        let own = b.var_of("part", part);
        let zero = b.u32(0);
        let (first, end) = (b.var_of("first", zero), b.var_of("end", total));
        let is_other = b.ge(number, pieces.of_parts);
        cx.begin_if(is_other);
        let b = &mut *cx.builder;
        let of_parts = b.u32(self.parts.max(1));
        let range = b.sub(part, of_parts);
        let start = b.mul(range, pieces.most);
        let rest = b.sub(total, start);
        let rows = b.binary(BinaryOp::Min, rest, pieces.most);
        let after = b.add(start, rows);
        b.assign(first, start);
        b.assign(end, after);
        let part = self.part_of(cx, start);
        cx.builder.assign(own, part);
        cx.end();
        let b = &mut *cx.builder;
        let (part, one) = (b.read(own), b.u32(1));
        let next = b.add(part, one);
        let (start, after) = (self.starts.start(b, part), self.starts.start(b, next));
        let rows = b.sub(after, start);
        let kept = b.binary(BinaryOp::Min, rows, pieces.most);
        let kept_end = b.add(start, kept);
        let (range_first, range_end) = (b.read(first), b.read(end));
        let left = b.binary(BinaryOp::Max, range_first, kept_end);
        let from = b.select(is_other, left, start);
        let until = b.select(is_other, after, kept_end);
        let until = b.binary(BinaryOp::Min, until, range_end);
        // A range may have nothing that is left.
        let until = b.binary(BinaryOp::Max, until, from);
        let count = b.sub(until, from);
        let (first, end) = share_of(b, (from, count), (share, pieces.shares));
        let is_crowded = b.lt(pieces.most, rows);
        let (is_whole, is_complete) = (b.eq(pieces.shares, one), b.not(is_crowded));
        Piece { part, is_alone: b.and(is_whole, is_complete), is_crowded, first, end }
    }

    /// All rows, `u32`.
    fn total(&self, b: &mut Builder) -> V {
        let end = b.u32(self.parts);
        self.starts.start(b, end)
    }

    /// The part that has the row at a place (both `u32`): the last one that begins there or before.
    fn part_of(&self, cx: &mut Context<'_>, place: V) -> V {
        let b = &mut *cx.builder;
        let (zero, parts) = (b.u32(0), b.u32(self.parts));
        let (low, high) = (b.var_of("low", zero), b.var_of("high", parts));
        cx.begin_loop();
        let b = &mut *cx.builder;
        let (from, until, one) = (b.read(low), b.read(high), b.u32(1));
        let next = b.add(from, one);
        let done = b.ge(next, until);
        b.break_if(done);
        let sum = b.add(from, until);
        let middle = b.binary(BinaryOp::Shr, sum, one);
        let start = self.starts.start(b, middle);
        let is_before = b.ge(place, start);
        let (new_low, new_high) = (b.select(is_before, middle, from), b.select(is_before, until, middle));
        b.assign(low, new_low);
        b.assign(high, new_high);
        cx.end();
        cx.builder.read(low)
    }
}

/// The first place of a share, by number, of `rows` places from `start` on, of so many shares (all `u32`), and its end (both `i64`).
pub(super) fn share_of(b: &mut Builder, (start, rows): (V, V), (share, shares): (V, V)) -> (V, V) {
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
