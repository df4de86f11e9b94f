//! Runs the program as a user does: its formats, its shell, its commands, its errors and exit codes.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

/// What a run of the program gave.
struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kelpie"))
}

fn finished(output: Output) -> Run {
    Run {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn kelpie(arguments: &[&str]) -> Run {
    finished(program().args(arguments).stdin(Stdio::null()).output().unwrap())
}

/// Runs the shell on lines of input.
fn shell(arguments: &[&str], input: &str) -> Run {
    let mut child = program()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    finished(child.wait_with_output().unwrap())
}

impl Run {
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    /// Fails with exit code 1 and an error that has all these parts.
    #[track_caller]
    fn fails_with(self, parts: &[&str]) {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.err);
        assert!(self.err.lines().any(|line| line.starts_with("error: ")), "{}", self.err);
        for part in parts {
            assert!(self.err.contains(part), "`{part}` is not in: {}", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
    }
}

/// A folder with TPC-H at scale 0.01, made once.
fn tpch() -> &'static str {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        kelpie(&["generate", "tpch", "--scale", "0.01", "--output", path]).ok();
        folder
    });
    folder.path().to_str().unwrap()
}

fn file(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_string()
}

const ROWS: &str =
    "select * from (values (1, 'a,b', 1.5), (2, 'say \"x\"', null), (3, '', 0.25)) t(k, s, d) order by k";

#[test]
fn results_in_each_text_format() {
    let csv = "k,s,d\n1,\"a,b\",1.5\n2,\"say \"\"x\"\"\",\n3,\"\",0.25\n";
    assert_eq!(kelpie(&["-c", ROWS, "--format", "csv"]).ok(), csv);
    let json = "{\"k\":1,\"s\":\"a,b\",\"d\":1.5}\n{\"k\":2,\"s\":\"say \\\"x\\\"\",\"d\":null}\n{\"k\":3,\"s\":\"\",\"d\":0.25}\n";
    assert_eq!(kelpie(&["-c", ROWS, "--format", "json"]).ok(), json);
    let table = kelpie(&["-c", ROWS]).ok();
    assert!(table.contains("| k | s ") && table.ends_with("3 rows\n"), "{table}");
    let empty = kelpie(&["-c", "select 1 as x where false", "--format", "csv"]).ok();
    assert_eq!(empty, "x\n");
    assert!(kelpie(&["-c", "select 1 as x where false"]).ok().ends_with("0 rows\n"));
}

#[test]
fn binary_formats_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["parquet", "arrow"] {
        let path = folder.path().join(format!("out.{format}"));
        let path = path.to_str().unwrap();
        assert_eq!(kelpie(&["-c", ROWS, "--format", format, "--output", path]).ok(), "");
        let back = format!("select * from '{path}' order by k");
        let expected = kelpie(&["-c", ROWS, "--format", "csv"]).ok();
        assert_eq!(kelpie(&["-c", &back, "--format", "csv"]).ok(), expected, "{format}");
        assert_eq!(
            kelpie(&["--data", path, "-c", "select count(*) as n from out", "--format", "csv"]).ok(),
            "n\n3\n"
        );
    }
    let two = ["-c", "select 1; select 2", "--format", "parquet", "--output"];
    let path = folder.path().join("two.parquet");
    kelpie(&[&two[..], &[path.to_str().unwrap()]].concat()).fails_with(&["holds one result"]);
    // Not a terminal: binary formats may be redirected.
    let output = program().args(["-c", ROWS, "--format", "arrow"]).output().unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"ARROW1"));
}

#[test]
fn statements_run_in_the_order_given() {
    let folder = tempfile::tempdir().unwrap();
    let script = file(&folder, "s.sql", "-- a comment; with a semicolon\nselect 2 as b;\nselect ';' as c");
    let run = kelpie(&["-c", "select 1 as a;", "-f", &script, "-c", "select 4 as d", "--format", "csv"]);
    assert_eq!(run.ok(), "a\n1\nb\n2\nc\n;\nd\n4\n");
    // The first error ends it.
    let run = kelpie(&["-c", "select 1 as a; select nope; select 3 as c", "--format", "csv"]);
    assert_eq!(run.out, "a\n1\n");
    run.fails_with(&["nope"]);
    kelpie(&["-f", "/no/such/file.sql"]).fails_with(&["/no/such/file.sql", "No such file"]);
}

