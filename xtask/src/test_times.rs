//! How long each test takes by itself.

use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::programs::{BOOTSTRAP, Programs, source_root};

/// Seconds that a test may take.
const BUDGET: f64 = 3.0;
/// Where nothing smaller proves what it proves.
const BUDGET_AT_MOST: f64 = 5.0;
/// Beyond this the command fails.
const LIMIT: f64 = 10.0;

/// The arguments of `test-times`.
#[derive(Debug, Args)]
pub struct Request {
    /// Only programs whose names contain one of these.
    filters: Vec<String>,
    /// Arguments of the programs, such as a part of the names of tests.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// A test that ran.
#[derive(Debug, PartialEq)]
struct Timed {
    name: String,
    seconds: f64,
}

/// Runs the tests of the default members one after the other, without those of the documentation, and lists what takes longer
/// than it may. Whether all pass, and none takes far too long.
pub fn test_times(request: &Request) -> Result<bool> {
    let mut programs = Programs::build()?;
    programs.retain(&request.filters)?;
    let mut all: Vec<Timed> = Vec::new();
    let mut failed = Vec::new();
    for test in &programs.tests {
        print!("{:<36}", test.name);
        std::io::stdout().flush()?;
        let output = programs
            .command(test, source_root()?)
            .args(["-Z", "unstable-options", "--report-time", "--test-threads=1"])
            .args(&request.arguments)
            .env(BOOTSTRAP, "1")
            .stderr(Stdio::null())
            .output()
            .with_context(|| format!("{} cannot be run", test.name))?;
        let times = times(&String::from_utf8_lossy(&output.stdout));
        let over = times.iter().filter(|time| time.seconds > BUDGET).count();
        println!("{:>5} tests {:>8.1} s {over:>4} over the budget", times.len(), sum(&times));
        if !output.status.success() {
            failed.push(format!("{} failed: {}", test.name, output.status));
        }
        all.extend(
            times.into_iter().map(|time| Timed { name: format!("{} {}", test.name, time.name), ..time }),
        );
    }
    println!("{:<36}{:>5} tests {:>8.1} s", "all", all.len(), sum(&all));
    if all.is_empty() {
        bail!("no test ran");
    }
    let is_short = list(&mut all);
    failed.iter().for_each(|failure| println!("{failure}"));
    Ok(is_short && failed.is_empty())
}

fn sum(times: &[Timed]) -> f64 {
    times.iter().map(|time| time.seconds).sum()
}

/// Prints what is over the budget, the longest first. Whether nothing is beyond the limit.
fn list(times: &mut [Timed]) -> bool {
    times.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for Timed { name, seconds } in times.iter().take_while(|time| time.seconds > BUDGET) {
        println!("{:<10}{seconds:>7.1} s  {name}", verdict(*seconds));
    }
    times.iter().all(|time| time.seconds <= LIMIT)
}

fn verdict(seconds: f64) -> &'static str {
    if seconds > LIMIT {
        "fails"
    } else if seconds > BUDGET_AT_MOST {
        "too long"
    } else if seconds > BUDGET {
        "long"
    } else {
        ""
    }
}

/// The tests of a program's output, which has a line such as `test a::b ... ok <1.234s>` for each. What a test's children print
/// may stand in the middle of it.
fn times(output: &str) -> Vec<Timed> {
    let mut times = Vec::new();
    let mut running: Option<&str> = None;
    for line in output.lines() {
        let begun = line.strip_prefix("test ").and_then(|line| line.split_once(" ... "));
        running = begun.map(|(name, _)| name).or(running);
        let time = line.strip_suffix("s>").and_then(|line| line.rsplit_once('<'));
        let seconds = time.and_then(|(_, seconds)| seconds.parse().ok());
        if let (Some(name), Some(seconds)) = (running, seconds) {
            times.push(Timed { name: name.trim_end_matches(" - should panic").to_string(), seconds });
            running = None;
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_behind_results() {
        let output = "\nrunning 5 tests\ntest a::b ... ok <1.234s>\ntest c ... ignored, slow\ntest d ... printed by a child <3>\n\
                      more\nok <0.500s>\ntest e - should panic ... ok <0.001s>\ntest f ... FAILED <12.000s>\n\nfailures:\n\n\
                      ---- f stdout ----\n<7.000s>\n\ntest result: FAILED. 3 passed; finished in 13.74s\n";
        let expected = [("a::b", 1.234), ("d", 0.5), ("e", 0.001), ("f", 12.0)];
        let expected = expected.map(|(name, seconds)| Timed { name: name.into(), seconds });
        assert_eq!(times(output), expected);
    }

    #[test]
    fn only_what_is_beyond_the_limit_fails() {
        let timed = |seconds| Timed { name: "t".into(), seconds };
        assert!(list(&mut [timed(3.1), timed(10.0), timed(0.1)]));
        assert!(!list(&mut [timed(3.1), timed(10.1), timed(0.1)]));
        let verdicts = [3.0, 3.1, 5.0, 5.1, 10.0, 10.1].map(verdict);
        assert_eq!(verdicts, ["", "long", "long", "too long", "too long", "fails"]);
    }
}
