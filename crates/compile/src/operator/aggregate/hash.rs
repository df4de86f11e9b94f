//! Hash grouping by open addressing with linear probing (Karnagel et al.; design, section 3). Keys of up to 63 bits are
//! packed with an occupied bit into one word that a single compare-and-swap claims; other keys are published by a
//! state word (empty, busy, ready), or claimed word by word. The keys are counted by [`KeyCount`], which asks for a larger table where this one is full: the
//! engine then runs the pipeline again.

mod reading;
mod search;
mod slots;
mod together;
mod words;

use std::fmt;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Scalar};

use self::slots::{Apart, Keys, Slots};
pub(super) use self::words::WordKeys;
use super::dependent::CarriedKeys;
use super::groups::See;
use super::input::{TableForm, with_room};
use super::key_count::KeyCount;
use super::{Input, declare, group_pointer, word_pointer};
use crate::context::{Argument, Context, Lowered, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::lower::hashing::{hash_keys, is_wide, low_bits, spread};
use crate::program::{Fill, Growth, TableGrowth};
use crate::table::packed::{OCCUPIED, pack};
use crate::table::shared_keys::key_hash;
use crate::table::stored::StoredColumn;
use crate::variant::axes::{HashFunction, HashMapping, KeyTextLanes};

/// Slots of a table at the first launch, at most, where nothing is known of its keys.
const INITIAL_SLOTS: u64 = 1 << 16;
/// Slots of a table, at least.
const LEAST_SLOTS: u64 = 64;
/// Slots that are left to a table that the threads of a GPU share, at least, where it had as many: the groups of few slots lie in few
/// sectors of memory, at which the threads of all blocks meet. On an H200, 105 groups of 60 million rows took 2.0 ms in 65,536 slots
/// and 3.9 ms in 512.
const LEAST_SHARED_SLOTS: u64 = 1 << 13;
/// Slots after which a probe looks whether the table is full, a power of two: few probes of one that is not are so long.
const LONG_PROBE: i64 = 64;
/// Slots that a probe sees before it takes the table for full, a multiple of [`LONG_PROBE`]: among keys that lie anywhere, of which there
/// are as many as there may be, none is so long.
const LONGEST_PROBE: i64 = 1024;
/// A table of so many times the slots for all rows does not grow because of long probes: it would not help.
const MOST_OVER_ROWS: u64 = 4;
/// Entries of stored keys: empty, being written, or the key's hash (of which these bits are left out) and this bit.
const EMPTY: u64 = 0;
const BUSY: u64 = 1;
const READY: u64 = 2;
const STATE_BITS: u64 = 2;

/// A set of keys, each with some words of its own. A slot has an entry (a word, 0 where the slot is free) and those
/// words behind it, so that a row that finds its key has them in the same cache line, or they are apart. Keys that are stored are in arrays of their
/// own, or between the entry and those words.
#[derive(Debug, Clone)]
pub struct KeyTable {
    pub class: usize,
    /// State of the slots.
    slots: usize,
    /// Words of a slot, and those before the key's own.
    stride: u32,
    head: u32,
    /// What a slot has where its entry is not.
    apart: Option<Apart>,
    /// State that counts the keys.
    pub count: usize,
    /// How many of the slots may be taken.
    fill: Fill,
    hashing: Hashing,
    /// Who looks at the texts of keys that are put in: the hash is one that they can make.
    texts: KeyTextLanes,
    /// A table of fewer slots grows where probes are too long.
    most_slots: i64,
    keys: Keys,
    columns: Vec<ColumnInfo>,
    /// Keys beside those, which tell none apart.
    carried: CarriedKeys,
}

impl fmt::Display for KeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.keys {
            Keys::Packed(_) => "hash, packed keys",
            Keys::Stored(_) => "hash, stored keys",
            Keys::Words(_) => "hash, keys of words",
        })?;
        match self.carried.len() {
            0 => Ok(()),
            carried => write!(f, ", {carried} carried"),
        }
    }
}

/// Keys as a table has them in a slot's first word.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyWord {
    /// The entry of a slot that has the keys: never 0. Packed keys are equal where their entries are; of others it has the hash.
    pub entry: V,
    /// The hash of the keys, whose upper half gives the slot where a search begins.
    pub hash: V,
}

