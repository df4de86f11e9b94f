//! Profiles of lanes: how many lanes of warps have rows at each step of a pipeline, on a device that does not count them itself
//! (`kelpie.profile = lanes`; DogQC, section 2.1).
//!
//! As the meter does, it sits in the one seam of launches: a [`QueryStream`] that compiles kernels which count at their marks
//! (`kelpie_kir::profile`), gives each launch its counters, and reports them as a device does that counts. Such kernels are slower, so times are
//! taken in runs without it.

use std::collections::BTreeMap;
use std::sync::Arc;

use kelpie_device::{
    BlockShape, Buffer, BuildTimes, CopyTicket, Device, DeviceError, Download, HostCopy, Kernel,
    KernelArgument, LaneActivity, Launch, LaunchReport, QueryStream, Tier,
};
use kelpie_kir::profile::{MOST_LANES, marks, profiled};
use kelpie_kir::{Target, ValidModule, validate};

/// `kelpie.profile`: what kernels count beside their work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Nothing.
    #[default]
    Off,
    /// The lanes of warps that have rows at each step, and at the sink. A CPU's warps have one, which is not counted.
    Lanes,
}

impl Profile {
    /// Whether kernels for a target count.
    pub(crate) fn counts(self, target: &Target) -> bool {
        self == Profile::Lanes && target.lanes > 1
    }

    /// What code is generated for.
    pub(crate) fn target(self, target: &Target) -> Target {
        let counts_marks = target.counts_marks || self.counts(target);
        Target { counts_marks, ..target.clone() }
    }
}

/// A stream whose kernels count at their marks.
#[derive(Debug)]
pub(crate) struct ProfiledStream(Box<dyn QueryStream>);

/// A kernel with counters.
#[derive(Debug)]
struct ProfiledKernel {
    kernel: Arc<dyn Kernel>,
    /// Numbers of its marks.
    marks: u32,
}

impl Kernel for ProfiledKernel {
    fn compile_ns(&self) -> u64 {
        self.kernel.compile_ns()
    }

    fn build_times(&self) -> BuildTimes {
        self.kernel.build_times()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl ProfiledStream {
    pub(crate) fn new(inner: Box<dyn QueryStream>) -> ProfiledStream {
        ProfiledStream(inner)
    }

    fn counted(&self, launch: &Launch<'_>, kernel: &ProfiledKernel) -> Result<LaunchReport, DeviceError> {
        let bytes = kernel.marks as usize * MOST_LANES * 8;
        let counters = self.device().allocate(bytes)?;
        self.0.fill(&counters, 0, bytes, 0)?;
        let mut arguments = launch.arguments().to_vec();
        arguments.push(KernelArgument::Buffer(Arc::clone(&counters), 0));
        let (blocks, cancel) = (launch.blocks(), launch.cancel());
        let kernel = kernel.kernel.as_ref();
        let mut report = crate::launch::launch(self.0.as_ref(), kernel, blocks, &arguments, cancel)?;
        let mut words = vec![0; bytes];
        self.0.download(&counters, 0, &mut words)?;
        let activity = report.activity.unwrap_or_default();
        report.activity = Some(LaneActivity { marks: counts(&words), ..activity });
        Ok(report)
    }
}

/// What stands in the counters: by the number of a mark that somebody came by, of each number of lanes, from one on, how often so
/// many came together.
fn counts(words: &[u8]) -> BTreeMap<u32, Vec<u64>> {
    let of_mark = |(number, words): (u32, &[u8])| {
        let words = words.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let mut by_lanes: Vec<u64> = words.collect();
        let most = by_lanes.iter().rposition(|count| *count > 0)?;
        by_lanes.truncate(most + 1);
        Some((number, by_lanes))
    };
    (0..).zip(words.chunks_exact(MOST_LANES * 8)).filter_map(of_mark).collect()
}

impl QueryStream for ProfiledStream {
    fn device(&self) -> &Arc<dyn Device> {
        self.0.device()
    }

    fn tier(&self) -> Tier {
        self.0.tier()
    }

    fn compile_for(
        &self,
        module: &ValidModule,
        kernel: &str,
        shape: BlockShape,
    ) -> Result<Arc<dyn Kernel>, DeviceError> {
        let named = module.kernels.iter().find(|(_, known)| known.name == kernel);
        let marks = named.map_or(0, |(_, known)| marks(known));
        if marks == 0 {
            return self.0.compile_for(module, kernel, shape);
        }
        let module = validate(profiled(module)).map_err(|error| DeviceError::Compile {
            device: self.device().name(),
            kernel: kernel.into(),
            message: format!("with counters of lanes: {error}"),
        })?;
        let kernel = self.0.compile_for(&module, kernel, shape)?;
        Ok(Arc::new(ProfiledKernel { kernel, marks }))
    }

    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError> {
        match launch.kernel().as_any().downcast_ref::<ProfiledKernel>() {
            Some(kernel) => self.counted(&launch, kernel),
            None => self.0.launch(launch),
        }
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.0.upload(buffer, offset, data)
    }

    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        self.0.fill(buffer, offset, bytes, value)
    }

    fn download_many(&self, parts: &mut [Download<'_>]) -> Result<(), DeviceError> {
        self.0.download_many(parts)
    }

    fn begin_copies(&self, copies: &[HostCopy<'_>]) -> Result<CopyTicket, DeviceError> {
        self.0.begin_copies(copies)
    }

    fn after_copies(&self, ticket: CopyTicket) -> Result<(), DeviceError> {
        self.0.after_copies(ticket)
    }
}
