//! Detection of data races: what happens before what, and who accessed each byte last.
//!
//! Two accesses of two threads to one byte race where at least one writes, not both are atomic (`block` scope counts
//! only inside a block), and nothing orders them. What orders:
//! - a barrier, inside its block or its warp;
//! - a fence before an atomic write (release) and an atomic access to the same address after it that reads
//!   (acquire): a flag, a lock, a counter. The first plain store after a fence counts as such an atomic write, so that
//!   a protocol may publish by a plain store. A fence for the block does so by atomics of shared memory alone. Either also orders the
//!   lanes of its warp.
//!
//! An atomic load, and a compare-exchange that fails, race with no store in their scope.
//!
//! Clocks are kept a warp (as in `FastTrack`, Flanagan and Freund, PLDI 2009, section 3, with warps for threads), and
//! lanes that run in lock step without a fence between are compared one by one. A cell remembers its last write and
//! two reads. So no ordered pair is reported, and a few races can be missed: those behind a third unordered reader, or
//! where another lane of the warp has synchronised.

use std::collections::BTreeMap;
use std::ops::Range;

use kelpie_kir::{Scope, Space};

/// Who accesses, where and when.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Actor {
    /// Warp in the grid.
    pub(super) warp: u32,
    pub(super) lane: u32,
    /// Instruction.
    pub(super) pc: u32,
}

/// How memory is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Kind {
    /// No access was made yet.
    #[default]
    None,
    Read,
    Write,
    AtomicRead(Scope),
    AtomicWrite(Scope),
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::None => "nothing",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::AtomicRead(_) => "atomic read",
            Kind::AtomicWrite(_) => "atomic write",
        }
    }

    const fn is_none(self) -> bool {
        matches!(self, Kind::None)
    }

    const fn scope(self) -> Option<Scope> {
        match self {
            Kind::AtomicRead(scope) | Kind::AtomicWrite(scope) => Some(scope),
            Kind::None | Kind::Read | Kind::Write => None,
        }
    }
}

/// An access that was made.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Event {
    pub(super) actor: Actor,
    pub(super) kind: Kind,
    /// The warp's own clock then.
    pub(super) clock: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct ShadowCell {
    write: Event,
    reads: [Event; 2],
}

impl ShadowCell {
    fn is_used(&self) -> bool {
        !self.write.kind.is_none() || !self.reads[0].kind.is_none()
    }
}

/// Cells that are made together: most launches access little of what is allocated, and memory as small as that is used again where
/// that of a whole allocation would come from the system for each launch.
const CHUNK: usize = 64;
/// Stands for the width of cells where none were made yet: wider than any access.
const NO_CELLS: u32 = 1 << 5;

/// The accesses to an allocation in this launch. An access is aligned to its size, which is a power of two of at most 16
/// bytes: so all of its cells are in one chunk, and all of its bits in one word.
#[derive(Debug)]
pub(super) struct Shadow {
    /// Bytes of a cell, as a power of two: the narrowest access so far.
    granule_log2: u32,
    /// [`CHUNK`] cells each where one of them was accessed, else none.
    chunks: Vec<Vec<ShadowCell>>,
    /// A bit a byte: read as read-only memory.
    read_only: Vec<u64>,
    /// The last read-only load, for messages.
    last_read_only: Event,
    /// By the offset of what atomics synchronise through: what they released there.
    released: BTreeMap<usize, Vec<u32>>,
}

impl Default for Shadow {
    fn default() -> Shadow {
        Shadow {
            granule_log2: NO_CELLS.trailing_zeros(),
            chunks: Vec::new(),
            read_only: Vec::new(),
            last_read_only: Event::default(),
            released: BTreeMap::new(),
        }
    }
}