#[test]
fn an_output_file_is_replaced_only_by_a_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "out.csv", "precious");
    kelpie(&["-c", "select nope", "--format", "csv", "--output", &path]).fails_with(&["nope"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    let sql = "set kelpie.device = 'cpu'; select 1 as a; select 2 as b";
    kelpie(&["-c", sql, "--format", "csv", "--output", &path]).ok();
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\n1\nb\n2\n");
    kelpie(&["-c", "select 1", "--output", "/no/such/folder/x"]).fails_with(&["/no/such/folder/x"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_under_the_output_is_an_error() {
    for format in ["table", "csv", "json", "parquet", "arrow"] {
        let to_full = ["-c", "select 1", "--format", format, "--output", "/dev/full"];
        kelpie(&to_full).fails_with(&["/dev/full", "No space left"]);
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = program().args(&to_full[..4]).stdin(Stdio::null()).stdout(full).output().unwrap();
        finished(output).fails_with(&["No space left"]);
    }
}

/// Runs the program where no file can grow beyond 64 KiB: to it, a full disk.
#[cfg(target_os = "linux")]
fn on_a_full_disk(arguments: &[&str], cache: &Path) -> Run {
    // Without the trap, the signal SIGXFSZ would end the process.
    let script = "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_kelpie")]).args(arguments).env("KELPIE_CACHE_DIR", cache);
    finished(shell.stdin(Stdio::null()).output().unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_under_generated_data_leaves_no_half_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let path = path.to_str().unwrap();
    let base = ["generate", "tpch", "--scale", "0.01", "--output", path, "--tables", "orders,region"];
    on_a_full_disk(&base, folder.path()).fails_with(&[
        "cannot write",
        "data/orders.parquet",
        "File too large",
    ]);
    let left: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.iter().all(|path| path.ends_with("region.parquet")), "{left:?}");
    kelpie(&[&base[..], &["--force"]].concat()).ok();
    let rows = "select count(*) as n from orders, region";
    assert_eq!(kelpie(&["--data", path, "--format", "csv", "-c", rows]).ok(), "n\n75000\n");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_under_the_cache_costs_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "select l_returnflag, count(*) as n from lineitem group by l_returnflag order by 1";
    let arguments = ["--data", tpch(), "--format", "csv", "-c", sql];
    let expected = kelpie(&arguments).ok();
    assert_eq!(expected.lines().count(), 4, "{expected}");
    let full = Path::new("/dev/full");
    for cache in [folder.path(), full, folder.path()] {
        let run = on_a_full_disk(&arguments, cache);
        assert_eq!((run.code, &*run.out, &*run.err), (Some(0), &*expected, ""), "{}", cache.display());
    }
    // The demonstration says what it cannot write, and later makes it anew.
    let kept = folder.path().join("demo");
    let kept = kept.to_str().unwrap();
    let demo = ["demo", "--scale", "0.01", "--device", "cpu", "--dir", kept];
    on_a_full_disk(&demo, folder.path()).fails_with(&["cannot write", kept, "File too large"]);
    assert_eq!(fs::read_dir(kept).unwrap().count(), 0);
    let out = kelpie(&demo).ok();
    assert!(out.contains("making TPC-H data") && out.contains("1193053.2253"), "{out}");
}

#[test]
fn usage_errors_exit_with_2() {
    for arguments in [
        &["--format", "xml", "-c", "select 1"][..],
        &["--device", "tpu", "-c", "select 1"],
        &["--set", "novalue", "-c", "select 1"],
        &["--nonsense"],
        &["generate", "tpcds", "--scale", "1", "--output", "x"],
        &["generate", "tpch"],
        &["bench", "tpch", "--data", "x", "--against", "postgres"],
        &["bench", "tpch", "--data", "x", "--runs", "0"],
        &["explain", "--stage", "soup", "-c", "select 1"],
    ] {
        let run = kelpie(arguments);
        assert_eq!(run.code, Some(2), "{arguments:?}: {}", run.err);
        assert!(run.err.contains("error:") && run.out.is_empty(), "{}", run.err);
    }
    for arguments in [&["--help"][..], &["--version"], &["bench", "--help"]] {
        assert!(kelpie(arguments).ok().contains("kelpie"));
    }
}

#[test]
fn bad_input_names_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let damaged = file(&folder, "damaged.parquet", "PAR1 this is no Parquet PAR1");
    let valid = fs::read(Path::new(tpch()).join("nation.parquet")).unwrap();
    let cut = file(&folder, "cut.parquet", &valid[..valid.len() / 2]);
    let unknown = file(&folder, "table.xyz", "x");
    let wrong = file(&folder, "wrong.csv", "a,b\n1,2\n3,x\n");
    kelpie(&["--data", &damaged, "-c", "select * from damaged"]).fails_with(&["damaged.parquet"]);
    kelpie(&["--data", &cut, "-c", "select * from cut"]).fails_with(&["cut.parquet"]);
    kelpie(&["--data", &unknown, "-c", "select 1"]).fails_with(&["table.xyz"]);
    kelpie(&["--data", "/no/such/folder", "-c", "select 1"]).fails_with(&["/no/such/folder"]);
    kelpie(&["-c", "select * from nowhere"]).fails_with(&["nowhere"]);
    kelpie(&["-c", "select * from '/no/such.parquet'"]).fails_with(&["/no/such.parquet"]);
    kelpie(&["--set", "kelpie.colour=red", "-c", "select 1"]).fails_with(&["kelpie.colour"]);
    kelpie(&["--set", "kelpie.fallback=maybe", "-c", "select 1"]).fails_with(&["maybe", "deny"]);
    kelpie(&["-c", "set kelpie.device = 'tpu'"]).fails_with(&["tpu", "simt"]);
    kelpie(&["-c", "selec 1"]).fails_with(&["selec"]);
    kelpie(&["-c", "select 1 / 0"]).fails_with(&["ivide"]);
    // Text where the first rows promised numbers is text; a cast then fails in the query.
    kelpie(&["--data", &wrong, "-c", "select sum(cast(b as int)) from wrong"]).fails_with(&["x"]);
}

