//! Plans of Substrait: those of others are run, and statements are written as plans.
//!
//! A plan that comes in is a view of its session ([`KelpieSession::add_plan`]), so that everything which plans, runs and explains
//! statements does so with plans. It passes the same rules, and is compiled as SQL is. Where it comes from is not trusted: sizes are looked at
//! before anything is read, what a plan refers to before it is followed.

mod consumer;
mod limits;
mod message;
mod parts;
mod producer;
mod reads;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::ParamValues;
use datafusion::error::{DataFusionError, Result};
use kelpie_session::{AddedPlan, Described, KelpieSession, PlannedQuery, Refused};

pub use message::Form;

/// The plan of a file, in either form. Errors name the file.
pub async fn add_file(session: &KelpieSession, path: &Path) -> Result<AddedPlan> {
    let name = path.display().to_string();
    let bytes = message::file(path).map_err(|problem| of_plan(&name, DataFusionError::Plan(problem)))?;
    add(session, &name, &name, bytes).await
}

/// Plans what came as a plan, in either form.
pub async fn plan(
    session: &KelpieSession,
    bytes: Vec<u8>,
    parameters: Option<ParamValues>,
) -> Result<PlannedQuery> {
    let added = add(session, &next_view(), UNNAMED, bytes).await?;
    let planned = session.plan(&added.statement(), parameters).await;
    session.remove_plan(added).await?;
    planned
}

/// What a plan gives and what values it asks for.
pub async fn describe(session: &KelpieSession, bytes: Vec<u8>) -> Result<Described> {
    let added = add(session, &next_view(), UNNAMED, bytes).await?;
    let described = session.describe(&added.statement()).await;
    session.remove_plan(added).await?;
    described
}

/// The plan of a query, for others to read.
pub async fn write(session: &KelpieSession, sql: &str, form: Form) -> Result<Vec<u8>> {
    let write = move |plan: &_, state: &_| message::encoded(&producer::plan(plan, state)?, form);
    session.with_plan(sql, write).await
}

/// What errors call a plan that came without a name.
const UNNAMED: &str = "the plan of Substrait";

async fn add(session: &KelpieSession, view: &str, name: &str, bytes: Vec<u8>) -> Result<AddedPlan> {
    let make = move |state| async move {
        let plan = message::decoded(&bytes).map_err(DataFusionError::Plan)?;
        consumer::logical_plan(&state, &plan).await
    };
    let added = session.add_plan(view, limits::MOST_RELATIONS, make).await;
    added.map_err(|error| of_plan(name, error))
}

/// The name of a view, which no other has.
fn next_view() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed).to_string()
}

/// An error that names the plan it is of. What a session may not do stays what it is.
fn of_plan(name: &str, error: DataFusionError) -> DataFusionError {
    if Refused::is(&error) {
        return error;
    }
    let text = kelpie_session::message(&error);
    let (shown, more) = match text.char_indices().nth(limits::MOST_CHARACTERS) {
        Some((end, _)) => (&text[..end], "…"),
        None => (text.as_str(), ""),
    };
    DataFusionError::Plan(format!("{name}: {shown}{more}"))
}
