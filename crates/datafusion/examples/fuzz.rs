//! Any number of generated queries, compared with DataFusion: `cargo run -p xtask -- fuzz --queries N --seed S`.
//!
//! Arguments: GENERATOR QUERIES SEED [--variants=N] [OPTION=VALUE]… The generators are `single` (one table), `relational` (random tables
//! with joins and subqueries), `adversarial` (extremes and expressions that fail), and, with few rows for the interpreter,
//! `relational-small` and `adversarial-small`. With `--variants=N` each query also runs under N random genomes: a query that differs
//! comes with the SET statements that it takes. Exit code 1 where answers differ.
//!
//! The queries run in child processes, a few seeds each. Should one die or hang, the query is reported, and the others run.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use kelpie_datafusion::testing::{
    Conditions, FuzzReport, QUERIES_A_SEED, Scale, Size, fuzz, fuzz_adversarial, fuzz_relational,
};
use kelpie_engine::Engine;

/// Queries of a seed of `single`.
const SINGLE_A_SEED: usize = 200;

/// Seeds that a child runs.
const SEEDS_A_CHILD: usize = 8;

/// How often the counts so far are shown.
const QUERIES_A_LINE: usize = 1000;

/// A query that takes longer hangs. The interpreter takes seconds where others take milliseconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// What comes before the number of genomes.
const VARIANTS: &str = "--variants=";

/// What makes a process a child.
const CHILD: &str = "--child";

/// Queries of a seed: from a number, up to another.
#[derive(Debug, Clone, Copy)]
struct Item {
    seed: u64,
    from: usize,
    to: usize,
}

impl Item {
    fn parse(text: &str) -> Option<Item> {
        let mut numbers = text.split(':').map(|number| number.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        Some(Item { seed: next()?, from: next()? as usize, to: next()? as usize })
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().map(String::as_str) == Some(CHILD) {
        return child(&arguments[1..]);
    }
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<u64>().ok());
    let (Some(generator), Some(queries), Some(seed)) = (arguments.first(), number(1), number(2)) else {
        return usage();
    };
    let queries_a_seed = match generator.as_str() {
        "single" => SINGLE_A_SEED,
        "relational" | "relational-small" | "adversarial" | "adversarial-small" => QUERIES_A_SEED,
        _ => return usage(),
    };
    let mut items: Vec<Item> = Vec::new();
    let mut left = queries as usize;
    while left > 0 {
        let count = left.min(queries_a_seed);
        items.push(Item { seed: seed + items.len() as u64, from: 0, to: count });
        left -= count;
    }
    match Parent::new(generator, &arguments[3..]).run(items) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: fuzz single|relational|relational-small|adversarial|adversarial-small QUERIES SEED \
         [--variants=N] [OPTION=VALUE]…"
    );
    ExitCode::from(2)
}

/// Starts children and adds up what they find.
struct Parent<'a> {
    generator: &'a str,
    settings: &'a [String],
    report: FuzzReport,
    /// Queries of which a process died or hung.
    deaths: Vec<String>,
    shown: usize,
}

