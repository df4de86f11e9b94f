//! Codes of columns of few integers that are far from each other: numbers of customers, hashes, times of events. An aggregation by such a
//! column has a slot a value, as one by a dictionary's texts. A column gets them when rows are first grouped by it: most never are, and
//! numbering the values of a row costs more than reading it.

use std::hash::{BuildHasher, RandomState};
use std::iter::repeat_n;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::buffer::Buffer as HostBuffer;
use kelpie_compile::layout::{Storage, ValueCodes};
use kelpie_compile::types::Range;
use kelpie_device::{Buffer, CancelToken, Device, DeviceError};
use kelpie_kir::Scalar;

use super::resident::{ColumnCodes, ResidentColumn};
use crate::error::EngineError;

/// A column has at most so many values with codes, so that a code fits 16 bits.
const MOST_VALUES: usize = 1 << 16;
/// Values that are possible between the least and the greatest, from which on codes are of use: below, a slot for each of them takes little.
const LEAST_POSSIBLE: u64 = 1 << 16;
/// The same for each value that is there: where most of those that are possible are there, their distance from the least is a code.
const POSSIBLE_A_VALUE: u64 = 4;
/// Rows for each value from which on codes are worth their memory.
const ROWS_A_VALUE: usize = 16;
/// Rows after which it is told by those that were seen whether there are too many values, and again when there are twice as many: where few
/// values have most of the rows, others go on to come. Fewer rows would take ten thousand values that come in turn for too many.
const TRIAL_ROWS: usize = 1 << 14;
/// Rows that are taken from the device at once.
const BLOCK_ROWS: usize = 1 << 16;

/// Numbers the values of some rows in the order in which they come, as long as they are few.
#[derive(Debug)]
struct Coder {
    /// Open addressing, a power of two of slots of which at most half are taken: a value's number and 1; 0 where empty.
    slots: Vec<u32>,
    values: Vec<i64>,
    /// By row.
    codes: Vec<u16>,
    /// Random and odd, so that no data can be made to collide.
    factor: u64,
    /// More values get no codes.
    most: usize,
    /// Rows after which it is looked at how many values there are.
    next_trial: usize,
}

/// There are too many values for codes.
#[derive(Debug)]
struct TooMany;

/// How many values of a column of so many rows may have codes at most, of so many that are possible.
fn most_values(possible: u64, rows: u64) -> usize {
    let worth_it = (possible / POSSIBLE_A_VALUE).min(rows / ROWS_A_VALUE as u64);
    usize::try_from(worth_it).unwrap_or(usize::MAX).min(MOST_VALUES)
}

/// How many values are different among those of some rows, where each of so many values is as likely in any row, and a few more: a
/// twentieth, but not more than chance brings where nearly all are different.
pub(super) fn different_among(rows: usize, values: usize) -> usize {
    let (rows, values) = (rows as f64, values as f64);
    let different = values * (1.0 - (-rows / values.max(1.0)).exp());
    let by_chance = 6.0 * (rows - different).max(0.0).sqrt();
    (different + (different * 0.05).min(by_chance)) as usize
}

impl Coder {
    /// For at most so many values.
    fn new(most: usize) -> Coder {
        let factor = RandomState::new().hash_one(0u8) | 1;
        Coder {
            slots: Vec::new(),
            values: Vec::new(),
            codes: Vec::new(),
            factor,
            most,
            next_trial: TRIAL_ROWS,
        }
    }

    /// Takes the values of the next rows.
    fn take(&mut self, values: impl ExactSizeIterator<Item = i64>) -> Result<(), TooMany> {
        self.codes.reserve(values.len());
        for value in values {
            let code = self.number(value).ok_or(TooMany)?;
            self.codes.push(code);
            if self.codes.len() >= self.next_trial {
                if self.values.len() > different_among(self.codes.len(), self.most) {
                    return Err(TooMany);
                }
                self.next_trial = 2 * self.codes.len();
            }
        }
        Ok(())
    }

