//! Counts of rows of 2 bytes or of 1 in a block's table of groups, so that two or four times as many groups fit as with 4. What a count has
//! no room for goes to the device's table.
//!
//! Of 2 bytes half of what these hold is room: a thread whose row makes a count reach the other half takes that half out, or sees that
//! another has, before it goes on to other rows. So a count is above its half by no more than the rows that the threads add at a time.
//!
//! A byte has no such room. It goes round from 255 to 0, which adds 1 to the byte above it, and what the word held before tells
//! the thread that it did, and how far the carry went. The thread gives 256 rows of each byte that went round to the device's table,
//! and takes the 1 back from each byte that a carry came into. Others add to these bytes meanwhile, so one may have gone round for a row that
//! it never had. Then it is 0, and goes round to 255 as the 1 is taken from it: 256 rows are taken back from the device's table, and the byte
//! above has lost 1, which is added. That is exact whoever is between, since an atomic addition to the word is an addition to each
//! byte with a carry from the one below. Of each byte
//!
//! > its rows = what the device's table has of them + what the byte holds + what threads owe it
//!
//! holds before and after each. Let `d` be what an addition is to add to a byte, `c` the carry that comes into it and `e` that which leaves it
//! (borrows are -1). The byte grows by `d + c - 256 e`; the thread gives `256 e` to the device's table, and owes the byte `-c`. What a
//! thread owes is its next addition. Carries go upwards, and what leaves the highest byte is in nobody's: so the lowest byte that a thread
//! owes is above the lowest that it has just added to, and after three more additions it owes nothing. Nobody waits for another.
//!
//! A thread that adds several rows one after the other looks at what was there when all are added, so that their additions are in flight
//! together: nothing above asks when a thread pays what it owes, but that it does.
//!
//! So the device's table may have rows that are taken from it again, or fewer than none. It is right when all threads of the block have come to
//! the barrier after their last row. Who counts its groups has to count those that become empty, too (`tables/direct`).

use crate::operator::aggregate::block_loop::clear;
use std::cell::RefCell;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Pointee, Scalar, Scope, UnaryOp};

use crate::context::Context;
use crate::variant::axes::CountBytes;

/// From which count on half of what 2 bytes hold is taken out.
const FULL_COUNT: u32 = 1 << 15;
/// Rows that are taken out of a byte that goes round.
const ROUND: u64 = 1 << 8;
/// The highest bit of each byte of a word.
const HIGHEST_BITS: u32 = 0x8080_8080;

/// Adds so many rows (`u64`, modulo 2^64) to cell `index` of a group in a slot (`i64`) of the device's table.
pub type Spill<'a> = dyn Fn(&mut Context<'_>, (V, usize), V) + 'a;

/// Takes so many rows (`u64`, modulo 2^64) of the group with a number (`i64`).
pub(crate) type Far<'a> = dyn Fn(&mut Context<'_>, V, V) + 'a;

/// Counts of groups in words of 4 bytes: those of neighbouring groups side by side, and behind all of these the next counts of all. There
/// are no copies: such a table is made small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountLayout {
    /// Counts of a group.
    pub cells: u32,
    pub bytes: CountBytes,
}

impl CountLayout {
    /// Bits of a count.
    fn bits(self) -> u32 {
        8 * self.bytes.0 as u32
    }

    /// Counts of a word.
    fn of_word(self) -> u32 {
        u32::BITS / self.bits()
    }

    /// Words that have one count of each group.
    fn words(self, groups: u64) -> u64 {
        groups.div_ceil(self.of_word().into())
    }

    /// Bytes of all counts of so many groups.
    pub fn table_bytes(self, groups: u64) -> u64 {
        self.words(groups).saturating_mul(4).saturating_mul(self.cells.into())
    }

    /// Declares them, if there are any.
    pub fn declare(self, cx: &mut Context<'_>, groups: u32) -> Option<BlockCounts> {
        let words = self.words(groups.into()) as u32;
        (self.cells > 0).then(|| {
            let table = cx.builder.shared("local_counts", Pointee::Scalar(Scalar::U32), words * self.cells);
            BlockCounts { table, layout: self, words, late: RefCell::default() }
        })
    }
}

