//! What an experiment found: as data, as text and as a plot.

use std::collections::BTreeMap;
use std::fmt::Write;

use kelpie_datafusion::QueryTiming;
use serde::Serialize;

use super::plot::{Chart, Line};
use super::{Experiment, Measure};

/// What an experiment found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Findings {
    /// The experiment's name.
    pub experiment: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Where the paper has it.
    pub paper: &'static str,
    /// Where it ran.
    pub device: Option<DeviceReport>,
    /// On what.
    pub data: Vec<DataReport>,
    /// Measured runs of each point: times are their medians.
    pub runs: usize,
    /// What the positions are.
    pub x: &'static str,
    /// What the plot shows of each point.
    pub y: &'static str,
    /// One a position and series.
    pub points: Vec<Point>,
    /// What is missing, and why.
    pub notes: Vec<String>,
    #[serde(skip)]
    measure: Measure,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// 10⁹ bytes a second that it reads of its memory.
    pub memory_gb_per_s: f64,
    /// 10⁹ bytes a second that come over its link.
    pub link_gb_per_s: f64,
}

impl DeviceReport {
    /// The device of a run with the meter.
    pub(super) fn of(timing: &QueryTiming) -> Option<DeviceReport> {
        let rates = timing.parts.iter().find_map(|part| part.rates)?;
        let name = timing.device.clone()?;
        Some(DeviceReport { name, memory_gb_per_s: rates.memory, link_gb_per_s: rates.link })
    }
}

/// Data that an experiment ran on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DataReport {
    /// The benchmark.
    pub workload: &'static str,
    /// The scale factor.
    pub scale: f64,
    /// Rows of the tables.
    pub tables: BTreeMap<String, u64>,
}

/// Bytes accessed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Loaded.
    pub read: u64,
    /// Stored, or updated by atomics.
    pub written: u64,
}

/// A query under a model. What was not measured is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Point {
    /// The model, or another engine.
    pub series: String,
    /// The position.
    pub x: String,
    /// The position on a numeric axis.
    pub position: Option<f64>,
    /// Rows of the answer.
    pub rows: Option<usize>,
    /// Pipelines, each a kernel (or several, under multi_pass and operator_at_a_time).
    pub kernels: Option<usize>,
    /// Time of all kernels.
    pub kernel_ms: Option<f64>,
    /// Time from SQL to rows.
    pub total_ms: Option<f64>,
    /// Kernel time of every run.
    pub kernel_runs_ms: Vec<f64>,
    /// Time from SQL to rows of every run.
    pub total_runs_ms: Vec<f64>,
    /// Bytes of the input's columns, as stored.
    pub input_bytes: Option<u64>,
    /// Bytes of the result.
    pub output_bytes: Option<u64>,
    /// Bytes that kernels accessed, by what the memory is for.
    pub accessed: BTreeMap<&'static str, Bytes>,
    /// Bytes accessed in device memory, to bytes of input and output.
    pub passes: Option<f64>,
    /// Time in which input and output go over the link.
    pub link_ms: Option<f64>,
    /// Time in which input and output are read from the device's memory once.
    pub memory_bound_ms: Option<f64>,
    /// Input in 10⁹ bytes a second of kernel time.
    pub throughput_gb_per_s: Option<f64>,
    /// Memory accessed in 10⁹ bytes a second of kernel time.
    pub memory_gb_per_s: Option<f64>,
    /// Why something is missing.
    pub note: Option<String>,
}

impl Point {
    pub(super) fn new(series: &str, x: &str, position: Option<f64>) -> Point {
        Point { series: series.into(), x: x.into(), position, ..Point::default() }
    }

    /// The times of runs without the meter.
    pub(super) fn set_runs(&mut self, runs: &[QueryTiming]) {
        self.kernel_runs_ms = runs.iter().map(|run| run.kernel_ns as f64 / 1e6).collect();
        self.kernel_ms = median(&self.kernel_runs_ms);
        let totals: Vec<f64> = runs.iter().map(|run| run.total_ns as f64 / 1e6).collect();
        self.set_totals(&totals);
    }

    pub(super) fn set_totals(&mut self, totals_ms: &[f64]) {
        self.total_runs_ms = totals_ms.to_vec();
        self.total_ms = median(totals_ms);
    }

    /// The bytes of a run with the meter.
    pub(super) fn set_traffic(&mut self, timing: &QueryTiming) {
        let parts = &timing.parts;
        let (mut link_ns, mut memory_ns, mut device_bytes) = (0.0, 0.0, 0);
        for part in parts {
            link_ns += part.link_time_ns().unwrap_or_default();
            memory_ns += part.memory_time_ns().unwrap_or_default();
            let Some(traffic) = &part.traffic else { continue };
            device_bytes += part.memory_bytes().unwrap_or_default();
            for (name, accessed) in traffic.parts() {
                let known = self.accessed.entry(name).or_default();
                known.read += accessed.read;
                known.written += accessed.written;
            }
        }
        let input: u64 = parts.iter().map(|part| part.input_bytes).sum();
        let output: u64 = parts.iter().map(|part| part.output_bytes).sum();
        (self.input_bytes, self.output_bytes) = (Some(input), Some(output));
        (self.link_ms, self.memory_bound_ms) = (Some(link_ns / 1e6), Some(memory_ns / 1e6));
        self.passes = (input + output > 0).then(|| device_bytes as f64 / (input + output) as f64);
        let rate = |bytes: u64| self.kernel_ms.filter(|ms| *ms > 0.0).map(|ms| bytes as f64 / ms / 1e6);
        (self.throughput_gb_per_s, self.memory_gb_per_s) = (rate(input), rate(device_bytes));
    }

