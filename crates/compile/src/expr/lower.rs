//! Lowering of expressions to KIR.

use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;

/// Lowers `expr` over the context's current row.
pub fn lower(_cx: &mut Context<'_>, expr: &Expr) -> Result<Lowered, Unsupported> {
    Err(Unsupported(format!("expression {:?} is not compiled yet", expr.kind)))
}
