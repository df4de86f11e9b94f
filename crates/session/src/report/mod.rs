//! What a query did, as facts that are worded once: EXPLAIN ANALYZE shows them as text, a page as HTML.

mod analyzed;
mod text;

use std::collections::VecDeque;

use kelpie_datafusion::units::{bytes, count, share, time};
use kelpie_engine::{Choice, Engine, Group, PipelineMetrics, QueryMetrics, Rates, Split};

use crate::timing::QueryTiming;
pub(crate) use analyzed::AnalyzedExec;

/// Something that is known, in words: `read`, `96.0 MB`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// What it is.
    pub name: &'static str,
    /// Its value, with the unit.
    pub value: String,
    /// What explains the value: how far an estimate is off, what share of a device's bandwidth it is.
    pub note: Option<String>,
}

/// What one pipeline did.
#[derive(Debug, Clone, PartialEq)]
pub struct PipelineFacts {
    /// `scan lineitem → filter → groups`.
    pub name: String,
    /// Time of its launches, in nanoseconds.
    pub run_ns: u64,
    /// That as a share of all pipelines': `45.2 %`.
    pub share: String,
    /// Rows, estimates, bytes and the like, the most telling first.
    pub facts: Vec<Fact>,
    /// Rows or groups that it made, where they were counted: `1,478,493`.
    pub rows_out: Option<String>,
    /// The pipelines that it takes rows or states from, by their places in the report.
    pub inputs: Vec<usize>,
}

/// A choice that was made for a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Where, and on which axis: `aggregate0.groups`.
    pub name: String,
    /// What was chosen.
    pub value: String,
    /// Why.
    pub why: String,
    /// The other values, each with what it lacks here, if it lacks something.
    pub others: Vec<(String, Option<String>)>,
}

/// What a query did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueryReport {
    /// The devices that ran what was compiled.
    pub devices: Vec<String>,
    /// All of its time in nanoseconds, as far as it is known.
    pub total_ns: u64,
    /// Where that went.
    pub split: Split,
    /// The compiled pipelines, in the order in which they ran.
    pub pipelines: Vec<PipelineFacts>,
    /// What was chosen for them.
    pub decisions: Vec<Decision>,
    /// What was done that no plan says, as where memory was short.
    pub steps: Vec<String>,
    /// What was not compiled or ran on DataFusion's operators in the end, and why.
    pub fell_back: Vec<String>,
}

impl QueryReport {
    /// Of a query that has ended.
    pub fn of(timing: &QueryTiming, engine: &Engine) -> QueryReport {
        let report = QueryReport::of_parts(&timing.parts, timing.reasons.clone(), engine);
        QueryReport { total_ns: timing.total_ns, split: timing.split, ..report }
    }

    /// Of a query's compiled parts, and what was not compiled of it. The devices are measured, where they were not before: so it is
    /// known what share of their bandwidth a pipeline has used.
    pub(crate) fn of_parts(parts: &[QueryMetrics], fell_back: Vec<String>, engine: &Engine) -> QueryReport {
        let mut report = QueryReport { fell_back, ..QueryReport::default() };
        let all_ns = parts.iter().flat_map(|part| &part.pipelines).map(|pipeline| pipeline.run_ns).sum();
        for part in parts {
            if !report.devices.contains(&part.device) {
                report.devices.push(part.device.clone());
            }
            report.split += part.split;
            let rates = part.rates.or_else(|| engine.rates_of(&part.device));
            let first = report.pipelines.len();
            for pipeline in &part.pipelines {
                report.pipelines.push(of_pipeline(pipeline, report.pipelines.len(), all_ns, rates));
            }
            join_stages(&mut report.pipelines, first);
            report.decisions.extend(part.choices().map(decision));
            report.steps.extend(part.steps.iter().cloned());
        }
        report.total_ns = report.split.total();
        report
    }

    /// The groups of phases that took time, in order, with their times in nanoseconds.
    pub fn phases(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let times = Group::ALL.into_iter().map(|group| (group.name(), self.split.of_group(group)));
        times.filter(|(_, time_ns)| *time_ns > 0)
    }

    /// Time of all pipelines in nanoseconds.
    pub fn kernel_ns(&self) -> u64 {
        self.pipelines.iter().map(|pipeline| pipeline.run_ns).sum()
    }
}

