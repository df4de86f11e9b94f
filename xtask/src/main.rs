//! Checks of the repository itself: `cargo run -p xtask -- kernels`.

mod damage;
mod fuzz;
mod kernels;
mod matrix;
mod programs;
mod test_times;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
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
    Fuzz(fuzz::Request),
    /// Queries damaged Parquet and Arrow files. Exit code 1: a query panics, contradicts another, or does not name its file.
    Damage(damage::Request),
    /// Runs every case of every test, of which `cargo test` runs a sample. Exit code 1: a test fails.
    Matrix(matrix::Request),
    /// Lists the tests that take longer than 3 seconds by themselves. Exit code 1: one takes longer than 10, or fails.
    TestTimes(test_times::Request),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Kernels { queries, random, seed, architectures, verbose, files } => {
            check_kernels(&kernels::Request { queries, random, seed, architectures, verbose, files })
        }
        Command::Fuzz(request) => fuzz::fuzz(&request),
        Command::Damage(request) => exit_code(damage::damage(&request)),
        Command::Matrix(request) => exit_code(matrix::matrix(&request)),
        Command::TestTimes(request) => exit_code(test_times::test_times(&request)),
    }
}

/// Of a check that says whether everything holds.
fn exit_code(result: Result<bool>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
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
