//! `ARRAY(SELECT x FROM t ORDER BY y)`: the list of a query's rows, empty where there is none.

use datafusion::common::{plan_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArguments, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr,
    Statement as Sql, TableFactor, Value, WindowSpec, WindowType,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::syntax::{call, name_of, normal, quoted};

/// A list, and an empty one where it is NULL.
pub(super) const LIST_OR_EMPTY: &str = "list_or_empty";

const ELEMENT: &str = "kelpie: element";
const PLACE: &str = "kelpie: place";

/// The list as an aggregate of the query's rows, where a call is of one.
pub(super) fn written_out(function: &Function) -> Result<Option<Expr>> {
    let FunctionArguments::Subquery(query) = &function.args else { return Ok(None) };
    if name_of(function).as_deref() != Some("array") {
        return Ok(None);
    }
    let list = Expr::Subquery(Box::new(list_of(query.as_ref().clone())?));
    // It stands around the query, which has no row where it names columns of queries around and finds nothing.
    Ok(Some(call(LIST_OR_EMPTY, vec![list])))
}

/// What the elements are ordered by.
enum Order {
    Any,
    /// The place of a row, a second column.
    Place,
    /// The element itself, as the only key says it.
    Element(Box<OrderByExpr>),
}

fn list_of(mut query: Query) -> Result<Query> {
    let keys = match query.order_by.as_ref().map(|order| &order.kind) {
        None => vec![],
        Some(OrderByKind::Expressions(keys)) => keys.clone(),
        Some(OrderByKind::All(_)) => return plan_err!("ARRAY of a query with ORDER BY ALL: name the column"),
    };
    let order = match (keys.as_slice(), query.body.as_mut()) {
        ([], _) => Order::Any,
        (_, SetExpr::Select(select)) if select.distinct.is_none() => {
            add_place(select, &keys)?;
            Order::Place
        }
        ([only], _) => Order::Element(Box::new(only.clone())),
        _ => return plan_err!("ARRAY of a query with DISTINCT or UNION has one key of ORDER BY, its column"),
    };
    if query.limit_clause.is_none() && query.fetch.is_none() {
        query.order_by = None;
    }
    let (key, columns) = match &order {
        Order::Any => (String::new(), format!("\"{ELEMENT}\"")),
        Order::Place => (format!(" ORDER BY \"{PLACE}\""), format!("\"{ELEMENT}\", \"{PLACE}\"")),
        Order::Element(key) => (format!(" ORDER BY \"{ELEMENT}\"{}", key.options), format!("\"{ELEMENT}\"")),
    };
    let text =
        format!("SELECT array_agg(\"{ELEMENT}\"{key}) FROM (SELECT 1) AS \"kelpie: rows\" ({columns})");
    let mut list = match Parser::parse_sql(&GenericDialect, &text)?.pop() {
        Some(Sql::Query(list)) => *list,
        _ => return Err(not_written()),
    };
    if let SetExpr::Select(select) = list.body.as_mut()
        && let Some(table) = select.from.first_mut()
        && let TableFactor::Derived { subquery, .. } = &mut table.relation
    {
        **subquery = query;
        return Ok(list);
    }
    Err(not_written())
}

fn not_written() -> datafusion::error::DataFusionError {
    plan_datafusion_err!("ARRAY of a query that cannot be written as a list")
}

/// Adds the place of each row in an order as a column.
fn add_place(select: &mut Select, keys: &[OrderByExpr]) -> Result<()> {
    let [item] = select.projection.as_slice() else {
        return plan_err!(
            "ARRAY takes a query with one column, and this one has {}",
            select.projection.len()
        );
    };
    let (element, name) = match item {
        SelectItem::UnnamedExpr(expr) => (Some(expr.clone()), None),
        SelectItem::ExprWithAlias { expr, alias } => (Some(expr.clone()), Some(normal(alias))),
        _ => (None, None),
    };
    let order_by = keys.iter().map(|key| {
        let is_element = match &key.expr {
            Expr::Value(value) => matches!(&value.value, Value::Number(number, _) if number == "1"),
            Expr::Identifier(column) => name.as_ref() == Some(&normal(column)),
            _ => false,
        };
        let expr = element.clone().filter(|_| is_element).unwrap_or_else(|| key.expr.clone());
        OrderByExpr { expr, ..key.clone() }
    });
    let spec = WindowSpec {
        window_name: None,
        partition_by: vec![],
        order_by: order_by.collect(),
        window_frame: None,
    };
    if let Expr::Function(number) = call("row_number", vec![]) {
        let number = Function { over: Some(WindowType::WindowSpec(spec)), ..number };
        select
            .projection
            .push(SelectItem::ExprWithAlias { expr: Expr::Function(number), alias: quoted(PLACE) });
    }
    Ok(())
}
