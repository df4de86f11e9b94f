//! Threads that look at neighbouring rows, and bring bits together in the block's memory, without atomics (figures 1d and 1e, listings 5 to 7).

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Pointee};

use super::rows::Rows;
use super::{Kind, Selection};
use crate::spaces::group::repeat;

impl Rows<'_> {
    /// The kernel of these kinds.
    pub fn in_rounds(&self, b: &mut Builder) {
        let Selection { kind, element_bits, elements, threads, .. } = self.selection;
        let round_rows = self.selection.round_rows();
        let scratch = b.shared("scratch", Pointee::Scalar(self.scalar()), threads);
        let parts = self.parts(b);
        self.group.for_parts(b, parts, |b, part| {
            let before = b.mul_int(part, elements);
            repeat(b, (elements, false), |b, number| {
                let round = b.add(before, number);
                let base = b.mul_int(round, round_rows);
                let end = b.add_int(base, round_rows);
                let whole = b.compare(kelpie_kir::CompareOp::Le, end, self.rows);
                let first = b.div_int(base, element_bits);
                b.begin_if(whole);
                match kind {
                    Kind::Reduce => self.reduce(b, (base, first), scratch),
                    Kind::Collect => self.collect(b, (base, first), scratch),
                    _ => self.transpose(b, (base, first), scratch),
                }
                self.group.barrier(b);
                b.begin_else();
                self.group.phase_of(b, round_rows / element_bits, |b, thread| {
                    let element = b.add(first, thread);
                    self.write_partial(b, element);
                });
                b.end();
            });
        });
    }

    fn at(&self, b: &mut Builder, scratch: V, place: V) -> V {
        let pointer = b.offset(scratch, place);
        b.load(pointer)
    }

    fn put(&self, b: &mut Builder, (scratch, place): (V, V), bits: V) {
        let pointer = b.offset(scratch, place);
        b.store(pointer, bits);
    }

    /// Elements with one bit each, put together two by two (Horn 2005; listing 5). The round begins at row `base` and element `first`.
    fn reduce(&self, b: &mut Builder, (base, first): (V, V), scratch: V) {
        let Selection { element_bits, unrolled, .. } = self.selection;
        self.group.phase(b, |b, thread| {
            let row = b.add(base, thread);
            let at = b.rem_int(thread, element_bits);
            let at = b.convert(at, self.scalar());
            let bit = self.bit(b, row, at);
            self.put(b, (scratch, thread), bit);
        });
        self.group.barrier(b);
        let steps = element_bits.trailing_zeros();
        repeat(b, (steps - 1, unrolled), |b, step| {
            let one = b.u32(1);
            let stride = b.binary(BinaryOp::Shl, one, step);
            self.group.phase(b, |b, thread| {
                let twice = b.add(stride, stride);
                let less = b.sub_int(twice, 1);
                let rest = b.and(thread, less);
                let leads = b.eq_int(rest, 0);
                b.begin_if(leads);
                let other = b.add(thread, stride);
                let (own, other) = (self.at(b, scratch, thread), self.at(b, scratch, other));
                let both = b.or(own, other);
                self.put(b, (scratch, thread), both);
                b.end();
            });
            self.group.barrier(b);
        });
        self.group.phase(b, |b, thread| {
            let rest = b.rem_int(thread, element_bits);
            let leads = b.eq_int(rest, 0);
            b.begin_if(leads);
            let other = b.add_int(thread, element_bits / 2);
            let (own, other) = (self.at(b, scratch, thread), self.at(b, scratch, other));
            let both = b.or(own, other);
            let number = b.div_int(thread, element_bits);
            let element = b.add(first, number);
            self.write(b, element, both);
            b.end();
        });
    }

    /// Each thread leaves an element of rows that are as far apart as there are threads: bit i of element t is that of row i · threads + t.
    fn interleave(&self, b: &mut Builder, base: V, scratch: V) {
        self.group.phase(b, |b, thread| {
            let row = b.add(base, thread);
            let bits = self.element_of(b, row, self.selection.threads);
            self.put(b, (scratch, thread), bits);
        });
        self.group.barrier(b);
    }

    /// Each thread gathers the bits of one element (listing 6). Of element o of the round bit j is that of row o · b + j, which is bit
    /// (o · b + j) / threads of element (o · b + j) % threads of those in the block's memory.
    fn collect(&self, b: &mut Builder, (base, first): (V, V), scratch: V) {
        self.interleave(b, base, scratch);
        let Selection { element_bits, unrolled, threads, .. } = self.selection;
        // Either all bits of an element come from the same bit of neighbours, or bits of few elements in turn.
        let apart = threads / element_bits;
        self.group.phase(b, |b, thread| {
            let (start, bit) = if apart > 0 {
                let place = b.rem_int(thread, apart);
                (b.mul_int(place, element_bits), b.div_int(thread, apart))
            } else {
                (b.u32(0), b.mul_int(thread, element_bits / threads))
            };
            let zero = b.int(self.scalar(), 0);
            let bits = b.var_of("collected", zero);
            repeat(b, (element_bits, unrolled), |b, number| {
                let (place, bit) = if apart > 0 {
                    (b.add(start, number), bit)
                } else {
                    let turn = b.div_int(number, threads);
                    (b.rem_int(number, threads), b.add(bit, turn))
                };
                let (from, to) = (b.convert(bit, self.scalar()), b.convert(number, self.scalar()));
                let bits_there = self.at(b, scratch, place);
                let low = b.binary(BinaryOp::Shr, bits_there, from);
                let low = b.and_int(low, 1);
                let (moved, old) = (b.binary(BinaryOp::Shl, low, to), b.read(bits));
                let new = b.or(old, moved);
                b.assign(bits, new);
            });
            let bits = b.read(bits);
            let element = b.add(first, thread);
            self.write(b, element, bits);
        });
    }

    /// The block's memory is squares of bits, each as many elements as these have bits, which are transposed: halves of halves change
    /// places (Warren, “Hacker's Delight”, section 7-3; listing 7).
    fn transpose(&self, b: &mut Builder, (base, first): (V, V), scratch: V) {
        self.interleave(b, base, scratch);
        let Selection { element_bits, unrolled, threads, .. } = self.selection;
        let steps = element_bits.trailing_zeros();
        let all_bits = u64::MAX >> (64 - element_bits);
        let lower_half = all_bits >> (element_bits / 2);
        let lower_half = b.int(self.scalar(), lower_half);
        let mask = b.var_of("mask", lower_half);
        repeat(b, (steps, unrolled), |b, step| {
            let last = b.u32(steps - 1);
            let power = b.sub(last, step);
            let lower = b.read(mask);
            self.group.phase_of(b, threads / 2, |b, thread| self.swap(b, (power, lower), (scratch, thread)));
            self.group.barrier(b);
            // The mask of the next step, of half as many bits in turn.
            let one = b.u32(1);
            let stride = b.binary(BinaryOp::Shl, one, power);
            let half = b.shr_int(stride, 1);
            let half = b.convert(half, self.scalar());
            let moved = b.binary(BinaryOp::Shl, lower, half);
            let next = b.binary(BinaryOp::Xor, lower, moved);
            b.assign(mask, next);
        });
        let apart = threads / element_bits;
        self.group.phase(b, |b, thread| {
            let square = b.rem_int(thread, apart);
            let start = b.mul_int(square, element_bits);
            let within = b.div_int(thread, apart);
            let place = b.add(start, within);
            let bits = self.at(b, scratch, place);
            let element = b.add(first, thread);
            self.write(b, element, bits);
        });
    }

    /// A thread exchanges bits of two elements that are 2^`power` apart: upper ones of the first with lower ones of the second.
    fn swap(&self, b: &mut Builder, (power, lower): (V, V), (scratch, thread): (V, V)) {
        let one = b.u32(1);
        let stride = b.binary(BinaryOp::Shl, one, power);
        let less = b.sub_int(stride, 1);
        let (before, within) = (b.binary(BinaryOp::Shr, thread, power), b.and(thread, less));
        let twice = b.add_int(power, 1);
        let before = b.binary(BinaryOp::Shl, before, twice);
        let place = b.or(before, within);
        let other = b.add(place, stride);
        let distance = b.convert(stride, self.scalar());
        let (low, high) = (self.at(b, scratch, place), self.at(b, scratch, other));
        let upper = b.not(lower);
        let (kept, come) = (b.and(low, lower), b.and(high, lower));
        let come = b.binary(BinaryOp::Shl, come, distance);
        let new = b.or(kept, come);
        self.put(b, (scratch, place), new);
        let gone = b.binary(BinaryOp::Shr, low, distance);
        let (gone, kept) = (b.and(gone, lower), b.and(high, upper));
        let new = b.or(gone, kept);
        self.put(b, (scratch, other), new);
    }
}
