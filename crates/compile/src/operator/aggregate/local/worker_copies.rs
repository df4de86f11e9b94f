//! Near copies of a CPU's worker that are found by the keys of their group, without a look into the table of all groups.
//!
//! The copies are in buckets of [`WAYS`], whose entries lie side by side and are compared at once: a search is one comparison
//! whose outcome a processor foretells where most groups have copies. (A search from place to place ends sooner or later as the
//! hash has it, which no processor foretells: at 60 % taken places it costs more than the atomics that the copies save.) Where a
//! bucket is full, the next ones are looked at, [`BUCKETS`] in all.
//!
//! What is done for each row is kept short: a processor waits for the second-level cache twice a row, and how many rows it works
//! on meanwhile depends on how few instructions they have.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Pointee, Scalar, UnaryOp};

use super::preaggregation::{PreaggregationTable, WORKER_CREDIT, WORKER_GAIN, first_place};
use crate::context::{Context, Unsupported};
use crate::operator::aggregate::block_loop::clear;
use crate::operator::aggregate::keys::KeyWord;

/// Places of a bucket, a power of two.
const WAYS: u8 = 4;
/// Buckets that a group's copy may be in.
const BUCKETS: i32 = 3;

/// What a search found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    /// The copy, or the free place for one (`i64`).
    pub copy: Var,
    /// There is a copy (`bool`).
    pub is_near: Var,
    /// There is a place for one (`bool`).
    pub is_free: Var,
}

/// Whether keys with a copy's (`i64`) entry are those of its group.
pub(crate) type Same<'f> = dyn Fn(&mut Context<'_>, &KeyArrays, V) -> Result<V, Unsupported> + 'f;

/// What is known of the copies' keys: arrays of their own, as the cells of a copy should be few bytes.
#[derive(Debug)]
pub(crate) struct KeyArrays {
    /// The entry of each copy's keys, or 0; `ptr<shared, u64>`.
    entries: V,
    /// The slot of its group in the table of all; `ptr<shared, i64>`.
    slots: V,
}

impl KeyArrays {
    /// None of the copies is taken.
    pub fn begin(cx: &mut Context<'_>, copies: u32) -> KeyArrays {
        let entries = cx.builder.shared("near_entries", Pointee::Scalar(Scalar::U64), copies);
        clear(cx, entries, Scalar::U64, copies);
        let slots = cx.builder.shared("near_slots", Pointee::Scalar(Scalar::I64), copies);
        KeyArrays { entries, slots }
    }

    /// The entry of a copy (`i64`): `u64`, 0 where the place is free.
    pub fn entry(&self, cx: &mut Context<'_>, copy: V) -> V {
        cx.builder.element(self.entries, copy)
    }

    /// The slot of a copy's group, `i64`.
    pub fn slot(&self, cx: &mut Context<'_>, copy: V) -> V {
        cx.builder.element(self.slots, copy)
    }
}

impl PreaggregationTable {
    /// Looks for the copy of the group of keys, where that pays.
    pub fn find_keys(
        &self,
        cx: &mut Context<'_>,
        word: KeyWord,
        same: &Same<'_>,
    ) -> Result<Spot, Unsupported> {
        let keys = self.keys.as_ref().ok_or_else(|| Unsupported::internal("near copies without keys"))?;
        let b = &mut *cx.builder;
        let (zero, no) = (b.i64(0), b.bool(false));
        let copy = b.var_of("copy", zero);
        let spot = Spot { copy, is_near: b.var_of("is_near", no), is_free: b.var_of("is_free", no) };
        let (credit, none) = (b.read(self.credit), b.i64(0));
        let looks = b.ge(credit, none);
        cx.begin_if(looks);
        let buckets = self.copies / u32::from(WAYS);
        let first = first_place(cx, word.entry, buckets);
        let b = &mut *cx.builder;
        let (bucket, steps) = (b.var_of("bucket", first), b.i32(0));
        let steps = b.var_of("steps", steps);
        cx.begin_loop();
        let b = &mut *cx.builder;
        let (number, ways) = (b.read(bucket), b.i64(WAYS.into()));
        let place = b.mul(number, ways);
        let entries = b.offset(keys.entries, place);
        let bits = equal_bits(cx, entries, word.entry);
        let found = is_any(cx, bits);
        cx.begin_if(found);
        let at = first_of(cx, bits, place);
        cx.builder.assign(copy, at);
        let same = same(cx, keys, at)?;
        cx.builder.assign(spot.is_near, same);
        cx.builder.break_loop();
        cx.end();
        let nothing = cx.builder.u64(0);
        let bits = equal_bits(cx, entries, nothing);
        let free = is_any(cx, bits);
        let at = first_of(cx, bits, place);
        let b = &mut *cx.builder;
        b.assign(copy, at);
        b.assign(spot.is_free, free);
        b.break_if(free);
        let (taken, one, most) = (b.read(steps), b.i32(1), b.i32(BUCKETS));
        let taken = b.add(taken, one);
        b.assign(steps, taken);
        let done = b.ge(taken, most);
        b.break_if(done);
        let (one, mask) = (b.i64(1), b.i64(i64::from(buckets) - 1));
        let next = b.add(number, one);
        let next = b.and(next, mask);
        b.assign(bucket, next);
        cx.end();
        cx.end();
        Ok(spot)
    }

