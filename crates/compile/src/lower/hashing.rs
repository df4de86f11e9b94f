//! Hashes of values: equal for equal keys, whatever register they stand in.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use crate::context::register_type;
use crate::context::{Context, Lowered, Repr, Text};
use crate::layout::ColumnInfo;
pub use crate::lower::text::hashing::SHORT;
use crate::lower::text::hashing::hash_as_key;
use crate::lower::{hash_text, text_hash_in_any_order};
use crate::variant::axes::HashFunction;

/// 2⁶⁴ divided by the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4: multiplicative hashing).
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Why the rule takes MurmurHash3.
pub const HASH_RULE: &str = "keys of any pattern are spread evenly, in few instructions";
/// What takes the place of NULL's bits.
const NULL_BITS: u64 = 0x9e37_79b9_7f4a_7c15;

/// How keys are hashed: all that look for the keys of a table, or put some in, do it in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash {
    pub function: HashFunction,
    pub texts: TextHash,
}

/// How a text becomes 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextHash {
    /// Word after word, each mixed with what was made of those before.
    Chained,
    /// Each word by itself with its place, then all of them in any order: several lanes can take one text.
    AnyOrder,
}

impl From<HashFunction> for KeyHash {
    fn from(function: HashFunction) -> KeyHash {
        KeyHash { function, texts: TextHash::Chained }
    }
}

/// The finalizer of MurmurHash3: every bit of the input reaches every bit of the output.
pub fn mix(cx: &mut Context<'_>, value: V) -> V {
    let b = &mut *cx.builder;
    let mut value = value;
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        let high = b.shr_int(value, 33);
        value = b.binary(BinaryOp::Xor, value, high);
        value = b.mul_int(value, factor);
    }
    let high = b.shr_int(value, 33);
    b.binary(BinaryOp::Xor, value, high)
}

/// A word spread over all hashes by a function; the upper bits are good ones ([`low_bits`]).
pub fn spread(cx: &mut Context<'_>, function: HashFunction, value: V) -> V {
    match function {
        HashFunction::Murmur3 => mix(cx, value),
        HashFunction::Fnv1a => fnv1a(cx, value),
        HashFunction::MultiplyShift => cx.builder.mul_int(value, GOLDEN),
    }
}

/// A hash whose lower bits are good ones too: of a product they do not depend on the upper bits of the value.
pub fn low_bits(cx: &mut Context<'_>, function: HashFunction, hash: V) -> V {
    if function != HashFunction::MultiplyShift {
        return hash;
    }
    let b = &mut *cx.builder;
    let high = b.shr_int(hash, u64::from(u64::BITS / 2));
    b.binary(BinaryOp::Xor, hash, high)
}

/// FNV-1a of the word's eight bytes, the lowest first (Karnagel et al., section 3).
fn fnv1a(cx: &mut Context<'_>, value: V) -> V {
    let b = &mut *cx.builder;
    let (prime, byte) = (b.u64(0x0100_0000_01b3), b.u64(0xff));
    let mut hash = b.u64(0xcbf2_9ce4_8422_2325);
    for index in 0..8 {
        let shifted = b.shr_int(value, 8 * index);
        let low = b.and(shifted, byte);
        hash = b.binary(BinaryOp::Xor, hash, low);
        hash = b.mul(hash, prime);
    }
    hash
}

/// Whether a column's integers may go beyond 64 bits: both sides of a join must hash alike.
pub fn is_wide(info: &ColumnInfo) -> bool {
    register_type(&info.data_type, info.range) == Scalar::I128
}

/// The hash of several keys.
pub fn hash_keys(cx: &mut Context<'_>, keys: &[(&Lowered, bool)], hash: impl Into<KeyHash>) -> V {
    let KeyHash { function, texts } = hash.into();
    let mut hash: Option<V> = None;
    for (key, wide) in keys {
        let bits = key_bits(cx, (key, *wide), texts);
        hash = Some(with_bits(cx, function, hash, bits));
    }
    match hash {
        Some(hash) => spread(cx, function, hash),
        None => cx.builder.u64(0),
    }
}

/// The hash of a key that is a text, which tells all of a text of less than a word ([`SHORT`]).
pub fn hash_of_text_key(cx: &mut Context<'_>, text: &Text, valid: Option<V>) -> V {
    let hash = hash_as_key(cx, text);
    match valid {
        Some(valid) => {
            let null = cx.builder.u64(NULL_BITS & !(2 * SHORT - 1));
            cx.builder.select(valid, hash, null)
        }
        None => hash,
    }
}

/// What is made of keys so far (`None`: there is none yet) with the bits of the next one; spread, it is the hash of all.
pub fn with_bits(cx: &mut Context<'_>, function: HashFunction, before: Option<V>, bits: V) -> V {
    match before {
        None => bits,
        Some(before) => {
            let mixed = spread(cx, function, before);
            cx.builder.add(mixed, bits)
        }
    }
}

/// 64 bits that are equal for equal keys. `wide`: the key's integers may go beyond 64 bits on some side.
pub fn key_bits(cx: &mut Context<'_>, (key, wide): (&Lowered, bool), texts: TextHash) -> V {
    let bits = match (&key.repr, texts) {
        (Repr::Text(text), TextHash::Chained) => hash_text(cx, text),
        (Repr::Text(text), TextHash::AnyOrder) => text_hash_in_any_order(cx, text),
        (Repr::Scalar(value), _) => scalar_bits(cx, *value, wide),
    };
    or_null_bits(cx, bits, key.valid)
}

/// A key's bits, which are others where it is NULL.
pub fn or_null_bits(cx: &mut Context<'_>, bits: V, valid: Option<V>) -> V {
    match valid {
        Some(valid) => {
            let null = cx.builder.u64(NULL_BITS);
            cx.builder.select(valid, bits, null)
        }
        None => bits,
    }
}

fn scalar_bits(cx: &mut Context<'_>, value: V, wide: bool) -> V {
    let value = normalized(cx, value);
    let b = &mut *cx.builder;
    match b.scalar(value) {
        Scalar::F32 => {
            let bits = b.bitcast(value, Scalar::U32);
            b.convert(bits, Scalar::U64)
        }
        Scalar::F64 => b.bitcast(value, Scalar::U64),
        scalar if wide || scalar == Scalar::I128 => {
            let value = b.convert(value, Scalar::I128);
            let low = b.convert(value, Scalar::U64);
            let high = b.shr_int(value, 64);
            let high = b.convert(high, Scalar::U64);
            let high = mix(cx, high);
            cx.builder.binary(BinaryOp::Xor, low, high)
        }
        _ => b.convert(value, Scalar::U64),
    }
}

/// The value with -0.0 as 0.0: the two are one key, as in DataFusion.
pub fn normalized(cx: &mut Context<'_>, value: V) -> V {
    let scalar = cx.builder.scalar(value);
    if !scalar.is_float() {
        return value;
    }
    let zero = cx.builder.zero(scalar);
    let is_zero = cx.builder.eq(value, zero);
    cx.builder.select(is_zero, zero, value)
}
