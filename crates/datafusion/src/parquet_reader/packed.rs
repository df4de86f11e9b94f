//! Parquet's hybrid of runs and packed numbers, in which NULLs and the places of rows in dictionaries are written.

use bytes::Bytes;
use datafusion::arrow::array::BooleanBufferBuilder;
use datafusion::arrow::buffer::BooleanBuffer;

/// Numbers that are unpacked by one piece of code: so many take whole words, whatever their width.
const BLOCK: usize = 32;
/// Blocks that are unpacked before somebody looks at them: a KiB of numbers, which stays in a core's first cache.
const BLOCKS: usize = 8;

const ENDS: &str = "a page has fewer values than it says";

/// What comes next.
#[derive(Debug)]
pub(super) enum Run<'a> {
    /// A number, so many times.
    Same(u32, usize),
    Each(&'a [u32]),
}

/// A stretch of a page's numbers.
#[derive(Debug, Clone, Copy)]
enum Stretch {
    Same {
        number: u32,
        left: usize,
    },
    /// So many are not unpacked yet; they end at some byte.
    Packed {
        left: usize,
        end: usize,
    },
}

/// The numbers of a page, in order.
#[derive(Debug)]
pub(super) struct Numbers {
    bytes: Bytes,
    /// The next byte that was not looked at.
    at: usize,
    /// Bits of a number.
    width: usize,
    stretch: Stretch,
    /// Numbers that are unpacked, and which of them were not given away.
    unpacked: Box<[u32; BLOCK * BLOCKS]>,
    next: usize,
    end: usize,
}

impl Numbers {
    /// Numbers of so many bits each.
    pub(super) fn new(bytes: Bytes, width: u8) -> Result<Numbers, String> {
        if width > 32 {
            return Err(format!("a page has numbers of {width} bits"));
        }
        Ok(Numbers {
            bytes,
            at: 0,
            width: usize::from(width),
            stretch: Stretch::Same { number: 0, left: 0 },
            unpacked: Box::new([0; BLOCK * BLOCKS]),
            next: 0,
            end: 0,
        })
    }

    /// At least one of the next numbers, and at most so many.
    pub(super) fn next(&mut self, most: usize) -> Result<Run<'_>, String> {
        loop {
            if self.next < self.end {
                let first = self.next;
                self.next = self.end.min(first.saturating_add(most));
                return Ok(Run::Each(self.unpacked.get(first..self.next).unwrap_or_default()));
            }
            match &mut self.stretch {
                Stretch::Same { left: 0, .. } | Stretch::Packed { left: 0, .. } => self.begin()?,
                Stretch::Same { number, left } => {
                    let count = most.min(*left);
                    *left -= count;
                    return Ok(Run::Same(*number, count));
                }
                Stretch::Packed { .. } => self.unpack(),
            }
        }
    }

    /// Passes over the next numbers.
    pub(super) fn skip(&mut self, mut count: usize) -> Result<(), String> {
        while count > 0 {
            count -= match self.next(count)? {
                Run::Same(_, passed) => passed,
                Run::Each(numbers) => numbers.len(),
            };
        }
        Ok(())
    }

    /// Begins the next stretch.
    fn begin(&mut self) -> Result<(), String> {
        let Head { is_packed, count, bytes } = head(&self.bytes, self.at, self.width).ok_or(ENDS)?;
        self.at += bytes;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if self.width == 0 {
            self.stretch = Stretch::Same { number: 0, left: count };
        } else if is_packed {
            // The last stretch of a page may be cut where no number follows.
            let length = (count.div_ceil(8).saturating_mul(self.width)).min(rest.len());
            let left = count.min(length * 8 / self.width);
            self.stretch = Stretch::Packed { left, end: self.at + length };
            if left == 0 {
                self.at += length;
            }
        } else {
            let length = self.width.div_ceil(8);
            let number = rest.get(..length).ok_or(ENDS)?;
            let number = number.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
            self.at += length;
            self.stretch = Stretch::Same { number, left: count };
        }
        Ok(())
    }

    /// Unpacks some numbers of a stretch.
    fn unpack(&mut self) {
        let Stretch::Packed { left, end } = &mut self.stretch else { return };
        let bytes = self.bytes.get(self.at..*end).unwrap_or_default();
        let block_bytes = self.width * (BLOCK / 8);
        let (blocks, _) = self.unpacked.as_chunks_mut::<BLOCK>();
        (self.next, self.end) = (0, 0);
        for (block, packed) in blocks.iter_mut().zip(bytes.chunks(block_bytes)) {
            match packed.len() == block_bytes {
                true => unpack_block(packed, self.width, block),
                false => {
                    let mut whole = [0; BLOCK * 4];
                    whole.iter_mut().zip(packed).for_each(|(byte, of_page)| *byte = *of_page);
                    unpack_block(&whole, self.width, block);
                }
            }
            let count = BLOCK.min(*left);
            *left -= count;
            self.end += count;
            self.at += packed.len();
        }
    }
}

