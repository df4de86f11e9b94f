//! The word by which a global sort brings the rows of a group together (HorseQC, Table 4, C1).
//!
//! Keys that fit into 63 bits are packed: bits in which they do not differ cost the radix sort nothing. Of others it is the
//! upper half of their hash, so that half as many digits are sorted; rows of two groups with one hash may lie among each
//! other, which costs updates of their table, not answers.

use kelpie_kir::BinaryOp;
use kelpie_kir::builder::V;

use crate::context::{Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::lower::hashing::{hash_keys, is_wide};
use crate::table::packed::{PackedKey, pack};
use crate::variant::axes::HashFunction;

/// Bits of a hash that are left out.
const LEFT_OUT: u64 = 32;

/// How the word is made of the first columns of a row.
#[derive(Debug, Clone)]
pub enum GroupWord {
    /// The keys themselves.
    Packed(Vec<PackedKey>),
    /// A hash; for each key whether its integers may go beyond 64 bits.
    Hashed(Vec<bool>),
}

impl GroupWord {
    /// Of these keys.
    pub fn plan(keys: &[ColumnInfo]) -> GroupWord {
        match pack(keys) {
            Some(packed) => GroupWord::Packed(packed),
            None => GroupWord::Hashed(keys.iter().map(is_wide).collect()),
        }
    }

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        match self {
            GroupWord::Packed(keys) => keys.len(),
            GroupWord::Hashed(wide) => wide.len(),
        }
    }

    /// The word of the current row, `u64`.
    pub fn word(&self, cx: &mut Context<'_>) -> Result<V, Unsupported> {
        match self {
            GroupWord::Packed(keys) => {
                let mut word = cx.builder.u64(0);
                for (index, key) in keys.iter().enumerate() {
                    let value = cx.column(index)?;
                    let bits = key.encode(cx, &value)?;
                    word = cx.builder.or(word, bits);
                }
                Ok(word)
            }
            GroupWord::Hashed(wide) => {
                let values = (0..wide.len()).map(|index| cx.column(index)).collect::<Result<Vec<_>, _>>()?;
                let pairs: Vec<_> = values.iter().zip(wide.iter().copied()).collect();
                let hash = hash_keys(cx, &pairs, HashFunction::Murmur3);
                let bits = cx.builder.u64(LEFT_OUT);
                Ok(cx.builder.binary(BinaryOp::Shr, hash, bits))
            }
        }
    }
}
