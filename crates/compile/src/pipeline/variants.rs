//! The variants of a pipeline: how its row loop goes and how rows find their places, which does not change its state.

use super::Pipeline;
use super::exchanges;
use super::kernel::Environment;
use super::launches;
use super::points::Points;
use super::row_loop::{self, RowLoopStrategy};
use super::speculation::Speculation;
use crate::context::Unsupported;
use crate::operator::roles::Arrival;
use crate::shape::LaunchShape;
use crate::table::chunks::PlaceChunks;
use crate::table::places::DenseTarget;
use crate::variant::axes::{MorselRows, Predication, WritePlaces};
use crate::variant::{Site, Variant};
use crate::{MicroModel, Resolution};

/// What was chosen for a pipeline.
pub(super) struct ChunkVariants<'a> {
    /// How a row that goes through the steps by itself comes to the sink.
    pub alone: Arrival,
    /// How a dense write finds its places.
    pub places: WritePlaces,
    pub row_loop: Box<dyn RowLoopStrategy>,
    /// Where lanes of a warp exchange rows.
    pub points: Points,
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
        let site = Site { chooser: environment.chooser, name: site };
        let points = exchanges::choose(site, pipeline, is_counted, environment)?;
        let speculation = Speculation::of(pipeline);
        let mut facts = Facts {
            site,
            pipeline,
            environment,
            points: &points,
            speculation: &speculation,
            is_counted,
            alone: Arrival::Branches,
            places: WritePlaces::Atomic,
        };
        let has_flags = match pipeline.sink.target() {
            _ if is_counted => false,
            Some(written) => {
                facts.places = facts.places(&written)?;
                matches!(facts.places, WritePlaces::Warp | WritePlaces::Block)
            }
            None => facts.predication()?,
        };
        facts.alone = match has_flags {
            true => Arrival::Flags,
            false if facts.keeps_all() => Arrival::All,
            false => Arrival::Branches,
        };
        let row_loop = row_loop::choose(&facts)?;
        let morsel = facts.morsel()?;
        let turn = (row_loop.turn_rows(), points.more_rows());
        let shape = launches::choose(&facts.site, pipeline, environment, turn)?;
        let Facts { alone, places, .. } = facts;
        Ok(ChunkVariants { alone, places, row_loop, points, morsel, shape, speculation })
    }
}

/// What the choices follow from; of those that were made, how a row comes to the sink by itself, and how it finds its place there.
pub(super) struct Facts<'a> {
    pub site: Site<'a>,
    pub pipeline: &'a Pipeline,
    pub environment: &'a Environment<'a>,
    /// Where lanes exchange rows.
    pub points: &'a Points,
    pub speculation: &'a Speculation<'a>,
    /// The places of its rows are counted by a kernel before.
    pub is_counted: bool,
    pub alone: Arrival,
    pub places: WritePlaces,
}

