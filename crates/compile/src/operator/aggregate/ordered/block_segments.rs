//! Segments among the threads of a block, in shared memory.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Builder, Builtin, Pointee, Scalar, Scope};

use super::segments::{NOWHERE, Round, bitonic, is_clear, keep_heads, read};
use crate::context::Context;
use crate::operator::aggregate::functions::{Cells, combine, parts_of, words_of};

#[derive(Debug, Clone, Copy)]
pub struct Shared {
    /// Slot and thread a thread, `u64`.
    keys: V,
    /// The first place of a place's segment, `u32` a thread.
    starts: V,
    /// The words of the contributions, word by word, one a thread.
    words: V,
    /// How many segments there are, less three times what they save: one `i32`.
    balance: V,
}

impl Shared {
    pub fn bytes(cells: &Cells, threads: u32) -> u64 {
        u64::from(threads) * (12 + 8 * u64::from(part_words(cells))) + 64
    }

    pub fn declare(cx: &mut Context<'_>, cells: &Cells) -> Shared {
        let threads = cx.shape.block_threads;
        let mut array = |name, scalar, count| cx.builder.shared(name, Pointee::Scalar(scalar), count);
        Shared {
            keys: array("segment_keys", Scalar::U64, threads),
            starts: array("segment_starts", Scalar::U32, threads),
            words: array("segment_words", Scalar::U64, threads * part_words(cells).max(1)),
            balance: array("segment_balance", Scalar::I32, 1),
        }
    }
}

/// Words of a row's contributions.
fn part_words(cells: &Cells) -> u32 {
    cells.cells.iter().map(|cell| cell.op.part_words()).sum()
}

/// Sorts and reduces the block's rows. How many segments there are, less three times the rows that join one (`i32`).
pub fn in_block(cx: &mut Context<'_>, cells: &Cells, round: &Round, shared: Shared) -> V {
    let threads = cx.shape.block_threads;
    let thread = cx.builder.builtin(Builtin::ThreadId);
    let own_slot = cx.builder.read(round.slot);
    let own = read(cx, &round.parts);
    write_words(cx, cells, shared, thread, &own);
    let key = sorted_key(cx, shared, own_slot);
    let b = &mut *cx.builder;
    // Since the last round read it there were barriers.
    let (zero, none) = (b.u32(0), b.i32(0));
    let is_first = b.eq(thread, zero);
    b.begin_if(is_first);
    b.store(shared.balance, none);
    b.end();
    let (bits, mask) = (b.u64(threads.trailing_zeros().into()), b.u64(u64::from(threads) - 1));
    let source = b.and(key, mask);
    let source = b.convert(source, Scalar::U32);
    let signed = b.bitcast(key, Scalar::I64);
    let signed_bits = b.bitcast(bits, Scalar::I64);
    let slot = b.binary(BinaryOp::Shr, signed, signed_bits);
    let moved = read_words(cx, cells, shared, source);
    let b = &mut *cx.builder;
    let above = b.not(mask);
    let first_key = b.and(key, above);
    let start = lower_bound(b, shared.keys, threads, first_key);
    let pointer = b.offset(shared.starts, thread);
    b.store(pointer, start);
    b.barrier();
    write_words(cx, cells, shared, thread, &moved);
    let is_head = cx.builder.eq(start, thread);
    count_balance(cx, shared, slot, is_head);
    cx.builder.barrier();
    reduce_tree(cx, cells, shared);
    let balance = cx.builder.uniform_load(shared.balance);
    let values = read_words(cx, cells, shared, thread);
    keep_heads(cx, round, is_head, slot, &values);
    balance
}

/// Sorts the block's threads by their slots: the slot and, in the lower bits, the thread that come to this one's place.
/// Leaves all of them in `shared.keys`.
fn sorted_key(cx: &mut Context<'_>, shared: Shared, slot: V) -> V {
    let threads = cx.shape.block_threads;
    let b = &mut *cx.builder;
    let thread = b.builtin(Builtin::ThreadId);
    let (bits, wide) = (b.i64(threads.trailing_zeros().into()), b.convert(thread, Scalar::U64));
    let shifted = b.binary(BinaryOp::Shl, slot, bits);
    let shifted = b.bitcast(shifted, Scalar::U64);
    let key = b.or(shifted, wide);
    let own = b.offset(shared.keys, thread);
    b.store(own, key);
    b.barrier();
    bitonic(threads, |size, distance| {
        let (step, block) = (b.u32(distance), b.u32(size));
        let is_lower = is_clear(b, thread, step);
        b.begin_if(is_lower);
        let upper = b.offset(own, step);
        let (low, high) = (b.load(own), b.load(upper));
        let (falls, rising) = (b.lt(high, low), is_clear(b, thread, block));
        let wrong = b.eq(falls, rising);
        b.begin_if(wrong);
        b.store(own, high);
        b.store(upper, low);
        b.end();
        b.end();
        b.barrier();
    });
    b.load(own)
}

