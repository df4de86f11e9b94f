//! What a benchmark found, as data and as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use datafusion::arrow::array::RecordBatch;
use kelpie_session::{Group, Phase, QueryTiming};
use serde::{Deserialize, Serialize};

use super::{BenchOptions, Machine};

/// Where the time of a run went, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// All of it.
    pub total_ms: f64,
    /// Parsing and planning.
    pub plan_ms: f64,
    /// Generating and compiling kernels.
    pub compile_ms: f64,
    /// Reading columns and moving them to the device.
    pub transfer_ms: f64,
    /// What the engine does between kernels.
    pub host_ms: f64,
    /// Running kernels.
    pub kernel_ms: f64,
    /// Bringing the result to the host.
    pub result_ms: f64,
    /// DataFusion's operators around what is compiled, and whoever took the rows.
    pub around_ms: f64,
    /// All of it, by phase.
    pub phases_ms: BTreeMap<String, f64>,
    /// Bytes moved to the device.
    pub transfer_bytes: u64,
    /// Bytes that the kernels read, as stored on the device.
    pub kernel_bytes: u64,
}

impl Split {
    pub(super) fn of(timing: &QueryTiming) -> Split {
        let ms = |ns: u64| ns as f64 / 1e6;
        let group = |group: Group| ms(timing.split.of_group(group));
        let phases = Phase::ALL.into_iter().filter(|phase| timing.split.of(*phase) > 0);
        Split {
            total_ms: ms(timing.total_ns),
            plan_ms: group(Group::Plan),
            compile_ms: group(Group::Compile),
            transfer_ms: group(Group::Read),
            host_ms: group(Group::Host),
            kernel_ms: group(Group::Kernels),
            result_ms: group(Group::Result),
            around_ms: group(Group::Around),
            phases_ms: phases.map(|phase| (phase.name().to_string(), ms(timing.split.of(phase)))).collect(),
            transfer_bytes: timing.transfer_bytes,
            kernel_bytes: timing.kernel_bytes_read,
        }
    }

    /// Bytes that the kernels read a second, in 10⁹.
    pub fn kernel_gb_per_s(&self) -> Option<f64> {
        (self.kernel_ms > 0.0 && self.kernel_bytes > 0)
            .then(|| self.kernel_bytes as f64 / self.kernel_ms / 1e6)
    }
}

/// A peer's time of a query.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeerTime {
    /// The peer.
    pub peer: &'static str,
    /// Its median in milliseconds; absent where it failed.
    pub total_ms: Option<f64>,
    /// Our time divided by the peer's: below 1 we are faster.
    pub ratio: Option<f64>,
    /// The same with our time of a statement that was never seen before.
    pub unseen_ratio: Option<f64>,
    /// Every measured run in milliseconds.
    pub runs_ms: Vec<f64>,
}

/// One query.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueryReport {
    /// Its name.
    pub name: String,
    /// Whether Kelpie compiled all of it.
    pub compiled: bool,
    /// Why parts ran on DataFusion's operators.
    pub reasons: Vec<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Rows of its answer.
    pub rows: usize,
    /// Whether the answer is the reference answer; absent where there is none.
    pub answer_is_right: Option<bool>,
    /// What differs from the reference answer.
    pub answer_difference: Option<String>,
    /// Runs, the first among them, whose rows were compared with a peer's of the same round.
    pub compared_runs: usize,
    /// How peers' rows differ from Kelpie's.
    pub peer_differences: Vec<String>,
    /// The run with the median total time, of a statement that was seen before: its plan is kept.
    pub median: Split,
    /// The same of one that was never seen: it is planned, while its columns and kernels are there.
    pub unseen: Split,
    /// The run that warmed up.
    pub first: Split,
    /// Every measured run's total in milliseconds.
    pub runs_ms: Vec<f64>,
    /// The same of the statement as one that was never seen.
    pub unseen_runs_ms: Vec<f64>,
    /// The peers.
    pub peers: Vec<PeerTime>,
    /// Errors of the peers.
    pub peer_errors: Vec<String>,
}