impl Facts<'_> {
    pub(super) fn is_simt(&self) -> bool {
        !self.environment.shape.is_serial()
    }

    /// Whether the rows are a table's, and the sink has none of its own.
    pub(super) fn scans(&self) -> bool {
        self.pipeline.source.is_scan() && self.pipeline.sink.own_rows().is_none()
    }

    /// Whether rows come by themselves, with a flag, to a sink that does more than to write densely.
    pub(super) fn come_alone_with_flags(&self) -> bool {
        self.alone == Arrival::Flags && self.pipeline.sink.target().is_none()
    }

    /// Whether every row of a table comes to the sink.
    fn keeps_all(&self) -> bool {
        self.pipeline.keeps_all() && !self.is_counted
    }

    /// Whether a step branches or loops whatever the flow is, and lanes do not come together behind it.
    fn diverges(&self) -> bool {
        self.points.diverge(self.pipeline)
    }

    /// Why not, where the micro model repeats what papers measured; else what the rule says.
    pub(super) fn in_resolution<'w>(&self, why: Result<&'w str, &'w str>) -> Result<&'w str, &'w str> {
        match self.environment.micro_model {
            MicroModel::Resolution => why,
            _ => Err("the micro model takes one row at a time"),
        }
    }

    /// Whether the second of two values is chosen, which is not possible where it is said why; else the rule takes it or not, as `why` says.
    /// With an estimate, for people.
    pub(super) fn takes<T: Variant>(
        &self,
        [off, on]: [T; 2],
        why_not: Option<&str>,
        why: Result<&str, &str>,
        estimate: Option<String>,
    ) -> Result<bool, Unsupported> {
        let rule = match (why_not, why) {
            (Some(why_not), _) | (None, Err(why_not)) => (off, why_not),
            (None, Ok(why)) => (on, why),
        };
        let chosen = self.site.choose_by((rule, estimate), |value| match why_not {
            Some(why_not) if value == on => Err(why_not.into()),
            _ => Ok(()),
        })?;
        Ok(chosen == on)
    }

    /// How rows find their places in an array that is written densely.
    fn places(&self, written: &DenseTarget) -> Result<WritePlaces, Unsupported> {
        let (is_simt, diverges) = (self.is_simt(), self.diverges());
        // Warps are in loops of their own where rows come to the sink.
        let is_in_warps = self.points.expand();
        let resolves = self.environment.micro_model == MicroModel::Resolution && !diverges;
        let is_staged = self.pipeline.sink.staged().is_some();
        let in_chunks = written.chunks.is_some();
        let is_worth_it = written.chunks.is_some_and(PlaceChunks::is_worth_it);
        let by_chunks = (WritePlaces::Chunks, "workers do not meet at every row");
        let rule = match (is_simt, self.environment.resolution) {
            _ if self.keeps_all() && written.keeps_places => {
                (WritePlaces::Atomic, "all rows keep their places")
            }
            (false, _) if diverges && is_worth_it => by_chunks,
            _ if diverges => (WritePlaces::Atomic, "threads are not together behind a join"),
            _ if !resolves => (WritePlaces::Atomic, "the micro model has an atomic a row"),
            (true, Resolution::WorkEfficient) if written.limit.is_none() && !is_in_warps => {
                (WritePlaces::Block, "resolution = work_efficient")
            }
            (true, _) => (WritePlaces::Warp, "one atomic for a warp"),
            (false, _) if is_worth_it => by_chunks,
            (false, _) if is_staged => (WritePlaces::Selection, "one atomic for a batch"),
            (false, _) => (WritePlaces::Atomic, "few rows, or a store that has places by chunks"),
        };
        self.site.choose(rule, |value| match value {
            WritePlaces::Atomic => Ok(()),
            WritePlaces::Chunks if is_simt => Err("threads of a warp take places together".into()),
            WritePlaces::Chunks if !in_chunks => {
                Err("few rows are wanted, or a store that has places by chunks".into())
            }
            WritePlaces::Chunks => Ok(()),
            _ if diverges => Err("threads are not together behind a join".into()),
            WritePlaces::Warp | WritePlaces::Block if !is_simt => Err("a CPU's worker is one thread".into()),
            // Lanes leave the loop with their warp once there are enough rows: a block is not together.
            WritePlaces::Block if written.limit.is_some() => {
                Err("a block is not together under a limit".into())
            }
            WritePlaces::Block if is_in_warps => Err("warps take matches each for itself".into()),
            WritePlaces::Selection if is_simt => Err("only a CPU's worker makes selections".into()),
            WritePlaces::Selection if !is_staged => Err("only the result is written from selections".into()),
            WritePlaces::Warp | WritePlaces::Block | WritePlaces::Selection => Ok(()),
        })
    }

    /// Rows that a CPU's worker takes at a time.
    fn morsel(&self) -> Result<MorselRows, Unsupported> {
        let morsel = MorselRows(65536);
        if self.is_simt() || self.pipeline.sink.own_rows().is_some() {
            return Ok(morsel);
        }
        let rule = match self.pipeline.sink.learns_from_rows() {
            true => (MorselRows(4096), "a worker soon sees rows of everywhere, which bound the others"),
            false => (morsel, "an atomic counter costs nothing beside so many rows"),
        };
        self.site.choose(rule, |_| Ok(()))
    }

    /// Whether rows come with a flag to a sink that does more than to write densely: that saves a branch which a processor
    /// would predict badly.
    fn predication(&self) -> Result<bool, Unsupported> {
        // Where lanes exchange rows nobody has looked at what those without one have in their registers.
        let takes = !self.diverges()
            && self.points.is_empty()
            && self.pipeline.sink.takes_flags(&|expr| self.speculation.of_result(expr));
        let rule = match takes {
            true => (Predication::Flags, "expressions are cheap and cannot fail"),
            false => (Predication::Branches, "dead rows must not be computed"),
        };
        let chosen = self.site.choose(rule, |value| match value {
            Predication::Flags if !takes => Err("what follows must not be computed for dead rows".into()),
            Predication::Flags | Predication::Branches => Ok(()),
        })?;
        Ok(chosen == Predication::Flags)
    }
}
