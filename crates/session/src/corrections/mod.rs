//! What Kelpie mends of DataFusion (docs/corrections.md): a statement's syntax tree before it is planned, and plans before they are
//! optimized. `kelpie.corrections = off` leaves all as it is.

mod aggregated_columns;
mod bags;
mod calls;
mod clauses;
mod column_keys;
mod digits;
mod distinct_rows;
mod expressions;
mod first_elements;
mod intervals;
mod kept_rules;
mod known_keys;
mod like;
mod lists;
mod materialized;
mod merged_keys;
mod numbers;
mod ordered_by_all;
mod orders;
mod outer_aggregates;
mod parentheses;
mod precedence;
mod qualify;
mod refused;
mod reset;
mod row_functions;
mod rows;
mod same_names;
mod seek;
mod shadowed;
mod shared;
mod sort_keys;
mod subqueries;
pub(crate) mod text;
mod unique_names;
mod value_counts;
mod volatile;
mod window_arguments;
mod window_orders;
mod window_types;
mod windows;
mod zones;

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, Prepare, Statement as LogicalStatement};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::dialect::Dialect;
use kelpie_datafusion::KelpieOptions;

pub(crate) use bags::NumberedCopies;
pub(crate) use distinct_rows::DISTINCT_ROWS;
pub(crate) use first_elements::FIRST_ELEMENTS;
pub(crate) use kept_rules::keep_from_rules;
pub(crate) use lists::LISTS;
pub(crate) use merged_keys::{Which, with_needed, write_out as write_out_columns};
pub(crate) use ordered_by_all::write_out as write_out_orders;
pub(crate) use orders::SPLIT_ORDERS;
pub(crate) use outer_aggregates::{computed_around, planned_apart};
pub(crate) use refused::refuse_row_changes;
pub(crate) use seek::seek_query;
pub(crate) use shared::{SharedPlanner, apart, share};
pub(crate) use subqueries::SUBQUERY_VALUES;
pub(crate) use unique_names::{is_for_names, rename as unique_names, rename_all as names_of_all};
pub(crate) use value_counts::VALUE_COUNTS;
pub(crate) use volatile::VOLATILE_ONCE;
pub(crate) use window_types::WINDOW_TYPES;

/// Parses a statement, also where the parser does not take the text as it is.
pub(crate) fn parsed(
    sql: &str,
    dialect: &dyn Dialect,
    parse: impl Fn(&str) -> Result<Statement>,
) -> Result<Statement> {
    let sql = materialized::without_advice(sql, dialect);
    let sql = digits::without_underscores(&sql, dialect);
    let with_marks = || {
        let mut statement = parse(&parentheses::marked(&sql, dialect)?).ok()?;
        parentheses::unmark(&mut statement);
        Some(statement)
    };
    let marked = if parentheses::has_values(&sql) { with_marks() } else { None };
    let statement = match marked {
        Some(statement) => statement,
        None => parse(&sql).or_else(|error| with_marks().ok_or(error))?,
    };
    Ok(statement)
}

/// Mends what the syntax alone shows. What is parsed and would have no effect is an error.
pub(crate) fn correct(statement: &mut Statement) -> Result<()> {
    reset::set_to_default(statement);
    shadowed::rename(statement);
    row_functions::write_out(statement);
    same_names::tell_apart(statement);
    clauses::write_out(statement);
    refused::refuse(statement)?;
    precedence::group(statement);
    rows::write_out(statement);
    windows::resolve(statement)?;
    qualify::write_out(statement);
    window_arguments::write_out(statement);
    calls::rewrite(statement);
    like::escape(statement);
    intervals::write_out(statement)?;
    bags::count_copies(statement);
    numbers::keep_digits(statement);
    zones::as_calls(statement);
    aggregated_columns::write_out(statement);
    Ok(())
}

/// A statement to prepare, without types of its parameters where the statement tells some of them only: DataFusion refuses these, and
/// takes values of any type where it knows none.
fn without_some_types(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Statement(LogicalStatement::Prepare(mut prepare)) = plan else { return Ok(plan) };
    if prepare.fields.len() < prepare.input.get_parameter_names()?.len() {
        prepare.fields.clear();
    }
    Ok(LogicalPlan::Statement(LogicalStatement::Prepare(prepare)))
}

/// A statement to prepare with its subqueries corrected. DataFusion optimizes what is prepared before its rules of analysis see it.
pub(crate) fn analyzed(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    if !KelpieOptions::of(state.config_options()).corrections {
        return Ok(plan);
    }
    let plan = without_some_types(plan)?;
    match &plan {
        LogicalPlan::Statement(LogicalStatement::Prepare(prepare))
            if subqueries::has_any(&prepare.input)? =>
        {
            let input = prepare.input.as_ref().clone();
            // What is wrong with it is said where it runs.
            let Ok(input) = state.analyzer().execute_and_check(input, state.config_options(), |_, _| {})
            else {
                return Ok(plan);
            };
            let prepare = Prepare { input: Arc::new(input), ..prepare.clone() };
            Ok(LogicalPlan::Statement(LogicalStatement::Prepare(prepare)))
        }
        _ => Ok(plan),
    }
}
