//! USING and NATURAL joins: the key of both sides is one column. Of a FULL join it is the one that is there, of a RIGHT join the right one;
//! DataFusion takes the left one always, and finds the name ambiguous after a second join. Here such a join gets a condition, and the
//! merged column is written out where the statement names it or says `*`.

mod scope;

use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Join, JoinConstraint, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr,
    TableFactor, TableWithJoins, VisitMut, VisitorMut, With,
};

use crate::names::constraint;
use crate::syntax::{normal, quoted, visit};
use scope::{Relation, Scope};

/// Writes out the merged columns of a statement. What cannot be planned by itself, such as a lateral subquery, stays as it is.
pub(crate) async fn write_out(state: &SessionState, statement: &mut Statement) -> Result<()> {
    let mut skipped = 0;
    loop {
        let mut seen = Seen { skipped, ..Seen::default() };
        let ControlFlow::Break(mut found) = visit(statement, &mut seen) else { return Ok(()) };
        let mut is_known = true;
        for relation in &mut found {
            is_known &= relation.plan(state).await;
        }
        let mut change = Change { skipped, relations: is_known.then_some(found) };
        // A statement that is as it was would be found again.
        let changed = visit(statement, &mut change).is_break();
        skipped += usize::from(!changed);
    }
}

/// Whether the tables of a FROM are joined so that DataFusion would take the wrong column.
fn is_affected(tables: &[TableWithJoins]) -> bool {
    tables.iter().any(|table| {
        let (mut merges, mut is_natural, mut is_outer) = (0, false, false);
        each_join(table, &mut |join| {
            let mut operator = join.join_operator.clone();
            let kind = scope::kind(&operator);
            match constraint(&mut operator) {
                Some(JoinConstraint::Using(_)) => merges += 1,
                Some(JoinConstraint::Natural) => (merges, is_natural) = (merges + 1, true),
                _ => {}
            }
            is_outer |= kind.keeps_right();
        });
        merges > 1 || is_natural || merges > 0 && is_outer
    })
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
#[derive(Default)]
struct Seen {
    /// Those that are left as they are.
    skipped: usize,
    passed: usize,
    named: Vec<Option<With>>,
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

impl VisitorMut for Seen {
    type Break = Vec<Relation>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Vec<Relation>> {
        self.named.push(query.with.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Vec<Relation>> {
        // What is named within it has been changed by now.
        if let Some(named) = self.named.last_mut() {
            named.clone_from(&query.with);
        }
        for select in selects(&mut query.body) {
            if !is_affected(&select.from) {
                continue;
            }
            if self.passed < self.skipped {
                self.passed += 1;
                continue;
            }
            let named: Vec<&With> = self.named.iter().flatten().collect();
            let mut relations = Vec::new();
            select.from.iter_mut().for_each(|table| scope::relations(table, &named, &mut relations));
            return ControlFlow::Break(relations);
        }
        self.named.pop();
        ControlFlow::Continue(())
    }
}

/// Changes the SELECT that was found.
struct Change {
    skipped: usize,
    /// Its relations with their columns; absent where these are not known.
    relations: Option<Vec<Relation>>,
}

impl VisitorMut for Change {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let Query { body, order_by, .. } = query;
        let mut order = match body.as_ref() {
            SetExpr::Select(_) => order_by.as_mut(),
            _ => None,
        };
        for select in selects(body) {
            if !is_affected(&select.from) {
                continue;
            }
            if self.skipped > 0 {
                self.skipped -= 1;
                continue;
            }
            let Some(relations) = self.relations.take() else { return ControlFlow::Continue(()) };
            let mut relations = relations.into_iter();
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
            change(select, order.take(), &scope);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// Writes the merged columns out in all of a SELECT.
fn change(select: &mut Select, order: Option<&mut OrderBy>, scope: &Scope) {
    let mut columns = Columns { scope, queries: 0 };
    if let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = order {
        let is_own = |expr: &Expr| match expr {
            Expr::Identifier(name) => select.projection.iter().any(|item| names(item, &normal(name))),
            _ => false,
        };
        for key in keys.iter_mut().filter(|key| !is_own(&key.expr)) {
            let _ = key.expr.visit(&mut columns);
        }
    }
    select.projection =
        std::mem::take(&mut select.projection).into_iter().flat_map(|item| columns.item(item)).collect();
    let _ = select.selection.visit(&mut columns);
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        let _ = keys.visit(&mut columns);
    }
    let _ = select.having.visit(&mut columns);
    let _ = select.qualify.visit(&mut columns);
    let _ = select.distinct.visit(&mut columns);
}

/// Writes the merged columns out in an expression.
fn write_merged(expr: &mut Expr, scope: &Scope) {
    let _ = expr.visit(&mut Columns { scope, queries: 0 });
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

/// Writes merged columns in the place of their names.
struct Columns<'a> {
    scope: &'a Scope,
    /// Queries around the expression, within the SELECT: a name there is first one of their own.
    queries: usize,
}

impl Columns<'_> {
    fn item(&mut self, item: SelectItem) -> Vec<SelectItem> {
        match item {
            SelectItem::Wildcard(options) => self.scope.all(&options),
            SelectItem::UnnamedExpr(mut expr) => {
                let before = expr.clone();
                let _ = expr.visit(self);
                let alias = match &before {
                    _ if expr == before => return vec![SelectItem::UnnamedExpr(expr)],
                    Expr::Identifier(name) => quoted(normal(name)),
                    other => quoted(other.to_string()),
                };
                vec![SelectItem::ExprWithAlias { expr, alias }]
            }
            SelectItem::ExprWithAlias { mut expr, alias } => {
                let _ = expr.visit(self);
                vec![SelectItem::ExprWithAlias { expr, alias }]
            }
            item => vec![item],
        }
    }
}

impl VisitorMut for Columns<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && self.queries == 0
            && let Some(merged) = self.scope.merged(name)
        {
            *expr = merged.clone();
        }
        ControlFlow::Continue(())
    }
}
