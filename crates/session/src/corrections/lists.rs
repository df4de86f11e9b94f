//! Lists of IN that are asked for one value. DataFusion makes one list of `x IN (a, b) AND x IN (c, b)`: of what is written in both,
//! though `a` may equal `c`, and FALSE where they have nothing in common, also for an `x` that is NULL. Here lists with more than constants
//! are comparisons, and lists of constants that leave nothing are what they are for NULL.

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, lit};
use kelpie_datafusion::{LogicalRule, map_expressions};

use super::expressions::has_expr;

/// Writes out lists of IN that DataFusion would put together wrongly.
pub(crate) const LISTS: LogicalRule = LogicalRule {
    name: "kelpie_lists",
    applies: |options| options.corrections,
    rewrite: |plan| {
        if !has_expr(&plan, |expr| matches!(expr, Expr::InList(_)))? {
            return Ok(plan);
        }
        let written = plan.transform_up_with_subqueries(|node| {
            let has_list = |expr: &Expr| expr.exists(|expr| Ok(matches!(expr, Expr::InList(_))));
            map_expressions(node, has_list, |expr| {
                let written = expr.transform_down(|expr| Ok(without_nothing(expr)))?;
                written.transform_data(|expr| expr.transform_up(|expr| Ok(compared(expr))))
            })
        })?;
        Ok(written.data)
    },
};

fn is_constant(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if !value.is_null())
}

/// Whether an expression becomes one constant: two of them are equal only where they are written so.
fn is_fixed(expr: &Expr) -> bool {
    let varies = expr.exists(|expr| {
        Ok(match expr {
            Expr::Literal(value, _) => value.is_null(),
            expr => matches!(
                expr,
                Expr::Column(_)
                    | Expr::OuterReferenceColumn(..)
                    | Expr::ScalarSubquery(_)
                    | Expr::AggregateFunction(_)
            ),
        })
    });
    !varies.unwrap_or(true) && !expr.is_volatile()
}

/// Comparisons in place of a list that has more than constants.
fn compared(expr: Expr) -> Transformed<Expr> {
    let Expr::InList(list) = expr else { return Transformed::no(expr) };
    if list.list.is_empty() || list.list.iter().all(is_fixed) || list.expr.is_volatile() {
        return Transformed::no(Expr::InList(list));
    }
    let InList { expr, list, negated } = list;
    let (comparison, and) =
        if negated { (Operator::NotEq, Operator::And) } else { (Operator::Eq, Operator::Or) };
    let mut parts: Vec<Expr> =
        list.into_iter().map(|item| binary(expr.as_ref().clone(), comparison, item)).collect();
    // As flat as may be.
    while parts.len() > 1 {
        let mut left = parts.into_iter();
        parts = Vec::new();
        while let Some(first) = left.next() {
            parts.push(match left.next() {
                Some(second) => binary(first, and, second),
                None => first,
            });
        }
    }
    Transformed::yes(parts.pop().unwrap_or_else(|| lit(negated)))
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

/// A chain of AND, or of OR, without lists of constants that contradict each other.
fn without_nothing(expr: Expr) -> Transformed<Expr> {
    let op = match &expr {
        Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => *op,
        _ => return Transformed::no(expr),
    };
    let mut links = Vec::new();
    chain(&expr, op, &mut links);
    let mut values: Vec<&Expr> = Vec::new();
    for list in links.iter().filter_map(|link| constants(link)) {
        if !values.contains(&list.expr.as_ref()) {
            values.push(&list.expr);
        }
    }
    let empty: Vec<&Expr> = values.into_iter().filter(|value| leaves_nothing(value, op, &links)).collect();
    if empty.is_empty() {
        return Transformed::no(expr);
    }
    let others =
        links.iter().filter(|link| constants(link).is_none_or(|list| !empty.contains(&list.expr.as_ref())));
    let others = others.map(|link| (*link).clone());
    let null = || lit(ScalarValue::Boolean(None));
    let asked = empty.iter().map(|value| match op {
        Operator::And => binary((*value).clone().is_null(), Operator::And, null()),
        _ => binary((*value).clone().is_not_null(), Operator::Or, null()),
    });
    let all = others.chain(asked).reduce(|left, right| binary(left, op, right));
    all.map_or_else(|| Transformed::no(expr.clone()), Transformed::yes)
}

/// The operands of a chain of one operator, from left to right.
fn chain<'a>(expr: &'a Expr, op: Operator, links: &mut Vec<&'a Expr>) {
    let mut rest = vec![expr];
    while let Some(expr) = rest.pop() {
        match expr {
            Expr::BinaryExpr(link) if link.op == op => rest.extend([link.right.as_ref(), link.left.as_ref()]),
            expr => links.push(expr),
        }
    }
}

fn constants(expr: &Expr) -> Option<&InList> {
    match expr {
        Expr::InList(list) if list.list.iter().all(is_constant) && !list.expr.is_volatile() => Some(list),
        _ => None,
    }
}

/// Whether the lists of a value in a chain cannot all hold, or with OR cannot all fail.
fn leaves_nothing(value: &Expr, op: Operator, links: &[&Expr]) -> bool {
    let lists = || links.iter().filter_map(|link| constants(link)).filter(|list| *list.expr == *value);
    // Of `x NOT IN … OR x NOT IN …`, what is in all of the lists.
    let (mut with, without): (Vec<&InList>, Vec<&InList>) =
        lists().partition(|list| list.negated == (op == Operator::Or));
    let Some(first) = with.pop() else { return false };
    if op == Operator::Or && !without.is_empty() || with.is_empty() && without.is_empty() {
        return false;
    }
    first.list.iter().all(|item| {
        with.iter().any(|list| !list.list.contains(item))
            || without.iter().any(|list| list.list.contains(item))
    })
}
