//! Statements that the parser does not take, in a form that it does.

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::summary::SUMMARY;
use super::words::{Change, Words, has};
use super::{
    described, enums, frames, from_first, globs, lambdas, made_of_queries, membership, merges, samples,
    sequence_options, short_forms,
};

/// The only column of `INSERT INTO t BY NAME …`, until those of its query are known.
pub(super) const BY_NAME: &str = "kelpie: by name";

/// What `MATCH_CONDITION` says of an ASOF join that was written without it.
pub(super) const ASOF_INNER: &str = "kelpie: inner";
pub(super) const ASOF_LEFT: &str = "kelpie: left";

/// Whether a text may be one that is written anew here: others are not taken apart.
pub(super) fn may_change(sql: &str) -> bool {
    let both = |a, b| has(sql, a) && has(sql, b);
    ["summarize", "asof", "**", "macro", "?", "pivot", "struct", "lambda", "isnull", "notnull"]
        .iter()
        .any(|word| has(sql, word))
        || both("copy", "from")
        || both("copy", "to")
        || both("insert", "by")
        || both("merge", "into")
        || both("create", "function")
        || has_split_text(sql)
        || sql.contains('[') && both("for", "in")
        || ["glob", "regexp ", "tablesample"].iter().any(|word| has(sql, word))
        || both("using", "sample")
        || both("exclude", "row")
        || both("exclude", "ing")
        || sequence_options::may_change(sql)
        || enums::may_change(sql)
        || described::may_change(sql)
        || short_forms::may_change(sql)
        || made_of_queries::may_change(sql)
        || membership::may_change(sql)
        || from_first::may_change(sql)
}

/// Adds what has to be changed in a text.
pub(super) fn changes(words: &Words<'_>, changes: &mut Vec<Change>) -> Result<()> {
    split_texts(words, changes);
    summaries(words, changes);
    copy_from(words, changes)?;
    copy_to(words, changes)?;
    copy_columns(words, changes);
    null_tests(words, changes);
    insert_by_name(words, changes);
    merges::changes(words, changes);
    asof_joins(words, changes)?;
    macros(words, changes);
    structs(words, changes);
    lambdas::changes(words, changes);
    membership::changes(words, changes);
    globs::changes(words, changes);
    frames::changes(words, changes)?;
    samples::changes(words, changes)?;
    from_first::changes(words, first(words), changes);
    described::changes(words, first(words), changes);
    sequence_options::changes(words, first(words), changes);
    enums::changes(words, first(words), changes);
    short_forms::changes(words, changes);
    made_of_queries::changes(words, changes);
    powers(words, changes)?;
    placeholders(words, changes)
}

/// Whether a line may begin with a text that another line begins.
fn has_split_text(sql: &str) -> bool {
    sql.lines().skip(1).any(|line| line.trim_start().starts_with('\''))
}

/// `'a'`, a line break and `'b'` are one text, as the standard says; on one line they are none.
fn split_texts(words: &Words<'_>, changes: &mut Vec<Change>) {
    for (first, second) in words.all.iter().zip(words.all.iter().skip(1)) {
        let is_text = matches!(first.token, Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_));
        if !is_text || !matches!(second.token, Token::SingleQuotedString(_)) {
            continue;
        }
        let written = words.sql[first.from..first.to].trim_end();
        let between = &words.sql[first.from + written.len()..second.from];
        if written.ends_with('\'') && between.contains('\n') && !between.contains("/*") {
            let from = first.from + written.len() - 1;
            changes.push(Change { from, to: second.from + 1, text: String::new() });
        }
    }
}

/// Where the statement itself begins: behind EXPLAIN and its words.
fn first(words: &Words<'_>) -> usize {
    let mut place = 0;
    while words.is_any(place, &["explain", "analyze", "verbose"]) {
        place += 1;
    }
    place
}

