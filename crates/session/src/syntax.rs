//! Walks over a statement's syntax tree.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{Ident, VisitMut, VisitorMut};

/// Visits the parts of a statement that name columns. Whether the visitor stopped early is what it gives.
pub(crate) fn visit<V: VisitorMut>(statement: &mut Statement, visitor: &mut V) -> ControlFlow<V::Break> {
    match statement {
        Statement::Statement(statement) => statement.as_mut().visit(visitor),
        Statement::Explain(explain) => visit(&mut explain.statement, visitor),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.visit(visitor),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => ControlFlow::Continue(()),
    }
}

/// A name as SQL takes it: in lower case without quotes, else as it stands.
pub(crate) fn normal(ident: &Ident) -> String {
    match ident.quote_style {
        None => ident.value.to_ascii_lowercase(),
        Some(_) => ident.value.clone(),
    }
}

/// A name that means itself, whatever its case.
pub(crate) fn quoted(name: impl Into<String>) -> Ident {
    Ident::with_quote('"', name)
}
