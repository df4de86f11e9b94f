//! The table whose rows a statement changes: what it has now, with a number for each row, and what it has then.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::common::{TableReference, exec_err, plan_err};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, TableAlias, TableFactor, Value,
};
use datafusion::sql::unparser::expr_to_sql;

use super::queries::{Queries, ROW, ROWS, Relation, rows_of};
use crate::constraints::checked_rows::{Checks, Turn, referring, scan_of, still_there};
use crate::constraints::rules::Rules;
use crate::database::Database;
use crate::syntax::{normal, quoted, reference_of};

/// A table that a statement may change, with its rows.
pub(super) struct Target {
    name: ObjectName,
    /// What the statement calls it.
    pub alias: TableAlias,
    reference: TableReference,
    provider: Arc<dyn TableProvider>,
    kept: Kept,
    /// All of its rows, as the statement finds them.
    pub rows: RecordBatch,
}

/// Where the rows lie, and what was there when they were read.
enum Kept {
    Memory(Vec<Vec<RecordBatch>>),
    Database { table: String, files: Vec<PathBuf> },
}

/// The session that a statement runs in.
pub(crate) struct Within<'a> {
    pub state: &'a SessionState,
    pub database: Option<&'a Database>,
    pub queries: &'a dyn Queries,
}

impl Within<'_> {
    /// The table behind a name, where it is one in memory or of the database: others are changed by whoever has made them.
    pub(super) async fn target(
        &self,
        name: &ObjectName,
        alias: Option<&TableAlias>,
    ) -> Result<Option<Target>> {
        let Some(reference) = reference_of(name) else { return Ok(None) };
        let Ok(schema) = self.state.schema_for_ref(reference.clone()) else { return Ok(None) };
        let Some(provider) = schema.table(reference.table()).await? else { return Ok(None) };
        let (kept, batches) = match self.kept(&provider, &reference).await? {
            Some(Kept::Memory(partitions)) => {
                let batches = partitions.iter().flatten().cloned().collect();
                (Kept::Memory(partitions), batches)
            }
            Some(kept) => {
                let source = provider_as_source(Arc::clone(&provider));
                let plan = LogicalPlanBuilder::scan(reference.clone(), source, None)?.build()?;
                (kept, self.queries.run(&plan).await?)
            }
            None => return Ok(None),
        };
        let rows = concat_batches(&provider.schema(), &batches)?;
        let alias = match (alias, name.0.last().and_then(ObjectNamePart::as_ident)) {
            (Some(alias), _) => alias.clone(),
            (None, Some(name)) => alias_of(name.clone()),
            (None, None) => return Ok(None),
        };
        Ok(Some(Target { name: name.clone(), alias, reference, provider, kept, rows }))
    }

    async fn kept(&self, provider: &Arc<dyn TableProvider>, name: &TableReference) -> Result<Option<Kept>> {
        let any: &dyn Any = provider.as_ref();
        if let Some(table) = any.downcast_ref::<MemTable>() {
            let mut partitions = Vec::with_capacity(table.batches.len());
            for partition in &table.batches {
                partitions.push(partition.read().await.clone());
            }
            return Ok(Some(Kept::Memory(partitions)));
        }
        let Some(database) = self.database else { return Ok(None) };
        match database.kept_name(name, self.state) {
            Some(table) => Ok(Some(Kept::Database { files: database.files_of(&table)?, table })),
            None => Ok(None),
        }
    }
}

/// A name as an alias.
pub(super) fn alias_of(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: vec![], at: None }
}

impl Target {
    pub fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    /// What it says of its rows.
    pub fn rules(&self) -> Rules {
        Rules::of(self.provider.as_ref())
    }

    /// Its columns, any of which may be NULL in rows that were not looked at yet.
    pub fn unchecked_schema(&self) -> SchemaRef {
        let fields = self
            .rows
            .schema()
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect::<Vec<_>>();
        Arc::new(Schema::new(fields))
    }

    /// An error where new rows are not as the table says, by themselves or beside those that stay. Until what comes back is let go of,
    /// nobody else writes rows that would be compared with these.
    pub async fn check(&self, new: &RecordBatch, stay: &RecordBatch, within: &Within<'_>) -> Result<Turn> {
        let turn = Turn::of(within.state).await;
        if let Some(checks) = Checks::of(&self.reference, self.provider.as_ref(), within.state)? {
            checks.hold_alone(new)?;
            let others = scan_of(std::slice::from_ref(stay), &self.schema())?;
            checks.hold_together(std::slice::from_ref(new), Some(&others)).await?;
        }
        if !referring(&self.reference, within.state).await?.is_empty() {
            let after = concat_batches(&self.schema(), [stay, new])?;
            still_there(&self.reference, &after, within.state).await?;
        }
        Ok(turn)
    }

