//! From a plan to pipelines: each has one source, steps, and one sink, and becomes one kernel (HorseQC, section 4).

mod activity;
mod block_vote;
mod body;
mod check;
mod columns;
mod cut;
mod exchanges;
mod fitting;
mod init;
mod kernel;
mod launches;
mod memory;
mod points;
mod row;
mod row_loop;
mod speculation;
#[cfg(test)]
mod tests;
mod variants;

pub use self::check::check;
pub use crate::choices::Choices;
pub use crate::layout::ColumnInfo;
pub use crate::program::{
    BlockRows, CapacityClass, Compaction, CompiledKernel, CompiledPipeline, Counting, Fill, Fitting, Growth,
    HostAction, InitStates, MultiColumnDistinct, OutputColumn, OutputLayout, OutputStorage, PipelineVariant,
    PlacedGroups, Program, Prune, Purpose, RangeQueue, RowCount, ScanInfo, SketchStates, SketchedTable,
    Sketching, SortForm, SortedText, Sorting, State, StrideStep, Strides, TableGrowth, Task, When, WordRanks,
};

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::Target;

use crate::calibration::Calibration;
use crate::context::Unsupported;
use crate::operator::roles::{Sink, Source, Step};
use crate::plan::Plan;
use crate::shape::{LaunchShape, ShapeChoices};
use crate::variant::{Chooser, Forced};
use crate::{MicroModel, Resolution};

/// A pipeline, planned: it never changes, and kernels are made of it.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub source: Arc<dyn Source>,
    pub steps: Vec<Arc<dyn Step>>,
    pub sink: Arc<dyn Sink>,
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
    /// The rows or groups that are thought to be made.
    pub foreseen: Option<u64>,
    /// The source's rows, at most, where the grid shares them out among its threads and each becomes one row at most.
    pub shared_out: Option<u64>,
    /// The sort that makes the order of the source.
    pub sorted: Option<Sorting>,
    /// What is known of its rows as a whole, for people.
    pub known: Vec<String>,
    /// What the engine does for it beside what its operators need.
    pub work: Work,
}

/// What the engine does for a pipeline beside what its operators need.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Rows of the source that it is launched over at a time.
    pub blocks: BlockRows,
    pub around: Vec<HostAction>,
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        for step in &self.steps {
            write!(f, " → {step}")?;
        }
        write!(f, " → {}", self.sink)
    }
}

/// Rows up to which a sort is left to the host: another pipeline costs more than that.
const HOST_SORT_ROWS: u64 = 4096;

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
    Ok(plan_with(plan, scans, target, choices)?.program)
}

/// As [`compile_with`], with what it takes to compile any of the pipelines anew.
pub fn plan_with(
    plan: &Plan,
    scans: &[ScanInfo],
    target: &Target,
    choices: &Choices<'_>,
) -> Result<Compilation, Unsupported> {
    crate::check::check(plan)?;
    let chooser = Chooser::new(choices.forced);
    let shape = &LaunchShape::new(target, &choices.shape).map_err(Unsupported)?;
    let cut::Pipelines { states, pipelines: planned, output, is_in_order } =
        cut::pipelines(plan, scans, shape, (choices, &chooser))?;
    let mut states = states;
    let memory = memory::plan(&planned, shape, &mut states);
    let fitting = fitting::of_pipelines(&planned, &states, shape);
    let recipe = Recipe {
        pipelines: planned,
        memory,
        fitting,
        target: target.clone(),
        shape: shape.clone(),
        asked: choices.shape,
        micro_model: choices.micro_model,
        resolution: choices.resolution,
        calibration: choices.calibration,
    };
    let pipelines = recipe.compile(&chooser, choices.rotation)?;
    let init = init::choose(&pipelines, &states, shape, &chooser)?;
    let genome = chooser.into_genome();
    let (states, classes) = (states.states, states.classes);
    let program = Program { pipelines, states, classes, init, output, is_in_order, genome };
    Ok(Compilation { program, recipe })
}

/// A program, and what its pipelines were made of.
#[derive(Debug)]
pub struct Compilation {
    /// Can be run.
    pub program: Program,
    /// Makes further variants of its pipelines.
    pub recipe: Recipe,
}

/// What a program's pipelines are made of: they are planned, their states are laid out, and any of them can be compiled anew.
#[derive(Debug)]
pub struct Recipe {
    pipelines: Vec<Pipeline>,
    memory: Vec<memory::Memory>,
    /// What each pipeline has the engine do where it is not known how large its arrays are.
    fitting: Vec<Vec<HostAction>>,
    target: Target,
    shape: LaunchShape,
    asked: ShapeChoices,
    micro_model: MicroModel,
    resolution: Resolution,
    calibration: Calibration,
}

impl Recipe {
    fn environment<'a>(&'a self, chooser: &'a Chooser<'a>) -> kernel::Environment<'a> {
        let Recipe { target, shape, asked, micro_model, resolution, calibration, .. } = self;
        let (micro_model, resolution) = (*micro_model, *resolution);
        kernel::Environment { target, shape, asked, micro_model, resolution, calibration, chooser }
    }

    /// All pipelines, each in the variant that is chosen for it and those of a rotation that are another one.
    fn compile(
        &self,
        chooser: &Chooser<'_>,
        rotation: &[Forced],
    ) -> Result<Vec<CompiledPipeline>, Unsupported> {
        let environment = self.environment(chooser);
        let all = self.pipelines.iter().zip(&self.memory).zip(&self.fitting).enumerate();
        let compiled = all.map(|(index, ((pipeline, memory), fitting))| {
            let mut compiled = kernel::generate(&format!("p{index}"), pipeline, memory, &environment)?;
            compiled.variant.add(fitting);
            for forced in rotation {
                let other = self.variant(index, forced)?;
                if compiled.variants().all(|known| known.kernel.module != other.kernel.module) {
                    compiled.others.push(other);
                }
            }
            Ok(compiled)
        });
        compiled.collect()
    }

    /// Compiles one pipeline, by number, under other forced choices. Only choices of how its rows are gone through are made again
    /// ([`Level::Chunk`](crate::variant::Level)): the other pipelines and the states stay as they are.
    pub fn variant(&self, index: usize, forced: &Forced) -> Result<PipelineVariant, Unsupported> {
        let (Some(pipeline), Some(memory)) = (self.pipelines.get(index), self.memory.get(index)) else {
            return Err(Unsupported::internal("a pipeline that is not in the program"));
        };
        let chooser = Chooser::new(forced);
        let environment = self.environment(&chooser);
        let mut variant = kernel::variant(&format!("p{index}"), pipeline, memory, &environment)?;
        variant.add(self.fitting.get(index).map_or(&[], Vec::as_slice));
        variant.genome = chooser.into_genome();
        Ok(variant)
    }
}
