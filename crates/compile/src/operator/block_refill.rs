//! Lane refill with a buffer in shared memory (DogQC, section 4.3), which all warps of a block have in common.
//!
//! As in [`refill`], rows of lanes that are too few wait until there are enough. Here they are counted in a block: idle lanes take rows
//! that came to any of its warps, so that a block has the rows of less than one turn waiting, and not those of a turn for each warp. Rows are
//! scattered to the buffer and gathered from it, a word of a register in each of its arrays; the places are prefix sums over the block.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builtin, Pointee, Scalar, Type};

use super::refill;
use crate::context::Context;
use crate::context::register_words::{of_words, to_words, word_count};
use crate::primitives::scan::block_scan;

/// Bytes of a word.
const WORD_BYTES: u32 = 8;

/// A block's buffer.
pub(crate) struct BlockRefill {
    /// The registers of a row.
    types: Vec<Type>,
    /// For each of their words the array of those that wait.
    words: Vec<V>,
    /// Rows in the buffer, `u32`: the same in the block.
    held: Var,
    /// A sum for each warp.
    totals: V,
    /// Lanes with rows at which the block goes on.
    threshold: u32,
}

impl BlockRefill {
    /// A buffer, empty where the kernel begins, for rows in registers of these types; `None` where a block has no room for it.
    /// `threshold`: of 32 lanes. `number`: of no other buffer of the kernel.
    pub(crate) fn new(
        cx: &mut Context<'_>,
        number: usize,
        (types, threshold): (&[Type], u64),
    ) -> Option<BlockRefill> {
        let (threads, warps) = (cx.shape.block_threads, cx.shape.warps());
        let words: u32 = types.iter().map(|ty| word_count(*ty) as u32).sum();
        let own = words.saturating_mul(threads).saturating_add(warps).saturating_mul(WORD_BYTES);
        if !refill::has_room(cx, own) {
            return None;
        }
        // Each warp as many as it would wait for alone.
        let threshold = refill::lanes_of(cx, threshold).saturating_mul(warps).min(threads);
        let b = &mut *cx.builder;
        let array = |b: &mut kelpie_kir::Builder, word| {
            b.shared(&format!("waiting_{number}_{word}"), Pointee::Scalar(Scalar::U64), threads)
        };
        let words = (0..words).map(|word| array(b, word)).collect();
        let totals = b.shared(&format!("arrivals_{number}"), Pointee::Scalar(Scalar::U32), warps);
        let held = b.var("held", Scalar::U32);
        Some(BlockRefill { types: types.to_vec(), words, held, totals, threshold })
    }

    /// Lets rows wait or go on: those in `registers` of the lanes where `active` (`bool`). Gives the lanes that go on, and their
    /// registers. All go on where `is_last` (`bool`, the same in the block), as far as there are lanes for them. At uniform control flow
    /// of the block.
    pub(crate) fn emit(&self, cx: &mut Context<'_>, active: V, registers: &[V], is_last: V) -> (V, Vec<V>) {
        // Between this turn's reads and the last one's writes there is a barrier: of the sums, where there are several warps.
        if cx.shape.warps() == 1 {
            cx.builder.barrier();
        }
        let own = cx.builder.convert(active, Scalar::U32);
        let (before, arrived) = block_scan(&mut *cx.builder, &cx.shape, own, self.totals);
        let b = &mut *cx.builder;
        let no = b.bool(false);
        let live = b.var_of("goes_on", no);
        let rows: Vec<Var> = registers.iter().map(|register| b.var_of("row", *register)).collect();
        let (held, threshold) = (b.read(self.held), b.u32(self.threshold));
        let all = b.add(arrived, held);
        let is_enough = b.ge(all, threshold);
        let goes_on = b.or(is_enough, is_last);
        cx.begin_if(goes_on);
        cx.builder.assign(live, active);
        self.gather(cx, (active, before), held, (live, &rows));
        let b = &mut *cx.builder;
        let threads = b.u32(cx.shape.block_threads);
        let idle = b.sub(threads, arrived);
        let taken = b.binary(BinaryOp::Min, held, idle);
        let left = b.sub(held, taken);
        b.assign(self.held, left);
        cx.begin_else();
        cx.begin_if(active);
        let place = cx.builder.add(held, before);
        self.scatter(cx, place, registers);
        cx.end();
        cx.builder.assign(self.held, all);
        cx.end();
        let b = &mut *cx.builder;
        (b.read(live), rows.into_iter().map(|row| b.read(row)).collect())
    }

    /// Idle lanes take the rows on top of the buffer. `before`: the active lanes before this one.
    fn gather(&self, cx: &mut Context<'_>, (active, before): (V, V), held: V, (live, rows): (Var, &[Var])) {
        let b = &mut *cx.builder;
        let (thread, one, yes) = (b.builtin(Builtin::ThreadId), b.u32(1), b.bool(true));
        let place = b.sub(thread, before);
        let (is_idle, is_there) = (b.not(active), b.lt(place, held));
        let takes = b.and(is_idle, is_there);
        let top = b.sub(held, one);
        let source = b.sub(top, place);
        cx.begin_if(takes);
        let mut arrays = self.words.as_slice();
        for (ty, row) in self.types.iter().zip(rows) {
            let (own, others) = arrays.split_at(word_count(*ty) as usize);
            arrays = others;
            let words: Vec<V> = own
                .iter()
                .map(|array| {
                    let pointer = cx.builder.offset(*array, source);
                    cx.builder.load(pointer)
                })
                .collect();
            let value = of_words(cx, *ty, &words);
            cx.builder.assign(*row, value);
        }
        cx.builder.assign(live, yes);
        cx.end();
    }

    /// The row goes to a place of the buffer.
    fn scatter(&self, cx: &mut Context<'_>, place: V, registers: &[V]) {
        let mut arrays = self.words.iter();
        for register in registers {
            for (word, array) in to_words(cx, *register).into_iter().zip(arrays.by_ref()) {
                let pointer = cx.builder.offset(*array, place);
                cx.builder.store(pointer, word);
            }
        }
    }
}
