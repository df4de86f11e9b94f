//! The experiments, and what each of them compares.

use super::algebra::Figure as Algebra;
use super::dogqc::Figure as Divergence;
use super::grouping::Figure;
use super::model::{Data, Measure, Model};
use super::tuner::Tuned;
use super::variants::Figure as Variants;
use crate::Workload;

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
    /// Operators as thousands of kernels (Rosenfeld et al.).
    Variants(Variants),
    /// The device's sort by itself.
    Sort,
    /// The tuner beside the rules.
    Tuner(Tuned),
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
        HORSEQC
            .into_iter()
            .chain(papers)
            .chain(divergence)
            .chain(algebra)
            .chain(Variants::ALL.map(Experiment::Variants))
            .chain([Experiment::Sort])
            .chain(Tuned::ALL.map(Experiment::Tuner))
    }

    /// Those that a name stands for: an experiment, or `groupby`, `dogqc`, `algebra`, `variants` or `tuner` for all whose names begin so.
    pub fn named(name: &str) -> Result<Vec<Experiment>, String> {
        match name {
            "groupby" => return Ok(Figure::ALL.map(Experiment::Grouping).to_vec()),
            "dogqc" => return Ok(Divergence::ALL.map(Experiment::Divergence).to_vec()),
            "algebra" => return Ok(Algebra::ALL.map(Experiment::Algebra).to_vec()),
            "tuner" => return Ok(Tuned::ALL.map(Experiment::Tuner).to_vec()),
            "variants" => return Ok(Variants::ALL.map(Experiment::Variants).to_vec()),
            _ => {}
        }
        let found = Experiment::all().find(|experiment| experiment.name() == name);
        found.map(|experiment| vec![experiment]).ok_or_else(|| {
            let known: Vec<_> = Experiment::all().map(Experiment::name).collect();
            format!(
                "unknown experiment `{name}`: {}, and groupby, dogqc, algebra, variants and tuner (all that begin so) are known",
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
            Experiment::Variants(figure) => figure.name(),
            Experiment::Sort => "sort",
            Experiment::Tuner(tuned) => tuned.name(),
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
            Experiment::Variants(figure) => figure.title(),
            Experiment::Sort => "Sort of keys with row numbers: size, width and order",
            Experiment::Tuner(tuned) => tuned.title(),
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
            Experiment::Variants(figure) => figure.paper(),
            Experiment::Sort => "none: beside the vendor's library",
            Experiment::Tuner(_) => "Rosenfeld et al., section 3, on whole queries",
        }
    }

    /// What its plot shows.
    pub fn measure(self) -> Measure {
        match self {
            Experiment::StarJoin | Experiment::EndToEnd => Measure::Total,
            Experiment::Passes => Measure::Passes,
            Experiment::Divergence(figure) => figure.measure(),
            Experiment::Algebra(_) | Experiment::Variants(_) => Measure::Figure,
            _ => Measure::Kernels,
        }
    }

    /// What its plot shows where that is none of the measures.
    pub(super) fn measured(self) -> &'static str {
        match self {
            Experiment::Algebra(figure) => figure.measured(),
            Experiment::Variants(figure) => figure.measured(),
            _ => "",
        }
    }

    /// What the positions of its points are.
    pub(super) fn positions(self) -> &'static str {
        match self {
            Experiment::Selection | Experiment::SingleAggregate => "selectivity",
            Experiment::Groups => "groups",
            Experiment::Grouping(figure) => figure.positions(),
            Experiment::Divergence(figure) => figure.positions(),
            Experiment::Algebra(figure) => figure.positions(),
            Experiment::Variants(figure) => figure.positions(),
            Experiment::StarJoin => "scale factor",
            Experiment::Sort => "rows",
            _ => "query",
        }
    }

    /// The data that it needs.
    pub(super) fn data(self) -> &'static [Data] {
        match self {
            Experiment::Tpch | Experiment::EndToEnd => &[Data::Workload(Workload::Tpch)],
            Experiment::Passes => &[Data::Workload(Workload::Ssb), Data::Workload(Workload::Tpch)],
            Experiment::Grouping(_) => &[Data::Grouping],
            Experiment::Divergence(figure) => figure.data(),
            Experiment::Algebra(_) | Experiment::Variants(_) | Experiment::Sort | Experiment::Tuner(_) => &[],
            _ => &[Data::Workload(Workload::Ssb)],
        }
    }

    /// Whether its plot is a map, of which each series is a row.
    pub(super) fn is_map(self) -> bool {
        match self {
            Experiment::Variants(figure) => figure.is_map(),
            _ => self == Experiment::Grouping(Figure::Grids),
        }
    }

    /// Whether bytes are counted at each point. Those of the papers on grouping and divergence compare times only, at many points
    /// of much data.
    pub(super) fn counts_bytes(self) -> bool {
        !matches!(
            self,
            Experiment::Grouping(_) | Experiment::Divergence(_) | Experiment::Sort | Experiment::Tuner(_)
        )
    }

    /// Whether other engines stand beside.
    pub(super) fn has_peers(self) -> bool {
        matches!(self, Experiment::EndToEnd | Experiment::Divergence(Divergence::EndToEnd))
    }

    /// Whether the lanes that have rows at each step are counted, where the device does that.
    pub(super) fn profiles_lanes(self) -> bool {
        matches!(self, Experiment::Divergence(figure) if figure.profiles_lanes())
    }

    /// The execution models that it compares.
    pub(super) fn models(self) -> Vec<Model> {
        let micro = |names: &[&str]| names.iter().map(|name| Model::micro(name)).collect();
        match self {
            Experiment::Selection => {
                micro(&["multi_pass", "pipelined", "resolution:simd", "resolution:work_efficient"])
            }
            Experiment::Groups => micro(&[
                "operator_at_a_time", "multi_pass", "pipelined", "resolution:simd",
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
            Experiment::Algebra(_) | Experiment::Variants(_) | Experiment::Sort | Experiment::Tuner(_) => {
                Vec::new()
            }
        }
    }
}
