//! Columns that an aggregation computes.
//!
//! `SELECT k, sum(v) + 1 … GROUP BY k ORDER BY 2`: DataFusion finds a computed column by its place only where it has a name, and under
//! DISTINCT not at all. Here the order says what the column says; where that may not be computed twice, the column gets a name.
//!
//! A thousand of them: DataFusion hashes all of them anew for each, unless something stands between the aggregation and its columns.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Value,
};

use crate::syntax::{Flow, Walk, last_name, normal, quoted, taken, visit, visit_part};

/// So many columns are many.
const MANY_COLUMNS: usize = 64;

/// Names of aggregate functions.
static AGGREGATES: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let functions = all_default_aggregate_functions().into_iter();
    functions
        .flat_map(|function| {
            function.aliases().iter().cloned().chain([function.name().to_string()]).collect::<Vec<_>>()
        })
        .collect()
});

/// Writes out by what aggregations are ordered, and puts a condition between them and many columns.
pub(super) fn write_out(statement: &mut Statement) {
    let _ = visit(statement, &mut Aggregations);
}

struct Aggregations;

impl Walk for Aggregations {
    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        if select.projection.len() >= MANY_COLUMNS && select.having.is_none() && is_aggregation(select) {
            select.having = Some(Expr::value(Value::Boolean(true)));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        let Some(order) = &mut query.order_by else { return ControlFlow::Continue(()) };
        let (OrderByKind::Expressions(keys), SetExpr::Select(select)) =
            (&mut order.kind, query.body.as_mut())
        else {
            return ControlFlow::Continue(());
        };
        let is_grouped = is_grouped(select);
        for key in keys {
            let Some(place) = place_of(&key.expr, select) else { continue };
            let Some(SelectItem::UnnamedExpr(column)) = select.projection.get_mut(place) else { continue };
            let calls = Calls::of(column);
            if !(is_grouped || calls.aggregate) {
                continue;
            }
            if select.distinct.is_none() && calls.may_repeat {
                key.expr = column.clone();
                continue;
            }
            let alias = quoted(column.to_string());
            let named = SelectItem::ExprWithAlias { expr: taken(column), alias: alias.clone() };
            select.projection[place] = named;
            key.expr = Expr::Identifier(alias);
        }
        ControlFlow::Continue(())
    }
}

fn is_grouped(select: &Select) -> bool {
    !matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty())
}

fn is_aggregation(select: &mut Select) -> bool {
    is_grouped(select)
        || select.projection.iter_mut().any(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                Calls::of(expr).aggregate
            }
            _ => false,
        })
}

/// The place of the computed column that a key is the number of.
fn place_of(key: &Expr, select: &Select) -> Option<usize> {
    let is_computed = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) => {
            !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_))
        }
        _ => false,
    };
    let items = &select.projection;
    let is_plain =
        |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    let place = match key {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.to_string().parse::<usize>().ok()?.checked_sub(1)?,
            _ => return None,
        },
        _ => return None,
    };
    let known = items.get(..=place)?;
    (known.iter().all(is_plain) && known.last().is_some_and(is_computed)).then_some(place)
}

/// What an expression calls.
struct Calls {
    aggregate: bool,
    /// Whether it is the same when it is computed once more.
    may_repeat: bool,
}

impl Calls {
    fn of(expr: &mut Expr) -> Calls {
        let mut calls = Calls { aggregate: false, may_repeat: true };
        let _ = visit_part(expr, &mut calls);
        calls
    }
}

impl Walk for Calls {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::Function(Function { name, over, .. }) => {
                let name = last_name(name).map(normal).unwrap_or_default();
                self.aggregate |= over.is_none() && AGGREGATES.contains(&name);
                self.may_repeat &=
                    !matches!(name.as_str(), "random" | "uuid" | "gen_random_uuid" | "uuidv4" | "uuidv7");
            }
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => self.may_repeat = false,
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
