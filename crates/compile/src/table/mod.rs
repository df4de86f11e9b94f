//! What the tables of groups and joins are made of (design, section 3): keys packed into a word, columns stored a slot or row, stores of
//! rows, open addressing over such a store, ranges of keys that are slots, bitmaps, buckets where a key has many rows, and trees of greatest numbers.

pub(crate) mod bitmap;
mod bloom;
pub mod bounds;
pub(crate) mod buckets;
pub(crate) mod chunks;
pub(crate) mod joined;
pub(crate) mod key_range;
pub(crate) mod key_rows;
pub(crate) mod max_tree;
pub mod packed;
pub(crate) mod places;
pub(crate) mod probing;
pub mod rows;
pub(crate) mod shared_keys;
pub mod stored;

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

pub(crate) use self::bloom::set_bits;
use crate::context::{Argument, Context, Status};

/// Asks for more room: places are taken one after the other, so that one thread takes the first that does not exist
/// (`is_first`). On a GPU only that one says so: the status word is host memory, which takes millions of rows seconds.
pub(crate) fn report_growth(cx: &mut Context<'_>, is_first: V) {
    let alone = cx.shape.block_threads > 1;
    if alone {
        cx.begin_if(is_first);
    }
    cx.builder.report(Status::Grow as u32);
    if alone {
        cx.end();
    }
}

/// A state of `u32`s as an argument of the kernel.
pub(crate) fn array(cx: &mut Context<'_>, name: &str, state: usize) -> V {
    cx.argument(name, Type::global(Scalar::U32), Argument::State(state))
}
