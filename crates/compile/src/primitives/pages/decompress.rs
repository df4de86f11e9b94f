//! Undoes what pages are compressed by: Snappy's raw format and blocks of LZ4, both made of literals and of copies of what came before.
//! Sequences are told one after the other; the bytes of each are moved by all lanes of the warp.
//!
//! | kernel | parameters |
//! |---|---|
//! | [`DECOMPRESS`] | `count: i64`, `pages: u64[]`, `source: u8[]`, `scratch: u8[]` (written), `status: u32[count]` (written) |

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, Builtin, Module, Scalar, TypeError};

use super::{
    CODEC, DAMAGED, KIND, LENGTHS, LZ4, ROWS, SNAPPY, SOURCE, TARGET, Words, byte, bytes_type, for_pages,
};
use crate::primitives::{array, for_range, param};
use crate::shape::LaunchShape;

/// Decompresses pages.
pub const DECOMPRESS: &str = "pages_decompress";

/// The kernel.
pub fn module(shape: &LaunchShape) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    b.begin_kernel(DECOMPRESS);
    let count = param(&mut b, "count", Scalar::I64);
    let pages = array(&mut b, "pages", Scalar::U64);
    let source = param(&mut b, "source", bytes_type());
    let scratch = param(&mut b, "scratch", bytes_type());
    let status = array(&mut b, "status", Scalar::U32);
    for_pages(&mut b, shape, count, |b, page| {
        let words = Words { pages, page };
        let (from, to) = (words.word(b, SOURCE), words.word(b, TARGET));
        let (length, room) = words.halves(b, LENGTHS);
        let (_, plain) = words.halves(b, ROWS);
        let kind = words.word(b, KIND);
        let (source, target) = (b.offset(source, from), b.offset(scratch, to));
        let (none, yes) = (b.u32(0), b.bool(true));
        let (at, written, goes_on) =
            (b.var_of("at", none), b.var_of("written", none), b.var_of("goes_on", yes));
        let sequences = Sequences { source, target, length, room, at, written, goes_on };
        sequences.literals(b, plain);
        let codec = b.u64(CODEC);
        let codec = b.and(kind, codec);
        let (snappy, lz4) = (b.u64(SNAPPY), b.u64(LZ4));
        let (is_snappy, is_lz4) = (b.eq(codec, snappy), b.eq(codec, lz4));
        b.begin_if(is_snappy);
        sequences.snappy(b);
        b.begin_else();
        b.begin_if(is_lz4);
        sequences.lz4(b);
        b.begin_else();
        let (at, length) = (b.read(sequences.at), sequences.length);
        let rest = b.sub(length, at);
        sequences.literals(b, rest);
        b.end();
        b.end();
        let (written, is_whole) = (b.read(sequences.written), b.read(sequences.goes_on));
        let is_all = b.eq(written, room);
        let is_whole = b.and(is_whole, is_all);
        let (good, bad) = (b.u32(0), b.u32(DAMAGED));
        let found = b.select(is_whole, good, bad);
        let (lane, first) = (b.builtin(Builtin::LaneId), b.u32(0));
        let leads = b.eq(lane, first);
        b.begin_if(leads);
        let pointer = b.offset(status, page);
        b.store(pointer, found);
        b.end();
        // The next page of the warp has other bytes, but its lanes are to begin it together.
        b.warp_barrier();
    });
    b.end_kernel();
    b.finish()
}

/// The sequences of a page; all of it is the same in the lanes of the warp.
struct Sequences {
    source: V,
    target: V,
    /// Bytes of both, `u32`.
    length: V,
    room: V,
    /// The next byte of both.
    at: Var,
    written: Var,
    /// Whether nothing was wrong so far.
    goes_on: Var,
}

impl Sequences {
    fn fail(&self, b: &mut Builder) {
        let no = b.bool(false);
        b.assign(self.goes_on, no);
    }