#[test]
fn csv_and_folders_are_tables() {
    let folder = tempfile::tempdir().unwrap();
    file(&folder, "people.csv", "name,age\n\"Ann, B\",31\nBob,\n");
    fs::create_dir(folder.path().join("parts")).unwrap();
    file(&folder, "parts/a.csv", "x\n1\n");
    file(&folder, "parts/b.csv", "x\n2\n");
    let path = folder.path().to_str().unwrap();
    let run = kelpie(&["--data", path, "--format", "csv", "-c", "select * from people order by name"]);
    assert_eq!(run.ok(), "name,age\n\"Ann, B\",31\nBob,\n");
    let run = kelpie(&["--data", path, "--format", "csv", "-c", "select sum(x) as s from parts"]);
    assert_eq!(run.ok(), "s\n3\n");
}

#[test]
fn timing_goes_to_stderr() {
    let run = kelpie(&[
        "--data",
        tpch(),
        "--device",
        "cpu",
        "--timing",
        "--format",
        "csv",
        "-c",
        "select sum(l_quantity) as q from lineitem",
    ]);
    assert!(run.err.contains("time: ") && run.err.contains("plan"), "{}", run.err);
    assert_eq!(run.ok(), "q\n1536127.00\n");
}

#[test]
fn the_shell_reads_statements_and_goes_on_after_errors() {
    let input = ".tables\n.schema nation\nselect 1\n  as a; select 2 as b;\nselect nope;\n.nope\n.timing maybe\n\
                 .schema nowhere\nselect ';' as c -- ;\n;\n.help\nselect 3 as d";
    let run = shell(&["--data", tpch(), "--format", "csv"], input);
    assert!(run.out.starts_with("customer\nlineitem\nnation\n"), "{}", run.out);
    for part in
        ["\nnation\n  n_nationkey Int64 not null\n", "\na\n1\nb\n2\n", "\nc\n;\n", ".quit", "\nd\n3\n"]
    {
        assert!(run.out.contains(part), "`{part}` is not in: {}", run.out);
    }
    for part in ["nope", "`.nope`", "`.timing maybe`", "`nowhere`"] {
        assert!(run.err.contains(part), "`{part}` is not in: {}", run.err);
    }
    assert_eq!(run.err.lines().filter(|line| line.starts_with("error: ")).count(), 4, "{}", run.err);
    assert_eq!(run.code, Some(1));
    let run = shell(&["--format", "csv"], "select 1 as a;\n.quit\nselect 2 as b;\n");
    assert_eq!(run.ok(), "a\n1\n");
    let run = shell(&["--format", "csv"], "set kelpie.threads = 1;\n.timing on\nselect 1 as a;\n");
    assert!(run.err.contains("time: "), "{}", run.err);
    assert_eq!(run.ok(), "timing is on\na\n1\n");
}

