//! The planning of statements.

mod changes;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::config::Dialect as SqlDialect;
use datafusion::common::{ParamValues, TableReference, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{
    DdlStatement, Execute, LogicalPlan, LogicalPlanBuilder, Statement as LogicalStatement,
};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use kelpie_datafusion::KelpieOptions;
use kelpie_datafusion::clock::{PlanClock, timed, timed_future};
use kelpie_datafusion::parameters::{GenericQuery, marked};
use kelpie_datafusion::recursion_guard::{Room, balance};
use kelpie_engine::Phase;

use crate::access::Access;
use crate::checked_files::check_external;
use crate::constraints::declared::{take_out, with_rules};
use crate::copies::{overwriting, spell_partitions, written_as_named};
use crate::corrections::{
    self, Which, analyzed, computed_around, is_for_names, names_of_all, planned_apart, refuse_row_changes,
    share, unique_names, write_out_columns, write_out_orders,
};
use crate::database::{Change, Database, Persist, columns_of, rules_of};
use crate::dialect::{
    self, Macros, expand_columns, expand_structs, expand_unnested, has_dynamic_columns, is_sum_of_truths,
    is_unsigned, look_up_values, make_signed, name_columns, overloads, overwrites, sum_numbers, written_anew,
};
use crate::files::{check_setting, look_at_all, making};
use crate::inserted::as_the_table_has_it;
use crate::install::KelpiePlanner;
use crate::names::{name_all, names_too_few, replanned};
use crate::new_tables::{NewTable, is_alter, not_null};
use crate::plan_cache::{
    Asked, GenericPlans, KeptStatements, Learning, MOST_BYTES, Named, Next, Planned, Repeatable,
};
use crate::row_changes::name_of_change;
use crate::session::run_as_a_whole;
use crate::shown_tables::without_views_of_schemas;
use crate::syntax::normal;
use crate::views::{Views, renewed};

/// The planning of a statement that is not kept.
#[derive(Clone)]
pub(crate) struct Planning {
    pub context: SessionContext,
    /// Levels of the plans that the session keeps for other statements to refer to.
    pub kept_levels: Arc<AtomicUsize>,
    pub statements: Arc<KeptStatements>,
    pub generic: Arc<GenericPlans>,
    pub room: Room,
    /// Levels of the statement.
    pub levels: usize,
    pub text: String,
    /// Values for its placeholders, where it came with some.
    pub parameters: Option<ParamValues>,
    /// Whether EXECUTE is planned with its values, whatever generic plan there is.
    pub is_custom: bool,
    /// What keeps what the statement makes.
    pub database: Option<Arc<Database>>,
}

/// What a statement becomes: a plan, and what to run it in.
type Task = (Planned, Arc<TaskContext>);

impl Planning {
    /// Plans with as much stack as it takes; the time is charged to a clock.
    pub async fn on_its_stack(&self, clock: &PlanClock) -> Result<Task> {
        let (planning, clock) = (self.clone(), clock.clone());
        // Boxed where it runs: the future of planning is large, and whoever asks may have a small stack.
        self.room.run(async move { clock.lend(Box::pin(planning.run())).await }).await
    }

    async fn run(self) -> Result<Task> {
        let state = self.context.state();
        let corrects = KelpieOptions::of(state.config_options()).corrections;
        let macros = state.config().get_extension::<Macros>().filter(|_| corrects);
        let changes = || macros.as_ref().map(|macros| macros.changes());
        let before = changes();
        let (persist, text) = Persist::of(&self.text);
        if persist == Persist::Database && self.database.is_none() {
            return plan_err!("PERSIST keeps a setting in a database, and this session is in none");
        }
        if let (Some(macros), Some(texts)) = (&macros, overloads(&text)) {
            return self.define(&state, macros, &texts).await;
        }
        let mut statement = timed(Phase::Parse, || parsed(&state, &text))?;
        let alters = is_alter(&statement);
        Access::of(&state).check_statement(&statement)?;
        let mut altered = None;
        if corrects {
            altered = written_anew(&state, self.database.as_deref(), &mut statement).await?;
            if let Some(task) = self.changes_rows(&state, &mut statement).await? {
                return Ok(task);
            }
        }
        if let Some(macros) = &macros
            && macros.follow(std::slice::from_ref(&statement))?
        {
            return self.of_macros(&state).await;
        }
        if corrects && self.is_of_session(&state, &statement).await? {
            let nothing = LogicalPlanBuilder::empty(false).build()?;
            let planned = physical_plan(&state, &nothing).await?;
            return Ok((planned, Arc::new(TaskContext::from(&state))));
        }
        let is_altered = altered.is_some();
        let rules = if corrects { altered.or(take_out(&mut statement)?) } else { None };
        let named = timed_future(Phase::Find, Named::of(&state, &statement)).await;
        let made = name_of_new(&statement);
        let not_null = (corrects && !alters).then(|| not_null(&statement));
        let logical = making(made, logical_plan(&state, statement, &text));
        let plan = self.beside_folders(timed_future(Phase::Logical, logical).await?)?;
        let plan = with_rules(plan, (rules, is_altered), &state).await?;
        let plan = match &self.parameters {
            Some(values) => with_values(plan, values)?,
            None => plan,
        };
        let (state, plan) = match plan {
            LogicalPlan::Statement(LogicalStatement::Execute(execute)) => {
                return self.execute(state, execute).await;
            }
            plan @ (LogicalPlan::Ddl(_) | LogicalPlan::Statement(_)) => {
                check_external(&plan)?;
                check_settings(&plan)?;
                let plan = analyzed(plan, &state)?;
                if keeps_a_plan(&plan) {
                    self.kept_levels.fetch_add(self.levels, Ordering::Relaxed);
                }
                if let Some(name) = prepared_name(&plan) {
                    self.generic.forget(name);
                }
                if let Some(database) = &self.database
                    && let Some(change) = Change::of(&plan, (database, persist), &state)
                {
                    return self.keep(database, change, plan).await;
                }
                return self.statement(plan, not_null.as_deref()).await;
            }
            plan => (state, plan),
        };
        let environment = self.statements.environment(&state);
        let is_repeatable = timed(Phase::Find, || Repeatable::of(&plan).is_some());
        let planned = physical_plan(&state, &plan).await?;
        let is_whole = self.parameters.is_none() && changes() == before && !has_dynamic_columns(&self.text);
        if let (Some(kept), Ok(named), true) = (&planned.kept, named, is_repeatable && is_whole) {
            self.statements.keep(&self.text, Arc::clone(&environment), named, kept);
        }
        let task = if overwrites(&text) { overwriting(&state) } else { Arc::clone(&environment.task) };
        Ok((planned, task))
    }

    /// A macro that is defined for several numbers of arguments, by the text of each.
    async fn define(&self, state: &SessionState, macros: &Macros, texts: &[String]) -> Result<Task> {
        let parse = || texts.iter().map(|text| parsed(state, text)).collect::<Result<Vec<Statement>>>();
        let statements = timed(Phase::Parse, parse)?;
        statements.iter().try_for_each(|statement| Access::of(state).check_statement(statement))?;
        macros.follow(&statements)?;
        self.of_macros(state).await
    }

    /// What a statement of macros becomes, which is done by now.
    async fn of_macros(&self, state: &SessionState) -> Result<Task> {
        self.kept_levels.fetch_add(self.levels, Ordering::Relaxed);
        // What they mean may be another thing now.
        self.statements.forget();
        let nothing = LogicalPlanBuilder::empty(false).build()?;
        let planned = physical_plan(state, &nothing).await?;
        Ok((planned, Arc::new(TaskContext::from(state))))
    }

    /// A statement that makes a table or view, whose name may be a folder's: that is no table which would be there already.
    fn beside_folders(&self, mut plan: LogicalPlan) -> Result<LogicalPlan> {
        match &mut plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(table)) => {
                let is_new = !self.context.table_exist(table.name.clone())?;
                table.or_replace |= is_new;
                table.if_not_exists &= !is_new;
            }
            LogicalPlan::Ddl(DdlStatement::CreateView(view)) => {
                view.or_replace |= !self.context.table_exist(view.name.clone())?;
            }
            _ => {}
        }
        Ok(plan)
    }

    /// What the context executes; what comes back is an empty relation, or the query that EXECUTE names. `not_null`: the columns of a new
    /// table that are declared so; nothing where the columns stay as the plan has them.
    async fn statement(&self, plan: LogicalPlan, not_null: Option<&[String]>) -> Result<Task> {
        let (table, view) = (NewTable::of(&plan, &self.context)?, name_of_view(&plan));
        let plan = self.context.execute_logical_plan(plan).await?.into_unoptimized_plan();
        if let (Some(table), Some(not_null)) = (table, not_null) {
            table.take_nulls(&self.context, not_null).await?;
        }
        self.sweep();
        let state = self.context.state();
        if let Some(view) = view {
            Views::remember(&state, &view, (&self.text, parsed(&state, &self.text)?)).await?;
        }
        let planned = physical_plan(&state, &plan).await?;
        Ok((planned, Arc::new(TaskContext::from(&state))))
    }

    /// A statement that changes the database: the session first, so that what it refuses is not kept.
    async fn keep(&self, database: &Database, change: Change, plan: LogicalPlan) -> Result<Task> {
        let state = self.context.state();
        let nothing = LogicalPlanBuilder::empty(false).build()?;
        match &change {
            Change::Table(create) => {
                let is_there = self.context.table_exist(create.name.clone())?;
                if let Some(name) = database.name_of_new(create, is_there, &state)? {
                    let (schema, rules) = (columns_of(create)?, rules_of(create)?);
                    let rows = physical_plan(&state, &create.input).await?;
                    database.create_table(&name, (rows.plan, schema), Some(&rules), &state).await?;
                }
            }
            Change::DropTable(_) => database.carry_out(&change, &self.text)?,
            Change::View(name) => {
                let view = name_of_view(&plan);
                self.context.execute_logical_plan(plan).await?;
                if let Err(error) = database.carry_out(&change, &self.text) {
                    // A view that does not last is none that was asked for.
                    self.context.deregister_table(name.as_str())?;
                    return Err(error);
                }
                if let Some(view) = view {
                    Views::remember(&state, &view, (&self.text, parsed(&state, &self.text)?)).await?;
                }
            }
            // A view whose tables are gone is one of the database, and none of the session.
            Change::DropView(name) if !self.context.table_exist(TableReference::bare(name.as_str()))? => {
                database.carry_out(&change, &self.text)?;
            }
            Change::DropView(_) | Change::Setting(..) => {
                self.context.execute_logical_plan(plan).await?;
                database.carry_out(&change, &self.text)?;
            }
        }
        self.sweep();
        let state = self.context.state();
        Ok((physical_plan(&state, &nothing).await?, Arc::new(TaskContext::from(&state))))
    }

    /// A prepared statement: by its generic plan, or planned with the values.
    async fn execute(&self, state: SessionState, execute: Execute) -> Result<Task> {
        let (mut learning, mut is_custom) = (None, false);
        match self.generic_plan(&state, &execute).await {
            Next::Run(planned, task) => return Ok((planned, task)),
            Next::Custom(found) => learning = found,
            Next::Plan(_) => {}
            Next::Never => is_custom = true,
        }
        let name = execute.name.clone();
        let execute = LogicalPlan::Statement(LogicalStatement::Execute(execute));
        let (mut planned, task) = self.statement(execute, None).await?;
        if is_custom {
            self.generic.give_up(&name);
        }
        if let Some(learning) = &learning {
            learning.see_custom(&planned.plan);
        }
        planned.learning = learning;
        Ok((planned, task))
    }

    /// The generic plan of a prepared statement, which is made where it is wanted. Whatever speaks against it, planning with the
    /// values says it better.
    async fn generic_plan(&self, state: &SessionState, execute: &Execute) -> Next {
        let options = KelpieOptions::of(state.config_options());
        let environment = self.generic.environment(state, &self.statements);
        let is_custom = self.is_custom || execute.parameters.is_empty() || self.text.len() > MOST_BYTES;
        if is_custom || self.generic.has_none(&execute.name, &options) {
            return Next::Custom(None);
        }
        let Some(marked) = marked(state, execute) else { return Next::Custom(None) };
        let marked = LogicalPlan::Statement(LogicalStatement::Execute(marked));
        let Ok(query) = self.context.execute_logical_plan(marked).await else { return Next::Never };
        let query = match GenericQuery::of(query.into_unoptimized_plan()) {
            Ok(Some(query)) => query,
            Ok(None) => return Next::Custom(None),
            Err(_) => return Next::Never,
        };
        let asked = Asked { name: &execute.name, query: &query, environment: &environment };
        match self.generic.next(asked, state).await {
            Next::Plan(learning) => match planned_generically(state, &query, learning).await {
                Some(planned) => Next::Run(planned, Arc::clone(&environment.task)),
                None => Next::Custom(None),
            },
            next => next,
        }
    }

    /// A table that was dropped or changed goes with the plans of it.
    fn sweep(&self) {
        self.statements.sweep();
        self.generic.sweep();
        if let Some(planner) = KelpiePlanner::of(&self.context.state_ref().read()) {
            planner.kept().sweep();
        }
    }
}

