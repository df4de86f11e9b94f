//! Searches and claims of the lanes of a warp that look at texts of keys together.

use kelpie_kir::builder::V;

use super::{Known, OpenTable, Start, advance, number_of, place_of, search_together};
use crate::context::{Context, Unsupported};
use crate::lower::hashing::low_bits;
use crate::table::shared_keys::{Found, Pairs, SharedKeys, Together};

impl OpenTable {
    /// As [`OpenTable::find`] for each lane that is `live` (`bool`), at uniform control flow of the warp: the lanes look at texts
    /// together.
    pub(crate) fn find_together(
        &self,
        cx: &mut Context<'_>,
        (keys, wide): (SharedKeys<'_>, &[bool]),
        live: V,
        place: impl FnOnce(&mut Context<'_>, V) -> V,
        together: &dyn Together,
    ) -> Result<Found, Unsupported> {
        let hash = keys.hash(cx, (wide, self.function), live, together)?;
        let hash = low_bits(cx, self.function, hash);
        let start = self.start(cx, hash);
        let none = cx.builder.u32(0);
        let [hit, candidate] = ["cursor", "candidate"].map(|name| cx.builder.var_of(name, none));
        let searching = cx.builder.var_of("searching", live);
        let pairs = Pairs::new(cx, keys);
        let mut place = Some(place);
        let propose = &mut |cx: &mut Context<'_>| {
            let (no, yes) = (cx.builder.bool(false), cx.builder.bool(true));
            cx.builder.assign(searching, no);
            let may_be = |cx: &mut Context<'_>, number| {
                let place = place.take().ok_or_else(|| Unsupported::internal("a search emitted twice"))?;
                let place = place(cx, number);
                pairs.propose(cx, place)
            };
            self.walk(cx, (start, None), may_be, |cx, number, _| {
                cx.builder.assign(searching, yes);
                cx.builder.assign(candidate, number);
            })
        };
        let decide = &mut |cx: &mut Context<'_>, other, is_found| {
            let b = &mut *cx.builder;
            let (number, before) = (b.read(candidate), b.read(hit));
            let number = b.select(is_found, number, before);
            b.assign(hit, number);
            go_on(cx, start, other);
        };
        search_together(cx, &pairs, searching, together, (propose, decide))?;
        Ok(Found { slot: start.slot, hit })
    }

    /// As [`OpenTable::claim`] for the row at a place (`i64`) of each lane that is `live` (`bool`), at uniform control flow of the warp: the
    /// lanes look at texts together.
    pub(crate) fn claim_together(
        &self,
        cx: &mut Context<'_>,
        (keys, wide): (SharedKeys<'_>, &[bool]),
        (live, (place, known)): (V, (V, Known)),
        together: &dyn Together,
    ) -> Result<Found, Unsupported> {
        let hash = keys.hash(cx, (wide, self.function), live, together)?;
        let hash = low_bits(cx, self.function, hash);
        cx.begin_if(live);
        self.insert_into_bloom(cx, hash);
        known.begin(cx, place);
        cx.end();
        let start = self.start(cx, hash);
        let number = number_of(cx, place);
        let word = cx.builder.or(start.tag, number);
        let searching = cx.builder.var_of("searching", live);
        let hit = cx.builder.var_of("has_slot", live);
        let pairs = Pairs::new(cx, keys);
        let propose = &mut |cx: &mut Context<'_>| {
            let (no, yes) = (cx.builder.bool(false), cx.builder.bool(true));
            cx.builder.assign(searching, no);
            let may_be = |cx: &mut Context<'_>, number| {
                let other = place_of(cx, number);
                pairs.propose(cx, other)
            };
            self.walk(cx, (start, Some(word)), may_be, |cx, _, _| cx.builder.assign(searching, yes))
        };
        let decide = &mut |cx: &mut Context<'_>, other, is_known| {
            cx.begin_if(is_known);
            let slot = cx.builder.read(start.slot);
            let pointer = self.pointer(cx, slot);
            known.meet(cx, start, (pointer, word), place);
            cx.end();
            go_on(cx, start, other);
        };
        search_together(cx, &pairs, searching, together, (propose, decide))?;
        Ok(Found { slot: start.slot, hit })
    }
}

/// To the next slot, where keys were others (`bool`).
fn go_on(cx: &mut Context<'_>, start: Start, other: V) {
    cx.begin_if(other);
    let slot = cx.builder.read(start.slot);
    advance(cx, start, slot);
    cx.end();
}
