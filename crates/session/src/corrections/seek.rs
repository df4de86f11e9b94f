//! Queries within a statement that are planned by themselves, to learn their columns.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Query, With};

use super::merged_keys::with_needed;
use crate::syntax::{Flow, Walk, visit};

/// What is made of the first query of a statement of which something is made, the innermost ones first: a query, which gets what it needs
/// of all that is named around.
pub(crate) fn seek_query(
    statement: &mut Statement,
    made: &mut dyn FnMut(&mut Query) -> Option<Query>,
) -> Option<Query> {
    let mut seek = Seek { made, named: vec![], found: None };
    let _ = visit(statement, &mut seek);
    seek.found
}

struct Seek<'a> {
    made: &'a mut dyn FnMut(&mut Query) -> Option<Query>,
    named: Vec<Option<With>>,
    found: Option<Query>,
}

impl Walk for Seek<'_> {
    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        self.named.push(query.with.clone());
        ControlFlow::Continue(())
    }

    // What is named within it has been looked at by now.
    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        if let Some(mut made) = (self.made)(query) {
            let named: Vec<&With> = self.named.iter().flatten().collect();
            made.with = with_needed(&named, &mut made);
            self.found = Some(made);
            return ControlFlow::Break(None);
        }
        self.named.pop();
        ControlFlow::Continue(())
    }
}
