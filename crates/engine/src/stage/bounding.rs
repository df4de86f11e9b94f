//! The bound of a sort's rows by those that came first (`compile/operator/sort/bound`): these are few enough for one block to put their
//! words in order, and one thread takes the word that bounds the others from there. Nobody waits for either.

use kelpie_compile::pipeline::Bounding;

use super::actions::Occasion;
use super::run::Run;
use crate::error::EngineError;
use crate::primitives::Counted;

impl Run<'_> {
    /// Bounds the rows of later launches by those that the first one stored; the time on the device, in nanoseconds. Nothing where
    /// no others come.
    pub fn bound(&mut self, bounding: &Bounding, at: &Occasion<'_>) -> Result<u64, EngineError> {
        let Bounding { rows, words, wanted, bound } = *bounding;
        let most = (at.rows.end - at.rows.start).min(self.store.capacity_of(words));
        let is_first = at.rows.start == 0 && at.rows.end < self.source_rows(at.pipeline)?;
        if !is_first || most < wanted || !self.primitives().fits_block(most, 1) {
            return Ok(0);
        }
        let (words, count) = (self.store.buffer(words)?, self.store.place(rows)?);
        let place = self.store.place(bound)?;
        self.store.page.changed(bound);
        let mut primitives = self.primitives();
        let bytes = |width: u64| most.saturating_mul(width);
        let (order, first) = (primitives.allocate(bytes(4))?, primitives.allocate(bytes(8))?);
        let delivered = (primitives.allocate(8)?, 0);
        let counted = Counted { rows: count, most, wanted, delivered };
        primitives.sort_counted(&[words], (&order, Some(&first)), &counted)?;
        primitives.bound_of(&first, &counted, &place)?;
        Ok(primitives.time_ns)
    }
}
