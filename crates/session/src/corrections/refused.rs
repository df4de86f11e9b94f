//! What the parser takes and DataFusion then forgets: an error that names it.

use std::ops::ControlFlow;

use datafusion::common::plan_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, CreateTable, Expr, GroupByExpr, Insert, JoinOperator, OrderBy, OrderByKind,
    Query, Select, SelectItem, SetExpr, Statement as SqlStatement, TableAlias, TableConstraint, TableFactor,
    TableWithJoins, WildcardAdditionalOptions,
};

use crate::syntax::{Flow, Walk, ended, flow, has_query, visit};

/// An error where a statement has what would be without effect.
pub(super) fn refuse(statement: &mut Statement) -> Result<()> {
    if let Statement::CreateExternalTable(table) = statement {
        not_of_files(&table.columns, &table.constraints)?;
    }
    ended(visit(statement, &mut Refused { may_change_rows: true }))
}

/// A word that begins a join which is not there: the parser takes it for the alias of the table before.
const POSITIONAL: &str = "positional";

struct Refused {
    /// Whether the next statement is the outermost one, by which rows of tables are changed in `crate::row_changes`.
    may_change_rows: bool,
}

/// An error where a statement that changes rows has what only `crate::row_changes` knows.
pub(crate) fn refuse_row_changes(statement: &mut Statement) -> Result<()> {
    ended(visit(statement, &mut Refused { may_change_rows: false }))
}

fn no_effect(what: impl std::fmt::Display) -> DataFusionError {
    plan_datafusion_err!("{what} is not supported: it would have no effect")
}

/// An error of the first of these that is there.
fn none_of(parts: &[(bool, &str)]) -> Flow {
    match parts.iter().find(|(is_there, _)| *is_there) {
        Some((_, what)) => ControlFlow::Break(Some(no_effect(what))),
        None => ControlFlow::Continue(()),
    }
}

