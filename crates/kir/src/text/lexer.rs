//! Text to tokens.

use super::ParseError;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// Letters, digits, `_` and `.`, beginning with a letter or `_`.
    Word(&'a str),
    /// Digits, or a `-` and what follows it: an integer, a float, bits in hexadecimal, `-inf`.
    Number(&'a str),
    /// `%` and a number.
    Value(u32),
    /// One of `{ } ( ) [ ] < > , : ; =`, or `->` as `→`.
    Mark(char),
    /// The end of the text.
    End,
}

impl std::fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Word(text) | Kind::Number(text) => write!(f, "`{text}`"),
            Kind::Value(index) => write!(f, "`%{index}`"),
            Kind::Mark('→') => write!(f, "`->`"),
            Kind::Mark(mark) => write!(f, "`{mark}`"),
            Kind::End => write!(f, "the end of the text"),
        }
    }
}

/// A token and where it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// The tokens of a text; the last is [`Kind::End`]. A `;` inside brackets is a mark, elsewhere it begins a comment.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut tokens = Vec::new();
    let mut last = (1, 1);
    for (line, content) in (1u32..).zip(text.lines()) {
        let mut brackets = 0u32;
        let mut rest = content;
        loop {
            rest = rest.trim_start();
            let column = (content.len() - rest.len()) as u32;
            let column = content[..column as usize].chars().count() as u32 + 1;
            last = (line, column);
            if rest.is_empty() || (rest.starts_with(';') && brackets == 0) {
                break;
            }
            let (kind, length) = token(rest).map_err(|message| ParseError { line, column, message })?;
            match kind {
                Kind::Mark('[') => brackets += 1,
                Kind::Mark(']') => brackets = brackets.saturating_sub(1),
                _ => {}
            }
            tokens.push(Token { kind, line, column });
            rest = &rest[length..];
        }
    }
    tokens.push(Token { kind: Kind::End, line: last.0, column: last.1 });
    Ok(tokens)
}

/// The token at the start of a text, and its length in bytes.
fn token(text: &str) -> Result<(Kind<'_>, usize), String> {
    let bytes = text.as_bytes();
    let first = bytes.first().copied().unwrap_or(b' ');
    Ok(match first {
        b'-' if bytes.get(1) == Some(&b'>') => (Kind::Mark('→'), 2),
        b'%' => {
            let length = 1 + bytes[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            match text[1..length].parse() {
                Ok(index) => (Kind::Value(index), length),
                Err(_) => return Err("expected a value's number after `%`".to_string()),
            }
        }
        b'{' | b'}' | b'(' | b')' | b'[' | b']' | b'<' | b'>' | b',' | b':' | b';' | b'=' => {
            (Kind::Mark(first as char), 1)
        }
        b'-' | b'0'..=b'9' => {
            let length = number_length(bytes);
            (Kind::Number(&text[..length]), length)
        }
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
            let inside = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_' || **byte == b'.';
            let length = bytes.iter().take_while(inside).count();
            (Kind::Word(&text[..length]), length)
        }
        _ => {
            let found = text.chars().next().unwrap_or(' ');
            return Err(format!("the character {found:?} has no meaning here"));
        }
    })
}

/// The sign, then letters, digits and `.`, and a sign after a decimal exponent's `e`.
fn number_length(bytes: &[u8]) -> usize {
    let hexadecimal = bytes.starts_with(b"0x");
    let mut length = 1;
    while let Some(&byte) = bytes.get(length) {
        let exponent = !hexadecimal && matches!(bytes[length - 1], b'e' | b'E');
        let sign = matches!(byte, b'+' | b'-') && exponent && bytes.get(length + 1) != Some(&b'>');
        if !(byte.is_ascii_alphanumeric() || byte == b'.' || sign) {
            break;
        }
        length += 1;
    }
    length
}
