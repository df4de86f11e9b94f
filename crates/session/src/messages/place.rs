//! Where in a statement an error is: the line, and a caret under what it is of.

use std::ops::Range;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What stands before a line that is shown.
const LINE: &str = "LINE ";
/// Letters of a line that are shown, at most; around the caret, where it is longer.
const MOST_LETTERS: usize = 100;

/// The tokens of a statement, each with its bytes; white space and comments are left out.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    text: &'a str,
    tokens: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    token: Token,
    bytes: Range<usize>,
}

/// A call of a function in a statement.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// The function's name.
    pub bytes: Range<usize>,
    pub arguments: Vec<&'a str>,
}

impl<'a> Tokens<'a> {
    /// Those of a text, up to where it is none of SQL any more.
    pub fn of(text: &'a str) -> Tokens<'a> {
        let (mut found, dialect) = (Vec::<TokenWithSpan>::new(), GenericDialect {});
        let mut tokenizer = Tokenizer::new(&dialect, text).with_unescape(false);
        let _ = tokenizer.tokenize_with_location_into_buf(&mut found);
        let (mut place, mut start) = (Location { line: 1, column: 1 }, 0);
        let mut bytes_at = |wanted: Location| {
            for letter in text[start..].chars() {
                if (place.line, place.column) >= (wanted.line, wanted.column) {
                    break;
                }
                place = match letter {
                    '\n' => Location { line: place.line + 1, column: 1 },
                    _ => Location { line: place.line, column: place.column + 1 },
                };
                start += letter.len_utf8();
            }
            start
        };
        let tokens = found.into_iter().map(|token| {
            let start = bytes_at(token.span.start);
            let end = bytes_at(token.span.end);
            Place { token: token.token, bytes: start..end }
        });
        let tokens =
            tokens.filter(|place| !matches!(place.token, Token::Whitespace(_) | Token::EOF)).collect();
        Tokens { text, tokens }
    }

    /// Where a name stands that has these parts with dots between them: as a whole, not as a part of a longer one. A function's name is
    /// followed by a bracket, others are not.
    pub fn name(&self, parts: &[&str], is_function: bool) -> Option<Range<usize>> {
        // A table may be a path in single quotes; elsewhere these hold a text.
        self.written_as_name(parts, is_function, false)
            .or_else(|| self.written_as_name(parts, is_function, true))
    }

    fn written_as_name(&self, parts: &[&str], is_function: bool, in_quotes: bool) -> Option<Range<usize>> {
        let is_dot = |index: Option<usize>| {
            index.and_then(|index| self.tokens.get(index)).is_some_and(|place| place.token == Token::Period)
        };
        (0..self.tokens.len()).find_map(|start| {
            let last = start + 2 * parts.len().checked_sub(1)?;
            let is_here = parts.iter().enumerate().all(|(part, name)| {
                let index = start + 2 * part;
                self.is_name(index, name, in_quotes) && (part == 0 || is_dot(Some(index - 1)))
            });
            let calls = self.tokens.get(last + 1).is_some_and(|place| place.token == Token::LParen);
            let is_given = start.checked_sub(1).is_some_and(|before| self.is_name(before, "as", false));
            let alone = !is_given && !is_dot(start.checked_sub(1)) && !is_dot(Some(last + 1));
            (is_here && alone && calls == is_function)
                .then(|| self.tokens[start].bytes.start..self.tokens[last].bytes.end)
        })
    }

    fn is_name(&self, index: usize, name: &str, in_quotes: bool) -> bool {
        match self.tokens.get(index).map(|place| &place.token) {
            Some(Token::Word(word)) if word.quote_style.is_some() => word.value == name,
            Some(Token::Word(word)) => word.value.eq_ignore_ascii_case(name),
            Some(Token::SingleQuotedString(text)) => in_quotes && text == name,
            _ => false,
        }
    }

    /// Where a text stands in single quotes, if it does once.
    pub fn literal(&self, text: &str) -> Option<Range<usize>> {
        let quoted = text.replace('\'', "''");
        let is_it = |place: &&Place| matches!(&place.token, Token::SingleQuotedString(found) if *found == text || *found == quoted);
        let mut found = self.tokens.iter().filter(is_it);
        let first = found.next()?;
        found.next().is_none().then(|| first.bytes.clone())
    }

    /// Where a token is written so, the nearest to a line and a column.
    pub fn written(&self, written: &str, line: u64, column: u64) -> Option<Range<usize>> {
        let wanted = bytes_of(self.text, line, column);
        let places = self.tokens.iter().filter(|place| self.text.get(place.bytes.clone()) == Some(written));
        places.min_by_key(|place| place.bytes.start.abs_diff(wanted)).map(|place| place.bytes.clone())
    }

    /// Whether SELECT gives this name to something.
    pub fn is_given(&self, name: &str) -> bool {
        (1..self.tokens.len())
            .any(|index| self.is_name(index, name, false) && self.is_name(index - 1, "as", false))
    }

    /// Whether a name is written in double quotes, as texts are elsewhere.
    pub fn is_in_double_quotes(&self, name: &str) -> bool {
        let is_it = |place: &Place| matches!(&place.token, Token::Word(word) if word.quote_style == Some('"') && word.value == name);
        self.tokens.iter().any(is_it)
    }

    /// The bytes before a line and a column, which begin at 1.
    pub fn bytes_at(&self, line: u64, column: u64) -> usize {
        bytes_of(self.text, line, column)
    }

    /// What a call of a function has in its brackets, as it is written, and where the call begins.
    pub fn arguments(&self, function: &str) -> Option<Call<'a>> {
        let start = self.tokens.windows(2).position(|pair| {
            let is_name =
                matches!(&pair[0].token, Token::Word(word) if word.value.eq_ignore_ascii_case(function));
            is_name && pair[1].token == Token::LParen
        })?;
        let (mut depth, mut arguments, mut from) = (0usize, Vec::new(), self.tokens[start + 1].bytes.end);
        for place in &self.tokens[start + 1..] {
            match place.token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
                Token::Comma if depth == 1 => {
                    arguments.push(self.text.get(from..place.bytes.start)?.trim());
                    from = place.bytes.end;
                }
                _ => {}
            }
            if depth == 0 {
                let last = self.text.get(from..place.bytes.start)?.trim();
                arguments.extend(Some(last).filter(|last| !last.is_empty()));
                return Some(Call { bytes: self.tokens[start].bytes.clone(), arguments });
            }
        }
        None
    }

    /// The last token: an error at the end of a statement is shown behind it.
    pub fn end(&self) -> Range<usize> {
        let end = self.tokens.last().map_or(0, |place| place.bytes.end);
        end..end
    }

    /// The bytes of the token before a place.
    pub fn before(&self, place: usize) -> Option<Range<usize>> {
        let is_before = |token: &&Place| token.bytes.end <= place && !token.bytes.is_empty();
        self.tokens.iter().rev().find(is_before).map(|token| token.bytes.clone())
    }

    /// What is written at a place.
    pub fn at(&self, place: &Range<usize>) -> &'a str {
        self.text.get(place.clone()).unwrap_or_default()
    }
}

