//! Conditions that are false for no row of a table, and columns that are never NULL: they go by each row alone.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;

use super::rules::{Check, Rules, Values, shown, violated};

/// What is to be looked at of each row.
#[derive(Debug, Clone)]
pub(super) struct Conditions {
    table: String,
    /// Columns that have a value in each row.
    filled: Vec<String>,
    checks: Vec<(Check, Arc<dyn PhysicalExpr>)>,
    types: Vec<(String, Values)>,
}

impl Conditions {
    pub fn of(table: &str, rules: &Rules, schema: &SchemaRef, state: &SessionState) -> Result<Conditions> {
        let columns = DFSchema::try_from(Arc::clone(schema))?;
        let checks = rules.checks.iter().map(|check| Ok((check.clone(), physical(check, &columns, state)?)));
        let not_null = schema.fields().iter().filter(|field| !field.is_nullable());
        let not_null = not_null.map(|field| field.name().clone());
        let of_key = rules.primary_key().map(|key| key.columns.clone()).unwrap_or_default();
        Ok(Conditions {
            filled: not_null.chain(of_key).collect(),
            table: table.to_string(),
            checks: checks.collect::<Result<_>>()?,
            types: rules.types.clone().into_iter().collect(),
        })
    }

    /// An error where a row is not as they say.
    pub fn hold(&self, rows: &RecordBatch) -> Result<()> {
        for name in &self.filled {
            if rows.column_by_name(name).is_some_and(|column| column.null_count() > 0) {
                let what = format!("NOT NULL ({})", shown(name));
                return Err(violated(&what, &self.table, &format!("a row has NULL for {}", shown(name))));
            }
        }
        for (name, values) in &self.types {
            if let Some(column) = rows.column_by_name(name) {
                are_of(values, column, (name, &self.table))?;
            }
        }
        for (check, condition) in &self.checks {
            let found = condition.evaluate(rows)?.into_array(rows.num_rows())?;
            let found = cast(&found, &DataType::Boolean)?;
            let found = found.as_boolean();
            if found.has_false()
                && let Some(row) = (0..found.len()).find(|row| found.is_valid(*row) && !found.value(*row))
            {
                let places: Vec<usize> =
                    (0..rows.num_columns()).filter(|place| names(condition, *place)).collect();
                let why = format!("it is false of {}", values_of(rows, &places, row)?);
                return Err(violated(check, &self.table, &why));
            }
        }
        Ok(())
    }
}

/// Whether a condition names a column.
fn names(condition: &Arc<dyn PhysicalExpr>, place: usize) -> bool {
    collect_columns(condition).iter().any(|column| column.index() == place)
}

/// The values that a row has in some columns, in words.
pub(super) fn values_of(rows: &RecordBatch, places: &[usize], row: usize) -> Result<String> {
    let schema = rows.schema();
    let values = places.iter().map(|place| {
        let value = ScalarValue::try_from_array(rows.column(*place), row)?;
        let value = match value.try_as_str() {
            Some(Some(text)) => format!("'{text}'"),
            _ => value.to_string(),
        };
        Ok(format!("{} = {value}", shown(schema.field(*place).name())))
    });
    let values: Vec<String> = values.collect::<Result<_>>()?;
    match values.as_slice() {
        [] => Ok("any row".into()),
        values => Ok(values.join(", ")),
    }
}

/// An error where a column has another value than those of a type.
fn are_of(values: &Values, column: &dyn Array, (name, table): (&str, &str)) -> Result<()> {
    let texts = cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    match texts.iter().flatten().find(|text| !values.values.iter().any(|value| value == text)) {
        Some(text) => {
            let all: Vec<String> = values.values.iter().map(|value| format!("'{value}'")).collect();
            let what = format!("the type {} of the column {}", shown(&values.of), shown(name));
            Err(violated(&what, table, &format!("'{text}' is none of {}", all.join(", "))))
        }
        None => Ok(()),
    }
}

/// A condition as it is evaluated. One that goes by more than the row, or is no condition, is an error.
pub(super) fn physical(
    check: &Check,
    columns: &DFSchema,
    state: &SessionState,
) -> Result<Arc<dyn PhysicalExpr>> {
    let condition = state.create_logical_expr(&check.condition, columns)?;
    let goes_further = condition.exists(|part| {
        Ok(matches!(part, Expr::AggregateFunction(_) | Expr::WindowFunction(_) | Expr::ScalarSubquery(_)))
    })?;
    if goes_further || condition.is_volatile() {
        return plan_err!(
            "{check} is to go by the row alone: it has an aggregate, or what is another thing each time"
        );
    }
    let condition = condition.cast_to(&DataType::Boolean, columns)?;
    state.create_physical_expr(condition, columns)
}
