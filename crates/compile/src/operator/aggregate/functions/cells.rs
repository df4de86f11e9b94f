//! Accumulator cells: what an aggregate keeps a group. Every cell starts as zero bits, so that a table is initialised
//! by clearing it, and a contribution of zero bits changes nothing; minimum and maximum are kept as unsigned keys whose
//! order is the value's.
//!
//! A cell has one or more *parts*, each a scalar in registers. Parts that no single atomic can update together are
//! guarded in memory by a word that is a spin lock: it is taken and given back within one iteration of a loop, so that
//! no lane waits for a lane of its own warp.

use super::extremes::{text_is_better, wide_less};
use super::leading::{Leading, Memory};
use super::moments::{combine_moments, combine_pair_moments};
use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Builtin, CompareOp, Pointee, Scalar, Scope, Space, Type};

use crate::context::{Argument, Context};
use crate::lower::hashing::GOLDEN;
use crate::plan::Few;

/// The words of a cell that has as many as any.
const LEADING_WORDS: &[Scalar] = &[Scalar::U64; Few::MOST];

/// How a cell takes a contribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CellOp {
    /// Wrapping `u64` addition.
    Add,
    /// `f64` addition.
    AddFloat,
    /// `i128` addition, in two words, the lower one first.
    AddWide,
    /// `u64` maximum.
    Max,
    /// Maximum of unsigned 128 bits, carried as `i128`.
    MaxWide,
    /// The text that is least by its bytes, as a packed reference.
    MinText,
    /// The text that is greatest by its bytes, as a packed reference.
    MaxText,
    /// Bitwise or of `u64`.
    Or,
    /// Bitwise exclusive or of `u64`.
    Xor,
    /// The greatest `u64`s, from the greatest on.
    Leading(Leading),
    /// Count, mean, what the mean lost to rounding, and the sum of squared distances from the mean: all `f64`.
    Moments,
    /// Of pairs: count, of the first and the second mean and what it lost, the sums of squared distances of each, and of products of both.
    PairMoments,
}

impl CellOp {
    /// The register types of a contribution and of a private cell.
    pub const fn parts(self) -> &'static [Scalar] {
        match self {
            CellOp::Add | CellOp::Max | CellOp::Or | CellOp::Xor => &[Scalar::U64],
            CellOp::MinText | CellOp::MaxText => &[Scalar::U64],
            CellOp::AddFloat => &[Scalar::F64],
            CellOp::AddWide | CellOp::MaxWide => &[Scalar::I128],
            CellOp::Moments => &[Scalar::F64, Scalar::F64, Scalar::F64, Scalar::F64],
            CellOp::PairMoments => &[Scalar::F64; 8],
            CellOp::Leading(Leading { count, .. }) => LEADING_WORDS.split_at(count.number()).0,
        }
    }

    /// Words of 8 bytes: those of the parts, after the lock where there is one.
    pub fn words(self) -> u32 {
        self.part_words() + u32::from(self.is_locked())
    }

    /// Words of the parts alone.
    pub fn part_words(self) -> u32 {
        self.parts().iter().map(|part| part.bytes() / 8).sum()
    }

    /// Whether contributions of other threads may be looked at in registers. (A text's bytes may be those that another
    /// thread has just made.)
    pub const fn is_plain(self) -> bool {
        !matches!(self, CellOp::MinText | CellOp::MaxText)
    }

    /// Whether the first word is a lock.
    pub const fn is_locked(self) -> bool {
        matches!(self, CellOp::MaxWide | CellOp::Moments | CellOp::PairMoments)
    }

    /// Whether a GPU's multiprocessors have no instruction for it in shared memory, but a loop or a lock.
    pub const fn is_a_loop_in_blocks(self) -> bool {
        matches!(self, CellOp::AddFloat | CellOp::Max | CellOp::Leading(_))
            || !self.is_plain()
            || self.is_locked()
    }

    /// Whether contributions may be vectors, which are combined in any order and without a branch.
    pub const fn is_wide(self) -> bool {
        matches!(self, CellOp::Add | CellOp::Max | CellOp::Or | CellOp::Xor)
    }

    /// The contribution of nothing.
    pub fn nothing(self, cx: &mut Context<'_>) -> Vec<V> {
        self.parts().iter().map(|part| cx.builder.zero(*part)).collect()
    }
}

