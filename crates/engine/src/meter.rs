//! The meter: bytes that kernels really access, by what the memory is for (`kelpie.meter`; HorseQC, sections 3 and 8, "memory
//! access volume").
//!
//! It sits in the one seam of launches: a [`QueryStream`] that compiles kernels with counters (`kelpie_kir::meter`) and
//! gives each launch its counters. Kernels are slower with them, so times and bytes are taken in different runs.

use std::sync::Arc;

use kelpie_compile::pipeline::Purpose;
use kelpie_device::{
    Accessed, BlockShape, Buffer, BuildTimes, CopyTicket, Device, DeviceError, Download, HostCopy, Kernel,
    KernelArgument, Launch, LaunchReport, QueryStream, Tier,
};
use kelpie_kir::meter::{counter_words, metered};
use kelpie_kir::{ValidModule, validate};
use parking_lot::Mutex;

/// Bytes accessed, by what the memory is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Columns of tables in device memory, and constants.
    pub input: Accessed,
    /// What kernels leave for the next: materialised rows, sorts, positions, counts.
    pub store: Accessed,
    /// Hash tables with their indexes and rows, and groups.
    pub table: Accessed,
    /// The result.
    pub output: Accessed,
    /// Columns of tables in host memory, over the link.
    pub link: Accessed,
}

/// What an argument of a kernel gives access to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Region {
    Input,
    State(Purpose),
    Link,
}

impl Traffic {
    /// All of the device's memory: everything but the link.
    pub fn device(&self) -> Accessed {
        let mut all = Accessed::default();
        [self.input, self.store, self.table, self.output].into_iter().for_each(|part| all += part);
        all
    }

    /// Each part with its name.
    pub fn parts(&self) -> [(&'static str, Accessed); 5] {
        [
            ("input", self.input),
            ("store", self.store),
            ("table", self.table),
            ("output", self.output),
            ("link", self.link),
        ]
    }

    pub(crate) fn add(&mut self, region: Region, accessed: Accessed) {
        *match region {
            Region::Input => &mut self.input,
            Region::State(Purpose::Store) => &mut self.store,
            Region::State(Purpose::Table) => &mut self.table,
            Region::State(Purpose::Output) => &mut self.output,
            Region::Link => &mut self.link,
        } += accessed;
    }
}

impl std::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.input += other.input;
        self.store += other.store;
        self.table += other.table;
        self.output += other.output;
        self.link += other.link;
    }
}

/// What all launches of a query accessed together.
pub(crate) type Total = Arc<Mutex<Accessed>>;

/// The traffic of a query: its pipelines', and as stores what the kernels around them accessed (prefix sums, sorts, runs
/// that were given up).
pub(crate) fn of_query(pipelines: impl Iterator<Item = Traffic>, total: Accessed) -> Traffic {
    let mut all = Traffic::default();
    pipelines.for_each(|traffic| all += traffic);
    let (mut known, link) = (all.device(), all.link);
    known += link;
    all.store += Accessed {
        read: total.read.saturating_sub(known.read),
        written: total.written.saturating_sub(known.written),
    };
    all
}

/// A stream whose kernels count.
#[derive(Debug)]
pub(crate) struct MeteredStream {
    inner: Box<dyn QueryStream>,
    total: Total,
}

/// A kernel with counters.
#[derive(Debug)]
struct MeteredKernel(Arc<dyn Kernel>);

impl Kernel for MeteredKernel {
    fn compile_ns(&self) -> u64 {
        self.0.compile_ns()
    }

    fn build_times(&self) -> BuildTimes {
        self.0.build_times()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl MeteredStream {
    pub(crate) fn new(inner: Box<dyn QueryStream>, total: Total) -> MeteredStream {
        MeteredStream { inner, total }
    }

    fn counted(&self, launch: &Launch<'_>, kernel: &MeteredKernel) -> Result<LaunchReport, DeviceError> {
        let bytes = counter_words(launch.arguments().len()) * 8;
        let counters = self.device().allocate(bytes)?;
        self.inner.fill(&counters, 0, bytes, 0)?;
        let mut arguments = launch.arguments().to_vec();
        arguments.push(KernelArgument::Buffer(Arc::clone(&counters), 0));
        let (kernel, blocks, cancel) = (kernel.0.as_ref(), launch.blocks(), launch.cancel());
        let mut report = crate::launch::launch(self.inner.as_ref(), kernel, blocks, &arguments, cancel)?;
        let mut words = vec![0; bytes];
        self.inner.download(&counters, 0, &mut words)?;
        let mut words = words.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let mut total = self.total.lock();
        while let (Some(read), Some(written)) = (words.next(), words.next()) {
            let accessed = Accessed { read, written };
            *total += accessed;
            report.accessed.push(accessed);
        }
        Ok(report)
    }
}

impl QueryStream for MeteredStream {
    fn device(&self) -> &Arc<dyn Device> {
        self.inner.device()
    }

    fn tier(&self) -> Tier {
        self.inner.tier()
    }

    fn compile_for(
        &self,
        module: &ValidModule,
        kernel: &str,
        shape: BlockShape,
    ) -> Result<Arc<dyn Kernel>, DeviceError> {
        let module = validate(metered(module)).map_err(|error| DeviceError::Compile {
            device: self.device().name(),
            kernel: kernel.into(),
            message: format!("with counters: {error}"),
        })?;
        Ok(Arc::new(MeteredKernel(self.inner.compile_for(&module, kernel, shape)?)))
    }

    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError> {
        match launch.kernel().as_any().downcast_ref::<MeteredKernel>() {
            Some(kernel) => self.counted(&launch, kernel),
            None => self.inner.launch(launch),
        }
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.inner.upload(buffer, offset, data)
    }

    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        self.inner.fill(buffer, offset, bytes, value)
    }

    fn download_many(&self, parts: &mut [Download<'_>]) -> Result<(), DeviceError> {
        self.inner.download_many(parts)
    }

    fn begin_copies(&self, copies: &[HostCopy<'_>]) -> Result<CopyTicket, DeviceError> {
        self.inner.begin_copies(copies)
    }

    fn after_copies(&self, ticket: CopyTicket) -> Result<(), DeviceError> {
        self.inner.after_copies(ticket)
    }
}
