//! Generated queries compared with DataFusion.

use std::process::{Command, ExitCode};

use clap::{Args, ValueEnum};

/// What the queries are over.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Tables {
    /// One table with a column of every type.
    Single,
    /// Random tables: joins, subqueries, set operations.
    Many,
    /// The same with few rows: for the interpreter.
    Small,
}

/// The arguments of `fuzz`.
#[derive(Debug, Args)]
pub struct Request {
    /// How many.
    #[arg(long, default_value_t = 1000)]
    queries: u64,
    /// The first seed; every 25 queries (200 of a single table) take the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What the queries are over.
    #[arg(long, value_enum, default_value_t = Tables::Many)]
    tables: Tables,
    /// Session options, such as kelpie.device=simt.
    #[arg(long = "set", value_name = "OPTION=VALUE")]
    settings: Vec<String>,
    /// Build for speed: worth it for many thousands.
    #[arg(long)]
    release: bool,
}

/// Runs the example of `kelpie-datafusion`: without a dependency on it, the other commands build in seconds.
pub fn fuzz(request: &Request) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let tables = match request.tables {
        Tables::Single => "single",
        Tables::Many => "many",
        Tables::Small => "small",
    };
    let status = Command::new(cargo)
        .args(["run", "--quiet", "--package", "kelpie-datafusion", "--example", "fuzz"])
        .args(request.release.then_some("--release"))
        .args(["--", tables, &request.queries.to_string(), &request.seed.to_string()])
        .args(&request.settings)
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: cargo cannot be run: {error}");
            ExitCode::from(1)
        }
    }
}
