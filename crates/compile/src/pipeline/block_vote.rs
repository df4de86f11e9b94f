//! How a block leaves the row loop where its threads wait for each other in it: all in the same turn.
//!
//! Whether there are enough rows, or a table of groups is full, is seen by a warp and not by others that looked before. A warp that left alone would
//! be missing at the next barrier. So who sees it notes it in the block's memory, and at the top of a turn all read that note between
//! the same two barriers.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, Builtin, Pointee, Scalar, Scope};

use crate::context::Context;
use crate::operator::roles::Emitter;

/// A block's note that no more rows are wanted.
pub(super) struct BlockVote {
    /// `ptr<shared, u32>`: 1 from when on a warp has seen it.
    is_seen: V,
}

impl BlockVote {
    /// Before the row loop, at control flow that is uniform in the block.
    pub(super) fn begin(cx: &mut Context<'_>) -> BlockVote {
        let b = &mut *cx.builder;
        let is_seen = b.shared("no_more_rows", Pointee::Scalar(Scalar::U32), 1);
        let (thread, zero) = (b.builtin(Builtin::ThreadId), b.u32(0));
        let is_first = b.eq(thread, zero);
        cx.begin_if(is_first);
        cx.builder.store(is_seen, zero);
        cx.end();
        cx.builder.barrier();
        BlockVote { is_seen }
    }

    /// Leaves the row loop where a warp of the block has seen that no more rows are wanted. At the top of a turn.
    pub(super) fn break_if_enough(&self, cx: &mut Context<'_>, emitter: &dyn Emitter) {
        let Some(done) = emitter.is_done(cx) else { return };
        let b = &mut *cx.builder;
        let (lane, zero, one) = (b.builtin(Builtin::LaneId), b.u32(0), b.u32(1));
        let is_leader = b.eq(lane, zero);
        let notes = b.and(done, is_leader);
        cx.begin_if(notes);
        cx.builder.atomic_discard(AtomicOp::Exchange, self.is_seen, one, Scope::Block);
        cx.end();
        let b = &mut *cx.builder;
        let seen = b.uniform_load(self.is_seen);
        let leaves = b.ne(seen, zero);
        b.break_if(leaves);
    }
}
