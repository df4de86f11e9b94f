//! The devices of a process, opened when first asked for.

use std::collections::HashMap;
use std::sync::Arc;

use kelpie_device::{Device, DeviceError, DeviceKind};
use parking_lot::Mutex;

use crate::{DeviceChoice, QueryOptions};

/// Threads of a block, and blocks at a time, of the interpreter: small, so that a small input has several of both.
const SIMT_WARPS: u32 = 2;
const SIMT_BLOCKS: u32 = 3;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Cpu(Option<usize>),
    Cuda,
    Simt(u32),
}

/// A kind of device: usable, or why not.
pub type DeviceState = (DeviceKind, Result<Arc<dyn Device>, String>);

/// Opened devices. A device that could not be opened is tried again by the next query.
#[derive(Debug, Default)]
pub struct Devices {
    open: Mutex<HashMap<Key, Arc<dyn Device>>>,
}

impl Devices {
    /// The device that a query asks for.
    pub fn choose(&self, options: &QueryOptions) -> Result<Arc<dyn Device>, DeviceError> {
        let device = match options.device {
            DeviceChoice::Cpu => self.get(Key::Cpu(options.threads)),
            DeviceChoice::Cuda => self.get(Key::Cuda),
            DeviceChoice::Simt => self.get(Key::Simt(options.simt_lanes.clamp(1, 32))),
            DeviceChoice::Auto => self.get(Key::Cuda).or_else(|_| self.get(Key::Cpu(options.threads))),
        }?;
        device.set_memory_limit(options.memory_limit);
        Ok(device)
    }

    /// Every kind of device: usable, or why not.
    pub fn all(&self) -> Vec<DeviceState> {
        let kinds = [
            (DeviceKind::Cpu, Key::Cpu(None)),
            (DeviceKind::Cuda, Key::Cuda),
            (DeviceKind::Simt, Key::Simt(32)),
        ];
        kinds
            .into_iter()
            .map(|(kind, key)| (kind, self.get(key).map_err(|error| error.to_string())))
            .collect()
    }

    fn get(&self, key: Key) -> Result<Arc<dyn Device>, DeviceError> {
        if let Some(device) = self.open.lock().get(&key) {
            return Ok(Arc::clone(device));
        }
        let device: Arc<dyn Device> = match &key {
            Key::Cpu(threads) => kelpie_device::cpu::CpuDevice::new(*threads)?,
            Key::Cuda => kelpie_device::cuda::CudaDevice::open(0)?,
            Key::Simt(lanes) => kelpie_device::simt::SimtDevice::new(*lanes, lanes * SIMT_WARPS, SIMT_BLOCKS),
        };
        // Two queries may have opened it at once: the first one stays.
        Ok(Arc::clone(self.open.lock().entry(key).or_insert(device)))
    }
}