async fn physical_plan(state: &SessionState, plan: &LogicalPlan) -> Result<Planned> {
    match KelpiePlanner::of(state) {
        Some(planner) => {
            let optimized = timed(Phase::Logical, || state.optimize(plan))?;
            planner.plan(&optimized, state).await
        }
        // A planner of the embedder's is around it.
        None => state.create_physical_plan(plan).await.map(Planned::once),
    }
}

pub(crate) fn parsed(state: &SessionState, sql: &str) -> Result<Statement> {
    let parse = |sql: &str| {
        let dialect = &state.config_options().sql_parser.dialect;
        // ALTER … TYPE … USING is PostgreSQL's for the parser.
        state.sql_to_statement(sql, dialect).or_else(|error| match alters_by_value(sql) {
            true => state.sql_to_statement(sql, &SqlDialect::PostgreSQL).map_err(|_| error),
            false => Err(error),
        })
    };
    let mut statement = match KelpieOptions::of(state.config_options()).corrections {
        true => {
            let written = dialect::written(sql, &GenericDialect)?;
            let mut statement = corrections::parsed(&written.sql, &GenericDialect, parse)?;
            dialect::rewrite(&mut statement, &written, state)?;
            corrections::correct(&mut statement)?;
            statement
        }
        false => parse(sql)?,
    };
    balance(&mut statement);
    written_as_named(&mut statement);
    Ok(statement)
}

