//! A full disk is an error that names it where a result goes, and costs no answer elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::{Run, finished, kelpie, program, tpch};

#[test]
fn a_full_disk_under_the_output_is_an_error() {
    for format in ["table", "csv", "json", "parquet", "arrow"] {
        let to_full = ["-c", "select 1", "--format", format, "--output", "/dev/full"];
        kelpie(&to_full).fails_with(&["/dev/full", "No space left"]);
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = program(&to_full[..4]).stdout(full).output().unwrap();
        finished(output).fails_with(&["No space left"]);
    }
}

/// Runs the program where no file can grow beyond 64 KiB: to it, a full disk.
fn on_a_full_disk(arguments: &[&str], cache: &Path) -> Run {
    // Without the trap, the signal SIGXFSZ would end the process.
    let script = "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_kelpie")]).args(arguments).env("KELPIE_CACHE_DIR", cache);
    finished(shell.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn a_full_disk_under_generated_data_leaves_no_half_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let path = path.to_str().unwrap();
    let base = ["generate", "ssb", "--scale", "0.01", "--output", path, "--tables", "lineorder,supplier"];
    on_a_full_disk(&base, folder.path())
        .fails_with(&["cannot write", "data/lineorder.parquet", "File too large"]);
    let left: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.iter().all(|path| path.ends_with("supplier.parquet")), "{left:?}");
    kelpie(&[&base[..], &["--force"]].concat()).ok();
    let rows = "select count(*) as n from lineorder where lo_suppkey in (select s_suppkey from supplier)";
    let count = kelpie(&["--data", path, "--format", "csv", "-c", rows]).ok();
    let count = count.strip_prefix("n\n").and_then(|count| count.trim_end().parse::<u32>().ok());
    assert!(count.is_some_and(|count| count > 50_000), "{count:?}");
}

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
}

/// The demonstration says what it cannot write, and later makes it anew.
#[test]
fn a_full_disk_under_the_demonstration_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("demo");
    let kept = kept.to_str().unwrap();
    let demo = ["demo", "--scale", "0.01", "--device", "cpu", "--dir", kept];
    on_a_full_disk(&demo, folder.path()).fails_with(&["cannot write", kept, "File too large"]);
    assert_eq!(fs::read_dir(kept).unwrap().count(), 0);
    let out = kelpie(&demo).ok();
    assert!(out.contains("making TPC-H data") && out.contains("1193053.2253"), "{out}");
}
