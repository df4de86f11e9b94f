//! Plans that are kept: the same query is planned once, and nothing that its answer depends on is missed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use kelpie_engine::Engine;
use kelpie_session::{KelpieExec, KelpieSession, QueryTiming, SessionOptions, install};

/// A session in which Kelpie compiles whatever it can.
fn session() -> KelpieSession {
    KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap()
}

/// A session in which queries over these small tables are DataFusion's, on four partitions.
fn plain_session() -> KelpieSession {
    let options = SessionOptions::default()
        .with("kelpie.min_rows", "1000000")
        .with("kelpie.device", "cpu")
        .with("datafusion.execution.target_partitions", "4");
    KelpieSession::new(options).unwrap()
}

async fn run(session: &KelpieSession, sql: &str) -> (Vec<String>, QueryTiming) {
    let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    (lines(&result.batches), result.timing)
}

/// The rows, each with its values side by side, sorted.
fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let text = pretty_format_batches(batches).unwrap().to_string();
    let lines = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    let words = |line: &str| {
        line.split_whitespace().filter(|word| *word != "|").map(str::to_string).collect::<Vec<_>>().join(" ")
    };
    let mut lines: Vec<String> = lines.map(words).collect();
    lines.sort();
    lines
}

/// The only value, of a plan that was made for it.
async fn planned(session: &KelpieSession, sql: &str) -> String {
    let (rows, timing) = run(session, sql).await;
    assert!(!timing.plan_kept, "{sql} must be planned");
    rows.join(", ")
}

/// The only value, of a plan that was there.
async fn kept(session: &KelpieSession, sql: &str) -> String {
    let (rows, timing) = run(session, sql).await;
    assert!(timing.plan_kept, "{sql} must not be planned again");
    rows.join(", ")
}

async fn execute(session: &KelpieSession, statements: &[&str]) {
    for sql in statements {
        session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

fn numbers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn write_parquet(path: &Path, batch: &RecordBatch) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(100)).build();
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// Files `a` and `b`: `a` has 1000 rows with `k` from 0 and `x`, `b` every tenth key with `y`.
fn parquet_files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let a = [("k", numbers(0..1000)), ("x", numbers((0..1000).map(|k| k * 7 % 100)))];
    let b = [("k", numbers((0..1000).step_by(10))), ("y", numbers((0..100).map(|k| k % 5)))];
    write_parquet(&folder.path().join("a.parquet"), &RecordBatch::try_from_iter(a).unwrap());
    write_parquet(&folder.path().join("b.parquet"), &RecordBatch::try_from_iter(b).unwrap());
    folder
}

#[tokio::test]
async fn the_same_text_is_planned_once() {
    let session = session();
    execute(&session, &["create table t as values (1, 10), (2, 20), (1, 30)"]).await;
    let sql = "select column1, sum(column2) from t group by column1";
    let (rows, first) = run(&session, sql).await;
    assert!(!first.plan_kept && first.compiled);
    for _ in 0..3 {
        let (again, timing) = run(&session, sql).await;
        assert_eq!(again, rows);
        assert!(timing.plan_kept && timing.compiled && timing.reasons.is_empty());
        assert_eq!((timing.parts.len(), timing.device), (1, first.device.clone()));
    }
    // Another spelling is parsed, but the plan of it is there.
    assert_eq!(
        kept(&session, "SELECT column1, sum(column2)\nFROM t GROUP BY column1").await,
        rows.join(", ")
    );
    let (statements, plans) = session.kept();
    assert_eq!((statements, plans), (2, 1 + 1), "CREATE TABLE AS plans its query too");
}

#[tokio::test]
async fn reasons_are_told_again() {
    let session = session();
    execute(&session, &["create table t as values (1), (2), (3)"]).await;
    let sql = "select approx_median(column1) from t";
    let (_, first) = run(&session, sql).await;
    let (_, again) = run(&session, sql).await;
    assert!(again.plan_kept && !again.compiled);
    assert!(!first.reasons.is_empty());
    assert_eq!(first.reasons, again.reasons);
}