    fn value(&self, measure: Measure) -> Option<f64> {
        match measure {
            Measure::Kernels => self.kernel_ms,
            Measure::Total => self.total_ms,
            Measure::Passes => self.passes,
        }
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

impl Findings {
    pub(super) fn new(experiment: Experiment, runs: usize) -> Findings {
        let measure = experiment.measure();
        Findings {
            experiment: experiment.name(),
            title: experiment.title(),
            paper: experiment.paper(),
            device: None,
            data: Vec::new(),
            runs,
            x: experiment.positions(),
            y: match measure {
                Measure::Kernels => "kernel time, ms",
                Measure::Total => "time from SQL to rows, ms",
                Measure::Passes => "passes over memory",
            },
            points: Vec::new(),
            notes: Vec::new(),
            measure,
        }
    }

    pub(super) fn add(&mut self, point: Point, device: Option<&DeviceReport>) {
        if let Some(note) = &point.note {
            self.notes.push(format!("{} {}, {}: {note}", self.x, point.x, point.series));
        }
        self.points.push(point);
        self.device = device.cloned().or(self.device.take());
    }

    pub(super) fn finish(&mut self) {
        if self.points.is_empty() {
            self.notes.push("nothing was measured: no position has such a name".into());
        }
    }

    /// The series in the order of their first points, with all values.
    fn series(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for point in &self.points {
            if !names.contains(&point.series.as_str()) {
                names.push(&point.series);
            }
        }
        names
    }

    /// The positions in their order.
    fn positions(&self) -> Vec<(&str, Option<f64>)> {
        let mut all: Vec<(&str, Option<f64>)> = Vec::new();
        for point in &self.points {
            if all.iter().all(|(x, _)| *x != point.x) {
                all.push((&point.x, point.position));
            }
        }
        all
    }

    fn point(&self, series: &str, x: &str) -> Option<&Point> {
        self.points.iter().find(|point| point.series == series && point.x == x)
    }

    /// The floor at a position: of whichever model was measured first.
    fn floor(&self, x: &str, floor: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
        self.points.iter().filter(|point| point.x == x).find_map(floor)
    }

    /// A line a position, a column a series.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}: {} ({})\n", self.experiment, self.title, self.paper);
        if let Some(device) = &self.device {
            let (memory, link) = (device.memory_gb_per_s, device.link_gb_per_s);
            let _ = writeln!(text, "{}: memory {memory:.1} GB/s, link {link:.1} GB/s", device.name);
        }
        for data in &self.data {
            let _ = writeln!(text, "{} at scale {}", data.workload, data.scale);
        }
        let series = self.series();
        let has_floors = self.measure != Measure::Passes;
        let _ = write!(text, "{:>12}", self.x);
        series.iter().for_each(|name| {
            let _ = write!(text, "  {name:>25}");
        });
        if has_floors {
            let _ = write!(text, "  {:>10}  {:>12}", "link", "memory bound");
        }
        let _ = writeln!(text, "   {}", self.y);
        for (x, _) in self.positions() {
            let _ = write!(text, "{x:>12}");
            for name in &series {
                let value = self.point(name, x).and_then(|point| point.value(self.measure));
                let _ = write!(text, "  {:>25}", number(value));
            }
            if has_floors {
                let (link, memory) = (self.floor(x, |p| p.link_ms), self.floor(x, |p| p.memory_bound_ms));
                let _ = write!(text, "  {:>10}  {:>12}", number(link), number(memory));
            }
            text.push('\n');
        }
        if self.experiment == Experiment::SsbMetrics.name() {
            self.push_rates(&mut text);
        }
        for note in &self.notes {
            let _ = writeln!(text, "left out: {note}");
        }
        text
    }

    /// Time, throughput and bandwidth of each point, as the paper's table 3 has them.
    fn push_rates(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\n{:>12}  {:>10}  {:>15}  {:>12}",
            self.x, "time, ms", "input, GB/s", "memory, GB/s"
        );
        for point in &self.points {
            let (time, input) = (number(point.kernel_ms), number(point.throughput_gb_per_s));
            let memory = number(point.memory_gb_per_s);
            let _ = writeln!(text, "{:>12}  {time:>10}  {input:>15}  {memory:>12}", point.x);
        }
    }

    /// The plot.
    pub fn to_svg(&self) -> String {
        let positions = self.positions();
        let numeric = !positions.is_empty() && positions.iter().all(|(_, position)| position.is_some());
        let place = |index: usize, position: Option<f64>| match position {
            Some(position) if numeric => position,
            _ => index as f64,
        };
        let line = |name: &str, is_floor: bool, value: &dyn Fn(&str) -> Option<f64>| Line {
            name: name.into(),
            is_floor,
            points: positions
                .iter()
                .enumerate()
                .filter_map(|(index, (x, position))| Some((place(index, *position), value(x)?)))
                .collect(),
        };
        let mut lines: Vec<Line> = self
            .series()
            .into_iter()
            .map(|name| line(name, false, &|x| self.point(name, x)?.value(self.measure)))
            .collect();
        if self.measure != Measure::Passes {
            lines.push(line("link", true, &|x| self.floor(x, |point| point.link_ms)));
            lines.push(line("memory bound", true, &|x| self.floor(x, |point| point.memory_bound_ms)));
        }
        lines.retain(|line| !line.points.is_empty());
        Chart {
            title: format!("{}: {}", self.experiment, self.title),
            x: self.x.into(),
            y: self.y.into(),
            categories: match numeric {
                true => Vec::new(),
                false => positions.iter().map(|(x, _)| (*x).to_string()).collect(),
            },
            is_log_x: self.x == "groups",
            lines,
        }
        .to_svg()
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.3}"))
}
