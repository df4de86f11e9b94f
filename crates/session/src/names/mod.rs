//! Names of columns in any case.
//!
//! SQL folds a name without quotes to lower case, and files have columns such as `OrderKey`. A statement whose names are all
//! there is planned as it stands. Where one is not, it stands for the only column that differs from it in case, and the statement is
//! planned again with that column's spelling in place of the name, *everywhere* in it: as a column, as an alias, in USING.
//! Names that were one name stay one, so whatever refers to an alias or to a column of a subquery still does; and what the
//! statement calls its own columns is given back at the end. What no table has may be a name that the statement itself has given (`aliases`).

mod aliases;
mod column_aliases;
mod relations;
mod spelling;
mod whole_rows;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use datafusion::common::{Column, SchemaError, TableReference, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement;

pub(crate) use column_aliases::{name_all, names_too_few};
use kelpie_datafusion::KelpieOptions;
use spelling::{Relations, Spelling};

/// Columns of the tables that a statement names, as these spell them.
pub(crate) type Tables = HashMap<TableReference, Vec<String>>;

/// The plan of a statement that failed for a name that is not there: with the columns that are meant, or an error.
pub(crate) async fn replanned(
    state: &SessionState,
    statement: &Statement,
    error: DataFusionError,
) -> Result<LogicalPlan> {
    if !state.config_options().sql_parser.enable_ident_normalization || not_found(&error).is_none() {
        return Err(error);
    }
    let corrects = KelpieOptions::of(state.config_options()).corrections;
    let tables = tables_of(state, statement).await?;
    let mut statement = Cow::Borrowed(statement);
    let mut spelling = Spelling::of(&statement, Relations::of(&statement, &tables));
    let mut latest = Err(error);
    // Each round adds a name of the statement, or writes one out: of both there are finitely many.
    while let Err(error) = latest {
        let Some((name, valid)) = not_found(&error) else { return Err(error) };
        let meant = meant(&name, &valid, &tables);
        match meant.iter().collect::<Vec<_>>().as_slice() {
            [] if corrects && aliases::write_out(statement.to_mut(), &name, state) => {}
            [] => {
                let mut renamed = statement.as_ref().clone();
                spelling.apply(&mut renamed);
                let planned = if corrects { relations::planned(state, &renamed).await } else { None };
                match planned {
                    Some(plan) => return with_own_names(plan, &spelling),
                    None if corrects && whole_rows::write_out(statement.to_mut(), &name, state).await => {}
                    None => return Err(error),
                }
            }
            [one] if spelling.add(&name, one) => {}
            [_] => return Err(error),
            several => {
                let quoted: Vec<String> = several.iter().map(|name| format!("\"{name}\"")).collect();
                return plan_err!("the column {name} may be {}: write the quotes too", quoted.join(" or "));
            }
        }
        let mut renamed = statement.as_ref().clone();
        spelling.apply(&mut renamed);
        latest = state.statement_to_plan(renamed).await;
    }
    with_own_names(latest?, &spelling)
}

/// The column that a statement names and that is not there, and those that are.
fn not_found(error: &DataFusionError) -> Option<(String, Vec<Column>)> {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => match error.as_ref() {
            SchemaError::FieldNotFound { field, valid_fields } => {
                Some((field.name.clone(), valid_fields.clone()))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The columns that a name stands for but for its case: of those that may stand in its place, or else of all tables.
fn meant(name: &str, valid: &[Column], tables: &Tables) -> BTreeSet<String> {
    let lower = name.to_lowercase();
    let is_meant = |column: &&String| column.to_lowercase() == lower && *column != name;
    let near: BTreeSet<String> = valid.iter().map(|column| &column.name).filter(is_meant).cloned().collect();
    match near.is_empty() {
        true => tables.values().flatten().filter(is_meant).cloned().collect(),
        false => near,
    }
}

async fn tables_of(state: &SessionState, statement: &Statement) -> Result<Tables> {
    let mut tables = Tables::new();
    for reference in state.resolve_table_references(statement)? {
        let Ok(schema) = state.schema_for_ref(reference.clone()) else { continue };
        if let Some(table) = schema.table(reference.table()).await? {
            let columns = table.schema().fields().iter().map(|field| field.name().clone()).collect();
            tables.insert(reference, columns);
        }
    }
    Ok(tables)
}

/// Gives columns that the statement names itself the names that it gives them.
fn with_own_names(plan: LogicalPlan, spelling: &Spelling) -> Result<LogicalPlan> {
    let own = spelling.own_names();
    // What has no qualifier is no column of a table.
    let given = |column: &Column| own.get(&column.name).filter(|_| column.relation.is_none());
    let columns = plan.schema().columns();
    if !columns.iter().any(|column| given(column).is_some()) {
        return Ok(plan);
    }
    let columns = columns.into_iter().map(|column| match given(&column) {
        Some(name) => Expr::Column(column.clone()).alias(name),
        None => Expr::Column(column),
    });
    let columns: Vec<Expr> = columns.collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}