/// How a stretch begins.
struct Head {
    is_packed: bool,
    /// Its numbers.
    count: usize,
    /// Bytes of what says so.
    bytes: usize,
}

/// What is said of a stretch from a byte on.
fn head(bytes: &[u8], at: usize, width: usize) -> Option<Head> {
    let mut head = 0u64;
    for (place, byte) in bytes.get(at..)?.iter().take(5).enumerate() {
        head |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let (is_packed, count) = (head & 1 == 1, usize::try_from(head >> 1).ok()?);
            let count = if is_packed { count.checked_mul(8)? } else { count };
            // Numbers of no bits take no bytes: without a limit a page of some bytes could say that it has any number of them.
            let count = if width == 0 { count.min(u32::MAX as usize) } else { count };
            return Some(Head { is_packed, count, bytes: place + 1 });
        }
    }
    None
}

/// Which of so many rows have a value, by their definition levels of one bit; `None` where all have.
pub(super) fn valid_rows(levels: &[u8], rows: usize) -> Result<Option<BooleanBuffer>, String> {
    let mut valid = BooleanBufferBuilder::new(rows.min(levels.len().saturating_mul(8)));
    let mut at = 0;
    while valid.len() < rows {
        let Head { is_packed, count, bytes } = head(levels, at, 1).ok_or(ENDS)?;
        at += bytes;
        let rest = levels.get(at..).unwrap_or_default();
        let left = rows - valid.len();
        if is_packed {
            let length = count.div_ceil(8).min(rest.len());
            valid.append_packed_range(0..left.min(length * 8), rest);
            at += length;
        } else {
            let level = rest.first().ok_or(ENDS)?;
            valid.append_n(count.min(left), *level != 0);
            at += 1;
        }
    }
    let valid = valid.finish();
    Ok((valid.count_set_bits() < rows).then_some(valid))
}

/// Unpacks a block of numbers of 1 to 32 bits.
fn unpack_block(packed: &[u8], width: usize, out: &mut [u32; BLOCK]) {
    macro_rules! of_width {
        ($($width:literal)*) => {
            match width {
                $($width => unpack::<$width, { $width + 1 }>(packed, out),)*
                _ => out.fill(0),
            }
        };
    }
    of_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
}

