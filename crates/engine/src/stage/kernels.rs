//! The kernels of a stage's pipelines, compiled when they are first wanted. A pipeline may have several, one a genome: those
//! that nobody launches cost no more than their IR.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use kelpie_compile::pipeline::{CompiledKernel, PipelineVariant};
use kelpie_device::{BlockShape, BuildTimes, Device, Kernel, QueryStream, Tier};
use kelpie_kir::{Target, ValidModule, validate_for};
use parking_lot::Mutex;

use crate::error::EngineError;
use crate::launch::block_shape;
use crate::learned::Fingerprint;
use crate::split::{Phase, Split};

/// Entries of which nobody may hold anything any more, before they are looked for.
const ENTRIES: usize = 1024;

/// A kernel that is compiled when it is first wanted.
#[derive(Debug)]
pub struct LazyKernel {
    /// Its code.
    pub module: ValidModule,
    name: String,
    shape: BlockShape,
    /// What was compiled last, and in which tier.
    compiled: Mutex<Option<(Tier, Arc<dyn Kernel>)>>,
}

impl LazyKernel {
    fn new(kernel: &CompiledKernel, pipeline: &str, target: &Target) -> Result<LazyKernel, EngineError> {
        let internal = |error| EngineError::Internal(format!("kernel of {pipeline}: {error}"));
        let module = validate_for(kernel.module.clone(), target).map_err(internal)?;
        let (name, shape) = (kernel.name.clone(), block_shape(&kernel.shape));
        Ok(LazyKernel { module, name, shape, compiled: Mutex::new(None) })
    }

    /// Whether it is what `kernel` asks for.
    fn is(&self, kernel: &CompiledKernel) -> bool {
        self.name == kernel.name && self.shape == block_shape(&kernel.shape) && *self.module == kernel.module
    }

    /// The compiled kernel. Threads that want it at the same time wait for the first; errors are not kept.
    pub fn get(&self, stream: &dyn QueryStream) -> Result<Arc<dyn Kernel>, EngineError> {
        let mut compiled = self.compiled.lock();
        let tier = stream.tier();
        if let Some((_, kernel)) = compiled.as_ref().filter(|(known, _)| *known == tier) {
            return Ok(Arc::clone(kernel));
        }
        let kernel = stream.compile_for(&self.module, &self.name, self.shape)?;
        *compiled = Some((tier, Arc::clone(&kernel)));
        Ok(kernel)
    }

    /// Whether it was compiled in a tier.
    pub fn is_compiled(&self, tier: Tier) -> bool {
        self.compiled.lock().as_ref().is_some_and(|(known, _)| *known == tier)
    }
}

/// The kernels of a variant of a pipeline.
#[derive(Debug)]
pub struct PipelineKernels {
    /// What they are compiled for.
    device: Weak<dyn Device>,
    /// Brings rows to the sink.
    pub main: LazyKernel,
    /// Counts them before, where their places are counted.
    pub count: Option<LazyKernel>,
    /// Estimates the sizes of tables, in a first run.
    pub sketch: Option<LazyKernel>,
}

impl PipelineKernels {
    fn new(
        (pipeline, variant): (&str, &PipelineVariant),
        device: &Arc<dyn Device>,
    ) -> Result<PipelineKernels, EngineError> {
        let target = device.target();
        let count = variant.counting().and_then(|counting| counting.kernel.as_ref());
        let lazy = |kernel: &CompiledKernel| LazyKernel::new(kernel, pipeline, target);
        let (main, count) = (lazy(&variant.kernel)?, count.map(lazy).transpose()?);
        let sketch = variant.sketching().map(|sketching| lazy(&sketching.kernel)).transpose()?;
        Ok(PipelineKernels { device: Arc::downgrade(device), main, count, sketch })
    }

    fn are(&self, variant: &PipelineVariant) -> bool {
        let count = variant.counting().and_then(|counting| counting.kernel.as_ref());
        let sketch = variant.sketching().map(|sketching| &sketching.kernel);
        let is = |own: &Option<LazyKernel>, kernel: Option<&CompiledKernel>| match (own, kernel) {
            (None, None) => true,
            (Some(own), Some(kernel)) => own.is(kernel),
            _ => false,
        };
        self.main.is(&variant.kernel) && is(&self.count, count) && is(&self.sketch, sketch)
    }

