//! The page of a stage: one buffer for all states that are small, as counters are. They are cleared with one fill, and come to
//! the host with one copy, which answers for all of them until a kernel runs again.
//!
//! Where launches are deferred, nobody waits for what they count: the host goes on from what the page held when the stage last
//! ended. In the end it holds what is true, and the stage runs again, step by step, if that is something else.

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use kelpie_compile::pipeline::{CompiledPipeline, Growth, Program, Task};
use kelpie_device::{Buffer, Device, Download, QueryStream};

use crate::columns::ColumnCache;
use crate::error::EngineError;

/// Bytes of a state that lies in the page, at most.
const MOST_BYTES: u64 = 256;
/// States begin at multiples of it: no two lie in one line of a processor's cache.
const ALIGNMENT: usize = 128;

/// Which states lie in the page of a program, and where.
#[derive(Debug)]
pub struct Layout {
    /// By state: from which byte on.
    offsets: Vec<Option<usize>>,
    bytes: usize,
}

impl Layout {
    /// The layout for a program: states of a few bytes whose size never changes.
    pub fn of(program: &Program) -> Layout {
        let apart: BTreeSet<usize> = program.pipelines.iter().flat_map(apart).collect();
        let mut layout = Layout { offsets: vec![None; program.states.len()], bytes: 0 };
        for (number, state) in program.states.iter().enumerate() {
            let class = &program.classes[state.class];
            let bytes = class.initial.saturating_mul(u64::from(state.element_bytes));
            if class.growth == Growth::Fixed && bytes <= MOST_BYTES && !apart.contains(&number) {
                layout.offsets[number] = Some(layout.bytes);
                layout.bytes += (bytes as usize).next_multiple_of(ALIGNMENT).max(ALIGNMENT);
            }
        }
        layout
    }
}

/// States that actions take as whole buffers.
fn apart(pipeline: &CompiledPipeline) -> Vec<usize> {
    let mut apart = Vec::new();
    for action in pipeline.variants().flat_map(|variant| &variant.around) {
        match &action.task {
            Task::PrefixSum(state) => apart.push(*state),
            Task::Rank(words) => apart.extend([words.bits, words.ranks]),
            Task::Sort(sorting) => apart.extend(sorting.words.iter().chain([&sorting.order])),
            Task::Count(counting) => apart.extend(counting.counts),
            Task::Stride(_, strides) => apart.extend([strides.words, strides.order, strides.places]),
            _ => {}
        }
    }
    apart
}

/// The page of one execution.
#[derive(Debug)]
pub(super) struct Page<'a> {
    stream: &'a dyn QueryStream,
    /// By state; `None` where the state has a buffer of its own.
    offsets: Vec<Option<usize>>,
    bytes: usize,
    /// Made, and cleared, when first asked for.
    buffer: Option<Buffer>,
    /// By state: nothing was written since it was cleared.
    clear: Vec<bool>,
    /// What lies in it, until something is written.
    content: RefCell<Option<Vec<u8>>>,
    /// What it held when the stage last ended: what it is taken to hold while launches are deferred.
    foreseen: RefCell<Option<Arc<Vec<u8>>>>,
    /// What somebody went by since then.
    relied_on: RefCell<BTreeSet<Reliance>>,
    /// What is known of launches that were deferred: their times on the device, in nanoseconds.
    times_ns: RefCell<Vec<u64>>,
    /// Time that the host waited for them, in nanoseconds.
    waited_ns: Cell<u64>,
    /// Something else came of them than was foreseen, or it is not known what.
    missed: Cell<bool>,
}

/// What is taken for true before it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reliance {
    /// So many bytes from here on are what they were.
    Same(usize, usize),
    /// The word here is no more than this.
    AtMost(usize, u64),
}

impl Reliance {
    fn is_right(self, content: &[u8], foreseen: &[u8]) -> bool {
        match self {
            Reliance::Same(from, bytes) => {
                content.get(from..from + bytes) == foreseen.get(from..from + bytes)
            }
            Reliance::AtMost(at, most) => word(content, at).is_some_and(|word| word <= most),
        }
    }
}

