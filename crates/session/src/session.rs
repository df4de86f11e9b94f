//! A DataFusion session with Kelpie in it.

mod plans;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::DynamicFileCatalog;
use datafusion::common::{ParamValues, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{LogicalPlan, WriteOp};
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use kelpie_datafusion::clock::PlanClock;
use kelpie_datafusion::recursion_guard::{Depth, Held, MOST_LEVELS, Room, with_room};
use kelpie_datafusion::{KelpieOptions, KelpieRule, for_each_compiled, on_engine, uncompiled_reasons};
use kelpie_engine::trace::{self, Track};
use kelpie_engine::{Engine, ExplainStage, Phase};
use parking_lot::Mutex;

use crate::access::Access;
use crate::checked_files::caught;
use crate::constraints::checked_rows::Writing;
use crate::corrections::NumberedCopies;
use crate::database::Database;
use crate::deadline::{Deadline, within};
use crate::dialect;
use crate::files::{self, Broken, LocalFiles, LocalTables};
#[cfg(feature = "testing")]
use crate::install::KelpiePlanner;
use crate::install::{explaining, install};
use crate::messages::worded;
use crate::needs::{Described, Needs};
use crate::plan_cache::{GenericPlans, KeptStatements, Learning, Planned, Ready};
use crate::planning::{Planning, logical_plan, parsed};
use crate::report::QueryReport;
use crate::running::{PlannedQuery, RunningQuery};
use crate::sequences::Sequences;
use crate::timing::QueryTiming;
use crate::transactions::Transactions;
use crate::variables::Variables;
use crate::views::Views;

pub use plans::AddedPlan;
pub(crate) use plans::run_as_a_whole;

/// How a session is built: [`SessionOptions::default`], and what `with…` adds.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Shared by all sessions of a process; a new one where absent.
    pub engine: Option<Arc<Engine>>,
    /// Options to set at once: `("kelpie.device", "cpu")`, `("datafusion.execution.batch_size", "1024")`.
    pub settings: Vec<(String, String)>,
    /// What its statements may do.
    pub access: Access,
    /// What somebody adds to the session before Kelpie is.
    beneath: Option<Beneath>,
}

/// Adds to a session: extensions, settings, the query planner that Kelpie's is around.
type AddTo = dyn Fn(SessionStateBuilder) -> SessionStateBuilder + Send + Sync;

#[derive(Clone)]
struct Beneath(Arc<AddTo>);

impl std::fmt::Debug for Beneath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Beneath")
    }
}

impl SessionOptions {
    /// With an engine that other sessions have, too.
    pub fn with_engine(mut self, engine: Arc<Engine>) -> SessionOptions {
        self.engine = Some(engine);
        self
    }

    /// With all of these settings besides.
    pub fn with_settings(mut self, settings: impl IntoIterator<Item = (String, String)>) -> SessionOptions {
        self.settings.extend(settings);
        self
    }

    /// With bounds of what its statements may do.
    pub fn with_access(mut self, access: Access) -> SessionOptions {
        self.access = access;
        self
    }

    /// With what a function adds to the session before Kelpie is added: extensions, their settings, a query planner, which Kelpie's
    /// is then around.
    pub fn with_beneath(
        mut self,
        add: impl Fn(SessionStateBuilder) -> SessionStateBuilder + Send + Sync + 'static,
    ) -> SessionOptions {
        self.beneath = Some(Beneath(Arc::new(add)));
        self
    }

    /// With another setting.
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> SessionOptions {
        self.settings.push((name.into(), value.into()));
        self
    }
}

/// A stage of compilation for [`KelpieSession::explain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// The physical plan: what is compiled, what is not, and why.
    Plan,
    /// The variants of operators and pipelines: what is chosen and why, and what else is possible.
    Variants,
    /// Kelpie's pipelines.
    Pipelines,
    /// Their kernel IR.
    Kir,
    /// CUDA C or CLIF.
    Code,
}

/// A query's answer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QueryResult {
    /// Its columns.
    pub schema: SchemaRef,
    /// Its rows.
    pub batches: Vec<RecordBatch>,
    /// What it took.
    pub timing: QueryTiming,
}

