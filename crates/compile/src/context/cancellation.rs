//! Loops over what one row meets end early where the launch is cancelled.
//!
//! A row loop looks at the launch's status word now and then, but a row of a nested loop, or one with a frequent key, meets millions of
//! others before it is done. So the loops over these look as well. On a CPU the word is in the cache, and is looked at each turn. On a
//! GPU it lies in the host's memory: a thread looks once in so many turns of all its loops, remembers what it saw, and the rows that are
//! left meet nobody.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builtin, Scalar};

use super::lanes::any;
use super::{Context, Status};

/// Turns of a GPU's thread between two looks: some milliseconds, so that all threads of a device together read the host's memory a
/// few million times a second.
const TURNS: u32 = 1 << 14;

/// Who leaves a loop together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Each thread by itself.
    Thread,
    /// All lanes of a warp, which are in the loop together.
    Warp,
}

/// What a thread of a GPU keeps from row to row: both are 0 where the kernel begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch {
    /// Turns of all loops, `u32`.
    turns: Var,
    /// Whether the launch was seen to be cancelled, `bool`.
    is_cancelled: Var,
}

/// The watches of a kernel, by who looks: those of warps are the same in all lanes.
#[derive(Debug, Default)]
pub(super) struct Watches {
    of_threads: Option<Watch>,
    of_warps: Option<Watch>,
}

impl Context<'_> {
    /// Leaves the innermost loop, which is one over what the current row meets, where nobody wants what comes of it any more. What the
    /// launch has counted up to then is of no use, so a state that is full ([`Status::Grow`]) is no reason: its counts say how large it
    /// is to be.
    pub(crate) fn break_if_cancelled(&mut self, leaving: Leaving) {
        if self.shape.is_serial() {
            let b = &mut *self.builder;
            let (status, others) = (b.builtin(Builtin::Status), b.u32(!(Status::Grow as u32)));
            let status = b.and(status, others);
            let failed = b.ne_int(status, 0);
            return b.break_if(failed);
        }
        let watch = self.watch(leaving);
        let b = &mut *self.builder;
        let (turns, one, below) = (b.read(watch.turns), b.u32(1), b.u32(TURNS - 1));
        let turns = b.add(turns, one);
        b.assign(watch.turns, turns);
        let rest = b.binary(BinaryOp::And, turns, below);
        let looks = b.eq_int(rest, 0);
        self.begin_if(looks);
        let is_cancelled = self.is_cancelled(leaving);
        self.builder.assign(watch.is_cancelled, is_cancelled);
        self.end();
        let b = &mut *self.builder;
        let is_cancelled = b.read(watch.is_cancelled);
        b.break_if(is_cancelled);
    }

    /// Whether the status word says so (`bool`), the same for all who leave together.
    fn is_cancelled(&mut self, leaving: Leaving) -> V {
        let b = &mut *self.builder;
        let status = b.builtin(Builtin::Status);
        let is_cancelled = b.eq_int(status, Status::Cancelled as i64);
        match leaving {
            Leaving::Thread => is_cancelled,
            Leaving::Warp => any(self, is_cancelled),
        }
    }

    fn watch(&mut self, leaving: Leaving) -> Watch {
        let known = match leaving {
            Leaving::Thread => &mut self.watches.of_threads,
            Leaving::Warp => &mut self.watches.of_warps,
        };
        *known.get_or_insert_with(|| Watch {
            turns: self.builder.var("turns", Scalar::U32),
            is_cancelled: self.builder.var("is_cancelled", Scalar::Bool),
        })
    }
}
