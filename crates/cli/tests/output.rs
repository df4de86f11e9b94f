//! What a user sees of results: as they come, whole or not at all, and never the terminal's master.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kelpie"));
    command.args(["--device", "cpu"]).args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn kelpie(arguments: &[&str]) -> Output {
    program(arguments).output().unwrap()
}

/// Runs the shell on its standard input.
fn shell(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = program(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn statements_are_cut_where_they_end() {
    let csv = |sql: &str| ok(&kelpie(&["--format", "csv", "-c", sql]));
    assert_eq!(csv("-- a comment\nselect 1 as a"), "a\n1\n");
    assert_eq!(csv("select $$a;b$$ as a; select $t$c;$$;$t$ as b"), "a\na;b\nb\nc;$$;\n");
    assert_eq!(csv(r"select E'a\'; b' as a; select 2 as b"), "a\na'; b\nb\n2\n");
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("marked.sql");
    fs::write(&script, "\u{feff}select 1 as a;").unwrap();
    assert_eq!(ok(&kelpie(&["--format", "csv", "-f", script.to_str().unwrap()])), "a\n1\n");
    assert_eq!(ok(&shell(&["--format", "csv"], "\u{feff}select 1 as a".as_bytes())), "a\n1\n");
}

#[test]
fn a_table_shows_rows_up_to_a_limit_and_counts_the_others() {
    let sql = "select value as n from range(100000)";
    let limited = ok(&kelpie(&["--maxrows", "2", "-c", sql]));
    assert_eq!(limited, "+---+\n| n |\n+---+\n| 0 |\n| 1 |\n+---+\n… 100000 rows, 2 shown\n");
    let all = ok(&kelpie(&["-c", sql]));
    assert!(all.lines().count() == 100_005 && all.ends_with("\n100000 rows\n"), "{}", all.len());
    let csv = ok(&kelpie(&["--maxrows", "2", "--format", "csv", "-c", sql]));
    assert_eq!(csv.lines().count(), 100_001);
    let input = format!(".maxrows\n.maxrows 1\n{sql};\n.maxrows x\n.maxrows 0\n");
    let output = shell(&[], input.as_bytes());
    let out = text(&output.stdout);
    assert!(out.contains("elsewhere all") && out.contains("… 100000 rows, 1 shown\n"), "{out}");
    assert!(out.ends_with("tables are shown as a whole\n") && text(&output.stderr).contains(".maxrows x"));
}

#[test]
fn nothing_in_a_table_reaches_the_terminal_as_a_command() {
    let sql = "select chr(27) || '[31mred' || chr(9) || chr(13) as \"a\u{1b}b\"";
    let out = ok(&kelpie(&["-c", sql]));
    assert!(
        out.contains(r"| \x1b[31mred\t\r |") && out.contains(r"| a\x1bb") && !out.contains('\u{1b}'),
        "{out}"
    );
    let failed = kelpie(&["-c", "select cast(chr(27) || 'x' as int)"]);
    assert!(!failed.status.success() && !text(&failed.stderr).contains('\u{1b}'));
}

#[test]
fn numbers_that_json_has_not_are_texts() {
    let sql = "select 'nan'::double as a, 'inf'::double as b, '-inf'::real as c, 1.5 as d, null::double as e";
    let expected = "{\"a\":\"NaN\",\"b\":\"Infinity\",\"c\":\"-Infinity\",\"d\":1.5,\"e\":null}\n";
    assert_eq!(ok(&kelpie(&["--format", "json", "-c", sql])), expected);
}

#[test]
fn csv_keeps_its_rows_when_it_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let path = path.to_str().unwrap();
    let sql = "select * from (values (1), (null), (3)) t(a)";
    ok(&kelpie(&["--format", "csv", "--output", path, "-c", sql]));
    assert_eq!(fs::read_to_string(path).unwrap(), "a\n1\n\"\"\n3\n");
    let back =
        ok(&kelpie(&["--format", "csv", "-c", &format!("select count(*) as n, sum(a) as s from '{path}'")]));
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
        assert_eq!(output.status.code(), Some(1), "{format}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious", "{format}");
        assert_eq!(names(folder.path()), ["out"], "{format}");
        ok(&kelpie(&[&base[..], &["-c", "select 1 as x"]].concat()));
        assert_ne!(fs::read(&path).unwrap(), b"precious", "{format}");
        assert_eq!(names(folder.path()), ["out"], "{format}");
    }
    // In a shell the statement that failed leaves no part of its rows.
    let path = folder.path().join("out");
    let script = "select 1 as a;\nselect 10 / (value - 90000) as x from range(100000);\nselect 2 as b;\n";
    let output = shell(&["--format", "csv", "--output", path.to_str().unwrap()], script.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\n1\nb\n2\n");
}

#[cfg(unix)]
#[test]
fn a_device_is_written_directly() {
    ok(&kelpie(&["--format", "csv", "--output", "/dev/null", "-c", "select 1 as x"]));
    let to_out = ["--format", "csv", "--output", "/dev/stdout", "-c", "select 1 as x"];
    assert_eq!(ok(&kelpie(&to_out)), "x\n1\n");
    let copy = "copy (select 1 as x) to '/dev/stdout' stored as csv";
    assert_eq!(ok(&kelpie(&["--format", "csv", "-c", copy])), "x\n1\ncount\n1\n");
    // Where the shell has redirected it to a file, that file is neither replaced nor written over.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let file = fs::File::create(&path).unwrap();
    let status = program(&["--format", "csv", "-c", copy]).stdout(file).status().unwrap();
    assert!(status.success());
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
    assert_eq!(ok(&output), "x\n1\n");
    let warnings = text(&output.stderr);
    assert!(warnings.starts_with("warning: ") && warnings.contains("bad.parquet"), "{warnings}");
    #[cfg(unix)]
    assert!(warnings.contains("pipe.csv"), "{warnings}");
    let output = kelpie(&["--data", path, "-c", "select * from bad"]);
    assert!(!output.status.success() && text(&output.stderr).contains("error: "), "{}", text(&output.stderr));
}

/// Interrupts a program, and gives what it left and how long that took.
#[cfg(unix)]
fn interrupt(child: Child) -> (Option<i32>, String, Duration) {
    let start = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut child = child;
    // Nobody reads its standard output: it must end all the same.
    let status = child.wait().unwrap();
    let took = start.elapsed();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    (status.code(), err, took)
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_output_too() {
    let sql = "select value as a, value * 7 as b from range(2000000000)";
    for format in ["table", "csv", "json"] {
        let mut child = program(&["--format", format, "-c", sql]).spawn().unwrap();
        // The pipe is full soon after its first line.
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let (code, err, took) = interrupt(child);
        assert_eq!((code, err.as_str()), (Some(130), "cancelled\n"), "{format}");
        // 200 ms are meant; other tests run beside this one.
        assert!(took < Duration::from_secs(2), "{format}: {took:?}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let rows = "select value as a from range(2000000000)";
    let copy = format!("copy ({rows}) to '{}'", path.display());
    let output = ["--format", "csv", "--output", path.to_str().unwrap(), "-c", rows];
    for arguments in [&output[..], &["-c", &copy]] {
        fs::write(&path, "precious").unwrap();
        let child = program(arguments).spawn().unwrap();
        let start = Instant::now();
        while names(folder.path()).len() < 2 {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing is written");
            std::thread::sleep(Duration::from_millis(10));
        }
        let (code, err, _) = interrupt(child);
        assert_eq!((code, err.as_str()), (Some(130), "cancelled\n"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(names(folder.path()), ["out.csv"]);
    }
}
