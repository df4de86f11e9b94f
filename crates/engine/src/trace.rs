//! A trace: what was done at which moment, for whoever looks at a time line of queries.
//!
//! Spans are recorded only between [`begin`] and [`take`], and by the whole process: threads and devices are shared by its queries. As
//! the meter does, the trace of a device's work sits in the seam of its stream, so that no kernel and no launch
//! knows of it. Launches that nobody waits for are placed by when they were asked for and how long the device says that they took.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kelpie_device::{
    BlockShape, Buffer, CopyTicket, Device, DeviceError, Download, HostCopy, Kernel, Launch, LaunchReport,
    QueryStream, Settled, Tier,
};
use kelpie_kir::{ValidModule, named};
use parking_lot::Mutex;

/// Spans that are kept, at most: what comes after them is counted.
const MOST_SPANS: usize = 1 << 20;

named! {
    /// What a span is part of: what is seen beside each other on a time line.
    #[derive(PartialOrd, Ord)]
    pub enum Track {
        /// Whole statements.
        Statements = "statements",
        /// From text to physical plan.
        Planning = "planning",
        /// From physical plan to kernels.
        Compiling = "compiling",
        /// From files or batches to columns.
        Reading = "reading",
        /// Between the host's memory and the device's.
        Copies = "copies",
        /// Kernels.
        Kernels = "kernels",
        /// What the engine does itself.
        Host = "host",
    }
}

/// Something that took time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What it is part of.
    pub track: Track,
    /// What was done.
    pub name: String,
    /// Nanoseconds since the trace began.
    pub start_ns: u64,
    /// As `start_ns`.
    pub end_ns: u64,
    /// Bytes that were moved, where that is what was done.
    pub bytes: Option<u64>,
}

/// What was recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// In the order in which they ended.
    pub spans: Vec<Span>,
    /// Spans that were not kept, as there were too many.
    pub left_out: u64,
}

struct Recording {
    origin: Instant,
    trace: Trace,
}

static IS_ON: AtomicBool = AtomicBool::new(false);
static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);

thread_local! {
    /// What the launches of this thread are for.
    static PURPOSE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Records from now on.
pub fn begin() {
    *RECORDING.lock() = Some(Recording { origin: Instant::now(), trace: Trace::default() });
    IS_ON.store(true, Ordering::Relaxed);
}

/// Ends the recording; what was recorded, where it was begun.
pub fn take() -> Option<Trace> {
    IS_ON.store(false, Ordering::Relaxed);
    RECORDING.lock().take().map(|recording| recording.trace)
}

/// Whether spans are recorded.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Records what began and ended at these moments.
pub fn record(track: Track, (start, end): (Instant, Instant), name: impl FnOnce() -> String) {
    add(track, (start, end), None, name);
}

fn add(track: Track, (start, end): (Instant, Instant), bytes: Option<u64>, name: impl FnOnce() -> String) {
    if !is_on() {
        return;
    }
    let mut recording = RECORDING.lock();
    let Some(Recording { origin, trace }) = recording.as_mut() else { return };
    if trace.spans.len() >= MOST_SPANS {
        trace.left_out += 1;
        return;
    }
    let since = |moment: Instant| moment.saturating_duration_since(*origin).as_nanos() as u64;
    let (start_ns, end_ns) = (since(start), since(end.max(start)));
    trace.spans.push(Span { track, name: name(), start_ns, end_ns, bytes });
}

/// Does something and records it.
pub fn spanned<T>(track: Track, name: impl FnOnce() -> String, body: impl FnOnce() -> T) -> T {
    if !is_on() {
        return body();
    }
    let start = Instant::now();
    let done = body();
    record(track, (start, Instant::now()), name);
    done
}

/// A span that ends when this is dropped.
#[derive(Debug)]
pub struct OpenSpan {
    track: Track,
    /// Absent where nothing is recorded.
    name: Option<String>,
    start: Instant,
}

/// A span that begins now.
pub fn open(track: Track, name: impl FnOnce() -> String) -> OpenSpan {
    OpenSpan { track, name: is_on().then(name), start: Instant::now() }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            record(self.track, (self.start, Instant::now()), || name);
        }
    }
}

