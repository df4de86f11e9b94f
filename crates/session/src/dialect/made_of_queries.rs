//! CREATE TABLE of a query that names its columns, `CREATE TABLE t (a, b) AS SELECT 1, 2`, or is there for its columns alone,
//! `CREATE TABLE t AS SELECT … WITH NO DATA`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::words::{Change, Words, has};

/// Whether a text may make such a table.
pub(super) fn may_change(sql: &str) -> bool {
    has(sql, "create") && has(sql, "table") && has(sql, "as")
}

/// Writes it as one of a query around.
pub(super) fn changes(words: &Words<'_>, changes: &mut Vec<Change>) {
    let mut place = 1;
    while words.is_any(place, &["or", "replace", "temp", "temporary"]) {
        place += 1;
    }
    if !words.is(0, "create") || !words.is(place, "table") {
        return;
    }
    place += 1;
    if words.is(place, "if") && words.is(place + 1, "not") && words.is(place + 2, "exists") {
        place += 3;
    }
    let Some(behind_name) = words.after_name(place) else { return };
    let names = names_of_columns(words, behind_name);
    let behind = names.map_or(behind_name, |closing| closing + 1);
    if !words.is(behind, "as") {
        return;
    }
    let end = words.find(behind, |_| false);
    let has_no = words.is(end.saturating_sub(2), "no");
    let with = end.saturating_sub(if has_no { 3 } else { 2 });
    let says_data = words.is(end.saturating_sub(1), "data") && words.is(with, "with");
    if names.is_none() && !says_data {
        return;
    }
    let from = words.byte(behind + 1);
    changes.push(Change { from, to: from, text: "SELECT * FROM (".into() });
    let mut text = "\n) AS named".to_string();
    if let Some(closing) = names {
        let (from, to) = (words.byte(behind_name), words.byte(closing + 1));
        text.push_str(words.sql[from..to].trim_end());
        changes.push(Change { from, to, text: " ".into() });
    }
    if says_data && has_no {
        text.push_str(" LIMIT 0");
    }
    let from = words.byte(if says_data { with } else { end });
    changes.push(Change { from, to: words.byte(end), text });
}

/// The place of the parenthesis behind names without types.
fn names_of_columns(words: &Words<'_>, open: usize) -> Option<usize> {
    let closing = words.closing(open).filter(|_| words.is_token(open, &Token::LParen))?;
    let is_part = |place: usize| match (place - open) % 2 {
        1 => matches!(words.token(place), Some(Token::Word(_))),
        _ => words.is_token(place, &Token::Comma) || place == closing,
    };
    ((open + 1..=closing).all(is_part) && (closing - open).is_multiple_of(2)).then_some(closing)
}
