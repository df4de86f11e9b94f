//! Sums of decimals that may leave 128 bits, where DataFusion's own wrap around without a word.
//!
//! The cell of a sum adds modulo 2^128. Mostly the values' range times the number of rows proves that no sum leaves 128
//! bits, and nothing more is needed. Where it does not, a second cell adds the values' upper bits, `value >> shift`. What the
//! lower bits add up to is then known too: the first cell less the second one's part of it, modulo 2^128; and they add up
//! to less than 2^128, as there are at most `2^(128 - shift)` rows. So both cells together are the sum itself, however
//! far out it is and was on the way, in whatever order rows came.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use super::cells::CellOp;
use crate::context::Context;
use crate::types::Range;

/// The upper bits of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpperBits {
    /// The cell that adds them.
    pub cell: usize,
    /// Where they begin.
    pub shift: u32,
}

/// Where the upper bits of values begin whose sum has up to `rows` terms. Those of fewer rows fit a single word.
pub fn shift_for(rows: u64) -> u32 {
    if rows <= 1 << 32 { 96 } else { 64 }
}

/// Bounds of the upper bits of values within bounds.
pub fn upper_range(bounds: Range, shift: u32) -> Range {
    Range { min: bounds.min >> shift, max: bounds.max >> shift }
}

/// The upper bits of a value, as `i128`.
pub fn upper_bits(cx: &mut Context<'_>, value: V, shift: u32) -> V {
    let b = &mut *cx.builder;
    let (value, shift) = (b.convert(value, Scalar::I128), b.int(Scalar::I128, shift));
    b.binary(BinaryOp::Shr, value, shift)
}

/// A cell that adds as `i128`.
pub fn wide_sum(cx: &mut Context<'_>, op: CellOp, cell: V) -> V {
    let cell = if op == CellOp::Add { cx.builder.bitcast(cell, Scalar::I64) } else { cell };
    cx.builder.convert(cell, Scalar::I128)
}

impl UpperBits {
    /// Whether the sum is what 128 bits (`sum`) hold of it; `upper` (`i128`): what its upper bits add up to.
    pub fn are_those_of(self, cx: &mut Context<'_>, upper: V, sum: V) -> V {
        let b = &mut *cx.builder;
        let shift = b.int(Scalar::I128, self.shift);
        let above = b.binary(BinaryOp::Shl, upper, shift);
        let below = b.sub(sum, above);
        // What the lower bits carry over, which has no sign.
        let carried = b.binary(BinaryOp::Shr, below, shift);
        let unsigned = b.int(Scalar::I128, (1i128 << (128 - self.shift)) - 1);
        let carried = b.and(carried, unsigned);
        let whole = b.add(upper, carried);
        let held = b.binary(BinaryOp::Shr, sum, shift);
        b.eq(whole, held)
    }
}
