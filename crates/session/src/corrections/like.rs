//! LIKE with another escape than the backslash, which is the only one that the comparison itself knows: patterns are written with that one.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Value};

use crate::syntax::{Flow, Walk, call, literal, visit};

/// Writes the patterns of a statement with backslashes.
pub(super) fn escape(statement: &mut Statement) {
    let _ = visit(statement, &mut Patterns);
}

struct Patterns;

impl Walk for Patterns {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let (Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. }) = expr
        else {
            return ControlFlow::Continue(());
        };
        let Some(Value::SingleQuotedString(escape)) = escape_char.as_ref().map(|escape| &escape.value) else {
            return ControlFlow::Continue(());
        };
        let mut letters = escape.chars();
        let escape = match (letters.next(), letters.next()) {
            (Some('\\'), None) => return ControlFlow::Continue(()),
            (letter, None) => letter,
            // Several characters: DataFusion says so.
            _ => return ControlFlow::Continue(()),
        };
        **pattern = match pattern.as_ref() {
            Expr::Value(value) => match &value.value {
                Value::SingleQuotedString(text) => literal(written(text, escape)),
                _ => return ControlFlow::Continue(()),
            },
            other => written_when_run(other.clone(), escape),
        };
        *escape_char = None;
        ControlFlow::Continue(())
    }
}

/// A pattern with backslashes in place of another escape.
fn written(pattern: &str, escape: Option<char>) -> String {
    let mut text = String::with_capacity(pattern.len() + 2);
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        let is_escape = Some(letter) == escape;
        // An escape at the end stands for itself.
        let letter = if is_escape { letters.next().unwrap_or(letter) } else { letter };
        if letter == '\\' || is_escape && matches!(letter, '%' | '_') {
            text.push('\\');
        }
        text.push(letter);
    }
    text
}

/// The same of a pattern that is computed.
fn written_when_run(pattern: Expr, escape: Option<char>) -> Expr {
    let doubled = call("replace", vec![pattern, literal("\\"), literal("\\\\")]);
    match escape {
        None => doubled,
        Some(escape) => {
            let escaped = format!(
                "[{}](.)",
                if matches!(escape, '^' | ']' | '[' | '-' | '&' | '~') {
                    format!("\\{escape}")
                } else {
                    escape.to_string()
                }
            );
            call("regexp_replace", vec![doubled, literal(escaped), literal("\\\\\\1"), literal("g")])
        }
    }
}
