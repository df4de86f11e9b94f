//! Any number of generated queries, compared with DataFusion: `cargo run -p xtask -- fuzz --queries N --seed S`.
//!
//! Arguments: QUERIES SEED [OPTION=VALUE]… Every 200 queries a new seed makes new tables; exit code 1 where answers
//! differ.

use std::process::ExitCode;

use kelpie_datafusion::testing::fuzz;

const QUERIES_A_SEED: usize = 200;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<u64>().ok());
    let (Some(queries), Some(first_seed)) = (number(0), number(1)) else {
        eprintln!("usage: fuzz QUERIES SEED [OPTION=VALUE]…");
        return ExitCode::from(2);
    };
    let settings: Vec<(&str, &str)> =
        arguments.iter().skip(2).filter_map(|pair| pair.split_once('=')).collect();
    let (mut left, mut seed, mut different) = (queries as usize, first_seed, 0);
    while left > 0 {
        let count = left.min(QUERIES_A_SEED);
        match fuzz(count, seed, &settings).await {
            Ok(report) => {
                println!("seed {seed}: {report}");
                different += report.different.len();
            }
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        }
        left -= count;
        seed += 1;
    }
    println!("{queries} queries, {different} different");
    ExitCode::from(u8::from(different > 0))
}
