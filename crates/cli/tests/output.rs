//! What a user sees of results: as they come, whole or not at all, and never the terminal's master.

use std::fs;
use std::process::Command;

use crate::program::{self, Run, finished, names};

fn on_cpu<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["--device", "cpu"], arguments].concat()
}

fn kelpie(arguments: &[&str]) -> Run {
    program::kelpie(&on_cpu(arguments))
}

fn shell(arguments: &[&str], input: &[u8]) -> Run {
    program::shell(&on_cpu(arguments), input)
}

#[test]
fn statements_are_cut_where_they_end() {
    let csv = |sql: &str| kelpie(&["--format", "csv", "-c", sql]).ok();
    assert_eq!(csv("-- a comment\nselect 1 as a"), "a\n1\n");
    assert_eq!(csv("select $$a;b$$ as a; select $t$c;$$;$t$ as b"), "a\na;b\nb\nc;$$;\n");
    assert_eq!(csv(r"select E'a\'; b' as a; select 2 as b"), "a\na'; b\nb\n2\n");
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("marked.sql");
    fs::write(&script, "\u{feff}select 1 as a;").unwrap();
    assert_eq!(kelpie(&["--format", "csv", "-f", script.to_str().unwrap()]).ok(), "a\n1\n");
    assert_eq!(shell(&["--format", "csv"], "\u{feff}select 1 as a".as_bytes()).ok(), "a\n1\n");
}

#[test]
fn a_table_shows_rows_up_to_a_limit_and_counts_the_others() {
    let sql = "select value as n from range(100000)";
    let limited = kelpie(&["--maxrows", "2", "-c", sql]).ok();
    assert_eq!(limited, "+---+\n| n |\n+---+\n| 0 |\n| 1 |\n+---+\n… 100000 rows, 2 shown\n");
    let all = kelpie(&["-c", sql]).ok();
    assert!(all.lines().count() == 100_005 && all.ends_with("\n100000 rows\n"), "{}", all.len());
    let csv = kelpie(&["--maxrows", "2", "--format", "csv", "-c", sql]).ok();
    assert_eq!(csv.lines().count(), 100_001);
    let input = format!(".maxrows\n.maxrows 1\n{sql};\n.maxrows x\n.maxrows 0\n");
    let output = shell(&[], input.as_bytes());
    let out = output.out;
    assert!(out.contains("elsewhere all") && out.contains("… 100000 rows, 1 shown\n"), "{out}");
    assert!(out.ends_with("tables are shown as a whole\n") && output.err.contains(".maxrows x"));
}

#[test]
fn nothing_in_a_table_reaches_the_terminal_as_a_command() {
    let sql = "select chr(27) || '[31mred' || chr(9) || chr(13) as \"a\u{1b}b\"";
    let out = kelpie(&["-c", sql]).ok();
    assert!(
        out.contains(r"| \x1b[31mred\t\r |") && out.contains(r"| a\x1bb") && !out.contains('\u{1b}'),
        "{out}"
    );
    let failed = kelpie(&["-c", "select cast(chr(27) || 'x' as int)"]);
    assert!(failed.code == Some(1) && !failed.err.contains('\u{1b}'));
}

#[test]
fn numbers_that_json_has_not_are_texts() {
    let sql = "select 'nan'::double as a, 'inf'::double as b, '-inf'::real as c, 1.5 as d, null::double as e";
    let expected = "{\"a\":\"NaN\",\"b\":\"Infinity\",\"c\":\"-Infinity\",\"d\":1.5,\"e\":null}\n";
    assert_eq!(kelpie(&["--format", "json", "-c", sql]).ok(), expected);
}

#[test]
fn csv_keeps_its_rows_when_it_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let path = path.to_str().unwrap();
    let sql = "select * from (values (1), (null), (3)) t(a)";
    kelpie(&["--format", "csv", "--output", path, "-c", sql]).ok();
    assert_eq!(fs::read_to_string(path).unwrap(), "a\n1\n\"\"\n3\n");
    let back =
        kelpie(&["--format", "csv", "-c", &format!("select count(*) as n, sum(a) as s from '{path}'")]).ok();
    assert_eq!(back, "n,s\n3,4\n");
}

