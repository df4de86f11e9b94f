//! Rows on their way into a table that says something of them.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::{TableReference, exec_err, plan_err};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use kelpie_datafusion::KelpieOptions;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::conditions::Conditions;
use super::keys::NewRows;
use super::rules::{KeyKind, Reference, Rules, violated};

/// Who writes rows that are compared with others, one after the other: of a session, or of a database.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    turn: Arc<Mutex<()>>,
    /// Tables whose rows name those of others.
    referring: parking_lot::Mutex<BTreeSet<String>>,
    /// Indexes by their names, with their tables.
    pub indexes: parking_lot::Mutex<BTreeMap<String, TableReference>>,
}

impl Writing {
    /// Follows a table to another name.
    pub fn rename(&self, from: &TableReference, to: &TableReference) {
        for table in self.indexes.lock().values_mut().filter(|table| **table == *from) {
            *table = to.clone();
        }
        let mut referring = self.referring.lock();
        if referring.remove(from.table()) {
            referring.insert(to.table().to_string());
        }
    }

    /// Remembers a table whose rows name those of others, and its indexes.
    pub fn remember(&self, table: &str, rules: &Rules) {
        if !rules.references.is_empty() {
            self.referring.lock().insert(table.to_string());
        }
        let indexes = rules.keys.iter().filter(|key| key.kind == KeyKind::Index);
        let names = indexes.filter_map(|key| key.name.clone());
        self.indexes.lock().extend(names.map(|name| (name, TableReference::bare(table))));
    }
}

/// As long as it is there, nobody else writes such rows.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "it is let go of")] Option<OwnedMutexGuard<()>>);

impl Turn {
    /// Waits until it is the turn of whoever asks.
    pub async fn of(state: &SessionState) -> Turn {
        match state.config().get_extension::<Writing>() {
            Some(writing) => Turn(Some(Arc::clone(&writing.turn).lock_owned().await)),
            None => Turn(None),
        }
    }
}

/// What is said of the rows of a table, and what they are compared with.
#[derive(Debug, Clone)]
pub(crate) struct Checks {
    pub name: TableReference,
    pub rules: Arc<Rules>,
    pub schema: SchemaRef,
    conditions: Conditions,
    pub state: SessionState,
}

impl Checks {
    /// Those of a table; nothing where it says nothing of its rows.
    pub fn of(
        name: &TableReference,
        table: &dyn TableProvider,
        state: &SessionState,
    ) -> Result<Option<Checks>> {
        let (rules, schema) = (Rules::of(table), table.schema());
        let says = rules.compare_rows()
            || !rules.checks.is_empty()
            || !rules.types.is_empty()
            || schema.fields().iter().any(|field| !field.is_nullable());
        if !says {
            return Ok(None);
        }
        Checks::with(name, (rules, schema), state).map(Some)
    }

    /// Those of a table that is to say this of its rows.
    pub fn with(
        name: &TableReference,
        (rules, schema): (Rules, SchemaRef),
        state: &SessionState,
    ) -> Result<Checks> {
        let conditions = Conditions::of(name.table(), &rules, &schema, state)?;
        let (name, mut state) = (name.clone(), state.clone());
        // Its queries are over rows that no later one has.
        if let Some(options) = state.config_mut().options_mut().extensions.get_mut::<KelpieOptions>() {
            options.kept_plans = 0;
        }
        Ok(Checks { name, rules: Arc::new(rules), schema, conditions, state })
    }

    /// An error where a row by itself is not as the table says.
    pub fn hold_alone(&self, rows: &RecordBatch) -> Result<()> {
        self.conditions.hold(rows)
    }

    /// An error where new rows do not go together with each other and with others; nothing: with those that there are.
    pub async fn hold_together(&self, rows: &[RecordBatch], others: Option<&LogicalPlan>) -> Result<()> {
        let table = self.name.table();
        let new = NewRows { table, rows, schema: Arc::clone(&self.schema), state: &self.state };
        for key in &self.rules.keys {
            new.are_new(key, others).await?;
        }
        for reference in &self.rules.references {
            let name = reference.table.as_str();
            if name.eq_ignore_ascii_case(table) {
                let mut all = LogicalPlanBuilder::from(scan_of(rows, &self.schema)?);
                if let Some(others) = others {
                    all = all.union(others.clone())?;
                }
                new.are_there(reference, &all.build()?).await?;
                continue;
            }
            let Some(other) = table_of(&self.in_schema(reference), &self.state).await? else {
                return exec_err!("{reference}: there is no table {name} any more");
            };
            let source = provider_as_source(other);
            let plan = LogicalPlanBuilder::scan(TableReference::bare(name), source, None)?.build()?;
            new.are_there(reference, &plan).await?;
        }
        Ok(())
    }

