//! Pages of Parquet files, decoded where the columns are to lie: [`decompress`] undoes what pages are compressed by, [`decode`] makes
//! stored values of them, and [`facts`] finds what is known of a column by all of its rows.
//!
//! A page is a warp's, whose lanes share what they read of it: a page's runs and sequences can only be told one after the other, but the
//! values of a run, and the bytes of a sequence, side by side. There are thousands of pages in a table that takes time to read.
//!
//! What pages say of themselves is no fact: each place and length is held against the page's bytes before it is used, and a page that
//! is damaged, or has values beyond the bounds that the column was promised to have, is told by its word of `status`
//! ([`DAMAGED`], [`BEYOND`]). Then the host reads the column, and says what is wrong.
//!
//! Pages are described by [`WORDS`] words (`u64`) each:
//!
//! | word | what |
//! |---|---|
//! | [`SOURCE`] | the byte of `source` that it begins with |
//! | [`LENGTHS`] | its bytes there, and from bit 32 on those that it has decompressed |
//! | [`TARGET`] | the byte of `scratch` that it is decompressed to |
//! | [`FIRST_ROW`] | the row of the column that it begins with |
//! | [`ROWS`] | its rows, and from bit 32 on how many bytes before its values are as they are (levels of version 2) |
//! | [`DICTIONARY`] | the first entry of its dictionary among those of all, and from bit 32 on how many it has |
//! | [`KIND`] | its codec ([`STORED`], [`SNAPPY`], [`LZ4`]), and [`IS_DICTIONARY`], [`HAS_LENGTH`] (of its levels, as in version 1), [`HAS_LEVELS`] |

pub mod decode;
pub mod decompress;
pub mod facts;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Builtin, Pointee, Scalar, Space, Type};

use crate::shape::LaunchShape;

/// Words of a page's description.
pub const WORDS: usize = 8;
/// Where it is in `source`.
pub const SOURCE: usize = 0;
/// Its bytes, compressed and not.
pub const LENGTHS: usize = 1;
/// Where it goes in `scratch`.
pub const TARGET: usize = 2;
/// Its first row.
pub const FIRST_ROW: usize = 3;
/// Its rows, and the bytes that are not compressed.
pub const ROWS: usize = 4;
/// Its dictionary.
pub const DICTIONARY: usize = 5;
/// What it is.
pub const KIND: usize = 6;

/// A codec: bytes as they are.
pub const STORED: u64 = 0;
/// A codec: Snappy's raw format.
pub const SNAPPY: u64 = 1;
/// A codec: blocks of LZ4.
pub const LZ4: u64 = 2;
/// The bits of a page's kind that are its codec.
pub const CODEC: u64 = 3;
/// Its values are places in a dictionary; else they are as they are.
pub const IS_DICTIONARY: u64 = 1 << 2;
/// Its rows have definition levels of one bit.
pub const HAS_LEVELS: u64 = 1 << 3;
/// These stand behind their length.
pub const HAS_LENGTH: u64 = 1 << 4;

/// The status of a page that does not hold what it says.
pub const DAMAGED: u32 = 1;
/// The status of a page with values out of the column's bounds.
pub const BEYOND: u32 = 2;

/// Calls `body` for each page of this warp with its number (`i64`), the same in all of its lanes. `pages`: how many there are, `i64`.
fn for_pages(b: &mut Builder, shape: &LaunchShape, pages: V, body: impl FnOnce(&mut Builder, V)) {
    let (thread, lanes) = (b.builtin(Builtin::ThreadId), b.builtin(Builtin::Lanes));
    let warp = match shape.warps() {
        1 => b.u32(0),
        _ => b.div(thread, lanes),
    };
    let (block, blocks) = (b.builtin(Builtin::BlockId), b.builtin(Builtin::GridDim));
    let warps = b.u32(shape.warps());
    let first = b.mul(block, warps);
    let first = b.add(first, warp);
    let step = b.mul(blocks, warps);
    let (first, step) = (b.convert(first, Scalar::I64), b.convert(step, Scalar::I64));
    super::for_range(b, first, pages, step, body);
}

/// The words of a page.
struct Words {
    pages: V,
    page: V,
}

impl Words {
    fn word(&self, b: &mut Builder, word: usize) -> V {
        let words = b.i64(WORDS as i64);
        let first = b.mul(self.page, words);
        let offset = b.i64(word as i64);
        let index = b.add(first, offset);
        b.element(self.pages, index)
    }

    /// The lower and the upper half of one, `u32`.
    fn halves(&self, b: &mut Builder, word: usize) -> (V, V) {
        let word = self.word(b, word);
        let half = b.u64(32);
        let upper = b.binary(BinaryOp::Shr, word, half);
        (b.convert(word, Scalar::U32), b.convert(upper, Scalar::U32))
    }
}

/// The type of an array of bytes.
fn bytes_type() -> Type {
    Type::Ptr(Space::Global, Pointee::Scalar(Scalar::U8))
}

/// A byte of an array that nothing writes, as `u32`.
fn byte(b: &mut Builder, bytes: V, at: V) -> V {
    let byte = b.element(bytes, at);
    b.convert(byte, Scalar::U32)
}
