//! Text to lines of tokens.

use super::{ParseError, Result};

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Letters, digits and `_`, all ASCII, beginning with a letter or `_`.
    Word(String),
    /// A name in double quotes.
    Name(String),
    /// A text in single quotes.
    Text(String),
    /// Digits, with a fraction or an exponent, or bits in hexadecimal; without a sign.
    Number(String),
    /// One of [`MARKS`].
    Mark(&'static str),
    /// The end of the line.
    End,
}

/// Longer ones before their beginnings.
const MARKS: [&str; 27] = [
    "<>", "<=", ">=", "||", "!~", "+!", "-!", "*!", "(", ")", ",", ";", ":", "?", ".", "#", "=", "<", ">",
    "+", "-", "*", "/", "%", "~", "[", "]",
];

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Word(text) | Kind::Number(text) => write!(f, "`{text}`"),
            Kind::Name(text) => write!(f, "\"{text}\""),
            Kind::Text(text) => write!(f, "'{text}'"),
            Kind::Mark(mark) => write!(f, "`{mark}`"),
            Kind::End => write!(f, "the end of the line"),
        }
    }
}

/// A token and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// The tokens of a line, the last of which is [`Kind::End`], and how many spaces stand before it.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) indent: usize,
    pub(super) tokens: Vec<Token>,
}

/// The lines that are not empty. `--` begins a comment. A line goes on in the next one after a `,`, `;` or `(`, and after `and` and `or`.
pub(super) fn lines(text: &str) -> Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    let mut goes_on = false;
    for (number, content) in (1u32..).zip(text.lines()) {
        let mut tokens = tokens_of(number, content)?;
        let last = tokens.len().saturating_sub(1);
        if last == 0 {
            continue;
        }
        match lines.last_mut() {
            Some(line) if goes_on => {
                line.tokens.pop();
                line.tokens.append(&mut tokens);
            }
            _ => {
                let indent = content.len() - content.trim_start_matches(' ').len();
                lines.push(Line { indent, tokens });
            }
        }
        goes_on = lines.last().is_some_and(|line| is_open(&line.tokens));
    }
    Ok(lines)
}

/// Whether what stands on a line goes on in the next one.
fn is_open(tokens: &[Token]) -> bool {
    tokens.iter().rev().nth(1).is_some_and(|last| match &last.kind {
        Kind::Mark(mark) => matches!(*mark, "," | ";" | "("),
        Kind::Word(word) => matches!(word.as_str(), "and" | "or"),
        _ => false,
    })
}

fn tokens_of(line: u32, content: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = content;
    loop {
        rest = rest.trim_start();
        let before = &content[..content.len() - rest.len()];
        let column = before.chars().count() as u32 + 1;
        if rest.is_empty() || rest.starts_with("--") {
            tokens.push(Token { kind: Kind::End, line, column });
            return Ok(tokens);
        }
        let (kind, length) = token(rest).map_err(|message| ParseError { line, column, message })?;
        tokens.push(Token { kind, line, column });
        rest = &rest[length..];
    }
}

/// The token at the start of a text, and its length in bytes.
fn token(text: &str) -> std::result::Result<(Kind, usize), String> {
    let first = text.chars().next().unwrap_or(' ');
    let length_while = |inside: fn(&u8) -> bool| text.bytes().take_while(inside).count();
    match first {
        '\'' | '"' => quoted(text, 0),
        'E' if matches!(text.as_bytes().get(1), Some(b'\'' | b'"')) => quoted(text, 1),
        'a'..='z' | 'A'..='Z' | '_' => {
            let length = length_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
            Ok((Kind::Word(text[..length].into()), length))
        }
        '0'..='9' => {
            let length = number_length(text.as_bytes());
            Ok((Kind::Number(text[..length].into()), length))
        }
        _ => match MARKS.into_iter().find(|mark| text.starts_with(mark)) {
            Some(mark) => Ok((Kind::Mark(mark), mark.len())),
            None => Err(format!("the character {first:?} has no meaning here")),
        },
    }
}

/// Letters and digits, a point before a digit, and a sign after a decimal exponent's `e`.
fn number_length(bytes: &[u8]) -> usize {
    let hexadecimal = bytes.starts_with(b"0x");
    let mut length = 1;
    while let Some(&byte) = bytes.get(length) {
        let next_is_digit = bytes.get(length + 1).is_some_and(u8::is_ascii_digit);
        let exponent = !hexadecimal && matches!(bytes[length - 1], b'e' | b'E');
        let sign = matches!(byte, b'+' | b'-') && exponent && next_is_digit;
        if !(byte.is_ascii_alphanumeric() || (byte == b'.' && next_is_digit) || sign) {
            break;
        }
        length += 1;
    }
    length
}

/// What stands in quotes, a quote of its kind twice for one; after an `E` also `\n`, `\t`, `\\` and `\u{…}`.
fn quoted(text: &str, prefix: usize) -> std::result::Result<(Kind, usize), String> {
    let quote = if text[prefix..].starts_with('"') { '"' } else { '\'' };
    let mut content = String::new();
    let mut characters = text[prefix + 1..].char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            _ if character == quote => {
                if characters.next_if(|(_, next)| *next == quote).is_none() {
                    let kind = if quote == '"' { Kind::Name(content) } else { Kind::Text(content) };
                    return Ok((kind, prefix + 1 + at + 1));
                }
                content.push(quote);
            }
            '\\' if prefix > 0 => content.push(escaped(&mut characters)?),
            other => content.push(other),
        }
    }
    Err(format!("a closing {quote} is missing"))
}

/// The character that stands behind a backslash.
fn escaped(
    characters: &mut std::iter::Peekable<std::str::CharIndices<'_>>,
) -> std::result::Result<char, String> {
    match characters.next().map(|(_, character)| character) {
        Some('n') => Ok('\n'),
        Some('t') => Ok('\t'),
        Some('\\') => Ok('\\'),
        Some('u') => {
            let digits: String =
                characters.by_ref().skip(1).map(|(_, c)| c).take_while(|c| *c != '}').collect();
            let character = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
            character.ok_or_else(|| format!("\\u{{{digits}}} is no character"))
        }
        _ => Err("a backslash of E'…' stands before n, t, u{…} or another one".into()),
    }
}

/// A text or name in quotes, so that it is read again as it is.
pub(super) fn quote(text: &str, quote: char) -> String {
    let escapes = text.chars().any(char::is_control);
    let mut out = String::from(if escapes { "E" } else { "" });
    out.push(quote);
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\\' if escapes => out.push_str("\\\\"),
            other if other.is_control() => out.push_str(&format!("\\u{{{:x}}}", u32::from(other))),
            other => {
                out.extend((other == quote).then_some(quote));
                out.push(other);
            }
        }
    }
    out.push(quote);
    out
}

/// Whether a text is a word of its own.
pub(super) fn is_word(text: &str) -> bool {
    text.bytes().next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
