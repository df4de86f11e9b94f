//! Searches for the slot of keys, which are put into a free one where the table does not have them.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, Scope};

use super::key_count::KeyCount;
use super::key_table::{KeyTable, ProbeKeys};
use super::slot_layout::Keys;
use crate::context::{Context, Lowered, Unsupported};
use crate::lower::lasting;
use crate::operator::aggregate::functions::word_pointer;
use crate::table::probing::{SeenSlot, claim};
use crate::table::stored::StoredColumn;

/// Slots after which a probe looks whether the table is full, a power of two: few probes of one that is not are so long.
const LONG_PROBE: i64 = 64;
/// Slots that a probe sees before it takes the table for full, a multiple of [`LONG_PROBE`]: among keys that lie anywhere, of which there
/// are as many as there may be, none is so long.
const LONGEST_PROBE: i64 = 1024;
/// The entry of stored keys that one thread writes now.
const BUSY: u64 = 1;

/// A search for the slot of keys.
pub(crate) struct Probe<'p> {
    table: &'p KeyTable,
    count: &'p KeyCount,
    pub slot: Var,
    /// The key is in `slot`.
    pub found: Var,
    /// This probe put it there.
    pub is_new: Var,
    steps: Var,
}

impl KeyTable {
    /// Finds the slot of a row's keys, which are put into a free one where the table does not have them.
    pub fn insert<'p>(
        &'p self,
        cx: &mut Context<'_>,
        count: &'p KeyCount,
        keys: ProbeKeys<'_>,
    ) -> Result<Probe<'p>, Unsupported> {
        match &self.slots.keys {
            Keys::Packed(_) => self.insert_words(cx, count, &[], keys),
            Keys::Words(words) => {
                let words = words.encode(cx, &self.columns, keys.values)?;
                self.insert_words(cx, count, &words, keys)
            }
            Keys::Stored(stored) => {
                let probe = self.begin_probe(cx, count, keys.word.hash);
                cx.begin_loop();
                probe.look(cx, stored, keys, &mut |cx, slot| {
                    let same = self.has_keys(cx, keys.values, slot)?;
                    cx.begin_if(same);
                    probe.succeed(cx);
                    cx.end();
                    Ok(())
                })?;
                cx.end();
                Ok(probe)
            }
        }
    }

    /// The same by the words that the keys are, none of which is 0.
    pub fn insert_words<'p>(
        &'p self,
        cx: &mut Context<'_>,
        count: &'p KeyCount,
        words: &[V],
        keys: ProbeKeys<'_>,
    ) -> Result<Probe<'p>, Unsupported> {
        let probe = self.begin_probe(cx, count, keys.word.hash);
        cx.begin_loop();
        match &self.slots.keys {
            Keys::Packed(_) => probe.claim_entry(cx, keys)?,
            Keys::Words(_) => probe.claim_words(cx, words, keys)?,
            Keys::Stored(_) => return Err(Unsupported::internal("keys that are no words")),
        }
        probe.advance(cx);
        cx.end();
        Ok(probe)
    }

    /// Begins the search for keys with a hash.
    pub fn begin_probe<'p>(&'p self, cx: &mut Context<'_>, count: &'p KeyCount, hash: V) -> Probe<'p> {
        let start = self.home(cx, hash, count.capacity);
        let b = &mut *cx.builder;
        let slot = b.var_of("slot", start);
        let no = b.bool(false);
        let found = b.var_of("found", no);
        let is_new = b.var_of("is_new", no);
        let zero = b.i64(0);
        let steps = b.var_of("steps", zero);
        Probe { table: self, count, slot, found, is_new, steps }
    }
}

