//! Hash grouping by open addressing with linear probing (Karnagel et al.; design, section 3). Keys of up to 63 bits are
//! packed with an occupied bit into one word that a single compare-and-swap claims; other keys are published by a
//! state word (empty, busy, ready), or claimed word by word. The keys are counted by [`KeyCount`], which asks for a larger table where this one is full: the
//! engine then runs the pipeline again.

use std::fmt;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use super::dependent::DependentColumns;
use super::input::{Hashing, Input, TableForm, with_room};
use super::key_count::KeyCount;
use super::slot_layout::{Keys, SlotStates, Slots};
use super::word_keys::WordKeys;
use crate::context::{Argument, Context, Lowered, Repr, Text, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::lower::WORD_BYTES;
use crate::lower::hashing::{SHORT, hash_keys, hash_of_text_key, is_wide, low_bits, spread};
use crate::operator::aggregate::functions::{group_pointer, word_pointer};
use crate::program::States;
use crate::program::{Fill, Growth, TableGrowth};
use crate::table::packed::{OCCUPIED, PackedKey, pack, pack_float};
use crate::table::shared_keys::key_hash;
use crate::table::stored::StoredColumn;
use crate::variant::axes::{HashFunction, HashMapping, KeyTextLanes, SlotFill};

/// Slots of a table at the first launch, at most, where nothing is known of its keys.
const INITIAL_SLOTS: u64 = 1 << 16;
/// Slots of a table, at least.
const LEAST_SLOTS: u64 = 64;
/// Slots that are left to a table that the threads of a GPU share, at least, where it had as many: the groups of few slots lie in few
/// sectors of memory, at which the threads of all blocks meet. On an H200, 105 groups of 60 million rows took 2.0 ms in 65,536 slots
/// and 3.9 ms in 512.
const LEAST_SHARED_SLOTS: u64 = 1 << 13;
/// A table of so many times the slots for all rows does not grow because of long probes: it would not help.
const MOST_OVER_ROWS: u64 = 4;
/// Entries of stored keys are the hash, of which the bits of the state are left out, and this: 0 is empty, 1 being written.
const READY: u64 = 2;
const STATE_BITS: u64 = 2;

/// A set of keys, each with some words of its own.
#[derive(Debug, Clone)]
pub struct KeyTable {
    pub class: usize,
    pub(super) slots: Slots,
    /// State that counts the keys.
    pub count: usize,
    /// How many of the slots may be taken.
    pub(super) fill: Fill,
    pub(super) hashing: Hashing,
    /// Who looks at the texts of keys that are put in: the hash is one that they can make.
    pub(super) texts: KeyTextLanes,
    /// A table of fewer slots grows where probes are too long.
    pub(super) most_slots: i64,
    pub(super) columns: Vec<ColumnInfo>,
    /// Keys beside those, which tell none apart.
    pub(super) dependent: DependentColumns,
}

impl fmt::Display for KeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.slots.keys {
            Keys::Packed(_) => "hash, packed keys",
            Keys::Stored(_) => "hash, stored keys",
            Keys::Words(_) => "hash, keys of words",
        })?;
        match self.dependent.len() {
            0 => Ok(()),
            dependent => write!(f, ", {dependent} carried"),
        }
    }
}

/// Keys as a table has them in a slot's first word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyWord {
    /// The entry of a slot that has the keys: never 0. Packed keys are equal where their entries are; of others it has the hash.
    pub entry: V,
    /// The hash of the keys, whose upper half gives the slot where a search begins.
    pub hash: V,
}

/// Takes what was looked at ahead of a search, `u64`.
pub(crate) type See<'s> = dyn FnMut(&mut Context<'_>, V) + 's;

/// The keys of a row that are looked for.
#[derive(Clone, Copy)]
pub(crate) struct ProbeKeys<'k> {
    /// Those that tell groups apart.
    pub values: &'k [Lowered],
    /// The word of these.
    pub word: KeyWord,
    /// Those that follow from them, which who puts the keys in stores.
    pub dependent: &'k [Expr],
}