impl Shadow {
    /// Makes cells of `bytes` bytes, which is less than they have.
    #[cold]
    fn refine(&mut self, size: usize, bytes: u32) {
        let coarse = std::mem::take(&mut self.chunks);
        let parts = 1 << (self.granule_log2 - bytes.trailing_zeros());
        self.granule_log2 = bytes.trailing_zeros();
        self.chunks.resize_with(size.div_ceil(bytes as usize).div_ceil(CHUNK), Vec::new);
        for (number, cells) in coarse.into_iter().enumerate() {
            for (place, cell) in cells.iter().enumerate() {
                if cell.is_used() {
                    let first = (number * CHUNK + place) * parts;
                    (first..first + parts).for_each(|part| self.chunk(part / CHUNK)[part % CHUNK] = *cell);
                }
            }
        }
    }

    /// The numbers of the cells that an access is to.
    #[inline]
    fn numbers(&self, offset: usize, bytes: u32) -> Range<usize> {
        let first = offset >> self.granule_log2;
        first..first + (bytes as usize >> self.granule_log2).max(1)
    }

    /// The cells of a chunk, which are made where they were not.
    #[inline]
    fn chunk(&mut self, chunk: usize) -> &mut [ShadowCell] {
        let cells = &mut self.chunks[chunk];
        if cells.is_empty() {
            make_cells(cells);
        }
        cells
    }

    /// The cells of an access to an allocation of `size` bytes.
    #[inline]
    fn cells(&mut self, size: usize, offset: usize, bytes: u32) -> &mut [ShadowCell] {
        if bytes >> self.granule_log2 == 0 {
            self.refine(size, bytes);
        }
        let Range { start, end } = self.numbers(offset, bytes);
        &mut self.chunk(start / CHUNK)[start % CHUNK..][..end - start]
    }

    /// The last write to one of the bytes, where there was one.
    fn written(&self, offset: usize, bytes: u32) -> Option<Event> {
        let cell = |number: usize| self.chunks.get(number / CHUNK)?.get(number % CHUNK);
        let written = |cell: &ShadowCell| Some(cell.write).filter(|write| !write.kind.is_none());
        self.numbers(offset, bytes).filter_map(cell).find_map(written)
    }

    fn is_read_only(&self, offset: usize, bytes: u32) -> bool {
        self.read_only.get(offset / 64).is_some_and(|word| word & bits_of(offset, bytes) != 0)
    }
}

#[cold]
fn make_cells(cells: &mut Vec<ShadowCell>) {
    cells.resize(CHUNK, ShadowCell::default());
}

/// The bits of an access in the word that has a bit for each of 64 bytes.
fn bits_of(offset: usize, bytes: u32) -> u64 {
    ((1 << bytes) - 1) << (offset % 64)
}

/// The clocks of a warp that is resident.
#[derive(Debug, Clone, Default)]
struct Clocks {
    /// Of each warp of the grid: until when its accesses happened before what this warp does now. Its own entry is the
    /// time now.
    seen: Vec<u32>,
    /// `seen` at the last fence: what an atomic write releases. Empty before the first fence.
    fenced: Vec<u32>,
    /// The same with fences for the block: what an atomic write of shared memory releases.
    fenced_in_block: Vec<u32>,
    /// A fence was executed, and no store or atomic since.
    publishes: bool,
}

fn join(clocks: &mut Vec<u32>, other: &[u32]) {
    if clocks.is_empty() {
        clocks.extend_from_slice(other);
    } else {
        clocks.iter_mut().zip(other).for_each(|(clock, other)| *clock = (*clock).max(*other));
    }
}

/// The clocks of a launch.
#[derive(Debug)]
pub(super) struct Races {
    warps_per_block: u32,
    clocks: Vec<Clocks>,
}

/// How an access stands to an earlier one.
pub(super) enum Conflict {
    Race(Event),
    ReadOnly(Event),
}

impl Races {
    pub(super) fn new(blocks: u32, warps_per_block: u32) -> Races {
        let clocks = vec![Clocks::default(); blocks as usize * warps_per_block as usize];
        Races { warps_per_block, clocks }
    }

