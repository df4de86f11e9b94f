//! Sessions whose statements come from others than their owner.

use std::fs;
use std::time::Duration;

use datafusion::error::DataFusionError;
use kelpie_session::{Access, KelpieSession, Refused, SessionOptions, message};

fn session(access: Access) -> KelpieSession {
    KelpieSession::new(SessionOptions::default().with_access(access).with("kelpie.device", "cpu")).unwrap()
}

fn is_refused(result: Result<impl Sized, DataFusionError>, text: &str) {
    let Err(error) = result else { panic!("{text}: it was not refused") };
    assert!(Refused::is(&error), "{error}");
    assert!(message(&error).contains(text), "{}", message(&error));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_only_reads_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv").display().to_string();
    fs::write(folder.path().join("given.csv"), "a\n1\n").unwrap();
    let session = session(Access { only_reads: true, ..Access::default() });
    session.register_dir(folder.path()).await.unwrap();
    for (sql, what) in [
        (format!("COPY (SELECT 1 AS a) TO '{path}'"), "COPY"),
        (format!("EXPLAIN ANALYZE COPY (SELECT 1 AS a) TO '{path}'"), "COPY"),
        ("PREPARE p AS INSERT INTO given VALUES (1)".into(), "Insert"),
        ("EXPLAIN DELETE FROM given".into(), "Delete"),
        ("UPDATE given SET a = 1 FROM given AS g RETURNING *".into(), "Update"),
        ("WITH q AS (SELECT 1) MERGE INTO given USING q ON true WHEN MATCHED THEN DELETE".into(), "Merge"),
        ("INSERT INTO given VALUES (1) RETURNING a".into(), "Insert"),
        ("TRUNCATE given".into(), "Truncate"),
        ("ALTER TABLE given RENAME TO other".into(), "ALTER TABLE"),
        ("CREATE TABLE t AS SELECT 1 AS a".into(), "does not run Create"),
        ("create or replace view v AS SELECT 1 AS a".into(), "does not run Create"),
        ("CREATE MACRO m(a) AS a + 1".into(), "CREATE MACRO"),
        ("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'".into(), "Create"),
        ("DROP TABLE IF EXISTS t".into(), "Drop"),
        ("SET datafusion.runtime.temp_directory = '/tmp/x'".into(), "datafusion.runtime.temp_directory"),
        ("RESET datafusion.runtime.memory_limit".into(), "datafusion.runtime.memory_limit"),
    ] {
        is_refused(session.sql(&sql).await, what);
        is_refused(session.describe(&sql).await, what);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    session.sql("SET kelpie.threads = 2").await.unwrap();
    session.sql("PREPARE p(BIGINT) AS SELECT $1 + 1 AS a").await.unwrap();
    assert_eq!(session.sql("EXECUTE p(1)").await.unwrap().rows(), 1);
    // Nor by its embedder on behalf of others.
    is_refused(session.set("datafusion.runtime.temp_directory", "/tmp/x"), "does not set");
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_name_the_files_that_were_given() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("a.csv"), "x\n1\n").unwrap();
    fs::write(folder.path().join("b.csv"), "x\n2\n").unwrap();
    let session = session(Access { files: Some(vec![own.clone()]), ..Access::default() });
    let own = own.display();
    for sql in [
        format!("SELECT * FROM '{own}/a.csv'"),
        format!("SELECT * FROM '{own}/*.csv'"),
        format!("SELECT * FROM '{own}'"),
        format!("SELECT * FROM read_csv(['{own}/a.csv'])"),
    ] {
        assert_eq!(session.sql(&sql).await.unwrap().rows(), 1, "{sql}");
    }
    for path in ["../b.csv", ".?/b.csv", ".{.,x}/b.csv", "{../b,a}.csv", "../not_there.csv", ".."] {
        for sql in [
            format!("SELECT * FROM '{own}/{path}'"),
            format!("SELECT * FROM read_csv('{own}/{path}')"),
            format!("PIVOT '{own}/{path}' ON x"),
        ] {
            is_refused(session.sql(&sql).await, "only the files that it was given");
        }
    }
    // A name that is none of a file is that of a table.
    let error = session.sql("SELECT * FROM own").await.unwrap_err();
    assert!(!Refused::is(&error) && message(&error).contains("own"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_setting_makes_a_statement_longer_than_it_may_be() {
    let session = session(Access { most_time: Some(Duration::from_millis(100)), ..Access::default() });
    let long =
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT (n + 1) % 1000 FROM r) SELECT count(*) FROM r";
    for timeout in ["0", "1h"] {
        session.sql(&format!("SET kelpie.timeout = '{timeout}'")).await.unwrap();
        let error = session.sql(long).await.unwrap_err();
        assert!(message(&error).contains("which is 100ms"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_before_a_planned_query_is_started_does_not_count() {
    let session = session(Access { most_time: Some(Duration::from_millis(400)), ..Access::default() });
    let planned = session.plan("SELECT sum(value) AS s FROM range(1000)", None).await.unwrap();
    assert_eq!(planned.schema().field(0).name(), "s");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut running = planned.start().unwrap();
    assert_eq!(running.next().await.unwrap().unwrap().num_rows(), 1);
    assert!(running.next().await.unwrap().is_none());
    assert!(running.finish().total_ns < 400_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_described_without_being_run() {
    let session = session(Access::default());
    session.sql("CREATE TABLE t (a BIGINT, b VARCHAR)").await.unwrap();
    let described = session.describe("SELECT b, a FROM t WHERE a = ? AND b LIKE ?").await.unwrap();
    assert!(described.is_query);
    let names: Vec<&str> = described.schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["b", "a"]);
    let places: Vec<Option<usize>> =
        described.parameters.iter().map(kelpie_session::Parameter::place).collect();
    assert_eq!(places, [Some(1), Some(2)]);
    assert_eq!(described.parameters[0].data_type.as_ref().unwrap().to_string(), "Int64");
    let ten = (1..=10).map(|place| format!("a = ${place}")).collect::<Vec<_>>().join(" OR ");
    let described = session.describe(&format!("SELECT a FROM t WHERE {ten}")).await.unwrap();
    assert_eq!(described.parameters.last().unwrap().place(), Some(10));
    let described = session.describe("SELECT $b, $a").await.unwrap();
    let names: Vec<&str> = described.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["$a", "$b"]);
    for sql in
        ["INSERT INTO t VALUES ($1, $2)", "SET kelpie.threads = 3", "CREATE MACRO m(a) AS a", "DROP TABLE t"]
    {
        let described = session.describe(sql).await.unwrap();
        assert!(!described.is_query, "{sql}");
        assert_eq!(described.parameters.len(), if sql.starts_with("INSERT") { 2 } else { 0 }, "{sql}");
    }
    assert_eq!(session.sql("SELECT * FROM t").await.unwrap().rows(), 0);
    assert!(session.describe("SELECT nowhere FROM t").await.is_err());
}
