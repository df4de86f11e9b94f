//! Where the time of a query went.

use std::time::Duration;

use kelpie_engine::{Phase, QueryError, QueryMetrics, Split};

/// Where the time of a query went, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct QueryTiming {
    /// Where all of it went: the parts add up to `total_ns`. Several of the others are parts of it.
    pub split: Split,
    /// Parsing and planning; finding the plan where it was kept.
    pub plan_ns: u64,
    /// Whether the plan was kept from an earlier query.
    pub plan_kept: bool,
    /// Generating and compiling kernels.
    pub compile_ns: u64,
    /// Reading columns and moving them to the device.
    pub transfer_ns: u64,
    /// Bytes that were read into device memory; 0 where all columns were cached.
    pub transfer_bytes: u64,
    /// Running kernels.
    pub kernel_ns: u64,
    /// Bytes of device memory that the kernels read.
    pub kernel_bytes_read: u64,
    /// Bringing the result to the host, sort and limit included.
    pub result_ns: u64,
    /// All, from the SQL text to the last batch.
    pub total_ns: u64,
    /// Whether Kelpie ran all of the plan.
    pub compiled: bool,
    /// Why not, or why parts ran on DataFusion's operators.
    pub reasons: Vec<String>,
    /// Errors of compiled parts that ran on DataFusion's operators then, which fail too, in their own words.
    pub failures: Vec<QueryError>,
    /// The device, where anything was compiled.
    pub device: Option<String>,
    /// What each compiled part did.
    pub parts: Vec<QueryMetrics>,
}

impl QueryTiming {
    /// Lets the query end later: whoever took its rows was busy with them until then.
    pub fn end_at(&mut self, since_start: Duration) {
        let total_ns = since_start.as_nanos() as u64;
        self.split.add(Phase::Taking, total_ns.saturating_sub(self.total_ns));
        self.total_ns = self.total_ns.max(total_ns);
    }
}
