//! A queue of long ranges, which all warps of the grid drain: beyond push-down parallelism within a warp (DogQC, section 3), for rows
//! that one warp would work on long after all others have ended.
//!
//! A range of more numbers than a threshold is not taken by its warp: it is cut into *pieces*, each of which goes to the queue with
//! the registers that its row stands on. Then the kernel is launched once more, and *drains*: in place of a row of the source, a
//! warp is given a piece, and everything behind is the same code. No piece is made of a piece.
//!
//! The queue has room for so many pieces and no more. What does not fit stays in its lane, and is taken by its warp: so nothing
//! runs again for want of room, and no answer depends on the queue. Of the places that were given out, all that the queue has are
//! written, each by the warp that took it, so that a drain knows from their number alone which pieces there are.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Builtin, Scalar, Scope, Type};

use super::expand::{Ranges, for_leaders, for_warps};
use super::lanes::{any, read_lane, sums};
use crate::context::{Argument, Context, Unsupported};
use crate::program::RangeQueue;
use crate::table::index::Positions;

/// Bits of a word.
const WORD_BITS: u64 = 64;
/// Where in a piece's first word the count of its numbers begins; below it is the first number.
const COUNT_SHIFT: u64 = 32;

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

    /// Numbers of a piece, at least: whole turns of a warp.
    fn least(&self, cx: &Context<'_>) -> u32 {
        let lanes = u64::from(cx.shape.lanes);
        (self.longest / 2).max(1).next_multiple_of(lanes).min(1 << 30) as u32
    }

    /// Pieces that the queue has room for, `u64`.
    fn room(&self, cx: &mut Context<'_>, words: u64) -> V {
        let state = Argument::StateCapacity(self.states.words);
        let capacity = cx.argument("queue_words", Scalar::I64, state);
        let b = &mut *cx.builder;
        let (capacity, words) = (b.bitcast(capacity, Scalar::U64), b.u64(words));
        b.div(capacity, words)
    }

    /// Word `word` of the piece at a place, in a queue with room for so many: words of neighbouring pieces are neighbours.
    fn word(&self, cx: &mut Context<'_>, (word, room): (u64, V), place: V) -> V {
        let words = cx.argument("queue", Type::global(Scalar::U64), Argument::State(self.states.words));
        let b = &mut *cx.builder;
        let word = b.u64(word);
        let before = b.mul(word, room);
        let index = b.add(before, place);
        b.offset(words, index)
    }

    fn counter(&self, cx: &mut Context<'_>) -> V {
        cx.argument("queue_pieces", Type::global(Scalar::U64), Argument::State(self.states.pieces))
    }

    /// In a launch that drains, gives the first lane of each warp the piece of the warp's number: its `range`, and its row's
    /// `registers`. `row`: the lane's number in the grid, `i64`, where `in_range` (`bool`) it is within the launch.
    pub(crate) fn take(
        &self,
        cx: &mut Context<'_>,
        (row, in_range): (V, V),
        range: Positions,
        registers: &[Var],
    ) {
        let types: Vec<Type> = registers.iter().map(|var| type_of(cx, *var)).collect();
        let words = words_of_piece(&types);
        let drains = Queue::drains(cx);
        cx.begin_if(drains);
        let b = &mut *cx.builder;
        let (lane, zero, lanes) = (b.builtin(Builtin::LaneId), b.u32(0), b.u64(cx.shape.lanes.into()));
        let is_first = b.eq(lane, zero);
        let takes = b.and(is_first, in_range);
        cx.begin_if(takes);
        let row = cx.builder.bitcast(row, Scalar::U64);
        let place = cx.builder.div(row, lanes);
        let (counter, room) = (self.counter(cx), self.room(cx, words));
        let b = &mut *cx.builder;
        let pieces = b.load(counter);
        let pieces = b.binary(BinaryOp::Min, pieces, room);
        let is_there = b.lt(place, pieces);
        cx.begin_if(is_there);
        let mut read = Vec::new();
        for word in 0..words {
            let pointer = self.word(cx, (word, room), place);
            read.push(cx.builder.load(pointer));
        }
        let b = &mut *cx.builder;
        let shift = b.u64(COUNT_SHIFT);
        let count = b.binary(BinaryOp::Shr, read[0], shift);
        let (begin, count) = (b.convert(read[0], Scalar::U32), b.convert(count, Scalar::U32));
        b.assign(range.begin, begin);
        b.assign(range.count, count);
        let mut rest = &read[1..];
        for (register, ty) in registers.iter().zip(&types) {
            let (own, others) = rest.split_at(words_of(*ty) as usize);
            rest = others;
            let value = of_words(cx, *ty, own);
            cx.builder.assign(*register, value);
        }
        for _ in 0..3 {
            cx.end();
        }
    }

    /// Puts the long ranges of a warp's lanes into the queue, as far as it has room, and leaves the rest of each in `range`.
    /// `registers`: what the rows stand on. At uniform control flow of the warp.
    pub(crate) fn put(
        &self,
        cx: &mut Context<'_>,
        range: Positions,
        registers: &[V],
    ) -> Result<(), Unsupported> {
        let drains = Queue::drains(cx);
        let b = &mut *cx.builder;
        let (begin, count) = (b.read(range.begin), b.read(range.count));
        let (all, longest) = (b.u32(u32::MAX), b.int(Scalar::U32, self.longest.min(u32::MAX.into())));
        let longest = b.select(drains, all, longest);
        let is_long = b.lt(longest, count);
        let any_is_long = any(cx, is_long);
        // A warp without long ranges has compared, and voted.
        cx.begin_if(any_is_long);
        let size = self.size(cx, count);
        let b = &mut *cx.builder;
        let (zero, one) = (b.u32(0), b.u32(1));
        let less = b.sub(count, one);
        let others = b.div(less, size);
        let pieces = b.add(others, one);
        let pieces = b.select(is_long, pieces, zero);
        let types: Vec<Type> = registers.iter().map(|register| cx.builder.ty(*register)).collect();
        let words = words_of_piece(&types);
        let place = self.reserve(cx, pieces, words);
        let room = self.room(cx, words);
        let end = cx.builder.add(begin, count);
        let mut moved = vec![size, end, place];
        moved.extend(registers);
        let (ranges, no) = (Ranges { begin, count: pieces, registers: &moved }, cx.builder.bool(false));
        for_leaders(cx, &ranges, no, |cx, led, once| {
            for_warps(cx, led.count, once, |cx, active, index| {
                self.write(cx, (active, index, room), led.begin, &led.registers)
            })
        })?;
        // What has found room is no longer the lane's.
        let b = &mut *cx.builder;
        let left = b.sub(room, place);
        let (none, wanted) = (b.u64(0), b.convert(pieces, Scalar::U64));
        let is_beyond = b.lt(room, place);
        let left = b.select(is_beyond, none, left);
        let written = b.binary(BinaryOp::Min, left, wanted);
        let size = b.convert(size, Scalar::U64);
        let taken = b.mul(written, size);
        let all = b.convert(count, Scalar::U64);
        let taken = b.binary(BinaryOp::Min, taken, all);
        let taken = b.convert(taken, Scalar::U32);
        let (begin, count) = (b.add(begin, taken), b.sub(count, taken));
        b.assign(range.begin, begin);
        b.assign(range.count, count);
        cx.end();
        Ok(())
    }

    /// Numbers of a piece (`u32`) of a range of so many: of the longest ranges there is one for each warp of a full grid.
    fn size(&self, cx: &mut Context<'_>, count: V) -> V {
        let (lanes, least) = (cx.shape.lanes, self.least(cx));
        let warps = cx.shape.most_blocks.saturating_mul(cx.shape.warps()).max(1);
        let b = &mut *cx.builder;
        let (warps, width, least) = (b.u32(warps), b.u32(lanes), b.u32(least));
        let share = b.div(count, warps);
        // Whole turns of a warp, and one more for what the division leaves.
        let turns = b.div(share, width);
        let one = b.u32(1);
        let turns = b.add(turns, one);
        let size = b.mul(turns, width);
        b.binary(BinaryOp::Max, size, least)
    }

    /// Takes places for so many pieces (`u32`) of each lane with one atomic for the warp; the first place (`u64`) of this lane's.
    fn reserve(&self, cx: &mut Context<'_>, pieces: V, words: u64) -> V {
        let (before, all) = sums(cx, pieces);
        let (counter, zero) = (self.counter(cx), cx.builder.u32(0));
        let asked = Argument::State(self.states.asked);
        let asked = cx.argument("queue_asked", Type::global(Scalar::U64), asked);
        let b = &mut *cx.builder;
        let (lane, all) = (b.builtin(Builtin::LaneId), b.convert(all, Scalar::U64));
        let (first, is_first) = (b.var("first_piece", Scalar::U64), b.eq(lane, zero));
        cx.begin_if(is_first);
        let b = &mut *cx.builder;
        let place = b.atomic(AtomicOp::Add, counter, all, Scope::Device);
        b.assign(first, place);
        let words = b.u64(words);
        let words = b.mul(all, words);
        b.atomic_discard(AtomicOp::Add, asked, words, Scope::Device);
        cx.end();
        let first = cx.builder.read(first);
        let first = read_lane(cx, first, zero);
        let before = cx.builder.convert(before, Scalar::U64);
        cx.builder.add(first, before)
    }

    /// Writes piece `index` (`u64`) of a leader's range, where it is one and there is room. `begin`: the range's first number;
    /// `registers`: a piece's numbers, the range's end, the place of its first piece, and what its row stands on.
    fn write(
        &self,
        cx: &mut Context<'_>,
        (active, index, room): (V, V, V),
        begin: V,
        registers: &[V],
    ) -> Result<(), Unsupported> {
        let [size, end, place, registers @ ..] = registers else {
            return Err(Unsupported::internal("a piece of no range"));
        };
        let b = &mut *cx.builder;
        let place = b.add(*place, index);
        let fits = b.lt(place, room);
        let writes = b.and(active, fits);
        cx.begin_if(writes);
        let b = &mut *cx.builder;
        let index = b.convert(index, Scalar::U32);
        let before = b.mul(index, *size);
        let first = b.add(begin, before);
        let rest = b.sub(*end, first);
        let count = b.binary(BinaryOp::Min, rest, *size);
        let (first, count, shift) =
            (b.convert(first, Scalar::U64), b.convert(count, Scalar::U64), b.u64(COUNT_SHIFT));
        let count = b.binary(BinaryOp::Shl, count, shift);
        let mut words = vec![b.binary(BinaryOp::Or, first, count)];
        for register in registers {
            words.extend(to_words(cx, *register));
        }
        for (number, word) in (0..).zip(words) {
            let pointer = self.word(cx, (number, room), place);
            cx.builder.store(pointer, word);
        }
        cx.end();
        Ok(())
    }
}

