//! QUALIFY without a window of its own: `SELECT i, row_number() OVER w AS r … QUALIFY i < 2`. DataFusion looks for windows in the condition alone,
//! so that the first window of the list gets into it, in a part that is always true.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Select, SelectItem};

use crate::syntax::{Flow, Walk, visit, visit_own};

/// Gives such conditions a window.
pub(super) fn write_out(statement: &mut Statement) {
    let _ = visit(statement, &mut Conditions);
}

struct Conditions;

impl Walk for Conditions {
    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        if let Some(condition) = &mut select.qualify
            && window_of(condition).is_none()
            && let Some(window) = select.projection.iter_mut().find_map(window_of_item)
        {
            let is_null = Expr::IsNull(Box::new(window.clone()));
            let is_there = Expr::IsNotNull(Box::new(window));
            let either = Expr::Nested(Box::new(both(is_null, BinaryOperator::Or, is_there)));
            let own = Expr::Nested(Box::new(condition.clone()));
            *condition = both(own, BinaryOperator::And, either);
        }
        ControlFlow::Continue(())
    }
}

fn both(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn window_of_item(item: &mut SelectItem) -> Option<Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => window_of(expr),
        _ => None,
    }
}

/// The first call over a window in an expression; those of queries within it are none of its own.
fn window_of(expr: &mut Expr) -> Option<Expr> {
    let mut found = None;
    let _ = visit_own(expr, &mut |part| match part {
        Expr::Function(call) if call.over.is_some() => {
            found = Some(part.clone());
            ControlFlow::Break(None)
        }
        _ => ControlFlow::Continue(()),
    });
    found
}