impl QueryReport {
    pub(super) fn new(name: &str) -> QueryReport {
        QueryReport {
            name: name.to_string(),
            compiled: false,
            reasons: Vec::new(),
            error: None,
            rows: 0,
            answer_is_right: None,
            answer_difference: None,
            compared_runs: 0,
            peer_differences: Vec::new(),
            median: Split::default(),
            unseen: Split::default(),
            first: Split::default(),
            runs_ms: Vec::new(),
            unseen_runs_ms: Vec::new(),
            peers: Vec::new(),
            peer_errors: Vec::new(),
        }
    }

    pub(super) fn set_first(&mut self, timing: &QueryTiming) {
        self.first = Split::of(timing);
    }

    /// Adds the answer of a run: one that is wrong counts for all.
    pub(super) fn add_answer(&mut self, batches: &[RecordBatch], answer: Option<Result<(), String>>) {
        self.rows = batches.iter().map(RecordBatch::num_rows).sum();
        if let Some(answer) = answer {
            self.answer_is_right = Some(self.answer_is_right.unwrap_or(true) && answer.is_ok());
            self.answer_difference = self.answer_difference.take().or(answer.err());
        }
    }

    /// Adds whether a peer's rows are Kelpie's of the same round.
    pub(super) fn add_comparison(&mut self, peer: &str, compared: bool, difference: Option<String>) {
        self.compared_runs += usize::from(compared);
        if let Some(difference) = difference {
            let difference = format!("{peer}: {difference}");
            if !self.peer_differences.contains(&difference) {
                self.peer_differences.push(difference);
            }
        }
    }

    /// Sets the measured runs of a statement that was seen before, and of one that was not.
    pub(super) fn set_runs(&mut self, mut runs: Vec<QueryTiming>, mut unseen: Vec<QueryTiming>) {
        (self.runs_ms, self.median) = median(&mut runs);
        (self.unseen_runs_ms, self.unseen) = median(&mut unseen);
        self.compiled = !runs.is_empty() && runs.iter().chain(&unseen).all(|t| t.compiled);
        for reason in runs.into_iter().chain(unseen).flat_map(|t| t.reasons) {
            if !self.reasons.contains(&reason) {
                self.reasons.push(reason);
            }
        }
    }

    /// Adds a peer's measured runs, in nanoseconds.
    pub(super) fn add_peer(&mut self, peer: &'static str, mut times_ns: Vec<u64>) {
        let runs_ms = times_ns.iter().map(|ns| *ns as f64 / 1e6).collect();
        times_ns.sort_unstable();
        let total_ms = times_ns.get(times_ns.len().saturating_sub(1) / 2).map(|ns| *ns as f64 / 1e6);
        let own = (self.error.is_none() && !self.runs_ms.is_empty()).then_some(self.median.total_ms);
        let ratio = own.zip(total_ms).map(|(own, peer)| own / peer);
        let unseen = own.map(|_| self.unseen.total_ms);
        let unseen_ratio = unseen.zip(total_ms).map(|(own, peer)| own / peer);
        self.peers.push(PeerTime { peer, total_ms, ratio, unseen_ratio, runs_ms });
    }
}

/// Every run's total in milliseconds, in order, and the run with the median total.
fn median(runs: &mut [QueryTiming]) -> (Vec<f64>, Split) {
    let all = runs.iter().map(|timing| timing.total_ns as f64 / 1e6).collect();
    runs.sort_by_key(|timing| timing.total_ns);
    let median = runs.get(runs.len().saturating_sub(1) / 2);
    (all, median.map(Split::of).unwrap_or_default())
}

/// A peer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeerReport {
    /// Its name.
    pub name: &'static str,
    /// Its version, threads, and where its tables are.
    pub description: String,
}

