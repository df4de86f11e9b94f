//! Places that a CPU's worker takes many at a time, so that workers do not meet in a counter at every row.
//!
//! A worker seldom uses up its last chunk. A store of rows notes how many stand in each chunk ([`rows`](super::rows)), and whoever reads
//! it skips the places that are left. An array in which every place must have a row ([`PlaceChunks`]) has them filled by the
//! engine after each launch, with the rows at its end: a thousand or so a worker, at most.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Builtin, Scalar, Type};

use crate::context::{Argument, Context};
use crate::program::{Compaction, Growth, HostAction, States, Task, When};
use crate::shape::LaunchShape;

/// Places that a worker takes at a time.
pub(super) const CHUNK_ROWS: u64 = 1 << CHUNK_SHIFT;
pub(super) const CHUNK_SHIFT: u32 = 10;

/// The same in an array of few rows.
const FEW_ROWS: u64 = 1 << 4;
/// Rows of an array from which on workers take many places by rule: fewer are seldom the work of several.
const LEAST_ROWS: u64 = 1 << 15;
/// Words that a worker notes of its last chunk: the first place that is left, and the one behind the last.
const NOTED: u64 = 2;

/// A worker's chunk while rows are written: the next place and the end, `u64`. Both are 0 before the first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk {
    pub(super) next: Var,
    pub(super) end: Var,
    rows: u64,
}

impl Chunk {
    /// None yet; each will have so many places.
    pub(super) fn begin(cx: &mut Context<'_>, rows: u64) -> Chunk {
        let zero = cx.builder.u64(0);
        Chunk { next: cx.builder.var_of("next_place", zero), end: cx.builder.var_of("chunk_end", zero), rows }
    }

    /// The next place (`u64`); where the chunk is used up, `reserve` takes that many places and gives the first of them.
    pub(super) fn place(self, cx: &mut Context<'_>, reserve: impl FnOnce(&mut Context<'_>, V) -> V) -> V {
        let (next, end) = (cx.builder.read(self.next), cx.builder.read(self.end));
        let full = cx.builder.eq(next, end);
        cx.begin_if(full);
        let rows = cx.builder.u64(self.rows);
        let first = reserve(cx, rows);
        cx.builder.assign(self.next, first);
        let end = cx.builder.add(first, rows);
        cx.builder.assign(self.end, end);
        cx.end();
        let place = cx.builder.read(self.next);
        let next = cx.builder.add_int(place, 1);
        cx.builder.assign(self.next, next);
        place
    }
}

/// What workers leave of their last chunks, of an array whose places all have rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaceChunks {
    left: Compaction,
    /// Places that a worker takes at a time.
    rows: u64,
}

impl PlaceChunks {
    /// Declares the state, where there are workers. `most`: rows of the array, at most; `count`: the state that counts the places that
    /// are taken; `class`: that of the array's capacity, which should have room for [`PlaceChunks::slack`] more than the rows.
    pub(crate) fn plan(
        (most, shape): (u64, &LaunchShape),
        (count, class): (usize, usize),
        states: &mut States,
    ) -> Option<PlaceChunks> {
        let workers = u64::from(shape.workers());
        (workers > 0).then(|| {
            let noted = states.class(workers * NOTED, Growth::Fixed);
            let left = Compaction { count, class, left: states.state("places_left", 8, noted) };
            PlaceChunks { left, rows: chunk_rows(most) }
        })
    }

    /// Places that are taken and not used, at most.
    pub(crate) fn slack(most: u64, shape: &LaunchShape) -> u64 {
        u64::from(shape.workers()) * chunk_rows(most)
    }

    /// Whether there may be enough rows for workers to meet.
    pub(crate) fn is_worth_it(self) -> bool {
        self.rows == CHUNK_ROWS
    }

    /// What the engine does around each launch.
    pub(crate) fn around(self) -> [HostAction; 2] {
        [
            HostAction { when: When::BeforeLaunch, task: Task::Clear(self.left.left) },
            HostAction { when: When::AfterLaunch, task: Task::Compact(self.left) },
        ]
    }

    /// Places that a worker takes at a time.
    pub(super) fn rows(self) -> u64 {
        self.rows
    }

    /// Notes what is left of the worker's chunk. What counts is the last one.
    pub(super) fn note(self, cx: &mut Context<'_>, chunk: Chunk) {
        let noted = cx.argument("places_left", Type::global(Scalar::U64), Argument::State(self.left.left));
        let b = &mut *cx.builder;
        let (worker, words) = (b.builtin(Builtin::BlockId), b.u32(NOTED as u32));
        let first = b.mul(worker, words);
        for (word, place) in [chunk.next, chunk.end].into_iter().enumerate() {
            let index = b.add_int(first, word as u32);
            let (pointer, place) = (b.offset(noted, index), b.read(place));
            b.store(pointer, place);
        }
    }
}

/// Places of a chunk in an array of so many rows at most: few rows should not have room for many more.
fn chunk_rows(most: u64) -> u64 {
    if most < LEAST_ROWS { FEW_ROWS } else { CHUNK_ROWS }
}
