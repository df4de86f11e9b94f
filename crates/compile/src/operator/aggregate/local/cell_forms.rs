//! In how few bytes a block's table has the cells of a group, given how many rows come to it.

use kelpie_kir::Scalar;
use kelpie_kir::builder::V;

use crate::context::Context;
use crate::operator::aggregate::functions::{Cell, CellOp};
use crate::types::Range;
use crate::variant::axes::{BlockSums, CountBytes};

/// What a block's table has in which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellForms {
    /// Sums that 4 bytes do not.
    pub sums: BlockSums,
    pub counts: CountBytes,
}

impl CellForms {
    /// As few instructions a row as can be.
    pub const PLAIN: CellForms = CellForms { sums: BlockSums::Words, counts: CountBytes(4) };
    /// As few bytes as can be.
    pub const NARROW: CellForms = CellForms::counting(CountBytes(1));

    /// As few instructions a row as can be, but that counts have so many bytes.
    pub const fn counting(counts: CountBytes) -> CellForms {
        CellForms { counts, ..CellForms::PLAIN }
    }
}

/// How a block keeps a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// A count in 1 or 2 bytes.
    Count,
    /// A sum in 4 bytes, extended by the sign where `signed`.
    HalfSum { signed: bool },
    /// A sum in several of 4 bytes.
    Digits(Digits),
    /// A maximum in 4 bytes: how far it is above `below`, which is less than any value; 0 is none.
    HalfMaximum { below: u64 },
    /// A sum of two words in one, with its sign.
    Word,
    /// All of its words, as the device has it.
    Whole,
}

impl Width {
    /// That of a cell to which so many rows are added.
    pub(crate) fn of(cell: &Cell, rows: u64, CellForms { sums, counts }: CellForms) -> Width {
        let digits = || match (cell.op, sums) {
            (CellOp::Add | CellOp::AddWide, BlockSums::Digits) => Digits::of(cell.bounds?, rows),
            _ => None,
        };
        let total = cell.total(rows);
        let within = |limits: Range| total.is_some_and(|total| total.within(limits));
        let is_count = cell.bounds.is_some_and(|bounds| bounds.within(Range::new(0, 1)));
        match cell.op {
            CellOp::Add if is_count && counts.0 < 4 => Width::Count,
            CellOp::Add | CellOp::AddWide if within(Range::new(0, u32::MAX)) => {
                Width::HalfSum { signed: false }
            }
            CellOp::Add | CellOp::AddWide if within(Range::new(i32::MIN, i32::MAX)) => {
                Width::HalfSum { signed: true }
            }
            CellOp::Add | CellOp::AddWide if within(Range::new(i64::MIN, i64::MAX)) => match digits() {
                Some(digits) => Width::Digits(digits),
                None if cell.op == CellOp::AddWide => Width::Word,
                None => Width::Whole,
            },
            CellOp::Max => cell.bounds.and_then(Width::of_keys).unwrap_or(Width::Whole),
            _ => Width::Whole,
        }
    }

    /// That of a maximum of keys within bounds, if they are near each other.
    fn of_keys(bounds: Range) -> Option<Width> {
        let below = u64::try_from((bounds.min - 1).max(0)).ok()?;
        (bounds.max - i128::from(below) <= u32::MAX.into()).then_some(Width::HalfMaximum { below })
    }
}

/// How a value is cut into digits, from the lowest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digits {
    pub count: u32,
    /// Those of all but the last, which has the rest.
    bits: u32,
    /// The last has the value's sign.
    signed: bool,
}

impl Digits {
    /// More of them take longer than a carry.
    const MOST: u32 = 3;

    /// Those of values within `bounds` of which `rows` are added up, unless they are too many.
    pub(crate) fn of(bounds: Range, rows: u64) -> Option<Digits> {
        if !bounds.within(Range::new(i64::MIN, i64::MAX)) {
            return None;
        }
        // `rows` digits of so many bits are below 2^32.
        let bits = u32::BITS.checked_sub(rows.max(1).checked_next_power_of_two()?.ilog2())?;
        if bits == 0 {
            return None;
        }
        let signed = bounds.min < 0;
        let limits = if signed { Range::new(i32::MIN, i32::MAX) } else { Range::new(0, u32::MAX) };
        let fits = |count: &u32| {
            let shift = bits * (count - 1);
            let last = |bound: i128| (bound >> shift).checked_mul(rows.into());
            let last = last(bounds.min.min(0)).zip(last(bounds.max.max(0)));
            shift < i64::BITS && last.is_some_and(|(min, max)| Range { min, max }.within(limits))
        };
        let count = (2..=Digits::MOST).find(fits)?;
        Some(Digits { count, bits, signed })
    }

    /// The bits of a digit in front of which there are others.
    fn shift(self, digit: u32) -> i64 {
        i64::from(self.bits * digit)
    }