/// What a cell holds once `new` is added to `old`.
pub fn combine(cx: &mut Context<'_>, op: CellOp, old: &[V], new: &[V]) -> Vec<V> {
    let (&[first, ..], &[added, ..]) = (old, new) else {
        cx.impossible("a cell without parts");
        return old.to_vec();
    };
    let b = &mut *cx.builder;
    vec![match op {
        CellOp::Add | CellOp::AddFloat | CellOp::AddWide => b.add(first, added),
        CellOp::Max => b.binary(BinaryOp::Max, first, added),
        CellOp::Or => b.or(first, added),
        CellOp::Xor => b.binary(BinaryOp::Xor, first, added),
        CellOp::MaxWide => {
            let less = wide_less(cx, first, added);
            cx.builder.select(less, added, first)
        }
        CellOp::MinText | CellOp::MaxText => {
            let better = text_is_better(cx, op, first, added);
            cx.builder.select(better, added, first)
        }
        CellOp::Moments => return combine_moments(cx, old, new),
        CellOp::PairMoments => return combine_pair_moments(cx, old, new),
        CellOp::Leading(leading) => return leading.combine(cx, old, new),
    }]
}

/// Adds a contribution to a cell in memory; `pointer` addresses its first word as `u64`.
pub fn combine_memory(cx: &mut Context<'_>, op: CellOp, pointer: V, value: &[V], scope: Scope) {
    // A CPU worker's own table.
    if scope == Scope::Block && cx.shape.block_threads == 1 {
        return combine_own(cx, op, pointer, value);
    }
    let &[first, ..] = value else { return cx.impossible("a contribution without parts") };
    let b = &mut *cx.builder;
    match op {
        CellOp::Add => b.atomic_discard(AtomicOp::Add, pointer, first, scope),
        CellOp::Max => b.atomic_discard(AtomicOp::Max, pointer, first, scope),
        CellOp::Or => b.atomic_discard(AtomicOp::Or, pointer, first, scope),
        CellOp::Xor => b.atomic_discard(AtomicOp::Xor, pointer, first, scope),
        CellOp::AddFloat => {
            let pointer = part_pointer(cx, pointer, Scalar::F64);
            cx.builder.atomic_discard(AtomicOp::Add, pointer, first, scope);
        }
        CellOp::AddWide => add_wide(cx, pointer, first, scope),
        CellOp::MinText | CellOp::MaxText => exchange(cx, op, pointer, first, scope),
        CellOp::MaxWide | CellOp::Moments | CellOp::PairMoments => {
            combine_locked(cx, op, pointer, value, scope)
        }
        CellOp::Leading(leading) => leading.put(cx, pointer, value, Memory::Shared(scope)),
    }
}

/// Adds a contribution to a cell that nobody else looks at.
pub fn combine_own(cx: &mut Context<'_>, op: CellOp, pointer: V, value: &[V]) {
    if let CellOp::Leading(leading) = op {
        return leading.put(cx, pointer, value, Memory::Own);
    }
    let old = read_cell(cx, op, pointer);
    let new = combine(cx, op, &old, value);
    write_cell(cx, op, pointer, &new);
}

fn add_wide(cx: &mut Context<'_>, pointer: V, value: V, scope: Scope) {
    let (low, high) = split(cx, value);
    let b = &mut *cx.builder;
    let old = b.atomic(AtomicOp::Add, pointer, low, scope);
    // The words are added one after the other: the carry follows from the old lower word, whoever is between.
    let sum = b.add(old, low);
    let carry = b.lt(sum, old);
    let carry = b.convert(carry, Scalar::U64);
    let high = b.add(high, carry);
    let needed = b.ne_int(high, 0);
    b.begin_if(needed);
    let one = b.i32(1);
    let pointer = b.offset(pointer, one);
    b.atomic_discard(AtomicOp::Add, pointer, high, scope);
    b.end();
}

