//! What an experiment found: as data, as text and as a plot.

use std::collections::BTreeMap;
use std::fmt::Write;

use kelpie_session::QueryTiming;
use serde::Serialize;

use super::algebra::{PAGE_TUPLES, RELATION_TUPLES};
use super::heat;
use super::model::TEXT_BYTES;
use super::panels;
use super::plot::{Chart, Line};
use super::point::{Point, StepLanes};
use super::variants::POOL_SIZES;
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
    /// What else follows from the points, a sentence each.
    pub remarks: Vec<String>,
    #[serde(skip)]
    measure: Measure,
    /// Whether the plot is a map, of which each series is a row.
    #[serde(skip)]
    is_map: bool,
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
                Measure::Figure => experiment.measured(),
            },
            points: Vec::new(),
            notes: Vec::new(),
            remarks: Vec::new(),
            measure,
            is_map: experiment.is_map(),
        }
    }

    pub(super) fn add(&mut self, point: Point, device: Option<&DeviceReport>) {
        if let Some(note) = &point.note {
            self.notes.push(format!("{} {}, {}: {note}", self.x, point.x, point.series));
        }
        self.points.push(point);
        self.device = device.cloned().or(self.device.take());
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

    /// The forms of columns for which floors are known: what is told of them behind the floors' names.
    fn forms(&self) -> Vec<&'static str> {
        let mut forms = Vec::new();
        for point in self.points.iter().filter(|point| point.link_ms.or(point.memory_bound_ms).is_some()) {
            if !forms.contains(&point.columns) {
                forms.push(point.columns);
            }
        }
        forms
    }

    /// The floor at a position for columns of a form: of whichever model was measured first.
    fn floor(&self, (x, form): (&str, &str), floor: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
        let of_form = |point: &&Point| point.x == x && point.columns == form;
        self.points.iter().filter(of_form).find_map(floor)
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
        if self.is_map {
            match self.measure {
                Measure::Figure => self.push_map(&mut text),
                _ => self.push_rows(&mut text),
            }
            self.push_notes(&mut text);
            return text;
        }
        let series = self.series();
        let forms =
            if matches!(self.measure, Measure::Passes | Measure::Figure) { Vec::new() } else { self.forms() };
        let _ = write!(text, "{:>12}", self.x);
        series.iter().for_each(|name| {
            let _ = write!(text, "  {name:>25}");
        });
        for form in &forms {
            let (link, memory) = (of_form("link", form), of_form("memory bound", form));
            let _ = write!(text, "  {link:>10}  {memory:>12}");
        }
        let _ = writeln!(text, "   {}", self.y);
        for (x, _) in self.positions() {
            let _ = write!(text, "{x:>12}");
            for name in &series {
                let value = self.point(name, x).and_then(|point| point.value(self.measure));
                let wide = name.len().max(25);
                let _ = write!(text, "  {:>wide$}", number(value));
            }
            for form in &forms {
                let link = number(self.floor((x, form), |point| point.link_ms));
                let memory = number(self.floor((x, form), |point| point.memory_bound_ms));
                // As wide as what stands above.
                let wide = |least: usize, name| least.max(of_form(name, form).len());
                let _ =
                    write!(text, "  {link:>0$}  {memory:>1$}", wide(10, "link"), wide(12, "memory bound"));
            }
            text.push('\n');
        }
        if self.experiment == Experiment::SsbMetrics.name() {
            self.push_rates(&mut text);
        }
        self.push_transfers(&mut text);
        self.push_lanes(&mut text);
        self.push_notes(&mut text);
        text
    }

    fn push_notes(&self, text: &mut String) {
        for remark in &self.remarks {
            let _ = writeln!(text, "{remark}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "left out: {note}");
        }
    }

    /// What transfers take by themselves and beside kernels, of the points that know it.
    fn push_transfers(&self, text: &mut String) {
        let known: Vec<&Point> = self.points.iter().filter(|point| point.streamed_ms.is_some()).collect();
        if known.is_empty() {
            return;
        }
        let _ = writeln!(
            text,
            "\n{:>12}  {:>12}  {:>10}  {:>12}  {:>14}   columns over the link",
            self.x, "link, MB", "link, ms", "kernels, ms", "beside, ms"
        );
        for point in known {
            let megabytes = number(point.link_bytes.map(|bytes| bytes as f64 / 1e6));
            let (link, kernels) = (number(point.link_ms), number(point.kernel_ms));
            let _ = writeln!(
                text,
                "{:>12}  {megabytes:>12}  {link:>10}  {kernels:>12}  {:>14}   {}",
                point.x,
                number(point.streamed_ms),
                point.series
            );
        }
    }

    /// The lanes that had rows at each step, of the points that know them.
    fn push_lanes(&self, text: &mut String) {
        for point in self.points.iter().filter(|point| !point.lanes.is_empty()) {
            let _ = writeln!(text, "\nlanes with rows, {} {}, {}", self.x, point.x, point.series);
            if let (Some(steps), Some(activity)) = (point.warp_steps, point.lane_activity) {
                let share = activity * 100.0;
                let _ = writeln!(
                    text,
                    "the longest warp executes {steps} statements; of the lanes {share:.1} % are active"
                );
            }
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
        (!rows.is_empty()).then(|| panels::to_svg(&format!("{}: lanes with rows", self.full_title()), &rows))
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

    /// A line a series, a column a position.
    fn push_rows(&self, text: &mut String) {
        let (series, positions) = (self.series(), self.positions());
        let wide = series.iter().map(|name| name.len()).max().unwrap_or(0);
        let _ = write!(text, "{:>wide$}", self.y);
        for (x, _) in &positions {
            let _ = write!(text, "  {x:>10}");
        }
        let _ = writeln!(text, "   {}", self.x);
        for name in series {
            let _ = write!(text, "{name:>wide$}");
            for (x, _) in &positions {
                let value = self.point(name, x).and_then(|point| point.value(self.measure));
                let _ = write!(text, "  {:>10}", number(value));
            }
            text.push('\n');
        }
    }

    /// How many times the best value of a part of a map the value of a cell is; rows are of one part whose names are the same up to a comma.
    fn slowdown(&self, row: &str, x: &str) -> Option<f64> {
        let value = self.point(row, x)?.value(self.measure)?;
        let part = |row: &str| row.split_once(", ").map(|(part, _)| part.to_string());
        let same_part = self.points.iter().filter(|point| part(&point.series) == part(row));
        let best = same_part.filter_map(|point| point.value(self.measure)).fold(f64::INFINITY, f64::min);
        Some(if best > 0.0 { value / best } else { 1.0 })
    }

    /// At each position the row of a map that is fastest, and how much slower the slowest is: a map has many rows.
    fn push_map(&self, text: &mut String) {
        let _ = writeln!(text, "{:>12}  {:>10}  {:>10}   the fastest", self.x, "fastest", "slowest");
        for (x, _) in self.positions() {
            let at = || self.points.iter().filter(|point| point.x == x);
            let value = |point: &&Point| point.value(self.measure).unwrap_or(f64::INFINITY);
            let order = |a: &&Point, b: &&Point| value(a).total_cmp(&value(b));
            let (Some(best), Some(worst)) = (at().min_by(order), at().max_by(order)) else { continue };
            let (least, most) = (number(best.value(self.measure)), number(worst.value(self.measure)));
            let _ = writeln!(text, "{x:>12}  {least:>10}  {most:>10}   {}", best.series);
        }
    }

    /// What a plot shows, on which device and how much data.
    fn full_title(&self) -> String {
        let device = self.device.iter().map(|device| device.name.clone());
        let mut scales: Vec<String> = self.data.iter().map(|data| data.scale.to_string()).collect();
        scales.dedup();
        let scale = (!scales.is_empty()).then(|| format!("scale {}", scales.join(" and ")));
        let where_it_ran: Vec<String> = device.chain(scale).collect();
        let title = format!("{}: {}", self.experiment, self.title);
        if where_it_ran.is_empty() { title } else { format!("{title} ({})", where_it_ran.join(", ")) }
    }

    /// The plot.
    pub fn to_svg(&self) -> String {
        let positions = self.positions();
        if self.is_map {
            let columns: Vec<&str> = positions.iter().map(|(x, _)| *x).collect();
            let value = |row: &str, x: &str| match self.measure {
                Measure::Figure => self.point(row, x)?.value(self.measure),
                _ => self.slowdown(row, x),
            };
            return heat::to_svg((&self.full_title(), self.x), &self.series(), &columns, &value);
        }
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
        for name in self.series() {
            lines.push(line(&format!("{name}, over the link"), false, &|x| self.point(name, x)?.streamed_ms));
        }
        if !matches!(self.measure, Measure::Passes | Measure::Figure) {
            for form in self.forms() {
                let (link, memory) = (of_form("link", form), of_form("memory bound", form));
                lines.push(line(&link, true, &|x| self.floor((x, form), |point| point.link_ms)));
                lines.push(line(&memory, true, &|x| self.floor((x, form), |point| point.memory_bound_ms)));
            }
        }
        lines.retain(|line| !line.points.is_empty());
        Chart {
            title: self.full_title(),
            x: self.x.into(),
            y: self.y.into(),
            categories: match numeric {
                true => Vec::new(),
                false => positions.iter().map(|(x, _)| (*x).to_string()).collect(),
            },
            is_log_x: matches!(
                self.x,
                "groups" | "warps a multiprocessor" | TEXT_BYTES | RELATION_TUPLES | PAGE_TUPLES | POOL_SIZES
            ),
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

/// The name of a floor for columns of a form.
fn of_form(floor: &str, form: &str) -> String {
    if form.is_empty() { floor.into() } else { format!("{floor}, {form}") }
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.3}"))
}
