//! CSV as people have it: without a header, with a title or comments before it, with other escapes, encodings and numbers.

use std::fs;

use crate::people::{error, folder, rows, sessions, write};

#[tokio::test(flavor = "multi_thread")]
async fn a_first_line_like_the_others_is_a_row() {
    let folder = folder(&[
        ("ints.csv", "1,2\n3,4\n"),
        ("one.csv", "1,2\n"),
        ("mixed.csv", "x,1\ny,2\n"),
        ("gaps.csv", "x,\ny,2\nz,3\n"),
        ("dates.csv", "2024-01-01,a\n2024-01-02 10:00:00,b\n"),
        ("truths.csv", "true,a\nfalse,b\n"),
        ("floats.csv", "1.5,a\n2,b\n"),
        ("wide.csv", "0,1,2,3,4,5,6,7,8,9,10\n0,1,2,3,4,5,6,7,8,9,10\n"),
        ("tabs.tsv", "1\tone\n2\ttwo\n"),
        ("quoted.csv", "\"1\",\"a\nb\"\n\"2\",\"c\"\n"),
        ("texts.csv", "a,b\nc,d\n"),
        ("one_text.csv", "a,b\n"),
        ("headed.csv", "id,n\n1,2\n"),
        ("years.csv", "2020,2021\nx,y\n"),
        ("empty.csv", ""),
        ("index.csv", ",a\n0,1\n"),
    ]);
    let path = folder.path().display();
    for session in sessions() {
        for (file, columns, expected) in [
            ("ints.csv", "column0, column1", &["1 2", "3 4"][..]),
            ("one.csv", "column0, column1", &["1 2"]),
            ("mixed.csv", "column0, column1", &["x 1", "y 2"]),
            ("gaps.csv", "column0, column1", &["x", "y 2", "z 3"]),
            ("dates.csv", "date_part('day', column0)::int, column1", &["1 a", "2 b"]),
            ("truths.csv", "column0, column1", &["true a", "false b"]),
            ("floats.csv", "column0, column1", &["1.5 a", "2.0 b"]),
            ("wide.csv", "column00, column10", &["0 10", "0 10"]),
            ("tabs.tsv", "column0, column1", &["1 one", "2 two"]),
            ("quoted.csv", "column0, length(column1)", &["1 3", "2 1"]),
            ("texts.csv", "a, b", &["c d"]),
            ("one_text.csv", "a, b", &[]),
            ("headed.csv", "id, n", &["1 2"]),
            ("years.csv", "\"2020\", \"2021\"", &["x y"]),
            ("empty.csv", "count(*)", &["0"]),
            ("index.csv", "column0, a", &["0 1"]),
        ] {
            let found = rows(&session, &format!("select {columns} from '{path}/{file}'")).await;
            assert_eq!(found, expected, "{file}");
        }
        let as_header = format!("select \"1\" from read_csv('{path}/ints.csv', header = true)");
        assert_eq!(rows(&session, &as_header).await, ["3"]);
        let as_row = format!("select column0 from read_csv('{path}/headed.csv', header = false)");
        assert_eq!(rows(&session, &as_row).await, ["id", "1"]);
        let named = format!("select p + q from read_csv('{path}/ints.csv', names = ['p', 'q'])");
        assert_eq!(rows(&session, &named).await, ["3", "7"]);
        let notes = session.take_notes();
        let of = |name: &str| notes.iter().filter(|note| note.contains(name)).count();
        assert_eq!((of("ints.csv"), of("headed.csv"), of("texts.csv")), (1, 0, 0), "{notes:?}");
        assert!(notes[0].contains("column0, column1: read_csv('…', header = true)"), "{notes:?}");
        assert!(session.take_notes().is_empty());
    }
}