#[tokio::test]
async fn files_that_change_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("t")).unwrap();
    write("t/a.csv", "x\n1\n");
    let session = session();
    session.register_dir(folder.path()).await.unwrap();
    execute(&session, &["create view v as select sum(x) as s from t"]).await;
    let path = folder.path().display();
    let external = format!("create external table e stored as csv location '{path}/t/'");
    execute(&session, &[&external]).await;
    let queries = [
        "select sum(x) from t".to_string(),
        "select s from v".into(),
        format!("select sum(x) from '{path}/t/'"),
        format!("select sum(x) from '{path}/t/*.csv'"),
        "select sum(x) from e".into(),
    ];
    let steps: [(&str, &dyn Fn()); 4] = [
        ("1", &|| ()),
        ("21", &|| write("t/b.csv", "x\n20\n")),
        ("321", &|| write("t/a.csv", "x\n1\n300\n")),
        ("301", &|| fs::remove_file(folder.path().join("t/b.csv")).unwrap()),
    ];
    for (expected, change) in steps {
        change();
        for sql in &queries {
            assert_eq!(planned(&session, sql).await, expected, "{sql}");
            assert_eq!(kept(&session, sql).await, expected, "{sql}");
        }
    }
    fs::remove_file(folder.path().join("t/a.csv")).unwrap();
    for sql in &queries[..4] {
        assert!(session.sql(sql).await.is_err(), "{sql}");
    }
}

#[tokio::test]
async fn tables_that_change_are_seen() {
    let session = session();
    let sql = "select count(*), sum(column1) from t";
    execute(&session, &["create table t as values (1), (2)"]).await;
    assert_eq!((planned(&session, sql).await, kept(&session, sql).await), ("2 3".into(), "2 3".into()));
    execute(&session, &["insert into t values (10)"]).await;
    assert_eq!((planned(&session, sql).await, kept(&session, sql).await), ("3 13".into(), "3 13".into()));
    execute(&session, &["drop table t", "create table t as values (5)"]).await;
    assert_eq!((planned(&session, sql).await, kept(&session, sql).await), ("1 5".into(), "1 5".into()));
    execute(&session, &["create or replace table t as values (6), (7)"]).await;
    assert_eq!((planned(&session, sql).await, kept(&session, sql).await), ("2 13".into(), "2 13".into()));
    execute(&session, &["drop table t"]).await;
    assert!(session.sql(sql).await.is_err());
    // A view, and what it is of.
    execute(&session, &["create view t as values (8)"]).await;
    assert_eq!((planned(&session, sql).await, kept(&session, sql).await), ("1 8".into(), "1 8".into()));
    execute(&session, &["create or replace view t as values (9), (9)"]).await;
    assert_eq!((planned(&session, sql).await, kept(&session, sql).await), ("2 18".into(), "2 18".into()));
    // A table of another schema under the name that the session's options give.
    execute(&session, &["create schema s", "create table s.t as values (100)"]).await;
    assert_eq!(kept(&session, sql).await, "2 18");
    session.set("datafusion.catalog.default_schema", "s").unwrap();
    assert_eq!(planned(&session, sql).await, "1 100");
}

#[tokio::test]
async fn an_empty_table_is_one_too() {
    let session = session();
    execute(&session, &["create table t (x bigint)"]).await;
    let sql = "select count(x), max(x) from t";
    planned(&session, sql).await;
    assert_eq!(kept(&session, sql).await, "0");
    execute(&session, &["insert into t values (3)"]).await;
    assert_eq!(planned(&session, sql).await, "1 3");
}

#[tokio::test]
async fn options_are_part_of_a_plan() {
    let session = session();
    execute(&session, &["create table t as values (1), (2)"]).await;
    let sql = "select arrow_cast(column1, 'Timestamp(Nanosecond, None)')::timestamptz from t";
    let utc = planned(&session, sql).await;
    assert_eq!(kept(&session, sql).await, utc);
    execute(&session, &["set datafusion.execution.time_zone = '+02:00'"]).await;
    assert_ne!(planned(&session, sql).await, utc);
    // And of what runs it.
    let sql = "select sum(column1) from t";
    planned(&session, sql).await;
    kept(&session, sql).await;
    session.set("kelpie.device", "simt").unwrap();
    let (_, timing) = run(&session, sql).await;
    assert!(
        !timing.plan_kept && timing.device.as_ref().is_some_and(|device| device.contains("simt")),
        "{timing:?}"
    );
    session.set("kelpie.variant.group_table", "hash").unwrap();
    planned(&session, sql).await;
    kept(&session, sql).await;
    session.set("kelpie.enabled", "false").unwrap();
    for _ in 0..2 {
        let (_, timing) = run(&session, sql).await;
        assert!(!timing.plan_kept && timing.device.is_none());
    }
}