/// The number of the block's sorted keys that are less than `key`, which is no greater than one of them (`u32`).
fn lower_bound(b: &mut Builder, keys: V, count: u32, key: V) -> V {
    let mut less = b.u32(0);
    let mut step = count / 2;
    while step > 0 {
        let (taken, one) = (b.u32(step), b.u32(1));
        let next = b.add(less, taken);
        let last = b.sub(next, one);
        let pointer = b.offset(keys, last);
        let probe = b.load(pointer);
        let is_less = b.lt(probe, key);
        less = b.select(is_less, next, less);
        step /= 2;
    }
    less
}

/// Adds to the balance what this thread's row, in order, says.
fn count_balance(cx: &mut Context<'_>, shared: Shared, slot: V, is_head: V) {
    let b = &mut *cx.builder;
    let nowhere = b.i64(NOWHERE);
    let is_row = b.ne(slot, nowhere);
    b.begin_if(is_row);
    let (costs, saves) = (b.i32(1), b.i32(-3));
    let own = b.select(is_head, costs, saves);
    b.atomic_discard(AtomicOp::Add, shared.balance, own, Scope::Block);
    b.end();
}

/// Reduces sorted rows: for each segment, its first place has the sum. Ends with a barrier.
fn reduce_tree(cx: &mut Context<'_>, cells: &Cells, shared: Shared) {
    let threads = cx.shape.block_threads;
    let thread = cx.builder.builtin(Builtin::ThreadId);
    let mut half = 1;
    while half < threads {
        let b = &mut *cx.builder;
        let (nodes, size, half_size) = (b.u32(threads / (2 * half)), b.u32(2 * half), b.u32(half));
        let has_node = b.lt(thread, nodes);
        b.begin_if(has_node);
        let first = b.mul(thread, size);
        let right = b.add(first, half_size);
        let pointer = b.offset(shared.starts, right);
        let start = b.load(pointer);
        let crosses = b.lt(start, right);
        b.begin_if(crosses);
        let left = b.binary(BinaryOp::Max, start, first);
        let (sum, added) = (read_words(cx, cells, shared, left), read_words(cx, cells, shared, right));
        let pairs = cells.cells.iter().zip(sum.iter().zip(&added));
        let joined: Vec<Vec<V>> = pairs.map(|(cell, (sum, add))| combine(cx, cell.op, sum, add)).collect();
        write_words(cx, cells, shared, left, &joined);
        let b = &mut *cx.builder;
        b.end();
        b.end();
        b.barrier();
        half *= 2;
    }
}

/// The address of word `word` of the contributions at `place` (`u32`).
fn word_at(cx: &mut Context<'_>, shared: Shared, word: u32, place: V) -> V {
    let first = cx.builder.u32(word * cx.shape.block_threads);
    let index = cx.builder.add(first, place);
    cx.builder.offset(shared.words, index)
}

fn write_words(cx: &mut Context<'_>, cells: &Cells, shared: Shared, place: V, values: &[Vec<V>]) {
    let mut next = 0;
    for (_, parts) in cells.cells.iter().zip(values) {
        for word in words_of(cx, parts) {
            let pointer = word_at(cx, shared, next, place);
            cx.builder.store(pointer, word);
            next += 1;
        }
    }
}

fn read_words(cx: &mut Context<'_>, cells: &Cells, shared: Shared, place: V) -> Vec<Vec<V>> {
    let mut first = 0;
    let each = cells.cells.iter().map(|cell| {
        let parts = parts_of(cx, cell.op, |cx, index| {
            let pointer = word_at(cx, shared, first + index, place);
            cx.builder.load(pointer)
        });
        first += cell.op.part_words();
        parts
    });
    each.collect()
}
