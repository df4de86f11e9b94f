//! `FROM t WHERE i = 1`: all columns, as `FROM t` alone is. The parser knows no clause behind a FROM that stands first but SELECT.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::words::{Change, Words};

/// What combines queries: one of them follows, perhaps behind ALL, DISTINCT or BY NAME.
const SETS: [&str; 3] = ["union", "except", "intersect"];
/// The clauses that the parser does not take behind such a FROM.
const CLAUSES: [&str; 5] = ["where", "group", "having", "window", "qualify"];

/// Whether a text may have such a query: where a FROM follows nothing, a parenthesis or one of some words.
pub(super) fn may_change(sql: &str) -> bool {
    const WORDS: [&str; 9] =
        ["as", "all", "distinct", "name", "union", "except", "intersect", "explain", "analyze"];
    let lower = sql.to_ascii_lowercase();
    lower.match_indices("from").any(|(place, _)| {
        let before = lower[..place].trim_end();
        before.is_empty()
            || before.ends_with(['(', ';'])
            || before.ends_with(')') && lower.contains("with")
            || before.ends_with("verbose")
            || WORDS.iter().any(|word| before.ends_with(word))
    })
}

/// Writes SELECT before such a FROM; `first` is where the statement begins behind EXPLAIN.
pub(super) fn changes(words: &Words<'_>, first: usize, changes: &mut Vec<Change>) {
    let with_ends: Vec<usize> = (0..words.all.len())
        .filter(|place| words.is(*place, "with"))
        .map(|with| query_of(words, with))
        .collect();
    for place in (0..words.all.len()).filter(|place| words.is(*place, "from")) {
        let follows_set = |at: usize| at.checked_sub(1).is_some_and(|set| words.is_any(set, &SETS));
        let begins = place == first
            || place.checked_sub(1).is_some_and(|before| match words.token(before) {
                Some(Token::LParen) => !before.checked_sub(1).is_some_and(|call| words.is(call, "trim")),
                Some(Token::SemiColon) => true,
                Some(Token::RParen) => with_ends.contains(&place),
                _ if words.is_any(before, &["all", "distinct"]) => follows_set(before),
                _ if words.is(before, "name") => before.checked_sub(1).is_some_and(|by| words.is(by, "by")),
                _ => words.is(before, "as") || words.is_any(before, &SETS),
            });
        if !begins {
            continue;
        }
        let ends = |at: usize| {
            words.is_any(at, &CLAUSES)
                || words.is_any(at, &["select", "order", "limit", "offset", "union", "except", "intersect"])
        };
        if words.is_any(words.find(place + 1, ends), &CLAUSES) {
            let from = words.byte(place);
            changes.push(Change { from, to: from, text: "SELECT * ".into() });
        }
    }
}

/// Where the query begins that follows the tables of a WITH.
fn query_of(words: &Words<'_>, with: usize) -> usize {
    words.find(with + 1, |at| words.is_any(at, &["select", "from", "values", "insert", "update", "delete"]))
}
