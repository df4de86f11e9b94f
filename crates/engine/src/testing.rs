//! What tests share that run wherever there is a GPU.

use std::sync::{Arc, LazyLock};

use kelpie_device::{CancelToken, DeviceKind, Tier};
use kelpie_kir::text;

pub use kelpie_kir::testing::sample;

use crate::error::EngineError;
use crate::options::{DeviceChoice, Query};
use crate::query::Engine;
use crate::stage::PipelineKernels;

/// Whether there is a GPU to test on.
///
/// # Panics
/// Where there is none though the environment variable `KELPIE_REQUIRE` names `cuda`.
pub fn has_cuda(engine: &Engine) -> bool {
    let devices = engine.devices();
    match devices.iter().find(|(kind, _)| *kind == DeviceKind::Cuda) {
        Some((_, Ok(_))) => return true,
        Some((_, Err(error))) => kelpie_device::testing::skip("cuda", error),
        None => kelpie_device::testing::skip("cuda", &"the engine does not know it"),
    }
    false
}

/// A GPU, if there is one to test on, as [`has_cuda`] finds out once for all tests of a process.
///
/// # Panics
/// As [`has_cuda`].
pub fn gpu() -> Option<DeviceChoice> {
    static GPU: LazyLock<Option<DeviceChoice>> =
        LazyLock::new(|| has_cuda(&Engine::new()).then_some(DeviceChoice::Cuda));
    *GPU
}

/// What an engine knows of a pipeline's kernels of one genome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownKernels {
    /// What tells them from those of other pipelines and genomes, as text.
    pub key: String,
    /// Their code, as KIR.
    pub code: String,
    /// Whether all of them are compiled.
    pub is_compiled: bool,
}

/// The kernels of the programs that an engine keeps, pipeline by pipeline, the program used last at the end.
pub fn kernels(engine: &Engine) -> Vec<Vec<KnownKernels>> {
    let known = |kernels: &Arc<PipelineKernels>| {
        let key = engine.variants.variant_of(kernels).map(|key| format!("{key:?}")).unwrap_or_default();
        let code = kernels.each().map(|kernel| text::print(&kernel.module)).collect();
        KnownKernels {
            key,
            code,
            is_compiled: kernels.each().all(|kernel| kernel.is_compiled(Tier::default())),
        }
    };
    engine.prepared().iter().map(|prepared| prepared.kernels.iter().flatten().map(known).collect()).collect()
}

/// Generates the kernels of a query of one stage, and compiles none.
pub fn prepare(engine: &Engine, query: &Query) -> Result<(), EngineError> {
    let cancel = CancelToken::default();
    engine.begin(query, &cancel, None)?.prepare_stage(&query.plan)
}

/// Lets what an engine has run begin with so small a part of the sizes of tables that it has found to fit: a wrong estimate.
pub fn shrink_tables(engine: &Engine, part: u64) {
    engine.prepared().iter().for_each(|prepared| prepared.shrink(part));
}
