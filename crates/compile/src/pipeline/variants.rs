//! The variants of a pipeline: how its row loop goes, which does not change its state.

use super::Pipeline;
use super::kernel::Environment;
use super::launches;
use super::speculation::Speculation;
use crate::context::Unsupported;
use crate::shape::LaunchShape;
use crate::table::places::DenseTarget;
use crate::variant::Site;
use crate::variant::axes::{MorselRows, Predication, SelectionRows, WritePlaces};
use crate::{MicroModel, Resolution};

/// What was chosen for a pipeline.
pub(super) struct ChunkVariants<'a> {
    /// Rows come to the sink with a flag.
    pub flags: bool,
    /// How a dense write finds its places.
    pub places: WritePlaces,
    /// Every row of a table comes to the sink.
    pub keeps_all: bool,
    pub selection: SelectionRows,
    pub morsel: MorselRows,
    /// How its kernels are launched.
    pub shape: LaunchShape,
    pub speculation: Speculation<'a>,
}

impl<'a> ChunkVariants<'a> {
    /// Chooses for the pipeline called `site`. `is_counted`: the places of its rows are counted by a kernel before.
    pub(super) fn choose(
        site: &str,
        pipeline: &'a Pipeline,
        is_counted: bool,
        environment: &Environment<'_>,
    ) -> Result<ChunkVariants<'a>, Unsupported> {
        let facts = Facts {
            site,
            pipeline,
            environment,
            diverges: pipeline.steps.iter().any(|step| step.diverges()),
            keeps_all: pipeline.keeps_all() && !is_counted,
            is_simt: !environment.shape.is_serial(),
        };
        let speculation = Speculation::of(pipeline);
        let (mut flags, mut places) = (false, WritePlaces::Atomic);
        match pipeline.sink.target() {
            _ if is_counted => {}
            Some(written) => {
                places = facts.places(&written)?;
                flags = matches!(places, WritePlaces::Warp | WritePlaces::Block);
            }
            None => flags = facts.predication(&speculation)?,
        }
        let (mut selection, mut morsel) = (SelectionRows(1024), MorselRows(65536));
        let chooser = environment.chooser;
        if places == WritePlaces::Selection {
            let rule = (selection, "a selection vector stays in the first-level cache");
            selection = chooser.choose(site, rule, |_| Ok(()))?;
        }
        if !facts.is_simt && pipeline.sink.own_rows().is_none() {
            let rule = (morsel, "an atomic counter costs nothing beside so many rows");
            morsel = chooser.choose(site, rule, |_| Ok(()))?;
        }
        let takes_several = flags && pipeline.sink.target().is_none();
        let base = (environment.shape, environment.asked);
        let site = Site { chooser, name: site };
        let shape = launches::choose(&site, pipeline, environment.target, base, takes_several)?;
        let keeps_all = facts.keeps_all;
        Ok(ChunkVariants { flags, places, keeps_all, selection, morsel, shape, speculation })
    }
}

/// What the choices follow from.
struct Facts<'a> {
    site: &'a str,
    pipeline: &'a Pipeline,
    environment: &'a Environment<'a>,
    /// A step branches or loops whatever the flow is.
    diverges: bool,
    /// Every row of a table comes to the sink.
    keeps_all: bool,
    is_simt: bool,
}

impl Facts<'_> {
    /// How rows find their places in an array that is written densely.
    fn places(&self, written: &DenseTarget) -> Result<WritePlaces, Unsupported> {
        let resolves = self.environment.micro_model == MicroModel::Resolution && !self.diverges;
        let is_staged = self.pipeline.sink.staged().is_some();
        let rule = match (self.is_simt, self.environment.resolution) {
            _ if self.keeps_all && written.keeps_places => {
                (WritePlaces::Atomic, "all rows keep their places")
            }
            _ if self.diverges => (WritePlaces::Atomic, "threads are not together behind a join"),
            _ if !resolves => (WritePlaces::Atomic, "the micro model has an atomic a row"),
            (true, Resolution::WorkEfficient) if written.limit.is_none() => {
                (WritePlaces::Block, "resolution = work_efficient")
            }
            (true, _) => (WritePlaces::Warp, "one atomic for a warp"),
            (false, _) if is_staged => (WritePlaces::Selection, "one atomic for a batch"),
            (false, _) => (WritePlaces::Atomic, "a worker takes places by chunks"),
        };
        self.environment.chooser.choose(self.site, rule, |value| match value {
            WritePlaces::Atomic => Ok(()),
            _ if self.diverges => Err("threads are not together behind a join".into()),
            WritePlaces::Warp | WritePlaces::Block if !self.is_simt => {
                Err("a CPU's worker is one thread".into())
            }
            // Lanes leave the loop with their warp once there are enough rows: a block is not together.
            WritePlaces::Block if written.limit.is_some() => {
                Err("a block is not together under a limit".into())
            }
            WritePlaces::Selection if self.is_simt => Err("only a CPU's worker makes selections".into()),
            WritePlaces::Selection if !is_staged => Err("only the result is written from selections".into()),
            WritePlaces::Warp | WritePlaces::Block | WritePlaces::Selection => Ok(()),
        })
    }

    /// Whether rows come with a flag to a sink that does more than to write densely: that saves a branch which a processor
    /// would predict badly.
    fn predication(&self, speculation: &Speculation<'_>) -> Result<bool, Unsupported> {
        let takes = !self.diverges && self.pipeline.sink.takes_flags(&|expr| speculation.of_result(expr));
        let rule = match takes {
            true => (Predication::Flags, "expressions are cheap and cannot fail"),
            false => (Predication::Branches, "dead rows must not be computed"),
        };
        let chosen = self.environment.chooser.choose(self.site, rule, |value| match value {
            Predication::Flags if !takes => Err("what follows must not be computed for dead rows".into()),
            Predication::Flags | Predication::Branches => Ok(()),
        })?;
        Ok(chosen == Predication::Flags)
    }
}
