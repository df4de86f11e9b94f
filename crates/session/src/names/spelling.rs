//! Names of a statement, in the spelling of the columns that they stand for.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::common::TableReference;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    ExceptSelectItem, ExcludeSelectItem, Expr, Ident, Insert, JoinConstraint, ObjectName, ObjectNamePart,
    OneOrManyWithParens, Query, RenameSelectItem, Select, SelectItem, SetExpr, Statement as SqlStatement,
    TableAlias, TableFactor, TableWithJoins, WildcardAdditionalOptions,
};

use super::Tables;
use crate::syntax::{Flow, Walk, constraint, last_name, normal, visit};

/// What a name before a dot stands for, and its columns where it is one table in all of the statement.
#[derive(Debug, Default)]
pub(super) struct Relations(HashMap<String, Option<Vec<String>>>);

impl Relations {
    pub fn of(statement: &Statement, tables: &Tables) -> Relations {
        let mut found = Found { tables, relations: Relations::default() };
        let _ = visit(&mut statement.clone(), &mut found);
        found.relations
    }

    fn add(&mut self, name: String, columns: Option<Vec<String>>) {
        let known = self.0.entry(name).or_insert_with(|| columns.clone());
        if *known != columns {
            *known = None;
        }
    }
}

/// How names are written.
#[derive(Debug)]
pub(super) struct Spelling {
    relations: Relations,
    /// By the name in lower case.
    columns: HashMap<String, String>,
    /// What the query's columns are called where it gives them names itself, in lower case.
    aliases: HashSet<String>,
    /// Names in quotes: these stand for themselves, also where they are in lower case.
    quoted: HashSet<String>,
}

impl Spelling {
    pub fn of(statement: &Statement, relations: Relations) -> Spelling {
        let mut quoted = Quoted::default();
        let _ = visit(&mut statement.clone(), &mut Idents(&mut quoted));
        let aliases = own_aliases(statement);
        Spelling { relations, columns: HashMap::new(), aliases, quoted: quoted.0 }
    }

    /// Writes a name, in lower case, in another way from now on; whether that is new and means the same.
    pub fn add(&mut self, name: &str, spelled: &str) -> bool {
        // A name in quotes would no longer be the same as the one without.
        !self.quoted.contains(name) && self.columns.insert(name.into(), spelled.into()).is_none()
    }

    /// The names that the query gives its columns, by how they are written now.
    pub fn own_names(&self) -> HashMap<String, String> {
        let renamed = self.columns.iter().filter(|(name, _)| self.aliases.contains(*name));
        renamed.map(|(name, spelled)| (spelled.clone(), name.clone())).collect()
    }

    /// Writes the names of a statement.
    pub fn apply(&self, statement: &mut Statement) {
        let _ = visit(statement, &mut Idents(&mut &*self));
    }
}

/// A name without quotes as SQL takes it.
fn folded(ident: &Ident) -> Option<String> {
    ident.quote_style.is_none().then(|| ident.value.to_ascii_lowercase())
}

/// Takes the names of columns one after the other.
trait EachName {
    /// A name of a column, or one that is given to it.
    fn name(&mut self, ident: &mut Ident);

    /// Names with dots between them.
    fn path(&mut self, path: &mut [Ident]);
}

#[derive(Default)]
struct Quoted(HashSet<String>);

impl EachName for Quoted {
    fn name(&mut self, ident: &mut Ident) {
        if ident.quote_style.is_some() {
            self.0.insert(ident.value.clone());
        }
    }

    fn path(&mut self, path: &mut [Ident]) {
        path.iter_mut().for_each(|ident| self.name(ident));
    }
}

fn write(ident: &mut Ident, spelled: &str) {
    ident.value = spelled.into();
    ident.quote_style = Some('"');
}

impl EachName for &Spelling {
    fn name(&mut self, ident: &mut Ident) {
        if let Some(spelled) = folded(ident).and_then(|name| self.columns.get(&name)) {
            write(ident, spelled);
        }
    }

    fn path(&mut self, path: &mut [Ident]) {
        // The first name is that of a table, or of the schema that has it; else it is a column with fields in it.
        let is_relation = |ident: &Ident| self.relations.0.contains_key(&normal(ident));
        let table = path.iter().take(path.len().saturating_sub(1)).position(is_relation);
        let Some((table, column)) =
            table.and_then(|table| path.get(table).map(normal).zip(path.get_mut(table + 1)))
        else {
            return path.first_mut().map_or((), |ident| self.name(ident));
        };
        let Some(Some(columns)) = self.relations.0.get(&table) else { return self.name(column) };
        let Some(name) = folded(column).filter(|name| !columns.contains(name)) else { return };
        let meant: Vec<&String> = columns.iter().filter(|known| known.to_lowercase() == name).collect();
        if let [one] = meant.as_slice() {
            write(column, one);
        }
    }
}

/// Finds what names before a dot stand for.
struct Found<'a> {
    tables: &'a Tables,
    relations: Relations,
}