#[derive(Debug)]
pub(crate) struct BlockCounts {
    /// `ptr<shared, u32>`.
    table: V,
    layout: CountLayout,
    /// Words that have one count of each group.
    words: u32,
    /// Additions that are looked at later.
    late: RefCell<LateAdditions>,
}

/// Additions of a thread's next rows.
#[derive(Debug, Default)]
struct LateAdditions {
    /// For those that may still come.
    free: Vec<LateAddition>,
    /// Those that have come, with the indices of their cells among all and among the counts.
    taken: Vec<(LateAddition, (usize, u32))>,
}

/// What is known of an addition: nothing is added, and nothing was there, where the thread has not come by it.
#[derive(Debug, Clone, Copy)]
struct LateAddition {
    /// `u32`, as all of these.
    group: Var,
    /// What its word held, and what was added to it.
    old: Var,
    more: Var,
}

/// Where a count is.
#[derive(Clone, Copy)]
struct Place {
    /// The word that it is in, `ptr<shared, u32>`.
    word: V,
    /// The bits in front of it, `u32`.
    shift: V,
}

/// What a thread has added to a word of counts.
struct Added {
    word: V,
    /// The number of the group whose count is the word's lowest byte, `i64`.
    first: V,
    /// What was there, and what was added, `u32`.
    old: V,
    more: V,
}

impl BlockCounts {
    /// Clears them. Ends without a barrier.
    pub fn clear(&self, cx: &mut Context<'_>) {
        clear(cx, self.table, Scalar::U32, self.words * self.layout.cells);
    }

    /// Where count `cell` of a group (`i64`) is.
    fn place(&self, cx: &mut Context<'_>, (group, cell): (V, u32)) -> Place {
        let b = &mut *cx.builder;
        let bits = b.i64(self.layout.of_word().ilog2().into());
        let mut number = b.binary(BinaryOp::Shr, group, bits);
        if cell > 0 {
            number = b.add_int(number, i64::from(cell * self.words));
        }
        let word = b.offset(self.table, number);
        let group = b.convert(group, Scalar::U32);
        let (mask, bits) = (b.u32(self.layout.of_word() - 1), b.u32(self.layout.bits().ilog2()));
        let within = b.and(group, mask);
        Place { word, shift: b.binary(BinaryOp::Shl, within, bits) }
    }

    /// A count in what its word holds, `u32`.
    fn count_in(&self, cx: &mut Context<'_>, word: V, shift: V) -> V {
        let b = &mut *cx.builder;
        let (count, mask) = (b.binary(BinaryOp::Shr, word, shift), b.u32((1 << self.layout.bits()) - 1));
        b.and(count, mask)
    }

    /// What count `cell` of a group (`i64`) holds, as `u64`, once no thread adds to it any more.
    pub fn read(&self, cx: &mut Context<'_>, place: (V, u32)) -> V {
        let Place { word, shift } = self.place(cx, place);
        let word = cx.builder.load(word);
        let count = self.count_in(cx, word, shift);
        cx.builder.convert(count, Scalar::U64)
    }

    /// Before so many rows of a thread of which each is added once at most to a count.
    pub fn begin_rows(&self, cx: &mut Context<'_>, rows: u32) {
        let b = &mut *cx.builder;
        let none = b.u32(0);
        let mut late = || LateAddition {
            group: b.var_of("late_group", none),
            old: b.var_of("late_old", none),
            more: b.var_of("late_more", none),
        };
        let free = (0..rows * self.layout.cells).map(|_| late()).collect();
        *self.late.borrow_mut() = LateAdditions { free, taken: Vec::new() };
    }

