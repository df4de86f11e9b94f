//! The devices of a process, opened when first asked for.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use kelpie_device::cpu::CpuDevice;
use kelpie_device::{Device, DeviceError, DeviceKind};
use parking_lot::Mutex;

use crate::budgets::{Budget, Budgets};
use crate::options::{DeviceChoice, QueryOptions};
use crate::primitives;

/// Threads of a block, and blocks at a time, of the interpreter: small, so that a small input has several of both.
const SIMT_WARPS: u32 = 2;
const SIMT_BLOCKS: u32 = 3;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    /// With so many workers.
    Cpu(u32),
    Cuda,
    Simt(u32),
}

/// A kind of device: usable, or why not.
pub type DeviceState = (DeviceKind, Result<Arc<dyn Device>, String>);

/// Opened devices. A device that could not be opened is tried again by the next query, and so is one that was lost.
#[derive(Debug, Default)]
pub struct Devices {
    open: Mutex<HashMap<Key, Arc<dyn Device>>>,
    budgets: Arc<Budgets>,
    /// Why there is no GPU any more, where there was one.
    lost: Mutex<Option<String>>,
    gpu: OpenGpu,
}

/// Opens the GPU.
#[derive(Clone, Copy)]
pub(crate) struct OpenGpu {
    pub open: fn() -> Result<Arc<dyn Device>, DeviceError>,
    /// Whether it looks as if there were one; takes no time.
    pub may_be_there: fn() -> bool,
}

impl Default for OpenGpu {
    fn default() -> OpenGpu {
        // What the driver shows of itself: on Linux, and on Windows' Linux.
        let may_be_there = || ["/dev/nvidiactl", "/dev/dxg"].iter().any(|path| Path::new(path).exists());
        OpenGpu { open: || Ok(kelpie_device::cuda::CudaDevice::open(0)?), may_be_there }
    }
}

impl fmt::Debug for OpenGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenGpu")
    }
}

impl Devices {
    /// Devices whose GPU is what `gpu` opens.
    #[cfg(test)]
    pub(crate) fn with_gpu(gpu: OpenGpu) -> Devices {
        Devices { gpu, ..Devices::default() }
    }

    /// The device that a query asks for, with the budget that it asks for as long as what is returned beside it lives; the CPU in
    /// place of a GPU that was lost and cannot be opened again.
    pub fn choose(&self, options: &QueryOptions) -> Result<(Arc<dyn Device>, Budget), DeviceError> {
        let device = self.find(options)?;
        let budget = Budgets::ask(&self.budgets, &device, options.memory_limit);
        Ok((device, budget))
    }

    /// What the queries that run ask of the devices' memory.
    pub(crate) fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// The device that a query asks for.
    pub fn find(&self, options: &QueryOptions) -> Result<Arc<dyn Device>, DeviceError> {
        let cpu = || self.get(Key::Cpu(CpuDevice::workers(options.threads)));
        match options.device {
            DeviceChoice::Cpu => cpu(),
            DeviceChoice::Cuda => self.get(Key::Cuda).or_else(|error| match self.loss() {
                Some(_) => cpu(),
                None => Err(error),
            }),
            DeviceChoice::Simt => self.get(Key::Simt(options.simt_lanes.clamp(1, 32))),
            DeviceChoice::Auto => self.get(Key::Cuda).or_else(|_| cpu()),
        }
    }

    /// The GPU, where it is open.
    pub(crate) fn opened_gpu(&self) -> Option<Arc<dyn Device>> {
        self.open.lock().get(&Key::Cuda).cloned()
    }

    /// Whether there is a GPU, or looks as if there were one that nobody has opened yet.
    pub(crate) fn may_have_gpu(&self) -> bool {
        self.opened_gpu().is_some() || self.loss().is_none() && (self.gpu.may_be_there)()
    }

    /// Every kind of device: usable, or why not.
    pub fn all(&self) -> Vec<DeviceState> {
        let kinds = [
            (DeviceKind::Cpu, Key::Cpu(CpuDevice::workers(None))),
            (DeviceKind::Cuda, Key::Cuda),
            (DeviceKind::Simt, Key::Simt(32)),
        ];
        kinds
            .into_iter()
            .map(|(kind, key)| (kind, self.get(key).map_err(|error| error.to_string())))
            .collect()
    }

    /// The devices that are open.
    pub(crate) fn opened(&self) -> Vec<Arc<dyn Device>> {
        self.open.lock().values().cloned().collect()
    }

    /// Lets go of devices that are lost. Whether one is lost and not open again: what was made for it is to be dropped
    /// before it is asked for.
    pub(crate) fn let_go(&self) -> bool {
        let mut lost = self.lost.lock();
        self.open.lock().retain(|_, device| {
            if device.is_lost() {
                *lost = Some(format!("{} was lost", device.name()));
            }
            !device.is_lost()
        });
        lost.is_some()
    }

    /// Why there is no GPU any more, where there was one.
    pub(crate) fn loss(&self) -> Option<String> {
        self.lost.lock().clone()
    }

    fn get(&self, key: Key) -> Result<Arc<dyn Device>, DeviceError> {
        if let Some(device) = self.open.lock().get(&key) {
            return Ok(Arc::clone(device));
        }
        let device: Arc<dyn Device> = match &key {
            Key::Cpu(workers) => CpuDevice::new(Some(*workers as usize))?,
            Key::Cuda => {
                let device = self.open_gpu()?;
                primitives::foresee(&device);
                device
            }
            Key::Simt(lanes) => kelpie_device::simt::SimtDevice::new(*lanes, lanes * SIMT_WARPS, SIMT_BLOCKS),
        };
        // Two queries may have opened it at once: the first one stays.
        Ok(Arc::clone(self.open.lock().entry(key).or_insert(device)))
    }

    fn open_gpu(&self) -> Result<Arc<dyn Device>, DeviceError> {
        let opened = (self.gpu.open)();
        let mut lost = self.lost.lock();
        match (&opened, lost.as_mut()) {
            (Ok(_), _) => *lost = None,
            (Err(error), Some(why)) => *why = error.to_string(),
            (Err(_), None) => {}
        }
        opened
    }
}

#[cfg(test)]
mod tests;
