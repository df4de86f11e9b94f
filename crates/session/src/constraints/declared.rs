//! What CREATE TABLE says of the rows of a table. DataFusion forgets it or refuses it: it is taken out of the statement before that is
//! planned, but for NOT NULL and DEFAULT.

use std::ops::ControlFlow;

use datafusion::common::{DFSchema, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{CreateMemoryTable, DdlStatement, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    CheckConstraint, ColumnDef, ColumnOption, ColumnOptionDef, CreateTable, Expr, ForeignKeyConstraint,
    Ident, IndexColumn, ObjectNamePart, Statement as Sql, TableConstraint,
};

use super::checked_rows::{Writing, beside, refuse_named, table_of};
use super::conditions::physical;
use super::rules::{Check, Key, KeyKind, RULES, Reference, Rules, Values, refused};
use crate::syntax::{Flow, Walk, has_query, normal, quoted, visit_part};

/// What stands before the name of a type in the name of a check which says what the values of a column of that type are.
pub(crate) const OF_TYPE: &str = "kelpie: type ";

/// Adds a constraint to what a table says of its rows: one of this name, with these columns.
pub(super) fn add(
    rules: Rules,
    (table, columns): (String, Vec<String>),
    constraint: TableConstraint,
) -> Result<Rules> {
    let mut declared = Declared { table, columns, rules };
    declared.of_table(constraint)?;
    declared.once()
}

/// Takes what a statement says of the rows of a new table out of it; nothing of another statement.
pub(crate) fn take_out(statement: &mut Statement) -> Result<Option<Rules>> {
    let Statement::Statement(statement) = statement else { return Ok(None) };
    let Sql::CreateTable(table) = statement.as_mut() else { return Ok(None) };
    let mut declared =
        Declared { table: table.name.to_string(), columns: names(table), rules: Rules::default() };
    for column in &mut table.columns {
        declared.of_column(column)?;
    }
    for constraint in std::mem::take(&mut table.constraints) {
        declared.of_table(constraint)?;
    }
    let rules = declared.once()?;
    let says = rules.compare_rows() || !rules.checks.is_empty() || !rules.types.is_empty();
    if table.query.is_some() && says {
        return plan_err!(
            "PRIMARY KEY, UNIQUE, CHECK and REFERENCES of CREATE TABLE {} AS are not supported: make the table with its columns, then INSERT INTO it",
            table.name
        );
    }
    if let Some(key) = rules.primary_key() {
        let is_key = |column: &&mut ColumnDef| key.columns.contains(&normal(&column.name));
        for column in table.columns.iter_mut().filter(is_key) {
            column
                .options
                .retain(|option| !matches!(option.option, ColumnOption::Null | ColumnOption::NotNull));
            column.options.push(ColumnOptionDef { name: None, option: ColumnOption::NotNull });
        }
    }
    Ok(Some(rules))
}

fn names(table: &CreateTable) -> Vec<String> {
    table.columns.iter().map(|column| normal(&column.name)).collect()
}

/// What is found of a table so far.
struct Declared {
    table: String,
    columns: Vec<String>,
    rules: Rules,
}

impl Declared {
    /// All that is said, where a table has not more than one primary key.
    fn once(self) -> Result<Rules> {
        match self.rules.keys.iter().filter(|key| key.kind == KeyKind::Primary).count() {
            0 | 1 => Ok(self.rules),
            _ => plan_err!("{} has several PRIMARY KEYs: a table has one", self.table),
        }
    }

    fn of_column(&mut self, column: &mut ColumnDef) -> Result<()> {
        let own = normal(&column.name);
        let mut kept = Vec::with_capacity(column.options.len());
        for option in std::mem::take(&mut column.options) {
            let name = option.name.as_ref().map(normal);
            match option.option {
                ColumnOption::PrimaryKey(_) => self.key(name, vec![own.clone()], KeyKind::Primary),
                ColumnOption::Unique(_) => self.key(name, vec![own.clone()], KeyKind::Unique),
                ColumnOption::Check(CheckConstraint { expr, .. }) => self.check(name, &expr)?,
                ColumnOption::ForeignKey(reference) => {
                    self.reference(name, vec![own.clone()], &reference)?;
                }
                ColumnOption::Comment(comment) => drop(self.rules.comments.insert(own.clone(), comment)),
                ColumnOption::Default(default) => {
                    self.rules.defaults.insert(own.clone(), default.to_string());
                    kept.push(ColumnOptionDef { name: None, option: ColumnOption::Default(default) });
                }
                // Where a column has both, the last one counts.
                option => kept.push(ColumnOptionDef { name: None, option }),
            }
        }
        column.options = kept;
        Ok(())
    }

    fn of_table(&mut self, constraint: TableConstraint) -> Result<()> {
        match constraint {
            TableConstraint::PrimaryKey(key) => {
                let columns = self.of_key(&key.columns)?;
                self.key(key.name.as_ref().map(normal), columns, KeyKind::Primary);
            }
            TableConstraint::Unique(key) => {
                let columns = self.of_key(&key.columns)?;
                self.key(key.name.as_ref().map(normal), columns, KeyKind::Unique);
            }
            TableConstraint::Check(CheckConstraint { name, expr, .. }) => {
                self.check(name.as_ref().map(normal), &expr)?;
            }
            TableConstraint::ForeignKey(reference) => {
                let columns =
                    reference.columns.iter().map(|column| self.found(column)).collect::<Result<_>>()?;
                self.reference(reference.name.as_ref().map(normal), columns, &reference)?;
            }
            other => return Err(refused(format!("{other} of {} is not supported", self.table))),
        }
        Ok(())
    }

    fn key(&mut self, name: Option<String>, columns: Vec<String>, kind: KeyKind) {
        self.rules.keys.push(Key { name, columns, kind });
    }

    fn of_key(&self, columns: &[IndexColumn]) -> Result<Vec<String>> {
        let mut found = Vec::with_capacity(columns.len());
        for column in columns {
            let Expr::Identifier(name) = &column.column.expr else {
                return plan_err!("{column} is no column of {}: a key is made of columns", self.table);
            };
            let name = self.found(name)?;
            if found.contains(&name) {
                return plan_err!("the column {name} comes twice in a key of {}", self.table);
            }
            found.push(name);
        }
        Ok(found)
    }

    /// The column of a name, in any case where only one is meant.
    fn found(&self, name: &Ident) -> Result<String> {
        let wanted = normal(name);
        let like = || self.columns.iter().find(|column| column.eq_ignore_ascii_case(&wanted));
        match self.columns.iter().find(|column| **column == wanted).or_else(like) {
            Some(found) => Ok(found.clone()),
            None => plan_err!("the table {} has no column {name}, which a constraint names", self.table),
        }
    }

    fn check(&mut self, name: Option<String>, condition: &Expr) -> Result<()> {
        if let (Some(of), Expr::InList { expr: column, list, .. }) =
            (name.as_ref().and_then(|name| name.strip_prefix(OF_TYPE)), condition)
            && let Expr::Identifier(column) = column.as_ref()
        {
            let text = |value: &Expr| match value {
                Expr::Value(value) => value.value.clone().into_string(),
                _ => None,
            };
            let values = Values { of: of.to_string(), values: list.iter().filter_map(text).collect() };
            self.rules.types.insert(self.found(column)?, values);
            return Ok(());
        }
        let shown = condition.to_string();
        let mut condition = condition.clone();
        if has_query(&mut condition) {
            return plan_err!("CHECK ({shown}) of {} has a query, and is to go by the row alone", self.table);
        }
        let named = visit_part(&mut condition, &mut Columns(self));
        if let ControlFlow::Break(Some(error)) = named {
            return Err(error);
        }
        self.rules.checks.push(Check { name, condition: condition.to_string(), shown });
        Ok(())
    }

    fn reference(
        &mut self,
        name: Option<String>,
        columns: Vec<String>,
        reference: &ForeignKeyConstraint,
    ) -> Result<()> {
        for (what, action) in [("ON DELETE", &reference.on_delete), ("ON UPDATE", &reference.on_update)] {
            if let Some(action) = action
                && !["RESTRICT", "NO ACTION"].contains(&action.to_string().as_str())
            {
                return plan_err!(
                    "{what} {action} of {} is not supported: rows that others name are neither deleted nor changed",
                    self.table
                );
            }
        }
        let Some(table) = reference.foreign_table.0.last().and_then(ObjectNamePart::as_ident) else {
            return plan_err!("{} is no name of a table", reference.foreign_table);
        };
        let to = reference.referred_columns.iter().map(normal).collect();
        self.rules.references.push(Reference { name, columns, table: normal(table), to });
        Ok(())
    }
}

/// Names of columns as they are, in quotes.
struct Columns<'a>(&'a Declared);

