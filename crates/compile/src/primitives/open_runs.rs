//! The end of a sort by the leading digits of its keys, on a CPU. Of the bits of many keys, about as many as the logarithm of their number
//! tell most of them apart: sorted by these, rows that are still equal follow each other in short runs, and a worker puts each run in
//! order by whole keys. So a key of 64 bits is moved four times instead of eight.
//!
//! Shellsort needs no memory of its own. As it is not stable, equal keys are compared by the rows' numbers.
//!
//! | kernel | parameters after `rows`, `tile_rows` (`i64`) |
//! |---|---|
//! | [`CLOSE`] | `keys: u64[]`, `order: u32[]` (both sorted by the bits of `mask: u64`), `words: u32`, `second: u64[]`, `third: u64[]` (as many of them as `words` says, by the rows' numbers, decide where keys are equal), `keys_out`, `order_out` (written), `open: u64` (1 where too many rows are in long runs: then what is written is no order) |

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, CompareOp, Module, Scalar, TypeError};

use super::{array, begin, for_tiles, param};

/// Puts runs of keys in order.
pub const CLOSE: &str = "close_runs";
/// Words that decide behind the keys, at most.
pub const MOST_WORDS: usize = 2;
/// Longer runs are sorted as long as a tile has few rows in them.
const LONG: i64 = 64;
/// Of so many rows of a tile, one may be in a long run.
const LONG_SHARE: i64 = 4;

/// What rows are compared by.
struct Keys {
    words: V,
    second: V,
    third: V,
    /// Where rows stand while they are put in order.
    keys: V,
    order: V,
}

/// A row, by its key and its number.
#[derive(Clone, Copy)]
struct Row {
    key: V,
    number: V,
}

/// The kernel, for a device whose blocks are single workers.
pub fn module() -> Result<Module, TypeError> {
    let mut b = Builder::new();
    close(&mut b);
    b.finish()
}

fn close(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, CLOSE);
    let (keys, order) = (array(b, "keys", Scalar::U64), array(b, "order", Scalar::U32));
    let (mask, words) = (param(b, "mask", Scalar::U64), param(b, "words", Scalar::U32));
    let (second, third) = (array(b, "second", Scalar::U64), array(b, "third", Scalar::U64));
    let (keys_out, order_out) = (array(b, "keys_out", Scalar::U64), array(b, "order_out", Scalar::U32));
    let open = array(b, "open", Scalar::U64);
    let out = Keys { words, second, third, keys: keys_out, order: order_out };
    for_tiles(b, rows, tile_rows, |b, _, from, to| {
        let at = first_run(b, (keys, mask), (from, to));
        let zero = b.i64(0);
        let in_long = b.var_of("in_long", zero);
        b.begin_loop();
        let start = b.read(at);
        let done = b.ge(start, to);
        b.break_if(done);
        let (end, differs) = copy_run(b, (keys, order, mask), &out, (start, rows));
        b.assign(at, end);
        let (count, none) = (b.sub(end, start), b.u64(0));
        let decides = words_decide(b, &out, (start, end), differs);
        let key_decides = b.ne(differs, none);
        let decides = b.or(key_decides, decides);
        b.begin_if(decides);
        let long = b.i64(LONG);
        let is_long = b.compare(CompareOp::Gt, count, long);
        b.begin_if(is_long);
        let before = b.read(in_long);
        let now = b.add(before, count);
        b.assign(in_long, now);
        b.end();
        let (now, share) = (b.read(in_long), b.i64(LONG_SHARE));
        let weighed = b.mul(now, share);
        let too_many = b.compare(CompareOp::Gt, weighed, tile_rows);
        b.begin_if(too_many);
        let one = b.u64(1);
        b.atomic_discard(kelpie_kir::AtomicOp::Or, open, one, kelpie_kir::Scope::Device);
        b.end();
        b.break_if(too_many);
        shellsort(b, &out, (start, end));
        b.end();
        b.end();
    });
    b.end_kernel();
}

/// Where the first run begins that begins in a tile: that of the row before the tile is another's.
fn first_run(b: &mut Builder, (keys, mask): (V, V), (from, to): (V, V)) -> kelpie_kir::builder::Var {
    let (at, zero) = (b.var_of("at", from), b.i64(0));
    let has_before = b.compare(CompareOp::Gt, from, zero);
    b.begin_if(has_before);
    let one = b.i64(1);
    let before = b.sub(from, one);
    let before = masked(b, keys, before, mask);
    b.begin_loop();
    let current = b.read(at);
    let done = b.ge(current, to);
    b.break_if(done);
    let own = masked(b, keys, current, mask);
    let begins = b.ne(own, before);
    b.break_if(begins);
    let next = b.add(current, one);
    b.assign(at, next);
    b.end();
    b.end();
    at
}

fn masked(b: &mut Builder, keys: V, at: V, mask: V) -> V {
    let key = b.element(keys, at);
    b.and(key, mask)
}

