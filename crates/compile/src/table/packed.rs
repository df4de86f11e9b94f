//! Keys packed into one word of 63 bits, where their ranges let them.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use crate::context::register_type;
use crate::context::{Constant, Context, Lowered, Repr, Unsupported};
use crate::layout::ColumnInfo;
use crate::lower::hashing::normalized;
use crate::types::DataType;

/// The bit of an entry that says that the slot is taken: an empty slot is a state, never a stolen key value.
pub const OCCUPIED: u64 = 1 << 63;

/// The bits of no float's key: of an empty slot. With the lowest bit those of NULL.
const NO_FLOAT: u64 = 0x7ff4_0000_0000_0000;
/// NaN as the others are taken for that have these bits.
const NAN: u64 = 0x7ff8_0000_0000_0000;

/// A key inside a packed word.
#[derive(Debug, Clone)]
pub struct PackedKey {
    min: i128,
    shift: u32,
    /// Bits, with the one of NULL (the highest) where nullable.
    bits: u32,
    nullable: bool,
    /// It is a float, which has all of the word: of the bits of NaN two are left over.
    is_float: bool,
}

/// The packing of the keys into 63 bits, if they fit.
pub fn pack(columns: &[ColumnInfo]) -> Option<Vec<PackedKey>> {
    let mut shift = 0;
    let mut packed = Vec::new();
    for column in columns {
        let (min, values) = match (column.dictionary, &column.data_type) {
            (Some((_, _, entries)), _) => (0, i128::from(entries)),
            (None, DataType::Boolean) => (0, 2),
            _ => {
                let range = column.range.or_else(|| column.data_type.full_range())?;
                (range.min, range.max.checked_sub(range.min)?.checked_add(1)?)
            }
        };
        let bits = i128::BITS - (values - 1).max(0).leading_zeros() + u32::from(column.nullable);
        packed.push(PackedKey { min, shift, bits, nullable: column.nullable, is_float: false });
        shift += bits;
    }
    (shift <= 63).then_some(packed)
}

/// The packing of a key that is a float: then the word is the slot's entry as it is, and 0 where it is empty.
pub fn pack_float(columns: &[ColumnInfo]) -> Option<Vec<PackedKey>> {
    match columns {
        [ColumnInfo { data_type: DataType::Float64, nullable, dictionary: None, .. }] => {
            let nullable = *nullable;
            Some(vec![PackedKey { min: 0, shift: 0, bits: u64::BITS, nullable, is_float: true }])
        }
        _ => None,
    }
}

/// An integer's distance from the least, in its type.
pub fn minus(cx: &mut Context<'_>, value: V, min: i128) -> V {
    if min == 0 {
        return value;
    }
    let scalar = cx.builder.scalar(value);
    let min = cx.constant(Constant::Int(scalar, min));
    cx.builder.sub(value, min)
}

/// The integer at a distance from the least, in the distance's type.
pub fn plus(cx: &mut Context<'_>, distance: V, min: i128) -> V {
    if min == 0 {
        return distance;
    }
    let scalar = cx.builder.scalar(distance);
    let min = cx.constant(Constant::Int(scalar, min));
    cx.builder.add(distance, min)
}

impl PackedKey {
    /// Whether it has all of the entry, which says by itself that the slot is taken.
    pub fn is_whole(&self) -> bool {
        self.is_float
    }

    fn encode_float(cx: &mut Context<'_>, value: V, valid: Option<V>) -> V {
        let value = normalized(cx, value);
        let b = &mut *cx.builder;
        let bits = b.bitcast(value, Scalar::U64);
        let (none, nan, null) = (b.u64(NO_FLOAT), b.u64(NAN), b.u64(1));
        let upper = b.and_int(bits, !1u64);
        let is_left_over = b.eq(upper, none);
        let bits = b.select(is_left_over, nan, bits);
        let word = b.binary(BinaryOp::Xor, bits, none);
        valid.map_or(word, |valid| b.select(valid, word, null))
    }

