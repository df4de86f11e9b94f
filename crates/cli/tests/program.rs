//! Runs the program as a user does.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// What a run of the program gave.
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// The program, with nothing to read and a cache of these tests: neither what was measured of this machine nor what other runs
/// have left changes what it does.
pub fn program(arguments: &[&str]) -> Command {
    static CACHE: OnceLock<TempDir> = OnceLock::new();
    let cache = CACHE.get_or_init(|| tempfile::tempdir().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_kelpie"));
    command.args(arguments).env("KELPIE_CACHE_DIR", cache.path()).stdin(Stdio::null());
    command
}

pub fn finished(output: Output) -> Run {
    Run {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub fn kelpie(arguments: &[&str]) -> Run {
    finished(program(arguments).output().unwrap())
}

/// Runs the shell on its standard input.
pub fn shell(arguments: &[&str], input: &[u8]) -> Run {
    let mut child = program(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It answers while it reads: who writes all before reading anything may wait for ever.
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || stdin.write_all(input));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        finished(output)
    })
}

impl Run {
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    /// Fails with exit code 1 and an error that has all these parts.
    #[track_caller]
    pub fn fails_with(self, parts: &[&str]) {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.err);
        assert!(self.err.lines().any(|line| line.starts_with("error: ")), "{}", self.err);
        for part in parts {
            assert!(self.err.contains(part), "`{part}` is not in: {}", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
    }
}

/// What several tests read, made once.
struct Shared {
    /// As experiments have it: a folder for each workload and scale.
    folder: TempDir,
    /// That of TPC-H at scale 0.01.
    tpch: String,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
        let (tpch, ssb) = (path("tpch-sf0.01"), path("ssb-sf0.01"));
        kelpie(&["generate", "tpch", "--scale", "0.01", "--output", &tpch]).ok();
        kelpie(&["generate", "ssb", "--scale", "0.01", "--output", &ssb]).ok();
        Shared { folder, tpch }
    })
}

/// A folder with TPC-H at scale 0.01.
pub fn tpch() -> &'static str {
    &shared().tpch
}

/// A folder with the data of experiments at scale 0.01.
pub fn workloads() -> &'static str {
    shared().folder.path().to_str().unwrap()
}

pub fn file(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_string()
}

/// What a folder has, in order.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Waits for an event. A minute is no measure of anything: it ends a test whose event never comes.
#[track_caller]
pub fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited a minute for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