/// A function that multiplies.
fn times(factor: i64, calls: &Arc<AtomicUsize>) -> datafusion::logical_expr::ScalarUDF {
    let calls = Arc::clone(calls);
    create_udf(
        "times",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(move |arguments: &[ColumnarValue]| {
            calls.fetch_add(1, Ordering::Relaxed);
            let arrays = ColumnarValue::values_to_arrays(arguments)?;
            let values = arrays[0].as_any().downcast_ref::<Int64Array>().unwrap();
            let products: Int64Array = values.iter().map(|value| value.map(|value| value * factor)).collect();
            Ok(ColumnarValue::Array(Arc::new(products)))
        }),
    )
}

#[tokio::test]
async fn functions_are_part_of_a_plan() {
    let session = session();
    execute(&session, &["create table t as values (1), (2)"]).await;
    let calls = Arc::default();
    session.context().register_udf(times(10, &calls));
    let sql = "select sum(times(column1)) from t";
    assert_eq!((planned(&session, sql).await, kept(&session, sql).await), ("30".into(), "30".into()));
    session.context().register_udf(times(100, &calls));
    assert_eq!((planned(&session, sql).await, kept(&session, sql).await), ("300".into(), "300".into()));
    // One that has nothing to do with the statement makes it planned again all the same, but the plan is there.
    session.context().register_udf(create_udf(
        "other",
        vec![],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(|_: &[ColumnarValue]| Ok(ColumnarValue::Array(numbers([7])))),
    ));
    assert_eq!(kept(&session, sql).await, "300");
    session.context().deregister_udf("times");
    assert!(session.sql(sql).await.is_err());
}

#[tokio::test]
async fn what_changes_by_itself_is_never_kept() {
    let session = session();
    execute(&session, &["create table t as values (1), (2)"]).await;
    for sql in [
        "select now()",
        "select now() from t",
        "select max(random()) from t",
        "select column1, uuid() from t",
        "select (select random()) from t",
        "select column1 from t where exists (select 1 from t b where random() > 0 and b.column1 = t.column1)",
    ] {
        let (first, _) = run(&session, sql).await;
        let (second, timing) = run(&session, sql).await;
        assert!(!timing.plan_kept, "{sql}");
        assert!(first != second || sql.contains("exists"), "{sql}: {first:?}");
    }
    for sql in ["select current_date from t", "select current_time from t", "select date_trunc('day', now())"]
    {
        planned(&session, sql).await;
        // The day may be the same, and its plan be found; the text is not what finds it.
        run(&session, sql).await;
    }
    assert_eq!(session.kept().0, 0);
    // What is no query runs each time.
    for _ in 0..2 {
        let (_, timing) = run(&session, "insert into t values (1)").await;
        assert!(!timing.plan_kept);
        let (_, timing) = run(&session, "explain select * from t").await;
        assert!(!timing.plan_kept);
    }
    assert_eq!(run(&session, "select count(*) from t").await.0, ["4"]);
    let tables = "select table_name from information_schema.tables where table_schema = 'public'";
    assert_eq!(run(&session, tables).await.0, ["t"]);
    execute(&session, &["create table u as values (1)"]).await;
    assert_eq!(run(&session, tables).await.0, ["t", "u"]);
}

