//! Runs Kelpie's compiled plans: stages, memory budget, column cache, cancellation and metrics.

pub mod algebra;
mod bandwidth;
mod budgets;
pub mod calibration;
mod columns;
mod delivery;
mod devices;
pub mod error;
mod execution;
mod explain;
mod foresee;
mod grouping_keys;
mod handover;
mod heap;
mod host;
mod identity;
mod intermediate;
mod launch;
mod learned;
mod memory_fallback;
mod memory_source;
mod meter;
mod metrics;
mod movement;
mod multi_column_distinct;
mod options;
mod parts;
mod primitives;
mod profile;
pub mod progress;
mod prune;
mod query;
mod result;
mod shared_plans;
mod sketch;
mod sort_timing;
mod sorting;
pub mod source;
pub mod spaces;
mod split;
mod stack;
mod stage;
mod stage_run;
#[cfg(feature = "testing")]
pub mod testing;
mod threads;
pub mod trace;
mod tuning;
mod worker_times;

pub use bandwidth::Rates;
pub use calibration::{Calibrated, Measured};
pub use delivery::Batches;
pub use error::{EngineError, FallbackReason, QueryError};
pub use foresee::Foreseen;
pub use handover::FIRST_RUN;
pub use kelpie_compile::plan::Plan;
pub use kelpie_compile::shape::ShapeChoices;
pub use kelpie_compile::variant::{self, Choice, Forced, Genome};
pub use kelpie_compile::{MicroModel, Resolution};
pub use kelpie_device::disk_cache::CACHE_LIMIT_VARIABLE;
pub use kelpie_device::{Accessed, CancelToken, Device, DeviceKind, prefer_huge_pages};
pub use meter::Traffic;
pub use metrics::{Atomics, LaneProfile, PipelineMetrics, QueryMetrics, QueryOutput};
pub use options::{
    CacheMode, Decoding, DeviceChoice, Dictionaries, ExplainStage, MacroModel, Query, QueryOptions, Tier,
    Transfer, TunerMode, TunerOptions,
};
pub use profile::Profile;
pub use sort_timing::{Arrival, SortSample, SortTime};
pub use source::TableSource;
pub use split::{Group, Phase, Split};
pub use threads::{Place, QueryThreads};
pub use tuning::TunedSummary;

pub use query::Engine;
pub use stack::with_stack;
