//! A queue of long ranges, which all warps of the grid drain: beyond push-down parallelism within a warp (DogQC, section 3), for rows
//! that one warp would work on long after all others have ended.
//!
//! A range of more numbers than a threshold is not taken by its warp: it goes to the queue with the registers that its row stands on.
//! Then the kernel is launched once more, and *drains*: each range in the queue is cut into *pieces*, and in place of rows of the
//! source, a warp is given a piece; everything behind is the same code. What a warp is given does not go to the queue again.
//!
//! One word counts ranges and pieces, so that each range is told its place and the number of its first piece at once, and these
//! numbers ascend with the places: a warp finds the range of a piece by a search, in which each lane looks at another place.
//!
//! The queue has room for so many ranges and no more. What does not fit stays in its lane, and is taken by its warp: so nothing
//! runs again for want of room, and no answer depends on the queue. Of the places that were given out, all that the queue has are
//! written, each by the lane that took it.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Builtin, Scalar, Scope, Type};

use crate::context::lanes::{any, ballot, count, rank, read_lane, sums};
use crate::context::register_words::{WORD_BITS, of_words, to_words, word_count};
use crate::context::{Argument, Context};
use crate::program::RangeQueue;
use crate::table::key_rows::Positions;

/// Where in a range's second word the count of its numbers begins; below it is the first number.
const COUNT_SHIFT: u64 = 32;
/// Words of a range before those of its row: the number of its first piece; its first number and their count; those of a piece.
const OWN_WORDS: u64 = 3;
/// Ranges in a queue, at most. No lane asks for a place where none is free, so that places beyond are no more than threads run at a
/// time: half of what the counter can tell.
const MOST_RANGES: u64 = 1 << (WORD_BITS - RangeQueue::PIECE_BITS - 1);
/// Pieces of a range, at most: of as many ranges as the counter can tell, it can tell the pieces.
const MOST_PIECES: u32 = 1 << (2 * RangeQueue::PIECE_BITS - WORD_BITS - 1);

/// The queue of a pipeline in one of its kernels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    /// Where it lies.
    pub states: RangeQueue,
    /// Ranges of more numbers than this go to it.
    pub longest: u64,
}

impl Queue {
    /// Whether the launch drains the queue, `bool`: the same in the grid.
    pub(crate) fn drains(cx: &mut Context<'_>) -> V {
        cx.argument("drains", Scalar::Bool, Argument::Drains)
    }

    /// The rows that the row loop goes through (`i64`, the same in the grid): those of the source, or, in a launch that drains, as many
    /// for each piece as a warp has lanes. Only the device knows how many pieces there are.
    pub(crate) fn rows(&self, cx: &mut Context<'_>, rows: V) -> V {
        let rows = cx.builder.var_of("loop_rows", rows);
        let drains = Queue::drains(cx);
        cx.begin_if(drains);
        let counter = self.counter(cx);
        let b = &mut *cx.builder;
        // A launch that drains puts nothing into the queue.
        let taken = b.load_read_only(counter);
        let (mask, lanes) = (b.u64((1 << RangeQueue::PIECE_BITS) - 1), b.u64(cx.shape.lanes.into()));
        let pieces = b.and(taken, mask);
        let all = b.mul(pieces, lanes);
        let all = b.bitcast(all, Scalar::I64);
        b.assign(rows, all);
        cx.end();
        cx.builder.read(rows)
    }

    fn counter(&self, cx: &mut Context<'_>) -> V {
        cx.argument("queue_pieces", Type::global(Scalar::U64), Argument::State(self.states.pieces))
    }

    /// Ranges that the queue has room for, `u64`.
    fn room(&self, cx: &mut Context<'_>, words: u64) -> V {
        let state = Argument::StateCapacity(self.states.words);
        let capacity = cx.argument("queue_words", Scalar::I64, state);
        let b = &mut *cx.builder;
        let (capacity, words, most) = (b.bitcast(capacity, Scalar::U64), b.u64(words), b.u64(MOST_RANGES));
        let room = b.div(capacity, words);
        b.binary(BinaryOp::Min, room, most)
    }

