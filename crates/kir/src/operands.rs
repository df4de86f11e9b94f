//! Which values an expression or a statement uses and defines: for every walk that needs no more than that.

use crate::arena::Handle;
use crate::module::*;

impl Expr {
    /// The values that it is computed from, in the order of the text form.
    pub fn operands(&self) -> impl Iterator<Item = Handle<Value>> + use<> {
        let operands = match *self {
            Expr::Literal(_)
            | Expr::Param(_)
            | Expr::Shared(_)
            | Expr::Read(_)
            | Expr::Builtin(_)
            | Expr::Iota(..)
            | Expr::Result => [None; 3],
            Expr::Unary(_, a)
            | Expr::Convert(a, _)
            | Expr::Bitcast(a, _)
            | Expr::Field { pointer: a, .. }
            | Expr::Load { pointer: a, .. }
            | Expr::LoadBytes(a)
            | Expr::LoadField { pointer: a, .. }
            | Expr::Ballot(a)
            | Expr::Any(a)
            | Expr::All(a)
            | Expr::Splat { value: a, .. }
            | Expr::LoadVector { pointer: a, .. }
            | Expr::Lane { vector: a, .. }
            | Expr::Reduce(_, a)
            | Expr::MaskBits(a)
            | Expr::BitsMask { bits: a, .. }
            | Expr::FirstLanes { count: a, .. } => [Some(a), None, None],
            Expr::Binary(_, a, b)
            | Expr::Overflows(_, a, b)
            | Expr::Compare(_, a, b)
            | Expr::Offset { pointer: a, index: b }
            | Expr::Shuffle { value: a, lane: b, .. } => [Some(a), Some(b), None],
            Expr::Select { condition, accept, reject } => [Some(condition), Some(accept), Some(reject)],
        };
        operands.into_iter().flatten()
    }

    /// A lane operation: it needs every lane of the warp.
    pub const fn is_lane_operation(&self) -> bool {
        matches!(self, Expr::Ballot(_) | Expr::Any(_) | Expr::All(_) | Expr::Shuffle { .. })
    }
}

impl Stmt {
    /// The values that the statement itself uses, without the blocks in it and without a `Let`'s expression.
    pub fn operands(&self) -> Vec<Handle<Value>> {
        match self {
            Stmt::Let(_)
            | Stmt::Loop(_)
            | Stmt::Break
            | Stmt::Continue
            | Stmt::Barrier
            | Stmt::WarpBarrier
            | Stmt::Fence(_)
            | Stmt::Mark(_)
            | Stmt::Return(None) => Vec::new(),
            Stmt::Assign { value, .. } | Stmt::Return(Some(value)) => vec![*value],
            Stmt::If { condition, .. } => vec![*condition],
            Stmt::Store { pointer, value, .. }
            | Stmt::StoreBytes { pointer, value }
            | Stmt::StoreVector { pointer, value, .. } => {
                vec![*pointer, *value]
            }
            Stmt::Compress { pointer, value, mask, .. } => vec![*pointer, *value, *mask],
            Stmt::Atomic { op: AtomicOp::CompareExchange(expected), pointer, value, .. } => {
                vec![*pointer, *expected, *value]
            }
            Stmt::Atomic { pointer, value, .. } => vec![*pointer, *value],
            Stmt::AtomicLoad { pointer, .. } | Stmt::UniformLoad { pointer, .. } => vec![*pointer],
            Stmt::Tally { counters } => vec![*counters],
            Stmt::Pause(nanoseconds) => vec![*nanoseconds],
            Stmt::Call { args, .. } => args.clone(),
            Stmt::Report { code } | Stmt::Trap { code } => vec![*code],
        }
    }

    /// The value that the statement defines: a `Let`'s, or the result of an effect.
    pub const fn defines(&self) -> Option<Handle<Value>> {
        match self {
            Stmt::Let(value) => Some(*value),
            Stmt::Atomic { result, .. } | Stmt::Call { result, .. } | Stmt::Compress { result, .. } => {
                *result
            }
            Stmt::AtomicLoad { result, .. } | Stmt::UniformLoad { result, .. } => Some(*result),
            Stmt::Assign { .. }
            | Stmt::Store { .. }
            | Stmt::StoreBytes { .. }
            | Stmt::StoreVector { .. }
            | Stmt::If { .. }
            | Stmt::Loop(_)
            | Stmt::Break
            | Stmt::Continue
            | Stmt::Barrier
            | Stmt::WarpBarrier
            | Stmt::Fence(_)
            | Stmt::Pause(_)
            | Stmt::Mark(_)
            | Stmt::Tally { .. }
            | Stmt::Return(_)
            | Stmt::Report { .. }
            | Stmt::Trap { .. } => None,
        }
    }

    /// Control never reaches the statement after it.
    pub const fn is_jump(&self) -> bool {
        matches!(self, Stmt::Break | Stmt::Continue | Stmt::Return(_) | Stmt::Trap { .. })
    }
}
