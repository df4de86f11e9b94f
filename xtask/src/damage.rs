//! Damaged files, queried.

use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

/// The arguments of `damage`.
#[derive(Debug, Args)]
pub struct Request {
    /// How many files.
    #[arg(long, default_value_t = 2000)]
    cases: u64,
    /// The first seed; every file takes the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the example of `kelpie-session`: without a dependency on it, the other commands build in seconds.
pub fn damage(request: &Request) -> Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--example", "damage", "--"]);
    let status = command.args([request.cases.to_string(), request.seed.to_string()]).status();
    Ok(status.context("cargo cannot be run")?.success())
}
