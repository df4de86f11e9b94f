//! The SIMT interpreter as a device: slow, and checks everything.

use std::sync::Arc;

use kelpie_kir::{Target, ValidModule};

use crate::memory::{HostMemory, HostPool, default_limit};
use crate::{Buffer, Device, DeviceError, DeviceKind, Kernel, Launch, LaunchReport};

/// Name of the device in errors.
const DEVICE: &str = "simt";
/// Shared memory of a block, in bytes: what every NVIDIA GPU has.
const SHARED_BYTES: u32 = 48 << 10;

/// The SIMT interpreter.
#[derive(Debug)]
pub struct SimtDevice {
    target: Target,
    detect_races: bool,
    pool: Arc<HostPool>,
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
        let block_threads = block_threads.clamp(lanes, 1024).next_multiple_of(lanes);
        let target = Target::simt(lanes, block_threads, SHARED_BYTES, resident_blocks.max(1));
        Arc::new(SimtDevice { target, detect_races, pool: HostPool::new(DEVICE, default_limit()) })
    }

    fn memory_of<'a>(&self, buffer: &'a Buffer) -> Result<&'a HostMemory, DeviceError> {
        HostMemory::of(buffer, &self.pool)
    }
}

fn missing() -> DeviceError {
    DeviceError::NotUsable { device: DEVICE.into(), reason: "the back end is not built yet".into() }
}

impl Device for SimtDevice {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Simt
    }

    fn name(&self) -> String {
        format!("{DEVICE} ({} lanes)", self.target.lanes)
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
        self.pool.usage()
    }

    fn set_memory_limit(&self, limit: Option<u64>) {
        self.pool.set_limit(limit);
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        self.pool.allocate(bytes)
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.memory_of(buffer)?.upload(offset, data)
    }

    fn download(&self, buffer: &Buffer, offset: usize, data: &mut [u8]) -> Result<(), DeviceError> {
        self.memory_of(buffer)?.download(offset, data)
    }

    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        self.memory_of(buffer)?.fill(offset, bytes, value)
    }

    fn compile(&self, module: &ValidModule, kernel: &str) -> Result<Arc<dyn Kernel>, DeviceError> {
        let _ = (module, kernel);
        Err(missing())
    }

    fn code(&self, module: &ValidModule) -> Result<String, DeviceError> {
        let _ = module;
        Err(missing())
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<LaunchReport, DeviceError> {
        let _ = launch;
        Err(missing())
    }
}
