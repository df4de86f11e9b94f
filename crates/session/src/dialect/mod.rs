//! SQL that people bring from other engines (docs/book/src/sql.md): what the parser does not take is written in a form that it does (`statements`), and
//! what DataFusion does not plan as something that it does: functions (`functions`, `functions.sql`), types, joins, files (`reading`) and
//! macros. Where what comes out compiles, so does what was written. `kelpie.corrections = off` leaves all of this off.

mod ages;
mod aggregates;
mod alter;
mod array_subqueries;
mod arrows;
mod asof;
mod by_name;
mod by_row;
mod bytes;
mod catalogue;
mod columns;
mod described;
mod enums;
mod formats;
mod frames;
mod from_first;
mod functions;
mod globs;
mod hash_function;
mod interval_times;
mod joined_nested;
mod joins;
mod json;
mod lambda_functions;
mod lambdas;
mod list_aggregates;
mod list_functions;
mod literals;
mod macro_clauses;
mod macros;
mod made_of_queries;
mod membership;
pub(crate) mod merges;
mod moments;
mod names_of_types;
mod nested;
mod ordered_sets;
mod pivot;
mod pivot_statements;
mod queried;
mod reading;
mod replacements;
mod rewrite;
mod samples;
mod sequence_options;
mod short_forms;
mod signs;
mod statements;
mod strptime;
mod struct_casts;
mod struct_columns;
mod subscripts;
mod substrings;
mod summary;
mod template_places;
mod templates;
mod text_functions;
mod truths;
mod typed;
mod types;
mod unnested_structs;
mod uuids;
mod words;

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::dialect::Dialect;

pub(crate) use alter::written_anew;
pub(crate) use by_name::name_columns;
pub(crate) use columns::expand as expand_columns;
pub(crate) use enums::Types;
pub(crate) use macros::{Macros, overloads};
pub(crate) use pivot::look_up_values;
pub(crate) use signs::{is_unsigned, make_signed};
pub(crate) use statements::overwrites;
pub(crate) use struct_columns::expand as expand_structs;
pub(crate) use subscripts::Subscripts;
pub(crate) use truths::{Truths, is_sum_of_truths, sum_numbers};
pub(crate) use unnested_structs::expand as expand_unnested;
use words::{Words, changed};

/// A text that the parser takes.
#[derive(Debug)]
pub(crate) struct Written<'a> {
    pub sql: Cow<'a, str>,
    /// Whether AT TIME ZONE is a power in it.
    has_powers: bool,
}

/// A statement's text as the parser takes it.
pub(crate) fn written<'a>(sql: &'a str, dialect: &dyn Dialect) -> Result<Written<'a>> {
    let as_it_is = Written { sql: Cow::Borrowed(sql), has_powers: false };
    if !statements::may_change(sql) {
        return Ok(as_it_is);
    }
    let sql = pivot_statements::written(sql, dialect)?;
    // What is no text of tokens, the parser says better.
    let Some(words) = Words::of(&sql, dialect) else { return Ok(as_it_is) };
    let mut changes = Vec::new();
    statements::changes(&words, &mut changes)?;
    let has_powers = statements::has_powers(&words);
    match changes.is_empty() {
        true => Ok(Written { sql, ..as_it_is }),
        false => Ok(Written { sql: Cow::Owned(changed(&sql, changes)), has_powers }),
    }
}

/// Whether the columns of a statement may depend on the rows that there are.
pub(crate) fn has_dynamic_columns(sql: &str) -> bool {
    words::has(sql, "pivot")
}

/// Writes a syntax tree as one that DataFusion plans.
pub(crate) fn rewrite(statement: &mut Statement, written: &Written<'_>, state: &SessionState) -> Result<()> {
    let has_arrows = ["->", "#>"].iter().any(|sign| written.sql.contains(sign));
    let has_operators = written.has_powers || ["//", "^@"].iter().any(|sign| written.sql.contains(sign));
    let operators = (has_operators || has_arrows).then(|| rewrite::Operators {
        has_powers: written.has_powers,
        reads_json: has_arrows && arrows::are_ours(|name| state.scalar_functions().contains_key(name)),
    });
    rewrite::rewrite(statement, operators, state)?;
    literals::rewrite(statement, &written.sql);
    Ok(())
}

/// Adds to a session what the statements that are written anew need: functions, plans of relations, and its macros.
pub(crate) fn add_to(context: &SessionContext) -> Result<()> {
    let state = context.state_ref();
    let mut state = state.write();
    typed::add(&mut state)?;
    literals::add(&mut state)?;
    aggregates::add(&mut state)?;
    list_aggregates::add(&mut state)?;
    list_functions::add(&mut state)?;
    nested::add(&mut state)?;
    json::add(&mut state)?;
    templates::add(&mut state)?;
    text_functions::add(&mut state)?;
    catalogue::add(&mut state);
    lambda_functions::add(&mut state)?;
    enums::add(&mut state)?;
    state.register_relation_planner(Arc::new(summary::Summaries))?;
    state.register_relation_planner(Arc::new(described::Descriptions))?;
    state.register_relation_planner(Arc::new(asof::AsofJoins))?;
    state.register_relation_planner(Arc::new(pivot::Pivots))?;
    state.config_mut().set_extension(Arc::new(Macros::default()));
    Ok(())
}
