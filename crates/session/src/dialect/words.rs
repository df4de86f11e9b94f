//! The words of a statement's text, and changes of it.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::corrections::text::Tokens;

/// A token, and the bytes that it takes.
#[derive(Debug)]
pub(super) struct Word {
    pub token: Token,
    pub from: usize,
    pub to: usize,
}

/// All tokens of a text but blanks and comments.
#[derive(Debug)]
pub(super) struct Words<'a> {
    pub sql: &'a str,
    pub all: Vec<Word>,
}

impl<'a> Words<'a> {
    /// Nothing of a text that has none.
    pub fn of(sql: &'a str, dialect: &dyn Dialect) -> Option<Words<'a>> {
        let mut tokens = Tokens::of(sql, dialect)?;
        let found = std::mem::take(&mut tokens.all);
        let mut all: Vec<Word> = Vec::with_capacity(found.len());
        let mut ends = Vec::with_capacity(found.len());
        for known in found.into_iter().filter(|known| known.token != Token::EOF) {
            let from = tokens.byte_of(known.span.start)?;
            ends.push((from, known.token));
        }
        let starts: Vec<usize> = ends.iter().map(|(from, _)| *from).skip(1).chain([sql.len()]).collect();
        for ((from, token), to) in ends.into_iter().zip(starts) {
            if !matches!(token, Token::Whitespace(_)) {
                all.push(Word { token, from, to });
            }
        }
        Some(Words { sql, all })
    }

    pub fn token(&self, place: usize) -> Option<&Token> {
        self.all.get(place).map(|word| &word.token)
    }

    /// Whether a word without quotes stands at a place.
    pub fn is(&self, place: usize, wanted: &str) -> bool {
        match self.token(place) {
            Some(Token::Word(word)) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted),
            _ => false,
        }
    }

    pub fn is_any(&self, place: usize, wanted: &[&str]) -> bool {
        wanted.iter().any(|wanted| self.is(place, wanted))
    }

    pub fn is_token(&self, place: usize, wanted: &Token) -> bool {
        self.token(place) == Some(wanted)
    }

    /// As it is written.
    pub fn text(&self, place: usize) -> &'a str {
        self.all.get(place).map_or("", |word| self.sql[word.from..word.to].trim_end())
    }

    /// The place behind a name with any number of points in it; nothing where none stands there.
    pub fn after_name(&self, mut place: usize) -> Option<usize> {
        loop {
            match self.token(place)? {
                Token::Word(_) | Token::SingleQuotedString(_) => place += 1,
                _ => return None,
            }
            match self.token(place) {
                Some(Token::Period) => place += 1,
                _ => return Some(place),
            }
        }
    }

    /// The place of what closes a parenthesis.
    pub fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0;
        for (place, word) in self.all.iter().enumerate().skip(open) {
            match word.token {
                Token::LParen => depth += 1,
                Token::RParen if depth == 1 => return Some(place),
                Token::RParen => depth -= 1,
                _ => {}
            }
        }
        None
    }

    /// The first place from one on, outside of further parentheses, where something is found or what is around it ends.
    pub fn find(&self, from: usize, is_found: impl Fn(usize) -> bool) -> usize {
        let mut depth = 0;
        for (place, word) in self.all.iter().enumerate().skip(from) {
            match word.token {
                Token::LParen => depth += 1,
                Token::RParen | Token::SemiColon if depth == 0 => return place,
                Token::RParen => depth -= 1,
                _ if depth == 0 && is_found(place) => return place,
                _ => {}
            }
        }
        self.all.len()
    }

    /// The byte where a place begins; the end of the text behind the last one.
    pub fn byte(&self, place: usize) -> usize {
        self.all.get(place).map_or(self.sql.len(), |word| word.from)
    }
}

/// Another text for some bytes.
#[derive(Debug)]
pub(super) struct Change {
    pub from: usize,
    pub to: usize,
    pub text: String,
}

/// A text with changes, which do not overlap.
pub(super) fn changed(sql: &str, mut changes: Vec<Change>) -> String {
    changes.sort_by_key(|change| (change.from, change.to));
    let mut text = String::with_capacity(sql.len() + 64);
    let mut done = 0;
    for change in changes {
        text.push_str(&sql[done..change.from.max(done)]);
        text.push_str(&change.text);
        done = change.to.max(done);
    }
    text.push_str(&sql[done..]);
    text
}

/// Whether a text has a word in any case, wherever it stands: few do, and only these are taken apart.
pub(super) fn has(sql: &str, word: &str) -> bool {
    sql.as_bytes().windows(word.len()).any(|bytes| bytes.eq_ignore_ascii_case(word.as_bytes()))
}
