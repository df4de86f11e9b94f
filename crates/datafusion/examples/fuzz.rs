//! Any number of generated queries, compared with DataFusion: `cargo run -p xtask -- fuzz --queries N --seed S`.
//!
//! Arguments: single|many|small QUERIES SEED [OPTION=VALUE]… `single` queries are of one table, `many` of random tables with
//! joins and subqueries, `small` the same with few rows, for the interpreter. Exit code 1 where answers differ.

use std::process::ExitCode;
use std::sync::Arc;

use kelpie_datafusion::testing::{FuzzReport, QUERIES_A_SEED, Scale, fuzz, fuzz_relational};
use kelpie_engine::Engine;

/// Queries over one table that share its rows.
const SINGLE_A_SEED: usize = 200;

/// How often the counts so far are shown.
const QUERIES_A_LINE: usize = 1000;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<u64>().ok());
    let scale = match arguments.first().map(String::as_str) {
        Some("single") => None,
        Some("many") => Some(Scale::Normal),
        Some("small") => Some(Scale::Small),
        _ => return usage(),
    };
    let (Some(queries), Some(first_seed)) = (number(1), number(2)) else { return usage() };
    let settings: Vec<(&str, &str)> =
        arguments.iter().skip(3).filter_map(|pair| pair.split_once('=')).collect();
    let (mut left, mut seed) = (queries as usize, first_seed);
    let (mut report, mut shown) = (FuzzReport::default(), 0);
    let engine = Arc::new(Engine::default());
    while left > 0 {
        let count = left.min(if scale.is_some() { QUERIES_A_SEED } else { SINGLE_A_SEED });
        let found = match scale {
            Some(scale) => fuzz_relational(seed, count, scale, &settings, &engine).await,
            None => fuzz(count, seed, &settings).await,
        };
        match found {
            Ok(found) => {
                for different in &found.different {
                    println!("{different}");
                }
                report.merge(found);
            }
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        }
        if report.run() / QUERIES_A_LINE > shown {
            shown = report.run() / QUERIES_A_LINE;
            println!(
                "{} queries, {} different, {:.1} % compiled",
                report.run(),
                report.different.len(),
                report.compiled_percent()
            );
        }
        left -= count;
        seed += 1;
    }
    println!("{}", report.counts());
    ExitCode::from(u8::from(!report.different.is_empty()))
}

fn usage() -> ExitCode {
    eprintln!("usage: fuzz single|many|small QUERIES SEED [OPTION=VALUE]…");
    ExitCode::from(2)
}