/// How keys become a hash, and this the slot where a search begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hashing {
    pub function: HashFunction,
    pub mapping: HashMapping,
}

/// What a probe works on.
pub struct Probe {
    pub slot: Var,
    /// The key is in `slot`.
    pub found: Var,
    /// This probe put it there.
    pub is_new: Var,
    steps: Var,
    capacity: V,
}

impl KeyTable {
    /// Declares the states of a table whose keys have `words` words each, and are stored with those that are `carried` at their places
    /// among all.
    pub fn plan(
        (columns, carried): (&[ColumnInfo], &[(usize, ColumnInfo)]),
        words: u32,
        input: &Input<'_>,
        states: &mut declare::States,
    ) -> Result<KeyTable, Unsupported> {
        let packed = pack(columns);
        // A table that has to grow is filled anew: as many keys as a column alone has values are foreseen.
        let values = columns.iter().filter_map(|column| Some(column.scattered?.values)).max();
        let values = values.map(|values| values.min(input.expected_rows));
        let stored = match packed {
            Some(_) => 0,
            None => columns.iter().map(StoredColumn::bytes_of).sum(),
        };
        let slot_bytes = 8 * u64::from(1 + words) + stored;
        let keys = input.groups.or(values).or_else(|| input.keys_foreseen(columns));
        let (row_bound, fill) = (input.row_bound, input.fill(&TableForm { keys, slot_bytes })?);
        let foreseen = with_room(fill.slots(values.unwrap_or(0))).max(INITIAL_SLOTS);
        let slots = fill.slots(row_bound).clamp(LEAST_SLOTS, foreseen).next_power_of_two();
        let count = states.counter("group_count");
        let hashing = input.hashing(packed.is_some())?;
        let claims = match packed {
            Some(_) => None,
            None => Some(input.claims(columns)?),
        };
        let least = if input.is_serial { LEAST_SLOTS } else { LEAST_SHARED_SLOTS };
        let growth = TableGrowth { count, fill, least };
        let class = states.class(slots, Growth::Table(growth));
        let Slots { state, stride, head, apart, keys } =
            Slots::plan(columns, (packed, claims), words, input, (class, states))?;
        let most_slots = fill.slots(row_bound).saturating_mul(MOST_OVER_ROWS);
        let most_slots = i64::try_from(most_slots).unwrap_or(i64::MAX);
        let columns = columns.to_vec();
        let texts = KeyTextLanes::Lane;
        let carried = CarriedKeys::plan(carried, class, states)?;
        Ok(KeyTable {
            class,
            slots: state,
            stride,
            head,
            apart,
            count,
            fill,
            hashing,
            texts,
            most_slots,
            keys,
            columns,
            carried,
        })
    }

    pub fn zeroed(&self) -> Vec<usize> {
        let apart = self.apart.map(|apart| apart.state);
        [self.slots, self.count].into_iter().chain(apart).collect()
    }

    /// The keys.
    pub(super) fn columns(&self) -> &[ColumnInfo] {
        &self.columns
    }

    /// Whether keys are equal where their entries are.
    pub(super) fn is_packed(&self) -> bool {
        matches!(self.keys, Keys::Packed(_))
    }

    /// How many words a block needs to have keys: those that they are, and of several their hash.
    pub(super) fn words_in_block(&self) -> Option<u32> {
        match &self.keys {
            Keys::Packed(_) => Some(1),
            Keys::Words(own) => Some(own.words + 1),
            Keys::Stored(_) => None,
        }
    }

    /// The words that keys are, none of them 0.
    pub(super) fn own_words(
        &self,
        cx: &mut Context<'_>,
        (values, word): (&[Lowered], KeyWord),
    ) -> Result<Vec<V>, Unsupported> {
        match &self.keys {
            Keys::Packed(_) => Ok(vec![word.entry]),
            Keys::Words(own) => own.encode(cx, &self.columns, values),
            Keys::Stored(_) => Err(Unsupported::internal("keys that are no words")),
        }
    }

    /// The words of keys, and their word, by what a block has of them.
    pub(super) fn word_in_block(
        &self,
        cx: &mut Context<'_>,
        mut own: Vec<V>,
    ) -> Result<(Vec<V>, KeyWord), Unsupported> {
        let last = own.last().copied().ok_or_else(|| Unsupported::internal("keys of no words"))?;
        if self.is_packed() {
            return Ok((own, self.word_of(cx, last)));
        }
        own.pop();
        Ok((own, self.word_of_hash(cx, last)))
    }

