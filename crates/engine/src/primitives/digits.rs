//! The sort of many rows, digit by digit: tile by tile (`compile::primitives::radix`), or in sweeps (`compile::primitives::sweep`), of words
//! or of what differs in them (`compile::primitives::keys`).

use std::sync::Arc;

use kelpie_compile::primitives::keys::{self, Moved, NARROW_BITS};
use kelpie_compile::primitives::{look_back, radix, sweep};
use kelpie_compile::variant::axes::{SortKeys, SortPasses};
use kelpie_device::{Buffer, Download, KernelArgument};
use kelpie_kir::Scalar;

use super::{Primitives, Sorted, Tiles, integer, whole};
use crate::error::EngineError;

/// Bytes of a table of counts of a digit.
const TABLE_BYTES: u64 = radix::DIGITS as u64 * 4;

/// Words in order, which may still be narrow.
#[derive(Debug, Clone)]
pub(crate) enum SortedWords {
    /// Words.
    Wide(Buffer),
    /// The keys of so many words, the lowest bit of a key, and the bits that the words have beside their keys.
    Narrow { keys: Buffer, rows: u64, base: u32, rest: u64 },
}

/// The bits of a word that are moved, and the digits by which it is sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Digits {
    /// The lowest bit of a narrow key; `None`: words are moved as a whole.
    base: Option<u32>,
    /// Where the digits begin in what is moved: those that differ, the least significant first.
    shifts: Vec<u32>,
}

impl Digits {
    /// Of a word of which these bits differ, one at least.
    fn of(bits: u64, form: SortKeys) -> Digits {
        let lowest = bits.trailing_zeros();
        let is_narrow = form == SortKeys::Narrow && lowest + bits.leading_zeros() >= u64::BITS - NARROW_BITS;
        let base = is_narrow.then_some(lowest);
        let mut left = bits >> base.unwrap_or(0);
        let last = if is_narrow { NARROW_BITS - radix::DIGIT_BITS } else { u64::BITS };
        let mut shifts = Vec::new();
        while left != 0 {
            // A digit of a narrow key ends with it: in the word, whose digits are counted, other bits follow. The bits below that it
            // has again are in order by then.
            let shift = left.trailing_zeros().min(last);
            shifts.push(shift);
            left &= !(u64::from(radix::DIGITS - 1) << shift);
        }
        Digits { base, shifts }
    }

    /// Where the lowest bit of what is moved lies in a word.
    fn lowest(&self) -> u32 {
        self.base.unwrap_or(0)
    }

    /// The words whose keys these are, one of which is `word`.
    fn words(&self, keys: Buffer, rows: u64, word: u64) -> SortedWords {
        match self.base {
            Some(base) => {
                let rest = word & !(u64::from(u32::MAX) << base);
                SortedWords::Narrow { keys, rows, base, rest }
            }
            None => SortedWords::Wide(keys),
        }
    }
}

/// The buffers of a sort.
#[derive(Debug)]
struct Pass {
    tiles: Tiles,
    /// The order so far; nothing stands there where it is that of the rows.
    order: Buffer,
    is_identity: bool,
    spare_order: Buffer,
    keys: [Buffer; 2],
    /// Counts of the digits of each tile; of sweeps, of each digit of a word.
    counts: Buffer,
    /// Of sweeps: the states of their tiles.
    states: Option<Buffer>,
}

impl Pass {
    /// A buffer for keys that are read from another.
    fn keys_beside(&self, read: &Buffer) -> Buffer {
        let [a, b] = &self.keys;
        Arc::clone(if Arc::ptr_eq(read, a) { b } else { a })
    }

    /// Rows have been moved to `spare_order`.
    fn swap(&mut self) {
        std::mem::swap(&mut self.order, &mut self.spare_order);
        self.is_identity = false;
    }
}

/// A step of a sort: one digit of what is moved.
#[derive(Debug, Clone, Copy)]
struct Step {
    moved: Moved,
    /// Where the digit begins in the keys that are written, and the lowest bit of these in words.
    shift: u32,
    base: u32,
    /// The digit's number among those of the word.
    number: u64,
}

