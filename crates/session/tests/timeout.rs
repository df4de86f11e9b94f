//! `kelpie.timeout`: a statement that takes longer is cancelled, whatever it does, and the session goes on.

use std::time::{Duration, Instant};

use kelpie_session::{KelpieSession, SessionOptions};

/// Statements that would take hours, by what they are busy with.
const ENDLESS: [(&str, &str); 6] = [
    ("a nested loop", "SELECT count(*) FROM big a, big b WHERE a.v + b.v < 0"),
    ("a join with rows without end", "SELECT sum(a.v % 7) FROM big a JOIN big b ON a.v % 2 = b.v % 2"),
    (
        "rows that nobody can keep",
        "SELECT a.v, count(*) FROM big a, big b GROUP BY a.v HAVING count(*) < 0 ORDER BY 1",
    ),
    (
        "a recursion",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT (n + 1) % 1000 FROM r) SELECT count(*) FROM r",
    ),
    ("rows that are taken", "SELECT a.v, b.v FROM big a, big b"),
    (
        "a subquery a row",
        "SELECT count(*) FROM big a WHERE EXISTS (SELECT 1 FROM big b WHERE b.v > a.v + 10000000)",
    ),
];

/// Far more than a cancellation takes on a busy machine, and far less than any of the statements.
const PATIENCE: Duration = Duration::from_secs(20);

fn session(device: &str, enabled: &str) -> KelpieSession {
    let options = SessionOptions::default().with("kelpie.device", device).with("kelpie.enabled", enabled);
    KelpieSession::new(options).unwrap()
}

async fn end_in_time(session: &KelpieSession) {
    session.sql("CREATE TABLE big AS SELECT value AS v FROM range(2000000)").await.unwrap();
    session.sql("SET kelpie.timeout = '150ms'").await.unwrap();
    for (what, sql) in ENDLESS {
        let start = Instant::now();
        let Err(error) = session.sql(sql).await else { panic!("{what} has ended by itself") };
        let error = error.to_string();
        assert!(error.contains("kelpie.timeout allows, which is 150ms"), "{what}: {error}");
        assert!(start.elapsed() < PATIENCE, "{what}: {:?}", start.elapsed());
    }
    session.sql("SET kelpie.timeout = 0").await.unwrap();
    let answer = session.sql("SELECT count(*) AS n, sum(v) AS s FROM big").await.unwrap();
    assert_eq!(answer.batches[0].num_rows(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn compiled_statements_end_in_time() {
    for device in ["cpu", "simt"] {
        end_in_time(&session(device, "true")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_on_datafusions_operators_end_in_time() {
    end_in_time(&session("cpu", "false")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_before_is_not_touched() {
    let session = session("cpu", "true");
    session.sql("SET kelpie.timeout = '10min'").await.unwrap();
    let answer = session.sql("SELECT sum(value) FROM range(100000)").await.unwrap();
    assert_eq!(answer.batches.len(), 1);
    let shown = session.sql("SHOW kelpie.timeout").await.unwrap();
    assert!(format!("{:?}", shown.batches).contains("600000ms"));
}

/// A limit that is over while the statement is planned.
#[tokio::test(flavor = "multi_thread")]
async fn planning_counts_as_well() {
    let session = session("cpu", "true");
    session.sql("CREATE TABLE t (a int, b int)").await.unwrap();
    session.sql("SET kelpie.timeout = '1ms'").await.unwrap();
    let joins: String = (0..60).map(|n| format!(" JOIN t t{n} ON t{n}.a = t.b")).collect();
    let error = session.sql(&format!("SELECT * FROM t{joins}")).await.unwrap_err().to_string();
    assert!(error.contains("kelpie.timeout"), "{error}");
}
