//! Rows of given ranks in the order of `u64` keys, without a sort: digit by digit, the most significant first, one kernel
//! counts the keys of a range by their digit, so that the host knows in which digits the wanted ranks lie, until the range has
//! so few keys that another kernel collects them (radix select, Alabi et al. 2012). Two more bring in the bytes of texts
//! that the keys leave undecided.
//!
//! Rows are all of an array, or those of a list of places (`listed` is not 0). Texts are given by address and length.
//!
//! | kernel | parameters after `rows`, `tile_rows` (`i64`) |
//! |---|---|
//! | [`COUNTS`] | `keys: u64[]`, `low: u64`, `high: u64`, `shift: u32`, `counts: u32[DIGITS]` (added to): the keys from `low` to `high` by the digit at `shift` |
//! | [`COLLECT`] | `keys`, `low`, `high`, `places: u32[]`, `listed: u32`, `limit: u64`, `count: u64` (added to), `out: u32[limit]`: the places of such keys, in any order |
//! | [`GATHER_LISTED`] | `places: u32[]`, `from: i64`, `out: u32[]` (written): places from a number on |
//! | [`TEXT_COMMON`] | `addresses: u64[]`, `lengths: u32[]`, `places`, `listed`, `from: u32`, `common: u64` (made less): bytes that all texts have in common, which are known to be at least `from` |
//! | [`TEXT_WORDS`] | `addresses`, `lengths`, `places`, `listed`, `from: u32`, `flip: u64`, `keys: u64[]` (written): seven bytes from `from` on, and how many are left there ([`ENDS`]), xor `flip` |

use kelpie_kir::builder::V;
use kelpie_kir::{
    AtomicOp, BinaryOp, Builder, Builtin, CompareOp, Expr, Module, Pointee, Scalar, Scope, ShuffleMode,
    Space, Type, TypeError, UnaryOp,
};

use super::radix::{DIGITS, clear_digits, count_digit};
use super::{array, begin, for_chunks, for_elements, for_table, for_tiles, param};
use crate::shape::LaunchShape;

/// Counts keys of a range by a digit.
pub const COUNTS: &str = "select_counts";
/// Collects the places of keys of a range.
pub const COLLECT: &str = "select_collect";
/// Copies places.
pub const GATHER_LISTED: &str = "select_places";
/// Finds how many bytes texts have in common.
pub const TEXT_COMMON: &str = "text_common";
/// Makes keys of bytes of texts.
pub const TEXT_WORDS: &str = "text_words";
/// Bytes of a text in a key of [`TEXT_WORDS`].
pub const WORD_BYTES: u32 = 7;
/// The lowest byte of a key of [`TEXT_WORDS`] is the number of bytes that are left of the text, and at most this: then it does
/// not end within the key. (Keys of descending texts have it complemented.)
pub const ENDS: u64 = 8;

/// All kernels.
pub fn module(shape: &LaunchShape) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    counts(&mut b, shape);
    collect(&mut b, shape);
    copy(&mut b);
    text_common(&mut b);
    text_words(&mut b);
    b.finish()
}

/// A range of keys.
struct KeyRange {
    keys: V,
    low: V,
    high: V,
}

impl KeyRange {
    fn of_params(b: &mut Builder) -> KeyRange {
        let keys = array(b, "keys", Scalar::U64);
        KeyRange { keys, low: param(b, "low", Scalar::U64), high: param(b, "high", Scalar::U64) }
    }

    /// Whether a key lies in it.
    fn has(&self, b: &mut Builder, key: V) -> V {
        let above = b.ge(key, self.low);
        let below = b.compare(CompareOp::Le, key, self.high);
        b.and(above, below)
    }
}

fn counts(b: &mut Builder, shape: &LaunchShape) {
    let (rows, tile_rows) = begin(b, COUNTS);
    let range = KeyRange::of_params(b);
    let (shift, counts) = (param(b, "shift", Scalar::U32), array(b, "counts", Scalar::U32));
    let table = b.shared("table", Pointee::Scalar(Scalar::U32), DIGITS);
    clear_digits(b, table);
    b.barrier();
    for_elements(b, rows, tile_rows, |b, element| {
        let key = b.element(range.keys, element);
        let counted = range.has(b, key);
        b.begin_if(counted);
        count_digit(b, shape, table, (key, shift));
        b.end();
    });
    b.barrier();
    for_table(b, DIGITS, |b, digit| {
        let pointer = b.offset(table, digit);
        let (counted, zero) = (b.load(pointer), b.u32(0));
        let some = b.ne(counted, zero);
        b.begin_if(some);
        let pointer = b.offset(counts, digit);
        b.atomic_discard(AtomicOp::Add, pointer, counted, Scope::Device);
        b.end();
    });
    b.end_kernel();
}

/// Places of rows: their numbers, or those of a list.
struct Places {
    places: V,
    listed: V,
}

impl Places {
    fn of_params(b: &mut Builder) -> Places {
        Places { places: array(b, "places", Scalar::U32), listed: param(b, "listed", Scalar::U32) }
    }

