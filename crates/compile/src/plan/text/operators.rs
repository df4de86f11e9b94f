//! Parts of several operators, both ways: columns and orders.

use super::super::SortKey;
use super::Result;
use super::expr_printer::expr_text;
use super::scope::{Scope, name_text};
use super::tokens::Tokens;
use super::values::field_type_text;
use crate::types::Field;

/// `name: Type`, with a `?` where it may be NULL.
pub(super) fn field_text(field: &Field) -> String {
    format!("{}: {}", name_text(&field.name), field_type_text(&field.data_type, field.nullable))
}

/// `name: Type, …`
pub(super) fn fields_text(fields: &[Field]) -> String {
    fields.iter().map(field_text).collect::<Vec<_>>().join(", ")
}

/// `expr desc nulls last, …`
pub(super) fn order_text(order: &[SortKey], scope: &Scope) -> String {
    let key = |key: &SortKey| {
        let direction = if key.descending { "desc" } else { "asc" };
        let nulls = if key.nulls_first { "first" } else { "last" };
        format!("{} {direction} nulls {nulls}", expr_text(&key.expr, scope))
    };
    order.iter().map(key).collect::<Vec<_>>().join(", ")
}

impl Tokens {
    /// As [`field_text`] prints it.
    pub(super) fn field(&mut self) -> Result<Field> {
        let name = self.name("the name of a column")?;
        self.mark(":")?;
        let data_type = self.data_type()?;
        Ok(Field { name, data_type, nullable: self.accept("?") })
    }
}

/// As [`fields_text`] prints them.
pub(super) fn fields(tokens: &mut Tokens) -> Result<Vec<Field>> {
    tokens.list(Tokens::field)
}

/// As [`order_text`] prints it. Without a word, an order is ascending, with NULLs last, and a descending one has them first.
pub(super) fn order(tokens: &mut Tokens, scope: &Scope) -> Result<Vec<SortKey>> {
    tokens.list(|tokens| {
        let expr = tokens.expr(scope)?;
        let descending = tokens.accept_word("desc");
        if !descending {
            tokens.accept_word("asc");
        }
        let mut nulls_first = descending;
        if tokens.accept_word("nulls") {
            let place = |word: &str| match word {
                "first" => Some(true),
                "last" => Some(false),
                _ => None,
            };
            nulls_first = tokens.lookup("`first` or `last`", place)?;
        }
        Ok(SortKey { expr, descending, nulls_first })
    })
}
