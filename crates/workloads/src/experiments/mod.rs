//! The experiments of HorseQC (Funke et al., SIGMOD 2018, sections 8.4 to 8.9, appendix G, tables 1 and 3): the same queries
//! under different execution models, with the floors that memory and link set. Those of Karnagel et al. (`grouping`): one
//! grouping under different variants. Those of DogQC (`dogqc`): what leaves lanes idle, and what balances them. And those of Diamos et al.
//! (`algebra`): sorted relational algebra by itself.
//!
//! Kernel times are taken in runs without the meter, bytes in one run with it.

mod algebra;
mod cases;
mod dogqc;
mod findings;
mod grouping;
mod lab;
mod memory;
mod panels;
mod plot;
mod point;
mod sorts;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

pub use self::algebra::Figure as Algebra;
pub use self::dogqc::Figure as Divergence;
pub use self::findings::{DataReport, DeviceReport, Findings};
pub use self::grouping::Figure;
use self::lab::{Data, Lab, Model};
pub use self::point::{Bytes, Point, StepLanes};
use crate::bench::PeerKind;
use crate::{Progress, Workload};

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Experiment {
    /// 1: a selection and projection over selectivities (section 8.4, figure 17).
    Selection,
    /// 2: sums in 2 to 16384 groups (section 8.5, figure 18).
    Groups,
    /// 3: the Star Schema Benchmark (section 8.6, figure 19).
    Ssb,
    /// 4: TPC-H (section 8.7, figure 20).
    Tpch,
    /// 5: a star join, streamed in blocks, over scale factors (section 8.8, figure 21).
    StarJoin,
    /// 6: TPC-H from SQL to rows, beside other engines (section 8.9, figure 22).
    EndToEnd,
    /// A single sum over selectivities (appendix G.1, figure 27).
    SingleAggregate,
    /// Passes over memory per query (section 2.3, table 1).
    Passes,
    /// Time, throughput and memory bandwidth per query (appendix G.2, table 3).
    SsbMetrics,
    /// A grouping under variants (Karnagel et al.).
    Grouping(Figure),
    /// Lanes that idle, and what balances them (DogQC).
    Divergence(Divergence),
    /// Sorted relational algebra (Diamos et al.).
    Algebra(Algebra),
    /// The device's sort by itself.
    Sort,
}

/// What is measured of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Time of all kernels.
    Kernels,
    /// Time of one pipeline's kernel.
    Pipeline,
    /// Time from SQL to rows.
    Total,
    /// Bytes accessed in memory to bytes of input and output.
    Passes,
    /// What else the experiment is about, as it says itself.
    Figure,
}

/// Those of HorseQC.
const HORSEQC: [Experiment; 9] = [
    Experiment::Selection,
    Experiment::Groups,
    Experiment::Ssb,
    Experiment::Tpch,
    Experiment::StarJoin,
    Experiment::EndToEnd,
    Experiment::SingleAggregate,
    Experiment::Passes,
    Experiment::SsbMetrics,
];

impl Experiment {
    /// Every experiment.
    pub fn all() -> impl Iterator<Item = Experiment> {
        let papers = Figure::ALL.map(Experiment::Grouping).into_iter();
        let divergence = Divergence::ALL.map(Experiment::Divergence);
        let algebra = Algebra::ALL.map(Experiment::Algebra);
        HORSEQC.into_iter().chain(papers).chain(divergence).chain(algebra).chain([Experiment::Sort])
    }

