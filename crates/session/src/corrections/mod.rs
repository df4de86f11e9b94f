//! What Kelpie mends of DataFusion (docs/corrections.md): a statement's syntax tree before it is planned, and plans before they are
//! optimized. `kelpie.corrections = off` leaves all as it is.

mod bags;
mod calls;
mod clauses;
mod digits;
mod kept_rules;
mod like;
mod merged_keys;
mod numbers;
mod orders;
mod precedence;
mod refused;
mod reset;
mod same_names;
mod subqueries;
mod unique_names;
mod volatile;
mod windows;
mod zones;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::parser::Statement;

pub(crate) use bags::NumberedCopies;
pub(crate) use digits::without_underscores;
pub(crate) use kept_rules::keep_from_rules;
pub(crate) use merged_keys::write_out as write_out_merged_keys;
pub(crate) use orders::SplitOrders;
pub(crate) use subqueries::SubqueryValues;
pub(crate) use unique_names::{is_for_names, rename as unique_names};
pub(crate) use volatile::VolatileOnce;

/// Mends what the syntax alone shows. What is parsed and would have no effect is an error.
pub(crate) fn correct(statement: &mut Statement) -> Result<()> {
    reset::set_to_default(statement);
    same_names::tell_apart(statement);
    clauses::write_out(statement);
    refused::refuse(statement)?;
    precedence::group(statement);
    windows::resolve(statement)?;
    calls::rewrite(statement);
    like::escape(statement);
    bags::count_copies(statement);
    numbers::keep_digits(statement);
    zones::as_calls(statement);
    Ok(())
}

/// Whether a plan, subqueries included, has an expression of a kind.
fn has_expr(plan: &LogicalPlan, is_meant: impl Fn(&Expr) -> bool) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|expr| Ok(is_meant(expr)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}
