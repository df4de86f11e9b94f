//! Many clients at once: how many statements are done in a time, and how much longer than alone the slowest takes.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use datafusion::arrow::array::RecordBatch;
use kelpie_session::{Engine, KelpieSession, SessionOptions};
use serde::Serialize;
use tokio::task::JoinSet;

use super::answers::difference;
use crate::Workload;

/// What to measure.
#[derive(Debug, Clone)]
pub struct CrowdOptions<'a> {
    /// The folder of TPC-H's tables.
    pub data: &'a Path,
    /// Names of queries; all where empty.
    pub queries: &'a [String],
    /// How many clients run them at once, one measurement after the other.
    pub clients: &'a [usize],
    /// How long each number of clients is measured.
    pub time: Duration,
    /// Settings of every session.
    pub settings: &'a [(String, String)],
}

/// What was found.
#[derive(Debug, Serialize)]
pub struct CrowdReport {
    /// Milliseconds of each query alone, hot: the median.
    pub alone_ms: Vec<(String, f64)>,
    /// By number of clients.
    pub crowds: Vec<Crowd>,
}

/// So many clients at once.
#[derive(Debug, Default, Serialize)]
pub struct Crowd {
    /// How many.
    pub clients: usize,
    /// Statements a second.
    pub rate: f64,
    /// The longest time of a query, divided by its time alone: of the query of which that is most, and its name.
    pub slowest: f64,
    /// The query.
    pub slowest_query: String,
    /// The median of all times, each divided by the query's time alone.
    pub median: f64,
    /// The most memory that the process has had until then, in megabytes.
    pub peak_mb: u64,
    /// What went wrong: errors, and answers that differ from those alone.
    pub wrong: Vec<String>,
}

/// A query, with its rows and its time alone.
struct Alone {
    name: String,
    sql: &'static str,
    time: Duration,
    rows: Vec<RecordBatch>,
}

/// Runs of each query alone, after one that warms up.
const RUNS_ALONE: usize = 5;

/// Runs the benchmark; `progress` hears of every step.
pub async fn run(options: &CrowdOptions<'_>, progress: &(dyn Fn(&str) + Sync)) -> Result<CrowdReport> {
    let engine = Arc::new(Engine::calibrated());
    let session = client(&engine, options).await?;
    let mut queries = Vec::new();
    for (name, sql) in Workload::Tpch.queries() {
        if options.queries.is_empty() || options.queries.contains(&name) {
            progress(&format!("query {name} alone"));
            queries.push(alone(&session, name, sql).await?);
        }
    }
    if queries.is_empty() {
        bail!("no query of TPC-H is named {}", options.queries.join(", "));
    }
    let queries = Arc::new(queries);
    let mut crowds = Vec::new();
    for &clients in options.clients {
        progress(&format!("{clients} clients"));
        crowds.push(crowd(&engine, options, &queries, clients).await?);
    }
    let alone_ms = queries.iter().map(|query| (query.name.clone(), query.time.as_secs_f64() * 1e3));
    Ok(CrowdReport { alone_ms: alone_ms.collect(), crowds })
}

async fn client(engine: &Arc<Engine>, options: &CrowdOptions<'_>) -> Result<KelpieSession> {
    let session = SessionOptions::default().with_engine(Arc::clone(engine));
    let session = KelpieSession::new(session.with_settings(options.settings.to_vec()))?;
    session.register_dir(options.data).await?;
    Ok(session)
}

async fn alone(session: &KelpieSession, name: String, sql: &'static str) -> Result<Alone> {
    let (mut times, mut rows) = (Vec::new(), Vec::new());
    for _ in 0..=RUNS_ALONE {
        let start = Instant::now();
        let result = session.sql(sql).await.with_context(|| format!("query {name}"))?;
        times.push(start.elapsed());
        rows = result.batches;
        session.engine().wait_for_compilers();
    }
    times.remove(0);
    times.sort_unstable();
    let time = times.get(RUNS_ALONE / 2).copied().unwrap_or_default();
    Ok(Alone { name, sql, time, rows })
}

