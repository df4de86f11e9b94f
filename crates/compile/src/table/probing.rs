//! Open addressing with linear probing over rows of a store. A slot is one word of 32 bits: a number below, which is less than
//! the count of slots and never 0 (that is an empty slot), and in the bits that it leaves a part of the key's hash, the *tag*
//! (11 bits where there are 2 million slots). A search looks at tags first, so that few slots but those of its key cost a look
//! at the store, where the whole keys are compared.
//!
//! The last slot is never used: what is counted a slot ends where the next slot's begins (`table::buckets`). At most half of
//! the slots are taken, so that a search always comes to an empty one.

mod begun;
mod steps;
mod warp_searches;

pub(crate) use self::begun::Begun;
pub(crate) use self::steps::{SeenSlot, claim, search_together};

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Scalar, Scope, Type};

use super::bloom::Bloom;
use super::rows::RowStore;
use crate::context::{Argument, Context, Lowered, Status, Unsupported};
use crate::lower::hashing::{hash_keys, low_bits};
use crate::program::Growth;
use crate::program::{Fill, States};
use crate::table::shared_keys::key_hash;
use crate::variant::axes::{HashFunction, KeyTextLanes};

/// The slots.
#[derive(Debug, Clone, Copy)]
pub struct OpenTable {
    /// Their class, which takes its size from the places of the store.
    pub class: usize,
    /// State of one `u32` a slot.
    words: usize,
    /// How keys are hashed.
    function: HashFunction,
    /// Who looks at the texts of keys that are searched for: the hash is one that they can make.
    texts: KeyTextLanes,
    /// The slot follows from the highest bits of a hash's lower half, not from the lowest: rows that agree in them are neighbours,
    /// whatever the number of slots will be ([`OpenTable::part`]).
    in_parts: bool,
    /// What tells of most keys that they are in no slot, where there is such a filter.
    bloom: Option<Bloom>,
}

/// Where a search begins.
#[derive(Debug, Clone, Copy)]
struct Start {
    /// The tag of the keys in its place, `u32`.
    tag: V,
    /// The slot, `i64`.
    slot: Var,
    /// The slot that is never used, `i64`.
    last: V,
    /// The bits of a word that are its number, `u32`.
    mask: V,
}

/// What becomes of a row whose key has a slot already.
#[derive(Debug, Clone, Copy)]
pub enum Known {
    /// It is left out.
    LeaveOut,
    /// It breaks the assumption of unique keys: the state that notes it.
    Report(usize),
    /// It goes before the rows of the slot: state of one `u32` a row, the number of the next row with its key or 0.
    Chain(usize),
}

impl Known {
    /// What precedes the claim of a slot for the row at `place` (`i64`).
    fn begin(self, cx: &mut Context<'_>, place: V) {
        if let Known::Chain(next) = self {
            let zero = cx.builder.u32(0);
            set_next(cx, next, place, zero);
        }
    }

    /// What is done where a slot, whose word is at a pointer, has the keys of the row at `place` (`i64`), for which it would have another
    /// `word`.
    fn meet(self, cx: &mut Context<'_>, start: Start, (pointer, word): (V, V), place: V) {
        match self {
            Known::LeaveOut => {}
            Known::Report(broken) => report_not_unique(cx, broken),
            // All rows of the slot have its tag: whoever looks at it meanwhile finds one of them.
            Known::Chain(next) => {
                let old = cx.builder.atomic(AtomicOp::Exchange, pointer, word, Scope::Device);
                let old = cx.builder.and(old, start.mask);
                set_next(cx, next, place, old);
            }
        }
    }
}

impl Start {
    /// Whether a word that is not empty has the tag, and its number (`u32`).
    fn split(&self, cx: &mut Context<'_>, word: V) -> (V, V) {
        let b = &mut *cx.builder;
        let number = b.and(word, self.mask);
        let tag = b.binary(BinaryOp::Xor, word, number);
        (b.eq(tag, self.tag), number)
    }
}

