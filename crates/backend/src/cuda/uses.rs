//! How often each value is used, which decides what is printed in place.

use kelpie_kir::{AtomicOp, Builtin, Expr, Function, Handle, Stmt, Value};

/// Number of uses of every value, by index; uses by values that nobody uses do not count.
pub fn count(function: &Function) -> Vec<u32> {
    let mut uses = vec![0u32; function.values.len()];
    let add = |uses: &mut Vec<u32>, value: Handle<Value>, by: i64| {
        if let Some(count) = uses.get_mut(value.index()) {
            *count = u32::try_from(i64::from(*count) + by).unwrap_or(0);
        }
    };
    any_stmt(&function.body, &mut |stmt| {
        stmt_operands(stmt, &mut |operand| add(&mut uses, operand, 1));
        false
    });
    for (_, value) in function.values.iter() {
        operands(&value.expr, &mut |operand| add(&mut uses, operand, 1));
    }
    // Operands stand before their users, so one pass backwards finds every chain of unused values.
    for index in (0..function.values.len()).rev() {
        let value = &function.values[Handle::from_index(index)];
        if uses[index] == 0 && may_drop(&value.expr) {
            operands(&value.expr, &mut |operand| add(&mut uses, operand, -1));
        }
    }
    uses
}

/// Whether a value that nobody uses need not be computed.
pub fn may_drop(expr: &Expr) -> bool {
    !matches!(expr, Expr::Ballot(_) | Expr::Any(_) | Expr::All(_) | Expr::Shuffle { .. } | Expr::Result)
}

/// Whether the value is the same wherever in its scope it is computed.
pub fn is_pure(expr: &Expr) -> bool {
    may_drop(expr)
        && !matches!(
            expr,
            Expr::Read(_) | Expr::Load { .. } | Expr::LoadField { .. } | Expr::Builtin(Builtin::Status)
        )
}

/// Whether the expression reads the status word.
pub fn reads_status(expr: &Expr) -> bool {
    matches!(expr, Expr::Builtin(Builtin::Status))
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

/// Calls `visit` for each operand of an expression.
fn operands(expr: &Expr, visit: &mut dyn FnMut(Handle<Value>)) {
    match *expr {
        Expr::Literal(_)
        | Expr::Param(_)
        | Expr::Shared(_)
        | Expr::Read(_)
        | Expr::Builtin(_)
        | Expr::Result => {}
        Expr::Unary(_, a)
        | Expr::Convert(a, _)
        | Expr::Bitcast(a, _)
        | Expr::Ballot(a)
        | Expr::Any(a)
        | Expr::All(a) => visit(a),
        Expr::Binary(_, a, b) | Expr::Overflows(_, a, b) | Expr::Compare(_, a, b) => {
            visit(a);
            visit(b);
        }
        Expr::Select { condition, accept, reject } => {
            visit(condition);
            visit(accept);
            visit(reject);
        }
        Expr::Offset { pointer, index } => {
            visit(pointer);
            visit(index);
        }
        Expr::Field { pointer, .. } | Expr::Load { pointer, .. } | Expr::LoadField { pointer, .. } => {
            visit(pointer)
        }
        Expr::Shuffle { value, lane, .. } => {
            visit(value);
            visit(lane);
        }
    }
}

fn stmt_operands(stmt: &Stmt, visit: &mut dyn FnMut(Handle<Value>)) {
    match stmt {
        Stmt::Let(_) | Stmt::Loop(_) | Stmt::Break | Stmt::Continue | Stmt::Barrier | Stmt::Fence => {}
        Stmt::Return(value) => {
            if let Some(value) = value {
                visit(*value);
            }
        }
        Stmt::Assign { value, .. } => visit(*value),
        Stmt::Store { pointer, value } => {
            visit(*pointer);
            visit(*value);
        }
        Stmt::If { condition, .. } => visit(*condition),
        Stmt::Atomic { op, pointer, value, .. } => {
            visit(*pointer);
            visit(*value);
            if let AtomicOp::CompareExchange(expected) = op {
                visit(*expected);
            }
        }
        Stmt::UniformLoad { pointer, .. } | Stmt::AtomicLoad { pointer, .. } => visit(*pointer),
        Stmt::Call { args, .. } => args.iter().copied().for_each(visit),
        Stmt::Report { code } | Stmt::Trap { code } => visit(*code),
    }
}
