//! Clauses of MERGE INTO that the parser does not take, with names that say what they mean: `crate::row_changes` reads them.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::words::{Change, Words};

/// The function of columns that are equal on both sides, for `MERGE INTO t USING s USING (a, b)`.
pub(crate) const EQUAL_COLUMNS: &str = "kelpie_equal_columns";
/// The column of clauses that change nothing: `THEN DO NOTHING`.
pub(crate) const NOTHING: &str = "kelpie: nothing";
/// That of clauses which take all columns by their names: `THEN UPDATE`, `THEN UPDATE SET *`, `THEN INSERT BY NAME`.
pub(crate) const BY_NAME: &str = "kelpie: all by name";

/// Writes the clauses of MERGE as the parser takes them.
pub(super) fn changes(words: &Words<'_>, changes: &mut Vec<Change>) {
    let Some(merge) = (0..words.all.len()).find(|place| words.is(*place, "merge")) else { return };
    if !words.is(merge + 1, "into") {
        return;
    }
    let first_when = words.find(merge, |place| words.is(place, "when"));
    let using = words.find(merge, |place| words.is(place, "using"));
    let columns = words.find(using + 1, |place| words.is_any(place, &["using", "on"]));
    if words.is(columns, "using") && columns < first_when {
        let (from, to) = (words.byte(columns), words.byte(columns + 1));
        changes.push(Change { from, to, text: format!("ON {EQUAL_COLUMNS} ") });
    }
    for then in (first_when..words.all.len()).filter(|place| words.is(*place, "then")) {
        // A CASE has a THEN as well.
        if words.is_any(then + 1, &["do", "update", "insert"]) {
            action(words, then + 1, changes);
        }
    }
}

fn action(words: &Words<'_>, place: usize, changes: &mut Vec<Change>) {
    let ends = |place: usize| {
        words.all.get(place).is_none_or(|word| word.token == Token::SemiColon)
            || words.is_any(place, &["when", "returning"])
    };
    // `INSERT BY NAME *` says no more than `INSERT BY NAME`.
    let ends = |place: usize| ends(place) || words.is_token(place, &Token::Mul) && ends(place + 1);
    let insert = |name: &str| format!("INSERT (\"{name}\") VALUES (0) ");
    let update = |name: &str| format!("UPDATE SET \"{name}\" = 0 ");
    let is_by = |what: &str| words.is(place + 1, "by") && words.is(place + 2, what) && ends(place + 3);
    let text = match () {
        () if words.is(place, "do") && words.is(place + 1, "nothing") && ends(place + 2) => {
            if has_row(words, place) { update(NOTHING) } else { insert(NOTHING) }
        }
        () if words.is(place, "update") && (ends(place + 1) || is_by("name")) => update(BY_NAME),
        () if words.is(place, "update") && words.is(place + 1, "set") && ends(place + 2) => update(BY_NAME),
        () if words.is(place, "insert") && is_by("name") => insert(BY_NAME),
        () if words.is(place, "insert") && (ends(place + 1) || is_by("position")) => "INSERT ROW ".into(),
        () => return,
    };
    let end = words.find(place, |at| words.is_any(at, &["when", "returning"]));
    changes.push(Change { from: words.byte(place), to: words.byte(end), text });
}

/// Whether an action is for rows of the table: one behind WHEN MATCHED or WHEN NOT MATCHED BY SOURCE.
fn has_row(words: &Words<'_>, action: usize) -> bool {
    let when = (0..action)
        .rev()
        .find(|place| words.is(*place, "when") && words.is_any(*place + 1, &["matched", "not"]));
    when.is_some_and(|when| words.is(when + 1, "matched") || words.is(when + 4, "source"))
}
