//! From a pipeline to its kernel: one compound kernel that does everything, or, where a dense write is resolved by kernels
//! of their own (HorseQC, Table 4, A1), one that counts and one that writes.

use kelpie_kir::{Builder, Target};

use super::Pipeline;
use super::body::{Body, source_rows};
use super::launches::shared_bytes;
use super::memory::{CountMemory, Memory};
use super::row_loop::TurnRows;
use super::variants::ChunkVariants;
use crate::calibration::Calibration;
use crate::context::{Argument, Context, Unsupported};
use crate::operator::count::CountRows;
use crate::operator::queue::Queue;
use crate::operator::roles::Sink;
use crate::program::{
    CompiledKernel, CompiledPipeline, Counting, HostAction, PipelineVariant, RangeQueue, RowCount, Sketching,
    Task, When,
};
use crate::shape::{LaunchShape, ShapeChoices};
use crate::table::places::DenseTarget;
use crate::variant::axes::WritePlaces;
use crate::variant::{Chooser, Genome};
use crate::{MicroModel, Resolution};

/// What code generation needs beside the pipeline.
pub(crate) struct Environment<'a> {
    pub target: &'a Target,
    /// The shape of launches where nothing else is chosen, and what the caller asked of it.
    pub shape: &'a LaunchShape,
    pub asked: &'a ShapeChoices,
    pub micro_model: MicroModel,
    pub resolution: Resolution,
    pub calibration: &'a Calibration,
    pub chooser: &'a Chooser<'a>,
}

/// Makes a pipeline with the variant that is chosen for it.
pub(crate) fn generate(
    name: &str,
    pipeline: &Pipeline,
    memory: &Memory,
    environment: &Environment<'_>,
) -> Result<CompiledPipeline, Unsupported> {
    let sink = &pipeline.sink;
    Ok(CompiledPipeline {
        name: pipeline.to_string(),
        known: pipeline.known.clone(),
        variant: variant(name, pipeline, memory, environment)?,
        others: Vec::new(),
        rows: sink.own_rows().unwrap_or_else(|| pipeline.source.rows()),
        group: pipeline.group,
        continues: pipeline.continues,
        blocks: pipeline.work.blocks,
        prunes: pipeline.prunes.clone(),
        produced: sink.needs().produced,
        foreseen: pipeline.foreseen,
        keeps_text: sink.keeps_text(),
        sums: pipeline.source.sums(),
    })
}

/// Generates the kernels of the variant that is chosen for a pipeline.
pub(crate) fn variant(
    name: &str,
    pipeline: &Pipeline,
    memory: &Memory,
    environment: &Environment<'_>,
) -> Result<PipelineVariant, Unsupported> {
    let is_counted = pipeline.counts.is_some() && pipeline.sink.target().is_some();
    let chosen = ChunkVariants::choose(name, pipeline, is_counted, environment)?;
    let generator = Generator { pipeline, memory, environment, variants: &chosen };
    let counting = counting(name, &generator)?;
    let kernel = generator.kernel(name, &*pipeline.sink, memory.morsels, counting.as_ref())?;
    let sink = &pipeline.sink;
    let needs = sink.needs();
    let mut variant = PipelineVariant {
        kernel,
        around: actions_before(pipeline, memory, counting),
        genome: Genome::default(),
    };
    if let Some(sketching) = generator.sketching(name)? {
        let task = Task::Sketch(Box::new(sketching));
        variant.around.push(HostAction { when: When::BeforeLaunch, task });
    }
    if let Some(queue) = generator.queue() {
        variant.around.extend(actions_of_queue(queue.states));
    }
    let chunks = sink.target().and_then(|target| target.chunks);
    if let Some(chunks) = chunks.filter(|_| chosen.places == WritePlaces::Chunks) {
        variant.around.extend(chunks.around());
    }
    variant.around.extend(needs.around);
    variant.around.extend(pipeline.work.around.iter().cloned());
    let makes_text = variant.all_arguments().any(|argument| matches!(argument, Argument::Heap(_)));
    if makes_text {
        variant.around.push(HostAction { when: When::OnGrow, task: Task::GrowHeap });
    }
    variant.around.sort_by_key(|action| action.when);
    Ok(variant)
}

/// What the engine does around the kernel whatever its sink is.
fn actions_before(pipeline: &Pipeline, memory: &Memory, counting: Option<Counting>) -> Vec<HostAction> {
    let one = |when, task| HostAction { when, task };
    let mut around: Vec<HostAction> =
        pipeline.sorted.iter().map(|sorting| one(When::BeforeGroup, Task::Sort(sorting.clone()))).collect();
    around.extend(HostAction::each(When::BeforeRun, pipeline.zeroed.clone(), Task::Clear));
    around.extend(HostAction::each(When::BeforeChain, pipeline.skips.clone(), Task::SkipIfEmpty));
    let counters = memory.count.iter().flat_map(|count| count.morsels.into_iter().chain(count.rows));
    let restarted = memory.morsels.into_iter().chain(counters).collect();
    around.extend(HostAction::each(When::BeforeLaunch, restarted, Task::Clear));
    if let Some(counting) = counting {
        let total = counting.total;
        around.push(one(When::BeforeLaunch, Task::Count(Box::new(counting))));
        around.push(one(When::AfterLaunch, Task::Advance(total)));
    }
    around
}

