//! `CREATE [OR REPLACE] SEQUENCE s START 10 INCREMENT BY 5`: the parser takes the options in one order only, and nothing before SEQUENCE.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::words::{Change, Words, has};
use crate::sequences::REPLACED;

/// The options in the parser's order.
const OPTIONS: [&str; 6] = ["increment", "minvalue", "maxvalue", "start", "cache", "cycle"];

pub(super) fn may_change(sql: &str) -> bool {
    has(sql, "sequence")
}

/// Writes such a statement as the parser takes it.
pub(super) fn changes(words: &Words<'_>, first: usize, changes: &mut Vec<Change>) {
    if !words.is(first, "create") {
        return;
    }
    let replaces = words.is(first + 1, "or") && words.is(first + 2, "replace");
    let mut place = if replaces { first + 3 } else { first + 1 };
    place += usize::from(words.is_any(place, &["temp", "temporary"]));
    if !words.is(place, "sequence") {
        return;
    }
    let name = if words.is(place + 1, "if") { place + 4 } else { place + 1 };
    let Some(begin) = words.after_name(name) else { return };
    let mut found: [Option<String>; OPTIONS.len()] = Default::default();
    let end = words.find(begin, |_| false);
    let mut at = begin;
    while at < end {
        let option = at + usize::from(words.is(at, "no"));
        let Some(known) = OPTIONS.iter().position(|name| words.is(option, name)) else { return };
        let mut until = option + 1;
        if option == at && OPTIONS[known] != "cycle" {
            until += usize::from(words.is_any(until, &["by", "with"]));
            until += usize::from(words.is_token(until, &Token::Minus)) + 1;
        }
        let text = words.sql[words.byte(at)..words.byte(until.min(end))].trim_end();
        if found[known].replace(text.to_string()).is_some() {
            return;
        }
        at = until;
    }
    if replaces {
        changes.push(Change { from: words.byte(first + 1), to: words.byte(first + 3), text: String::new() });
        let at = words.byte(name);
        changes.push(Change { from: at, to: at, text: format!("\"{REPLACED}\".") });
    }
    if begin < end {
        let text = found.into_iter().flatten().collect::<Vec<_>>().join(" ");
        changes.push(Change { from: words.byte(begin), to: words.byte(end), text });
    }
}
