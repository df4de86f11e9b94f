//! ALTER TABLE: another name for a table, and for a column that the table is made anew of its own rows. Only tables in memory and those of a database are: what
//! is in a file stays as it is.

use std::any::Any;

use datafusion::catalog::TableProvider;
use datafusion::common::{TableReference, plan_err};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, ColumnDef, ColumnOption, DataType, Expr, Ident,
    ObjectName, Query, RenameTableNameKind, SelectItem, SetExpr, Statement as Sql, TableWithJoins, Value,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::types;
use crate::constraints::altered::{add_constraint, check_rows};
use crate::constraints::checked_rows::{Writing, referring, refuse_named};
use crate::constraints::rules::Rules;
use crate::database::Database;
use crate::syntax::{self, normal, plain_query, quoted, reference_of, select_all, table_named, taken};

/// Writes such a statement as one that makes the table anew, and gives what that says of its rows; others stay as they are.
pub(crate) async fn written_anew(
    state: &SessionState,
    database: Option<&Database>,
    statement: &mut Statement,
) -> Result<Option<Rules>> {
    let Statement::Statement(inner) = statement else { return Ok(None) };
    let (name, (query, rules)) = match inner.as_mut() {
        Sql::AlterTable(alter) => {
            let name = alter.name.clone();
            if let [AlterTableOperation::RenameTable { table_name }] = alter.operations.as_slice() {
                let (RenameTableNameKind::To(to) | RenameTableNameKind::As(to)) = table_name;
                rename(state, database, (&name, to), alter.if_exists).await?;
                **inner = nothing(&name)?;
                return Ok(None);
            }
            let Some(columns) = Columns::of(state, database, &name, alter.if_exists).await? else {
                **inner = nothing(&name)?;
                return Ok(None);
            };
            let adds = |operation: &AlterTableOperation| {
                matches!(operation, AlterTableOperation::AddConstraint { .. })
            };
            let adds_constraint = alter.operations.iter().any(adds);
            let altered = columns.altered(alter)?;
            if adds_constraint {
                check_rows(&reference(&name)?, &altered.1, state).await?;
            }
            (name, altered)
        }
        Sql::CreateView(view) if view.if_not_exists => {
            if is_there(state, &view.name).await? {
                **inner = nothing(&view.name)?;
            } else {
                view.if_not_exists = false;
            }
            return Ok(None);
        }
        _ => return Ok(None),
    };
    let made = Parser::parse_sql(&GenericDialect, "CREATE OR REPLACE TABLE made AS SELECT 1")?.pop();
    if let Some(Sql::CreateTable(mut made)) = made {
        made.name = name;
        made.query = Some(Box::new(query));
        **inner = Sql::CreateTable(made);
    }
    Ok(Some(rules))
}

/// A statement by which nothing is done: of the kind that something of this name is not, or of nothing.
fn nothing(name: &ObjectName) -> Result<Sql> {
    let nothing = format!("DROP TABLE IF EXISTS {}", quoted(format!("kelpie: no {name}")));
    match Parser::parse_sql(&GenericDialect, &nothing)?.pop() {
        Some(nothing) => Ok(nothing),
        None => plan_err!("{name} is no name of a table"),
    }
}

fn reference(table: &ObjectName) -> Result<TableReference> {
    match reference_of(table) {
        Some(reference) => Ok(reference),
        None => plan_err!("{table} is no name of a table"),
    }
}

/// Whether something of a name is there.
async fn is_there(state: &SessionState, name: &ObjectName) -> Result<bool> {
    let reference = reference(name)?;
    Ok(state.schema_for_ref(reference.clone())?.table(reference.table()).await?.is_some())
}