/// Copies the run that begins at `start`; where it ends, and the bits in which its keys differ.
fn copy_run(b: &mut Builder, (keys, order, mask): (V, V, V), out: &Keys, (start, rows): (V, V)) -> (V, V) {
    let first = b.element(keys, start);
    let prefix = b.and(first, mask);
    let (next, none) = (b.var_of("next", start), b.u64(0));
    let differs = b.var_of("differs", none);
    b.begin_loop();
    let current = b.read(next);
    let done = b.ge(current, rows);
    b.break_if(done);
    let key = b.element(keys, current);
    let own = b.and(key, mask);
    let ends = b.ne(own, prefix);
    b.break_if(ends);
    let number = b.element(order, current);
    put(b, out, current, Row { key, number });
    let (known, difference) = (b.read(differs), b.binary(BinaryOp::Xor, key, first));
    let both = b.or(known, difference);
    b.assign(differs, both);
    let one = b.i64(1);
    let after = b.add(current, one);
    b.assign(next, after);
    b.end();
    (b.read(next), b.read(differs))
}

/// Whether words behind are not the same in all rows of a run whose keys are the same, which they are where `differs` is 0.
fn words_decide(b: &mut Builder, out: &Keys, (start, end): (V, V), differs: V) -> V {
    let (no, no_bit, no_word) = (b.bool(false), b.u64(0), b.u32(0));
    let found = b.var_of("decides", no);
    let (alike, has_words) = (b.eq(differs, no_bit), b.ne(out.words, no_word));
    let looks = b.and(alike, has_words);
    b.begin_if(looks);
    let first = b.element(out.order, start);
    let one = b.i64(1);
    let next = b.add(start, one);
    let place = b.var_of("place", next);
    b.begin_loop();
    let current = b.read(place);
    let (done, known) = (b.ge(current, end), b.read(found));
    let done = b.or(done, known);
    b.break_if(done);
    let other = b.element(out.order, current);
    for (index, word) in [(1, out.second), (2, out.third)] {
        let index = b.u32(index);
        let counts = b.ge(out.words, index);
        b.begin_if(counts);
        let (own, theirs) = (b.element(word, first), b.element(word, other));
        let (differ, before) = (b.ne(own, theirs), b.read(found));
        let now = b.or(before, differ);
        b.assign(found, now);
        b.end();
    }
    let after = b.add(current, one);
    b.assign(place, after);
    b.end();
    b.end();
    b.read(found)
}

fn put(b: &mut Builder, out: &Keys, at: V, row: Row) {
    let pointer = b.offset(out.keys, at);
    b.store(pointer, row.key);
    let pointer = b.offset(out.order, at);
    b.store(pointer, row.number);
}

fn get(b: &mut Builder, out: &Keys, at: V) -> Row {
    Row { key: b.element(out.keys, at), number: b.element(out.order, at) }
}

/// Puts the rows from `start` to `end` in order, of which there are two at least. Distances fall by 5/11 (Gonnet and Baeza-Yates 1991).
fn shellsort(b: &mut Builder, out: &Keys, (start, end): (V, V)) {
    let count = b.sub(end, start);
    let gap = b.var_of("gap", count);
    b.begin_loop();
    let (last, one) = (b.read(gap), b.i64(1));
    let done = b.compare(CompareOp::Le, last, one);
    b.break_if(done);
    let (five, eleven) = (b.i64(5), b.i64(11));
    let scaled = b.mul(last, five);
    let scaled = b.sub(scaled, one);
    let scaled = b.div(scaled, eleven);
    let distance = b.binary(BinaryOp::Max, scaled, one);
    b.assign(gap, distance);
    let first = b.add(start, distance);
    let place = b.var_of("place", first);
    b.begin_loop();
    let current = b.read(place);
    let done = b.ge(current, end);
    b.break_if(done);
    insert(b, out, (start, current), distance);
    let next = b.add(current, one);
    b.assign(place, next);
    b.end();
    b.end();
}

/// Moves a row to its place among those that are a distance, and multiples of it, before it.
fn insert(b: &mut Builder, out: &Keys, (start, current): (V, V), distance: V) {
    let row = get(b, out, current);
    let hole = b.var_of("hole", current);
    b.begin_loop();
    let at = b.read(hole);
    let below = b.sub(at, distance);
    let done = b.lt(below, start);
    b.break_if(done);
    let other = get(b, out, below);
    let is_before = comes_before(b, out, row, other);
    let stays = b.not(is_before);
    b.break_if(stays);
    put(b, out, at, other);
    b.assign(hole, below);
    b.end();
    let at = b.read(hole);
    put(b, out, at, row);
}

/// Whether one row comes before another.
fn comes_before(b: &mut Builder, out: &Keys, row: Row, other: Row) -> V {
    let less = b.lt(row.key, other.key);
    let result = b.var_of("before", less);
    let ties = b.eq(row.key, other.key);
    b.begin_if(ties);
    let earlier = b.lt(row.number, other.number);
    b.assign(result, earlier);
    // The last word first, so that the first one in which rows differ is what counts.
    for (index, word) in [(1, out.second), (2, out.third)].into_iter().rev() {
        let index = b.u32(index);
        let counts = b.ge(out.words, index);
        b.begin_if(counts);
        let (own, theirs) = (b.element(word, row.number), b.element(word, other.number));
        let (less, old, same) = (b.lt(own, theirs), b.read(result), b.eq(own, theirs));
        let new = b.select(same, old, less);
        b.assign(result, new);
        b.end();
    }
    b.end();
    b.read(result)
}