/// What the engine does where long ranges wait for all warps.
fn actions_of_queue(queue: RangeQueue) -> [HostAction; 3] {
    [
        HostAction { when: When::BeforeGroup, task: Task::Clear(queue.asked) },
        HostAction { when: When::BeforeLaunch, task: Task::Clear(queue.pieces) },
        HostAction { when: When::AfterLaunch, task: Task::Drain(queue) },
    ]
}

/// How the places of rows are found where they are counted before; with the kernel that counts, where there is something to
/// count.
fn counting(name: &str, generator: &Generator<'_>) -> Result<Option<Counting>, Unsupported> {
    let Generator { pipeline, memory, .. } = generator;
    let (Some(_), Some(target)) = (pipeline.counts, pipeline.sink.target()) else { return Ok(None) };
    let DenseTarget { total, class, limit, .. } = target;
    let is_counted = matches!(pipeline.source.rows(), RowCount::Counted(_));
    let counts_every_row = !is_counted && pipeline.source.parts().is_none();
    let Some(CountMemory { counts, rows, morsels }) = memory.count else {
        let (kernel, counts, rows) = (None, None, None);
        return Ok(Some(Counting { kernel, counts, counts_every_row, rows, total, class, limit }));
    };
    let kernel = generator.kernel(&format!("{name}_count"), &CountRows { counts, rows }, morsels, None)?;
    let (kernel, counts) = (Some(kernel), Some(counts));
    Ok(Some(Counting { kernel, counts, counts_every_row, rows, total, class, limit }))
}

struct Generator<'a> {
    pipeline: &'a Pipeline,
    memory: &'a Memory,
    environment: &'a Environment<'a>,
    variants: &'a ChunkVariants<'a>,
}

impl Generator<'_> {
    /// Where long ranges wait for all warps, if they do.
    fn queue(&self) -> Option<Queue> {
        let longest = self.variants.points.longest?;
        self.memory.queue.map(|states| Queue { states, longest })
    }

    /// The sketch of the sizes of the sink's hash tables, where one is made: by the pipeline that puts the first entries in, if it begins
    /// with a source of its own. Not where long ranges wait for a second launch.
    fn sketching(&self, name: &str) -> Result<Option<Sketching>, Unsupported> {
        let is_first = !self.pipeline.continues && !self.pipeline.zeroed.is_empty();
        let Some(sketch) = self.pipeline.sink.sketch().filter(|_| is_first && self.queue().is_none()) else {
            return Ok(None);
        };
        let states = sketch.states().clone();
        let kernel = self.emit(&format!("{name}_sketch"), sketch.sink(), states.morsels, None)?;
        // Steps that need most of a block's memory leave too little for registers.
        let fits = shared_bytes(&kernel.module) <= u64::from(kernel.shape.shared_bytes);
        Ok(fits.then_some(Sketching { kernel, states }))
    }

    /// A kernel that brings the pipeline's rows to a sink.
    fn kernel(
        &self,
        name: &str,
        sink: &dyn Sink,
        morsels: Option<usize>,
        counting: Option<&Counting>,
    ) -> Result<CompiledKernel, Unsupported> {
        let kernel = self.emit(name, sink, morsels, counting)?;
        let (shared, most) = (shared_bytes(&kernel.module), kernel.shape.shared_bytes);
        match shared > u64::from(most) {
            true => Err(Unsupported(format!("{shared} bytes of shared memory, where a block has {most}"))),
            false => Ok(kernel),
        }
    }

    /// As [`Generator::kernel`], whatever memory it takes.
    fn emit(
        &self,
        name: &str,
        sink: &dyn Sink,
        morsels: Option<usize>,
        counting: Option<&Counting>,
    ) -> Result<CompiledKernel, Unsupported> {
        let mut builder = Builder::new();
        builder.begin_kernel(name);
        let shape = self.variants.shape.clone();
        let mut cx = Context::shaped(&mut builder, self.environment.target, shape.clone());
        let queue = self.queue();
        let body = Body {
            pipeline: self.pipeline,
            rows: source_rows(&mut cx, self.pipeline, queue),
            sink,
            variants: self.variants,
            needed: &self.memory.needed,
            morsels,
            queue,
        };
        body.generate(&mut cx, counting)?;
        cx.check_possible()?;
        let arguments = cx.into_arguments();
        builder.end_kernel();
        let module = builder.finish().map_err(Unsupported::internal)?;
        let thread_rows = match self.variants.row_loop.turn_rows() {
            TurnRows::Wide => u64::MAX,
            _ => self.pipeline.rows_of_thread(&shape),
        };
        Ok(CompiledKernel { module, name: name.into(), arguments, shape, thread_rows })
    }
}