impl QueryResult {
    /// Rows of all batches.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// A DataFusion session with all of [`install`], and what a session state cannot carry: statements of any depth
/// ([`KelpieSession::start`]), where their time went ([`KelpieSession::last_metrics`]), and local files as tables.
///
/// A prepared statement (`PREPARE name (types) AS …`, `EXECUTE name(values)`, `DEALLOCATE name`) is planned with the first two sets
/// of values that differ. The third makes a plan that serves all values, and from then on EXECUTE plans nothing as long as that takes
/// no longer (`kelpie.generic_plans`).
pub struct KelpieSession {
    context: Held<SessionContext>,
    engine: Arc<Engine>,
    last: Arc<Mutex<Option<QueryTiming>>>,
    /// Levels of the plans that the session keeps: views, and prepared statements.
    kept: Arc<AtomicUsize>,
    statements: Arc<KeptStatements>,
    generic: Arc<GenericPlans>,
    /// Absent where the session has no default schema.
    pub(crate) files: Option<Arc<LocalTables>>,
    /// What keeps what its statements make.
    pub(crate) database: Option<Arc<Database>>,
}

/// What [`KelpieSession::register_data`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredData {
    /// Names of the tables.
    pub names: Vec<String>,
    /// Names that stand for nothing that could be a table, and why. A query that names one gets the same error.
    pub problems: Vec<String>,
}

impl std::fmt::Debug for KelpieSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KelpieSession").finish_non_exhaustive()
    }
}

impl KelpieSession {
    /// A session; a bad setting is an error that names it.
    pub fn new(options: SessionOptions) -> Result<KelpieSession> {
        let engine = options.engine.unwrap_or_default();
        let mut config =
            SessionConfig::new().with_information_schema(true).with_extension(Arc::new(options.access));
        config.options_mut().extensions.insert(KelpieOptions::default());
        // The parser's own limit protects small stacks, and makes other errors of what it cuts off (a CASE that is no CASE).
        // Here statements are measured before, and parsed on stacks that fit.
        config.options_mut().set("datafusion.sql_parser.recursion_limit", &MOST_LEVELS.to_string())?;
        // DataFusion's two kinds of plans do not find the same columns nullable (`CASE WHEN a > b THEN b ELSE 3 END`).
        config.options_mut().set("datafusion.execution.skip_physical_aggregate_schema_check", "true")?;
        // Times of INT96 are of any year; nanoseconds hold those from 1677 to 2262, and others wrap around.
        config.options_mut().set("datafusion.execution.parquet.coerce_int96", "us")?;
        let mut builder = SessionStateBuilder::new().with_config(config).with_default_features();
        if let Some(Beneath(add)) = &options.beneath {
            builder = add(builder);
        }
        let config = builder.config().get_or_insert_default();
        for (name, value) in &options.settings {
            files::check_setting(name, value)?;
            config.options_mut().set(name, value)?;
        }
        let state = install(builder.with_runtime_env(files::runtime()?), engine).build();
        let session = KelpieSession::over(SessionContext::new_with_state(state))?;
        session.name_files_in_queries();
        Ok(session)
    }

    /// A session over a context that [`install`] has added Kelpie to. The context stays as it is, but for its default schema:
    /// that finds a table in any case of its name where only one is meant, and also has what
    /// [`KelpieSession::register_path`] and the like add. A context without Kelpie is an error.
    pub fn over(context: SessionContext) -> Result<KelpieSession> {
        let state = context.state();
        let rules = state.physical_optimizers().iter();
        let Some(engine) = rules.filter_map(KelpieRule::of).map(KelpieRule::engine).next().cloned() else {
            return plan_err!("the session was built without Kelpie: see kelpie_datafusion::install");
        };
        let names = &state.config_options().catalog;
        let catalog = state.catalog_list().catalog(&names.default_catalog);
        let schema = catalog.as_ref().and_then(|catalog| catalog.schema(&names.default_schema));
        let mut files = None;
        if let (Some(catalog), Some(schema)) = (catalog, schema) {
            let tables = Arc::new(LocalTables::over(schema));
            tables.session.set(&context);
            // A catalog of the embedder's own may refuse it.
            let added = catalog.register_schema(&names.default_schema, Arc::clone(&tables) as _);
            files = added.is_ok().then_some(tables);
        }
        let kept = Arc::<AtomicUsize>::default();
        let context = Held::new(context, Arc::clone(&kept));
        context.state_ref().write().register_relation_planner(Arc::new(NumberedCopies))?;
        dialect::add_to(&context)?;
        Variables::add(&mut context.state_ref().write())?;
        Sequences::add(&mut context.state_ref().write())?;
        context.state_ref().write().config_mut().set_extension(Arc::new(Writing::default()));
        context.state_ref().write().config_mut().set_extension(Arc::new(Transactions::default()));
        context.state_ref().write().config_mut().set_extension(Arc::new(Views::default()));
        if let Some(tables) = &files {
            // What plans a statement finds them there: the catalog shows its schemas behind the one that knows files by their paths.
            context.state_ref().write().config_mut().set_extension(Arc::clone(tables));
        }
        let (last, statements, generic) = (Arc::default(), Arc::default(), Arc::default());
        Ok(KelpieSession { context, engine, last, kept, statements, generic, files, database: None })
    }

