//! `SELECT t FROM t`: the name of a relation as a value is each of its rows, as a struct. It is tried where no column has that name.

use std::ops::ControlFlow;

use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor, VisitMut,
};

use super::spelling::alias_of;
use crate::corrections::{Which, seek_query, write_out_columns};
use crate::syntax::{
    Flow, Walk, call, last_name, literal, normal, quoted, select_from, statement_of, visit, visit_own,
};

/// Writes the name of a relation out where the first SELECT takes it for a value; whether there was one.
pub(super) async fn write_out(statement: &mut Statement, name: &str, state: &SessionState) -> bool {
    let relation = |query: &mut Query| {
        let select = first(&mut query.body, name)?;
        let factor = relation_of(select, name)?.clone();
        let mut from = select.from.get(..1)?.to_vec();
        for table in &mut from {
            table.relation = factor.clone();
            table.joins.clear();
        }
        Some(select_from(from))
    };
    let Some(all) = seek_query(statement, &mut |query| relation(query)) else { return false };
    let mut all = statement_of(all);
    // A relation that cannot be planned by itself, such as a lateral subquery, has no columns that are known.
    if write_out_columns(state, &mut all, Which::Merged).await.is_err() {
        return false;
    }
    let Ok(plan) = state.statement_to_plan(all).await else { return false };
    let fields = plan.schema().fields().iter().flat_map(|field| {
        let column = Expr::CompoundIdentifier(vec![quoted(name), quoted(field.name())]);
        [literal(field.name()), column]
    });
    let row = call("named_struct", fields.collect());
    visit(statement, &mut Rows { name, row }).is_break()
}

/// The first SELECT of a query's body that takes the name of one of its relations for a value.
fn first<'a>(body: &'a mut SetExpr, name: &str) -> Option<&'a mut Select> {
    match body {
        SetExpr::Select(select) => {
            let is_such = relation_of(select, name).is_some() && names_it(select.as_mut(), name);
            is_such.then_some(select.as_mut())
        }
        SetExpr::SetOperation { left, right, .. } => first(left, name).or_else(|| first(right, name)),
        _ => None,
    }
}

fn relation_of<'a>(select: &'a mut Select, name: &str) -> Option<&'a TableFactor> {
    let tables = select.from.iter_mut();
    let mut factors = tables.flat_map(|table| {
        std::iter::once(&mut table.relation).chain(table.joins.iter_mut().map(|join| &mut join.relation))
    });
    let found = factors.find_map(|factor| {
        let known = match alias_of(factor) {
            Some(alias) => Some(normal(&alias.name)),
            None => match factor {
                TableFactor::Table { name, .. } => last_name(name).map(normal),
                _ => None,
            },
        };
        (known.as_deref() == Some(name)).then_some(factor)
    });
    found.map(|factor| &*factor)
}

fn is_it(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Identifier(ident) if normal(ident) == name)
}

fn names_it(part: &mut impl VisitMut, name: &str) -> bool {
    visit_own(part, &mut |expr| match is_it(expr, name) {
        true => ControlFlow::Break(None),
        false => ControlFlow::Continue(()),
    })
    .is_break()
}

/// Writes the name out in the first such SELECT.
struct Rows<'a> {
    name: &'a str,
    row: Expr,
}

impl Rows<'_> {
    fn write(&self, part: &mut impl VisitMut) {
        let _ = visit_own(part, &mut |expr| {
            if is_it(expr, self.name) {
                *expr = self.row.clone();
            }
            ControlFlow::Continue(())
        });
    }
}

impl Walk for Rows<'_> {
    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        let Some(select) = first(&mut query.body, self.name) else { return ControlFlow::Continue(()) };
        for item in &mut select.projection {
            // A column is called as it was written.
            if let SelectItem::UnnamedExpr(expr) = item
                && names_it(expr, self.name)
            {
                let alias = if is_it(expr, self.name) { self.name.to_string() } else { expr.to_string() };
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: quoted(alias) };
            }
        }
        let is_column = |item: &SelectItem| matches!(item, SelectItem::ExprWithAlias { alias, .. } if normal(alias) == self.name);
        let has_column = select.projection.iter().any(is_column);
        self.write(select);
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(keys) = &mut order.kind
        {
            keys.iter_mut().filter(|key| !has_column || !is_it(&key.expr, self.name)).for_each(|key| {
                self.write(&mut key.expr);
            });
        }
        ControlFlow::Break(None)
    }
}
