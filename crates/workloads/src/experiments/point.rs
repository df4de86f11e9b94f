//! What was measured of a query under a model.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kelpie_session::{LaneProfile, QueryTiming};
use serde::Serialize;

use super::Measure;

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
    /// In which form the columns are, where series differ in that: for these floors differ too.
    pub columns: &'static str,
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
    /// Statements of the warp that executed most of the pipeline's, where the device counts them.
    pub warp_steps: Option<u64>,
    /// The share of lanes that were active while warps executed these.
    pub lane_activity: Option<f64>,
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
    /// Bytes that came over the link in a run whose columns stream from the host.
    pub link_bytes: Option<u64>,
    /// Time of that run's pipelines, where kernels run beside transfers.
    pub streamed_ms: Option<f64>,
    /// Time in which input and output are read from the device's memory once.
    pub memory_bound_ms: Option<f64>,
    /// Input in 10⁹ bytes a second of kernel time.
    pub throughput_gb_per_s: Option<f64>,
    /// Memory accessed in 10⁹ bytes a second of kernel time.
    pub memory_gb_per_s: Option<f64>,
    /// What the plot shows, where that is none of these.
    pub figure: Option<f64>,
    /// Why something is missing.
    pub note: Option<String>,
}

impl Point {
    pub(super) fn new(series: &str, x: &str, position: Option<f64>) -> Point {
        Point { series: series.into(), x: x.into(), position, ..Point::default() }
    }

    /// The times of runs without the meter.
    pub(super) fn set_runs(&mut self, runs: &[QueryTiming]) {
        let kernels: Vec<f64> = runs.iter().map(|run| run.kernel_ns as f64 / 1e6).collect();
        self.set_kernels(&kernels);
        let totals: Vec<f64> = runs.iter().map(|run| run.total_ns as f64 / 1e6).collect();
        self.set_totals(&totals);
    }

    /// The time of kernels of every run.
    pub(super) fn set_kernels(&mut self, kernels_ms: &[f64]) {
        self.kernel_runs_ms = kernels_ms.to_vec();
        self.kernel_ms = median(kernels_ms);
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
        (self.warp_steps, self.lane_activity) = (pipeline.most_warp_steps, pipeline.lane_activity);
    }

    /// What came over the link in a run whose columns stream from the host.
    pub(super) fn set_streamed(&mut self, run: &QueryTiming) {
        let pipelines = || run.parts.iter().flat_map(|part| &part.pipelines);
        self.link_bytes = Some(pipelines().map(|pipeline| pipeline.link_bytes).sum());
        self.streamed_ms = Some(pipelines().map(|pipeline| pipeline.wall_ns as f64 / 1e6).sum());
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

    pub(super) fn value(&self, measure: Measure) -> Option<f64> {
        match measure {
            Measure::Kernels => self.kernel_ms,
            Measure::Pipeline => self.pipeline_ms,
            Measure::Total => self.total_ms,
            Measure::Passes => self.passes,
            Measure::Figure => self.figure,
        }
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}
