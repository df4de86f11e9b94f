//! From a plan to pipelines: each has one source, steps, and one sink, and becomes one kernel (HorseQC, section 4).

mod actions;
mod body;
mod columns;
mod cut;
mod kernel;
mod program;
mod row;
mod selection;
mod speculation;

pub use columns::ColumnInfo;
pub(crate) use columns::of_expr as column_of;
pub(crate) mod states_of {
    //! The state declarations, for operators.
    pub(crate) use super::program::States;
}

pub use actions::{Counting, HostAction, Task, When};
pub use program::{
    CapacityClass, CompiledKernel, CompiledPipeline, Growth, OutputColumn, OutputLayout, OutputStorage,
    Program, Prune, Purpose, Rows, ScanInfo, Sorting, State,
};

use std::collections::BTreeSet;
use std::fmt;

use kelpie_kir::Target;

use crate::context::{Argument, Unsupported};
use crate::expr::Expr;
use crate::operator::aggregate::AggregateOperator;
use crate::operator::join::JoinOperator;
use crate::operator::materialize::Materialize;
use crate::operator::output::OutputOperator;
use crate::operator::sort::SortOperator;
use crate::plan::{Plan, Scan};
use crate::{MicroModel, Resolution};

/// Where the rows of a pipeline come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A table.
    Scan {
        /// Number of the scan in the query.
        scan: usize,
        /// What it reads.
        node: Scan,
    },
    /// The groups that an earlier pipeline made.
    Groups(AggregateOperator),
    /// All rows of a join's store, with the store's columns.
    Store(Box<JoinOperator>),
    /// The rows of a join's build side that its kind keeps.
    BuildRows(Box<JoinOperator>),
    /// What an earlier pipeline has materialised.
    Rows(Box<Materialize>),
    /// The rows of a sort, in order.
    Sorted(Box<SortOperator>),
}

/// An operator that passes rows on.
#[derive(Debug)]
pub(crate) enum Step {
    /// Keeps the rows where the predicate is true.
    Filter(Expr),
    /// Replaces the columns.
    Project(Vec<Expr>),
    /// The probe side of a join.
    Join(Box<JoinOperator>),
    /// Keeps the rows whose column may have a match in a join further on: a runtime filter.
    Prefilter(Box<JoinOperator>, usize),
}

/// Where the rows of a pipeline go.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Into the groups of an aggregation.
    Aggregate(AggregateOperator),
    /// Into the only group from the sums of blocks, which stand beside it.
    Reduce(AggregateOperator),
    /// Into a join's store.
    Build(Box<JoinOperator>),
    /// From a join's store into its index.
    Index(Box<JoinOperator>),
    /// From a join's store into the buckets of its index, which are counted.
    Fill(Box<JoinOperator>),
    /// Nowhere: marks the build rows that match.
    Mark(Box<JoinOperator>),
    /// Into memory, for the pipeline that continues this one.
    Rows(Box<Materialize>),
    /// Nowhere: counts the rows that each row of the source becomes.
    Count {
        /// State of one `u32` a row of the source.
        counts: usize,
        /// State of one `u64` that counts all of them, where that may be too many for a `u32`.
        rows: Option<usize>,
    },
    /// Into the rows of a sort.
    Sort(Box<SortOperator>),
    /// Into the result.
    Output(Box<OutputOperator>),
}

