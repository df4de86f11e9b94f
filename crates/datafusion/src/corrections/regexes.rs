//! Regular expressions that DataFusion simplifies to something else.
//!
//! It makes `s ~ '.*'` of any form an `s IS NOT NULL`, which is false and not NULL where `s` is. And it makes a pattern that is a literal
//! a LIKE, in whose pattern a backslash is no longer one. The empty pattern matches as `.*` does and is simplified rightly; a pattern
//! with a backslash in it stays a regular expression in parentheses.

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::functions::regex::regexplike::RegexpLikeFunc;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};

/// A node with its patterns written so that they are taken as they are.
pub(super) fn corrected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let concerns = |expr: &Expr| expr.exists(|part| Ok(pattern_of(part).and_then(rewritten).is_some()));
    super::map_expressions(plan, concerns, |expr| expr.transform_up(|part| Ok(with_pattern(part))))
}

/// The constant pattern of a match.
fn pattern_of(expr: &Expr) -> Option<&ScalarValue> {
    let pattern = match expr {
        Expr::BinaryExpr(binary) if is_match(binary.op) => binary.right.as_ref(),
        Expr::ScalarFunction(call) if call.func.inner().as_ref().is::<RegexpLikeFunc>() => {
            call.args.get(1)?
        }
        _ => return None,
    };
    match pattern {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

fn is_match(op: Operator) -> bool {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    matches!(op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch)
}

fn with_pattern(mut expr: Expr) -> Transformed<Expr> {
    let Some(pattern) = pattern_of(&expr).and_then(rewritten) else { return Transformed::no(expr) };
    let pattern = Expr::Literal(pattern, None);
    match &mut expr {
        Expr::BinaryExpr(binary) => *binary.right = pattern,
        Expr::ScalarFunction(call) => call.args[1] = pattern,
        _ => return Transformed::no(expr),
    }
    Transformed::yes(expr)
}

/// A pattern that matches the same and is not simplified wrongly; `None` where it may stay.
fn rewritten(pattern: &ScalarValue) -> Option<ScalarValue> {
    let text = pattern.try_as_str()??;
    let text = match text {
        ".*" => String::new(),
        text if has_backslash(text) => format!("({text})"),
        _ => return None,
    };
    Some(match pattern {
        ScalarValue::Utf8View(_) => ScalarValue::Utf8View(Some(text)),
        ScalarValue::LargeUtf8(_) => ScalarValue::LargeUtf8(Some(text)),
        _ => ScalarValue::Utf8(Some(text)),
    })
}

/// Whether a pattern may match a backslash literally: one that is escaped, or is written by its number.
fn has_backslash(pattern: &str) -> bool {
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character == '\\' && matches!(characters.next(), Some('\\' | 'x' | 'u' | 'U')) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_simplified_wrongly_changes() {
        let of = |text: &str| {
            let rewritten = rewritten(&ScalarValue::Utf8View(Some(text.into())))?;
            rewritten.try_as_str().flatten().map(str::to_string)
        };
        assert_eq!(of(".*").as_deref(), Some(""));
        for same in ["", "a.*", "^.*$", r"\d+\.", "abc", "a|b", r"\.\*"] {
            assert_eq!(of(same), None, "{same}");
        }
        for backslash in [r"a\\b", r"\x5c", r"[\\]", r"\u{5c}", r"\.\\"] {
            assert_eq!(of(backslash), Some(format!("({backslash})")));
        }
        assert_eq!(rewritten(&ScalarValue::Utf8(None)), None);
    }
}