    /// The number of a value, which is added where it is new; `None` where there are too many.
    fn number(&mut self, value: i64) -> Option<u16> {
        if self.values.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut index = self.hash(value) & mask;
        loop {
            let slot = self.slots.get_mut(index)?;
            let Some(number) = slot.checked_sub(1) else {
                let number =
                    u16::try_from(self.values.len()).ok().filter(|_| self.values.len() < self.most)?;
                *slot = u32::from(number) + 1;
                self.values.push(value);
                return Some(number);
            };
            if self.values.get(number as usize) == Some(&value) {
                return Some(number as u16);
            }
            index = (index + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(1 << 10);
        // Written at once: memory that is read first is mapped twice.
        let mut grown: Vec<u32> = repeat_n(0, slots).collect();
        for (number, value) in self.values.iter().enumerate() {
            let mut index = self.hash(*value) & (slots - 1);
            while grown[index] != 0 {
                index = (index + 1) & (slots - 1);
            }
            grown[index] = number as u32 + 1;
        }
        self.slots = grown;
    }

    /// A multiplication, of whose product the upper half is as mixed as the lower one is not.
    fn hash(&self, value: i64) -> usize {
        let product = u128::from(value as u64) * u128::from(self.factor);
        ((product as u64) ^ ((product >> 64) as u64)) as usize
    }
}

/// Codes beside the values of a column that lies on a device, where they are worth it; `None` where not. Its rows are numbered on all
/// cores, each its part of them. `allocate` gives room on the device.
pub(super) fn codes_of(
    column: &ResidentColumn,
    device: &dyn Device,
    allocate: &dyn Fn(usize) -> Result<Buffer, DeviceError>,
    cancel: &CancelToken,
) -> Result<Option<ColumnCodes>, EngineError> {
    let Some(stored) = StoredIntegers::of(column) else { return Ok(None) };
    let most = most_values(stored.possible(), column.rows);
    if stored.possible() < LEAST_POSSIBLE || most == 0 {
        return Ok(None);
    }
    let rows = usize::try_from(column.rows).unwrap_or(usize::MAX);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let rows_of_part = rows.div_ceil(cores).next_multiple_of(BLOCK_ROWS);
    let starts: Vec<usize> = (0..rows).step_by(rows_of_part).collect();
    let has_ended = AtomicBool::new(false);
    let number = |start: &usize| {
        let part = *start..rows.min(start + rows_of_part);
        let numbered = stored.number(part, (device, cancel), most, &has_ended);
        if !matches!(numbered, Ok(Some(_))) {
            has_ended.store(true, Ordering::Relaxed);
        }
        numbered
    };
    let coders = on_all_cores(&starts, &number)?.into_iter().collect::<Option<Vec<Coder>>>();
    let Some(planned) = coders.and_then(|coders| PlannedCodes::of(coders, rows, stored.possible())) else {
        return Ok(None);
    };
    let bytes = rows * planned.code.bytes() as usize;
    let (codes, entries) = (allocate(bytes)?, allocate(planned.entries.len() * size_of::<i64>())?);
    device.upload(&entries, 0, &HostBuffer::from_slice_ref(&planned.entries))?;
    let write = |part: &CodesOfPart| {
        Ok(device.upload(&codes, part.row * planned.code.bytes() as usize, &part.stored(planned.code))?)
    };
    on_all_cores(&planned.parts, &write)?;
    Ok(Some(ColumnCodes { layout: planned.layout(), codes, entries }))
}

/// Does something with each of some parts, all at once.
fn on_all_cores<P: Sync, R: Send>(
    parts: &[P],
    work: &(dyn Fn(&P) -> Result<R, EngineError> + Sync),
) -> Result<Vec<R>, EngineError> {
    let Some((last, others)) = parts.split_last() else { return Ok(Vec::new()) };
    std::thread::scope(|scope| {
        let threads: Vec<_> = others.iter().map(|part| scope.spawn(move || work(part))).collect();
        let of_last = work(last);
        let panicked = || EngineError::Internal("coding a column panicked".into());
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())));
        // All are waited for.
        let done: Vec<_> = joined.collect();
        done.into_iter().chain([of_last]).collect()
    })
}

/// Integers of a column as they lie on a device.
struct StoredIntegers<'a> {
    data: &'a Buffer,
    scalar: Scalar,
    base: i64,
    range: Range,
    step: u64,
}

