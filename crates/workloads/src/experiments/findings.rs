//! What an experiment found: as data, as text and as a plot.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};
use kelpie_datafusion::{LaneProfile, QueryTiming};
use serde::Serialize;

use super::panels;
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

/// The lanes of warps that had rows where a step of a pipeline, or its sink, begins (DogQC, section 2.1).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepLanes {
    /// The pipeline.
    pub pipeline: String,
    /// The step, or the sink.
    pub step: String,
    /// Rows that came.
    pub rows: u64,
    /// How often a warp came with rows: its iterations.
    pub warps: u64,
    /// The lanes that had rows, on average.
    pub mean: f64,
    /// Of each number of lanes, from one on, the iterations of warps with rows in so many.
    pub by_lanes: Vec<u64>,
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
    /// Time of the kernel of the pipeline that the experiment is about.
    pub pipeline_ms: Option<f64>,
    /// The same of every run.
    pub pipeline_runs_ms: Vec<f64>,
    /// The lanes that had rows, step by step, where the experiment looks at them and the device counts them.
    pub lanes: Vec<StepLanes>,
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

    /// The time of the one pipeline of each run whose name has `name` in it.
    pub(super) fn set_pipeline(&mut self, name: &str, runs: &[QueryTiming]) -> Result<()> {
        let time = |run: &QueryTiming| {
            let mut named =
                run.parts.iter().flat_map(|part| &part.pipelines).filter(|p| p.name.contains(name));
            let found = named.next().filter(|_| named.next().is_none());
            found.map(|pipeline| pipeline.run_ns as f64 / 1e6)
        };
        let times: Option<Vec<f64>> = runs.iter().map(time).collect();
        self.pipeline_runs_ms = times.with_context(|| format!("no pipeline, or several, with {name:?}"))?;
        self.pipeline_ms = median(&self.pipeline_runs_ms);
        Ok(())
    }

    /// The lanes that had rows in a run, in the pipeline whose name has `name` in it.
    pub(super) fn set_lanes(&mut self, name: &str, run: &QueryTiming) {
        let pipelines = run.parts.iter().flat_map(|part| &part.pipelines);
        let mut named = pipelines.filter(|pipeline| pipeline.name.contains(name));
        let Some(pipeline) = named.next_back() else { return };
        let step = |lanes: &LaneProfile| StepLanes {
            pipeline: pipeline.name.clone(),
            step: lanes.step.clone(),
            rows: lanes.rows(),
            warps: lanes.warps(),
            mean: lanes.mean(),
            by_lanes: lanes.by_lanes.clone(),
        };
        self.lanes = pipeline.lanes.iter().map(step).collect();
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
            Measure::Pipeline => self.pipeline_ms,
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
                Measure::Pipeline => "time of the pipeline, ms",
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
        let has_floors = self.points.iter().any(|point| point.link_ms.or(point.memory_bound_ms).is_some())
            && self.measure != Measure::Passes;
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
        self.push_lanes(&mut text);
        for note in &self.notes {
            let _ = writeln!(text, "left out: {note}");
        }
        text
    }

    /// The lanes that had rows at each step, of the points that know them.
    fn push_lanes(&self, text: &mut String) {
        for point in self.points.iter().filter(|point| !point.lanes.is_empty()) {
            let _ = writeln!(text, "\nlanes with rows, {} {}, {}", self.x, point.x, point.series);
            let _ = writeln!(text, "{:>14}  {:>14}  {:>14}   of", "rows", "warps", "mean lanes");
            for StepLanes { step, rows, warps, mean, .. } in shown(&point.lanes) {
                let _ = writeln!(text, "{rows:>14}  {warps:>14}  {mean:>14.1}   {step}");
            }
        }
    }

    /// The lanes that had rows at each step as a plot (as DogQC's figures 2 and 5 have them), where some point knows them.
    pub fn lanes_to_svg(&self) -> Option<String> {
        let known = self.points.iter().filter(|point| !point.lanes.is_empty());
        let row = |point: &Point| {
            let steps: Vec<StepLanes> = shown(&point.lanes).cloned().collect();
            (format!("{}, {}", point.x, point.series), steps)
        };
        let rows: Vec<_> = known.map(row).collect();
        (!rows.is_empty()).then(|| panels::to_svg(&format!("{}: lanes with rows", self.experiment), &rows))
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
            is_log_x: matches!(self.x, "groups" | "warps a multiprocessor"),
            lines,
        }
        .to_svg()
    }
}

/// Steps for people: projections, from which all rows go on, are left out, but for a last one.
fn shown(steps: &[StepLanes]) -> impl Iterator<Item = &StepLanes> {
    let last = steps.len().saturating_sub(1);
    let counts = move |(index, step): &(usize, &StepLanes)| *index == last || step.step != "project";
    steps.iter().enumerate().filter(counts).map(|(_, step)| step)
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.3}"))
}