impl OpenTable {
    /// Declares the slots of an index over a store.
    pub(crate) fn plan(
        store: &RowStore,
        (fill, function, texts): (Fill, HashFunction, KeyTextLanes),
        states: &mut States,
    ) -> OpenTable {
        let class = states.class(1, Growth::Sized(store.place_count(), fill));
        let words = states.state("slots", 4, class);
        OpenTable { class, words, function, texts, in_parts: false, bloom: None }
    }

    /// The same with a Bloom filter of the keys of an index over a store.
    pub(crate) fn with_bloom(self, store: &RowStore, states: &mut States) -> OpenTable {
        OpenTable { bloom: Some(Bloom::plan(store, states)), ..self }
    }

    /// Who looks at the texts of keys that are searched for.
    pub(crate) fn text_lanes(&self) -> KeyTextLanes {
        self.texts
    }

    /// The filter.
    pub(crate) fn bloom(&self) -> Option<Bloom> {
        self.bloom
    }

    /// The same where rows come to the slots in parts.
    pub fn in_parts(self) -> OpenTable {
        OpenTable { in_parts: true, ..self }
    }

    /// Whether rows come to the slots in parts.
    pub(crate) fn has_parts(&self) -> bool {
        self.in_parts
    }

    /// The highest `bits` bits (`u32`), at most 32, of where a search for keys begins.
    pub fn part(&self, cx: &mut Context<'_>, keys: &[Lowered], wide: &[bool], bits: u32) -> V {
        let hash = self.hash(cx, keys, wide);
        let b = &mut *cx.builder;
        let (low, shift) = (b.convert(hash, Scalar::U32), b.u32(u32::BITS.saturating_sub(bits)));
        b.binary(BinaryOp::Shr, low, shift)
    }

    /// The hash of keys, all of whose bits are good ones: `u64`.
    fn hash(&self, cx: &mut Context<'_>, keys: &[Lowered], wide: &[bool]) -> V {
        let pairs: Vec<_> = keys.iter().zip(wide.iter().copied()).collect();
        let hash = hash_keys(cx, &pairs, key_hash(self.function, self.texts));
        low_bits(cx, self.function, hash)
    }