/// The word at a byte.
fn word(content: &[u8], at: usize) -> Option<u64> {
    content.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

impl<'a> Page<'a> {
    pub fn new(layout: &Layout, stream: &'a dyn QueryStream) -> Page<'a> {
        Page {
            stream,
            offsets: layout.offsets.clone(),
            bytes: layout.bytes,
            buffer: None,
            clear: vec![true; layout.offsets.len()],
            content: RefCell::default(),
            foreseen: RefCell::default(),
            relied_on: RefCell::default(),
            times_ns: RefCell::default(),
            waited_ns: Cell::new(0),
            missed: Cell::new(false),
        }
    }

    /// From which byte on a state lies in it, if it does.
    pub fn offset(&self, state: usize) -> Option<usize> {
        self.offsets.get(state).copied().flatten()
    }

    pub fn has(&self, state: usize) -> bool {
        self.offset(state).is_some()
    }

    /// The state has a buffer of its own from now on.
    pub fn remove(&mut self, state: usize) {
        self.offsets[state] = None;
    }

    /// The buffer, if there is one.
    pub fn existing(&self) -> Option<&Buffer> {
        self.buffer.as_ref()
    }

    pub fn buffer(&mut self, device: &Arc<dyn Device>, cache: &ColumnCache) -> Result<Buffer, EngineError> {
        if let Some(buffer) = &self.buffer {
            return Ok(Arc::clone(buffer));
        }
        let (buffer, bytes) = self.begin(device, cache)?;
        self.stream.fill(&buffer, 0, bytes, 0)?;
        Ok(buffer)
    }

    /// Makes the buffer, which is not cleared, and how many bytes of it have to be.
    pub fn begin(
        &mut self,
        device: &Arc<dyn Device>,
        cache: &ColumnCache,
    ) -> Result<(Buffer, usize), EngineError> {
        let buffer = cache.allocate(device, self.bytes.max(ALIGNMENT))?;
        self.buffer = Some(Arc::clone(&buffer));
        Ok((buffer, self.bytes))
    }

    /// Whether every byte of a state is known to be zero.
    pub fn is_clear(&self, state: usize) -> bool {
        self.has(state) && self.clear[state]
    }

    /// A state was cleared.
    pub fn cleared(&mut self, state: usize) {
        self.changed(state);
        self.clear[state] = true;
    }

    /// Something writes to a state, or may.
    pub fn changed(&mut self, state: usize) {
        self.clear[state] = false;
        *self.content.get_mut() = None;
    }

    /// The first bytes of a state.
    pub fn read(&self, state: usize, bytes: &mut [u8]) -> Result<(), EngineError> {
        let Some(offset) = self.offset(state) else { return Ok(()) };
        let range = offset..offset + bytes.len();
        if let Some(foreseen) = &*self.foreseen.borrow() {
            self.relied_on.borrow_mut().insert(Reliance::Same(offset, bytes.len()));
            return copy(foreseen, range, bytes);
        }
        let mut content = self.content.borrow_mut();
        let content = match &mut *content {
            Some(content) => content,
            None => content.insert(self.fetch()?),
        };
        copy(content, range, bytes)
    }

    /// While launches are deferred: what a state of one `u64` held the last time.
    pub fn foreseen_word(&self, state: usize) -> Option<u64> {
        word(self.foreseen.borrow().as_ref()?, self.offset(state)?)
    }

    /// From now on a state of one `u64` is taken for no more than this, until that is known.
    pub fn rely_on(&self, state: usize, most: u64) {
        if let Some(offset) = self.offset(state).filter(|_| self.is_foreseen()) {
            self.relied_on.borrow_mut().insert(Reliance::AtMost(offset, most));
        }
    }

    fn fetch(&self) -> Result<Vec<u8>, EngineError> {
        let mut content = vec![0; self.bytes];
        if let Some(buffer) = &self.buffer {
            self.stream.download(buffer, 0, &mut content)?;
        }
        Ok(content)
    }

    /// All that lies in it.
    pub fn content(&self) -> Result<Vec<u8>, EngineError> {
        let known = self.content.borrow().clone();
        known.map_or_else(|| self.fetch(), Ok)
    }

    /// Launches are deferred: the page is taken to hold what it held the last time.
    pub fn foresee(&self, page: Arc<Vec<u8>>) {
        *self.foreseen.borrow_mut() = Some(page);
    }

    /// Whether it is taken to hold something.
    pub fn is_foreseen(&self) -> bool {
        self.foreseen.borrow().is_some()
    }

    /// What it is taken to hold.
    pub fn foreseen(&self) -> Option<Arc<Vec<u8>>> {
        self.foreseen.borrow().clone()
    }

    /// Whether launches are deferred, or were and did not come to what was foreseen.
    pub fn is_in_doubt(&self) -> bool {
        self.is_foreseen() || self.missed.get()
    }

    /// The times of deferred launches that are known, in nanoseconds.
    pub fn times_ns(&self) -> Ref<'_, Vec<u64>> {
        self.times_ns.borrow()
    }

    /// Time that the host waited for deferred launches, in nanoseconds.
    pub fn waited_ns(&self) -> u64 {
        self.waited_ns.get()
    }

    /// Copies parts of states to the host, with one wait. Where launches are deferred, it is the wait for them, and the parts are
    /// only given where all of them came to their end and made what was foreseen.
    pub fn download(&self, parts: Vec<Download<'_>>) -> Result<(), EngineError> {
        let Some(foreseen) = self.foreseen.take() else {
            let mut parts = parts;
            return Ok(self.stream.download_many(&mut parts)?);
        };
        self.missed.set(true);
        let relied_on = self.relied_on.take();
        let mut content = vec![0; self.bytes];
        let mut parts: Vec<Download<'_>> = parts;
        parts.extend(self.buffer.as_ref().map(|buffer| Download { buffer, offset: 0, data: &mut content }));
        let start = Instant::now();
        let settled = self.stream.settle(&mut parts)?;
        self.waited_ns.set(self.waited_ns.get() + start.elapsed().as_nanos() as u64);
        let came = relied_on.into_iter().all(|reliance| reliance.is_right(&content, &foreseen));
        if !came || settled.status != 0 {
            return Err(EngineError::Internal("a stage came to something else than the last time".into()));
        }
        self.missed.set(false);
        self.times_ns.borrow_mut().extend(settled.times_ns);
        *self.content.borrow_mut() = Some(content);
        Ok(())
    }
}

fn copy(content: &[u8], range: Range<usize>, bytes: &mut [u8]) -> Result<(), EngineError> {
    match content.get(range) {
        Some(part) => bytes.copy_from_slice(part),
        None => return Err(EngineError::Internal("a state beyond the end of its page".into())),
    }
    Ok(())
}