/// `SUMMARIZE t` is a query over a subquery whose alias says what to make of it.
fn summaries(words: &Words<'_>, changes: &mut Vec<Change>) {
    for place in (0..words.all.len()).filter(|place| words.is(*place, "summarize")) {
        let begins = match place.checked_sub(1) {
            None => true,
            Some(before) => {
                matches!(words.token(before), Some(Token::LParen | Token::SemiColon))
                    || words.is_any(before, &["explain", "analyze", "verbose", "as"])
            }
        };
        let is_statement = matches!(
            words.token(place + 1),
            Some(Token::Word(_) | Token::SingleQuotedString(_) | Token::LParen)
        ) && !words
            .is_any(place + 1, &["as", "and", "or", "is", "in", "like", "between", "not"]);
        if !begins || !is_statement {
            continue;
        }
        let is_query = words.is_any(place + 1, &["select", "with", "from", "values", "table"])
            || words.is_token(place + 1, &Token::LParen);
        let opening = if is_query { "SELECT * FROM (" } else { "SELECT * FROM (SELECT * FROM " };
        let end = words.byte(words.find(place + 1, |_| false));
        let word = &words.all[place];
        changes.push(Change {
            from: word.from,
            to: word.from + "summarize".len(),
            text: opening.to_string(),
        });
        changes.push(Change { from: end, to: end, text: format!("\n) AS \"{SUMMARY}\" ") });
    }
}

/// `COPY t (a, b) FROM 'file' (options)` inserts what the file has.
fn copy_from(words: &Words<'_>, changes: &mut Vec<Change>) -> Result<()> {
    let copy = first(words);
    if !words.is(copy, "copy") {
        return Ok(());
    }
    let Some(mut place) = words.after_name(copy + 1) else { return Ok(()) };
    let table = words.sql[words.byte(copy + 1)..words.byte(place)].trim_end();
    let mut columns = "";
    if words.is_token(place, &Token::LParen) {
        let Some(closing) = words.closing(place) else { return Ok(()) };
        columns = words.sql[words.byte(place)..words.byte(closing + 1)].trim_end();
        place = closing + 1;
    }
    if !words.is(place, "from") {
        return Ok(());
    }
    let Some(Token::SingleQuotedString(_)) = words.token(place + 1) else {
        return plan_err!("COPY {table} FROM takes the name of a file between quotes");
    };
    let path = words.text(place + 1);
    let end = words.find(place + 2, |_| false);
    let options = CopyOptions::of(words, place + 2, end)?;
    let format = match options.format {
        Some(format) => format,
        None => format_of(path),
    };
    let mut arguments = vec![path.to_string()];
    arguments.extend(options.others);
    let function = match format.as_str() {
        "csv" | "text" => {
            arguments.push("all_varchar = true".into());
            "read_csv"
        }
        "parquet" => "read_parquet",
        "json" => "read_json",
        other => {
            return plan_err!("COPY {table} FROM: the format {other} is not known: csv, parquet or json");
        }
    };
    let text = format!("INSERT INTO {table} {columns} SELECT * FROM {function}({})", arguments.join(", "));
    changes.push(Change { from: words.byte(copy), to: words.byte(end), text });
    Ok(())
}

/// `COPY t TO 'file' (format csv, header false)` as DataFusion writes it.
fn copy_to(words: &Words<'_>, changes: &mut Vec<Change>) -> Result<()> {
    let copy = first(words);
    if !words.is(copy, "copy") {
        return Ok(());
    }
    let to = words.find(copy + 1, |place| words.is_any(place, &["to", "from"]));
    let mut place = to + 2;
    place += usize::from(words.is(place, "with"));
    if !words.is(to, "to") || !words.is_token(place, &Token::LParen) {
        return Ok(());
    }
    let end = words.find(to + 2, |_| false);
    let (mut stored_as, mut partitions, mut options) = (String::new(), String::new(), Vec::new());
    let text = |value: &str| match value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        // A quote within it is written twice already.
        Some(_) => value.to_string(),
        None => format!("'{}'", value.trim_matches(['\'', '"']).replace('\'', "''")),
    };
    for CopyOption { name, value } in copy_options(words, to + 2, end)? {
        let option = match name.as_str() {
            "format" => {
                stored_as = format!("STORED AS {} ", value.trim_matches(['\'', '"']));
                continue;
            }
            "partition_by" => {
                partitions = format!("PARTITIONED BY ({}) ", value.trim_matches(['(', ')']));
                continue;
            }
            "header" => "has_header",
            "delim" | "delimiter" | "sep" => "delimiter",
            "quote" => "quote",
            "escape" => "escape",
            "null" | "nullstr" => "null_value",
            "compression" | "codec" => "compression",
            "dateformat" => "date_format",
            "timestampformat" => "timestamp_format",
            "row_group_size" => "max_row_group_size",
            // Files that are there are replaced as a whole, and those of a folder by what `overwrites` says.
            "overwrite" | "overwrite_or_ignore" | "use_tmp_file" => continue,
            _ => {
                return plan_err!(
                    "COPY … TO has no option {name}: it has format, partition_by, header, delimiter, quote, escape, null, \
                     compression, dateformat, timestampformat, row_group_size"
                );
            }
        };
        options.push(format!("'format.{option}' {}", text(&value)));
    }
    let options =
        if options.is_empty() { String::new() } else { format!("OPTIONS ({})", options.join(", ")) };
    let text = format!(" {stored_as}{partitions}{options}");
    changes.push(Change { from: words.byte(to + 2), to: words.byte(end), text });
    Ok(())
}