impl Walk for Columns<'_> {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let name = match expr {
            Expr::Identifier(name) => name,
            // The table's own name may stand before.
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, name] if normal(table) == self.0.table.to_lowercase() => name,
                _ => return ControlFlow::Continue(()),
            },
            _ => return ControlFlow::Continue(()),
        };
        match self.0.found(name) {
            Ok(found) => {
                *expr = Expr::Identifier(quoted(found));
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Some(error)),
        }
    }
}

/// The plan of a new table with what is said of its rows, which is looked at. One that was altered keeps what others name of it.
pub(crate) async fn with_rules(
    plan: LogicalPlan,
    (rules, is_altered): (Option<Rules>, bool),
    state: &SessionState,
) -> Result<LogicalPlan> {
    if let LogicalPlan::Ddl(DdlStatement::DropTable(drop)) = &plan {
        refuse_named(&drop.name, state).await?;
    }
    let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(mut create)) = plan else { return Ok(plan) };
    if create.or_replace && !is_altered {
        refuse_named(&create.name, state).await?;
    }
    if let Some(mut rules) = rules.filter(|rules| !rules.is_empty()) {
        look_at(&mut rules, &create, state).await?;
        if let Some(writing) = state.config().get_extension::<Writing>() {
            writing.remember(create.name.table(), &rules);
        }
        for (column, default) in &rules.defaults {
            if !create.column_defaults.iter().any(|(known, _)| known == column) {
                let default = state.create_logical_expr(default, &DFSchema::empty())?;
                create.column_defaults.push((column.clone(), default));
            }
        }
        create.column_defaults.push((RULES.to_string(), rules.as_default()?));
    }
    Ok(LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)))
}

