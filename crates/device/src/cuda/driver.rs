//! The CUDA driver: whether it is there, the device's context, and what its errors mean.

use std::sync::{Arc, OnceLock, Weak};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUresult};
use parking_lot::Mutex;

use crate::DeviceError;
use crate::behind::end_before_libraries;

/// Every function that this device calls; a driver that lacks one is too old. cudarc panics where one is missing.
const FUNCTIONS: &[&str] = &[
    "cuCtxSetCurrent", "cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetCount", "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2", "cuDriverGetVersion", "cuEventCreate", "cuEventDestroy_v2",
    "cuEventElapsedTime_v2", "cuEventQuery", "cuEventRecord", "cuEventSynchronize", "cuFuncSetAttribute",
    "cuGetErrorName", "cuGetErrorString", "cuInit", "cuLaunchKernel", "cuLinkAddData_v2", "cuLinkComplete",
    "cuLinkCreate_v2", "cuLinkDestroy", "cuMemAlloc_v2", "cuMemFreeHost", "cuMemFree_v2", "cuMemGetInfo_v2",
    "cuMemHostAlloc", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemsetD8Async",
    "cuModuleGetFunction", "cuModuleLoadData", "cuModuleUnload", "cuStreamCreate", "cuStreamDestroy_v2",
    "cuStreamSynchronize", "cuStreamWaitEvent",
];

/// Loads and starts the driver; why that does not work.
pub fn start() -> Result<(), String> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    STARTED.get_or_init(start_once).clone()
}

fn start_once() -> Result<(), String> {
    // SAFETY: loading the driver's library runs its initialisers, which have no preconditions.
    if !unsafe { sys::is_culib_present() } {
        let names = cudarc::get_lib_name_candidates("cuda");
        return Err(format!(
            "the CUDA driver was not found; looked for {} on the library path (LD_LIBRARY_PATH and the system's)",
            names.join(", ")
        ));
    }
    for function in FUNCTIONS {
        // SAFETY: the library is present, so `culib` does not panic; the symbol is only looked up, never called.
        let found = unsafe { sys::culib().get::<unsafe extern "C" fn()>(function.as_bytes()).is_ok() };
        if !found {
            return Err(format!("the CUDA driver is too old: it has no {function} (CUDA 12.8 is needed)"));
        }
    }
    // Somebody may be opening the device behind the queries when the process ends.
    end_before_libraries();
    let started = result::init();
    end_before_libraries();
    started.map_err(|error| format!("the CUDA driver does not start: {}", words(error)))
}

/// The driver's version, such as `13.0`.
pub fn version() -> Option<String> {
    let mut version = 0;
    // SAFETY: `version` is a valid place for an integer.
    unsafe { sys::cuDriverGetVersion(&mut version).result() }.ok()?;
    Some(format!("{}.{}", version / 1000, version % 1000 / 10))
}

/// An error in the driver's words.
pub fn words(error: DriverError) -> String {
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{text} ({:?})", error.0)
}

/// Whether the context is lost: every later call fails with the same error.
fn is_sticky(error: DriverError) -> bool {
    matches!(
        error.0,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_DEINITIALIZED
            | CUresult::CUDA_ERROR_NO_DEVICE
            | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUresult::CUDA_ERROR_UNKNOWN
    )
}

/// The contexts of this process, also those that are lost and still in use.
static CONTEXTS: Mutex<Vec<Weak<Context>>> = Mutex::new(Vec::new());

/// One device's context, shared by everything that lives on it.
#[derive(Debug)]
pub struct Context {
    /// The device, for messages.
    pub name: String,
    pub device: sys::CUdevice,
    handle: sys::CUcontext,
    /// The error that made the context unusable.
    broken: OnceLock<String>,
}

// SAFETY: the driver's functions may be called from any thread; the handle is only passed to them.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the device's primary context. The driver must have started. A context that was lost is in the way until
    /// nobody holds anything of it: only then can it be reset, as its memory and modules go with it.
    pub fn new(name: String, device: sys::CUdevice) -> Result<Arc<Context>, DeviceError> {
        let mut contexts = CONTEXTS.lock();
        contexts.retain(|context| context.strong_count() > 0);
        let lost =
            contexts.iter().filter_map(Weak::upgrade).find(|known| known.device == device && known.is_lost());
        if let Some(lost) = lost {
            lost.enter()?;
        }
        // SAFETY: `device` comes from `cuDeviceGet`.
        let handle = unsafe { result::primary_ctx::retain(device) }.map_err(|error| {
            DeviceError::NotUsable { device: name.clone(), reason: format!("no context: {}", words(error)) }
        })?;
        let context = Arc::new(Context { name, device, handle, broken: OnceLock::new() });
        contexts.push(Arc::downgrade(&context));
        Ok(context)
    }

    /// Whether an error has made it unusable.
    pub fn is_lost(&self) -> bool {
        self.broken.get().is_some()
    }

    /// Makes this the calling thread's context; an error where it is lost.
    pub fn enter(&self) -> Result<(), DeviceError> {
        if let Some(cause) = self.broken.get() {
            return Err(DeviceError::NotUsable {
                device: self.name.clone(),
                reason: format!("its context is lost since {cause}"),
            });
        }
        // SAFETY: the context is retained until `drop`.
        let current = unsafe { result::ctx::set_current(self.handle) };
        self.check("making the context current", current)
    }

    /// Turns the driver's error into ours, and remembers one that loses the context.
    pub fn check<T>(&self, operation: &str, outcome: Result<T, DriverError>) -> Result<T, DeviceError> {
        outcome.map_err(|error| {
            let message = words(error);
            if is_sticky(error) {
                let _ = self.broken.set(format!("{operation} failed: {message}"));
            }
            self.failed(operation, message)
        })
    }

    /// An error of this device.
    pub fn failed(&self, operation: &str, message: impl Into<String>) -> DeviceError {
        DeviceError::Failed {
            device: self.name.clone(),
            operation: operation.to_string(),
            message: message.into(),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.is_lost() {
            // SAFETY: everything that uses the context holds an `Arc` of this, and `new` gives no other one meanwhile: nothing
            // of it is left to be used. An error means that the device stays unusable, which the next `new` finds out.
            let _ = unsafe { sys::cuDevicePrimaryCtxReset_v2(self.device) };
        }
        // SAFETY: retained once in `new`; everything that uses it holds an `Arc` of this.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}
