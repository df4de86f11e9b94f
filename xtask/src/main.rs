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
}

fn main() -> ExitCode {
    let Command::Kernels { random, seed, architectures, verbose, files } = Arguments::parse().command;
    match kernels::check(&kernels::Request { random, seed, architectures, verbose, files }) {
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