    /// Word `word` of the range at a place, in a queue with room for so many: words of neighbouring ranges are neighbours.
    fn word(&self, cx: &mut Context<'_>, (word, room): (u64, V), place: V) -> V {
        let words = cx.argument("queue", Type::global(Scalar::U64), Argument::State(self.states.words));
        let b = &mut *cx.builder;
        if word == 0 {
            return b.offset(words, place);
        }
        let word = b.u64(word);
        let before = b.mul(word, room);
        let index = b.add(before, place);
        b.offset(words, index)
    }

    /// In a launch that drains, gives the first lane of each warp the piece of the warp's number: its `range`, and its row's
    /// `registers`. `row`: the lane's number in the grid, `i64`, where `in_range` (`bool`, the same in the warp) there is such a
    /// piece. At uniform control flow of the warp.
    pub(crate) fn take(
        &self,
        cx: &mut Context<'_>,
        (row, in_range): (V, V),
        range: Positions,
        registers: &[Var],
    ) {
        let types: Vec<Type> = registers.iter().map(|var| type_of(cx, *var)).collect();
        let words = words_of_range(&types);
        let drains = Queue::drains(cx);
        cx.begin_if(drains);
        let room = self.room(cx, words);
        let b = &mut *cx.builder;
        let (row, lanes) = (b.bitcast(row, Scalar::U64), b.u64(cx.shape.lanes.into()));
        let (piece, zero) = (b.div(row, lanes), b.u32(0));
        let piece = read_lane(cx, piece, zero);
        let (place, is_found) = self.find(cx, piece, room);
        let b = &mut *cx.builder;
        let lane = b.builtin(Builtin::LaneId);
        let is_first = b.eq(lane, zero);
        let is_own = b.and(is_first, in_range);
        let takes = b.and(is_own, is_found);
        cx.begin_if(takes);
        let mut read = Vec::new();
        for word in 0..words {
            let pointer = self.word(cx, (word, room), place);
            read.push(cx.builder.load(pointer));
        }
        let b = &mut *cx.builder;
        let (begin, shift) = (b.convert(read[1], Scalar::U32), b.u64(COUNT_SHIFT));
        let (all, size) = (b.binary(BinaryOp::Shr, read[1], shift), read[2]);
        // The pieces of ranges that had no room are numbered behind all others.
        let (number, most) = (b.sub(piece, read[0]), b.u64(MOST_PIECES.into()));
        let number = b.binary(BinaryOp::Min, number, most);
        let before = b.mul(number, size);
        let is_there = b.lt(before, all);
        cx.begin_if(is_there);
        let b = &mut *cx.builder;
        let left = b.sub(all, before);
        let count = b.binary(BinaryOp::Min, left, size);
        let (before, count) = (b.convert(before, Scalar::U32), b.convert(count, Scalar::U32));
        let begin = b.add(begin, before);
        b.assign(range.begin, begin);
        b.assign(range.count, count);
        let mut rest = &read[OWN_WORDS as usize..];
        for (register, ty) in registers.iter().zip(&types) {
            let (own, others) = rest.split_at(word_count(*ty) as usize);
            rest = others;
            let value = of_words(cx, *ty, own);
            cx.builder.assign(*register, value);
        }
        for _ in 0..3 {
            cx.end();
        }
    }