impl KeyTable {
    /// Declares the states of a table whose keys have `words` words each, and are stored with those that are `dependent` on them, which have
    /// their places among all.
    pub fn plan(
        columns: &[ColumnInfo],
        dependent: &[(usize, ColumnInfo)],
        words: u32,
        input: &Input<'_>,
        states: &mut States,
    ) -> Result<KeyTable, Unsupported> {
        let packed = pack(columns).or_else(|| pack_float(columns));
        // A table that has to grow is filled anew: as many keys as a column alone has values are foreseen.
        let values = columns.iter().filter_map(|column| Some(column.scattered?.values)).max();
        let values = values.map(|values| values.min(input.expected_rows));
        let stored = match packed {
            Some(_) => 0,
            None => columns.iter().map(StoredColumn::bytes_of).sum(),
        };
        let slot_bytes = 8 * u64::from(1 + words) + stored;
        let keys = input.groups.or(values).or_else(|| input.keys_foreseen(columns));
        let (row_bound, chosen) = (input.row_bound, input.fill(&TableForm { keys, slot_bytes })?);
        let fill = Fill::of(chosen);
        let foreseen = with_room(fill.slots(values.unwrap_or(0))).max(INITIAL_SLOTS);
        let of_cache = match chosen {
            SlotFill::CACHE => input.choices.calibration.index_cache(input.is_serial()).value / slot_bytes,
            _ => 0,
        };
        // However large the cache is, few rows have few groups.
        let of_cache = of_cache.min(fill.slots(row_bound));
        let slots = fill.slots(row_bound).clamp(LEAST_SLOTS, foreseen).max(of_cache).next_power_of_two();
        let count = states.counter("group_count");
        let hashing = input.hashing(packed.is_some())?;
        let least = if input.is_serial() { LEAST_SLOTS } else { LEAST_SHARED_SLOTS };
        let growth = TableGrowth { count, fill, least: least.max(of_cache) };
        let class = states.class(slots, Growth::Table(growth));
        let slots = Slots::plan(columns, packed, words, input, SlotStates { class, states })?;
        let most_slots = fill.slots(row_bound).saturating_mul(MOST_OVER_ROWS);
        Ok(KeyTable {
            class,
            slots,
            count,
            fill,
            hashing,
            texts: KeyTextLanes::Lane,
            most_slots: i64::try_from(most_slots).unwrap_or(i64::MAX),
            columns: columns.to_vec(),
            dependent: DependentColumns::plan(dependent, class, states)?,
        })
    }

    pub fn zeroed(&self) -> Vec<usize> {
        vec![self.slots.state, self.count]
    }

    pub(crate) fn columns(&self) -> &[ColumnInfo] {
        &self.columns
    }

    /// Whether keys are equal where their entries are.
    pub(crate) fn is_packed(&self) -> bool {
        matches!(self.slots.keys, Keys::Packed(_))
    }

    /// How many words a block needs to have keys: those that they are, and of several their hash.
    pub(crate) fn words_in_block(&self) -> Option<u32> {
        match &self.slots.keys {
            Keys::Packed(_) => Some(1),
            Keys::Words(own) => Some(own.words + 1),
            Keys::Stored(_) => None,
        }
    }

    /// The words that keys are, none of them 0.
    pub(crate) fn own_words(
        &self,
        cx: &mut Context<'_>,
        values: &[Lowered],
        word: KeyWord,
    ) -> Result<Vec<V>, Unsupported> {
        match &self.slots.keys {
            Keys::Packed(_) => Ok(vec![word.entry]),
            Keys::Words(own) => own.encode(cx, &self.columns, values),
            Keys::Stored(_) => Err(Unsupported::internal("keys that are no words")),
        }
    }

    /// The words of keys, and their word, by what a block has of them.
    pub(crate) fn word_in_block(
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

    /// Whether keys are stored that tell none apart.
    pub(crate) fn has_dependent(&self) -> bool {
        !self.dependent.is_empty()
    }

    /// What counts the keys in a kernel that puts some in, before its row loop.
    pub(crate) fn begin(&self, cx: &mut Context<'_>) -> KeyCount {
        KeyCount::begin(cx, self.slots.state, self.count, self.fill)
    }

    pub(crate) fn word(&self, cx: &mut Context<'_>, values: &[Lowered]) -> Result<KeyWord, Unsupported> {
        match &self.slots.keys {
            Keys::Packed(keys) => {
                let is_whole = keys.iter().any(PackedKey::is_whole);
                let mut entry = cx.builder.u64(if is_whole { 0 } else { OCCUPIED });
                for (key, value) in keys.iter().zip(values) {
                    let bits = key.encode(cx, value)?;
                    entry = cx.builder.or(entry, bits);
                }
                Ok(self.word_of(cx, entry))
            }
            Keys::Stored(_) | Keys::Words(_) => {
                if let Some((text, valid)) = self.only_text(values) {
                    let hash = hash_of_text_key(cx, text, valid);
                    return Ok(self.word_of_hash(cx, hash));
                }
                let wide = self.columns.iter().map(is_wide);
                let pairs: Vec<_> = values.iter().zip(wide).collect();
                let hash = hash_keys(cx, &pairs, key_hash(self.hashing.function, self.texts));
                Ok(self.word_of_hash(cx, hash))
            }
        }
    }

    /// The key of a row that is looked for, where it is a text and its hash tells a short one from all others.
    fn only_text<'v>(&self, values: &'v [Lowered]) -> Option<(&'v Text, Option<V>)> {
        let Keys::Stored(stored) = &self.slots.keys else { return None };
        let is_hashed_alone =
            self.texts == KeyTextLanes::Lane && self.hashing.function == HashFunction::Murmur3;
        match (&stored[..], values) {
            ([column], [Lowered { repr: Repr::Text(text), valid, .. }])
                if column.is_text() && is_hashed_alone =>
            {
                Some((text, *valid))
            }
            _ => None,
        }
    }