impl StoredIntegers<'_> {
    /// Those of a column which may be far from each other and are words, on the device itself.
    fn of(column: &ResidentColumn) -> Option<StoredIntegers<'_>> {
        let Storage::Fixed { scalar: scalar @ (Scalar::I32 | Scalar::I64), .. } = column.layout.storage
        else {
            return None;
        };
        let range = column.layout.range.filter(|_| !column.on_host)?;
        let is_word = range.within(Range::new(i64::MIN, i64::MAX));
        let step = column.spacing.map_or(1, |spacing| u64::try_from(spacing.step).unwrap_or(u64::MAX));
        let base = i64::try_from(column.base).ok().filter(|_| is_word)?;
        Some(StoredIntegers { data: &column.data, scalar, base, range, step })
    }

    /// How many values there may be.
    fn possible(&self) -> u64 {
        let width = self.range.max.checked_sub(self.range.min).and_then(|width| u64::try_from(width).ok());
        width.map_or(u64::MAX, |width| (width / self.step.max(1)).saturating_add(1))
    }

    /// Numbers the values of a part of the rows; `None` where there are too many, or it has ended elsewhere.
    fn number(
        &self,
        rows: std::ops::Range<usize>,
        (device, cancel): (&dyn Device, &CancelToken),
        most: usize,
        has_ended: &AtomicBool,
    ) -> Result<Option<Coder>, EngineError> {
        let mut coder = Coder::new(most);
        let width = self.scalar.bytes() as usize;
        let mut bytes = vec![0; BLOCK_ROWS.min(rows.len()) * width];
        for start in rows.clone().step_by(BLOCK_ROWS) {
            if cancel.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            if has_ended.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let bytes = &mut bytes[..BLOCK_ROWS.min(rows.end - start) * width];
            device.download(self.data, start * width, bytes)?;
            let taken = match self.scalar {
                Scalar::I32 => coder.take(self.values(bytes, |bytes| i32::from_ne_bytes(bytes).into())),
                _ => coder.take(self.values(bytes, i64::from_ne_bytes)),
            };
            if taken.is_err() {
                return Ok(None);
            }
        }
        Ok(Some(coder))
    }

    fn values<const N: usize>(
        &self,
        bytes: &[u8],
        stored: impl Fn([u8; N]) -> i64,
    ) -> impl ExactSizeIterator<Item = i64> {
        bytes.as_chunks().0.iter().map(move |bytes| stored(*bytes).wrapping_add(self.base))
    }
}

/// The codes of a column before they are written.
#[derive(Debug)]
struct PlannedCodes {
    /// The values in their order.
    entries: Vec<i64>,
    code: Scalar,
    parts: Vec<CodesOfPart>,
}

impl PlannedCodes {
    /// Those of a column of which so many values are possible, by its parts, where they are worth it.
    fn of(coders: Vec<Coder>, rows: usize, possible: u64) -> Option<PlannedCodes> {
        let mut entries: Vec<i64> = coders.iter().flat_map(|coder| &coder.values).copied().collect();
        entries.sort_unstable();
        entries.dedup();
        let is_worth_it = (1..=MOST_VALUES).contains(&entries.len())
            && entries.len().saturating_mul(ROWS_A_VALUE) <= rows
            && possible / POSSIBLE_A_VALUE >= entries.len() as u64;
        if !is_worth_it {
            return None;
        }
        let code = |value: &i64| entries.binary_search(value).map_or(0, |code| code as u16);
        let mut row = 0;
        let parts = coders.into_iter().map(|coder| {
            let codes: Vec<u16> = coder.values.iter().map(code).collect();
            let part = CodesOfPart { row, codes, numbers: coder.codes };
            row += part.numbers.len();
            part
        });
        let parts = parts.collect();
        let code = if entries.len() <= 1 << 8 { Scalar::U8 } else { Scalar::U16 };
        Some(PlannedCodes { entries, code, parts })
    }

    fn layout(&self) -> ValueCodes {
        ValueCodes { code: self.code, entries: self.entries.len() as u32 }
    }
}

/// The codes of a part of the rows.
#[derive(Debug)]
struct CodesOfPart {
    /// The first.
    row: usize,
    /// By the number of a value.
    codes: Vec<u16>,
    /// By row.
    numbers: Vec<u16>,
}

