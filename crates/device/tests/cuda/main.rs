//! The CUDA device on a real GPU. Skipped, with a message, where there is none, unless `KELPIE_REQUIRE`
//! names `cuda`.

#![expect(unsafe_code, reason = "launches hand-written kernels")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod fuzz;
mod kernels;
mod launches;
mod memory;
mod queries;

use std::path::Path;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use kelpie_device::cuda::CudaDevice;
use kelpie_device::disk_cache::DiskCache;
use kelpie_device::testing::skip;
use kelpie_device::{
    BlockShape, Buffer, CancelToken, Device, DeviceError, DeviceKind, Download, Kernel, KernelArgument,
    Launch, LaunchReport, QueryStream, Tier, nvrtc,
};
use kelpie_kir::*;
use parking_lot::{RwLock, RwLockReadGuard};

use kernels::*;

/// Written to by a test that no other may run beside.
static ALONE: RwLock<()> = RwLock::new(());

/// A device that tests share.
struct Gpu {
    device: Arc<CudaDevice>,
    _shared: RwLockReadGuard<'static, ()>,
}

impl std::ops::Deref for Gpu {
    type Target = CudaDevice;

    fn deref(&self) -> &CudaDevice {
        &self.device
    }
}

/// The first GPU, opened once; the disk cache is in a folder of this test run.
fn gpu() -> Option<Gpu> {
    static DEVICE: OnceLock<Option<Arc<CudaDevice>>> = OnceLock::new();
    let _shared = ALONE.read();
    let device = DEVICE.get_or_init(|| opened().map_err(|error| skip("cuda", &error)).ok());
    Some(Gpu { device: device.clone()?, _shared })
}

fn cache_folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

fn opened() -> Result<Arc<CudaDevice>, DeviceError> {
    CudaDevice::open_with_cache(0, DiskCache::at(cache_folder()))
}

fn run(
    device: &CudaDevice,
    kernel: &dyn Kernel,
    blocks: u32,
    arguments: &[KernelArgument],
) -> Result<LaunchReport, DeviceError> {
    let cancel = CancelToken::default();
    // SAFETY: callers give a kernel's arguments as it is made for; `wild` writes to memory of the GPU alone.
    device.launch(unsafe { Launch::new(kernel, blocks, arguments, &cancel) })
}

fn words(device: &CudaDevice, buffer: &Buffer) -> Vec<i64> {
    let mut bytes = vec![0u8; buffer.bytes()];
    device.download(buffer, 0, &mut bytes).unwrap();
    bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect()
}

fn buffer_of(device: &CudaDevice, values: &[i64]) -> Buffer {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let buffer = device.allocate(bytes.len()).unwrap();
    device.upload(&buffer, 0, &bytes).unwrap();
    buffer
}

#[test]
fn the_device_is_usable_or_says_why() {
    let _shared = ALONE.read();
    match opened() {
        Ok(device) => {
            assert_eq!(device.kind(), DeviceKind::Cuda);
            assert!(device.target().lanes == 32 && device.target().resident_blocks > 0);
            for (name, value) in device.properties() {
                println!("{name}: {value}");
                assert!(!value.is_empty());
            }
            let error = CudaDevice::open(1000).unwrap_err().to_string();
            assert!(error.contains("the driver sees"), "{error}");
        }
        Err(error @ DeviceError::NotUsable { .. }) => {
            let text = error.to_string();
            assert!(text.contains("cuda") && text.contains("is not usable"), "{text}");
        }
        Err(other) => panic!("{other}"),
    }
}