/// Does something whose launches are recorded under this name.
pub(crate) fn for_purpose<T>(name: &str, body: impl FnOnce() -> T) -> T {
    if !is_on() {
        return body();
    }
    let before = PURPOSE.replace(Some(name.to_string()));
    let done = body();
    PURPOSE.set(before);
    done
}

fn purpose() -> String {
    PURPOSE.with_borrow(|name| name.clone()).unwrap_or_else(|| "order, prefix sum or the like".into())
}

/// A launch that nobody has waited for yet.
#[derive(Debug)]
struct Asked {
    name: String,
    at: Instant,
}

/// A stream whose operations are recorded.
#[derive(Debug)]
pub(crate) struct TracedStream {
    inner: Box<dyn QueryStream>,
    deferred: Mutex<Vec<Asked>>,
}

impl TracedStream {
    pub(crate) fn new(inner: Box<dyn QueryStream>) -> TracedStream {
        TracedStream { inner, deferred: Mutex::default() }
    }

    fn copy<T>(&self, what: &'static str, bytes: usize, body: impl FnOnce(&dyn QueryStream) -> T) -> T {
        let start = Instant::now();
        let done = body(self.inner.as_ref());
        add(Track::Copies, (start, Instant::now()), Some(bytes as u64), || what.into());
        done
    }

    /// Records launches that were not waited for, one after the other: none begins before it was asked for.
    fn place(&self, times_ns: &[u64]) {
        let mut free = None::<Instant>;
        for (asked, time_ns) in self.deferred.lock().drain(..).zip(times_ns) {
            let start = free.map_or(asked.at, |free| free.max(asked.at));
            let end = start + Duration::from_nanos(*time_ns);
            record(Track::Kernels, (start, end), || asked.name);
            free = Some(end);
        }
    }
}

impl QueryStream for TracedStream {
    fn device(&self) -> &Arc<dyn Device> {
        self.inner.device()
    }

    fn compile_for(
        &self,
        module: &ValidModule,
        kernel: &str,
        shape: BlockShape,
    ) -> Result<Arc<dyn Kernel>, DeviceError> {
        let compile = || self.inner.compile_for(module, kernel, shape);
        spanned(Track::Compiling, || format!("compile {kernel}"), compile)
    }

    fn set_tier(&self, tier: Tier) {
        self.inner.set_tier(tier);
    }

    fn tier(&self) -> Tier {
        self.inner.tier()
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.copy("to the device", data.len(), |inner| inner.upload(buffer, offset, data))
    }

    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        self.copy("fill", bytes, |inner| inner.fill(buffer, offset, bytes, value))
    }

    fn download_many(&self, parts: &mut [Download<'_>]) -> Result<(), DeviceError> {
        let bytes = parts.iter().map(|part| part.data.len()).sum();
        self.copy("to the host", bytes, |inner| inner.download_many(parts))
    }

    fn begin_copies(&self, copies: &[HostCopy<'_>]) -> Result<CopyTicket, DeviceError> {
        let bytes = copies.iter().map(|copy| copy.bytes).sum();
        self.copy("block to the device", bytes, |inner| inner.begin_copies(copies))
    }

    fn after_copies(&self, ticket: CopyTicket) -> Result<(), DeviceError> {
        self.inner.after_copies(ticket)
    }

    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError> {
        let (before, at) = (self.inner.deferred(), Instant::now());
        let report = self.inner.launch(launch)?;
        if self.inner.deferred() > before {
            self.deferred.lock().push(Asked { name: purpose(), at });
            return Ok(report);
        }
        let end = Instant::now();
        let start = end.checked_sub(Duration::from_nanos(report.time_ns)).map_or(at, |start| start.max(at));
        record(Track::Kernels, (start, end), purpose);
        Ok(report)
    }

    fn defer(&self) -> Result<bool, DeviceError> {
        self.inner.defer()
    }

    fn deferred(&self) -> usize {
        self.inner.deferred()
    }

    fn settle(&self, parts: &mut [Download<'_>]) -> Result<Settled, DeviceError> {
        let bytes = parts.iter().map(|part| part.data.len()).sum();
        let settled = self.copy("wait, and to the host", bytes, |inner| inner.settle(parts));
        match &settled {
            Ok(settled) => self.place(&settled.times_ns),
            Err(_) => self.deferred.lock().clear(),
        }
        settled
    }
}
