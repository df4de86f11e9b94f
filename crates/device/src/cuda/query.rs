//! A query's stream.

use std::sync::Arc;

use cudarc::driver::{result, sys};
use kelpie_kir::ValidModule;
use parking_lot::Mutex;

use super::CudaDevice;
use super::launch::{COPY_STREAMS, Lane, cancelled};
use crate::query::TICKETS;
use crate::{
    BlockShape, Buffer, CopyTicket, Device, DeviceError, Download, HostCopy, Kernel, Launch, LaunchReport,
    QueryStream, Settled, Tier,
};

/// Bytes that the driver takes at once, whatever is under way: it sends so few along with its commands.
const SMALL_UPLOAD: usize = 16 << 10;

/// A query on a GPU. Its stream goes back to the device when it ends.
#[derive(Debug)]
pub struct CudaQuery {
    device: Arc<CudaDevice>,
    as_device: Arc<dyn Device>,
    state: Mutex<State>,
    tier: Mutex<Tier>,
}

#[derive(Debug)]
struct State {
    /// `None` once it went back.
    lane: Option<Lane>,
    /// The buffers of operations that may be under way. Nobody else gets their memory before those are done.
    pending: Vec<Buffer>,
}

impl CudaQuery {
    pub fn new(device: Arc<CudaDevice>) -> Result<CudaQuery, DeviceError> {
        let lane = Some(device.lanes.take()?);
        let state = Mutex::new(State { lane, pending: Vec::new() });
        Ok(CudaQuery { as_device: device.clone(), device, state, tier: Mutex::default() })
    }

    /// Does something in the stream. It leaves in `pending` what it does not wait for.
    fn in_lane<T>(
        &self,
        operation: impl FnOnce(&mut Lane, &mut Vec<Buffer>) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let State { lane, pending } = &mut *self.state.lock();
        match lane {
            Some(lane) => operation(lane, pending),
            None => Err(self.device.context.failed("an operation", "the query has ended")),
        }
    }
}

impl QueryStream for CudaQuery {
    fn device(&self) -> &Arc<dyn Device> {
        &self.as_device
    }

    fn set_tier(&self, tier: Tier) {
        *self.tier.lock() = tier;
    }

    fn tier(&self) -> Tier {
        *self.tier.lock()
    }

