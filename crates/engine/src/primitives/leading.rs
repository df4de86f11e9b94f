//! The sort of many rows by the leading digits of their first word, on a CPU (`compile::primitives::open_runs`). How many digits tell most
//! rows apart is learned from a sample: the exponents of floats and the beginnings of texts have many bits that differ, and little to tell.

use kelpie_compile::primitives::{open_runs, radix};
use kelpie_compile::variant::axes::SortPasses;
use kelpie_device::Buffer;
use kelpie_kir::Scalar;

use super::digits::{Pass, shifts_of};
use super::{Primitives, Rows, Varying, integer, whole};
use crate::error::EngineError;

/// Rows that are looked at.
const SAMPLE: u64 = 4096;
/// Rows that the leading digits leave in a run, at most, as a row of the sample sees it.
const RUN_ROWS: f64 = 2.0;
/// Digits that are saved, at least: to close the runs takes as long as some.
const SAVED_DIGITS: usize = 3;

/// Rows of a sample, each by the word that they are sorted by first and those behind it.
type Sampled = Vec<Vec<u64>>;

/// The words that a sort by leading digits goes by.
#[derive(Debug, PartialEq, Eq)]
struct Words {
    /// The first in which rows differ.
    leading: usize,
    /// Those behind in which they differ.
    behind: Vec<usize>,
    /// Where the digits of the first begin, the most significant first.
    shifts: Vec<u32>,
    /// Digits of all words.
    digits: usize,
}

impl Words {
    /// `known`: how rows differ in each word, the most significant first. `None` where there are too few digits to save some, or too
    /// many words.
    fn of(known: &[Varying]) -> Option<Words> {
        let leading = known.iter().position(|word| word.bits != 0)?;
        let bits = known.get(leading)?.bits;
        let behind: Vec<usize> = (leading + 1..known.len()).filter(|word| known[*word].bits != 0).collect();
        let (mut left, mut shifts) = (bits, Vec::new());
        while left != 0 {
            let shift = (u64::BITS - left.leading_zeros()).saturating_sub(radix::DIGIT_BITS);
            shifts.push(shift);
            left &= (1 << shift) - 1;
        }
        let digits = known.iter().map(|word| shifts_of(word.bits).len()).sum();
        let fits = behind.len() <= open_runs::MOST_WORDS && digits > SAVED_DIGITS;
        fits.then_some(Words { leading, behind, shifts, digits })
    }

    /// How many of the first word's digits leave short runs, if some are saved.
    fn wanted(&self, mut sample: Sampled, rows: u64) -> Option<usize> {
        sample.sort_unstable();
        let most = self.digits - SAVED_DIGITS;
        let leave_short = |digits: &usize| {
            let mask = self.shifts.get(digits - 1).map_or(0, |shift| u64::MAX << shift);
            run_rows(&sample, mask, rows) <= RUN_ROWS
        };
        (1..=most.min(self.shifts.len())).find(leave_short)
    }
}

/// Rows among `rows` that have the bits of a mask in common with a row of a sorted sample, and are not the same in all words.
fn run_rows(sample: &[Vec<u64>], mask: u64, rows: u64) -> f64 {
    let pairs = |count: usize| count as f64 * (count as f64 - 1.0) / 2.0;
    let masked = |row: &Vec<u64>| row.first().map(|word| word & mask);
    let alike = sample.chunk_by(|a, b| masked(a) == masked(b)).map(|run| pairs(run.len()));
    let equal = sample.chunk_by(|a, b| a == b).map(|run| pairs(run.len()));
    let open = alike.sum::<f64>() - equal.sum::<f64>();
    1.0 + rows as f64 * open / pairs(sample.len()).max(1.0)
}