pub(crate) async fn logical_plan(
    state: &SessionState,
    statement: Statement,
    sql: &str,
) -> Result<LogicalPlan> {
    if KelpieOptions::of(state.config_options()).corrections {
        renewed::renew(state, &statement).await?;
    }
    plan_of(state, statement, (sql, &|| parsed(state, sql))).await
}

/// The plan of a statement over views as they were planned last; with its text, and with what gives the statement once more.
pub(crate) async fn plan_of(
    state: &SessionState,
    statement: Statement,
    (sql, once_more): (&str, &(dyn Fn() -> Result<Statement> + Send + Sync)),
) -> Result<LogicalPlan> {
    let mut statement = statement;
    if lists_columns(sql) {
        look_at_all(state).await;
    }
    let corrects = KelpieOptions::of(state.config_options()).corrections;
    if corrects {
        without_views_of_schemas(&mut statement, state)?;
        if name_of_change(&statement).is_some() {
            refuse_row_changes(&mut statement)?;
        }
    }
    let zoned = if corrects { with_zone(state, sql) } else { Cow::Borrowed(state) };
    let apart = if corrects { planned_apart(&zoned, &mut statement)? } else { None };
    let state = apart.as_ref().unwrap_or(&zoned);
    let with_columns = async |mut statement, which| {
        if corrects {
            take_out(&mut statement)?;
            look_up_values(state, sql, &mut statement).await?;
            expand_columns(state, sql, &mut statement).await?;
            expand_structs(state, sql, &mut statement).await?;
            expand_unnested(state, sql, &mut statement).await;
            name_columns(state, &mut statement).await?;
            write_out_columns(state, &mut statement, which).await?;
            write_out_orders(state, sql, &mut statement).await;
            spell_partitions(state, &mut statement).await;
        }
        Ok::<_, DataFusionError>(statement)
    };
    let planned = planned_as(state, with_columns(statement, Which::Merged).await).await;
    let has_signs = matches!(&planned, Err(error) if corrects && is_unsigned(error));
    let has_few_names = matches!(&planned, Err(error) if corrects && names_too_few(error));
    // Parsed again, as the planner consumed it: most statements are planned at once.
    let again = async |which| {
        let mut statement = once_more()?;
        if has_few_names {
            name_all(state, &mut statement).await;
        }
        let mut statement = with_columns(statement, which).await?;
        if has_signs {
            make_signed(&mut statement);
        }
        Ok::<_, DataFusionError>(statement)
    };
    let planned = match planned {
        Err(_) if has_signs || has_few_names => state.statement_to_plan(again(Which::Merged).await?).await,
        planned => planned,
    };
    let plan = match planned {
        Ok(plan) => plan,
        Err(error) if corrects && is_for_names(&error) => {
            planned_by_other_names(state, again(Which::Wildcards).await?).await?
        }
        Err(error) if corrects && is_sum_of_truths(&error) => {
            let mut summed = again(Which::Merged).await?;
            sum_numbers(&mut summed);
            state.statement_to_plan(summed).await.map_err(|_| error)?
        }
        Err(error) => replanned(state, &again(Which::Merged).await?, error).await?,
    };
    let plan = if apart.is_some() { computed_around(plan)? } else { run_as_a_whole(plan, state).await? };
    Access::of(state).check_plan(&plan)?;
    if corrects { share(plan) } else { Ok(plan) }
}

