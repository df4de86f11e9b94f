//! Keys in buckets of several slots under one latch: of any kind that no single word has, texts too.
//!
//! The entries of a bucket lie side by side, in one sector of memory, and its slots are filled from the first to the last. Who looks for
//! keys reads all of them at once, compares with the few whose hash is the row's, and is done where one has the keys; nobody waits for
//! that. Where all slots are taken by other keys the search goes on to the next bucket, for which no latch is needed either: entries are
//! never changed or taken out.
//!
//! Who has to put keys in takes the bucket's latch, a bit of its first entry, by compare-and-swap. What was seen of the others may
//! be from before somebody else had the latch, whose keys may be the row's: so they are read once more, and if one has changed the latch is
//! given back and the bucket looked at again. Else the keys are written to the first free slot, its entry shows them, and the latch is given back.
//! All of that is one branch without a loop: no lane of a warp waits in it, or for it in a loop that the owner would have to leave first.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Scalar, Scope};

use super::super::groups::See;
use super::super::word_pointer;
use super::{BUSY, EMPTY, KeyCount, KeyTable, KeyWord, Keys, Probe};
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;
use crate::lower::lasting;
use crate::table::stored::StoredColumn;

/// Slots of a bucket, a power of two: their entries are as many bytes as a GPU reads of its memory at once.
pub(super) const BUCKET_SLOTS: u32 = 4;

/// The bit of a bucket's first entry that is set while somebody puts keys into the bucket.
const LATCH: u64 = BUSY;

/// What was seen of a bucket.
struct Seen {
    /// The first slot, `i64`.
    first: V,
    /// The address of the first entry.
    pointer: V,
    /// All entries (`u64`), the first one with the latch.
    entries: [V; BUCKET_SLOTS as usize],
}

impl KeyTable {
    /// Finds the slot of keys, or puts them into the first bucket on their way that has room.
    pub(super) fn probe_buckets(
        &self,
        cx: &mut Context<'_>,
        count: &KeyCount,
        (keys, values, carried): (&[StoredColumn], &[Lowered], &[Expr]),
        word: KeyWord,
    ) -> Result<Probe, Unsupported> {
        let probe = self.begin_probe(cx, word.hash, count.capacity);
        cx.begin_loop();
        let first = cx.builder.read(probe.slot);
        let seen = self.see_bucket(cx, first);
        self.find_in_bucket(cx, (&probe, &seen), values, word.entry)?;
        let found = cx.builder.read(probe.found);
        cx.builder.break_if(found);
        // Each by itself: the last ones may have been read later than the others.
        let b = &mut *cx.builder;
        let (mask, empty) = (b.u64(!LATCH), b.u64(EMPTY));
        let own = b.and(seen.entries[0], mask);
        let mut is_full = b.ne(own, empty);
        for entry in seen.entries.iter().skip(1) {
            let is_taken = b.ne(*entry, empty);
            is_full = b.and(is_full, is_taken);
        }
        cx.begin_if(is_full);
        self.advance(cx, &probe, count);
        cx.begin_else();
        let b = &mut *cx.builder;
        let latch = b.u64(LATCH);
        let held = b.and(seen.entries[0], latch);
        let is_free = b.eq(held, empty);
        cx.begin_if(is_free);
        count.leave_if_full(cx);
        let latched = cx.builder.or(seen.entries[0], latch);
        let swap = AtomicOp::CompareExchange(seen.entries[0]);
        let old = cx.builder.atomic(swap, seen.pointer, latched, Scope::Device);
        let won = cx.builder.eq(old, seen.entries[0]);
        cx.begin_if(won);
        self.put_into_bucket(cx, (&probe, &seen), count, (keys, values, carried), word.entry)?;
        cx.end();
        cx.end();
        cx.end();
        cx.end();
        Ok(probe)
    }

    /// Reads the entries of the bucket that begins at a slot.
    fn see_bucket(&self, cx: &mut Context<'_>, first: V) -> Seen {
        let pointer = self.entry(cx, first);
        let entries = std::array::from_fn(|index| {
            let pointer = word_pointer(cx, pointer, index as u32);
            cx.builder.atomic_load(pointer, Scope::Device)
        });
        Seen { first, pointer, entries }
    }

    /// The slots of a bucket whose entries are those of keys: a bit each, `u32`.
    fn alike(&self, cx: &mut Context<'_>, entries: &[V], ready: V) -> V {
        let b = &mut *cx.builder;
        let (mask, none) = (b.u64(!LATCH), b.u32(0));
        let mut alike = none;
        for (index, entry) in entries.iter().enumerate() {
            let entry = if index == 0 { b.and(*entry, mask) } else { *entry };
            let (same, bit) = (b.eq(entry, ready), b.u32(1 << index));
            let bit = b.select(same, bit, none);
            alike = b.or(alike, bit);
        }
        alike
    }

