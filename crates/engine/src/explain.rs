//! What EXPLAIN shows of a stage that was compiled.

use std::fmt::Write;
use std::sync::Arc;

use kelpie_compile::calibration::Calibration;
use kelpie_compile::pipeline::PipelineVariant;
use kelpie_compile::variant::Genome;
use kelpie_device::Device;
use kelpie_kir::text;

use crate::error::EngineError;
use crate::launch::block_shape;
use crate::learned::Fingerprint;
use crate::options::ExplainStage;
use crate::stage::{Blueprint, KernelVariants, PipelineKernels, Prepared};

/// Appends the choices of a program: what was chosen and why, and each other value with what it lacks.
fn describe_variants(genome: &Genome, out: &mut String) {
    for choice in &genome.0 {
        let _ = writeln!(out, "{} = {}: {}", choice.qualified(), choice.value, choice.why());
        for (value, lacks) in choice.values.iter().filter(|(value, _)| *value != choice.value) {
            let _ = match lacks {
                None => writeln!(out, "  {value}: possible"),
                Some(lacks) => writeln!(out, "  {value}: not possible: {lacks}"),
            };
        }
    }
    let _ = writeln!(out, "{} choices, {} points", genome.0.len(), genome.points());
}

/// What EXPLAIN shows of the stages of a query.
pub(crate) struct Explaining {
    stage: ExplainStage,
    /// What is shown so far.
    pub(crate) text: String,
    /// What stands for the device that was asked for and is not there.
    stand_in: Option<Arc<dyn Device>>,
}

impl Explaining {
    /// Of a stage of compilation.
    pub(crate) fn of(stage: ExplainStage) -> Explaining {
        Explaining { stage, text: String::new(), stand_in: None }
    }

    /// From now on what is made for a usual GPU is shown.
    #[cfg(feature = "simt")]
    pub(crate) fn stand_in(&mut self) {
        let device = kelpie_device::simt::SimtDevice::in_place_of_gpu();
        let _ = writeln!(self.text, "-- no GPU was asked: this is for {}", device.name());
        self.stand_in = Some(device);
    }

    #[cfg(not(feature = "simt"))]
    pub(crate) fn stand_in(&mut self) {
        let _ = writeln!(self.text, "-- no GPU was asked: this is for the CPU");
    }

    /// Appends what is shown of a stage that runs by a program, which was made by a blueprint.
    pub(crate) fn show(
        &mut self,
        (blueprint, prepared, variants): (&Blueprint<'_>, &Prepared, &KernelVariants),
        stage: Fingerprint,
    ) -> Result<(), EngineError> {
        let Some(device) = &self.stand_in else {
            return describe(prepared, self.stage, &blueprint.device, &mut self.text);
        };
        let (device, calibration) = (Arc::clone(device), Calibration::default());
        let blueprint = Blueprint { device: Arc::clone(&device), calibration, ..blueprint.clone() };
        describe(&blueprint.prepare(stage, variants)?, self.stage, &device, &mut self.text)
    }
}

/// Appends a description of a stage.
fn describe(
    prepared: &Prepared,
    stage: ExplainStage,
    device: &Arc<dyn Device>,
    out: &mut String,
) -> Result<(), EngineError> {
    let genome = &prepared.program.genome;
    if stage == ExplainStage::Variants {
        describe_variants(genome, out);
        return Ok(());
    }
    if stage == ExplainStage::Pipelines {
        for choice in &genome.0 {
            let _ = writeln!(out, "-- variant {choice}");
        }
    }
    for (index, pipeline) in prepared.program.pipelines.iter().enumerate() {
        let _ = writeln!(out, "-- pipeline {index}: {}", pipeline.name);
        match stage {
            ExplainStage::Variants => {}
            ExplainStage::Pipelines => {
                for known in &pipeline.known {
                    let _ = writeln!(out, "   {known}");
                }
                if pipeline.variant.counting().is_some() {
                    let counts = prepared.kernels[index][0].count.is_some();
                    out.push_str(if counts {
                        "   kernels: count, prefix sum, write\n"
                    } else {
                        "   kernels: write\n"
                    });
                }
                if pipeline.variant.sketching().is_some() {
                    out.push_str("   kernels before the first run: sketch\n");
                }
                for state in pipeline.variant.cleared().map(|state| &prepared.program.states[state]) {
                    let slots = prepared.program.classes[state.class].initial;
                    let _ = writeln!(out, "   state {}: {slots} × {} bytes", state.name, state.element_bytes);
                }
            }
            ExplainStage::Kir => {
                let kernels = pipeline.variants().flat_map(PipelineVariant::kernels);
                kernels.for_each(|kernel| out.push_str(&text::print(&kernel.module)));
            }
            ExplainStage::Code => {
                for (variant, kernels) in pipeline.variants().zip(&prepared.kernels[index]) {
                    let shape = block_shape(&variant.kernel.shape);
                    let PipelineKernels { main, count, sketch, .. } = &**kernels;
                    for kernel in sketch.iter().chain(count).chain([main]) {
                        out.push_str(&device.code(&kernel.module, shape)?);
                    }
                }
            }
        }
    }
    Ok(())
}
