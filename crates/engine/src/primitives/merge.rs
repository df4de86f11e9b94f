//! Sorted runs: merged two by two until one is left (`compile::primitives::merge`), and brought to the places of their keys
//! (`compile::primitives::runs`).

use std::sync::Arc;

use kelpie_compile::primitives::{merge, radix, runs};
use kelpie_device::Buffer;
use kelpie_kir::Scalar;

use super::{Primitives, Sorted, integer, whole};
use crate::error::EngineError;

/// Sorted arrays of keys (`u64`) with values (`u32`).
type Pairs<'b> = (&'b Buffer, &'b Buffer);

impl Primitives<'_> {
    /// Merges pairs of runs in one launch: `bounds` are the first elements of all runs, then their end; of a pair the first run is of
    /// `first`, the second of `second`, from whose bounds `shift` is taken. See [`merge`].
    pub(crate) fn merge_pairs(
        &mut self,
        (first, second, shift): (Pairs<'_>, Pairs<'_>, u64),
        bounds: &[u64],
        out: Pairs<'_>,
    ) -> Result<(), EngineError> {
        let Some(rows) = bounds.last().copied().filter(|rows| *rows > 0) else { return Ok(()) };
        // An odd run is merged with an empty one.
        let more = bounds.len().is_multiple_of(2).then_some(rows);
        let numbers = bounds.iter().copied().chain(more).map(u32::try_from);
        let numbers = numbers.collect::<Result<Vec<u32>, _>>();
        let numbers =
            numbers.map_err(|_| EngineError::Internal("runs of more elements than have numbers".into()))?;
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let uploaded = self.allocate(bytes.len() as u64)?;
        self.stream.upload(&uploaded, 0, &bytes)?;
        let own = [
            whole(first.0),
            whole(first.1),
            whole(second.0),
            whole(second.1),
            integer(Scalar::I64, shift),
            whole(&uploaded),
            integer(Scalar::I64, numbers.len() as u64 / 2),
            whole(out.0),
            whole(out.1),
        ];
        self.over(merge::MERGE, self.tiles(rows), &own)
    }

    /// The order of the elements of one array that is sorted run by run: a tree of merges. `bounds`: the first elements of the
    /// runs, from 0 on, then their end. Stable. The keys are not changed.
    pub(crate) fn merge_runs(&mut self, given: &Buffer, bounds: &[u64]) -> Result<Sorted, EngineError> {
        let rows = bounds.last().copied().unwrap_or(0);
        let mut order = self.allocate(rows.saturating_mul(4))?;
        if rows == 0 {
            return Ok(Sorted { order, first: None });
        }
        self.over(radix::IOTA, self.tiles(rows), &[whole(&order)])?;
        let mut bounds = bounds.to_vec();
        bounds.dedup();
        let mut keys = Arc::clone(given);
        // What the last level but one has written is written again.
        let mut spare = None;
        while bounds.len() > 2 {
            let (merged, merged_order) = match spare.take() {
                Some(spare) => spare,
                None => (self.allocate(rows.saturating_mul(8))?, self.allocate(rows.saturating_mul(4))?),
            };
            let runs = (&keys, &order);
            self.merge_pairs((runs, runs, 0), &bounds, (&merged, &merged_order))?;
            bounds = bounds.iter().step_by(2).copied().collect();
            if bounds.last() != Some(&rows) {
                bounds.push(rows);
            }
            let read = (std::mem::replace(&mut keys, merged), std::mem::replace(&mut order, merged_order));
            // The keys that were given stay as they are.
            spare = (!Arc::ptr_eq(&read.0, given)).then_some(read);
        }
        Ok(Sorted { order, first: Some(keys) })
    }

    /// Numbers the runs of equal keys among `rows` sorted ones, at least one: the number of each element's run (`u32`), and how many
    /// there are.
    pub(crate) fn number_runs(&mut self, keys: &Buffer, rows: u64) -> Result<(Buffer, u64), EngineError> {
        let numbers = self.allocate(rows.saturating_mul(4))?;
        self.over(runs::ENDS, self.tiles(rows), &[whole(keys), whole(&numbers)])?;
        self.exclusive_scan(&numbers, rows)?;
        let mut last = [0; 4];
        let offset = usize::try_from(rows.saturating_sub(1)).unwrap_or(usize::MAX).saturating_mul(4);
        self.stream.download(&numbers, offset, &mut last)?;
        Ok((numbers, u64::from(u32::from_le_bytes(last)) + 1))
    }

    /// Makes places of such numbers, the first of which is `base`, and writes each run's key to its place.
    pub(crate) fn place_runs(
        &mut self,
        (keys, numbers): Pairs<'_>,
        rows: u64,
        base: u64,
        run_keys: &Buffer,
    ) -> Result<(), EngineError> {
        let own = [whole(keys), whole(numbers), integer(Scalar::U32, base), whole(run_keys)];
        self.over(runs::PLACES, self.tiles(rows), &own)
    }
}
