//! What a word of a statement or a command may become.

use std::collections::BTreeSet;

use datafusion::common::TableReference;
use datafusion::sql::sqlparser::keywords::{ALL_KEYWORDS, ALL_KEYWORDS_INDEX, RESERVED_FOR_COLUMN_ALIAS};
use kelpie_session::KelpieSession;

use super::commands::{Argument, COMMANDS, command_named, format_names};

/// Words behind which tables stand.
const BEFORE_TABLES: [&str; 8] = ["from", "join", "into", "update", "table", "describe", "desc", "summarize"];
/// Words behind which options stand.
const BEFORE_OPTIONS: [&str; 3] = ["set", "reset", "show"];

/// The names that there are.
#[derive(Debug, Default)]
pub struct Known {
    tables: Vec<Table>,
    functions: Vec<String>,
    options: Vec<String>,
}

#[derive(Debug, Default)]
struct Table {
    name: String,
    columns: Vec<String>,
}

impl Known {
    /// What a session has now.
    pub async fn of(session: &KelpieSession) -> Known {
        let state = session.context().state();
        let mut tables = Vec::new();
        for name in session.tables() {
            // One that cannot be read has no columns to complete.
            let provider = session.context().table_provider(TableReference::bare(name.as_str())).await;
            let columns = provider
                .map(|table| table.schema().fields().iter().map(|field| field.name().clone()).collect());
            tables.push(Table { name, columns: columns.unwrap_or_default() });
        }
        let functions = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
        let functions =
            functions.chain(state.window_functions().keys()).chain(state.table_functions().keys());
        let options = state.config_options().entries().into_iter().map(|entry| entry.key);
        Known {
            tables,
            functions: functions.cloned().collect::<BTreeSet<_>>().into_iter().collect(),
            options: options.collect::<BTreeSet<_>>().into_iter().collect(),
        }
    }

    fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name.eq_ignore_ascii_case(name))
    }
}

/// What completes a word.
#[derive(Debug, PartialEq, Eq)]
pub enum Words {
    /// The paths that there are.
    Files,
    /// These words, and where the one that they complete begins.
    Some { start: usize, words: Vec<String> },
}

/// What the word before a place of a text may become.
pub fn complete(text: &str, position: usize, known: &Known) -> Words {
    let before = &text[..position];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before[line_start..].trim_start();
    if before[..line_start].trim().is_empty() && line.starts_with(['.', '\\']) {
        return of_command(before, line, known);
    }
    if in_quotes(before) {
        return Words::Files;
    }
    let words_of = |text| -> Vec<&str> {
        str::split(text, |c: char| !is_of_name(c)).filter(|word| !word.is_empty()).collect()
    };
    let (words, all_words) = (words_of(before), words_of(text));
    let word = last_word(before, is_of_name);
    let earlier = words.len() - usize::from(!word.is_empty());
    let previous = earlier.checked_sub(1).and_then(|index| words.get(index)).map(|word| word.to_lowercase());
    let is_behind =
        |list: &[&str]| previous.as_ref().is_some_and(|previous| list.contains(&previous.as_str()));
    if earlier == 1 && is_behind(&BEFORE_OPTIONS) {
        return some(
            before,
            word,
            known.options.iter().filter(|name| starts_with(name, word)).cloned().collect(),
        );
    }
    if let Some((qualifier, column)) = word.rsplit_once('.') {
        let columns = columns_of(qualifier, &all_words, known);
        return some(before, column, matching(columns.into_iter().map(quoted), column));
    }
    let tables = matching(known.tables.iter().map(|table| quoted(table.name.clone())), word);
    if is_behind(&BEFORE_TABLES) && (!tables.is_empty() || word.is_empty()) {
        return some(before, word, tables);
    }
    let mut found = matching(columns_in(&all_words, known).into_iter().map(quoted), word);
    found.extend(tables);
    if !word.is_empty() {
        let small = !word.contains(char::is_uppercase);
        let as_typed = |name: &str| if small { name.to_lowercase() } else { name.to_uppercase() };
        let keywords = ALL_KEYWORDS.iter().filter(|name| starts_with(name, word)).map(|name| as_typed(name));
        let is_function =
            |name: &String| known.functions.iter().any(|function| function.eq_ignore_ascii_case(name));
        let keywords = keywords.filter(|name| !is_function(name));
        found.extend(
            known.functions.iter().filter(|name| starts_with(name, word)).map(|name| format!("{name}(")),
        );
        found.extend(keywords);
    }
    some(before, word, found)
}

/// Completes a command, or what follows it.
fn of_command(before: &str, line: &str, known: &Known) -> Words {
    let word = last_word(before, |c| !c.is_whitespace());
    if !line.contains(char::is_whitespace) {
        let names = COMMANDS.iter().flat_map(|command| [&command.name].into_iter().chain(command.also));
        return some(before, word, matching(names.map(ToString::to_string), word));
    }
    let name = line.split_whitespace().next().unwrap_or_default();
    let words: Vec<String> = match command_named(name).map(|command| command.argument) {
        Some(Argument::File) => return Words::Files,
        Some(Argument::Table) => known.tables.iter().map(|table| table.name.clone()).collect(),
        Some(Argument::Switch) => vec!["on".into(), "off".into()],
        Some(Argument::Format) => format_names(),
        Some(Argument::Command) => COMMANDS.iter().map(|command| command.name.to_string()).collect(),
        _ => Vec::new(),
    };
    some(before, word, matching(words.into_iter(), word))
}

