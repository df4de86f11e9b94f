//! Narrow keys of a radix sort. Where the bits of a word that differ lie within 32, the sort moves these alone: half the bytes of the word in
//! each pass. A word is made narrow where it is read for the first time, by the scatter of its first digit or by
//! [`GATHER_NARROW`]; [`WIDEN`] makes words of the sorted keys where somebody wants them.
//!
//! | kernel | parameters after `rows`, `tile_rows` (`i64`) |
//! |---|---|
//! | [`GATHER_NARROW`] | `words: u64[]`, `order: u32[]`, `base: u32` (the lowest bit of a key), `keys: u32[]` (written) |
//! | [`WIDEN`] | `keys: u32[]`, `base: u32`, `rest: u64` (the other bits of the words), `words: u64[]` (written) |
//! | [`COUNT_NARROW`] | those of [`radix::COUNT`], of narrow keys |
//! | [`SCATTER_NARROWING`], [`SCATTER_NARROW`] | those of [`radix::SCATTER`], whose first argument are words or narrow keys |

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Module, Scalar, TypeError};

use super::radix;
use super::{array, begin, for_elements, param};
use crate::shape::LaunchShape;

/// Bits of a narrow key.
pub const NARROW_BITS: u32 = u32::BITS;
/// Brings words into an order, as narrow keys.
pub const GATHER_NARROW: &str = "radix_gather_narrow";
/// Makes words of narrow keys.
pub const WIDEN: &str = "radix_widen";
/// Counts a digit of narrow keys a tile.
pub const COUNT_NARROW: &str = "radix_count_narrow";
/// Moves words and values to the places of their digits, and makes narrow keys of the words.
pub const SCATTER_NARROWING: &str = "radix_scatter_narrowing";
/// Moves narrow keys and values to the places of their digits.
pub const SCATTER_NARROW: &str = "radix_scatter_narrow";

/// What keys are before and after a pass moves them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moved {
    /// Words.
    Wide,
    /// Words that become narrow keys.
    Narrowing,
    /// Narrow keys.
    Narrow,
}

impl Moved {
    /// All of them.
    pub const ALL: [Moved; 3] = [Moved::Wide, Moved::Narrowing, Moved::Narrow];

    /// What is read.
    pub fn from(self) -> Scalar {
        match self {
            Moved::Wide | Moved::Narrowing => Scalar::U64,
            Moved::Narrow => Scalar::U32,
        }
    }

    /// What is written.
    pub fn to(self) -> Scalar {
        match self {
            Moved::Wide => Scalar::U64,
            Moved::Narrowing | Moved::Narrow => Scalar::U32,
        }
    }

    /// The key that is written for one that is read; `base`: the lowest bit that it keeps.
    pub(super) fn key(self, b: &mut Builder, read: V, base: V) -> V {
        match self {
            Moved::Wide | Moved::Narrow => read,
            Moved::Narrowing => narrowed(b, read, base),
        }
    }
}

/// The kernels.
pub fn module(shape: &LaunchShape) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    gather(&mut b);
    widen(&mut b);
    radix::count(&mut b, shape, (COUNT_NARROW, Scalar::U32));
    radix::scatter(&mut b, shape, (SCATTER_NARROWING, Moved::Narrowing));
    radix::scatter(&mut b, shape, (SCATTER_NARROW, Moved::Narrow));
    b.finish()
}

/// The bits of a word from `base` (`u32`) on, as far as they fit.
fn narrowed(b: &mut Builder, word: V, base: V) -> V {
    let base = b.convert(base, Scalar::U64);
    let shifted = b.binary(BinaryOp::Shr, word, base);
    b.convert(shifted, Scalar::U32)
}

fn gather(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, GATHER_NARROW);
    let (words, order) = (array(b, "words", Scalar::U64), array(b, "order", Scalar::U32));
    let (base, keys) = (param(b, "base", Scalar::U32), array(b, "keys", Scalar::U32));
    for_elements(b, rows, tile_rows, |b, element| {
        let place = b.element(order, element);
        let word = b.element(words, place);
        let (pointer, key) = (b.offset(keys, element), narrowed(b, word, base));
        b.store(pointer, key);
    });
    b.end_kernel();
}

fn widen(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, WIDEN);
    let (keys, base) = (array(b, "keys", Scalar::U32), param(b, "base", Scalar::U32));
    let (rest, words) = (param(b, "rest", Scalar::U64), array(b, "words", Scalar::U64));
    for_elements(b, rows, tile_rows, |b, element| {
        let key = b.element(keys, element);
        let (key, base) = (b.convert(key, Scalar::U64), b.convert(base, Scalar::U64));
        let shifted = b.binary(BinaryOp::Shl, key, base);
        let (pointer, word) = (b.offset(words, element), b.or(shifted, rest));
        b.store(pointer, word);
    });
    b.end_kernel();
}
