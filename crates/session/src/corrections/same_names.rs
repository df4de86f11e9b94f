//! Tables of one name in several schemas: `FROM tb, s1.tb`. DataFusion takes `tb` for either of them, and gives the columns of the first
//! one twice. Here those with a schema get a name of their own in the statement.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Select, SelectItem, SelectItemQualifiedWildcardKind, TableAlias,
    TableFactor, TableWithJoins,
};

use crate::syntax::{Flow, Walk, as_alias, change_exprs, normal, quoted, visit};

/// Gives such tables names of their own.
pub(super) fn tell_apart(statement: &mut Statement) {
    let _ = visit(statement, &mut Selects);
}

struct Selects;

impl Walk for Selects {
    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        let mut paths: Vec<Vec<String>> = Vec::new();
        select.from.iter_mut().for_each(|table| {
            each_table(table, &mut |name, _| paths.push(path_of(name)));
        });
        let is_shared =
            |path: &Vec<String>| paths.iter().any(|other| other != path && other.last() == path.last());
        let renamed = paths.iter().filter(|path| path.len() > 1 && is_shared(path));
        // A name with a dot would be taken for one with a schema.
        let renamed: HashMap<Vec<String>, Ident> =
            renamed.map(|path| (path.clone(), quoted(path.join(" ")))).collect();
        if renamed.is_empty() {
            return ControlFlow::Continue(());
        }
        for table in &mut select.from {
            each_table(table, &mut |name, alias| {
                if let Some(own) = renamed.get(&path_of(name)) {
                    *alias = Some(as_alias(own.clone()));
                }
            });
        }
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item
                && let Some(own) = renamed.get(&path_of(name))
            {
                *name = ObjectName(vec![ObjectNamePart::Identifier(own.clone())]);
            }
        }
        change_exprs(select, &mut |expr| write_name(expr, &renamed));
        ControlFlow::Continue(())
    }
}

fn path_of(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(ObjectNamePart::as_ident).map(normal).collect()
}

/// Visits the tables without an alias.
fn each_table(table: &mut TableWithJoins, see: &mut impl FnMut(&ObjectName, &mut Option<TableAlias>)) {
    let joined = table.joins.iter_mut().map(|join| &mut join.relation);
    for factor in std::iter::once(&mut table.relation).chain(joined) {
        match factor {
            TableFactor::Table { name, alias: alias @ None, args: None, .. } => see(name, alias),
            TableFactor::NestedJoin { table_with_joins, .. } => each_table(table_with_joins, see),
            _ => {}
        }
    }
}

/// Writes the new name of a table before a column.
fn write_name(expr: &mut Expr, renamed: &HashMap<Vec<String>, Ident>) {
    if let Expr::CompoundIdentifier(path) = expr {
        let names: Vec<String> = path.iter().map(normal).collect();
        let table = (2..names.len()).rev().find_map(|end| Some((end, renamed.get(names.get(..end)?)?)));
        if let Some((end, own)) = table {
            path.splice(..end, [own.clone()]);
        }
    }
}