    /// Whether there are so many bytes more to read.
    fn has(&self, b: &mut Builder, bytes: V) -> V {
        let at = b.read(self.at);
        let left = b.sub(self.length, at);
        b.ge(left, bytes)
    }

    /// Takes the next byte, as `u32`: 0, and a failure, behind the last.
    fn take(&self, b: &mut Builder) -> V {
        let (none, one) = (b.u32(0), b.u32(1));
        let taken = b.var_of("taken", none);
        let has = self.has(b, one);
        b.begin_if(has);
        let at = b.read(self.at);
        let value = byte(b, self.source, at);
        b.assign(taken, value);
        let next = b.add(at, one);
        b.assign(self.at, next);
        b.begin_else();
        self.fail(b);
        b.end();
        b.read(taken)
    }

    /// Takes a number of some bytes, the lowest one first.
    fn take_number(&self, b: &mut Builder, bytes: u32) -> V {
        let mut number = self.take(b);
        for place in 1..bytes {
            let more = self.take(b);
            let distance = b.u32(place * 8);
            let more = b.binary(BinaryOp::Shl, more, distance);
            number = b.or(number, more);
        }
        number
    }

    /// Copies the next bytes as they are.
    fn literals(&self, b: &mut Builder, count: V) {
        let (at, written) = (b.read(self.at), b.read(self.written));
        let (left, room) = (b.sub(self.length, at), b.sub(self.room, written));
        let (has, fits) = (b.ge(left, count), b.ge(room, count));
        let is_sound = b.and(has, fits);
        b.begin_if(is_sound);
        let (from, to) = (b.offset(self.source, at), b.offset(self.target, written));
        let (lane, lanes) = (b.builtin(Builtin::LaneId), b.builtin(Builtin::Lanes));
        for_range(b, lane, count, lanes, |b, index| {
            let value = b.element(from, index);
            let pointer = b.offset(to, index);
            b.store(pointer, value);
        });
        let (at, written) = (b.add(at, count), b.add(written, count));
        b.assign(self.at, at);
        b.assign(self.written, written);
        b.begin_else();
        self.fail(b);
        b.end();
    }

    /// Copies bytes from so far before. Those that are copied are among those that are written where they are many.
    fn copy(&self, b: &mut Builder, distance: V, count: V) {
        let written = b.read(self.written);
        let (room, one) = (b.sub(self.room, written), b.u32(1));
        let (fits, is_before) = (b.ge(room, count), b.ge(written, distance));
        let is_distance = b.ge(distance, one);
        let is_sound = b.and(fits, is_before);
        let is_sound = b.and(is_sound, is_distance);
        b.begin_if(is_sound);
        // What other lanes have written is read from here on.
        b.warp_barrier();
        let start = b.sub(written, distance);
        let (from, to) = (b.offset(self.target, start), b.offset(self.target, written));
        let (lane, lanes) = (b.builtin(Builtin::LaneId), b.builtin(Builtin::Lanes));
        let move_byte = |b: &mut Builder, place: V, index: V| {
            let pointer = b.offset(from, place);
            let value = b.load(pointer);
            let pointer = b.offset(to, index);
            b.store(pointer, value);
        };
        let is_apart = b.ge(distance, count);
        b.begin_if(is_apart);
        for_range(b, lane, count, lanes, |b, index| move_byte(b, index, index));
        b.begin_else();
        for_range(b, lane, count, lanes, |b, index| {
            let place = b.rem(index, distance);
            move_byte(b, place, index);
        });
        b.end();
        let written = b.add(written, count);
        b.assign(self.written, written);
        b.begin_else();
        self.fail(b);
        b.end();
    }

    /// Leaves the loop over sequences where something was wrong.
    fn break_if_failed(&self, b: &mut Builder) {
        let goes_on = b.read(self.goes_on);
        let failed = b.not(goes_on);
        b.break_if(failed);
    }