    /// The block's warps, whose clocks begin.
    pub(super) fn begin_block(&mut self, block: u32) {
        let warps = self.clocks.len();
        for warp in self.warps_of(block) {
            let mut seen = vec![0; warps];
            seen[warp] = 1;
            self.clocks[warp] = Clocks { seen, ..Clocks::default() };
        }
    }

    /// Frees the clocks of a block.
    pub(super) fn end_block(&mut self, block: u32) {
        for warp in self.warps_of(block) {
            self.clocks[warp] = Clocks::default();
        }
    }

    fn warps_of(&self, block: u32) -> Range<usize> {
        let start = block as usize * self.warps_per_block as usize;
        start..start + self.warps_per_block as usize
    }

    /// Everything in the block happened before what comes now.
    pub(super) fn barrier(&mut self, block: u32) {
        let mut joint = Vec::new();
        for warp in self.warps_of(block) {
            join(&mut joint, &self.clocks[warp].seen);
        }
        for warp in self.warps_of(block) {
            self.clocks[warp].seen.clone_from(&joint);
            self.clocks[warp].seen[warp] += 1;
        }
    }

    /// Everything in the warp happened before what comes now.
    pub(super) fn warp_barrier(&mut self, warp: u32) {
        self.clocks[warp as usize].seen[warp as usize] += 1;
    }

    pub(super) fn fence(&mut self, warp: u32, scope: Scope) {
        let clocks = &mut self.clocks[warp as usize];
        if scope == Scope::Device {
            clocks.fenced.clone_from(&clocks.seen);
        }
        clocks.fenced_in_block.clone_from(&clocks.seen);
        clocks.seen[warp as usize] += 1;
        clocks.publishes = scope == Scope::Device;
    }

    /// Whether a store of this warp now publishes; it does not any more after that.
    pub(super) fn take_publishes(&mut self, warp: u32) -> bool {
        std::mem::take(&mut self.clocks[warp as usize].publishes)
    }

    /// An atomic access at `offset` of an allocation.
    pub(super) fn acquire(&mut self, warp: u32, shadow: &Shadow, offset: usize) {
        if let Some(released) = shadow.released.get(&offset) {
            let seen = &mut self.clocks[warp as usize].seen;
            let own = seen[warp as usize];
            join(seen, released);
            seen[warp as usize] = own;
        }
    }

    /// An atomic write at `offset` of an allocation.
    pub(super) fn release(&self, warp: u32, space: Space, shadow: &mut Shadow, offset: usize) {
        let clocks = &self.clocks[warp as usize];
        let fenced = match space {
            Space::Global => &clocks.fenced,
            Space::Shared => &clocks.fenced_in_block,
        };
        if !fenced.is_empty() {
            join(shadow.released.entry(offset).or_default(), fenced);
        }
    }

    #[inline]
    fn ordered(&self, event: &Event, actor: Actor) -> bool {
        let seen = &self.clocks[actor.warp as usize].seen;
        let known = seen.get(event.actor.warp as usize).copied().unwrap_or(0);
        match event.actor.warp == actor.warp {
            true => event.actor.lane == actor.lane || event.clock < known,
            false => event.clock <= known,
        }
    }

    #[inline(always)]
    fn conflicts(&self, event: &Event, kind: Kind, actor: Actor) -> bool {
        !event.kind.is_none() && !self.ordered(event, actor) && !self.compatible(event, kind, actor)
    }

    /// Whether two accesses may meet, because both are atomic for each other.
    fn compatible(&self, event: &Event, kind: Kind, actor: Actor) -> bool {
        let same_block = || event.actor.warp / self.warps_per_block == actor.warp / self.warps_per_block;
        let wide = |scope| scope == Scope::Device || same_block();
        match (event.kind, kind) {
            (Kind::Write, Kind::AtomicRead(scope)) => wide(scope),
            (first, second) => match (first.scope(), second.scope()) {
                (Some(first), Some(second)) => wide(first) && wide(second),
                _ => false,
            },
        }
    }

