//! Any number of generated queries, compared with DataFusion: `cargo run -p xtask -- fuzz --queries N --seed S`.
//!
//! Arguments: GENERATOR QUERIES SEED [--variants=N] [OPTION=VALUE]… The generators are `single` and `windows` (one table), `relational` (random tables
//! with joins and subqueries), `adversarial` (extremes and expressions that fail), and, with few rows for the interpreter,
//! `relational-small` and `adversarial-small`. With `--variants=N` each query also runs under N random genomes: a query that differs
//! comes with the SET statements that it takes. Exit code 1 where answers differ.
//!
//! The queries run in child processes, a few seeds each and as many at once as there are cores. Should one die or hang, the query is
//! reported, and the others run. What is written is in the order of the seeds, whichever child is done first.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use kelpie_engine::Engine;
use kelpie_session::testing::{Conditions, FuzzReport, Generator};

/// Seeds that a child runs: few, so that no core is left without any at the end.
const SEEDS_A_CHILD: usize = 2;

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
    let (Some(name), Some(queries), Some(seed)) = (arguments.first(), number(1), number(2)) else {
        return usage();
    };
    let Some(generator) = Generator::of_name(name) else { return usage() };
    let mut items: Vec<Item> = Vec::new();
    let mut left = queries as usize;
    while left > 0 {
        let count = left.min(generator.queries_a_seed());
        items.push(Item { seed: seed + items.len() as u64, from: 0, to: count });
        left -= count;
    }
    match (Parent { generator: name, settings: &arguments[3..] }).run(&items) {
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

/// What children found.
#[derive(Default)]
struct Found {
    report: FuzzReport,
    /// Queries of which a process died or hung.
    deaths: Vec<String>,
    /// What else was written, in order.
    lines: Vec<String>,
}

/// Starts children and adds up what they find.
struct Parent<'a> {
    generator: &'a str,
    settings: &'a [String],
}

impl Parent<'_> {
    /// Runs all items; false where anything differs or died.
    fn run(&self, items: &[Item]) -> std::io::Result<bool> {
        let shares: Vec<&[Item]> = items.chunks(SEEDS_A_CHILD).collect();
        let cores = std::thread::available_parallelism().map_or(1, Into::into);
        let next = AtomicUsize::new(0);
        let mut all = Found::default();
        std::thread::scope(|scope| {
            let (sender, receiver) = channel();
            for _ in 0..cores {
                let (sender, shares, next) = (sender.clone(), &shares, &next);
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(share) = shares.get(index) else { break };
                        if sender.send((index, self.run_share(share))).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            add_in_order(&receiver, &mut all)
        })?;
        println!("{}", all.report.counts());
        all.deaths.iter().for_each(|death| println!("DIED, {death}"));
        println!("{} processes died or hung", all.deaths.len());
        Ok(all.report.different.is_empty() && all.deaths.is_empty())
    }

    /// Runs items in a child, and in others what it did not come to.
    fn run_share(&self, share: &[Item]) -> std::io::Result<Found> {
        let mut found = Found::default();
        let mut items = share.to_vec();
        while !items.is_empty() {
            items = self.run_child(&items, &mut found)?;
        }
        Ok(found)
    }

    /// Runs items in a child: those that it did not come to, without the query of which it died.
    fn run_child(&self, items: &[Item], found: &mut Found) -> std::io::Result<Vec<Item>> {
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
                    _ if found.report.add_line(&line) => {}
                    _ => found.lines.push(line),
                },
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
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
            found.deaths.push(format!("seed {}, between queries: {how}", item.seed));
            return Ok(rest);
        };
        found.lines.push(format!("DIED, seed {} query {number}: {how}\n  {sql}", item.seed));
        found.deaths.push(format!("seed {} query {number}: {how}: {sql}", item.seed));
        let number: usize = number.parse().unwrap_or(item.from);
        // What ran before it in this seed was not reported.
        rest.splice(0..0, [Item { to: number, ..item }, Item { from: number + 1, ..item }]);
        rest.retain(|item| item.from < item.to);
        Ok(rest)
    }
}

/// Adds up what is found and shows it, in the order of the shares.
fn add_in_order(
    receiver: &Receiver<(usize, std::io::Result<Found>)>,
    all: &mut Found,
) -> std::io::Result<()> {
    let mut early = BTreeMap::new();
    let (mut next, mut shown) = (0, 0);
    for (index, found) in receiver {
        early.insert(index, found?);
        while let Some(found) = early.remove(&next) {
            next += 1;
            found.lines.iter().for_each(|line| println!("{line}"));
            all.report.merge(found.report);
            all.deaths.extend(found.deaths);
            let run = all.report.run();
            if run / QUERIES_A_LINE > shown {
                shown = run / QUERIES_A_LINE;
                let (different, compiled) = (all.report.different.len(), all.report.compiled_percent());
                let deaths = all.deaths.len();
                println!("{run} queries, {different} different, {compiled:.1} % compiled, {deaths} died");
            }
        }
    }
    Ok(())
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
    let Some(generator) = Generator::of_name(generator) else { return usage() };
    let genomes = rest.iter().find_map(|text| text.strip_prefix(VARIANTS)).unwrap_or("0");
    let Ok(genomes) = genomes.parse() else { return usage() };
    let settings = rest.iter().filter(|text| !text.starts_with(VARIANTS));
    // What is asked to run on a GPU shall run there.
    let settings: Vec<(&str, &str)> = [("kelpie.handover", "off")]
        .into_iter()
        .chain(settings.filter_map(|pair| pair.split_once('=')))
        .collect();
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
    for Item { seed, from, to } in items.split(',').filter_map(Item::parse) {
        let observer = |_: &str, number: usize, sql: &str| {
            println!("query\t{number}\t{}", sql.replace(['\n', '\t'], " "));
        };
        match runtime.block_on(generator.run(seed, from..to, conditions, &engine, &observer)) {
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
