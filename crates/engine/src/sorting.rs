//! The order of a sort's rows: on the host where they are few, by the device's radix sort where they are many, and where only
//! a few ranks of many rows are wanted, of those alone ([`select`]). Where a stage has run before, a block of a GPU orders few rows,
//! and the host waits for nothing (`stage/actions`).

mod select;
#[cfg(test)]
mod tests;

use std::ops::Range;

use kelpie_device::{Buffer, DeviceError};

pub(crate) use self::select::{KeyText, Picked, Selector};
use crate::error::{EngineError, FallbackReason};
use crate::primitives::{Primitives, Sorted};

/// Rows whose order the host computes, at most, where a CPU's workers are the device.
pub(crate) const HOST_ORDER_ROWS: u64 = 64 << 10;
/// The same of a SIMT device: its sorts take half a millisecond whatever the rows, and the host 0.15 us a row. On an H100 TPC-H 16 at SF 10,
/// which sorts 27,840 rows, has kernels of 0.7 ms with the one, and 3.4 with the other.
const HOST_ORDER_ROWS_OF_SIMT: u64 = 4 << 10;
/// Rows that are wanted, at most, where they are selected by their rank.
pub(crate) const MOST_SELECTED: u64 = 16 << 10;
/// Rows that the host puts in order at the end of a selection; more where more are wanted.
pub(crate) const SELECTED_ROWS: u64 = 2 << 10;
/// Words that are looked at together for the end of a tie.
const TIE_WORDS: u64 = 1 << 12;

/// Rows whose order the host computes, at most, for a device with so many lanes a warp.
pub(crate) fn host_order_rows(lanes: u32) -> u64 {
    if lanes == 1 { HOST_ORDER_ROWS } else { HOST_ORDER_ROWS_OF_SIMT }
}

/// Places in the order, as `u32`s.
#[derive(Debug)]
pub(crate) enum Places {
    /// On the host.
    Host(Vec<u32>),
    /// On the device, and how many.
    Device(Buffer, u64),
}

/// Rows of an order one after the other.
#[derive(Debug)]
pub(crate) struct RowOrder {
    /// How many rows come before them.
    pub(crate) start: u64,
    pub(crate) places: Places,
    /// The first words of the rows in order, where the sort has them.
    pub(crate) first: Option<Buffer>,
    /// Whether texts are taken into account: else rows that words do not tell apart are still to be put in order.
    pub(crate) is_decided: bool,
}

impl RowOrder {
    /// Nothing.
    pub(crate) fn empty() -> RowOrder {
        RowOrder { start: 0, places: Places::Host(Vec::new()), first: None, is_decided: true }
    }
}

impl From<Picked> for RowOrder {
    fn from(picked: Picked) -> RowOrder {
        let Picked { start, places, is_decided } = picked;
        RowOrder { start, places: Places::Host(places), first: None, is_decided }
    }
}

/// Sorts `rows` rows by their words and texts on the device. What is given of them are those whose ranks are wanted, and
/// where that does not decide, those that may have these ranks.
pub(crate) fn on_device(
    texts: &[KeyText],
    primitives: &mut Primitives<'_>,
    words: &[Buffer],
    rows: u64,
    wanted: Range<u64>,
) -> Result<RowOrder, EngineError> {
    let Sorted { order, first } = primitives.sort(words, rows)?;
    let is_decided = match primitives.resolve_ties(&order, words, texts, rows) {
        // The host compares texts where there is no memory for it here.
        Err(EngineError::Device(DeviceError::OutOfMemory { .. })) => false,
        outcome => outcome?,
    };
    let ranks = match &first {
        _ if is_decided => wanted,
        Some(first) => {
            let start = if wanted.start == 0 { 0 } else { primitives.start_of_tie(first, wanted.start)? };
            start..primitives.end_of_tie(first, wanted.end.max(1) - 1, rows)?
        }
        None => 0..rows,
    };
    let count = ranks.end - ranks.start;
    let order = match ranks.start {
        0 => order,
        start => primitives.part_of_order(&order, start, count)?,
    };
    let first = first.filter(|_| count == rows);
    Ok(RowOrder { start: ranks.start, places: Places::Device(order, count), first, is_decided })
}

/// A number of rows that places of 32 bits can tell apart.
pub(crate) fn check_rows(rows: u64) -> Result<(), EngineError> {
    match u32::try_from(rows) {
        Ok(_) => Ok(()),
        Err(_) => Err(FallbackReason::Rows { what: "a sort".into(), rows, most: u32::MAX.into() }.into()),
    }
}

impl Primitives<'_> {
    /// The end of the run of words that are equal to the one at `place`, among `rows` sorted words.
    fn end_of_tie(&self, words: &Buffer, place: u64, rows: u64) -> Result<u64, EngineError> {
        let tied = self.some_words(words, place..place + 1)?;
        let mut from = place;
        while from < rows {
            let found = self.some_words(words, from..rows.min(from + TIE_WORDS))?;
            if let Some(index) = found.iter().position(|word| Some(word) != tied.first()) {
                return Ok(from + index as u64);
            }
            from += found.len() as u64;
        }
        Ok(rows)
    }

    /// The start of the run of words that are equal to the one at `place`, among sorted words.
    fn start_of_tie(&self, words: &Buffer, place: u64) -> Result<u64, EngineError> {
        let tied = self.some_words(words, place..place + 1)?;
        let mut to = place;
        while to > 0 {
            let from = to.saturating_sub(TIE_WORDS);
            let found = self.some_words(words, from..to)?;
            if let Some(index) = found.iter().rposition(|word| Some(word) != tied.first()) {
                return Ok(from + index as u64 + 1);
            }
            to = from;
        }
        Ok(0)
    }

    fn some_words(&self, words: &Buffer, places: Range<u64>) -> Result<Vec<[u8; 8]>, EngineError> {
        let mut bytes = vec![0; (places.end - places.start) as usize * 8];
        self.stream().download(words, places.start as usize * 8, &mut bytes)?;
        Ok(bytes.as_chunks::<8>().0.to_vec())
    }
}
