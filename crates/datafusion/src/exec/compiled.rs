//! What a sub-plan that Kelpie runs is made of.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{ExecutionPlan, PlanProperties};
use kelpie_engine::{Engine, FallbackReason, Foreseen, QueryError, QueryMetrics};
use parking_lot::Mutex;

use crate::clock::PlanClock;
use crate::join_bounds::KnownBounds;
use crate::original::Original;
use crate::translate::Translated;

/// A sub-plan that Kelpie compiles and runs; one partition.
///
/// Its rows come as the engine makes them, a few batches ahead of whoever takes them. Until the first of them comes, the
/// original may run instead, where the data need it; after it the query can only go on or fail (`kelpie_engine::Engine::stream`
/// says how it comes that it hardly ever fails then).
pub struct KelpieExec {
    /// What it replaces: shown by EXPLAIN, and run where the data needs DataFusion's own operators.
    pub(super) original: Original,
    pub(super) translated: Arc<Translated>,
    pub(super) engine: Arc<Engine>,
    pub(super) properties: Arc<PlanProperties>,
    /// Levels of EXPLAIN's tree above, so that the lines below the first are indented like it.
    pub(super) depth: usize,
    pub(super) metrics: ExecutionPlanMetricsSet,
    pub(super) run: Arc<Mutex<Option<Run>>>,
    /// Whether any copy of it ran on DataFusion's operators.
    pub(super) fell_back: Arc<AtomicBool>,
    /// Whether the next run of any copy is taken to be over in no time.
    pub(super) quick: Arc<Quick>,
    /// What of its tables its joins need, found by any copy's run.
    pub(super) join_bounds: Arc<KnownBounds>,
    /// What EXPLAIN says of the variants, where the plan is explained.
    pub(super) foreseen: Option<Foreseen>,
    /// Whether its kernels count lanes, whatever the session's `profile` is.
    pub(super) counts_lanes: bool,
    /// What planning it took, where a session measures that.
    pub(super) planning: Option<PlanClock>,
}

/// What an execution did.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// What the engine reports; empty where DataFusion's own operators ran.
    pub metrics: QueryMetrics,
    /// Why DataFusion's own operators ran instead.
    pub fallback: Option<FellBack>,
}

/// Why a compiled plan ran on DataFusion's own operators in the end.
#[derive(Debug, Clone)]
pub enum FellBack {
    /// The engine met what only they handle.
    Needed(FallbackReason),
    /// It failed in Kelpie: they say how, in DataFusion's own words.
    Failed(QueryError),
}

impl fmt::Display for FellBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FellBack::Needed(reason) => reason.fmt(f),
            FellBack::Failed(error) => write!(f, "failed in Kelpie: {error}"),
        }
    }
}

/// Whether a query may run on the thread that asks for its rows, as its last run took no time, gave few rows and read nothing.
#[derive(Debug, Default)]
pub(super) struct Quick {
    pub was_quick: AtomicBool,
    /// Its last run was a GPU's: the next one is no first run.
    pub was_on_gpu: AtomicBool,
    /// It had to read when it was taken to be quick. Then it waits for threads that must not be kept from their work.
    pub reads: Arc<AtomicBool>,
}

impl KelpieExec {
    /// The sub-plan that it replaces. Where that is a whole query, DataFusion's rules that make a plan ready to run have not
    /// gone over it.
    pub fn original(&self) -> &Arc<dyn ExecutionPlan> {
        self.original.plan()
    }

    /// Kelpie's plan.
    pub fn translated(&self) -> &Translated {
        &self.translated
    }

    /// The same, one level deeper in EXPLAIN's tree.
    pub(crate) fn deeper(&self) -> KelpieExec {
        KelpieExec { depth: self.depth + 1, ..self.copy() }
    }

    /// Whether any copy of it ran on DataFusion's operators.
    pub fn fell_back(&self) -> &Arc<AtomicBool> {
        &self.fell_back
    }

    /// What its last execution did, if it ended.
    pub fn last_run(&self) -> Option<Run> {
        self.run.lock().clone()
    }

    pub(super) fn copy(&self) -> KelpieExec {
        KelpieExec {
            original: self.original.clone(),
            translated: Arc::clone(&self.translated),
            engine: Arc::clone(&self.engine),
            properties: Arc::clone(&self.properties),
            depth: self.depth,
            metrics: ExecutionPlanMetricsSet::new(),
            run: Arc::default(),
            fell_back: Arc::clone(&self.fell_back),
            quick: Arc::clone(&self.quick),
            join_bounds: Arc::clone(&self.join_bounds),
            foreseen: self.foreseen.clone(),
            counts_lanes: self.counts_lanes,
            planning: self.planning.clone(),
        }
    }
}