/// A cell of one word: computes the new content and writes it if the old one is still there, until that succeeds or
/// nothing would change.
fn exchange(cx: &mut Context<'_>, op: CellOp, pointer: V, value: V, scope: Scope) {
    let current = cx.builder.atomic_load(pointer, scope);
    let seen = cx.builder.var_of("seen", current);
    cx.begin_loop();
    let current = cx.builder.read(seen);
    let new = match combine(cx, op, &[current], &[value]).as_slice() {
        [new] => *new,
        _ => {
            cx.impossible("a cell of one word with several parts");
            current
        }
    };
    let unchanged = cx.builder.eq(new, current);
    cx.builder.break_if(unchanged);
    let old = cx.builder.atomic(AtomicOp::CompareExchange(current), pointer, new, scope);
    let written = cx.builder.eq(old, current);
    cx.builder.break_if(written);
    cx.builder.assign(seen, old);
    cx.end();
}

/// A cell of several words, under its lock. All accesses are atomic, since a maximum is looked at without the lock.
fn combine_locked(cx: &mut Context<'_>, op: CellOp, pointer: V, value: &[V], scope: Scope) {
    let &[first, ..] = value else { return cx.impossible("a contribution without parts") };
    let zero = cx.builder.zero(op.parts()[0]);
    let needed = cx.builder.ne(first, zero);
    cx.begin_if(needed);
    let waits = match op {
        CellOp::MaxWide => exceeds(cx, pointer, first, scope),
        _ => cx.builder.bool(true),
    };
    let waits = cx.builder.var_of("waits", waits);
    let pause = Pause::new(cx, scope);
    cx.begin_loop();
    let b = &mut *cx.builder;
    let waiting = b.read(waits);
    let done = b.not(waiting);
    b.break_if(done);
    if let Some(pause) = &pause {
        pause.begin_try(cx);
    }
    let (free, taken) = (cx.builder.u64(0), cx.builder.u64(1));
    let old = cx.builder.atomic(AtomicOp::CompareExchange(free), pointer, taken, scope);
    let won = cx.builder.eq(old, free);
    cx.begin_if(won);
    change_locked(cx, op, (pointer, scope), value);
    cx.builder.fence_in(scope);
    cx.builder.atomic_discard(AtomicOp::Exchange, pointer, free, scope);
    let no = cx.builder.bool(false);
    cx.builder.assign(waits, no);
    cx.end();
    if let Some(pause) = &pause {
        pause.end_try(cx, waits, pointer);
    }
    cx.end();
    cx.end();
}

/// Adds a contribution to a cell whose lock is this thread's.
fn change_locked(cx: &mut Context<'_>, op: CellOp, (pointer, scope): (V, Scope), value: &[V]) {
    cx.builder.fence_in(scope);
    let old = load_parts(cx, op, pointer, |cx, word| cx.builder.atomic_load(word, scope));
    let new = combine(cx, op, &old, value);
    for (index, content) in words_of(cx, &new).into_iter().enumerate() {
        // Whoever looks at a maximum without the lock sees its words in this order.
        if index > 0 && op == CellOp::MaxWide {
            cx.builder.fence_in(scope);
        }
        let target = word(cx, pointer, index as i32 + 1);
        cx.builder.atomic_discard(AtomicOp::Exchange, target, content, scope);
    }
}

/// How threads of a GPU wait for a lock in the device's memory. Each try is an atomic of its word, and whoever has the lock waits for all of
/// them to set it free: so a thread waits, each time about twice as long as before, and not as long as another, and then looks whether the
/// lock is free before it tries again. On an H200 1,056 blocks that each add to the same five cells take 7.1 ms by tries alone, 3.5 where they
/// look before. (In a block's memory all of that gains nothing.)
struct Pause {
    /// Nanoseconds, `u32`.
    time: Var,
    /// Whether the lock is thought to be free, `bool`.
    tries: Var,
}

