//! Every case of every test: what a usual run of the tests takes a sample of.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use kelpie_kir::testing::sample::MATRIX;

use crate::programs::{Programs, source_root};

/// Names what tests fail without, instead of leaving it out.
const REQUIRE: &str = "KELPIE_REQUIRE";
/// Which GPUs CUDA sees; -1 is none.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Lines that are shown of a program that ended before its tests did.
const LAST_LINES: usize = 60;

/// What cases run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Device {
    Cpu,
    Simt,
    Cuda,
}

/// The arguments of `matrix`.
#[derive(Debug, Args)]
pub struct Request {
    /// Devices to run on. Every test covers cpu and simt wherever it runs; cuda is covered, and must be there, where it is named.
    #[arg(long = "device", value_enum)]
    devices: Vec<Device>,
    /// Run the programs that --pack left in this folder; the current folder is the repository's root.
    #[arg(long, value_name = "FOLDER", conflicts_with = "pack")]
    programs: Option<PathBuf>,
    /// Run nothing, but put the programs into this folder, with this one, for a machine without Rust.
    #[arg(long, value_name = "FOLDER")]
    pack: Option<PathBuf>,
    /// Only programs whose names contain one of these.
    filters: Vec<String>,
    /// Arguments of the programs, such as a part of the names of tests.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// What a program of tests says of itself in the end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
}

/// A program that has run.
struct Outcome {
    name: String,
    counts: Counts,
    status: ExitStatus,
    time: Duration,
    output: String,
}

/// Runs or packs them. Whether every test passed.
pub fn matrix(request: &Request) -> Result<bool> {
    let mut programs = match &request.programs {
        Some(folder) => Programs::unpack(folder)?,
        None => Programs::build()?,
    };
    programs.retain(&request.filters)?;
    if let Some(folder) = &request.pack {
        println!("{} programs in {}", programs.tests.len(), folder.display());
        return programs.pack(folder).map(|()| true);
    }
    let root = match request.programs {
        Some(_) => std::env::current_dir()?,
        None => source_root()?.to_path_buf(),
    };
    ensure!(root.join("crates").is_dir(), "{} is not the repository's root", root.display());
    let mut outcomes = Vec::new();
    for test in &programs.tests {
        let mut command = programs.command(test, &root);
        devices(command.env(MATRIX, "whole").args(&request.arguments), &request.devices);
        outcomes.push(run(&test.name, command)?);
    }
    report(&outcomes)
}

/// A machine without a GPU fails where one is asked for; where none is, the one that is there is hidden.
fn devices(command: &mut Command, devices: &[Device]) {
    if devices.contains(&Device::Cuda) {
        let required = std::env::var(REQUIRE).unwrap_or_default();
        command.env(REQUIRE, format!("{required},cuda").trim_start_matches(','));
    } else {
        command.env(VISIBLE, "-1");
    }
}

/// Runs a program and prints its line.
fn run(name: &str, mut command: Command) -> Result<Outcome> {
    print!("{name:<36}");
    std::io::stdout().flush()?;
    // One file for both, so that what a test says and how it fails stay together.
    let mut file = tempfile::tempfile()?;
    let start = Instant::now();
    let status = command.stdout(file.try_clone()?).stderr(file.try_clone()?).status();
    let status = status.with_context(|| format!("{name} cannot be run"))?;
    let time = start.elapsed();
    let output = text(&mut file)?;
    let counts = counts(&output);
    let ended = if status.success() || counts.failed > 0 { String::new() } else { format!("  {status}") };
    println!("{:>5} passed {:>4} failed {:>8.1} s{ended}", counts.passed, counts.failed, time.as_secs_f64());
    Ok(Outcome { name: name.to_string(), counts, status, time, output })
}

fn text(file: &mut File) -> Result<String> {
    use std::io::Seek;
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Sums up, and repeats what failed.
fn report(outcomes: &[Outcome]) -> Result<bool> {
    let passed: usize = outcomes.iter().map(|outcome| outcome.counts.passed).sum();
    let failed: usize = outcomes.iter().map(|outcome| outcome.counts.failed).sum();
    let time: f64 = outcomes.iter().map(|outcome| outcome.time.as_secs_f64()).sum();
    println!("{:<36}{passed:>5} passed {failed:>4} failed {time:>8.1} s", "all");
    for Outcome { name, status, output, .. } in outcomes.iter().filter(|outcome| !outcome.status.success()) {
        println!("\n== {name}: {status}\n{}", failures(output));
    }
    if passed + failed == 0 {
        bail!("no test ran");
    }
    Ok(outcomes.iter().all(|outcome| outcome.status.success()))
}

/// The numbers of a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
fn counts(output: &str) -> Counts {
    let number = |line: &str, what: &str| {
        let before = line.split(what).next().unwrap_or_default();
        before
            .rsplit([' ', ';'])
            .find(|word| !word.is_empty())
            .and_then(|word| word.parse().ok())
            .unwrap_or(0)
    };
    let mut counts = Counts::default();
    for line in output.lines().filter(|line| line.starts_with("test result: ")) {
        counts.passed += number(line, " passed");
        counts.failed += number(line, " failed");
    }
    counts
}

/// What failed tests printed, or the last lines of a program that did not live to tell.
fn failures(output: &str) -> String {
    if let Some(start) = output.find("\nfailures:\n") {
        return output[start..].trim().to_string();
    }
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_program_counts_its_tests() {
        let output = "running 4 tests\ntest a ... ok\n\ntest result: FAILED. 346 passed; 12 failed; 3 ignored; 0 measured; \
                      0 filtered out; finished in 0.13s\n";
        assert_eq!(counts(output), Counts { passed: 346, failed: 12 });
        assert_eq!(counts("running 4 tests\ntest a ... "), Counts::default());
    }

    #[test]
    fn failures_are_repeated_and_nothing_else() {
        let failed =
            "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nsaid\n";
        assert_eq!(failures(failed), "failures:\n\n---- b stdout ----\nsaid");
        let lines: Vec<String> = (0..100).map(|line| line.to_string()).collect();
        assert_eq!(failures(&lines.join("\n")), lines[40..].join("\n"));
    }

    #[test]
    fn a_gpu_is_required_or_hidden() {
        let environment = |list: &[Device]| {
            let mut command = Command::new("true");
            devices(&mut command, list);
            let text =
                |value: Option<&std::ffi::OsStr>| value.unwrap_or_default().to_string_lossy().into_owned();
            command.get_envs().map(|(name, value)| (text(Some(name)), text(value))).collect::<Vec<_>>()
        };
        assert_eq!(environment(&[Device::Cpu, Device::Simt]), [(VISIBLE.to_string(), "-1".to_string())]);
        let required = environment(&[Device::Cuda]);
        assert!(
            required[0].0 == REQUIRE && required[0].1.split(',').any(|name| name == "cuda"),
            "{required:?}"
        );
    }
}
