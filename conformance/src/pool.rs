//! The children that run files, and what becomes of files whose child dies or hangs.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::files::Shipped;
use crate::message::{FileReport, Message, Place};

/// Bytes of a child's last words that are shown.
const LAST_WORDS: u64 = 2000;

/// What children need.
pub struct Pool<'a> {
    /// The files.
    pub shipped: &'a Shipped,
    /// A repository with their data.
    pub checkout: Option<&'a Path>,
    /// How long a statement may take.
    pub limit: Duration,
}

/// What came of a file.
pub struct Outcome {
    /// The file.
    pub file: PathBuf,
    /// What its child told, or where it ended and why.
    pub report: Result<FileReport, (Place, String)>,
}

impl Pool<'_> {
    /// Runs files in so many children.
    pub fn run(&self, files: Vec<PathBuf>, jobs: usize) -> Result<Vec<Outcome>> {
        let queue = Mutex::new(VecDeque::from(files));
        let outcomes = thread::scope(|scope| {
            let work = || scope.spawn(|| self.work(&queue));
            let workers: Vec<_> = (0..jobs.max(1)).map(|_| work()).collect();
            let join = |worker: thread::ScopedJoinHandle<'_, Result<Vec<Outcome>>>| {
                worker.join().map_err(|_| anyhow!("a thread that waits for a child panicked"))?
            };
            workers.into_iter().map(join).collect::<Result<Vec<_>>>()
        })?;
        let mut outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
        outcomes.sort_by(|a, b| a.file.cmp(&b.file));
        Ok(outcomes)
    }

    /// One child after the other: a new one where the last died.
    fn work(&self, queue: &Mutex<VecDeque<PathBuf>>) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        let mut worker = None;
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(file) = next else { return Ok(outcomes) };
            let mut running = match worker.take() {
                Some(running) => running,
                None => Worker::start(self)?,
            };
            let report = running.run(&file, self.limit);
            if report.is_ok() {
                worker = Some(running);
            }
            outcomes.push(Outcome { file, report });
        }
    }
}

/// A child.
struct Worker {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Message>,
    errors: File,
    /// The folder it runs in.
    _folder: tempfile::TempDir,
}

impl Worker {
    fn start(pool: &Pool<'_>) -> Result<Worker> {
        let root = tempfile::tempdir()?;
        let folder = pool.shipped.lay_out(root.path(), pool.checkout)?;
        let errors = tempfile::tempfile()?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--worker")
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone()?)
            .spawn()?;
        let input = child.stdin.take().context("a child without input")?;
        let output = child.stdout.take().context("a child without output")?;
        let (sender, messages) = channel();
        // It ends with the child's output.
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // What is no message was printed by a statement.
            for message in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Ok(Worker { child, input, messages, errors, _folder: root })
    }

    /// Runs a file; where the child does not survive it, which statement it was at, and why.
    fn run(&mut self, file: &Path, limit: Duration) -> Result<FileReport, (Place, String)> {
        let mut place = Place { file: file.display().to_string(), ..Place::default() };
        if let Err(error) = writeln!(self.input, "{}", file.display()) {
            return Err((place, format!("the child takes no file: {error}")));
        }
        loop {
            match self.messages.recv_timeout(limit) {
                Ok(Message::At(at)) => place = at,
                Ok(Message::Done(report)) => return Ok(report),
                Err(RecvTimeoutError::Timeout) => {
                    return Err((place, format!("takes longer than {} s", limit.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status =
                        self.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
                    return Err((place, format!("the process died: {status}\n{}", self.last_words())));
                }
            }
        }
    }

    fn last_words(&mut self) -> String {
        let mut text = Vec::new();
        let length = self.errors.seek(SeekFrom::End(0)).unwrap_or(0);
        let sought = self.errors.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS)));
        match sought.and_then(|_| self.errors.read_to_end(&mut text)) {
            Ok(_) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => format!("its last words are lost: {error}"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may be dead.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