fn type_of(cx: &mut Context<'_>, var: Var) -> Type {
    let value = cx.builder.read(var);
    cx.builder.ty(value)
}

/// Words of a piece whose row stands on registers of these types.
fn words_of_piece(types: &[Type]) -> u64 {
    1 + types.iter().map(|ty| words_of(*ty)).sum::<u64>()
}

/// Words that a register takes.
fn words_of(ty: Type) -> u64 {
    if ty == Type::Scalar(Scalar::I128) { 2 } else { 1 }
}

/// The content of a register in words, `u64`, the lowest first.
fn to_words(cx: &mut Context<'_>, value: V) -> Vec<V> {
    let b = &mut *cx.builder;
    match b.ty(value) {
        Type::Ptr(..) | Type::Scalar(Scalar::F64) => vec![b.bitcast(value, Scalar::U64)],
        Type::Scalar(Scalar::F32) => {
            let bits = b.bitcast(value, Scalar::U32);
            vec![b.convert(bits, Scalar::U64)]
        }
        Type::Scalar(Scalar::I128) => {
            let bits = b.int(Scalar::I128, WORD_BITS);
            let high = b.binary(BinaryOp::Shr, value, bits);
            vec![b.convert(value, Scalar::U64), b.convert(high, Scalar::U64)]
        }
        _ => vec![b.convert(value, Scalar::U64)],
    }
}

/// The register of a type that has these words.
fn of_words(cx: &mut Context<'_>, ty: Type, words: &[V]) -> V {
    let b = &mut *cx.builder;
    match (ty, words) {
        (Type::Scalar(Scalar::Bool), [word, ..]) => {
            let zero = b.u64(0);
            b.ne(*word, zero)
        }
        (Type::Scalar(Scalar::F32), [word, ..]) => {
            let bits = b.convert(*word, Scalar::U32);
            b.bitcast(bits, ty)
        }
        (Type::Scalar(Scalar::I128), [low, high]) => {
            let (low, high) = (b.convert(*low, Scalar::I128), b.convert(*high, Scalar::I128));
            let bits = b.int(Scalar::I128, WORD_BITS);
            let high = b.binary(BinaryOp::Shl, high, bits);
            b.binary(BinaryOp::Or, high, low)
        }
        (Type::Ptr(..) | Type::Scalar(Scalar::F64), [word, ..]) => b.bitcast(*word, ty),
        (Type::Scalar(scalar), [word, ..]) => b.convert(*word, scalar),
        _ => {
            cx.impossible("a register that has no words");
            cx.builder.u64(0)
        }
    }
}