#[test]
fn generate_writes_the_chosen_tables_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let base = ["generate", "ssb", "--scale", "0.001", "--output", path, "--tables", "date,part"];
    let out = kelpie(&base).ok();
    assert!(out.contains("date") && out.contains("2557 rows") && !out.contains("lineorder"), "{out}");
    kelpie(&base).fails_with(&["date.parquet exists already", "--force"]);
    kelpie(&[&base[..], &["--force"]].concat()).ok();
    let mut names: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    assert_eq!(names, [folder.path().join("date.parquet"), folder.path().join("part.parquet")]);
    kelpie(&["generate", "tpch", "--scale", "-1", "--output", path]).fails_with(&["scale factor"]);
    kelpie(&["generate", "tpch", "--scale", "1", "--output", path, "--tables", "x"])
        .fails_with(&["`x`", "lineitem"]);
    let blocked = file(&folder, "blocked", "");
    kelpie(&["generate", "tpch", "--scale", "0.001", "--output", &blocked]).fails_with(&["blocked"]);
}

#[test]
fn explain_shows_each_stage() {
    let sql = "select sum(l_extendedprice) from lineitem where l_quantity < 24";
    let stage = |stage: &str| {
        kelpie(&["explain", "--device", "cpu", "--data", tpch(), "--stage", stage, "-c", sql]).ok()
    };
    assert!(stage("plan").contains("KelpieExec"));
    assert!(stage("pipelines").contains("lineitem"));
    assert!(stage("kir").contains("kernel"));
    assert!(stage("code").contains("function"));
    kelpie(&["explain", "-c", "select nope"]).fails_with(&["nope"]);
    kelpie(&["explain", "-c", " -- nothing"]).fails_with(&["no statement"]);
}

#[test]
fn variants_are_listed_forced_and_explained() {
    let axes = kelpie(&["variants"]).ok();
    assert!(axes.contains("kelpie.variant.group_table (plan level)"), "{axes}");
    let sql = "select l_returnflag, count(*) from lineitem group by 1";
    let run = |more: &[&str]| {
        let mut arguments = vec!["variants", "--device", "cpu", "--data", tpch(), "-c", sql];
        arguments.extend(more);
        kelpie(&arguments)
    };
    let ruled = run(&[]).ok();
    let has = |shown: &str, choice: &str, reason: &str| {
        shown.lines().any(|line| line.starts_with(choice) && line.ends_with(reason))
    };
    assert!(has(&ruled, "aggregate0.group_table = direct: about ", ": a dense domain of keys"), "{ruled}");
    assert!(ruled.contains("  thread: not possible: a CPU's worker is one thread"), "{ruled}");
    assert!(ruled.contains(" points"), "{ruled}");
    let forced = run(&["--set", "kelpie.variant.group_table=hash"]).ok();
    assert!(has(&forced, "aggregate0.group_table = hash: about ", ": forced"), "{forced}");
    run(&["--set", "kelpie.variant.aggregate0.placement=thread"])
        .fails_with(&["a CPU's worker is one thread"]);
    run(&["--set", "kelpie.variant.placement=nowhere"]).fails_with(&[
        "placement",
        "nowhere",
        "thread, block, global",
    ]);
    run(&["--set", "kelpie.variant.colour=red"]).fails_with(&["colour", "group_table"]);
    let analyzed = format!("explain analyze {sql}");
    let shown = kelpie(&["--device", "cpu", "--data", tpch(), "-c", &analyzed]).ok();
    assert!(shown.contains("aggregate0.group_table=direct"), "{shown}");
    // Before anything is read, by statistics; where they do not tell, it says what has to be read.
    let explain = |sql: &str| kelpie(&["--device", "cpu", "--data", tpch(), "-c", sql]).ok();
    let shown = explain("explain select l_linenumber, sum(l_quantity) from lineitem group by 1");
    assert!(
        shown.contains("by what is known now: ") && shown.contains("aggregate0.group_table=direct"),
        "{shown}"
    );
    // With their reasons, and what they are estimated by, where that is asked for.
    let shown = explain("explain verbose select l_orderkey, sum(l_quantity) from lineitem group by 1");
    assert!(shown.contains("variant aggregate0.group_parts = 1 ("), "{shown}");
    let shown = explain(&format!("explain {sql}"));
    assert!(
        shown.contains("variants are chosen when column l_returnflag of lineitem.parquet is read"),
        "{shown}"
    );
    let shown = explain(&format!("{sql}; explain {sql}"));
    assert!(
        shown.contains("by what is known now: ") && shown.contains("aggregate0.group_table=direct"),
        "{shown}"
    );
}

