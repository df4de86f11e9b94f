//! `x IN [1, 2]` and `x IN l`: whether a list has a value. The parser knows lists behind IN as `IN UNNEST(l)`.

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{CaseWhen, Expr, UnaryOperator, Value};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::words::{Change, Words};
use crate::syntax::{call, taken};

/// Whether a text may have a list behind IN: no parenthesis follows it.
pub(super) fn may_change(sql: &str) -> bool {
    let bytes = sql.as_bytes();
    let is_word = |at: usize| bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    (1..bytes.len().saturating_sub(2)).any(|at| {
        bytes[at..at + 2].eq_ignore_ascii_case(b"in") && !is_word(at - 1) && !is_word(at + 2) && {
            let next = bytes[at + 2..].iter().find(|byte| !byte.is_ascii_whitespace());
            next.is_some_and(|next| *next != b'(' && *next != b')' && *next != b',')
        }
    })
}

/// Writes UNNEST around a list behind IN.
pub(super) fn changes(words: &Words<'_>, changes: &mut Vec<Change>) {
    if words.is_any(0, &["show", "describe"]) {
        return;
    }
    let mut open: Vec<usize> = Vec::new();
    for place in 0..words.all.len() {
        match words.token(place) {
            Some(Token::LParen | Token::LBracket | Token::LBrace) => open.push(place),
            Some(Token::RParen | Token::RBracket | Token::RBrace) => drop(open.pop()),
            _ => {}
        }
        if !words.is(place, "in") || is_other_in(words, place, open.last().copied()) {
            continue;
        }
        let Some(behind) = behind_operand(words, place + 1) else { continue };
        let from = words.byte(place + 1);
        let to = words.byte(behind - 1) + words.text(behind - 1).len();
        changes.push(Change { from, to: from, text: "UNNEST(".into() });
        changes.push(Change { from: to, to, text: ")".into() });
    }
}

/// Whether an IN is one of `[x for x in l]`, of PIVOT, of `position('a' IN s)`, or of a function that is made.
fn is_other_in(words: &Words<'_>, place: usize, open: Option<usize>) -> bool {
    let before =
        |distance: usize, word: &str| place.checked_sub(distance).is_some_and(|at| words.is(at, word));
    let is_of_for = before(2, "for")
        || before(4, "for") && place.checked_sub(2).is_some_and(|at| words.is_token(at, &Token::Comma));
    let is_position =
        open.and_then(|open| open.checked_sub(1)).is_some_and(|call| words.is(call, "position"));
    // The kind of a parameter stands before all else.
    let is_first = matches!(
        place.checked_sub(1).and_then(|before| words.token(before)),
        None | Some(Token::LParen | Token::Comma)
    );
    is_of_for || is_position || is_first
}

/// The place behind a list: one that is written out, a name, a call or a parameter, and what follows it closely. Nothing where something
/// else stands there.
fn behind_operand(words: &Words<'_>, place: usize) -> Option<usize> {
    let mut behind = match words.token(place)? {
        Token::LBracket => closing(words, place)? + 1,
        Token::Placeholder(_) => place + 1,
        Token::Word(word) if word.quote_style.is_some() || !words.is_any(place, &["unnest", "select"]) => {
            place + 1
        }
        _ => return None,
    };
    loop {
        behind = match words.token(behind) {
            Some(Token::LBracket | Token::LParen) => closing(words, behind)? + 1,
            Some(Token::Period | Token::DoubleColon) => match words.token(behind + 1)? {
                Token::Word(_) => behind + 2,
                _ => return None,
            },
            _ => return Some(behind),
        };
    }
}

/// The place of what closes a bracket or parenthesis.
fn closing(words: &Words<'_>, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for place in open..words.all.len() {
        match words.token(place)? {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace if depth == 1 => return Some(place),
            Token::RParen | Token::RBracket | Token::RBrace => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// Writes the membership as a comparison with constants, or a call; it is NULL for a value that is NULL, and no element is.
pub(super) fn rewrite(expr: &mut Expr) {
    let Expr::InUnnest { expr: value, array_expr, negated } = expr else { return };
    let (value, negated) = (Box::new(taken(value)), *negated);
    if let Expr::Array(array) = array_expr.as_mut()
        && !array.elem.is_empty()
        && array.elem.iter().all(is_constant)
    {
        *expr = Expr::InList { expr: value, list: std::mem::take(&mut array.elem), negated };
        return;
    }
    let has = call("array_has", vec![taken(array_expr), value.as_ref().clone()]);
    let has = match negated {
        true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(has) },
        false => has,
    };
    let is_there = Expr::IsNotNull(Box::new(Expr::Nested(value)));
    *expr = Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition: is_there, result: has }],
        else_result: None,
    };
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => !matches!(value.value, Value::Null | Value::Placeholder(_)),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => is_constant(expr),
        _ => false,
    }
}