    /// The place (`u64`) of the range that a piece (`u64`, the same in the warp) is of: the last one whose first piece is not behind
    /// it; and whether there is any (`bool`), both the same in the warp. Each turn looks at as many places as there are lanes.
    fn find(&self, cx: &mut Context<'_>, piece: V, room: V) -> (V, V) {
        let counter = self.counter(cx);
        let b = &mut *cx.builder;
        let taken = b.load_read_only(counter);
        let ranges = b.shr_int(taken, RangeQueue::PIECE_BITS);
        let ranges = b.binary(BinaryOp::Min, ranges, room);
        let ranges = b.convert(ranges, Scalar::U32);
        let (none, one) = (b.u32(0), b.u32(1));
        let (from, to) = (b.var_of("from", none), b.var_of("to", ranges));
        cx.begin_loop();
        let b = &mut *cx.builder;
        let (first, end) = (b.read(from), b.read(to));
        let second = b.add(first, one);
        let done = b.ge(second, end);
        b.break_if(done);
        let (lanes, others) = (b.u32(cx.shape.lanes), b.u32(cx.shape.lanes - 1));
        let all = b.sub(end, first);
        let all = b.add(all, others);
        let step = b.div(all, lanes);
        let (lane, no) = (b.builtin(Builtin::LaneId), b.bool(false));
        let before = b.mul(lane, step);
        let place = b.add(first, before);
        let (begins, is_there) = (b.var_of("begins", no), b.lt(place, end));
        cx.begin_if(is_there);
        let place = cx.builder.convert(place, Scalar::U64);
        let pointer = self.word(cx, (0, room), place);
        let b = &mut *cx.builder;
        let own = b.load(pointer);
        let is_before = b.ge(piece, own);
        b.assign(begins, is_before);
        cx.end();
        let begins = cx.builder.read(begins);
        let mask = ballot(cx, begins);
        let number = count(cx, mask);
        let b = &mut *cx.builder;
        // That of the first lane does.
        let number = b.binary(BinaryOp::Max, number, one);
        let steps = b.sub(number, one);
        let skipped = b.mul(steps, step);
        let now = b.add(first, skipped);
        let next = b.add(now, step);
        let next = b.binary(BinaryOp::Min, next, end);
        b.assign(from, now);
        b.assign(to, next);
        cx.end();
        let b = &mut *cx.builder;
        let place = b.read(from);
        let is_found = b.lt(place, ranges);
        (b.convert(place, Scalar::U64), is_found)
    }

    /// Puts the long ranges of a warp's lanes into the queue, as far as it has room; of those `range` is empty then. `registers`: what
    /// the rows stand on. At uniform control flow of the warp.
    pub(crate) fn put(&self, cx: &mut Context<'_>, range: Positions, registers: &[V]) {
        let drains = Queue::drains(cx);
        let b = &mut *cx.builder;
        let (begin, numbers) = (b.read(range.begin), b.read(range.count));
        let (all, longest) = (b.u32(u32::MAX), b.int(Scalar::U32, self.longest.min(u32::MAX.into())));
        let longest = b.select(drains, all, longest);
        let is_long = b.lt(longest, numbers);
        let any_is_long = any(cx, is_long);
        // A warp without long ranges has compared, and voted.
        cx.begin_if(any_is_long);
        let types: Vec<Type> = registers.iter().map(|register| cx.builder.ty(*register)).collect();
        let words = words_of_range(&types);
        let room = self.room(cx, words);
        let (pieces, size) = self.pieces(cx, numbers);
        let (first, place) = self.reserve(cx, (is_long, pieces), (room, words));
        let b = &mut *cx.builder;
        let has_room = b.lt(place, room);
        let goes = b.and(is_long, has_room);
        cx.begin_if(goes);
        let b = &mut *cx.builder;
        let (begin, shift) = (b.convert(begin, Scalar::U64), b.u64(COUNT_SHIFT));
        let (numbers, size) = (b.convert(numbers, Scalar::U64), b.convert(size, Scalar::U64));
        let numbers = b.binary(BinaryOp::Shl, numbers, shift);
        let mut own = vec![first, b.or(begin, numbers), size];
        for register in registers {
            own.extend(to_words(cx, *register));
        }
        for (number, word) in (0..).zip(own) {
            let pointer = self.word(cx, (number, room), place);
            cx.builder.store(pointer, word);
        }
        let none = cx.builder.u32(0);
        cx.builder.assign(range.count, none);
        cx.end();
        cx.end();
    }

