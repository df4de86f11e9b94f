//! What `regexp_replace` puts in the place of a match: `\1` is a group and `\\` a backslash, and any other sign is itself. To DataFusion a `$`
//! is the beginning of a group as well.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::by_row::{Definition, Kind};
use super::functions::text;
use crate::syntax::{call, name_of, taken};

const NAME: &str = "kelpie_replacement";

/// Writes the replacement of a call as a call that makes DataFusion's of it.
pub(super) fn rewrite(name: &str, function: &mut Function) {
    if !may_change(name, function) {
        return;
    }
    if let FunctionArguments::List(list) = &mut function.args
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(replacement))) = list.args.get_mut(2)
    {
        *replacement = call(NAME, vec![taken(replacement)]);
    }
}

/// Whether the replacement of a call may mean something else to DataFusion. One that is written anew already stays.
pub(super) fn may_change(name: &str, function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else { return false };
    if name != "regexp_replace" {
        return false;
    }
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(replacement))) = list.args.get(2) else {
        return false;
    };
    match text(replacement) {
        Some(text) => text.contains('$') || text.contains(r"\\") || has_number(text),
        None => !matches!(replacement, Expr::Function(made) if name_of(made).as_deref() == Some(NAME)),
    }
}

/// Whether a group is written with more digits than the one that counts.
fn has_number(text: &str) -> bool {
    text.as_bytes()
        .windows(3)
        .any(|signs| signs[0] == b'\\' && signs[1].is_ascii_digit() && signs[2].is_ascii_digit())
}

/// The function that makes DataFusion's replacement of one.
pub(super) fn function() -> Definition {
    Definition {
        name: NAME,
        aliases: &[],
        parameters: &[Kind::Text],
        least: 1,
        result: DataType::Utf8,
        body: |row| Ok(ScalarValue::from(written(row.text(0)))),
    }
}

fn written(replacement: &str) -> String {
    let mut written = String::with_capacity(replacement.len() + 8);
    let mut signs = replacement.chars().peekable();
    while let Some(sign) = signs.next() {
        let next = signs.peek().copied();
        match (sign, next) {
            ('$', _) => written.push_str("$$"),
            ('\\', Some(digit)) if digit.is_ascii_digit() => {
                written.push_str(&format!("${{{digit}}}"));
                signs.next();
            }
            ('\\', next) => {
                if next == Some('\\') {
                    signs.next();
                }
                written.push('\\');
                // DataFusion would take a backslash and digits for a group: a group without a name is nothing between them.
                if signs.peek().is_some_and(char::is_ascii_digit) {
                    written.push_str("${}");
                }
            }
            _ => written.push(sign),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_backslashes_make_groups() {
        for (replacement, wanted) in [
            ("a", "a"),
            (r"$\1", "$$${1}"),
            ("${y}", "$${y}"),
            (r"\12", "${1}2"),
            (r"\\b", r"\b"),
            (r"\b", r"\b"),
            (r"\\1", r"\${}1"),
            (r"\\\1", r"\${1}"),
        ] {
            assert_eq!(written(replacement), wanted);
        }
    }
}