/// As what cuts large files into parts leaves them.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_folder_go_by_the_first_one_where_they_do_not_say() {
    let folder = folder(&[
        ("cut/1.csv", "id,name\n1,one\n"),
        ("cut/2.csv", "2,two\n3,three\n"),
        ("cut/3.csv", ""),
        ("bare/1.csv", "1,one\n2,two\n"),
        ("bare/2.csv", "x,three\n"),
        ("headed/1.csv", "id,name\n"),
        ("headed/2.csv", "name,id\none,1\n"),
    ]);
    for session in sessions() {
        session.register_dir(folder.path()).await.unwrap();
        let cut = "select id, name from cut order by id";
        assert_eq!(rows(&session, cut).await, ["1 one", "2 two", "3 three"]);
        let bare = "select column0, column1 from bare order by column0";
        assert_eq!(rows(&session, bare).await, ["1 one", "2 two", "x three"]);
        assert_eq!(rows(&session, "select id, name from headed").await, ["1 one"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_before_a_table_is_left_out() {
    let folder = folder(&[
        ("comment.csv", "# exported 2024-01-01\na,b\n1,2\n3,4\n"),
        ("comments.csv", "# by me, for you\n#\n\na,b\n1,2\n3,4\n"),
        ("title.csv", "Report of sales\n\na;b\n1,5;2\n2,5;4\n"),
        ("titles.csv", "Report\nMade by me\na,b\n1,2\n3,4\n"),
        ("excel.csv", "sep=|\r\na|b\r\n1|2\r\n3|4\r\n"),
        ("hash.csv", "#a,b\n1,2\n3,4\n"),
        ("blank.csv", "\n\na,b\n1,2\n3,4\n"),
    ]);
    let path = folder.path().display();
    for session in sessions() {
        for (file, column) in [
            ("comment.csv", "a"),
            ("comments.csv", "a"),
            ("title.csv", "a"),
            ("titles.csv", "a"),
            ("excel.csv", "a"),
            ("hash.csv", "\"#a\""),
            ("blank.csv", "a"),
        ] {
            let sql = format!("select count({column}), sum(b) from '{path}/{file}'");
            assert_eq!(rows(&session, &sql).await, ["2 6"], "{file}");
        }
        let notes = session.take_notes();
        let note = notes.iter().find(|note| note.contains("title.csv")).unwrap();
        assert!(note.contains("begins at line 3") && note.contains("skip = 0"), "{note}");
        assert!(
            !notes.iter().any(|note| note.contains("hash.csv") || note.contains("blank.csv")),
            "{notes:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_are_no_data_are_options_too() {
    let folder = folder(&[
        ("late.csv", "x,y,z\n1\na,b\n1,2\n#7,8\n\"#\",4\n"),
        ("short.csv", "a\n1,2\n3,4\n"),
        ("note.csv", "# one\n#two\nid\n1\n# three\n2\n"),
        ("misfit.csv", "title\n\na,b\n#\n1,2\nx,3\n"),
    ]);
    let path = folder.path().display();
    for session in sessions() {
        let late = format!("select a, b from read_csv('{path}/late.csv', skip = 2, comment = '#')");
        assert_eq!(rows(&session, &late).await, ["1 2", "# 4"]);
        let note = format!("select sum(id) from read_csv('{path}/note.csv', comment = '#')");
        assert_eq!(rows(&session, &note).await, ["3"]);
        let short = error(&session, &format!("select * from '{path}/short.csv'")).await;
        assert!(
            short.contains("line 2 has 2 values") && short.contains("skip = 1, comment = '#'"),
            "{short}"
        );
        let typed =
            format!("select * from read_csv('{path}/misfit.csv', comment = '#', types = {{'a': 'INTEGER'}})");
        let typed = error(&session, &typed).await;
        assert!(typed.contains("line 6, column a: 'x' is no Int32"), "{typed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn backslashes_escape_quotes() {
    let folder = folder(&[
        ("sniffed.csv", "a,b\n\"x\\\"y, z\",1\n\"C:\\new\",2\n\"w\\\\\",3\n"),
        ("plain.csv", "a,b\n\"x\\\\\",1\n\"y\"\"\",2\n"),
        ("odd.csv", "a,b\n'it^'s',1\n"),
    ]);
    let path = folder.path().display();
    for session in sessions() {
        let sniffed = format!("select a, b from '{path}/sniffed.csv' order by b");
        assert_eq!(rows(&session, &sniffed).await, ["x\"y, z 1", "C:\\new 2", "w\\ 3"]);
        let plain = format!("select a, b from '{path}/plain.csv' order by b");
        assert_eq!(rows(&session, &plain).await, ["x\\\\ 1", "y\" 2"]);
        let odd = format!("select a from read_csv('{path}/odd.csv', quote = '''', escape = '^')");
        assert_eq!(rows(&session, &odd).await, ["it's"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_line_of_one_column_is_null() {
    let folder = folder(&[
        ("ints.csv", "a\n1\n\n3\n"),
        ("texts.csv", "a\r\nx\r\n\r\ny\r\n\r\n"),
        ("lead.csv", "\n\na\n1\n"),
        ("lines.csv", "a\n\"x\n\ny\"\nz\n"),
        ("two.csv", "a,b\n1,2\n\n3,4\n"),
    ]);
    let path = folder.path().display();
    for session in sessions() {
        for (file, expected) in [
            ("ints.csv", "3 2"),
            ("texts.csv", "4 2"),
            ("lead.csv", "1 1"),
            ("lines.csv", "2 2"),
            ("two.csv", "2 2"),
        ] {
            let sql = format!("select count(*), count(a) from '{path}/{file}'");
            assert_eq!(rows(&session, &sql).await, [expected], "{file}");
        }
        // Larger than a partition's part.
        let many = format!("n\n{}", "\n12345\n".repeat(2_000));
        write(folder.path(), &[("many.csv", &many)]);
        let sql = format!("select count(*), count(n), sum(n) from '{path}/many.csv'");
        assert_eq!(rows(&session, &sql).await, ["4000 2000 24690000"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_encodings_are_read() {
    let folder = folder(&[("mark.csv", "\u{feff}a,b\r\n1,ü\r\n"), ("lone.csv", "\u{feff}\"a\"\n1\n\n")]);
    let text = "a,b\n1,ü\n2,€\n";
    let utf16 = |order: fn(u16) -> [u8; 2], mark: &str| {
        format!("{mark}{text}").encode_utf16().flat_map(order).collect::<Vec<u8>>()
    };
    for (name, bytes) in [
        ("le.csv", utf16(u16::to_le_bytes, "\u{feff}")),
        ("be.csv", utf16(u16::to_be_bytes, "\u{feff}")),
        ("bare.csv", utf16(u16::to_le_bytes, "")),
        ("latin.csv", b"a,b\n1,x\n2,\xfc\n".to_vec()),
        ("windows.csv", b"a,b\n1,\x80\n".to_vec()),
    ] {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let path = folder.path().display();
    for session in sessions() {
        for file in ["le.csv", "be.csv", "bare.csv"] {
            let found = rows(&session, &format!("select a, b from '{path}/{file}' order by a")).await;
            assert_eq!(found, ["1 ü", "2 €"], "{file}");
        }
        assert_eq!(rows(&session, &format!("select a, b from '{path}/mark.csv'")).await, ["1 ü"]);
        assert_eq!(rows(&session, &format!("select count(*), sum(a) from '{path}/lone.csv'")).await, ["2 1"]);
        let read = |file: &str, encoding: &str| {
            format!("select b from read_csv('{path}/{file}', encoding = '{encoding}') order by a")
        };
        assert_eq!(rows(&session, &read("latin.csv", "latin-1")).await, ["x", "ü"]);
        assert_eq!(rows(&session, &read("windows.csv", "windows-1252")).await, ["€"]);
        assert_eq!(rows(&session, &read("le.csv", "UTF-16")).await, ["ü", "€"]);
        let said = error(&session, &format!("select * from '{path}/latin.csv'")).await;
        let place = "latin.csv: line 3, column b: the text is not UTF-8";
        assert!(said.contains(place) && said.contains("encoding = 'latin-1'"), "{said}");
        let said = error(&session, &read("latin.csv", "koi8-r")).await;
        assert!(said.contains("utf-16") && said.contains("encoding"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_and_dates_are_read_as_they_are_written() {
    let folder = folder(&[
        ("commas.csv", "n;d\n1,5;31.12.2023\n-2;01.02.2024\n;\n"),
        ("thousands.csv", "n;m\n1.234.567,25;1.000\n2;-3\n"),
        ("quoted.csv", "n\n\"1,234\"\n\"5\"\n"),
        ("times.csv", "t\n31/12/2023 10:05\n01/01/2024 00:00\n"),
        ("bad.csv", "d\n31.12.2023\n2024.01\n"),
    ]);
    let path = folder.path().display();
    for session in sessions() {
        let sql = format!(
            "select sum(n), max(d), count(*), count(d) from read_csv('{path}/commas.csv', decimal_separator = ',', \
             dateformat = '%d.%m.%Y')"
        );
        assert_eq!(rows(&session, &sql).await, ["-0.5 2024-02-01 3 2"]);
        let sql = format!(
            "select sum(n), sum(m) from read_csv('{path}/thousands.csv', decimal_separator = ',', thousands = '.')"
        );
        assert_eq!(rows(&session, &sql).await, ["1234569.25 997"]);
        let sql =
            format!("select sum(n), typeof(max(n)) from read_csv('{path}/quoted.csv', thousands = ',')");
        assert_eq!(rows(&session, &sql).await, ["1239 BIGINT"]);
        // Where nobody says so they are texts.
        assert_eq!(rows(&session, &format!("select max(n) from '{path}/quoted.csv'")).await, ["5"]);
        let sql =
            format!("select max(t) from read_csv('{path}/times.csv', timestampformat = '%d/%m/%Y %H:%M')");
        assert_eq!(rows(&session, &sql).await, ["2024-01-01T00:00:00"]);
        let sql = format!(
            "select * from read_csv('{path}/bad.csv', dateformat = '%d.%m.%Y', types = {{'d': 'DATE'}})"
        );
        let said = error(&session, &sql).await;
        assert!(said.contains("line 3, column d: '2024.01' is no Date32"), "{said}");
        for (option, part) in [
            ("dateformat = '%Q'", "dateformat"),
            ("decimal_separator = 'x'", "a point or a comma"),
            ("decimal_separator = ',', thousands = ','", "the same sign"),
            ("thousands = '1'", "thousands"),
        ] {
            let said = error(&session, &format!("select * from read_csv('{path}/bad.csv', {option})")).await;
            assert!(said.contains(part), "{said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_do_not_fit_are_left_out_where_that_is_wanted() {
    let folder = folder(&[
        ("t.csv", "a,b\n1,2\nx,3\n3,4,5\n6\n7,8\n"),
        ("none.csv", "a,b\nx,y\n"),
        ("empty.csv", "a,b\n"),
    ]);
    let mut latin = b"a,b\n1,2\n2,\xfc\n3,\"4\n\"\n".to_vec();
    latin.extend(b"5,6\n".repeat(3_000));
    fs::write(folder.path().join("latin.csv"), latin).unwrap();
    let path = folder.path().display();
    for session in sessions() {
        for (file, expected) in
            [("t.csv", "2 8"), ("none.csv", "0"), ("empty.csv", "0"), ("latin.csv", "3002 15004")]
        {
            let sql = format!(
                "select count(*), sum(a) from read_csv('{path}/{file}', ignore_errors = true, types = {{'a': 'INTEGER'}})"
            );
            assert_eq!(rows(&session, &sql).await, [expected], "{file}");
        }
        let said =
            error(&session, &format!("select * from read_csv('{path}/t.csv', store_rejects = true)")).await;
        assert!(said.contains("no option store_rejects") && said.contains("ignore_errors"), "{said}");
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_is_read_as_a_file() {
    use std::io::Write;
    for (place, session) in sessions().into_iter().enumerate() {
        let folder = folder(&[]);
        for (name, bytes, columns, expected) in [
            ("p.csv", &b"a,b\n1,x\n2,y\n"[..], "sum(a), max(b)", "3 y"),
            ("bare", b"1,2\n3,4\n", "sum(column0), sum(column1)", "4 6"),
            ("json", b"{\"a\": 1}\n{\"a\": 2}\n", "sum(a), count(*)", "3 2"),
        ] {
            let path = folder.path().join(format!("{place}-{name}"));
            assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
            let writes = path.clone();
            let writer = std::thread::spawn(move || {
                fs::File::options().write(true).open(writes).unwrap().write_all(bytes).unwrap();
            });
            let sql = format!("select {columns} from '{}'", path.display());
            assert_eq!(rows(&session, &sql).await, [expected], "{name}");
            writer.join().unwrap();
            // Its bytes came once, and the table has them.
            assert_eq!(rows(&session, &sql).await, [expected], "{name}");
        }
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn patterns_end_where_links_go_in_circles() {
    use std::os::unix::fs::symlink;
    let folder = folder(&[
        ("t/a/1.csv", "x\n1\n"),
        ("t/b/c/2.csv", "x\n2\n"),
        ("t/3.csv", "x\n4\n"),
        ("t/.h/4.csv", "x\n8\n"),
    ]);
    symlink(folder.path().join("t"), folder.path().join("t/a/up")).unwrap();
    symlink(folder.path().join("t/a"), folder.path().join("t/b/across")).unwrap();
    symlink(folder.path().join("t/b"), folder.path().join("t/a/back")).unwrap();
    let path = folder.path().display();
    for session in sessions() {
        for (pattern, expected) in
            [("**/*.csv", "7"), ("t/**/*.csv", "7"), ("t/**", "7"), ("**/c/*.csv", "2"), ("t/*/*.csv", "1")]
        {
            let sql = format!("select sum(x) from '{path}/{pattern}'");
            assert_eq!(rows(&session, &sql).await, [expected], "{pattern}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_value_of_another_type_is_told_with_what_helps() {
    let folder = folder(&[
        ("t.csv", "a,b,c,d\n1,1,2024-01-01,1\n3.5,x,2024-01-02 10:00:00,9223372036854775808\n"),
        ("t.json", "{\"a\": 1}\n{\"a\": [1]}\n"),
    ]);
    let path = folder.path().display();
    for session in sessions() {
        session.sql("set kelpie.infer_rows = 1").await.unwrap();
        for (column, value, helps) in [
            ("a", "3.5", "DOUBLE"),
            ("b", "x", "VARCHAR"),
            ("c", "2024-01-02 10:00:00", "TIMESTAMP"),
            ("d", "9223372036854775808", "HUGEINT"),
        ] {
            let said = error(&session, &format!("select max({column}) from '{path}/t.csv'")).await;
            let place = format!("t.csv: line 3, column {column}: '{value}' is no");
            assert!(said.contains(&place) && said.contains("SET kelpie.infer_rows = 0"), "{said}");
            let option = format!("types = {{'{column}': '{helps}'}}");
            assert!(said.contains(&option), "{said}");
            let mended = format!("select count({column}) from read_csv('{path}/t.csv', {option})");
            assert_eq!(rows(&session, &mended).await, ["2"], "{column}");
        }
        let said = error(&session, &format!("select max(a) from '{path}/t.json'")).await;
        assert!(said.contains("line 2, column a") && !said.contains("read_csv"), "{said}");
        session.sql("set kelpie.infer_rows = 0").await.unwrap();
        assert_eq!(rows(&session, &format!("select count(a) from '{path}/t.csv'")).await, ["2"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn types_that_are_given_read_other_forms_and_are_named_in_errors() {
    let folder = folder(&[
        ("truths.csv", "a,b,c,d,t\nyes,Y,t,1,2024-01-31 10:20\nno,n,F,0,2024-01-31T11:30:00\n,,,,\n"),
        ("late.csv", "a,b\nyes,1\nmaybe,2\n"),
        ("short.csv", "a,b\n1,2\n3\n"),
        ("long.csv", "a,b\n1,2\n3,4,5\n"),
    ]);
    let path = folder.path().display();
    for session in sessions() {
        let types =
            "types = {'a': 'BOOLEAN', 'b': 'BOOLEAN', 'c': 'BOOLEAN', 'd': 'BOOLEAN', 't': 'TIMESTAMP'}";
        let sql = format!("select a, b, c, d, t from read_csv('{path}/truths.csv', {types})");
        assert_eq!(
            rows(&session, &sql).await,
            ["true true true true 2024-01-31T10:20:00", "false false false false 2024-01-31T11:30:00", ""]
        );
        // Where nobody says so they are texts.
        let sql = format!("select a, d, t from '{path}/truths.csv' where a is not null order by d desc");
        assert_eq!(rows(&session, &sql).await, ["yes 1 2024-01-31 10:20", "no 0 2024-01-31T11:30:00"]);
        let late = |types: &str| format!("select * from read_csv('{path}/late.csv', types = {types})");
        for types in ["{'A': 'BOOLEAN'}", "['BOOLEAN']"] {
            let said = error(&session, &late(types)).await;
            assert!(
                said.contains("line 3, column a: 'maybe' is no Boolean, the type that the statement"),
                "{said}"
            );
            assert!(!said.contains("infer_rows"), "{said}");
        }
        for (file, expected) in [("short", "null_padding = true"), ("long", "ignore_errors = true")] {
            let said = error(&session, &format!("select * from '{path}/{file}.csv'")).await;
            assert!(said.contains("line 3 has") && said.contains(expected), "{said}");
        }
    }
}
