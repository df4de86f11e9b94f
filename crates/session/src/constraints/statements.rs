//! CREATE INDEX, DROP INDEX and COMMENT ON, which change what a table that is there says of itself. An index that is not UNIQUE has no effect.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::{TableReference, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Expr as Planned;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    CommentObject, CreateIndex, Expr, Ident, ObjectName, ObjectNamePart, ObjectType, Statement as Sql,
};

use super::altered::check_rows;
use super::checked_rows::{Turn, Writing, table_of};
use super::rules::{Key, KeyKind, RULES, Rules, shown};
use crate::database::Database;
use crate::files::LocalTables;
use crate::syntax::{normal, reference_of};

/// Follows a statement, where it is one of these; whether it was.
pub(crate) async fn follow(
    statement: &Statement,
    state: &SessionState,
    database: Option<&Database>,
) -> Result<bool> {
    let Statement::Statement(statement) = statement else { return Ok(false) };
    match statement.as_ref() {
        Sql::CreateIndex(index) => create_index(index, state, database).await?,
        Sql::Drop { object_type: ObjectType::Index, if_exists, names, .. } => {
            for name in names {
                drop_index(name, *if_exists, state, database).await?;
            }
        }
        Sql::Comment { object_type, object_name, comment, if_exists } => {
            let of = match object_type {
                CommentObject::Table => (object_name.clone(), None),
                CommentObject::Column => {
                    let mut name = object_name.clone();
                    let column = name.0.pop().and_then(|part| part.as_ident().cloned());
                    (name, column)
                }
                // Nothing shows others.
                other => return plan_err!("COMMENT ON {other} is not supported: TABLE and COLUMN are"),
            };
            comment_on(of, comment.as_ref(), (*if_exists, state, database)).await?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// A table that may say something else of itself.
struct Described {
    name: TableReference,
    table: Arc<dyn TableProvider>,
    rules: Rules,
}

impl Described {
    async fn of(name: &ObjectName, state: &SessionState) -> Result<Option<Described>> {
        let Some(name) = reference_of(name) else { return plan_err!("{name} is no name of a table") };
        let Some(table) = table_of(&name, state).await? else { return Ok(None) };
        let rules = Rules::of(table.as_ref());
        Ok(Some(Described { name, table, rules }))
    }

    fn column(&self, name: &Ident) -> Result<String> {
        let (schema, wanted) = (self.table.schema(), normal(name));
        let like = || schema.fields().iter().find(|field| field.name().eq_ignore_ascii_case(&wanted));
        match schema.fields().iter().find(|field| *field.name() == wanted).or_else(like) {
            Some(field) => Ok(field.name().clone()),
            None => plan_err!("{} has no column {name}", self.name),
        }
    }

    /// Lets the table say what it is to say from now on.
    async fn put(self, state: &SessionState, database: Option<&Database>) -> Result<()> {
        if let Some(database) = database
            && let Some(kept) = database.kept_name(&self.name, state)
        {
            return database.put_rules(&kept, self.rules);
        }
        let any: &dyn Any = self.table.as_ref();
        let Some(memory) = any.downcast_ref::<MemTable>() else {
            return plan_err!("{} is no table in memory or of a database", self.name);
        };
        let columns = memory.schema();
        let names = columns.fields().iter().map(|field| field.name().as_str());
        let defaults = names.filter_map(|name| {
            let default = memory.get_column_default(name)?;
            Some((name.to_string(), default.clone()))
        });
        let own = [(RULES.to_string(), self.rules.as_default()?)];
        let defaults: HashMap<String, Planned> = defaults.chain(own).collect();
        let mut made = MemTable::try_new(Arc::clone(&columns), vec![vec![]])?.with_column_defaults(defaults);
        if let Some(constraints) = memory.constraints() {
            made = made.with_constraints(constraints.clone());
        }
        // Both have the same rows.
        made.batches.clone_from(&memory.batches);
        made.sort_order = Arc::clone(&memory.sort_order);
        let schema = state.schema_for_ref(self.name.clone())?;
        let wanted = self.name.table();
        let names = schema.table_names();
        let like = || names.iter().find(|name| name.eq_ignore_ascii_case(wanted));
        if let Some(name) = names.iter().find(|name| *name == wanted).or_else(like) {
            schema.deregister_table(name)?;
            schema.register_table(name.clone(), Arc::new(made))?;
        }
        Ok(())
    }
}

fn writing(state: &SessionState) -> Arc<Writing> {
    state.config().get_extension::<Writing>().unwrap_or_default()
}

async fn create_index(index: &CreateIndex, state: &SessionState, database: Option<&Database>) -> Result<()> {
    let table = &index.table_name;
    let Some(mut described) = Described::of(table, state).await? else {
        return plan_err!("there is no table {table}");
    };
    let name = match &index.name {
        Some(name) => name_of(name)?,
        None => return plan_err!("CREATE INDEX ON {table} needs a name of the index"),
    };
    let writing = writing(state);
    if writing.indexes.lock().contains_key(&name) {
        return match index.if_not_exists {
            true => Ok(()),
            false => plan_err!("there is an index {name} already"),
        };
    }
    if index.unique {
        if index.predicate.is_some() {
            return plan_err!("WHERE of the unique index {name} is not supported");
        }
        let column = |column: &Expr| match column {
            Expr::Identifier(name) => described.column(name),
            Expr::Nested(_) | Expr::BinaryOp { .. } | Expr::Function(_) => {
                plan_err!("{column} is no column: a unique index is of columns")
            }
            other => plan_err!("{other} is no column of {table}"),
        };
        let columns = index.columns.iter().map(|indexed| column(&indexed.column.expr));
        let columns = columns.collect::<Result<_>>()?;
        described.rules.keys.push(Key { name: Some(name.clone()), columns, kind: KeyKind::Index });
        let _turn = Turn::of(state).await;
        check_rows(&described.name, &described.rules, state).await?;
        let of = described.name.clone();
        described.put(state, database).await?;
        writing.indexes.lock().insert(name, of);
        return Ok(());
    }
    for column in &index.columns {
        if let Expr::Identifier(name) = &column.column.expr {
            described.column(name)?;
        }
    }
    writing.indexes.lock().insert(name.clone(), described.name);
    if let Some(tables) = state.config().get_extension::<LocalTables>() {
        tables.note(&format!(
            "the index {} has no effect: queries read whole columns (UNIQUE would be enforced)",
            shown(&name)
        ));
    }
    Ok(())
}

async fn drop_index(
    name: &ObjectName,
    if_exists: bool,
    state: &SessionState,
    database: Option<&Database>,
) -> Result<()> {
    let name = name_of(name)?;
    let Some(table) = writing(state).indexes.lock().remove(&name) else {
        return if if_exists { Ok(()) } else { plan_err!("there is no index {name}") };
    };
    // Its table may be gone, and the index with it.
    let Some(of) = table_of(&table, state).await? else { return Ok(()) };
    let mut rules = Rules::of(of.as_ref());
    let before = rules.keys.len();
    rules.keys.retain(|key| key.kind != KeyKind::Index || key.name.as_ref() != Some(&name));
    match rules.keys.len() < before {
        true => Described { name: table, table: of, rules }.put(state, database).await,
        false => Ok(()),
    }
}

fn name_of(name: &ObjectName) -> Result<String> {
    match name.0.last().and_then(ObjectNamePart::as_ident) {
        Some(name) => Ok(normal(name)),
        None => plan_err!("{name} is no name of an index"),
    }
}

async fn comment_on(
    (table, column): (ObjectName, Option<Ident>),
    comment: Option<&String>,
    (if_exists, state, database): (bool, &SessionState, Option<&Database>),
) -> Result<()> {
    let Some(mut described) = Described::of(&table, state).await? else {
        return if if_exists { Ok(()) } else { plan_err!("there is no table {table}") };
    };
    match column {
        None => described.rules.comment = comment.cloned(),
        Some(column) => {
            let column = described.column(&column)?;
            match comment {
                Some(comment) => described.rules.comments.insert(column, comment.clone()),
                None => described.rules.comments.remove(&column),
            };
        }
    }
    described.put(state, database).await
}
