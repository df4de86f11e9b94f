//! Ctrl-C ends a query and its output, whatever they do, and replaces no file.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};

use crate::program::{names, program, shell, wait_for};

/// The program while it runs; it does not outlive its test.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str], out: impl Into<Stdio>) -> Running {
        Running(program(arguments).stdout(out).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Whether one of its threads has this name.
    fn has_thread(&self, name: &str) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        // A thread may end while it is looked at.
        let mut names = threads.flatten().flat_map(|thread| fs::read_to_string(thread.path().join("comm")));
        names.any(|found| found.trim_end() == name)
    }

    /// Processor time that it has taken, in hundredths of a second.
    fn processor_time(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        // Its name is in brackets; its times as user and in the system are the 12th and 13th fields behind.
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    }

    /// Interrupts it; its exit code and what it said.
    fn interrupt(mut self) -> (Option<i32>, String) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        wait_for("its end after an interrupt", || self.0.try_wait().unwrap().is_some());
        let mut err = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.0.wait().unwrap().code(), err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How a program ends that was interrupted.
fn cancelled() -> (Option<i32>, String) {
    (Some(130), "cancelled\n".into())
}

#[test]
fn an_interrupt_cancels_the_query() {
    let sql = "select count(*) from range(3000000) a, range(3000000) b where a.value + b.value < 0";
    let query = Running::start(&["-c", sql], Stdio::null());
    // The thread for its rows is made when it is planned; what takes long then is its kernel.
    wait_for("the thread for its rows", || query.has_thread("output"));
    let planned = query.processor_time();
    wait_for("its kernel", || query.processor_time() >= planned + 50);
    assert_eq!(query.interrupt(), cancelled());
}

#[test]
fn an_interrupt_ends_the_output_too() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "select value as a, value * 7 as b from range(2000000000)";
    for format in ["table", "csv", "json"] {
        let path = folder.path().join(format);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        // Nobody reads what comes.
        let mut pipe =
            File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let out = File::options().write(true).open(&path).unwrap();
        let query = Running::start(&["--device", "cpu", "--format", format, "-c", sql], out);
        wait_for("a full pipe", || {
            pipe.write(&[0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        });
        assert_eq!(query.interrupt(), cancelled(), "{format}");
    }
}

#[test]
fn an_interrupt_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let rows = "select value as a from range(2000000000)";
    let copy = format!("copy ({rows}) to '{}'", path.display());
    let output = ["--format", "csv", "--output", path.to_str().unwrap(), "-c", rows];
    for arguments in [&output[..], &["-c", &copy]] {
        fs::write(&path, "precious").unwrap();
        let query = Running::start(arguments, Stdio::null());
        wait_for("another file", || names(folder.path()).len() > 1);
        assert_eq!(query.interrupt(), cancelled());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(names(folder.path()), ["out.csv"]);
    }
}

/// An expression that DataFusion computes and that does not give way for seconds.
const BUSY: &str = "select a.value from range(10000, 30000) a, range(10000, 30000) b order by \
                    levenshtein(repeat(a.value::varchar, 100), repeat(b.value::varchar, 140))";

#[test]
fn an_interrupt_ends_what_does_not_give_way() {
    let query = Running::start(&["--device", "cpu", "-c", BUSY], Stdio::null());
    wait_for("the thread for its rows", || query.has_thread("output"));
    let planned = query.processor_time();
    wait_for("its expression", || query.processor_time() >= planned + 50);
    let start = std::time::Instant::now();
    assert_eq!(query.interrupt(), cancelled());
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
}

#[test]
fn the_next_statement_runs_though_one_does_not_give_way() {
    let start = std::time::Instant::now();
    let script = format!("set kelpie.timeout = '300ms';\n{BUSY};\nselect 1 as a;\n{BUSY};\nselect 2 as b;\n");
    let run = shell(&["--device", "cpu", "--format", "csv"], script.as_bytes());
    assert!(run.code == Some(1) && run.out.contains("a\n1\n") && run.out.ends_with("b\n2\n"), "{}", run.err);
    assert_eq!(run.err.matches("kelpie.timeout allows").count(), 2, "{}", run.err);
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}
