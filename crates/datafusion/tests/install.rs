//! Kelpie in a session that was built without it.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::Int64Array;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::Session;
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{ColumnarValue, LogicalPlan, Volatility, create_udf};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::{SessionConfig, SessionContext};
use kelpie_datafusion::{KelpieExec, install};
use kelpie_engine::Engine;
use parking_lot::Mutex;

/// What a planner and a rule of the session's own have seen.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<&'static str>>);

#[derive(Debug)]
struct OwnPlanner(Arc<Seen>);

#[async_trait]
impl QueryPlanner for OwnPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.0.lock().push("planner");
        DefaultPhysicalPlanner::default().create_physical_plan(plan, session).await
    }
}

#[derive(Debug)]
struct OwnRule(Arc<Seen>);

impl PhysicalOptimizerRule for OwnRule {
    fn name(&self) -> &str {
        "own"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.0.lock().push("rule");
        Ok(plan)
    }
}

fn config(partitions: usize) -> SessionConfig {
    SessionConfig::new()
        .with_information_schema(true)
        .with_target_partitions(partitions)
        .set_str("datafusion.sql_parser.dialect", "PostgreSQL")
}

async fn text(context: &SessionContext, sql: &str) -> String {
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

async fn with_tables(context: &SessionContext) {
    for sql in [
        "SET kelpie.device = 'cpu'",
        "CREATE TABLE t AS SELECT * FROM (VALUES (1, 10), (2, 20), (1, 30), (NULL, NULL)) AS v(k, x)",
    ] {
        context.sql(sql).await.unwrap().collect().await.unwrap();
    }
}

#[tokio::test]
async fn a_session_keeps_what_it_had() {
    for partitions in [1, 4] {
        let seen = Arc::new(Seen::default());
        let seven = create_udf(
            "seven",
            vec![],
            datafusion::arrow::datatypes::DataType::Int64,
            Volatility::Immutable,
            Arc::new(|_: &[ColumnarValue]| Ok(ColumnarValue::Array(Arc::new(Int64Array::from(vec![7]))))),
        );
        let builder = SessionStateBuilder::new()
            .with_config(config(partitions))
            .with_default_features()
            .with_query_planner(Arc::new(OwnPlanner(Arc::clone(&seen))))
            .with_physical_optimizer_rule(Arc::new(OwnRule(Arc::clone(&seen))));
        let state = install(builder, Arc::new(Engine::new())).build();
        let context = SessionContext::new_with_state(state);
        context.register_udf(seven);
        with_tables(&context).await;
        seen.0.lock().clear();
        let plan = context.sql("SELECT k, sum(x) FROM t GROUP BY k").await.unwrap();
        let plan = plan.create_physical_plan().await.unwrap();
        assert!(plan.is::<KelpieExec>(), "{plan:?}");
        assert_eq!(*seen.0.lock(), ["planner", "rule"]);
        let state = context.state();
        assert_eq!(state.config().target_partitions(), partitions);
        assert_eq!(state.config_options().sql_parser.dialect.to_string().to_lowercase(), "postgresql");
        let names: Vec<&str> = state.physical_optimizers().iter().map(|rule| rule.name()).collect();
        let place = |name: &str| names.iter().position(|known| *known == name).unwrap();
        assert!(place("kelpie_join_order") < place("EnsureRequirements"), "{names:?}");
        assert!(place("own") < place("kelpie") && place("SanityCheckPlan") < place("kelpie"), "{names:?}");
        assert!(text(&context, "SELECT seven()").await.contains('7'));
        assert!(text(&context, "SHOW kelpie.device").await.contains("cpu"));
    }
}

#[tokio::test]
async fn explain_lists_reasons_through_any_context() {
    for partitions in [1, 4] {
        let builder = SessionStateBuilder::new().with_config(config(partitions)).with_default_features();
        let context = SessionContext::new_with_state(install(builder, Arc::new(Engine::new())).build());
        with_tables(&context).await;
        for explain in ["EXPLAIN", "EXPLAIN VERBOSE", "EXPLAIN ANALYZE"] {
            let text = text(&context, &format!("{explain} SELECT median(x), k FROM t GROUP BY k")).await;
            assert!(text.contains("  ! ") && text.contains("median is not compiled"), "{explain}\n{text}");
        }
        let frame = context.sql("SELECT median(x) FROM t").await.unwrap();
        let plan = frame.clone().explain(false, false).unwrap().to_string().await.unwrap();
        assert!(plan.contains("median is not compiled"), "{plan}");
        // Only plans that are explained carry the report.
        let plan = frame.create_physical_plan().await.unwrap();
        assert!(!format!("{plan:?}").contains("KelpieReport"), "{plan:?}");
        let compiled = text(&context, "EXPLAIN SELECT k, sum(x) FROM t GROUP BY k").await;
        assert!(compiled.contains("KelpieExec") && !compiled.contains("KelpieReport"), "{compiled}");
    }
}

#[tokio::test]
async fn installing_twice_is_installing_once() {
    let engine = Arc::new(Engine::new());
    let builder = SessionStateBuilder::new().with_config(config(2)).with_default_features();
    let once = install(builder, Arc::clone(&engine));
    let state = install(install(once, Arc::clone(&engine)), Arc::clone(&engine)).build();
    // A state that has it, too, with its options as they were set.
    let context = SessionContext::new_with_state(state);
    context.sql("SET kelpie.device = 'simt'").await.unwrap().collect().await.unwrap();
    let state = install(SessionStateBuilder::new_from_existing(context.state()), engine).build();
    let ours = |name: &str| state.physical_optimizers().iter().filter(|rule| rule.name() == name).count();
    assert_eq!((ours("kelpie"), ours("kelpie_join_order")), (1, 1));
    let context = SessionContext::new_with_state(state);
    assert!(text(&context, "SHOW kelpie.device").await.contains("simt"));
}

#[tokio::test]
async fn a_session_without_datafusion_s_rules_gets_no_join_order() {
    let builder = SessionStateBuilder::new().with_default_features().with_physical_optimizer_rules(vec![]);
    let state = install(builder, Arc::new(Engine::new())).build();
    let names: Vec<&str> = state.physical_optimizers().iter().map(|rule| rule.name()).collect();
    assert_eq!(names, ["kelpie"]);
}
