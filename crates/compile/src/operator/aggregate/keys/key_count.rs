//! How many keys a hash table has: counted by each block, and for all blocks in steps.
//!
//! Whether a table is too full depends on the keys that all blocks have put in. Did each new key add one to the device's counter,
//! a GPU would be busy with that single address (about a thousand million atomics a second) before the table itself is. So a
//! block counts in its own memory, and tells the others of every so many keys: of few enough that all blocks together leave out
//! less than a sixteenth of the slots. At the end of the kernel the device's counter is exact.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Builtin, CompareOp, Expr, Pointee, Scalar, Scope, Type};

use crate::context::{Argument, Context, Status};
use crate::operator::aggregate::block_loop::clear;
use crate::program::Fill;

/// Of so many slots one may be taken by a key that the other blocks do not know of.
const SLOTS_A_UNKNOWN_KEY: i64 = 16;

/// The counter of a table in one kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyCount {
    /// `ptr<shared, u32>`: the keys that the block has put in, and whether it has found the table full.
    own: V,
    /// `u32`, at least 1: how many of them others are told of together.
    step: V,
    /// Slots of the table, `i64`.
    pub capacity: V,
    /// The state that counts the keys of all blocks.
    state: usize,
    fill: Fill,
}

impl KeyCount {
    /// Before the row loop. `slots`: the state of the slots.
    pub fn begin(cx: &mut Context<'_>, slots: usize, state: usize, fill: Fill) -> KeyCount {
        let name = format!("new_keys_{state}");
        let own = cx.builder.shared(&name, Pointee::Scalar(Scalar::U32), 2);
        clear(cx, own, Scalar::U32, 2);
        cx.builder.barrier();
        let capacity = cx.argument("capacity", Scalar::I64, Argument::StateCapacity(slots));
        let b = &mut *cx.builder;
        let blocks = b.builtin(Builtin::GridDim);
        let blocks = b.convert(blocks, Scalar::I64);
        let (share, one, most) = (b.i64(SLOTS_A_UNKNOWN_KEY), b.i64(1), b.i64(1 << 20));
        let blocks = b.mul(blocks, share);
        let step = b.div(capacity, blocks);
        let step = b.binary(BinaryOp::Max, step, one);
        let step = b.binary(BinaryOp::Min, step, most);
        let step = b.convert(step, Scalar::U32);
        KeyCount { own, step, capacity, state, fill }
    }

    /// Counts a key that this thread has put in.
    pub fn add(&self, cx: &mut Context<'_>) {
        let is_own = cx.shape.block_threads == 1;
        let b = &mut *cx.builder;
        let one = b.u32(1);
        let old = match is_own {
            true => b.load(self.own),
            false => b.atomic(AtomicOp::Add, self.own, one, Scope::Block),
        };
        let new = b.add(old, one);
        if is_own {
            b.store(self.own, new);
        }
        let rest = b.rem(new, self.step);
        let is_full = b.eq_int(rest, 0);
        cx.begin_if(is_full);
        self.tell(cx, self.step);
        cx.end();
    }

    /// Leaves the innermost loop where the table is full: who filled it has said so. (Not by the status word, which is host
    /// memory: a GPU would read it over the link for every new key.)
    pub fn leave_if_full(&self, cx: &mut Context<'_>) {
        let count = self.all(cx);
        let keys = cx.builder.atomic_load(count, Scope::Device);
        let (keys, most) = self.sides(cx, keys);
        let full = cx.builder.ge(keys, most);
        cx.begin_if(full);
        self.note_full(cx);
        cx.builder.break_loop();
        cx.end();
    }

