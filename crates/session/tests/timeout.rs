//! `kelpie.timeout`: a statement that takes longer ends with an error, whatever it does.

use std::time::{Duration, Instant};

use kelpie_session::{KelpieSession, SessionOptions};

/// Statements that take seconds and more, by what they are busy with.
const LONG: [(&str, &str); 3] = [
    (
        "a recursion",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT (n + 1) % 1000 FROM r) SELECT count(*) FROM r",
    ),
    ("a nested loop", "SELECT count(*) FROM big a, big b WHERE a.v + b.v < 0"),
    ("rows that many match", "SELECT sum(a.v % 7) FROM big a JOIN big b ON a.v % 2 = b.v % 2"),
];

/// Far more than an error takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn session(enabled: &str) -> KelpieSession {
    let options = SessionOptions::default().with("kelpie.device", "cpu").with("kelpie.enabled", enabled);
    KelpieSession::new(options).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_end_in_time() {
    for enabled in ["true", "false"] {
        for (what, sql) in LONG {
            // Kernels that still run keep no other statement from its turn: each has an engine of its own.
            let session = session(enabled);
            session.sql("CREATE TABLE big AS SELECT value AS v FROM range(20000)").await.unwrap();
            session.sql("SET kelpie.timeout = '100ms'").await.unwrap();
            let start = Instant::now();
            let Err(error) = session.sql(sql).await else { panic!("{what} has ended by itself") };
            let error = error.to_string();
            assert!(error.contains("kelpie.timeout allows, which is 100ms"), "{what}: {error}");
            assert!(start.elapsed() < PATIENCE, "{what}: {:?}", start.elapsed());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_after_a_statement_that_took_too_long() {
    let session = session("true");
    session.sql("SET kelpie.timeout = '100ms'").await.unwrap();
    let (_, recursion) = LONG[0];
    session.sql(recursion).await.unwrap_err();
    session.sql("SET kelpie.timeout = 0").await.unwrap();
    let answer = session.sql("SELECT count(*) FROM range(100000)").await.unwrap();
    assert_eq!(answer.batches.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_before_is_not_touched() {
    let session = session("true");
    session.sql("SET kelpie.timeout = '10min'").await.unwrap();
    let answer = session.sql("SELECT sum(value) FROM range(100000)").await.unwrap();
    assert_eq!(answer.batches.len(), 1);
    let shown = session.sql("SHOW kelpie.timeout").await.unwrap();
    assert!(format!("{:?}", shown.batches).contains("600000ms"));
}

/// A limit that is over while the statement is planned.
#[tokio::test(flavor = "multi_thread")]
async fn planning_counts_as_well() {
    let session = session("true");
    session.sql("CREATE TABLE t (a int, b int)").await.unwrap();
    session.sql("SET kelpie.timeout = '1ms'").await.unwrap();
    let joins: String = (0..60).map(|n| format!(" JOIN t t{n} ON t{n}.a = t.b")).collect();
    let error = session.sql(&format!("SELECT * FROM t{joins}")).await.unwrap_err().to_string();
    assert!(error.contains("kelpie.timeout"), "{error}");
}

/// An expression of DataFusion's that takes seconds a batch keeps all threads busy that it runs on. Those who wait have others.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn expressions_that_do_not_give_way_end_in_time() {
    let text = |column: &str, times: usize| format!("repeat(CAST({column} AS VARCHAR), {times})");
    let distance = format!("levenshtein({}, {})", text("a.v", 100), text("b.v", 140));
    for sql in [
        format!("SELECT a.v FROM big a, big b ORDER BY {distance}"),
        format!("SELECT max({distance}) FROM big a, big b"),
        format!("SELECT a.v FROM big a, big b WHERE {distance} < 0"),
    ] {
        let session = session("true");
        session.sql("CREATE TABLE big AS SELECT value + 10000 AS v FROM range(100)").await.unwrap();
        session.set("kelpie.timeout", "200ms").unwrap();
        let start = Instant::now();
        let error = session.sql(&sql).await.unwrap_err().to_string();
        assert!(error.contains("kelpie.timeout allows, which is 200ms"), "{sql}: {error}");
        assert!(start.elapsed() < Duration::from_secs(5), "{sql}: {:?}", start.elapsed());
        // The next one runs, with a limit and without.
        session.set("kelpie.timeout", "20s").unwrap();
        session.sql("SELECT count(*) FROM big WHERE v > 3").await.unwrap();
        session.set("kelpie.timeout", "0").unwrap();
        session.sql("SELECT max(v) FROM big").await.unwrap();
    }
}
