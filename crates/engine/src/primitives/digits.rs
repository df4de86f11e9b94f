//! The sort of many rows, digit by digit: tile by tile (`compile::primitives::radix`), or in sweeps (`compile::primitives::sweep`).

use std::sync::Arc;

use kelpie_compile::primitives::{look_back, radix, sweep};
use kelpie_compile::variant::axes::SortPasses;
use kelpie_device::{Buffer, Download, KernelArgument};
use kelpie_kir::Scalar;

use super::{Primitives, Sorted, Tiles, integer, whole};
use crate::error::EngineError;

/// Bytes of a table of counts of a digit.
const TABLE_BYTES: u64 = radix::DIGITS as u64 * 4;

/// Where the digits begin by which words are sorted of which these bits differ: those that differ, the least significant first.
pub(super) fn shifts_of(bits: u64) -> Vec<u32> {
    let (mut left, mut shifts) = (bits, Vec::new());
    while left != 0 {
        let shift = left.trailing_zeros();
        shifts.push(shift);
        left &= !(u64::from(radix::DIGITS - 1) << shift);
    }
    shifts
}

/// How keys differ from each other.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Varying {
    /// The bits in which some differ.
    pub(crate) bits: u64,
    /// The first key.
    pub(crate) first: u64,
    /// How they follow each other: [`radix::RISES`] and the like.
    pub(super) steps: u64,
}

/// The order in which rows come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// That of their words.
    Rising,
    /// The opposite one, in which no two have the same words.
    Falling,
}

/// The order in which rows come, if they need no sort. `words`: what is known of each, the most significant first.
fn arrival(words: &[Varying]) -> Option<Arrival> {
    if words.first().is_some_and(|first| first.steps == radix::FALLS) {
        return Some(Arrival::Falling);
    }
    for word in words {
        if word.steps & radix::FALLS != 0 {
            return None;
        }
        if word.steps & radix::STAYS == 0 {
            return Some(Arrival::Rising);
        }
    }
    Some(Arrival::Rising)
}

/// The buffers of a sort.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) tiles: Tiles,
    /// The order so far; nothing stands there where it is that of the rows.
    pub(super) order: Buffer,
    pub(super) is_identity: bool,
    pub(super) spare_order: Buffer,
    keys: [Buffer; 2],
    /// Counts of the digits of each tile; of sweeps, of each digit of a word.
    counts: Buffer,
    /// Of sweeps: the states of their tiles.
    states: Option<Buffer>,
}

impl Pass {
    /// A buffer for keys that are read from another.
    pub(super) fn keys_beside(&self, read: &Buffer) -> Buffer {
        let [a, b] = &self.keys;
        Arc::clone(if Arc::ptr_eq(read, a) { b } else { a })
    }

    /// Rows have been moved to `spare_order`.
    pub(super) fn swap(&mut self) {
        std::mem::swap(&mut self.order, &mut self.spare_order);
        self.is_identity = false;
    }
}

