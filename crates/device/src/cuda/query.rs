//! A query's stream.

use std::sync::Arc;

use cudarc::driver::result;
use parking_lot::Mutex;

use super::CudaDevice;
use super::launch::{Lane, cancelled};
use crate::{Buffer, Device, DeviceError, Download, KernelArgument, Launch, LaunchReport, QueryStream};

/// A query on a GPU. Its stream goes back to the device when it ends.
#[derive(Debug)]
pub struct CudaQuery {
    device: Arc<CudaDevice>,
    as_device: Arc<dyn Device>,
    state: Mutex<State>,
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
        Ok(CudaQuery { as_device: device.clone(), device, state })
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

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        let target = self.device.range("a copy to the device", buffer, offset, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        self.in_lane(|lane, pending| {
            self.device.staging.upload(Some(&lane.stream), target, data)?;
            pending.clear();
            Ok(())
        })
    }

    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        let target = self.device.range("a fill", buffer, offset, bytes)?;
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
            pieces.push((source, &mut **data));
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

    fn launch(&self, launch: &Launch<'_>) -> Result<LaunchReport, DeviceError> {
        self.in_lane(|lane, pending| {
            // Should waiting fail, the kernel may still run.
            pending.extend(launch.arguments.iter().filter_map(|argument| match argument {
                KernelArgument::Buffer(buffer, _) => Some(Arc::clone(buffer)),
                KernelArgument::Scalar(..) => None,
            }));
            let report = lane.launch(&self.device.pool, launch, self.device.target.block_threads)?;
            if report.is_some() {
                pending.clear();
            }
            Ok(report.unwrap_or_else(cancelled))
        })
    }
}

impl Drop for CudaQuery {
    fn drop(&mut self) {
        let State { lane, pending } = self.state.get_mut();
        let Some(lane) = lane.take() else { return };
        let settled = pending.is_empty()
            || self.device.context.enter().is_ok() && lane.stream.synchronize("the end of a query").is_ok();
        // A stream that is in doubt is not used again.
        if settled {
            self.device.lanes.give_back(lane);
        }
    }
}
