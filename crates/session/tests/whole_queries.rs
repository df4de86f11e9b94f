//! Queries that compile as a whole: planned for DataFusion's operators only where these run them, and run on the thread that asks for
//! their rows where that takes no time.

use std::sync::Arc;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use kelpie_session::{KelpieExec, KelpieSession, QueryTiming, SessionOptions, Stage};

/// Parquet files `a` and `b`: `a` has 1000 rows with `k` from 0 and `x`, `b` every tenth key with `y`.
async fn tables() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let session = KelpieSession::new(SessionOptions::default()).unwrap();
    for (name, query) in [
        ("a", "select value as k, value * 7 % 100 as x from generate_series(0, 999)"),
        ("b", "select value * 10 as k, value % 5 as y from generate_series(0, 99)"),
    ] {
        let file = folder.path().join(format!("{name}.parquet"));
        session.sql(&format!("copy ({query}) to '{}'", file.display())).await.unwrap();
    }
    folder
}

/// The rows, each as text, sorted.
async fn run(session: &KelpieSession, sql: &str) -> (Vec<String>, QueryTiming) {
    let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let text = pretty_format_batches(&result.batches).unwrap().to_string();
    let mut rows: Vec<String> =
        text.lines().skip(3).filter(|line| line.starts_with('|')).map(Into::into).collect();
    rows.sort();
    (rows, result.timing)
}

/// On devices other than a CPU, what took no time runs on the thread that asks for its rows, which here is the only one of its
/// runtime: nothing may wait for another one.
#[tokio::test]
async fn quick_queries_run_on_one_thread() {
    let folder = tables().await;
    let options = SessionOptions::default().with("kelpie.device", "simt");
    let session = KelpieSession::new(options).unwrap();
    session.register_dir(folder.path()).await.unwrap();
    let sql = "select y, count(*), sum(x) from a join b on a.k = b.k group by y";
    let (rows, first) = run(&session, sql).await;
    assert!(first.compiled && rows.len() == 5, "{rows:?}");
    for round in 0..6 {
        // Then its columns must be read again, which needs the runtime.
        if round == 3 {
            session.clear_columns();
        }
        let (again, timing) = run(&session, sql).await;
        assert_eq!(again, rows);
        assert!(timing.plan_kept && timing.compiled, "{round}: {:?}", timing.reasons);
        assert_eq!(timing.transfer_bytes > 0, round == 3);
    }
    // What fails in Kelpie fails as in DataFusion, also where it was quick before.
    session.sql("create table z as values (1, 1), (2, 0), (3, 3)").await.unwrap();
    for _ in 0..3 {
        let error = session.sql("select sum(column1 / column2) from z").await.unwrap_err();
        assert!(error.to_string().contains("Divide by zero"), "{error}");
    }
}

/// A query that is compiled as a whole is planned for DataFusion's operators only where they run it.
#[tokio::test]
async fn a_whole_query_that_falls_back_runs_on_all_partitions() {
    let folder = tables().await;
    let options = SessionOptions::default()
        .with("kelpie.device", "cpu")
        .with("datafusion.execution.target_partitions", "4");
    let session = KelpieSession::new(options).unwrap();
    session.register_dir(folder.path()).await.unwrap();
    let sql =
        "select y, sum(100 / (x - 100)) from a join b on a.k = b.k group by y order by 2 desc, y limit 3";
    let plan = session.context().sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let compiled = plan.downcast_ref::<KelpieExec>().expect("compiled as a whole");
    let shown = |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(false).to_string();
    assert!(!shown(compiled.original()).contains("RepartitionExec"), "{}", shown(compiled.original()));
    let explained = session.explain(sql, Stage::Plan).await.unwrap();
    assert!(
        explained.contains("RepartitionExec") && explained.contains("SortPreservingMergeExec"),
        "{explained}"
    );
    // A division by zero is DataFusion's error, from its own operators and in its order of rows.
    let failing = sql.replace("x - 100", "x - 70");
    let error = session.sql(&failing).await.unwrap_err();
    assert!(error.to_string().contains("Divide by zero"), "{error}");
    let (rows, timing) = run(&session, sql).await;
    assert!(timing.compiled && timing.reasons.is_empty(), "{:?}", timing.reasons);
    session.set("kelpie.enabled", "false").unwrap();
    assert_eq!(run(&session, sql).await.0, rows);
}

/// DataFusion pushes the filter below the join by the name of its columns, and takes the `i` of one side for that of the other
/// (55.2, physical rule `FilterPushdown`): it gives the row. Of no row of `e`, the comparison is NULL.
#[tokio::test]
async fn a_filter_over_both_sides_of_a_join_stays_above_it() {
    let session = KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap();
    session.sql("create table e(k int, i int)").await.unwrap();
    session.sql("create table t as select 1 as k, 5 as i").await.unwrap();
    let sql = "select t.k from e full join t on e.k = t.k where coalesce(e.i, null) <= t.i";
    let (rows, timing) = run(&session, sql).await;
    assert!(timing.compiled && rows.is_empty(), "{rows:?}");
}