    /// Finds the slot of keys by their words, or puts them into a free one. Not where keys are carried.
    pub(super) fn insert_words(
        &self,
        cx: &mut Context<'_>,
        count: &KeyCount,
        (own, word): (&[V], KeyWord),
    ) -> Result<Probe, Unsupported> {
        match &self.keys {
            Keys::Packed(_) => self.probe_packed(cx, count, word, &[]),
            Keys::Words(_) => self.claim_words(cx, count, (own, &[]), word),
            Keys::Stored(_) => Err(Unsupported::internal("keys that are no words")),
        }
    }

    /// Whether keys are stored that tell none apart.
    pub(super) fn has_carried(&self) -> bool {
        !self.carried.is_empty()
    }

    /// What counts the keys in a kernel that puts some in, before its row loop.
    pub(super) fn begin(&self, cx: &mut Context<'_>) -> KeyCount {
        KeyCount::begin(cx, self.slots, self.count, self.fill)
    }

    /// The word of keys.
    pub(super) fn word(&self, cx: &mut Context<'_>, values: &[Lowered]) -> Result<KeyWord, Unsupported> {
        match &self.keys {
            Keys::Packed(keys) => {
                let mut entry = cx.builder.u64(OCCUPIED);
                for (key, value) in keys.iter().zip(values) {
                    let bits = key.encode(cx, value)?;
                    entry = cx.builder.or(entry, bits);
                }
                Ok(self.word_of(cx, entry))
            }
            Keys::Stored(_) | Keys::Words(_) => {
                let wide = self.columns.iter().map(is_wide);
                let pairs: Vec<_> = values.iter().zip(wide).collect();
                let hash = hash_keys(cx, &pairs, key_hash(self.hashing.function, self.texts));
                Ok(self.word_of_hash(cx, hash))
            }
        }
    }

    /// The word of stored keys with a hash (`u64`).
    pub(super) fn word_of_hash(&self, cx: &mut Context<'_>, hash: V) -> KeyWord {
        let mask = cx.builder.u64(!((1 << STATE_BITS) - 1));
        let hashed = cx.builder.and(hash, mask);
        let state = cx.builder.u64(READY);
        KeyWord { entry: cx.builder.or(hashed, state), hash }
    }

    /// The word of packed keys with an entry.
    pub(super) fn word_of(&self, cx: &mut Context<'_>, entry: V) -> KeyWord {
        KeyWord { entry, hash: spread(cx, self.hashing.function, entry) }
    }

    /// Looks at the slot where a search begins; `again`: at what the keys in it point to. `see` takes what was looked at.
    pub(super) fn look_ahead(
        &self,
        cx: &mut Context<'_>,
        (word, capacity): (KeyWord, V),
        again: bool,
        see: &mut See<'_>,
    ) {
        let slot = self.home(cx, word.hash, capacity);
        let pointer = self.entry(cx, slot);
        let entry = cx.builder.load(pointer);
        if !again {
            see(cx, entry);
            // The slot may begin in one cache line and end in the next.
            if self.apart.is_some() {
                let words = self.words(cx, slot);
                let first = cx.builder.load(words);
                see(cx, first);
            } else if self.stride > 1 {
                let end = word_pointer(cx, pointer, self.stride - 1);
                let end = cx.builder.load(end);
                see(cx, end);
            }
            return;
        }
        let Keys::Stored(stored) = &self.keys else { return };
        let alike = cx.builder.eq(entry, word.entry);
        cx.begin_if(alike);
        for key in stored {
            if let Some(byte) = key.look_ahead(cx, slot) {
                see(cx, byte);
            }
        }
        cx.end();
    }

    /// Finds the slot of keys with a word, which are put into a free one where the table does not have them, with those of the current
    /// row that are `carried`.
    pub(super) fn insert_word(
        &self,
        cx: &mut Context<'_>,
        count: &KeyCount,
        (values, word): (&[Lowered], KeyWord),
        carried: &[Expr],
    ) -> Result<Probe, Unsupported> {
        match &self.keys {
            Keys::Packed(_) => self.probe_packed(cx, count, word, carried),
            Keys::Stored(stored) => self.probe_stored(cx, count, (stored, values, carried), word),
            Keys::Words(words) => self.probe_words(cx, count, (*words, values, carried), word),
        }
    }

