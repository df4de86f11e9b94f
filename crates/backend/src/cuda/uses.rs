//! How values may be printed: in place, or not at all.

pub use kelpie_kir::uses::{any_stmt, count, may_drop};
use kelpie_kir::{Builtin, Expr};

/// Whether the value is the same wherever in its scope it is computed: what reads a variable or memory is not, as there may be a
/// store before its use.
pub fn is_pure(expr: &Expr) -> bool {
    may_drop(expr)
        && !matches!(
            expr,
            Expr::Read(_)
                | Expr::Load { .. }
                | Expr::LoadBytes(_)
                | Expr::LoadVector { .. }
                | Expr::LoadField { .. }
                | Expr::Builtin(Builtin::Status)
        )
}

/// Whether the expression reads the status word.
pub fn reads_status(expr: &Expr) -> bool {
    matches!(expr, Expr::Builtin(Builtin::Status))
}
