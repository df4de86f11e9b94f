//! Rows that are compared, `(a, b) < (c, d)` and `(a, b) IN (SELECT …)`. DataFusion compares them as structs, where NULL is a value with a
//! place in the order, and takes none from a subquery. Here each becomes what the standard says of its columns.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Query, SelectItem, SetExpr, Statement as Sql, TableAlias,
    TableAliasColumnDef, TableFactor, TableWithJoins, UnaryOperator, Value,
};

use crate::syntax::{Flow, Walk, call, plain_query, quoted, select_all, visit};

/// Writes out the comparisons of rows, and then what is left of those that DataFusion takes no rows of.
pub(super) fn write_out(statement: &mut Statement) {
    let _ = visit(statement, &mut Rows { made: 0 });
    // Those of `SET (a, b) = (b, a + 1)` are no values.
    let assigns = matches!(statement, Statement::Statement(statement)
        if matches!(statement.as_ref(), Sql::Update(_) | Sql::Merge(_) | Sql::Insert(_)));
    if !assigns {
        let _ = visit(statement, &mut Computed);
    }
}

/// Rows of what is computed, `count(DISTINCT (a % 2, b))`: DataFusion takes columns and constants, and structs of anything.
struct Computed;

impl Walk for Computed {
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::Tuple(columns) = expr
            && columns.iter().any(|column| {
                !matches!(column, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_))
            })
        {
            *expr = call("struct", std::mem::take(columns));
        }
        ControlFlow::Continue(())
    }
}

struct Rows {
    /// Subqueries that were given names.
    made: usize,
}

impl Walk for Rows {
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let written = match &*expr {
            Expr::BinaryOp { left, op, right } => match (row(left), row(right)) {
                (Some(left), Some(right)) if left.len() == right.len() => compared(left, op, right),
                _ => None,
            },
            Expr::InList { expr, list, negated } => row(expr).and_then(|row| in_list(row, list, *negated)),
            Expr::InSubquery { expr, subquery, negated } => {
                row(expr).map(|row| self.in_subquery(row, subquery, *negated))
            }
            _ => None,
        };
        if let Some(written) = written {
            *expr = written;
        }
        ControlFlow::Continue(())
    }
}

/// The columns of a row that is written out.
fn row(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(columns) if columns.len() > 1 => Some(columns),
        Expr::Nested(inner) => row(inner),
        _ => None,
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(nested(expr)) }
}

fn equal(left: &[Expr], right: &[Expr]) -> Option<Expr> {
    let pairs = left.iter().zip(right);
    let pairs =
        pairs.map(|(left, right)| binary(nested(left.clone()), BinaryOperator::Eq, nested(right.clone())));
    pairs.reduce(|all, pair| binary(all, BinaryOperator::And, pair))
}

fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Option<Expr> {
    let (strict, last) = match op {
        BinaryOperator::Eq => return equal(left, right).map(nested),
        BinaryOperator::NotEq => return equal(left, right).map(|equal| nested(not(equal))),
        BinaryOperator::Lt | BinaryOperator::LtEq => (BinaryOperator::Lt, op),
        BinaryOperator::Gt | BinaryOperator::GtEq => (BinaryOperator::Gt, op),
        _ => return None,
    };
    // From the last column: the first that differs decides.
    let mut decided: Option<Expr> = None;
    for (left, right) in left.iter().zip(right).rev() {
        let pair = |op: &BinaryOperator| binary(nested(left.clone()), op.clone(), nested(right.clone()));
        decided = Some(match decided {
            None => pair(last),
            Some(rest) => {
                let tied = binary(pair(&BinaryOperator::Eq), BinaryOperator::And, nested(rest));
                binary(pair(&strict), BinaryOperator::Or, tied)
            }
        });
    }
    decided.map(nested)
}

fn in_list(columns: &[Expr], list: &[Expr], negated: bool) -> Option<Expr> {
    let pairs = list.iter().map(|item| equal(columns, row(item).filter(|item| item.len() == columns.len())?));
    let pairs = pairs.collect::<Option<Vec<Expr>>>()?;
    let any = pairs.into_iter().map(nested).reduce(|any, pair| binary(any, BinaryOperator::Or, pair))?;
    Some(nested(if negated { not(any) } else { any }))
}

impl Rows {
    /// `TRUE IN (SELECT a = c AND b = d FROM (…) AS q (c, d))`.
    fn in_subquery(&mut self, row: &[Expr], subquery: &Query, negated: bool) -> Expr {
        self.made += 1;
        let name = |place: usize| quoted(format!("kelpie: row {} {place}", self.made));
        let columns = (0..row.len()).map(name).map(|name| TableAliasColumnDef { name, data_type: None });
        let alias = TableAlias {
            explicit: true,
            name: quoted(format!("kelpie: rows {}", self.made)),
            columns: columns.collect(),
            at: None,
        };
        let relation = TableFactor::Derived {
            lateral: false,
            subquery: Box::new(subquery.clone()),
            alias: Some(alias),
            sample: None,
        };
        let mut select = select_all(vec![TableWithJoins { relation, joins: vec![] }]);
        let others: Vec<Expr> = (0..row.len()).map(|place| Expr::Identifier(name(place))).collect();
        let equal = equal(row, &others).unwrap_or_else(|| Expr::value(Value::Boolean(true)));
        select.projection = vec![SelectItem::ExprWithAlias { expr: equal, alias: Ident::new("equal") }];
        let subquery = Box::new(plain_query(SetExpr::Select(Box::new(select))));
        Expr::InSubquery { expr: Box::new(Expr::value(Value::Boolean(true))), subquery, negated }
    }
}