impl CodesOfPart {
    /// As they are stored.
    fn stored(&self, code: Scalar) -> HostBuffer {
        let codes =
            self.numbers.iter().map(|number| self.codes.get(usize::from(*number)).copied().unwrap_or(0));
        match code {
            Scalar::U8 => HostBuffer::from_vec(codes.map(|code| code as u8).collect::<Vec<_>>()),
            _ => HostBuffer::from_vec(codes.collect::<Vec<_>>()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes of a column of partitions, by its values, or why there are none.
    fn planned(partitions: &[&[i64]]) -> Option<PlannedCodes> {
        let all = || partitions.iter().copied().flatten().copied();
        let range = Range::new(all().min()?, all().max()?);
        let possible = u64::try_from(range.max - range.min + 1).unwrap_or(u64::MAX);
        let most = most_values(possible, all().count() as u64);
        let coders = partitions.iter().map(|values| {
            let mut coder = Coder::new(most);
            values.chunks(1000).try_for_each(|chunk| coder.take(chunk.iter().copied())).ok()?;
            Some(coder)
        });
        PlannedCodes::of(coders.collect::<Option<_>>()?, all().count(), possible)
    }

    /// What is written of each row.
    fn rows(planned: &PlannedCodes) -> Vec<u16> {
        let runs = planned.parts.iter().flat_map(|part| {
            let stored = part.stored(planned.code);
            match planned.code {
                Scalar::U8 => stored.iter().map(|code| u16::from(*code)).collect::<Vec<_>>(),
                _ => stored.typed_data::<u16>().to_vec(),
            }
        });
        runs.collect()
    }

    /// One of so many numbers, in no order.
    fn any(row: i64, values: i64) -> i64 {
        let mixed = (row as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((mixed >> 32) % values as u64) as i64
    }

    /// One of so many values, far from each other.
    fn scattered(row: i64, values: i64) -> i64 {
        any(row, values).wrapping_mul(0x1234_5678_9ABC_DEF1)
    }

    #[test]
    fn rows_have_the_place_of_their_value_among_all_in_order() {
        for values in [1, 2, 256, 257, 5_000] {
            let of_rows: Vec<i64> = (0..100_000).map(|row| scattered(row, values)).collect();
            // One value alone is at equal distances; two are.
            let Some(planned) = planned(&[&of_rows[..30_000], &[], &of_rows[30_000..]]) else {
                assert_eq!(values, 1);
                continue;
            };
            assert_eq!(planned.layout().entries as i64, values);
            assert_eq!(planned.layout().code, if values <= 256 { Scalar::U8 } else { Scalar::U16 });
            let entries = &planned.entries;
            assert!(entries.is_sorted_by(|a, b| a < b));
            assert_eq!(planned.parts.iter().map(|part| part.row).collect::<Vec<_>>(), [0, 30_000, 30_000]);
            let codes = rows(&planned);
            assert!(codes.iter().zip(&of_rows).all(|(code, value)| entries[usize::from(*code)] == *value));
        }
    }

    #[test]
    fn many_values_and_near_ones_have_none() {
        let of = |value: fn(i64) -> i64, rows: i64| {
            let values: Vec<i64> = (0..rows).map(value).collect();
            planned(&[&values]).map(|planned| planned.layout().entries)
        };
        assert_eq!(of(|row| scattered(row, 65_536), 1 << 21), Some(65_536));
        assert_eq!(of(|row| scattered(row, 65_537), 1 << 21), None);
        // Seen at once, and not only when there are more than can be numbered.
        assert_eq!(of(|row| scattered(row, 60_000), 10_000), None);
        assert_eq!(of(|row| row % 1000, 100_000), None);
        assert_eq!(of(|row| any(row, 60_000) * 2, 1 << 20), None);
        assert_eq!(of(|row| any(row, 60_000) * 8, 1 << 20), Some(60_000));
        assert_eq!(of(|row| row % 10_000 * 1_000_003, 1 << 20), Some(10_000));
        // Few rows a value.
        assert_eq!(of(|row| scattered(row, 5_000), 50_000), None);
        assert_eq!(of(|row| if row % 2 == 0 { i64::MIN } else { i64::MAX }, 100_000), Some(2));
    }

    #[test]
    fn more_values_than_are_worth_it_are_seen_in_the_first_rows() {
        assert_eq!(most_values(u64::MAX, u64::MAX), MOST_VALUES);
        assert_eq!(most_values(100_000, u64::MAX), 25_000);
        assert_eq!(most_values(100_000, 160_000), 10_000);
        assert_eq!(most_values(u64::MAX, 0), 0);
        let rows_until_end = |most: usize, value: &dyn Fn(i64) -> i64| {
            let mut coder = Coder::new(most);
            (0..200_000).find(|row| coder.take([value(*row)].into_iter()).is_err())
        };
        assert_eq!(rows_until_end(25_000, &|row| any(row, 100_000)), Some(TRIAL_ROWS as i64 - 1));
        assert_eq!(rows_until_end(25_000, &|row| any(row, 24_000)), None);
        assert_eq!(rows_until_end(25_000, &|row| row % 12_000), None);
        assert_eq!(rows_until_end(10, &|row| row % 11), Some(10));
        assert_eq!(rows_until_end(0, &|row| row), Some(0));
    }
}