/// The bytes before a line and a column, which begin at 1.
fn bytes_of(text: &str, line: u64, column: u64) -> usize {
    let (line, column) = (line.saturating_sub(1) as usize, column.saturating_sub(1) as usize);
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = text.get(start..).unwrap_or_default();
    start + rest.chars().take_while(|letter| *letter != '\n').take(column).map(char::len_utf8).sum::<usize>()
}

/// A message with the line that it is of, and a caret under the place.
pub(super) fn marked(message: &str, text: &str, place: &Range<usize>) -> String {
    let start = text[..place.start].rfind('\n').map_or(0, |end| end + 1);
    let end = text[place.start..].find('\n').map_or(text.len(), |end| place.start + end);
    let number = text[..place.start].matches('\n').count() + 1;
    // Each letter takes one place; what would take none or several is shown as a blank.
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    let line: Vec<char> = text[start..end].chars().map(plain).collect();
    let caret = text[start..place.start].chars().count();
    let from = if line.len() > MOST_LETTERS { caret.saturating_sub(MOST_LETTERS / 2) } else { 0 };
    let to = line.len().min(from + MOST_LETTERS);
    let (before, after) = (if from > 0 { "…" } else { "" }, if to < line.len() { "…" } else { "" });
    let shown: String = line[from..to].iter().collect();
    let head = format!("{LINE}{number}: {before}");
    let width: usize = line[from..caret].iter().filter_map(|letter| letter.width()).sum();
    let blanks = " ".repeat(head.width() + width);
    format!("{message}\n{head}{}{after}\n{blanks}^", shown.trim_end())
}