    /// Looks for keys with an entry in a bucket: `probe` has found them where they are there.
    fn find_in_bucket(
        &self,
        cx: &mut Context<'_>,
        (probe, seen): (&Probe, &Seen),
        values: &[Lowered],
        ready: V,
    ) -> Result<(), Unsupported> {
        let alike = self.alike(cx, &seen.entries, ready);
        let none = cx.builder.u32(0);
        let any = cx.builder.ne(alike, none);
        cx.begin_if(any);
        cx.builder.fence();
        let left = cx.builder.var_of("alike", alike);
        cx.begin_loop();
        let bits = cx.builder.read(left);
        let done = cx.builder.eq(bits, none);
        cx.builder.break_if(done);
        let number = cx.lowest_bit(bits);
        let slot = slot_of(cx, seen.first, number);
        let same = self.has_keys(cx, values, slot)?;
        cx.begin_if(same);
        cx.builder.assign(probe.slot, slot);
        self.succeed(cx, probe);
        cx.end();
        let b = &mut *cx.builder;
        let one = b.u32(1);
        let below = b.sub(bits, one);
        let rest = b.binary(BinaryOp::And, bits, below);
        b.assign(left, rest);
        cx.end();
        cx.end();
        Ok(())
    }

    /// Puts keys into the first free slot of a bucket whose latch the thread has, and leaves the search; where others have put keys in since
    /// the bucket was seen, nothing. The latch is given back.
    fn put_into_bucket(
        &self,
        cx: &mut Context<'_>,
        (probe, seen): (&Probe, &Seen),
        count: &KeyCount,
        (keys, values, carried): (&[StoredColumn], &[Lowered], &[Expr]),
        ready: V,
    ) -> Result<(), Unsupported> {
        cx.builder.fence();
        let mut is_same = cx.builder.bool(true);
        for (index, before) in (0..BUCKET_SLOTS).zip(&seen.entries).skip(1) {
            let pointer = word_pointer(cx, seen.pointer, index);
            let now = cx.builder.atomic_load(pointer, Scope::Device);
            let same = cx.builder.eq(now, *before);
            is_same = cx.builder.and(is_same, same);
        }
        cx.begin_if(is_same);
        let b = &mut *cx.builder;
        let (none, one, empty) = (b.u32(0), b.u32(1), b.u64(EMPTY));
        let mut taken = none;
        for entry in seen.entries.iter().take(BUCKET_SLOTS as usize - 1) {
            let is_taken = b.ne(*entry, empty);
            let more = b.select(is_taken, one, none);
            taken = b.add(taken, more);
        }
        let slot = slot_of(cx, seen.first, taken);
        let was_open = cx.open_scratch(false);
        for (key, value) in keys.iter().zip(values) {
            let value = lasting(cx, value, was_open);
            key.store(cx, &value, slot)?;
        }
        cx.open_scratch(was_open);
        cx.builder.fence();
        // The first entry shows its keys and gives the latch back at once.
        let is_first = cx.builder.eq(taken, none);
        let is_other = cx.builder.not(is_first);
        let released = cx.builder.select(is_first, ready, seen.entries[0]);
        cx.begin_if(is_other);
        let pointer = self.entry(cx, slot);
        cx.builder.atomic_discard(AtomicOp::Exchange, pointer, ready, Scope::Device);
        cx.builder.fence();
        cx.end();
        cx.builder.atomic_discard(AtomicOp::Exchange, seen.pointer, released, Scope::Device);
        // Nobody waits for these.
        self.carried.store(cx, carried, slot)?;
        self.take(cx, probe, count);
        cx.builder.assign(probe.slot, slot);
        self.succeed(cx, probe);
        cx.end();
        cx.builder.atomic_discard(AtomicOp::Exchange, seen.pointer, seen.entries[0], Scope::Device);
        Ok(())
    }

    /// Looks at what the keys point to that are alike in the bucket where a search begins.
    pub(super) fn look_ahead_in_bucket(
        &self,
        cx: &mut Context<'_>,
        (word, capacity): (KeyWord, V),
        see: &mut See<'_>,
    ) {
        let Keys::Stored(stored) = &self.keys else { return };
        let first = self.home(cx, word.hash, capacity);
        let seen = self.see_bucket(cx, first);
        let alike = self.alike(cx, &seen.entries, word.entry);
        let none = cx.builder.u32(0);
        let any = cx.builder.ne(alike, none);
        cx.begin_if(any);
        let number = cx.lowest_bit(alike);
        let slot = slot_of(cx, seen.first, number);
        for key in stored {
            if let Some(byte) = key.look_ahead(cx, slot) {
                see(cx, byte);
            }
        }
        cx.end();
    }
}

/// The slot (`i64`) with a number (`u32`) in the bucket that begins at one.
fn slot_of(cx: &mut Context<'_>, first: V, number: V) -> V {
    let number = cx.builder.convert(number, Scalar::I64);
    cx.builder.add(first, number)
}