#[test]
fn an_output_file_is_whole_or_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["table", "csv", "json", "parquet", "arrow"] {
        let path = folder.path().join("out");
        fs::write(&path, "precious").unwrap();
        let base = ["--format", format, "--output", path.to_str().unwrap()];
        // Rows are written before the query fails.
        let failing = "select 10 / (value - 90000) as x from range(100000)";
        let output = kelpie(&[&base[..], &["-c", failing]].concat());
        assert_eq!(output.code, Some(1), "{format}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious", "{format}");
        assert_eq!(names(folder.path()), ["out"], "{format}");
        kelpie(&[&base[..], &["-c", "select 1 as x"]].concat()).ok();
        assert_ne!(fs::read(&path).unwrap(), b"precious", "{format}");
        assert_eq!(names(folder.path()), ["out"], "{format}");
    }
    // In a shell the statement that failed leaves no part of its rows.
    let path = folder.path().join("out");
    let script = "select 1 as a;\nselect 10 / (value - 90000) as x from range(100000);\nselect 2 as b;\n";
    let output = shell(&["--format", "csv", "--output", path.to_str().unwrap()], script.as_bytes());
    assert_eq!(output.code, Some(1));
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\n1\nb\n2\n");
    // Nor does one that fails before it has rows take anything from the results before it.
    let script = "select 1 as a;\nselect nothing;\nset nothing = 1;\nselect 2 as b;\nselect nothing;\n";
    let output = shell(&["--format", "csv", "--output", path.to_str().unwrap()], script.as_bytes());
    assert_eq!(output.code, Some(1));
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\n1\nb\n2\n");
    // A format that holds one result has the first that is whole.
    let path = folder.path().join("out.parquet");
    let script = "select 10 / (value - 90000) as x from range(100000);\nselect 7 as b;\nselect 8 as c;\n";
    let output = shell(&["--output", path.to_str().unwrap()], script.as_bytes());
    assert!(output.code == Some(1) && output.err.contains("holds one result"), "{}", output.err);
    assert_eq!(kelpie(&[path.to_str().unwrap(), "select b from out", "--format", "csv"]).ok(), "b\n7\n");
}

#[test]
fn an_ending_that_says_no_format_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    for name in ["x.foo", "x.xlsx", "x.2024", "x.gz", "x.docx.gz"] {
        let output = ["--output", &path(name), "-c", "select 1 as a"];
        kelpie(&output).fails_with(&[name, ".csv, .tsv, .json", ".parquet", "--format"]);
        let in_shell = shell(&[], format!(".output '{}'\n", path(name)).as_bytes());
        assert!(in_shell.err.contains(name) && in_shell.err.contains(".parquet"), "{}", in_shell.err);
    }
    assert_eq!(names(folder.path()), [""; 0]);
    for name in ["x.foo", "x.csv", "x"] {
        kelpie(&["--format", "csv", "--output", &path(name), "-c", "select 1 as a"]).ok();
        assert_eq!(fs::read_to_string(path(name)).unwrap(), "a\n1\n", "{name}");
    }
    for name in ["t.txt", "t"] {
        kelpie(&["--output", &path(name), "-c", "select 1 as a"]).ok();
        assert!(fs::read_to_string(path(name)).unwrap().contains("| 1 |"), "{name}");
    }
}

#[test]
fn keys_of_maps_are_texts_in_json() {
    for (map, expected) in [
        ("map([1, 2], ['x', null])", "{\"1\":\"x\",\"2\":null}"),
        ("map([true], [1.5])", "{\"true\":1.5}"),
        ("map([date '2024-01-01'], [1])", "{\"2024-01-01\":1}"),
        ("[map([1], [2])]", "[{\"1\":2}]"),
        ("map(['k'], [1])", "{\"k\":1}"),
    ] {
        let out = kelpie(&["--format", "json", "-c", &format!("select {map} as m")]).ok();
        assert_eq!(out, format!("{{\"m\":{expected}}}\n"), "{map}");
    }
}

