//! Kelpie in a session that was built without it.

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
use kelpie_engine::Engine;
use kelpie_session::{KelpieExec, KelpieSession, install};
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
            let text =
                text(&context, &format!("{explain} SELECT approx_median(x), k FROM t GROUP BY k")).await;
            assert!(
                text.contains("  ! ") && text.contains("approx_median is not compiled"),
                "{explain}\n{text}"
            );
        }
        let frame = context.sql("SELECT approx_median(x) FROM t").await.unwrap();
        let plan = frame.clone().explain(false, false).unwrap().to_string().await.unwrap();
        assert!(plan.contains("approx_median is not compiled"), "{plan}");
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
    let before = ["kelpie_file_facts", "kelpie_late_projections", "kelpie_constant_rows"];
    let behind = ["kelpie_recursive_terms", "kelpie", "kelpie_whole_writes"];
    assert_eq!(names, [before, behind].concat());
}

fn installed() -> SessionContext {
    let builder = SessionStateBuilder::new().with_config(config(2)).with_default_features();
    SessionContext::new_with_state(install(builder, Arc::new(Engine::new())).build())
}

/// Rows that fail after many good ones.
const FAILING: &str = "SELECT 10 / (value - 50000) AS x FROM range(100000)";

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_fails_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let run = async |context: &SessionContext, sql: String| context.sql(&sql).await?.collect().await;
    for partitions in [1, 4] {
        let context = installed();
        run(&context, format!("SET datafusion.execution.target_partitions = {partitions}")).await.unwrap();
        for format in ["csv", "parquet", "json", "arrow"] {
            let path = folder.path().join(format!("out.{format}"));
            std::fs::write(&path, "precious").unwrap();
            let error = run(&context, format!("COPY ({FAILING}) TO '{}'", path.display())).await.unwrap_err();
            assert!(error.to_string().contains("ivide by zero"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious", "{format}");
            run(&context, format!("COPY (SELECT 1 AS x) TO '{}'", path.display())).await.unwrap();
            assert_ne!(std::fs::read(&path).unwrap(), b"precious", "{format}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4, "nothing is left beside the files");
        let table = folder.path().join("t");
        std::fs::create_dir(&table).unwrap();
        let create =
            format!("CREATE EXTERNAL TABLE w (x BIGINT) STORED AS CSV LOCATION '{}/'", table.display());
        run(&context, create).await.unwrap();
        run(&context, format!("INSERT INTO w {FAILING}")).await.unwrap_err();
        assert_eq!(std::fs::read_dir(&table).unwrap().count(), 0);
        run(&context, "INSERT INTO w VALUES (1)".into()).await.unwrap();
        assert_eq!(std::fs::read_dir(&table).unwrap().count(), 1);
        std::fs::remove_dir_all(&table).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_over_a_context_has_what_its_state_cannot_carry() {
    let context = installed();
    with_tables(&context).await;
    let session = KelpieSession::over(context.clone()).unwrap();
    // The tables of the context, in any case, and its options.
    assert_eq!(session.sql("SELECT k, sum(x) FROM T GROUP BY k").await.unwrap().rows(), 3);
    let timing = session.last_metrics().unwrap();
    assert!(timing.compiled, "{timing:?}");
    // Statements of any depth: this one would abort the process.
    let deep = format!("SELECT {}x FROM t{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(session.sql(&deep).await.is_err());
    let sum = vec!["x"; 1000].join(" + ");
    assert_eq!(session.sql(&format!("SELECT {sum} FROM t")).await.unwrap().rows(), 4);
    // Tables of files, through the context too.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("Files.csv"), "x\n1\n").unwrap();
    assert_eq!(session.register_dir(folder.path()).await.unwrap(), ["Files"]);
    assert_eq!(session.tables(), ["Files", "t"]);
    assert!(text(&context, "SELECT x + 1 FROM files").await.contains('2'));
    assert!(session.register_path("t", folder.path()).await.unwrap_err().to_string().contains("exists"));
    // Files are named in queries only where that is allowed.
    let named = format!("SELECT x FROM '{}/Files.csv'", folder.path().display());
    assert!(context.sql(&named).await.is_err());
    session.name_files_in_queries();
    assert!(text(&context, &named).await.contains('1'));
    context.sql("DROP TABLE t").await.unwrap().collect().await.unwrap();
    assert_eq!(session.tables(), ["Files"]);
}

#[tokio::test]
async fn a_session_over_a_context_needs_what_it_stands_on() {
    let error = KelpieSession::over(SessionContext::new()).unwrap_err().to_string();
    assert!(error.contains("install"), "{error}");
    // Without a default schema there is no place for tables of files; the rest works.
    let config = config(1).with_create_default_catalog_and_schema(false);
    let builder = SessionStateBuilder::new().with_config(config).with_default_features();
    let context = SessionContext::new_with_state(install(builder, Arc::new(Engine::new())).build());
    let session = KelpieSession::over(context).unwrap();
    assert_eq!(session.sql("SELECT 1").await.unwrap().rows(), 1);
    let error = session.register_path("t", "t.csv").await.unwrap_err().to_string();
    assert!(error.contains("no default schema"), "{error}");
}