/// Gives a table another name.
async fn rename(
    state: &SessionState,
    database: Option<&Database>,
    (from, to): (&ObjectName, &ObjectName),
    may_lack: bool,
) -> Result<()> {
    if Columns::of(state, database, from, may_lack).await?.is_none() {
        return Ok(());
    }
    let (old, new) = (reference(from)?, reference(to)?);
    refuse_named(&old, state).await?;
    if new.schema().is_some() {
        return plan_err!("ALTER TABLE … RENAME TO takes a name without a schema: {to}");
    }
    let in_schema = match &old {
        TableReference::Bare { .. } => new.clone(),
        TableReference::Partial { schema, .. } => TableReference::partial(schema.as_ref(), new.table()),
        TableReference::Full { catalog, schema, .. } => {
            TableReference::full(catalog.as_ref(), schema.as_ref(), new.table())
        }
    };
    let schema = state.schema_for_ref(in_schema)?;
    if schema.table(new.table()).await?.is_some() {
        return plan_err!("there is a table {to} already");
    }
    if let Some(writing) = state.config().get_extension::<Writing>() {
        writing.rename(&old, &new);
    }
    if let Some(kept) = database.and_then(|database| Some((database, database.kept_name(&old, state)?))) {
        return kept.0.rename_table(&kept.1, new.table());
    }
    if let Some(table) = schema.deregister_table(old.table())? {
        schema.register_table(new.table().to_string(), table)?;
    }
    Ok(())
}

/// The columns of a table that can be made anew.
struct Columns {
    table: ObjectName,
    items: Vec<Column>,
    rules: Rules,
    /// Whether rows of other tables name its own.
    is_named: bool,
}

/// A column, and what it is of the rows that there are.
struct Column {
    name: Ident,
    value: Expr,
}

impl Columns {
    /// Nothing of a table that need not be there and is not.
    async fn of(
        state: &SessionState,
        database: Option<&Database>,
        table: &ObjectName,
        may_lack: bool,
    ) -> Result<Option<Columns>> {
        let reference = reference(table)?;
        let provider = state.schema_for_ref(reference.clone())?.table(reference.table()).await?;
        let Some(provider) = provider else {
            return if may_lack { Ok(None) } else { plan_err!("there is no table {table}") };
        };
        let any: &dyn Any = provider.as_ref();
        let is_kept = database.is_some_and(|database| database.meant(reference.table()).is_some());
        if !any.is::<MemTable>() && !is_kept {
            return plan_err!(
                "{table} is no table in memory or of a database: make one, by CREATE TABLE … AS SELECT … FROM {table}"
            );
        }
        let schema = provider.schema();
        let items = schema.fields().iter().map(|field| {
            let name = quoted(field.name());
            Column { value: Expr::Identifier(name.clone()), name }
        });
        let rules = Rules::of(provider.as_ref());
        let is_named = !referring(&reference, state).await?.is_empty();
        let columns = Columns { table: table.clone(), items: items.collect(), rules, is_named };
        columns.refuse_defaults(provider.as_ref())?;
        Ok(Some(columns))
    }

    /// What the table is made of has no defaults but those that are known in SQL.
    fn refuse_defaults(&self, provider: &dyn TableProvider) -> Result<()> {
        let is_lost = |column: &&Column| {
            let name = &column.name.value;
            provider.get_column_default(name).is_some() && !self.rules.defaults.contains_key(name)
        };
        match self.items.iter().find(is_lost) {
            Some(column) => {
                plan_err!("{} has a DEFAULT, which would be lost: make the table anew", column.name)
            }
            None => Ok(()),
        }
    }

    /// The place of a column, in any case of its name where only one is meant.
    fn place(&self, name: &Ident) -> Option<usize> {
        let wanted = normal(name);
        let place = self.items.iter().position(|column| column.name.value == wanted);
        place.or_else(|| self.items.iter().position(|column| column.name.value.eq_ignore_ascii_case(&wanted)))
    }

    fn found(&self, name: &Ident) -> Result<usize> {
        match self.place(name) {
            Some(place) => Ok(place),
            None => plan_err!("{} has no column {name}", self.table),
        }
    }

    /// The rows of the table after all operations, and what it says of them.
    fn altered(mut self, alter: &mut AlterTable) -> Result<(Query, Rules)> {
        for operation in &mut alter.operations {
            self.alter(operation)?;
        }
        let table = table_named(self.table.clone());
        let mut select = select_all(vec![TableWithJoins { relation: table, joins: vec![] }]);
        let items = self.items.into_iter();
        select.projection = items
            .map(|column| SelectItem::ExprWithAlias { expr: column.value, alias: column.name })
            .collect();
        Ok((plain_query(SetExpr::Select(Box::new(select))), self.rules))
    }

