//! Where queries are measured: a session on one data set, and the peers.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;
use kelpie_session::{KelpieSession, QueryTiming, SessionOptions};
use tokio::time::timeout;

use super::model::{Case, Data, Model, STREAMED};
use super::{DataReport, DeviceReport, Experiment, ExperimentOptions, Findings, Listener, Measure, Point};
use super::{dogqc, grouping};
use crate::bench::{DataFusionPeer, Package, PeerKind, PythonPeer, difference};

/// Answers of more rows are not compared.
const COMPARED_ROWS: usize = 10_000;

enum Peer {
    DuckDb(PythonPeer),
    DataFusion(DataFusionPeer),
}

/// A session on one data set.
pub struct Lab<'a> {
    options: &'a ExperimentOptions,
    data: Data,
    /// The folder of a benchmark's files.
    folder: std::path::PathBuf,
    session: KelpieSession,
    peers: Vec<(PeerKind, Peer)>,
    device: Option<DeviceReport>,
    /// The options that the last point set, and what they were before.
    changed: Vec<(String, String)>,
    /// The query that was measured last, under which model first, and its answer.
    answer: Option<(String, String, Vec<RecordBatch>)>,
}

impl<'a> Lab<'a> {
    /// A session on a data set. A benchmark's files are made where they are missing.
    pub async fn open(
        options: &'a ExperimentOptions,
        data: Data,
        scale: f64,
        listener: &dyn Listener,
    ) -> Result<Lab<'a>> {
        let own = [("kelpie.fallback".to_string(), "deny".to_string())];
        let threads = ("kelpie.threads".to_string(), options.threads.to_string());
        // What is measured is the code that stays, over all rows of the columns, whatever their bounds tell.
        let best = ("kelpie.compile".to_string(), "best".to_string());
        let all = ("kelpie.cache".to_string(), "all".to_string());
        let settings = [threads, best, all].into_iter().chain(options.settings.iter().cloned()).chain(own);
        let session = KelpieSession::new(SessionOptions::default().with_settings(settings))?;
        let mut folder = options.data.clone();
        match data {
            Data::Workload(workload) => {
                listener.step(&format!("data of {} at scale {scale}", workload.name()));
                let progress = |rows| listener.data(rows);
                folder = workload.generate_once(&options.data, scale, options.threads, &progress)?;
                session.register_dir(&folder).await?;
            }
            Data::Grouping => {
                listener.step(&format!("{} rows", grouping::rows(scale)));
                let table = grouping::table(grouping::rows(scale), options.threads)?;
                session.context().register_table(grouping::TABLE, table)?;
            }
            Data::Texts => {
                listener.step(&format!("{} rows of texts", dogqc::text_rows(scale)));
                for (name, table) in dogqc::text_tables(dogqc::text_rows(scale), options.threads)? {
                    session.context().register_table(name, table)?;
                }
            }
            Data::Joins => {
                listener.step(&format!("{} rows", dogqc::rows(scale)));
                for (name, table) in dogqc::tables(dogqc::rows(scale), options.threads)? {
                    session.context().register_table(name, table)?;
                }
            }
        }
        let (peers, device, changed, answer) = (Vec::new(), None, Vec::new(), None);
        Ok(Lab { options, data, folder, session, peers, device, changed, answer })
    }

    /// The positions that are wanted; all where empty.
    pub fn only(&self) -> &'a [String] {
        &self.options.only
    }

    /// What the data is.
    pub async fn describe(&self, scale: f64) -> Result<DataReport> {
        let (workload, tables) = match self.data {
            Data::Workload(workload) => (workload.name(), workload.tables()),
            Data::Grouping => ("groupby", [grouping::TABLE].as_slice()),
            Data::Joins => ("dogqc", dogqc::TABLES.as_slice()),
            Data::Texts => ("dogqc-text", dogqc::TEXT_TABLES.as_slice()),
        };
        let mut report = DataReport { workload, scale, tables: Default::default() };
        for table in tables {
            let answer = self.session.context().sql(&format!("select count(*) from {table}")).await;
            let batches = answer?.collect().await?;
            let count = batches.first().context("a count without a row")?;
            let rows = array_value_to_string(count.column(0), 0)?.parse()?;
            report.tables.insert((*table).to_string(), rows);
        }
        Ok(report)
    }

    /// The device, once something was measured.
    pub fn device(&self) -> Option<&DeviceReport> {
        self.device.as_ref()
    }

    /// Measures a query under a model.
    pub async fn measure(&mut self, experiment: Experiment, case: &Case, model: &Model) -> Point {
        let series =
            case.series.iter().chain([&model.name]).map(String::as_str).collect::<Vec<_>>().join(", ");
        let mut point = Point::new(&series, &case.label, case.position);
        point.columns = model.columns;
        if let Err(error) = self.try_measure(experiment, case, model, &mut point).await {
            point.note = Some(format!("{error:#}"));
        }
        point
    }

    async fn try_measure(
        &mut self,
        experiment: Experiment,
        case: &Case,
        model: &Model,
        point: &mut Point,
    ) -> Result<()> {
        self.set(case, model)?;
        self.session.set("kelpie.meter", "false")?;
        self.session.set("kelpie.profile", "off")?;
        if experiment.measure() != Measure::Passes {
            let (first, batches) = self.run(&case.sql).await?;
            point.rows = Some(batches.iter().map(RecordBatch::num_rows).sum());
            point.kernels = Some(first.parts.iter().map(|part| part.pipelines.len()).sum());
            self.compare(&case.sql, &point.series, batches)?;
            let mut runs = Vec::new();
            for _ in 0..self.options.runs {
                runs.push(self.run(&case.sql).await?.0);
            }
            point.set_runs(&runs);
            if let Some(name) = case.pipeline {
                point.set_pipeline(name, &runs)?;
            }
            if let Some(name) = case.pipeline.filter(|_| experiment.profiles_lanes()) {
                self.session.set("kelpie.profile", "lanes")?;
                let profiled = self.run(&case.sql).await;
                self.session.set("kelpie.profile", "off")?;
                point.set_lanes(name, &profiled.context("with a profile of lanes")?.0);
            }
        }
        // The device and its rates are known from a run with the meter only.
        let counts_bytes = experiment.counts_bytes() || model.transfers;
        if counts_bytes || self.device.is_none() {
            self.session.set("kelpie.meter", "true")?;
            let metered = self.run(&case.sql).await;
            self.session.set("kelpie.meter", "false")?;
            let (metered, batches) = metered.context("with the meter")?;
            point.rows = Some(batches.iter().map(RecordBatch::num_rows).sum());
            if counts_bytes {
                point.set_traffic(&metered);
            }
            self.device = DeviceReport::of(&metered).or(self.device.take());
        }
        if model.transfers {
            self.change(STREAMED)?;
            // The first brings columns to the host's memory.
            self.run(&case.sql).await.context("with columns that stream")?;
            point.set_streamed(&self.run(&case.sql).await.context("with columns that stream")?.0);
        }
        Ok(())
    }

    /// Whether an answer is that which the query had under the first model: else nothing is worth measuring.
    fn compare(&mut self, sql: &str, series: &str, batches: Vec<RecordBatch>) -> Result<()> {
        match &self.answer {
            Some((query, first, expected)) if query == sql => {
                let rows = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
                if rows(expected).max(rows(&batches)) <= COMPARED_ROWS
                    && let Some(difference) = difference(expected, &batches)?
                {
                    bail!("another answer than under {first}: {difference}");
                }
            }
            _ => self.answer = Some((sql.into(), series.into(), batches)),
        }
        Ok(())
    }

    /// Sets what a point asks for, after what the one before asked for is as it was.
    fn set(&mut self, case: &Case, model: &Model) -> Result<()> {
        for (name, value) in std::mem::take(&mut self.changed).into_iter().rev() {
            self.session.set(&name, &value)?;
        }
        let settings = model.settings.iter().chain(&case.settings);
        self.change(settings.map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// Sets options until the next point.
    fn change<'s>(&mut self, settings: impl IntoIterator<Item = (&'s str, &'s str)>) -> Result<()> {
        for (name, value) in settings {
            let before = self.value(name).with_context(|| format!("there is no option {name}"))?;
            self.session.set(name, value)?;
            self.changed.push((name.into(), before));
        }
        Ok(())
    }

    /// The value of an option.
    fn value(&self, name: &str) -> Option<String> {
        let entries = self.session.context().state_ref().read().config_options().entries();
        entries.into_iter().find(|entry| entry.key == name).and_then(|entry| entry.value)
    }

    /// One run within the time limit. Dropping a query cancels it.
    async fn run(&self, sql: &str) -> Result<(QueryTiming, Vec<RecordBatch>)> {
        let limit = self.options.time_limit;
        let start = Instant::now();
        let answer = timeout(limit, self.session.sql(sql)).await;
        let result = answer.with_context(|| format!("given up after {} s", limit.as_secs_f64()))??;
        if !result.timing.compiled {
            bail!("not compiled: {}", result.timing.reasons.join("; "));
        }
        let mut timing = result.timing;
        timing.total_ns = start.elapsed().as_nanos() as u64;
        Ok((timing, result.batches))
    }

    /// Starts the peers where the experiment has them; one that cannot be started is a note.
    pub async fn start_peers(&mut self, experiment: Experiment, findings: &mut Findings) {
        let (true, Data::Workload(workload)) = (experiment.has_peers(), self.data) else {
            return;
        };
        let (tables, threads) = (workload.tables(), self.options.threads);
        for &kind in &self.options.against {
            let started = match kind {
                PeerKind::DuckDb => {
                    PythonPeer::start(Package::DuckDb, &self.folder, tables, threads, true).map(Peer::DuckDb)
                }
                PeerKind::DataFusion => {
                    DataFusionPeer::start(&self.folder, tables, threads, true).await.map(Peer::DataFusion)
                }
            };
            match started {
                Ok(peer) => self.peers.push((kind, peer)),
                Err(error) => findings.notes.push(format!("{} is left out: {error:#}", kind.name())),
            }
        }
    }

    /// Measures a query of the peers.
    pub async fn peers(&mut self, case: &Case, listener: &dyn Listener) -> Vec<Point> {
        let mut points = Vec::new();
        for (kind, peer) in &mut self.peers {
            listener.step(&format!("query {}, {}", case.label, kind.name()));
            let mut point = Point::new(kind.name(), &case.label, case.position);
            let mut times = Vec::new();
            for _ in 0..=self.options.runs {
                let time = match peer {
                    Peer::DuckDb(peer) => peer.run(&case.sql),
                    Peer::DataFusion(peer) => limited(peer, &case.sql, self.options.time_limit).await,
                };
                match time {
                    Ok(time_ns) => times.push(time_ns as f64 / 1e6),
                    Err(error) => {
                        point.note = Some(format!("{error:#}"));
                        break;
                    }
                }
            }
            // The first warms up.
            point.set_totals(times.get(1..).unwrap_or_default());
            points.push(point);
        }
        points
    }
}

async fn limited(peer: &DataFusionPeer, sql: &str, limit: Duration) -> Result<u64> {
    let answer = timeout(limit, peer.run(sql)).await;
    Ok(answer.with_context(|| format!("given up after {} s", limit.as_secs_f64()))??.0)
}
