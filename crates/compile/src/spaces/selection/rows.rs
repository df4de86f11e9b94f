//! Elements of the bitmap from rows: what all kinds share, and the one that needs no more.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Scalar};

use super::Selection;
use crate::primitives::for_range;
use crate::spaces::Predicate;
use crate::spaces::group::{Group, div_up, element_scalar, repeat};

/// The rows of a launch, and what is made of them.
pub(super) struct Rows<'p> {
    pub selection: Selection,
    pub group: Group,
    pub predicate: &'p dyn Predicate,
    /// The predicate's.
    pub params: Vec<V>,
    /// How many, `u32`.
    pub rows: V,
    pub validity: Option<V>,
    pub bitmap: V,
}

impl Rows<'_> {
    pub fn bits(&self) -> u32 {
        self.selection.element_bits
    }

    pub fn scalar(&self) -> Scalar {
        element_scalar(self.bits())
    }

    /// Whether a row's value fulfils the predicate.
    pub fn holds(&self, b: &mut Builder, row: V) -> V {
        self.predicate.holds(b, &self.params, row)
    }

    /// An element with bit `at` (of the element's type) set where a row fulfils the predicate.
    pub fn bit(&self, b: &mut Builder, row: V, at: V) -> V {
        let holds = self.holds(b, row);
        let bit = b.convert(holds, self.scalar());
        b.binary(BinaryOp::Shl, bit, at)
    }

    /// An element of as many rows as it has bits, all of which exist, each `step` behind the one before.
    pub fn element_of(&self, b: &mut Builder, first: V, step: u32) -> V {
        let Selection { element_bits, branched, unrolled, .. } = self.selection;
        let zero = b.int(self.scalar(), 0);
        if unrolled && !branched {
            let mut bits = zero;
            for number in 0..element_bits {
                let row = b.add_int(first, number * step);
                let at = b.int(self.scalar(), number);
                let bit = self.bit(b, row, at);
                bits = b.or(bits, bit);
            }
            return bits;
        }
        let bits = b.var_of("bits", zero);
        repeat(b, (element_bits, unrolled), |b, number| {
            let distance = b.mul_int(number, step);
            let row = b.add(first, distance);
            let at = b.convert(number, self.scalar());
            if !branched {
                let (bit, old) = (self.bit(b, row, at), b.read(bits));
                let new = b.or(old, bit);
                return b.assign(bits, new);
            }
            let holds = self.holds(b, row);
            b.begin_if(holds);
            let (one, old) = (b.int(self.scalar(), 1), b.read(bits));
            let bit = b.binary(BinaryOp::Shl, one, at);
            let new = b.or(old, bit);
            b.assign(bits, new);
            b.end();
        });
        b.read(bits)
    }

    /// Writes an element, without the rows that have no value.
    pub fn write(&self, b: &mut Builder, element: V, bits: V) {
        let bits = match self.validity {
            None => bits,
            Some(validity) => {
                let valid = b.element(validity, element);
                b.and(bits, valid)
            }
        };
        let pointer = b.offset(self.bitmap, element);
        b.store(pointer, bits);
    }

    /// Makes and writes an element (`u32`), row by row; nothing where there are no rows for it.
    pub fn write_partial(&self, b: &mut Builder, element: V) {
        let first = b.mul_int(element, self.bits());
        let exists = b.lt(first, self.rows);
        b.begin_if(exists);
        let whole = b.add_int(first, self.bits());
        let end = b.binary(BinaryOp::Min, whole, self.rows);
        let (zero, one) = (b.int(self.scalar(), 0), b.u32(1));
        let bits = b.var_of("bits", zero);
        for_range(b, first, end, one, |b, row| {
            let number = b.sub(row, first);
            let at = b.convert(number, self.scalar());
            let (bit, old) = (self.bit(b, row, at), b.read(bits));
            let new = b.or(old, bit);
            b.assign(bits, new);
        });
        let bits = b.read(bits);
        self.write(b, element, bits);
        b.end();
    }

    /// The blocks that the rows are shared out among, `u32`.
    pub fn parts(&self, b: &mut Builder) -> V {
        let size = b.u32(self.selection.block_rows());
        div_up(b, self.rows, size)
    }

    /// Each thread makes elements of neighbouring rows (listing 2).
    pub fn sequential(&self, b: &mut Builder) {
        let Selection { elements, threads, element_bits, .. } = self.selection;
        let parts = self.parts(b);
        self.group.for_parts(b, parts, |b, part| {
            self.group.phase(b, |b, thread| {
                let before = b.mul_int(part, threads);
                let number = b.add(before, thread);
                let first = b.mul_int(number, elements);
                repeat(b, (elements, false), |b, number| {
                    let element = b.add(first, number);
                    let row = b.mul_int(element, element_bits);
                    let end = b.add_int(row, element_bits);
                    let whole = b.compare(kelpie_kir::CompareOp::Le, end, self.rows);
                    b.begin_if(whole);
                    let bits = self.element_of(b, row, 1);
                    self.write(b, element, bits);
                    b.begin_else();
                    self.write_partial(b, element);
                    b.end();
                });
            });
        });
    }
}
