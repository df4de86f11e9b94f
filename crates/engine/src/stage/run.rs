//! A running stage: what its parts share.

use std::collections::{BTreeSet, HashMap};

use kelpie_compile::pipeline::CompiledPipeline;
use kelpie_compile::types::Field;

use super::capacities::Known;
use super::drained::Drained;
use super::launcher::Launcher;
use super::prepared::Prepared;
use super::setting::Setting;
use super::store::StateStore;
use super::stride_runs::Runs;

/// Rows of a store, at most.
pub(super) const MOST_STORED_ROWS: u64 = (1 << 31) - 1;

/// A running stage.
pub(super) struct Run<'a> {
    pub setting: Setting<'a>,
    pub prepared: &'a Prepared,
    pub store: StateStore<'a>,
    pub launcher: Launcher<'a>,
    /// The result as far as it has left the device.
    pub drained: Drained,
    /// The pipelines that run.
    pub group: &'a [CompiledPipeline],
    /// What finished groups have counted, by state.
    pub counted: HashMap<usize, u64>,
    /// The launches that were deferred, if any are.
    pub deferral: Deferral,
    /// Rows of the result that stay on the device.
    pub kept: u64,
    /// The pipelines, by number, the sizes of whose tables were estimated.
    pub sketched: BTreeSet<usize>,
    /// The groupings that sort stride by stride, by the state that counts their groups.
    pub strides: HashMap<usize, Runs>,
}

/// The launches of a run that are deferred: up to which number they belong to which pipeline.
#[derive(Debug, Default)]
pub(super) struct Deferral(pub Vec<(usize, usize)>);

impl<'a> Run<'a> {
    pub fn new(prepared: &'a Prepared, setting: Setting<'a>, known: Known, fields: &[Field]) -> Run<'a> {
        let program = &prepared.program;
        Run {
            setting,
            prepared,
            store: StateStore::new(program, &prepared.layout, &setting, known),
            launcher: Launcher::new(program, &prepared.constants, setting),
            drained: Drained::new(fields),
            group: &[],
            counted: HashMap::new(),
            deferral: Deferral::default(),
            kept: 0,
            sketched: BTreeSet::new(),
            strides: HashMap::new(),
        }
    }
}
