//! Tables of files: what is there when a query runs, whatever it is called and however it is stored.

use std::fs;
use std::path::Path;

use datafusion::arrow::util::pretty::pretty_format_batches;
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

fn session() -> KelpieSession {
    KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap()
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), files);
    folder
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, content) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// The rows of an answer, each with its values side by side.
async fn rows(session: &KelpieSession, sql: &str) -> Vec<String> {
    let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let text = pretty_format_batches(&result.batches).unwrap().to_string();
    let lines = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    lines
        .map(|line| line.split_whitespace().filter(|word| *word != "|").collect::<Vec<_>>().join(" "))
        .collect()
}

async fn error(session: &KelpieSession, sql: &str) -> String {
    match session.sql(sql).await {
        Ok(_) => panic!("{sql} must fail"),
        Err(error) => error.strip_backtrace(),
    }
}

#[tokio::test]
async fn queries_see_the_files_that_are_there() {
    let folder = folder(&[("t/a.csv", "x\n1\n")]);
    let session = session();
    session.register_dir(folder.path()).await.unwrap();
    let path = folder.path().join("t").display().to_string();
    session.sql("create view v as select sum(x) as s from t").await.unwrap();
    let sums = [
        "select sum(x) from t".to_string(),
        format!("select sum(x) from '{path}/'"),
        format!("select sum(x) from '{path}/*.csv'"),
        "select s from v".into(),
    ];
    // Added, rewritten, removed.
    let states: [(&[(&str, &str)], &str); 3] =
        [(&[("t/b.csv", "x\n20\n")], "21"), (&[("t/a.csv", "x\n1\n300\n")], "321"), (&[], "301")];
    for (files, expected) in states {
        write(folder.path(), files);
        if files.is_empty() {
            fs::remove_file(folder.path().join("t/b.csv")).unwrap();
        }
        for sql in &sums {
            assert_eq!(rows(&session, sql).await, [expected], "{sql}");
        }
    }
    // Other columns are other columns.
    write(folder.path(), &[("t/a.csv", "y,z\ntext,2\n")]);
    assert_eq!(rows(&session, "select y, z from t").await, ["text 2"]);
    fs::remove_file(folder.path().join("t/a.csv")).unwrap();
    assert!(error(&session, "select y from t").await.contains("/t: no Parquet, CSV"));
}

#[tokio::test]
async fn a_folder_names_columns() {
    let folder = folder(&[
        ("t/year=2023/m=01/a.csv", "x\n1\n2\n"),
        ("t/year=2024/m=02/a.csv", "x\n3\n"),
        ("t/year=2024/m=02/_hidden.csv", "x\n4\n"),
        ("d/day=2024-02-29/k=a b/a.csv", "x\n1\n"),
        ("d/day=1969-12-31/k=ü/a.csv", "x\n2\n"),
    ]);
    let session = session();
    session.register_dir(folder.path()).await.unwrap();
    let by_year = "select year, m, sum(x) from t group by year, m order by year";
    assert_eq!(rows(&session, by_year).await, ["2023 01 3", "2024 02 3"]);
    assert_eq!(rows(&session, "select * from t where year > 2023").await, ["3 2024 02"]);
    assert_eq!(rows(&session, "select count(*) from t where year = 1999").await, ["0"]);
    assert_eq!(
        rows(&session, "select arrow_typeof(year), arrow_typeof(m) from t limit 1").await,
        ["Int64 Utf8"]
    );
    let days = "select day + interval '1 day', k, x from d order by x desc";
    assert_eq!(rows(&session, days).await, ["1970-01-01 ü 2", "2024-03-01 a b 1"]);
}

#[tokio::test]
async fn patterns_and_names_that_look_like_them() {
    let folder = folder(&[
        ("a1.csv", "x\n1\n"),
        ("a2.csv", "x\n2\n"),
        ("b.csv", "x\n4\n"),
        ("sub/a3.csv", "x\n8\n"),
        ("a[1].csv", "x\n16\n"),
        ("what?.csv", "x\n32\n"),
        ("100%41 ü#1.csv", "x\n64\n"),
    ]);
    let session = session();
    let path = folder.path().display();
    for (name, sum) in [
        ("a*.csv", "19"),
        ("a?.csv", "3"),
        ("**/a[0-9].csv", "11"),
        ("a[1].csv", "16"),
        ("what?.csv", "32"),
        ("100%41 ü#1.csv", "64"),
        ("*.csv", "119"),
    ] {
        assert_eq!(rows(&session, &format!("select sum(x) from '{path}/{name}'")).await, [sum], "{name}");
    }
    let missing = error(&session, &format!("select * from '{path}/z*.csv'")).await;
    assert!(missing.contains("z*.csv"), "{missing}");
    let names = session.register_data(format!("{path}/a?.csv")).await.unwrap().names;
    assert_eq!(names, ["a1", "a2"]);
    session.register_path("all", format!("{path}/**/*.csv")).await.unwrap();
    assert_eq!(rows(&session, "select sum(x) from \"all\"").await, ["127"]);
}

