//! `SELECT b AS a FROM t ORDER BY t.a`: the rows are in the order of a column that is not shown, whose name another one has. DataFusion
//! adds such a key to the columns that are shown, where there are two of the name then. Here what is shown gets another name below the sort.

use std::collections::HashSet;
use std::mem;

use datafusion::sql::sqlparser::ast::{
    Expr, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor, TableWithJoins,
};

use super::unique_names::column_name;
use crate::syntax::{as_alias, change_exprs, normal, plain_query, quoted, select_all};

/// A column that has another name within a query.
pub(super) struct Renamed {
    pub within: String,
    pub shown: String,
}

/// Gives columns of a query that is one SELECT other names where keys of its order have theirs; those that were given.
pub(super) fn rename_beside_keys(query: &mut Query, unused: &mut dyn FnMut(&str) -> String) -> Vec<Renamed> {
    let (SetExpr::Select(select), Some(order)) = (query.body.as_mut(), &mut query.order_by) else {
        return Vec::new();
    };
    let OrderByKind::Expressions(keys) = &mut order.kind else { return Vec::new() };
    // Columns by which rows are ordered, as they are written, and their names.
    let (mut written, mut names) = (HashSet::new(), HashSet::new());
    change_exprs(keys, &mut |expr| {
        if let (Expr::CompoundIdentifier(_), Some(name)) = (&*expr, column_name(expr)) {
            written.insert(expr.to_string());
            names.insert(name);
        }
    });
    let mut renamed = Vec::new();
    for item in &mut select.projection {
        let SelectItem::ExprWithAlias { expr, alias } = item else { continue };
        let shown = normal(alias);
        let is_key = column_name(expr).is_some_and(|name| name == shown)
            && (written.contains(&expr.to_string()) || matches!(expr, Expr::Identifier(_)));
        if names.contains(&shown) && !is_key {
            let within = unused(&format!("kelpie: {shown}"));
            *alias = quoted(within.as_str());
            renamed.push(Renamed { within, shown });
        }
    }
    change_exprs(keys, &mut |expr| {
        if let Expr::Identifier(name) = expr
            && let Some(renamed) = renamed.iter().find(|renamed| renamed.shown == normal(name))
        {
            *name = quoted(renamed.within.as_str());
        }
    });
    renamed
}

/// Puts a query around one that shows its columns under the names that they had, where all of them have one.
pub(super) fn show_names(query: &mut Query, renamed: &[Renamed]) {
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    let columns = select.projection.iter().map(|item| {
        let within = match item {
            SelectItem::ExprWithAlias { alias, .. } => normal(alias),
            SelectItem::UnnamedExpr(expr) => column_name(expr)?,
            _ => return None,
        };
        let shown = renamed.iter().find(|renamed| renamed.within == within).map(|renamed| &renamed.shown);
        let alias = quoted(shown.unwrap_or(&within).as_str());
        Some(SelectItem::ExprWithAlias { expr: Expr::Identifier(quoted(within)), alias })
    });
    let Some(projection) = columns.collect::<Option<Vec<_>>>() else { return };
    let around = plain_query(SetExpr::Select(Box::new(Select { projection, ..select_all(vec![]) })));
    let subquery = Box::new(mem::replace(query, around));
    if let SetExpr::Select(select) = query.body.as_mut() {
        let alias = Some(as_alias(quoted("kelpie: ordered")));
        let relation = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
        select.from = vec![TableWithJoins { relation, joins: vec![] }];
    }
}
