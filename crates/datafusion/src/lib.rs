//! Kelpie inside DataFusion: optimizer rule, [`KelpieExec`] and session.
//!
//! [`KelpieRule`] replaces the largest sub-plans that Kelpie compiles by a [`KelpieExec`]; everything else stays
//! DataFusion's. [`install`] adds it to a session in one line. [`KelpieSession`] is a `SessionContext` with the rule, its options (`kelpie.*`) and tables of local
//! files. Values, types and errors are DataFusion's.

mod clock;
mod cores;
mod deep;
mod derived;
mod exec;
mod expected;
mod files;
mod float_statistics;
mod install;
mod join_order;
mod kept;
mod memory_identity;
mod names;
mod options;
mod original;
mod parameters;
mod parts;
mod planning;
mod report;
mod rule;
mod running;
mod session;
mod source;
#[cfg(feature = "testing")]
pub mod testing;
mod translate;
mod types;
mod whole_files;
mod whole_writes;

pub use exec::KelpieExec;
pub use install::install;
pub use join_order::JoinOrderRule;
pub use kelpie_engine::calibration::Point;
pub use kelpie_engine::{Calibrated, Device, DeviceKind, Engine, Group, LaneProfile, Measured, Phase, Split};
pub use options::{Fallback, GenericPlanMode, KelpieOptions};
pub use rule::KelpieRule;
pub use running::RunningQuery;
pub use session::{KelpieSession, QueryResult, QueryTiming, RegisteredData, SessionOptions, Stage};
pub use whole_writes::WholeFile;

/// The axes of variants, which the options `kelpie.variant.<axis>` force.
pub fn axes() -> &'static [kelpie_engine::variant::Axis] {
    kelpie_engine::variant::axes::ALL
}
