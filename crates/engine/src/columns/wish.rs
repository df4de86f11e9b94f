//! How columns are wanted, and what bringing them did.

use crate::options::{Decoding, Dictionaries};
use crate::split::Split;

/// Where columns are brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// To the device, or it is an error.
    Device,
    /// To the host.
    Host,
    /// To the device where they leave room for the state of a query, else to the host.
    Either,
}

/// How columns are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// Where.
    pub placement: Placement,
    /// In which form texts are.
    pub dictionaries: Dictionaries,
    /// Who decodes pages.
    pub decoding: Decoding,
}

/// What a load did.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadReport {
    /// Bytes that were read from the source and stored; 0 where everything was cached.
    pub loaded_bytes: u64,
    /// Where it went.
    pub split: Split,
}
