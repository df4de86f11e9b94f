//! The tuner beside the rules: each query runs again and again, in turn by the rules' choices and tuned, over the same columns.
//!
//! The last third of the runs says what was found, the first 20 what looking for it has cost.

use std::sync::Arc;

use anyhow::{Result, bail};
use datafusion::arrow::array::RecordBatch;
use kelpie_session::{Engine, KelpieSession, QueryTiming, SessionOptions};

use super::generated::{self, Generated};
use super::point::Point;
use super::{DeviceReport, ExperimentOptions, Findings, Listener};
use crate::Workload;
use crate::bench::difference;

/// Runs in which something may be lost.
const FIRST_RUNS: usize = 20;
/// Runs of each before anything is compared: columns are read, and sizes learned.
const WARM_RUNS: usize = 2;
/// Answers of more rows are not compared.
const COMPARED_ROWS: usize = 10_000;

/// What is tuned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tuned {
    /// The queries of a benchmark.
    Workload(Workload),
    /// Queries drawn at random, over columns of odd distributions.
    Generated,
}

impl Tuned {
    /// All of them.
    pub const ALL: [Tuned; 5] = [
        Tuned::Workload(Workload::Tpch),
        Tuned::Workload(Workload::Ssb),
        Tuned::Workload(Workload::Shapes),
        Tuned::Workload(Workload::Windows),
        Tuned::Generated,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Tuned::Workload(Workload::Tpch) => "tuner-tpch",
            Tuned::Workload(Workload::Ssb) => "tuner-ssb",
            Tuned::Workload(Workload::Shapes) => "tuner-shapes",
            Tuned::Workload(Workload::Windows) => "tuner-windows",
            Tuned::Generated => "tuner-generated",
        }
    }

    /// What it shows.
    pub fn title(self) -> &'static str {
        match self {
            Tuned::Workload(Workload::Tpch) => "TPC-H, tuned: kernels beside those of the rules",
            Tuned::Workload(Workload::Ssb) => {
                "Star Schema Benchmark, tuned: kernels beside those of the rules"
            }
            Tuned::Workload(Workload::Shapes) => "Shapes, tuned: kernels beside those of the rules",
            Tuned::Workload(Workload::Windows) => "Windows, tuned: kernels beside those of the rules",
            Tuned::Generated => "Queries drawn at random, tuned: kernels beside those of the rules",
        }
    }
}

/// Two sessions on one engine: one runs by the rules, the other is tuned.
struct Sessions {
    engine: Arc<Engine>,
    rules: KelpieSession,
    tuned: KelpieSession,
}

impl Sessions {
    async fn open(
        tuned: Tuned,
        options: &ExperimentOptions,
        listener: &dyn Listener,
    ) -> Result<(Sessions, Vec<(String, String)>)> {
        let (engine, scale) = (Arc::new(Engine::new()), options.scales.first().copied().unwrap_or(1.0));
        let session = |tuner: &str| -> Result<KelpieSession> {
            let own = [("kelpie.threads", options.threads.to_string()), ("kelpie.tuner", tuner.to_string())];
            let own = own.map(|(name, value)| (name.to_string(), value));
            let settings = own.into_iter().chain(options.settings.iter().cloned());
            let session = SessionOptions::default().with_engine(Arc::clone(&engine)).with_settings(settings);
            Ok(KelpieSession::new(session)?)
        };
        let (rules, tuner) = (session("off")?, session("genetic")?);
        let both = Sessions { engine, rules, tuned: tuner };
        // What the user asks of the tuner is not asked of the rules.
        both.rules.set("kelpie.tuner", "off")?;
        let queries = match tuned {
            Tuned::Workload(workload) => {
                listener.step(&format!("data of {} at scale {scale}", workload.name()));
                let progress = |rows| listener.data(rows);
                let folder = workload.generate_once(&options.data, scale, options.threads, &progress)?;
                for session in [&both.rules, &both.tuned] {
                    session.register_dir(&folder).await?;
                }
                workload.queries().into_iter().map(|(name, sql)| (name, sql.to_string())).collect()
            }
            Tuned::Generated => {
                let rows = generated::rows(scale);
                listener.step(&format!("{rows} rows"));
                let Generated { tables, queries } = generated::make(rows, options.threads)?;
                for session in [&both.rules, &both.tuned] {
                    for (name, table) in &tables {
                        session.context().register_table(*name, Arc::clone(table))?;
                    }
                }
                queries
            }
        };
        Ok((both, queries))
    }
}