impl Primitives<'_> {
    /// Sorts by leading digits, and closes the runs that they leave; the number of the word whose keys are given, in order. `None` where
    /// that saves nothing, or too many rows are in long runs: the order is that of the rows then.
    pub(super) fn sort_by_leading(
        &mut self,
        words: &[Buffer],
        known: &[Varying],
        pass: &mut Pass,
    ) -> Result<Option<(usize, Buffer)>, EngineError> {
        let fits = self.form.passes == SortPasses::Leading;
        let Some(plan) = fits.then(|| Words::of(known)).flatten() else { return Ok(None) };
        let rows = pass.tiles.rows;
        let Some(word) = words.get(plan.leading) else { return Ok(None) };
        let behind: Vec<&Buffer> = plan.behind.iter().filter_map(|word| words.get(*word)).collect();
        let sample = self.sample(word, &behind, rows)?;
        let Some(digits) = plan.wanted(sample, rows) else { return Ok(None) };
        let shifts: Vec<u32> = plan.shifts.iter().take(digits).rev().copied().collect();
        let mask = shifts.first().map_or(0, |shift| u64::MAX << shift);
        let keys = self.sort_by(word, &shifts, pass)?;
        let (open, out) = (self.allocate(8)?, pass.keys_beside(&keys));
        self.stream.fill(&open, 0, 8, 0)?;
        let of = |number: usize| whole(behind.get(number).copied().unwrap_or(word));
        let own = [
            whole(&keys),
            whole(&pass.order),
            integer(Scalar::U64, mask),
            integer(Scalar::U32, behind.len() as u64),
            of(0),
            of(1),
            whole(&out),
            whole(&pass.spare_order),
            whole(&open),
        ];
        self.over(open_runs::CLOSE, pass.tiles, &own)?;
        let mut is_open = [0; 8];
        self.stream.download(&open, 0, &mut is_open)?;
        if u64::from_le_bytes(is_open) != 0 {
            pass.is_identity = true;
            return Ok(None);
        }
        pass.swap();
        Ok(Some((plan.leading, out)))
    }

    /// Words of some rows at equal distances.
    fn sample(&mut self, word: &Buffer, behind: &[&Buffer], rows: u64) -> Result<Sampled, EngineError> {
        let count = rows.min(SAMPLE);
        let places = (0..count).map(|number| (number * rows / count.max(1)) as u32);
        let bytes: Vec<u8> = places.flat_map(|place| place.to_le_bytes()).collect();
        let list = self.allocate(bytes.len() as u64)?;
        self.stream.upload(&list, 0, &bytes)?;
        let rows = Rows { list: Some(list), count };
        let all = [word].into_iter().chain(behind.iter().copied());
        let words = all.map(|word| self.words_of(word, &rows)).collect::<Result<Vec<_>, _>>()?;
        let (_, words) = self.to_host(&rows, &words)?;
        Ok((0..count as usize).map(|row| words.iter().map(|word| word[row]).collect()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(bits: &[u64]) -> Option<Words> {
        let varying = |bits: &u64| Varying { bits: *bits, ..Varying::default() };
        Words::of(&bits.iter().map(varying).collect::<Vec<_>>())
    }

    #[test]
    fn digits_begin_with_the_highest_bits() {
        let words = words_of(&[0, u64::MAX >> 3, 7, 0, 1]).unwrap();
        assert_eq!((words.leading, &words.behind[..], words.digits), (1, &[2, 4][..], 10));
        assert_eq!(words.shifts, [53, 45, 37, 29, 21, 13, 5, 0]);
        for bits in [&[0xff_ffff][..], &[u64::MAX, 1, 1, 1], &[], &[0, 0]] {
            assert_eq!(words_of(bits), None, "{bits:?}");
        }
    }

    #[test]
    fn as_many_digits_as_a_sample_tells_apart() {
        let words = words_of(&[u64::MAX, u64::MAX]).unwrap();
        let spread = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let wanted = |of: &dyn Fn(u64) -> Vec<u64>, rows| words.wanted((0..4096).map(of).collect(), rows);
        assert_eq!(wanted(&|row| vec![spread(row), 0], 4096), Some(2));
        // Half of the rows are the same, and need not be told apart.
        assert_eq!(wanted(&|row| vec![spread(row / 2 * (row % 2)), 0], 4096), Some(2));
        // What tells rows apart is in the last bits of a word, or behind it.
        assert_eq!(wanted(&|row| vec![spread(row) >> 36, 0], 4096), Some(6));
        assert_eq!(wanted(&|row| vec![5, spread(row)], 4096), None);
    }
}
