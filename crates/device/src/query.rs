//! What one query asks of a device, in order.

use std::fmt::Debug;
use std::sync::Arc;

use parking_lot::Mutex;

use kelpie_kir::ValidModule;

use crate::{BlockShape, Buffer, Device, DeviceError, Kernel, Launch, LaunchReport, Tier};

/// A part of a buffer that goes to the host.
#[derive(Debug)]
pub struct Download<'a> {
    /// From where.
    pub buffer: &'a Buffer,
    /// In bytes.
    pub offset: usize,
    /// To where; its length says how much.
    pub data: &'a mut [u8],
}

/// A part of host memory ([`Device::allocate_host`]) that goes to device memory.
#[derive(Debug)]
pub struct HostCopy<'a> {
    /// From where.
    pub source: &'a Buffer,
    /// In bytes.
    pub source_offset: usize,
    /// To where.
    pub target: &'a Buffer,
    /// In bytes.
    pub target_offset: usize,
    /// How much.
    pub bytes: usize,
}

/// Names copies that were begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyTicket(pub(crate) usize);

/// Copies of a query that may be under way at the same time, as tickets.
#[cfg(feature = "cuda")]
pub(crate) const TICKETS: usize = 8;
/// Bytes that are copied at a time where host and device memory are reached through the host.
const PIECE_BYTES: usize = 1 << 16;

/// What became of launches that were not waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// The status of the first of them that failed, which those after it have taken over without doing anything; else 0.
    pub status: u32,
    /// Time on the device of each of them, in order, in nanoseconds.
    pub times_ns: Vec<u64>,
}

/// The order in which a device does what one query asks. Different queries wait for each other only where they must:
/// on a GPU each has a stream.
///
/// A fill or an upload may still be under way when the call returns; later operations of the same query come after it. So between
/// one of them and the query's next download, only the query itself may use that memory.
/// What is done by a [`Device`] itself is done when the call returns, and may be used by every query.
pub trait QueryStream: Send + Sync + Debug {
    /// The device.
    fn device(&self) -> &Arc<dyn Device>;
    /// Compiles a kernel of a module for launches of this query in blocks of a shape.
    fn compile_for(
        &self,
        module: &ValidModule,
        kernel: &str,
        shape: BlockShape,
    ) -> Result<Arc<dyn Kernel>, DeviceError> {
        self.device().compile_for(module, kernel, shape)
    }
    /// Which code the kernels that are compiled for this query from now on get.
    fn set_tier(&self, _: Tier) {}
    /// Which code they get.
    fn tier(&self) -> Tier {
        Tier::default()
    }
    /// Copies from the host. Whoever asks may use `data` for something else then.
    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError>;
    /// Sets every byte of a part.
    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError>;
    /// Copies any number of parts to the host, and waits once for all of them.
    fn download_many(&self, parts: &mut [Download<'_>]) -> Result<(), DeviceError>;
    /// Begins copies from the host's memory, which go on beside what the query does; both sides are left alone until they
    /// have arrived. More than eight tickets at a time are waited for here.
    fn begin_copies(&self, copies: &[HostCopy<'_>]) -> Result<CopyTicket, DeviceError>;
    /// What the query does from now on comes after these copies.
    fn after_copies(&self, ticket: CopyTicket) -> Result<(), DeviceError>;
    /// Runs a kernel and waits for it, unless launches are deferred. A query's launches run one at a time.
    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError>;
    /// From now on launches are not waited for: their reports say nothing of status and time, and what comes after one that
    /// has failed does nothing. They are done, in order, before whatever else the query asks for later; what is asked of the
    /// [`Device`] itself does not wait for them. A cancellation is noticed when the next launch is asked for. Whether this
    /// stream can do that: else nothing changes.
    fn defer(&self) -> Result<bool, DeviceError> {
        Ok(false)
    }
    /// Launches since they are deferred.
    fn deferred(&self) -> usize {
        0
    }
    /// Waits for what was deferred, and copies parts to the host as [`QueryStream::download_many`] does, with one wait for both.
    /// Launches are no longer deferred, whatever the outcome.
    fn settle(&self, parts: &mut [Download<'_>]) -> Result<Settled, DeviceError> {
        self.download_many(parts)?;
        Ok(Settled::default())
    }

    /// Copies to the host, and waits.
    fn download(&self, buffer: &Buffer, offset: usize, data: &mut [u8]) -> Result<(), DeviceError> {
        self.download_many(&mut [Download { buffer, offset, data }])
    }
}

/// The queries of a device that has no streams: each operation is done at once. What is deferred is as well, but that what it
/// has come to is told later: so queries that defer take the same way on every device.
#[derive(Debug)]
pub(crate) struct Immediate {
    device: Arc<dyn Device>,
    deferred: Mutex<Option<Settled>>,
}

impl Immediate {
    pub(crate) fn new(device: Arc<dyn Device>) -> Immediate {
        Immediate { device, deferred: Mutex::default() }
    }
}

impl QueryStream for Immediate {
    fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.device.upload(buffer, offset, data)
    }

    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        self.device.fill(buffer, offset, bytes, value)
    }

    fn download_many(&self, parts: &mut [Download<'_>]) -> Result<(), DeviceError> {
        parts.iter_mut().try_for_each(|part| self.device.download(part.buffer, part.offset, part.data))
    }

    fn begin_copies(&self, copies: &[HostCopy<'_>]) -> Result<CopyTicket, DeviceError> {
        let mut piece = vec![0; PIECE_BYTES];
        for copy in copies {
            for from in (0..copy.bytes).step_by(PIECE_BYTES) {
                let part = &mut piece[..PIECE_BYTES.min(copy.bytes - from)];
                self.device.download(copy.source, copy.source_offset + from, part)?;
                self.device.upload(copy.target, copy.target_offset + from, part)?;
            }
        }
        Ok(CopyTicket(0))
    }

    fn after_copies(&self, _: CopyTicket) -> Result<(), DeviceError> {
        Ok(())
    }

    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError> {
        let mut deferred = self.deferred.lock();
        let Some(settled) = deferred.as_mut() else { return self.device.launch(launch) };
        if settled.status != 0 {
            settled.times_ns.push(0);
            return Ok(LaunchReport::default());
        }
        let report = self.device.launch(launch)?;
        settled.status = report.status;
        settled.times_ns.push(report.time_ns);
        Ok(LaunchReport { status: 0, time_ns: 0, ..report })
    }

    fn defer(&self) -> Result<bool, DeviceError> {
        self.deferred.lock().get_or_insert_default();
        Ok(true)
    }

    fn deferred(&self) -> usize {
        self.deferred.lock().as_ref().map_or(0, |settled| settled.times_ns.len())
    }

    fn settle(&self, parts: &mut [Download<'_>]) -> Result<Settled, DeviceError> {
        let settled = self.deferred.lock().take().unwrap_or_default();
        self.download_many(parts)?;
        Ok(settled)
    }
}