/// The plan of a statement that may be wrong already.
async fn planned_as(state: &SessionState, statement: Result<Statement>) -> Result<LogicalPlan> {
    state.statement_to_plan(statement?).await
}

/// The plan of a statement that was refused as two of its columns share a name.
async fn planned_by_other_names(state: &SessionState, statement: Statement) -> Result<LogicalPlan> {
    let mut renamed = statement.clone();
    let own = unique_names(&mut renamed, state);
    match state.statement_to_plan(renamed.clone()).await {
        Ok(plan) => own.restore(plan),
        // What is written in two ways may be one expression all the same: `(a).b, a.b`.
        Err(error) if is_for_names(&error) => {
            let mut renamed = statement;
            let own = names_of_all(&mut renamed, state);
            own.restore(state.statement_to_plan(renamed).await.map_err(|_| error)?)
        }
        Err(error) => own.restore(replanned(state, &renamed, error).await?),
    }
}

/// Whether a statement may say what values a column of another type gets.
fn alters_by_value(sql: &str) -> bool {
    let sql = sql.trim_start().to_ascii_lowercase();
    sql.starts_with("alter") && sql.contains("using")
}

/// Whether a statement may list all tables or their columns.
fn lists_columns(sql: &str) -> bool {
    let is_show = sql.trim_start().get(..4).is_some_and(|word| word.eq_ignore_ascii_case("show"));
    let lower = sql.to_ascii_lowercase();
    is_show
        || ["information_schema", "duckdb_tables", "duckdb_columns"].iter().any(|list| lower.contains(list))
}