/// As a width is known when this is compiled, the loop becomes a shift and a mask a number. There is a word more than the numbers take,
/// so that each lies within two.
fn unpack<const WIDTH: usize, const WORDS: usize>(packed: &[u8], out: &mut [u32; BLOCK]) {
    let mut words = [0; WORDS];
    let (packed, _) = packed.as_chunks::<4>();
    words.iter_mut().zip(packed).take(WIDTH).for_each(|(word, bytes)| *word = u32::from_le_bytes(*bytes));
    for (place, out) in out.iter_mut().enumerate() {
        let (word, shift) = (place * WIDTH / 32, place * WIDTH % 32);
        let both = u64::from(words[word]) | u64::from(words[word + 1]) << 32;
        let number = if 32 % WIDTH == 0 { words[word] >> shift } else { (both >> shift) as u32 };
        *out = number & (u32::MAX >> (32 - WIDTH));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs numbers as a file has them.
    fn packed(numbers: &[u32], width: usize) -> Vec<u8> {
        let mut bytes = vec![0; (numbers.len() * width).div_ceil(8)];
        for (place, number) in numbers.iter().enumerate() {
            for bit in (0..width).filter(|bit| number >> bit & 1 == 1) {
                let at = place * width + bit;
                bytes[at / 8] |= 1 << (at % 8);
            }
        }
        bytes
    }

    fn all(bytes: Vec<u8>, width: u8, count: usize, most: usize) -> Result<Vec<u32>, String> {
        let mut numbers = Numbers::new(bytes.into(), width)?;
        let mut found = Vec::new();
        while found.len() < count {
            match numbers.next(most.min(count - found.len()))? {
                Run::Same(number, count) => found.extend(std::iter::repeat_n(number, count)),
                Run::Each(numbers) => found.extend_from_slice(numbers),
            }
        }
        Ok(found)
    }

    #[test]
    fn numbers_of_every_width_are_unpacked() {
        for width in 1..=32usize {
            let most = (u64::from(u32::MAX) >> (32 - width)) as u32;
            for count in [8, 16, 24, 32, 40, 256, 264, 1000] {
                let numbers: Vec<u32> =
                    (0..count as u32).map(|n| n.wrapping_mul(0x9E37_79B9) >> (n % 7) & most).collect();
                let mut bytes = vec![];
                let head = (count as u32 / 8) << 1 | 1;
                bytes.extend(if head < 128 {
                    vec![head as u8]
                } else {
                    vec![head as u8 | 128, (head >> 7) as u8]
                });
                bytes.extend(packed(&numbers, width));
                // Then a run.
                bytes.push(5 << 1);
                bytes.extend(&most.to_le_bytes()[..width.div_ceil(8)]);
                let expected = [numbers, vec![most; 5]].concat();
                for at_once in [1, 7, 100, usize::MAX] {
                    let found = all(bytes.clone(), width as u8, expected.len(), at_once);
                    assert_eq!(found.as_deref(), Ok(expected.as_slice()), "{width} {count}");
                }
                let mut skipped = Numbers::new(bytes.into(), width as u8).unwrap();
                skipped.skip(expected.len() - 6).unwrap();
                assert!(
                    matches!(skipped.next(1), Ok(Run::Each([last])) if *last == expected[expected.len() - 6])
                );
                assert!(skipped.skip(5).is_ok() && skipped.skip(1).is_err());
            }
        }
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        // The last packed numbers need not be there.
        assert_eq!(all(vec![3, 0b1110_0100], 2, 4, 99), Ok(vec![0, 1, 2, 3]));
        for (bytes, width) in [
            (vec![], 1),
            (vec![3, 0b1110_0100], 2),
            (vec![3], 2),
            (vec![0], 2),
            (vec![0; 50], 3),
            (vec![1; 50], 3),
            (vec![10], 8),
            (vec![10, 1], 9),
            (vec![0xff; 5], 7),
            (vec![0xff; 50], 7),
        ] {
            assert!(all(bytes.clone(), width, 200, 99).is_err(), "{bytes:?} {width}");
        }
        assert!(Numbers::new(Bytes::new(), 33).is_err());
        assert_eq!(all(vec![100 << 1 & 127 | 128, 1, 0], 0, 50, 99), Ok(vec![0; 50]));
    }

    #[test]
    fn rows_with_a_value_are_found() {
        let bits = |levels: &[u8], rows| {
            valid_rows(levels, rows).map(|valid| valid.map(|valid| valid.iter().collect::<Vec<_>>()))
        };
        assert_eq!(bits(&[10 << 1, 1], 10), Ok(None));
        assert_eq!(bits(&[], 0), Ok(None));
        assert_eq!(bits(&[2 << 1, 0, 3, 0b101], 6), Ok(Some(vec![false, false, true, false, true, false])));
        assert_eq!(bits(&[1 << 1, 1, 1 << 1, 0, 9 << 1, 1], 4), Ok(Some(vec![true, false, true, true])));
        for levels in [&[][..], &[3], &[4], &[10 << 1], &[0xff; 9], &[3, 1]] {
            assert!(bits(levels, 12).is_err(), "{levels:?}");
        }
    }
}