#[tokio::test]
async fn text_formats_also_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let session = session();
    let source = "select value as n, 'text ' || value as s from range(100000)";
    for (file, options) in [
        ("c.csv", ""),
        ("g.csv.gz", "options ('format.compression' 'gzip')"),
        ("z.csv.zst", "options ('format.compression' 'zstd')"),
        ("b.csv.bz2", "options ('format.compression' 'bzip2')"),
        ("x.csv.xz", "options ('format.compression' 'xz')"),
        ("j.json", ""),
        ("k.ndjson.gz", "options ('format.compression' 'gzip')"),
    ] {
        let format = if file.contains("json") { "json" } else { "csv" };
        session
            .sql(&format!("copy ({source}) to '{path}/{file}' stored as {format} {options}"))
            .await
            .unwrap();
        let counts = format!("select count(*), sum(n), max(length(s)) from '{path}/{file}'");
        assert_eq!(rows(&session, &counts).await, ["100000 4999950000 10"], "{file}");
    }
    let mut names = session.register_data(folder.path()).await.unwrap().names;
    names.sort();
    assert_eq!(names, ["b", "c", "g", "j", "k", "x", "z"]);
    assert_eq!(rows(&session, "select sum(g.n) from g join j on g.n = j.n where g.n < 10").await, ["45"]);
    write(folder.path(), &[("array.json", " [{\"a\": 1}, {\"a\": 2}]"), ("tabs.tsv", "a\tb\n1\tx,y\n")]);
    assert_eq!(rows(&session, &format!("select sum(a) from '{path}/array.json'")).await, ["3"]);
    assert_eq!(rows(&session, &format!("select b from '{path}/tabs.tsv'")).await, ["x,y"]);
}

#[tokio::test]
async fn one_odd_entry_fails_only_queries_on_it() {
    let folder = folder(&[
        ("good.csv", "x\n1\n"),
        ("damaged.parquet", "PAR1 nothing PAR1"),
        ("two.csv", "x\n1\n"),
        ("two.json", "{\"x\":1}"),
        ("mixed/a.csv", "x\n1\n"),
        ("mixed/b.json", "{\"x\":1}"),
        ("Cased.csv", "x\n5\n"),
        ("Same.csv", "x\n6\n"),
        ("SAME.csv", "x\n7\n"),
        ("ignored.txt", ""),
        ("empty/ignored.txt", ""),
    ]);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(".", folder.path().join("loop")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("broken.csv")).unwrap();
    }
    let session = session();
    let registered = session.register_data(folder.path()).await.unwrap();
    assert_eq!(registered.names, ["Cased", "SAME", "Same", "damaged", "good", "mixed"]);
    let expected = if cfg!(unix) { 2 } else { 1 };
    assert_eq!(registered.problems.len(), expected, "{:?}", registered.problems);
    let unreadable = session.unreadable_tables().await;
    let [damaged, mixed] = unreadable.as_slice() else { panic!("{unreadable:?}") };
    assert!(damaged.contains("damaged.parquet") && mixed.contains("b.json"), "{unreadable:?}");
    assert!(session.unreadable_tables().await.is_empty(), "each is looked at once");
    assert_eq!(session.tables(), ["Cased", "SAME", "Same", "good"]);
    assert_eq!(rows(&session, "select x from good").await, ["1"]);
    for (name, parts) in [
        ("damaged", &["damaged.parquet", "a damaged Parquet file"][..]),
        ("two", &["two.csv", "two.json"]),
        ("mixed", &["a.csv", "b.json"]),
    ] {
        let text = error(&session, &format!("select * from {name}")).await;
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    // A name in any case, unless that leaves a choice.
    assert_eq!(rows(&session, "select b.x from CASED, \"Cased\" b where cased.x = b.x").await.len(), 1);
    assert_eq!(rows(&session, "select x from \"SAME\"").await, ["7"]);
    assert!(error(&session, "select x from same").await.contains("\"SAME\" or \"Same\""));
    // What was damaged and is mended is a table.
    fs::remove_file(folder.path().join("mixed/b.json")).unwrap();
    assert_eq!(rows(&session, "select x from mixed").await, ["1"]);
    session.sql("drop table good").await.unwrap();
    assert!(error(&session, "select x from good").await.contains("good"));
    session.sql("create table good as select 2 as x").await.unwrap();
    assert_eq!(rows(&session, "select x from good").await, ["2"]);
    // Where everything must be readable, the first problem is an error.
    assert!(self::session().register_dir(folder.path()).await.is_err());
}

