//! `j -> 'a'` and `j ->> 'a'` of JSON. The parser binds them as the loosest of all operators; they come right after arithmetic and as close
//! as `||`, as in PostgreSQL and DuckDB.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, Precedence};

use super::functions::{literal, text};
use crate::syntax::{call, taken};

/// What a function of the session's that reads JSON with arrows of its own is called.
const OTHER: &str = "json_get";

/// Whether arrows mean what this says: some sessions have a planner of their own for them.
pub(super) fn are_ours(has_function: impl Fn(&str) -> bool) -> bool {
    !has_function(OTHER)
}

/// How close an operator binds that stands between operands or behind one; `||` comes right after arithmetic.
fn level(expr: &Expr) -> u8 {
    let level = |precedence| GenericDialect.prec_value(precedence);
    match expr {
        Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotUnknown(_)
        | Expr::IsDistinctFrom(..)
        | Expr::IsNotDistinctFrom(..) => level(Precedence::Is),
        Expr::Like { .. } | Expr::ILike { .. } | Expr::SimilarTo { .. } | Expr::RLike { .. } => {
            level(Precedence::Like)
        }
        Expr::InList { .. } | Expr::InSubquery { .. } | Expr::Between { .. } => level(Precedence::Between),
        Expr::UnaryOp { op: UnaryOperator::Not, .. } => level(Precedence::UnaryNot),
        Expr::BinaryOp { op, .. } => match op {
            BinaryOperator::Or => level(Precedence::Or),
            BinaryOperator::And => level(Precedence::And),
            BinaryOperator::Xor => level(Precedence::Xor),
            BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
            | BinaryOperator::Spaceship => level(Precedence::Eq),
            BinaryOperator::BitwiseAnd => level(Precedence::Ampersand),
            BinaryOperator::BitwiseXor => level(Precedence::Caret),
            BinaryOperator::BitwiseOr => level(Precedence::Pipe),
            BinaryOperator::StringConcat
            | BinaryOperator::Arrow
            | BinaryOperator::LongArrow
            | BinaryOperator::HashArrow
            | BinaryOperator::HashLongArrow => arrow(),
            _ => u8::MAX,
        },
        _ => u8::MAX,
    }
}

fn arrow() -> u8 {
    GenericDialect.prec_value(Precedence::PlusMinus) - 1
}

/// The operand on the left of an operator.
pub(super) fn left_of(expr: &mut Expr) -> Option<&mut Expr> {
    match expr {
        Expr::IsNull(of)
        | Expr::IsNotNull(of)
        | Expr::IsTrue(of)
        | Expr::IsNotTrue(of)
        | Expr::IsFalse(of)
        | Expr::IsNotFalse(of)
        | Expr::IsUnknown(of)
        | Expr::IsNotUnknown(of)
        | Expr::IsDistinctFrom(of, _)
        | Expr::IsNotDistinctFrom(of, _)
        | Expr::Like { expr: of, .. }
        | Expr::ILike { expr: of, .. }
        | Expr::SimilarTo { expr: of, .. }
        | Expr::RLike { expr: of, .. }
        | Expr::InList { expr: of, .. }
        | Expr::InSubquery { expr: of, .. }
        | Expr::Between { expr: of, .. }
        | Expr::BinaryOp { left: of, .. } => Some(of),
        _ => None,
    }
}

/// The operand on the right of an operator.
fn right_of(expr: &mut Expr) -> Option<&mut Expr> {
    match expr {
        Expr::IsDistinctFrom(_, of)
        | Expr::IsNotDistinctFrom(_, of)
        | Expr::Like { pattern: of, .. }
        | Expr::ILike { pattern: of, .. }
        | Expr::SimilarTo { pattern: of, .. }
        | Expr::RLike { pattern: of, .. }
        | Expr::Between { high: of, .. }
        | Expr::UnaryOp { op: UnaryOperator::Not, expr: of }
        | Expr::BinaryOp { right: of, .. } => Some(of),
        _ => None,
    }
}

/// PostgreSQL's `{a,0}` as the pointer `/a/0`.
fn pointer(path: &str) -> Option<String> {
    let keys = path.strip_prefix('{')?.strip_suffix('}')?;
    let key = |key: &str| format!("/{}", key.trim().trim_matches('"').replace('~', "~0").replace('/', "~1"));
    Some(if keys.is_empty() { String::new() } else { keys.split(',').map(key).collect() })
}