    /// This key's bits of the entry.
    pub fn encode(&self, cx: &mut Context<'_>, key: &Lowered) -> Result<V, Unsupported> {
        if let (true, Repr::Scalar(value)) = (self.is_float, &key.repr) {
            return Ok(PackedKey::encode_float(cx, *value, key.valid));
        }
        let index = match &key.repr {
            Repr::Text(text) => match text.code {
                Some(code) => cx.builder.convert(code.value, Scalar::U64),
                None => return Err(Unsupported("a dictionary column lost its codes".into())),
            },
            Repr::Scalar(value) => self.index(cx, *value),
        };
        let index = match key.valid {
            Some(valid) if self.nullable => {
                let null = cx.builder.u64(1 << (self.bits - 1));
                cx.builder.select(valid, index, null)
            }
            // The planner knows that it is never NULL (COALESCE with a constant): the flag is always set.
            Some(valid) => {
                let zero = cx.builder.u64(0);
                cx.builder.select(valid, index, zero)
            }
            None => index,
        };
        let shift = cx.builder.u64(u64::from(self.shift));
        Ok(cx.builder.binary(BinaryOp::Shl, index, shift))
    }

    fn index(&self, cx: &mut Context<'_>, value: V) -> V {
        if cx.builder.scalar(value) == Scalar::Bool {
            return cx.builder.convert(value, Scalar::U64);
        }
        let wide = cx.builder.convert(value, Scalar::I128);
        let distance = minus(cx, wide, self.min);
        cx.builder.convert(distance, Scalar::U64)
    }

    /// The key of an entry.
    pub fn decode(&self, cx: &mut Context<'_>, entry: V, column: &ColumnInfo) -> Lowered {
        let b = &mut *cx.builder;
        if self.is_float {
            let bits = b.xor_int(entry, NO_FLOAT);
            let repr = Repr::Scalar(b.bitcast(bits, Scalar::F64));
            let valid = self.nullable.then(|| b.ne_int(entry, 1));
            return Lowered { repr, valid, range: None };
        }
        let field = b.shr_int(entry, u64::from(self.shift));
        let field = b.and_int(field, if self.bits == 0 { 0 } else { u64::MAX >> (64 - self.bits) });
        let valid = self.nullable.then(|| {
            let null = b.u64(1 << (self.bits - 1));
            let bit = b.and(field, null);
            let zero = b.u64(0);
            b.eq(bit, zero)
        });
        let index = match valid {
            Some(valid) => {
                let zero = b.u64(0);
                b.select(valid, field, zero)
            }
            None => field,
        };
        let repr = match column.dictionary {
            Some((scan, column, entries)) => {
                let code = cx.builder.convert(index, Scalar::U32);
                Repr::Text(cx.entry_of_any(code, (scan, column, entries)))
            }
            None => Repr::Scalar(self.value(cx, index, column)),
        };
        Lowered { repr, valid, range: column.range.or_else(|| column.data_type.full_range()) }
    }

    fn value(&self, cx: &mut Context<'_>, index: V, column: &ColumnInfo) -> V {
        let register = register_type(&column.data_type, column.range);
        if register == Scalar::Bool {
            return cx.builder.ne_int(index, 0);
        }
        let wide = cx.builder.convert(index, Scalar::I128);
        let value = plus(cx, wide, self.min);
        cx.builder.convert(value, register)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Range;

    fn integer(min: i128, max: i128, nullable: bool) -> ColumnInfo {
        ColumnInfo::new(DataType::Int64, nullable, Some(Range { min, max }))
    }

    fn places(columns: &[ColumnInfo]) -> Option<Vec<(u32, u32)>> {
        pack(columns).map(|keys| keys.iter().map(|key| (key.shift, key.bits)).collect())
    }

    #[test]
    fn keys_lie_side_by_side_in_as_many_bits_as_their_ranges_need() {
        let keys = [integer(-3, 4, false), integer(0, 0, false), integer(10, 11, true)];
        assert_eq!(places(&keys), Some(vec![(0, 3), (3, 0), (3, 2)]));
        let flag = ColumnInfo::new(DataType::Boolean, true, None);
        let text = ColumnInfo {
            data_type: DataType::Utf8,
            nullable: false,
            range: None,
            dictionary: Some((0, 1, 5)),
            scattered: None,
            has_frequent: false,
            is_clustered: false,
            spacing: None,
            origin: None,
            coded: None,
        };
        assert_eq!(places(&[flag, text]), Some(vec![(0, 2), (2, 3)]));
    }

    #[test]
    fn one_bit_is_left_for_a_slot_that_is_taken() {
        assert_eq!(places(&[integer(0, (1 << 63) - 1, false)]), Some(vec![(0, 63)]));
        assert_eq!(places(&[integer(0, (1 << 63) - 1, true)]), None);
        assert_eq!(places(&[integer(i64::MIN.into(), i64::MAX.into(), false)]), None);
        assert_eq!(places(&[integer(i128::MIN, i128::MAX, false)]), None);
    }
}
