//! Errors in the words of who wrote the statement: what DataFusion, its parser and Arrow word for their own developers is worded here,
//! with the line, a caret, and what was probably meant. An error keeps its kind, by which programs tell them apart.

mod limits;
mod names;
mod nearest;
mod place;
mod syntax;
mod types;
mod values;

use std::ops::Range;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;

pub(crate) use limits::with_limit;
pub use nearest::nearest;
pub use place::with_lines_from;
use place::{Tokens, marked};

/// What stands between an error and what it is of.
const CAUSED_BY: &str = "\ncaused by\n";
/// What DataFusion and Arrow say of the kind of an error before they say what it is.
const KINDS: [&str; 13] = [
    "This feature is not implemented: ",
    "Error during planning: ",
    "Execution error: ",
    "SQL error: ",
    "Schema error: ",
    "Arrow error: ",
    "External error: ",
    "Cast error: ",
    "Parser error: ",
    "Compute error: ",
    "Invalid argument error: ",
    "Invalid or Unsupported Configuration: ",
    "Parquet error: ",
];

/// An error in other words, and where in the statement it is.
#[derive(Debug)]
struct Worded {
    text: String,
    place: Option<Range<usize>>,
}

impl Worded {
    fn at(text: impl Into<String>, place: Option<Range<usize>>) -> Worded {
        Worded { text: text.into(), place }
    }
}

/// An error of a statement, before its rows came or while they did.
pub fn worded(error: DataFusionError, sql: &str, state: &SessionState) -> DataFusionError {
    let error = with_limit(error);
    let tokens = Tokens::of(sql);
    let text = |worded: Worded| match &worded.place {
        Some(place) => marked(&worded.text, sql, place),
        None => worded.text,
    };
    let root = error.find_root();
    if let Some(worded) = of_statement(root, &tokens, state) {
        return match root {
            DataFusionError::NotImplemented(_) => DataFusionError::NotImplemented(text(worded)),
            _ => DataFusionError::Plan(text(worded)),
        };
    }
    if let Some(worded) = names::setting(&message(&error)) {
        return DataFusionError::Plan(text(worded));
    }
    match values::worded(root, &tokens) {
        Some(worded) => {
            let context = context(&error).map_or(String::new(), |context| format!("{context}: "));
            let said = format!("{context}{}", text(worded));
            DataFusionError::ArrowError(Box::new(ArrowError::CastError(said)), None)
        }
        None => error,
    }
}

/// A wrong statement: its syntax, its names, its types.
fn of_statement(root: &DataFusionError, tokens: &Tokens<'_>, state: &SessionState) -> Option<Worded> {
    match root {
        DataFusionError::SQL(error, _) => syntax::worded(error, tokens),
        DataFusionError::SchemaError(error, _) => names::column(error, tokens),
        DataFusionError::Plan(message) => names::table(message, tokens, state)
            .or_else(|| names::function(message, tokens, state))
            .or_else(|| names::option(message, state))
            .or_else(|| types::worded(message, tokens))
            .or_else(|| types::with_text(message)),
        DataFusionError::NotImplemented(message) => types::not_there(message),
        DataFusionError::Configuration(message) => names::option(message, state),
        DataFusionError::Internal(message) => types::mistaken(message),
        _ => None,
    }
}

/// What an error happened in, such as the reading of a file. Which of DataFusion's rules met it is nobody's concern.
fn context(error: &DataFusionError) -> Option<String> {
    let text = error.strip_backtrace();
    let parts: Vec<&str> = text.split(CAUSED_BY).collect();
    let (_, around) = parts.split_last()?;
    around.iter().rfind(|part| !is_of_rule(part)).map(|part| plain(part).to_string())
}

/// Whether a part of an error names a rule of the optimizer: `Optimizer rule 'x' failed`, or `type_coercion`.
fn is_of_rule(part: &str) -> bool {
    part.starts_with("Optimizer rule ") || part.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// A part of an error without its kind.
fn plain(part: &str) -> &str {
    let mut part = part;
    while let Some(rest) = KINDS.iter().find_map(|kind| part.strip_prefix(kind)) {
        part = rest;
    }
    part
}

/// What an error says to people: without kinds, rules and backtraces.
pub fn message(error: &DataFusionError) -> String {
    let text = error.strip_backtrace();
    let parts = text.split(CAUSED_BY).filter(|part| !is_of_rule(part)).map(plain);
    parts.collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_what_happened_and_not_where_in_the_code() {
        let root = DataFusionError::ArrowError(Box::new(ArrowError::CastError("no number".into())), None);
        let error =
            root.context("while reading t.csv").context("Optimizer rule 'simplify_expressions' failed");
        assert_eq!(message(&error), "while reading t.csv: no number");
        assert_eq!(context(&error).as_deref(), Some("while reading t.csv"));
        assert_eq!(message(&DataFusionError::Plan("a: b".into())), "a: b");
        assert_eq!(context(&DataFusionError::Plan("a: b".into())), None);
    }
}