/// What a pipeline did, `place` in the report; all pipelines took `all_ns`.
fn of_pipeline(pipeline: &PipelineMetrics, place: usize, all_ns: u64, rates: Option<Rates>) -> PipelineFacts {
    let rows_out = pipeline.rows_out.map(count);
    // Bytes a nanosecond are GB a second.
    let rate = (pipeline.bytes_read + pipeline.bytes_written) as f64 / pipeline.run_ns.max(1) as f64;
    let rates = rates.filter(|rates| rates.memory > 0.0);
    let of_device = rates.map(|rates| match rate / rates.memory {
        // States that caches hold are not read from the memory.
        share if share > 1.0 => "from caches".to_string(),
        share => format!("{:.1} % of the device's", share * 100.0),
    });
    let plain = |name, value: String| Some(Fact { name, value, note: None });
    let estimate = |foreseen| {
        let note = error_of(foreseen, pipeline.rows_out);
        Fact { name: "estimate", value: count(foreseen), note }
    };
    let bandwidth = || Fact { name: "bandwidth", value: format!("{rate:.2} GB/s"), note: of_device };
    let (link_bytes, wall_ns, compile_ns) = (pipeline.link_bytes, pipeline.wall_ns, pipeline.compile_ns);
    let facts = [
        plain("rows in", count(pipeline.rows_in)),
        plain("rows out", rows_out.clone().unwrap_or_else(|| "not counted".into())),
        pipeline.rows_foreseen.map(estimate),
        plain("time", time(pipeline.run_ns)),
        plain("read", bytes(pipeline.bytes_read)),
        plain("written", bytes(pipeline.bytes_written)),
        (pipeline.run_ns > 0).then(bandwidth),
        plain("over the link", format!("{} in {}", bytes(link_bytes), time(wall_ns)))
            .filter(|_| link_bytes > 0),
        plain("launches", count(u64::from(pipeline.launches))),
        plain("compiling", time(compile_ns)).filter(|_| compile_ns > 0),
        pipeline.lane_activity.and_then(|active| plain("active lanes", format!("{:.1} %", active * 100.0))),
    ];
    let facts = facts.into_iter().flatten().collect();
    PipelineFacts {
        name: pipeline.name.clone(),
        run_ns: pipeline.run_ns,
        share: share(pipeline.run_ns, all_ns),
        facts,
        rows_out,
        inputs: pipeline.inputs.iter().filter_map(|places| place.checked_sub(*places)).collect(),
    }
}

/// How far an estimate is off, where that is by more than a half.
fn error_of(foreseen: u64, counted: Option<u64>) -> Option<String> {
    let (foreseen, counted) = (foreseen.max(1) as f64, counted?.max(1) as f64);
    match counted / foreseen {
        ratio if ratio >= 1.5 => Some(format!("{ratio:.1} times too few")),
        ratio if ratio <= 1.0 / 1.5 => Some(format!("{:.1} times too many", 1.0 / ratio)),
        _ => None,
    }
}

/// Scans of the rows that an earlier stage has made come after the pipelines that made them: those that nobody else takes from, in
/// their order.
fn join_stages(pipelines: &mut [PipelineFacts], first: usize) {
    let mut ends: VecDeque<usize> = VecDeque::new();
    for (place, pipeline) in pipelines.iter_mut().enumerate().skip(first) {
        ends.retain(|end| !pipeline.inputs.contains(end));
        if pipeline.name.starts_with("scan rows")
            && let Some(end) = ends.pop_front()
        {
            pipeline.inputs.push(end);
        }
        ends.push_back(place);
    }
}

fn decision(choice: &Choice) -> Decision {
    let others = choice.values.iter().filter(|(value, _)| *value != choice.value);
    Decision {
        name: choice.qualified(),
        value: choice.value.into(),
        why: choice.why().into_owned(),
        others: others.map(|(value, lacks)| (value.to_string(), lacks.clone())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(name: &str, run_ns: u64, inputs: &[usize]) -> PipelineMetrics {
        PipelineMetrics { name: name.into(), run_ns, inputs: inputs.into(), ..PipelineMetrics::default() }
    }

    #[test]
    fn pipelines_come_after_what_they_take_from() {
        let pipelines = vec![
            pipeline("scan d → store", 1, &[]),
            pipeline("stored rows → index", 1, &[1]),
            pipeline("scan t → probe → sort", 2, &[1]),
            pipeline("scan rows → groups", 4, &[]),
        ];
        let part = QueryMetrics { pipelines, ..QueryMetrics::default() };
        let report = QueryReport::of_parts(&[part.clone(), part], Vec::new(), &Engine::new());
        let inputs: Vec<_> = report.pipelines.iter().map(|pipeline| pipeline.inputs.clone()).collect();
        assert_eq!(inputs, [vec![], vec![0], vec![1], vec![2], vec![], vec![4], vec![5], vec![6]]);
        assert_eq!(report.pipelines[3].share, "25.0 %");
        assert_eq!(report.kernel_ns(), 16);
    }

    #[test]
    fn estimates_say_how_far_they_are_off() {
        let off = |foreseen, counted| error_of(foreseen, counted).unwrap_or_default();
        assert_eq!(off(100, Some(140)), "");
        assert_eq!(off(100, Some(300)), "3.0 times too few");
        assert_eq!(off(100, Some(0)), "100.0 times too many");
        assert_eq!(off(0, Some(0)), "");
        assert_eq!(off(7, None), "");
    }

    #[test]
    fn a_query_that_did_nothing_has_a_report() {
        let report = QueryReport::of(&QueryTiming::default(), &Engine::new());
        assert_eq!(report, QueryReport::default());
        assert_eq!(report.to_text(false), "nothing was compiled\n");
    }
}