    /// The word of stored keys with a hash (`u64`).
    pub(crate) fn word_of_hash(&self, cx: &mut Context<'_>, hash: V) -> KeyWord {
        let mask = cx.builder.u64(!((1 << STATE_BITS) - 1));
        let hashed = cx.builder.and(hash, mask);
        KeyWord { entry: cx.builder.or_int(hashed, READY), hash }
    }

    /// The word of packed keys with an entry.
    pub(crate) fn word_of(&self, cx: &mut Context<'_>, entry: V) -> KeyWord {
        KeyWord { entry, hash: spread(cx, self.hashing.function, entry) }
    }

    /// Looks at the slot where a search begins; `again`: at what the keys in it point to. `see` takes what was looked at.
    pub(crate) fn look_ahead(
        &self,
        cx: &mut Context<'_>,
        word: KeyWord,
        count: &KeyCount,
        again: bool,
        see: &mut See<'_>,
    ) {
        let slot = self.home(cx, word.hash, count.capacity);
        let pointer = self.entry(cx, slot);
        let entry = cx.builder.load(pointer);
        if !again {
            see(cx, entry);
            // The slot may begin in one cache line and end in the next.
            if self.slots.stride > 1 {
                let end = word_pointer(cx, pointer, self.slots.stride - 1);
                let end = cx.builder.load(end);
                see(cx, end);
            }
            return;
        }
        let Keys::Stored(stored) = &self.slots.keys else { return };
        let mut alike = cx.builder.eq(entry, word.entry);
        if matches!(&stored[..], [key] if key.is_text()) {
            // Nothing else is compared of a short text.
            let short = cx.builder.and_int(word.entry, SHORT);
            let is_long = cx.builder.eq_int(short, 0);
            alike = cx.builder.and(alike, is_long);
        }
        cx.begin_if(alike);
        for key in stored {
            if let Some(byte) = key.look_ahead(cx, slot) {
                see(cx, byte);
            }
        }
        cx.end();
    }

    /// Whether keys whose entry is that of a slot (`i64`), which has been published, are the slot's (`bool`).
    pub(crate) fn has_keys(
        &self,
        cx: &mut Context<'_>,
        values: &[Lowered],
        slot: V,
    ) -> Result<V, Unsupported> {
        if let Keys::Words(words) = &self.slots.keys {
            let (own, stored) = (words.encode(cx, &self.columns, values)?, self.load_words(cx, *words, slot));
            let mut same = cx.builder.bool(true);
            for (own, stored) in own.into_iter().zip(stored) {
                let equal = cx.builder.eq(own, stored);
                same = cx.builder.and(same, equal);
            }
            return Ok(same);
        }
        let mut same = cx.builder.bool(true);
        let Keys::Stored(stored) = &self.slots.keys else { return Ok(same) };
        if let ([key], [value], Some((text, valid))) = (&stored[..], values, self.only_text(values)) {
            let width = cx.builder.u32(WORD_BYTES);
            let mut is_long = cx.builder.ge(text.length, width);
            if let Some(valid) = valid {
                let is_null = cx.builder.not(valid);
                is_long = cx.builder.or(is_long, is_null);
            }
            let all = cx.builder.var_of("same", same);
            cx.begin_if(is_long);
            let equal = key.equals(cx, value, slot)?;
            cx.builder.assign(all, equal);
            cx.end();
            return Ok(cx.builder.read(all));
        }
        for (key, value) in stored.iter().zip(values) {
            let equal = key.equals(cx, value, slot)?;
            same = cx.builder.and(same, equal);
        }
        Ok(same)
    }

