//! Hash tables and what they are made of, for groups and joins (design, section 3): keys packed into a word, columns
//! stored a slot or row, stores of rows, and indexes over such a store: by open addressing or directly, with buckets where a
//! key has many rows.

mod bloom;
pub mod bounds;
mod buckets;
pub(crate) mod chunks;
pub mod index;
pub(crate) mod joined;
pub mod packed;
pub(crate) mod places;
pub(crate) mod probing;
mod ranks;
pub mod rows;
mod slots;
pub mod stored;
pub(crate) mod together;

use kelpie_kir::builder::V;

pub(crate) use self::bloom::set_bits;
use crate::context::{Context, Status};

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