impl Pause {
    /// Nanoseconds at first, and up to which they are doubled.
    const FIRST: u32 = 256;
    const LONG: u32 = 1 << 11;

    fn new(cx: &mut Context<'_>, scope: Scope) -> Option<Pause> {
        // A CPU's workers have cores of their own.
        if scope == Scope::Block || cx.shape.is_serial() {
            return None;
        }
        let b = &mut *cx.builder;
        let (block, thread) = (b.builtin(Builtin::BlockId), b.builtin(Builtin::ThreadId));
        let (first, spread, yes) = (b.u32(Pause::FIRST), b.u32(GOLDEN as u32 | 1), b.bool(true));
        let own = b.mul(block, spread);
        let own = b.add(own, thread);
        let (mask, bits) = (b.u32(Pause::FIRST - 1), b.u32(16));
        let own = b.binary(BinaryOp::Shr, own, bits);
        let own = b.and(own, mask);
        let first = b.add(first, own);
        Some(Pause { time: b.var_of("pause", first), tries: b.var_of("tries", yes) })
    }

    /// What follows is done where the lock is thought to be free.
    fn begin_try(&self, cx: &mut Context<'_>) {
        let tries = cx.builder.read(self.tries);
        cx.begin_if(tries);
    }

    /// Ends that, and waits and looks where a thread still `waits` for the lock at an address.
    fn end_try(&self, cx: &mut Context<'_>, waits: Var, pointer: V) {
        cx.end();
        let still = cx.builder.read(waits);
        cx.begin_if(still);
        let b = &mut *cx.builder;
        let (time, long, zero) = (b.read(self.time), b.u32(Pause::LONG), b.u32(0));
        b.pause(time);
        let is_short = b.lt(time, long);
        let more = b.select(is_short, time, zero);
        let next = b.add(time, more);
        b.assign(self.time, next);
        let lock = b.atomic_load(pointer, Scope::Device);
        let is_free = b.eq_int(lock, 0);
        b.assign(self.tries, is_free);
        cx.end();
    }
}

/// Whether a contribution may exceed the maximum in a cell of two words, which is looked at without its lock.
///
/// The maximum only grows, and its lower word is written before its upper one. So a lower word that is read after an upper one
/// belongs to that one or to a greater maximum: either way what is no greater than both is no greater than the maximum.
fn exceeds(cx: &mut Context<'_>, pointer: V, value: V, scope: Scope) -> V {
    let (low, high) = split(cx, value);
    let (low_pointer, high_pointer) = (word(cx, pointer, 1), word(cx, pointer, 2));
    let known = cx.builder.atomic_load(high_pointer, scope);
    let above = cx.builder.lt(known, high);
    let exceeds = cx.builder.var_of("exceeds", above);
    let same = cx.builder.eq(high, known);
    cx.begin_if(same);
    cx.builder.fence_in(scope);
    let known = cx.builder.atomic_load(low_pointer, scope);
    let above = cx.builder.lt(known, low);
    cx.builder.assign(exceeds, above);
    cx.end();
    cx.builder.read(exceeds)
}

/// Adds a contribution to a cell in variables, one a part.
pub fn combine_registers(cx: &mut Context<'_>, op: CellOp, cell: &[Var], value: &[V]) {
    let old: Vec<V> = cell.iter().map(|part| cx.builder.read(*part)).collect();
    for (part, new) in cell.iter().zip(combine(cx, op, &old, value)) {
        cx.builder.assign(*part, new);
    }
}

/// Reads a cell that no thread writes any more: its parts.
pub fn read_cell(cx: &mut Context<'_>, op: CellOp, pointer: V) -> Vec<V> {
    load_parts(cx, op, pointer, |cx, word| cx.builder.load(word))
}

/// Writes a cell that is this thread's.
pub fn write_cell(cx: &mut Context<'_>, op: CellOp, pointer: V, parts: &[V]) {
    let first = i32::from(op.is_locked());
    for (index, content) in words_of(cx, parts).into_iter().enumerate() {
        let target = word(cx, pointer, first + index as i32);
        cx.builder.store(target, content);
    }
}

