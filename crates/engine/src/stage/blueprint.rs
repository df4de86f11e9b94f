//! What a stage's program is made from, so that it can be made here or behind a query's back.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use kelpie_compile::calibration::Calibration;
use kelpie_compile::pipeline::{self, Choices, Program, ScanInfo};
use kelpie_compile::plan::Plan;
use kelpie_compile::variant::Forced;
use kelpie_device::{Device, Tier};

use super::kernels::{KernelVariants, compile_all};
use super::prepared::{Prepared, prepare};
use crate::error::EngineError;
use crate::identity;
use crate::learned::Fingerprint;
use crate::options::QueryOptions;

/// What a program of a stage is made from.
#[derive(Debug, Clone)]
pub struct Blueprint<'a> {
    pub plan: Cow<'a, Plan>,
    pub infos: Cow<'a, [ScanInfo]>,
    pub device: Arc<dyn Device>,
    /// With what is forced of its variants.
    pub options: Cow<'a, QueryOptions>,
    /// As in [`Choices`].
    pub duplicates: Cow<'a, BTreeSet<usize>>,
    /// As there.
    pub direct_bytes: Option<u64>,
    /// As there.
    pub keeps_rows: bool,
    /// What was measured of the device.
    pub calibration: Calibration,
}

impl Blueprint<'_> {
    /// One that borrows nothing.
    pub fn into_owned(self) -> Blueprint<'static> {
        let Blueprint { plan, infos, device, options, duplicates, direct_bytes, keeps_rows, calibration } =
            self;
        Blueprint {
            plan: Cow::Owned(plan.into_owned()),
            infos: Cow::Owned(infos.into_owned()),
            device,
            options: Cow::Owned(options.into_owned()),
            duplicates: Cow::Owned(duplicates.into_owned()),
            direct_bytes,
            keeps_rows,
            calibration,
        }
    }

    /// The same under other forced choices, and with others beside them for blocks of rows.
    pub fn with(&self, forced: Forced, rotation: Vec<Forced>) -> Blueprint<'_> {
        let options = QueryOptions { variants: forced, rotation, ..self.options.as_ref().clone() };
        Blueprint {
            plan: Cow::Borrowed(&self.plan),
            infos: Cow::Borrowed(&self.infos),
            device: Arc::clone(&self.device),
            options: Cow::Owned(options),
            duplicates: Cow::Borrowed(&self.duplicates),
            ..*self
        }
    }

    /// The program before its variants are chosen. `stage`: what it is a program of.
    pub fn base(&self, stage: Fingerprint) -> Fingerprint {
        let own = (self.direct_bytes, self.keeps_rows);
        let device = self.device.name();
        identity::program(stage, (&device, &self.calibration), &self.options, own, &self.duplicates)
    }

    /// What is learned of the program is kept by this; `data`: what the stage runs over.
    pub fn alike(&self, data: Fingerprint) -> Fingerprint {
        identity::capacities(self.base(data), &self.options.variants, self.device.memory().1)
    }

    /// Generates the program, with kernels that are not compiled yet. `stage`: what tells it from others.
    pub fn prepare(&self, stage: Fingerprint, variants: &KernelVariants) -> Result<Prepared, EngineError> {
        let (program, host_sort_rows) = (self.program()?, self.options.host_sort_rows);
        let alike = self.alike(identity::data(&self.plan, &self.infos));
        prepare(program, &self.device, host_sort_rows, (variants, self.base(stage)), alike)
    }

    /// Generates the program, and compiles its kernels in a tier.
    pub fn compile(&self, stage: Fingerprint, tier: Tier) -> Result<Prepared, EngineError> {
        let prepared = self.prepare(stage, &KernelVariants::default())?;
        let stream = Arc::clone(&self.device).begin_query()?;
        stream.set_tier(tier);
        compile_all(stream.as_ref(), &prepared.kernels, true)?;
        Ok(prepared)
    }

    fn program(&self) -> Result<Program, EngineError> {
        let QueryOptions { micro_model, resolution, host_sort_rows, shape, .. } = *self.options;
        let choices = Choices {
            micro_model,
            resolution,
            duplicates: &self.duplicates,
            host_sort_rows,
            direct_bytes: self.direct_bytes,
            forced: &self.options.variants,
            rotation: &self.options.rotation,
            shape,
            keeps_rows: self.keeps_rows,
            calibration: self.calibration,
        };
        let target = self.options.profile.target(self.device.target());
        Ok(pipeline::compile_with(&self.plan, &self.infos, &target, &choices)?)
    }
}
