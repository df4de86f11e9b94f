//! Peers that are Python packages, in a child process: JSON lines over pipes, answers as Arrow files.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::ipc::reader::FileReader;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Environment variable that names the Python interpreter; `python3` where absent.
const PYTHON: &str = "KELPIE_PYTHON";

/// A package of PyPI. Its wheel is built to be fast: it is what users of that engine measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Package {
    /// DuckDB.
    DuckDb,
    /// DataFusion.
    DataFusion,
}

impl Package {
    fn name(self) -> &'static str {
        match self {
            Package::DuckDb => "duckdb",
            Package::DataFusion => "datafusion",
        }
    }

    fn script(self) -> &'static str {
        match self {
            Package::DuckDb => include_str!("duckdb.py"),
            Package::DataFusion => include_str!("datafusion.py"),
        }
    }
}

/// A process that runs an engine's Python package.
pub struct PythonPeer {
    package: Package,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Where it writes its rows.
    folder: TempDir,
    version: String,
    threads: usize,
    in_memory: bool,
}

impl PythonPeer {
    /// Starts it on Parquet tables (`<table>.parquet` or a folder `<table>`), loaded where they shall be in memory.
    ///
    /// # Errors
    /// Where Python or the package is missing, the error says how to get it.
    pub fn start(
        package: Package,
        data: &Path,
        tables: &[&str],
        threads: usize,
        in_memory: bool,
    ) -> Result<PythonPeer> {
        let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".into());
        let name = package.name();
        let mut child = Command::new(&python)
            .args(["-c", package.script()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!("cannot run `{python}`: install Python 3 and its package {name}, or set {PYTHON}")
            })?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("`{python}` has no pipes");
        };
        let (answers, version) = (BufReader::new(answers), String::new());
        let folder = tempfile::tempdir().context("a folder for answers")?;
        let mut peer = PythonPeer { package, child, requests, answers, folder, version, threads, in_memory };
        let hello = peer.answer()?;
        peer.version = hello["version"].as_str().unwrap_or("?").to_string();
        match package {
            Package::DuckDb => peer.request(&json!({ "sql": format!("set threads = {threads}") }))?,
            Package::DataFusion => peer.request(&json!({ "threads": threads }))?,
        };
        for table in tables {
            let path = super::table_path(data, table);
            let path = path.to_str().context("the path of the data is not UTF-8")?;
            peer.open_table(table, path)?;
        }
        Ok(peer)
    }

    fn open_table(&mut self, table: &str, path: &str) -> Result<u64> {
        match self.package {
            Package::DataFusion => {
                self.request(&json!({ "table": table, "path": path, "in_memory": self.in_memory }))
            }
            Package::DuckDb => {
                let kind = if self.in_memory { "table" } else { "view" };
                let pattern =
                    if Path::new(path).is_dir() { format!("{path}/*.parquet") } else { path.into() };
                let pattern = pattern.replace('\'', "''");
                let sql = format!("create {kind} \"{table}\" as from read_parquet('{pattern}')");
                self.request(&json!({ "sql": sql }))
            }
        }
    }

    /// Runs a query: its time in nanoseconds.
    pub fn run(&mut self, sql: &str) -> Result<u64> {
        self.request(&json!({ "sql": sql }))
    }

    /// Runs a query: its time in nanoseconds, without what its rows took to come here, and these rows.
    pub fn run_with_rows(&mut self, sql: &str) -> Result<(u64, Vec<RecordBatch>)> {
        let path = self.folder.path().join("rows.arrow");
        let rows = path.to_str().context("the path of the temporary folder is not UTF-8")?;
        let time_ns = self.request(&json!({ "sql": sql, "rows": rows }))?;
        let file = std::fs::File::open(&path).with_context(|| path.display().to_string())?;
        let batches = FileReader::try_new(file, None)?.collect::<Result<_, _>>()?;
        Ok((time_ns, batches))
    }

    fn request(&mut self, request: &Value) -> Result<u64> {
        let name = self.package.name();
        writeln!(self.requests, "{request}").with_context(|| format!("{name}'s process ended"))?;
        let answer = self.answer()?;
        answer["time_ns"].as_u64().with_context(|| format!("{name}'s process gave no time"))
    }

    fn answer(&mut self) -> Result<Value> {
        let name = self.package.name();
        let mut line = String::new();
        self.answers.read_line(&mut line).with_context(|| format!("{name}'s process cannot be read"))?;
        if line.is_empty() {
            bail!("{name}'s process ended");
        }
        let answer: Value =
            serde_json::from_str(&line).with_context(|| format!("{name}'s process gave no JSON"))?;
        match answer["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(answer),
        }
    }

    /// What is measured, for people.
    pub fn description(&self) -> String {
        let place = if self.in_memory { "tables in memory" } else { "Parquet files" };
        let (engine, unit) = match self.package {
            Package::DuckDb => ("DuckDB", "threads"),
            Package::DataFusion => ("DataFusion", "partitions"),
        };
        format!("{engine} {} of PyPI, {} {unit}, {place}", self.version, self.threads)
    }
}

impl Drop for PythonPeer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
