//! Kelpie as the query planner of a session of the Python package `datafusion`.
//!
//! That package is another library with a DataFusion of its own: what it plans is other types than ours. Its logical plans come here as
//! bytes, and become plans of our DataFusion, which Kelpie compiles. What goes back is a node that the other side cannot look into and that
//! runs here ([`Planned`]). Codecs name it by a number, as both sides live in one process; likewise tables that have no bytes, such as those
//! in the memory of the other side.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session as PlanSession, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{TableReference, internal_err, not_impl_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SendableRecordBatchStream, TaskContext, TaskContextProvider};
use datafusion::logical_expr::{AggregateUDF, Extension, LogicalPlan, ScalarUDF, WindowUDF};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion::prelude::SessionContext;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::proto::physical_extension_codec::FFI_PhysicalExtensionCodec;
use datafusion_ffi::query_planner::FFI_QueryPlanner;
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use kelpie_session::{KelpieExec, KelpieSession, SessionOptions};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use tokio::runtime::Handle;

use crate::capsules::{copy_of, of_foreign};
use crate::errors::of_query;
use crate::runtime::shared;

/// What stands before a number, so that it is no other codec's.
const MARK: &[u8] = b"DFKELPI1";
/// What was encoded and not decoded yet is kept, at most so much: an error on the other side may keep it from being decoded.
const MOST_WAITING: usize = 256;

/// Kelpie's part of a session of the other package.
#[pyclass(frozen, module = "kelpie._kelpie")]
pub struct DataFusionExtension {
    context: Arc<SessionContext>,
    codec: Arc<Codec>,
    runtime: Handle,
}

#[pymethods]
impl DataFusionExtension {
    #[new]
    fn new(py: Python<'_>, settings: Vec<(String, String)>) -> PyResult<DataFusionExtension> {
        let shared = shared(py)?;
        let options =
            SessionOptions::default().with_engine(Arc::clone(&shared.engine)).with_settings(settings);
        let runtime = shared.runtime.handle().clone();
        let session = py.detach(|| KelpieSession::new(options)).map_err(|error| of_query(py, &error))?;
        let context = Arc::new(session.context().clone());
        let codec = Arc::new(Codec {
            context: Arc::clone(&context),
            plans: Mutex::default(),
            tables: Mutex::default(),
        });
        Ok(DataFusionExtension { context, codec, runtime })
    }

    /// A capsule with the codec of logical plans.
    fn logical_codec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let codec = Arc::clone(&self.codec) as Arc<dyn LogicalExtensionCodec>;
        of_foreign(py, FFI_LogicalExtensionCodec::new(codec, Some(self.runtime.clone()), &self.provider()))
    }

    /// A capsule with the codec of physical plans.
    fn physical_codec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let codec = Arc::clone(&self.codec) as Arc<dyn PhysicalExtensionCodec>;
        of_foreign(py, FFI_PhysicalExtensionCodec::new(codec, Some(self.runtime.clone()), &self.provider()))
    }

    /// A capsule with the planner of a session, which plans by another one what this one cannot.
    fn planner<'py>(
        &self,
        py: Python<'py>,
        session: &Bound<'py, PyAny>,
        fallback: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let logical: FFI_LogicalExtensionCodec =
            copy_of(&session.call_method0("__datafusion_logical_extension_codec__")?)?;
        let physical: FFI_PhysicalExtensionCodec =
            copy_of(&session.call_method0("__datafusion_physical_extension_codec__")?)?;
        let fallback: FFI_QueryPlanner = copy_of(fallback)?;
        let (fallback, context) = ((&fallback).into(), Arc::clone(&self.context));
        let planner = Arc::new(Planner { context, fallback, runtime: self.runtime.clone() });
        of_foreign(py, FFI_QueryPlanner::new_with_ffi_codecs(planner, logical, physical))
    }
}

impl DataFusionExtension {
    /// The context of what the codecs decode. The other side holds it weakly.
    fn provider(&self) -> Arc<dyn TaskContextProvider> {
        Arc::clone(&self.context) as _
    }
}

/// Plans in a session of Kelpie's; what that cannot, the other side's own planner does.
struct Planner {
    /// Also what the codecs refer to, which are there as long as this is.
    context: Arc<SessionContext>,
    fallback: Arc<dyn QueryPlanner + Send + Sync>,
    runtime: Handle,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").finish_non_exhaustive()
    }
}

impl Planner {
    /// A plan to run with the other session's numbers of partitions and rows.
    async fn planned(&self, plan: &LogicalPlan, session: &dyn PlanSession) -> Result<Arc<dyn ExecutionPlan>> {
        let mut state = self.context.state();
        let execution = &session.config_options().execution;
        let options = &mut state.config_mut().options_mut().execution;
        options.target_partitions = execution.target_partitions;
        options.batch_size = execution.batch_size;
        options.time_zone.clone_from(&execution.time_zone);
        let plan = plan.clone();
        // The thread that asks is the other side's, and none of our runtime's.
        let planning = self.runtime.spawn(async move {
            let plan = state.query_planner().create_physical_plan(&plan, &state).await?;
            Ok::<_, DataFusionError>((plan, state.task_ctx()))
        });
        match planning.await {
            Ok(planned) => {
                let (plan, task) = planned?;
                Ok(Arc::new(Planned { name: name_of(&plan), plan, task }))
            }
            Err(error) => internal_err!("planning broke down: {error}"),
        }
    }
}

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn PlanSession,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self.planned(plan, session).await {
            Ok(planned) => Ok(planned),
            Err(_) => self.fallback.create_physical_plan(plan, session).await,
        }
    }
}

