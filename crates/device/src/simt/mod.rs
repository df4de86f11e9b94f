//! The SIMT interpreter as a device: slow, and checks everything. Accesses are checked against the exact size of a
//! buffer, fresh memory holds no zeros, and races are faults.

mod memory;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use kelpie_backend::simt::{Argument, Config, Program};
use kelpie_kir::{Target, Type, ValidModule};

use self::memory::{SimtMemory, Space};
use crate::memory::default_limit;
use crate::query::Immediate;
use crate::{
    BlockShape, Buffer, Device, DeviceError, DeviceKind, Kernel, KernelArgument, LaneActivity, Launch,
    LaunchReport, QueryStream,
};

/// Name of the device in errors.
const DEVICE: &str = "simt";
/// Shared memory of a block, in bytes: what every NVIDIA GPU has.
const SHARED_BYTES: u32 = 48 << 10;
/// Of a GPU that is not there: what an H100 has, and what [`CudaDevice`](crate::cuda::CudaDevice) makes of it.
const GPU_MULTIPROCESSORS: u32 = 132;
const GPU_RESIDENT_BLOCKS: u32 = 8;
const GPU_BLOCK_THREADS: u32 = 256;
const GPU_SHARED_BYTES: u32 = 227 << 10;

/// The SIMT interpreter. Launches run one at a time, in the calling thread.
#[derive(Debug)]
pub struct SimtDevice {
    target: Target,
    /// Whether its code, for people, is CUDA C: it stands for a GPU.
    is_gpu: bool,
    detect_races: bool,
    space: Arc<Space>,
    /// Launches so far: each runs its warps in another order.
    launches: AtomicU64,
}

impl SimtDevice {
    /// A device of warps of `lanes` (1 to 32) lanes, with the race detector on.
    pub fn new(lanes: u32, block_threads: u32, resident_blocks: u32) -> Arc<SimtDevice> {
        SimtDevice::with_race_detection(lanes, block_threads, resident_blocks, true)
    }

    /// As [`SimtDevice::new`]; the race detector costs time and memory.
    pub fn with_race_detection(
        lanes: u32,
        block_threads: u32,
        resident_blocks: u32,
        detect_races: bool,
    ) -> Arc<SimtDevice> {
        let lanes = lanes.clamp(1, 32);
        let block_threads = block_threads.clamp(lanes, 1024) / lanes * lanes;
        let target = Target::simt(lanes, block_threads, SHARED_BYTES, resident_blocks.max(1));
        let target = Target { counts_marks: true, ..target };
        let space = Space::new(DEVICE, default_limit());
        Arc::new(SimtDevice { target, is_gpu: false, detect_races, space, launches: AtomicU64::new(0) })
    }

    /// Stands for an NVIDIA GPU of data centers where there is none: code that is made for it is what such a GPU would get.
    pub fn in_place_of_gpu() -> Arc<SimtDevice> {
        let target =
            Target::simt(32, GPU_BLOCK_THREADS, GPU_SHARED_BYTES, GPU_MULTIPROCESSORS * GPU_RESIDENT_BLOCKS);
        let space = Space::new(DEVICE, default_limit());
        Arc::new(SimtDevice { target, is_gpu: true, detect_races: false, space, launches: AtomicU64::new(0) })
    }

    fn memory_of<'a>(&self, buffer: &'a Buffer) -> Result<&'a SimtMemory, DeviceError> {
        SimtMemory::of(buffer, &self.space)
    }
}

/// A kernel ready to be interpreted.
#[derive(Debug)]
struct SimtKernel {
    program: Program,
    name: String,
    params: Vec<Type>,
    block_threads: u32,
    compile_ns: u64,
}

