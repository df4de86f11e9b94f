//! COPY and INSERT replace nothing before all is written, and leave nothing behind where they fail.

use std::fs;
use std::path::Path;
use std::time::Duration;

use datafusion::arrow::util::pretty::pretty_format_batches;
use kelpie_session::{KelpieSession, SessionOptions};

use crate::people::rows;

fn session() -> KelpieSession {
    KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap()
}

/// Every file and folder below a folder.
fn everything(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.strip_prefix(folder).unwrap().display().to_string());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Waits for an event. A minute is no measure of anything: it ends a test whose event never comes.
async fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let waiting = async {
        while !happened() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    waited.unwrap_or_else(|_| panic!("waited a minute until {what}"));
}

/// Rows that fail after many good ones.
const FAILING: &str = "select 10 / (value - 50000) as x, value as y from range(100000)";

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_fails_leaves_the_old_file() {
    let session = session();
    for format in ["csv", "parquet", "json", "arrow"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("out.{format}"));
        fs::write(&path, "precious").unwrap();
        let copy = format!("copy ({FAILING}) to '{}'", path.display());
        let error = session.sql(&copy).await.unwrap_err().to_string();
        assert!(error.contains("ivide by zero"), "{format}: {error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious", "{format}");
        assert_eq!(everything(folder.path()), [format!("out.{format}")]);
        // A new place stays free.
        let new = folder.path().join(format!("new/folder/out.{format}"));
        session.sql(&format!("copy ({FAILING}) to '{}'", new.display())).await.unwrap_err();
        assert_eq!(everything(folder.path()), [format!("out.{format}")]);
        // One that succeeds replaces.
        let copy = format!("copy (select 1 as x union all select 2) to '{}'", path.display());
        session.sql(&copy).await.unwrap();
        assert_eq!(everything(folder.path()), [format!("out.{format}")]);
        let sum = format!("select sum(x) as s from '{}'", path.display());
        let batches = session.sql(&sum).await.unwrap().batches;
        assert_eq!(format!("{:?}", batches[0].column(0)).matches("3,").count(), 1, "{batches:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_may_replace_what_it_reads() {
    let session = session();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    fs::write(&path, "x\n1\n2\n").unwrap();
    let path = path.display();
    session.sql(&format!("copy (select x + 1 as x from '{path}') to '{path}'")).await.unwrap();
    assert_eq!(fs::read_to_string(path.to_string()).unwrap(), "x\n2\n3\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_copy_that_fails_leaves_nothing() {
    let session = session();
    let folder = tempfile::tempdir().unwrap();
    let into = |query: &str| {
        format!("copy ({query}) to '{}/out/' stored as csv partitioned by (k)", folder.path().display())
    };
    session
        .sql(&into("select value % 3 as k, 10 / (value - 50000) as x from range(100000)"))
        .await
        .unwrap_err();
    assert_eq!(everything(folder.path()), [""; 0]);
    session.sql(&into("select value % 3 as k, value as x from range(10)")).await.unwrap();
    let files = everything(folder.path());
    assert_eq!(files.iter().filter(|name| name.ends_with(".csv")).count(), 3, "{files:?}");
    assert_eq!(files.len(), 7, "{files:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insert_that_fails_adds_nothing() {
    let session = session();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("t")).unwrap();
    fs::write(folder.path().join("t/a.csv"), "x,y\n1,2\n").unwrap();
    let place = folder.path().join("t");
    let table =
        format!("create external table t (x bigint, y bigint) stored as csv location '{}/'", place.display());
    session.sql(&table).await.unwrap();
    session.sql(&format!("insert into t {FAILING}")).await.unwrap_err();
    assert_eq!(everything(&place), ["a.csv"]);
    session.sql("insert into t select 3, 4").await.unwrap();
    assert_eq!(everything(&place).len(), 2);
    assert_eq!(session.sql("select * from t").await.unwrap().rows(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_copy_leaves_the_old_file() {
    let session = session();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    fs::write(&path, "precious").unwrap();
    let copy = format!("copy (select value from range(1000000000)) to '{}'", path.display());
    tokio::select! {
        done = session.sql(&copy) => panic!("a billion rows are written: {done:?}"),
        () = until("it writes", || everything(folder.path()).len() > 1) => {}
    }
    // Its tasks end at their next step, and take what they wrote with them.
    until("nothing is left of it", || everything(folder.path()).len() == 1).await;
    assert_eq!(everything(folder.path()), ["out.csv"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn links_and_permissions_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let session = session();
    let folder = tempfile::tempdir().unwrap();
    let (target, link) = (folder.path().join("target.csv"), folder.path().join("link.csv"));
    fs::write(&target, "old").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    symlink("target.csv", &link).unwrap();
    session.sql(&format!("copy (select 1 as x) to '{}'", link.display())).await.unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "x\n1\n");
    assert!(link.is_symlink());
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_device_or_a_pipe_takes_what_is_written() {
    let session = session();
    session.sql("set datafusion.execution.target_partitions = 4").await.unwrap();
    session.sql("copy (select value from range(100000)) to '/dev/null' stored as csv").await.unwrap();
    session.sql("copy (select 1 as x) to '/dev/null' stored as parquet").await.unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // More than is written at once, so that parts come out of order.
    for (format, rows) in [("csv", 5_000_000), ("json", 1), ("parquet", 1_000_000)] {
        let (from, to) = (pipe.clone(), folder.path().join(format!("read.{format}")));
        let reader = std::thread::spawn(move || {
            let mut from = fs::File::open(from).unwrap();
            std::io::copy(&mut from, &mut fs::File::create(to).unwrap()).unwrap()
        });
        let rows = format!("select value as n from range({rows})");
        let copy = format!("copy ({rows}) to '{}' stored as {format}", pipe.display());
        session.sql(&copy).await.unwrap();
        reader.join().unwrap();
        let read = format!(
            "select count(*) from (({rows}) except select n from '{0}/read.{format}') \
             union all select count(*) from (select n from '{0}/read.{format}' except ({rows}))",
            folder.path().display()
        );
        let batches = session.sql(&read).await.unwrap().batches;
        let shown = pretty_format_batches(&batches).unwrap().to_string();
        assert_eq!(shown.matches("| 0 ").count(), 2, "{format}\n{shown}");
    }
    assert_eq!(everything(folder.path()), ["pipe", "read.csv", "read.json", "read.parquet"]);
}

/// Objects of JSON have texts as keys.
#[tokio::test(flavor = "multi_thread")]
async fn maps_with_any_keys_are_written_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("maps.json");
    let session = KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap();
    for (map, expected) in [
        ("map([1, 2], ['x', null])", r#"{"1":"x"}"#),
        ("[map([1.5], [true])]", r#"[{"1.5":true}]"#),
        ("map(['k'], [1])", r#"{"k":1}"#),
    ] {
        session.sql(&format!("copy (select {map} as m) to '{}'", path.display())).await.unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(written.starts_with(&format!("{{\"m\":{}", &expected[..expected.len() - 1])), "{written}");
    }
}

/// DataFusion has 0 or an empty text for it.
#[tokio::test(flavor = "multi_thread")]
async fn folders_say_null_where_a_partition_is_null() {
    let session = session();
    for (number, format) in ["parquet", "csv", "json"].into_iter().enumerate() {
        for (name, keys, expected) in [
            ("whole", "(1), (NULL), (0)", ["NULL 2", "0 3", "1 1"]),
            ("text", "('x'), (NULL), ('a/b')", ["NULL 2", "a/b 3", "x 1"]),
            (
                "day",
                "(DATE '2024-01-31'), (NULL), (DATE '1969-12-31')",
                ["NULL 2", "1969-12-31 3", "2024-01-31 1"],
            ),
            ("truth", "(TRUE), (NULL), (FALSE)", ["NULL 2", "false 3", "true 1"]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let to = folder.path().join(name);
            let source = format!("select k, row_number() over () as x from (values {keys}) as v(k)");
            // DataFusion's words for it, and those of others.
            let options = match number {
                0 => "stored as parquet partitioned by (k)".to_string(),
                _ => format!("(format {format}, partition_by (k))"),
            };
            session.sql(&format!("copy ({source}) to '{}' {options}", to.display())).await.unwrap();
            let sql = format!(
                "select coalesce(k::varchar, 'NULL'), x from '{}' order by k nulls first",
                to.display()
            );
            assert_eq!(rows(&session, &sql).await, expected, "{format} {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_values_are_text_in_csv() {
    let session = session();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let source = "select 1 as i, [1, NULL] as l, {'a': 'x', 'b': NULL} as s, map(['k'], [2]) as m union all \
                  select 2, NULL, NULL, NULL order by i";
    session.sql(&format!("copy ({source}) to '{}'", path.display())).await.unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "i,l,s,m\n1,\"[1, NULL]\",\"{a: x, b: NULL}\",{k: 2}\n2,,,\n"
    );
    session
        .sql(&format!("copy (select * from ({source}) where i > 2) to '{}'", path.display()))
        .await
        .unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "i,l,s,m\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_folder_are_replaced_where_a_copy_says_so() {
    let session = session();
    for format in ["parquet", "csv"] {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("parts");
        let at = to.display().to_string();
        let copy = async |source: &str, options: &str| {
            let options = format!("(format {format}, partition_by (K){options})");
            session.sql(&format!("copy ({source}) to '{at}' {options}")).await.map(|_| ())
        };
        let all = format!("select k, x from '{at}' order by k, x");
        copy("select * from (values ('a', 1), ('b', 2)) as v(k, x)", "").await.unwrap();
        fs::write(to.join("notes.md"), "theirs").unwrap();
        copy("select 'a' as k, 3 as x", ", overwrite").await.unwrap();
        assert_eq!(rows(&session, &all).await, ["a 3"], "{format}");
        assert_eq!(fs::read_to_string(to.join("notes.md")).unwrap(), "theirs");
        assert!(!to.join("k=b").exists());
        copy("select 'a' as k, 4 as x", ", overwrite false").await.unwrap();
        assert_eq!(rows(&session, &all).await, ["a 3", "a 4"], "{format}");
        // What fails removes nothing, and rows of the folder may be those that it gets.
        copy(&format!("select k, 1 / (x - 3) as x from '{at}'"), ", overwrite").await.unwrap_err();
        assert_eq!(rows(&session, &all).await, ["a 3", "a 4"], "{format}");
        copy(&format!("select k, x + 1 as x from '{at}'"), ", overwrite true").await.unwrap();
        assert_eq!(rows(&session, &all).await, ["a 4", "a 5"], "{format}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn some_columns_are_written_with_quotes_of_their_own() {
    let session = session();
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("t.csv");
    session.sql("create table t as select 1 as a, 2 as b, 'x,y' as c").await.unwrap();
    for (columns, options, expected) in [
        ("(b, a)", "", "b,a\n2,1\n"),
        ("(c)", " (header false)", "\"x,y\"\n"),
        ("(a, c)", " (quote '''', header false)", "1,'x,y'\n"),
        ("", " with (quote '''', delimiter ';', header)", "a;b;c\n1;2;x,y\n"),
    ] {
        session.sql(&format!("copy t {columns} to '{}'{options}", to.display())).await.unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), expected, "{columns} {options}");
    }
}

/// Writers panic at most of them, and never end at others.
#[tokio::test(flavor = "multi_thread")]
async fn settings_that_no_writer_can_have_are_errors() {
    let session = session();
    let folder = tempfile::tempdir().unwrap();
    let copy = format!("copy (select 1 as a) to '{}/t.parquet'", folder.path().display());
    for option in [
        "max_row_group_size",
        "write_batch_size",
        "statistics_truncate_length",
        "column_index_truncate_length",
        "maximum_parallel_row_group_writers",
        "maximum_buffered_record_batches_per_stream",
        "bloom_filter_fpp",
    ] {
        let error =
            session.sql(&format!("{copy} options ('format.{option}' 0)")).await.unwrap_err().to_string();
        assert!(error.contains(option) && error.contains("must be"), "{error}");
    }
    let error = session.sql(&format!("{copy} (row_group_size 0)")).await.unwrap_err().to_string();
    assert!(error.contains("ROW_GROUP_SIZE"), "{error}");
    assert_eq!(everything(folder.path()), [""; 0]);
}
