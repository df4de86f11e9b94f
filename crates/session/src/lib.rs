//! What a session of Kelpie is beside its plans: settings, tables of local files, names, kept plans, whole writes, running queries.
//!
//! [`install`] adds Kelpie to a session of DataFusion in one line. [`KelpieSession`] is a `SessionContext` with the rules of
//! `kelpie-datafusion`, the options `kelpie.*` and tables of local files. Programs, bindings and servers stand on this crate.

mod access;
mod checked_files;
mod constraints;
mod copies;
mod corrections;
mod database;
mod deadline;
mod dialect;
mod file_facts;
mod files;
mod in_database;
mod inserted;
mod install;
mod kept_types;
mod messages;
mod names;
mod needs;
mod new_tables;
mod operators;
mod plan_cache;
mod planning;
mod report;
mod row_changes;
mod running;
mod sequences;
mod session;
mod shown_tables;
mod syntax;
#[cfg(feature = "testing")]
pub mod testing;
mod text_keys;
mod threads;
mod times;
mod timing;
mod transactions;
mod variables;
mod views;
mod whole_writes;

pub use access::{Access, Refused};
pub use database::Database;
pub use file_facts::with_checked_readers;
pub use files::remove_pipes;
pub use in_database::OpenedSession;
pub use install::install;
pub use kelpie_datafusion::{
    ANALYZED, Fallback, GenericPlanMode, JoinOrderRule, KelpieExec, KelpieOptions, KelpieRule, OPTIONS,
    SessionOption, options_as_markdown, units,
};
pub use kelpie_engine::algebra;
pub use kelpie_engine::calibration::Point;
pub use kelpie_engine::spaces;
pub use kelpie_engine::{
    Arrival, CACHE_LIMIT_VARIABLE, Calibrated, Device, DeviceChoice, DeviceKind, Engine, Group, LaneProfile,
    Measured, Phase, QueryOptions, SortSample, Split, TunedSummary,
};
pub use kelpie_engine::{progress, trace};
pub use messages::{message, nearest, with_lines_from};
pub use needs::{Described, Needs, Parameter};
pub use report::{Decision, Fact, PipelineFacts, QueryReport};
pub use running::{PlannedQuery, RunningQuery};
pub use session::{AddedPlan, KelpieSession, QueryResult, RegisteredData, SessionOptions, Stage};
pub use text_keys::with_text_keys;
pub use threads::StatementThreads;
pub use timing::QueryTiming;
pub use whole_writes::WholeFile;

/// The axes of variants, which the options `kelpie.variant.<axis>` force.
pub fn axes() -> &'static [kelpie_engine::variant::Axis] {
    kelpie_engine::variant::axes::ALL
}

pub use kelpie_engine::variant::axes_as_markdown;