    /// The place of a row (`i64`), `u32`.
    fn of(&self, b: &mut Builder, row: V) -> V {
        let own = b.convert(row, Scalar::U32);
        let place = b.var_of("place", own);
        let zero = b.u32(0);
        let listed = b.ne(self.listed, zero);
        b.begin_if(listed);
        let found = b.element(self.places, row);
        b.assign(place, found);
        b.end();
        b.read(place)
    }
}

/// Where collected places go.
struct Collected {
    range: KeyRange,
    places: Places,
    limit: V,
    count: V,
    out: V,
}

fn collect(b: &mut Builder, shape: &LaunchShape) {
    let (rows, tile_rows) = begin(b, COLLECT);
    let (range, places) = (KeyRange::of_params(b), Places::of_params(b));
    let limit = param(b, "limit", Scalar::U64);
    let (count, out) = (array(b, "count", Scalar::U64), array(b, "out", Scalar::U32));
    let p = Collected { range, places, limit, count, out };
    for_tiles(b, rows, tile_rows, |b, _, from, to| match shape.is_serial() {
        true => collect_serial(b, &p, from, to),
        false => for_chunks(b, from, to, |b, element, live| collect_in_warp(b, &p, element, live)),
    });
    b.end_kernel();
}

/// A worker counts a tile, and then writes it: one atomic a tile.
fn collect_serial(b: &mut Builder, p: &Collected, from: V, to: V) {
    let none = b.u64(0);
    let found = b.var_of("found", none);
    for_chunks(b, from, to, |b, element, _| {
        let key = b.element(p.range.keys, element);
        let has = p.range.has(b, key);
        let (old, more) = (b.read(found), b.convert(has, Scalar::U64));
        let new = b.add(old, more);
        b.assign(found, new);
    });
    let count = b.read(found);
    let some = b.ne(count, none);
    b.begin_if(some);
    let first = b.atomic(AtomicOp::Add, p.count, count, Scope::Device);
    let next = b.var_of("next", first);
    for_chunks(b, from, to, |b, element, _| {
        let key = b.element(p.range.keys, element);
        let has = p.range.has(b, key);
        b.begin_if(has);
        let target = b.read(next);
        write_place(b, p, element, target);
        let one = b.u64(1);
        let after = b.add(target, one);
        b.assign(next, after);
        b.end();
    });
    b.end();
}

/// A warp counts its rows by a ballot: one atomic for all of them.
fn collect_in_warp(b: &mut Builder, p: &Collected, element: V, live: V) {
    let key = b.var("key", Scalar::U64);
    b.begin_if(live);
    let loaded = b.element(p.range.keys, element);
    b.assign(key, loaded);
    b.end();
    let key = b.read(key);
    let has = p.range.has(b, key);
    let has = b.and(has, live);
    let mask = b.value(Expr::Ballot(has));
    let (lane, one, zero) = (b.builtin(Builtin::LaneId), b.u32(1), b.u32(0));
    let own = b.binary(BinaryOp::Shl, one, lane);
    let below = b.sub(own, one);
    let before = b.and(mask, below);
    let (before, total) = (b.unary(UnaryOp::Popcount, before), b.unary(UnaryOp::Popcount, mask));
    let (is_first, some) = (b.eq(lane, zero), b.ne(total, zero));
    let leads = b.and(is_first, some);
    let base = b.var("base", Scalar::U64);
    b.begin_if(leads);
    let total = b.convert(total, Scalar::U64);
    let first = b.atomic(AtomicOp::Add, p.count, total, Scope::Device);
    b.assign(base, first);
    b.end();
    let base = b.read(base);
    let first = b.value(Expr::Shuffle { mode: ShuffleMode::Index, value: base, lane: zero });
    b.begin_if(has);
    let before = b.convert(before, Scalar::U64);
    let target = b.add(first, before);
    write_place(b, p, element, target);
    b.end();
}

fn write_place(b: &mut Builder, p: &Collected, element: V, target: V) {
    let fits = b.lt(target, p.limit);
    b.begin_if(fits);
    let place = p.places.of(b, element);
    let pointer = b.offset(p.out, target);
    b.store(pointer, place);
    b.end();
}

fn copy(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, GATHER_LISTED);
    let (places, from) = (array(b, "places", Scalar::U32), param(b, "from", Scalar::I64));
    let out = array(b, "out", Scalar::U32);
    for_elements(b, rows, tile_rows, |b, element| {
        let source = b.add(element, from);
        let place = b.element(places, source);
        let pointer = b.offset(out, element);
        b.store(pointer, place);
    });
    b.end_kernel();
}

/// Texts by address and length.
struct Texts {
    addresses: V,
    lengths: V,
    places: Places,
}

impl Texts {
    fn of_params(b: &mut Builder) -> Texts {
        let (addresses, lengths) = (array(b, "addresses", Scalar::U64), array(b, "lengths", Scalar::U32));
        Texts { addresses, lengths, places: Places::of_params(b) }
    }

