//! Rows of an inner sort or limit that stay in device memory, as columns that the stage around it scans.
//!
//! Whoever wants the rows of a plan says that they may stay ([`RowReceiver::kept`]); the stage that makes them leaves them where
//! they are if it can (`stage/keeping`), else they come to the host as ever and become a table there. They go to the host later
//! where the stage that scans them has too little memory, or runs on another device ([`host`]).

mod host;
mod inner;

pub(crate) use self::host::code_at;

use std::ops::Range;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use kelpie_compile::pipeline::ScanInfo;
use kelpie_compile::plan::Scan;
use kelpie_compile::types::Field;
use kelpie_device::Device;

use crate::columns::ResidentColumn;
use crate::delivery::{Batches, Collected, RowReceiver};
use crate::error::EngineError;
use crate::source::TableSource;
use crate::stage::{Loaded, describe};

/// Rows in device memory.
#[derive(Debug)]
pub(crate) struct IntermediateRows {
    pub(crate) rows: u64,
    pub(crate) columns: Vec<Arc<ResidentColumn>>,
}

/// Which of the rows that come are to stay.
#[derive(Debug, Clone)]
pub(crate) struct IntermediateWindow {
    /// Where they are to lie.
    pub(crate) device: Arc<dyn Device>,
    /// By their number.
    pub(crate) rows: Range<u64>,
    /// Which of their columns; `None`: all.
    pub(crate) columns: Option<Vec<usize>>,
}

/// What a scan reads.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    Table(Arc<dyn TableSource>),
    /// The rows of an earlier stage, on the device, and their columns.
    Intermediate(Arc<IntermediateRows>, Vec<Field>),
    /// What has been scanned by the only stage that does, and is gone.
    Used,
}

impl IntermediateRows {
    /// The data of a scan; `None` where it asks for a column that is not there.
    pub(crate) fn load(&self, scan: &Scan) -> Option<Loaded> {
        let column = |column: &usize| self.columns.get(*column).cloned();
        let columns = scan.columns.iter().map(column).collect::<Option<Vec<_>>>()?;
        Some(Loaded { rows: self.rows, columns })
    }

    /// What the compiler knows of a scan.
    pub(crate) fn info(&self, scan: &Scan) -> Option<ScanInfo> {
        describe(&[self.load(scan)?]).pop()
    }
}

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
