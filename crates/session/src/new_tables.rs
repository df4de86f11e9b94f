//! The columns of tables that CREATE TABLE AS makes. DataFusion takes a column for NOT NULL where the query's rows have no NULL, which says
//! nothing of rows that come later: `INSERT INTO t VALUES (NULL)` is then refused. Here such columns may be NULL, unless they are declared
//! otherwise.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::TableReference;
use datafusion::error::Result;
use datafusion::logical_expr::{DdlStatement, Expr, LogicalPlan};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{ColumnOption, Statement as Sql};

use crate::constraints::rules::RULES;
use crate::syntax::normal;

/// The columns that a statement declares NOT NULL.
pub(crate) fn not_null(statement: &Statement) -> Vec<String> {
    let Statement::Statement(statement) = statement else { return Vec::new() };
    let Sql::CreateTable(table) = statement.as_ref() else { return Vec::new() };
    let is_not_null = |option: &ColumnOption| matches!(option, ColumnOption::NotNull);
    let columns =
        table.columns.iter().filter(|column| column.options.iter().any(|def| is_not_null(&def.option)));
    columns.map(|column| normal(&column.name)).collect()
}

/// Whether a statement changes a table that is there: its columns stay as they are, though it is made anew.
pub(crate) fn is_alter(statement: &Statement) -> bool {
    matches!(statement, Statement::Statement(statement) if matches!(statement.as_ref(), Sql::AlterTable(_)))
}

/// A table that a plan makes of the rows of a query.
pub(crate) struct NewTable(TableReference);

impl NewTable {
    /// That of a plan which is not executed yet.
    pub fn of(plan: &LogicalPlan, context: &SessionContext) -> Result<Option<NewTable>> {
        let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) = plan else { return Ok(None) };
        let is_declared = matches!(create.input.as_ref(), LogicalPlan::EmptyRelation(_));
        let is_made = create.or_replace || !context.table_exist(create.name.clone())?;
        Ok((is_made && !is_declared).then(|| NewTable(create.name.clone())))
    }

    /// Lets its columns be NULL, once it is there.
    pub async fn take_nulls(self, context: &SessionContext, not_null: &[String]) -> Result<()> {
        let schema = context.state().schema_for_ref(self.0.clone())?;
        let Some(table) = schema.table(self.0.table()).await? else { return Ok(()) };
        let any: &dyn std::any::Any = table.as_ref();
        let Some(table) = any.downcast_ref::<MemTable>() else { return Ok(()) };
        let before = table.schema();
        let columns = nullable(&before, not_null);
        if columns == before {
            return Ok(());
        }
        let mut partitions = Vec::with_capacity(table.batches.len());
        for partition in &table.batches {
            let batches = partition.read().await;
            let batches = batches.iter().map(|batch| {
                let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = (Arc::clone(&columns), batch.columns().to_vec());
                Ok(RecordBatch::try_new_with_options(columns.0, columns.1, &rows)?)
            });
            partitions.push(batches.collect::<Result<Vec<_>>>()?);
        }
        let names = before.fields().iter().map(|field| field.name().as_str()).chain([RULES]);
        let defaults = names.filter_map(|name| {
            let default = table.get_column_default(name)?;
            Some((name.to_string(), default.clone()))
        });
        let defaults: HashMap<String, Expr> = defaults.collect();
        let mut made = MemTable::try_new(columns, partitions)?.with_column_defaults(defaults);
        if let Some(constraints) = table.constraints() {
            made = made.with_constraints(constraints.clone());
        }
        schema.deregister_table(self.0.table())?;
        schema.register_table(self.0.table().to_string(), Arc::new(made))?;
        Ok(())
    }
}

/// Columns that may be NULL but for some.
fn nullable(schema: &SchemaRef, not_null: &[String]) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let stays = field.is_nullable() || not_null.contains(field.name());
        if stays { Arc::clone(field) } else { Arc::new(field.as_ref().clone().with_nullable(true)) }
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}