impl Primitives<'_> {
    /// As [`Self::sort`], digit by digit.
    pub(super) fn radix_sort(&mut self, words: &[Buffer], rows: u64) -> Result<Sorted, EngineError> {
        let mut digits = Vec::new();
        for word in words {
            let (bits, first) = self.varying(word, rows)?;
            digits.push((bits != 0).then(|| (Digits::of(bits, self.form.keys), first)));
        }
        let is_wide = digits.iter().flatten().any(|(digits, _)| digits.base.is_none());
        let mut pass = self.begin_sort(rows, if is_wide { 8 } else { 4 })?;
        let mut first = None;
        for (word, digits) in words.iter().zip(digits).rev() {
            first = None;
            let Some((digits, some)) = digits else { continue };
            let keys = self.sort_by(word, &digits, &mut pass)?;
            first = Some(digits.words(keys, rows, some));
        }
        if pass.is_identity {
            self.number(&pass)?;
        }
        Ok(Sorted { order: pass.order, first })
    }

    /// The words of sorted rows.
    pub(crate) fn wide_words(&mut self, words: &SortedWords) -> Result<Buffer, EngineError> {
        match words {
            SortedWords::Wide(words) => Ok(Buffer::clone(words)),
            SortedWords::Narrow { keys, rows, base, rest } => {
                let words = self.allocate(rows.saturating_mul(8))?;
                let base = integer(Scalar::U32, (*base).into());
                let own = [whole(keys), base, integer(Scalar::U64, *rest), whole(&words)];
                self.over(keys::WIDEN, self.tiles(*rows), &own)?;
                Ok(words)
            }
        }
    }

    /// The bits in which the keys differ, and the first key.
    pub(crate) fn varying(&mut self, keys: &Buffer, rows: u64) -> Result<(u64, u64), EngineError> {
        if rows == 0 {
            return Ok((0, 0));
        }
        let bits = self.allocate(8)?;
        self.stream.fill(&bits, 0, 8, 0)?;
        self.over(radix::VARYING, self.tiles(rows), &[whole(keys), whole(&bits)])?;
        let (mut word, mut first) = ([0; 8], [0; 8]);
        self.stream.download_many(&mut [
            Download { buffer: &bits, offset: 0, data: &mut word },
            Download { buffer: keys, offset: 0, data: &mut first },
        ])?;
        Ok((u64::from_le_bytes(word), u64::from_le_bytes(first)))
    }

    /// Makes room for a sort of keys of so many bytes.
    fn begin_sort(&mut self, rows: u64, key_bytes: u64) -> Result<Pass, EngineError> {
        let swept = match self.form.passes {
            SortPasses::Sweep => sweep::tile_rows(&self.shape),
            SortPasses::Tiles => 0,
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
            keys: [self.allocate(rows * key_bytes)?, self.allocate(rows * key_bytes)?],
            counts: self.allocate(TABLE_BYTES * counted)?,
            states,
        })
    }

    /// Writes the order of the rows as they are.
    fn number(&mut self, pass: &Pass) -> Result<(), EngineError> {
        self.over(radix::IOTA, pass.tiles, &[whole(&pass.order)])
    }

    /// Sorts by a word; the keys in the new order.
    fn sort_by(&mut self, word: &Buffer, digits: &Digits, pass: &mut Pass) -> Result<Buffer, EngineError> {
        if let Some(counts) = pass.states.as_ref().map(|_| Buffer::clone(&pass.counts)) {
            self.histograms(word, digits, pass.tiles.rows, &counts)?;
        } else if pass.is_identity {
            self.number(pass)?;
        }
        let (mut keys, mut moved) = match (pass.is_identity, digits.base) {
            (true, None) => (Arc::clone(word), Moved::Wide),
            (true, Some(_)) => (Arc::clone(word), Moved::Narrowing),
            (false, None) => (self.gather(word, pass)?, Moved::Wide),
            (false, Some(base)) => (self.gather_narrow(word, base, pass)?, Moved::Narrow),
        };
        for (number, shift) in (0..).zip(&digits.shifts) {
            let step = Step { moved, shift: *shift, base: digits.lowest(), number };
            keys = match pass.states.clone() {
                Some(states) => self.sweep(&keys, step, &states, pass)?,
                None => self.digit(&keys, step, pass)?,
            };
            if moved == Moved::Narrowing {
                moved = Moved::Narrow;
            }
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

    /// A word's narrow keys in the order so far.
    fn gather_narrow(&mut self, word: &Buffer, base: u32, pass: &Pass) -> Result<Buffer, EngineError> {
        let [keys, _] = &pass.keys;
        let own = [whole(word), whole(&pass.order), integer(Scalar::U32, base.into()), whole(keys)];
        self.over(keys::GATHER_NARROW, self.tiles(pass.tiles.rows), &own)?;
        Ok(Arc::clone(keys))
    }

    /// Sorts by one digit, tile by tile; the keys in the new order.
    fn digit(&mut self, keys: &Buffer, step: Step, pass: &mut Pass) -> Result<Buffer, EngineError> {
        let (count, scatter, shift_read) = match step.moved {
            Moved::Wide => (radix::COUNT, radix::SCATTER, step.shift),
            Moved::Narrowing => (radix::COUNT, keys::SCATTER_NARROWING, step.base + step.shift),
            Moved::Narrow => (keys::COUNT_NARROW, keys::SCATTER_NARROW, step.shift),
        };
        let tiles = integer(Scalar::I64, pass.tiles.count);
        let shift = integer(Scalar::U32, shift_read.into());
        self.over(count, pass.tiles, &[whole(keys), shift, whole(&pass.counts), tiles.clone()])?;
        self.exclusive_scan(&pass.counts, u64::from(radix::DIGITS) * pass.tiles.count)?;
        let out = pass.keys_beside(keys);
        let own = [
            whole(keys),
            whole(&pass.order),
            integer(Scalar::U32, step.shift.into()),
            whole(&pass.counts),
            tiles,
            whole(&out),
            whole(&pass.spare_order),
            integer(Scalar::U32, step.base.into()),
        ];
        self.over(scatter, pass.tiles, &own)?;
        pass.swap();
        Ok(out)
    }

    /// Counts all digits of a word, and sums up the counts of each and all before: those of a digit begin at its number times the rows.
    fn histograms(
        &mut self,
        word: &Buffer,
        digits: &Digits,
        rows: u64,
        counts: &Buffer,
    ) -> Result<(), EngineError> {
        let number = digits.shifts.len() as u64;
        self.stream.fill(counts, 0, usize::try_from(TABLE_BYTES * number).unwrap_or(usize::MAX), 0)?;
        let shifts = digits.shifts.iter().rev();
        let shifts = shifts.fold(0, |word, shift| word << 8 | u64::from(digits.lowest() + shift));
        let (shifts, number_argument) = (integer(Scalar::U64, shifts), integer(Scalar::I64, number));
        let own = [whole(word), shifts, number_argument, whole(counts)];
        self.over(sweep::HISTOGRAMS, self.tiles(rows), &own)?;
        self.exclusive_scan(counts, u64::from(radix::DIGITS) * number)
    }

    /// Sorts by one digit, of which all is counted, in one launch; the keys in the new order.
    fn sweep(
        &mut self,
        keys: &Buffer,
        step: Step,
        states: &Buffer,
        pass: &mut Pass,
    ) -> Result<Buffer, EngineError> {
        let bytes = look_back::words(pass.tiles.count, radix::DIGITS.into()) * 8;
        self.stream.fill(states, 0, usize::try_from(bytes).unwrap_or(usize::MAX), 0)?;
        let first = TABLE_BYTES * step.number;
        let out = pass.keys_beside(keys);
        let own = [
            whole(keys),
            whole(&pass.order),
            integer(Scalar::U32, (!pass.is_identity).into()),
            integer(Scalar::U32, step.shift.into()),
            integer(Scalar::U32, step.base.into()),
            KernelArgument::Buffer(Arc::clone(&pass.counts), first),
            whole(states),
            whole(&out),
            whole(&pass.spare_order),
        ];
        self.over(sweep::name(step.moved), pass.tiles, &own)?;
        pass.swap();
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_narrow_where_what_differs_lies_within_32_bits() {
        let of = |bits, form| {
            let Digits { base, shifts } = Digits::of(bits, form);
            (base, shifts)
        };
        let (narrow, wide) = (SortKeys::Narrow, SortKeys::Wide);
        assert_eq!(of(1 << 63, narrow), (Some(63), vec![0]));
        assert_eq!(of(1 << 5 | 1 << 36, narrow), (Some(5), vec![0, 24]));
        assert_eq!(of(1 << 5 | 1 << 36, wide), (None, vec![5, 36]));
        assert_eq!(of(1 << 5 | 1 << 37, narrow), (None, vec![5, 37]));
        assert_eq!(of(u64::from(u32::MAX) << 32, narrow), (Some(32), vec![0, 8, 16, 24]));
        let all = (0..8).map(|digit| digit * 8).collect();
        assert_eq!(of(u64::MAX, narrow), (None, all));
    }
}
