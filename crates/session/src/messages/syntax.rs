//! Statements that are no SQL.

use datafusion::sql::sqlparser::parser::ParserError;

use super::place::Tokens;
use super::{Worded, nearest};

/// Words that statements and their clauses begin with: what a word that stands in the wrong place was probably meant to be.
const CLAUSES: [&str; 21] = [
    "SELECT", "FROM", "WHERE", "GROUP", "ORDER", "BY", "HAVING", "LIMIT", "OFFSET", "JOIN", "UNION",
    "VALUES", "WITH", "INSERT", "CREATE", "UPDATE", "DELETE", "EXPLAIN", "DESCRIBE", "COPY", "SHOW",
];

/// What the parser says of a statement, at the token that it could not take.
pub(super) fn worded(error: &ParserError, tokens: &Tokens<'_>) -> Option<Worded> {
    let (ParserError::ParserError(message) | ParserError::TokenizerError(message)) = error else {
        return None;
    };
    let (message, line, column) = located(message);
    if let Some(text) = unterminated(message) {
        let start = line.map(|line| tokens.bytes_at(line, column));
        return Some(Worded::at(format!("syntax error: {text}"), start.map(|start| start..start)));
    }
    let Some((expected, found)) =
        message.strip_prefix("Expected: ").and_then(|rest| rest.rsplit_once(", found: "))
    else {
        let place = line.map(|line| tokens.bytes_at(line, column)).map(|start| start..start);
        return Some(Worded::at(format!("syntax error: {message}"), place));
    };
    if found == "EOF" {
        let text = format!("syntax error at the end of the statement: expected {expected}");
        return Some(Worded::at(text, Some(tokens.end())));
    }
    let place = tokens.written(found, line.unwrap_or(1), column);
    let before = place.as_ref().and_then(|place| tokens.before(place.start));
    let text = format!("syntax error at `{found}`: expected {expected}");
    if before.as_ref().is_some_and(|before| tokens.at(before) == ",") && is_clause(found) {
        return Some(Worded::at(format!("{text}; a comma stands before it"), place));
    }
    // `select a form t`: the word before was taken for a name.
    for word in [place.clone(), before].into_iter().flatten() {
        if let Some(clause) = meant(tokens.at(&word)) {
            return Some(Worded::at(
                format!("{text}; did you mean {clause} for `{}`?", tokens.at(&word)),
                Some(word),
            ));
        }
    }
    Some(Worded::at(text, place))
}

fn is_clause(word: &str) -> bool {
    CLAUSES.iter().any(|clause| clause.eq_ignore_ascii_case(word))
}

fn meant(word: &str) -> Option<String> {
    let is_word = word.len() > 2 && !is_clause(word) && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    // Only a letter or two: `orders` is no misspelled ORDER.
    nearest(word, CLAUSES.iter())
        .filter(|clause| is_word && clause.len().abs_diff(word.len()) <= 1 && !is_plural(word, clause))
}

fn is_plural(word: &str, clause: &str) -> bool {
    word.len() == clause.len() + 1
        && word.get(..clause.len()).is_some_and(|start| start.eq_ignore_ascii_case(clause))
}

/// A message without its place, and that.
fn located(message: &str) -> (&str, Option<u64>, u64) {
    let place = || {
        let (text, place) = message.rsplit_once(" at Line: ")?;
        let (line, column) = place.split_once(", Column: ")?;
        Some((text, line.trim().parse().ok()?, column.trim().parse().ok()?))
    };
    place().map_or((message, None, 1), |(text, line, column)| (text, Some(line), column))
}

/// What of a statement has no end.
fn unterminated(message: &str) -> Option<&'static str> {
    let has = |words: &str| message.to_ascii_lowercase().contains(words);
    match () {
        () if has("unterminated string") || has("unterminated dollar") => Some("a text has no closing quote"),
        () if has("unterminated encoded") => Some("a text has no closing quote"),
        () if has("expected close delimiter") => Some("a name has no closing quote"),
        () if has("end of file while in multi-line comment") => Some("a comment has no end"),
        () => None,
    }
}