#[tokio::test]
async fn types_of_csv_come_from_many_rows() {
    let mut text = String::from("a,b\n");
    (0..5000).for_each(|i| text.push_str(&format!("{i},{i}\n")));
    text.push_str("x,0.5\n");
    let folder = folder(&[("t.csv", &text)]);
    let session = session();
    session.register_dir(folder.path()).await.unwrap();
    assert_eq!(
        rows(&session, "select arrow_typeof(a), arrow_typeof(b) from t limit 1").await,
        ["Utf8 Float64"]
    );
    assert_eq!(rows(&session, "select a, b from t where b = 0.5").await, ["x 0.5"]);
}

#[tokio::test]
async fn a_pattern_names_columns_as_a_folder_does() {
    let folder = folder(&[
        ("t/year=2023/m=01/x.csv", "x\n1\n2\n"),
        ("t/year=2024/m=01/x.csv", "x\n3\n"),
        ("t/year=2024/m=02/x.csv", "x\n4\n"),
        ("t/year=2024/m=02/other.csv", "x,y\n1000,1\n"),
        ("twice/year=2024/a.csv", "x,year\n5,1999\n"),
    ]);
    let path = folder.path().display();
    for enabled in ["true", "false"] {
        for partitions in ["1", "4"] {
            let session = session();
            session.set("kelpie.enabled", enabled).unwrap();
            session.set("datafusion.execution.target_partitions", partitions).unwrap();
            let all = format!("'{path}/t/year=*/m=*/x.csv'");
            let sums = format!("select year, m, sum(x) from {all} group by year, m order by year, m");
            assert_eq!(rows(&session, &sums).await, ["2023 01 3", "2024 01 3", "2024 02 4"]);
            let count = format!("select count(*) from {all} where year = 2024 and m > '01'");
            assert_eq!(rows(&session, &count).await, ["1"]);
            assert_eq!(rows(&session, &format!("select x from {all} where year = 1999")).await.len(), 0);
            assert_eq!(rows(&session, &format!("select * from {all} where x = 4")).await, ["4 2024 02"]);
            assert_eq!(rows(&session, &format!("select x from {all} order by x limit 2")).await, ["1", "2"]);
            let types = format!("select arrow_typeof(year), arrow_typeof(m) from {all} limit 1");
            assert_eq!(rows(&session, &types).await, ["Int64 Utf8"]);
            // What the pattern leaves open is a column, as below a folder.
            let months = format!("select * from '{path}/t/year=2024/m=*/x.csv' order by x");
            assert_eq!(rows(&session, &months).await, ["3 01", "4 02"]);
            let anywhere = format!("select sum(x), count(distinct year) from '{path}/t/**/x.csv'");
            assert_eq!(rows(&session, &anywhere).await, ["10 2"]);
            let twice = format!("select year from '{path}/twice/year=*/a.csv'");
            assert_eq!(rows(&session, &twice).await, ["1999"]);
        }
    }
    // Parquet, with statistics of its own; a damaged file that does not match is none of the table's.
    let session = session();
    for (year, rows) in [(2023, "(1), (2)"), (2024, "(30)")] {
        let file = format!("{path}/p/year={year}/x.parquet");
        session.sql(&format!("copy (select * from (values {rows}) v(x)) to '{file}'")).await.unwrap();
        fs::write(format!("{path}/p/year={year}/bad.parquet"), "no").unwrap();
    }
    let all = format!("'{path}/p/year=*/x.parquet'");
    assert_eq!(
        rows(&session, &format!("select sum(x), max(year), count(*) from {all}")).await,
        ["33 2024 3"]
    );
    assert_eq!(rows(&session, &format!("select min(year) from {all} where x > 5")).await, ["2024"]);
}

