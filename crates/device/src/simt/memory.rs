//! Memory of the interpreter under a budget.

use std::any::Any;
use std::sync::Arc;

use kelpie_backend::simt::{AllocationId, Memory as Allocations};
use parking_lot::Mutex;

use crate::{Buffer, DeviceError, Memory};

/// What fresh memory holds: nobody may rely on zeros.
const FRESH: u8 = 0xa5;

/// The interpreter's memory with its budget.
#[derive(Debug)]
pub(super) struct Space {
    device: &'static str,
    default_limit: u64,
    allocations: Mutex<Allocations>,
    /// Bytes in use and the budget. Apart from `allocations`, which a launch holds for long.
    usage: Mutex<(u64, u64)>,
}

impl Space {
    pub(super) fn new(device: &'static str, limit: u64) -> Arc<Space> {
        let (allocations, usage) = (Mutex::new(Allocations::new()), Mutex::new((0, limit)));
        Arc::new(Space { device, default_limit: limit, allocations, usage })
    }

    pub(super) fn usage(&self) -> (u64, u64) {
        *self.usage.lock()
    }

    pub(super) fn set_limit(&self, limit: Option<u64>) {
        self.usage.lock().1 = limit.unwrap_or(self.default_limit);
    }

    pub(super) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Buffer, DeviceError> {
        let (used, limit) = {
            let mut usage = self.usage.lock();
            let (used, limit) = *usage;
            if let Some(sum) = used.checked_add(bytes as u64).filter(|sum| *sum <= limit) {
                usage.0 = sum;
                drop(usage);
                return Ok(self.place(bytes, bytes as u64));
            }
            (used, limit)
        };
        Err(DeviceError::OutOfMemory { device: self.device.into(), requested: bytes as u64, used, limit })
    }

    /// Memory outside of the budget.
    pub(super) fn allocate_free(self: &Arc<Self>, bytes: usize) -> Buffer {
        self.place(bytes, 0)
    }

    fn place(self: &Arc<Self>, bytes: usize, charged: u64) -> Buffer {
        let mut allocations = self.allocations.lock();
        let id = allocations.allocate(bytes);
        if let Some(data) = allocations.data_mut(id) {
            data.fill(FRESH);
        }
        let address = allocations.address(id);
        Arc::new(SimtMemory { id, address, bytes, charged, space: self.clone() })
    }

    /// Runs a launch over the whole memory; allocations and copies of other threads wait for it.
    pub(super) fn launch<R>(&self, run: impl FnOnce(&mut Allocations) -> R) -> R {
        run(&mut self.allocations.lock())
    }
}

/// A buffer of the interpreter.
#[derive(Debug)]
pub(super) struct SimtMemory {
    id: AllocationId,
    address: u64,
    bytes: usize,
    /// Bytes of the budget.
    charged: u64,
    space: Arc<Space>,
}

impl SimtMemory {
    /// The memory behind a buffer of `space`.
    pub(super) fn of<'a>(buffer: &'a Buffer, space: &Arc<Space>) -> Result<&'a SimtMemory, DeviceError> {
        let memory = buffer.as_any().downcast_ref::<SimtMemory>();
        memory.filter(|memory| Arc::ptr_eq(&memory.space, space)).ok_or_else(|| DeviceError::Failed {
            device: space.device.into(),
            operation: "access to a buffer".into(),
            message: "the buffer belongs to another device".into(),
        })
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Gives the host a part of the buffer.
    pub(super) fn access(
        &self,
        operation: &str,
        offset: usize,
        bytes: usize,
        work: impl FnOnce(&mut [u8]),
    ) -> Result<(), DeviceError> {
        let mut allocations = self.space.allocations.lock();
        let part = offset
            .checked_add(bytes)
            .and_then(|end| allocations.data_mut(self.id).and_then(|data| data.get_mut(offset..end)));
        match part {
            Some(part) => {
                work(part);
                Ok(())
            }
            None => Err(DeviceError::Failed {
                device: self.space.device.into(),
                operation: operation.into(),
                message: format!("{bytes} bytes at {offset} of a buffer of {} bytes", self.bytes),
            }),
        }
    }
}

impl Memory for SimtMemory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for SimtMemory {
    fn drop(&mut self) {
        self.space.allocations.lock().free(self.id);
        let mut usage = self.space.usage.lock();
        usage.0 = usage.0.saturating_sub(self.charged);
    }
}
