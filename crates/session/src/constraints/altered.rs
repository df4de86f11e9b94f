//! What a table says of its rows after ALTER TABLE.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{TableReference, plan_err};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::physical_plan::collect;
use datafusion::sql::sqlparser::ast::{Expr, TableConstraint};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::checked_rows::{Checks, table_of};
use super::declared::add;
use super::rules::{Rules, shown};
use crate::syntax::{quoted, visit_own};

/// Adds a constraint of a table with some columns.
pub(crate) fn add_constraint(
    rules: &mut Rules,
    table: (String, Vec<String>),
    constraint: TableConstraint,
) -> Result<()> {
    if let TableConstraint::ForeignKey(_) = constraint {
        return plan_err!("ALTER TABLE {} ADD FOREIGN KEY is not supported: make the table anew", table.0);
    }
    *rules = add(std::mem::take(rules), table, constraint)?;
    Ok(())
}

/// An error where rows that are there are not as a table is to say of them. What it says already holds.
pub(crate) async fn check_rows(name: &TableReference, rules: &Rules, state: &SessionState) -> Result<()> {
    let Some(table) = table_of(name, state).await? else { return Ok(()) };
    let before = Rules::of(table.as_ref());
    let new = Rules {
        keys: rules.keys.iter().filter(|key| !before.keys.contains(key)).cloned().collect(),
        checks: rules.checks.iter().filter(|check| !before.checks.contains(check)).cloned().collect(),
        ..Rules::default()
    };
    if new.is_empty() {
        return Ok(());
    }
    let source = provider_as_source(Arc::clone(&table));
    let plan = LogicalPlanBuilder::scan(name.clone(), source, None)?.build()?;
    let plan = state.create_physical_plan(&plan).await?;
    let rows: Vec<RecordBatch> = collect(plan, Arc::new(TaskContext::from(state))).await?;
    let checks = Checks::with(name, (new, table.schema()), state)?;
    rows.iter().try_for_each(|rows| checks.hold_alone(rows))?;
    checks.hold_together(&rows, None).await
}

impl Rules {
    /// An error where a constraint names a column.
    pub fn refuse_use(&self, column: &str, what: &str) -> Result<()> {
        let own = column.to_string();
        let in_quotes = quoted(column).to_string();
        let key = self.keys.iter().find(|key| key.columns.contains(&own)).map(ToString::to_string);
        let check = self.checks.iter().find(|check| check.condition.contains(&in_quotes));
        let reference = self.references.iter().find(|reference| reference.columns.contains(&own));
        let found = key.or_else(|| check.map(ToString::to_string));
        match found.or_else(|| reference.map(ToString::to_string)) {
            Some(found) => plan_err!("the column {} is not to {what}: {found} names it", shown(column)),
            None => Ok(()),
        }
    }

    pub fn drop_column(&mut self, column: &str) -> Result<()> {
        self.refuse_use(column, "be dropped")?;
        self.defaults.remove(column);
        self.types.remove(column);
        self.comments.remove(column);
        Ok(())
    }

    pub fn rename_column(&mut self, from: &str, to: &str) -> Result<()> {
        let of_keys = self.keys.iter_mut().map(|key| &mut key.columns);
        let all = of_keys.chain(self.references.iter_mut().map(|reference| &mut reference.columns));
        for column in all.flatten().filter(|column| *column == from) {
            *column = to.to_string();
        }
        for check in &mut self.checks {
            check.condition = renamed(&check.condition, from, to)?;
            check.shown = check.condition.clone();
        }
        for texts in [&mut self.defaults, &mut self.comments] {
            if let Some(text) = texts.remove(from) {
                texts.insert(to.to_string(), text);
            }
        }
        if let Some(values) = self.types.remove(from) {
            self.types.insert(to.to_string(), values);
        }
        Ok(())
    }

    /// Takes a constraint of a name away; whether there was one.
    pub fn drop_constraint(&mut self, name: &str) -> bool {
        let count = |rules: &Rules| rules.keys.len() + rules.checks.len() + rules.references.len();
        let before = count(self);
        self.keys.retain(|key| key.name.as_deref() != Some(name));
        self.checks.retain(|check| check.name.as_deref() != Some(name));
        self.references.retain(|reference| reference.name.as_deref() != Some(name));
        count(self) < before
    }
}

/// A condition with another name of a column.
fn renamed(condition: &str, from: &str, to: &str) -> Result<String> {
    let mut condition = Parser::new(&GenericDialect).try_with_sql(condition)?.parse_expr()?;
    let _ = visit_own(&mut condition, &mut |expr| {
        if let Expr::Identifier(name) = expr
            && name.value == from
        {
            *name = quoted(to);
        }
        ControlFlow::Continue(())
    });
    Ok(condition.to_string())
}