#[test]
fn devices_are_listed_with_why_not() {
    let out = kelpie(&["devices"]).ok();
    for kind in ["cpu: ", "cuda: ", "simt: "] {
        assert!(out.lines().any(|line| line.starts_with(kind)), "{out}");
    }
}

/// Runs the program with a cache folder of its own.
fn in_cache(cache: &Path, arguments: &[&str]) -> Run {
    let mut command = program();
    command.args(arguments).env("KELPIE_CACHE_DIR", cache).stdin(Stdio::null());
    finished(command.output().unwrap())
}

#[test]
fn a_device_is_measured_and_the_findings_are_kept_and_shown() {
    let cache = tempfile::tempdir().unwrap();
    let shown = in_cache(cache.path(), &["devices", "--device", "cpu"]).ok();
    assert!(shown.contains("caches: assumed") && !shown.contains("simt"), "{shown}");
    let found = in_cache(cache.path(), &["devices", "--calibrate", "--device", "cpu"]).ok();
    for part in ["cpu: ", "working set", "16 KiB", "atomics", "measured in: ", "kept in "] {
        assert!(found.contains(part), "{part}: {found}");
    }
    let shown = in_cache(cache.path(), &["devices", "--device", "cpu"]).ok();
    assert!(shown.contains("(measured)") && !shown.contains("assumed;"), "{shown}");
    let mut files = fs::read_dir(cache.path().join("calibration")).unwrap();
    let path = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none());
    fs::write(&path, "{").unwrap();
    let shown = in_cache(cache.path(), &["devices", "--device", "cpu"]).ok();
    assert!(shown.contains("caches: assumed; ") && shown.contains("is not used: it is damaged"), "{shown}");
    // A query goes on without it.
    in_cache(cache.path(), &["--device", "cpu", "-c", "select 1"]).ok();
}

#[test]
fn a_measurement_that_cannot_be_kept_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    in_cache(&file, &["devices", "--calibrate", "--device", "simt"]).fails_with(&["is not kept", "written"]);
}

/// Whether a Python package is there that runs beside Kelpie; says that the test is skipped where it is not.
fn has_peer(package: &str) -> bool {
    let import = Command::new("python3").args(["-c", &format!("import {package}")]).output();
    let found = import.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: python3 has no package {package}");
    }
    found
}

#[test]
fn the_benchmark_checks_answers_and_marks_what_is_not_compiled() {
    if !has_peer("datafusion") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("b.json");
    let json = json.to_str().unwrap();
    let base = ["bench", "tpch", "--data", tpch(), "--device", "cpu", "--runs", "1", "--queries", "1,6,16"];
    let out = kelpie(&[&base[..], &["--against", "datafusion", "--json", json]].concat()).ok();
    assert!(out.contains("3 of 3 answers are the reference answers"), "{out}");
    assert!(out.contains("ratio = kelpie / datafusion") && out.contains("total"), "{out}");
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    for query in report["queries"].as_array().unwrap() {
        assert_eq!(query["answer_is_right"], true);
        assert!(query["median"]["total_ms"].as_f64().unwrap() > 0.0);
        assert!(query["peers"][0]["ratio"].as_f64().unwrap() > 0.0);
        assert!(query["peers"][0]["unseen_ratio"].as_f64().unwrap() > 0.0);
        // A statement that was seen is not planned again.
        let plan = |of: &str| query[of]["plan_ms"].as_f64().unwrap();
        assert!(plan("median") * 2.0 < plan("unseen"), "{query}");
        let compiled = query["compiled"].as_bool().unwrap();
        assert_eq!(compiled, query["reasons"].as_array().unwrap().is_empty());
        assert_eq!(!compiled, out.contains(&format!(" {}*", query["name"].as_str().unwrap())), "{out}");
    }
    let cold = kelpie(&[&base[..], &["--cold"]].concat()).ok();
    assert!(cold.contains("cold"), "{cold}");
    let mut missing = program();
    missing.args(base).args(["--against", "duckdb"]).env("KELPIE_PYTHON", "/no/python");
    finished(missing.output().unwrap()).fails_with(&["duckdb", "/no/python", "KELPIE_PYTHON"]);
    kelpie(&["bench", "tpch", "--data", tpch(), "--queries", "23"]).fails_with(&["`23`", "22"]);
    kelpie(&["bench", "ssb", "--data", tpch()]).fails_with(&["lineorder", "kelpie generate ssb"]);
}