#[tokio::test]
async fn a_view_of_what_changes_by_itself_is_never_kept() {
    let session = session();
    execute(
        &session,
        &[
            "create table t as values (1), (2)",
            "create view clock as select column1, now() as moment from t",
            "create view dice as select random() as value from t",
            "create view clocks as select moment from clock where column1 = 1",
            "prepare told as select max(moment) from clock",
        ],
    )
    .await;
    let frame = session.context().sql("select max(column1), now() as moment from t").await.unwrap();
    session.context().register_table("frame", frame.into_view()).unwrap();
    for sql in [
        "select max(moment) from clock",
        "select moment from clocks",
        "select max(value) from dice",
        "select moment from frame",
        "with c as (select moment from clock) select max(moment) from c",
        "execute told",
    ] {
        let (first, _) = run(&session, sql).await;
        let (second, timing) = run(&session, sql).await;
        assert!(!timing.plan_kept && first != second, "{sql}: {first:?}");
    }
    assert_eq!(session.kept().0, 0);
}

/// Queries whose plans have operators with state of every kind; each gives the same rows every time.
const STATEFUL: [&str; 24] = [
    "select a.k, b.y from a join b on a.k = b.k where a.x < 50",
    "select a.k, b.y from a join b on a.k = b.k where b.y = 3 order by a.k limit 7",
    "select k, x from a order by x, k limit 5",
    "select k, x from a order by k desc limit 5",
    "select min(k), max(k) from a",
    "select min(x) from a where k > 20",
    "select a.k, c.y from a cross join (select y from b where k < 30) c where a.k < 4",
    "select a.k, b.k from a join b on a.k < b.k and a.x > 95 where b.y = 1",
    "select a.k, b.y from a left join b on a.k = b.k where a.k < 40",
    "select a.k, b.k from a full join b on a.k = b.k + 995",
    "select k from a where k in (select k from b where y = 2)",
    "select k from a where k not in (select k from b) and k < 30",
    "select k from a where x > (select avg(x) + 48 from a)",
    "select k, (select max(y) from b) from a where k < 3",
    "select k from a where x = (select max(x) from a where k < (select max(k) from b)) and k < 300",
    "select y, count(*) from b group by y having count(*) >= (select count(*) / 10 from b)",
    "select k, row_number() over (partition by x order by k) from a where k < 300",
    "select k, sum(x) over (order by k rows between 2 preceding and current row) from a where k < 40",
    "select * from (select k, x, row_number() over (partition by x order by k) as n from a) where n <= 1 and k < 9",
    "with recursive r as (select 1 as n union all select n + 1 from r where n < 20) select sum(n) from r",
    "with recursive r as (select 0 as n union all select n + 10 from r where n < 90)
     select r.n, b.y from r join b on r.n = b.k",
    "select k from a where k < 5 union all select y from b where k < 50",
    "select count(*) from (select k from a union select k + 500 from a)",
    "select x, count(distinct k), sum(x) filter (where k > 500) from a group by x having count(*) > 9 limit 200",
];

