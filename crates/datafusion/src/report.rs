//! What EXPLAIN shows: operators and pipelines of a [`KelpieExec`](crate::KelpieExec), and what stays DataFusion's.

use std::fmt;
use std::sync::Arc;

use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use kelpie_engine::{
    Choice, DeviceKind, Foreseen, Group, LaneProfile, Profile, QueryMetrics, Split, Traffic,
};

use crate::derived::Derived;
use crate::exec::Run;
use crate::node_methods::one_input;
use crate::source::ScanTable;
use crate::translate::Translated;
use crate::units::{bytes, time};

/// Stands on an explained plan and lists every reason why a part of it stays DataFusion's; hands rows on unchanged.
#[derive(Debug)]
pub(crate) struct KelpieReport {
    input: Arc<dyn ExecutionPlan>,
    reasons: Vec<String>,
}

impl KelpieReport {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, reasons: Vec<String>) -> KelpieReport {
        KelpieReport { input, reasons }
    }

    fn with_input(&self, input: Arc<dyn ExecutionPlan>) -> KelpieReport {
        KelpieReport::new(input, self.reasons.clone())
    }
}

impl DisplayAs for KelpieReport {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if format == DisplayFormatType::TreeRender {
            return write!(f, "{}", self.reasons.join("\n"));
        }
        write!(f, "KelpieReport: not compiled, and why")?;
        for reason in &self.reasons {
            write!(f, "\n  ! {reason}")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for KelpieReport {
    one_input!("KelpieReport");

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}

/// One line an operator of a plan, the root first, indented.
pub(crate) fn operator_lines(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let mut lines = Vec::new();
    push_operator(plan, 0, &mut lines);
    lines
}

fn push_operator(plan: &Arc<dyn ExecutionPlan>, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        let table = crate::translate::scanned(scan);
        let name = table.as_ref().map_or("?", |table| table.name());
        let schema = plan.schema();
        let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        lines.push(format!("{indent}Scan: {name} [{}]", columns.join(", ")));
        return;
    }
    let line = DisplayableExecutionPlan::new(plan.as_ref()).one_line().to_string();
    lines.push(format!("{indent}{}", line.trim_end()));
    for child in plan.children() {
        push_operator(child, depth + 1, lines);
    }
}

/// One line an expression that is computed by DataFusion as its table is read.
pub(crate) fn derived_lines(translated: &Translated) -> Vec<String> {
    let of_table = |table: &Arc<ScanTable>| {
        let conditions = table.conditions().iter().map(|condition| condition.field().name().as_str());
        let conditions = conditions.collect::<Vec<_>>().join(" AND ");
        let line = |derived: &Derived| {
            let only = if conditions.is_empty() { "" } else { " where " };
            let is_kept = derived.key().is_some() && table.identity().is_some();
            let kept = if is_kept { "" } else { " (for this query only)" };
            format!("derived: {} of {}{only}{conditions}{kept}", derived.field().name(), table.name())
        };
        table.derived().iter().map(line).collect::<Vec<_>>()
    };
    translated.tables.iter().flat_map(of_table).collect()
}

/// What is known of the variants before anything is read.
pub(crate) fn foreseen_line(foreseen: &Foreseen) -> String {
    match foreseen {
        Foreseen::Genome(genome) => format!("variants, by what is known now: {}", chosen(genome.0.iter())),
        Foreseen::After(what) => format!("variants are chosen when {what}"),
    }
}

/// One line a variant that was chosen, or will most likely be, with its reason.
pub(crate) fn reason_lines<'a>(choices: impl Iterator<Item = &'a Choice>) -> Vec<String> {
    choices.map(|choice| format!("variant {choice}")).collect()
}

fn chosen<'a>(choices: impl Iterator<Item = &'a Choice>) -> String {
    let chosen = choices.map(|choice| format!("{}={}", choice.qualified(), choice.value));
    chosen.collect::<Vec<_>>().join(", ")
}