/// A benchmark's findings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// `tpch` or `ssb`.
    pub workload: &'static str,
    /// The folder of the tables.
    pub data: String,
    /// The machine, the build and the sources.
    pub machine: Machine,
    /// The device that ran what was compiled.
    pub device: Option<String>,
    /// Threads of all engines.
    pub threads: usize,
    /// Measured runs a query.
    pub runs: usize,
    /// Whether the columns were forgotten before each run.
    pub cold: bool,
    /// Settings of Kelpie's session.
    pub settings: Vec<(String, String)>,
    /// The peers.
    pub peers: Vec<PeerReport>,
    /// The queries, in order.
    pub queries: Vec<QueryReport>,
    /// Geometric mean of the queries that did not fail, in milliseconds, as statements that were seen before.
    pub geometric_mean_ms: Option<f64>,
    /// Sum of the queries that did not fail, in milliseconds, as statements that were seen before.
    pub total_ms: f64,
    /// Geometric mean of the same queries as statements that were never seen.
    pub unseen_geometric_mean_ms: Option<f64>,
    /// Sum of the same queries as statements that were never seen.
    pub unseen_total_ms: f64,
}

/// Marks a query that ran on DataFusion's operators, wholly or in part.
const NOT_COMPILED: &str = "*";

impl Report {
    pub(super) fn new(options: &BenchOptions, peers: Vec<PeerReport>, queries: Vec<QueryReport>) -> Report {
        let right = || queries.iter().filter(|query| query.error.is_none());
        let times: Vec<f64> = right().map(|query| query.median.total_ms).collect();
        let unseen: Vec<f64> = right().map(|query| query.unseen.total_ms).collect();
        Report {
            workload: options.workload.name(),
            data: options.data.display().to_string(),
            machine: Machine::here(),
            device: None,
            threads: options.threads,
            runs: options.runs,
            cold: options.cold,
            settings: options.settings.clone(),
            peers,
            geometric_mean_ms: geometric_mean(&times),
            total_ms: times.iter().sum(),
            unseen_geometric_mean_ms: geometric_mean(&unseen),
            unseen_total_ms: unseen.iter().sum(),
            queries,
        }
    }

    pub(super) fn with_device(mut self, device: Option<String>) -> Report {
        self.device = device;
        self
    }

    /// The report as a table, the uncompiled parts and what went wrong.
    pub fn to_text(&self) -> String {
        let mut text = self.head();
        let _ = write!(
            text,
            "{:>7} {:>10} {:>8} {:>8} {:>9} {:>8} {:>10} {:>8} {:>7} | {:>10} {:>8}",
            "query",
            "total ms",
            "plan",
            "compile",
            "read",
            "host",
            "kernel",
            "result",
            "GB/s",
            "unseen ms",
            "plan"
        );
        for peer in &self.peers {
            let _ = write!(text, " | {:>10} {:>6} {:>6}", peer.name, "ratio", "unseen");
        }
        text.push('\n');
        for query in &self.queries {
            self.push_query(query, &mut text);
        }
        self.push_summary("mean", &mut text, geometric_mean);
        self.push_summary("total", &mut text, |times| (!times.is_empty()).then(|| times.iter().sum()));
        self.push_notes(&mut text);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n") + "\n"
    }

    fn head(&self) -> String {
        let device = self.device.as_deref().unwrap_or("nothing compiled");
        let kind =
            if self.cold { "cold (columns forgotten before each run)" } else { "hot (columns cached)" };
        let mut text = format!(
            "{} in {}: {kind}, median of {} runs after a warm-up, {} threads\nkelpie: {device}\n\
             total: the statement was seen before, and its plan kept; unseen: it is planned, while columns and kernels are there\n",
            self.workload, self.data, self.runs, self.threads
        );
        let _ = writeln!(text, "{}", self.machine.description());
        if cfg!(debug_assertions) {
            text.push_str("THIS IS A DEBUG BUILD: its times say little; measure with --release\n");
        }
        for peer in &self.peers {
            let _ = writeln!(text, "{}: {}; ratio = kelpie / {}", peer.name, peer.description, peer.name);
        }
        text
    }

