//! Searches for the slot of keys, which are put into a free one where the table does not have them.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, Scope};

use super::{BUSY, EMPTY, KeyCount, KeyTable, KeyWord, LONG_PROBE, LONGEST_PROBE, Probe};
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;
use crate::lower::lasting;
use crate::table::stored::StoredColumn;

impl KeyTable {
    pub(super) fn begin_probe(&self, cx: &mut Context<'_>, hash: V, capacity: V) -> Probe {
        let start = self.home(cx, hash, capacity);
        let b = &mut *cx.builder;
        let slot = b.var_of("slot", start);
        let no = b.bool(false);
        let found = b.var_of("found", no);
        let is_new = b.var_of("is_new", no);
        let zero = b.i64(0);
        let steps = b.var_of("steps", zero);
        Probe { slot, found, is_new, steps, capacity }
    }

    pub(super) fn succeed(&self, cx: &mut Context<'_>, probe: &Probe) {
        let yes = cx.builder.bool(true);
        cx.builder.assign(probe.found, yes);
        cx.builder.break_loop();
    }

    /// To the next slot. A long probe looks whether the table is full: the threads of a GPU that put in a key at the same time
    /// are more than a small table has slots, so that it may have no free one, at which the others would look. A probe that has
    /// seen every slot ends.
    pub(super) fn advance(&self, cx: &mut Context<'_>, probe: &Probe, count: &KeyCount) {
        let b = &mut *cx.builder;
        let seen = b.i64(1);
        let (slot, steps) = (b.read(probe.slot), b.read(probe.steps));
        let (next, first) = (b.add(slot, seen), b.i64(0));
        let is_behind = b.ge(next, probe.capacity);
        let next = b.select(is_behind, first, next);
        b.assign(probe.slot, next);
        let steps = b.add(steps, seen);
        b.assign(probe.steps, steps);
        let everywhere = b.ge(steps, probe.capacity);
        b.break_if(everywhere);
        let (mask, zero) = (b.i64(LONG_PROBE - 1), b.i64(0));
        let rest = b.and(steps, mask);
        let is_long = b.eq(rest, zero);
        cx.begin_if(is_long);
        count.leave_if_full(cx);
        let b = &mut *cx.builder;
        let (longest, most) = (b.i64(LONGEST_PROBE), b.i64(self.most_slots));
        let (is_too_long, may_grow) = (b.ge(steps, longest), b.lt(probe.capacity, most));
        let crowded = b.and(is_too_long, may_grow);
        cx.begin_if(crowded);
        count.leave_as_full(cx);
        cx.end();
        cx.end();
    }

    /// The probe has put its key in.
    pub(super) fn take(&self, cx: &mut Context<'_>, probe: &Probe, count: &KeyCount) {
        let yes = cx.builder.bool(true);
        cx.builder.assign(probe.is_new, yes);
        count.add(cx);
    }

    pub(super) fn probe_packed(
        &self,
        cx: &mut Context<'_>,
        count: &KeyCount,
        word: KeyWord,
        carried: &[Expr],
    ) -> Result<Probe, Unsupported> {
        let KeyWord { entry, hash } = word;
        let probe = self.begin_probe(cx, hash, count.capacity);
        cx.begin_loop();
        let slot = cx.builder.read(probe.slot);
        let pointer = self.entry(cx, slot);
        let current = cx.builder.atomic_load(pointer, Scope::Device);
        let seen = cx.builder.var_of("seen", current);
        let zero = cx.builder.u64(0);
        let empty = cx.builder.eq(current, zero);
        cx.begin_if(empty);
        count.leave_if_full(cx);
        let old = cx.builder.atomic(AtomicOp::CompareExchange(zero), pointer, entry, Scope::Device);
        let won = cx.builder.eq(old, zero);
        cx.begin_if(won);
        self.carried.store(cx, carried, slot)?;
        self.take(cx, &probe, count);
        self.succeed(cx, &probe);
        cx.end();
        cx.builder.assign(seen, old);
        cx.end();
        let current = cx.builder.read(seen);
        let same = cx.builder.eq(current, entry);
        cx.begin_if(same);
        self.succeed(cx, &probe);
        cx.end();
        self.advance(cx, &probe, count);
        cx.end();
        Ok(probe)
    }

    pub(super) fn probe_stored(
        &self,
        cx: &mut Context<'_>,
        count: &KeyCount,
        (keys, values, carried): (&[StoredColumn], &[Lowered], &[Expr]),
        word: KeyWord,
    ) -> Result<Probe, Unsupported> {
        let probe = self.begin_probe(cx, word.hash, count.capacity);
        cx.begin_loop();
        self.look(cx, &probe, count, (keys, values, carried), word.entry, &mut |cx, slot| {
            let same = self.has_keys(cx, values, slot)?;
            cx.begin_if(same);
            self.succeed(cx, &probe);
            cx.end();
            Ok(())
        })?;
        cx.end();
        Ok(probe)
    }

    /// A turn of a search's loop: looks at a slot, which is claimed for keys whose entry is `ready` where it is free. `alike` emits what is
    /// done where the slot's entry is the same, which leaves the loop or not; behind it the search goes on to the next slot.
    pub(super) fn look(
        &self,
        cx: &mut Context<'_>,
        probe: &Probe,
        count: &KeyCount,
        (keys, values, carried): (&[StoredColumn], &[Lowered], &[Expr]),
        ready: V,
        alike: &mut dyn FnMut(&mut Context<'_>, V) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        let slot = cx.builder.read(probe.slot);
        let pointer = self.entry(cx, slot);
        let current = cx.builder.atomic_load(pointer, Scope::Device);
        let seen = cx.builder.var_of("seen", current);
        let (empty_state, busy) = (cx.builder.u64(EMPTY), cx.builder.u64(BUSY));
        let empty = cx.builder.eq(current, empty_state);
        cx.begin_if(empty);
        count.leave_if_full(cx);
        let old = cx.builder.atomic(AtomicOp::CompareExchange(empty_state), pointer, busy, Scope::Device);
        let won = cx.builder.eq(old, empty_state);
        cx.begin_if(won);
        let was_open = cx.open_scratch(false);
        for (key, value) in keys.iter().zip(values) {
            let value = lasting(cx, value, was_open);
            key.store(cx, &value, slot)?;
        }
        cx.open_scratch(was_open);
        cx.builder.fence();
        cx.builder.atomic_discard(AtomicOp::Exchange, pointer, ready, Scope::Device);
        // Nobody waits for these.
        self.carried.store(cx, carried, slot)?;
        self.take(cx, probe, count);
        self.succeed(cx, probe);
        cx.end();
        cx.builder.assign(seen, old);
        cx.end();
        // While another thread writes the slot's key, look again; it is on its way, also in this warp.
        let current = cx.builder.read(seen);
        let published = cx.builder.ne(current, busy);
        cx.begin_if(published);
        let is_alike = cx.builder.eq(current, ready);
        cx.begin_if(is_alike);
        cx.builder.fence();
        alike(cx, slot)?;
        cx.end();
        self.advance(cx, probe, count);
        cx.end();
        Ok(())
    }
}