async fn look_at(rules: &mut Rules, create: &CreateMemoryTable, state: &SessionState) -> Result<()> {
    let schema = create.input.schema();
    for check in &rules.checks {
        physical(check, schema, state)?;
    }
    let own = create.name.table();
    let (keys, primary) = (rules.keys.clone(), rules.primary_key().cloned());
    for reference in &mut rules.references {
        let (of_other, keys, primary) = match reference.table == own {
            true => (schema.as_ref().clone(), keys.clone(), primary.clone()),
            false => {
                let Some(other) = table_of(&beside(&create.name, &reference.table), state).await? else {
                    return plan_err!("{reference}: there is no table {}", reference.table);
                };
                let of_other = Rules::of(other.as_ref());
                let primary = of_other.primary_key().cloned();
                (DFSchema::try_from(other.schema())?, of_other.keys, primary)
            }
        };
        if reference.to.is_empty() {
            reference.to = primary.map(|key| key.columns).unwrap_or_default();
        }
        let is_key = keys.iter().any(|key| same(&key.columns, &reference.to));
        if !is_key || reference.to.len() != reference.columns.len() {
            return plan_err!(
                "{reference}: {} has no PRIMARY KEY or UNIQUE of as many and these columns",
                reference.table
            );
        }
        for column in &reference.to {
            of_other.field_with_unqualified_name(column)?;
        }
    }
    Ok(())
}

/// Whether columns are the same ones, in whatever order.
pub(crate) fn same(one: &[String], other: &[String]) -> bool {
    one.len() == other.len() && one.iter().all(|column| other.contains(column))
}
