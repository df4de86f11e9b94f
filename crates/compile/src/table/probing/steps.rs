//! What searches of hash tables with open addressing are made of: of the groups' table, whose slots have whole keys, and of indexes, whose
//! slots have the number of a row.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, Expr, Scope};

use crate::context::{Context, Unsupported};
use crate::table::shared_keys::{Pairs, Together};

/// A slot that a search looks at.
#[derive(Clone, Copy)]
pub(crate) struct SeenSlot {
    /// The address of its word.
    pub pointer: V,
    /// What the word was, and a variable that has that.
    pub current: V,
    pub seen: Var,
    /// What the word of a free slot is.
    pub free: V,
}

/// Claims a slot for `word` where it is free: what its word was, which after a claim in vain is what another thread has put there. `first`:
/// what is done before the claim; `won`: what is done behind it, given whether it was this thread's (`bool`); who has won leaves the
/// search there.
pub(crate) fn claim(
    cx: &mut Context<'_>,
    slot: SeenSlot,
    word: V,
    first: &dyn Fn(&mut Context<'_>),
    won: &mut dyn FnMut(&mut Context<'_>, V),
) -> V {
    let SeenSlot { pointer, current, seen, free } = slot;
    let is_free = cx.builder.eq(current, free);
    cx.begin_if(is_free);
    first(cx);
    let old = cx.builder.atomic(AtomicOp::CompareExchange(free), pointer, word, Scope::Device);
    let is_own = cx.builder.eq(old, free);
    won(cx, is_own);
    cx.builder.assign(seen, old);
    cx.end();
    cx.builder.read(seen)
}

/// Searches of the lanes of a warp that look at texts of keys together, at uniform control flow of the warp. `propose` goes on with a lane's
/// search up to a slot whose keys may be the row's: then the lane is still `searching` (`bool`), else its search has ended. `decide` is
/// told whether the keys that a lane has proposed are others than the row's, and whether they are the row's (`bool` each).
pub(crate) fn search_together(
    cx: &mut Context<'_>,
    pairs: &Pairs<'_>,
    searching: Var,
    together: &dyn Together,
    (propose, decide): (&mut Propose<'_>, &mut Decide<'_>),
) -> Result<(), Unsupported> {
    cx.begin_loop();
    let open = cx.builder.read(searching);
    let any = cx.builder.value(Expr::Any(open));
    let done = cx.builder.not(any);
    cx.builder.break_if(done);
    cx.begin_if(open);
    propose(cx)?;
    cx.end();
    let open = cx.builder.read(searching);
    let differ = pairs.differ(cx, open, together)?;
    let b = &mut *cx.builder;
    let (other, same) = (b.and(open, differ), b.not(differ));
    let same = b.and(open, same);
    cx.builder.assign(searching, other);
    decide(cx, other, same);
    cx.end();
    Ok(())
}

/// Goes on with a lane's search.
pub(crate) type Propose<'p> = dyn FnMut(&mut Context<'_>) -> Result<(), Unsupported> + 'p;
/// Takes what a lane has found.
pub(crate) type Decide<'d> = dyn FnMut(&mut Context<'_>, V, V) + 'd;