#[test]
fn derived_columns_are_measured_in_processes_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (data, json) = (folder.path().join("data"), folder.path().join("d.json"));
    let (data, json) = (data.to_str().unwrap(), json.to_str().unwrap());
    let base = ["bench", "derived", "--data", data, "--device", "cpu", "--runs", "1", "--rows", "30000"];
    let out = kelpie(&[&base[..], &["--json", json]].concat()).ok();
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["rows"], 30000);
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 4);
    for case in cases {
        assert!(out.contains(case["name"].as_str().unwrap()), "{out}");
        assert_eq!(case["compiled"], true, "{case}");
        assert!(case["difference"].is_null(), "{case}");
        for run in ["first", "on_disk", "derived", "plain"] {
            assert!(case[run]["total_ms"].as_f64().unwrap() > 0.0, "{case}");
        }
        for ratio in ["first_ratio", "on_disk_ratio", "hot_ratio"] {
            assert!(case[ratio].as_f64().unwrap() > 0.0, "{case}");
        }
    }
    kelpie(&[&base[..], &["--queries", "most"]].concat()).fails_with(&["`most`", "minute"]);
    kelpie(&[&base[..], &["--cold"]].concat()).fails_with(&["--cold"]);
    kelpie(&[&base[..], &["--queries", "few", "--set", "kelpie.device=gpu"]].concat()).fails_with(&["gpu"]);
}

/// Needs the Python package duckdb; where it is missing, the test before holds what the user is told.
#[test]
fn duckdb_runs_in_turn_where_it_is_installed() {
    let python = Command::new("python3").args(["-c", "import duckdb"]).stderr(Stdio::null()).status();
    if !python.is_ok_and(|status| status.success()) {
        println!("not run: python3 has no package duckdb");
        return;
    }
    for mode in [&["--runs", "2"][..], &["--runs", "1", "--cold"]] {
        let base = ["bench", "tpch", "--data", tpch(), "--queries", "3,6", "--against", "duckdb"];
        let run = kelpie(&[&base[..], mode].concat());
        let line = run
            .out
            .lines()
            .find(|line| line.trim_start().starts_with("total "))
            .unwrap_or_default()
            .to_string();
        let out = run.ok();
        assert!(out.contains("duckdb: DuckDB "), "{out}");
        let ratio: f64 = line.split_whitespace().last().unwrap().parse().unwrap();
        assert!(ratio > 0.0, "{out}");
    }
}

#[test]
fn a_query_that_must_compile_and_does_not_is_an_error() {
    let sql = "select p_partkey, rank() over (partition by p_brand order by p_size) from part";
    let deny = ["--data", tpch(), "--set", "kelpie.fallback=deny", "-c", sql];
    let run = kelpie(&deny);
    assert_eq!(run.code, Some(1), "{}", run.out);
    assert!(run.err.contains("WindowAggExec"), "{}", run.err);
    kelpie(&["--data", tpch(), "-c", sql]).ok();
}

#[test]
fn the_demo_runs_from_an_empty_folder_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let arguments = ["demo", "--scale", "0.01", "--device", "cpu", "--dir", path];
    let out = kelpie(&arguments).ok();
    for part in ["making TPC-H data", "1193053.2253", "KelpieExec", "pipeline", "DataFusion", "Kelpie takes"]
    {
        assert!(out.contains(part), "`{part}` is not in: {out}");
    }
    assert!(!kelpie(&arguments).ok().contains("making TPC-H data"));
    assert_eq!(fs::read_dir(path).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn an_interrupt_cancels_the_query() {
    let sql = "select count(*) from range(3000000) a, range(3000000) b where a.value + b.value < 0";
    let child = program().args(["-c", sql]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let run = finished(child.wait_with_output().unwrap());
    assert_eq!((run.code, run.err.as_str()), (Some(130), "cancelled\n"));
}