    /// The bytes and the length of a row's text.
    fn of(&self, b: &mut Builder, row: V) -> (V, V) {
        let place = self.places.of(b, row);
        let (address, length) = (b.element(self.addresses, place), b.element(self.lengths, place));
        let data = b.bitcast(address, Type::Ptr(Space::Global, Pointee::Scalar(Scalar::U8)));
        (data, length)
    }
}

/// Each text is compared with the first as far as no other differs from it earlier.
fn text_common(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, TEXT_COMMON);
    let texts = Texts::of_params(b);
    let (from, common) = (param(b, "from", Scalar::U32), array(b, "common", Scalar::U64));
    let zero = b.i64(0);
    let some = b.lt(zero, rows);
    b.begin_if(some);
    let (first, first_length) = texts.of(b, zero);
    let least = b.var_of("least", first_length);
    for_elements(b, rows, tile_rows, |b, element| {
        let (data, length) = texts.of(b, element);
        let known = b.read(least);
        let end = b.binary(BinaryOp::Min, length, known);
        let same = same_bytes(b, (first, data), from, end);
        b.assign(least, same);
    });
    let least = b.read(least);
    let least = b.convert(least, Scalar::U64);
    b.atomic_discard(AtomicOp::Min, common, least, Scope::Device);
    b.end();
    b.end_kernel();
}

fn text_words(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, TEXT_WORDS);
    let texts = Texts::of_params(b);
    let (from, flip) = (param(b, "from", Scalar::U32), param(b, "flip", Scalar::U64));
    let keys = array(b, "keys", Scalar::U64);
    for_elements(b, rows, tile_rows, |b, element| {
        let (data, length) = texts.of(b, element);
        // Equal texts may end before what others of them have in common.
        let start = b.binary(BinaryOp::Min, from, length);
        let left = b.sub(length, start);
        let data = b.offset(data, start);
        let none = b.u64(0);
        let bytes = b.var_of("bytes", none);
        let longest = b.u32(ENDS as u32);
        let is_long = b.ge(left, longest);
        b.begin_if(is_long);
        let loaded = b.load_bytes(data);
        let loaded = big_endian(b, loaded);
        b.assign(bytes, loaded);
        b.begin_else();
        let (zero, last_shift) = (b.u32(0), b.u64(56));
        let position = b.var_of("position", zero);
        let shift = b.var_of("shift", last_shift);
        b.begin_loop();
        let current = b.read(position);
        let done = b.ge(current, left);
        b.break_if(done);
        let pointer = b.offset(data, current);
        let byte = b.load(pointer);
        let byte = b.convert(byte, Scalar::U64);
        let distance = b.read(shift);
        let byte = b.binary(BinaryOp::Shl, byte, distance);
        let old = b.read(bytes);
        let new = b.binary(BinaryOp::Or, old, byte);
        b.assign(bytes, new);
        let (one, eight) = (b.u32(1), b.u64(8));
        let next = b.add(current, one);
        b.assign(position, next);
        let less = b.sub(distance, eight);
        b.assign(shift, less);
        b.end();
        b.end();
        let (bytes, mask) = (b.read(bytes), b.u64(!0xff));
        let bytes = b.and(bytes, mask);
        let left = b.binary(BinaryOp::Min, left, longest);
        let left = b.convert(left, Scalar::U64);
        let key = b.binary(BinaryOp::Or, bytes, left);
        let key = b.binary(BinaryOp::Xor, key, flip);
        let pointer = b.offset(keys, element);
        b.store(pointer, key);
    });
    b.end_kernel();
}

/// The first byte (`u32`) from `from` on in which two texts differ, or `end`: eight at a time, then one by one.
pub(crate) fn same_bytes(b: &mut Builder, (left, right): (V, V), from: V, end: V) -> V {
    let position = b.var_of("position", from);
    for step in [8, 1] {
        b.begin_loop();
        let (current, step_bytes) = (b.read(position), b.u32(step));
        let next = b.add(current, step_bytes);
        let ends = b.lt(end, next);
        b.break_if(ends);
        let (left, right) = (b.offset(left, current), b.offset(right, current));
        let (left, right) = match step {
            8 => (b.load_bytes(left), b.load_bytes(right)),
            _ => (b.load(left), b.load(right)),
        };
        let differs = b.ne(left, right);
        b.break_if(differs);
        b.assign(position, next);
        b.end();
    }
    b.read(position)
}

/// Eight bytes that were loaded with the first one lowest, as a number with the first one highest.
pub(crate) fn big_endian(b: &mut Builder, bytes: V) -> V {
    let mut value = bytes;
    for (distance, mask) in [(8, 0x00ff_00ff_00ff_00ff), (16, 0x0000_ffff_0000_ffff)] {
        let (distance, mask) = (b.u64(distance), b.u64(mask));
        let high = b.binary(BinaryOp::Shr, value, distance);
        let (high, low) = (b.and(high, mask), b.and(value, mask));
        let low = b.binary(BinaryOp::Shl, low, distance);
        value = b.binary(BinaryOp::Or, high, low);
    }
    let half = b.u64(32);
    let (high, low) = (b.binary(BinaryOp::Shr, value, half), b.binary(BinaryOp::Shl, value, half));
    b.binary(BinaryOp::Or, high, low)
}
