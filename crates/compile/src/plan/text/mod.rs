//! The text form of plans: [`print()`] and [`parse`] are inverse to each other.
//!
//! One operator stands on a line, and its inputs stand below it, further in:
//!
//! ```text
//! sort total desc nulls last
//!   aggregate by city; sum(v) as total
//!     join inner on build.id = probe.customer residual probe.v > 0
//!       scan customers source 0 (id: Int64, city: Utf8?)
//!       scan orders source 1 (customer: Int64?, v: Int32)
//! ```
//!
//! `docs/plan-files.md` is the reference. Types stand where they do not follow from the operands by a few rules (`infer.rs`):
//! `(v + w : Int64?)` says of which type a sum is, and that it may be NULL, where these rules say something else.
//!
//! What is not printed so that it can be read again is what no plan may be: other numbers of names than of columns.

mod aggregates;
mod expr_parser;
mod expr_printer;
mod infer;
mod infixes;
mod lexer;
mod operators;
mod plan_parser;
mod plan_printer;
mod scope;
mod tokens;
mod values;
mod windows;
mod words;

pub use self::plan_printer::print;
use self::tokens::Tokens;
use super::Plan;
use crate::types::{Field, Literal};

/// Why a text is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What was expected and what stands there.
    pub message: String,
}

type Result<T> = std::result::Result<T, ParseError>;

/// A table whose columns a scan need not repeat: its number among those that [`parse`] is given is the source of its scans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// What scans call it.
    pub name: String,
    /// All of its columns.
    pub fields: Vec<Field>,
}

/// Operators and brackets nest at most this deep, so that reading a text takes little of the stack.
pub const MAX_NESTING: usize = 100;

/// Operators of one expression, the longest chain of `and` included, are at most this many on top of each other.
pub const MAX_DEPTH: usize = 2000;

/// The plan of a text. Names of columns are resolved and types derived; whether the plan makes sense is the compiler's to say.
pub fn parse(text: &str, tables: &[Table]) -> Result<Plan> {
    plan_parser::plan(text, tables)
}

/// The columns of a text like `k: Int64?, v: Utf8`.
pub fn parse_fields(text: &str) -> Result<Vec<Field>> {
    one_line(text, operators::fields)
}

/// The values of a text like `1, 'one', null`, one a type.
pub fn parse_row(text: &str, fields: &[Field]) -> Result<Vec<Literal>> {
    one_line(text, |tokens| {
        let mut row = Vec::with_capacity(fields.len());
        for (index, field) in fields.iter().enumerate() {
            if index > 0 {
                tokens.mark(",")?;
            }
            row.push(tokens.value_of(&field.data_type)?);
        }
        Ok(row)
    })
}

/// What the only line of a text says, from its first token to its last.
fn one_line<T>(text: &str, read: impl FnOnce(&mut Tokens) -> Result<T>) -> Result<T> {
    let mut lines = lexer::lines(text)?.into_iter();
    let mut tokens = Tokens::new(lines.next().unwrap_or_default());
    let read = read(&mut tokens)?;
    tokens.end()?;
    match lines.next() {
        Some(line) => Tokens::new(line).expected("the end of the text"),
        None => Ok(read),
    }
}
