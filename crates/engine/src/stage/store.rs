//! The state of a running stage: a buffer a state, but those that are small share a page ([`page`](super::page)); capacities by
//! class, how they grow, and the heap for text that kernels make. Nothing here launches a kernel.

use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::MutableBuffer;
use kelpie_compile::context::HeapPart;
use kelpie_compile::pipeline::{CapacityClass, CompiledPipeline, Growth, Program, Purpose};
use kelpie_device::{Buffer, Device, DeviceError, Download, KernelArgument, QueryStream};

use super::capacities::{Known, element_bytes};
use super::page::{Layout, Page};
use super::setting::Setting;
use crate::columns::ColumnCache;
use crate::error::EngineError;
use crate::error::reserve;
use crate::heap::{HeapMark, TextHeap};
use crate::options::Transfer;
use crate::primitives::Array;

/// Rows that are moved: so many that follow each other, with the first place from which and to which they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Move {
    pub from: u64,
    pub to: u64,
    pub rows: u64,
}

/// Elements that a state keeps free a CPU worker, beside a quarter of what it held: a worker may leave a part of a chunk of
/// places unused (`table::rows`).
const FITTING_SLACK: u64 = 1 << 10;

/// Places that may be taken beyond those that were taken before, beside an eighth of them.
const MORE_PLACES: u64 = 64;

/// Bytes of a state from which on kernels write it to memory of the host, with zero-copy: what is smaller comes with other small states.
const LEAST_IN_PLACE: usize = 1 << 16;

/// The buffers of one execution of a stage.
#[derive(Debug)]
pub(super) struct StateStore<'a> {
    device: &'a Arc<dyn Device>,
    stream: &'a dyn QueryStream,
    /// Makes room by evicting columns.
    cache: &'a ColumnCache,
    program: &'a Program,
    /// By class.
    capacities: Vec<u64>,
    /// By state; made when first asked for.
    buffers: Vec<Option<Buffer>>,
    /// By state: it became empty before the first kernel, and nobody has asked for that yet.
    fresh: Vec<bool>,
    /// Fills, and launches, that made states empty.
    clears: u64,
    /// The states that are small.
    pub page: Page<'a>,
    heap: TextHeap,
    /// Kernels get at memory of the host themselves.
    is_zero_copy: bool,
    /// No capacities are known to fit, and there is room for what tables are thought to need.
    is_new: bool,
    /// No capacities of this program are known to fit, and memory is not short.
    is_unfitted: bool,
}