    /// A digit of a value (`u64`, by two's complement), as `u32`.
    pub(crate) fn cut(self, cx: &mut Context<'_>, value: V, digit: u32) -> V {
        let b = &mut *cx.builder;
        let value = if self.signed { b.bitcast(value, Scalar::I64) } else { value };
        let value = match self.shift(digit) {
            0 => value,
            shift => b.shr_int(value, shift),
        };
        let value = b.convert(value, Scalar::U32);
        if digit + 1 == self.count || self.bits == u32::BITS {
            return value;
        }
        let mask = b.u32((1 << self.bits) - 1);
        b.and(value, mask)
    }

    /// What sums of digits come to together, as `i64`. `sum`: the pointer to the first of them.
    pub(crate) fn join(self, cx: &mut Context<'_>, sums: V) -> V {
        let b = &mut *cx.builder;
        let mut total = b.i64(0);
        for digit in 0..self.count {
            let index = b.i32(digit as i32);
            let pointer = b.offset(sums, index);
            let sum = b.load(pointer);
            let is_signed = self.signed && digit + 1 == self.count;
            let sum = if is_signed { b.bitcast(sum, Scalar::I32) } else { sum };
            let sum = b.convert(sum, Scalar::I64);
            let sum = b.shl_int(sum, self.shift(digit));
            total = b.add(total, sum);
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::aggregate::functions::Contribution;

    /// What digits come to is the sum of the values, also of as many of the least or the greatest as may come.
    #[test]
    fn digits_of_all_rows_fit() {
        let range = |min: i64, max: i64| Range::new(min, max);
        for (bounds, rows, expected) in [
            (range(0, 10_494_950), 2048, Some((2, 21))),
            (range(0, 113_000_000_000), 2048, Some((2, 21))),
            (range(0, 113_000_000_000), 1 << 16, Some((3, 16))),
            (range(-1, 1), 1 << 31, Some((2, 1))),
            (range(-100_000_000_000, 5), 1000, Some((2, 22))),
            (range(i64::MIN, i64::MAX), 1, Some((2, 32))),
            (range(0, i64::MAX), 1, Some((2, 32))),
            (range(i64::MIN, i64::MAX), 100, Some((3, 25))),
            (range(0, i64::MAX), 1 << 20, None),
            (range(0, 1), u64::MAX, None),
        ] {
            let digits = Digits::of(bounds, rows);
            assert_eq!(digits.map(|digits| (digits.count, digits.bits)), expected, "{bounds:?} {rows}");
            let Some(Digits { count, bits, signed }) = digits else { continue };
            for value in [bounds.min, bounds.max] {
                let sum = |digit: u32| {
                    let rest = value >> (bits * digit);
                    let is_last = digit + 1 == count;
                    let part = if is_last { rest } else { rest & ((1 << bits) - 1) };
                    let sum = part * i128::from(rows);
                    assert!(
                        i128::from(u32::MAX) >= sum
                            && sum >= if is_last && signed { i32::MIN.into() } else { 0 }
                    );
                    sum << (bits * digit)
                };
                assert_eq!((0..count).map(sum).sum::<i128>(), value * i128::from(rows));
            }
        }
    }

    #[test]
    fn cells_are_as_wide_as_a_block_can_make_them() {
        let width = |op, bounds, rows| {
            let contribution = Contribution::ROW;
            let cell = Cell { op, contribution, distinct: None, word: 0, bounds, is_sparse: false };
            Width::of(&cell, rows, CellForms::PLAIN)
        };
        let range = |min: i128, max: i128| Some(Range { min, max });
        let most = i128::from(u32::MAX);
        let (unsigned, signed) = (Width::HalfSum { signed: false }, Width::HalfSum { signed: true });
        let maximum = |below| Width::HalfMaximum { below };
        for (op, bounds, rows, expected) in [
            (CellOp::Add, range(1, 1), u64::from(u32::MAX), unsigned),
            (CellOp::Add, range(1, 1), 1 << 32, Width::Whole),
            (CellOp::Add, range(0, most), 1, unsigned),
            (CellOp::Add, range(0, most), 2, Width::Whole),
            (CellOp::Add, range(-1, 1), 1, signed),
            (CellOp::Add, range(-1, 1), 1 << 31, Width::Whole),
            (CellOp::Add, None, 1, Width::Whole),
            (CellOp::AddWide, range(0, 1), 9, unsigned),
            (CellOp::AddWide, range(i64::MIN.into(), 0), 1, Width::Word),
            (CellOp::AddWide, range(i64::MIN.into(), 0), 2, Width::Whole),
            (CellOp::AddWide, range(i128::MIN, i128::MAX), u64::MAX, Width::Whole),
            (CellOp::AddFloat, range(0, 1), 1, Width::Whole),
            (CellOp::Max, range(0, most), u64::MAX, maximum(0)),
            (CellOp::Max, range(0, most + 1), 1, Width::Whole),
            (CellOp::Max, range(1 << 63, (1 << 63) + most - 1), 1, maximum((1 << 63) - 1)),
            (CellOp::Max, range(1 << 63, (1 << 63) + most), 1, Width::Whole),
            (CellOp::Max, None, 1, Width::Whole),
        ] {
            assert_eq!(width(op, bounds, rows), expected, "{op:?} {bounds:?} {rows}");
        }
    }
}
