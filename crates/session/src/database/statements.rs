//! Statements that change what a database holds.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{TableReference, exec_err, not_impl_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{
    CreateMemoryTable, DdlStatement, Expr, LogicalPlan, Statement as LogicalStatement,
};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};

use super::{Database, Persist, rows};
use crate::constraints::rules::{RULES, Rules};

/// What a statement changes of a database.
#[derive(Debug)]
pub(crate) enum Change {
    /// A new table, with these rows.
    Table(CreateMemoryTable),
    /// A table that goes.
    DropTable(String),
    /// A view, which the session makes before.
    View(String),
    /// A view that goes, once the session has let go of it.
    DropView(String),
    /// An option with its value for later sessions; without one it is forgotten.
    Setting(String, Option<String>),
}

impl Change {
    /// What a plan changes of a database, if anything.
    pub fn of(
        plan: &LogicalPlan,
        (database, persist): (&Database, Persist),
        state: &SessionState,
    ) -> Option<Change> {
        let own = |name: &TableReference| name_in(name, state);
        match plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) if !create.temporary => {
                Some(Change::Table(create.clone()))
            }
            LogicalPlan::Ddl(DdlStatement::DropTable(drop)) => {
                own(&drop.name).and_then(|name| database.meant(&name)).map(Change::DropTable)
            }
            LogicalPlan::Ddl(DdlStatement::CreateView(create)) if !create.temporary => {
                own(&create.name).map(Change::View)
            }
            LogicalPlan::Ddl(DdlStatement::DropView(drop)) => {
                own(&drop.name).filter(|name| database.has_view(name)).map(Change::DropView)
            }
            LogicalPlan::Statement(LogicalStatement::SetVariable(set)) if persist == Persist::Database => {
                Some(Change::Setting(set.variable.to_lowercase(), Some(set.value.clone())))
            }
            LogicalPlan::Statement(LogicalStatement::ResetVariable(reset))
                if persist == Persist::Database =>
            {
                Some(Change::Setting(reset.variable.to_lowercase(), None))
            }
            _ => None,
        }
    }
}

/// The name of a table of the default schema; nothing where it is one of another schema.
fn name_in(name: &TableReference, state: &SessionState) -> Option<String> {
    let names = &state.config_options().catalog;
    let resolved = name.clone().resolve(&names.default_catalog, &names.default_schema);
    let is_own = *resolved.catalog == *names.default_catalog && *resolved.schema == *names.default_schema;
    is_own.then(|| resolved.table.to_string())
}

impl Database {
    /// The table of the database that a reference means, if any.
    pub(crate) fn kept_name(&self, name: &TableReference, state: &SessionState) -> Option<String> {
        name_in(name, state).and_then(|name| self.meant(&name))
    }

    /// The table that a name means: this one, or the only one that differs in case.
    pub(crate) fn meant(&self, name: &str) -> Option<String> {
        if self.has_table(name) {
            return Some(name.to_string());
        }
        let lower = name.to_lowercase();
        let mut like = self.tables().into_iter().filter(|known| known.to_lowercase() == lower);
        like.next().filter(|_| like.next().is_none())
    }

    /// The name that a new table gets; nothing where it is not to be made, as there is one. `is_there`: whether the session has
    /// anything of that name.
    pub(crate) fn name_of_new(
        &self,
        create: &CreateMemoryTable,
        is_there: bool,
        state: &SessionState,
    ) -> Result<Option<String>> {
        let Some(name) = name_in(&create.name, state) else {
            let schema = &state.config_options().catalog.default_schema;
            return plan_err!("{}: a database keeps tables of the schema {schema} only", create.name);
        };
        match (is_there, create.if_not_exists, create.or_replace) {
            (false, _, _) => Ok(Some(name)),
            (true, true, true) => exec_err!("'IF NOT EXISTS' cannot coexist with 'REPLACE'"),
            (true, true, false) => Ok(None),
            (true, false, false) => exec_err!("Table '{}' already exists", create.name),
            (true, false, true) => match self.meant(&name) {
                Some(name) => Ok(Some(name)),
                None => {
                    plan_err!("{name} is no table of the database, and not replaced by one: drop it before")
                }
            },
        }
    }

    /// Makes a table of the rows that a plan gives, in place of the one that has the name; without rules it says of them what it has said.
    pub(crate) async fn create_table(
        &self,
        name: &str,
        (plan, schema): (Arc<dyn ExecutionPlan>, SchemaRef),
        rules: Option<&Rules>,
        state: &SessionState,
    ) -> Result<()> {
        let mut stream = execute_stream(plan, Arc::new(state.into()))?;
        let new = rows::write(self, &schema, &mut stream).await?;
        new.keep(|file| self.put_table(name, file, rules)).map(|_| ())
    }

    /// Carries out a change beside that of the session, which is made; `text`: the statement.
    pub(crate) fn carry_out(&self, change: &Change, text: &str) -> Result<()> {
        match change {
            Change::Table(_) => Ok(()),
            Change::DropTable(name) => self.drop_table(name),
            Change::View(name) => self.put_view(name, text),
            Change::DropView(name) => self.drop_view(name),
            Change::Setting(name, value) => self.put_setting(name, value.as_deref()),
        }
    }
}

/// What a new table says of its rows. DataFusion's defaults alone, which are those of a session without corrections, are none in SQL.
pub(crate) fn rules_of(create: &CreateMemoryTable) -> Result<Rules> {
    let rules = Rules::among(&create.column_defaults);
    if !create.constraints.is_empty() {
        return not_impl_err!("PRIMARY KEY and UNIQUE of a table of a database: nothing would see to them");
    }
    let lost = |column: &&(String, Expr)| column.0 != RULES && !rules.defaults.contains_key(&column.0);
    match create.column_defaults.iter().find(lost) {
        Some((column, _)) => not_impl_err!("DEFAULT of a column of a table of a database: {column}"),
        None => Ok(rules),
    }
}

/// The columns of a new table. What a file of rows cannot hold is an error.
pub(crate) fn columns_of(create: &CreateMemoryTable) -> Result<SchemaRef> {
    let mut schema = Arc::clone(create.input.schema().inner());
    // That the rows of a query have no NULL says nothing of those that come later; columns that are declared may say so.
    if !matches!(create.input.as_ref(), LogicalPlan::EmptyRelation(_)) {
        let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        schema = Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()));
    }
    if schema.fields().is_empty() {
        return plan_err!("{}: a table of a database has columns", create.name);
    }
    let mut names = HashSet::new();
    match schema.fields().iter().find(|field| !names.insert(field.name())) {
        Some(twice) => plan_err!("{}: two columns are named {}", create.name, twice.name()),
        None => Ok(schema),
    }
}
