//! Groups of rows that come together: neighbours that add up before, and rows that come sorted.

mod block_segments;
mod segments;
mod sorted_runs;
mod warp_segments;

pub(crate) use self::segments::{Round, Segments};
pub(crate) use self::sorted_runs::{RunTable, why_not_strided};
