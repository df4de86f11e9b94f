//! Volatile functions are called once where they are written. DataFusion writes `random() BETWEEN a AND b` as two comparisons, each with a
//! call of its own, and so it does with the operand of CASE and IN and the arguments of `coalesce` and `nullif`. Here what is volatile of
//! these becomes a column of the rows below first.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use kelpie_datafusion::{LogicalRule, map_named};

use super::expressions::has_expr;

/// Makes columns of volatile operands that would be evaluated more than once.
pub(crate) const VOLATILE_ONCE: LogicalRule = LogicalRule {
    name: "kelpie_volatile_once",
    applies: |options| options.corrections,
    rewrite: |plan| {
        if !has_expr(&plan, |expr| expr.is_volatile_node())? {
            return Ok(plan);
        }
        let mut made = 0;
        let once = plan.transform_up_with_subqueries(|node| evaluated_once(node, &mut made))?;
        Ok(once.data)
    },
};

/// Functions that are written as CASE, with their arguments more than once.
const WRITTEN_OUT: &[&str] = &["coalesce", "nullif", "nvl", "nvl2", "ifnull", "greatest", "least"];

fn evaluated_once(node: LogicalPlan, made: &mut usize) -> Result<Transformed<LogicalPlan>> {
    let is_one = matches!(
        node,
        LogicalPlan::Filter(_)
            | LogicalPlan::Projection(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Window(_)
    );
    let mut is_volatile = false;
    if is_one {
        node.apply_expressions(|expr| {
            is_volatile |= expr.is_volatile();
            Ok(if is_volatile { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
    }
    let Some(input) = node.inputs().first().filter(|_| is_volatile).map(|input| (*input).clone()) else {
        return Ok(Transformed::no(node));
    };
    let keeps_columns =
        matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Window(_));
    let columns = node.schema().columns();
    let mut operands = Operands { made, found: Vec::new() };
    let names = NamePreserver::new(&node);
    let rewritten = node.map_expressions(|expr| {
        map_named(expr, &names, &mut |expr| expr.transform_up(|expr| operands.take_from(expr)))
    })?;
    if operands.found.is_empty() {
        return Ok(rewritten);
    }
    let shown = input.schema().columns().into_iter().map(Expr::Column).chain(operands.found);
    let input = LogicalPlanBuilder::from(input).project(shown.collect::<Vec<_>>())?.build()?;
    let exprs = rewritten.data.expressions();
    let plan = rewritten.data.with_new_exprs(exprs, vec![input])?;
    let plan = match keeps_columns {
        true => {
            let columns: Vec<Expr> = columns.into_iter().map(Expr::Column).collect();
            LogicalPlanBuilder::new_from_arc(Arc::new(plan)).project(columns)?.build()?
        }
        false => plan,
    };
    Ok(Transformed::yes(plan))
}

/// Volatile operands that become columns.
struct Operands<'a> {
    /// Those of the whole statement.
    made: &'a mut usize,
    found: Vec<Expr>,
}

impl Operands<'_> {
    fn take_from(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::Between(mut between) => {
                let changed = self.take(&mut between.expr);
                Transformed::new_transformed(Expr::Between(between), changed)
            }
            Expr::InList(mut list) => {
                let changed = self.take(&mut list.expr);
                Transformed::new_transformed(Expr::InList(list), changed)
            }
            Expr::Case(mut case) => {
                let changed = case.expr.as_mut().is_some_and(|operand| self.take(operand));
                Transformed::new_transformed(Expr::Case(case), changed)
            }
            Expr::ScalarFunction(mut function) if WRITTEN_OUT.contains(&function.func.name()) => {
                let taken: Vec<bool> = function.args.iter_mut().map(|arg| self.take(arg)).collect();
                Transformed::new_transformed(Expr::ScalarFunction(function), taken.contains(&true))
            }
            expr => Transformed::no(expr),
        })
    }

    /// Puts a column in the place of a volatile operand; whether it was one.
    fn take(&mut self, operand: &mut Expr) -> bool {
        let holds_rows = operand.exists(|expr| {
            Ok(matches!(expr, Expr::AggregateFunction(_) | Expr::WindowFunction(_) | Expr::ScalarSubquery(_)))
        });
        if !operand.is_volatile() || holds_rows.unwrap_or(true) {
            return false;
        }
        *self.made += 1;
        let column = Column::new(Some("__kelpie_volatile"), format!("v{}", self.made));
        let value = std::mem::replace(operand, Expr::Column(column.clone()));
        self.found.push(value.alias_qualified(column.relation, column.name));
        true
    }
}