/// A pipeline before code generation.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub source: Source,
    pub steps: Vec<Step>,
    pub sink: Sink,
    /// Pipelines of one group fill the same states.
    pub group: usize,
    /// States that its first pipeline clears.
    pub zeroed: Vec<usize>,
    /// What of the scan need not be read.
    pub prunes: Vec<Prune>,
    /// Counts of build rows without one of which it need not run.
    pub skips: Vec<usize>,
    /// Its source is what the pipeline before it materialises.
    pub continues: bool,
    /// Where a dense sink is written in two kernels (A1): the state that takes the counts, one `u32` a row of the source.
    pub counts: Option<usize>,
    /// An upper bound of the rows that reach the sink.
    pub bound: u64,
    /// The sort that makes the order of the source.
    pub sorted: Option<Sorting>,
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Scan { node, .. } => write!(f, "scan {}", node.table)?,
            Source::Groups(_) => write!(f, "groups")?,
            Source::Store(_) => write!(f, "build side")?,
            Source::BuildRows(_) => write!(f, "build rows")?,
            Source::Rows(_) => write!(f, "rows")?,
            Source::Sorted(_) => write!(f, "sorted rows")?,
        }
        for step in &self.steps {
            match step {
                Step::Filter(_) => write!(f, " → filter")?,
                Step::Project(_) => write!(f, " → project")?,
                Step::Join(join) => write!(f, " → join {join}")?,
                Step::Prefilter(..) => write!(f, " → runtime filter")?,
            }
        }
        match &self.sink {
            Sink::Aggregate(operator) => write!(f, " → {operator}"),
            Sink::Reduce(_) => write!(f, " → reduce sums of blocks"),
            Sink::Build(_) => write!(f, " → build side"),
            Sink::Index(join) => write!(f, " → index ({})", join.index()),
            Sink::Fill(_) => write!(f, " → buckets"),
            Sink::Mark(join) => write!(f, " → join {join}"),
            Sink::Rows(_) => write!(f, " → rows"),
            Sink::Count { .. } => write!(f, " → count"),
            Sink::Sort(_) => write!(f, " → sort"),
            Sink::Output(_) => write!(f, " → result"),
        }
    }
}

/// Rows up to which a sort is left to the host: another pipeline costs more than that.
const HOST_SORT_ROWS: u64 = 4096;

/// What a caller may choose.
#[derive(Debug, Clone)]
pub struct Choices<'a> {
    /// How reductions are carried out.
    pub micro_model: MicroModel,
    /// How they are resolved locally.
    pub resolution: Resolution,
    /// The joins, by number, whose build side is known to have a key twice.
    pub duplicates: &'a BTreeSet<usize>,
    /// A sort on top of no more rows than this is left to the host; the default where absent.
    pub host_sort_rows: Option<u64>,
    /// Bytes of device memory that a direct-addressed table may take, where that is less than it may at best.
    pub direct_bytes: Option<u64>,
}

impl<'a> Choices<'a> {
    /// The defaults.
    pub fn new(micro_model: MicroModel, duplicates: &'a BTreeSet<usize>) -> Choices<'a> {
        let resolution = Resolution::default();
        Choices { micro_model, resolution, duplicates, host_sort_rows: None, direct_bytes: None }
    }
}

/// Compiles a plan without sorts, limits and scalar subqueries inside: those are the engine's. On top, the sort is
/// carried out or left to the engine ([`Program::sorting`]); of a limit, rows beyond it are left out and none skipped.
/// `scans` describes the plan's scans, in the order of a depth-first walk. `duplicates`: the joins, by number, whose
/// build side is known to have a key twice.
pub fn compile(
    plan: &Plan,
    scans: &[ScanInfo],
    target: &Target,
    micro_model: MicroModel,
    duplicates: &BTreeSet<usize>,
) -> Result<Program, Unsupported> {
    compile_with(plan, scans, target, &Choices::new(micro_model, duplicates))
}

/// As [`compile`].
pub fn compile_with(
    plan: &Plan,
    scans: &[ScanInfo],
    target: &Target,
    choices: &Choices<'_>,
) -> Result<Program, Unsupported> {
    let micro_model = choices.micro_model;
    crate::check::check(plan)?;
    let cut::Pipelines { mut states, pipelines: done, output } =
        cut::pipelines(plan, scans, target, choices)?;
    let mut used: BTreeSet<usize> = BTreeSet::new();
    let mut pipelines = Vec::new();
    states.of(Purpose::Store);
    // Last first: what no later pipeline reads is not stored.
    for (index, pipeline) in done.into_iter().enumerate().rev() {
        let name = format!("p{index}");
        let environment =
            kernel::Environment { scans, target, micro_model, resolution: choices.resolution, used: &used };
        let compiled = kernel::generate(&name, pipeline, &environment, &mut states)?;
        used.extend(compiled.sorting().into_iter().flat_map(|sorting| sorting.words.iter().copied()));
        used.extend(compiled.all_arguments().filter_map(|argument| match argument {
            Argument::State(state) => Some(*state),
            _ => None,
        }));
        pipelines.push(compiled);
    }
    pipelines.reverse();
    Ok(Program { pipelines, states: states.states, classes: states.classes, output })
}