/// The name of the table or view that a statement makes.
fn name_of_new(statement: &Statement) -> Option<String> {
    let Statement::Statement(statement) = statement else { return None };
    let name = match statement.as_ref() {
        SqlStatement::CreateTable(table) => &table.name,
        SqlStatement::CreateView(view) => &view.name,
        _ => return None,
    };
    name.0.last()?.as_ident().map(normal)
}

/// The name of the view that a plan makes.
fn name_of_view(plan: &LogicalPlan) -> Option<TableReference> {
    match plan {
        LogicalPlan::Ddl(DdlStatement::CreateView(view)) => Some(view.name.clone()),
        _ => None,
    }
}

/// A plan with values in the places of its placeholders.
fn with_values(plan: LogicalPlan, values: &ParamValues) -> Result<LogicalPlan> {
    let asked = plan.get_parameter_names()?;
    let given: Vec<String> = match values {
        ParamValues::List(values) => (1..=values.len()).map(|place| format!("${place}")).collect(),
        ParamValues::Map(values) => values.keys().map(|name| format!("${name}")).collect(),
    };
    let mut missing: Vec<&String> = asked.iter().filter(|name| !given.contains(name)).collect();
    missing.sort();
    if let Some(name) = missing.first() {
        return plan_err!(
            "the statement has {} parameters and {} values: there is none for {name}",
            asked.len(),
            given.len()
        );
    }
    if let Some(name) = given.iter().find(|name| !asked.contains(*name)) {
        return plan_err!(
            "the statement has {} parameters and {} values: it has no {name}",
            asked.len(),
            given.len()
        );
    }
    as_the_table_has_it(plan.with_param_values(values.clone())?)
}