    /// The state to clear before rows are put in.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Puts the row at `place` (`i64`) into the slot of its keys; `known` says what if an older row with equal keys has it.
    /// The slot (`i64`).
    pub fn claim(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        (keys, wide): (&[Lowered], &[bool]),
        place: V,
        known: Known,
    ) -> Result<Var, Unsupported> {
        let hash = self.hash(cx, keys, wide);
        self.insert_into_bloom(cx, hash);
        let start = self.start(cx, hash);
        let number = number_of(cx, place);
        let word = cx.builder.or(start.tag, number);
        known.begin(cx, place);
        let equal = |cx: &mut Context<'_>, number| {
            let other = place_of(cx, number);
            keys_equal(cx, store, keys, other)
        };
        self.walk(cx, (start, Some(word)), equal, |cx, _, pointer| {
            known.meet(cx, start, (pointer, word), place);
        })?;
        Ok(start.slot)
    }

    /// Sets `cursor` to the number in the slot of the keys; leaves it where there is none. `place` gives the place of a row
    /// with the keys of a slot, by the slot's number (`u32`). The slot (`i64`).
    pub fn find(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        (keys, wide): (&[Lowered], &[bool]),
        cursor: Var,
        place: impl FnOnce(&mut Context<'_>, V) -> V,
    ) -> Result<Var, Unsupported> {
        let hash = self.hash(cx, keys, wide);
        let start = self.start(cx, hash);
        self.find_at(cx, store, (keys, start), cursor, place)?;
        Ok(start.slot)
    }

    /// As [`OpenTable::find`], from where a search stands.
    fn find_at(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        (keys, start): (&[Lowered], Start),
        cursor: Var,
        place: impl FnOnce(&mut Context<'_>, V) -> V,
    ) -> Result<(), Unsupported> {
        let equal = |cx: &mut Context<'_>, number| {
            let place = place(cx, number);
            keys_equal(cx, store, keys, place)
        };
        self.walk(cx, (start, None), equal, |cx, number, _| cx.builder.assign(cursor, number))
    }

    /// Goes from slot to slot up to an empty one, or to one that `is_hit` (`bool`), asked by the number (`u32`) of each slot with the keys' tag:
    /// `hit` emits what is done there, given that number and the address of the slot. An empty slot is claimed for a word, where there is one.
    fn walk(
        &self,
        cx: &mut Context<'_>,
        (start, word): (Start, Option<V>),
        is_hit: impl FnOnce(&mut Context<'_>, V) -> Result<V, Unsupported>,
        hit: impl FnOnce(&mut Context<'_>, V, V),
    ) -> Result<(), Unsupported> {
        cx.begin_loop();
        let slot = cx.builder.read(start.slot);
        let pointer = self.pointer(cx, slot);
        let current = match word {
            Some(word) => {
                let free = cx.builder.u32(0);
                let current = cx.builder.atomic_load(pointer, Scope::Device);
                let seen = cx.builder.var_of("seen", current);
                let slot = SeenSlot { pointer, current, seen, free };
                claim(cx, slot, word, &|_| {}, &mut |cx, won| cx.builder.break_if(won))
            }
            None => {
                let word = cx.builder.load(pointer);
                let empty = cx.builder.eq_int(word, 0);
                cx.builder.break_if(empty);
                word
            }
        };
        let (alike, number) = start.split(cx, current);
        cx.begin_if(alike);
        let same = is_hit(cx, number)?;
        cx.begin_if(same);
        hit(cx, number, pointer);
        cx.builder.break_loop();
        cx.end();
        cx.end();
        advance(cx, start, slot);
        cx.end();
        Ok(())
    }

    /// Puts the bits of a hash into the Bloom filter, where there is one.
    fn insert_into_bloom(&self, cx: &mut Context<'_>, hash: V) {
        if let Some(bloom) = self.bloom {
            let word = self.bloom_word(cx, bloom, hash);
            bloom.insert(cx, (word, hash));
        }
    }

    /// Replaces the number of a slot (`i64`) that is taken by another one (`u32`, not 0); nobody else uses the slot.
    pub fn renumber(&self, cx: &mut Context<'_>, slot: V, number: V) {
        let pointer = self.pointer(cx, slot);
        let word = cx.builder.load(pointer);
        let last = self.last(cx);
        let mask = cx.builder.convert(last, Scalar::U32);
        let others = cx.builder.not(mask);
        let tag = cx.builder.and(word, others);
        let word = cx.builder.or(tag, number);
        cx.builder.store(pointer, word);
    }

    /// Whether the keys may have a slot (`bool`), by the Bloom filter; `None` where there is none. `active` (`bool`): whether that is
    /// asked at all, of a filter that is finished. All rows that are not active look at the same word.
    pub fn may_have(
        &self,
        cx: &mut Context<'_>,
        (keys, wide): (&[Lowered], &[bool]),
        active: Option<V>,
    ) -> Option<V> {
        let bloom = self.bloom?;
        let hash = self.hash(cx, keys, wide);
        let mut word = self.bloom_word(cx, bloom, hash);
        if let Some(active) = active {
            let first = cx.builder.i64(0);
            word = cx.builder.select(active, word, first);
        }
        Some(bloom.may_have(cx, (word, hash), active.is_some()))
    }

    /// The word of the Bloom filter that a hash has its bits in, `i64`. Rows that come in parts come to words that are neighbours too.
    fn bloom_word(&self, cx: &mut Context<'_>, bloom: Bloom, hash: V) -> V {
        let last = bloom.last(cx);
        self.home(cx, hash, last)
    }

    /// Where a hash belongs among places, a power of two, of which the last (`i64`) is given: `i64`.
    fn home(&self, cx: &mut Context<'_>, hash: V, last: V) -> V {
        let b = &mut *cx.builder;
        match self.in_parts {
            true => {
                // Both factors are below 2^32.
                let (one, lower, half) = (b.i64(1), b.u64(u64::from(u32::MAX)), b.u64(32));
                let count = b.add(last, one);
                let count = b.bitcast(count, Scalar::U64);
                let lower = b.and(hash, lower);
                let product = b.mul(lower, count);
                let slot = b.binary(BinaryOp::Shr, product, half);
                b.bitcast(slot, Scalar::I64)
            }
            false => {
                let bits = b.bitcast(hash, Scalar::I64);
                b.and(bits, last)
            }
        }
    }

    fn start(&self, cx: &mut Context<'_>, hash: V) -> Start {
        let last = self.last(cx);
        let slot = self.home(cx, hash, last);
        let b = &mut *cx.builder;
        let slot = b.var_of("slot", slot);
        let current = b.read(slot);
        let first = b.i64(0);
        let unused = b.eq(current, last);
        let current = b.select(unused, first, current);
        b.assign(slot, current);
        // The slot follows from the low half of the hash, the tag from the other.
        let mask = b.convert(last, Scalar::U32);
        let others = b.not(mask);
        let high = b.shr_int(hash, 32);
        let high = b.convert(high, Scalar::U32);
        let tag = b.and(high, others);
        Start { tag, slot, last, mask }
    }

    /// The last slot, `i64`: the count is a power of two.
    fn last(&self, cx: &mut Context<'_>) -> V {
        let capacity = cx.argument("slot_count", Scalar::I64, Argument::StateCapacity(self.words));
        cx.builder.sub_int(capacity, 1)
    }

    fn pointer(&self, cx: &mut Context<'_>, slot: V) -> V {
        let words = cx.argument("slots", Type::global(Scalar::U32), Argument::State(self.words));
        cx.builder.offset(words, slot)
    }
}

/// Reports that keys are not unique, as was assumed, unless the state (one `u32`) says that somebody has. On a GPU the status
/// word is host memory, which takes many threads seconds.
pub fn report_not_unique(cx: &mut Context<'_>, broken: usize) {
    let word = cx.argument("broken_promise", Type::global(Scalar::U32), Argument::State(broken));
    let known = cx.builder.atomic_load(word, Scope::Device);
    let zero = cx.builder.u32(0);
    let unknown = cx.builder.eq(known, zero);
    cx.begin_if(unknown);
    let one = cx.builder.u32(1);
    let old = cx.builder.atomic(AtomicOp::Exchange, word, one, Scope::Device);
    let is_first = cx.builder.eq(old, zero);
    cx.begin_if(is_first);
    cx.builder.report(Status::NotUnique as u32);
    cx.end();
    cx.end();
}

/// To the next slot.
fn advance(cx: &mut Context<'_>, start: Start, slot: V) {
    let b = &mut *cx.builder;
    let (zero, one) = (b.i64(0), b.i64(1));
    let next = b.add(slot, one);
    let beyond = b.eq(next, start.last);
    let next = b.select(beyond, zero, next);
    b.assign(start.slot, next);
}

/// The place (`i64`) of a number (`u32`).
pub fn place_of(cx: &mut Context<'_>, number: V) -> V {
    let place = cx.builder.sub_int(number, 1);
    cx.builder.convert(place, Scalar::I64)
}

/// The number of a place (`i64`): its position + 1, `u32`.
pub fn number_of(cx: &mut Context<'_>, place: V) -> V {
    let number = cx.builder.convert(place, Scalar::U32);
    cx.builder.add_int(number, 1)
}

/// Sets the number of the row that follows the one at `place` (`i64`) in its chain.
pub fn set_next(cx: &mut Context<'_>, next: usize, place: V, number: V) {
    let next = cx.argument("next", Type::global(Scalar::U32), Argument::State(next));
    let pointer = cx.builder.offset(next, place);
    cx.builder.store(pointer, number);
}

/// Whether the keys are those of the row at `place` (`i64`); NULLs are equal to each other.
fn keys_equal(cx: &mut Context<'_>, store: &RowStore, keys: &[Lowered], place: V) -> Result<V, Unsupported> {
    let mut same = None;
    for (key, column) in keys.iter().zip(store.columns()) {
        let equal = column.equals(cx, key, place)?;
        same = Some(match same {
            Some(same) => cx.builder.and(same, equal),
            None => equal,
        });
    }
    Ok(same.unwrap_or_else(|| cx.builder.bool(true)))
}
