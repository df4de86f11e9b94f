//! Tuples that are packed into a word: the key's fields above, those of values below (figure 1 of the paper).

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Scalar};

/// Bits of the word that has a tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Width {
    /// 32 bits.
    W32,
    /// 64 bits.
    W64,
    /// 128 bits.
    W128,
}

impl Width {
    /// From the narrowest.
    pub const ALL: [Width; 3] = [Width::W32, Width::W64, Width::W128];

    /// How many.
    pub fn bits(self) -> u32 {
        self.bytes() * 8
    }

    /// Bytes of a tuple.
    pub fn bytes(self) -> u32 {
        match self {
            Width::W32 => 4,
            Width::W64 => 8,
            Width::W128 => 16,
        }
    }

    /// The type of such a word. That of 128 bits is signed, as there is no other; it is taken as if it were not.
    pub fn scalar(self) -> Scalar {
        match self {
            Width::W32 => Scalar::U32,
            Width::W64 => Scalar::U64,
            Width::W128 => Scalar::I128,
        }
    }
}

/// The tuples of a relation. Bits above the key are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tuples {
    /// The word.
    pub width: Width,
    /// Bits of the key's fields together.
    pub key_bits: u32,
    /// Bits of the values' fields together, below the key.
    pub value_bits: u32,
}

impl Tuples {
    /// Why there are no such tuples, if there are none.
    pub(super) fn problem(&self) -> Option<String> {
        let (all, bits) = (self.key_bits.saturating_add(self.value_bits), self.width.bits());
        match self.key_bits {
            0 => Some("tuples without a key".into()),
            _ if all > bits => Some(format!("tuples of {all} bits: more than {bits}")),
            _ => None,
        }
    }

    /// The key as a number whose order is that of keys.
    pub(super) fn key(&self, b: &mut Builder, tuple: V) -> V {
        let scalar = self.width.scalar();
        let unsigned = match self.width {
            Width::W128 => {
                let sign = b.int(scalar, i128::MIN);
                b.binary(BinaryOp::Xor, tuple, sign)
            }
            _ => tuple,
        };
        if self.value_bits == 0 {
            return unsigned;
        }
        let distance = b.int(scalar, self.value_bits);
        b.binary(BinaryOp::Shr, unsigned, distance)
    }

    /// The key's bits, as the lowest of a word.
    fn key_field(&self, b: &mut Builder, tuple: V) -> V {
        self.field(b, tuple, (self.value_bits, self.key_bits))
    }

    /// Some bits of a tuple, from the lowest on, as the lowest of a word of its type.
    pub(super) fn field(&self, b: &mut Builder, tuple: V, (shift, bits): (u32, u32)) -> V {
        let scalar = self.width.scalar();
        let mut value = tuple;
        if shift > 0 {
            let distance = b.int(scalar, shift);
            value = b.binary(BinaryOp::Shr, value, distance);
        }
        if bits < self.width.bits() {
            let mask = b.int(scalar, (1_i128 << bits).wrapping_sub(1));
            value = b.and(value, mask);
        }
        value
    }

    /// A tuple of others, of which fields are put one below the other: the value and bits of each, from the highest on.
    pub(super) fn pack(&self, b: &mut Builder, fields: &[(V, u32)]) -> V {
        let scalar = self.width.scalar();
        let mut packed: Option<V> = None;
        for (value, bits) in fields.iter().filter(|(_, bits)| *bits > 0) {
            let value = b.convert(*value, scalar);
            packed = Some(match packed {
                Some(above) => {
                    let distance = b.int(scalar, *bits);
                    let above = b.binary(BinaryOp::Shl, above, distance);
                    b.or(above, value)
                }
                None => value,
            });
        }
        packed.unwrap_or_else(|| b.zero(scalar))
    }

    /// The key of a tuple as a field, with its bits.
    pub(super) fn key_part(&self, b: &mut Builder, tuple: V) -> (V, u32) {
        (self.key_field(b, tuple), self.key_bits)
    }

    /// The value of a tuple as a field that takes so many bits; `None` for one that is missing, which has its highest bit alone.
    pub(super) fn value_part(&self, b: &mut Builder, tuple: Option<V>, bits: u32, to: Width) -> (V, u32) {
        let value = match tuple {
            Some(tuple) if self.value_bits > 0 => self.field(b, tuple, (0, self.value_bits)),
            Some(_) => b.zero(to.scalar()),
            None => b.int(to.scalar(), 1_i128 << (bits - 1)),
        };
        (value, bits)
    }
}