impl Walk for Refused {
    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        let has_ties = query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties);
        let has_percent = query.fetch.as_ref().is_some_and(|fetch| fetch.percent);
        none_of(&[
            (!query.locks.is_empty(), "FOR UPDATE or FOR SHARE"),
            (query.for_clause.is_some(), "FOR XML, JSON or BROWSE"),
            (query.settings.is_some(), "SETTINGS"),
            (query.format_clause.is_some(), "FORMAT"),
            (has_ties, "FETCH … WITH TIES"),
            (has_percent, "FETCH … PERCENT"),
        ])?;
        query.order_by.as_ref().map_or(ControlFlow::Continue(()), order_by)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        none_of(&[
            (select.prewhere.is_some(), "PREWHERE"),
            (!select.connect_by.is_empty(), "CONNECT BY"),
            (!select.distribute_by.is_empty(), "DISTRIBUTE BY"),
            (select.value_table_mode.is_some(), "SELECT AS VALUE or STRUCT"),
            (select.select_modifiers.is_some(), "a modifier of SELECT"),
            (select.exclude.is_some(), "EXCLUDE after the list of SELECT"),
            (has_modifiers(&select.group_by), "a modifier of GROUP BY"),
        ])?;
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
                    wildcard(options)?
                }
                SelectItem::UnnamedExpr(_)
                | SelectItem::ExprWithAlias { .. }
                | SelectItem::ExprWithAliases { .. } => {}
            }
        }
        select.from.iter().try_for_each(joins)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        match factor {
            TableFactor::Table {
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
                ..
            } => none_of(&[
                (sample.is_some(), "TABLESAMPLE"),
                (version.is_some(), "a version of a table"),
                (*with_ordinality, "WITH ORDINALITY"),
                (!with_hints.is_empty(), "a hint of a table"),
                (!partitions.is_empty(), "PARTITION of a table"),
                (json_path.is_some(), "a path behind a table"),
                (!index_hints.is_empty(), "a hint of an index"),
            ]),
            TableFactor::Derived { sample, .. } => none_of(&[(sample.is_some(), "TABLESAMPLE")]),
            TableFactor::NestedJoin { table_with_joins, .. } => joins(table_with_joins),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::Collate { collation, .. } => {
                ControlFlow::Break(Some(no_effect(format_args!("COLLATE {collation}"))))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_statement(&mut self, statement: &mut SqlStatement) -> Flow {
        let is_around = |query: &Query| {
            matches!(
                query.body.as_ref(),
                SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_)
            )
        };
        let may_change_rows = self.may_change_rows;
        self.may_change_rows &= matches!(statement, SqlStatement::Query(query) if is_around(query));
        match statement {
            SqlStatement::CreateTable(CreateTable { columns, constraints, .. }) => {
                flow(table_options(columns, constraints))
            }
            SqlStatement::Insert(insert) => insert_clauses(insert, may_change_rows),
            _ if may_change_rows => ControlFlow::Continue(()),
            SqlStatement::Merge(_) => ControlFlow::Break(Some(plan_datafusion_err!(
                "MERGE INTO is for tables in memory and of a database, and not to be prepared"
            ))),
            SqlStatement::Update(update) if update.from.is_some() => in_memory("UPDATE … FROM"),
            SqlStatement::Update(update) if update.returning.is_some() => in_memory("RETURNING of UPDATE"),
            SqlStatement::Delete(delete) if delete.using.is_some() => in_memory("DELETE … USING"),
            SqlStatement::Delete(delete) if delete.returning.is_some() => in_memory("RETURNING of DELETE"),
            SqlStatement::Delete(delete) => without_query(delete.selection.as_mut(), "DELETE"),
            SqlStatement::Update(update) => without_query(update.selection.as_mut(), "UPDATE"),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn in_memory(what: &str) -> Flow {
    ControlFlow::Break(Some(plan_datafusion_err!(
        "{what} is for tables in memory and of a database, and not to be prepared"
    )))
}

/// What INSERT says of rows that are there already, and what it answers.
fn insert_clauses(insert: &Insert, may_change_rows: bool) -> Flow {
    match () {
        () if !may_change_rows && insert.on.is_some() => in_memory("INSERT … ON CONFLICT"),
        () if !may_change_rows && (insert.or.is_some() || insert.replace_into || insert.ignore) => {
            in_memory("INSERT OR …")
        }
        () if insert.returning.is_some() && !may_change_rows => in_memory("RETURNING of INSERT"),
        () => ControlFlow::Continue(()),
    }
}

/// A condition with a query becomes a join, of which DataFusion's writers see no condition: they would change all rows.
fn without_query(condition: Option<&mut Expr>, what: &str) -> Flow {
    let Some(condition) = condition else { return ControlFlow::Continue(()) };
    match has_query(condition) {
        false => ControlFlow::Continue(()),
        true => in_memory(&format!("a query in the condition of {what}")),
    }
}

fn order_by(order: &OrderBy) -> Flow {
    let fills = match &order.kind {
        OrderByKind::Expressions(keys) => keys.iter().any(|key| key.with_fill.is_some()),
        OrderByKind::All(_) => false,
    };
    none_of(&[(order.interpolate.is_some(), "INTERPOLATE"), (fills, "WITH FILL")])
}

fn has_modifiers(group_by: &GroupByExpr) -> bool {
    match group_by {
        GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers) => !modifiers.is_empty(),
    }
}

fn wildcard(options: &WildcardAdditionalOptions) -> Flow {
    none_of(&[(options.opt_ilike.is_some(), "* ILIKE"), (options.opt_alias.is_some(), "an alias of *")])
}

/// `a POSITIONAL JOIN b` is read as `a AS positional JOIN b`.
fn joins(table: &TableWithJoins) -> Flow {
    let mut before = &table.relation;
    for join in &table.joins {
        if let Some(TableAlias { explicit: false, name, .. }) = alias_of(before)
            && name.quote_style.is_none()
            && name.value.eq_ignore_ascii_case(POSITIONAL)
            && matches!(join.join_operator, JoinOperator::Join(_) | JoinOperator::Inner(_))
        {
            return ControlFlow::Break(Some(plan_datafusion_err!("POSITIONAL JOIN is not supported")));
        }
        before = &join.relation;
    }
    ControlFlow::Continue(())
}

fn alias_of(factor: &TableFactor) -> Option<&TableAlias> {
    match factor {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::NestedJoin { alias, .. }
        | TableFactor::UNNEST { alias, .. } => alias.as_ref(),
        _ => None,
    }
}

/// What tables of files say of their rows, which nobody would hold them to.
fn not_of_files(columns: &[ColumnDef], constraints: &[TableConstraint]) -> Result<()> {
    if let Some(constraint) = constraints.first() {
        let what = match constraint {
            TableConstraint::PrimaryKey(_) => "PRIMARY KEY",
            TableConstraint::Unique(_) => "UNIQUE",
            TableConstraint::ForeignKey(_) => "FOREIGN KEY",
            TableConstraint::Check(_) => "CHECK",
            _ => return table_options(columns, constraints),
        };
        return Err(not_enforced(what, "the table"));
    }
    for column in columns {
        for option in &column.options {
            let what = match &option.option {
                ColumnOption::PrimaryKey(_) => "PRIMARY KEY",
                ColumnOption::Unique(_) => "UNIQUE",
                ColumnOption::ForeignKey(_) => "REFERENCES",
                ColumnOption::Check(_) => "CHECK",
                _ => continue,
            };
            return Err(not_enforced(what, &column.name.value));
        }
    }
    table_options(columns, constraints)
}

/// What tables say of their columns and rows, which nobody would hold them to. `crate::constraints` has the rest.
fn table_options(columns: &[ColumnDef], constraints: &[TableConstraint]) -> Result<()> {
    for constraint in constraints {
        let what = match constraint {
            TableConstraint::PrimaryKey(_)
            | TableConstraint::Unique(_)
            | TableConstraint::ForeignKey(_)
            | TableConstraint::Check(_) => continue,
            TableConstraint::PrimaryKeyUsingIndex(_) => "PRIMARY KEY USING INDEX",
            TableConstraint::UniqueUsingIndex(_) => "UNIQUE USING INDEX",
            TableConstraint::Index(_) | TableConstraint::FulltextOrSpatial(_) => "INDEX",
        };
        return Err(not_enforced(what, "the table"));
    }
    for column in columns {
        for option in &column.options {
            let what = match &option.option {
                ColumnOption::Null
                | ColumnOption::NotNull
                | ColumnOption::Default(_)
                | ColumnOption::Comment(_)
                | ColumnOption::PrimaryKey(_)
                | ColumnOption::Unique(_)
                | ColumnOption::ForeignKey(_)
                | ColumnOption::Check(_) => continue,
                ColumnOption::Generated { .. } | ColumnOption::Materialized(_) | ColumnOption::Alias(_) => {
                    "GENERATED ALWAYS AS"
                }
                ColumnOption::Identity(_) => "IDENTITY",
                ColumnOption::Collation(_) => "COLLATE",
                ColumnOption::OnUpdate(_) => "ON UPDATE",
                other => return Err(not_enforced(&other.to_string(), &column.name.value)),
            };
            return Err(not_enforced(what, &column.name.value));
        }
    }
    Ok(())
}

fn not_enforced(what: &str, of: &str) -> DataFusionError {
    plan_datafusion_err!("{what} of {of} is not supported: nothing would enforce it, so leave it out")
}