    /// Whether keys whose entry is that of a slot (`i64`), which has been published, are the slot's (`bool`).
    pub(super) fn has_keys(
        &self,
        cx: &mut Context<'_>,
        values: &[Lowered],
        slot: V,
    ) -> Result<V, Unsupported> {
        if let Keys::Words(words) = &self.keys {
            return self.has_words_of(cx, *words, (values, slot));
        }
        let mut same = cx.builder.bool(true);
        if let Keys::Stored(stored) = &self.keys {
            for (key, value) in stored.iter().zip(values) {
                let equal = key.equals(cx, value, slot)?;
                same = cx.builder.and(same, equal);
            }
        }
        Ok(same)
    }

    /// The address of a slot's entry.
    fn entry(&self, cx: &mut Context<'_>, slot: V) -> V {
        group_pointer(cx, self.slots, self.stride, slot)
    }

    /// The address of a slot's words.
    pub fn words(&self, cx: &mut Context<'_>, slot: V) -> V {
        if let Some(Apart { state, stride }) = self.apart {
            return group_pointer(cx, state, stride, slot);
        }
        let entry = self.entry(cx, slot);
        word_pointer(cx, entry, self.head)
    }

    /// The slot (`i64`) that a hash belongs to among so many. By [`HashMapping::MultiplyHigh`] its number is the same
    /// share of all slots as the hash is of all hashes (Lemire 2016). So keys that agree in the highest bits of their hashes are
    /// neighbours in a table of any size ([`KeyTable::part`]).
    fn home(&self, cx: &mut Context<'_>, hash: V, capacity: V) -> V {
        let Hashing { function, mapping } = self.hashing;
        let hash = match mapping {
            HashMapping::MultiplyHigh => hash,
            HashMapping::Modulo => low_bits(cx, function, hash),
        };
        let b = &mut *cx.builder;
        let slots = b.bitcast(capacity, Scalar::U64);
        let start = match mapping {
            HashMapping::MultiplyHigh => {
                let half = b.u64(u64::from(u64::BITS / 2));
                let high = b.binary(BinaryOp::Shr, hash, half);
                let product = b.mul(high, slots);
                b.binary(BinaryOp::Shr, product, half)
            }
            HashMapping::Modulo => b.binary(BinaryOp::Rem, hash, slots),
        };
        b.bitcast(start, Scalar::I64)
    }

    /// Where the search for keys among so many other places, a power of two, begins (`i64`): not by the bits that the keys of a part have
    /// in common.
    pub(super) fn first_of_places(&self, cx: &mut Context<'_>, word: KeyWord, places: u32) -> V {
        let hash = low_bits(cx, self.hashing.function, word.hash);
        let b = &mut *cx.builder;
        let mask = b.u64(u64::from(places) - 1);
        let place = b.and(hash, mask);
        b.bitcast(place, Scalar::I64)
    }

    /// The highest `bits` bits of a key's hash (`u32`), and so, where it is mapped by its highest bits, of its slot.
    /// With the hash.
    pub(super) fn part(
        &self,
        cx: &mut Context<'_>,
        values: &[Lowered],
        bits: u32,
    ) -> Result<(V, Option<V>), Unsupported> {
        let word = self.word(cx, values)?;
        let shift = cx.builder.u64(u64::from(u64::BITS - bits));
        let part = cx.builder.binary(BinaryOp::Shr, word.hash, shift);
        Ok((cx.builder.convert(part, Scalar::U32), Some(word.hash)))
    }

    /// Where the slots of a part (`u32`) begin that has so many bits: the least slot of a hash of which it is the highest ones.
    pub(super) fn part_start(&self, cx: &mut Context<'_>, part: V, bits: u32) -> V {
        let capacity = cx.argument("capacity", Scalar::I64, Argument::StateCapacity(self.slots));
        let b = &mut *cx.builder;
        let (part, shift) = (b.convert(part, Scalar::I64), b.i64(bits.into()));
        let product = b.mul(part, capacity);
        b.binary(BinaryOp::Shr, product, shift)
    }
}