async fn run(session: &KelpieSession, sql: &str) -> Result<(QueryTiming, Vec<RecordBatch>)> {
    let result = session.sql(sql).await?;
    Ok((result.timing, result.batches))
}

/// Adds two points a query: its times by the rules, and tuned.
pub(super) async fn measure(
    tuned: Tuned,
    options: &ExperimentOptions,
    findings: &mut Findings,
    listener: &dyn Listener,
) -> Result<()> {
    let (sessions, queries) = Sessions::open(tuned, options, listener).await?;
    let mut ratios = Vec::new();
    for (name, sql) in queries {
        if !options.only.is_empty() && !options.only.contains(&name) {
            continue;
        }
        listener.step(&format!("query {name}"));
        let mut points = ["rules", "tuned"].map(|series| Point::new(series, &name, None));
        match beside(&sessions, &sql, options.runs).await {
            Ok(Beside { rules, tuned, device }) => {
                findings.device = findings.device.take().or(device);
                if let Some(Outcome { ratio, lost }) = fill(&mut points, [&rules, &tuned]) {
                    ratios.push(ratio);
                    findings.remarks.push(format!(
                        "{name}: {ratio:.3} of the rules' kernels; {lost:+.2} runs in the first {FIRST_RUNS}"
                    ));
                }
            }
            Err(error) => points.iter_mut().for_each(|point| point.note = Some(format!("{error:#}"))),
        }
        points.into_iter().for_each(|point| findings.add(point, None));
    }
    if !ratios.is_empty() {
        let mean = (ratios.iter().map(|ratio: &f64| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        findings.remarks.push(format!(
            "tuned, kernels take {mean:.3} of the rules' time (geometric mean of {} queries; the worst {worst:.3})",
            ratios.len()
        ));
    }
    Ok(())
}

/// The runs of a query.
struct Beside {
    rules: Vec<QueryTiming>,
    tuned: Vec<QueryTiming>,
    device: Option<DeviceReport>,
}

async fn beside(sessions: &Sessions, sql: &str, runs: usize) -> Result<Beside> {
    let (mut rules, mut tuned, mut device) = (Vec::new(), Vec::new(), None);
    let mut answer: Option<Vec<RecordBatch>> = None;
    for round in 0..runs + WARM_RUNS {
        for (session, kept) in [(&sessions.rules, &mut rules), (&sessions.tuned, &mut tuned)] {
            let (timing, batches) = run(session, sql).await?;
            if let Some(name) = &timing.device {
                let name = name.clone();
                device = Some(DeviceReport { name, memory_gb_per_s: 0.0, link_gb_per_s: 0.0 });
            }
            let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            match &answer {
                Some(expected) if rows <= COMPARED_ROWS => {
                    if let Some(difference) = difference(expected, &batches)? {
                        bail!("run {round} has another answer: {difference}");
                    }
                }
                Some(_) => {}
                None => answer = Some(batches),
            }
            if round >= WARM_RUNS {
                kept.push(timing);
            }
        }
        // Runs are counted, and not the time between them: people's are seconds apart.
        sessions.engine.wait_for_compilers();
    }
    Ok(Beside { rules, tuned, device })
}

/// What the tuner came to.
struct Outcome {
    /// The part of the rules' time that kernels take in the end.
    ratio: f64,
    /// Time lost in the first runs, in runs.
    lost: f64,
}

/// Fills the points of a query.
fn fill(points: &mut [Point; 2], [rules, tuned]: [&[QueryTiming]; 2]) -> Option<Outcome> {
    let last = |runs: &[QueryTiming]| runs[runs.len() - (runs.len() / 3).max(1).min(runs.len())..].to_vec();
    for (point, runs) in points.iter_mut().zip([rules, tuned]) {
        point.set_runs(&last(runs));
    }
    let kernels = |runs: &[QueryTiming]| -> Vec<f64> {
        runs.iter().take(FIRST_RUNS).map(|run| run.kernel_ns as f64 / 1e6).collect()
    };
    // Runs beside each other: what else the machine does meets both.
    let lost: f64 =
        kernels(tuned).iter().zip(kernels(rules)).map(|(tuned, rules)| tuned / rules.max(1e-6) - 1.0).sum();
    let [by_rules, by_tuner] = points.each_ref().map(|point| point.kernel_ms);
    let by_rules = by_rules.filter(|time_ms| *time_ms > 0.0)?;
    let ratio = by_tuner? / by_rules;
    points[1].figure = Some(ratio);
    Some(Outcome { ratio, lost })
}