/// What one client saw: which query, and its time.
#[derive(Default)]
struct Seen {
    times: Vec<(usize, Duration)>,
    wrong: Vec<String>,
}

async fn crowd(
    engine: &Arc<Engine>,
    options: &CrowdOptions<'_>,
    queries: &Arc<Vec<Alone>>,
    clients: usize,
) -> Result<Crowd> {
    let mut sessions = Vec::new();
    for _ in 0..clients {
        sessions.push(client(engine, options).await?);
    }
    let (start, mut tasks) = (Instant::now(), JoinSet::new());
    let end = start + options.time;
    for (number, session) in sessions.into_iter().enumerate() {
        let queries = Arc::clone(queries);
        tasks.spawn(async move { run_until(end, &session, &queries, number).await });
    }
    let mut all = Seen::default();
    while let Some(seen) = tasks.join_next().await {
        let seen = seen?;
        all.times.extend(seen.times);
        all.wrong.extend(seen.wrong);
    }
    let seconds = start.elapsed().as_secs_f64();
    let alone = |query: usize| queries.get(query).map_or(f64::NAN, |query| query.time.as_secs_f64());
    let mut ratios: Vec<(f64, usize)> =
        all.times.iter().map(|(query, time)| (time.as_secs_f64() / alone(*query), *query)).collect();
    ratios.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let (slowest, query) = ratios.last().copied().unwrap_or_default();
    all.wrong.sort();
    all.wrong.dedup();
    Ok(Crowd {
        clients,
        rate: all.times.len() as f64 / seconds,
        slowest,
        slowest_query: queries.get(query).map(|query| query.name.clone()).unwrap_or_default(),
        median: ratios.get(ratios.len() / 2).map_or(f64::NAN, |(ratio, _)| *ratio),
        peak_mb: peak_mb(),
        wrong: all.wrong,
    })
}

/// Each client begins with another query, and takes them in turn.
async fn run_until(end: Instant, session: &KelpieSession, queries: &[Alone], first: usize) -> Seen {
    let mut seen = Seen::default();
    for at in (0..queries.len()).cycle().skip(first % queries.len()) {
        let start = Instant::now();
        if start >= end {
            break;
        }
        let Some(Alone { name, sql, rows, .. }) = queries.get(at) else { break };
        match session.sql(sql).await {
            Err(error) => seen.wrong.push(format!("{name}: {error:#}")),
            Ok(result) => {
                seen.times.push((at, start.elapsed()));
                match difference(rows, &result.batches) {
                    Ok(None) => {}
                    Ok(Some(what)) => seen.wrong.push(format!("{name}: {what}")),
                    Err(error) => seen.wrong.push(format!("{name}: {error:#}")),
                }
            }
        }
    }
    seen
}

/// Of the process, as the system counts it; 0 where it does not.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

impl CrowdReport {
    /// Whether every statement gave the rows that it gives alone.
    pub fn is_right(&self) -> bool {
        self.crowds.iter().all(|crowd| crowd.wrong.is_empty())
    }

    /// As a table, for people.
    pub fn to_text(&self) -> String {
        let mut text =
            String::from("clients  statements/s  of one   median to alone  slowest to alone     peak MB\n");
        let one = self.crowds.first().map_or(f64::NAN, |crowd| crowd.rate);
        for crowd in &self.crowds {
            let Crowd { clients, rate, median, slowest, slowest_query, peak_mb, .. } = crowd;
            let _ = writeln!(
                text,
                "{clients:7}  {rate:12.1}  {:6.2}  {median:16.1}  {slowest:10.1} (Q{slowest_query:<3})  {peak_mb:9}",
                rate / one
            );
            crowd.wrong.iter().for_each(|wrong| text.push_str(&format!("  {wrong}\n")));
        }
        text
    }
}
