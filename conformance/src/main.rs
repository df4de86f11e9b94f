//! DataFusion's own sqllogictest files, with Kelpie in the session and without.
//!
//! The crate `datafusion-sqllogictest` ships the files; they are read from where cargo keeps its sources. Each file runs in plain
//! DataFusion and in DataFusion with [`kelpie_session::install`], with 1 and with 4 partitions. A statement that plain
//! DataFusion executes must give the same rows, types and names with Kelpie; one that fails as its file expects must fail so with
//! Kelpie too. A statement that fails in plain DataFusion though its file expects otherwise (it reads data that only DataFusion's
//! repository has) says nothing and is not counted.
//!
//! Files run in child processes, so that a panic, an abort or a hang costs one file and is a failure that names its statement.
//! `open.txt` lists the statements whose result SQL leaves open, each with its reason.

mod answer;
mod compare;
mod database;
mod files;
mod message;
mod open;
mod pool;
mod session;
mod stand_in;
mod summary;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use crate::files::Shipped;
use crate::open::OpenList;
use crate::pool::Pool;
use crate::summary::Summary;

/// What can be asked for.
#[derive(Debug, Parser)]
#[command(about = "Runs DataFusion's own sqllogictest files with Kelpie beside plain DataFusion.")]
struct Options {
    /// Runs only files whose path contains one of these.
    filters: Vec<String>,
    /// Files that run at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Seconds that a statement may take.
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// A checkout of DataFusion's repository with its submodules, whose test data is read; otherwise tables stand in for some of
    /// it, and statements that read the rest are not counted.
    #[arg(long)]
    checkout: Option<PathBuf>,
    /// Lists the files that took longest.
    #[arg(long)]
    timing: bool,
    /// Lists the statements that are not counted, each with plain DataFusion's error.
    #[arg(long)]
    not_counted: bool,
    /// Runs as a child: takes paths of files from the standard input.
    #[arg(long, hide = true)]
    worker: bool,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    if options.worker {
        return worker::serve().map(|()| ExitCode::SUCCESS);
    }
    let shipped = Shipped::find()?;
    let files = shipped.files(&options.filters)?;
    let pool = Pool {
        shipped: &shipped,
        checkout: options.checkout.as_deref(),
        limit: Duration::from_secs(options.limit),
    };
    let reports = pool.run(files, options.jobs)?;
    let summary = Summary::new(reports, OpenList::read()?);
    summary.print(options.timing, options.not_counted);
    let complete = options.filters.is_empty();
    Ok(if summary.holds(complete) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