/// One line a pipeline of an execution.
pub(crate) fn run_lines(run: &Run, planning: Option<Split>) -> Vec<String> {
    if let Some(reason) = &run.fallback {
        return vec![format!("ran on DataFusion's operators: {reason}")];
    }
    let QueryMetrics { device, pipelines, .. } = &run.metrics;
    let line = |(i, p): (usize, &kelpie_engine::PipelineMetrics)| {
        let mut line = format!(
            "pipeline {i}: {}: device={device}, rows_in={}, rows_out={}{}, compile={}, run={}, read={}, written={}, \
             bandwidth={:.2} GB/s, launches={}",
            p.name,
            p.rows_in,
            p.rows_out.map_or("?".to_string(), |rows| rows.to_string()),
            p.rows_foreseen.map_or(String::new(), |rows| format!(" ({rows} foreseen)")),
            time(p.compile_ns),
            time(p.run_ns),
            bytes(p.bytes_read),
            bytes(p.bytes_written),
            // Bytes a nanosecond are GB a second.
            (p.bytes_read + p.bytes_written) as f64 / p.run_ns.max(1) as f64,
            p.launches,
        );
        if p.link_bytes > 0 {
            line.push_str(&format!(
                ", blocks={}, link={} in {} ({:.2} GB/s)",
                p.blocks,
                bytes(p.link_bytes),
                time(p.wall_ns),
                p.link_bytes as f64 / p.wall_ns.max(1) as f64,
            ));
        }
        if let Some(traffic) = &p.traffic {
            line.push_str(&format!(", {}", traffic_text(traffic)));
        }
        if p.queued > 0 {
            line.push_str(&format!(", queued={}", p.queued));
        }
        if let Some(activity) = p.lane_activity {
            line.push_str(&format!(", lane_activity={:.1} %", activity * 100.0));
        }
        let lanes = |lanes: &LaneProfile| {
            let (rows, warps, mean) = (lanes.rows(), lanes.warps(), lanes.mean());
            format!("{rows} rows in {warps} warps ({mean:.1} lanes) at {}", lanes.step)
        };
        if !p.lanes.is_empty() {
            line.push_str(&format!(", lanes: {}", p.lanes.iter().map(lanes).collect::<Vec<_>>().join("; ")));
        }
        line
    };
    let mut lines: Vec<String> = pipelines.iter().enumerate().map(line).collect();
    let m = &run.metrics;
    lines.extend(profile_lines(m));
    if !m.variants.is_empty() {
        lines.push(format!("variants: {}", chosen(m.choices())));
    }
    lines.extend(m.steps.iter().map(|step| format!("also: {step}")));
    lines.push(format!(
        "query: compile={}, transfer={} ({}), kernel={}, result={}",
        time(m.compile_ns),
        time(m.transfer_ns),
        bytes(m.transfer_bytes),
        time(m.kernel_ns),
        time(m.result_ns),
    ));
    let mut split = planning.unwrap_or_default();
    split += m.split;
    lines.push(format!("time: {}", split_text(&split)));
    lines.extend(meter_line(m));
    lines
}

/// `compile=3.1ms (generate=1.0ms, build=2.1ms), host=20.0us`: where time went.
fn split_text(split: &Split) -> String {
    let part = |group: Group| {
        let phases = group.phases().filter(|phase| split.of(*phase) > 0);
        let phases: Vec<_> =
            phases.map(|phase| format!("{}={}", phase.name(), time(split.of(phase)))).collect();
        let all = format!("{}={}", group.name(), time(split.of_group(group)));
        match phases.len() {
            0 | 1 => all,
            _ => format!("{all} ({})", phases.join(", ")),
        }
    };
    let groups = Group::ALL.into_iter().filter(|group| split.of_group(*group) > 0);
    groups.map(part).collect::<Vec<_>>().join(", ")
}

/// Of each step the shares of its warps that came with rows in so many lanes, where they were asked for.
fn profile_lines(m: &QueryMetrics) -> Vec<String> {
    if m.profile == Profile::Off {
        return Vec::new();
    }
    if m.kind == Some(DeviceKind::Cpu) {
        return vec!["lanes: a CPU's warps have one".into()];
    }
    let steps = m.pipelines.iter().enumerate().flat_map(|(i, p)| p.lanes.iter().map(move |lanes| (i, lanes)));
    let line = |(pipeline, lanes): (usize, &LaneProfile)| {
        let all = lanes.warps().max(1) as f64;
        let shares = (1..).zip(&lanes.by_lanes).filter(|(_, warps)| **warps > 0);
        let share = |(lanes, warps): (u32, &u64)| format!("{lanes}: {:.1} %", *warps as f64 / all * 100.0);
        let shares = shares.map(share).collect::<Vec<_>>().join(", ");
        let (warps, step) = (lanes.warps(), &lanes.step);
        format!(
            "lanes: pipeline {pipeline}, {step}: of {warps} warps those with rows in so many lanes: {shares}"
        )
    };
    steps.map(line).collect()
}

/// What the query accessed, and the times that no kernel beats.
fn meter_line(m: &QueryMetrics) -> Option<String> {
    let (traffic, passes) = (m.traffic.as_ref()?, m.passes().unwrap_or_default());
    let (link_ns, memory_ns) = (m.link_time_ns()?, m.memory_time_ns()?);
    Some(format!(
        "meter: {}, together {} = {passes:.2} passes over {} of input and {} of output; link time={}, memory-bound \
         time={}",
        traffic_text(traffic),
        bytes(m.memory_bytes().unwrap_or_default()),
        bytes(m.input_bytes),
        bytes(m.output_bytes),
        time(link_ns as u64),
        time(memory_ns as u64),
    ))
}

/// Bytes by what the memory is for.
fn traffic_text(traffic: &Traffic) -> String {
    let parts = traffic.parts().into_iter().filter(|(_, accessed)| accessed.bytes() > 0);
    let parts = parts.map(|(name, part)| format!("{name}={}+{}", bytes(part.read), bytes(part.written)));
    format!("accessed (read+written) {}", parts.collect::<Vec<_>>().join(", "))
}
