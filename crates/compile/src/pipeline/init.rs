//! INIT: which states can be made empty together before a query's first kernel (Karnagel et al., section 3: the table is initialised, then
//! filled, then read). The empty state of everything that kernels share is zero in all bytes, so that a fill does it; but a fill an
//! array is an operation of the device each, which small queries notice: a star join has some three a dimension.
//!
//! On a CPU a fill is no launch, and nothing is to be gained.

use std::collections::BTreeSet;

use crate::context::{Argument, Unsupported};
use crate::program::{CompiledPipeline, Growth, InitStates, PipelineVariant, States, Task, When};
use crate::shape::LaunchShape;
use crate::variant::Chooser;
use crate::variant::axes::InitForm;

/// Chooses how the states of some pipelines become empty.
pub(super) fn choose(
    pipelines: &[CompiledPipeline],
    states: &States,
    shape: &LaunchShape,
    chooser: &Chooser<'_>,
) -> Result<InitStates, Unsupported> {
    let states = candidates(pipelines, states);
    let rule = (InitForm::Each, "what one operation less takes is not known");
    let form = chooser.choose("states", rule, |form| match form {
        InitForm::Each => Ok(()),
        _ if shape.is_serial() => Err("a CPU fills without a launch".into()),
        _ if states.is_empty() => Err("there is no table whose size is known before".into()),
        InitForm::Kernel => Ok(()),
    })?;
    Ok(InitStates { form, states })
}

/// The states that a group of pipelines clears before it runs, which none before it uses, and whose size does not follow from what
/// runs before.
fn candidates(pipelines: &[CompiledPipeline], states: &States) -> Vec<usize> {
    // What actions take as a whole has a buffer of its own.
    let mut used: BTreeSet<usize> = tasks(pipelines).flat_map(taken).collect();
    let mut found = Vec::new();
    let moved = moved_classes(pipelines);
    for group in pipelines.chunk_by(|a, b| a.group == b.group) {
        let is_sized = |state: usize| {
            states.states.get(state).is_some_and(|declared| {
                let growth = states.classes.get(declared.class).map(|class| class.growth);
                matches!(growth, Some(Growth::Fixed | Growth::Table(_))) && !moved.contains(&declared.class)
            })
        };
        for state in group.iter().flat_map(|pipeline| pipeline.variant.cleared()) {
            if is_sized(state) && used.insert(state) {
                found.push(state);
            }
        }
        used.extend(group.iter().flat_map(states_of));
    }
    found
}

fn tasks(pipelines: &[CompiledPipeline]) -> impl Iterator<Item = &Task> {
    let variants = pipelines.iter().flat_map(CompiledPipeline::variants);
    variants.flat_map(|variant| &variant.around).map(|action| &action.task)
}

/// The states that an action takes as a whole.
fn taken(task: &Task) -> Vec<usize> {
    match task {
        Task::PrefixSum(state) => vec![*state],
        Task::Rank(words) => vec![words.bits, words.ranks],
        _ => Vec::new(),
    }
}

/// Classes whose arrays the engine makes, takes as a whole or exchanges.
fn moved_classes(pipelines: &[CompiledPipeline]) -> BTreeSet<usize> {
    let mut classes = BTreeSet::new();
    for task in tasks(pipelines) {
        match task {
            Task::Fit(fitting) => _ = classes.insert(fitting.class),
            Task::Stride(_, strides) => classes.extend([strides.partial.class, strides.merged.class]),
            _ => {}
        }
    }
    classes
}

/// The states that a pipeline's kernels and the engine's actions around them use.
fn states_of(pipeline: &CompiledPipeline) -> Vec<usize> {
    let arguments =
        pipeline.variants().flat_map(PipelineVariant::kernels).flat_map(|kernel| &kernel.arguments);
    let of_kernels = arguments.filter_map(|argument| match argument {
        Argument::State(state) => Some(*state),
        _ => None,
    });
    let of_actions = pipeline.variants().flat_map(|variant| &variant.around).flat_map(|action| {
        match (&action.task, action.when) {
            (Task::Clear(_), When::BeforeRun) => Vec::new(),
            (Task::Clear(state), _) => vec![*state],
            (task, _) => taken(task),
        }
    });
    of_kernels.chain(of_actions).collect()
}
