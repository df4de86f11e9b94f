//! A folder as a database: what lasts, that changes happen as a whole or not at all, and who may have it open.

use std::fs;
use std::path::Path;
use std::process::Command;

use datafusion::arrow::util::pretty::pretty_format_batches;
use kelpie_session::testing::STOP_VARIABLE;
use kelpie_session::{Database, KelpieSession, OpenedSession, SessionOptions};
use tempfile::TempDir;

fn options() -> SessionOptions {
    SessionOptions::default().with("kelpie.device", "cpu").with("datafusion.execution.target_partitions", "2")
}

async fn opened(folder: &Path) -> OpenedSession {
    KelpieSession::in_database(options(), &Database::open(folder).unwrap()).await.unwrap()
}

/// A session that finds all that its database has.
async fn session(folder: &Path) -> KelpieSession {
    let OpenedSession { session, problems, .. } = opened(folder).await;
    assert_eq!(problems, Vec::<String>::new());
    session
}

async fn run(session: &KelpieSession, statements: &[&str]) {
    for sql in statements {
        session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

async fn fails(session: &KelpieSession, sql: &str, words: &[&str]) {
    let error = session.sql(sql).await.map(|_| ()).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{sql}: no `{word}` in {error}");
    }
}

/// The rows of a query as text, with their types.
async fn rows(session: &KelpieSession, sql: &str) -> String {
    let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let types: Vec<String> =
        result.schema.fields().iter().map(|field| field.data_type().to_string()).collect();
    let rows = pretty_format_batches(&result.batches).unwrap();
    format!("{}\n{rows}", types.join(", "))
}

/// The only value of a query.
async fn value(session: &KelpieSession, sql: &str) -> String {
    let rows = rows(session, sql).await;
    let line = rows.lines().nth(4).unwrap_or_else(|| panic!("{sql}: {rows}"));
    line.trim_matches(['|', ' ']).to_string()
}

/// The files of rows that a database has.
fn files(folder: &Path) -> usize {
    fs::read_dir(folder.join("data")).unwrap().count()
}

const TYPES: &str = "select * from (values
    (1, cast(1.5 as double), 'ü\"''漢', true, date '2024-02-29', timestamp '1900-01-01 00:00:00.123456', cast(1.25 as decimal(20,2)), [1, null], cast('a' as bytea)),
    (null, null, null, null, null, null, null, null, null),
    (-7, cast('nan' as double), '', false, date '0001-01-01', timestamp '2262-01-01 00:00:00', cast(-99999.99 as decimal(20,2)), [], cast('' as bytea))
    ) t(i, f, s, b, d, ts, de, l, by)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_last_with_their_values_and_types() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/database");
    let plain = KelpieSession::new(options()).unwrap();
    let make = [
        &format!("create table types as {TYPES}"),
        "create table empty (a int, b varchar, c double)",
        "create table \"Näme 'x' / ..\" as select 1 as \"a b\"",
        "create table numbers as select value as k, value % 7 as x, nullif(cast(value as varchar), '7') as s from generate_series(1, 20000)",
        "insert into numbers select k + 100000, x, null from numbers where x = 3",
        "insert into empty values (1, 'x', 1.5), (null, null, null)",
        "insert into empty (b) values ('only')",
        "insert into empty select 1, 'y', 2 where false",
    ];
    run(&plain, &make).await;
    run(&session(&path).await, &make).await;
    let kept = session(&path).await;
    for query in [
        "select * from types order by i nulls last",
        "select * from empty order by b nulls first",
        "select * from \"Näme 'x' / ..\"",
        "select x, count(*), sum(k), min(s), max(s), count(s) from numbers group by x order by x",
        "select count(*) from numbers a join numbers b on a.k = b.k where b.x = 3",
        "select table_name from information_schema.tables where table_schema = 'public' order by 1",
        "select column_name, data_type from information_schema.columns where table_name = 'types' order by ordinal_position",
    ] {
        // Texts come as they do from all files.
        let found = rows(&kept, query).await.replace("Utf8View", "Utf8").replace("BinaryView", "Binary");
        let expected = rows(&plain, query).await.replace("Utf8View", "Utf8").replace("BinaryView", "Binary");
        let words = |text: &str| text.split_whitespace().map(ToString::to_string).collect::<Vec<_>>();
        let is_border = |word: &String| word.starts_with('+');
        let told = |text: &str| words(text).into_iter().filter(|word| !is_border(word)).collect::<Vec<_>>();
        assert_eq!(told(&found), told(&expected), "{query}");
    }
    assert!(kept.sql("select x, count(*) from numbers group by x").await.unwrap().timing.compiled);
    // Rows of a query say nothing of those that come later.
    run(&kept, &["create table later as select 1 as a", "insert into later values (null)"]).await;
    assert_eq!(value(&kept, "select count(*) - count(a) from later").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_made_changed_and_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    {
        let session = session(path).await;
        run(&session, &["create table t as select 1 as a", "create table if not exists t as select 9 as z"])
            .await;
        fails(&session, "create table t as select 2 as a", &["already exists"]).await;
        fails(&session, "create table T as select 2 as a", &["already exists"]).await;
        fails(&session, "insert into t select 1 / 0", &["ivide by zero"]).await;
        fails(&session, "create table u as select 1 / (a - 1) as b from t", &["ivide by zero"]).await;
        fails(&session, "insert into t values (1, 2)", &[]).await;
        fails(&session, "insert into nothing values (1)", &["nothing"]).await;
        assert_eq!((files(path), value(&session, "select sum(a) from t").await), (1, "1".into()));
        run(&session, &["insert into t values (2), (3)", "insert into T select a + 10 from t"]).await;
        assert_eq!(value(&session, "select sum(a) from t").await, "42");
        // A table that is made of itself.
        run(&session, &["create or replace table T as select a, a * 2 as b from t where a > 2"]).await;
        assert_eq!(value(&session, "select sum(b) from t").await, "78");
        assert_eq!(files(path), 1);
        run(&session, &["insert overwrite t select 5, 6"]).await;
        assert_eq!((files(path), value(&session, "select sum(b) from t").await), (1, "6".into()));
        run(
            &session,
            &["create table gone as select 1 as a", "drop table GONE", "drop table if exists gone"],
        )
        .await;
        fails(&session, "select * from gone", &["gone"]).await;
        fails(&session, "drop table gone", &["gone"]).await;
        fails(&session, "create table s.t as select 1 as a", &["schema: s"]).await;
        run(&session, &["create table n (a int not null, b int)", "insert into n values (1, null)"]).await;
        fails(&session, "insert into n values (null, 1)", &["a"]).await;
    }
    let session = session(path).await;
    assert_eq!(
        rows(&session, "select * from t").await,
        rows(&session, "select 5::bigint as a, 6::bigint as b").await
    );
    assert_eq!(session.tables(), ["n", "t"]);
    fails(&session, "insert into n values (null, 1)", &["a"]).await;
    assert_eq!(value(&session, "select count(*) from n").await, "1");
    run(&session, &["insert into n select 4, 5"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_and_settings_last() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("file.csv");
    fs::write(&data, "x\n1\n2\n").unwrap();
    let path = folder.path().join("d");
    {
        let session = session(&path).await;
        session.register_path("outside", &data).await.unwrap();
        run(
            &session,
            &[
                "create table t as select 1 as a",
                "create view v as select a + 1 as b from t",
                "create view w as select b + 1 as c, 'it''s;' as s from v",
                "create or replace view v as select a + 10 as b from t",
                "create view lost as select sum(x) as s from outside",
                "create view gone as select 1 as a",
                "drop view gone",
                "set persist kelpie.threads = 1",
                "set datafusion.execution.batch_size = 77",
                "SET PERSIST datafusion.execution.batch_size TO 512",
                "set persist datafusion.format.null = '-'",
                "reset persist datafusion.format.null",
            ],
        )
        .await;
        fails(&session, "set persist kelpie.nonsense = 1", &["nonsense"]).await;
        fails(&session, "create view bad as select nope from t", &["nope"]).await;
        assert_eq!(value(&session, "select c from w").await, "12");
    }
    let OpenedSession { session, problems, .. } = opened(&path).await;
    // A view is brought back over what it names now.
    assert_eq!(value(&session, "select b from v").await, "11");
    assert_eq!(value(&session, "select c from w").await, "12");
    assert!(
        problems.iter().any(|problem| problem.contains("the view lost") && problem.contains("outside")),
        "{problems:?}"
    );
    assert_eq!(value(&session, "show datafusion.execution.batch_size").await.rsplit(' ').next(), Some("512"));
    assert_eq!(value(&session, "show kelpie.threads").await.rsplit(' ').next(), Some("1"));
    fails(&session, "select * from gone", &["gone"]).await;
    // The database has the view, though the session could not make it.
    run(&session, &["drop view lost"]).await;
    drop(session);
    // What the session is given comes first.
    let given = options().with("datafusion.execution.batch_size", "99");
    let database = Database::open(&path).unwrap();
    let opened = KelpieSession::in_database(given, &database).await.unwrap();
    assert!(opened.problems.is_empty(), "{:?}", opened.problems);
    assert_eq!(
        value(&opened.session, "show datafusion.execution.batch_size").await.rsplit(' ').next(),
        Some("99")
    );
    let outside = KelpieSession::new(options()).unwrap();
    fails(&outside, "set persist kelpie.threads = 2", &["PERSIST", "database"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_one_process_share_and_others_wait() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    let database = Database::open(&path).unwrap();
    let first = KelpieSession::in_database(options(), &database).await.unwrap().session;
    let second = KelpieSession::in_database(options(), &database).await.unwrap().session;
    run(&first, &["create table t as select 1 as a"]).await;
    assert_eq!(value(&second, "select sum(a) from t").await, "1");
    run(&second, &["insert into t values (5)"]).await;
    assert_eq!(value(&first, "select sum(a) from t").await, "6");
    // Changes at the same time are all there in the end.
    let insert = |number: usize| {
        let session = if number.is_multiple_of(2) { &first } else { &second };
        async move { session.sql(&format!("insert into t values ({number}), (0)")).await }
    };
    for added in futures::future::join_all((0..8).map(insert)).await {
        added.unwrap();
    }
    assert_eq!(value(&first, "select sum(a) from t").await, "34");
    let error = Database::open(&path).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("is open in this process") && error.contains("/d"), "{error}");
    run(&second, &["drop table t"]).await;
    fails(&first, "select * from t", &["t"]).await;
    drop((first, second, database));
    Database::open(&path).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_database_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let opening = |path: &Path| Database::open(path).map(|_| ()).unwrap_err().to_string();
    fs::write(folder.path().join("letter.txt"), "dear").unwrap();
    let error = opening(folder.path());
    assert!(error.contains("is no database"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let error = opening(&folder.path().join("letter.txt"));
    assert!(error.contains("letter.txt") && error.contains("folder"), "{error}");
    let path = folder.path().join("d");
    run(&session(&path).await, &["create table t as select 1 as a"]).await;
    let catalogue = path.join("kelpie.catalog");
    let whole = fs::read(&catalogue).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 4;
    fs::write(&catalogue, &damaged).unwrap();
    let error = opening(&path);
    assert!(error.contains("kelpie.catalog") && error.contains("damaged"), "{error}");
    assert_eq!((fs::read(&catalogue).unwrap(), files(&path)), (damaged, 1));
    // Without a catalogue, rows are somebody's.
    fs::remove_file(&catalogue).unwrap();
    let error = opening(&path);
    assert!(error.contains("no catalogue"), "{error}");
    assert_eq!(files(&path), 1);
    fs::write(&catalogue, &whole).unwrap();
    // A table whose rows are gone leaves the others.
    let session = session(&path).await;
    run(&session, &["create table u as select 2 as a"]).await;
    fs::remove_file(path.join("data/0.parquet")).unwrap();
    fails(&session, "select * from t", &["0.parquet"]).await;
    assert_eq!(value(&session, "select a from u").await, "2");
}

const FOLDER: &str = "KELPIE_TEST_DATABASE";
const STATEMENT: &str = "KELPIE_TEST_STATEMENT";

/// The process that `a_crash_leaves_the_old_or_the_new` starts; by itself it does nothing.
#[test]
fn a_process_that_crashes() {
    let (Ok(folder), Ok(sql)) = (std::env::var(FOLDER), std::env::var(STATEMENT)) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { run(&session(Path::new(&folder)).await, &[&sql]).await });
}

/// What a database holds, as text.
async fn state(folder: &TempDir) -> String {
    let session = session(folder.path()).await;
    let mut state = String::new();
    for name in session.tables() {
        state += &format!("{name}: {}\n", rows(&session, &format!("select * from {name} order by 1")).await);
    }
    state + &value(&session, "show datafusion.execution.batch_size").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_leaves_the_old_or_the_new() {
    let (old_steps, new_steps) =
        (["RowsBegun", "RowsWritten", "CatalogueWritten"], ["CatalogueInPlace", "Changed"]);
    for (sql, writes_rows) in [
        ("create or replace table t as select 'x' as s", true),
        ("insert into t values (7)", true),
        ("drop table t", false),
        ("create view v as select 3 as c", false),
        ("set persist datafusion.execution.batch_size = 300", false),
    ] {
        let make = |folder: TempDir| async {
            run(&session(folder.path()).await, &["create table t as select 1 as a"]).await;
            folder
        };
        let whole = make(tempfile::tempdir().unwrap()).await;
        let old = state(&whole).await;
        run(&session(whole.path()).await, &[sql]).await;
        let new = state(&whole).await;
        assert_ne!(old, new, "{sql}");
        for step in old_steps.iter().chain(&new_steps).skip(if writes_rows { 0 } else { 2 }) {
            let folder = make(tempfile::tempdir().unwrap()).await;
            let ended = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "database::a_process_that_crashes", "--test-threads=1"])
                .env(FOLDER, folder.path())
                .env(STATEMENT, sql)
                .env(STOP_VARIABLE, step)
                .output()
                .unwrap();
            assert!(!ended.status.success() && ended.status.code().is_none(), "{sql} at {step}: {ended:?}");
            let found = state(&folder).await;
            let expected = if new_steps.contains(step) { &new } else { &old };
            assert_eq!(&found, expected, "{sql} at {step}");
            // What was begun is not there any more.
            let named = session(folder.path()).await.tables().iter().filter(|name| *name != "v").count();
            let of_insert = usize::from(sql.starts_with("insert into") && new_steps.contains(step));
            assert_eq!(files(folder.path()), named + of_insert, "{sql} at {step}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "{sql} at {step}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_rows_last() {
    let folder = TempDir::new().unwrap();
    {
        let session = session(folder.path()).await;
        run(
            &session,
            &[
                "CREATE TABLE t AS SELECT * FROM (VALUES (1, 10), (2, 20), (3, 30)) AS v(i, x)",
                "CREATE TABLE u AS SELECT * FROM (VALUES (1, 100), (4, 400)) AS v(i, y)",
                "UPDATE t SET x = u.y FROM u WHERE t.i = u.i",
                "DELETE FROM t WHERE i IN (SELECT 2)",
                "MERGE INTO t USING u ON t.i = u.i WHEN NOT MATCHED THEN INSERT VALUES (u.i, u.y)",
                "EXPLAIN DELETE FROM t",
                "TRUNCATE u",
                "CREATE TABLE old AS SELECT 7 AS a",
                "ALTER TABLE old RENAME TO new",
            ],
        )
        .await;
        // A statement that fails changes nothing.
        fails(&session, "UPDATE t SET x = CASE WHEN i = 4 THEN 'abc' ELSE '1' END", &["abc"]).await;
        fails(&session, "BEGIN", &["no transactions"]).await;
        assert_eq!(value(&session, "UPDATE t SET x = x + 1 WHERE i = 3 RETURNING x").await, "31");
        assert_eq!(value(&session, "INSERT INTO t VALUES (5, 50) RETURNING i + x").await, "55");
    }
    let session = session(folder.path()).await;
    assert_eq!(value(&session, "SELECT sum(i * 1000 + x) FROM t").await, "13581");
    assert_eq!(value(&session, "SELECT count(*) FROM t").await, "4");
    assert_eq!(value(&session, "SELECT count(*) FROM u").await, "0");
    assert_eq!(value(&session, "SELECT a FROM new").await, "7");
}