impl<'a> Parent<'a> {
    fn new(generator: &'a str, settings: &'a [String]) -> Parent<'a> {
        Parent { generator, settings, report: FuzzReport::default(), deaths: Vec::new(), shown: 0 }
    }

    /// Runs all items; false where anything differs or died.
    fn run(mut self, mut items: Vec<Item>) -> std::io::Result<bool> {
        items.reverse();
        while !items.is_empty() {
            let few = items.split_off(items.len().saturating_sub(SEEDS_A_CHILD));
            let again = self.run_child(few.into_iter().rev().collect())?;
            items.extend(again.into_iter().rev());
            self.show_progress();
        }
        println!("{}", self.report.counts());
        self.deaths.iter().for_each(|death| println!("DIED, {death}"));
        println!("{} processes died or hung", self.deaths.len());
        Ok(self.report.different.is_empty() && self.deaths.is_empty())
    }

    /// Runs items in a child: those that it did not come to, without the query of which it died.
    fn run_child(&mut self, items: Vec<Item>) -> std::io::Result<Vec<Item>> {
        let numbers = items.iter().map(|item| format!("{}:{}:{}", item.seed, item.from, item.to));
        let mut child = Command::new(std::env::current_exe()?)
            .args([CHILD, self.generator, &numbers.collect::<Vec<_>>().join(",")])
            .args(self.settings)
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = lines_of(&mut child);
        let (mut done, mut running) = (0, None);
        let mut hangs = false;
        loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) => match line.split_once('\t') {
                    Some(("query", number_and_sql)) => running = Some(number_and_sql.to_string()),
                    _ if line == "done" => (done, running) = (done + 1, None),
                    _ if self.report.add_line(&line) => {}
                    _ => println!("{line}"),
                },
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                    hangs = true;
                    child.kill()?;
                    break;
                }
            }
        }
        let status = child.wait()?;
        let Some(item) = items.get(done).copied() else { return Ok(Vec::new()) };
        let mut rest = items[done + 1..].to_vec();
        let how = if hangs { "hangs".into() } else { status.to_string() };
        let dying = running.as_deref().and_then(|text| text.split_once('\t'));
        let Some((number, sql)) = dying else {
            self.deaths.push(format!("seed {}, between queries: {how}", item.seed));
            return Ok(rest);
        };
        println!("DIED, seed {} query {number}: {how}\n  {sql}", item.seed);
        self.deaths.push(format!("seed {} query {number}: {how}: {sql}", item.seed));
        let number: usize = number.parse().unwrap_or(item.from);
        // What ran before it in this seed was not reported.
        rest.splice(0..0, [Item { to: number, ..item }, Item { from: number + 1, ..item }]);
        rest.retain(|item| item.from < item.to);
        Ok(rest)
    }

    fn show_progress(&mut self) {
        let run = self.report.run();
        if run / QUERIES_A_LINE > self.shown {
            self.shown = run / QUERIES_A_LINE;
            let (different, compiled) = (self.report.different.len(), self.report.compiled_percent());
            println!(
                "{run} queries, {different} different, {compiled:.1} % compiled, {} died",
                self.deaths.len()
            );
        }
    }
}

/// What a child writes, line by line.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

/// Runs items and writes what happens, line by line.
fn child(arguments: &[String]) -> ExitCode {
    let [generator, items, rest @ ..] = arguments else { return usage() };
    let genomes = rest.iter().find_map(|text| text.strip_prefix(VARIANTS)).unwrap_or("0");
    let Ok(genomes) = genomes.parse() else { return usage() };
    let settings = rest.iter().filter(|text| !text.starts_with(VARIANTS));
    let settings: Vec<(&str, &str)> = settings.filter_map(|pair| pair.split_once('=')).collect();
    let conditions = Conditions { settings: &settings, genomes };
    // A panic is an outcome, mostly of DataFusion's: a line tells enough.
    std::panic::set_hook(Box::new(|panic| eprintln!("{}", panic.to_string().replace('\n', " "))));
    let engine = Arc::new(Engine::default());
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    for item in items.split(',').filter_map(Item::parse) {
        let Item { seed, from, to } = item;
        let observer = |_: &str, number: usize, sql: &str| {
            println!("query\t{number}\t{}", sql.replace(['\n', '\t'], " "));
        };
        let found = runtime.block_on(async {
            match generator.as_str() {
                "single" => fuzz(from..to, seed, conditions, &observer).await,
                "relational" => {
                    fuzz_relational(seed, from..to, Scale::Normal, conditions, &engine, &observer).await
                }
                "relational-small" => {
                    fuzz_relational(seed, from..to, Scale::Small, conditions, &engine, &observer).await
                }
                "adversarial" => {
                    fuzz_adversarial(seed, from..to, Size::Normal, conditions, &engine, &observer).await
                }
                _ => fuzz_adversarial(seed, from..to, Size::Small, conditions, &engine, &observer).await,
            }
        });
        match found {
            Ok(found) => {
                found.different.iter().for_each(|different| println!("{different}"));
                found.to_lines().iter().for_each(|line| println!("{line}"));
                println!("done");
            }
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
