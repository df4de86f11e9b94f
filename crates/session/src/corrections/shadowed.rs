//! A query that is named by WITH as another one around it: the inner one is meant where it is known, and the outer one elsewhere. DataFusion
//! takes no name twice. Here the inner one has another name, and what reads it goes by the one that was written.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Query, TableFactor};

use crate::syntax::{Flow, Walk, as_alias, normal, quoted, visit};

/// Gives inner queries of a name that is taken others.
pub(super) fn rename(statement: &mut Statement) {
    let mut count = Named { open: vec![], is_shadowed: false };
    let _ = visit(statement, &mut count);
    if count.is_shadowed {
        let _ = visit(statement, &mut Renames { scopes: vec![], number: 0 });
    }
}

/// Whether a name is given within a query that knows it already.
struct Named {
    open: Vec<Vec<String>>,
    is_shadowed: bool,
}

fn names_of(query: &Query) -> Vec<String> {
    let named = query.with.iter().flat_map(|with| &with.cte_tables);
    named.map(|table| normal(&table.alias.name)).collect()
}

impl Walk for Named {
    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        let names = names_of(query);
        self.is_shadowed |= names.iter().any(|name| self.open.iter().flatten().any(|open| open == name));
        self.open.push(names);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        self.open.pop();
        ControlFlow::Continue(())
    }
}

/// The queries that one names, which are seen one after the other before what reads them.
struct Scope {
    names: Vec<String>,
    is_recursive: bool,
    /// Those that have been seen.
    seen: usize,
    /// The names that some have got.
    renamed: HashMap<String, Ident>,
}

impl Scope {
    /// Whether a name means one of them where the walk is: those before the one that it is in, and with RECURSIVE that one.
    fn knows(&self, name: &str) -> bool {
        let known = self.seen + usize::from(self.is_recursive);
        self.names.iter().take(known).any(|known| known == name)
    }
}

struct Renames {
    scopes: Vec<Scope>,
    number: usize,
}

impl Walk for Renames {
    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        let names = names_of(query);
        let is_recursive = query.with.as_ref().is_some_and(|with| with.recursive);
        let mut renamed = HashMap::new();
        for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            let name = normal(&table.alias.name);
            if self.scopes.iter().any(|scope| scope.names.contains(&name)) {
                self.number += 1;
                let other = quoted(format!("{name} ({})", self.number));
                table.alias.name = other.clone();
                renamed.insert(name, other);
            }
        }
        self.scopes.push(Scope { names, is_recursive, seen: 0, renamed });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        self.scopes.pop();
        // The queries of a WITH come before anything else of theirs.
        if let Some(around) = self.scopes.last_mut()
            && around.seen < around.names.len()
        {
            around.seen += 1;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        // The tables of a query without a name are known around it to DataFusion alone, and one of them may now have a name that is
        // another one's there.
        if let TableFactor::Derived { alias: alias @ None, .. } = factor {
            self.number += 1;
            let name = quoted(format!("query {}", self.number));
            *alias = Some(as_alias(name));
        }
        if let TableFactor::Table { name, alias, args: None, .. } = factor
            && let [ObjectNamePart::Identifier(written)] = name.0.as_slice()
        {
            let known = normal(written);
            let scope = self.scopes.iter().rev().find(|scope| scope.knows(&known));
            if let Some(other) = scope.and_then(|scope| scope.renamed.get(&known)) {
                if alias.is_none() {
                    let name = written.clone();
                    *alias = Some(as_alias(name));
                }
                *name = ObjectName(vec![ObjectNamePart::Identifier(other.clone())]);
            }
        }
        ControlFlow::Continue(())
    }
}