/// `COPY t (a, b) TO …` writes these columns.
fn copy_columns(words: &Words<'_>, changes: &mut Vec<Change>) {
    let copy = first(words);
    let Some(open) = words.after_name(copy + 1).filter(|_| words.is(copy, "copy")) else { return };
    let closing = words.closing(open).filter(|_| words.is_token(open, &Token::LParen));
    let Some(closing) = closing.filter(|closing| words.is(closing + 1, "to")) else { return };
    let (table, columns) = ((copy + 1, open), (open + 1, closing));
    let text = |(from, to)| words.sql[words.byte(from)..words.byte(to)].trim_end();
    let text = format!("(SELECT {} FROM {}) ", text(columns), text(table));
    changes.push(Change { from: words.byte(copy + 1), to: words.byte(closing + 1), text });
}

/// Whether a COPY says that what it writes takes the place of all files of a folder.
pub(crate) fn overwrites(sql: &str) -> bool {
    if !has(sql, "copy") || !has(sql, "overwrite") {
        return false;
    }
    let Some(words) = Words::of(sql, &GenericDialect) else { return false };
    let copy = first(&words);
    let to = words.find(copy + 1, |place| words.is(place, "to"));
    if !words.is(copy, "copy") || !words.is(to, "to") {
        return false;
    }
    let options = copy_options(&words, to + 2, words.find(to + 2, |_| false)).unwrap_or_default();
    let is_set =
        |value: &str| !["false", "0", "off"].contains(&value.trim_matches('\'').to_lowercase().as_str());
    options.iter().any(|option| option.name == "overwrite" && is_set(&option.value))
}

/// `x ISNULL` and `x NOTNULL`, which the parser takes for names of columns.
fn null_tests(words: &Words<'_>, changes: &mut Vec<Change>) {
    for place in (1..words.all.len()).filter(|place| words.is_any(*place, &["isnull", "notnull"])) {
        let no_value = [
            "select", "distinct", "all", "where", "and", "or", "not", "on", "by", "case", "when", "then",
            "else", "as", "having", "from", "join",
        ];
        let is_value = match words.token(place - 1) {
            Some(Token::Word(_)) => !words.is_any(place - 1, &no_value),
            Some(Token::RParen | Token::RBracket | Token::Number(..) | Token::SingleQuotedString(_)) => true,
            _ => false,
        };
        let is_name = matches!(words.token(place + 1), Some(Token::LParen | Token::Period | Token::Eq));
        if is_value && !is_name {
            let text = if words.is(place, "isnull") { "IS NULL " } else { "IS NOT NULL " };
            let word = &words.all[place];
            changes.push(Change { from: word.from, to: word.to, text: text.to_string() });
        }
    }
}

/// What the name of a file says of its format.
fn format_of(path: &str) -> String {
    let name = path.trim_matches('\'').to_lowercase();
    let is =
        |endings: &[&str]| endings.iter().any(|ending| name.split('.').skip(1).any(|part| part == *ending));
    match () {
        () if is(&["parquet"]) => "parquet",
        () if is(&["json", "jsonl", "ndjson"]) => "json",
        () => "csv",
    }
    .to_string()
}

/// The options of COPY … FROM as those of the function that reads the file.
#[derive(Default)]
struct CopyOptions {
    format: Option<String>,
    others: Vec<String>,
}