    fn push_query(&self, query: &QueryReport, text: &mut String) {
        let mark = if query.compiled || query.error.is_some() { " " } else { NOT_COMPILED };
        if query.error.is_some() {
            let _ = write!(text, "{:>6}{mark} {:>10} {:>64} | {:>10} {:>8}", query.name, "error", "", "", "");
        } else {
            let (s, unseen) = (&query.median, &query.unseen);
            let bandwidth = s.kernel_gb_per_s().map_or("-".into(), |b| format!("{b:.1}"));
            let _ = write!(
                text,
                "{:>6}{mark} {:>10.2} {:>8.2} {:>8.2} {:>9.2} {:>8.2} {:>10.3} {:>8.2} {bandwidth:>7} | {:>10.2} {:>8.2}",
                query.name,
                s.total_ms,
                s.plan_ms,
                s.compile_ms,
                s.transfer_ms,
                s.host_ms,
                s.kernel_ms,
                s.result_ms,
                unseen.total_ms,
                unseen.plan_ms
            );
        }
        for peer in &query.peers {
            let (ratio, unseen) = (number(peer.ratio), number(peer.unseen_ratio));
            let _ = write!(text, " | {:>10} {ratio:>6} {unseen:>6}", number(peer.total_ms));
        }
        text.push('\n');
    }

    /// A line over all queries that everyone answered, so that the ratios compare like with like.
    fn push_summary(&self, name: &str, text: &mut String, sum: impl Fn(&[f64]) -> Option<f64>) {
        let right = || self.queries.iter().filter(|query| query.error.is_none());
        let own: Vec<f64> = right().map(|query| query.median.total_ms).collect();
        let unseen: Vec<f64> = right().map(|query| query.unseen.total_ms).collect();
        let (own, unseen) = (number(sum(&own)), number(sum(&unseen)));
        let _ = write!(text, "{name:>7} {own:>10} {:>64} | {unseen:>10} {:>8}", "", "");
        for index in 0..self.peers.len() {
            let answered = || right().filter_map(|query| Some((query, query.peers.get(index)?.total_ms?)));
            let peer = sum(&answered().map(|(_, peer)| peer).collect::<Vec<_>>());
            let ratio = |own: &dyn Fn(&QueryReport) -> f64| {
                let own = sum(&answered().map(|(query, _)| own(query)).collect::<Vec<_>>());
                number(own.zip(peer).map(|(own, peer)| own / peer))
            };
            let seen = ratio(&|query| query.median.total_ms);
            let unseen = ratio(&|query| query.unseen.total_ms);
            let _ = write!(text, " | {:>10} {seen:>6} {unseen:>6}", number(peer));
        }
        text.push('\n');
    }

    fn push_notes(&self, text: &mut String) {
        let uncompiled: Vec<&QueryReport> =
            self.queries.iter().filter(|q| !q.compiled && q.error.is_none()).collect();
        if !uncompiled.is_empty() {
            let _ = writeln!(
                text,
                "{NOT_COMPILED} not compiled, or not as a whole; DataFusion's operators ran the rest:"
            );
        }
        for query in uncompiled {
            let _ = writeln!(text, "  {}:", query.name);
            for reason in &query.reasons {
                let _ = writeln!(text, "    {reason}");
            }
        }
        for query in &self.queries {
            if let Some(error) = &query.error {
                let _ = writeln!(text, "query {} failed: {error}", query.name);
            }
            if let Some(difference) = &query.answer_difference {
                let _ = writeln!(text, "query {}: WRONG ANSWER: {difference}", query.name);
            }
            for difference in &query.peer_differences {
                let _ = writeln!(text, "query {}: DIFFERENT ANSWER of {difference}", query.name);
            }
            for error in &query.peer_errors {
                let _ = writeln!(text, "query {}: {error}", query.name);
            }
        }
        let right = self.queries.iter().filter(|q| q.answer_is_right == Some(true)).count();
        let checked = self.queries.iter().filter(|q| q.answer_is_right.is_some()).count();
        if checked > 0 {
            let _ = writeln!(text, "{right} of {checked} answers are the reference answers");
        }
        let compared: usize = self.queries.iter().map(|query| query.compared_runs).sum();
        let different = self.queries.iter().filter(|query| !query.peer_differences.is_empty()).count();
        if compared > 0 {
            let _ = writeln!(
                text,
                "{compared} answers were compared with Kelpie's of the same round: {different} queries differ"
            );
        }
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".into(), |v| format!("{v:.2}"))
}

fn geometric_mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    fn timing(total_ms: u64, compiled: bool) -> QueryTiming {
        let mut split = kelpie_session::Split::default();
        split.add(Phase::Kernels, 1_000_000);
        split.add(Phase::Host, (total_ms - 1) * 1_000_000);
        let mut timing = QueryTiming::default();
        timing.total_ns = total_ms * 1_000_000;
        timing.split = split;
        timing.kernel_bytes_read = 2_000_000;
        timing.compiled = compiled;
        if !compiled {
            timing.reasons = vec!["hash join".into(), "window".into()];
        }
        timing
    }

