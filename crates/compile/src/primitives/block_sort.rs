//! A stable sort of few rows by `u64` words, in one launch of one block. A device-wide sort of so few rows is mostly launches and
//! waits. Rows are pairs of their most significant word and their number, which lie in the block's memory and are put in order by
//! a bitonic network (Batcher 1968): the steps of a network do not depend on the data, so that threads need only barriers between
//! them. Where first words are equal, the later ones are loaded, and where all are equal the number decides: so no two rows are
//! equal, and the sort is stable.
//!
//! A network has a power of two places. Those that no row takes have the greatest word and numbers beyond the rows', and come last.
//!
//! The kernel [`name`] takes these parameters:
//!
//! | parameter | what it is |
//! |---|---|
//! | `levels: u32` | the network has two to the power of it places: at least `most`, at most [`most_rows`] |
//! | `most: u64` | rows, or where they are counted how many there may be, at most |
//! | `counted: u64[1]`, `is_counted: u32` | where the latter is not 0: how many rows earlier kernels counted |
//! | `wanted: u64` | rows of the order that are written, at most |
//! | `word_0: u64[most]`, `word_1`, … as many as there are words | the keys, the most significant word first |
//! | `order: u32[most]` | written: the numbers of the rows in order |
//! | `first: u64[most]`, `keeps_first: u32` | where the latter is not 0, written: the first words in order |
//! | `delivered: u64[1]` | written where rows are counted: how many numbers were written |

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, Builtin, Module, Pointee, Scalar, TypeError};

use super::{array, for_range, param};
use crate::shape::LaunchShape;

/// Words of a key, at most.
pub const MOST_WORDS: usize = 8;
/// Rows, at most, in blocks of any memory: with more of them the network takes longer than sorts whose work does not grow faster
/// than the rows.
const MOST_ROWS: u32 = 4096;
/// Bytes of a row in a block's memory: a word and a number.
const ROW_BYTES: u32 = 8 + 4;

/// Rows that a block of a shape can sort, at most: a power of two; 0 where blocks do not sort.
pub fn most_rows(shape: &LaunchShape) -> u64 {
    let room = (shape.shared_bytes / ROW_BYTES).min(MOST_ROWS);
    match room.checked_ilog2() {
        Some(levels) if !shape.is_serial() => 1 << levels,
        _ => 0,
    }
}

/// The levels of the network for so many rows.
pub fn levels(rows: u64) -> u32 {
    rows.max(1).checked_next_power_of_two().map_or(u64::BITS, u64::ilog2)
}

/// The name of the kernel for keys of so many words.
pub fn name(words: usize) -> String {
    format!("block_sort_{words}")
}

/// The kernel for keys of so many words, of which there is one at least.
pub fn module(shape: &LaunchShape, words: usize) -> Result<Module, TypeError> {
    let places = u32::try_from(most_rows(shape)).unwrap_or(MOST_ROWS).max(1);
    let mut b = Builder::new();
    b.begin_kernel(&name(words));
    let levels = param(&mut b, "levels", Scalar::U32);
    let (one, most_levels) = (b.u32(1), b.u32(places.ilog2()));
    let levels = b.binary(BinaryOp::Min, levels, most_levels);
    let taken = b.binary(BinaryOp::Shl, one, levels);
    let rows = rows(&mut b, taken);
    let wanted = param(&mut b, "wanted", Scalar::U64);
    let words = (0..words).map(|word| array(&mut b, &format!("word_{word}"), Scalar::U64)).collect();
    let keys = b.shared("keys", Pointee::Scalar(Scalar::U64), places);
    let numbers = b.shared("numbers", Pointee::Scalar(Scalar::U32), places);
    let sort = BlockSort { rows: rows.count, places: taken, words, keys, numbers };
    sort.load(&mut b);
    b.barrier();
    sort.network(&mut b);
    sort.write(&mut b, &rows, wanted);
    b.end_kernel();
    b.finish()
}

/// How many rows there are.
struct Rows {
    /// `u32`.
    count: V,
    /// Whether earlier kernels counted them.
    is_counted: V,
}

/// The rows, as far as there are `places` (`u32`) for them: what was counted may be more than was foreseen.
fn rows(b: &mut Builder, places: V) -> Rows {
    let most = param(b, "most", Scalar::U64);
    let (counted, is_counted) = (array(b, "counted", Scalar::U64), param(b, "is_counted", Scalar::U32));
    let (zero, places) = (b.u32(0), b.convert(places, Scalar::U64));
    let is_counted = b.ne(is_counted, zero);
    let most = b.binary(BinaryOp::Min, most, places);
    let rows = b.var_of("rows", most);
    b.begin_if(is_counted);
    let counted = b.load_read_only(counted);
    let there = b.binary(BinaryOp::Min, most, counted);
    b.assign(rows, there);
    b.end();
    let rows = b.read(rows);
    Rows { count: b.convert(rows, Scalar::U32), is_counted }
}

struct BlockSort {
    /// `u32`, as all indices and numbers here: rows, and places of the network.
    rows: V,
    places: V,
    /// The most significant one first.
    words: Vec<V>,
    /// Shared: the first word and the number of the row at each place.
    keys: V,
    numbers: V,
}

/// `0..count`, shared out among the block's threads.
fn for_each(b: &mut Builder, count: V, body: impl FnOnce(&mut Builder, V)) {
    let (thread, threads) = (b.builtin(Builtin::ThreadId), b.builtin(Builtin::BlockDim));
    for_range(b, thread, count, threads, body);
}

