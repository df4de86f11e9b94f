//! The program's formats, its shell, its commands, its errors and exit codes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::program::{Run, file, finished, kelpie, program, shell, tpch};

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
    let output = program(&["-c", ROWS, "--format", "arrow"]).output().unwrap();
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
    let run = shell(&["--data", tpch(), "--format", "csv"], input.as_bytes());
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
    let run = shell(&["--format", "csv"], b"select 1 as a;\n.quit\nselect 2 as b;\n");
    assert_eq!(run.ok(), "a\n1\n");
    let run = shell(&["--format", "csv"], b"set kelpie.threads = 1;\n.timing on\nselect 1 as a;\n");
    assert!(run.err.contains("time: "), "{}", run.err);
    assert_eq!(run.ok(), "timing is on\na\n1\n");
}

#[test]
fn generate_writes_the_chosen_tables_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let base = ["generate", "ssb", "--scale", "0.001", "--output", path, "--tables", "date,part"];
    let out = kelpie(&base).ok();
    assert!(out.contains("date") && out.contains("2,557 rows") && !out.contains("lineorder"), "{out}");
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
    assert!(axes.contains("kelpie.variant.group_table (plan level, rule)"), "{axes}");
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
    run(&["--set", "kelpie.variant.aggregate0.accumulator_memory=thread"])
        .fails_with(&["a CPU's worker is one thread"]);
    run(&["--set", "kelpie.variant.accumulator_memory=nowhere"])
        .fails_with(&["accumulator_memory", "nowhere", "thread, block, global"]);
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
    finished(program(arguments).env("KELPIE_CACHE_DIR", cache).output().unwrap())
}

#[test]
fn a_device_is_measured_and_the_findings_are_kept_and_shown() {
    let cache = tempfile::tempdir().unwrap();
    // The interpreter is measured in little time, as little is measured of it.
    let devices = || in_cache(cache.path(), &["devices", "--device", "simt"]).ok();
    let shown = devices();
    assert!(shown.contains("caches: assumed") && !shown.contains("cpu"), "{shown}");
    let found = in_cache(cache.path(), &["devices", "--calibrate", "--device", "simt"]).ok();
    for part in ["simt: ", "working set", "16 KiB", "atomics", "measured in: ", "kept in "] {
        assert!(found.contains(part), "{part}: {found}");
    }
    let shown = devices();
    assert!(shown.contains("(measured)") && !shown.contains("assumed;"), "{shown}");
    let mut files = fs::read_dir(cache.path().join("calibration")).unwrap();
    let path = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none());
    fs::write(&path, "{").unwrap();
    let shown = devices();
    assert!(shown.contains("caches: assumed; ") && shown.contains("is not used: it is damaged"), "{shown}");
    // A query goes on without it.
    in_cache(cache.path(), &["--device", "simt", "-c", "select 1"]).ok();
}

#[test]
fn what_the_tuner_has_learned_is_shown_explained_and_taken_elsewhere() {
    let (cache, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tuner = |cache: &Path, arguments: &[&str]| in_cache(cache, &[&["tuner"], arguments].concat());
    assert!(tuner(cache.path(), &["show"]).ok().contains("nothing was learned yet"));
    let sql = "select l_suppkey, sum(l_quantity) from lineitem where l_tax > 0.01 group by 1 limit 3";
    let session = ["--device", "cpu", "--data", tpch(), "--set", "kelpie.tuner.deterministic=true"];
    let many = vec![sql; 60].join(";");
    in_cache(cache.path(), &[&session[..], &["--set", "kelpie.tuner=genetic", "-c", &many]].concat()).ok();
    let shown = tuner(cache.path(), &["show"]).ok();
    for part in ["stage ", " on cpu", "scan lineitem", "tried ", "lost to trials", "    kelpie.variant."] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let why = || tuner(cache.path(), &[&["why"], &session[..], &["-c", sql]].concat()).ok();
    assert!(why().contains(": learned: "), "{}", why());
    let file = other.path().join("learned.json");
    let file = file.to_str().unwrap();
    tuner(cache.path(), &["export", file]).ok();
    assert!(tuner(other.path(), &["import", file]).ok().contains("of which less was known here"));
    assert_eq!(tuner(other.path(), &["show"]).ok(), shown);
    fs::write(file, "{}").unwrap();
    tuner(other.path(), &["import", file]).fails_with(&["learned.json", "is not what"]);
    tuner(other.path(), &["import", "nowhere.json"]).fails_with(&["nowhere.json"]);
    assert!(tuner(cache.path(), &["reset"]).ok().contains("forgotten"));
    assert!(tuner(cache.path(), &["show"]).ok().contains("nothing was learned yet"));
    assert!(!why().contains("learned: "), "{}", why());
}

#[test]
fn a_measurement_that_cannot_be_kept_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    in_cache(&file, &["devices", "--calibrate", "--device", "simt"]).fails_with(&["is not kept", "written"]);
}

#[test]
fn a_query_that_must_compile_and_does_not_is_an_error() {
    let sql = "select p_partkey, approx_median(p_size) over (partition by p_brand) from part";
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
