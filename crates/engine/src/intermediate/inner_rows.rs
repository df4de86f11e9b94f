//! Takes the rows of an inner sort or limit.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use kelpie_device::Device;

use super::{IntermediateRows, IntermediateWindow};
use crate::delivery::{Batches, Collected, RowReceiver};
use crate::error::EngineError;

/// Takes the rows of an inner sort or limit: on the device if they can stay there, else on the host.
#[derive(Debug)]
pub(crate) struct InnerRows {
    /// Where they may stay.
    device: Option<Arc<dyn Device>>,
    collected: Collected,
    kept: Option<IntermediateRows>,
}

/// Where they are.
#[derive(Debug)]
pub(crate) enum Placed {
    Intermediate(IntermediateRows),
    Host(Vec<RecordBatch>),
}

impl InnerRows {
    pub(crate) fn new(device: Option<Arc<dyn Device>>) -> InnerRows {
        InnerRows { device, collected: Collected::default(), kept: None }
    }

    pub(crate) fn placed(self) -> Placed {
        match self.kept {
            Some(kept) => Placed::Intermediate(kept),
            None => Placed::Host(self.collected.batches),
        }
    }
}

impl RowReceiver for InnerRows {
    fn take(&mut self, batch: RecordBatch) -> Result<(), EngineError> {
        match self.kept {
            Some(_) => Err(EngineError::Internal("rows on the host after such on the device".into())),
            None => self.collected.take(batch),
        }
    }
    fn kept(&self) -> Option<IntermediateWindow> {
        let device = self.device.clone().filter(|_| self.kept.is_none() && self.collected.batches.is_empty());
        device.map(|device| IntermediateWindow { device, rows: 0..u64::MAX, columns: None })
    }
    fn take_kept(&mut self, rows: IntermediateRows) {
        self.kept = Some(rows);
    }
    fn leave_out(&mut self, rows: u64) {
        self.collected.leave_out(rows);
    }
    fn delivered(&self) -> u64 {
        0
    }
    fn batches(&self) -> Batches {
        self.collected.batches()
    }
    fn piece_bytes(&self) -> u64 {
        self.collected.piece_bytes()
    }
}
