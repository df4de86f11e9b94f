//! USING and NATURAL joins: the key of both sides is one column. Of a FULL join it is the one that is there, of a RIGHT join the right one;
//! DataFusion takes the left one always, and finds the name ambiguous after a second join. Here such a join gets a condition, and the
//! merged column is written out where the statement names it or says `*`. So are the columns of `*, *`, which share their names.

mod scope;

use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Join, JoinConstraint, OrderBy, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, VisitMut,
    WildcardAdditionalOptions, With,
};

use crate::syntax::{Flow, Walk, constraint, normal, quoted, visit, visit_own};
pub(crate) use scope::with_needed;
use scope::{Relation, Scope};

/// Writes out the merged columns of a statement. What cannot be planned by itself, such as a lateral subquery, stays as it is.
pub(crate) async fn write_out(state: &SessionState, statement: &mut Statement, which: Which) -> Result<()> {
    let mut skipped = 0;
    loop {
        let mut seen = Seen { which, skipped, passed: 0, named: vec![], found: None };
        let _ = visit(statement, &mut seen);
        let Some(mut found) = seen.found else { return Ok(()) };
        let mut is_known = true;
        for relation in &mut found {
            is_known &= relation.plan(state).await;
        }
        let mut change = Change { which, skipped, relations: is_known.then_some(found) };
        // A statement that is as it was would be found again.
        let changed = visit(statement, &mut change).is_break();
        skipped += usize::from(!changed);
    }
}

/// Which SELECTs have their columns written out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Those with merged columns.
    Merged,
    /// Those, too, that have several wildcards.
    Wildcards,
}

impl Which {
    fn affects(self, select: &Select) -> bool {
        is_affected(&select.from) || self == Which::Wildcards && has_wildcards(select)
    }
}

fn has_wildcards(select: &Select) -> bool {
    let is_wildcard =
        |item: &&SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    select.projection.iter().filter(is_wildcard).count() > 1
}

/// Whether tables of a FROM have a merged column: DataFusion finds it ambiguous in conditions, too.
fn is_affected(tables: &[TableWithJoins]) -> bool {
    let mut merges = false;
    for table in tables {
        each_join(table, &mut |join| {
            let found = constraint(&mut join.join_operator.clone()).is_some_and(|constraint| {
                matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
            });
            merges |= found;
        });
    }
    merges
}

fn each_join(table: &TableWithJoins, see: &mut impl FnMut(&Join)) {
    let mut relations = vec![&table.relation];
    for join in &table.joins {
        see(join);
        relations.push(&join.relation);
    }
    for relation in relations {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = relation {
            each_join(table_with_joins, see);
        }
    }
}

/// Looks for the first SELECT with such joins, the innermost ones first, and the relations in it.
struct Seen {
    which: Which,
    /// Those that are left as they are.
    skipped: usize,
    passed: usize,
    named: Vec<Option<With>>,
    found: Option<Vec<Relation>>,
}

/// The selects that are the body of a query.
fn selects(body: &mut SetExpr) -> Vec<&mut Select> {
    match body {
        SetExpr::Select(select) => vec![select],
        SetExpr::SetOperation { left, right, .. } => {
            let mut all = selects(left);
            all.extend(selects(right));
            all
        }
        _ => vec![],
    }
}

impl Walk for Seen {
    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        self.named.push(query.with.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        // What is named within it has been changed by now.
        if let Some(named) = self.named.last_mut() {
            named.clone_from(&query.with);
        }
        for select in selects(&mut query.body) {
            if !self.which.affects(select) {
                continue;
            }
            if self.passed < self.skipped {
                self.passed += 1;
                continue;
            }
            let named: Vec<&With> = self.named.iter().flatten().collect();
            let mut relations = Vec::new();
            select.from.iter_mut().for_each(|table| scope::relations(table, &named, &mut relations));
            self.found = Some(relations);
            return ControlFlow::Break(None);
        }
        self.named.pop();
        ControlFlow::Continue(())
    }
}

/// Changes the SELECT that was found.
struct Change {
    which: Which,
    skipped: usize,
    /// Its relations with their columns; absent where these are not known.
    relations: Option<Vec<Relation>>,
}

