//! What a statement that changes rows answers: how many they were, or what RETURNING says of them.

use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{Select, SelectItem, SetExpr, TableAlias};

use super::queries::{CHANGED, Queries, Relation, all_of, alone, rows_of, statement};
use crate::syntax::{plain_query, select_all};

/// The rows that were changed, and what is asked of them.
pub(super) struct Returning<'a> {
    items: Option<&'a [SelectItem]>,
    alias: &'a TableAlias,
    rows: RecordBatch,
}

impl<'a> Returning<'a> {
    pub fn of(items: Option<&'a [SelectItem]>, alias: &'a TableAlias, rows: RecordBatch) -> Returning<'a> {
        Returning { items, alias, rows }
    }

    pub async fn answer(self, queries: &dyn Queries) -> Result<RecordBatch> {
        let Some(items) = self.items else { return count(self.rows.num_rows()) };
        let from = vec![alone(rows_of(CHANGED, self.alias.clone()))];
        let select = Select { projection: items.to_vec(), ..select_all(from) };
        let query = plain_query(SetExpr::Select(Box::new(select)));
        let plan = queries.plan(statement(query), &[Relation::of(CHANGED, self.rows)?]).await?;
        all_of(queries, &plan).await
    }
}

/// A number of rows, as INSERT answers it.
pub(super) fn count(rows: usize) -> Result<RecordBatch> {
    let schema = Schema::new(vec![Field::new("count", DataType::UInt64, false)]);
    let count = UInt64Array::from(vec![u64::try_from(rows).unwrap_or(u64::MAX)]);
    Ok(RecordBatch::try_new(Arc::new(schema), vec![Arc::new(count)])?)
}
