//! The word that a number of rows do not exceed, of words in order: what bounds the rows that come later
//! (`operator/sort/bound`). One thread's work, so that the host need not wait for it.
//!
//! The kernel [`WORD`] takes these parameters:
//!
//! | parameter | what it is |
//! |---|---|
//! | `words: u64[wanted]` | the words in order; as many as there are, at most `wanted` |
//! | `delivered: u64[1]` | how many there are |
//! | `wanted: u64` | how many are not to be exceeded, one at least |
//! | `bound: u64[1]` | written, where there are as many: the complement of the last of them |

use kelpie_kir::{BinaryOp, Builder, Builtin, Module, Scalar, TypeError};

use super::{array, param};

/// Takes the bound.
pub const WORD: &str = "bound_word";

/// The kernel.
pub fn module() -> Result<Module, TypeError> {
    let mut b = Builder::new();
    b.begin_kernel(WORD);
    let (words, delivered) = (array(&mut b, "words", Scalar::U64), array(&mut b, "delivered", Scalar::U64));
    let (wanted, bound) = (param(&mut b, "wanted", Scalar::U64), array(&mut b, "bound", Scalar::U64));
    let (block, thread) = (b.builtin(Builtin::BlockId), b.builtin(Builtin::ThreadId));
    let (both, zero) = (b.binary(BinaryOp::Or, block, thread), b.u32(0));
    let is_first = b.eq(both, zero);
    b.begin_if(is_first);
    let there = b.load(delivered);
    let suffices = b.ge(there, wanted);
    b.begin_if(suffices);
    let one = b.u64(1);
    let last = b.sub(wanted, one);
    let word = b.element(words, last);
    let complement = b.not(word);
    b.store(bound, complement);
    b.end();
    b.end();
    b.end_kernel();
    b.finish()
}
