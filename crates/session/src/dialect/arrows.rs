//! `j -> 'a'` and `j ->> 'a'` of JSON. The parser binds them as the loosest of all operators; they come right after arithmetic and as close
//! as `||`, as in PostgreSQL and DuckDB.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};

use super::functions::text;
use crate::operators::{left_of, level, level_between, right_of};
use crate::syntax::{call, literal, taken};

/// What a function of the session's that reads JSON with arrows of its own is called.
const OTHER: &str = "json_get";

/// Whether arrows mean what this says: some sessions have a planner of their own for them.
pub(super) fn are_ours(has_function: impl Fn(&str) -> bool) -> bool {
    !has_function(OTHER)
}

/// How close an operator binds; what is none binds closest of all.
fn closeness(expr: &Expr) -> u8 {
    level(expr).unwrap_or(u8::MAX)
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
    let arrow = level_between(op).unwrap_or_default();
    while closeness(&value) < arrow
        && let Some(operand) = right_of(&mut value)
    {
        let operand = taken(operand);
        before.push(Around { expr: std::mem::replace(&mut value, operand), is_before: true });
    }
    while closeness(&key) <= arrow
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
            (Some(first), Some(second)) if closeness(&second.expr) > closeness(&first.expr) => behind.pop(),
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
    use datafusion::sql::sqlparser::dialect::GenericDialect;
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