    /// Leaves the innermost loop, and has the table taken for full: a search that came so far finds keys too close together. So it is
    /// where rows come part by part, and a table that is still small has no more slots for the first part.
    pub fn leave_as_full(&self, cx: &mut Context<'_>) {
        let count = self.all(cx);
        let b = &mut *cx.builder;
        let slots = b.bitcast(self.capacity, Scalar::U64);
        let (taken, of, one) = (b.u64(self.fill.taken), b.u64(self.fill.of), b.u64(1));
        let slots = b.mul(slots, taken);
        let most = b.div(slots, of);
        let most = b.add(most, one);
        let before = b.atomic(AtomicOp::Max, count, most, Scope::Device);
        let is_first = b.lt(before, most);
        b.begin_if(is_first);
        b.report(Status::Grow as u32);
        b.end();
        self.note_full(cx);
        cx.builder.break_loop();
    }

    /// The block has found the table full.
    fn note_full(&self, cx: &mut Context<'_>) {
        let (flag, yes) = (self.full(cx), cx.builder.u32(1));
        match cx.shape.block_threads {
            1 => cx.builder.store(flag, yes),
            _ => cx.builder.atomic_discard(AtomicOp::Exchange, flag, yes, Scope::Block),
        }
    }

    /// Whether the block has found the table full (`bool`, the same for all threads of a warp): all of the kernel's work is done
    /// again with a larger one. Needs uniform control flow of the warp.
    pub fn is_full(&self, cx: &mut Context<'_>) -> V {
        let flag = self.full(cx);
        let b = &mut *cx.builder;
        let zero = b.u32(0);
        let flag = if cx.shape.block_threads == 1 { b.load(flag) } else { b.atomic_load(flag, Scope::Block) };
        let full = b.ne(flag, zero);
        if cx.shape.is_serial() { full } else { b.value(Expr::Any(full)) }
    }

    fn full(&self, cx: &mut Context<'_>) -> V {
        let one = cx.builder.i32(1);
        cx.builder.offset(self.own, one)
    }

    /// After the row loop: what others do not know of yet.
    pub fn end(&self, cx: &mut Context<'_>) {
        cx.builder.barrier();
        let b = &mut *cx.builder;
        let (thread, zero) = (b.builtin(Builtin::ThreadId), b.u32(0));
        let is_first = b.eq(thread, zero);
        cx.begin_if(is_first);
        let b = &mut *cx.builder;
        let own = b.load(self.own);
        let rest = b.rem(own, self.step);
        let is_left = b.compare(CompareOp::Ne, rest, zero);
        cx.begin_if(is_left);
        self.tell(cx, rest);
        cx.end();
        cx.end();
    }

    /// Adds `keys` (`u32`) to the count of all. Whoever brings it to as many as there may be asks for a larger table: one thread,
    /// as on a GPU the status word is host memory, which takes many threads seconds.
    fn tell(&self, cx: &mut Context<'_>, keys: V) {
        let count = self.all(cx);
        let b = &mut *cx.builder;
        let keys = b.convert(keys, Scalar::U64);
        let before = b.atomic(AtomicOp::Add, count, keys, Scope::Device);
        let after = b.add(before, keys);
        let ((before, most), (after, _)) = (self.sides(cx, before), self.sides(cx, after));
        let (fitted, fits) = (cx.builder.lt(before, most), cx.builder.lt(after, most));
        let too_many = cx.builder.not(fits);
        let is_last = cx.builder.and(fitted, too_many);
        cx.begin_if(is_last);
        cx.builder.report(Status::Grow as u32);
        cx.end();
    }

    fn all(&self, cx: &mut Context<'_>) -> V {
        cx.argument("group_count", Type::global(Scalar::U64), Argument::State(self.state))
    }

    /// The number of keys (`u64`) beside the number of slots, both (`i64`) multiplied so that they are equal where there are
    /// as many keys as there may be.
    fn sides(&self, cx: &mut Context<'_>, keys: V) -> (V, V) {
        let b = &mut *cx.builder;
        let keys = b.bitcast(keys, Scalar::I64);
        let keys = b.mul_int(keys, self.fill.of as i64);
        let slots = match self.fill.taken {
            1 => self.capacity,
            taken => b.mul_int(self.capacity, taken as i64),
        };
        (keys, slots)
    }
}
