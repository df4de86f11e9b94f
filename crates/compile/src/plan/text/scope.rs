//! The columns that an expression may read, and what they are called.

use super::lexer::{is_word, quote};
use super::words::is_reserved;
use crate::types::Field;

/// The columns of an operator's input, or of both sides of a join one after the other.
#[derive(Debug, Default)]
pub(super) struct Scope {
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    /// The side of a join that has it.
    side: Option<&'static str>,
    field: Field,
}

/// The sides of a join, as columns name them.
pub(super) const BUILD: &str = "build";
pub(super) const PROBE: &str = "probe";

impl Scope {
    /// The columns of an input.
    pub(super) fn of(fields: Vec<Field>) -> Scope {
        Scope { columns: fields.into_iter().map(|field| Column { side: None, field }).collect() }
    }

    /// The columns of a side of a join.
    pub(super) fn of_side(side: &'static str, fields: Vec<Field>) -> Scope {
        Scope { columns: fields.into_iter().map(|field| Column { side: Some(side), field }).collect() }
    }

    /// The columns of a scope, and then another one's.
    pub(super) fn followed_by(mut self, other: Scope) -> Scope {
        self.columns.extend(other.columns);
        self
    }

    /// A column.
    pub(super) fn field(&self, index: usize) -> Option<&Field> {
        self.columns.get(index).map(|column| &column.field)
    }

    /// The columns of a name, of one side where it is given.
    pub(super) fn find(&self, side: Option<&str>, name: &str) -> Vec<usize> {
        let is_called =
            |column: &Column| column.field.name == name && (side.is_none() || column.side == side);
        let columns = self.columns.iter().enumerate().filter(|(_, column)| is_called(column));
        columns.map(|(index, _)| index).collect()
    }

    /// What a column is called: its name, or its number where no other says which it is.
    pub(super) fn name(&self, index: usize) -> String {
        let Some(Column { side, field }) = self.columns.get(index) else { return format!("#{index}") };
        let is_only = self.find(*side, &field.name) == [index];
        match side {
            _ if field.name.is_empty() || !is_only => format!("#{index}"),
            Some(side) => format!("{side}.{}", name_text(&field.name)),
            None => name_text(&field.name),
        }
    }
}

/// A name, in quotes where it is no word or has a meaning of its own.
pub(super) fn name_text(name: &str) -> String {
    if is_word(name) && !is_reserved(name) { name.into() } else { quote(name, '"') }
}