impl CopyOptions {
    fn of(words: &Words<'_>, place: usize, end: usize) -> Result<CopyOptions> {
        let mut options = CopyOptions::default();
        for CopyOption { name, value } in copy_options(words, place, end)? {
            match name.as_str() {
                "format" => options.format = Some(value.trim_matches(['\'', '"']).to_lowercase()),
                "csv" if value == "true" => options.format = Some("csv".into()),
                "null" => options.others.push(format!("nullstr = {value}")),
                _ => options.others.push(format!("{name} = {value}")),
            }
        }
        Ok(options)
    }
}

/// An option of COPY as it is written, the name in small letters.
struct CopyOption {
    name: String,
    value: String,
}

/// The options of a COPY from a place to an end.
fn copy_options(words: &Words<'_>, mut place: usize, end: usize) -> Result<Vec<CopyOption>> {
    let mut options = Vec::new();
    place += usize::from(words.is(place, "with"));
    let in_parentheses = words.is_token(place, &Token::LParen);
    let last = if in_parentheses { words.closing(place).unwrap_or(end) } else { end };
    place += usize::from(in_parentheses);
    while place < last {
        let Some(Token::Word(name)) = words.token(place) else {
            return plan_err!("COPY: {} is no option", words.text(place));
        };
        let name = name.value.to_lowercase();
        place += 1;
        place += usize::from(words.is_token(place, &Token::Eq));
        let next = words.find(place, |at| words.is_token(at, &Token::Comma)).min(last);
        // Without parentheses the words stand one behind the other, as in PostgreSQL.
        let until = if in_parentheses || next - place <= 1 { next } else { place + 1 };
        let is_flag = until == place || name == "header" && words.is_any(place, &["delimiter", "csv"]);
        let value = match is_flag {
            true => "true".to_string(),
            false => words.sql[words.byte(place)..words.byte(until)].trim_end().to_string(),
        };
        place = if is_flag { place } else { until };
        place += usize::from(words.is_token(place, &Token::Comma));
        options.push(CopyOption { name, value });
    }
    Ok(options)
}

/// `INSERT INTO t BY NAME SELECT …` names a column that no table has; by position is what it says without that.
fn insert_by_name(words: &Words<'_>, changes: &mut Vec<Change>) {
    let insert = first(words);
    if !words.is(insert, "insert") {
        return;
    }
    let by = words.find(insert, |at| words.is_any(at, &["by", "select", "values", "from", "with"]));
    if !words.is(by, "by") || !words.is_any(by + 1, &["name", "position"]) {
        return;
    }
    let text = if words.is(by + 1, "name") { format!("(\"{BY_NAME}\") ") } else { String::new() };
    changes.push(Change { from: words.byte(by), to: words.byte(by + 2), text });
}

/// `a ASOF [LEFT] JOIN b ON …` gets the MATCH_CONDITION that the parser wants, which says that there was none.
fn asof_joins(words: &Words<'_>, changes: &mut Vec<Change>) -> Result<()> {
    for place in (0..words.all.len()).filter(|place| words.is(*place, "asof")) {
        let mut join = place + 1;
        let is_left = words.is(join, "left");
        join += usize::from(words.is_any(join, &["left", "inner"]));
        join += usize::from(words.is(join, "outer"));
        if words.is_any(place + 1, &["right", "full", "semi", "anti"]) {
            return plan_err!("ASOF {} JOIN is not supported", words.text(place + 1).to_uppercase());
        }
        if !words.is(join, "join") {
            continue;
        }
        let condition = words.find(join + 1, |at| words.is_any(at, &["on", "using", "match_condition"]));
        if words.is(condition, "on") || words.is(condition, "using") {
            let kind = if is_left { ASOF_LEFT } else { ASOF_INNER };
            let at = words.byte(condition);
            changes.push(Change { from: at, to: at, text: format!("MATCH_CONDITION ('{kind}') ") });
        }
        changes.push(Change { from: words.byte(place + 1), to: words.byte(join), text: String::new() });
    }
    Ok(())
}