fn some(before: &str, word: &str, mut words: Vec<String>) -> Words {
    let mut seen = BTreeSet::new();
    words.retain(|word| seen.insert(word.clone()));
    Words::Some { start: before.len() - word.len(), words }
}

fn matching(names: impl Iterator<Item = String>, word: &str) -> Vec<String> {
    names.filter(|name| starts_with(name.trim_start_matches('"'), word)).collect()
}

fn starts_with(name: &str, word: &str) -> bool {
    name.to_lowercase().starts_with(&word.to_lowercase())
}

/// Letters of names, and the dots between them.
fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '.'
}

fn last_word(text: &str, is_of_word: impl Fn(char) -> bool) -> &str {
    let length = text.chars().rev().take_while(|c| is_of_word(*c)).map(char::len_utf8).sum::<usize>();
    &text[text.len() - length..]
}

/// Whether a text ends within single quotes.
fn in_quotes(text: &str) -> bool {
    text.matches('\'').count() % 2 == 1
}

/// A name as SQL takes it.
fn quoted(name: String) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let upper = name.to_uppercase();
    let keyword = ALL_KEYWORDS.iter().position(|keyword| *keyword == upper);
    let is_reserved = keyword
        .and_then(|position| ALL_KEYWORDS_INDEX.get(position))
        .is_some_and(|keyword| RESERVED_FOR_COLUMN_ALIAS.contains(keyword));
    if is_plain && !is_reserved { name } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The columns of what stands before a dot: a table, or its name within the statement.
fn columns_of(qualifier: &str, words: &[&str], known: &Known) -> Vec<String> {
    let qualifier = qualifier.rsplit('.').next().unwrap_or(qualifier);
    let alias = || {
        let places = words.iter().enumerate().filter(|(_, word)| word.eq_ignore_ascii_case(qualifier));
        places.into_iter().find_map(|(place, _)| {
            let before = words[..place].iter().rev().find(|word| !word.eq_ignore_ascii_case("as"))?;
            known.table(before)
        })
    };
    let table = known.table(qualifier).or_else(alias);
    table.map(|table| table.columns.clone()).unwrap_or_default()
}

/// The columns of the tables that a statement names so far; of all tables where it names none.
fn columns_in(words: &[&str], known: &Known) -> BTreeSet<String> {
    let named: Vec<&Table> = words.iter().filter_map(|word| known.table(word)).collect();
    let tables = if named.is_empty() { known.tables.iter().collect() } else { named };
    tables.into_iter().flat_map(|table| table.columns.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let table = |name: &str, columns: &[&str]| Table {
            name: name.into(),
            columns: columns.iter().map(ToString::to_string).collect(),
        };
        Known {
            tables: vec![
                table("lineitem", &["l_orderkey", "l_quantity", "Line No"]),
                table("Orders", &["o_orderkey", "order"]),
            ],
            functions: vec!["lower".into(), "ltrim".into()],
            options: vec![
                "kelpie.device".into(),
                "kelpie.dictionaries".into(),
                "datafusion.format.null".into(),
            ],
        }
    }

    fn words(before: &str) -> Vec<String> {
        match complete(before, before.len(), &known()) {
            Words::Some { words, .. } => words,
            Words::Files => vec!["a file".into()],
        }
    }

    #[test]
    fn what_may_follow_is_offered() {
        for (before, expected) in [
            ("select * from ", vec!["lineitem", "Orders"]),
            ("select * from ord", vec!["Orders"]),
            ("select l_q", vec!["l_quantity"]),
            ("select o.", vec![]),
            ("select x from orders o where o.", vec!["o_orderkey", "\"order\""]),
            ("select lineitem.l", vec!["l_orderkey", "l_quantity", "\"Line No\""]),
            ("select * from lineitem as x join orders y on x.l_o", vec!["l_orderkey"]),
            ("set kelpie.d", vec!["kelpie.device", "kelpie.dictionaries"]),
            ("reset data", vec!["datafusion.format.null"]),
            ("select * from 'da", vec!["a file"]),
            (".sch", vec![".schema"]),
            ("  .ti", vec![".timing", ".timer"]),
            (".schema l", vec!["lineitem"]),
            (".mode c", vec!["csv"]),
            (".timing ", vec!["on", "off"]),
            (".read x", vec!["a file"]),
            ("\\dt", vec!["\\dt"]),
        ] {
            assert_eq!(words(before), expected, "{before}");
        }
    }

    #[test]
    fn keywords_and_functions_follow_columns_in_the_case_that_is_typed() {
        assert!(words("sel").contains(&"select".to_string()) && words("SEL").contains(&"SELECT".to_string()));
        let found = words("select * from lineitem where l");
        assert_eq!(found[..4], ["\"Line No\"", "l_orderkey", "l_quantity", "lineitem"]);
        assert!(found.contains(&"lower(".to_string()) && found.contains(&"like".to_string()), "{found:?}");
        let Words::Some { start, .. } = complete("select 'ü', lin", 16, &known()) else { panic!() };
        assert_eq!(start, "select 'ü', ".len());
        // What stands behind the cursor says which columns there are.
        let Words::Some { words, .. } = complete("select x. from orders x", 9, &known()) else { panic!() };
        assert_eq!(words, ["o_orderkey", "\"order\""]);
    }
}
