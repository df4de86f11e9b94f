//! CSV and JSON as people have them: line breaks in values, values that come late, other signs between values.

use std::fmt::Write;
use std::fs;

use crate::people::{error, folder, rows, sessions, write};

/// CSV of many rows with line breaks, quotes and commas in values: longer than what is read at once, and than a part of a file.
fn quoted(rows: usize, end: &str) -> String {
    let mut text = format!("id,note,amount{end}");
    for row in 0..rows {
        let note = match row % 4 {
            0 => format!("\"first line{end}1,second \"\"line\"\" of {row}\""),
            1 => format!("\"{end}{end}\""),
            2 => "plain \"quotes\" within".to_string(),
            _ => "\"\"\"\"".to_string(),
        };
        write!(text, "{row},{note},{}{end}", row % 10).unwrap();
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_found_whatever_stands_in_quotes() {
    for (end, size) in [("\n", 80_000), ("\r\n", 30_000), ("\n", 200)] {
        let folder =
            folder(&[("t.csv", &quoted(size, end)), ("u.tsv", &quoted(size, end).replace(',', "\t"))]);
        for session in sessions() {
            session.register_dir(folder.path()).await.unwrap();
            for table in ["t", "u"] {
                let sql = format!(
                    "select count(*), sum(id), min(amount), max(amount), count(distinct note) from {table}"
                );
                let distinct = size / 4 + 3;
                let expected = format!("{size} {} 0 9 {distinct}", size * (size - 1) / 2);
                assert_eq!(rows(&session, &sql).await, [expected], "{table}");
                let types = format!("select arrow_typeof(id), arrow_typeof(amount) from {table} limit 1");
                assert_eq!(rows(&session, &types).await, ["Int64 Int64"]);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_between_values_is_seen_in_the_first_lines() {
    let folder = folder(&[
        ("semicolons.csv", "id;price;name\n1;1,5;one\n2;2,5;two\n"),
        ("tabs.csv", "id\tname\n1\tone, two\n2\tthree\n"),
        ("bars.csv", "id|name\n1|one\n2|two;three\n"),
        ("units.csv", "id;price, in EUR\n1;5\n2;6\n"),
        ("quoted.csv", "\"id;x\",name\n1,one\n2,two\n"),
        ("single.csv", "id\n1\n2\n"),
        ("tab.tab", "id\tname\n1\tone\n2\ttwo\n"),
        ("words.txt", "id;name\n1;one\n2;two\n"),
        ("commas.txt", "id,name\n1,one\n2,two\n"),
    ]);
    let path = folder.path().display();
    for session in sessions() {
        for (file, column, last) in [
            ("semicolons.csv", "price", "2,5"),
            ("tabs.csv", "name", "three"),
            ("bars.csv", "name", "two;three"),
            ("units.csv", "\"price, in EUR\"", "6"),
            ("quoted.csv", "name", "two"),
            ("single.csv", "id", "2"),
            ("tab.tab", "name", "two"),
            ("words.txt", "name", "two"),
            ("commas.txt", "name", "two"),
        ] {
            let sql = format!("select {column} from '{path}/{file}'");
            assert_eq!(rows(&session, &sql).await.last().unwrap(), last, "{file}");
        }
        // What is written beside such files is written alike.
        write(folder.path(), &[("d/1.csv", "id;name\n1;one\n"), ("d/2.csv", "name;id\ntwo;2\n")]);
        session.register_path("d", folder.path().join("d")).await.unwrap();
        session.sql("insert into d values (3, 'three')").await.unwrap();
        assert_eq!(rows(&session, "select sum(id), max(name) from d").await, ["6 two"]);
        fs::remove_dir_all(folder.path().join("d")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_encoding_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let json: Vec<u8> = "{\"a\": 1}\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
    fs::write(folder.path().join("unmarked.json"), &json).unwrap();
    fs::write(folder.path().join("marked.json"), [b"\xfe\xff", json.as_slice()].concat()).unwrap();
    for session in sessions() {
        for name in ["unmarked.json", "marked.json"] {
            let text = error(&session, &format!("select * from '{}/{name}'", folder.path().display())).await;
            assert!(text.contains(name) && text.contains("UTF-16") && text.contains("iconv"), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_says_another_compression_is_named() {
    let folder =
        folder(&[("plain.csv.gz", "a\n1\n"), ("plain.json.zst", "{}"), ("zip.csv", "PK\u{3}\u{4}..")]);
    let path = folder.path().display();
    for session in sessions() {
        session.sql(&format!("copy (select 1 as a) to '{path}/x.csv.gz'")).await.unwrap();
        for (from, to) in
            [("x.csv.gz", "packed.csv"), ("x.csv.gz", "packed.jsonl"), ("x.csv.gz", "packed.csv.xz")]
        {
            fs::copy(folder.path().join(from), folder.path().join(to)).unwrap();
        }
        for (file, part) in [
            ("plain.csv.gz", "the name says gzip"),
            ("plain.json.zst", "the name says Zstandard"),
            ("packed.csv", "compressed by gzip"),
            ("packed.jsonl", "compressed by gzip"),
            ("packed.csv.xz", "compressed by gzip"),
            ("zip.csv", "a ZIP archive"),
        ] {
            let text = error(&session, &format!("select * from '{path}/{file}'")).await;
            assert!(text.contains(part) && text.contains(file), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_says_another_format_is_named() {
    let folder = folder(&[("fake.csv", "PAR1,b\n1,2\n"), ("notes.dat", "a\n1\n")]);
    let path = folder.path().display();
    for session in sessions() {
        for (format, ending, expected) in [
            ("parquet", "csv", "a Parquet file"),
            ("parquet", "json", "a Parquet file"),
            ("arrow", "csv", "an Arrow file"),
        ] {
            session.sql(&format!("copy (select 1 as a) to '{path}/t.{format}'")).await.unwrap();
            fs::rename(folder.path().join(format!("t.{format}")), folder.path().join(format!("t.{ending}")))
                .unwrap();
            let said = error(&session, &format!("select * from '{path}/t.{ending}'")).await;
            assert!(said.contains(expected) && said.contains(&format!("read_{format}('…')")), "{said}");
            let sql = format!("select a from read_{format}('{path}/t.{ending}')");
            assert_eq!(rows(&session, &sql).await, ["1"], "{sql}");
        }
        assert_eq!(rows(&session, &format!("select \"PAR1\" from '{path}/fake.csv'")).await, ["1"]);
        let said = error(&session, &format!("select * from '{path}/notes.dat'")).await;
        assert!(said.contains(".dat is not read. read_csv('…')"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_read_however_it_stands_in_lines() {
    let folder = folder(&[
        ("pretty.json", "{\n  \"a\": 1,\n  \"b\": {\n    \"c\": [1, 2]\n  }\n}\n{\n  \"a\": 2\n}\n"),
        ("array.json", "\n [\n  {\"a\": 1, \"b\": {\"c\": [3]}},\n  {\"a\": 2, \"s\": \"],[\\\"\"}\n ]\n"),
        ("together.json", "{\"a\":1,\"b\":{\"c\":[]}}{\"a\":2}"),
        ("mark.json", "\u{feff}{\"a\": 1, \"b\": {\"c\": null}}\n{\"a\": 2}\n"),
        ("cut.json", "[{\"a\": 1}, {\"a\": 2}"),
        ("values.json", "[1, 2]"),
        ("broken.json", "{\"a\": 1}\n{\"a\": 2,}\n"),
    ]);
    let path = folder.path().display();
    for session in sessions() {
        for file in ["pretty", "array", "together", "mark"] {
            let sql = format!("select sum(a), count(*), count(b) from '{path}/{file}.json'");
            assert_eq!(rows(&session, &sql).await, ["3 2 1"], "{file}");
        }
        for (file, part) in [("cut", "no end"), ("values", "no object"), ("broken", "line 2")] {
            let text = error(&session, &format!("select * from '{path}/{file}.json'")).await;
            assert!(text.contains(part) && text.contains(&format!("{file}.json")), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_values_of_several_kinds_lose_nothing() {
    let folder = folder(&[
        ("mixed.json", "{\"v\": 1}\n{\"v\": \"a\"}\n{\"v\": true}\n{\"v\": null}\n{\"v\": 1.50}\n"),
        ("nested.json", "{\"v\": {\"b\": 1, \"a\": [2]}}\n{\"v\": [1, \"x\"]}\n{\"v\": \"text\"}\n"),
        ("inner.json", "{\"o\": {\"k\": 1}}\n{\"o\": {\"k\": \"x\"}}\n{\"o\": {\"k\": {\"z\": 2}}}\n"),
        ("large.json", "{\"v\": 9223372036854775807}\n{\"v\": 9223372036854775808}\n"),
        ("signed.json", "{\"v\": -1}\n{\"v\": 18446744073709551615}\n"),
        ("huge.json", "{\"v\": 1}\n{\"v\": 123456789012345678901234567890}\n"),
        ("halves.json", "{\"v\": 1}\n{\"v\": 2.5}\n"),
    ]);
    for session in sessions() {
        session.register_dir(folder.path()).await.unwrap();
        for (table, values) in [
            ("mixed", &["1", "a", "true", "", "1.50"][..]),
            ("nested", &["{\"b\":1,\"a\":[2]}", "[1,\"x\"]", "text"]),
            ("large", &["9223372036854775807", "9223372036854775808"]),
            ("signed", &["-1", "18446744073709551615"]),
            ("huge", &["1.0", "1.2345678901234568e29"]),
            ("halves", &["1.0", "2.5"]),
        ] {
            assert_eq!(rows(&session, &format!("select v from {table}")).await, values, "{table}");
        }
        assert_eq!(rows(&session, "select o['k'] from inner").await, ["1", "x", "{\"z\":2}"]);
        assert_eq!(
            rows(&session, "select max(v), arrow_typeof(max(v)) from large").await,
            ["9223372036854775808 UInt64"]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_after_the_rows_that_were_looked_at_is_never_lost() {
    let early: String = (0..20).map(|row| format!("{{\"a\": {row}, \"n\": null}}\n")).collect();
    let late = |row: &str| format!("{early}{row}\n{{\"a\": 5}}\n");
    let csv: String = (0..20).map(|row| format!("{row},\n")).collect();
    let folder = folder(&[
        ("key.json", &late("{\"a\": 1, \"new\": 2}")),
        ("text.json", &late("{\"a\": \"x\"}")),
        ("half.json", &late("{\"a\": 1.5}")),
        ("large.json", &late("{\"a\": 9223372036854775808}")),
        ("null.json", &late("{\"n\": 7}")),
        ("object.json", &late("{\"a\": {\"b\": 1}}")),
        ("broken.json", &late("{\"a\": 1")),
        ("text.csv", &format!("a,n\n{csv}x,\n")),
        ("null.csv", &format!("a,n\n{csv}1,7\n")),
        ("date.csv", &late_line("2024-01-01", "2024-01-02 10:00:00")),
        ("zone.csv", &late_line("2024-01-01", "2024-01-01T23:00:00-05:00")),
        ("second.csv", &late_line("2024-01-01 10:00:00", "2024-01-01 10:00:00.5")),
        ("large.csv", &late_line("99999999999999999999", "1.5")),
    ]);
    let path = folder.path().display();
    for session in sessions() {
        session.sql("set kelpie.infer_rows = 10").await.unwrap();
        for (file, parts) in [
            ("key.json", &["line 21", "key new", "infer_rows"][..]),
            ("text.json", &["line 21", "column a", "'\"x\"'", "infer_rows"]),
            ("half.json", &["line 21", "column a", "1.5", "infer_rows"]),
            ("large.json", &["line 21", "column a", "9223372036854775808", "infer_rows"]),
            ("null.json", &["line 21", "column n", "7", "infer_rows"]),
            ("object.json", &["line 21", "column a", "infer_rows"]),
            ("broken.json", &["broken.json"]),
            ("text.csv", &["line 22", "column a", "'x'", "infer_rows"]),
            // Readers would cut them off.
            ("date.csv", &["line 22", "column a", "'2024-01-02 10:00:00'", "infer_rows"]),
            ("zone.csv", &["line 22", "column a", "'2024-01-01T23:00:00-05:00'", "infer_rows"]),
            ("second.csv", &["line 22", "column a", "10:00:00.5'", "infer_rows"]),
            ("large.csv", &["line 22", "column a", "'1.5'", "infer_rows"]),
        ] {
            // What is wrong with a key that nobody asks for is no error.
            let columns = if file == "null.json" { &["*", "count(n)"] } else { &["*", "count(a)"] };
            for columns in columns {
                let text = error(&session, &format!("select {columns} from '{path}/{file}'")).await;
                assert!(parts.iter().all(|part| text.contains(part)) && text.contains(file), "{text}");
            }
        }
        // A column of which nothing was seen holds whatever comes.
        assert_eq!(rows(&session, &format!("select max(n) from '{path}/null.csv'")).await, ["7"]);
        session.sql("set kelpie.infer_rows = 0").await.unwrap();
        for (file, sql, expected) in [
            ("key.json", "max(new)", "2"),
            ("text.json", "max(a)", "x"),
            ("half.json", "min(a) + 1.5", "1.5"),
            ("large.json", "max(a)", "9223372036854775808"),
            ("null.json", "max(n)", "7"),
            ("object.json", "max(a)", "{\"b\":1}"),
            ("text.csv", "max(a)", "x"),
            ("date.csv", "max(a)", "2024-01-02T10:00:00"),
            ("second.csv", "max(a)", "2024-01-01T10:00:00.500"),
        ] {
            let sql = format!("select {sql} from '{path}/{file}'");
            assert_eq!(rows(&session, &sql).await, [expected], "{sql}");
        }
    }
}

/// A column of one value, and another one at its end.
fn late_line(value: &str, last: &str) -> String {
    format!("a\n{}{last}\n", format!("{value}\n").repeat(20))
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_nobody_asked_for_are_left_out_of_lines() {
    let lines = |last: &str| {
        let line = |row: usize| {
            format!(
                "{{\"a\": {row}, \"n\": {{\"x\": [\"}}\", 1]}}, \"s\": \"\\\"{row}\\\\\", \"f\": {row}.5}}\n"
            )
        };
        (0..50).map(line).chain([last.to_string()]).collect::<String>()
    };
    let files = [
        ("plain.json", lines("{\"a\": 50, \"s\": \"x\"}\n"), Some("51 1275")),
        ("order.json", lines("  {\"s\" : \"x\" , \"a\" : 50}"), Some("51 1275")),
        // A key that is written by escapes is the key that it says.
        ("escapes.json", lines("{\"\\u0061\": 50}\n"), Some("51 1275")),
        ("over_lines.json", lines("{\"a\":\n50,\n\"n\": {\"x\":\n[]\n}}\n{\"a\": 1}\n"), Some("52 1276")),
        ("twice.json", lines("{\"s\": 1, \"a\": 50, \"s\": \"x\"}\n"), Some("51 1275")),
        ("late.json", lines("{\"a\": 50, \"new\": 1}\n"), None),
        ("cut.json", lines("{\"a\": 50, \"s\": \"x}\n"), None),
        ("brackets.json", lines("{\"a\": 50, \"n\": {\"x\": [1}]}\n"), None),
    ];
    let files: Vec<(&str, &str, Option<&str>)> =
        files.iter().map(|(name, text, expected)| (*name, text.as_str(), *expected)).collect();
    let folder = folder(&files.iter().map(|(name, text, _)| (*name, *text)).collect::<Vec<_>>());
    for session in sessions() {
        session.sql("SET kelpie.infer_rows = 20").await.unwrap();
        for (name, _, expected) in &files {
            let sql = format!("select count(a), sum(a) from '{}/{name}'", folder.path().display());
            match expected {
                Some(expected) => assert_eq!(rows(&session, &sql).await, [*expected], "{name}"),
                None => {
                    let text = error(&session, &sql).await;
                    assert!(text.contains(": line 5") && text.contains(name), "{text}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_asked_for_first_are_the_first_of_a_file() {
    let text: String = (0..50_000).map(|row| format!("{row},{}\n", "x".repeat(row % 50))).collect();
    let folder = folder(&[("t.csv", &format!("id,s\n{text}"))]);
    for session in sessions() {
        session.sql("set datafusion.optimizer.repartition_file_min_size = 0").await.unwrap();
        session.sql("set datafusion.execution.target_partitions = 4").await.unwrap();
        session.register_dir(folder.path()).await.unwrap();
        assert_eq!(rows(&session, "select id from t limit 3").await, ["0", "1", "2"]);
        assert_eq!(rows(&session, "select id from t limit 2 offset 40000").await, ["40000", "40001"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_writes_as_the_name_of_its_file_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let source = "select value as n, 'text, ' || value as s from range(1000)";
    for session in sessions() {
        for (file, magic) in [
            ("a.csv.gz", &b"\x1f\x8b"[..]),
            ("b.json.gz", b"\x1f\x8b"),
            ("c.csv.zst", b"\x28\xb5\x2f\xfd"),
            ("d.ndjson.bz2", b"BZh"),
            ("e.tsv", b"n\ts\n"),
            ("f.tab.xz", b"\xfd7zXZ"),
            ("g.jsonl", b"{"),
            ("h.feather", b"ARROW1"),
            ("I.CSV.GZ", b"\x1f\x8b"),
        ] {
            session.sql(&format!("copy ({source}) to '{path}/{file}'")).await.unwrap();
            assert!(fs::read(folder.path().join(file)).unwrap().starts_with(magic), "{file}");
            let sums = format!("select count(*), sum(n), max(s) from '{path}/{file}'");
            assert_eq!(rows(&session, &sums).await, ["1000 499500 text, 999"], "{file}");
        }
        // What the statement says holds.
        let chosen = format!(
            "copy ({source}) to '{path}/k.tsv' options ('format.delimiter' '|', format.has_header false)"
        );
        session.sql(&chosen).await.unwrap();
        assert!(fs::read_to_string(folder.path().join("k.tsv")).unwrap().starts_with("0|"));
        for tab in ["'\\t'", "E'\\t'"] {
            session.sql(&format!("copy ({source}) to '{path}/m.csv' (delimiter {tab})")).await.unwrap();
            assert!(fs::read(folder.path().join("m.csv")).unwrap().starts_with(b"n\ts\n"), "{tab}");
        }
        for (name, shown) in [("zstd", "ZSTD"), ("gzip", "GZIP"), ("BROTLI", "BROTLI"), ("zstd(9)", "ZSTD")] {
            session
                .sql(&format!("copy ({source}) to '{path}/o' (format parquet, compression '{name}')"))
                .await
                .unwrap();
            let sql = format!(
                "select distinct split_part(compression, '(', 1) from parquet_metadata('{path}/o/*')"
            );
            assert_eq!(rows(&session, &sql).await, [shown], "{name}");
            fs::remove_dir_all(folder.path().join("o")).unwrap();
        }
        session.sql(&format!("copy ({source}) to '{path}/l.csv.gz' stored as csv")).await.unwrap();
        assert!(fs::read(folder.path().join("l.csv.gz")).unwrap().starts_with(b"\x1f\x8b"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_read_back_as_they_are_written() {
    let folder = folder(&[
        ("codes.csv", "zip,phone,id\n01067,0049,1\n80331,,9223372036854775808\n"),
        ("days.csv", "d,t,log\n2020-02-29,2020-02-29 10:00:00,2020-02-29 10:00:00 start\n2021-02-29,,\n"),
        ("large.csv", "n\n-9223372036854775809\n12345678901234567890123456789\n"),
        ("blank.csv", "\n\n\n"),
        ("empty.csv", ""),
        ("header.csv", "a,b\n"),
        ("old.csv", "a,b\r1,2\r3,4\r"),
        ("gaps.csv", "a,b\n1,2\n\n\n3,4\n\n"),
    ]);
    let path = folder.path().display();
    for session in sessions() {
        session.register_dir(folder.path()).await.unwrap();
        let codes = "select zip, phone, id, arrow_typeof(id) from codes where id is not null order by id";
        assert_eq!(
            rows(&session, codes).await,
            ["01067 0049 1 Decimal128(38, 0)", "80331 9223372036854775808 Decimal128(38, 0)"]
        );
        let days = rows(&session, "select d, t, log from days").await;
        assert_eq!(days, ["2020-02-29 2020-02-29T10:00:00 2020-02-29 10:00:00 start", "2021-02-29"]);
        assert_eq!(
            rows(&session, "select min(n), max(n) + 1 from large").await,
            ["-9223372036854775809 12345678901234567890123456790"]
        );
        for (file, count) in [("header", 0), ("old", 2), ("gaps", 2)] {
            assert_eq!(
                rows(&session, &format!("select count(*), count(b) from {file}")).await,
                [format!("{count} {count}")]
            );
        }
        for file in ["blank", "empty"] {
            assert_eq!(rows(&session, &format!("select count(*) from '{path}/{file}.csv'")).await, ["0"]);
        }
    }
}

/// CSV of CREATE EXTERNAL TABLE is DataFusion's; its readers cut files and inference at line feeds.
#[tokio::test(flavor = "multi_thread")]
async fn external_tables_have_whole_rows_too() {
    let small: String =
        (0..600).map(|row| format!("{row},\"{}\n7,x\",{row}\n", "long ".repeat(30))).collect();
    let large = quoted(60_000, "\n");
    let folder = folder(&[
        ("small.csv", &format!("id,note,amount\n{small}")),
        ("large.csv", &large),
        ("plain.csv", "a,b\n1,2\n"),
    ]);
    for session in sessions() {
        for table in ["small", "large", "plain"] {
            let path = folder.path().join(format!("{table}.csv"));
            let create = format!("create external table {table} stored as csv location '{}'", path.display());
            session.sql(&create).await.unwrap();
        }
        assert_eq!(
            rows(&session, "select sum(id), sum(amount), count(*) from small").await,
            ["179700 179700 600"]
        );
        let types = "select arrow_typeof(id), arrow_typeof(note), arrow_typeof(amount) from small limit 1";
        assert_eq!(rows(&session, types).await, ["Int64 Utf8 Int64"]);
        let all = "select count(*), sum(id), count(distinct note) from large";
        assert_eq!(rows(&session, all).await, ["60000 1799970000 15003"]);
        assert_eq!(
            rows(&session, "select count(*) from large where note like '%line%' or id < 3").await,
            ["15002"]
        );
        assert_eq!(rows(&session, "select a, b from plain").await, ["1 2"]);
    }
}