impl Walk for Change {
    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        let Query { body, order_by, .. } = query;
        let mut order = match body.as_ref() {
            SetExpr::Select(_) => order_by.as_mut(),
            _ => None,
        };
        for select in selects(body) {
            if !self.which.affects(select) {
                continue;
            }
            if self.skipped > 0 {
                self.skipped -= 1;
                continue;
            }
            let Some(relations) = self.relations.take() else { return ControlFlow::Continue(()) };
            let (all, mut relations) = (relations.clone(), relations.into_iter());
            let mut scope = Scope::default();
            let mut from = select.from.clone();
            for table in &mut from {
                match scope::join_all(table, &mut relations) {
                    Some(joined) => scope.extend(joined),
                    None => return ControlFlow::Continue(()),
                }
            }
            if is_affected(&from) {
                return ControlFlow::Continue(());
            }
            select.from = from;
            if self.which == Which::Wildcards && has_wildcards(select) {
                write_wildcards(select, &all);
            }
            change(select, order.take(), &scope);
            return ControlFlow::Break(None);
        }
        ControlFlow::Continue(())
    }
}

/// Writes out the columns of relations that are all meant, `t.*`.
fn write_wildcards(select: &mut Select, relations: &[Relation]) {
    let items = std::mem::take(&mut select.projection).into_iter().flat_map(|item| match &item {
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
            if *options == WildcardAdditionalOptions::default() =>
        {
            let found = relations.iter().find_map(|relation| relation.items(name));
            found.unwrap_or_else(|| vec![item])
        }
        _ => vec![item],
    });
    select.projection = items.collect();
}

/// Writes the merged columns out in all of a SELECT.
fn change(select: &mut Select, order: Option<&mut OrderBy>, scope: &Scope) {
    if let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = order {
        let is_own = |expr: &Expr| match expr {
            Expr::Identifier(name) => select.projection.iter().any(|item| names(item, &normal(name))),
            _ => false,
        };
        for key in keys.iter_mut().filter(|key| !is_own(&key.expr)) {
            write_merged(&mut key.expr, scope);
        }
    }
    let items = std::mem::take(&mut select.projection).into_iter();
    select.projection = items.flat_map(|item| with_merged(item, scope)).collect();
    write_merged(&mut select.selection, scope);
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        write_merged(keys, scope);
    }
    write_merged(&mut select.having, scope);
    write_merged(&mut select.qualify, scope);
    write_merged(&mut select.distinct, scope);
}

/// Writes merged columns in the place of their names. In a query within it a name is first one of its own.
fn write_merged(part: &mut impl VisitMut, scope: &Scope) {
    let _ = visit_own(part, &mut |expr| {
        if let Expr::Identifier(name) = expr
            && let Some(merged) = scope.merged(name)
        {
            *expr = merged.clone();
        }
        ControlFlow::Continue(())
    });
}

/// Whether an item of a SELECT is called so.
fn names(item: &SelectItem, name: &str) -> bool {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => normal(alias) == name,
        SelectItem::UnnamedExpr(Expr::Identifier(column)) => normal(column) == name,
        SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAliases { .. } => false,
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
    }
}

/// An item of a SELECT with its merged columns written out, under the names that it had.
fn with_merged(item: SelectItem, scope: &Scope) -> Vec<SelectItem> {
    match item {
        SelectItem::Wildcard(options) => scope.all(&options),
        SelectItem::UnnamedExpr(mut expr) => {
            let before = expr.clone();
            write_merged(&mut expr, scope);
            let alias = match &before {
                _ if expr == before => return vec![SelectItem::UnnamedExpr(expr)],
                Expr::Identifier(name) => quoted(normal(name)),
                other => quoted(other.to_string()),
            };
            vec![SelectItem::ExprWithAlias { expr, alias }]
        }
        SelectItem::ExprWithAlias { mut expr, alias } => {
            write_merged(&mut expr, scope);
            vec![SelectItem::ExprWithAlias { expr, alias }]
        }
        item => vec![item],
    }
}
