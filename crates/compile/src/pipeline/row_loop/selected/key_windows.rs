//! Windows of keys: rows of a scan whose key is beyond the bounds of a finished build side are left out where a selection vector
//! is made, several at once. The join further on would find nothing for them.
//!
//! Leaving out whole zones by the same bounds is the engine's part ([`Prune`]). The windows do it row by row, as keys seldom come
//! in order: a build side that a filter has narrowed to one year leaves a seventh of seven years' rows.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, CompareOp, Scalar};

use crate::context::{Context, StoredIntegers};
use crate::program::Prune;
use crate::table::bounds::{KeyBounds, Loaded};
use crate::types::Range;

/// The bounds of a build side's keys, and the column of the scan that is compared with them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Its position in the scan.
    column: usize,
    bounds: Loaded,
}

impl Window {
    /// Loads the bounds: before the row loop, as they do not change.
    pub(super) fn begin(cx: &mut Context<'_>, prune: &Prune) -> Window {
        Window { column: prune.column, bounds: KeyBounds(prune.bounds).load(cx) }
    }

    /// Which rows of the wide row that begins are within: a mask. `None` where the column is not stored as narrow integers.
    pub(super) fn holds(self, cx: &mut Context<'_>) -> Option<V> {
        let whole = Range { min: i64::MIN.into(), max: i64::MAX.into() };
        cx.column_range(self.column).filter(|range| range.within(whole))?;
        let StoredIntegers { value, valid, base, bounds } = cx.stored_integers(self.column)?;
        let b = &mut *cx.builder;
        let scalar = b.scalar(value);
        let mut bound = |stored: i128| {
            let stored = b.int(Scalar::I64, stored);
            base.map_or(stored, |base| b.add(stored, base))
        };
        // What the column has is stored, so these are too; a window beside all of it becomes one that is empty.
        let (first, last) = (bound(bounds.min), bound(bounds.max));
        let least = b.binary(BinaryOp::Max, self.bounds.least, first);
        let greatest = b.binary(BinaryOp::Min, self.bounds.greatest, last);
        let is_empty = b.lt(greatest, least);
        let mut limit = |limit, where_empty| {
            let limit = base.map_or(limit, |base| b.sub(limit, base));
            let empty = b.i64(where_empty);
            let limit = b.select(is_empty, empty, limit);
            b.convert(limit, scalar)
        };
        let (least, greatest) = (limit(least, 1), limit(greatest, 0));
        let (above, below) =
            (b.compare(CompareOp::Ge, value, least), b.compare(CompareOp::Le, value, greatest));
        let within = b.and(above, below);
        Some(valid.map_or(within, |valid| b.and(within, valid)))
    }
}
