//! Names that a list of SELECT gives, in what stands behind them: `SELECT a + 1 AS b, b * 2 FROM t WHERE b > 3`. A column of FROM comes first, so
//! this is only looked at for names that nothing else has: what a name stands for is written in its place.

use std::ops::ControlFlow;

use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Volatility;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, ObjectNamePart, Select, SelectItem, VisitMut};

use crate::syntax::{Flow, Walk, normal, quoted, visit, visit_own};

/// Bytes of a statement with what its names stand for, at most: each may double it.
const MOST_BYTES: usize = 1 << 18;

/// Writes what a name stands for wherever a list of SELECT has given it before. Whether anything was written, and the
/// statement is not too long for it.
pub(super) fn write_out(statement: &mut Statement, name: &str, state: &SessionState) -> bool {
    let mut walk = Names { name, state, has_written: false };
    let _ = visit(statement, &mut walk);
    walk.has_written && statement.to_string().len() <= MOST_BYTES
}

struct Names<'a> {
    name: &'a str,
    state: &'a SessionState,
    has_written: bool,
}

impl Walk for Names<'_> {
    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        let named = select.projection.iter().position(
            |item| matches!(item, SelectItem::ExprWithAlias { alias, .. } if normal(alias) == self.name),
        );
        let Some(place) = named else { return ControlFlow::Continue(()) };
        let Some(SelectItem::ExprWithAlias { expr, .. }) = select.projection.get(place) else {
            return ControlFlow::Continue(());
        };
        let expr = expr.clone();
        if !self.may_be_repeated(&mut expr.clone()) {
            return ControlFlow::Continue(());
        }
        for item in select.projection.iter_mut().skip(place + 1) {
            self.write_in_item(item, &expr);
        }
        let conditions = [&mut select.selection, &mut select.having, &mut select.qualify];
        for condition in conditions.into_iter().flatten() {
            self.write_in(condition, &expr);
        }
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            keys.iter_mut().for_each(|key| {
                self.write_in(key, &expr);
            });
        }
        ControlFlow::Continue(())
    }
}

impl Names<'_> {
    /// Whether an expression gives the same wherever it is written, and does not go round in circles.
    fn may_be_repeated(&self, expr: &mut Expr) -> bool {
        let is_own = |expr: &Expr| matches!(expr, Expr::Identifier(name) if normal(name) == self.name);
        let is_volatile = |expr: &Expr| {
            let Expr::Function(function) = expr else { return false };
            let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return false };
            let known = self.state.scalar_functions().get(&normal(name));
            known.is_some_and(|known| known.signature().volatility == Volatility::Volatile)
        };
        let seen = visit_own(expr, &mut |expr| match is_own(expr) || is_volatile(expr) {
            true => ControlFlow::Break(None),
            false => ControlFlow::Continue(()),
        });
        seen.is_continue()
    }

    /// In an item of the list, whose column is called as it was written.
    fn write_in_item(&mut self, item: &mut SelectItem, meant: &Expr) {
        match item {
            SelectItem::ExprWithAlias { expr, .. } => {
                self.write_in(expr, meant);
            }
            SelectItem::UnnamedExpr(expr) => {
                let name = expr.to_string();
                if self.write_in(expr, meant) {
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: quoted(name) };
                }
            }
            _ => {}
        }
    }

    /// In an expression, but not in queries within it.
    fn write_in(&mut self, part: &mut impl VisitMut, meant: &Expr) -> bool {
        let mut has_written = false;
        let _ = visit_own(part, &mut |expr| {
            if matches!(expr, Expr::Identifier(name) if normal(name) == self.name) {
                *expr = Expr::Nested(Box::new(meant.clone()));
                has_written = true;
            }
            ControlFlow::Continue(())
        });
        self.has_written |= has_written;
        has_written
    }
}
