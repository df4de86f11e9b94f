//! Room on the stack for what walks trees by recursion.
//!
//! How deep expressions and plans are is the text of a query's choice, and how large a thread's stack is the embedder's.
//! So entry points measure a tree without recursion and walk it by recursion where there is room for that.

use kelpie_compile::expr::{Expr, children};
use kelpie_compile::plan::Plan;

/// What anything takes that is not deep: frames of kernels' compilers included.
const BASE_BYTES: usize = 768 << 10;
/// What a level of a plan or of an expression takes in a build without optimization.
const LEVEL_BYTES: usize = 24 << 10;

/// Runs `work` with at least so many bytes of stack: where the thread has less left, on a stack of its own.
pub fn with_stack<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(bytes, bytes, work)
}

/// Runs `work`, which walks a plan, with enough stack.
pub(crate) fn with_room<R>(plan: &Plan, work: impl FnOnce() -> R) -> R {
    with_stack(BASE_BYTES + depth(plan).saturating_mul(LEVEL_BYTES), work)
}

/// Levels of operators, each with its deepest expression: the columns that it reads are evaluated from within it.
fn depth(plan: &Plan) -> usize {
    let mut deepest = 0;
    let mut open = vec![(plan, 0)];
    while let Some((plan, above)) = open.pop() {
        let level = above + 1 + plan.exprs().into_iter().map(expr_depth).max().unwrap_or(0);
        deepest = deepest.max(level);
        open.extend(plan.inputs().into_iter().map(|input| (input, level)));
    }
    deepest
}

fn expr_depth(expr: &Expr) -> usize {
    let mut deepest = 0;
    let mut open = vec![(expr, 1)];
    while let Some((expr, level)) = open.pop() {
        deepest = deepest.max(level);
        open.extend(children(expr).into_iter().map(|child| (child, level + 1)));
    }
    deepest
}
