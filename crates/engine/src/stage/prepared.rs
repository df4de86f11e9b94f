//! A program with its kernels on one device, ready to run any number of times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use kelpie_compile::context::Argument;
use kelpie_compile::pipeline::{CompiledPipeline, Program};
use kelpie_device::Device;
use parking_lot::Mutex;

use super::foresight::Foresight;
use super::kernels::{KernelVariants, PipelineKernels};
use super::launcher::Constants;
use super::page::Layout;
use crate::error::EngineError;
use crate::learned::{Fingerprint, Learned};
use crate::primitives::KernelsByName;
use crate::{identity, sorting};
use kelpie_compile::variant::Genome;

/// A program with its kernels on one device.
#[derive(Debug)]
pub struct Prepared {
    /// What it was compiled for.
    pub device: Weak<dyn Device>,
    pub program: Program,
    /// The variants that were chosen for it.
    pub genome: Arc<Genome>,
    /// Of each pipeline, those of each of its variants.
    pub kernels: Vec<Vec<Arc<PipelineKernels>>>,
    /// Of each pipeline those that fill the states that it reads, each by how many places before it it is.
    pub(super) inputs: Vec<Arc<[usize]>>,
    /// Rows of a sort up to which the host computes the order.
    pub(super) host_order_rows: u64,
    /// Capacities that fit what the program held when it last ran: it starts with them the next time.
    pub(super) learned: Mutex<Option<Vec<u64>>>,
    /// By what the engine has learned the same of the program that ran last of those that differ from this one in constants only: no
    /// less is begun with.
    pub(super) alike: Fingerprint,
    /// Rows of a block of the source of a result that is too large to be made at once.
    pub(super) block_rows: Mutex<Option<u64>>,
    /// Which states lie in the page.
    pub(super) layout: Layout,
    /// What the kernels are given that never changes.
    pub(super) constants: Constants,
    /// The kernels of prefix sums and sorts.
    pub(super) primitives: Arc<KernelsByName>,
    /// What the stage comes to, as far as it is known.
    pub(super) foresight: Foresight,
    /// Whether it has run.
    has_run: AtomicBool,
}

impl Prepared {
    /// Whether nothing is known yet of the capacities that fit.
    pub fn is_new(&self, known: &Learned) -> bool {
        self.learned.lock().is_none() && known.capacities(self.alike).is_none()
    }

    /// Notes that it has run; whether that was the first time.
    pub fn begins(&self) -> bool {
        !self.has_run.swap(true, Ordering::Relaxed)
    }

    /// The capacities that were found to fit.
    pub fn capacities(&self) -> Option<Vec<u64>> {
        self.learned.lock().clone()
    }

    /// Gives choices that were forced by these names the reason why they were.
    pub fn explain(&mut self, names: &BTreeMap<String, String>, reason: &str) {
        let own = self.program.genome.0.iter_mut();
        own.filter(|choice| names.contains_key(&choice.qualified()))
            .for_each(|choice| choice.reason = reason.into());
        self.genome = Arc::new(self.program.genome.clone());
    }

    /// Lets tables, and what is counted, begin with so small a part of what was found to fit.
    #[cfg(feature = "testing")]
    pub fn shrink(&self, part: u64) {
        use kelpie_compile::pipeline::Growth;
        let mut learned = self.learned.lock();
        for (class, capacity) in self.program.classes.iter().zip(learned.iter_mut().flatten()) {
            let less = (*capacity / part.max(1)).max(1);
            *capacity = match class.growth {
                Growth::Table(_) | Growth::Counted(_) => less,
                Growth::Fixed | Growth::Sized(..) => *capacity,
            };
        }
    }
}

/// Validates the kernels of a program, which are compiled when they are wanted. `base`: the program before its variants were
/// chosen; `alike`: what the capacities that fit are kept by.
pub fn prepare(
    program: Program,
    device: &Arc<dyn Device>,
    host_sort_rows: Option<u64>,
    (variants, base): (&KernelVariants, Fingerprint),
    alike: Fingerprint,
) -> Result<Prepared, EngineError> {
    let numbered = program.pipelines.iter().enumerate();
    let kernels = numbered.map(|(index, pipeline)| {
        let each = pipeline.variants().map(|variant| {
            let genome = identity::genome((&program.genome, &variant.genome), index);
            variants.of((base, index, genome), (&pipeline.name, variant), device)
        });
        each.collect()
    });
    let kernels = kernels.collect::<Result<Vec<_>, EngineError>>()?;
    let by_rule = || sorting::host_order_rows(device.target().lanes);
    let host_order_rows = host_sort_rows.unwrap_or_else(by_rule);
    Ok(Prepared {
        device: Arc::downgrade(device),
        layout: Layout::of(&program),
        inputs: inputs(&program),
        genome: Arc::new(program.genome.clone()),
        constants: Constants::default(),
        primitives: Arc::default(),
        foresight: Foresight::default(),
        has_run: AtomicBool::new(false),
        program,
        kernels,
        host_order_rows,
        learned: Mutex::new(None),
        alike,
        block_rows: Mutex::new(None),
    })
}

/// Of each pipeline of a program those before it that fill what it reads, by how many places before it they are. A state that nobody
/// clears or lets grow is filled by the first pipeline that has it.
fn inputs(program: &Program) -> Vec<Arc<[usize]>> {
    let states_of = |pipeline: &CompiledPipeline| -> BTreeSet<usize> {
        let arguments = pipeline.variant.all_arguments();
        let states = arguments.filter_map(|argument| match argument {
            Argument::State(state) => Some(*state),
            _ => None,
        });
        states.collect()
    };
    let has: Vec<BTreeSet<usize>> = program.pipelines.iter().map(states_of).collect();
    let begins = |pipeline: &CompiledPipeline, state: usize| {
        let (class, variant) = (program.states[state].class, &pipeline.variant);
        variant.cleared().any(|cleared| cleared == state) || variant.grows().any(|grown| grown == class)
    };
    // What one pipeline of a group clears, all of them fill.
    let owns = |place: usize, state: usize| {
        let group = program.pipelines[place].group;
        let mut of_group = program.pipelines.iter().filter(|pipeline| pipeline.group == group);
        has[place].contains(&state) && of_group.any(|pipeline| begins(pipeline, state))
    };
    let is_owned = |state: usize| (0..has.len()).any(|place| owns(place, state));
    let is_first = |place: usize, state: usize| !has[..place].iter().any(|states| states.contains(&state));
    let fills = |place: usize, state: usize| match is_owned(state) {
        true => owns(place, state),
        false => has[place].contains(&state) && is_first(place, state),
    };
    let of = |place: usize| -> Arc<[usize]> {
        let read = || has[place].iter().filter(|state| !owns(place, **state));
        let filled_by = |earlier: &usize| read().any(|state| fills(*earlier, *state));
        (0..place).rev().filter(filled_by).map(|earlier| place - earlier).collect()
    };
    (0..has.len()).map(of).collect()
}
