//! Named windows, and windows that extend others: `w2 AS (w ORDER BY b)`, `OVER (w ROWS …)`. DataFusion drops what the other one says, and
//! knows names only in the list of SELECT. Here each use gets all that its window says.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::common::plan_datafusion_err;
use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowExpr, OrderByKind, Query, Select, SetExpr, WindowSpec, WindowType,
};

use crate::syntax::{Flow, Walk, ended, normal, visit, visit_own};

/// Writes out the windows of a statement; one that is not there or refers to itself is an error.
pub(super) fn resolve(statement: &mut Statement) -> Result<()> {
    ended(visit(statement, &mut Windows))
}

struct Windows;

impl Walk for Windows {
    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        let Query { body, order_by, .. } = query;
        let (SetExpr::Select(select), Some(order)) = (body.as_ref(), order_by) else {
            return ControlFlow::Continue(());
        };
        let OrderByKind::Expressions(keys) = &mut order.kind else { return ControlFlow::Continue(()) };
        let windows = Defined::of(select);
        keys.iter_mut().try_for_each(|key| visit_own(&mut key.expr, &mut |expr| windows.write_out(expr)))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        let windows = Defined::of(select);
        select.named_window.clear();
        visit_own(select, &mut |expr| windows.write_out(expr))
    }
}

/// The windows that a SELECT names.
struct Defined(HashMap<String, NamedWindowExpr>);

impl Defined {
    fn of(select: &Select) -> Defined {
        let named = select.named_window.iter();
        Defined(named.map(|window| (normal(&window.0), window.1.clone())).collect())
    }

    fn spec(&self, name: &Ident, left: usize) -> Result<WindowSpec> {
        match self.0.get(&normal(name)) {
            _ if left == 0 => Err(plan_datafusion_err!("the window {name} refers to itself")),
            None => Err(plan_datafusion_err!("The window {name} is not defined!")),
            Some(NamedWindowExpr::NamedWindow(other)) => self.spec(other, left - 1),
            Some(NamedWindowExpr::WindowSpec(spec)) => self.whole(spec, left - 1),
        }
    }

    /// A window with what the one says that it extends.
    fn whole(&self, spec: &WindowSpec, left: usize) -> Result<WindowSpec> {
        let Some(name) = &spec.window_name else { return Ok(spec.clone()) };
        let base = self.spec(name, left)?;
        if !spec.partition_by.is_empty() {
            return Err(plan_datafusion_err!(
                "a window that extends {name} cannot have another PARTITION BY"
            ));
        }
        if !spec.order_by.is_empty() && !base.order_by.is_empty() {
            return Err(plan_datafusion_err!("a window that extends {name} cannot have another ORDER BY"));
        }
        if base.window_frame.is_some() {
            return Err(plan_datafusion_err!("the window {name} has a frame, so no other can extend it"));
        }
        let order_by = if spec.order_by.is_empty() { base.order_by } else { spec.order_by.clone() };
        let window_frame = spec.window_frame.clone();
        Ok(WindowSpec { window_name: None, partition_by: base.partition_by, order_by, window_frame })
    }

    /// What a use of a window says in all; nothing where it says that itself.
    fn used(&self, over: &WindowType) -> Result<Option<WindowSpec>> {
        // No chain of windows is longer than there are windows.
        let left = self.0.len() + 1;
        match over {
            WindowType::NamedWindow(name) => self.spec(name, left).map(Some),
            WindowType::WindowSpec(spec) if spec.window_name.is_some() => self.whole(spec, left).map(Some),
            WindowType::WindowSpec(_) => Ok(None),
        }
    }

    /// Writes out the window of a call; those in queries within the SELECT are of other windows.
    fn write_out(&self, expr: &mut Expr) -> Flow {
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        let Some(over) = &mut call.over else { return ControlFlow::Continue(()) };
        match self.used(over) {
            Ok(Some(spec)) => *over = WindowType::WindowSpec(spec),
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(Some(error)),
        }
        ControlFlow::Continue(())
    }
}
