//! Checks of the repository itself: `cargo run -p xtask -- kernels`.

mod kernels;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Checks of Kelpie's repository.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compiles every CUDA kernel of the repository with NVRTC, which needs no GPU. Exit code 1: a kernel is rejected;
    /// 2: there is no NVRTC.
    Kernels {
        /// Compile the kernels of this many generated queries, and of TPC-H Q1 and Q6; 0 for none.
        #[arg(long, default_value_t = 60)]
        queries: u64,
        /// Compile this many random modules too.
        #[arg(long, default_value_t = 0)]
        random: u64,
        /// Seed of the first random module.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Architectures to compile for.
        #[arg(long, value_delimiter = ',', default_value = "sm_80,sm_90")]
        architectures: Vec<String>,
        /// Show every kernel, not only those that are rejected.
        #[arg(long, short)]
        verbose: bool,
        /// CUDA snapshots (.snap), .kir or .cu files; without any, all of the repository's.
        files: Vec<PathBuf>,
    },
    /// Compares generated queries with DataFusion. Exit code 1: answers differ.
    Fuzz {
        /// How many.
        #[arg(long, default_value_t = 1000)]
        queries: u64,
        /// The first seed; every 200 queries take the next.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Session options, such as kelpie.device=simt.
        #[arg(long = "set", value_name = "OPTION=VALUE")]
        settings: Vec<String>,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Kernels { queries, random, seed, architectures, verbose, files } => {
            check_kernels(&kernels::Request { queries, random, seed, architectures, verbose, files })
        }
        Command::Fuzz { queries, seed, settings } => fuzz(queries, seed, &settings),
    }
}

fn check_kernels(request: &kernels::Request) -> ExitCode {
    match kernels::check(request) {
        Ok(kernels::Outcome::Accepted) => ExitCode::SUCCESS,
        Ok(kernels::Outcome::Rejected) => ExitCode::from(1),
        Ok(kernels::Outcome::NoCompiler(reason)) => {
            eprintln!("nothing was checked: {reason}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// Runs the example of `kelpie-datafusion`: without a dependency on it, the other commands build in seconds.
fn fuzz(queries: u64, seed: u64, settings: &[String]) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let status = std::process::Command::new(cargo)
        .args(["run", "--quiet", "--package", "kelpie-datafusion", "--example", "fuzz", "--"])
        .args([queries.to_string(), seed.to_string()])
        .args(settings)
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
