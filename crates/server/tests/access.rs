//! What a client may do without `allow_writes`, and what with it.

use std::fs;

use tonic::Code;

use crate::setup::{fails, fixture, query, status};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_or_made() {
    let fixture = fixture(|_| {}).await;
    let mut client = fixture.client().await;
    let out = fixture.folder.path().join("out.csv");
    let out = out.display();
    for sql in [
        format!("COPY t TO '{out}'"),
        format!("EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'"),
        format!("PREPARE p AS COPY t TO '{out}'"),
        "CREATE TABLE own AS SELECT 1".into(),
        "CREATE VIEW own AS SELECT 1".into(),
        "CREATE OR REPLACE TABLE t AS SELECT 1".into(),
        "CREATE SCHEMA own".into(),
        "CREATE DATABASE own".into(),
        "CREATE MACRO own(a) AS a + 1".into(),
        "CREATE FUNCTION own(DOUBLE) RETURNS DOUBLE RETURN $1 + 1".into(),
        "CREATE EXTERNAL TABLE own STORED AS CSV LOCATION '/etc/passwd'".into(),
        "INSERT INTO t VALUES (4, 'd', 0)".into(),
        "DELETE FROM t".into(),
        "UPDATE t SET k = 1".into(),
        "DROP TABLE t".into(),
        "DROP VIEW IF EXISTS t".into(),
        "SET datafusion.runtime.temp_directory = '/tmp/elsewhere'".into(),
        "set DataFusion.Runtime.memory_limit = '1M'".into(),
        "RESET datafusion.runtime.memory_limit".into(),
    ] {
        let refused = client.execute_update(sql.clone(), None).await.map_err(status);
        assert!(refused.is_err(), "{sql}");
        let told = refused.unwrap_err();
        // Some are not there in any case, which is said before.
        let codes = [Code::PermissionDenied, Code::Unimplemented, Code::InvalidArgument];
        assert!(codes.contains(&told.code()), "{sql}: {told:?}");
        assert!(query(&mut client, &sql).await.is_err(), "{sql}");
    }
    fails(
        query(&mut client, "COPY t TO 'x.csv'").await,
        Code::PermissionDenied,
        "only reads, and does not run COPY",
    );
    fails(query(&mut client, "CREATE TABLE a AS SELECT 1").await, Code::PermissionDenied, "only reads");
    fails(
        client.prepare("DROP TABLE t".into(), None).await.map(drop).map_err(status),
        Code::PermissionDenied,
        "only reads",
    );
    assert_eq!(query(&mut client, "SELECT count(*) FROM t").await.unwrap(), ["3"]);
    assert_eq!(fs::read_dir(fixture.folder.path()).unwrap().count(), 1);
    // What is the session's own is allowed.
    for sql in [
        "SET kelpie.threads = 2",
        "PREPARE q(BIGINT) AS SELECT k FROM t WHERE k = $1",
        "RESET kelpie.threads",
    ] {
        client.execute_update(sql.into(), None).await.unwrap();
    }
    assert_eq!(query(&mut client, "EXECUTE q(2)").await.unwrap(), ["2"]);
    assert!(!query(&mut client, "EXPLAIN ANALYZE SELECT k FROM t").await.unwrap().is_empty());
    assert_eq!(query(&mut client, "DESCRIBE t").await.unwrap().len(), 3);
    assert!(!query(&mut client, "SHOW TABLES").await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_elsewhere_are_not_read() {
    let elsewhere = tempfile::tempdir().unwrap();
    let secret = elsewhere.path().join("secret.csv");
    fs::write(&secret, "password\nhunter2\n").unwrap();
    let fixture = fixture(|_| {}).await;
    let mut client = fixture.client().await;
    let own = fixture.folder.path().display().to_string();
    let (secret, folder) = (secret.display().to_string(), elsewhere.path().display().to_string());
    let name = elsewhere.path().file_name().unwrap().to_str().unwrap().to_string();
    let paths = [
        secret.clone(),
        folder.clone(),
        format!("{folder}/*.csv"),
        format!("file://{secret}"),
        format!("{own}/../{name}/secret.csv"),
        format!("{own}/.?/{name}/secret.csv"),
        format!("{own}/{{../{name}/secret,x}}.csv"),
        "/etc/passwd".into(),
        "/".into(),
        "../secret.csv".into(),
        "secret.csv".into(),
        format!("{folder}/not_there.csv"),
    ];
    for path in &paths {
        fails(
            query(&mut client, &format!("SELECT * FROM '{path}'")).await,
            Code::PermissionDenied,
            "was given",
        );
        for function in
            ["read_csv", "read_json", "read_parquet", "read_arrow", "parquet_metadata", "parquet_schema"]
        {
            let sql = format!("SELECT * FROM {function}('{path}')");
            fails(query(&mut client, &sql).await, Code::PermissionDenied, "was given");
        }
        let list = format!("SELECT * FROM read_csv(['{own}/t.csv', '{path}'])");
        fails(query(&mut client, &list).await, Code::PermissionDenied, "was given");
        let within = format!("SELECT * FROM t WHERE EXISTS (SELECT 1 FROM '{path}')");
        fails(query(&mut client, &within).await, Code::PermissionDenied, "was given");
    }
    for scheme in ["http", "s3", "ftp"] {
        let remote = query(&mut client, &format!("SELECT * FROM '{scheme}://127.0.0.1:1/x.csv'")).await;
        assert!(remote.is_err(), "{scheme}");
    }
    // The settings say nothing of files, and cannot.
    let settings = query(&mut client, "SELECT value FROM information_schema.df_settings").await.unwrap();
    assert!(settings.iter().all(|value| !value.contains(&folder)));
    // What was given is read by its path too.
    for sql in [
        format!("SELECT count(*) FROM '{own}/t.csv'"),
        format!("SELECT count(*) FROM read_csv('{own}/*.csv')"),
    ] {
        assert_eq!(query(&mut client, &sql).await.unwrap(), ["3"], "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_file_that_is_given_gives_no_other_one_of_its_folder() {
    let fixture = fixture(|options| options.data = vec![options.data[0].join("t.csv")]).await;
    let mut client = fixture.client().await;
    let own = fixture.folder.path().display().to_string();
    fs::write(fixture.folder.path().join("u.csv"), "a\n1\n").unwrap();
    assert_eq!(query(&mut client, "SELECT count(*) FROM t").await.unwrap(), ["3"]);
    assert_eq!(query(&mut client, &format!("SELECT count(*) FROM '{own}/t.csv'")).await.unwrap(), ["3"]);
    for path in ["u.csv", "*.csv", "t.csv/../u.csv", ""] {
        let sql = format!("SELECT count(*) FROM '{own}/{path}'");
        fails(query(&mut client, &sql).await, Code::PermissionDenied, "was given");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_write_may_also_read() {
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("other.csv");
    fs::write(&path, "a\n7\n").unwrap();
    let fixture = fixture(|options| options.allow_writes = true).await;
    let mut client = fixture.client().await;
    assert_eq!(query(&mut client, &format!("SELECT a FROM '{}'", path.display())).await.unwrap(), ["7"]);
    let sql = format!("CREATE EXTERNAL TABLE o STORED AS CSV LOCATION '{}'", path.display());
    client.execute_update(sql, None).await.unwrap();
    assert_eq!(query(&mut client, "SELECT a FROM o").await.unwrap(), ["7"]);
    // The table is the session's own.
    let mut other = fixture.client().await;
    assert!(query(&mut other, "SELECT a FROM o").await.is_err());
}
