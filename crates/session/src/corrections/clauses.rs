//! Clauses that have another form which DataFusion plans: `FROM t` alone, ORDER BY ALL, FETCH FIRST, GROUP BY … WITH ROLLUP, and lists of
//! grouping sets with the parentheses left out. And `(a JOIN b USING (k)) AS q`, whose columns are those of a query.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Fetch, GroupByExpr, GroupByWithModifier, LimitClause, OrderBy, OrderByExpr, OrderByKind,
    Query, Select, SelectFlavor, SelectItem, SetExpr, TableFactor, TableWithJoins, WildcardAdditionalOptions,
};

use crate::syntax::{Flow, Walk, as_alias, number, plain_query, quoted, select_all, visit};

/// Writes such clauses in the form that is planned.
pub(super) fn write_out(statement: &mut Statement) {
    let _ = visit(statement, &mut Clauses);
}

struct Clauses;

impl Walk for Clauses {
    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        if let Some(order) = &mut query.order_by {
            order_by_all(order, &mut query.body);
            order_by_items(order, &query.body);
        }
        fetch(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        if let TableFactor::NestedJoin { table_with_joins, alias: alias @ Some(_) } = factor {
            let select = select_all(vec![table_with_joins.as_ref().clone()]);
            let subquery = Box::new(plain_query(SetExpr::Select(Box::new(select))));
            *factor = TableFactor::Derived { lateral: false, subquery, alias: alias.take(), sample: None };
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        if select.flavor == SelectFlavor::FromFirstNoSelect && select.projection.is_empty() {
            select.flavor = SelectFlavor::FromFirst;
            select.projection.push(SelectItem::Wildcard(WildcardAdditionalOptions::default()));
        }
        if let GroupByExpr::Expressions(keys, modifiers) = &mut select.group_by {
            without_parentheses(keys);
            match modifiers.as_slice() {
                [GroupByWithModifier::Rollup] => *keys = vec![Expr::Rollup(sets_of(keys))],
                [GroupByWithModifier::Cube] => *keys = vec![Expr::Cube(sets_of(keys))],
                _ => return ControlFlow::Continue(()),
            }
            modifiers.clear();
        }
        ControlFlow::Continue(())
    }
}

/// `GROUP BY (a, b)` groups by `a` and `b`, not by a struct of them.
fn without_parentheses(keys: &mut Vec<Expr>) {
    if keys.iter().any(|key| matches!(key, Expr::Tuple(_) | Expr::Nested(_))) {
        let flat = std::mem::take(keys).into_iter().flat_map(|key| match key {
            Expr::Tuple(keys) => keys,
            Expr::Nested(key) => vec![*key],
            key => vec![key],
        });
        *keys = flat.collect();
    }
}

fn sets_of(keys: &mut Vec<Expr>) -> Vec<Vec<Expr>> {
    std::mem::take(keys).into_iter().map(|key| vec![key]).collect()
}

/// `ALL` cannot be the name of a column without quotes. It is all columns from left to right: by their places, where these are known.
fn order_by_all(order: &mut OrderBy, body: &mut SetExpr) {
    all_as_kind(order);
    let OrderByKind::All(options) = &order.kind else { return };
    let SetExpr::Select(select) = body else { return };
    let is_wildcard =
        |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    if select.projection.iter().any(is_wildcard) {
        if select.projection.len() > 1 {
            // DataFusion knows all columns of a subquery.
            let subquery = Box::new(plain_query(SetExpr::Select(select.clone())));
            let alias = as_alias(quoted("kelpie: ordered"));
            let relation =
                TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None };
            *body = SetExpr::Select(Box::new(select_all(vec![TableWithJoins { relation, joins: vec![] }])));
        }
        return;
    }
    let place = |place: usize| OrderByExpr { expr: number(place), options: *options, with_fill: None };
    order.kind = OrderByKind::Expressions((1..=select.projection.len()).map(place).collect());
}

/// A key that is a column of SELECT DISTINCT, written once more: DataFusion looks for what the key is made of among the columns.
fn order_by_items(order: &mut OrderBy, body: &SetExpr) {
    let (OrderByKind::Expressions(keys), SetExpr::Select(select)) = (&mut order.kind, body) else { return };
    let is_wildcard =
        |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    if !matches!(select.distinct, Some(Distinct::Distinct)) || select.projection.iter().any(is_wildcard) {
        return;
    }
    for key in keys.iter_mut().filter(|key| matches!(key.expr, Expr::Function(_) | Expr::BinaryOp { .. })) {
        let is_item = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => *expr == key.expr,
            _ => false,
        };
        if let Some(place) = select.projection.iter().position(is_item) {
            key.expr = number(place + 1);
        }
    }
}

fn all_as_kind(order: &mut OrderBy) {
    let OrderByKind::Expressions(keys) = &order.kind else { return };
    let [key] = keys.as_slice() else { return };
    if let Expr::Identifier(name) = &key.expr
        && name.quote_style.is_none()
        && name.value.eq_ignore_ascii_case("all")
    {
        order.kind = OrderByKind::All(key.options);
    }
}

/// FETCH FIRST n ROWS ONLY is LIMIT n.
fn fetch(query: &mut Query) {
    let Some(fetch) = query.fetch.take_if(|fetch| !fetch.with_ties && !fetch.percent) else { return };
    let rows = fetch.quantity.unwrap_or_else(|| number("1"));
    match &mut query.limit_clause {
        None => {
            query.limit_clause =
                Some(LimitClause::LimitOffset { limit: Some(rows), offset: None, limit_by: vec![] });
        }
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = Some(rows),
        // Both: DataFusion refuses it.
        Some(_) => query.fetch = Some(Fetch { quantity: Some(rows), ..fetch }),
    }
}
