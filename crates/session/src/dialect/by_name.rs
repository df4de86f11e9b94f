//! `INSERT INTO t BY NAME SELECT …`: the columns are those of the query, which are known when it is planned.

use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{ObjectName, ObjectNamePart, Query, Statement as Sql};

use super::statements::BY_NAME;
use crate::corrections::{Which, write_out_columns};
use crate::syntax::{quoted, statement_of};

/// Names the columns that such a statement inserts into.
pub(crate) async fn name_columns(state: &SessionState, statement: &mut Statement) -> Result<()> {
    let Some(query) = query_by_name(statement) else { return Ok(()) };
    let mut query = statement_of(query);
    write_out_columns(state, &mut query, Which::Merged).await?;
    let plan = state.statement_to_plan(query).await?;
    let names = plan.schema().fields().iter();
    let names = names.map(|field| ObjectName(vec![ObjectNamePart::Identifier(quoted(field.name()))]));
    if let Statement::Statement(statement) = statement
        && let Sql::Insert(insert) = statement.as_mut()
    {
        insert.columns = names.collect();
    }
    Ok(())
}

fn query_by_name(statement: &Statement) -> Option<Query> {
    let Statement::Statement(statement) = statement else { return None };
    let Sql::Insert(insert) = statement.as_ref() else { return None };
    let [ObjectName(parts)] = insert.columns.as_slice() else { return None };
    let is_by_name = matches!(parts.as_slice(), [ObjectNamePart::Identifier(name)] if name.value == BY_NAME);
    insert.source.as_deref().filter(|_| is_by_name).cloned()
}