    /// After these rows: looks at their counts. Seldom is there anything to do for any of them.
    pub fn end_rows(&self, cx: &mut Context<'_>, spill: &Spill<'_>) {
        let LateAdditions { taken, .. } = self.late.take();
        let mut looked_at = Vec::new();
        for (LateAddition { group, old, more }, (index, cell)) in taken {
            let (group, old, more) = (cx.builder.read(group), cx.builder.read(old), cx.builder.read(more));
            let group = cx.builder.convert(group, Scalar::I64);
            let place = self.place(cx, (group, cell));
            let is_full = self.is_full(cx, place.shift, (old, more));
            looked_at.push((is_full, (group, index), place, (old, more)));
        }
        let any = looked_at.iter().map(|(is_full, ..)| *is_full).reduce(|a, b| cx.builder.or(a, b));
        let Some(any) = any else { return };
        cx.begin_if(any);
        for (is_full, group, place, added) in looked_at {
            cx.begin_if(is_full);
            self.make_room(cx, group, place, added, spill);
            cx.end();
        }
        cx.end();
    }

    /// Adds `rows` (`u64`, 0 or 1) to count `cell` of a group (`i64`), which is cell `index` of all, if the group is one of the table (`bool`;
    /// `None`: it is). `spill` takes what counts have no room for.
    pub fn add(
        &self,
        cx: &mut Context<'_>,
        (group, cell): (V, u32),
        (rows, is_here): (V, Option<V>),
        (index, spill): (usize, &Spill<'_>),
    ) {
        let place = self.place(cx, (group, cell));
        let b = &mut *cx.builder;
        let rows = b.convert(rows, Scalar::U32);
        let more = b.binary(BinaryOp::Shl, rows, place.shift);
        let LateAdditions { free, taken } = &mut *self.late.borrow_mut();
        if let Some(late) = free.pop() {
            taken.push((late, (index, cell)));
            let group = b.convert(group, Scalar::U32);
            b.assign(late.group, group);
            b.assign(late.more, more);
            // Nothing but the addition depends on where the group is, so that a GPU need not branch for it. Elsewhere nothing was there, to which
            // a row can be added.
            return only_where(cx, is_here, |cx| {
                let old = cx.builder.atomic(AtomicOp::Add, place.word, more, Scope::Block);
                cx.builder.assign(late.old, old);
            });
        }
        only_where(cx, is_here, |cx| {
            let old = cx.builder.atomic(AtomicOp::Add, place.word, more, Scope::Block);
            let is_full = self.is_full(cx, place.shift, (old, more));
            cx.begin_if(is_full);
            self.make_room(cx, (group, index), place, (old, more), spill);
            cx.end();
        });
    }

    /// Whether a count has no room for as many rows as it has: `old` was in its word, to which `more` was added.
    fn is_full(&self, cx: &mut Context<'_>, shift: V, (old, more): (V, V)) -> V {
        let count = self.count_in(cx, old, shift);
        let rows = cx.builder.binary(BinaryOp::Shr, more, shift);
        let count = cx.builder.add(count, rows);
        let room = if self.layout.bytes == CountBytes(1) { ROUND as u32 } else { FULL_COUNT };
        let most = cx.builder.u32(room - 1);
        cx.builder.lt(most, count)
    }

    /// Takes rows out of a count that is full, of a group (`i64`) whose cell `index` it is.
    fn make_room(
        &self,
        cx: &mut Context<'_>,
        (group, index): (V, usize),
        Place { word, shift }: Place,
        (old, more): (V, V),
        spill: &Spill<'_>,
    ) {
        if self.layout.bytes != CountBytes(1) {
            let now = cx.builder.add(old, more);
            return self.take_half(cx, (word, shift), now, &|cx, rows| spill(cx, (group, index), rows));
        }
        let within = cx.builder.i64(!i64::from(self.layout.of_word() - 1));
        let first = cx.builder.and(group, within);
        let far = |cx: &mut Context<'_>, group, rows| spill(cx, (group, index), rows);
        undo_carries(cx, Added { word, first, old, more }, &far);
    }

    /// Takes half out of a count of 2 bytes that has become too large, before the thread goes on, so that there is always room for
    /// a row of each thread. `now`: what its word holds.
    fn take_half(
        &self,
        cx: &mut Context<'_>,
        (word, shift): (V, V),
        now: V,
        far: &dyn Fn(&mut Context<'_>, V),
    ) {
        let seen = cx.builder.var_of("seen_counts", now);
        cx.begin_loop();
        let current = cx.builder.read(seen);
        let count = self.count_in(cx, current, shift);
        let b = &mut *cx.builder;
        let full = b.u32(FULL_COUNT);
        let has_room = b.lt(count, full);
        b.break_if(has_room);
        let part = b.binary(BinaryOp::Shl, full, shift);
        let less = b.sub(current, part);
        let found = b.atomic(AtomicOp::CompareExchange(current), word, less, Scope::Block);
        let is_mine = b.eq(found, current);
        cx.begin_if(is_mine);
        let rows = cx.builder.u64(FULL_COUNT.into());
        far(cx, rows);
        cx.end();
        let next = cx.builder.select(is_mine, less, found);
        cx.builder.assign(seen, next);
        cx.end();
    }
}

/// Emits something where a condition (`bool`) holds; `None`: everywhere.
pub(crate) fn only_where(cx: &mut Context<'_>, condition: Option<V>, emit: impl FnOnce(&mut Context<'_>)) {
    let Some(condition) = condition else { return emit(cx) };
    cx.begin_if(condition);
    emit(cx);
    cx.end();
}

/// After a byte of a word has gone round: gives what counts have no room for to `far`, and takes back what carries have added to the bytes
/// above, until nothing is owed.
///
/// What is taken is added to the complement of the word, whose carries are the borrows: so additions of both signs have one code.
fn undo_carries(cx: &mut Context<'_>, Added { word, first, old, more }: Added, far: &Far<'_>) {
    let b = &mut *cx.builder;
    let adds = b.u32(0);
    let (old, more) = (b.var_of("old_counts", old), b.var_of("more_counts", more));
    // All bits where `more` was taken.
    let turned = b.var_of("turned", adds);
    cx.begin_loop();
    let b = &mut *cx.builder;
    let (flips, one) = (b.read(turned), b.u32(1));
    let (before, added) = (b.read(old), b.read(more));
    let before = b.binary(BinaryOp::Xor, before, flips);
    // The carry out of each byte, at its highest bit: both have the bit, or one has it and the sum has not.
    let sum = b.add(before, added);
    let (both, any, is_lost) = (b.and(before, added), b.or(before, added), b.not(sum));
    let lost = b.and(any, is_lost);
    let carries = b.or(both, lost);
    let carries = b.and_int(carries, HIGHEST_BITS);
    let is_given = b.eq(flips, adds);
    let (given, taken) = (b.u64(ROUND), b.u64(ROUND.wrapping_neg()));
    let rows = b.select(is_given, given, taken);
    give_rounds(cx, (first, carries), rows, far);
    let b = &mut *cx.builder;
    let owed = b.binary(BinaryOp::Shl, carries, one);
    let is_paid = b.eq(owed, adds);
    b.break_if(is_paid);
    let flips = b.not(flips);
    let negated = b.binary(BinaryOp::Xor, owed, flips);
    let difference = b.sub(negated, flips);
    let found = b.atomic(AtomicOp::Add, word, difference, Scope::Block);
    b.assign(old, found);
    b.assign(more, owed);
    b.assign(turned, flips);
    cx.end();
}

/// Gives so many rows of each byte with a bit in `carries` to `far`.
fn give_rounds(cx: &mut Context<'_>, (first, carries): (V, V), rows: V, far: &Far<'_>) {
    let left = cx.builder.var_of("carries", carries);
    cx.begin_loop();
    let b = &mut *cx.builder;
    let (some, zero, one) = (b.read(left), b.u32(0), b.u32(1));
    let is_done = b.eq(some, zero);
    b.break_if(is_done);
    // The lowest bit's number is 7, 15, 23 or 31.
    let (number, bits) = (b.unary(UnaryOp::Ffs, some), b.u32(3));
    let number = b.sub(number, one);
    let byte = b.binary(BinaryOp::Shr, number, bits);
    let byte = b.convert(byte, Scalar::I64);
    let group = b.or(first, byte);
    far(cx, group, rows);
    let b = &mut *cx.builder;
    let fewer = b.sub(some, one);
    let fewer = b.and(some, fewer);
    b.assign(left, fewer);
    cx.end();
}

#[cfg(test)]
mod tests;