    fn compile_for(
        &self,
        module: &ValidModule,
        kernel: &str,
        shape: BlockShape,
    ) -> Result<Arc<dyn Kernel>, DeviceError> {
        self.device.compile_as(module, kernel, (shape, self.tier()))
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        let target = self.device.range("a copy to the device", buffer, offset, data.len())?;
        if self.device.on_host(buffer, offset).is_some() {
            return self.device.upload(buffer, offset, data);
        }
        if data.is_empty() {
            return Ok(());
        }
        self.in_lane(|lane, pending| {
            if data.len() <= SMALL_UPLOAD {
                self.device.context.enter()?;
                pending.push(Arc::clone(buffer));
                // SAFETY: `range` checked that the buffer has these bytes, and `pending` holds it until they are there. The
                // driver has taken `data`, which is not pinned, when the call returns.
                let copied = unsafe { result::memcpy_htod_async(target, data, lane.stream.handle) };
                return self.device.context.check("a copy to the device", copied);
            }
            self.device.staging.upload(Some(&lane.stream), target, data)?;
            pending.clear();
            Ok(())
        })
    }

    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        let target = self.device.range("a fill", buffer, offset, bytes)?;
        if self.device.on_host(buffer, offset).is_some() {
            return self.device.fill(buffer, offset, bytes, value);
        }
        if bytes == 0 {
            return Ok(());
        }
        self.in_lane(|lane, pending| {
            self.device.context.enter()?;
            pending.push(Arc::clone(buffer));
            // SAFETY: `range` checked that the buffer has these bytes, and `pending` holds it until they are set.
            let filled = unsafe { result::memset_d8_async(target, value, bytes, lane.stream.handle) };
            self.device.context.check("a fill", filled)
        })
    }

    fn download_many(&self, parts: &mut [Download<'_>]) -> Result<(), DeviceError> {
        let mut pieces = Vec::with_capacity(parts.len());
        for Download { buffer, offset, data } in parts {
            let source = self.device.range("a copy from the device", buffer, *offset, data.len())?;
            match self.device.on_host(buffer, *offset) {
                // Kernels that write to host memory are waited for, and fills of it are done at once.
                Some(_) => self.device.download(buffer, *offset, data)?,
                None => pieces.push((source, &mut **data)),
            }
        }
        if pieces.iter().all(|(_, data)| data.is_empty()) {
            return Ok(());
        }
        self.in_lane(|lane, pending| {
            self.device.staging.download(Some(&lane.stream), pieces)?;
            pending.clear();
            Ok(())
        })
    }

    fn begin_copies(&self, copies: &[HostCopy<'_>]) -> Result<CopyTicket, DeviceError> {
        const WHAT: &str = "a copy of a block";
        let mut checked = Vec::with_capacity(copies.len());
        for copy in copies {
            let target = self.device.range(WHAT, copy.target, copy.target_offset, copy.bytes)?;
            self.device.range(WHAT, copy.source, copy.source_offset, copy.bytes)?;
            let source = self.device.on_host(copy.source, copy.source_offset);
            let source =
                source.ok_or_else(|| self.device.context.failed(WHAT, "its source is no host memory"))?;
            checked.push((source, target, copy.bytes));
        }
        self.in_lane(|lane, _| {
            self.device.context.enter()?;
            let copier = lane.copier()?;
            let ticket = copier.next;
            copier.next += 1;
            copier.settle_before(ticket, WHAT)?;
            for copy in copies {
                copier.pending.extend([(ticket, Arc::clone(copy.source)), (ticket, Arc::clone(copy.target))]);
            }
            let mut queued = [0; COPY_STREAMS];
            for (source, target, bytes) in checked {
                let least = if queued[0] <= queued[1] { 0 } else { 1 };
                queued[least] += bytes;
                // SAFETY: `range` checked both sides, which `pending` holds until the copy is done; the source is pinned. It
                // is given as an address, not as a slice: who writes to it meanwhile gets a mixture to the device, no more.
                let copied = unsafe {
                    sys::cuMemcpyHtoDAsync_v2(target, source.cast(), bytes, copier.streams[least].handle)
                };
                self.device.context.check(WHAT, copied.result())?;
            }
            let arrivals = &copier.arrivals[ticket % TICKETS];
            for (event, stream) in arrivals.iter().zip(&copier.streams) {
                event.record(stream)?;
            }
            Ok(CopyTicket(ticket))
        })
    }

    fn after_copies(&self, ticket: CopyTicket) -> Result<(), DeviceError> {
        self.in_lane(|lane, _| {
            self.device.context.enter()?;
            match &lane.copier {
                Some(copier) => {
                    let mut arrivals = copier.arrivals[ticket.0 % TICKETS].iter();
                    arrivals.try_for_each(|event| lane.stream.wait_for(event))
                }
                None => Ok(()),
            }
        })
    }

    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError> {
        self.in_lane(|lane, pending| {
            // Should waiting fail, the kernel may still run.
            let buffers = launch.arguments().iter().filter_map(|argument| argument.buffer());
            pending.extend(buffers.map(|(buffer, _)| Arc::clone(buffer)));
            let report = lane.launch(&self.device.pool, &launch)?;
            if report.is_some() && !lane.deferred.is_on() {
                pending.clear();
            }
            Ok(report.unwrap_or_else(cancelled))
        })
    }

    fn defer(&self) -> Result<bool, DeviceError> {
        self.in_lane(|lane, _| {
            self.device.context.enter()?;
            lane.deferred.begin(&lane.stream)?;
            Ok(true)
        })
    }

    fn deferred(&self) -> usize {
        self.state.lock().lane.as_ref().map_or(0, |lane| lane.deferred.launches())
    }

    fn settle(&self, parts: &mut [Download<'_>]) -> Result<Settled, DeviceError> {
        let mut pieces = Vec::with_capacity(parts.len());
        for Download { buffer, offset, data } in &mut *parts {
            let source = self.device.range("a copy from the device", buffer, *offset, data.len())?;
            if self.device.on_host(buffer, *offset).is_some() {
                let message = "memory of the host is not settled with launches";
                return Err(self.device.context.failed("a copy from the device", message));
            }
            pieces.push((source, &mut **data));
        }
        let (settled, fitting) = self.in_lane(|lane, pending| {
            self.device.context.enter()?;
            let settled = lane.deferred.settle(&lane.stream, &mut pieces)?;
            pending.clear();
            Ok(settled)
        })?;
        self.download_many(&mut parts[fitting..])?;
        Ok(settled)
    }
}

impl Drop for CudaQuery {
    fn drop(&mut self) {
        let State { lane, pending } = self.state.get_mut();
        let Some(mut lane) = lane.take() else { return };
        let is_idle =
            pending.is_empty() && lane.copier.as_ref().is_none_or(|copier| copier.pending.is_empty());
        let settled = is_idle || self.device.context.enter().is_ok() && lane.settle().is_ok();
        // A stream that is in doubt is not used again.
        if settled {
            lane.deferred.forget();
            self.device.lanes.give_back(lane);
        }
    }
}