#[tokio::test]
async fn rows_are_inserted_as_another_file_of_a_folder() {
    let gz = "options ('format.compression' 'gzip')";
    let session = session();
    for (kind, copy, options) in [
        ("csv", "csv", ""),
        ("tsv", "csv", "options ('format.delimiter' '\t')"),
        ("csv.gz", "csv", gz),
        ("jsonl", "json", ""),
        ("parquet", "parquet", ""),
        ("arrow", "arrow", ""),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("t");
        let first = format!("{}/a.{kind}", place.display());
        let source = "select * from (values (1, 'one'), (null, null)) v(n, s) where n = 1";
        session.sql(&format!("copy ({source}) to '{first}' stored as {copy} {options}")).await.unwrap();
        let name = format!("t_{}", kind.replace('.', "_"));
        session.register_path(&name, &place).await.unwrap();
        session.sql(&format!("insert into {name} values (2, 'two'), (3, null)")).await.unwrap();
        session.sql(&format!("insert into {name} (s, n) select 'four', 4")).await.unwrap();
        let sums = format!("select sum(n), count(s), max(s) from {name}");
        assert_eq!(rows(&session, &sums).await, ["10 3 two"], "{kind}");
        // One that fails adds nothing.
        let failing = format!("insert into {name} select 10 / (value - 50000), 'x' from range(100000)");
        assert!(session.sql(&failing).await.is_err());
        assert_eq!(rows(&session, &sums).await, ["10 3 two"], "{kind}");
        let names =
            fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: Vec<String> = names.collect();
        assert!(
            names.len() == 3 && names.iter().all(|name| name.ends_with(&format!(".{kind}"))),
            "{names:?}"
        );
    }
}

#[tokio::test]
async fn rows_are_inserted_into_the_folders_that_name_them() {
    let folder = folder(&[("t/year=2023/k=a/a.csv", "x\n1\n")]);
    let session = session();
    session.register_dir(folder.path()).await.unwrap();
    session.sql("insert into t values (2, 2023, 'a'), (3, 2024, 'b c')").await.unwrap();
    let all = "select x, year, k from t order by x";
    assert_eq!(rows(&session, all).await, ["1 2023 a", "2 2023 a", "3 2024 b c"]);
    assert!(folder.path().join("t/year=2024").is_dir());
}

#[tokio::test]
async fn what_takes_no_rows_says_what_does() {
    let folder = folder(&[("one.csv", "x\n1\n"), ("arrays/a.json", "[{\"x\": 1}]")]);
    let session = session();
    session.register_dir(folder.path()).await.unwrap();
    let path = folder.path().display();
    session.register_path("some", format!("{path}/*.csv")).await.unwrap();
    for (sql, parts) in [
        ("insert into one values (2)", &["one.csv", "one file", "COPY (SELECT"][..]),
        ("insert into some values (2)", &["*.csv", "a pattern", "folder"]),
        ("insert into arrays values (2)", &["a.json", "one array"]),
        ("insert overwrite arrays values (2)", &["verwrite"]),
    ] {
        let text = error(&session, sql).await;
        assert!(parts.iter().all(|part| text.contains(part)), "{sql}: {text}");
    }
}

#[tokio::test]
async fn files_are_looked_at_when_they_are_named() {
    let folder =
        folder(&[("good.csv", "a,b\n1,2\n"), ("bad.csv", "a,b\n1\n"), ("rows.json", "{\"k\": 1}\n")]);
    let session = session();
    let found = session.register_data(folder.path()).await.unwrap();
    assert!(found.problems.is_empty() && found.names.len() == 3, "{found:?}");
    assert_eq!(rows(&session, "select b from good").await, ["2"]);
    // What lists all columns leaves out what cannot be read, and whoever names it gets the reason.
    let columns = "select table_name, column_name from information_schema.columns where table_schema = 'public' order by 1, 2";
    assert_eq!(rows(&session, columns).await, ["good a", "good b", "rows k"]);
    let error = session.sql("select * from bad").await.unwrap_err().to_string();
    assert!(error.contains("bad.csv") && error.contains("line 2"), "{error}");
}
