//! How many files are open at once does not grow with how many a table has.

use std::fs;
use std::process::Command;

use crate::program::{finished, kelpie};

const FILES: usize = 300;
/// Files that a process may have open, of which the program and its caches take some.
const OPEN: usize = 64;

#[test]
fn tables_of_many_files_open_few_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    for format in ["csv", "parquet", "arrow", "json"] {
        fs::create_dir(place(format)).unwrap();
        let first = place(&format!("first.{format}"));
        let query = ["--device", "cpu", "--output", &first, "-c", "select 7 as a, 'seven' as b"];
        assert_eq!(kelpie(&query).code, Some(0), "{format}");
        for file in 0..FILES {
            fs::copy(&first, place(&format!("{format}/{file}.{format}"))).unwrap();
        }
        for location in ["path", "external"] {
            let files = place(format);
            let (create, table) = match location {
                "path" => (String::new(), format!("'{files}'")),
                _ => (format!("create external table t stored as {format} location '{files}';"), "t".into()),
            };
            let select = format!("{create} select count(*), sum(a), max(b) from {table}");
            for enabled in ["kelpie.enabled=true", "kelpie.enabled=false"] {
                // The shell's limit is that of the program that it becomes.
                let limited = format!("ulimit -n {OPEN} && exec \"$0\" \"$@\"");
                let found = finished(
                    Command::new("sh")
                        .args([
                            "-c",
                            &limited,
                            env!("CARGO_BIN_EXE_kelpie"),
                            "--device",
                            "cpu",
                            "--format",
                            "csv",
                        ])
                        .args(["--set", enabled, "-c", &select])
                        .env("KELPIE_CACHE_DIR", folder.path().join("cache"))
                        .output()
                        .unwrap(),
                );
                let expected = format!("{FILES},{},seven", 7 * FILES);
                assert!(
                    found.out.contains(&expected),
                    "{format}, {location}, {enabled}: {}{}",
                    found.out,
                    found.err
                );
            }
        }
    }
}

#[test]
fn a_folder_of_five_thousand_files_is_a_table() {
    const MANY: usize = 5_000;
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("many");
    fs::create_dir(&files).unwrap();
    for file in 0..MANY {
        fs::write(files.join(format!("{file}.csv")), format!("a,b\n{file},x{}\n", file % 7)).unwrap();
    }
    let limited = format!("ulimit -n {OPEN} && exec \"$0\" \"$@\"");
    let select = format!("select count(*), sum(a), count(distinct b) from '{}'", files.display());
    let found = finished(
        Command::new("sh")
            .args(["-c", &limited, env!("CARGO_BIN_EXE_kelpie"), "--device", "cpu", "--format", "csv"])
            .args(["-c", &select])
            .env("KELPIE_CACHE_DIR", folder.path().join("cache"))
            .output()
            .unwrap(),
    );
    let expected = format!("{MANY},{},7", MANY * (MANY - 1) / 2);
    assert!(found.out.contains(&expected), "{}{}", found.out, found.err);
}
