//! How often each value is used: one that nobody uses need not be computed, and back ends do not.

use crate::arena::Handle;
use crate::module::{Expr, Function, Stmt};

/// Number of uses of every value, by index; uses by values that nobody uses do not count.
pub fn count(function: &Function) -> Vec<u32> {
    let mut uses = vec![0u32; function.values.len()];
    any_stmt(&function.body, &mut |stmt| {
        stmt.operands().into_iter().for_each(|operand| uses[operand.index()] += 1);
        false
    });
    for (_, value) in function.values.iter() {
        value.expr.operands().for_each(|operand| uses[operand.index()] += 1);
    }
    // Operands mostly stand before their users, so one pass backwards finds most chains of unused values.
    for index in (0..function.values.len()).rev() {
        let value = &function.values[Handle::from_index(index)];
        if uses[index] == 0 && may_drop(&value.expr) {
            value.expr.operands().for_each(|operand| uses[operand.index()] -= 1);
        }
    }
    uses
}

/// Whether a value that nobody uses need not be computed.
pub fn may_drop(expr: &Expr) -> bool {
    !expr.is_lane_operation() && !matches!(expr, Expr::Result)
}

/// Whether `test` holds for any statement, nested ones included. Stops at the first.
pub fn any_stmt(block: &[Stmt], test: &mut dyn FnMut(&Stmt) -> bool) -> bool {
    block.iter().any(|stmt| {
        test(stmt)
            || match stmt {
                Stmt::If { accept, reject, .. } => any_stmt(accept, test) || any_stmt(reject, test),
                Stmt::Loop(body) => any_stmt(body, test),
                _ => false,
            }
    })
}