    /// Those that a name stands for: an experiment, or `groupby`, `dogqc` or `algebra` for all whose names begin so.
    pub fn named(name: &str) -> Result<Vec<Experiment>, String> {
        match name {
            "groupby" => return Ok(Figure::ALL.map(Experiment::Grouping).to_vec()),
            "dogqc" => return Ok(Divergence::ALL.map(Experiment::Divergence).to_vec()),
            "algebra" => return Ok(Algebra::ALL.map(Experiment::Algebra).to_vec()),
            _ => {}
        }
        let found = Experiment::all().find(|experiment| experiment.name() == name);
        found.map(|experiment| vec![experiment]).ok_or_else(|| {
            let known: Vec<_> = Experiment::all().map(Experiment::name).collect();
            format!(
                "unknown experiment `{name}`: {}, and groupby, dogqc and algebra (all that begin so) are known",
                known.join(", ")
            )
        })
    }

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Experiment::Selection => "horseqc-1",
            Experiment::Groups => "horseqc-2",
            Experiment::Ssb => "horseqc-3",
            Experiment::Tpch => "horseqc-4",
            Experiment::StarJoin => "horseqc-5",
            Experiment::EndToEnd => "horseqc-6",
            Experiment::SingleAggregate => "single-aggregate",
            Experiment::Passes => "table-1",
            Experiment::SsbMetrics => "table-3",
            Experiment::Grouping(figure) => figure.name(),
            Experiment::Divergence(figure) => figure.name(),
            Experiment::Algebra(figure) => figure.name(),
            Experiment::Sort => "sort",
        }
    }

    /// What it shows.
    pub fn title(self) -> &'static str {
        match self {
            Experiment::Selection => "Selection and projection: how write positions are found",
            Experiment::Groups => "Grouped sums: contention and pre-aggregation",
            Experiment::Ssb => "Star Schema Benchmark: kernels",
            Experiment::Tpch => "TPC-H: kernels",
            Experiment::StarJoin => "Star join of SSB 3.1 in blocks from host memory",
            Experiment::EndToEnd => "TPC-H from SQL to rows",
            Experiment::SingleAggregate => "A single sum: how it is reduced",
            Experiment::Passes => "Passes over memory of operators at a time",
            Experiment::SsbMetrics => "Star Schema Benchmark: resolution, work-efficient",
            Experiment::Grouping(figure) => figure.title(),
            Experiment::Divergence(figure) => figure.title(),
            Experiment::Algebra(figure) => figure.title(),
            Experiment::Sort => "Sort of keys with row numbers: size, width and order",
        }
    }

    /// Where the paper has it.
    pub fn paper(self) -> &'static str {
        match self {
            Experiment::Selection => "HorseQC, section 8.4, figures 16 and 17",
            Experiment::Groups => "HorseQC, section 8.5, figures 18 and 26",
            Experiment::Ssb => "HorseQC, section 8.6, figure 19",
            Experiment::Tpch => "HorseQC, section 8.7, figure 20",
            Experiment::StarJoin => "HorseQC, section 8.8, figure 21",
            Experiment::EndToEnd => "HorseQC, section 8.9, figure 22",
            Experiment::SingleAggregate => "HorseQC, appendix G.1, figure 27",
            Experiment::Passes => "HorseQC, section 2.3, table 1",
            Experiment::SsbMetrics => "HorseQC, appendix G.2, table 3",
            Experiment::Grouping(figure) => figure.paper(),
            Experiment::Divergence(figure) => figure.paper(),
            Experiment::Algebra(figure) => figure.paper(),
            Experiment::Sort => "none: beside the vendor's library",
        }
    }

    /// What its plot shows.
    pub fn measure(self) -> Measure {
        match self {
            Experiment::StarJoin | Experiment::EndToEnd => Measure::Total,
            Experiment::Passes => Measure::Passes,
            Experiment::Divergence(figure) => figure.measure(),
            Experiment::Algebra(_) => Measure::Figure,
            _ => Measure::Kernels,
        }
    }

    /// What its plot shows where that is none of the measures.
    fn measured(self) -> &'static str {
        match self {
            Experiment::Algebra(figure) => figure.measured(),
            _ => "",
        }
    }

    /// What the positions of its points are.
    fn positions(self) -> &'static str {
        match self {
            Experiment::Selection | Experiment::SingleAggregate => "selectivity",
            Experiment::Groups => "groups",
            Experiment::Grouping(figure) => figure.positions(),
            Experiment::Divergence(figure) => figure.positions(),
            Experiment::Algebra(figure) => figure.positions(),
            Experiment::StarJoin => "scale factor",
            Experiment::Sort => "rows",
            _ => "query",
        }
    }

    /// The data that it needs.
    fn data(self) -> &'static [Data] {
        match self {
            Experiment::Tpch | Experiment::EndToEnd => &[Data::Workload(Workload::Tpch)],
            Experiment::Passes => &[Data::Workload(Workload::Ssb), Data::Workload(Workload::Tpch)],
            Experiment::Grouping(_) => &[Data::Grouping],
            Experiment::Divergence(figure) => figure.data(),
            Experiment::Algebra(_) => &[],
            Experiment::Sort => &[],
            _ => &[Data::Workload(Workload::Ssb)],
        }
    }

    /// Whether bytes are counted at each point. Those of the papers on grouping and divergence compare times only, at many points
    /// of much data.
    fn counts_bytes(self) -> bool {
        !matches!(self, Experiment::Grouping(_) | Experiment::Divergence(_) | Experiment::Sort)
    }

    /// Whether other engines stand beside.
    fn has_peers(self) -> bool {
        matches!(self, Experiment::EndToEnd | Experiment::Divergence(Divergence::EndToEnd))
    }

    /// Whether the lanes that have rows at each step are counted, where the device does that.
    fn profiles_lanes(self) -> bool {
        matches!(self, Experiment::Divergence(figure) if figure.profiles_lanes())
    }

    /// The execution models that it compares.
    fn models(self) -> Vec<Model> {
        let micro = |names: &[&str]| names.iter().map(|name| Model::micro(name)).collect();
        match self {
            Experiment::Selection => {
                micro(&["multi_pass", "pipelined", "resolution:simd", "resolution:work_efficient"])
            }
            Experiment::Groups => micro(&[
                "operator_at_a_time",
                "multi_pass",
                "pipelined",
                "resolution:simd",
                "resolution:work_efficient",
            ]),
            Experiment::Ssb | Experiment::Tpch => {
                micro(&["operator_at_a_time", "multi_pass", "resolution:simd"])
            }
            Experiment::StarJoin => ["0.5MB", "2MB", "8MB"].map(Model::blocks).to_vec(),
            Experiment::EndToEnd => vec![Model::macro_model("auto"), Model::macro_model("batch")],
            Experiment::SingleAggregate => {
                micro(&["operator_at_a_time", "multi_pass", "resolution:simd", "resolution:work_efficient"])
            }
            Experiment::Passes => micro(&["operator_at_a_time"]),
            Experiment::SsbMetrics => micro(&["resolution:work_efficient"]),
            Experiment::Grouping(figure) => figure.models(),
            Experiment::Divergence(figure) => figure.models(),
            Experiment::Algebra(_) => Vec::new(),
            Experiment::Sort => Vec::new(),
        }
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct ExperimentOptions {
    /// Which experiments: not none.
    pub experiments: Vec<Experiment>,
    /// The folder of the folders with data (`ssb-sf1`, ...), which are made where they are missing. Tables in memory need none.
    pub data: PathBuf,
    /// Scale factors; experiments but the fifth take the first. That of groupings is 335 million rows, that of joins of keys 10 million; that of sorts is 100 million keys at most.
    pub scales: Vec<f64>,
    /// Names of queries, or positions (`0.5`); all where empty.
    pub only: Vec<String>,
    /// Measured runs, after one that warms up.
    pub runs: usize,
    /// A run that takes longer is given up.
    pub time_limit: Duration,
    /// Threads of Kelpie and of the peers.
    pub threads: usize,
    /// Engines to compare with, where times are from SQL to rows.
    pub against: Vec<PeerKind>,
    /// Settings of Kelpie's session.
    pub settings: Vec<(String, String)>,
}

/// Hears of every step.
pub trait Listener: Sync {
    /// What is done now.
    fn step(&self, step: &str);
    /// How far the data is.
    fn data(&self, progress: Progress);
}

/// Runs experiments one after the other; what each found.
pub async fn run(options: &ExperimentOptions, listener: &dyn Listener) -> Result<Vec<Findings>> {
    let mut all = Vec::new();
    // Data in memory is kept for the next experiment.
    let mut kept: Option<(Data, Lab<'_>)> = None;
    for &experiment in &options.experiments {
        let mut findings = Findings::new(experiment, options.runs);
        match experiment {
            Experiment::Algebra(figure) => measure_algebra(figure, options, &mut findings, listener)?,
            Experiment::Sort => sorts::measure(options, &mut findings, listener)?,
            _ => {}
        }
        let scales = match experiment {
            Experiment::StarJoin => options.scales.as_slice(),
            _ => options.scales.get(..1).unwrap_or_default(),
        };
        for &scale in scales {
            for &data in experiment.data() {
                let mut lab = match kept.take() {
                    Some((known, lab)) if known == data => lab,
                    _ => Lab::open(options, data, scale, listener).await?,
                };
                measure(experiment, (&mut lab, data, scale), &mut findings, listener).await?;
                kept = data.is_in_memory().then_some((data, lab));
            }
        }
        findings.finish();
        all.push(findings);
    }
    Ok(all)
}

/// Measures a figure of sorted algebra.
fn measure_algebra(
    figure: Algebra,
    options: &ExperimentOptions,
    findings: &mut Findings,
    listener: &dyn Listener,
) -> Result<()> {
    let device = options.settings.iter().rev().find(|(name, _)| name == "kelpie.device");
    let settings = algebra::Settings {
        device: device.map_or("auto", |(_, value)| value),
        threads: options.threads,
        scale: options.scales.first().copied().unwrap_or(1.0),
        runs: options.runs,
        only: &options.only,
        step: &|step| listener.step(step),
    };
    let measured = algebra::measure(figure, &settings)?;
    let (name, memory_gb_per_s, link_gb_per_s) = measured.device;
    findings.device = Some(DeviceReport { name, memory_gb_per_s, link_gb_per_s });
    findings.points.extend(measured.shown.into_iter().map(|shown| Point {
        figure: Some(shown.figure),
        ..Point::new(&shown.series, &shown.x, shown.position)
    }));
    Ok(())
}

/// Measures the cases of an experiment on one data set.
async fn measure(
    experiment: Experiment,
    (lab, data, scale): (&mut Lab<'_>, Data, f64),
    findings: &mut Findings,
    listener: &dyn Listener,
) -> Result<()> {
    findings.data.push(lab.describe(scale).await?);
    lab.start_peers(experiment, findings).await;
    for case in cases::of(experiment, data, scale, lab.only()) {
        let models = if case.models.is_empty() { experiment.models() } else { case.models.clone() };
        for model in models {
            listener.step(&format!("{} {}, {}", experiment.positions(), case.label, model.name));
            let point = lab.measure(experiment, &case, &model).await;
            findings.add(point, lab.device());
        }
        for point in lab.peers(&case, listener).await {
            findings.add(point, None);
        }
        findings.points.extend(cases::of_the_paper(experiment, &case));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;

    impl Listener for Silent {
        fn step(&self, _: &str) {}
        fn data(&self, _: Progress) {}
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_that_takes_too_long_is_given_up_and_the_next_goes_on() {
        let data = tempfile::tempdir().unwrap();
        let options = ExperimentOptions {
            experiments: vec![Experiment::SsbMetrics],
            data: data.path().into(),
            scales: vec![0.001],
            only: vec!["1.1".into(), "2.1".into()],
            runs: 1,
            time_limit: Duration::from_nanos(1),
            threads: 1,
            against: Vec::new(),
            settings: vec![("kelpie.device".into(), "cpu".into())],
        };
        let findings = run(&options, &Silent).await.unwrap().remove(0);
        assert_eq!(findings.points.len(), 2);
        for point in &findings.points {
            assert!(point.note.as_ref().unwrap().contains("given up after"), "{point:?}");
        }
        assert!(findings.to_text().contains("left out: query 2.1"), "{}", findings.to_text());
        let options = ExperimentOptions { time_limit: Duration::from_secs(60), ..options };
        let findings = run(&options, &Silent).await.unwrap().remove(0);
        assert!(findings.notes.is_empty(), "{:?}", findings.notes);
        let text = findings.to_text();
        assert!(text.contains("memory, GB/s") && text.contains("input, GB/s"), "{text}");
    }
}