#[cfg(unix)]
#[test]
fn the_standard_input_is_a_file() {
    let of = |arguments: &[&str], input: &[u8]| shell(&[&["--format", "csv"][..], arguments].concat(), input);
    let csv = b"a,b\n1,x\n2,\n";
    let count = "select count(*) as n, sum(a) as s from '/dev/stdin'";
    assert_eq!(of(&["-c", count], csv).ok(), "n,s\n2,3\n");
    // Its bytes come once, and stay as long as the program.
    assert_eq!(of(&["-c", count, "-c", count], csv).ok(), "n,s\n2,3\nn,s\n2,3\n");
    let lines = b"{\"a\": 1}\n{\"a\": 5}\n";
    assert_eq!(of(&["-c", count], lines).ok(), "n,s\n2,6\n");
    let read = "select max(b) as b from read_csv('/dev/stdin', delim = ';', header = true)";
    assert_eq!(of(&["-c", read], b"a;b\n1;x,y\n").ok(), "b\n\"x,y\"\n");
    assert_eq!(of(&["/dev/stdin", "-c", "select sum(a) as s from stdin"], csv).ok(), "s\n3\n");
    assert_eq!(of(&["-c", "select count(*) as n from '/dev/stdin'"], b"").ok(), "n\n0\n");
    // Nothing is left of them, whether they came down a pipe or from a file.
    let folder = tempfile::tempdir().unwrap();
    let own = fs::File::open(program::file(&folder, "own.txt", csv)).unwrap();
    let mut redirected = program::program(&["--format", "csv", "-c", count]);
    redirected.env("TMPDIR", folder.path()).stdin(own);
    assert_eq!(finished(redirected.output().unwrap()).ok(), "n,s\n2,3\n");
    assert_eq!(names(folder.path()), ["own.txt"]);
}

#[test]
fn what_is_not_expected_of_a_file_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let bare = program::file(&folder, "bare.csv", "1,x\n2,y\n");
    let titled = program::file(&folder, "titled.csv", "Sales\n\na,b\n1,2\n");
    let usual = program::file(&folder, "usual.csv", "a,b\n1,2\n");
    let noted = |path: &str| kelpie(&["--format", "csv", "-c", &format!("select * from '{path}'")]);
    let run = noted(&bare);
    assert!(run.err.starts_with("note: ") && run.err.contains("header = true"), "{}", run.err);
    assert_eq!(run.out, "column0,column1\n1,x\n2,y\n");
    let run = noted(&titled);
    assert!(run.err.contains("begins at line 3"), "{}", run.err);
    assert_eq!(run.out, "a,b\n1,2\n");
    assert_eq!(noted(&usual).err, "");
}

#[cfg(unix)]
#[test]
fn a_device_is_written_directly() {
    kelpie(&["--format", "csv", "--output", "/dev/null", "-c", "select 1 as x"]).ok();
    let to_out = ["--format", "csv", "--output", "/dev/stdout", "-c", "select 1 as x"];
    assert_eq!(kelpie(&to_out).ok(), "x\n1\n");
    let copy = "copy (select 1 as x) to '/dev/stdout' stored as csv";
    assert_eq!(kelpie(&["--format", "csv", "-c", copy]).ok(), "x\n1\ncount\n1\n");
    // Where the shell has redirected it to a file, that file is neither replaced nor written over.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let file = fs::File::create(&path).unwrap();
    let mut to_file = program::program(&["--format", "csv", "-c", copy]);
    finished(to_file.stdout(file).output().unwrap()).ok();
    assert_eq!(fs::read_to_string(&path).unwrap(), "x\n1\ncount\n1\n");
    assert_eq!(names(folder.path()), ["out"]);
}

#[test]
fn odd_data_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("Trips.csv"), "x\n1\n").unwrap();
    fs::write(folder.path().join("bad.parquet"), "no").unwrap();
    #[cfg(unix)]
    assert!(Command::new("mkfifo").arg(folder.path().join("pipe.csv")).status().unwrap().success());
    let path = folder.path().to_str().unwrap();
    let output = kelpie(&["--data", path, "--format", "csv", "-c", "select x from trips"]);
    assert_eq!((output.code, output.out.as_str()), (Some(0), "x\n1\n"), "{}", output.err);
    let warnings = output.err;
    // Files that no statement names are not looked at.
    assert!(!warnings.contains("bad.parquet"), "{warnings}");
    #[cfg(unix)]
    assert!(warnings.starts_with("warning: ") && warnings.contains("pipe.csv"), "{warnings}");
    let output = kelpie(&["--data", path, "-c", "select * from bad"]);
    output.fails_with(&["bad.parquet"]);
    let output = kelpie(&["--data", path, "--format", "csv", "-c", "show tables"]);
    assert!(output.out.contains("Trips") && !output.out.contains("bad"), "{}", output.out);
}

