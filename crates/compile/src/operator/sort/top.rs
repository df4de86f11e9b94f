//! The bound of a worker's first `k` rows: a heap of the `k` smallest first words that it has seen, the largest of them on
//! top. A row beyond the top is not among the first `k`, whatever the other words and the other workers' rows are. In
//! the memory of a CPU's worker; on random order a worker keeps some k · ln(rows / k) rows.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{CompareOp, Pointee, Scalar};

use crate::context::{Constant, Context};

/// More rows than this are not bounded: the heap would leave the first-level cache.
pub const MAX_ROWS: u64 = 4096;

/// A worker's heap.
#[derive(Debug, Clone)]
pub struct TopHeap {
    /// `u64`s in shared memory.
    array: V,
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
        let limit = cx.constant(Constant::Int(Scalar::U32, rows.into()));
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
        let one = cx.builder.u32(1);
        let next = cx.builder.add(current, one);
        cx.builder.assign(position, next);
        cx.end();
        TopHeap { array, limit, bound, kept }
    }

    /// Opens `if` for a row that may be among the first: one whose word is below the bound, or equal to it where other
    /// words may decide (not `exact`), and every row while there are not k. Notes its word. `always`: a row that has none and
    /// is kept.
    pub fn begin_if_kept(&self, cx: &mut Context<'_>, word: V, exact: bool, always: Option<V>) {
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
        cx.begin_if(below);
        self.replace_largest(cx, word);
        cx.end();
    }

    /// Puts `word` in the place of the largest and sifts it down.
    fn replace_largest(&self, cx: &mut Context<'_>, word: V) {
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
        b.assign(place, child);
        cx.end();
        let b = &mut *cx.builder;
        let place = b.read(place);
        let pointer = b.offset(self.array, place);
        b.store(pointer, word);
        let pointer = b.offset(self.array, zero);
        let top = b.load(pointer);
        b.assign(self.bound, top);
    }
}