    /// Its rows with their numbers, as a relation of a query.
    pub fn relation(&self) -> Result<Relation> {
        let schema = self.schema();
        let number = Arc::new(Field::new(ROW, DataType::Int64, false));
        let fields: Vec<_> = schema.fields().iter().cloned().chain([number]).collect();
        let numbers = Int64Array::from_iter_values(0..self.rows.num_rows() as i64);
        let columns = self.rows.columns().iter().cloned().chain([Arc::new(numbers) as ArrayRef]).collect();
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        Relation::of(ROWS, rows)
    }

    /// The name of that relation in a query.
    pub fn factor(&self) -> TableFactor {
        rows_of(ROWS, self.alias.clone())
    }

    /// The number of a row, in such a query.
    pub fn number(&self) -> Expr {
        Expr::CompoundIdentifier(vec![self.alias.name.clone(), quoted(ROW)])
    }

    /// The place of a column, in any case of its name where only one is meant.
    pub fn place(&self, name: &ObjectName) -> Result<usize> {
        let schema = self.schema();
        let (Some(column), is_own) = (name.0.last().and_then(ObjectNamePart::as_ident), name.0.len() <= 2)
        else {
            return plan_err!("{name} is no name of a column");
        };
        let table = name.0.first().and_then(ObjectNamePart::as_ident).filter(|_| name.0.len() == 2);
        let is_own = is_own && table.is_none_or(|table| normal(table) == normal(&self.alias.name));
        let wanted = normal(column);
        let fields = schema.fields();
        let found = fields.iter().position(|field| *field.name() == wanted).or_else(|| {
            let mut like =
                fields.iter().enumerate().filter(|(_, field)| field.name().eq_ignore_ascii_case(&wanted));
            like.next().map(|(place, _)| place).filter(|_| like.next().is_none())
        });
        match found.filter(|_| is_own) {
            Some(place) => Ok(place),
            None => {
                let names: Vec<String> = fields.iter().map(|field| format!("`{}`", field.name())).collect();
                plan_err!("there is no column `{name}` in `{}`; there are {}", self.name, names.join(", "))
            }
        }
    }

    /// What a column is where nothing is said.
    pub fn default_of(&self, place: usize) -> Result<Expr> {
        match self.provider.get_column_default(self.schema().field(place).name()) {
            Some(default) => expr_to_sql(default),
            None => Ok(Expr::value(Value::Null)),
        }
    }

    /// Puts other rows in the place of those that were read. Where somebody else has changed them meanwhile, that is an error: nothing is
    /// lost.
    pub async fn replace(&self, columns: Vec<ArrayRef>, within: &Within<'_>) -> Result<()> {
        let count = columns.first().map_or(0, |column| column.len());
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let rows = RecordBatch::try_new_with_options(self.schema(), columns, &options)?;
        match &self.kept {
            Kept::Memory(before) => self.replace_in_memory(before, rows).await,
            Kept::Database { table, files } => {
                let Some(database) = within.database else { return exec_err!("the database is closed") };
                if database.files_of(table)? != *files {
                    return self.changed_meanwhile();
                }
                let schema = rows.schema();
                let rows = MemorySourceConfig::try_new_exec(&[vec![rows]], Arc::clone(&schema), None)?;
                database.create_table(table, (rows, schema), None, within.state).await
            }
        }
    }

    async fn replace_in_memory(&self, before: &[Vec<RecordBatch>], rows: RecordBatch) -> Result<()> {
        let any: &dyn Any = self.provider.as_ref();
        let Some(table) = any.downcast_ref::<MemTable>() else { return self.changed_meanwhile() };
        let mut partitions = Vec::with_capacity(table.batches.len());
        for partition in &table.batches {
            partitions.push(partition.write().await);
        }
        let is_same = |now: &[RecordBatch], before: &[RecordBatch]| {
            let pairs = || now.iter().zip(before);
            let are_columns = |(now, before): (&RecordBatch, &RecordBatch)| {
                now.num_rows() == before.num_rows()
                    && now
                        .columns()
                        .iter()
                        .zip(before.columns())
                        .all(|(now, before)| Arc::ptr_eq(now, before))
            };
            now.len() == before.len() && pairs().all(are_columns)
        };
        if !partitions.iter().zip(before).all(|(now, before)| is_same(now, before)) {
            return self.changed_meanwhile();
        }
        let Some((first, others)) = partitions.split_first_mut() else {
            return exec_err!("{} has no room for rows: make it anew", self.name);
        };
        **first = if rows.num_rows() == 0 { vec![] } else { vec![rows] };
        others.iter_mut().for_each(|partition| partition.clear());
        // They need not be in the order that was declared.
        table.sort_order.lock().clear();
        Ok(())
    }

    fn changed_meanwhile<T>(&self) -> Result<T> {
        exec_err!(
            "{} was changed by another statement meanwhile, and nothing by this one: run it again",
            self.name
        )
    }
}