#[test]
fn the_name_of_a_file_says_how_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "select 1 as n, 'a' as s";
    for (file, format, magic) in [
        ("a.parquet", None, &b"PAR1"[..]),
        ("b.arrow", None, b"ARROW1"),
        ("c.csv", None, b"n,s\n1,a\n"),
        ("d.jsonl", None, b"{\"n\":1,\"s\":\"a\"}\n"),
        ("e.csv.gz", None, b"\x1f\x8b"),
        ("f.json.gz", None, b"\x1f\x8b"),
        ("g.txt", None, b"+"),
        ("h.csv", Some("table"), b"+"),
        ("i.dat", Some("parquet"), b"PAR1"),
    ] {
        let path = folder.path().join(file);
        let path = path.to_str().unwrap();
        let mut arguments = vec!["--output", path, "-c", sql];
        arguments.extend(format.iter().flat_map(|format| ["--format", *format]));
        assert_eq!(kelpie(&arguments).ok(), "");
        assert!(fs::read(path).unwrap().starts_with(magic), "{file}");
        if ["a.parquet", "b.arrow", "c.csv", "d.jsonl", "e.csv.gz", "f.json.gz"].contains(&file) {
            let back = format!("select n, s from '{path}'");
            assert_eq!(kelpie(&["--format", "csv", "-c", &back]).ok(), "n,s\n1,a\n", "{file}");
        }
    }
    // Two results, each compressed.
    let both = folder.path().join("both.csv.gz");
    let both = both.to_str().unwrap();
    kelpie(&["--output", both, "-c", "select 1 as n", "-c", "select 2 as n"]).ok();
    let back = format!("select count(*) as n from '{both}'");
    assert_eq!(kelpie(&["--format", "csv", "-c", &back]).ok(), "n\n3\n");
    let refused = kelpie(&["--output", folder.path().join("x.csv.zst").to_str().unwrap(), "-c", sql]);
    assert!(
        refused.code != Some(0) && refused.err.contains("x.csv.zst") && refused.err.contains(".gz"),
        "{}",
        refused.err
    );
}

#[test]
fn values_are_shown_as_the_session_says() {
    let sql = "select date '2020-02-29' as d, cast(null as int) as n, timestamp '2020-02-29 12:30:00' as t, time '01:02:03' as c";
    let set = [
        "--set",
        "datafusion.format.null=NULL",
        "--set",
        "datafusion.format.date_format=%d.%m.%Y",
        "--set",
        "datafusion.format.timestamp_format=%H h",
        "--set",
        "datafusion.format.time_format=%M",
        "-c",
        sql,
    ];
    let table = kelpie(&set).ok();
    assert!(table.contains("| 29.02.2020 | NULL | 12 h | 02 |"), "{table}");
    let csv = kelpie(&[&set[..], &["--format", "csv"]].concat()).ok();
    assert_eq!(csv, "d,n,t,c\n29.02.2020,NULL,12 h,02\n");
    // From the next statement on.
    let later = shell(&[], b"select null as n;\nset datafusion.format.null = '-';\nset datafusion.format.types_info = true;\nselect null as n;\n").out;
    assert!(later.contains("|   |") && later.contains("| -    |") && later.contains("| Null |"), "{later}");
    assert!(kelpie(&["-c", sql]).ok().contains("| 2020-02-29 |   | 2020-02-29T12:30:00 | 01:02:03 |"));
    for option in ["date_format", "timestamp_format", "time_format"] {
        let failed = kelpie(&["--set", &format!("datafusion.format.{option}=%Q"), "-c", sql]);
        assert!(
            failed.code == Some(1) && failed.err.contains(&format!("datafusion.format.{option} = '%Q'")),
            "{}",
            failed.err
        );
    }
}