    /// The address of a slot's entry.
    pub(super) fn entry(&self, cx: &mut Context<'_>, slot: V) -> V {
        group_pointer(cx, self.slots.state, self.slots.stride, slot)
    }

    /// The address of a slot's words.
    pub fn words(&self, cx: &mut Context<'_>, slot: V) -> V {
        let entry = self.entry(cx, slot);
        word_pointer(cx, entry, self.slots.head)
    }

    /// The slot (`i64`) that a hash belongs to among so many. By [`HashMapping::MultiplyHigh`] its number is the same
    /// share of all slots as the hash is of all hashes (Lemire 2016). So keys that agree in the highest bits of their hashes are
    /// neighbours in a table of any size ([`KeyTable::part`]).
    pub(super) fn home(&self, cx: &mut Context<'_>, hash: V, capacity: V) -> V {
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
    pub(crate) fn first_of_places(&self, cx: &mut Context<'_>, word: KeyWord, places: u32) -> V {
        let hash = low_bits(cx, self.hashing.function, word.hash);
        let b = &mut *cx.builder;
        let place = b.and_int(hash, u64::from(places) - 1);
        b.bitcast(place, Scalar::I64)
    }

    /// The highest `bits` bits of a key's hash (`u32`), and so, where it is mapped by its highest bits, of its slot.
    /// With the hash.
    pub(crate) fn part(
        &self,
        cx: &mut Context<'_>,
        values: &[Lowered],
        bits: u32,
    ) -> Result<(V, Option<V>), Unsupported> {
        let word = self.word(cx, values)?;
        let part = cx.builder.shr_int(word.hash, u64::from(u64::BITS - bits));
        Ok((cx.builder.convert(part, Scalar::U32), Some(word.hash)))
    }

    /// Where the slots of a part (`u32`) begin that has so many bits: the least slot of a hash of which it is the highest ones.
    pub(crate) fn part_start(&self, cx: &mut Context<'_>, part: V, bits: u32) -> V {
        let capacity = cx.argument("capacity", Scalar::I64, Argument::StateCapacity(self.slots.state));
        let b = &mut *cx.builder;
        let (part, shift) = (b.convert(part, Scalar::I64), b.i64(bits.into()));
        let product = b.mul(part, capacity);
        b.binary(BinaryOp::Shr, product, shift)
    }

    /// Whether a slot holds a key.
    pub fn present(&self, cx: &mut Context<'_>, slot: V) -> V {
        let pointer = self.entry(cx, slot);
        let entry = cx.builder.load(pointer);
        let scalar = cx.builder.scalar(entry);
        let zero = cx.builder.zero(scalar);
        cx.builder.ne(entry, zero)
    }

    /// The key in a slot that holds one, with those that follow from it.
    pub fn keys(&self, cx: &mut Context<'_>, slot: V) -> Vec<Lowered> {
        let keys = match &self.slots.keys {
            Keys::Packed(packed) => {
                let pointer = self.entry(cx, slot);
                let entry = cx.builder.load(pointer);
                let columns = packed.iter().zip(&self.columns);
                columns.map(|(key, column)| key.decode(cx, entry, column)).collect()
            }
            Keys::Words(words) => {
                let own = self.load_words(cx, *words, slot);
                words.decode(cx, &self.columns, &own)
            }
            Keys::Stored(stored) => stored.iter().map(|key| self.load(cx, key, slot)).collect(),
        };
        self.dependent.join(keys, &mut |key| self.load(cx, key, slot))
    }

    /// A stored key. The code in a slot that is not taken may be that of no entry, and is looked up all the same where
    /// dead rows flow with a flag.
    fn load(&self, cx: &mut Context<'_>, key: &StoredColumn, slot: V) -> Lowered {
        let present = key.info().dictionary.map(|_| self.present(cx, slot));
        let loaded = key.load(cx, slot, present);
        let valid = loaded.valid.filter(|_| key.info().nullable);
        Lowered { valid, ..loaded }
    }

    /// The words of the keys in a slot.
    fn load_words(&self, cx: &mut Context<'_>, keys: WordKeys, slot: V) -> Vec<V> {
        let first = self.entry(cx, slot);
        let load = |word| {
            let pointer = word_pointer(cx, first, word);
            cx.builder.load(pointer)
        };
        (0..keys.words).map(load).collect()
    }
}
