//! How the lines of a CSV file are written, by its first ones: where its table begins, what stands between values, and before quotes
//! that are part of a value.

use super::csv_types::Kinds;
use super::header::{FirstLine, add, first_line};
use crate::files::dialect::Dialect;

/// Lines that are compared.
const SNIFFED_LINES: usize = 20;
/// Lines that may stand before a table: a title, whoever made it, comments.
const MOST_TITLE_LINES: usize = 50;
/// What may stand between values, where no comma does.
const OTHER_DELIMITERS: [u8; 3] = [b';', b'\t', b'|'];

/// The beginning of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beginning<'a> {
    pub text: &'a [u8],
    /// Whether there is more of it.
    pub is_cut: bool,
    /// What is known to stand between values.
    pub delimiter: Option<u8>,
    pub quote: u8,
    /// Whether lines before the table are looked for.
    pub may_have_title: bool,
}

/// What it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sniffed {
    pub delimiter: u8,
    /// Lines before the table.
    pub title_lines: usize,
    pub escape: Option<u8>,
    /// Whether there is one column.
    pub is_one_column: bool,
}

/// Lines of a file, as far as values in quotes let them end.
struct Line<'a> {
    text: &'a [u8],
    /// Where it begins.
    start: usize,
    /// How many lines an editor shows.
    height: usize,
}

impl Line<'_> {
    fn is_blank(&self) -> bool {
        self.text.is_empty()
    }
}

/// Looks at the beginning of a file.
pub(super) fn sniffed(beginning: Beginning<'_>, dialect: &Dialect) -> Sniffed {
    let Beginning { text, quote, .. } = beginning;
    let escape = escape_of(text, quote);
    if let Some(delimiter) = beginning.delimiter_line().filter(|_| beginning.may_have_title) {
        let after = text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| end + 1);
        let is_one_column = is_one_column(&text[after..], delimiter, quote);
        return Sniffed { delimiter, title_lines: 1, escape, is_one_column };
    }
    let lines = lines_of(text, quote, escape);
    // The last line may be cut off.
    let whole = if beginning.is_cut { lines.len().saturating_sub(1).max(1) } else { lines.len() };
    let lines = &lines[..lines.len().min(whole)];
    let start = match beginning.may_have_title {
        true => beginning.start(lines, dialect),
        false => 0,
    };
    let first =
        lines.iter().skip(start).position(|line| !line.is_blank()).map_or(start, |blank| start + blank);
    let table = &lines[first.min(lines.len())..];
    let delimiter = beginning.delimiter.unwrap_or_else(|| delimiter_of(table, quote));
    let rest = table.first().map_or(&[][..], |line| &text[line.start..]);
    let is_one_column = is_one_column(rest, delimiter, quote);
    // Empty lines before a table are skipped by readers, but where they may be rows.
    let skipped = if is_one_column && beginning.may_have_title { first } else { start };
    let title_lines = lines[..skipped.min(lines.len())].iter().map(|line| line.height).sum();
    Sniffed { delimiter, title_lines, escape, is_one_column }
}

