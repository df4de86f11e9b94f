//! DuckDB as a peer: its Python package in a child process, JSON lines over pipes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

const SCRIPT: &str = include_str!("duckdb.py");

/// Environment variable that names the Python interpreter; `python3` where absent.
const PYTHON: &str = "KELPIE_PYTHON";

/// A DuckDB process.
pub struct DuckDbPeer {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    version: String,
    threads: usize,
    in_memory: bool,
}

impl DuckDbPeer {
    /// Starts DuckDB on Parquet tables (`<table>.parquet` or a folder `<table>`), loaded where they shall be in memory.
    ///
    /// # Errors
    /// Where Python or its package `duckdb` is missing, the error says how to get it.
    pub fn start(data: &Path, tables: &[&str], threads: usize, in_memory: bool) -> Result<DuckDbPeer> {
        let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".into());
        let mut child = Command::new(&python)
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!("cannot run `{python}`: install Python 3 and its package duckdb, or set {PYTHON}")
            })?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("`{python}` has no pipes");
        };
        let version = String::new();
        let answers = BufReader::new(answers);
        let mut peer = DuckDbPeer { child, requests, answers, version, threads, in_memory };
        let hello = peer.answer()?;
        peer.version = hello["version"].as_str().unwrap_or("?").to_string();
        peer.run(&format!("set threads = {threads}"))?;
        let kind = if in_memory { "table" } else { "view" };
        for table in tables {
            let path = super::table_path(data, table);
            let pattern = if path.is_dir() { path.join("*.parquet") } else { path };
            let pattern = pattern.to_str().context("the path of the data is not UTF-8")?.replace('\'', "''");
            peer.run(&format!("create {kind} \"{table}\" as from read_parquet('{pattern}')"))?;
        }
        Ok(peer)
    }

    /// Runs a statement: its time in nanoseconds.
    pub fn run(&mut self, sql: &str) -> Result<u64> {
        writeln!(self.requests, "{}", json!({ "sql": sql })).context("DuckDB's process ended")?;
        let answer = self.answer()?;
        answer["time_ns"].as_u64().context("DuckDB's process gave no time")
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.answers.read_line(&mut line).context("DuckDB's process cannot be read")?;
        if line.is_empty() {
            bail!("DuckDB's process ended");
        }
        let answer: Value = serde_json::from_str(&line).context("DuckDB's process gave no JSON")?;
        match answer["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(answer),
        }
    }

    /// What is measured, for people.
    pub fn description(&self) -> String {
        let place = if self.in_memory { "tables in memory" } else { "Parquet files" };
        format!("DuckDB {}, {} threads, {place}", self.version, self.threads)
    }
}

impl Drop for DuckDbPeer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
