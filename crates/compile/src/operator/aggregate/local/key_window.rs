//! A window that has the keys of its groups: a hash table in a block's memory, for rows that come part by part.
//!
//! Where a hash table of all groups is large, each row that looks for its slot there waits for the device's memory. So the groups of a
//! part are found in a table of the block (Karnagel et al., section 5.1, have one for few groups; parts make any number few), and once
//! the part's rows are added up each group looks for its slot in the table of all: once a group, not once a row.
//!
//! Keys are those that one word has. A place is never given back while a part's rows come, so a group whose rows found no place
//! among the first few has none for all of them: it is in the window, or in the table of all, never in both.

use crate::operator::aggregate::block_loop::clear;
use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Pointee, Scalar};

use super::preaggregation::search;
use crate::context::Context;
use crate::operator::aggregate::keys::KeyWord;

/// Places that a search looks at.
const STEPS: i32 = 16;

#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyWindow {
    /// The entry of each group's keys, or 0; `ptr<shared, u64>`.
    entries: V,
    /// A power of two.
    places: u32,
    /// Highest bits of a hash that the keys of a part have in common.
    bits: u32,
}

impl KeyWindow {
    /// Bytes of a place beside the group's cells.
    pub const BYTES: u64 = 8;

    /// No place is taken. A barrier must follow.
    pub fn begin(cx: &mut Context<'_>, places: u32, bits: u32) -> KeyWindow {
        let entries = cx.builder.shared("window_keys", Pointee::Scalar(Scalar::U64), places);
        let window = KeyWindow { entries, places, bits };
        window.clear(cx);
        window
    }

    /// Gives all places back. Ends without a barrier.
    pub fn clear(&self, cx: &mut Context<'_>) {
        clear(cx, self.entries, Scalar::U64, self.places);
    }

    /// The entry of a place (`i64`): `u64`, 0 where it is free. Not while rows come.
    pub fn entry(&self, cx: &mut Context<'_>, place: V) -> V {
        let pointer = cx.builder.offset(self.entries, place);
        cx.builder.load(pointer)
    }

    /// The place (`i64`) of keys with a word, and whether they have one (`bool`): a free one is taken.
    pub fn find(&self, cx: &mut Context<'_>, word: KeyWord) -> (Var, Var) {
        let first = self.first_place(cx, word.hash);
        let b = &mut *cx.builder;
        let no = b.bool(false);
        let (place, found) = (b.var_of("window_place", first), b.var_of("in_window", no));
        let entry = |cx: &mut Context<'_>, place| cx.builder.offset(self.entries, place);
        search(cx, (self.places, STEPS), word.entry, (place, found), &entry);
        (place, found)
    }

    /// Where a search for a hash begins: by the bits behind those of the part.
    fn first_place(&self, cx: &mut Context<'_>, hash: V) -> V {
        let b = &mut *cx.builder;
        let rest = b.shl_int(hash, self.bits);
        let shift = b.u64(u64::from(u64::BITS - self.places.ilog2().max(1)));
        let place = b.binary(BinaryOp::Shr, rest, shift);
        let place = b.and_int(place, u64::from(self.places) - 1);
        b.bitcast(place, Scalar::I64)
    }
}