/// All that the other side shows of a plan is the name of its node.
fn name_of(plan: &Arc<dyn ExecutionPlan>) -> String {
    fn compiled(plan: &Arc<dyn ExecutionPlan>) -> usize {
        usize::from(plan.is::<KelpieExec>()) + plan.children().into_iter().map(compiled).sum::<usize>()
    }
    match compiled(plan) {
        0 => "Kelpie, nothing compiled".to_string(),
        _ if plan.is::<KelpieExec>() => "KelpieExec, compiled as a whole".to_string(),
        parts => format!("Kelpie with {parts} KelpieExec"),
    }
}

/// A plan of this side as a node of the other's.
#[derive(Debug)]
struct Planned {
    name: String,
    plan: Arc<dyn ExecutionPlan>,
    /// What it runs in.
    task: Arc<TaskContext>,
}

impl DisplayAs for Planned {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Kelpie:\n{}",
            DisplayableExecutionPlan::new(self.plan.as_ref()).indent(false).to_string().trim_end()
        )
    }
}

impl ExecutionPlan for Planned {
    fn name(&self) -> &str {
        &self.name
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("Kelpie's plan has no children") }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.plan.execute(partition, Arc::clone(&self.task))
    }
}

/// Gives numbers to what has no bytes, and names to DataFusion's own functions, so that on this side they are those of this library,
/// which Kelpie knows by their types. Functions in Python do not come here: the other package writes them as bytes.
struct Codec {
    context: Arc<SessionContext>,
    plans: Mutex<Waiting<Arc<dyn ExecutionPlan>>>,
    tables: Mutex<Waiting<Arc<dyn TableProvider>>>,
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}

/// What was encoded, and not decoded yet.
#[derive(Debug)]
struct Waiting<T> {
    next: u64,
    all: VecDeque<(u64, T)>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Waiting { next: 0, all: VecDeque::new() }
    }
}

impl<T> Waiting<T> {
    fn encode(&mut self, value: T, bytes: &mut Vec<u8>) {
        if self.all.len() >= MOST_WAITING {
            self.all.pop_front();
        }
        self.all.push_back((self.next, value));
        bytes.extend_from_slice(MARK);
        bytes.extend_from_slice(&self.next.to_le_bytes());
        self.next += 1;
    }

    /// Nothing where the bytes are another codec's.
    fn decode(&mut self, bytes: &[u8]) -> Option<T> {
        let number = u64::from_le_bytes(bytes.strip_prefix(MARK)?.try_into().ok()?);
        let place = self.all.iter().position(|(known, _)| *known == number)?;
        self.all.remove(place).map(|(_, value)| value)
    }
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        bytes: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self.plans.lock().decode(bytes) {
            Some(plan) => Ok(plan),
            None => not_impl_err!("this plan is not Kelpie's"),
        }
    }

    fn try_encode(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        if !plan.is::<Planned>() {
            return not_impl_err!("{} is not Kelpie's", plan.name());
        }
        self.plans.lock().encode(plan, bytes);
        Ok(())
    }
}

/// How a kind of functions is encoded. Of the other side's function no more is known than these: a function of a third library that
/// has the name, the aliases and the volatility of one of DataFusion's is taken for that.
macro_rules! by_name {
    ($encode:ident, $decode:ident, $kind:ty, $all:ident) => {
        fn $encode(&self, function: &$kind, bytes: &mut Vec<u8>) -> Result<()> {
            let state = self.context.state_ref();
            let known = state.read().$all().get(function.name()).cloned();
            let is_same = |own: Arc<$kind>| {
                own.aliases() == function.aliases()
                    && own.signature().volatility == function.signature().volatility
            };
            if known.is_some_and(is_same) {
                bytes.extend_from_slice(MARK);
            }
            Ok(())
        }

        fn $decode(&self, name: &str, bytes: &[u8]) -> Result<Arc<$kind>> {
            match self.context.state_ref().read().$all().get(name) {
                Some(function) if bytes == MARK => Ok(Arc::clone(function)),
                _ => not_impl_err!("the function {name} is not Kelpie's"),
            }
        }
    };
}

impl LogicalExtensionCodec for Codec {
    fn try_decode(&self, _: &[u8], _: &[LogicalPlan], _: &TaskContext) -> Result<Extension> {
        not_impl_err!("Kelpie has no logical nodes of its own")
    }

    fn try_encode(&self, _: &Extension, _: &mut Vec<u8>) -> Result<()> {
        not_impl_err!("Kelpie has no logical nodes of its own")
    }

    fn try_decode_table_provider(
        &self,
        bytes: &[u8],
        table: &TableReference,
        _: SchemaRef,
        _: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        match self.tables.lock().decode(bytes) {
            Some(provider) => Ok(provider),
            None => not_impl_err!("the table {table} was not given to Kelpie"),
        }
    }

    fn try_encode_table_provider(
        &self,
        _: &TableReference,
        provider: Arc<dyn TableProvider>,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        self.tables.lock().encode(provider, bytes);
        Ok(())
    }

    by_name!(try_encode_udf, try_decode_udf, ScalarUDF, scalar_functions);
    by_name!(try_encode_udaf, try_decode_udaf, AggregateUDF, aggregate_functions);
    by_name!(try_encode_udwf, try_decode_udwf, WindowUDF, window_functions);
}