    /// Those that every run launches.
    pub fn each(&self) -> impl Iterator<Item = &LazyKernel> {
        [&self.main].into_iter().chain(&self.count)
    }
}

/// A pipeline and a genome: the program before its variants were chosen, the pipeline's number, what was chosen for it.
pub type VariantKey = (Fingerprint, usize, Fingerprint);

/// The kernels of all pipelines that some program holds, by pipeline and genome.
#[derive(Debug, Default)]
pub struct KernelVariants(Mutex<HashMap<VariantKey, Weak<PipelineKernels>>>);

impl KernelVariants {
    /// The kernels of a pipeline under a genome: those that there are, or new ones, which are not compiled yet.
    pub fn of(
        &self,
        key: VariantKey,
        (pipeline, variant): (&str, &PipelineVariant),
        device: &Arc<dyn Device>,
    ) -> Result<Arc<PipelineKernels>, EngineError> {
        let known = self.0.lock().get(&key).and_then(Weak::upgrade);
        // A device that was lost and opened again is another one.
        if let Some(known) = known.filter(|known| known.device.as_ptr().addr() == Arc::as_ptr(device).addr())
        {
            // Another module under the same key is a choice that is missing in the genome.
            if known.are(variant) {
                return Ok(known);
            }
            debug_assert!(false, "two kernels of one genome: {pipeline}");
        }
        let kernels = Arc::new(PipelineKernels::new((pipeline, variant), device)?);
        let mut variants = self.0.lock();
        if variants.len() >= ENTRIES {
            variants.retain(|_, kernels| kernels.strong_count() > 0);
        }
        variants.insert(key, Arc::downgrade(&kernels));
        Ok(kernels)
    }

    /// What some kernels are kept under.
    #[cfg(feature = "testing")]
    pub fn variant_of(&self, kernels: &Arc<PipelineKernels>) -> Option<VariantKey> {
        let variants = self.0.lock();
        let found = variants.iter().find(|(_, known)| known.as_ptr() == Arc::as_ptr(kernels));
        found.map(|(variant, _)| *variant)
    }
}

/// Compiles those of some pipelines' kernels that are not compiled yet, side by side; the time that each pipeline's took, in
/// nanoseconds, and what all of them took in their threads. `is_first`: with those that a first run launches beside.
pub fn compile_all(
    stream: &dyn QueryStream,
    kernels: &[Vec<Arc<PipelineKernels>>],
    is_first: bool,
) -> Result<(Vec<u64>, Split), EngineError> {
    let each = kernels.iter().enumerate();
    let each = each.flat_map(|(index, variants)| variants.iter().map(move |kernels| (index, kernels)));
    let all = each.flat_map(|(index, kernels)| {
        let sketch = kernels.sketch.iter().filter(move |_| is_first);
        kernels.each().chain(sketch).map(move |kernel| (index, kernel))
    });
    let missing: Vec<_> = all.filter(|(_, kernel)| !kernel.is_compiled(stream.tier())).collect();
    let compile =
        |kernel: &LazyKernel| kernel.get(stream).map(|kernel| (kernel.compile_ns(), kernel.build_times()));
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let others: Vec<_> =
            missing.iter().skip(1).map(|(_, kernel)| scope.spawn(move || compile(kernel))).collect();
        let first = missing.first().map(|(_, kernel)| compile(kernel));
        let panicked = |_| Err(EngineError::Internal("a compiling thread panicked".into()));
        let others = others.into_iter().map(|handle| handle.join().unwrap_or_else(panicked));
        first.into_iter().chain(others).collect()
    });
    let (mut times, mut taken) = (vec![0; kernels.len()], Split::default());
    for ((index, _), outcome) in missing.iter().zip(outcomes) {
        let (time_ns, BuildTimes { print_ns, build_ns, load_ns }) = outcome?;
        times[*index] += time_ns;
        taken.add(Phase::Print, print_ns);
        taken.add(Phase::Build, build_ns);
        taken.add(Phase::Load, load_ns);
    }
    Ok((times, taken))
}
