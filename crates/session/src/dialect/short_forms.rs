//! Short forms of statements and clauses: `TABLE t`, `SET VARIABLE v = 1`, a comma behind the last item of a list, `count(*) FILTER (i > 1)`, `SELECT a: i + 1`, `LIMIT 10%`,
//! `SELECT * LIKE 'a%'`.

use datafusion::sql::sqlparser::ast::{Expr, LimitClause, Query, SetExpr, Statement as Sql, TableFactor};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::words::{Change, Words, has};
use crate::syntax::name_of;
use crate::variables::VARIABLE;

/// The function that a share of the rows in LIMIT is written with.
const SHARE: &str = "kelpie_share_of_rows";
/// The function within COLUMNS of a pattern that names must not match.
pub(super) const NOT: &str = "kelpie_not_matching";

/// Words behind the items of a list.
const BEHIND: [&str; 16] = [
    "select", "from", "where", "group", "having", "qualify", "window", "order", "limit", "offset", "union",
    "except", "intersect", "using", "join", "on",
];

/// Whether a text may have one of them.
pub(super) fn may_change(sql: &str) -> bool {
    let bytes = sql.as_bytes();
    let is_short = |(at, byte): (usize, &u8)| match byte {
        b',' => {
            let next = sql[at + 1..].trim_start().as_bytes();
            let is_clause = |word: &&str| {
                next.get(..word.len()).is_some_and(|next| next.eq_ignore_ascii_case(word.as_bytes()))
            };
            next.first().is_none_or(|byte| matches!(byte, b')' | b']' | b'}' | b';'))
                || ["where", "having", "qualify", "group", "order"].iter().any(is_clause)
        }
        b':' => !matches!(bytes.get(at + 1), Some(b':' | b'=')) && (at == 0 || bytes[at - 1] != b':'),
        _ => false,
    };
    bytes.iter().enumerate().any(is_short)
        || ["filter", "variable", "abort", "table ", " div"].iter().any(|word| has(sql, word))
        || has(sql, "limit") && (sql.contains('%') || has(sql, "percent"))
        || sql.contains('*') && (has(sql, "like") || has(sql, "similar"))
}

/// Writes them out.
pub(super) fn changes(words: &Words<'_>, changes: &mut Vec<Change>) {
    variables(words, changes);
    if words.is(0, "abort") && matches!(words.token(1), None | Some(Token::SemiColon)) {
        changes.push(Change { from: words.byte(0), to: words.byte(1), text: "ROLLBACK ".into() });
    }
    let mut open: Vec<usize> = Vec::new();
    for place in 0..words.all.len() {
        match words.token(place) {
            Some(Token::LParen | Token::LBracket | Token::LBrace) => open.push(place),
            Some(Token::RParen | Token::RBracket | Token::RBrace) => drop(open.pop()),
            Some(Token::Comma) if is_last(words, place) => {
                let from = words.byte(place);
                changes.push(Change { from, to: from + 1, text: String::new() });
            }
            Some(Token::Colon) => named_before(words, place, open.last().copied(), changes),
            Some(Token::Mul) => columns_like(words, place, changes),
            Some(Token::Word(_)) if words.is(place, "filter") => filter(words, place, changes),
            Some(Token::Word(_)) if words.is(place, "div") => name_of_operator(words, place, changes),
            Some(Token::Word(_)) if words.is(place, "limit") => share(words, place, changes),
            Some(Token::Word(_)) if words.is(place, "table") => all_of_table(words, place, changes),
            _ => {}
        }
    }
}

/// `SET VARIABLE v = 1` is a query whose column says so; RESET VARIABLE makes it NULL.
fn variables(words: &Words<'_>, changes: &mut Vec<Change>) {
    let Some(Token::Word(name)) = words.token(2).filter(|_| words.is(1, "variable")) else { return };
    let mark = format!("\"{VARIABLE}{}\"", name.value.replace('"', "\"\""));
    let end = words.byte(words.find(0, |_| false));
    if words.is(0, "set") && (words.is_token(3, &Token::Eq) || words.is(3, "to")) {
        changes.push(Change { from: words.byte(0), to: words.byte(4), text: "SELECT (".into() });
        changes.push(Change { from: end, to: end, text: format!("\n) AS {mark}") });
    } else if words.is(0, "reset") {
        changes.push(Change { from: words.byte(0), to: end, text: format!("SELECT NULL AS {mark}") });
    }
}

