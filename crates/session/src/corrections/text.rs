//! Places in the text of a statement, by its tokens.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Location, TokenWithSpan, Tokenizer};

/// The tokens of a text, and where each begins in bytes.
pub(crate) struct Tokens<'a> {
    sql: &'a str,
    /// Where lines begin.
    lines: Vec<usize>,
    /// The place that was asked for last, and its byte: those of a long line are asked for one after the other.
    last: (Location, usize),
    pub all: Vec<TokenWithSpan>,
}

impl<'a> Tokens<'a> {
    /// Nothing of a text that has none.
    pub fn of(sql: &'a str, dialect: &dyn Dialect) -> Option<Tokens<'a>> {
        let all = Tokenizer::new(dialect, sql).with_unescape(false).tokenize_with_location().ok()?;
        let lines = std::iter::once(0).chain(sql.match_indices('\n').map(|(place, _)| place + 1)).collect();
        Some(Tokens { sql, lines, last: (Location::new(1, 1), 0), all })
    }

    /// The byte at a place that a token has.
    pub fn byte_of(&mut self, place: Location) -> Option<usize> {
        let (last, byte) = self.last;
        let (from, column) = match last.line == place.line && last.column <= place.column {
            true => (byte, place.column - last.column),
            false => {
                let line = usize::try_from(place.line).ok()?.checked_sub(1)?;
                (*self.lines.get(line)?, place.column.checked_sub(1)?)
            }
        };
        let (offset, _) = self.sql[from..].char_indices().nth(usize::try_from(column).ok()?)?;
        self.last = (place, from + offset);
        Some(from + offset)
    }
}
