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
#[cfg(feature = "simt")]
const SIMT_WARPS: u32 = 2;
#[cfg(feature = "simt")]
const SIMT_BLOCKS: u32 = 3;

/// Limits of memory that are kept though no query has them now: with each go the columns that it has cached.
const UNUSED_LIMITS: usize = 16;

/// A device other than the CPU.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Cuda,
    Simt(u32),
}

/// Who has the CPU: all of them share its memory and its threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct CpuKey {
    /// At a time; as many as there are cores where absent.
    workers: Option<u32>,
    /// Bytes, where less than all of the memory.
    memory_limit: Option<u64>,
}

impl CpuKey {
    fn of(options: &QueryOptions) -> CpuKey {
        let (asked, all) = (CpuDevice::workers(options.threads), CpuDevice::workers(None));
        CpuKey { workers: (asked != all).then_some(asked), memory_limit: options.memory_limit }
    }
}

/// A kind of device: usable, or why not.
pub type DeviceState = (DeviceKind, Result<Arc<dyn Device>, String>);

/// Opened devices. A device that could not be opened is tried again by the next query, and so is one that was lost.
#[derive(Debug, Default)]
pub struct Devices {
    open: Mutex<HashMap<Key, Arc<dyn Device>>>,
    /// The CPU for each who asks for it, the one asked for last at the end.
    cpus: Mutex<Vec<(CpuKey, Arc<CpuDevice>)>>,
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
        let may_be_there = || {
            // What the driver shows of itself: on Linux, and on Windows' Linux.
            cfg!(feature = "cuda")
                && ["/dev/nvidiactl", "/dev/dxg"].iter().any(|path| Path::new(path).exists())
        };
        OpenGpu { open: open_cuda, may_be_there }
    }
}

#[cfg(feature = "cuda")]
fn open_cuda() -> Result<Arc<dyn Device>, DeviceError> {
    Ok(kelpie_device::cuda::CudaDevice::open(0)?)
}

#[cfg(not(feature = "cuda"))]
fn open_cuda() -> Result<Arc<dyn Device>, DeviceError> {
    Err(left_out("cuda"))
}

#[cfg(feature = "simt")]
fn open_simt(lanes: u32) -> Result<Arc<dyn Device>, DeviceError> {
    Ok(kelpie_device::simt::SimtDevice::new(lanes, lanes * SIMT_WARPS, SIMT_BLOCKS))
}

#[cfg(not(feature = "simt"))]
fn open_simt(_: u32) -> Result<Arc<dyn Device>, DeviceError> {
    Err(left_out("simt"))
}

/// A device that was left out of this build.
#[cfg(not(all(feature = "cuda", feature = "simt")))]
fn left_out(device: &str) -> DeviceError {
    DeviceError::NotUsable {
        device: device.into(),
        reason: format!("this build is without it (the feature `{device}` of the crate kelpie-engine)"),
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
        let cpu = || self.cpu(CpuKey::of(options));
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
        let devices = [
            (DeviceKind::Cpu, self.cpu(CpuKey::default())),
            (DeviceKind::Cuda, self.get(Key::Cuda)),
            (DeviceKind::Simt, self.get(Key::Simt(32))),
        ];
        let state =
            |(kind, device): (_, Result<_, DeviceError>)| (kind, device.map_err(|error| error.to_string()));
        devices.into_iter().map(state).collect()
    }

    /// The devices that are open.
    pub(crate) fn opened(&self) -> Vec<Arc<dyn Device>> {
        let cpus: Vec<_> =
            self.cpus.lock().iter().map(|(_, cpu)| Arc::clone(cpu) as Arc<dyn Device>).collect();
        self.open.lock().values().cloned().chain(cpus).collect()
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
            Key::Cuda => {
                let device = self.open_gpu()?;
                primitives::foresee(&device);
                device
            }
            Key::Simt(lanes) => open_simt(*lanes)?,
        };
        // Two queries may have opened it at once: the first one stays.
        Ok(Arc::clone(self.open.lock().entry(key).or_insert(device)))
    }

    /// The CPU for somebody: those with the same limit of memory share what it allows, whatever their workers.
    fn cpu(&self, key: CpuKey) -> Result<Arc<dyn Device>, DeviceError> {
        let mut cpus = self.cpus.lock();
        if let Some(index) = cpus.iter().position(|(known, _)| *known == key) {
            let last = cpus.len() - 1;
            cpus[index..].rotate_left(1);
            return Ok(Arc::clone(&cpus[last].1) as Arc<dyn Device>);
        }
        let all = match with_limit(&cpus, None) {
            Some(all) => all,
            None => {
                let all = CpuDevice::new(None)?;
                cpus.push((CpuKey::default(), Arc::clone(&all)));
                all
            }
        };
        if key == CpuKey::default() {
            return Ok(all);
        }
        let like = match key.memory_limit {
            None => all,
            Some(limit) => {
                with_limit(&cpus, key.memory_limit).unwrap_or_else(|| all.with_memory_limit(limit))
            }
        };
        let cpu = like.with_workers(key.workers.map(|workers| workers as usize))?;
        cpus.push((key, Arc::clone(&cpu)));
        drop_unused(&mut cpus);
        Ok(cpu)
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

/// The CPU of those with a limit of memory, with any number of workers.
fn with_limit(cpus: &[(CpuKey, Arc<CpuDevice>)], limit: Option<u64>) -> Option<Arc<CpuDevice>> {
    cpus.iter().find(|(key, _)| key.memory_limit == limit).map(|(_, cpu)| Arc::clone(cpu))
}

/// Lets go of limits of memory that were asked for longest ago, where they are many and nothing runs with them.
fn drop_unused(cpus: &mut Vec<(CpuKey, Arc<CpuDevice>)>) {
    let is_unused =
        |(key, cpu): &(CpuKey, Arc<CpuDevice>)| key.memory_limit.is_some() && Arc::strong_count(cpu) == 1;
    let mut more = cpus.iter().filter(|cpu| is_unused(cpu)).count().saturating_sub(UNUSED_LIMITS);
    cpus.retain(|cpu| {
        let goes = more > 0 && is_unused(cpu);
        more -= usize::from(goes);
        !goes
    });
}

#[cfg(test)]
mod tests;
