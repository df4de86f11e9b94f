//! Packed push-down parallelism whose remainder waits (DogQC, sections 3 and 4): the rows that a step makes of the rows of a warp are taken by
//! all of its lanes, and what does not fill the warp is taken with what comes next.
//!
//! As in [`packed`](super::expand::packed), the ranges of the warp's rows are laid one behind the other, and lanes take numbers side by side. Here
//! ranges of several turns of the row loop lie there, in a ring in the block's memory: those that are not empty, each with the place of its first
//! number among all numbers that the warp has been given so far. Whole warps of numbers are taken from there, so that no lane is idle before
//! the end, rows without matches cost a vote, and a row's registers are fetched from the ring once a number, without a search: the ranges
//! that begin within a turn mark where they do, and a lane's range is the last one that is marked up to it.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builtin, Pointee, Scalar, Type};

use super::expand::{Ranges, Taken};
use super::refill;
use crate::context::lanes::{ballot, count, rank, sums};
use crate::context::register_words::{of_words, to_words, word_count};
use crate::context::{Context, Unsupported};

/// Numbers that a range may have, at most, in a warp of `lanes`: what a warp is given at once, and what is left of what it had, are counted in 32 bits.
pub(crate) fn most_matches(lanes: u32) -> u64 {
    (u64::from(u32::MAX) / u64::from(lanes.max(1))).saturating_sub(1)
}

/// A warp's ring of ranges.
pub(crate) struct Staged {
    /// The registers of a row.
    types: Vec<Type>,
    /// Of each range in the ring the place of its first number, `u32`.
    places: V,
    /// What is to be added to the place of a number of the range for the number, `u32`.
    numbers: V,
    /// For each word of a row's registers the array of those in the ring, `u64`.
    words: Vec<V>,
    /// For each lane whether a range begins with the number that it takes, `u32`.
    marks: V,
    /// Ranges that a ring has room for: a power of two.
    room: u32,
    /// The first range none of whose numbers are taken, `u32`, the same in the warp; ranges are counted from the beginning of the kernel on.
    next: Var,
    /// Ranges that have come, `u32`, the same in the warp.
    end: Var,
    /// The place of the first number that is not taken, `u32`, the same in the warp.
    base: Var,
    /// Numbers that have come, `u32`, the same in the warp.
    total: Var,
}

impl Staged {
    /// A ring, empty where the kernel begins, for rows in registers of these types; `None` where a block has no room for it. `number`: of no
    /// other ring of the kernel.
    pub(crate) fn new(cx: &mut Context<'_>, number: usize, types: &[Type]) -> Option<Staged> {
        let (warps, lanes) = (cx.shape.warps(), cx.shape.lanes);
        // Less than a warp's numbers are left when as many ranges come as there are lanes.
        let room = lanes.next_power_of_two() * 2;
        let words: u32 = types.iter().map(|ty| word_count(*ty) as u32).sum();
        let bytes = |words: u32| (8 * words + 2 * 4).saturating_mul(room).saturating_add(4 * lanes);
        let own = bytes(words).saturating_mul(warps);
        if !refill::has_room(cx, own) {
            return None;
        }
        let b = &mut *cx.builder;
        let (thread, width) = (b.builtin(Builtin::ThreadId), b.builtin(Builtin::Lanes));
        let warp = b.div(thread, width);
        let mut array = |name: String, scalar, length: u32| {
            let all = b.shared(&name, Pointee::Scalar(scalar), length * warps);
            let before = b.mul_int(warp, length);
            b.offset(all, before)
        };
        let places = array(format!("range_places_{number}"), Scalar::U32, room);
        let numbers = array(format!("range_numbers_{number}"), Scalar::U32, room);
        let words =
            (0..words).map(|word| array(format!("ranges_{number}_{word}"), Scalar::U64, room)).collect();
        let marks = array(format!("range_marks_{number}"), Scalar::U32, lanes);
        let [next, end, base, total] =
            ["next", "ranges", "base", "total"].map(|name| cx.builder.var(name, Scalar::U32));
        Some(Staged { types: types.to_vec(), places, numbers, words, marks, room, next, end, base, total })
    }

    /// Takes the ranges that have come, and whole warps of the numbers that wait; where `is_last` (`bool`, the same in the warp), all of
    /// them. `once`: `taken` is passed through at least once (`bool`, the same in the warp). At uniform control flow of the warp.
    pub(crate) fn emit(
        &self,
        cx: &mut Context<'_>,
        ranges: &Ranges<'_>,
        (is_last, once): (V, V),
        taken: &mut Taken<'_>,
    ) -> Result<(), Unsupported> {
        self.put(cx, ranges);
        let b = &mut *cx.builder;
        let (one, width) = (b.u32(1), b.u32(cx.shape.lanes));
        let least = b.select(is_last, one, width);
        let again = b.var_of("again", once);
        cx.begin_loop();
        let b = &mut *cx.builder;
        let (base, total, once) = (b.read(self.base), b.read(self.total), b.read(again));
        let left = b.sub(total, base);
        let is_enough = b.ge(left, least);
        let goes_on = b.or(is_enough, once);
        let done = b.not(goes_on);
        b.break_if(done);
        let no = b.bool(false);
        b.assign(again, no);
        let (range, begun) = self.range_of_lane(cx, base);
        let b = &mut *cx.builder;
        let (lane, next) = (b.builtin(Builtin::LaneId), b.read(self.next));
        let (next, count) = (b.add(next, begun), b.binary(BinaryOp::Min, left, width));
        let further = b.add(base, count);
        b.assign(self.next, next);
        b.assign(self.base, further);
        let (active, place) = (b.lt(lane, left), b.add(base, lane));
        let number = self.read(cx, self.numbers, range);
        let number = cx.builder.add(number, place);
        let registers = self.registers(cx, range);
        taken(cx, active, number, &registers)?;
        cx.end();
        Ok(())
    }

