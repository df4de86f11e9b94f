//! `(SELECT a, b FROM t) AS q(x)`: the names of an alias are those of the first columns, and the others keep theirs. DataFusion takes names for
//! all columns or none.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Query, SetExpr, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins,
};

use super::spelling::alias_of;
use crate::corrections::{Which, seek_query, write_out_columns};
use crate::syntax::{Flow, Walk, as_alias, quoted, select_from, statement_of, visit};

/// Whether a statement was refused as an alias names some columns only.
pub(crate) fn names_too_few(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::Plan(text) if text.contains("given as column alias"))
}

/// Adds the names of the other columns to the aliases of a statement that name some of them.
pub(crate) async fn name_all(state: &SessionState, statement: &mut Statement) {
    // What stands behind an alias may be known only after that has all of its names.
    let mut has_changed = true;
    while has_changed {
        has_changed = false;
        for place in 0.. {
            let mut left = place;
            let all = seek_query(statement, &mut |query| {
                let mut found = None;
                each_alias(query, &mut |alias, factor| {
                    take_at(&mut left, || found = without_names(alias, factor))
                });
                found
            });
            let Some(all) = all else { break };
            let Some(names) = names_of(state, all).await else { continue };
            let mut complete = Complete { left: place, names, has_changed: false };
            let _ = visit(statement, &mut complete);
            has_changed |= complete.has_changed;
        }
    }
}

/// Does something at the place that nothing is left before.
fn take_at(left: &mut usize, take: impl FnOnce()) {
    match left.checked_sub(1) {
        Some(fewer) => *left = fewer,
        None => {
            *left = usize::MAX;
            take();
        }
    }
}

/// The names of a query's columns; nothing where it cannot be planned by itself.
async fn names_of(state: &SessionState, all: Query) -> Option<Vec<String>> {
    let mut all = statement_of(all);
    write_out_columns(state, &mut all, Which::Merged).await.ok()?;
    let plan = state.statement_to_plan(all).await.ok()?;
    Some(plan.schema().fields().iter().map(|field| field.name().clone()).collect())
}

/// All that a relation has, under the names of its own.
fn without_names(alias: &TableAlias, factor: &TableFactor) -> Option<Query> {
    let mut relation = factor.clone();
    match alias_of(&mut relation) {
        Some(alias) => alias.columns.clear(),
        None => return None,
    }
    (!alias.columns.is_empty()).then(|| select_from(vec![TableWithJoins { relation, joins: vec![] }]))
}

/// Brings every alias of a query that names columns, with what it is an alias of.
fn each_alias(query: &mut Query, see: &mut dyn FnMut(&mut TableAlias, &TableFactor)) {
    for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
        if !cte.alias.columns.is_empty() {
            let alias = Some(as_alias(cte.alias.name.clone()));
            let subquery = cte.query.clone();
            let factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
            see(&mut cte.alias, &factor);
        }
    }
    of_body(&mut query.body, see);
}

fn of_body(body: &mut SetExpr, see: &mut dyn FnMut(&mut TableAlias, &TableFactor)) {
    match body {
        SetExpr::Select(select) => select.from.iter_mut().for_each(|table| of_table(table, see)),
        SetExpr::SetOperation { left, right, .. } => {
            of_body(left, see);
            of_body(right, see);
        }
        _ => {}
    }
}

fn of_table(table: &mut TableWithJoins, see: &mut dyn FnMut(&mut TableAlias, &TableFactor)) {
    let joined = table.joins.iter_mut().map(|join| &mut join.relation);
    for factor in std::iter::once(&mut table.relation).chain(joined) {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            of_table(table_with_joins, see);
            continue;
        }
        if alias_of(factor).is_some_and(|alias| !alias.columns.is_empty()) {
            let whole = factor.clone();
            if let Some(alias) = alias_of(factor) {
                see(alias, &whole);
            }
        }
    }
}

/// Gives the alias at a place the names that it lacks.
struct Complete {
    left: usize,
    names: Vec<String>,
    has_changed: bool,
}

impl Walk for Complete {
    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        let Complete { left, names, has_changed } = self;
        each_alias(query, &mut |alias, _| {
            take_at(left, || {
                for name in names.iter().skip(alias.columns.len()) {
                    alias.columns.push(TableAliasColumnDef { name: quoted(name), data_type: None });
                    *has_changed = true;
                }
            });
        });
        ControlFlow::Continue(())
    }
}