/// A message whose lines are counted from another first line, as that of a statement in a file, and the line that it shows.
pub fn with_lines_from(message: &str, first_line: usize) -> (String, Option<usize>) {
    let unchanged = || (message.to_string(), None);
    let Some((before, shown)) = message.split_once(&format!("\n{LINE}")) else { return unchanged() };
    let Some((number, rest)) = shown.split_once(": ") else { return unchanged() };
    let Ok(line) = number.parse::<usize>() else { return unchanged() };
    let moved = line + first_line.saturating_sub(1);
    let wider = " ".repeat(moved.to_string().len().saturating_sub(number.len()));
    let rest = rest.replacen('\n', &format!("\n{wider}"), 1);
    (format!("{before}\n{LINE}{moved}: {rest}"), Some(moved))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, place: Option<Range<usize>>) -> Option<(usize, &str)> {
        place.map(|place| (place.start, &text[place]))
    }

    #[test]
    fn names_are_found_as_they_are_meant() {
        let text = "select t.a, b(a) -- a\n, \"A\", a, 'a' from \"t\" where a.a = x . y";
        let tokens = Tokens::of(text);
        assert_eq!(at(text, tokens.name(&["a"], false)), Some((14, "a")));
        assert_eq!(at(text, tokens.name(&["t", "a"], false)), Some((7, "t.a")));
        assert_eq!(at(text, tokens.name(&["X", "y"], false)).map(|(_, name)| name), Some("x . y"));
        assert_eq!(at(text, tokens.name(&["b"], true)), Some((12, "b")));
        assert_eq!(at(text, tokens.name(&["b"], false)), None);
        assert_eq!(at(text, tokens.name(&["q"], false)), None);
        assert_eq!(at(text, tokens.literal("a")).map(|(_, name)| name), Some("'a'"));
        assert_eq!(Tokens::of("select 'a', 'a'").literal("a"), None);
        assert_eq!(
            at("select é, 'it''s'", Tokens::of("select é, 'it''s'").literal("it's")),
            Some((11, "'it''s'"))
        );
    }

    #[test]
    fn a_caret_stands_under_the_place() {
        let text = "select\n\tnam from t";
        assert_eq!(marked("no nam", text, &(8..11)), "no nam\nLINE 2:  nam from t\n         ^");
        assert_eq!(marked("x", "日本 x", &(7..8)), "x\nLINE 1: 日本 x\n             ^");
        assert_eq!(marked("end", "select", &(6..6)), "end\nLINE 1: select\n              ^");
        let long = format!("select {}, x", "a, ".repeat(100));
        let shown = marked("x", &long, &(long.len() - 1..long.len()));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[1].chars().position(|c| c == 'x'), lines[2].chars().position(|c| c == '^'));
        assert!(lines[1].chars().count() < 120, "{shown}");
    }

    #[test]
    fn lines_are_counted_from_the_first_of_a_file() {
        let (moved, line) = with_lines_from("no x\nLINE 2: a x\n          ^", 99);
        assert_eq!((moved.as_str(), line), ("no x\nLINE 100: a x\n            ^", Some(100)));
        assert_eq!(with_lines_from("no x", 7), ("no x".into(), None));
    }
}