    /// From now on queries may name local files: `SELECT … FROM 'file.parquet'`. Sessions of [`KelpieSession::new`] may; in a
    /// session over a context of the embedder's, who may run queries may not always read files.
    pub fn name_files_in_queries(&self) {
        let files = Arc::new(LocalFiles::default());
        files.session.set(&self.context);
        files::add_whole_files(&mut self.context.state_ref().write());
        let catalogs = Arc::clone(self.context.state().catalog_list());
        self.context.register_catalog_list(Arc::new(DynamicFileCatalog::new(catalogs, files)));
    }

    /// DataFusion's context. Queries that run through it are compiled too; but their depth is not measured, and
    /// [`KelpieSession::last_metrics`] misses them.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Sets an option, as `SET name = value` does.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        files::check_setting(name, value)?;
        Access::of(&self.context.state()).check_setting(name)?;
        let state = self.context.state_ref();
        let mut state = state.write();
        state.config_mut().options_mut().set(name, value)
    }

    /// Runs a statement and collects its answer. Dropping the future cancels the query.
    pub async fn sql(&self, sql: &str) -> Result<QueryResult> {
        let mut query = self.start(sql).await?;
        let mut batches = Vec::new();
        while let Some(batch) = query.next().await? {
            batches.push(batch);
        }
        Ok(QueryResult { schema: query.schema(), batches, timing: query.finish() })
    }

    /// Plans a statement and starts it; its rows come as they are asked for. Dropping it cancels the query.
    pub async fn start(&self, sql: &str) -> Result<RunningQuery> {
        self.start_with(sql, None).await
    }

    /// Plans a statement with values, as [`KelpieSession::start_with`] does, for [`PlannedQuery::start`] to start it. SET and other
    /// statements that are no queries are done when they are planned.
    pub async fn plan(&self, sql: &str, parameters: Option<ParamValues>) -> Result<PlannedQuery> {
        let span = trace::open(Track::Statements, || sql.to_string());
        let (start, clock) = (Instant::now(), PlanClock::default());
        let deadline = Deadline::new(start, self.timeout());
        let found = match parameters {
            Some(_) => None,
            None => within(deadline, async { Ok(self.statements.find(sql, &self.context).await) }).await?,
        };
        clock.charge(Phase::Find, start.elapsed());
        let mut again = None;
        let (planned, task) = match found {
            Some(Ready { plan, kept, task }) => {
                (Planned { plan, kept: Some(kept), is_reused: true, learning: None }, task)
            }
            None => {
                let depth = clock.timed(Phase::Parse, || self.depth(sql));
                let depth = depth.map_err(|error| self.worded(error, sql))?;
                let planning = Planning {
                    context: self.context.clone(),
                    kept_levels: Arc::clone(&self.kept),
                    statements: Arc::clone(&self.statements),
                    generic: Arc::clone(&self.generic),
                    room: self.room(depth),
                    levels: depth.parsed,
                    text: sql.to_string(),
                    parameters,
                    is_custom: false,
                    database: self.database.clone(),
                };
                let planned = within(deadline, caught(planning.on_its_stack(&clock))).await;
                let planned = planned.map_err(|error| self.worded(error, sql))?;
                again = planned.0.learning.as_ref().is_some_and(Learning::is_generic).then_some(planning);
                planned
            }
        };
        let planning = start.elapsed();
        trace::record(Track::Planning, (start, start + planning), || "plan".into());
        let left = if planned.is_reused && planned.kept.is_some() { Phase::Find } else { Phase::Physical };
        let split = clock.finish(planning, left);
        let options = KelpieOptions::of(task.session_config().options());
        let (text, context) = (sql.to_string(), self.context.clone());
        let (engine, last, planned_at) = (Arc::clone(&self.engine), Arc::clone(&self.last), Instant::now());
        Ok(PlannedQuery {
            text,
            context,
            planned,
            task,
            engine,
            options,
            last,
            start,
            planned_at,
            split,
            deadline,
            again,
            _span: span,
        })
    }

    /// As [`KelpieSession::start`], with values for the statement's `$1`, `$2`, … or `$name`. A value that the statement does not
    /// ask for is an error, as is one that is missing.
    pub async fn start_with(&self, sql: &str, parameters: Option<ParamValues>) -> Result<RunningQuery> {
        self.plan(sql, parameters).await?.start()
    }

    /// How long a statement may take.
    fn timeout(&self) -> Option<Duration> {
        let state = self.context.state_ref();
        let state = state.read();
        let set =
            state.config_options().extensions.get::<KelpieOptions>().and_then(|options| options.timeout);
        Access::of(&state).timeout(set)
    }

    fn worded(&self, error: DataFusionError, sql: &str) -> DataFusionError {
        worded(error, sql, &self.context.state())
    }

    fn depth(&self, sql: &str) -> Result<Depth> {
        Depth::of(sql, &self.context.state_ref().read().config_options().sql_parser.dialect)
    }

    /// What the planning of a statement needs, with all that it may refer to.
    fn room(&self, depth: Depth) -> Room {
        Room::of(depth, self.kept.load(Ordering::Relaxed))
    }

    /// What a statement asks of the session before it is planned.
    pub async fn needs(&self, sql: &str) -> Result<Needs> {
        let (context, text) = (self.context.clone(), sql.to_string());
        let asking = async move {
            let state = context.state();
            let statement = parsed(&state, &text)?;
            Needs::of(&state, &statement).await
        };
        self.room(self.depth(sql)?).run(asking).await
    }

    /// What a statement gives and what values it asks for, without running it.
    pub async fn describe(&self, sql: &str) -> Result<Described> {
        let (context, text) = (self.context.clone(), sql.to_string());
        let asking = async move { Described::of(&context.state(), &text).await };
        let depth = self.depth(sql).map_err(|error| self.worded(error, sql))?;
        self.room(depth).run(asking).await.map_err(|error| self.worded(error, sql))
    }

    /// Where the time of the last `sql` went.
    pub fn last_metrics(&self) -> Option<QueryTiming> {
        self.last.lock().clone()
    }

    /// Shows a stage of a query's compilation; the query itself does not run, but its columns are read.
    pub async fn explain(&self, sql: &str, stage: Stage) -> Result<String> {
        let (context, text) = (self.context.clone(), sql.to_string());
        let planning = async move {
            let state = context.state();
            let plan = match logical_plan(&state, parsed(&state, &text)?, &text).await? {
                LogicalPlan::Explain(explain) => (*explain.plan).clone(),
                plan => plan,
            };
            if let LogicalPlan::Dml(write) = &plan
                && matches!(write.op, WriteOp::Delete | WriteOp::Update | WriteOp::Truncate)
            {
                // Its physical plan would do it.
                return plan_err!(
                    "{} has no stages of its own: explain the query that finds its rows",
                    write.op
                );
            }
            let mut state = state;
            explaining(&mut state);
            Ok((state.create_physical_plan(&plan).await?, state))
        };
        let planned = self.room(self.depth(sql)?).run(planning).await;
        let (physical, state) = planned.map_err(|error| self.worded(error, sql))?;
        let stage = match stage {
            Stage::Plan => {
                let shown = DisplayableExecutionPlan::new(physical.as_ref());
                return Ok(with_room(&physical, || shown.indent(false).to_string()));
            }
            Stage::Variants => ExplainStage::Variants,
            Stage::Pipelines => ExplainStage::Pipelines,
            Stage::Kir => ExplainStage::Kir,
            Stage::Code => ExplainStage::Code,
        };
        let context = Arc::new((&state).into());
        let mut queries = Vec::new();
        with_room(&physical, || for_each_compiled(&physical, &mut |exec| queries.push(exec.query(&context))));
        if queries.is_empty() {
            let reasons =
                uncompiled_reasons(&physical, &self.engine, &KelpieOptions::of(state.config_options()));
            return match reasons.as_slice() {
                [] => plan_err!("nothing of this query is compiled, and nothing of it has to be computed"),
                reasons => plan_err!("nothing of this query is compiled:\n  {}", reasons.join("\n  ")),
            };
        }
        let mut text = String::new();
        for query in queries {
            let query = query?;
            text.push_str(&on_engine(&self.engine, move |engine| engine.explain(&query, stage)).await?);
        }
        Ok(text)
    }

    /// Runs a statement for what it does, and lets its rows go. The devices are measured, where they were not before.
    pub async fn report(&self, sql: &str) -> Result<QueryReport> {
        let mut query = self.start(sql).await?;
        while query.next().await?.is_some() {}
        let timing = query.finish();
        on_engine(&self.engine, move |engine| Ok(QueryReport::of(&timing, engine))).await
    }

    /// Registers a Parquet, CSV (with header), JSON or Arrow file, a folder of such files, or those that match a pattern, as a
    /// table. Queries see the files that are there when they run.
    pub async fn register_path(&self, name: &str, path: impl AsRef<Path>) -> Result<()> {
        self.local_tables()?.add(name, path.as_ref(), Broken::Refused).await
    }

    /// Registers every data file (by its stem) and sub-folder (by its name) of a folder, one file, or what matches a pattern;
    /// gives the names. What cannot be read is an error.
    pub async fn register_dir(&self, path: impl AsRef<Path>) -> Result<Vec<String>> {
        let found = files::tables_of(path.as_ref())?;
        if let Some((_, problem)) = found.problems.first() {
            return plan_err!("{problem}");
        }
        for (name, path) in &found.tables {
            self.register_path(name, path).await?;
        }
        Ok(found.tables.into_iter().map(|(name, _)| name).collect())
    }

    /// As [`KelpieSession::register_dir`], but files are looked at when a query names their table: what cannot be read keeps nobody from
    /// the rest, and a folder of many files costs nothing. [`KelpieSession::unreadable_tables`] looks at them before.
    pub async fn register_data(&self, path: impl AsRef<Path>) -> Result<RegisteredData> {
        let found = files::tables_of(path.as_ref())?;
        let (mut registered, tables) = (RegisteredData::default(), self.local_tables()?);
        for (name, problem) in found.problems {
            tables.add_problem(&name, &problem)?;
            registered.problems.push(problem);
        }
        for (name, path) in found.tables {
            match tables.add(&name, &path, Broken::Kept).await {
                Ok(()) => registered.names.push(name),
                Err(error) => registered.problems.push(files::plain(&error)),
            }
        }
        Ok(registered)
    }

    /// Looks at the tables of files that no query has named yet, and tells why some cannot be read. Text files are left out, as their
    /// columns are found by reading them.
    pub async fn unreadable_tables(&self) -> Vec<String> {
        match &self.files {
            Some(tables) => tables.look_at_described().await,
            None => Vec::new(),
        }
    }

    fn local_tables(&self) -> Result<&LocalTables> {
        match &self.files {
            Some(tables) => Ok(tables),
            None => plan_err!("the session has no default schema that takes tables of files"),
        }
    }

    /// How many statements and how many plans are kept.
    #[cfg(feature = "testing")]
    pub fn kept(&self) -> (usize, usize) {
        let plans =
            KelpiePlanner::of(&self.context.state_ref().read()).map_or(0, |planner| planner.kept().len());
        (self.statements.len(), plans)
    }

    /// How many prepared statements have a generic plan, and how many never will.
    #[cfg(feature = "testing")]
    pub fn generic(&self) -> (usize, usize) {
        self.generic.len()
    }

    /// Names of the registered tables.
    pub fn tables(&self) -> Vec<String> {
        let state = self.context.state();
        let options = &state.config_options().catalog;
        let schema = state
            .catalog_list()
            .catalog(&options.default_catalog)
            .and_then(|catalog| catalog.schema(&options.default_schema));
        let mut names = schema.map(|schema| schema.table_names()).unwrap_or_default();
        names.sort();
        names
    }

    /// What somebody may not expect of how files were taken since the last call: lines before a table that were left out, a first
    /// line that is no header.
    pub fn take_notes(&self) -> Vec<String> {
        self.files.as_ref().map_or_else(Vec::new, |tables| tables.take_notes())
    }

    /// Forgets all cached columns: the next query reads its files again.
    pub fn clear_columns(&self) {
        self.engine.clear_columns();
    }
}
