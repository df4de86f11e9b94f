//! Any number of damaged files, each queried on the CPU or the interpreter: `cargo run -p xtask -- damage --cases N --seed S`.
//!
//! Arguments: CASES SEED. What is done to a file is written before it is queried: should the process end, the last line says over which.
//! Exit code 1 where a query panicked, contradicted another, or failed with an error that does not name the file. Panics of readers that became
//! such errors are counted by their place.

use std::collections::BTreeMap;
use std::panic;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use kelpie_engine::Engine;
use kelpie_session::testing::damage_and_query;

/// How often there was a panic at a place.
static PANICS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// Counts panics in place of writing about each.
fn count_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map_or("an unknown place".into(), ToString::to_string);
        *PANICS.lock().unwrap_or_else(PoisonError::into_inner).entry(place).or_default() += 1;
    }));
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let &[cases, seed] = arguments.as_slice() else {
        eprintln!("usage: damage CASES SEED");
        return ExitCode::from(2);
    };
    let folder = std::env::temp_dir().join(format!("kelpie-damage-{}", std::process::id()));
    if let Err(error) = std::fs::create_dir_all(&folder) {
        eprintln!("{}: {error}", folder.display());
        return ExitCode::from(2);
    }
    count_panics();
    let engine = Arc::new(Engine::default());
    let hear = |seed, what: &str| println!("{seed}: {what}");
    let report = damage_and_query(seed..seed.saturating_add(cases), &folder, &engine, hear).await;
    let _ = std::fs::remove_dir_all(&folder);
    match report {
        Ok(report) => {
            report.problems.iter().for_each(|problem| println!("{problem}"));
            let (answers, errors, problems) = (report.answers, report.errors, report.problems.len());
            for (place, count) in &*PANICS.lock().unwrap_or_else(PoisonError::into_inner) {
                println!("{count} panics at {place}");
            }
            println!("{cases} files: {answers} answers, {errors} errors, {problems} problems");
            if problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
