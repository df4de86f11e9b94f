//! `WITH t AS MATERIALIZED (…)` and `AS NOT MATERIALIZED (…)`: advice to a planner, which the parser knows after the query only.

use std::borrow::Cow;

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::text::Tokens;

/// A text without such advice.
pub(super) fn without_advice<'a>(sql: &'a str, dialect: &dyn Dialect) -> Cow<'a, str> {
    const WORD: &[u8] = b"materialized";
    if !sql.as_bytes().windows(WORD.len()).any(|bytes| bytes.eq_ignore_ascii_case(WORD)) {
        return Cow::Borrowed(sql);
    }
    let Some(mut tokens) = Tokens::of(sql, dialect) else { return Cow::Borrowed(sql) };
    let all = std::mem::take(&mut tokens.all);
    let all: Vec<_> = all.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let keyword =
        |place: Option<usize>| match place.and_then(|place| all.get(place)).map(|known| &known.token) {
            Some(Token::Word(word)) => word.keyword,
            _ => Keyword::NoKeyword,
        };
    let mut text = sql.to_string();
    for place in 0..all.len() {
        let is_before_query = all.get(place + 1).is_some_and(|next| next.token == Token::LParen);
        if keyword(Some(place)) != Keyword::MATERIALIZED || !is_before_query {
            continue;
        }
        let is_negated = keyword(place.checked_sub(1)) == Keyword::NOT;
        let first = if is_negated { place - 1 } else { place };
        if keyword(first.checked_sub(1)) != Keyword::AS {
            continue;
        }
        for word in &all[first..=place] {
            let length = if matches!(&word.token, Token::Word(word) if word.keyword == Keyword::NOT) {
                3
            } else {
                WORD.len()
            };
            if let Some(from) = tokens.byte_of(word.span.start) {
                text.replace_range(from..from + length, &" ".repeat(length));
            }
        }
    }
    Cow::Owned(text)
}