    /// The worker's credit after a row whose group has a copy.
    pub fn gain_credit(&self, cx: &mut Context<'_>) {
        let b = &mut *cx.builder;
        let (credit, gain) = (b.read(self.credit), b.i64(WORKER_GAIN.into()));
        let credit = b.add(credit, gain);
        b.assign(self.credit, credit);
    }

    /// Whether copies are no longer looked for (`bool`).
    pub fn is_off(&self, cx: &mut Context<'_>) -> V {
        let (credit, none) = (cx.builder.read(self.credit), cx.builder.i64(0));
        cx.builder.lt(credit, none)
    }

    /// Makes the copy of the group in `slot` (`i64`) where the search has found a place for one.
    pub fn take(&self, cx: &mut Context<'_>, spot: Spot, word: KeyWord, slot: V) {
        let Some(keys) = &self.keys else { return cx.impossible("near copies without keys") };
        let free = cx.builder.read(spot.is_free);
        cx.begin_if(free);
        let copy = cx.builder.read(spot.copy);
        let entry = cx.builder.offset(keys.entries, copy);
        cx.builder.store(entry, word.entry);
        let pointer = cx.builder.offset(keys.slots, copy);
        cx.builder.store(pointer, slot);
        let yes = cx.builder.bool(true);
        cx.builder.assign(spot.is_near, yes);
        cx.end();
    }

    /// The worker's credit after a row whose group has no copy. A free place costs nothing: it becomes a copy.
    pub fn lose_credit(&self, cx: &mut Context<'_>, spot: Spot) {
        let b = &mut *cx.builder;
        let (credit, one, none) = (b.read(self.credit), b.i64(1), b.i64(0));
        let is_free = b.read(spot.is_free);
        let loss = b.select(is_free, none, one);
        let (least, most) = (b.i64(-1), b.i64(WORKER_CREDIT.into()));
        let credit = b.binary(BinaryOp::Min, credit, most);
        let credit = b.sub(credit, loss);
        let credit = b.binary(BinaryOp::Max, credit, least);
        b.assign(self.credit, credit);
    }
}

/// Which entries of a bucket are the one wanted: `u32`, a bit each.
fn equal_bits(cx: &mut Context<'_>, entries: V, wanted: V) -> V {
    let has_vectors = cx.target.has_vectors();
    let b = &mut *cx.builder;
    if has_vectors {
        let (entries, wanted) = (b.load_vector(entries, WAYS), b.splat(wanted, WAYS));
        let equal = b.eq(entries, wanted);
        return b.mask_bits(equal);
    }
    let mut bits = b.u32(0);
    for way in 0..WAYS {
        let (index, shift) = (b.i32(way.into()), b.u32(way.into()));
        let entry = b.element(entries, index);
        let equal = b.eq(entry, wanted);
        let equal = b.convert(equal, Scalar::U32);
        let bit = b.binary(BinaryOp::Shl, equal, shift);
        bits = b.or(bits, bit);
    }
    bits
}

fn is_any(cx: &mut Context<'_>, bits: V) -> V {
    cx.builder.ne_int(bits, 0)
}

/// The place (`i64`) of the first bit that is set, of a bucket that begins at `first`; any place where none is.
fn first_of(cx: &mut Context<'_>, bits: V, first: V) -> V {
    let b = &mut *cx.builder;
    let less = b.sub_int(bits, 1);
    let others = b.not(bits);
    let below = b.and(less, others);
    let number = b.unary(UnaryOp::Popcount, below);
    let number = b.convert(number, Scalar::I64);
    b.add(first, number)
}