/// `TABLE t` is all of it.
fn all_of_table(words: &Words<'_>, place: usize, changes: &mut Vec<Change>) {
    let begins = match place.checked_sub(1) {
        None => true,
        Some(before) => {
            words.is_token(before, &Token::LParen)
                || words.is_any(before, &["as", "union", "except", "intersect", "explain"])
                || words.is(before, "all") && before.checked_sub(1).is_some_and(|set| words.is(set, "union"))
                // Behind the table of INSERT INTO, and its columns.
                || words.is(0, "insert") && place > 2 && !words.is_any(before, &["into", "overwrite"])
        }
    };
    let is_name = words.after_name(place + 1).is_some()
        && !words.is_any(place + 1, &["as", "function", "select", "with", "from", "values"]);
    if begins && is_name {
        let (from, to) = (words.byte(place), words.byte(place + 1));
        changes.push(Change { from, to, text: "SELECT * FROM ".into() });
    }
}

/// Whether a comma stands behind the last item of a list.
fn is_last(words: &Words<'_>, comma: usize) -> bool {
    let before = comma.checked_sub(1).and_then(|before| words.token(before));
    let has_item =
        !matches!(before, None | Some(Token::Comma | Token::LParen | Token::LBracket | Token::LBrace));
    let ends = match words.token(comma + 1) {
        None | Some(Token::RParen | Token::RBracket | Token::RBrace | Token::SemiColon) => true,
        _ => {
            words.is_any(comma + 1, &["where", "having", "qualify"])
                || words.is_any(comma + 1, &["group", "order"]) && words.is(comma + 2, "by")
        }
    };
    has_item && ends
}

/// `i / 2 div` names a column as an operator of the parser's is called: nothing that it could divide by stands behind it.
fn name_of_operator(words: &Words<'_>, place: usize, changes: &mut Vec<Change>) {
    let is_value = match place.checked_sub(1).and_then(|before| words.token(before)) {
        Some(Token::Word(_)) => !words.is_any(place - 1, &BEHIND) && !words.is_any(place - 1, &["as", "by"]),
        Some(Token::RParen | Token::RBracket | Token::RBrace) => true,
        Some(Token::Number(..) | Token::SingleQuotedString(_)) => true,
        _ => false,
    };
    let ends = match words.token(place + 1) {
        None | Some(Token::Comma | Token::RParen | Token::SemiColon) => true,
        Some(_) => words.is_any(place + 1, &BEHIND),
    };
    if is_value && ends {
        let at = words.byte(place);
        changes.push(Change { from: at, to: at, text: "AS ".into() });
    }
}

/// `FILTER (i > 1)` has a WHERE.
fn filter(words: &Words<'_>, place: usize, changes: &mut Vec<Change>) {
    let follows_call = place.checked_sub(1).is_some_and(|before| words.is_token(before, &Token::RParen));
    if follows_call && words.is_token(place + 1, &Token::LParen) && !words.is(place + 2, "where") {
        let at = words.byte(place + 2);
        changes.push(Change { from: at, to: at, text: "WHERE ".into() });
    }
}

/// `a: i + 1` in a list of SELECT or FROM is `i + 1 AS a`.
fn named_before(words: &Words<'_>, colon: usize, open: Option<usize>, changes: &mut Vec<Change>) {
    let Some(name) = colon.checked_sub(1) else { return };
    let Some(before) = name.checked_sub(1) else { return };
    let begins = words.is_any(before, &["select", "distinct", "all", "from"])
        || words.is_token(before, &Token::Comma) && open.is_none_or(|open| is_query(words, open));
    if !begins || !matches!(words.token(name), Some(Token::Word(_))) {
        return;
    }
    let (from, to) = (words.byte(name), words.byte(colon + 1));
    changes.push(Change { from, to, text: String::new() });
    let at = words.byte(end_of_item(words, colon + 1));
    changes.push(Change { from: at, to: at, text: format!("\n AS {} ", words.text(name)) });
}

/// Whether a query stands behind an opening parenthesis.
fn is_query(words: &Words<'_>, open: usize) -> bool {
    words.is_token(open, &Token::LParen) && words.is_any(open + 1, &["select", "with", "from"])
}