impl<'a> StateStore<'a> {
    /// A store without buffers. It starts with the capacities that are known to fit, else with what the program says, but no
    /// more bytes than the movement allows where less may do.
    pub fn new(program: &'a Program, layout: &Layout, setting: &Setting<'a>, known: Known) -> StateStore<'a> {
        let most = setting.movement.initial_bytes;
        let is_new = known.own.is_none() && known.alike.is_none() && most.is_none();
        let is_unfitted = known.own.is_none() && most.is_none();
        let (_, memory) = setting.stream.device().memory();
        let capacities = known.capacities(program, most, memory);
        StateStore {
            device: setting.stream.device(),
            stream: setting.stream,
            cache: setting.cache,
            program,
            capacities,
            buffers: vec![None; program.states.len()],
            fresh: vec![false; program.states.len()],
            clears: 0,
            page: Page::new(layout, setting.stream),
            heap: TextHeap::new(most),
            is_zero_copy: setting.movement.transfer == Transfer::ZeroCopy,
            is_new,
            is_unfitted,
        }
    }

    // ---- capacities

    /// Whether no capacities are known to fit, and tables may be as large as they are thought to need.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether no capacities of this very program are known to fit, and memory is not short.
    pub fn is_unfitted(&self) -> bool {
        self.is_unfitted
    }

    /// Bytes of an element of all states of a class together.
    pub fn element_bytes(&self, class: usize) -> u64 {
        element_bytes(self.program, class)
    }

    /// The capacities of all classes.
    pub fn capacities(&self) -> &[u64] {
        &self.capacities
    }

    /// Elements for which a class has room.
    pub fn capacity(&self, class: usize) -> u64 {
        self.capacities[class]
    }

    /// Elements for which every class has room that grows by what a state counts.
    pub fn room_for_counted(&self, counter: usize) -> u64 {
        let classes = self.program.classes.iter().zip(&self.capacities);
        let counted = classes.filter(|(class, _)| class.growth == Growth::Counted(counter));
        counted.map(|(_, capacity)| *capacity).min().unwrap_or(u64::MAX)
    }

    /// Elements for which a state has room.
    pub fn capacity_of(&self, state: usize) -> u64 {
        self.capacities[self.program.states[state].class]
    }

    /// Gives a class another capacity: what its states held is lost.
    pub fn resize(&mut self, class: usize, capacity: u64) {
        if self.capacities[class] == capacity {
            return;
        }
        self.capacities[class] = capacity;
        for (state, declared) in self.program.states.iter().enumerate() {
            if declared.class == class {
                self.buffers[state] = None;
                self.fresh[state] = false;
                self.page.remove(state);
            }
        }
    }

    /// Exchanges the buffers of states of two classes, with their capacities.
    pub fn exchange(&mut self, classes: (usize, usize), states: &[(usize, usize)]) {
        self.capacities.swap(classes.0, classes.1);
        for &(one, other) in states {
            for state in [one, other] {
                self.page.remove(state);
                self.fresh[state] = false;
            }
            self.buffers.swap(one, other);
        }
    }

    /// Gives a class the size that follows from what ran before.
    pub fn size(&mut self, class: usize) -> Result<(), EngineError> {
        if let Growth::Sized(counter, fill) = self.program.classes[class].growth {
            let entries = self.at_most(counter)?;
            // One slot more than entries ends every search.
            let least = if fill.is_shared() { 1 } else { entries.saturating_add(1) };
            let slots = fill.slots(entries).max(least).max(16).next_power_of_two();
            self.resize(class, slots);
        }
        Ok(())
    }

    /// Makes room in a class after a launch that lacked some; whether it was this class that had too little. `is_partial`:
    /// more may be wanted than the launch could tell.
    pub fn grow(&mut self, class: usize, is_partial: bool) -> Result<bool, EngineError> {
        let capacity = self.capacities[class];
        let needed = match self.program.classes[class].growth {
            Growth::Fixed | Growth::Sized(..) => return Ok(false),
            // Another table of the pipeline may be the one that is full.
            Growth::Table(table) if self.read_word(table.count)? < table.fill.entries(capacity) => {
                return Ok(false);
            }
            Growth::Table(..) => capacity.saturating_mul(4),
            Growth::Counted(counter) => match self.read_word(counter)? {
                counted if counted > capacity && is_partial => counted.max(capacity.saturating_mul(2)),
                counted => counted,
            },
        };
        if needed > capacity {
            self.resize(class, needed);
        }
        Ok(needed > capacity)
    }

    /// The capacities that the state in use needs, with room for a different order of the same rows. Those of classes that
    /// follow from others stay.
    pub fn fitting(&self) -> Result<Vec<u64>, EngineError> {
        let mut capacities = self.capacities.clone();
        let variants = self.program.pipelines.iter().flat_map(CompiledPipeline::variants);
        let workers = variants.map(|variant| variant.kernel.shape.workers());
        let slack = (u64::from(workers.max().unwrap_or(0)) + 1) * FITTING_SLACK;
        for (class, capacity) in self.program.classes.iter().zip(&mut capacities) {
            let fits = match class.growth {
                Growth::Fixed | Growth::Sized(..) => continue,
                Growth::Table(table) => table.fitting(self.read_word(table.count)?),
                Growth::Counted(counter) => {
                    let used = self.read_word(counter)?;
                    used.saturating_add(used / 4).saturating_add(slack)
                }
            };
            *capacity = fits.min(*capacity);
        }
        Ok(capacities)
    }

    // ---- buffers

    /// Bytes of a state.
    pub fn bytes(&self, state: usize) -> Result<usize, EngineError> {
        let declared = &self.program.states[state];
        self.capacities[declared.class]
            .checked_mul(u64::from(declared.element_bytes))
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| {
                let (used, limit) = self.device.memory();
                let device = format!("{}: state {}", self.device.name(), declared.name);
                DeviceError::OutOfMemory { device, requested: u64::MAX, used, limit }.into()
            })
    }

    /// The buffer of a state that has one of its own.
    pub fn buffer(&mut self, state: usize) -> Result<Buffer, EngineError> {
        match self.place(state)? {
            (buffer, 0) if !self.page.has(state) => Ok(buffer),
            _ => {
                let name = &self.program.states[state].name;
                Err(EngineError::Internal(format!("state {name} has no buffer of its own")))
            }
        }
    }

    /// The buffer in which a state lies, and from which byte on.
    pub fn place(&mut self, state: usize) -> Result<(Buffer, usize), EngineError> {
        if let Some(offset) = self.page.offset(state) {
            self.clears += u64::from(self.page.existing().is_none());
            return Ok((self.page.buffer(self.device, self.cache)?, offset));
        }
        if let Some(buffer) = &self.buffers[state] {
            return Ok((Arc::clone(buffer), 0));
        }
        let buffer = self.allocate_state(state)?;
        self.buffers[state] = Some(Arc::clone(&buffer));
        Ok((buffer, 0))
    }

    /// Memory for a state. With zero-copy kernels write the result where the host reads it (Karnagel et al., section 3); where no such memory
    /// is left, to the device's, from where it is copied.
    fn allocate_state(&self, state: usize) -> Result<Buffer, EngineError> {
        let bytes = self.bytes(state)?;
        let is_result = self.program.states[state].purpose == Purpose::Output;
        if self.is_zero_copy && is_result && bytes >= LEAST_IN_PLACE {
            match self.cache.allocate_host(self.device, bytes) {
                Err(DeviceError::OutOfMemory { .. }) => {}
                found => return Ok(found?),
            }
        }
        self.allocate(bytes)
    }

    /// As [`Self::place`], if the state has one.
    fn existing(&self, state: usize) -> Option<(&Buffer, usize)> {
        match self.page.offset(state) {
            Some(offset) => self.page.existing().map(|page| (page, offset)),
            None => self.buffers[state].as_ref().map(|buffer| (buffer, 0)),
        }
    }

    /// Bytes for which a state has room now, if it has a place.
    pub fn existing_bytes(&self, state: usize) -> Option<u64> {
        let (buffer, _) = self.existing(state)?;
        match self.page.has(state) {
            true => self.bytes(state).ok().map(|bytes| bytes as u64),
            false => Some(buffer.bytes() as u64),
        }
    }

    /// Makes a buffer that was filled elsewhere that of a state.
    pub fn replace(&mut self, state: usize, buffer: Buffer) {
        self.page.remove(state);
        self.fresh[state] = false;
        self.buffers[state] = Some(buffer);
    }

    /// Device memory.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, EngineError> {
        Ok(self.cache.allocate(self.device, bytes.max(16))?)
    }

    // ---- contents

    /// Sets every byte of a state to zero.
    pub fn clear(&mut self, state: usize) -> Result<(), EngineError> {
        let (buffer, offset) = self.place(state)?;
        if self.page.is_clear(state) || std::mem::take(&mut self.fresh[state]) {
            return Ok(());
        }
        self.clears += 1;
        self.stream.fill(&buffer, offset, self.bytes(state)?, 0)?;
        self.page.cleared(state);
        Ok(())
    }

    /// The page and states, each with its bytes, which the caller is to set to zero.
    pub fn begin_empty(&mut self, states: &[usize]) -> Result<Vec<(Array, u64)>, EngineError> {
        let (page, bytes) = self.page.begin(self.device, self.cache)?;
        let mut arrays = vec![((page, 0), bytes as u64)];
        for &state in states {
            // The kernel writes whole words.
            let bytes = self.bytes(state)?;
            let buffer = self.allocate(bytes.next_multiple_of(8))?;
            self.buffers[state] = Some(Arc::clone(&buffer));
            arrays.push(((buffer, 0), bytes as u64));
            self.fresh[state] = true;
        }
        Ok(arrays)
    }

    /// States became empty by so many launches.
    pub fn emptied(&mut self, launches: u64) {
        self.clears += launches;
    }

    /// Fills, and launches, that made states empty.
    pub fn clears(&self) -> u64 {
        self.clears
    }

    /// The value of a state of one `u64`.
    pub fn read_word(&self, state: usize) -> Result<u64, EngineError> {
        let mut bytes = [0; 8];
        self.read_small(state, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The first bytes of a state; where launches are deferred, what they were the last time. Zeros where it has no buffer.
    pub fn read_small(&self, state: usize, bytes: &mut [u8]) -> Result<(), EngineError> {
        if self.page.has(state) {
            return self.page.read(state, bytes);
        }
        if let Some((buffer, offset)) = self.existing(state) {
            self.stream.download(buffer, offset, bytes)?;
        }
        Ok(())
    }

    /// A number that the word of a state does not exceed: the word itself, where launches are not deferred. It is the same each
    /// time, so that a table made for so many rows gets no more of them. Whether it was enough is found in the end.
    pub fn at_most(&self, state: usize) -> Result<u64, EngineError> {
        let Some(most) = self.foreseen_most(state) else { return self.read_word(state) };
        self.page.rely_on(state, most);
        Ok(most)
    }

    /// The same where launches are deferred, as long as nobody goes by it.
    pub fn foreseen_most(&self, state: usize) -> Option<u64> {
        let foreseen = self.page.foreseen_word(state)?;
        let is_sized =
            |class: &CapacityClass| matches!(class.growth, Growth::Sized(counter, _) if counter == state);
        // Places in tables of groups are given out as threads come to them: some more may be taken than the last time. A table
        // that follows from the number stays as it was.
        Some(match self.program.classes.iter().any(is_sized) {
            true => foreseen,
            false => foreseen.saturating_add(foreseen / 8).saturating_add(MORE_PLACES),
        })
    }

    /// What is known of the word of a state, for people; where launches are deferred, what it was the last time.
    pub fn glance(&self, state: usize) -> Result<u64, EngineError> {
        self.page.foreseen_word(state).map_or_else(|| self.read_word(state), Ok)
    }

    /// Moves elements of all states of a class that have a buffer; those that are moved ascend.
    pub fn move_elements(&mut self, class: usize, moves: &[Move]) -> Result<(), EngineError> {
        let (Some(first), Some(last)) = (moves.first(), moves.last()) else { return Ok(()) };
        let from = first.from..(last.from + last.rows).min(self.capacities[class]);
        for (state, declared) in self.program.states.iter().enumerate() {
            let width = declared.element_bytes as usize;
            // What a sort has put in the place of a state may be shorter: it is no row's.
            let is_whole =
                || self.existing_bytes(state).is_some_and(|bytes| bytes >= from.end * width as u64);
            let own = self.existing(state).filter(|_| declared.class == class && is_whole());
            let Some((buffer, offset)) = own else { continue };
            let mut moved = vec![0; (from.end - from.start) as usize * width];
            self.stream.download(buffer, offset + from.start as usize * width, &mut moved)?;
            for &Move { from: own, to, rows } in moves {
                let distance = (own - from.start) as usize;
                let Some(part) = moved.get(distance * width..(distance + rows as usize) * width) else {
                    return Err(EngineError::Internal(format!("{}: rows beyond the end", declared.name)));
                };
                self.stream.upload(buffer, offset + to as usize * width, part)?;
            }
        }
        Ok(())
    }

    /// Sets a state of one `u64`.
    pub fn set_word(&mut self, state: usize, value: u64) -> Result<(), EngineError> {
        let (buffer, offset) = self.place(state)?;
        self.page.changed(state);
        Ok(self.stream.upload(&buffer, offset, &value.to_le_bytes())?)
    }

    /// Bytes of several states, with one wait, as Arrow wants them.
    pub fn read_ranges(&self, parts: &[(usize, Range<usize>)]) -> Result<Vec<MutableBuffer>, EngineError> {
        let mut read = Vec::with_capacity(parts.len());
        for (_, range) in parts {
            reserve(range.len(), "rows of a result")?;
            read.push(MutableBuffer::from_len_zeroed(range.len()));
        }
        let mut downloads = Vec::new();
        for ((state, range), data) in parts.iter().zip(&mut read) {
            if let Some((buffer, offset)) = self.existing(*state).filter(|_| !range.is_empty()) {
                let offset = offset + range.start;
                downloads.push(Download { buffer, offset, data: data.as_slice_mut() });
            }
        }
        self.page.download(downloads)?;
        Ok(read)
    }

    // ---- text

    /// What a kernel over rows up to `rows` is to be told of the heap.
    pub fn heap_argument(&mut self, part: HeapPart, rows: u64) -> Result<KernelArgument, EngineError> {
        self.heap.argument(part, rows, self.device, self.cache)
    }

    /// Takes a larger heap for text where the last launch asked for more than there is; whether it did. A kernel asks only
    /// where its own text passes the end: no launch begins with a heap that is overdrawn.
    pub fn grow_heap(&mut self) -> Result<bool, EngineError> {
        self.heap.grow(self.device, self.cache)
    }

    /// Bytes of the heap that the last launch asked for in all.
    pub fn heap_asked(&self) -> Result<u64, EngineError> {
        self.heap.asked(self.device)
    }

    /// How much of the heap is taken now.
    pub fn heap_mark(&self) -> Result<HeapMark, EngineError> {
        self.heap.mark(self.device)
    }

    /// Gives back what was taken of the heap since a mark.
    pub fn rewind_heap(&self, mark: HeapMark) -> Result<(), EngineError> {
        self.heap.rewind(mark, self.device)
    }
}