async fn runs_three_times(session: &KelpieSession, reference: &SessionContext, sql: &str) {
    let expected = lines(&reference.sql(sql).await.unwrap().collect().await.unwrap());
    for time in 0..3 {
        let (rows, timing) = run(session, sql).await;
        assert_eq!(rows, expected, "run {time} of {sql}");
        assert_eq!(timing.plan_kept, time > 0, "run {time} of {sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_with_state_run_again() {
    let folder = parquet_files();
    let reference = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    for name in ["a", "b"] {
        let path = folder.path().join(format!("{name}.parquet")).display().to_string();
        reference.register_parquet(name, &path, Default::default()).await.unwrap();
    }
    let small_first = [("datafusion.optimizer.prefer_hash_join", "false"), ("kelpie.join_order", "false")];
    for (session, settings) in [
        (session(), &[][..]),
        (plain_session(), &[]),
        // Sort-merge joins, which DataFusion plans where it may not hash.
        (plain_session(), &small_first),
        (plain_session(), &[("datafusion.execution.parquet.pushdown_filters", "true")]),
        (plain_session(), &[("datafusion.optimizer.enable_piecewise_merge_join", "true")]),
    ] {
        for (name, value) in settings {
            session.set(name, value).unwrap();
        }
        session.register_dir(folder.path()).await.unwrap();
        for sql in STATEFUL {
            runs_three_times(&session, &reference, sql).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_runs_many_times_at_once() {
    let folder = parquet_files();
    for session in [session(), plain_session()] {
        session.register_dir(folder.path()).await.unwrap();
        let session = Arc::new(session);
        for sql in STATEFUL {
            let (expected, _) = run(&session, sql).await;
            let again = (0..4).map(|_| {
                let session = Arc::clone(&session);
                tokio::spawn(async move { run(&session, sql).await })
            });
            for task in again.collect::<Vec<_>>() {
                let (rows, timing) = task.await.unwrap();
                assert!(rows == expected && timing.plan_kept, "{sql}: {rows:?}, not {expected:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_query_that_stops_early_leaves_the_plan_whole() {
    let folder = parquet_files();
    let session = plain_session();
    session.register_dir(folder.path()).await.unwrap();
    for sql in STATEFUL {
        let (expected, _) = run(&session, sql).await;
        // Nobody takes its rows.
        drop(session.start(sql).await.unwrap());
        let mut query = session.start(sql).await.unwrap();
        let _ = query.next().await.unwrap();
        drop(query);
        assert_eq!(run(&session, sql).await.0, expected, "{sql}");
    }
}

#[tokio::test]
async fn what_falls_back_is_planned_again() {
    let session = session();
    // Kernels do not read a number of so many digits.
    let number = format!("7.{}", "0".repeat(200));
    execute(&session, &["create table t as values ('1'), ('2')"]).await;
    let sql = "select sum(cast(column1 as double)) from t";
    assert_eq!(planned(&session, sql).await, "3.0");
    assert_eq!(kept(&session, sql).await, "3.0");
    execute(&session, &[&format!("insert into t values ('{number}')")]).await;
    for _ in 0..3 {
        let (rows, timing) = run(&session, sql).await;
        assert_eq!(rows, ["10.0"]);
        assert!(!timing.plan_kept && !timing.compiled, "{timing:?}");
    }
    // An error is the same error every time.
    let sql = "select sum(10 / (octet_length(column1) - 1)) from t";
    let error = |result: datafusion::error::Result<_>| result.map(|_| ()).unwrap_err().strip_backtrace();
    let first = error(session.sql(sql).await);
    for _ in 0..2 {
        assert_eq!(error(session.sql(sql).await), first);
    }
}

#[tokio::test]
async fn no_more_are_kept_than_may_be() {
    let session = session();
    execute(&session, &["set kelpie.kept_plans = 3", "create table t as values (1), (2)"]).await;
    let sql = |i: usize| format!("select sum(column1 + {i}) from t");
    for i in 0..10 {
        planned(&session, &sql(i)).await;
        assert_eq!(kept(&session, &sql(i)).await, (3 + 2 * i).to_string());
    }
    assert_eq!(session.kept(), (3, 3));
    planned(&session, &sql(0)).await;
    kept(&session, &sql(9)).await;
    execute(&session, &["set kelpie.kept_plans = 0"]).await;
    planned(&session, &sql(9)).await;
    planned(&session, &sql(9)).await;
    let long = format!("select sum(column1) from t -- {}", "x".repeat(100_000));
    execute(&session, &["set kelpie.kept_plans = 3"]).await;
    planned(&session, &long).await;
    assert_eq!(session.kept().0, 0);
}

#[tokio::test]
async fn a_table_that_is_dropped_is_not_kept_alive() {
    let session = session();
    let column = numbers(0..20_000);
    let weak = Arc::downgrade(&column);
    let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
    session.context().register_table("t", Arc::new(table)).unwrap();
    for sql in ["select sum(x) from t", "select x from t where x < 3", "select sum(x) from t where x > 5"] {
        planned(&session, sql).await;
        kept(&session, sql).await;
    }
    assert_eq!(session.kept(), (3, 3));
    assert!(weak.upgrade().is_some());
    execute(&session, &["drop table t"]).await;
    assert_eq!(session.kept(), (0, 0));
    assert!(weak.upgrade().is_none());
}

#[tokio::test]
async fn prepared_statements_reuse_plans() {
    let session = session();
    session.set("kelpie.generic_plans", "never").unwrap();
    execute(&session, &["create table t as values (1, 10), (2, 20), (3, 30)"]).await;
    execute(&session, &["prepare p(bigint) as select sum(column2) from t where column1 > $1"]).await;
    assert_eq!(planned(&session, "execute p(1)").await, "50");
    assert_eq!(kept(&session, "execute p(1)").await, "50");
    assert_eq!(planned(&session, "execute p(2)").await, "30");
    assert_eq!(kept(&session, "execute p(2)").await, "30");
    assert_eq!(kept(&session, "execute p(1)").await, "50");
    // The query itself is the same, and its plan.
    assert_eq!(kept(&session, "select sum(column2) from t where column1 > 1").await, "50");
    execute(
        &session,
        &["deallocate p", "prepare p(bigint) as select max(column2) from t where column1 < $1"],
    )
    .await;
    assert_eq!(planned(&session, "execute p(1)").await, "");
    assert_eq!(planned(&session, "execute p(3)").await, "20");
    execute(&session, &["insert into t values (2, 25)"]).await;
    assert_eq!(planned(&session, "execute p(3)").await, "25");
}

#[tokio::test]
async fn constants_that_differ_only_in_kind_are_different() {
    let session = session();
    execute(&session, &["create table t as values (1), (2)"]).await;
    let zoned = |zone: &str| {
        format!(
            "select arrow_typeof(coalesce(arrow_cast(null, '{zone}'), arrow_cast(0, '{zone}'))), column1 from t"
        )
    };
    for zone in ["Timestamp(Nanosecond, Some(\"+01:00\"))", "Timestamp(Nanosecond, Some(\"+02:00\"))"] {
        let rows = planned(&session, &zoned(zone)).await;
        assert!(rows.contains(&zone[27..32]), "{rows}");
        kept(&session, &zoned(zone)).await;
    }
    for (sql, shown) in
        [("select 0.0 + column1 * 0.0 from t", "0.0"), ("select '1' from t", "1"), ("select 1 from t", "1")]
    {
        assert!(planned(&session, sql).await.contains(shown));
        assert!(kept(&session, sql).await.contains(shown));
    }
}

/// A session of an embedder's, with Kelpie.
fn installed() -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(4);
    let builder = SessionStateBuilder::new().with_config(config).with_default_features();
    let state = install(builder, Arc::new(Engine::new())).build();
    let context = SessionContext::new_with_state(state);
    context.register_udf(times(10, &Arc::default()));
    context
}

/// The plan that the session makes of a query.
async fn plan_of(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    context.sql(sql).await.unwrap().create_physical_plan().await.unwrap()
}

/// What tells copies of one kept plan from other plans: the compiled part's own sub-plan, which they share.
fn origin(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match plan.downcast_ref::<KelpieExec>() {
        Some(compiled) => Arc::clone(compiled.original()),
        None => origin(plan.children().first().unwrap()),
    }
}

#[tokio::test]
async fn the_planner_of_any_session_keeps_plans() {
    let context = installed();
    for sql in ["set kelpie.device = 'cpu'", "create table t as values (1, 10), (2, 20), (1, 30)"] {
        context.sql(sql).await.unwrap().collect().await.unwrap();
    }
    let sql = "select column1, sum(column2) from t group by column1";
    let (first, second) = (plan_of(&context, sql).await, plan_of(&context, sql).await);
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&origin(&first), &origin(&second)));
    // Both run, together and again, and what they say of themselves is theirs.
    let mut answers = Vec::new();
    for plan in [&first, &second, &plan_of(&context, sql).await] {
        answers.push(lines(&collect(Arc::clone(plan), context.task_ctx()).await.unwrap()));
        let compiled = plan.downcast_ref::<KelpieExec>().unwrap();
        assert_eq!(compiled.metrics().unwrap().output_rows(), Some(2));
    }
    assert!(answers.iter().all(|answer| *answer == ["1 40", "2 20"]), "{answers:?}");
    // A change of the data, of the table, of an option, of a function.
    context.sql("insert into t values (2, 2)").await.unwrap().collect().await.unwrap();
    let third = plan_of(&context, sql).await;
    assert!(!Arc::ptr_eq(&origin(&third), &origin(&first)));
    assert_eq!(lines(&collect(third, context.task_ctx()).await.unwrap()), ["1 40", "2 22"]);
    context.sql("set kelpie.threads = 2").await.unwrap().collect().await.unwrap();
    let (third, fourth) = (plan_of(&context, sql).await, plan_of(&context, sql).await);
    assert!(Arc::ptr_eq(&origin(&third), &origin(&fourth)));
    let renamed = "select times(column1), sum(column2) from t group by times(column1)";
    let before = lines(&context.sql(renamed).await.unwrap().collect().await.unwrap());
    context.register_udf(times(3, &Arc::default()));
    let after = lines(&context.sql(renamed).await.unwrap().collect().await.unwrap());
    assert_eq!(
        (before, after),
        (vec!["10 40".to_string(), "20 22".into()], vec!["3 40".to_string(), "6 22".into()])
    );
    // A DataFrame is a plan like any other.
    let table = context.table("t").await.unwrap();
    assert_eq!(table.clone().count().await.unwrap(), 4);
    context.sql("insert into t values (2, 2)").await.unwrap().collect().await.unwrap();
    assert_eq!(table.count().await.unwrap(), 5);
    context.sql("drop table t").await.unwrap().collect().await.unwrap();
    context.sql("create table t as values (7, 7)").await.unwrap().collect().await.unwrap();
    assert_eq!(lines(&context.sql(sql).await.unwrap().collect().await.unwrap()), ["7 7"]);
}

#[tokio::test]
async fn explain_analyze_counts_one_run() {
    let context = installed();
    for sql in [
        "set kelpie.device = 'cpu'",
        "create table t as select value as x from generate_series(1, 100) as g(value)",
    ] {
        context.sql(sql).await.unwrap().collect().await.unwrap();
    }
    let sql = "select x from t where x % 2 = 0 order by x limit 10";
    for _ in 0..3 {
        context.sql(sql).await.unwrap().collect().await.unwrap();
        let text = context.sql(&format!("explain analyze {sql}")).await.unwrap().to_string().await.unwrap();
        assert!(text.contains("output_rows=10") && !text.contains("output_rows=20"), "{text}");
    }
}

#[tokio::test]
async fn the_metrics_of_datafusions_operators_are_of_one_run() {
    let folder = parquet_files();
    let context = installed();
    for name in ["a", "b"] {
        let path = folder.path().join(format!("{name}.parquet")).display().to_string();
        context.register_parquet(name, &path, Default::default()).await.unwrap();
    }
    for sql in STATEFUL {
        let mut counts = Vec::new();
        for _ in 0..3 {
            let plan = plan_of(&context, sql).await;
            collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
            counts.push(plan.metrics().and_then(|metrics| metrics.output_rows()));
        }
        assert!(counts.windows(2).all(|pair| pair[0] == pair[1]), "{sql}: {counts:?}");
    }
}

#[tokio::test]
async fn an_unknown_table_is_asked_each_time() {
    /// A table in memory that DataFusion knows nothing of but its rows.
    #[derive(Debug)]
    struct Own(MemTable);

    #[async_trait::async_trait]
    impl datafusion::catalog::TableProvider for Own {
        fn schema(&self) -> datafusion::arrow::datatypes::SchemaRef {
            self.0.schema()
        }

        fn table_type(&self) -> datafusion::datasource::TableType {
            self.0.table_type()
        }

        async fn scan(
            &self,
            session: &dyn datafusion::catalog::Session,
            projection: Option<&Vec<usize>>,
            filters: &[datafusion::logical_expr::Expr],
            limit: Option<usize>,
        ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
            self.0.scan(session, projection, filters, limit).await
        }
    }

    let session = session();
    let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, false)]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![numbers([1, 2])]).unwrap();
    let own = Own(MemTable::try_new(schema, vec![vec![batch]]).unwrap());
    session.context().register_table("own", Arc::new(own)).unwrap();
    planned(&session, "select sum(x) from own").await;
    assert_eq!(planned(&session, "select sum(x) from own").await, "3");
}
