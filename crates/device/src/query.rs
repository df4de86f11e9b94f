//! What one query asks of a device, in order.

use std::fmt::Debug;
use std::sync::Arc;

use kelpie_kir::ValidModule;

use crate::{BlockShape, Buffer, Device, DeviceError, Kernel, Launch, LaunchReport};

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
pub(crate) const TICKETS: usize = 8;
/// Bytes that are copied at a time where host and device memory are reached through the host.
const PIECE_BYTES: usize = 1 << 16;

/// The order in which a device does what one query asks. Different queries wait for each other only where they must:
/// on a GPU each has a stream.
///
/// A fill may still be under way when the call returns; later operations of the same query come after it. So between
/// a fill and the query's next launch or download, only the query itself may use that memory.
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
    /// Copies from the host, and waits.
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
    /// Runs a kernel and waits for it. A query's launches run one at a time.
    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError>;

    /// Copies to the host, and waits.
    fn download(&self, buffer: &Buffer, offset: usize, data: &mut [u8]) -> Result<(), DeviceError> {
        self.download_many(&mut [Download { buffer, offset, data }])
    }
}

/// The queries of a device that has no streams: each operation is done at once.
#[derive(Debug)]
pub(crate) struct Immediate(pub(crate) Arc<dyn Device>);

impl QueryStream for Immediate {
    fn device(&self) -> &Arc<dyn Device> {
        &self.0
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.0.upload(buffer, offset, data)
    }

    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        self.0.fill(buffer, offset, bytes, value)
    }

    fn download_many(&self, parts: &mut [Download<'_>]) -> Result<(), DeviceError> {
        parts.iter_mut().try_for_each(|part| self.0.download(part.buffer, part.offset, part.data))
    }

    fn begin_copies(&self, copies: &[HostCopy<'_>]) -> Result<CopyTicket, DeviceError> {
        let mut piece = vec![0; PIECE_BYTES];
        for copy in copies {
            for from in (0..copy.bytes).step_by(PIECE_BYTES) {
                let part = &mut piece[..PIECE_BYTES.min(copy.bytes - from)];
                self.0.download(copy.source, copy.source_offset + from, part)?;
                self.0.upload(copy.target, copy.target_offset + from, part)?;
            }
        }
        Ok(CopyTicket(0))
    }

    fn after_copies(&self, _: CopyTicket) -> Result<(), DeviceError> {
        Ok(())
    }

    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError> {
        self.0.launch(launch)
    }
}