    /// A length of LZ4, of which a nibble is known: 15 is followed by more, up to a byte that is not 255.
    fn lz4_length(&self, b: &mut Builder, nibble: V) -> V {
        let length = b.var_of("length", nibble);
        let most = b.u32(15);
        let is_long = b.eq(nibble, most);
        b.begin_if(is_long);
        b.begin_loop();
        let more = self.take(b);
        let known = b.read(length);
        let sum = b.add(known, more);
        b.assign(length, sum);
        self.break_if_failed(b);
        let full = b.u32(255);
        let ends = b.ne(more, full);
        b.break_if(ends);
        b.end();
        b.end();
        b.read(length)
    }

    fn lz4(&self, b: &mut Builder) {
        b.begin_loop();
        self.break_if_failed(b);
        let (token, four) = (self.take(b), b.u32(4));
        let literals = b.binary(BinaryOp::Shr, token, four);
        let literals = self.lz4_length(b, literals);
        self.literals(b, literals);
        self.break_if_failed(b);
        // A block ends with literals.
        let one = b.u32(1);
        let has_more = self.has(b, one);
        let ends = b.not(has_more);
        b.break_if(ends);
        let distance = self.take_number(b, 2);
        let fifteen = b.u32(15);
        let count = b.and(token, fifteen);
        let count = self.lz4_length(b, count);
        let count = b.add(count, four);
        self.copy(b, distance, count);
        b.end();
    }

    fn snappy(&self, b: &mut Builder) {
        // The length of all, seven bits a byte. It is known already.
        b.begin_loop();
        let (more, last) = (self.take(b), b.u32(0x80));
        let ends = b.lt(more, last);
        b.break_if(ends);
        self.break_if_failed(b);
        b.end();
        b.begin_loop();
        self.break_if_failed(b);
        let one = b.u32(1);
        let has_more = self.has(b, one);
        let ends = b.not(has_more);
        b.break_if(ends);
        let (tag, two) = (self.take(b), b.u32(2));
        let (three, upper) = (b.u32(3), b.binary(BinaryOp::Shr, tag, two));
        let kind = b.and(tag, three);
        let none = b.u32(0);
        let is_literal = b.eq(kind, none);
        b.begin_if(is_literal);
        self.snappy_literals(b, upper);
        b.begin_else();
        let distance = b.var_of("distance", none);
        let count = b.add(upper, one);
        let count = b.var_of("count", count);
        let is_near = b.eq(kind, one);
        b.begin_if(is_near);
        // Three bits of length from 4 on, and three of the distance's upper bits.
        let (seven, four) = (b.u32(7), b.u32(4));
        let short = b.and(upper, seven);
        let short = b.add(short, four);
        b.assign(count, short);
        let (five, eight) = (b.u32(5), b.u32(8));
        let high = b.binary(BinaryOp::Shr, tag, five);
        let high = b.binary(BinaryOp::Shl, high, eight);
        let low = self.take(b);
        let near = b.or(high, low);
        b.assign(distance, near);
        b.begin_else();
        let is_far = b.eq(kind, three);
        b.begin_if(is_far);
        let far = self.take_number(b, 4);
        b.assign(distance, far);
        b.begin_else();
        let usual = self.take_number(b, 2);
        b.assign(distance, usual);
        b.end();
        b.end();
        let (distance, count) = (b.read(distance), b.read(count));
        self.copy(b, distance, count);
        b.end();
        b.end();
    }

    /// Literals, of whose length the upper bits of a tag tell: one less, or by 60 and more how many bytes have it.
    fn snappy_literals(&self, b: &mut Builder, upper: V) {
        let count = b.var_of("literals", upper);
        for bytes in 1..=4 {
            let number = b.u32(59 + bytes);
            let is_so = b.eq(upper, number);
            b.begin_if(is_so);
            let told = self.take_number(b, bytes);
            b.assign(count, told);
            b.end();
        }
        let (count, one) = (b.read(count), b.u32(1));
        let count = b.add(count, one);
        // A length of 2^32 bytes is none.
        let is_some = b.ge(count, one);
        b.begin_if(is_some);
        self.literals(b, count);
        b.begin_else();
        self.fail(b);
        b.end();
    }
}
