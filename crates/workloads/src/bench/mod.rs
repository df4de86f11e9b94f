//! The benchmark: queries timed hot or cold, with peers that run in turn with Kelpie in the same invocation.

mod answers;
mod crowd;
mod datafusion;
mod derived;
mod derived_report;
mod fallback;
mod machine;
mod python;
mod report;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use ::datafusion::arrow::array::RecordBatch;
use ::datafusion::arrow::util::display::array_value_to_string;
use anyhow::{Context, Result, bail};
use kelpie_session::{Engine, KelpieSession, QueryTiming, SessionOptions};

pub(crate) use self::answers::difference;
pub use self::crowd::{Crowd, CrowdOptions, CrowdReport, run as run_crowd};
pub use self::datafusion::DataFusionPeer;
pub use self::derived::{
    CASES as DERIVED_CASES, DerivedCase, DerivedOptions, DerivedReport, DerivedTime, FirstRun, Once,
    first as run_derived_once, run as run_derived,
};
pub use self::fallback::{
    FallbackOptions, FallbackReport, FallbackTime, STATEMENTS as FALLBACK_STATEMENTS, Subject,
    run as run_fallback,
};
pub use self::machine::Machine;
pub use self::python::{Package, PythonPeer};
pub use self::report::{PeerReport, PeerTime, QueryReport, Report, Split};
use crate::{Workload, tpch};

/// Another engine to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerKind {
    /// DuckDB through its Python package, in a child process.
    DuckDb,
    /// DataFusion through its Python package, in a child process: the one in this process is built for short build times.
    DataFusion,
}

impl PeerKind {
    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            PeerKind::DuckDb => "duckdb",
            PeerKind::DataFusion => "datafusion",
        }
    }
}

impl FromStr for PeerKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "duckdb" => Ok(PeerKind::DuckDb),
            "datafusion" => Ok(PeerKind::DataFusion),
            _ => Err(format!("unknown peer `{name}`: duckdb and datafusion are known")),
        }
    }
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// The queries and tables.
    pub workload: Workload,
    /// The folder of its tables.
    pub data: PathBuf,
    /// Names of queries; all where empty.
    pub queries: Vec<String>,
    /// Measured runs of each query, after one that warms up.
    pub runs: usize,
    /// Forget cached columns before each run; the peers then read the files too.
    pub cold: bool,
    /// Engines to compare with.
    pub against: Vec<PeerKind>,
    /// Threads of all engines.
    pub threads: usize,
    /// Settings of Kelpie's session.
    pub settings: Vec<(String, String)>,
}

/// A peer that is ready to run.
struct Peer(PythonPeer);

impl Peer {
    fn start(kind: PeerKind, options: &BenchOptions) -> Result<Peer> {
        let package = match kind {
            PeerKind::DuckDb => Package::DuckDb,
            PeerKind::DataFusion => Package::DataFusion,
        };
        PythonPeer::start(package, &options.data, options.workload.tables(), options.threads, !options.cold)
            .map(Peer)
            .with_context(|| format!("cannot start {}", kind.name()))
    }

    /// The time of a query in nanoseconds, and how its rows differ from Kelpie's of the same round.
    fn run(&mut self, sql: &str, own: Option<&[RecordBatch]>) -> Result<(u64, Option<String>)> {
        let (time_ns, rows) = self.0.run_with_rows(sql)?;
        let difference = own.map(|own| answers::difference(own, &rows)).transpose()?;
        Ok((time_ns, difference.flatten()))
    }
}

/// Runs the benchmark; `progress` hears of every step.
pub async fn run(options: &BenchOptions, progress: &(dyn Fn(&str) + Sync)) -> Result<Report> {
    let queries = chosen_queries(options)?;
    let threads = ["kelpie.threads", "datafusion.execution.target_partitions"];
    let threads = threads.map(|name| (name.to_string(), options.threads.to_string()));
    let settings = threads.into_iter().chain(options.settings.iter().cloned());
    // As the program runs queries.
    let options_of_session = SessionOptions::default().with_settings(settings);
    let engine = Arc::new(Engine::calibrated());
    let session = KelpieSession::new(options_of_session.clone().with_engine(Arc::clone(&engine)))?;
    session.register_dir(&options.data).await?;
    // The same engine, so that columns and kernels are there; but no plan.
    let forgetful = options_of_session.with_engine(engine).with("kelpie.kept_plans", "0");
    let forgetful = KelpieSession::new(forgetful)?;
    forgetful.register_dir(&options.data).await?;
    let missing: Vec<&str> = options
        .workload
        .tables()
        .iter()
        .copied()
        .filter(|table| !session.tables().iter().any(|found| found == table))
        .collect();
    if !missing.is_empty() {
        bail!(
            "{} has no table {}: make the data with `kelpie generate {} --scale 1 --output DIR`",
            options.data.display(),
            missing.join(", "),
            options.workload.name(),
        );
    }
    let scale = answer_scale(&session, options.workload).await;
    let mut peers = Vec::new();
    for kind in &options.against {
        progress(&format!("loading the tables into {}", kind.name()));
        peers.push((*kind, Peer::start(*kind, options)?));
    }
    let (mut reports, mut device) = (Vec::new(), None);
    for (name, sql) in &queries {
        progress(&format!("query {name}"));
        let query = BenchQuery { name, sql, scale };
        reports.push(run_query((&session, &forgetful), &mut peers, options, query).await);
        device = session.last_metrics().and_then(|timing| timing.device).or(device);
    }
    let peers = peers
        .iter()
        .map(|(kind, peer)| PeerReport { name: kind.name(), description: peer.0.description() })
        .collect();
    Ok(Report::new(options, peers, reports).with_device(device))
}

