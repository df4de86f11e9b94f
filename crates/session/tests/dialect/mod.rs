//! SQL that people bring from other engines. Its answers are in the files beside this one; here are files that statements read, what compiles,
//! and the examples of docs/book/src/sql.md.

use std::path::Path;

use kelpie_session::{KelpieSession, SessionOptions, Stage};

use crate::people::{error, folder, rows, sessions};

/// Runs statements, in which `DIR/` is a folder, and compares their rows.
async fn compare(session: &KelpieSession, folder: &Path, queries: &[(&str, &[&str])]) {
    for (sql, expected) in queries {
        let sql = sql.replace("DIR/", &format!("{}/", folder.display()));
        assert_eq!(rows(session, &sql).await, *expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn csv_is_read_as_a_call_says() {
    let folder = folder(&[
        ("plain.csv", "a,b\n1,x\n2,y\n"),
        ("bar.dat", "a|b\n1|x, y\n2|z\n"),
        ("late.csv", "made by a machine\n\"no data\n\na;b\n1;'x;y'\n2;z\n"),
        ("nulls.csv", "a,b\n1,NA\n-,\nNA,x\n"),
        ("bare.csv", "1,2\n3,4\n"),
        ("blanks.csv", "a, b , c d\n1,2,3\n"),
        ("short.csv", "a,b,c\n1,2\n3,4,5\n"),
        ("codes.csv", "code,n\n7,1.50\n8,2\n"),
        ("y/year=2023/m=1/p.csv", "v\n1\n"),
        ("y/year=2024/m=2/p.csv", "v\n2\n"),
        ("more/1.csv", "a,b\n1,2\n"),
        ("more/2.csv", "B,c\n20,x\n"),
    ]);
    for session in sessions() {
        compare(
            &session,
            folder.path(),
            &[
                ("select * from read_csv('DIR/plain.csv') order by a", &["1 x", "2 y"]),
                ("select read_csv_auto.b from read_csv_auto('DIR/plain.csv') where a = 2", &["y"]),
                ("select t.b from READ_CSV('DIR/plain.csv', HEADER = true) as t where a = 2", &["y"]),
                ("select b, a + 1 from read_csv('DIR/bar.dat', delim = '|') order by a", &["x, y 2", "z 3"]),
                ("select b from read_csv('DIR/bar.dat') order by a", &["x, y", "z"]),
                (
                    "select a, b from read_csv('DIR/late.csv', skip = 3, sep := ';', quote = '''') order by a",
                    &["1 x;y", "2 z"],
                ),
                (
                    "select a is null, b, b is null from read_csv('DIR/nulls.csv', nullstr = ['NA', '-']) order by a, b",
                    &["false true", "true false", "true x false"],
                ),
                (
                    "select * from read_csv('DIR/bare.csv', header = false, names = ['p', 'q']) order by p",
                    &["1 2", "3 4"],
                ),
                ("select b, \"c d\" from read_csv('DIR/blanks.csv')", &["2 3"]),
                ("select column1 from read_csv('DIR/bare.csv', header = false) order by 1", &["2", "4"]),
                (
                    "select a, c from read_csv('DIR/short.csv', null_padding = true) order by a",
                    &["1", "3 5"],
                ),
                (
                    "select code, n, typeof(code), typeof(n) from read_csv('DIR/codes.csv', types = {'CODE': 'VARCHAR', \
                     'n': 'DECIMAL(9,2)'}) order by code",
                    &["7 1.50 VARCHAR DECIMAL(9,2)", "8 2.00 VARCHAR DECIMAL(9,2)"],
                ),
                (
                    "select k + 1, x from read_csv('DIR/codes.csv', columns = {'k': 'UTINYINT', 'x': 'VARCHAR'}) order by k",
                    &["8 1.50", "9 2"],
                ),
                ("select n from read_csv('DIR/codes.csv', all_varchar = true) order by code", &["1.50", "2"]),
                (
                    "select v, year, m from read_csv('DIR/y/*/*/*.csv', hive_partitioning = true) order by v",
                    &["1 2023 1", "2 2024 2"],
                ),
                ("select * from read_csv('DIR/y/*/*/*.csv', hive_partitioning = false) order by v", &["1", "2"]),
                (
                    "select v, year from read_csv(['DIR/y/year=2024/m=2/p.csv', 'DIR/y/year=2023/m=1/p.csv']) order by v",
                    &["1 2023", "2 2024"],
                ),
                (
                    "select a, b, c from read_csv(['DIR/more/1.csv', 'DIR/more/2.csv'], union_by_name = true) order by b",
                    &["1 2", "20 x"],
                ),
                (
                    "select regexp_extract(filename, '[^/]*$') as f, sum(b) from read_csv('DIR/more/*.csv', filename = true) \
                     group by f order by f",
                    &["1.csv 2", "2.csv 20"],
                ),
                ("select count(*) from read_csv('DIR/more/*.csv', filename = 'f') where f like '%1.csv'", &["1"]),
            ],
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_other_formats_are_read_by_calls() {
    let folder = folder(&[("a.json", "{\"a\": 1}\n{\"a\": 2}\n"), ("list.txt", "[{\"a\": 5}]")]);
    for session in sessions() {
        let _ = std::fs::remove_file(folder.path().join("p.parquet"));
        let copy = "copy (select 1 as a union all select 2) to 'DIR/p.parquet' stored as parquet";
        session.sql(&copy.replace("DIR/", &format!("{}/", folder.path().display()))).await.unwrap();
        std::fs::copy(folder.path().join("p.parquet"), folder.path().join("p.data")).unwrap();
        compare(
            &session,
            folder.path(),
            &[
                ("select sum(a) from read_json('DIR/a.json')", &["3"]),
                ("select sum(a) from read_ndjson_auto('DIR/a.json', format = 'newline_delimited')", &["3"]),
                ("select a from read_json('DIR/list.txt', format = 'array')", &["5"]),
                ("select sum(a) from read_parquet('DIR/p.parquet')", &["3"]),
                ("select sum(parquet_scan.a) from parquet_scan(['DIR/p.data', 'DIR/p.parquet'])", &["6"]),
            ],
        )
        .await;
        compare(
            &session,
            folder.path(),
            &[
                (
                    "select regexp_extract(file_name, '[^/]*$'), row_group_num_rows, path_in_schema, type, stats_min, stats_max, \
                     stats_null_count, compression <> '' from parquet_metadata('DIR/p.parquet')",
                    &["p.parquet 2 a INT64 1 2 0 true"],
                ),
                (
                    "select name, type, num_children from parquet_schema('DIR/p.*') where name = 'a'",
                    &["a INT64", "a INT64"],
                ),
            ],
        )
        .await;
        // A call sees the file that is there.
        std::fs::write(folder.path().join("now.csv"), "a\n1\n").unwrap();
        compare(&session, folder.path(), &[("select * from read_csv('DIR/now.csv')", &["1"])]).await;
        std::fs::write(folder.path().join("now.csv"), "a\n1000\n").unwrap();
        compare(&session, folder.path(), &[("select * from read_csv('DIR/now.csv')", &["1000"])]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_from_inserts_what_a_file_has() {
    let folder = folder(&[
        ("a.csv", "k,v\n1,1.50\n2,007\n"),
        ("b.tbl", "3|x\n4|\n"),
        ("c.json", "{\"k\": 5, \"v\": \"z\"}\n"),
    ]);
    for session in sessions() {
        session.sql("create table t (k integer, v varchar)").await.unwrap();
        for sql in [
            "copy t from 'DIR/a.csv' (header)",
            "COPY t (k, v) FROM 'DIR/b.tbl' WITH (FORMAT csv, HEADER false, DELIMITER '|')",
            "copy t from 'DIR/c.json'",
        ] {
            let sql = sql.replace("DIR/", &format!("{}/", folder.path().display()));
            session.sql(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        compare(
            &session,
            folder.path(),
            &[("select * from t order by k", &["1 1.50", "2 007", "3 x", "4", "5 z"])],
        )
        .await;
        let unknown = format!("copy t from '{}/a.csv' (nothing 1)", folder.path().display());
        assert!(error(&session, &unknown).await.contains("no option nothing"), "{unknown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_in_calls_are_named() {
    let folder = folder(&[("a.csv", "a,b\n1,x\n")]);
    let session = sessions().remove(0);
    for (sql, parts) in [
        (
            "select * from read_csv('DIR/a.csv', delimeter = ';')",
            &["read_csv has no option delimeter", "delim"][..],
        ),
        ("select * from read_csv('DIR/a.csv', ';')", &["has no name"]),
        ("select * from read_csv('DIR/a.csv', delim = ';;')", &["delim", "one ASCII character"]),
        ("select * from read_csv('DIR/a.csv', header = 'maybe')", &["header", "true or false"]),
        ("select * from read_csv('DIR/a.csv', skip = -1)", &["skip", "a number of lines"]),
        ("select * from read_csv('DIR/a.csv', skip = 1, skip = 2)", &["skip twice"]),
        ("select * from read_csv('DIR/a.csv', types = {'z': 'INTEGER'})", &["a.csv", "no column z"]),
        ("select * from read_csv('DIR/a.csv', types = {'a': 'NOTHING'})", &["NOTHING"]),
        (
            "select * from read_csv('DIR/a.csv', columns = {'a': 'INTEGER'})",
            &["1 columns are given", "2 values"],
        ),
        ("select * from read_csv('DIR/a.csv', names = ['x', 'x'])", &["two columns are named x"]),
        ("select * from read_csv('DIR/a.csv', types = {'b': 'INTEGER'})", &["a.csv", "column b", "'x'"]),
        ("select * from read_csv('DIR/none.csv')", &["none.csv"]),
        ("select * from read_csv('DIR/none*.csv')", &["no file matches"]),
        ("select * from read_csv()", &["gets no file"]),
        ("select * from read_csv([])", &["gets no file"]),
        ("select * from read_csv(1)", &["1 is no file"]),
        ("select * from read_csv('https://example.org/x.csv')", &["only local files"]),
        ("select * from read_csv('DIR/a.csv', union_by_name = false)", &["meet by name"]),
        ("select * from read_parquet('DIR/a.csv')", &["a.csv"]),
        ("select * from parquet_metadata('DIR/a.csv')", &["a.csv"]),
        (
            "select * from parquet_schema('DIR/a.csv', filename = true)",
            &["parquet_schema has no option filename"],
        ),
        ("select * from read_parquet('DIR/a.csv', delim = ',')", &["read_parquet has no option delim"]),
        ("insert into read_csv('DIR/a.csv') values (1, 'x')", &[""]),
    ] {
        let sql = sql.replace("DIR/", &format!("{}/", folder.path().display()));
        let error = error(&session, &sql).await;
        assert!(parts.iter().all(|part| error.contains(part)), "{sql}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_in_other_words_compiles() {
    let options = SessionOptions::default().with("kelpie.device", "cpu").with("kelpie.min_rows", "0");
    let session = KelpieSession::new(options).unwrap();
    for sql in [
        "create table t as select * from (values (1, timestamp '2024-01-01 10:00:00', 1.5::double, 'a')) as v(i, m, x, s)",
        "create table u as select * from t",
        "create macro half(a) as a / 2",
    ] {
        session.sql(sql).await.unwrap();
    }
    for sql in [
        "select year(m) as y, sum(i) from t group by y",
        "select time_bucket(interval '1 hour', m) as b, sum(i) from t group by b",
        "select s, count_if(x > 1), sum(i // 2) from t group by s",
        "select half(x), len(s), epoch_us(m) from t",
        "select last_day(m), datediff('day', m, m), datediff('month', m, m) from t",
        "select i from t semi join u using (i)",
        "select i from t anti join u on t.i = u.i",
        "select i::hugeint, i::uinteger from t",
        "select if(x > 1, 1, 2), regexp_matches(s, '^a') from t",
        "select s, arg_max(i, x) from t group by s",
        "select t.i, u.x from t asof join u on t.s = u.s and t.m >= u.m",
        "select s, favg(i), subtract(max(i), 1) from t where ~i < 0 group by s",
        "select s, sum(i) from t where s ->> 'a' = 'x' group by s",
    ] {
        let plan = session.explain(sql, Stage::Plan).await.unwrap();
        let first = plan.lines().next().unwrap_or_default().trim_start();
        assert!(first.starts_with("KelpieExec"), "{sql}\n{plan}");
    }
    // All of it but for what makes rows of lists.
    let plan = session.explain("summarize t", Stage::Plan).await.unwrap();
    assert!(plan.contains("KelpieExec"), "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_are_summarized() {
    for session in sessions() {
        session
            .sql(
                "create table t as select * from (values (1, 10.5::double, 'a', date '2024-01-01'), (2, null, 'b', null), (3, 10.5, \
                 null, date '2024-01-03')) as v(i, x, s, d)",
            )
            .await
            .unwrap();
        let expected = [
            "i BIGINT 1 3 3 2.0 1.0 1.5 2.0 2.5 3 0.00",
            "x DOUBLE 10.5 10.5 1 10.5 0.0 10.5 10.5 10.5 3 33.33",
            "s VARCHAR a b 2 3 33.33",
            "d DATE 2024-01-01 2024-01-03 2 2024-01-01 2024-01-02 2024-01-02 3 33.33",
        ];
        assert_eq!(rows(&session, "summarize t").await, expected);
        assert_eq!(rows(&session, "SUMMARIZE SELECT i, x FROM t").await, expected[..2]);
        let part = "select column_name, \"min\" from (summarize from t) where count = 3 order by column_name limit 1";
        assert_eq!(rows(&session, part).await, ["d 2024-01-01"]);
        let empty = rows(&session, "summarize select * from t where false").await;
        assert_eq!(empty[0], "i BIGINT 0 0");
        assert_eq!(rows(&session, "describe select i, s from t").await.len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn macros_end_with_what_they_cost() {
    let session = sessions().remove(0);
    session.sql("create macro double(a) as a + a").await.unwrap();
    let nested = format!("select {}1{}", "double(".repeat(40), ")".repeat(40));
    let error = error(&session, &nested).await;
    assert!(error.contains("too large") || error.contains("too deep"), "{error}");
    session.sql("create macro first_of(a) as a").await.unwrap();
    // A kept plan does not outlive what it was written with.
    assert_eq!(rows(&session, "select first_of(1)").await, ["1"]);
    session.sql("create or replace macro first_of(a) as a + 1").await.unwrap();
    assert_eq!(rows(&session, "select first_of(1)").await, ["2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn options_are_shown() {
    let session = sessions().remove(0);
    assert_eq!(rows(&session, "select current_setting('kelpie.device')").await, ["cpu"]);
    session.sql("set kelpie.device = 'simt'").await.unwrap();
    assert_eq!(rows(&session, "select current_setting('kelpie.device')").await, ["simt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_corrections_nothing_is_written_anew() {
    let options = SessionOptions::default().with("kelpie.device", "cpu").with("kelpie.corrections", "off");
    let session = KelpieSession::new(options).unwrap();
    session.sql("create table t as select 1 as i").await.unwrap();
    for sql in [
        "select year(date '2024-01-01')",
        "select 7 // 2",
        "select 2 ** 3",
        "select 1::hugeint",
        "summarize t",
        "select * from t semi join t as u using (i)",
        "create macro m() as 1",
        "select * from read_csv('x.csv')",
        "select '[1]' -> 0",
        "select list_transform([1], lambda x: x)",
        "select [x for x in [1]]",
    ] {
        assert!(session.sql(sql).await.is_err(), "{sql}");
    }
}

/// The statements of a table's first column, and the files that the page's examples read.
#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_page_run() {
    let page = include_str!("../../../../docs/book/src/sql.md");
    let folder = folder(&[
        ("people.csv", "name;born\nAda;1815-12-10\nAlan;1912-06-23\n"),
        ("more.csv", "name;born\nGrace;1906-12-09\n"),
    ]);
    let session = sessions().remove(0);
    let run = async |sql: &str| {
        let sql = sql.replace("'people.csv'", &format!("'{}/people.csv'", folder.path().display()));
        let sql = sql.replace("'*.csv'", &format!("'{}/*.csv'", folder.path().display()));
        let sql = sql.replace("'t.parquet'", &format!("'{}/t.parquet'", folder.path().display()));
        let sql = sql.replace("'some.csv'", &format!("'{}/written/some.csv'", folder.path().display()));
        let sql = sql.replace("'parts'", &format!("'{}/parts'", folder.path().display()));
        session.sql(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    };
    let block = page.split("```sql").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    for statement in block.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
        run(statement).await;
    }
    run("COPY t TO 't.parquet'").await;
    let mut examples = 0;
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cell = line.trim_start_matches("| ").split(" | ").next().unwrap();
        for example in cell.split('`').skip(1).step_by(2) {
            run(&example.replace("\\|", "|")).await;
            examples += 1;
        }
    }
    assert!(examples >= 85, "{examples}");
}