    fn alter(&mut self, operation: &mut AlterTableOperation) -> Result<()> {
        match operation {
            AlterTableOperation::AddColumn { if_not_exists, column_def, .. } => {
                if self.place(&column_def.name).is_some() {
                    return match *if_not_exists {
                        true => Ok(()),
                        false => plan_err!("{} has a column {} already", self.table, column_def.name),
                    };
                }
                let (value, name) = (default_of(column_def)?, normal(&column_def.name));
                if value != Expr::value(Value::Null) {
                    self.rules.defaults.insert(name.clone(), value.to_string());
                }
                let value = cast(value, &mut column_def.data_type);
                self.items.push(Column { name: quoted(name), value });
                Ok(())
            }
            AlterTableOperation::DropColumn { column_names, if_exists, .. } => {
                for name in column_names {
                    match self.place(name) {
                        Some(_) if self.items.len() == 1 => {
                            return plan_err!(
                                "{} has no other column than {name}: a table has one",
                                self.table
                            );
                        }
                        Some(place) => {
                            self.rules.drop_column(&self.items[place].name.value)?;
                            self.items.remove(place);
                        }
                        None if *if_exists => {}
                        None => drop(self.found(name)?),
                    }
                }
                Ok(())
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                let place = self.found(old_column_name)?;
                if self.place(new_column_name).is_some_and(|other| other != place) {
                    return plan_err!("{} has a column {new_column_name} already", self.table);
                }
                let (old, new) = (&self.items[place].name.value, normal(new_column_name));
                if self.is_named && self.rules.keys.iter().any(|key| key.columns.contains(old)) {
                    return plan_err!(
                        "the column {old} of {} has to stay: rows of another table name it",
                        self.table
                    );
                }
                self.rules.rename_column(old, &new)?;
                self.items[place].name = quoted(new);
                Ok(())
            }
            AlterTableOperation::AlterColumn {
                column_name,
                op: AlterColumnOperation::SetDataType { data_type, using, .. },
            } => {
                let place = self.found(column_name)?;
                let column = &mut self.items[place];
                self.rules.refuse_use(&column.name.value, "have another type")?;
                let value = using.as_mut().map_or_else(|| column.value.clone(), taken);
                column.value = cast(value, data_type);
                Ok(())
            }
            AlterTableOperation::AlterColumn {
                column_name,
                op: AlterColumnOperation::SetDefault { value },
            } => {
                let name = self.items[self.found(column_name)?].name.value.clone();
                self.rules.defaults.insert(name, value.to_string());
                Ok(())
            }
            AlterTableOperation::AlterColumn { column_name, op: AlterColumnOperation::DropDefault } => {
                let name = &self.items[self.found(column_name)?].name.value;
                self.rules.defaults.remove(name);
                Ok(())
            }
            AlterTableOperation::AddConstraint { constraint, .. } => {
                let names = self.items.iter().map(|column| column.name.value.clone());
                let table = self.table.to_string();
                add_constraint(&mut self.rules, (table, names.collect()), constraint.clone())
            }
            AlterTableOperation::DropConstraint { if_exists, name, .. } => {
                match self.rules.drop_constraint(&normal(name)) || *if_exists {
                    true => Ok(()),
                    false => plan_err!("{} has no constraint named {name}", self.table),
                }
            }
            other => plan_err!(
                "ALTER TABLE {} {other} is not supported: it has ADD COLUMN, DROP COLUMN, RENAME COLUMN, RENAME TO, ALTER COLUMN … TYPE, \
                 ALTER COLUMN … SET and DROP DEFAULT, ADD and DROP CONSTRAINT",
                self.table
            ),
        }
    }
}

/// What a new column is in the rows that there are.
fn default_of(column: &ColumnDef) -> Result<Expr> {
    let mut value = Expr::value(Value::Null);
    for option in &column.options {
        match &option.option {
            ColumnOption::Default(default) => value = default.clone(),
            ColumnOption::Null | ColumnOption::Comment(_) => {}
            other => {
                return plan_err!(
                    "{other} of {} is not supported: nothing would enforce it, so leave it out",
                    column.name
                );
            }
        }
    }
    Ok(value)
}

fn cast(value: Expr, data_type: &mut DataType) -> Expr {
    types::convert(data_type);
    syntax::cast(value, data_type.clone())
}
