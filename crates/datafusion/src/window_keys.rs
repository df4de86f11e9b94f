//! What windows partition and order by, as columns of their rows. DataFusion asks an expression whether it keeps the order of what it is
//! made of, and takes any error of that for "no order is known": a function within another one, or within a comparison, says nothing of the
//! bounds of its values, and `abs(length(s))`, `sqrt(i)` or `upper(s) > 'a'` fail to ask for them. A window then never gets its rows in the
//! order that it needs, though they are sorted by the very expression, and the plan is refused. A column has no such questions.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Window};

use crate::logical_rule::LogicalRule;

/// Makes columns of such keys.
pub const WINDOW_KEYS: LogicalRule = LogicalRule {
    name: "kelpie_window_keys",
    applies: |options| options.corrections,
    rewrite: |plan| {
        let by_columns = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Window(window) => by_columns(window),
            node => Ok(Transformed::no(node)),
        })?;
        Ok(by_columns.data)
    },
};

/// A window over rows that have its keys for columns.
fn by_columns(window: Window) -> Result<Transformed<LogicalPlan>> {
    let node = LogicalPlan::Window(window.clone());
    let (names, mut keys) = (NamePreserver::new(&node), Keys::default());
    let mut calls = Vec::with_capacity(window.window_expr.len());
    for expr in &window.window_expr {
        let name = names.save(expr);
        let made = expr.clone().transform_up(|expr| keys.within(expr))?;
        calls.push(name.restore(made.data));
    }
    if keys.0.is_empty() {
        return Ok(Transformed::no(node));
    }
    let columns = window.input.schema().columns().into_iter().map(Expr::Column);
    let mut made: Vec<(Expr, String)> = keys.0.into_iter().collect();
    made.sort_by(|a, b| a.1.cmp(&b.1));
    let columns = columns.chain(made.into_iter().map(|(key, name)| key.alias(name)));
    let shown = window.schema.columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::new_from_arc(Arc::clone(&window.input))
        .project(columns)?
        .window(calls)?
        .project(shown)?
        .build()
        .map(Transformed::yes)
}

/// Keys that become columns, with the names of these.
#[derive(Default)]
struct Keys(HashMap<Expr, String>);

impl Keys {
    /// A call over a window with columns in place of such keys of it.
    fn within(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        let Expr::WindowFunction(mut window) = expr else { return Ok(Transformed::no(expr)) };
        let mut changed = false;
        let orders = window.params.order_by.iter_mut().map(|order| &mut order.expr);
        for key in window.params.partition_by.iter_mut().chain(orders) {
            if hides_its_order(key)? {
                *key = self.column(std::mem::take(key).unalias_nested().data);
                changed = true;
            }
        }
        Ok(Transformed { transformed: changed, ..Transformed::no(Expr::WindowFunction(window)) })
    }

    fn column(&mut self, key: Expr) -> Expr {
        let next = format!("__kelpie_window_key_{:03}", self.0.len());
        let name = self.0.entry(key).or_insert(next).clone();
        Expr::Column(Column::new_unqualified(name))
    }
}

/// Whether DataFusion may fail to tell the order of an expression: a call stands within it.
fn hides_its_order(key: &Expr) -> Result<bool> {
    let mut hides = false;
    let mut bare = key;
    while let Expr::Alias(alias) = bare {
        bare = &alias.expr;
    }
    bare.apply_children(|child| {
        hides |= child
            .exists(|expr| Ok(matches!(expr, Expr::ScalarFunction(_) | Expr::HigherOrderFunction(_))))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(hides)
}
