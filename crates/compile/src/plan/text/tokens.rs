//! A line of tokens that is read from its beginning to its end.

use super::lexer::{Kind, Line, Token};
use super::{ParseError, Result, words};

/// The tokens of a line, from the next one on.
pub(super) struct Tokens {
    tokens: Vec<Token>,
    /// The number of the next one.
    pub(super) next: usize,
    /// Brackets that are open.
    pub(super) nesting: usize,
}

impl Tokens {
    pub(super) fn new(mut line: Line) -> Tokens {
        if line.tokens.is_empty() {
            line.tokens.push(Token { kind: Kind::End, line: 1, column: 1 });
        }
        Tokens { tokens: line.tokens, next: 0, nesting: 0 }
    }

    pub(super) fn token(&self, ahead: usize) -> &Token {
        let last = self.tokens.len() - 1;
        &self.tokens[(self.next + ahead).min(last)]
    }

    pub(super) fn peek(&self) -> &Kind {
        &self.token(0).kind
    }

    /// Whether the next token is a word.
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Kind::Word(next) if next == word)
    }

    pub(super) fn is_mark_at(&self, ahead: usize, mark: &str) -> bool {
        matches!(self.token(ahead).kind, Kind::Mark(next) if next == mark)
    }

    /// Whether the next tokens are these words and marks.
    pub(super) fn are_next(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(ahead, expected)| match &self.token(ahead).kind {
            Kind::Word(word) => word == expected,
            Kind::Mark(mark) => mark == expected,
            _ => false,
        })
    }

    /// Whether the next tokens are a word and an opening bracket.
    pub(super) fn is_call(&self) -> bool {
        matches!(self.peek(), Kind::Word(_)) && self.is_mark_at(1, "(")
    }

    pub(super) fn advance(&mut self) -> Kind {
        let kind = self.peek().clone();
        self.next += 1;
        kind
    }

    pub(super) fn position(&self) -> usize {
        self.next
    }

    /// An error at the token of a position.
    pub(super) fn error_at<T>(&self, position: usize, message: impl Into<String>) -> Result<T> {
        let last = self.tokens.len() - 1;
        let Token { line, column, .. } = self.tokens[position.min(last)];
        Err(ParseError { line, column, message: message.into() })
    }

    pub(super) fn expected<T>(&self, what: &str) -> Result<T> {
        self.error_at(self.next, format!("expected {what}, found {}", self.peek()))
    }

    /// Steps over a mark if it is the next token.
    pub(super) fn accept(&mut self, mark: &str) -> bool {
        let found = self.is_mark_at(0, mark);
        self.next += usize::from(found);
        found
    }

    pub(super) fn mark(&mut self, mark: &str) -> Result<()> {
        if self.accept(mark) { Ok(()) } else { self.expected(&format!("`{mark}`")) }
    }

    /// Steps over a word if it is the next token.
    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.next += usize::from(found);
        found
    }

    pub(super) fn word(&mut self, word: &str) -> Result<()> {
        if self.accept_word(word) { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    /// A word that stands for something.
    pub(super) fn lookup<T>(&mut self, what: &str, find: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        let found = match self.peek() {
            Kind::Word(word) => find(word),
            _ => None,
        };
        match found {
            Some(found) => {
                self.next += 1;
                Ok(found)
            }
            None => self.expected(what),
        }
    }

    /// A name: a word that has no other meaning, or anything in double quotes.
    pub(super) fn name(&mut self, what: &str) -> Result<String> {
        match self.peek() {
            Kind::Name(name) => {
                let name = name.clone();
                self.next += 1;
                Ok(name)
            }
            _ => self.lookup(what, |word| (!words::is_reserved(word)).then(|| word.to_string())),
        }
    }

    /// A whole number that is not negative.
    pub(super) fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
        let number = match self.peek() {
            Kind::Number(text) => text.parse().ok(),
            _ => None,
        };
        match number {
            Some(number) => {
                self.next += 1;
                Ok(number)
            }
            None => self.expected(what),
        }
    }

    /// Items with commas between them.
    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.accept(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Items with commas between them up to a closing bracket; the opening one stands before.
    pub(super) fn closed_list<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        if self.accept(")") {
            return Ok(Vec::new());
        }
        let items = self.list(item)?;
        self.mark(")")?;
        Ok(items)
    }

    pub(super) fn end(&self) -> Result<()> {
        if *self.peek() == Kind::End { Ok(()) } else { self.expected("the end of the line") }
    }
}
