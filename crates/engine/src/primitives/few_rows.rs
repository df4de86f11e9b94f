//! The sort of few rows by one block (`compile::primitives::block_sort`): one launch, which may go by a number of rows that the
//! host does not know.

use kelpie_compile::primitives::block_sort;
use kelpie_device::Buffer;
use kelpie_kir::Scalar;

use super::encode::argument;
use super::{Array, Family, Primitives, Sorted, integer, whole};
use crate::error::EngineError;

/// Rows that earlier kernels have counted, and what is wanted of their order.
#[derive(Debug)]
pub(crate) struct Counted {
    /// The word that tells how many there are.
    pub(crate) rows: Array,
    /// No more than these are sorted: they fit a block.
    pub(crate) most: u64,
    /// Numbers that are written, at most.
    pub(crate) wanted: u64,
    /// The word that will tell how many were written.
    pub(crate) delivered: Array,
}

impl Primitives<'_> {
    /// Whether one block sorts so many rows by so many words.
    pub(crate) fn fits_block(&self, rows: u64, words: usize) -> bool {
        (1..=block_sort::MOST_WORDS).contains(&words) && rows <= block_sort::most_rows(&self.shape)
    }

    /// Sorts rows that fit a block, which the host knows to be so many, by their words, the most significant first. Stable.
    pub(super) fn sort_in_block(&mut self, words: &[Buffer], rows: u64) -> Result<Sorted, EngineError> {
        let order = self.allocate(rows.saturating_mul(4))?;
        if rows == 0 {
            return Ok(Sorted { order, first: None });
        }
        let first = self.allocate(rows.saturating_mul(8))?;
        self.launch_block_sort(words, rows, (&order, Some(&first)), None)?;
        Ok(Sorted { order, first: Some(first) })
    }

    /// Writes the order of rows that only the device has counted, and the first words in order where there is an array for them.
    /// Each array has room for `counted.most` rows.
    pub(crate) fn sort_counted(
        &mut self,
        words: &[Buffer],
        out: (&Buffer, Option<&Buffer>),
        counted: &Counted,
    ) -> Result<(), EngineError> {
        if !self.fits_block(counted.most, words.len()) {
            return Err(EngineError::Internal("a sort of more than a block can sort".into()));
        }
        self.launch_block_sort(words, counted.most, out, Some(counted))
    }

    fn launch_block_sort(
        &mut self,
        words: &[Buffer],
        most: u64,
        (order, first): (&Buffer, Option<&Buffer>),
        counted: Option<&Counted>,
    ) -> Result<(), EngineError> {
        let kernel = self.kernel_of(Family::BlockSort(words.len()), block_sort::name(words.len()).into())?;
        // What stands for an array that is not there is neither read nor written.
        let any: Array = (Buffer::clone(order), 0);
        let (rows, delivered) = counted.map_or((&any, &any), |counted| (&counted.rows, &counted.delivered));
        let flag = |is_set: bool| integer(Scalar::U32, is_set.into());
        let mut arguments = vec![
            integer(Scalar::U32, block_sort::levels(most).into()),
            integer(Scalar::U64, most),
            argument(rows),
            flag(counted.is_some()),
            integer(Scalar::U64, counted.map_or(most, |counted| counted.wanted)),
        ];
        arguments.extend(words.iter().map(whole));
        let place_of_first = first.unwrap_or(order);
        arguments.extend([whole(order), whole(place_of_first), flag(first.is_some()), argument(delivered)]);
        self.launch(kernel.as_ref(), 1, &arguments)
    }
}
