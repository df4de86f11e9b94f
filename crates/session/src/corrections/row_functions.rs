//! Relations of what functions give: `FROM t, unnest(string_to_array(t.s, ','))`, `FROM generate_series(1, t.i)`.
//!
//! DataFusion plans the arguments of `unnest` without the columns around where it must know their types, and those of `generate_series`
//! as constants. Here such a relation is the query that it stands for, `(SELECT unnest(…))`, and LATERAL behind other relations. WITH
//! ORDINALITY numbers the elements.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, ObjectNamePart,
    Select, SelectItem, SetExpr, TableFactor, TableWithJoins, UnaryOperator, Value,
};

use crate::syntax::{
    Flow, Walk, call, cast, names_columns, normal, number, plain_query, quoted, select_all, visit,
};
use crate::times::SERIES;

/// Writes such relations as queries.
pub(super) fn write_out(statement: &mut Statement) {
    let _ = visit(statement, &mut Relations);
}

const UNNEST: &str = "unnest";

struct Relations;

impl Walk for Relations {
    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        for (place, table) in select.from.iter_mut().enumerate() {
            tables(table, place > 0);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            tables(table_with_joins, false);
        }
        ControlFlow::Continue(())
    }
}

/// The relations of joins; the first one may refer to what stands before it only where there is something.
fn tables(table: &mut TableWithJoins, follows: bool) {
    write(&mut table.relation, follows);
    for join in &mut table.joins {
        write(&mut join.relation, true);
    }
}

fn write(factor: &mut TableFactor, follows: bool) {
    let mut is_numbered = false;
    let (mut columns, is_lateral) = match factor {
        TableFactor::UNNEST {
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality,
            ..
        } => {
            is_numbered = *with_ordinality;
            (array_exprs.iter().cloned().map(unnested).collect::<Vec<_>>(), false)
        }
        TableFactor::Table { name, args: Some(args), with_ordinality, sample: None, .. } => {
            is_numbered = *with_ordinality;
            let Some(columns) = columns_of(name, &args.args, is_numbered) else { return };
            (columns, false)
        }
        TableFactor::Function { lateral, name, args, .. } => {
            let Some(columns) = columns_of(name, args, false) else { return };
            (columns, *lateral)
        }
        _ => return,
    };
    let is_series = columns.iter().any(|column| column.name != UNNEST);
    let refers = columns.iter().any(|column| names_columns(&column.expr));
    // What needs nothing else is DataFusion's, which makes numbers as they are asked for.
    if !refers && !is_series && !is_lateral && !is_numbered {
        return;
    }
    if is_numbered {
        // Numbers of several lists are those of the longest one, which only the rows know.
        let [Column { expr: Expr::Function(unnest), .. }] = columns.as_slice() else { return };
        let Some(numbers) = numbers_of(unnest) else { return };
        columns.push(Column { expr: numbers, name: "ordinality" });
    }
    let mut select = select_all(vec![]);
    select.projection = columns
        .into_iter()
        .map(|column| SelectItem::ExprWithAlias { expr: column.expr, alias: quoted(column.name) })
        .collect();
    let subquery = Box::new(plain_query(SetExpr::Select(Box::new(select))));
    let alias = match factor {
        TableFactor::UNNEST { alias, .. }
        | TableFactor::Table { alias, .. }
        | TableFactor::Function { alias, .. } => alias.take(),
        _ => None,
    };
    let lateral = follows && (refers || is_lateral);
    *factor = TableFactor::Derived { lateral, subquery, alias, sample: None };
}

/// A column of such a relation.
struct Column {
    expr: Expr,
    name: &'static str,
}

fn unnested(list: Expr) -> Column {
    Column { expr: call(UNNEST, vec![list]), name: UNNEST }
}

/// The numbers of a list's elements, as rows.
fn numbers_of(unnest: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &unnest.args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(list))] = list.args.as_slice() else { return None };
    let length = cast(call("array_length", vec![list.clone()]), DataType::BigInt(None));
    Some(call(UNNEST, vec![call("generate_series", vec![number("1"), length])]))
}

/// The columns of a call that is a query; of numbers that are written out, a series is DataFusion's, unless it is numbered.
fn columns_of(name: &ObjectName, args: &[FunctionArg], is_numbered: bool) -> Option<Vec<Column>> {
    let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
    let args = args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => Some(arg.clone()),
        _ => None,
    });
    let args: Vec<Expr> = args.collect::<Option<_>>()?;
    let name = normal(name);
    if name == UNNEST {
        return Some(args.into_iter().map(unnested).collect());
    }
    let (_, of_relation) = SERIES.iter().find(|(known, _)| *known == name)?;
    if args.iter().all(is_number) && !is_numbered {
        return None;
    }
    Some(vec![Column { expr: call(UNNEST, vec![call(of_relation, args)]), name: "value" }])
}

fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(value.value, Value::Number(..) | Value::Null),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_number(expr),
        Expr::Nested(expr) => is_number(expr),
        _ => false,
    }
}