    /// Notes an access to `bytes` bytes at `offset` of an allocation of `size` bytes.
    #[inline(always)]
    pub(super) fn note(
        &self,
        shadow: &mut Shadow,
        size: usize,
        (offset, bytes): (usize, u32),
        kind: Kind,
        actor: Actor,
    ) -> Result<(), Conflict> {
        let writes = matches!(kind, Kind::Write | Kind::AtomicWrite(_));
        if writes && shadow.is_read_only(offset, bytes) {
            return Err(Conflict::ReadOnly(shadow.last_read_only));
        }
        let seen = &self.clocks[actor.warp as usize].seen;
        let clock = seen.get(actor.warp as usize).copied().unwrap_or(0);
        let event = Event { actor, kind, clock };
        for cell in shadow.cells(size, offset, bytes) {
            if self.conflicts(&cell.write, kind, actor) {
                return Err(Conflict::Race(cell.write));
            }
            if writes {
                if let Some(read) = cell.reads.iter().find(|read| self.conflicts(read, kind, actor)) {
                    return Err(Conflict::Race(*read));
                }
                cell.write = event;
                if !cell.reads[0].kind.is_none() {
                    cell.reads = Default::default();
                }
            } else if matches!(kind, Kind::Read) {
                let free = |read: &&mut Event| read.kind.is_none() || self.ordered(read, actor);
                if let Some(read) = cell.reads.iter_mut().find(free) {
                    *read = event;
                }
            }
        }
        Ok(())
    }

    /// Notes a read-only load.
    #[inline]
    pub(super) fn note_read_only(
        &self,
        shadow: &mut Shadow,
        size: usize,
        (offset, bytes): (usize, u32),
        actor: Actor,
    ) -> Result<(), Conflict> {
        if let Some(write) = shadow.written(offset, bytes) {
            return Err(Conflict::ReadOnly(write));
        }
        if shadow.read_only.is_empty() {
            shadow.read_only = vec![0; size.div_ceil(64)];
        }
        shadow.read_only[offset / 64] |= bits_of(offset, bytes);
        shadow.last_read_only = Event { actor, kind: Kind::Read, clock: 0 };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two warps of two blocks, whose accesses nothing orders.
    fn apart() -> Races {
        let mut races = Races::new(2, 1);
        (0..2).for_each(|block| races.begin_block(block));
        races
    }

    fn of(warp: u32) -> Actor {
        Actor { warp, ..Actor::default() }
    }

    #[test]
    fn cells_that_become_narrower_remember_who_wrote_them() {
        let (races, size, mut shadow) = (apart(), 1 << 20, Shadow::default());
        for place in [0, 4096, size - 8] {
            assert!(races.note(&mut shadow, size, (place, 8), Kind::Write, of(0)).is_ok());
        }
        for place in [8, 4088, 4104, size / 2, size - 9] {
            assert!(races.note(&mut shadow, size, (place, 1), Kind::Read, of(1)).is_ok(), "{place}");
        }
        for place in [0, 7, 4096, 4103, size - 8, size - 1] {
            let read = races.note(&mut shadow, size, (place, 1), Kind::Read, of(1));
            assert!(matches!(read, Err(Conflict::Race(event)) if event.actor.warp == 0), "{place}");
            assert!(shadow.written(place, 1).is_some_and(|write| write.actor.warp == 0), "{place}");
        }
        assert!(shadow.written(8, 4088).is_none());
    }

    #[test]
    fn what_was_written_is_not_read_only() {
        let (races, size, mut shadow) = (apart(), 1 << 20, Shadow::default());
        assert!(races.note_read_only(&mut shadow, size, (size - 4, 4), of(0)).is_ok());
        assert!(races.note(&mut shadow, size, (1 << 16, 4), Kind::Write, of(0)).is_ok());
        assert!(races.note_read_only(&mut shadow, size, ((1 << 16) + 2, 1), of(1)).is_err());
        assert!(races.note_read_only(&mut shadow, size, (1 << 12, 8), of(1)).is_ok());
        assert!(races.note(&mut shadow, size, (size - 1, 1), Kind::Write, of(1)).is_err());
    }
}