impl Beginning<'_> {
    /// What a line of Excel's says that stands between values: `sep=;`.
    fn delimiter_line(&self) -> Option<u8> {
        let line = self.text.split(|byte| *byte == b'\n').next()?;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = line.strip_prefix(b"\"").and_then(|line| line.strip_suffix(b"\"")).unwrap_or(line);
        match line {
            [b's' | b'S', b'e' | b'E', b'p' | b'P', b'=', sign] if sign.is_ascii() => Some(*sign),
            _ => None,
        }
    }

    /// The line that a table begins with: behind comments, or behind lines without values of their own that a title is made of.
    fn start(&self, lines: &[Line<'_>], dialect: &Dialect) -> usize {
        let blank = |line: &Line<'_>| line.is_blank();
        let first = lines.iter().position(|line| !blank(line)).unwrap_or(0);
        let is_comment = |line: &Line<'_>| line.text.first() == Some(&b'#');
        let comments = lines.iter().skip(first).take_while(|line| blank(line) || is_comment(line)).count();
        if lines.get(first).is_some_and(is_comment) {
            return self.start_behind_comments(lines, first + comments, dialect);
        }
        let starts =
            (first..lines.len().min(first + MOST_TITLE_LINES)).filter(|start| !blank(&lines[*start]));
        for start in starts {
            let Some(delimiter) = self.even_delimiter(&lines[start..]) else { continue };
            let title = &lines[first..start];
            let is_apart = title.last().is_none_or(blank);
            let has_values = title.iter().any(|line| count(line.text, delimiter, self.quote) > 0);
            let is_title = match is_apart {
                true => true,
                // Rows that have more values than the line above is an error, not a table of their own.
                false => {
                    !has_values && self.looks_of(&lines[start..], delimiter, dialect) == FirstLine::Header
                }
            };
            return if is_title && start > first { start } else { 0 };
        }
        0
    }

    /// The last comment is a header where it has as many values as the lines below, and these have none of their own.
    fn start_behind_comments(&self, lines: &[Line<'_>], start: usize, dialect: &Dialect) -> usize {
        let (Some(comment), Some(_)) =
            (start.checked_sub(1).and_then(|last| lines.get(last)), lines.get(start))
        else {
            return 0;
        };
        let table = &lines[start - 1..];
        let is_header = self.even_delimiter(table).is_some_and(|delimiter| {
            !comment.is_blank() && self.looks_of(&lines[start..], delimiter, dialect) != FirstLine::Header
        });
        if is_header { start - 1 } else { start }
    }

    /// What stands equally often in all of some lines, and at least once; blank lines end a table.
    fn even_delimiter(&self, lines: &[Line<'_>]) -> Option<u8> {
        let lines = &lines[..lines.len().min(SNIFFED_LINES)];
        let lines: Vec<&Line<'_>> = lines.iter().filter(|line| !line.is_blank()).collect();
        let is_even = |delimiter: &u8| {
            let wanted = lines.first().map_or(0, |line| count(line.text, *delimiter, self.quote));
            wanted > 0 && lines.iter().all(|line| count(line.text, *delimiter, self.quote) == wanted)
        };
        let all = [b','].into_iter().chain(OTHER_DELIMITERS);
        match self.delimiter {
            Some(known) => Some(known).filter(is_even),
            None => all.into_iter().find(is_even),
        }
    }

    /// What the first of some lines looks like.
    fn looks_of(&self, lines: &[Line<'_>], delimiter: u8, dialect: &Dialect) -> FirstLine {
        let Some(first) = lines.first() else { return FirstLine::Unclear };
        let mut reader = reader(&self.text[first.start..], delimiter, self.quote);
        let mut records = reader.byte_records().flatten();
        let Some(first) = records.next() else { return FirstLine::Unclear };
        let mut rows: Option<Vec<Kinds>> = None;
        for record in records.take(SNIFFED_LINES) {
            let rows = rows.get_or_insert_with(|| vec![Kinds::default(); first.len()]);
            for (kinds, value) in rows.iter_mut().zip(&record) {
                add(kinds, std::str::from_utf8(value).unwrap_or("?"), dialect);
            }
        }
        first_line(&first, rows.as_deref(), dialect)
    }
}

fn reader(text: &[u8], delimiter: u8, quote: u8) -> csv::Reader<&[u8]> {
    let mut builder = csv::ReaderBuilder::new();
    builder.has_headers(false).flexible(true).delimiter(delimiter).quote(quote).from_reader(text)
}

fn is_one_column(text: &[u8], delimiter: u8, quote: u8) -> bool {
    let mut records = reader(text, delimiter, quote);
    matches!(records.byte_records().next(), Some(Ok(record)) if record.len() == 1)
}

/// The lines of a text. A value in quotes may have several; a quote within a value is one of its letters.
fn lines_of(text: &[u8], quote: u8, escape: Option<u8>) -> Vec<Line<'_>> {
    let (mut lines, mut start, mut height) = (Vec::new(), 0, 0);
    let (mut is_quoted, mut before) = (false, b'\n');
    let mut end_line = |start: usize, end: usize, height: usize| {
        let line = &text[start..end];
        lines.push(Line { text: line.strip_suffix(b"\r").unwrap_or(line), start, height });
    };
    for (place, byte) in text.iter().copied().enumerate() {
        match byte {
            b'\n' => {
                height += 1;
                if !is_quoted {
                    end_line(start, place, height);
                    (start, height) = (place + 1, 0);
                }
            }
            byte if byte == quote && is_quoted => is_quoted = escape == Some(before),
            // A quote that is doubled opens again what it seemed to close.
            byte if byte == quote => is_quoted = before == quote || is_between(before),
            _ => {}
        }
        before = byte;
    }
    if start < text.len() {
        end_line(start, text.len(), height + 1);
    }
    lines
}

/// Whether a value may begin behind a byte.
fn is_between(byte: u8) -> bool {
    matches!(byte, b'\n' | b',') || OTHER_DELIMITERS.contains(&byte)
}

/// A backslash, where it stands before quotes within values that would end there otherwise.
fn escape_of(text: &[u8], quote: u8) -> Option<u8> {
    let (mut is_quoted, mut before) = (false, b'\n');
    for (place, byte) in text.iter().copied().enumerate() {
        if byte == quote {
            let next = text.get(place + 1).copied();
            let ends = next.is_none_or(|next| is_between(next) || matches!(next, b'\r') || next == quote);
            if is_quoted && before == b'\\' && !ends {
                return Some(b'\\');
            }
            is_quoted = !is_quoted && (before == quote || is_between(before));
        }
        before = byte;
    }
    None
}

/// What stands between the values of these lines: a comma, unless none is in the first line and another one clearly is, or all
/// lines have as many of another one and not of commas.
fn delimiter_of(lines: &[Line<'_>], quote: u8) -> u8 {
    let lines: Vec<&[u8]> = lines.iter().filter(|line| !line.is_blank()).map(|line| line.text).collect();
    let Some((first, others)) = lines[..lines.len().min(SNIFFED_LINES)].split_first() else { return b',' };
    let commas = count(first, b',', quote);
    let is_even = |delimiter: u8| {
        let wanted = count(first, delimiter, quote);
        wanted > 0 && others.iter().all(|line| count(line, delimiter, quote) == wanted)
    };
    let best =
        OTHER_DELIMITERS.into_iter().max_by_key(|other| (is_even(*other), count(first, *other, quote)));
    match best {
        Some(other)
            if commas == 0
                && count(first, other, quote) > 0
                && (others.is_empty() || appears(others, other, quote)) =>
        {
            other
        }
        Some(other) if is_even(other) && !is_even(b',') && !others.is_empty() => other,
        _ => b',',
    }
}

fn appears(lines: &[&[u8]], delimiter: u8, quote: u8) -> bool {
    lines.iter().any(|line| count(line, delimiter, quote) > 0)
}

/// How often a byte stands in a line outside of quotes.
fn count(line: &[u8], wanted: u8, quote: u8) -> usize {
    let mut quoted = false;
    let mut found = 0;
    for byte in line {
        match *byte {
            byte if byte == quote => quoted = !quoted,
            byte if byte == wanted && !quoted => found += 1,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sniff(text: &str) -> Sniffed {
        let dialect = Dialect::plain(b',', b'"');
        let beginning = Beginning {
            text: text.as_bytes(),
            is_cut: false,
            delimiter: None,
            quote: b'"',
            may_have_title: true,
        };
        sniffed(beginning, &dialect)
    }

    #[test]
    fn what_is_between_values_shows_clearly_or_is_a_comma() {
        for (text, expected) in [
            ("a,b\n1;2,3\n", b','),
            ("a;b;c\n1,5;2;3\n", b';'),
            ("a\tb\n1\t2\n", b'\t'),
            ("a|b\n1|x;y\n", b'|'),
            ("\"a;b\"\nx\n", b','),
            ("a;b\nx\n", b','),
            ("a, in m;b\n1;2\n3;4\n", b';'),
            ("one\n", b','),
            ("", b','),
            ("a;b", b';'),
            ("sep=|\na|b\n", b'|'),
            ("Report\n\na;b\n1,5;2\n", b';'),
        ] {
            assert_eq!(sniff(text).delimiter as char, expected as char, "{text}");
        }
    }

    #[test]
    fn lines_before_a_table_are_told_from_it() {
        for (text, expected) in [
            ("a,b\n1,2\n", 0),
            ("# exported 2024-01-01\na,b\n1,2\n", 1),
            ("# exported\n#\n\na,b\n1,2\n", 3),
            ("# by me, for you\na,b\n1,2\n", 1),
            ("#id,name\n1,x\n", 0),
            ("# made today\n#id,name\n1,x\n", 1),
            ("# nothing else\n", 0),
            ("Report\n\na,b\n1,2\n", 2),
            ("Report, of sales\n\na,b,c\n1,2,3\n", 2),
            ("Report\nof me\na,b\n1,2\n", 2),
            ("\"two\nlines\"\na,b\n1,2\n", 2),
            ("\n\na,b\n1,2\n", 0),
            ("\n\na\n1\n", 2),
            // Errors, which are told.
            ("a\n1,2\n3,4\n", 0),
            ("a,b\n1,2,3\n4,5,6\n", 0),
            ("a,b\n1,2\n\nTotal\n", 0),
            ("id,note\n1,\"first\nsecond, third\"\n2,b\n3,c\n", 0),
            ("sep=;\na;b\n", 1),
        ] {
            assert_eq!(sniff(text).title_lines, expected, "{text}");
        }
    }

    #[test]
    fn a_backslash_escapes_where_quotes_would_end_a_value() {
        for (text, expected) in [
            ("a,b\n\"x\\\"y\",1\n", Some(b'\\')),
            ("a,b\n\"he said \\\"hi\\\", then left\",1\n", Some(b'\\')),
            ("a,b\n\"x\\\\\",1\n", None),
            ("a,b\n\"C:\\\",1\n", None),
            ("a,b\n\"x\"\"y\",1\n", None),
            ("a,b\nx\\\"y,1\n", None),
        ] {
            assert_eq!(sniff(text).escape, expected, "{text}");
        }
    }
}