impl Walk for Found<'_> {
    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.relations.add(normal(&cte.alias.name), None);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        let named = match factor {
            TableFactor::Table { name, .. } => last_name(name).map(normal),
            _ => None,
        };
        let columns = match factor {
            TableFactor::Table { name, args: None, .. } => columns_of(name, self.tables),
            _ => None,
        };
        match alias_of(factor) {
            Some(alias) => {
                let columns = columns.filter(|_| alias.columns.is_empty());
                self.relations.add(normal(&alias.name), columns);
            }
            None => named.into_iter().for_each(|name| self.relations.add(name, columns.clone())),
        }
        ControlFlow::Continue(())
    }
}

/// The columns of a table by its name in a statement.
fn columns_of(name: &ObjectName, tables: &Tables) -> Option<Vec<String>> {
    let parts: Option<Vec<String>> = name.0.iter().map(|part| part.as_ident().map(normal)).collect();
    let reference = match parts?.as_slice() {
        [table] => TableReference::bare(table.as_str()),
        [schema, table] => TableReference::partial(schema.as_str(), table.as_str()),
        [catalog, schema, table] => TableReference::full(catalog.as_str(), schema.as_str(), table.as_str()),
        _ => return None,
    };
    tables.get(&reference).cloned()
}

pub(super) fn alias_of(factor: &mut TableFactor) -> Option<&mut TableAlias> {
    match factor {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => alias.as_mut(),
        _ => None,
    }
}

/// The names that the query of a statement gives to its own columns.
fn own_aliases(statement: &Statement) -> HashSet<String> {
    let Statement::Statement(statement) = statement else { return HashSet::new() };
    let SqlStatement::Query(query) = statement.as_ref() else { return HashSet::new() };
    let mut body = &query.body;
    let select = loop {
        match body.as_ref() {
            SetExpr::Select(select) => break select,
            SetExpr::Query(query) => body = &query.body,
            // The names of the first operand are those of all.
            SetExpr::SetOperation { left, .. } => body = left,
            _ => return HashSet::new(),
        }
    };
    let aliases = select.projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => folded(alias),
        _ => None,
    });
    aliases.collect()
}

/// Brings every name of a column, and every name that is given to one, to whoever takes them.
struct Idents<'a, N>(&'a mut N);

impl<N: EachName> Idents<'_, N> {
    fn object(&mut self, name: &mut ObjectName) {
        if let [ObjectNamePart::Identifier(ident)] = name.0.as_mut_slice() {
            self.0.name(ident);
        }
    }

    fn alias(&mut self, alias: &mut TableAlias) {
        alias.columns.iter_mut().for_each(|column| self.0.name(&mut column.name));
    }

    fn joins(&mut self, table: &mut TableWithJoins) {
        for join in &mut table.joins {
            if let Some(JoinConstraint::Using(columns)) = constraint(&mut join.join_operator) {
                columns.iter_mut().for_each(|column| self.object(column));
            }
        }
    }

    fn wildcard(&mut self, options: &mut WildcardAdditionalOptions) {
        match &mut options.opt_exclude {
            Some(ExcludeSelectItem::Single(column)) => self.object(column),
            Some(ExcludeSelectItem::Multiple(columns)) => {
                columns.iter_mut().for_each(|column| self.object(column))
            }
            None => {}
        }
        if let Some(ExceptSelectItem { first_element, additional_elements }) = &mut options.opt_except {
            self.0.name(first_element);
            additional_elements.iter_mut().for_each(|column| self.0.name(column));
        }
        if let Some(replace) = &mut options.opt_replace {
            replace.items.iter_mut().for_each(|item| self.0.name(&mut item.column_name));
        }
        let renamed = match &mut options.opt_rename {
            Some(RenameSelectItem::Single(column)) => std::slice::from_mut(column),
            Some(RenameSelectItem::Multiple(columns)) => columns.as_mut_slice(),
            None => &mut [],
        };
        for column in renamed {
            self.0.name(&mut column.ident);
            self.0.name(&mut column.alias);
        }
    }
}

impl<N: EachName> Walk for Idents<'_, N> {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::Identifier(ident) => self.0.name(ident),
            Expr::CompoundIdentifier(path) => self.0.path(path),
            Expr::Lambda(lambda) => match &mut lambda.params {
                OneOrManyWithParens::One(parameter) => self.0.name(&mut parameter.name),
                OneOrManyWithParens::Many(parameters) => {
                    parameters.iter_mut().for_each(|parameter| self.0.name(&mut parameter.name));
                }
            },
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        for item in &mut select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => self.0.name(alias),
                SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
                    self.wildcard(options);
                }
                SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAliases { .. } => {}
            }
        }
        select.from.iter_mut().for_each(|table| self.joins(table));
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            self.alias(&mut cte.alias);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            self.joins(table_with_joins);
        }
        if let Some(alias) = alias_of(factor) {
            self.alias(alias);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &mut SqlStatement) -> Flow {
        if let SqlStatement::Insert(Insert { columns, .. }) = statement {
            columns.iter_mut().for_each(|column| self.object(column));
        }
        ControlFlow::Continue(())
    }
}