impl Probe<'_> {
    fn succeed(&self, cx: &mut Context<'_>) {
        let yes = cx.builder.bool(true);
        cx.builder.assign(self.found, yes);
        cx.builder.break_loop();
    }

    /// To the next slot. A long probe looks whether the table is full: the threads of a GPU that put in a key at the same time
    /// are more than a small table has slots, so that it may have no free one, at which the others would look. A probe that has
    /// seen every slot ends.
    pub fn advance(&self, cx: &mut Context<'_>) {
        let capacity = self.count.capacity;
        let b = &mut *cx.builder;
        let seen = b.i64(1);
        let (slot, steps) = (b.read(self.slot), b.read(self.steps));
        let (next, first) = (b.add(slot, seen), b.i64(0));
        let is_behind = b.ge(next, capacity);
        let next = b.select(is_behind, first, next);
        b.assign(self.slot, next);
        let steps = b.add(steps, seen);
        b.assign(self.steps, steps);
        let everywhere = b.ge(steps, capacity);
        b.break_if(everywhere);
        let (mask, zero) = (b.i64(LONG_PROBE - 1), b.i64(0));
        let rest = b.and(steps, mask);
        let is_long = b.eq(rest, zero);
        cx.begin_if(is_long);
        self.count.leave_if_full(cx);
        let b = &mut *cx.builder;
        let (longest, most) = (b.i64(LONGEST_PROBE), b.i64(self.table.most_slots));
        let (is_too_long, may_grow) = (b.ge(steps, longest), b.lt(capacity, most));
        let crowded = b.and(is_too_long, may_grow);
        cx.begin_if(crowded);
        self.count.leave_as_full(cx);
        cx.end();
        cx.end();
    }

    /// The probe has put its key into a slot, with those that follow from it.
    fn take(&self, cx: &mut Context<'_>, keys: ProbeKeys<'_>, slot: V) -> Result<(), Unsupported> {
        self.table.dependent.store(cx, keys.dependent, slot)?;
        let yes = cx.builder.bool(true);
        cx.builder.assign(self.is_new, yes);
        self.count.add(cx);
        Ok(())
    }

    /// Looks at the entry of a slot.
    fn see(&self, cx: &mut Context<'_>, slot: V) -> SeenSlot {
        let pointer = self.table.entry(cx, slot);
        let current = cx.builder.atomic_load(pointer, Scope::Device);
        let seen = cx.builder.var_of("seen", current);
        SeenSlot { pointer, current, seen, free: cx.builder.u64(0) }
    }

    /// Looks at a slot of packed keys, which are put in where it is free.
    fn claim_entry(&self, cx: &mut Context<'_>, keys: ProbeKeys<'_>) -> Result<(), Unsupported> {
        let slot = cx.builder.read(self.slot);
        let (seen, entry) = (self.see(cx, slot), keys.word.entry);
        let mut taken = Ok(());
        let current = claim(cx, seen, entry, &|cx| self.count.leave_if_full(cx), &mut |cx, won| {
            cx.begin_if(won);
            taken = self.take(cx, keys, slot);
            self.succeed(cx);
            cx.end();
        });
        taken?;
        let same = cx.builder.eq(current, entry);
        cx.begin_if(same);
        self.succeed(cx);
        cx.end();
        Ok(())
    }

    /// Looks at a slot of keys that are words, and claims it word by word.
    fn claim_words(&self, cx: &mut Context<'_>, words: &[V], keys: ProbeKeys<'_>) -> Result<(), Unsupported> {
        let slot = cx.builder.read(self.slot);
        let first = self.table.entry(cx, slot);
        let no = cx.builder.bool(false);
        let same = cx.builder.var_of("same", no);
        let last = words.len().saturating_sub(1);
        for (index, own) in words.iter().enumerate() {
            let pointer = word_pointer(cx, first, index as u32);
            let current = cx.builder.atomic_load(pointer, Scope::Device);
            let (zero, is_same) = (cx.builder.u64(0), cx.builder.eq(current, *own));
            cx.builder.assign(same, is_same);
            let empty = cx.builder.eq(current, zero);
            cx.begin_if(empty);
            // Who has begun to claim a slot goes on to the end.
            if index == 0 {
                self.count.leave_if_full(cx);
            }
            let old = cx.builder.atomic(AtomicOp::CompareExchange(zero), pointer, *own, Scope::Device);
            let (won, found) = (cx.builder.eq(old, zero), cx.builder.eq(old, *own));
            let is_same = cx.builder.or(won, found);
            cx.builder.assign(same, is_same);
            if index == last {
                cx.begin_if(won);
                self.take(cx, keys, slot)?;
                cx.end();
            }
            cx.end();
            let is_same = cx.builder.read(same);
            cx.begin_if(is_same);
        }
        self.succeed(cx);
        words.iter().for_each(|_| cx.end());
        Ok(())
    }

    /// A turn of a search's loop: looks at a slot, which is claimed for stored keys where it is free. `alike` emits what is done where the
    /// slot's entry is the same, which leaves the loop or not; behind it the search goes on to the next slot.
    pub fn look(
        &self,
        cx: &mut Context<'_>,
        columns: &[StoredColumn],
        keys: ProbeKeys<'_>,
        alike: &mut dyn FnMut(&mut Context<'_>, V) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        let slot = cx.builder.read(self.slot);
        let (seen, ready) = (self.see(cx, slot), keys.word.entry);
        let busy = cx.builder.u64(BUSY);
        let mut taken = Ok(());
        let current = claim(cx, seen, busy, &|cx| self.count.leave_if_full(cx), &mut |cx, won| {
            cx.begin_if(won);
            taken = store(cx, columns, keys.values, slot);
            cx.builder.fence();
            cx.builder.atomic_discard(AtomicOp::Exchange, seen.pointer, ready, Scope::Device);
            // Nobody waits for what follows from these.
            if taken.is_ok() {
                taken = self.take(cx, keys, slot);
            }
            self.succeed(cx);
            cx.end();
        });
        taken?;
        // While another thread writes the slot's key, look again; it is on its way, also in this warp.
        let published = cx.builder.ne(current, busy);
        cx.begin_if(published);
        let is_alike = cx.builder.eq(current, ready);
        cx.begin_if(is_alike);
        cx.builder.fence();
        alike(cx, slot)?;
        cx.end();
        self.advance(cx);
        cx.end();
        Ok(())
    }
}

/// Stores keys in a slot that this thread has claimed.
fn store(
    cx: &mut Context<'_>,
    columns: &[StoredColumn],
    values: &[Lowered],
    slot: V,
) -> Result<(), Unsupported> {
    let was_open = cx.open_scratch(false);
    for (key, value) in columns.iter().zip(values) {
        let value = lasting(cx, value, was_open);
        key.store(cx, &value, slot)?;
    }
    cx.open_scratch(was_open);
    Ok(())
}
