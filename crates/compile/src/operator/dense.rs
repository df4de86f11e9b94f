//! A sink that writes rows densely, in one kernel: finds each row's place by the way that the pipeline and the micro model
//! leave open ([`places`]), and writes it there.

use std::collections::BTreeSet;

use kelpie_kir::builder::V;

use super::Flow;
use super::roles::{Emitter, Job};
use crate::Resolution;
use crate::context::{Context, Unsupported};
use crate::table::chunks::Chunk;
use crate::table::places::{self, CountedPlaces, Dense};
use crate::variant::axes::WritePlaces;

/// Writes rows to a [`Dense`] array.
pub(crate) struct DenseEmitter<'s> {
    array: &'s dyn Dense,
    /// Where places are counted by a kernel before (A1).
    counted: Option<CountedPlaces>,
    /// Where a worker takes several places at a time.
    chunk: Option<Chunk>,
    resolution: Resolution,
    needed: &'s BTreeSet<usize>,
}

impl<'s> DenseEmitter<'s> {
    /// What precedes the row loop.
    pub(crate) fn begin(array: &'s dyn Dense, cx: &mut Context<'_>, job: &Job<'s>) -> DenseEmitter<'s> {
        let counted =
            job.counting.map(|counting| CountedPlaces::begin_write(cx, counting.counts, counting.total));
        let chunk = array.begin(cx, job.places);
        let resolution = match job.places {
            WritePlaces::Block => Resolution::WorkEfficient,
            WritePlaces::Warp | WritePlaces::Atomic | WritePlaces::Chunks | WritePlaces::Selection => {
                Resolution::Simd
            }
        };
        DenseEmitter { array, counted, chunk, resolution, needed: job.needed }
    }
}

impl Emitter for DenseEmitter<'_> {
    fn is_done(&self, cx: &mut Context<'_>) -> Option<V> {
        self.array.is_done(cx)
    }

    fn begin_row(&mut self, cx: &mut Context<'_>) {
        if let Some(counted) = &mut self.counted {
            counted.begin_row(cx);
        }
    }

    /// A1 where places are counted, A3 where all threads of a group are here, else A2.
    fn row(&mut self, cx: &mut Context<'_>, row: V, flow: Flow) -> Result<(), Unsupported> {
        match (&self.counted, flow) {
            (Some(counted), _) => {
                let place = counted.place(cx, row)?;
                self.array.write(cx, place, self.needed)
            }
            (None, Flow::Branch) => {
                let place = self.array.place(cx, self.chunk);
                self.array.write(cx, place, self.needed)
            }
            (None, Flow::Flag { active }) => {
                let active = active.unwrap_or_else(|| cx.builder.bool(true));
                let place = places::local(cx, self.resolution, active, self.array);
                cx.begin_if(active);
                self.array.write(cx, place, self.needed)?;
                cx.end();
                Ok(())
            }
        }
    }

    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        self.array.end(cx, self.chunk);
        Ok(())
    }
}
