//! Partitions of rows by a hash of their keys, for state that is made part by part.

use kelpie_kir::{BinaryOp, Scalar};

use crate::context::{Context, Lowered, Repr, Unsupported};
use crate::expr::Expr;
use crate::lower::hashing::hash_keys;
use crate::types::{DataType, Range};
use crate::variant::axes::HashFunction;

/// Bits of the hash below those that choose the part: tables use the lowest ones.
const SHIFT: u64 = 40;

/// The part (of 2 to the power of `bits`) that the keys' hash chooses.
pub fn lower_part(cx: &mut Context<'_>, bits: u32, keys: &[Expr]) -> Result<Lowered, Unsupported> {
    let mut lowered = Vec::new();
    for key in keys {
        // By type, not by range: both sides of a join must come to the same part.
        let wide = matches!(key.data_type, DataType::Decimal128 { .. } | DataType::UInt64);
        lowered.push((cx.lower(key)?, wide));
    }
    let keys: Vec<(&Lowered, bool)> = lowered.iter().map(|(key, wide)| (key, *wide)).collect();
    let hash = hash_keys(cx, &keys, HashFunction::Murmur3);
    let b = &mut *cx.builder;
    let (shift, most) = (b.u64(SHIFT), (1u64 << bits.min(16)) - 1);
    let mask = b.u64(most);
    let part = b.binary(BinaryOp::Shr, hash, shift);
    let part = b.and(part, mask);
    let part = b.convert(part, Scalar::I32);
    Ok(Lowered { repr: Repr::Scalar(part), valid: None, range: Some(Range { min: 0, max: most.into() }) })
}