fn chosen_queries(options: &BenchOptions) -> Result<Vec<(String, &'static str)>> {
    let known = options.workload.queries();
    let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    for name in &options.queries {
        if !names.contains(&name.as_str()) {
            bail!("{} has no query `{name}`: its queries are {}", options.workload.name(), names.join(", "));
        }
    }
    Ok(known
        .into_iter()
        .filter(|(name, _)| options.queries.is_empty() || options.queries.contains(name))
        .collect())
}

/// The scale factor of TPC-H data, if it is one with reference answers.
async fn answer_scale(session: &KelpieSession, workload: Workload) -> Option<f64> {
    if workload != Workload::Tpch {
        return None;
    }
    let result = session.sql("select count(*) from orders").await.ok()?;
    let count = array_value_to_string(result.batches.first()?.column(0), 0).ok()?;
    let orders: f64 = count.parse().ok()?;
    tpch::answer_scales().into_iter().find(|scale| (scale * 1_500_000.0).round() == orders)
}

/// One measured run of ours.
struct OwnRun {
    timing: QueryTiming,
    batches: Vec<RecordBatch>,
}

async fn run_own(session: &KelpieSession, sql: &str, cold: bool) -> Result<OwnRun> {
    if cold {
        session.clear_columns();
    }
    let start = Instant::now();
    let result = session.sql(sql).await?;
    let mut timing = result.timing;
    timing.end_at(start.elapsed());
    Ok(OwnRun { timing, batches: result.batches })
}

/// A query of a benchmark.
#[derive(Clone, Copy)]
struct BenchQuery<'a> {
    name: &'a str,
    sql: &'a str,
    /// The scale factor of its reference answers, where there are any.
    scale: Option<f64>,
}

/// A query: one round to warm up, then the measured rounds; in each round everyone runs once, and Kelpie twice: as a statement that
/// was seen before, and in a session that keeps no plan as one that never was.
async fn run_query(
    (session, forgetful): (&KelpieSession, &KelpieSession),
    peers: &mut [(PeerKind, Peer)],
    options: &BenchOptions,
    BenchQuery { name, sql, scale }: BenchQuery<'_>,
) -> QueryReport {
    let mut report = QueryReport::new(name);
    let (mut own, mut unseen, mut times) = (Vec::new(), Vec::new(), vec![Vec::new(); peers.len()]);
    for round in 0..=options.runs {
        let warm_up = round == 0;
        let mut rows = None;
        match run_own(session, sql, options.cold).await {
            Ok(run) => {
                report.add_answer(&run.batches, check(scale, name, &run.batches));
                match warm_up {
                    true => report.set_first(&run.timing),
                    false => own.push(run.timing),
                }
                rows = Some(run.batches);
            }
            Err(error) => {
                // The peers go on: their time beside an error is worth having.
                report.error = Some(format!("{error:#}"));
            }
        }
        match run_own(forgetful, sql, options.cold).await {
            Ok(run) => {
                report.add_answer(&run.batches, check(scale, name, &run.batches));
                if !warm_up {
                    unseen.push(run.timing);
                }
            }
            Err(error) => report.error = Some(format!("{error:#}")),
        }
        for ((kind, peer), times) in peers.iter_mut().zip(&mut times) {
            match peer.run(sql, rows.as_deref()) {
                Ok((time_ns, difference)) => {
                    report.add_comparison(kind.name(), rows.is_some(), difference);
                    if !warm_up {
                        times.push(time_ns);
                    }
                }
                Err(error) => report.peer_errors.push(format!("{}: {error:#}", kind.name())),
            }
        }
        report.peer_errors.dedup();
        if warm_up {
            session.engine().wait_for_compilers();
        }
    }
    report.set_runs(own, unseen);
    for ((kind, _), times) in peers.iter().zip(times) {
        report.add_peer(kind.name(), times);
    }
    report
}

/// The file or folder of a table.
fn table_path(data: &Path, table: &str) -> PathBuf {
    let file = data.join(format!("{table}.parquet"));
    if file.is_file() { file } else { data.join(table) }
}

/// Whether an answer is the reference answer, where there is one.
fn check(scale: Option<f64>, query: &str, batches: &[RecordBatch]) -> Option<Result<(), String>> {
    Some(tpch::check_answer(scale?, query.parse().ok()?, batches))
}
