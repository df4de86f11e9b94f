//! The text form `.kir`: [`print()`] and [`parse`] are inverse to each other on valid modules.
//!
//! The grammar is in the crate documentation.

mod expression;
mod lexer;
mod names;
mod parser;
mod printer;

pub use parser::parse;
pub use printer::print;
pub(crate) use printer::{print_statement, statement_text, type_text};

/// Blocks nest at most this deep, so that no recursive walk over a module runs out of stack.
pub const MAX_NESTING: usize = 400;

/// Why a text is not a module.
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

/// Whether a name is that of a type of the language.
pub(crate) fn is_type_name(name: &str) -> bool {
    name == "ptr" || names::scalar_of(name).is_some() || names::vector_of(name).is_some()
}

/// Whether a name can stand in the text form: a letter or `_`, then letters, digits and `_`, all ASCII.
pub fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
