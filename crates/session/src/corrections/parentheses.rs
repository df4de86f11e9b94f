//! Parentheses that begin with parentheses around a subquery. The parser decides at the second one whether all is a query or an
//! expression, and never looks again: `x IN ((SELECT a …), b)` is a query to it, `((SELECT a …) UNION (SELECT b …))` an expression, and
//! `(VALUES (1), (2))` calls a function. Likewise a key of ROLLUP, CUBE or GROUPING SETS that begins with a parenthesis is a list of keys to
//! it: `ROLLUP ((a)::bigint, b)`. Here a text that is in doubt gets marks, two signs before an expression and a WITH before a
//! query, which are taken out of the syntax tree again.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Query, UnaryOperator, Value};
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::text::Tokens;
use crate::syntax::{Flow, Walk, visit};

/// The name that the WITH before a query defines.
const NAME: &str = "__kelpie_query";

/// What comes before an expression. It binds no less than what may follow the subquery, of which it takes no part away.
const SIGNS: &str = "++";

/// Whether a text has `(VALUES (`, which the parser takes without an error for what it is not.
pub(super) fn has_values(sql: &str) -> bool {
    let mut rest = sql;
    while let Some(place) = rest.find('(') {
        rest = &rest[place + 1..];
        let inner = rest.trim_start();
        let is_values = inner.get(..6).is_some_and(|word| word.eq_ignore_ascii_case("values"));
        if is_values && inner[6..].trim_start().starts_with('(') {
            return true;
        }
    }
    false
}

/// A text with marks; nothing where none is in doubt.
pub(super) fn marked(sql: &str, dialect: &dyn Dialect) -> Option<String> {
    let mut tokens = Tokens::of(sql, dialect)?;
    let all = std::mem::take(&mut tokens.all);
    let seen: Vec<usize> = (0..all.len())
        .filter(|place| !matches!(all[*place].token, Token::Whitespace(_) | Token::EOF))
        .collect();
    let written: Vec<&Token> = seen.iter().map(|place| &all[*place].token).collect();
    let (closing, begins_key) = (closing(&written), begins_key(&written));
    let mut marked = String::new();
    let mut done = 0;
    for open in 0..written.len() {
        let is_key = begins_key[open] && is_expression(&written, &closing, open + 1);
        let mark = is_key.then(|| SIGNS.to_string());
        let Some(mark) = mark.or_else(|| mark_after(&written, &closing, open)) else { continue };
        let place = tokens.byte_of(all[*seen.get(open + 1)?].span.start)?;
        marked.push_str(&sql[done..place]);
        marked.push_str(&mark);
        done = place;
    }
    marked.push_str(&sql[done..]);
    (done > 0).then_some(marked)
}

/// Takes the marks out of a statement.
pub(super) fn unmark(statement: &mut Statement) {
    let _ = visit(statement, &mut Unmark);
}

struct Unmark;

impl Walk for Unmark {
    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        let is_mark = |query: &Query| {
            query.with.as_ref().is_some_and(|with| match with.cte_tables.as_slice() {
                [only] => only.alias.name.value == NAME,
                _ => false,
            })
        };
        if is_mark(query) {
            query.with = None;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } = expr
            && let Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } = inner.as_mut()
        {
            *expr = std::mem::replace(inner, Expr::value(Value::Null));
        }
        ControlFlow::Continue(())
    }
}

fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

/// The place of the parenthesis that closes each one.
fn closing(tokens: &[&Token]) -> Vec<Option<usize>> {
    let mut closing = vec![None; tokens.len()];
    let mut open = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        match token {
            Token::LParen => open.push(place),
            Token::RParen => {
                if let Some(from) = open.pop() {
                    closing[from] = Some(place);
                }
            }
            _ => {}
        }
    }
    closing
}

/// For each token, whether a key of ROLLUP, CUBE or GROUPING SETS begins after it.
fn begins_key(tokens: &[&Token]) -> Vec<bool> {
    let mut is_list = Vec::new();
    let mut begins = vec![false; tokens.len()];
    for (place, token) in tokens.iter().enumerate() {
        match token {
            Token::LParen => {
                let before = place.checked_sub(1).map(|before| keyword(tokens[before]));
                begins[place] = matches!(before, Some(Keyword::ROLLUP | Keyword::CUBE | Keyword::SETS));
                is_list.push(begins[place]);
            }
            Token::RParen => {
                is_list.pop();
            }
            Token::Comma => begins[place] = is_list.last() == Some(&true),
            _ => {}
        }
    }
    begins
}

/// Whether what begins with a parenthesis goes on behind the one that closes it, within a list.
fn is_expression(tokens: &[&Token], closing: &[Option<usize>], open: usize) -> bool {
    let end =
        tokens.get(open).filter(|token| ***token == Token::LParen).and(closing.get(open).copied().flatten());
    let next = end.and_then(|end| tokens.get(end + 1));
    next.is_some_and(|next| !matches!(next, Token::Comma | Token::RParen))
}

/// The mark that belongs after a parenthesis.
fn mark_after(tokens: &[&Token], closing: &[Option<usize>], open: usize) -> Option<String> {
    let before = open.checked_sub(1).and_then(|before| tokens.get(before));
    let is_call =
        before.is_some_and(|token| matches!(token, Token::Word(_)) && keyword(token) == Keyword::NoKeyword);
    let first = open + 1;
    if **tokens.get(open)? != Token::LParen || is_call {
        return None;
    }
    let query = || Some(format!("WITH {NAME} AS (SELECT 1) "));
    match tokens.get(first)? {
        token if keyword(token) == Keyword::FROM => return query(),
        token if keyword(token) == Keyword::VALUES => {
            return if **tokens.get(first + 1)? == Token::LParen { query() } else { None };
        }
        Token::LParen => {}
        _ => return None,
    }
    // What the innermost of the parentheses begins with.
    let inner = tokens[first..].iter().find(|token| ***token != Token::LParen)?;
    if !matches!(keyword(inner), Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::FROM) {
        return None;
    }
    let next = tokens.get((*closing.get(first)?)? + 1)?;
    match keyword(next) {
        Keyword::UNION
        | Keyword::EXCEPT
        | Keyword::INTERSECT
        | Keyword::MINUS
        | Keyword::ORDER
        | Keyword::LIMIT
        | Keyword::OFFSET
        | Keyword::FETCH => query(),
        _ if **next == Token::RParen => None,
        _ => (before.is_some_and(|token| keyword(token) == Keyword::IN)).then(|| SIGNS.to_string()),
    }
}
