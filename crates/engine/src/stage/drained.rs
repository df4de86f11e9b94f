//! The rows of a result that have left the device while its stage still runs.

use std::ops::Range;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use kelpie_compile::types::Field;

use crate::result::{self, Reading};

/// What becomes of rows that are drained ([`crate::delivery`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Draining {
    /// They are held on the host.
    #[default]
    Hold,
    /// They are too many to be held, and what comes after them may fall back: they are dropped, and made again once it has
    /// not.
    Check,
    /// They go out.
    Deliver,
}

/// The rows of a result that were drained.
#[derive(Debug)]
pub(super) struct Drained {
    /// The result's columns.
    pub schema: SchemaRef,
    /// Rows of the result that are still on the device and complete.
    pub waiting: u64,
    pub draining: Draining,
    /// Those that are held.
    pub parts: Vec<RecordBatch>,
    pub held_bytes: u64,
    /// All, since the group began.
    pub rows: u64,
    /// What reading them took, and their bytes.
    pub reading: Reading,
    /// Bytes that the states of a result take before it is made in blocks.
    pub most_bytes: u64,
    /// Rows of a block of the source, where the result is too large to be made at once.
    pub block_rows: Option<u64>,
    /// The rows that are wanted of a result that has an order.
    pub wanted: Range<u64>,
    /// How many rows of its order come before those that are made.
    pub left_out: u64,
    /// Rows that have an order come in it.
    pub is_decided: bool,
}

impl Drained {
    /// Nothing yet, of a result with these columns.
    pub fn new(fields: &[Field]) -> Drained {
        Drained {
            schema: result::arrow_schema(fields),
            waiting: 0,
            draining: Draining::default(),
            parts: Vec::new(),
            held_bytes: 0,
            rows: 0,
            reading: Reading::default(),
            most_bytes: 0,
            block_rows: None,
            wanted: 0..u64::MAX,
            left_out: 0,
            is_decided: false,
        }
    }

    /// Columns of the result.
    pub fn columns(&self) -> usize {
        self.schema.fields().len()
    }

    /// Forgets what a group drained: it runs again.
    pub fn restart(&mut self) {
        self.parts.clear();
        (self.held_bytes, self.rows) = (0, 0);
        self.reading.bytes = 0;
    }
}
