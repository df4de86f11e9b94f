//! `1_000_000` is a number. The parser takes it for `1` with the name `_000_000`.

use std::borrow::Cow;

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::text::Tokens;

/// A text without the underscores that group the digits of its numbers.
pub(super) fn without_underscores<'a>(sql: &'a str, dialect: &dyn Dialect) -> Cow<'a, str> {
    let has_group = |pair: &[u8]| pair[0] == b'_' && pair[1].is_ascii_digit();
    if !sql.as_bytes().windows(2).any(has_group) {
        return Cow::Borrowed(sql);
    }
    let Some(mut tokens) = Tokens::of(sql, dialect) else { return Cow::Borrowed(sql) };
    let mut text = sql.as_bytes().to_vec();
    let all = std::mem::take(&mut tokens.all);
    for pair in all.windows(2) {
        let (Token::Number(_, false), Token::Word(word)) = (&pair[0].token, &pair[1].token) else { continue };
        let is_group = word.quote_style.is_none()
            && word.keyword == Keyword::NoKeyword
            && word.value.starts_with('_')
            && word.value.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'_' | b'e' | b'E'))
            && !word.value.ends_with('_');
        let (before, start) = (pair[0].span.end, pair[1].span.start);
        if !is_group || before != start {
            continue;
        }
        if let Some(from) = tokens.byte_of(start) {
            // A space in place of an underscore would part the number; a byte that is no text is taken out below.
            text[from..from + word.value.len()]
                .iter_mut()
                .filter(|byte| **byte == b'_')
                .for_each(|byte| *byte = 0xFF);
        }
    }
    text.retain(|byte| *byte != 0xFF);
    String::from_utf8(text).map_or(Cow::Borrowed(sql), Cow::Owned)
}