impl BlockSort {
    /// Gives each row the place of its number.
    fn load(&self, b: &mut Builder) {
        for_each(b, self.places, |b, place| {
            let greatest = b.u64(u64::MAX);
            let key = b.var_of("key", greatest);
            let is_row = b.lt(place, self.rows);
            b.begin_if(is_row);
            if let Some(word) = self.words.first() {
                let word = b.element(*word, place);
                b.assign(key, word);
            }
            b.end();
            let (key, key_at) = (b.read(key), b.offset(self.keys, place));
            b.store(key_at, key);
            let number_at = b.offset(self.numbers, place);
            b.store(number_at, place);
        });
    }

    /// Runs of `size` places become sorted, upwards and downwards in turn, so that two of them are a bitonic sequence, which the
    /// next size merges: halves of it are compared at a distance, which halves from step to step.
    fn network(&self, b: &mut Builder) {
        let (one, two) = (b.u32(1), b.u32(2));
        let size = b.var_of("size", two);
        b.begin_loop();
        let run = b.read(size);
        let sorted = b.lt(self.places, run);
        b.break_if(sorted);
        let half = b.binary(BinaryOp::Shr, run, one);
        let distance = b.var_of("distance", half);
        b.begin_loop();
        let apart = b.read(distance);
        let none = b.u32(0);
        let merged = b.eq(apart, none);
        b.break_if(merged);
        let pairs = b.binary(BinaryOp::Shr, self.places, one);
        for_each(b, pairs, |b, pair| self.exchange(b, pair, run, apart));
        b.barrier();
        let next = b.binary(BinaryOp::Shr, apart, one);
        b.assign(distance, next);
        b.end();
        let next = b.binary(BinaryOp::Shl, run, one);
        b.assign(size, next);
        b.end();
    }

    /// Brings the two rows of a pair in order, if they are not.
    fn exchange(&self, b: &mut Builder, pair: V, run: V, apart: V) {
        let (one, zero) = (b.u32(1), b.u32(0));
        let mask = b.sub(apart, one);
        let inside = b.and(pair, mask);
        let before = b.sub(pair, inside);
        let start = b.binary(BinaryOp::Shl, before, one);
        let low = b.add(start, inside);
        let high = b.add(low, apart);
        let [(low_key, low_number), (high_key, high_number)] =
            [low, high].map(|place| (b.offset(self.keys, place), b.offset(self.numbers, place)));
        let lower = (b.load(low_key), b.load(low_number));
        let higher = (b.load(high_key), b.load(high_number));
        let falls = self.precedes(b, higher, lower);
        let rises = b.not(falls);
        let direction = b.and(low, run);
        let upwards = b.eq(direction, zero);
        let is_wrong = b.select(upwards, falls, rises);
        b.begin_if(is_wrong);
        b.store(low_key, higher.0);
        b.store(low_number, higher.1);
        b.store(high_key, lower.0);
        b.store(high_number, lower.1);
        b.end();
    }

    /// Whether a row (its first word and its number) comes before another one.
    fn precedes(&self, b: &mut Builder, left: (V, V), right: (V, V)) -> V {
        let less = b.lt(left.0, right.0);
        let precedes = b.var_of("precedes", less);
        let same = b.eq(left.0, right.0);
        b.begin_if(same);
        let earlier = b.lt(left.1, right.1);
        b.assign(precedes, earlier);
        if self.words.len() > 1 {
            self.later_words(b, precedes, (left.1, right.1));
        }
        b.end();
        b.read(precedes)
    }

    /// Decides between two rows whose first words are equal, where later words do.
    fn later_words(&self, b: &mut Builder, precedes: Var, (left, right): (V, V)) {
        // A place without a row has no words.
        let last = b.binary(BinaryOp::Max, left, right);
        let are_rows = b.lt(last, self.rows);
        let tied = b.var_of("tied", are_rows);
        for word in self.words.iter().skip(1) {
            let is_tied = b.read(tied);
            b.begin_if(is_tied);
            let (left, right) = (b.element(*word, left), b.element(*word, right));
            let differ = b.ne(left, right);
            b.begin_if(differ);
            let (less, no) = (b.lt(left, right), b.bool(false));
            b.assign(precedes, less);
            b.assign(tied, no);
            b.end();
            b.end();
        }
    }

    /// Writes the first of the order.
    fn write(&self, b: &mut Builder, rows: &Rows, wanted: V) {
        let (order, first) = (array(b, "order", Scalar::U32), array(b, "first", Scalar::U64));
        let (keeps_first, delivered) =
            (param(b, "keeps_first", Scalar::U32), array(b, "delivered", Scalar::U64));
        let zero = b.u32(0);
        let keeps_first = b.ne(keeps_first, zero);
        let all = b.convert(rows.count, Scalar::U64);
        let some = b.binary(BinaryOp::Min, all, wanted);
        let count = b.convert(some, Scalar::U32);
        for_each(b, count, |b, place| {
            let (number_at, order_at) = (b.offset(self.numbers, place), b.offset(order, place));
            let number = b.load(number_at);
            b.store(order_at, number);
            b.begin_if(keeps_first);
            let (key_at, first_at) = (b.offset(self.keys, place), b.offset(first, place));
            let key = b.load(key_at);
            b.store(first_at, key);
            b.end();
        });
        let thread = b.builtin(Builtin::ThreadId);
        let leads = b.eq(thread, zero);
        let tells = b.and(leads, rows.is_counted);
        b.begin_if(tells);
        b.store(delivered, some);
        b.end();
    }
}