fn end_of_item(words: &Words<'_>, from: usize) -> usize {
    let mut depth = 0_usize;
    for place in from..words.all.len() {
        match words.token(place) {
            Some(Token::LParen | Token::LBracket | Token::LBrace) => depth += 1,
            Some(Token::RParen | Token::RBracket | Token::RBrace) if depth == 0 => return place,
            Some(Token::RParen | Token::RBracket | Token::RBrace) => depth -= 1,
            Some(Token::Comma | Token::SemiColon) if depth == 0 => return place,
            // `IS DISTINCT FROM` goes on.
            _ if depth == 0 && words.is_any(place, &BEHIND) && !words.is(place - 1, "distinct") => {
                return place;
            }
            _ => {}
        }
    }
    words.all.len()
}

/// `* LIKE 'a%'`, `* NOT LIKE 'a%'`, `* ILIKE 'a%'` and `* SIMILAR TO 'a.*'` are COLUMNS of a regular expression.
fn columns_like(words: &Words<'_>, star: usize, changes: &mut Vec<Change>) {
    let begins = star.checked_sub(1).is_some_and(|before| {
        words.is_any(before, &["select", "distinct", "all"]) || words.is_token(before, &Token::Comma)
    });
    let negated = words.is(star + 1, "not");
    let word = star + 1 + usize::from(negated);
    let is_similar = words.is(word, "similar") && words.is(word + 1, "to");
    let text = word + 1 + usize::from(is_similar);
    let Some(Token::SingleQuotedString(pattern)) = words.token(text) else { return };
    let pattern = match () {
        () if !begins => return,
        () if is_similar => format!("(?s)^(?:{pattern})$"),
        () if words.is(word, "like") => format!("(?s)^{}$", of_like(pattern)),
        () if words.is(word, "ilike") => format!("(?is)^{}$", of_like(pattern)),
        () => return,
    };
    let pattern = format!("'{}'", pattern.replace('\'', "''"));
    let pattern = if negated { format!("{NOT}({pattern})") } else { pattern };
    let change =
        Change { from: words.byte(star), to: words.byte(text + 1), text: format!("COLUMNS({pattern}) ") };
    changes.push(change);
}

/// A regular expression of a pattern of LIKE.
fn of_like(pattern: &str) -> String {
    let part = |letter: char| match letter {
        '%' => ".*".to_string(),
        '_' => ".".to_string(),
        letter => regex::escape(&letter.to_string()),
    };
    pattern.chars().map(part).collect()
}

/// `LIMIT 10%` and `LIMIT 10 PERCENT`.
fn share(words: &Words<'_>, limit: usize, changes: &mut Vec<Change>) {
    let Some(Token::Number(number, _)) = words.token(limit + 1) else { return };
    let is_sign = words.is_token(limit + 2, &Token::Mod);
    // `LIMIT 10 % 3` is a number.
    let ends = match words.token(limit + 3) {
        None | Some(Token::RParen | Token::SemiColon) => true,
        _ => words.is(limit + 3, "offset"),
    };
    if ends && (is_sign || words.is(limit + 2, "percent")) {
        let (from, to) = (words.byte(limit + 1), words.byte(limit + 3));
        changes.push(Change { from, to, text: format!("{SHARE}({number}) ") });
    }
}

/// A share of a query's rows is a number that another query counts.
pub(super) fn count_share(query: &mut Query) {
    let Some(LimitClause::LimitOffset { limit: Some(limit), .. }) = &query.limit_clause else { return };
    let Expr::Function(call) = limit else { return };
    if name_of(call).as_deref() != Some(SHARE) {
        return;
    }
    let share = limit.to_string();
    let share = share.trim_start_matches(SHARE);
    let counted =
        format!("SELECT CAST(floor(count(*) * {share} / 100) AS BIGINT) FROM (SELECT 1) AS counted");
    let Ok(mut parsed) = Parser::parse_sql(&GenericDialect, &counted) else { return };
    let Some(Sql::Query(mut counted)) = parsed.pop() else { return };
    let mut all = query.clone();
    (all.limit_clause, all.order_by, all.fetch) = (None, None, None);
    if let SetExpr::Select(select) = counted.body.as_mut()
        && let Some(table) = select.from.first_mut()
        && let TableFactor::Derived { subquery, .. } = &mut table.relation
    {
        **subquery = all;
    }
    if let Some(LimitClause::LimitOffset { limit: Some(limit), .. }) = &mut query.limit_clause {
        *limit = Expr::Subquery(counted);
    }
}
