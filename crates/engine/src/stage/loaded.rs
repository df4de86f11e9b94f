//! The data of a stage's scans, and what the compiler must know of it.

use std::sync::Arc;

use kelpie_compile::pipeline::ScanInfo;

use crate::columns::ResidentColumn;

/// The data of a scan.
#[derive(Debug)]
pub struct Loaded {
    pub rows: u64,
    /// Rows that it and others have at most that one program is to work on.
    pub most_rows: u64,
    pub columns: Vec<Arc<ResidentColumn>>,
}

/// What the compiler must know of loaded data.
pub fn describe(loaded: &[Loaded]) -> Vec<ScanInfo> {
    let info = |data: &Loaded| ScanInfo {
        rows: data.most_rows,
        columns: data.columns.iter().map(|column| column.facts()).collect(),
        multi_column_distinct: Vec::new(),
    };
    loaded.iter().map(info).collect()
}