    fn report() -> Report {
        let mut first = QueryReport::new("1");
        first.set_runs(
            vec![timing(30, true), timing(10, true), timing(20, true)],
            vec![timing(25, true), timing(50, true), timing(24, true)],
        );
        first.add_peer("duckdb", vec![40_000_000, 50_000_000, 10_000_000]);
        let mut second = QueryReport::new("2");
        second.set_first(&timing(9, false));
        second.add_answer(&[], Some(Ok(())));
        second.add_answer(&[], Some(Err("row 1".into())));
        second.add_comparison("duckdb", true, None);
        second.add_comparison("duckdb", true, Some("2 rows, not 1".into()));
        second
            .set_runs(vec![timing(80, false), timing(80, false), timing(90, false)], vec![timing(95, false)]);
        second.add_peer("duckdb", vec![10_000_000]);
        let mut third = QueryReport::new("3");
        third.error = Some("no such thing".into());
        third.add_peer("duckdb", vec![10_000_000]);
        let options = BenchOptions {
            workload: Workload::Tpch,
            data: "data".into(),
            queries: Vec::new(),
            runs: 3,
            cold: false,
            against: Vec::new(),
            threads: 2,
            settings: Vec::new(),
        };
        let peers = vec![PeerReport { name: "duckdb", description: "DuckDB, 2 threads".into() }];
        Report::new(&options, peers, vec![first, second, third]).with_device(Some("CPU".into()))
    }

    #[test]
    fn medians_ratios_and_sums() {
        let report = report();
        let first = &report.queries[0];
        assert_eq!((first.median.total_ms, first.peers[0].total_ms), (20.0, Some(40.0)));
        assert_eq!((first.peers[0].ratio, first.peers[0].unseen_ratio), (Some(0.5), Some(0.625)));
        assert_eq!((first.unseen.total_ms, report.unseen_total_ms), (25.0, 120.0));
        assert_eq!(first.unseen_runs_ms, [25.0, 50.0, 24.0]);
        assert_eq!(first.median.kernel_gb_per_s(), Some(2.0));
        assert_eq!(report.total_ms, 100.0);
        assert!((report.geometric_mean_ms.unwrap() - 40.0).abs() < 1e-9);
        assert_eq!(report.queries[2].peers[0].ratio, None);
    }

    #[test]
    fn the_text_hides_nothing() {
        let text = report().to_text();
        for part in [
            "kelpie: CPU",
            "2*",
            "hash join",
            "window",
            "query 3 failed: no such thing",
            "query 2: WRONG ANSWER: row 1",
            "query 2: DIFFERENT ANSWER of duckdb: 2 rows, not 1",
            "2 answers were compared with Kelpie's of the same round: 1 queries differ",
            "debug build of ",
            "0 of 1 answers",
            "ratio = kelpie / duckdb",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let last: Vec<&str> = text.lines().filter(|l| l.trim_start().starts_with("total ")).collect();
        assert!(
            ["100.00", "120.00", "50.00", "2.00", "2.40"].iter().all(|part| last[0].contains(part)),
            "{text}"
        );
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["queries"][1]["reasons"][1], "window");
    }
}
