//! PIVOT and UNPIVOT as statements of their own, as queries over the relations of these names ([`super::pivot`]).

use std::borrow::Cow;

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::pivot::{ALL_BUT, GROUP};
use super::words::{Change, Words, changed, has};

/// A text in which they are written so, the last one first: it may be within another.
pub(super) fn written<'a>(sql: &'a str, dialect: &dyn Dialect) -> Result<Cow<'a, str>> {
    let mut sql = Cow::Borrowed(sql);
    // Each turn writes one of them, after which it is none that has to be written.
    while has(&sql, "pivot") {
        let Some(words) = Words::of(&sql, dialect) else { break };
        let changes = last_changes(&words)?;
        if changes.is_empty() {
            break;
        }
        sql = Cow::Owned(changed(&sql, changes));
    }
    Ok(sql)
}

/// What has to be changed for the last one of them in a text.
fn last_changes(words: &Words<'_>) -> Result<Vec<Change>> {
    for place in (0..words.all.len()).rev() {
        let is_pivot = words.is_any(place, &["pivot", "pivot_wider"]);
        let is_unpivot = words.is_any(place, &["unpivot", "pivot_longer"]);
        let changes = match (begins_a_query(words, place), is_pivot) {
            _ if !is_pivot && !is_unpivot => continue,
            (true, true) => vec![pivot(words, place)?],
            (true, false) => vec![unpivot(words, place)?],
            (false, true) => group_within(words, place),
            (false, false) => columns_within(words, place),
        };
        if !changes.is_empty() {
            return Ok(changes);
        }
    }
    Ok(vec![])
}

/// Whether a query begins here, and no relation ends: it does behind the names of WITH too.
fn begins_a_query(words: &Words<'_>, place: usize) -> bool {
    let before = match place.checked_sub(1) {
        None => true,
        Some(before) => match words.token(before) {
            Some(Token::LParen | Token::SemiColon) => true,
            Some(Token::RParen) => {
                !words.is_token(place + 1, &Token::LParen)
                    && !words.is_any(place + 1, &["include", "exclude"])
            }
            _ => words.is_any(before, &["explain", "analyze", "verbose", "as"]),
        },
    };
    let names_something =
        matches!(words.token(place + 1), Some(Token::Word(_) | Token::SingleQuotedString(_) | Token::LParen));
    before && names_something && !words.is_any(place + 1, &["as", "from", "and", "or", "is", "in", "on"])
}

/// The clauses of such a statement, by their first words' places.
struct Clauses<'w> {
    words: &'w Words<'w>,
    begin: usize,
    end: usize,
}

/// Words that begin a clause.
const CLAUSES: [&str; 8] = ["on", "using", "group", "into", "order", "limit", "offset", "include"];

impl<'w> Clauses<'w> {
    fn of(words: &'w Words<'w>, begin: usize) -> Clauses<'w> {
        Clauses { words, begin, end: words.find(begin, |_| false) }
    }

    /// Where the next clause begins.
    fn next(&self, from: usize) -> usize {
        self.words.find(from, |place| self.words.is_any(place, &CLAUSES)).min(self.end)
    }

    /// The places of what follows a word, if there is such a clause.
    fn clause(&self, word: &str) -> Option<(usize, usize)> {
        let begin = self.words.find(self.begin, |place| self.words.is(place, word));
        (begin < self.end).then(|| (begin + 1, self.next(begin + 1)))
    }

    fn text(&self, (from, to): (usize, usize)) -> &'w str {
        self.words.sql[self.words.byte(from)..self.words.byte(to)].trim()
    }

    /// What stands behind all that belongs to the pivot.
    fn rest(&self) -> &'w str {
        let words = self.words;
        let begin = words.find(self.begin, |place| words.is_any(place, &["order", "limit", "offset"]));
        self.text((begin.min(self.end), self.end))
    }

    /// The text from a place on to the end of the statement, as another one.
    fn change(&self, from: usize, text: String) -> Change {
        Change { from: self.words.byte(from), to: self.words.byte(self.end), text: format!("{text}\n") }
    }
}

/// Parts of a list between places, at its commas.
fn parts(words: &Words<'_>, (from, to): (usize, usize)) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let mut begin = from;
    while begin < to {
        let end = words.find(begin, |place| words.is_token(place, &Token::Comma)).min(to);
        parts.push((begin, end));
        begin = end + 1;
    }
    parts
}

