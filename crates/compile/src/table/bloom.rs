//! A Bloom filter of the keys of an index, each in one word: where a hash table lies beyond the caches, the filter tells of most keys
//! that are not in it, and is an eighth of the table's slots or less.
//!
//! A key has [`BITS`] bits of one word of 64, so that a search is one load and one comparison, and no more than a line of a cache
//! (register-blocked: Putze et al., “Cache-, Hash- and Space-Efficient Bloom Filters”, 2007; Lang et al., “Performance-Optimal Filtering”,
//! VLDB 2019). With 8 to 16 bits a row, of keys that are not there one in 30 to one in 180 passes (as simulated, of random hashes). A key
//! that is there always passes; who passes is looked up, so that the others never make a wrong row.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Scalar, Scope, Type};

use super::rows::RowStore;
use crate::context::{Argument, Context};
use crate::program::{Fill, Growth, States};

/// Bits of a key.
const BITS: u64 = 4;
/// Rows of a word, at most: 8 bits a row. The number of words is a power of two, so that there are up to 16.
const ROWS: u64 = 8;
/// The first of a hash's bits that say which bits of a word a key has, six each. Those below say which word: there are never so many.
const FIRST_BIT: u64 = 40;
/// Bits of the number of a bit in a word.
const NUMBER_BITS: u64 = 6;

/// The words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bloom {
    /// Their class, which takes its size from the places of the store.
    pub class: usize,
    /// State of one `u64` a word, zero before rows are put in.
    pub words: usize,
}

impl Bloom {
    /// Declares the words of an index over a store.
    pub fn plan(store: &RowStore, states: &mut States) -> Bloom {
        let class = states.class(1, Growth::Sized(store.place_count(), Fill { taken: ROWS, of: 1 }));
        Bloom { class, words: states.state("bloom", 8, class) }
    }

    /// The last word, `i64`: the count is a power of two.
    pub fn last(self, cx: &mut Context<'_>) -> V {
        let capacity = cx.argument("bloom_words", Scalar::I64, Argument::StateCapacity(self.words));
        cx.builder.sub_int(capacity, 1)
    }

    /// Notes that a key with this hash (`u64`), whose word (`i64`) it is, is there.
    pub fn insert(self, cx: &mut Context<'_>, (word, hash): (V, V)) {
        let words = self.array(cx);
        let pointer = cx.builder.offset(words, word);
        let bits = bits_of(cx, hash);
        set_bits(cx, pointer, bits);
    }

    /// Whether a key with this hash (`u64`), whose word (`i64`) it is, may be there (`bool`). `is_final`: nothing writes the words
    /// any more while the kernel runs.
    pub fn may_have(self, cx: &mut Context<'_>, (word, hash): (V, V), is_final: bool) -> V {
        let words = self.array(cx);
        let word = match is_final {
            true => cx.builder.element(words, word),
            false => {
                let pointer = cx.builder.offset(words, word);
                cx.builder.load(pointer)
            }
        };
        let bits = bits_of(cx, hash);
        let found = cx.builder.and(word, bits);
        cx.builder.eq(found, bits)
    }

    fn array(self, cx: &mut Context<'_>) -> V {
        cx.argument("bloom", Type::global(Scalar::U64), Argument::State(self.words))
    }
}

/// The bits that a key with this hash has in its word, `u64`.
fn bits_of(cx: &mut Context<'_>, hash: V) -> V {
    let b = &mut *cx.builder;
    let one = b.u64(1);
    let mut bits: Option<V> = None;
    for number in 0..BITS {
        // A distance counts modulo 64: what is above a number's six bits does not matter.
        let distance = b.shr_int(hash, FIRST_BIT + NUMBER_BITS * number);
        let bit = b.binary(BinaryOp::Shl, one, distance);
        bits = Some(match bits {
            Some(bits) => b.or(bits, bit),
            None => bit,
        });
    }
    bits.unwrap_or(one)
}

/// Sets bits of a word that are not set yet: looks first, as most are.
pub(crate) fn set_bits(cx: &mut Context<'_>, pointer: V, bits: V) {
    let old = cx.builder.atomic_load(pointer, Scope::Device);
    let set = cx.builder.and(old, bits);
    let missing = cx.builder.ne(set, bits);
    cx.begin_if(missing);
    cx.builder.atomic_discard(AtomicOp::Or, pointer, bits, Scope::Device);
    cx.end();
}