impl Kernel for SimtKernel {
    fn compile_ns(&self) -> u64 {
        self.compile_ns
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Device for SimtDevice {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Simt
    }

    fn name(&self) -> String {
        match self.is_gpu {
            true => format!("an NVIDIA GPU of {GPU_MULTIPROCESSORS} multiprocessors"),
            false => format!("{DEVICE} ({} lanes)", self.target.lanes),
        }
    }

    fn properties(&self) -> Vec<(String, String)> {
        [
            ("lanes", self.target.lanes.to_string()),
            ("threads of a block", self.target.block_threads.to_string()),
            ("resident blocks", self.target.resident_blocks.to_string()),
            ("race detection", self.detect_races.to_string()),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn memory(&self) -> (u64, u64) {
        self.space.usage()
    }

    fn set_memory_limit(&self, limit: Option<u64>) {
        self.space.set_limit(limit);
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        self.space.allocate(bytes)
    }

    fn allocate_host(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        Ok(self.space.allocate_free(bytes))
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.memory_of(buffer)?.access("upload", offset, data.len(), |part| part.copy_from_slice(data))
    }

    fn download(&self, buffer: &Buffer, offset: usize, data: &mut [u8]) -> Result<(), DeviceError> {
        self.memory_of(buffer)?.access("download", offset, data.len(), |part| data.copy_from_slice(part))
    }

    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        self.memory_of(buffer)?.access("fill", offset, bytes, |part| part.fill(value))
    }

    fn compile_for(
        &self,
        module: &ValidModule,
        kernel: &str,
        shape: BlockShape,
    ) -> Result<Arc<dyn Kernel>, DeviceError> {
        let started = Instant::now();
        let failed =
            |message: String| DeviceError::Compile { device: DEVICE.into(), kernel: kernel.into(), message };
        if let Some(problem) = shape.problem(&self.target) {
            return Err(failed(problem));
        }
        let params = crate::kernel_params(DEVICE, module, kernel)?;
        let program = Program::new(module, kernel).map_err(|fault| failed(fault.to_string()))?;
        let compile_ns = started.elapsed().as_nanos() as u64;
        let block_threads = shape.threads;
        Ok(Arc::new(SimtKernel { program, name: kernel.into(), params, block_threads, compile_ns }))
    }

    fn code(&self, module: &ValidModule, shape: BlockShape) -> Result<String, DeviceError> {
        if !self.is_gpu {
            return Ok(kelpie_kir::text::print(module));
        }
        let printed = kelpie_backend::cuda::print_with(module, &crate::print_options(shape));
        printed.map_err(|error| DeviceError::Failed {
            device: self.name(),
            operation: "printing a module".into(),
            message: error.to_string(),
        })
    }

    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError> {
        let failed = |kernel: &str, message: String| DeviceError::Failed {
            device: DEVICE.into(),
            operation: format!("launch of kernel {kernel}"),
            message,
        };
        let kernel = launch.kernel().as_any().downcast_ref::<SimtKernel>();
        let kernel = kernel.ok_or_else(|| failed("?", "the kernel belongs to another device".into()))?;
        crate::check_arguments(DEVICE, &kernel.name, &kernel.params, launch.arguments())?;
        let arguments = launch.arguments().iter().map(|argument| {
            Ok(match (argument, argument.buffer()) {
                (_, Some((buffer, offset))) => {
                    Argument::Pointer(self.memory_of(buffer)?.address().wrapping_add(offset))
                }
                (KernelArgument::Scalar(_, bits), _) => Argument::Scalar(*bits),
                _ => return Err(failed(&kernel.name, "an argument without a value".into())),
            })
        });
        let arguments = arguments.collect::<Result<Vec<_>, DeviceError>>()?;
        let config = Config {
            lanes: self.target.lanes,
            block_threads: kernel.block_threads,
            blocks: launch.blocks(),
            seed: self.launches.fetch_add(1, Ordering::Relaxed),
            step_limit: u64::MAX,
            detect_races: self.detect_races,
        };
        let started = Instant::now();
        let cancelled = || launch.cancel().is_cancelled();
        let report = self.space.launch(|memory| kernel.program.run(&arguments, memory, &config, &cancelled));
        let report = report.map_err(|fault| failed(&kernel.name, fault.to_string()))?;
        let marks = report.marks.into_iter().map(|(number, passages)| (number, passages.by_lanes)).collect();
        let activity = LaneActivity {
            warp_steps: report.warp_steps,
            most_warp_steps: report.most_warp_steps,
            lane_steps: report.lane_steps,
            block_atomics: report.block_atomics,
            device_atomics: report.device_atomics,
            marks,
        };
        let time_ns = started.elapsed().as_nanos() as u64;
        Ok(LaunchReport { status: report.status, time_ns, activity: Some(activity), accessed: Vec::new() })
    }

    fn begin_query(self: Arc<Self>) -> Result<Box<dyn QueryStream>, DeviceError> {
        Ok(Box::new(Immediate::new(self)))
    }
}

#[cfg(test)]
mod tests;
