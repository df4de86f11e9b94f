//! The parts of an index: slots that lie near each other, which rows are looked up in and put into one part after the other.
//!
//! The part of a row is where its search begins, by the highest bits of that. It is about order alone: rows whose keys are NULL or
//! beyond the range of the slots, which find nothing, may be of any part.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use super::{Index, Kind, SLOT_BYTES, offset_from, scalar_of};
use crate::context::{Context, Lowered, Unsupported};
use crate::table::slots::Slots;

/// Bits of a byte.
const BYTE: u64 = 8;

impl Index {
    /// What it lacks for its rows to come in parts.
    pub(crate) fn lacks_parts(&self) -> Option<&'static str> {
        matches!(self.kind, Kind::All).then_some("without keys a row is compared with all others")
    }

    /// The same, where rows come in parts.
    pub(crate) fn in_parts(self) -> Index {
        let kind = match self.kind {
            Kind::Hashed { table, rows } => Kind::Hashed { table: table.in_parts(), rows },
            Kind::All | Kind::Direct { .. } => self.kind,
        };
        Index { kind, ..self }
    }

    /// The part (`u32`) of a row with these keys, of which `bits` bits are the number.
    pub(crate) fn part(&self, cx: &mut Context<'_>, keys: &[Lowered], bits: u32) -> Result<V, Unsupported> {
        match (self.kind, keys) {
            (Kind::Hashed { table, .. }, _) => Ok(table.part(cx, keys, &self.wide, bits)),
            (Kind::Direct { min, max, .. }, [key]) => {
                let value = scalar_of(key)?;
                let slot = offset_from(cx, value, min);
                let b = &mut *cx.builder;
                let slot = b.bitcast(slot, Scalar::U64);
                let shift = b.u64(part_shift(min, max, bits).into());
                let part = b.binary(BinaryOp::Shr, slot, shift);
                // What is beyond the range is spread over the parts.
                let (mask, last) = (b.u64((1 << bits) - 1), b.u64(self.parts_used(bits) - 1));
                let part = b.and(part, mask);
                let part = b.binary(BinaryOp::Min, part, last);
                Ok(b.convert(part, Scalar::U32))
            }
            _ => Err(Unsupported::internal("parts of an index that has none")),
        }
    }

    /// How many of the parts may have rows; at least one.
    pub(crate) fn parts_used(&self, bits: u32) -> u64 {
        match self.kind {
            Kind::Direct { min, max, .. } => {
                let last = u64::try_from(max.saturating_sub(min)).unwrap_or(u64::MAX);
                (last >> part_shift(min, max, bits)) + 1
            }
            Kind::All | Kind::Hashed { .. } => 1 << bits,
        }
    }

    /// Bytes, about, that searches look at where so many rows are put in, each with so many bytes of keys: at least.
    pub(crate) fn bytes_searched(&self, rows: u64, key_bytes: u64) -> u64 {
        match self.kind {
            Kind::All => 0,
            Kind::Direct { min, max, slots } => {
                let count = u64::try_from(max.saturating_sub(min)).unwrap_or(u64::MAX).saturating_add(1);
                match slots {
                    Slots::Exists { .. } => count / BYTE,
                    // The bits and the counts of words, and the rows' numbers.
                    Slots::Ranked(_) => (count / BYTE * 2).saturating_add(rows.saturating_mul(SLOT_BYTES)),
                    _ => count.saturating_mul(SLOT_BYTES),
                }
            }
            Kind::Hashed { .. } => {
                let slots = rows.saturating_mul(2).checked_next_power_of_two().unwrap_or(u64::MAX);
                slots.saturating_mul(SLOT_BYTES).saturating_add(rows.saturating_mul(key_bytes))
            }
        }
    }
}

/// Bits of a slot's number behind those that are its part's, where slots are those of a range of keys. At most 63.
fn part_shift(min: i128, max: i128, bits: u32) -> u32 {
    let last = u64::try_from(max.saturating_sub(min)).unwrap_or(u64::MAX);
    let used = u64::BITS - last.leading_zeros();
    used.saturating_sub(bits)
}

#[cfg(test)]
mod tests {
    use super::part_shift;

    #[test]
    fn a_part_is_the_highest_bits_of_a_slot() {
        for (last, bits, shift) in [(0, 4, 0), (15, 4, 0), (16, 4, 1), (1023, 4, 6), (1024, 10, 1)] {
            assert_eq!(part_shift(-3, last - 3, bits), shift, "{last} {bits}");
        }
    }
}
