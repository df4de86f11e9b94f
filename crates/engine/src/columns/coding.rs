//! Codes of columns of few integers that are far from each other: numbers of customers, hashes, times of events. An aggregation by such a
//! column has a slot a value, as one by a dictionary's texts.

use std::hash::{BuildHasher, RandomState};
use std::iter::repeat_n;
use std::sync::Arc;

use arrow::buffer::Buffer;
use kelpie_compile::layout::ValueCodes;
use kelpie_compile::types::{Range, Spacing};
use kelpie_kir::Scalar;

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

/// Numbers the values of a partition in the order in which they come, as long as they are few.
#[derive(Debug)]
pub(super) struct Coder {
    /// Open addressing, a power of two of slots of which at most half are taken: a value's number and 1; 0 where empty.
    slots: Vec<u32>,
    values: Vec<i64>,
    /// By row. Rows before the first value have 0.
    codes: Vec<u16>,
    /// Random and odd, so that no data can be made to collide.
    factor: u64,
    /// More values get no codes.
    most: usize,
    /// Rows after which it is looked at how many values there are.
    next_trial: usize,
    is_off: bool,
}

/// How many values of a column may have codes at most, by what is expected of it before it is read.
pub(super) fn most_values(range: Option<Range>, rows: Option<u64>) -> usize {
    let possible = range.map_or(u64::MAX, |range| possible(range, 1)) / POSSIBLE_A_VALUE;
    let worth_it = rows.map_or(u64::MAX, |rows| rows / ROWS_A_VALUE as u64);
    usize::try_from(possible.min(worth_it)).unwrap_or(usize::MAX).min(MOST_VALUES)
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
    pub(super) fn new(most: usize) -> Coder {
        let factor = RandomState::new().hash_one(0u8) | 1;
        Coder {
            slots: Vec::new(),
            values: Vec::new(),
            codes: Vec::new(),
            factor,
            most,
            next_trial: TRIAL_ROWS,
            is_off: false,
        }
    }

    /// Takes rows that have no value.
    pub(super) fn skip(&mut self, rows: usize) {
        if !self.is_off {
            self.codes.resize(self.codes.len() + rows, 0);
        }
    }

    /// Takes the values of the next rows, which have multiples of `step` as distances within a range.
    pub(super) fn take<T: Copy>(
        &mut self,
        values: &[T],
        low: impl Fn(T) -> i64,
        (range, step): (Range, u64),
    ) {
        if self.is_off {
            return;
        }
        let is_word = range.within(Range::new(i64::MIN, i64::MAX));
        let begins = !self.values.is_empty() || possible(range, step) >= LEAST_POSSIBLE;
        if !is_word || !begins {
            return self.end();
        }
        self.codes.reserve(values.len());
        for value in values {
            let Some(code) = self.number(low(*value)) else { return self.end() };
            self.codes.push(code);
            if self.codes.len() >= self.next_trial {
                if self.values.len() > different_among(self.codes.len(), self.most) {
                    return self.end();
                }
                self.next_trial = 2 * self.codes.len();
            }
        }
    }

    /// There are too many values, or they are near each other.
    fn end(&mut self) {
        *self = Coder { is_off: true, ..Coder::new(self.most) };
    }

    /// Bytes of the codes so far.
    pub(super) fn bytes(&self) -> usize {
        self.codes.len() * 2
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

/// How many values at multiples of a distance are possible within a range.
fn possible(range: Range, step: u64) -> u64 {
    let width = range.max.checked_sub(range.min).and_then(|width| u64::try_from(width).ok());
    width.map_or(u64::MAX, |width| (width / step.max(1)).saturating_add(1))
}

/// The codes of a column before they are written.
#[derive(Debug)]
pub(super) struct PlannedCodes {
    /// The values in their order.
    entries: Vec<i64>,
    code: Scalar,
    /// By partition, the codes of its numbers, and each row's number.
    partitions: Vec<(Arc<[u16]>, Vec<u16>)>,
}

impl PlannedCodes {
    /// Those of a column with these bounds and distances, by its partitions, where they are worth it.
    pub(super) fn of(
        coders: Vec<Coder>,
        rows: usize,
        (range, spacing): (Range, Option<Spacing>),
    ) -> Option<PlannedCodes> {
        if coders.iter().any(|coder| coder.is_off)
            || coders.iter().map(|coder| coder.codes.len()).sum::<usize>() != rows
        {
            return None;
        }
        let most_of_one = coders.iter().map(|coder| coder.values.len()).max().unwrap_or(0);
        if most_of_one.saturating_mul(ROWS_A_VALUE) > rows {
            return None;
        }
        let mut entries: Vec<i64> = coders.iter().flat_map(|coder| &coder.values).copied().collect();
        entries.sort_unstable();
        entries.dedup();
        let step = spacing.map_or(1, |spacing| u64::try_from(spacing.step).unwrap_or(u64::MAX));
        let possible = possible(range, step);
        let is_worth_it = (1..=MOST_VALUES).contains(&entries.len())
            && entries.len().saturating_mul(ROWS_A_VALUE) <= rows
            && possible >= LEAST_POSSIBLE
            && possible / POSSIBLE_A_VALUE >= entries.len() as u64;
        if !is_worth_it {
            return None;
        }
        let code = |value: &i64| entries.binary_search(value).map_or(0, |code| code as u16);
        let partitions = coders.into_iter().map(|coder| {
            let codes: Arc<[u16]> = coder.values.iter().map(code).collect();
            (codes, coder.codes)
        });
        let partitions = partitions.collect();
        let code = if entries.len() <= 1 << 8 { Scalar::U8 } else { Scalar::U16 };
        Some(PlannedCodes { entries, code, partitions })
    }

    pub(super) fn layout(&self) -> ValueCodes {
        ValueCodes { code: self.code, entries: self.entries.len() as u32 }
    }

    /// The values in their order, as they are stored.
    pub(super) fn entries(&self) -> Buffer {
        Buffer::from_slice_ref(&self.entries)
    }

    /// Bytes of the codes of all rows.
    pub(super) fn code_bytes(&self) -> usize {
        let rows: usize = self.partitions.iter().map(|(_, numbers)| numbers.len()).sum();
        rows * self.code.bytes() as usize
    }

    /// What is to be written: by partition, from which byte on.
    pub(super) fn runs(self) -> impl Iterator<Item = (usize, CodeRun)> {
        let code = self.code;
        let mut row = 0;
        self.partitions.into_iter().map(move |(codes, numbers)| {
            let offset = row * code.bytes() as usize;
            row += numbers.len();
            (offset, CodeRun { code, codes, numbers })
        })
    }
}

/// The codes of a partition's rows.
#[derive(Debug)]
pub(super) struct CodeRun {
    code: Scalar,
    codes: Arc<[u16]>,
    numbers: Vec<u16>,
}

impl CodeRun {
    /// As they are stored.
    pub(super) fn stored(self) -> Buffer {
        let CodeRun { code, codes, numbers } = self;
        // A row before the first value, which is NULL, has the number 0.
        let code_of = |number: &u16| codes.get(usize::from(*number)).copied().unwrap_or(0);
        match code {
            Scalar::U8 => {
                Buffer::from_vec(numbers.iter().map(|number| code_of(number) as u8).collect::<Vec<_>>())
            }
            _ => Buffer::from_vec(numbers.iter().map(code_of).collect::<Vec<_>>()),
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
        let coders = partitions.iter().map(|values| {
            let mut coder = Coder::new(MOST_VALUES);
            for chunk in values.chunks(1000) {
                let own = Range::new(*chunk.iter().min().unwrap(), *chunk.iter().max().unwrap());
                coder.take(chunk, |value| value, (own, 1));
            }
            coder
        });
        PlannedCodes::of(coders.collect(), all().count(), (range, None))
    }

    /// What is written of each row.
    fn rows(planned: PlannedCodes) -> Vec<u16> {
        let code = planned.code;
        let runs = planned.runs().flat_map(|(_, run)| match code {
            Scalar::U8 => run.stored().iter().map(|code| u16::from(*code)).collect::<Vec<_>>(),
            _ => run.stored().typed_data::<u16>().to_vec(),
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
            let entries = planned.entries.clone();
            assert!(entries.is_sorted_by(|a, b| a < b));
            assert_eq!(planned.entries().typed_data::<i64>(), entries);
            let codes = rows(planned);
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
    fn a_coder_that_ended_stays_so() {
        let mut coder = Coder::new(MOST_VALUES);
        let near: Vec<i64> = (0..100).collect();
        coder.take(&near, |value| value, (Range::new(0, 99), 1));
        let far = [i64::MIN, i64::MAX];
        coder.take(&far, |value| value, (Range::new(i64::MIN, i64::MAX), 1));
        coder.skip(5);
        assert!(coder.is_off && coder.bytes() == 0);
        assert!(PlannedCodes::of(vec![coder], 107, (Range::new(i64::MIN, i64::MAX), None)).is_none());
    }

    #[test]
    fn rows_without_a_value_have_some_code() {
        let mut coder = Coder::new(MOST_VALUES);
        coder.skip(40);
        let far = [i64::MIN, 5, i64::MAX];
        for _ in 0..20 {
            coder.take(&far, |value| value, (Range::new(i64::MIN, i64::MAX), 1));
        }
        coder.skip(7);
        let planned = PlannedCodes::of(vec![coder], 107, (Range::new(i64::MIN, i64::MAX), None)).unwrap();
        let codes = rows(planned);
        assert_eq!(codes.len(), 107);
        assert_eq!(codes[38..44], [0, 0, 0, 1, 2, 0]);
        assert!(codes.iter().all(|code| *code < 3));
    }

    #[test]
    fn more_values_than_are_worth_it_are_seen_in_the_first_rows() {
        let wide = Some(Range::new(0, 99_999));
        assert_eq!(most_values(None, None), MOST_VALUES);
        assert_eq!(most_values(wide, None), 25_000);
        assert_eq!(most_values(wide, Some(160_000)), 10_000);
        assert_eq!(most_values(Some(Range { min: i128::MIN, max: i128::MAX }), Some(0)), 0);
        let rows_until_end = |most: usize, value: &dyn Fn(i64) -> i64| {
            let mut coder = Coder::new(most);
            let range = Range::new(i64::MIN, i64::MAX);
            (0..200_000).find(|row| {
                coder.take(&[value(*row)], |value| value, (range, 1));
                coder.is_off
            })
        };
        assert_eq!(rows_until_end(25_000, &|row| any(row, 100_000)), Some(TRIAL_ROWS as i64 - 1));
        assert_eq!(rows_until_end(25_000, &|row| any(row, 24_000)), None);
        assert_eq!(rows_until_end(25_000, &|row| row % 12_000), None);
        assert_eq!(rows_until_end(10, &|row| row % 11), Some(10));
        assert_eq!(rows_until_end(0, &|row| row), Some(0));
    }
}