/// The state that a statement is planned by: one with a zone where it names times with one. Without a zone of the session, DataFusion takes
/// these for local times.
fn with_zone<'a>(state: &'a SessionState, sql: &str) -> Cow<'a, SessionState> {
    let names_zone = || {
        let sql = sql.to_ascii_lowercase();
        sql.contains("timestamptz") || sql.contains("time zone")
    };
    if state.config_options().execution.time_zone.is_some() || !names_zone() {
        return Cow::Borrowed(state);
    }
    let mut state = state.clone();
    state.config_mut().options_mut().execution.time_zone = Some("+00:00".into());
    Cow::Owned(state)
}

/// A generic plan to run; nothing where there is none, which is remembered.
async fn planned_generically(
    state: &SessionState,
    query: &GenericQuery,
    learning: Learning,
) -> Option<Planned> {
    match physical_plan(state, &query.plan).await {
        Ok(planned) => learning.keep(&planned.plan, query),
        Err(_) => {
            learning.give_up();
            None
        }
    }
}

/// An error names the first option that a statement gives a value that it cannot have.
fn check_settings(plan: &LogicalPlan) -> Result<()> {
    match plan {
        LogicalPlan::Statement(LogicalStatement::SetVariable(set)) => {
            check_setting(&set.variable, &set.value)
        }
        LogicalPlan::Ddl(DdlStatement::CreateExternalTable(table)) => {
            table.options.iter().try_for_each(|(name, value)| check_setting(name, value))
        }
        _ => Ok(()),
    }
}

/// The name of a prepared statement that another one takes, or nobody has from now on.
fn prepared_name(plan: &LogicalPlan) -> Option<&str> {
    match plan {
        LogicalPlan::Statement(LogicalStatement::Prepare(prepare)) => Some(&prepare.name),
        LogicalPlan::Statement(LogicalStatement::Deallocate(deallocate)) => Some(&deallocate.name),
        _ => None,
    }
}

/// Whether the session keeps a plan that later statements refer to.
fn keeps_a_plan(plan: &LogicalPlan) -> bool {
    matches!(
        plan,
        LogicalPlan::Ddl(DdlStatement::CreateView(_) | DdlStatement::CreateFunction(_))
            | LogicalPlan::Statement(LogicalStatement::Prepare(_))
    )
}
