//! Rows that INSERT brings to a table.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, WriteOp, cast};

/// Rows to insert in the types of their table: where a value stands now, a placeholder that was planned was of the table's type, and rules
/// of analysis give texts that are times another unit.
pub(crate) fn as_the_table_has_it(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Dml(mut write) = plan else { return Ok(plan) };
    let (input, table) = (write.input.schema(), write.target.schema());
    let is_insert = matches!(write.op, WriteOp::Insert(_));
    let mut types = input.fields().iter().zip(table.fields());
    let differs = types.any(|(field, wanted)| field.data_type() != wanted.data_type());
    if is_insert && differs && input.fields().len() == table.fields().len() {
        let columns = input.iter().zip(table.fields()).map(|((qualifier, field), wanted)| {
            let column = Expr::from((qualifier, field));
            match field.data_type() == wanted.data_type() {
                true => column,
                false => cast(column, wanted.data_type().clone()).alias(field.name()),
            }
        });
        let columns: Vec<Expr> = columns.collect();
        write.input = Arc::new(LogicalPlanBuilder::new_from_arc(write.input).project(columns)?.build()?);
    }
    Ok(LogicalPlan::Dml(write))
}