    /// Of a range of so many numbers the pieces, and the numbers of a piece, whole turns of a warp (`u32`). Of the longest ranges there is
    /// a piece for each warp of a full grid, of others more than half of the threshold in each.
    fn pieces(&self, cx: &mut Context<'_>, numbers: V) -> (V, V) {
        let lanes = cx.shape.lanes;
        let most = cx.shape.most_blocks.saturating_mul(cx.shape.warps()).clamp(1, MOST_PIECES);
        let least = self.longest.max(1).next_multiple_of(lanes.into()).min(1 << 30);
        let b = &mut *cx.builder;
        let (one, most, least) = (b.u32(1), b.u32(most), b.int(Scalar::U32, least));
        let width = b.u32(lanes);
        let last = b.sub(numbers, one);
        let others = b.div(last, least);
        let pieces = b.add(others, one);
        let pieces = b.binary(BinaryOp::Min, pieces, most);
        let share = b.div(last, pieces);
        // One number more than the share, in whole turns.
        let up = b.add(share, width);
        let rest = b.rem(up, width);
        (pieces, b.sub(up, rest))
    }

    /// Takes places for the ranges of a warp, of so many pieces (`u32`) each, where they are long (`bool`), with one atomic. The
    /// number of the lane's first piece, and the place of its range (`u64`), beyond the room where there is none.
    fn reserve(&self, cx: &mut Context<'_>, (is_long, pieces): (V, V), (room, words): (V, u64)) -> (V, V) {
        let asked = Argument::State(self.states.asked);
        let asked = cx.argument("queue_asked", Type::global(Scalar::U64), asked);
        let (counter, mask) = (self.counter(cx), ballot(cx, is_long));
        let (ranges, own) = (count(cx, mask), rank(cx, mask));
        let zero = cx.builder.u32(0);
        let pieces = cx.builder.select(is_long, pieces, zero);
        let (before, all) = sums(cx, pieces);
        let b = &mut *cx.builder;
        let (shift, lane) = (b.u64(RangeQueue::PIECE_BITS), b.builtin(Builtin::LaneId));
        let (none, is_first) = (b.u64(u64::MAX), b.eq(lane, zero));
        let start = b.var_of("first_range", none);
        cx.begin_if(is_first);
        let b = &mut *cx.builder;
        let (ranges, words) = (b.convert(ranges, Scalar::U64), b.u64(words));
        let wanted = b.mul(ranges, words);
        b.atomic_discard(AtomicOp::Add, asked, wanted, Scope::Device);
        let seen = b.atomic_load(counter, Scope::Device);
        let taken = b.binary(BinaryOp::Shr, seen, shift);
        let is_free = b.lt(taken, room);
        cx.begin_if(is_free);
        let b = &mut *cx.builder;
        let (ranges, all) = (b.binary(BinaryOp::Shl, ranges, shift), b.convert(all, Scalar::U64));
        let both = b.or(ranges, all);
        let own_start = b.atomic(AtomicOp::Add, counter, both, Scope::Device);
        b.assign(start, own_start);
        cx.end();
        cx.end();
        let start = cx.builder.read(start);
        let start = read_lane(cx, start, zero);
        let b = &mut *cx.builder;
        let mask = b.u64((1 << RangeQueue::PIECE_BITS) - 1);
        let (first, place) = (b.and(start, mask), b.binary(BinaryOp::Shr, start, shift));
        let (before, own) = (b.convert(before, Scalar::U64), b.convert(own, Scalar::U64));
        (b.add(first, before), b.add(place, own))
    }
}

fn type_of(cx: &mut Context<'_>, var: Var) -> Type {
    let value = cx.builder.read(var);
    cx.builder.ty(value)
}

/// Words of a range whose row stands on registers of these types.
fn words_of_range(types: &[Type]) -> u64 {
    OWN_WORDS + types.iter().map(|ty| word_count(*ty)).sum::<u64>()
}