/// A macro is dropped as a function is. A function that is said to be an expression or a query is a macro: of others a text or a type
/// follows.
fn macros(words: &Words<'_>, changes: &mut Vec<Change>) {
    let first = first(words);
    if words.is(first, "create") {
        let mut place = first + 1;
        while words.is_any(place, &["or", "replace", "temp", "temporary"]) {
            place += 1;
        }
        let opening = words.after_name(place + 1).filter(|open| words.is_token(*open, &Token::LParen));
        let behind = opening.and_then(|open| words.closing(open));
        let is_macro = words.is(place, "function")
            && behind.is_some_and(|behind| {
                let has_body = !matches!(
                    words.token(behind + 2),
                    None | Some(Token::SingleQuotedString(_) | Token::DollarQuotedString(_))
                );
                words.is(behind + 1, "as") && has_body
            });
        if is_macro {
            let text = "MACRO ".to_string();
            changes.push(Change { from: words.byte(place), to: words.byte(place + 1), text });
        }
    }
    if words.is(first, "drop") && words.is(first + 1, "macro") {
        let behind = if words.is(first + 2, "table") { first + 3 } else { first + 2 };
        let text = "FUNCTION ".to_string();
        changes.push(Change { from: words.byte(first + 1), to: words.byte(behind), text });
    }
}

/// The type `STRUCT(a INTEGER, b VARCHAR)` has angle brackets for the parser. A call of the function `struct` has no two words side by
/// side.
fn structs(words: &Words<'_>, changes: &mut Vec<Change>) {
    let is_word = |place| matches!(words.token(place), Some(Token::Word(_)));
    for place in (0..words.all.len()).filter(|place| words.is(*place, "struct")) {
        let is_type = words.is_token(place + 1, &Token::LParen)
            && is_word(place + 2)
            && is_word(place + 3)
            && !words
                .is_any(place + 3, &["as", "and", "or", "is", "in", "like", "not", "between", "at", "over"]);
        if let Some(closing) = words.closing(place + 1).filter(|_| is_type) {
            for (bracket, text) in [(place + 1, "<"), (closing, ">")] {
                let from = words.byte(bracket);
                changes.push(Change { from, to: from + 1, text: text.into() });
            }
        }
    }
}

/// Whether two stars at a place are an operator between two operands.
fn is_power(words: &Words<'_>, place: usize) -> bool {
    let is_star = |place| words.is_token(place, &Token::Mul);
    let is_operand = place.checked_sub(1).and_then(|before| words.token(before)).is_some_and(|before| {
        matches!(
            before,
            Token::Word(_)
                | Token::Number(..)
                | Token::RParen
                | Token::RBracket
                | Token::Placeholder(_)
                | Token::SingleQuotedString(_)
        )
    });
    is_operand
        && is_star(place)
        && is_star(place + 1)
        && words.all[place].from + 1 == words.all[place + 1].from
        && !is_star(place + 2)
}

/// `a ** b` is parsed as AT TIME ZONE: nothing else binds as it does, before `*` and from the left. `^` comes after `+`.
fn powers(words: &Words<'_>, changes: &mut Vec<Change>) -> Result<()> {
    let found: Vec<usize> = (0..words.all.len()).filter(|place| is_power(words, *place)).collect();
    let has_zone = || (0..words.all.len()).any(|place| words.is(place, "at") && words.is(place + 1, "time"));
    if !found.is_empty() && has_zone() {
        return plan_err!("** beside AT TIME ZONE in one statement: write power(a, b) instead of a ** b");
    }
    for place in found {
        let from = words.byte(place);
        changes.push(Change { from, to: from + 2, text: " AT TIME ZONE ".into() });
    }
    Ok(())
}

/// Whether a statement has `**`.
pub(super) fn has_powers(words: &Words<'_>) -> bool {
    (0..words.all.len()).any(|place| is_power(words, place))
}

/// The first `?` is `$1`, the second one `$2`.
fn placeholders(words: &Words<'_>, changes: &mut Vec<Change>) -> Result<()> {
    let mut number = 0;
    let mut other = None;
    for word in &words.all {
        let Token::Placeholder(name) = &word.token else { continue };
        if name == "?" {
            number += 1;
            changes.push(Change { from: word.from, to: word.from + 1, text: format!("${number}") });
        } else {
            other = Some(name);
        }
    }
    match other {
        Some(name) if number > 0 => {
            plan_err!("the parameters ? and {name} in one statement: which one is meant first is open")
        }
        _ => Ok(()),
    }
}
