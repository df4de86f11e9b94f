//! Folders of caches that others may write, and what is no file in them.

#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::program::{Run, finished, program};

fn run(cache: &Path, arguments: &[&str]) -> Run {
    finished(program(arguments).env("KELPIE_CACHE_DIR", cache).output().unwrap())
}

#[test]
fn a_folder_that_others_may_write_is_named_and_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let query = ["--device", "cpu", "-c", "select count(*) from (values (1), (2)) t"];
    for kind in ["cubin", "learned", "calibration"] {
        let own = folder.path().join(kind);
        fs::create_dir_all(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        let found = run(folder.path(), &query);
        let named = found.err.contains("warning: other users may write") && found.err.contains(kind);
        assert!(named && found.code == Some(0), "{}", found.err);
        assert_eq!(fs::read_dir(&own).unwrap().count(), 0, "{kind}");
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
    }
    assert_eq!(run(folder.path(), &query).err, "");
}

#[test]
fn kernels_are_counted_and_prepared() {
    let folder = tempfile::tempdir().unwrap();
    let queries = folder.path().join("queries");
    fs::create_dir(&queries).unwrap();
    fs::write(queries.join("a.sql"), "select count(*) from (values (1), (2)) t; select 1;\n").unwrap();
    fs::write(queries.join("b.txt"), "no query").unwrap();
    let at = queries.to_str().unwrap();
    let prepared = run(folder.path(), &["kernels", "prepare", "--device", "cpu", "--queries", at]).ok();
    assert!(prepared.contains("2 statements of 1 files"), "{prepared}");
    // What writes is not run, and what fails is told with its file.
    fs::write(queries.join("c.sql"), "drop table t; select nothing from nowhere").unwrap();
    let some = run(folder.path(), &["kernels", "prepare", "--device", "cpu", "--queries", at]);
    assert!(some.code == Some(1) && some.out.contains("2 did not"), "{}", some.out);
    assert!(
        some.err.contains("c.sql") && some.err.contains("drop") && some.err.contains("nowhere"),
        "{}",
        some.err
    );
    let empty = tempfile::tempdir().unwrap();
    let none = run(folder.path(), &["kernels", "prepare", "--queries", empty.path().to_str().unwrap()]);
    assert!(none.err.contains("has no .sql file"), "{}", none.err);
    let shown = run(folder.path(), &["kernels", "show"]).ok();
    assert!(shown.contains("0 kernels") && shown.contains("of at most 2.00 GB (KELPIE_CACHE_MB)"), "{shown}");
}

#[test]
fn pipes_and_devices_in_place_of_files_are_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let measured = run(folder.path(), &["devices", "--device", "simt", "--calibrate"]);
    assert_eq!(measured.code, Some(0), "{}", measured.err);
    let own = folder.path().join("calibration");
    let file = fs::read_dir(&own).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let shown = run(folder.path(), &["devices", "--device", "simt"]).ok();
    assert!(shown.contains("it is no file but a pipe"), "{shown}");
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    let shown = run(folder.path(), &["devices", "--device", "simt"]).ok();
    assert!(shown.contains("it is no file but"), "{shown}");
}
