//! The bound of a worker's first `k` rows: a heap of the `k` smallest first words that it has seen, the largest of them on
//! top. A row beyond the top is not among the first `k`, whatever the other words and the other workers' rows are. In
//! the memory of a CPU's worker.
//!
//! Beside each word is the place where its row is stored. A row that leaves the heap, because one with a smaller word has come and so
//! the bound is below its own, is not among the first `k` either: the new row takes its place. So a worker stores as many rows as are
//! wanted and those that are equal to its bound, in whatever order rows come.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{CompareOp, Pointee, Scalar};

use crate::context::{Constant, Context};

/// More rows than this are not bounded: the heap would leave the first-level cache.
pub const MAX_ROWS: u64 = 4096;

/// The place of no row.
const NO_PLACE: u32 = u32::MAX;

/// A worker's heap.
#[derive(Debug, Clone)]
pub struct TopHeap {
    /// `u64`s in shared memory.
    array: V,
    /// The places of their rows, `u32`s; [`NO_PLACE`] of a word that is no row's.
    places: V,
    /// k, `u32`.
    limit: V,
    /// The largest word in the heap.
    bound: Var,
    /// Rows that this worker has kept, `u32` (no more than k are counted).
    kept: Var,
}

impl TopHeap {
    /// Before the row loop: a heap full of the largest word there is.
    pub fn begin(cx: &mut Context<'_>, rows: u64) -> TopHeap {
        let capacity = rows.next_power_of_two().max(1) as u32;
        let array = cx.builder.shared("smallest", Pointee::Scalar(Scalar::U64), capacity);
        let places = cx.builder.shared("places", Pointee::Scalar(Scalar::U32), capacity);
        let limit = cx.constant(Constant::Int(Scalar::U32, rows.into()));
        let none = cx.builder.u32(NO_PLACE);
        let (zero, largest) = (cx.builder.u32(0), cx.builder.u64(u64::MAX));
        let bound = cx.builder.var_of("bound", largest);
        let kept = cx.builder.var_of("kept", zero);
        let position = cx.builder.var_of("position", zero);
        cx.begin_loop();
        let current = cx.builder.read(position);
        let done = cx.builder.ge(current, limit);
        cx.builder.break_if(done);
        let pointer = cx.builder.offset(array, current);
        cx.builder.store(pointer, largest);
        let pointer = cx.builder.offset(places, current);
        cx.builder.store(pointer, none);
        let one = cx.builder.u32(1);
        let next = cx.builder.add(current, one);
        cx.builder.assign(position, next);
        cx.end();
        TopHeap { array, places, limit, bound, kept }
    }

    /// The largest word of the first ones so far, `u64`: no row beyond is among them, once there are enough.
    pub fn bound(&self, cx: &mut Context<'_>) -> V {
        cx.builder.read(self.bound)
    }

    /// Whether rows are kept whatever their words are, as there are not enough yet; `bool`.
    pub fn has_few(&self, cx: &mut Context<'_>) -> V {
        let kept = cx.builder.read(self.kept);
        cx.builder.lt(kept, self.limit)
    }

    /// Opens `if` for a row that may be among the first: one whose word is below the bound, or equal to it where other
    /// words may decide (not `exact`), and every row while there are not k. Notes its word; the place (`i64`) where it is to be stored,
    /// one that is taken or that of a row which is not among the first. `always`: a row that has no word and is kept.
    pub fn begin_if_kept(
        &self,
        cx: &mut Context<'_>,
        (word, exact, always): (V, bool, Option<V>),
        take: &mut dyn FnMut(&mut Context<'_>) -> V,
    ) -> V {
        let (bound, kept) = (cx.builder.read(self.bound), cx.builder.read(self.kept));
        let (mut below, mut few) = (cx.builder.lt(word, bound), cx.builder.lt(kept, self.limit));
        if let Some(always) = always {
            let counts = cx.builder.not(always);
            (below, few) = (cx.builder.and(below, counts), cx.builder.and(few, counts));
        }
        let passes = if exact { below } else { cx.builder.compare(CompareOp::Le, word, bound) };
        let passes = cx.builder.or(passes, few);
        let passes = always.map_or(passes, |always| cx.builder.or(passes, always));
        cx.begin_if(passes);
        cx.begin_if(few);
        let one = cx.builder.u32(1);
        let more = cx.builder.add(kept, one);
        cx.builder.assign(self.kept, more);
        cx.end();
        let (none, root) = (cx.builder.u32(NO_PLACE), cx.builder.u32(0));
        let (free, slot) = (cx.builder.var_of("free", none), cx.builder.var_of("slot", root));
        cx.begin_if(below);
        let pointer = cx.builder.offset(self.places, root);
        let left = cx.builder.load(pointer);
        let own = self.replace_largest(cx, word);
        let own = cx.builder.read(own);
        cx.builder.assign(slot, own);
        // A row that is equal to the new bound may still be among the first.
        let now = cx.builder.read(self.bound);
        let leaves = cx.builder.lt(now, bound);
        let left = cx.builder.select(leaves, left, none);
        cx.builder.assign(free, left);
        cx.end();
        let free = cx.builder.read(free);
        let wide = cx.builder.convert(free, Scalar::I64);
        let place = cx.builder.var_of("place", wide);
        let is_none = cx.builder.eq(free, none);
        cx.begin_if(is_none);
        let taken = take(cx);
        cx.builder.assign(place, taken);
        cx.end();
        let place = cx.builder.read(place);
        cx.begin_if(below);
        let slot = cx.builder.read(slot);
        let pointer = cx.builder.offset(self.places, slot);
        let narrow = cx.builder.convert(place, Scalar::U32);
        cx.builder.store(pointer, narrow);
        cx.end();
        place
    }

    /// Puts `word` in the place of the largest and sifts it down; where it comes to stand, `u32`.
    fn replace_largest(&self, cx: &mut Context<'_>, word: V) -> Var {
        let (zero, one, two) = (cx.builder.u32(0), cx.builder.u32(1), cx.builder.u32(2));
        let place = cx.builder.var_of("place", zero);
        cx.begin_loop();
        let b = &mut *cx.builder;
        let current = b.read(place);
        let twice = b.mul(current, two);
        let (left, right) = (b.add(twice, one), b.add(twice, two));
        let leaf = b.ge(left, self.limit);
        b.break_if(leaf);
        let pointer = b.offset(self.array, left);
        let value = b.load(pointer);
        let (child, largest) = (b.var_of("child", left), b.var_of("largest", value));
        let has_right = b.lt(right, self.limit);
        cx.begin_if(has_right);
        let pointer = cx.builder.offset(self.array, right);
        let other = cx.builder.load(pointer);
        let greater = cx.builder.compare(CompareOp::Gt, other, value);
        cx.begin_if(greater);
        cx.builder.assign(child, right);
        cx.builder.assign(largest, other);
        cx.end();
        cx.end();
        let b = &mut *cx.builder;
        let (child, largest) = (b.read(child), b.read(largest));
        let settled = b.compare(CompareOp::Le, largest, word);
        b.break_if(settled);
        let pointer = b.offset(self.array, current);
        b.store(pointer, largest);
        let (from, to) = (b.offset(self.places, child), b.offset(self.places, current));
        let moved = b.load(from);
        b.store(to, moved);
        b.assign(place, child);
        cx.end();
        let b = &mut *cx.builder;
        let settled = b.read(place);
        let pointer = b.offset(self.array, settled);
        b.store(pointer, word);
        let pointer = b.offset(self.array, zero);
        let top = b.load(pointer);
        b.assign(self.bound, top);
        place
    }
}