/// The parts of a cell in memory; `load` reads a word.
fn load_parts(
    cx: &mut Context<'_>,
    op: CellOp,
    pointer: V,
    mut load: impl FnMut(&mut Context<'_>, V) -> V,
) -> Vec<V> {
    let first = i32::from(op.is_locked());
    parts_of(cx, op, |cx, index| {
        let pointer = word(cx, pointer, first + index as i32);
        load(cx, pointer)
    })
}

/// Parts from their words; `word` gives word 0, 1, …
pub fn parts_of(
    cx: &mut Context<'_>,
    op: CellOp,
    mut word: impl FnMut(&mut Context<'_>, u32) -> V,
) -> Vec<V> {
    let mut index = 0;
    let mut next = |cx: &mut Context<'_>| {
        index += 1;
        word(cx, index - 1)
    };
    let mut parts = Vec::new();
    for part in op.parts() {
        let low = next(cx);
        parts.push(match part {
            Scalar::I128 => {
                let high = next(cx);
                join(cx, low, high)
            }
            Scalar::F64 => cx.builder.bitcast(low, Scalar::F64),
            _ => low,
        });
    }
    parts
}

/// Parts as words.
pub fn words_of(cx: &mut Context<'_>, parts: &[V]) -> Vec<V> {
    let mut words = Vec::new();
    for part in parts {
        match cx.builder.scalar(*part) {
            Scalar::I128 => {
                let (low, high) = split(cx, *part);
                words.extend([low, high]);
            }
            _ => words.push(cx.builder.bitcast(*part, Scalar::U64)),
        }
    }
    words
}

fn word(cx: &mut Context<'_>, pointer: V, index: i32) -> V {
    if index == 0 {
        return pointer;
    }
    let index = cx.builder.i32(index);
    cx.builder.offset(pointer, index)
}

/// Two words as an `i128`.
pub fn join(cx: &mut Context<'_>, low: V, high: V) -> V {
    let b = &mut *cx.builder;
    let low = b.convert(low, Scalar::I128);
    let high = b.convert(high, Scalar::I128);
    let high = b.shl_int(high, 64);
    b.or(high, low)
}

fn part_pointer(cx: &mut Context<'_>, pointer: V, scalar: Scalar) -> V {
    let space = match cx.builder.ty(pointer) {
        Type::Ptr(space, _) => space,
        Type::Scalar(_) | Type::Vector(..) | Type::Mask(_) => Space::Global,
    };
    cx.builder.bitcast(pointer, Type::Ptr(space, Pointee::Scalar(scalar)))
}

/// An `i128` as two words, the lower one first.
pub fn split(cx: &mut Context<'_>, value: V) -> (V, V) {
    let b = &mut *cx.builder;
    let low = b.convert(value, Scalar::U64);
    let high = b.shr_int(value, 64);
    (low, b.convert(high, Scalar::U64))
}

/// Whether a part differs from nothing's.
pub fn is_used(cx: &mut Context<'_>, parts: &[V]) -> Option<V> {
    let first = *parts.first()?;
    let zero = cx.builder.scalar(first);
    let zero = cx.builder.zero(zero);
    Some(cx.builder.compare(CompareOp::Ne, first, zero))
}

/// The first word of a group in a state, whose groups have so many words: `ptr<global, u64>`.
pub fn group_pointer(cx: &mut Context<'_>, state: usize, words: u32, slot: V) -> V {
    let table = cx.argument("groups", Type::global(Scalar::U64), Argument::State(state));
    let index = cx.builder.mul_int(slot, i64::from(words));
    cx.builder.offset(table, index)
}

/// Word `word` of the group at `base`.
pub(in crate::operator) fn word_pointer(cx: &mut Context<'_>, base: V, word: u32) -> V {
    let index = cx.builder.i64(i64::from(word));
    cx.builder.offset(base, index)
}
