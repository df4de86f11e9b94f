//! Rows of an inner sort or limit that stay in device memory, as columns that the stage around it scans.
//!
//! Whoever wants the rows of a plan says that they may stay ([`RowReceiver::kept`]); the stage that makes them leaves them where
//! they are if it can (`stage/keeping`), else they come to the host as ever and become a table there. They go to the host later
//! where the stage that scans them has too little memory, or runs on another device ([`host`]).

mod host;
mod inner;
mod inner_rows;

pub(crate) use self::host::code_at;
pub(crate) use self::inner_rows::{InnerRows, Placed};

use std::ops::Range;
use std::sync::Arc;

use kelpie_compile::pipeline::ScanInfo;
use kelpie_compile::plan::Scan;
use kelpie_compile::types::Field;
use kelpie_device::Device;

use crate::columns::ResidentColumn;
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
        Some(Loaded { rows: self.rows, most_rows: self.rows, columns })
    }

    /// What the compiler knows of a scan.
    pub(crate) fn info(&self, scan: &Scan) -> Option<ScanInfo> {
        describe(&[self.load(scan)?]).pop()
    }
}
