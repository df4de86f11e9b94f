//! The order of a column's values from row to row: by batches while it is read, and from batch to batch when all of them are there.

use kelpie_compile::layout::Direction;
use kelpie_compile::types::Range;

/// The order of the values of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkOrder {
    /// None is less than the one before.
    rises: bool,
    /// None is greater than the one before.
    falls: bool,
    /// And none is equal to it.
    is_strict: bool,
}

impl ChunkOrder {
    /// Values in no order, or of which nobody knows.
    pub(super) const NONE: ChunkOrder = ChunkOrder { rises: false, falls: false, is_strict: false };
    /// No values.
    pub(super) const NOTHING: ChunkOrder = ChunkOrder { rises: true, falls: true, is_strict: true };

    /// That of some values: a comparison or two where they are in none.
    pub(super) fn of<T: Ord>(values: &[T]) -> ChunkOrder {
        let (rises, falls) = (values.is_sorted(), values.is_sorted_by(|a, b| a >= b));
        let is_strict = match (rises, falls) {
            (true, _) => values.is_sorted_by(|a, b| a < b),
            (_, true) => values.is_sorted_by(|a, b| a > b),
            _ => false,
        };
        ChunkOrder { rises, falls, is_strict }
    }

    /// That of values which others have looked at: none is less than the one before, none greater, none equal.
    pub(super) fn found(rises: bool, falls: bool, none_equal: bool) -> ChunkOrder {
        ChunkOrder { rises, falls, is_strict: (rises || falls) && none_equal }
    }

    /// Whether no value is there twice.
    pub(super) fn is_strict(self) -> bool {
        self.is_strict
    }
}

/// The order of a column's values, by that of each batch, and its bounds.
pub(super) fn of_chunks(
    chunks: impl Iterator<Item = (ChunkOrder, Option<Range>)> + Clone,
) -> Option<Direction> {
    let ranges = || chunks.clone().filter_map(|(_, range)| range);
    let rises = chunks.clone().all(|(order, _)| order.rises) && ranges().is_sorted_by(|a, b| a.max <= b.min);
    if rises {
        return Some(Direction::Ascending);
    }
    let falls = chunks.clone().all(|(order, _)| order.falls) && ranges().is_sorted_by(|a, b| a.min >= b.max);
    falls.then_some(Direction::Descending)
}

/// The order of values.
pub(super) fn of_values<T: PartialOrd>(values: impl Iterator<Item = T> + Clone) -> Option<Direction> {
    if values.clone().is_sorted() {
        return Some(Direction::Ascending);
    }
    values.is_sorted_by(|a, b| a >= b).then_some(Direction::Descending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(chunks: &[&[i64]]) -> Option<Direction> {
        let range = |chunk: &[i64]| Some(Range::new(*chunk.iter().min()?, *chunk.iter().max()?));
        of_chunks(chunks.iter().map(|chunk| (ChunkOrder::of(chunk), range(chunk))))
    }

    #[test]
    fn a_column_is_in_order_where_its_batches_are_and_follow_each_other() {
        use Direction::{Ascending, Descending};
        assert_eq!(of(&[]), Some(Ascending));
        assert_eq!(of(&[&[1, 1, 3], &[], &[3, 3], &[4]]), Some(Ascending));
        assert_eq!(of(&[&[4, 3], &[3, 3], &[], &[3, 1]]), Some(Descending));
        assert_eq!(of(&[&[5], &[3, 3]]), Some(Descending));
        assert_eq!(of(&[&[1, 2], &[1, 2]]), None);
        assert_eq!(of(&[&[1, 3, 2]]), None);
        assert_eq!(of(&[&[1, 2], &[5, 4]]), None);
        assert_eq!(of(&[&[2, 1], &[5, 4]]), None);
    }

    #[test]
    fn values_are_strict_where_none_is_there_twice() {
        let strict = |values: &[i64]| ChunkOrder::of(values).is_strict();
        assert!(strict(&[]) && strict(&[7]) && strict(&[1, 2, 9]) && strict(&[3, 2]));
        assert!(!strict(&[1, 1]) && !strict(&[3, 2, 2]) && !strict(&[1, 3, 2]));
    }
}