/// `PIVOT t ON k [IN (…)] USING sum(x) GROUP BY g`.
fn pivot(words: &Words<'_>, place: usize) -> Result<Change> {
    let clauses = Clauses::of(words, place + 1);
    let source = clauses.text((place + 1, clauses.next(place + 1)));
    let Some(on) = clauses.clause("on") else {
        return plan_err!("PIVOT says with ON of what its columns are made: PIVOT t ON k USING sum(x)");
    };
    let (mut of, mut values) = (Vec::new(), "ANY");
    let listed = parts(words, on);
    for (from, to) in &listed {
        let within = words.find(*from, |place| words.is(place, "in")).min(*to);
        // The parser takes any expression only in parentheses.
        of.push(format!("({})", clauses.text((*from, within))));
        if within == *to {
            continue;
        }
        let (Some(closing), 1) = (words.closing(within + 1), listed.len()) else {
            return plan_err!("PIVOT takes IN with a list of values, and only of one expression");
        };
        values = clauses.text((within + 2, closing));
    }
    let mut aggregates = match clauses.clause("group") {
        // Behind BY; all columns that are not named are the keys where nothing is said, or ALL.
        Some((by, end)) if !words.is(by + 1, "all") => {
            vec![format!("\"{GROUP}\"({})", clauses.text((by + 1, end)))]
        }
        _ => vec![],
    };
    aggregates.push(clauses.clause("using").map_or("count(*)", |using| clauses.text(using)).to_string());
    let text = format!(
        "SELECT * FROM {source} PIVOT ({} FOR ({}) IN ({values})) {}",
        aggregates.join(", "),
        of.join(", "),
        clauses.rest()
    );
    Ok(clauses.change(place, text))
}

/// `UNPIVOT t [INCLUDE NULLS] ON a, b INTO NAME n VALUE v`.
fn unpivot(words: &Words<'_>, place: usize) -> Result<Change> {
    let clauses = Clauses::of(words, place + 1);
    let source = clauses.text((place + 1, clauses.next(place + 1)));
    let Some(on) = clauses.clause("on") else {
        return plan_err!(
            "UNPIVOT says with ON which columns become rows: UNPIVOT t ON a, b INTO NAME n VALUE v"
        );
    };
    let column = |part| all_but(words, part).unwrap_or_else(|| clauses.text(part).to_string());
    let columns: Vec<String> = parts(words, on).into_iter().map(column).collect();
    let (mut name, mut value) = ("name", "value".to_string());
    if let Some((from, to)) = clauses.clause("into") {
        let behind = |word: &str| {
            let at = words.find(from, |place| words.is(place, word));
            (at + 1 < to).then_some(at + 1)
        };
        name = behind("name").map_or(name, |at| words.text(at));
        if let Some(at) = behind("value") {
            let values: Vec<&str> =
                parts(words, (at, to)).into_iter().map(|part| clauses.text(part)).collect();
            value =
                if values.len() == 1 { words.text(at).into() } else { format!("({})", values.join(", ")) };
        }
    }
    let nulls = if clauses.clause("include").is_some() { "INCLUDE NULLS " } else { "" };
    let text = format!(
        "SELECT * FROM {source} UNPIVOT {nulls}({value} FOR {name} IN ({})) {}",
        columns.join(", "),
        clauses.rest()
    );
    Ok(clauses.change(place, text))
}

/// All columns of UNPIVOT but some, where they are written so: `*`, `* EXCLUDE (a, b)`, and the same in COLUMNS.
fn all_but(words: &Words<'_>, (from, to): (usize, usize)) -> Option<String> {
    let (mut begin, mut end) = (from, to);
    if words.is(from, "columns") && words.is_token(from + 1, &Token::LParen) {
        (begin, end) = (from + 2, to - 1);
    }
    if !words.is_token(begin, &Token::Mul) {
        return None;
    }
    let but = match words.is(begin + 1, "exclude") {
        true => words.sql[words.byte(begin + 2)..words.byte(end)].trim(),
        false => "",
    };
    let but = but.strip_prefix('(').and_then(|but| but.strip_suffix(')')).unwrap_or(but);
    Some(format!("\"{ALL_BUT}\"({but})"))
}

/// `t PIVOT (sum(x) FOR k IN (1, 2) GROUP BY g)`: what is grouped by stands first for the parser.
fn group_within(words: &Words<'_>, place: usize) -> Vec<Change> {
    let closing = words.closing(place + 1).filter(|_| words.is_token(place + 1, &Token::LParen));
    let Some(closing) = closing else { return vec![] };
    let group = words.find(place + 2, |place| words.is(place, "group"));
    if group >= closing || !words.is(group + 1, "by") {
        return vec![];
    }
    let keys = words.sql[words.byte(group + 2)..words.byte(closing)].trim();
    let at = words.byte(place + 2);
    vec![
        Change { from: at, to: at, text: format!("\"{GROUP}\"({keys}), ") },
        Change { from: words.byte(group), to: words.byte(closing), text: String::new() },
    ]
}

/// `t UNPIVOT (v FOR n IN (* EXCLUDE (a)))`.
fn columns_within(words: &Words<'_>, place: usize) -> Vec<Change> {
    let nulls = if words.is_any(place + 1, &["include", "exclude"]) { 2 } else { 0 };
    let open = place + 1 + nulls;
    if !words.is_token(open, &Token::LParen) {
        return vec![];
    }
    let within = words.find(open + 1, |place| words.is(place, "in"));
    let Some(closing) = words.closing(within + 1) else { return vec![] };
    let of = |part: (usize, usize)| {
        let text = all_but(words, part)?;
        Some(Change { from: words.byte(part.0), to: words.byte(part.1), text })
    };
    parts(words, (within + 2, closing)).into_iter().filter_map(of).collect()
}
