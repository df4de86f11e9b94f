//! What a stage runs over.

use kelpie_device::{CancelToken, QueryStream};

use super::loaded::Loaded;
use super::trial::Trial;
use crate::columns::ColumnCache;
use crate::learned::Learned;
use crate::movement::Movement;

/// What a stage runs over.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// What runs, copies and fills: in order.
    pub stream: &'a dyn QueryStream,
    /// Makes room for state by evicting columns.
    pub cache: &'a ColumnCache,
    /// What earlier runs have taught.
    pub learned: &'a Learned,
    pub loaded: &'a [Loaded],
    pub movement: Movement,
    /// Rows of the result are to stay on the device, where they can.
    pub keeps_rows: bool,
    pub cancel: &'a CancelToken,
    /// Where something is to be learned of variants.
    pub trial: Option<&'a Trial>,
}
