//! How the lines of CSV are written.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use datafusion::arrow::csv::ReaderBuilder;
use datafusion::arrow::datatypes::Schema;
use regex::Regex;

use super::forms::Forms;
use super::reader::{Encoding, Rewriting};

/// How lines are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dialect {
    pub has_header: bool,
    pub delimiter: u8,
    pub quote: u8,
    pub escape: Option<u8>,
    pub comment: Option<u8>,
    pub terminator: Option<u8>,
    pub truncated_rows: bool,
    /// Lines before the header, which are no data.
    pub skip: usize,
    /// What stands for NULL; an empty value where there is nothing.
    pub nulls: Vec<String>,
    /// What becomes of the text before it is cut into rows.
    pub rewriting: Rewriting,
    pub encoding: Encoding,
    /// How values are written that Arrow does not take as they are.
    pub forms: Forms,
}

impl Dialect {
    /// Lines with a header and nothing odd.
    pub fn plain(delimiter: u8, quote: u8) -> Dialect {
        Dialect {
            has_header: true,
            delimiter,
            quote,
            escape: None,
            comment: None,
            terminator: None,
            truncated_rows: false,
            skip: 0,
            nulls: Vec::new(),
            rewriting: Rewriting::default(),
            encoding: Encoding::default(),
            forms: Forms::default(),
        }
    }

    /// Whether rows can be found from anywhere in a file: nothing but quotes and ends of lines says where they begin.
    pub fn is_plain(&self) -> bool {
        self.rows_are_plain()
            && self.skip == 0
            && self.rewriting.escape.is_none()
            && self.rewriting.comment.is_none()
            && self.encoding == Encoding::Utf8
    }

    /// Whether nothing but quotes and ends of lines says where rows begin in the text as it is rewritten.
    pub fn rows_are_plain(&self) -> bool {
        self.escape.is_none() && self.comment.is_none() && self.terminator.is_none()
    }

    /// Arrow's reader of such lines.
    pub fn reader(&self, schema: Schema) -> ReaderBuilder {
        let mut builder = ReaderBuilder::new(Arc::new(schema))
            .with_header(self.has_header)
            .with_delimiter(self.delimiter)
            .with_quote(self.quote)
            .with_truncated_rows(self.truncated_rows);
        if let Some(terminator) = self.terminator {
            builder = builder.with_terminator(terminator);
        }
        if let Some(escape) = self.escape {
            builder = builder.with_escape(escape);
        }
        if let Some(comment) = self.comment {
            builder = builder.with_comment(comment);
        }
        if let Some(nulls) = self.null_pattern() {
            builder = builder.with_null_regex(nulls);
        }
        builder
    }

    /// What all of a value that is NULL looks like, where that is not an empty one.
    pub fn null_pattern(&self) -> Option<Regex> {
        let escaped: Vec<String> = self.nulls.iter().map(|text| regex::escape(text)).collect();
        (!escaped.is_empty()).then(|| Regex::new(&format!("^(?:{})$", escaped.join("|"))).ok()).flatten()
    }

    /// Whether a value is NULL.
    pub fn is_null(&self, value: &str) -> bool {
        match self.nulls.is_empty() {
            true => value.is_empty(),
            false => self.nulls.iter().any(|null| null == value),
        }
    }

    /// A text after the lines that are no data.
    pub fn after_skipped<R: BufRead>(&self, mut text: R) -> io::Result<R> {
        for _ in 0..self.skip {
            text.skip_until(b'\n')?;
        }
        Ok(text)
    }

    /// A reader of such lines as they stand, the header too where it is asked for.
    pub fn records<R: Read>(&self, input: R, with_header: bool) -> csv::Reader<R> {
        let mut builder = csv::ReaderBuilder::new();
        builder.has_headers(self.has_header && !with_header).flexible(true);
        builder.delimiter(self.delimiter).quote(self.quote);
        builder.escape(self.escape).comment(self.comment);
        if let Some(terminator) = self.terminator {
            builder.terminator(csv::Terminator::Any(terminator));
        }
        builder.from_reader(input)
    }
}
