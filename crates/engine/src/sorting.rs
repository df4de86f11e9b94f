//! The order of a sort's rows: on the host where they are few, by the device's radix sort where they are many.

use kelpie_compile::pipeline::Sorting;
use kelpie_device::Buffer;

use crate::error::{EngineError, FallbackReason};
use crate::primitives::{Primitives, Sorted};

/// Rows whose order the host computes, at most.
pub(crate) const HOST_ORDER_ROWS: u64 = 64 << 10;
/// Words that are looked at together for the end of a tie.
const TIE_WORDS: usize = 1 << 12;

/// The first places of the order, as `u32`s, or all of them on the device.
#[derive(Debug)]
pub(crate) enum RowOrder {
    /// On the host.
    Host(Vec<u32>),
    /// On the device, and how many are to be delivered.
    Device(Buffer, u64),
}

/// Orders `rows` rows by their words on the host.
pub(crate) fn on_host(sorting: &Sorting, words: &[Vec<u8>], rows: usize) -> RowOrder {
    let word = |index: usize, row: u32| {
        let bytes = words[index].get(row as usize * 8..row as usize * 8 + 8);
        bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let wanted = sorting.fetch.map_or(rows, |fetch| usize::try_from(fetch).unwrap_or(rows).min(rows));
    let mut order: Vec<(u64, u32)> = (0..rows as u32).map(|row| (word(0, row), row)).collect();
    let compare = |a: &(u64, u32), b: &(u64, u32)| {
        let later = || (1..words.len()).map(|index| word(index, a.1).cmp(&word(index, b.1)));
        a.0.cmp(&b.0).then_with(|| later().find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal))
    };
    if wanted < rows && wanted > 0 && sorting.is_exact {
        order.select_nth_unstable_by(wanted - 1, compare);
        order.truncate(wanted);
    }
    order.sort_unstable_by(compare);
    // What ties with the last one may be before it.
    let end = match order.get(wanted.wrapping_sub(1)).map(|(first, _)| *first) {
        Some(last) => order.partition_point(|(first, _)| *first <= last),
        None => 0,
    };
    order.truncate(if sorting.is_exact { wanted } else { end });
    RowOrder::Host(order.into_iter().map(|(_, row)| row).collect())
}

/// Orders `rows` rows by their words on the device.
pub(crate) fn on_device(
    sorting: &Sorting,
    primitives: &mut Primitives<'_>,
    words: &[Buffer],
    rows: u64,
) -> Result<RowOrder, EngineError> {
    if u32::try_from(rows).is_err() {
        return Err(FallbackReason::Rows { what: "a sort".into(), rows, most: u32::MAX.into() }.into());
    }
    let Sorted { order, first } = primitives.sort(words, rows)?;
    let wanted = sorting.fetch.map_or(rows, |fetch| fetch.min(rows));
    let delivered = match first {
        _ if sorting.is_exact || wanted == 0 => wanted,
        Some(first) => primitives.end_of_tie(&first, wanted - 1, rows)?,
        None => rows,
    };
    Ok(RowOrder::Device(order, delivered))
}

impl Primitives<'_> {
    /// The end of the run of words that are equal to the one at `place`, among `rows` sorted words.
    fn end_of_tie(&self, words: &Buffer, place: u64, rows: u64) -> Result<u64, EngineError> {
        let (mut from, mut tied) = (place, None);
        while from < rows {
            let mut bytes = vec![0; TIE_WORDS.min((rows - from) as usize) * 8];
            self.stream().download(words, from as usize * 8, &mut bytes)?;
            let tied: &Vec<u8> = tied.get_or_insert_with(|| bytes[..8].to_vec());
            let found = bytes.chunks_exact(8).position(|word| word != tied.as_slice());
            if let Some(index) = found {
                return Ok(from + index as u64);
            }
            from += (bytes.len() / 8) as u64;
        }
        Ok(rows)
    }
}
