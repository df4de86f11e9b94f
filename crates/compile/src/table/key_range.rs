//! Keys whose values are slots: those of one integer key of a dense range.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, CompareOp, Scalar};

use crate::context::{Constant, Context, Lowered, Repr, Unsupported};
use crate::layout::ColumnInfo;
use crate::types::{DataType, Range};

/// Most slots of a range: 4 GiB of row numbers, of which a bitmap's 128 MiB are all that searches in vain look at.
const MOST_SLOTS: u64 = 1 << 30;

/// The range of the only key's values, both ends inclusive. A value's distance from the least one is its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyRange {
    min: i128,
    max: i128,
}

impl KeyRange {
    /// That of a key; or why its values are no slots.
    pub fn of(key: &ColumnInfo) -> Result<KeyRange, String> {
        let data_type = &key.data_type;
        if data_type.is_float() || matches!(data_type, DataType::Utf8 | DataType::Boolean) {
            return Err(format!("keys of {data_type} are no slots"));
        }
        let range = key.range.filter(|range| range.within(Range::new(i64::MIN, i64::MAX)));
        let Range { min, max } = range.ok_or("the range of the keys is not known")?;
        let range = KeyRange { min, max };
        if range.slots() > MOST_SLOTS {
            return Err(format!("the range of the keys has more than {MOST_SLOTS} values"));
        }
        Ok(range)
    }

    pub fn slots(self) -> u64 {
        self.last().saturating_add(1)
    }

    /// The last slot.
    fn last(self) -> u64 {
        u64::try_from(self.max.saturating_sub(self.min)).unwrap_or(u64::MAX)
    }

    /// Whether a value is within the range (`bool`); `None` where what is known of the value says so.
    pub fn has(self, cx: &mut Context<'_>, value: V, known: Option<Range>) -> Option<V> {
        if known.is_some_and(|known| known.min >= self.min && known.max <= self.max) {
            return None;
        }
        let wide = wide_type(cx, value);
        let value = cx.builder.convert(value, wide);
        let low = cx.constant(Constant::Int(wide, self.min));
        let high = cx.constant(Constant::Int(wide, self.max));
        let (above, below) = (cx.builder.ge(value, low), cx.builder.compare(CompareOp::Le, value, high));
        Some(cx.builder.and(above, below))
    }

    /// Whether a key that is looked up is within the range and not NULL (`bool`); `None` where it always is. One side is never NULL: a
    /// NULL of the other equals nothing, whatever the rule.
    pub fn has_key(self, cx: &mut Context<'_>, key: &Lowered) -> Result<Option<V>, Unsupported> {
        let value = scalar_of(key)?;
        Ok(match (self.has(cx, value, key.range), key.valid) {
            (Some(within), Some(valid)) => Some(cx.builder.and(within, valid)),
            (within, valid) => within.or(valid),
        })
    }

    /// The slot (`i64`) of a key that is within the range.
    pub fn slot(self, cx: &mut Context<'_>, key: &Lowered) -> Result<V, Unsupported> {
        let value = scalar_of(key)?;
        let wide = wide_type(cx, value);
        let value = cx.builder.convert(value, wide);
        if self.min == 0 {
            return Ok(cx.builder.convert(value, Scalar::I64));
        }
        let min = cx.constant(Constant::Int(wide, self.min));
        let difference = cx.builder.sub(value, min);
        Ok(cx.builder.convert(difference, Scalar::I64))
    }

    /// The slot of a key (`u32`), and whether the key is within the range, `None` where what is known of it says so. The slot of one that
    /// is not is anything.
    pub fn narrow_slot(self, cx: &mut Context<'_>, key: &Lowered) -> Result<(V, Option<V>), Unsupported> {
        let value = scalar_of(key)?;
        let is_narrow = match cx.builder.scalar(value) {
            Scalar::I8 | Scalar::U8 | Scalar::I16 | Scalar::U16 | Scalar::I32 => {
                self.min >= i32::MIN.into() && self.max <= i32::MAX.into()
            }
            _ => false,
        };
        if !is_narrow {
            let within = self.has(cx, value, key.range);
            let slot = self.slot(cx, key)?;
            return Ok((cx.builder.convert(slot, Scalar::U32), within));
        }
        // In 32 bits what is below the least one is beyond the greatest.
        let value = cx.builder.convert(value, Scalar::I32);
        let least = cx.constant(Constant::Int(Scalar::I32, self.min));
        let distance = cx.builder.sub(value, least);
        let slot = cx.builder.bitcast(distance, Scalar::U32);
        if key.range.is_some_and(|known| known.min >= self.min && known.max <= self.max) {
            return Ok((slot, None));
        }
        let last = cx.constant(Constant::Int(Scalar::U32, self.max - self.min));
        Ok((slot, Some(cx.builder.compare(CompareOp::Le, slot, last))))
    }