    /// Puts the ranges that are not empty behind those in the ring.
    fn put(&self, cx: &mut Context<'_>, ranges: &Ranges<'_>) {
        let zero = cx.builder.u32(0);
        let is_there = cx.builder.ne(ranges.count, zero);
        let mask = ballot(cx, is_there);
        let any = cx.builder.ne(mask, zero);
        cx.begin_if(any);
        let (before, all) = sums(cx, ranges.count);
        let (rank, count) = (rank(cx, mask), count(cx, mask));
        let b = &mut *cx.builder;
        let (end, total) = (b.read(self.end), b.read(self.total));
        let (range, place) = (b.add(end, rank), b.add(total, before));
        let number = b.sub(ranges.begin, place);
        // Every lane has read what it was dealt before.
        b.warp_barrier();
        cx.begin_if(is_there);
        self.write(cx, self.places, range, place);
        self.write(cx, self.numbers, range, number);
        let mut arrays = self.words.iter();
        for register in ranges.registers {
            for (word, array) in to_words(cx, *register).into_iter().zip(arrays.by_ref()) {
                self.write(cx, *array, range, word);
            }
        }
        cx.end();
        let b = &mut *cx.builder;
        b.warp_barrier();
        let (end, total) = (b.add(end, count), b.add(total, all));
        b.assign(self.end, end);
        b.assign(self.total, total);
        cx.end();
    }

    /// The range that this lane's number is of, of those from the place `base` on, and how many ranges begin with one of these (both `u32`).
    fn range_of_lane(&self, cx: &mut Context<'_>, base: V) -> (V, V) {
        let b = &mut *cx.builder;
        let (lane, zero, one) = (b.builtin(Builtin::LaneId), b.u32(0), b.u32(1));
        let (next, end) = (b.read(self.next), b.read(self.end));
        let own_mark = b.offset(self.marks, lane);
        b.store(own_mark, zero);
        b.warp_barrier();
        let waiting = b.sub(end, next);
        let has_range = b.lt(lane, waiting);
        cx.begin_if(has_range);
        let range = cx.builder.add(next, lane);
        let place = self.read(cx, self.places, range);
        let b = &mut *cx.builder;
        let (at, width) = (b.sub(place, base), b.u32(cx.shape.lanes));
        let begins = b.lt(at, width);
        cx.begin_if(begins);
        let b = &mut *cx.builder;
        let mark = b.offset(self.marks, at);
        b.store(mark, one);
        cx.end();
        cx.end();
        let b = &mut *cx.builder;
        b.warp_barrier();
        let mark = b.load(own_mark);
        let is_marked = b.ne(mark, zero);
        let mask = ballot(cx, is_marked);
        let (before, all) = (rank(cx, mask), count(cx, mask));
        let b = &mut *cx.builder;
        // One less than there are up to this lane: the range before the next one is the one that the turn begins in.
        let up_to = b.add(before, mark);
        let behind = b.add(next, up_to);
        (b.sub(behind, one), all)
    }

    /// What the row of a range in the ring stands on.
    fn registers(&self, cx: &mut Context<'_>, range: V) -> Vec<V> {
        let mut arrays = self.words.as_slice();
        let mut registers = Vec::with_capacity(self.types.len());
        for ty in &self.types {
            let (own, others) = arrays.split_at(word_count(*ty) as usize);
            arrays = others;
            let words: Vec<V> = own.iter().map(|array| self.read(cx, *array, range)).collect();
            registers.push(of_words(cx, *ty, &words));
        }
        registers
    }

    fn read(&self, cx: &mut Context<'_>, array: V, range: V) -> V {
        let pointer = self.pointer(cx, array, range);
        cx.builder.load(pointer)
    }

    fn write(&self, cx: &mut Context<'_>, array: V, range: V, value: V) {
        let pointer = self.pointer(cx, array, range);
        cx.builder.store(pointer, value);
    }

    /// Where an array of the ring has a range of this number.
    fn pointer(&self, cx: &mut Context<'_>, array: V, range: V) -> V {
        let b = &mut *cx.builder;
        let place = b.and_int(range, self.room - 1);
        b.offset(array, place)
    }
}
