//! The devices of a process, opened when first asked for.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use kelpie_device::cpu::CpuDevice;
use kelpie_device::{Device, DeviceError, DeviceKind};
use parking_lot::Mutex;

use crate::columns::address;
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
pub(crate) struct OpenGpu(pub fn() -> Result<Arc<dyn Device>, DeviceError>);

impl Default for OpenGpu {
    fn default() -> OpenGpu {
        OpenGpu(|| Ok(kelpie_device::cuda::CudaDevice::open(0)?))
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
        let opened = (self.gpu.0)();
        let mut lost = self.lost.lock();
        match (&opened, lost.as_mut()) {
            (Ok(_), _) => *lost = None,
            (Err(error), Some(why)) => *why = error.to_string(),
            (Err(_), None) => {}
        }
        opened
    }
}

/// What the queries that run ask of each device's memory. Queries of a device share it, and so its budget: it is the largest that
/// any of them asks for, so that none loses what it was promised to another that begins beside it.
#[derive(Debug, Default)]
struct Budgets(Mutex<HashMap<usize, Vec<Option<u64>>>>);

/// A query's claim to a budget, until it is dropped.
#[derive(Debug)]
pub(crate) struct Budget {
    all: Arc<Budgets>,
    device: Arc<dyn Device>,
    limit: Option<u64>,
}

impl Budgets {
    fn ask(this: &Arc<Budgets>, device: &Arc<dyn Device>, limit: Option<u64>) -> Budget {
        let mut asked = this.0.lock();
        let of_device = asked.entry(address(device)).or_default();
        of_device.push(limit);
        set_largest(device, of_device);
        Budget { all: Arc::clone(this), device: Arc::clone(device), limit }
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let mut asked = self.all.0.lock();
        let key = address(&self.device);
        let Some(of_device) = asked.get_mut(&key) else { return };
        if let Some(place) = of_device.iter().position(|limit| *limit == self.limit) {
            of_device.swap_remove(place);
        }
        if of_device.is_empty() {
            // Its last budget is left to it, by which it may be looked at, until another query begins.
            asked.remove(&key);
        } else {
            set_largest(&self.device, of_device);
        }
    }
}

/// Gives a device the largest of some budgets. Its own default is the largest.
fn set_largest(device: &Arc<dyn Device>, limits: &[Option<u64>]) {
    let own = limits.iter().any(Option::is_none);
    device.set_memory_limit(limits.iter().flatten().max().copied().filter(|_| !own));
}

#[cfg(test)]
mod tests;