    /// The table that a reference is to: one beside its own.
    fn in_schema(&self, reference: &Reference) -> TableReference {
        beside(&self.name, &reference.table)
    }
}

/// A table of the same schema as another one.
pub(super) fn beside(table: &TableReference, name: &str) -> TableReference {
    match (table.catalog(), table.schema()) {
        (Some(catalog), Some(schema)) => TableReference::full(catalog, schema, name),
        (None, Some(schema)) => TableReference::partial(schema, name),
        _ => TableReference::bare(name),
    }
}

/// Some rows of a table as a plan.
pub(crate) fn scan_of(rows: &[RecordBatch], schema: &SchemaRef) -> Result<LogicalPlan> {
    let rows = rows.iter().map(|rows| Ok(RecordBatch::try_new(Arc::clone(schema), rows.columns().to_vec())?));
    let table = MemTable::try_new(Arc::clone(schema), vec![rows.collect::<Result<_>>()?])?;
    LogicalPlanBuilder::scan("rows", provider_as_source(Arc::new(table)), None)?.build()
}

/// The table of a name as it is now.
pub(crate) async fn table_of(
    name: &TableReference,
    state: &SessionState,
) -> Result<Option<Arc<dyn TableProvider>>> {
    match state.schema_for_ref(name.clone()) {
        Ok(schema) => schema.table(name.table()).await,
        Err(_) => Ok(None),
    }
}

/// The rows that a table has, as a plan; nothing where there are none.
pub(crate) async fn rows_there(
    name: &TableReference,
    table: Arc<dyn TableProvider>,
) -> Result<Option<LogicalPlan>> {
    let any: &dyn Any = table.as_ref();
    if let Some(memory) = any.downcast_ref::<MemTable>() {
        let mut is_empty = true;
        for partition in &memory.batches {
            is_empty &= partition.read().await.iter().all(|rows| rows.num_rows() == 0);
        }
        if is_empty {
            return Ok(None);
        }
    }
    LogicalPlanBuilder::scan(name.clone(), provider_as_source(table), None)?.build().map(Some)
}

/// The tables whose rows name those of a table, and how.
pub(crate) async fn referring(
    name: &TableReference,
    state: &SessionState,
) -> Result<Vec<(TableReference, Reference)>> {
    let Some(writing) = state.config().get_extension::<Writing>() else { return Ok(vec![]) };
    let mut found = Vec::new();
    let names: Vec<String> = writing.referring.lock().iter().cloned().collect();
    for other in names.iter().filter(|other| !other.eq_ignore_ascii_case(name.table())) {
        let other = beside(name, other);
        let Some(table) = table_of(&other, state).await? else { continue };
        let references = Rules::of(table.as_ref()).references.into_iter();
        let own = references.filter(|reference| reference.table.eq_ignore_ascii_case(name.table()));
        found.extend(own.map(|reference| (other.clone(), reference)));
    }
    Ok(found)
}

/// An error where a table is not to go, or to be another one, as rows of others name its own.
pub(crate) async fn refuse_named(name: &TableReference, state: &SessionState) -> Result<()> {
    match referring(name, state).await?.first() {
        Some((other, reference)) => {
            plan_err!("{name} has to stay as it is: {other} has {reference}")
        }
        None => Ok(()),
    }
}

/// An error where other tables name rows that are not there any more. `after`: all rows of the table.
pub(crate) async fn still_there(
    name: &TableReference,
    after: &RecordBatch,
    state: &SessionState,
) -> Result<()> {
    for (other, reference) in referring(name, state).await? {
        let Some(table) = table_of(&other, state).await? else { continue };
        let Some(rows) = rows_there(&other, table).await? else { continue };
        let there = scan_of(std::slice::from_ref(after), &after.schema())?;
        if let Some(found) = super::keys::lost(&reference, (&rows, &there), state).await? {
            let why = format!("a row has {found}, and {} would have no such row any more", name.table());
            return Err(violated(&reference, other.table(), &why));
        }
    }
    Ok(())
}
