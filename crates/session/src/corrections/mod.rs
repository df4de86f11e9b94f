//! What Kelpie mends of DataFusion (docs/corrections.md): a statement's syntax tree before it is planned, and plans before they are
//! optimized. `kelpie.corrections = off` leaves all as it is.

mod bags;
mod calls;
mod clauses;
mod digits;
mod null_equality;
mod precedence;
mod refused;
mod subqueries;
mod windows;

use datafusion::error::Result;
use datafusion::sql::parser::Statement;

pub(crate) use bags::NumberedCopies;
pub(crate) use digits::without_underscores;
pub(crate) use null_equality::keep_null_equality;
pub(crate) use subqueries::SubqueryValues;

/// Mends what the syntax alone shows. What is parsed and would have no effect is an error.
pub(crate) fn correct(statement: &mut Statement) -> Result<()> {
    clauses::write_out(statement);
    refused::refuse(statement)?;
    precedence::group(statement);
    windows::resolve(statement)?;
    calls::rewrite(statement);
    bags::count_copies(statement);
    Ok(())
}