/// An operator whose operand next to an arrow has been taken out.
struct Around {
    expr: Expr,
    is_before: bool,
}

impl Around {
    fn put(mut self, operand: Expr) -> Expr {
        let place = if self.is_before { right_of(&mut self.expr) } else { left_of(&mut self.expr) };
        if let Some(place) = place {
            *place = operand;
        }
        self.expr
    }
}

/// Writes an arrow as a call, of the operands that are next to it.
pub(super) fn rewrite(expr: &mut Expr) {
    let Expr::BinaryOp { left, op, right } = expr else { return };
    let name = match op {
        BinaryOperator::Arrow => "json_extract",
        BinaryOperator::LongArrow => "json_extract_string",
        BinaryOperator::HashArrow => "json_extract",
        BinaryOperator::HashLongArrow => "json_extract_string",
        _ => return,
    };
    let is_path = matches!(op, BinaryOperator::HashArrow | BinaryOperator::HashLongArrow);
    let (mut value, mut key) = (taken(left), taken(right));
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    while level(&value) < arrow()
        && let Some(operand) = right_of(&mut value)
    {
        let operand = taken(operand);
        before.push(Around { expr: std::mem::replace(&mut value, operand), is_before: true });
    }
    while level(&key) <= arrow()
        && let Some(operand) = left_of(&mut key)
    {
        let operand = taken(operand);
        behind.push(Around { expr: std::mem::replace(&mut key, operand), is_before: false });
    }
    if is_path && let Some(pointer) = text(&key).and_then(pointer) {
        key = literal(pointer);
    }
    let mut written = call(name, vec![value, key]);
    loop {
        let closer = match (before.last(), behind.last()) {
            (Some(first), Some(second)) if level(&second.expr) > level(&first.expr) => behind.pop(),
            (Some(_), _) => before.pop(),
            (None, _) => behind.pop(),
        };
        let Some(around) = closer else { break };
        written = around.put(written);
    }
    *expr = written;
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    /// An expression with its arrows written out, the innermost ones first as a walk has them.
    fn grouped(sql: &str) -> String {
        fn all(expr: &mut Expr) {
            match expr {
                Expr::BinaryOp { left, right, .. } => {
                    [left, right].into_iter().for_each(|operand| all(operand))
                }
                Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => all(inner),
                _ => {}
            }
            rewrite(expr);
        }
        let mut expr = Parser::new(&GenericDialect).try_with_sql(sql).unwrap().parse_expr().unwrap();
        all(&mut expr);
        let written = format!("{expr}");
        written.replace("json_extract_string", "t").replace("json_extract", "j")
    }

    #[test]
    fn arrows_bind_after_arithmetic() {
        for (sql, expected) in [
            ("a -> 'b' = 'x'", "j(a, 'b') = 'x'"),
            ("a -> 'b' ->> 'c' = 'x' || y", "t(j(a, 'b'), 'c') = 'x' || y"),
            ("a ->> 'b' || 'x' || c", "t(a, 'b') || 'x' || c"),
            ("a || b ->> 'c'", "t(a || b, 'c')"),
            ("a -> 1 + 2", "j(a, 1 + 2)"),
            ("x = a -> 'b'", "x = j(a, 'b')"),
            ("x = a ->> 'b' AND y", "x = t(a, 'b') AND y"),
            ("x AND a ->> 'b' IS NULL", "x AND t(a, 'b') IS NULL"),
            ("x = a -> 'b' ->> 0 IS NULL", "x = t(j(a, 'b'), 0) IS NULL"),
            ("a ->> 'b' LIKE 'x%' OR z", "t(a, 'b') LIKE 'x%' OR z"),
            ("a ->> 'b' IN ('x', 'y')", "t(a, 'b') IN ('x', 'y')"),
            ("a ->> 'b' BETWEEN 'x' AND c ->> 'd'", "t(a, 'b') BETWEEN 'x' AND t(c, 'd')"),
            ("a -> -1", "j(a, -1)"),
            ("a #>> '{b,0}' = 'x'", "t(a, '/b/0') = 'x'"),
            ("(a ->> 'n')::INT + 1", "(t(a, 'n'))::INT + 1"),
        ] {
            assert_eq!(grouped(sql), expected, "{sql}");
        }
    }
}