    /// The part (`u32`) of a key's slot: its highest `bits` bits. What is beyond the range is spread over the parts.
    pub fn part(self, cx: &mut Context<'_>, key: &Lowered, bits: u32) -> Result<V, Unsupported> {
        let slot = self.slot(cx, key)?;
        let b = &mut *cx.builder;
        let slot = b.bitcast(slot, Scalar::U64);
        let part = b.shr_int(slot, self.part_shift(bits));
        let (mask, last) = (b.u64((1 << bits) - 1), b.u64(self.parts_used(bits) - 1));
        let part = b.and(part, mask);
        let part = b.binary(BinaryOp::Min, part, last);
        Ok(b.convert(part, Scalar::U32))
    }

    /// How many of the parts may have rows; at least one.
    pub fn parts_used(self, bits: u32) -> u64 {
        (self.last() >> self.part_shift(bits)) + 1
    }

    /// Bits of a slot's number behind those that are its part's. At most 63.
    fn part_shift(self, bits: u32) -> u32 {
        let used = u64::BITS - self.last().leading_zeros();
        used.saturating_sub(bits)
    }
}

/// A key that is a number.
pub(crate) fn scalar_of(key: &Lowered) -> Result<V, Unsupported> {
    match key.repr {
        Repr::Scalar(value) => Ok(value),
        Repr::Text(_) => Err(Unsupported("a key changed its representation".into())),
    }
}

fn wide_type(cx: &mut Context<'_>, value: V) -> Scalar {
    match cx.builder.scalar(value) {
        Scalar::I128 => Scalar::I128,
        _ => Scalar::I64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(data_type: DataType, range: Option<Range>) -> ColumnInfo {
        ColumnInfo::new(data_type, false, range)
    }

    #[test]
    fn an_integer_of_a_small_range_is_a_slot() {
        let days = Range { min: -719_528, max: 10_000 };
        let widest = Range { min: i128::from(i64::MIN), max: i128::from(i64::MIN) + 9 };
        for (data_type, range, slots) in [(DataType::Date32, days, 729_529), (DataType::Int64, widest, 10)] {
            let Range { min, max } = range;
            let found = KeyRange::of(&key(data_type, Some(range)));
            assert_eq!(found, Ok(KeyRange { min, max }));
            assert_eq!(found.map(KeyRange::slots), Ok(slots));
        }
    }

    #[test]
    fn what_is_no_slot_has_a_reason() {
        let most = Some(Range { min: i64::MIN.into(), max: i64::MAX.into() });
        let beyond = Some(Range { min: i128::MIN, max: i128::MAX });
        for (key, reason) in [
            (key(DataType::Float64, None), "keys of Float64 are no slots"),
            (key(DataType::Int64, None), "the range of the keys is not known"),
            (key(DataType::Int64, most), "the range of the keys has more than 1073741824 values"),
            (
                key(DataType::Decimal128 { precision: 38, scale: 0 }, beyond),
                "the range of the keys is not known",
            ),
        ] {
            let why_not = KeyRange::of(&key).expect_err("no slot");
            assert_eq!(why_not.to_lowercase(), reason.to_lowercase());
        }
    }

    #[test]
    fn a_part_is_the_highest_bits_of_a_slot() {
        for (last, bits, shift) in [(0, 4, 0), (15, 4, 0), (16, 4, 1), (1023, 4, 6), (1024, 10, 1)] {
            let range = KeyRange { min: -3, max: last - 3 };
            assert_eq!(range.part_shift(bits), shift, "{last} {bits}");
        }
    }
}
