//! `s GLOB 'a*'`, `s SIMILAR TO 'a|b'` and `s RLIKE 'a'`. The parser knows no GLOB: it is read as REGEXP, and REGEXP as RLIKE, which means
//! the same.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, exec_datafusion_err};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};
use datafusion::sql::sqlparser::tokenizer::Token;
use regex::Regex;

use super::by_row::{Definition, Kind};
use super::functions::text;
use super::words::{Change, Words};
use crate::syntax::{call, literal, taken};

const MATCHES: &str = "glob_matches";

/// Words that may follow the name of a column or a table.
const CLAUSES: [&str; 24] = [
    "from", "where", "group", "having", "order", "limit", "offset", "union", "except", "intersect", "join",
    "on", "using", "inner", "left", "right", "full", "cross", "qualify", "window", "as", "asc", "desc", "is",
];

/// Writes GLOB between two operands as REGEXP, and REGEXP as RLIKE.
pub(super) fn changes(words: &Words<'_>, changes: &mut Vec<Change>) {
    for place in (1..words.all.len()).filter(|place| words.is_any(*place, &["glob", "regexp"])) {
        let no_value =
            ["select", "distinct", "from", "join", "as", "by", "and", "or", "where", "on", "when", "case"];
        let is_left = match words.token(place - 1) {
            Some(Token::Word(_)) => !words.is_any(place - 1, &no_value),
            Some(Token::RParen | Token::RBracket | Token::SingleQuotedString(_)) => true,
            _ => false,
        };
        let is_right = match words.token(place + 1) {
            Some(Token::Word(_)) => !words.is_any(place + 1, &CLAUSES),
            Some(Token::SingleQuotedString(_) | Token::LParen | Token::Placeholder(_)) => true,
            _ => false,
        };
        if is_left && is_right {
            let text = if words.is(place, "glob") { "REGEXP " } else { "RLIKE " };
            let from = words.byte(place);
            changes.push(Change { from, to: words.byte(place + 1), text: text.into() });
        }
    }
}

/// Writes such a comparison as one that DataFusion plans.
pub(super) fn rewrite(expr: &mut Expr) {
    let (is_negated, written) = match expr {
        Expr::RLike { negated, expr, pattern, regexp: true } => (*negated, glob(taken(expr), taken(pattern))),
        Expr::RLike { negated, expr, pattern, regexp: false } => {
            (*negated, call("regexp_like", vec![taken(expr), taken(pattern)]))
        }
        Expr::SimilarTo { negated, expr, pattern, escape_char: None } => {
            let pattern = whole(taken(pattern));
            (*negated, call("regexp_like", vec![taken(expr), pattern]))
        }
        _ => return,
    };
    *expr = match is_negated {
        true => {
            let written = Box::new(Expr::Nested(Box::new(written)));
            Expr::UnaryOp { op: UnaryOperator::Not, expr: written }
        }
        false => written,
    };
    *expr = Expr::Nested(Box::new(taken(expr)));
}

/// A pattern that matches whole texts alone.
fn whole(pattern: Expr) -> Expr {
    if let Some(text) = text(&pattern) {
        return literal(format!("^(?:{text})$"));
    }
    let join = |left: Expr, right: Expr| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::StringConcat,
        right: Box::new(right),
    };
    let pattern = Expr::Nested(Box::new(pattern));
    Expr::Nested(Box::new(join(join(literal("^(?:"), pattern), literal(")$"))))
}

fn glob(value: Expr, pattern: Expr) -> Expr {
    let Some(text) = text(&pattern) else { return call(MATCHES, vec![value, pattern]) };
    match as_like(text) {
        Some(text) => Expr::Like {
            negated: false,
            any: false,
            expr: Box::new(value),
            pattern: Box::new(literal(text)),
            escape_char: None,
        },
        None => call("regexp_like", vec![value, literal(as_expression(text))]),
    }
}

/// A pattern of GLOB as one of LIKE, where it has no sets of letters.
fn as_like(glob: &str) -> Option<String> {
    let mut text = String::with_capacity(glob.len());
    let mut letters = glob.chars();
    while let Some(letter) = letters.next() {
        let letter = match letter {
            '[' => return None,
            '*' => {
                text.push('%');
                continue;
            }
            '?' => {
                text.push('_');
                continue;
            }
            '\\' => letters.next().unwrap_or('\\'),
            letter => letter,
        };
        if matches!(letter, '%' | '_' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
    Some(text)
}

/// A pattern of GLOB as a regular expression.
fn as_expression(glob: &str) -> String {
    let mut text = String::from("^(?s:");
    let mut letters = glob.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '*' => text.push_str(".*"),
            '?' => text.push('.'),
            '[' => {
                text.push('[');
                if letters.next_if_eq(&'!').is_some() {
                    text.push('^');
                }
                // What closes a set, as its first letter, is one of the set.
                let mut is_first = true;
                for letter in letters.by_ref() {
                    if letter == ']' && !is_first {
                        break;
                    }
                    is_first = false;
                    if letter != '-' && !letter.is_alphanumeric() {
                        text.push('\\');
                    }
                    text.push(letter);
                }
                text.push(']');
            }
            letter => {
                let letter = if letter == '\\' { letters.next().unwrap_or(letter) } else { letter };
                text.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4])));
            }
        }
    }
    text.push_str(")$");
    text
}

/// The function of patterns that are computed.
pub(super) fn matches() -> Definition {
    Definition {
        name: MATCHES,
        aliases: &[],
        parameters: &[Kind::Text, Kind::Text],
        least: 2,
        result: DataType::Boolean,
        body: |row| {
            let pattern = Regex::new(&as_expression(row.text(1)))
                .map_err(|error| exec_datafusion_err!("GLOB '{}': {error}", row.text(1)))?;
            Ok(ScalarValue::Boolean(Some(pattern.is_match(row.text(0)))))
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_like_where_they_can_be() {
        assert_eq!(as_like("a*b?_%").as_deref(), Some("a%b_\\_\\%"));
        assert_eq!(as_like("a[bc]"), None);
        let is = |pattern: &str, text: &str| Regex::new(&as_expression(pattern)).unwrap().is_match(text);
        assert!(is("a[b-d]*", "ac\nx") && !is("a[!b-d]*", "ac") && is("a[]x]", "a]") && is("a.c", "a.c"));
        assert!(!is("a.c", "abc") && !is("a", "ab") && is("[a^]", "^"));
    }
}