impl Primitives<'_> {
    /// As [`Self::sort`], digit by digit.
    pub(super) fn radix_sort(&mut self, words: &[Buffer], rows: u64) -> Result<Sorted, EngineError> {
        let mut known: Vec<Varying> = Vec::new();
        for (place, word) in words.iter().enumerate() {
            let above = place.checked_sub(1).and_then(|place| words.get(place));
            known.push(self.varying(word, above, rows)?);
        }
        let shifts = known.iter().map(|word| shifts_of(word.bits));
        let mut pass = self.begin_sort(rows)?;
        if let (Some(arrival), Some(word)) = (arrival(&known), words.first()) {
            return self.sorted_already(word, arrival, pass);
        }
        if let Some((word, keys)) = self.sort_by_leading(words, &known, &mut pass)? {
            // The words before are the same in all rows.
            return Ok(Sorted { order: pass.order, first: (word == 0).then_some(keys) });
        }
        let mut first = None;
        for (word, shifts) in words.iter().zip(shifts.collect::<Vec<_>>()).rev() {
            first = (!shifts.is_empty()).then(|| self.sort_by(word, &shifts, &mut pass)).transpose()?;
        }
        if pass.is_identity {
            self.number(&pass)?;
        }
        Ok(Sorted { order: pass.order, first })
    }

    /// How keys differ. `above`: the words before, where the keys are such of rows: keys follow each other only where these are the same.
    pub(crate) fn varying(
        &mut self,
        keys: &Buffer,
        above: Option<&Buffer>,
        rows: u64,
    ) -> Result<Varying, EngineError> {
        if rows == 0 {
            return Ok(Varying::default());
        }
        let facts = self.allocate(16)?;
        self.stream.fill(&facts, 0, 16, 0)?;
        let has_above = integer(Scalar::U32, above.is_some().into());
        let own = [whole(keys), whole(above.unwrap_or(keys)), has_above, whole(&facts)];
        self.over(radix::VARYING, self.tiles(rows), &own)?;
        let (mut bits, mut steps, mut first) = ([0; 8], [0; 8], [0; 8]);
        self.stream.download_many(&mut [
            Download { buffer: &facts, offset: 0, data: &mut bits },
            Download { buffer: &facts, offset: 8, data: &mut steps },
            Download { buffer: keys, offset: 0, data: &mut first },
        ])?;
        let [bits, steps, first] = [bits, steps, first].map(u64::from_le_bytes);
        Ok(Varying { bits, first, steps })
    }

    /// Rows that come in order, or in the opposite one.
    fn sorted_already(&mut self, word: &Buffer, arrival: Arrival, pass: Pass) -> Result<Sorted, EngineError> {
        let kernel = match arrival {
            Arrival::Rising => radix::IOTA,
            Arrival::Falling => radix::REVERSE,
        };
        self.over(kernel, pass.tiles, &[whole(&pass.order)])?;
        let first = self.gather(word, &pass)?;
        Ok(Sorted { order: pass.order, first: Some(first) })
    }

    /// Makes room for a sort.
    fn begin_sort(&mut self, rows: u64) -> Result<Pass, EngineError> {
        let swept = match self.form.passes {
            SortPasses::Sweep => sweep::tile_rows(&self.shape),
            SortPasses::Tiles | SortPasses::Leading => 0,
        };
        let tiles = match swept {
            0 => self.tiles(rows),
            tile_rows => Tiles { rows, tile_rows, count: rows.div_ceil(tile_rows).max(1) },
        };
        let (counted, states) = match swept {
            0 => (tiles.count, None),
            _ => {
                let words = look_back::words(tiles.count, radix::DIGITS.into());
                (sweep::MOST_DIGITS.into(), Some(self.allocate(words * 8)?))
            }
        };
        Ok(Pass {
            tiles,
            order: self.allocate(rows * 4)?,
            is_identity: true,
            spare_order: self.allocate(rows * 4)?,
            keys: [self.allocate(rows * 8)?, self.allocate(rows * 8)?],
            counts: self.allocate(TABLE_BYTES * counted)?,
            states,
        })
    }

    /// Writes the order of the rows as they are.
    fn number(&mut self, pass: &Pass) -> Result<(), EngineError> {
        self.over(radix::IOTA, pass.tiles, &[whole(&pass.order)])
    }

    /// Sorts by a word; the keys in the new order.
    pub(super) fn sort_by(
        &mut self,
        word: &Buffer,
        shifts: &[u32],
        pass: &mut Pass,
    ) -> Result<Buffer, EngineError> {
        if let Some(counts) = pass.states.as_ref().map(|_| Buffer::clone(&pass.counts)) {
            self.histograms(word, shifts, pass.tiles.rows, &counts)?;
        } else if pass.is_identity {
            self.number(pass)?;
        }
        let mut keys = match pass.is_identity {
            true => Arc::clone(word),
            false => self.gather(word, pass)?,
        };
        for (number, shift) in (0..).zip(shifts) {
            keys = match pass.states.clone() {
                Some(states) => self.sweep(&keys, (number, *shift), &states, pass)?,
                None => self.digit(&keys, *shift, pass)?,
            };
        }
        Ok(keys)
    }

    /// A word in the order so far.
    fn gather(&mut self, word: &Buffer, pass: &Pass) -> Result<Buffer, EngineError> {
        let [keys, _] = &pass.keys;
        self.over(
            radix::GATHER,
            self.tiles(pass.tiles.rows),
            &[whole(word), whole(&pass.order), whole(keys)],
        )?;
        Ok(Arc::clone(keys))
    }

    /// Sorts by one digit, tile by tile; the keys in the new order.
    fn digit(&mut self, keys: &Buffer, shift: u32, pass: &mut Pass) -> Result<Buffer, EngineError> {
        let (tiles, shift) = (integer(Scalar::I64, pass.tiles.count), integer(Scalar::U32, shift.into()));
        let own = [whole(keys), shift.clone(), whole(&pass.counts), tiles.clone()];
        self.over(radix::COUNT, pass.tiles, &own)?;
        self.exclusive_scan(&pass.counts, u64::from(radix::DIGITS) * pass.tiles.count)?;
        let out = pass.keys_beside(keys);
        let own = [
            whole(keys),
            whole(&pass.order),
            shift,
            whole(&pass.counts),
            tiles,
            whole(&out),
            whole(&pass.spare_order),
        ];
        self.over(radix::SCATTER, pass.tiles, &own)?;
        pass.swap();
        Ok(out)
    }

    /// Counts all digits of a word, and sums up the counts of each and all before: those of a digit begin at its number times the rows.
    fn histograms(
        &mut self,
        word: &Buffer,
        shifts: &[u32],
        rows: u64,
        counts: &Buffer,
    ) -> Result<(), EngineError> {
        let number = shifts.len() as u64;
        self.stream.fill(counts, 0, usize::try_from(TABLE_BYTES * number).unwrap_or(usize::MAX), 0)?;
        let shifts = shifts.iter().rev().fold(0, |word, shift| word << 8 | u64::from(*shift));
        let (shifts, number_argument) = (integer(Scalar::U64, shifts), integer(Scalar::I64, number));
        let own = [whole(word), shifts, number_argument, whole(counts)];
        self.over(sweep::HISTOGRAMS, self.tiles(rows), &own)?;
        self.exclusive_scan(counts, u64::from(radix::DIGITS) * number)
    }

    /// Sorts by one digit, of which all is counted, in one launch; the keys in the new order.
    fn sweep(
        &mut self,
        keys: &Buffer,
        (number, shift): (u64, u32),
        states: &Buffer,
        pass: &mut Pass,
    ) -> Result<Buffer, EngineError> {
        let bytes = look_back::words(pass.tiles.count, radix::DIGITS.into()) * 8;
        self.stream.fill(states, 0, usize::try_from(bytes).unwrap_or(usize::MAX), 0)?;
        let first = TABLE_BYTES * number;
        let out = pass.keys_beside(keys);
        let own = [
            whole(keys),
            whole(&pass.order),
            integer(Scalar::U32, (!pass.is_identity).into()),
            integer(Scalar::U32, shift.into()),
            KernelArgument::Buffer(Arc::clone(&pass.counts), first),
            whole(states),
            whole(&out),
            whole(&pass.spare_order),
        ];
        self.over(sweep::SWEEP, pass.tiles, &own)?;
        pass.swap();
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_come_in_order_are_known() {
        use radix::{FALLS, RISES, STAYS};
        let of = |steps: &[u64]| {
            let words: Vec<Varying> =
                steps.iter().map(|steps| Varying { steps: *steps, ..Varying::default() }).collect();
            arrival(&words)
        };
        for (steps, expected) in [
            (&[RISES][..], Some(Arrival::Rising)),
            (&[RISES | STAYS], Some(Arrival::Rising)),
            (&[STAYS], Some(Arrival::Rising)),
            (&[RISES | FALLS], None),
            (&[FALLS], Some(Arrival::Falling)),
            (&[FALLS | STAYS], None),
            (&[RISES, FALLS], Some(Arrival::Rising)),
            (&[RISES | STAYS, FALLS], None),
            (&[RISES | STAYS, RISES | STAYS, RISES], Some(Arrival::Rising)),
            (&[FALLS, RISES], Some(Arrival::Falling)),
        ] {
            assert_eq!(of(steps), expected, "{steps:?}");
        }
    }

    #[test]
    fn digits_begin_with_bits_that_differ() {
        assert!(shifts_of(0).is_empty());
        assert_eq!(shifts_of(1 << 63), [63]);
        assert_eq!(shifts_of(1 << 5 | 1 << 36), [5, 36]);
        let all: Vec<u32> = (0..8).map(|digit| digit * 8).collect();
        assert_eq!(shifts_of(u64::MAX), all);
    }
}
