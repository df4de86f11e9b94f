//! Searches and claims of the lanes of a warp that look at texts of keys together.

use kelpie_kir::Expr;
use kelpie_kir::builder::{V, Var};

use super::{Known, OpenTable, Start, advance, number_of, place_of};
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
        cx.begin_loop();
        let open = cx.builder.read(searching);
        let any = cx.builder.value(Expr::Any(open));
        let done = cx.builder.not(any);
        cx.builder.break_if(done);
        cx.begin_if(open);
        self.propose(cx, start, (&pairs, searching, candidate), place)?;
        cx.end();
        let open = cx.builder.read(searching);
        let (other, is_found) = decide(cx, &pairs, open, together)?;
        let b = &mut *cx.builder;
        let (number, before) = (b.read(candidate), b.read(hit));
        let number = b.select(is_found, number, before);
        b.assign(hit, number);
        b.assign(searching, other);
        cx.begin_if(other);
        let slot = cx.builder.read(start.slot);
        advance(cx, start, slot);
        cx.end();
        cx.end();
        Ok(Found { slot: start.slot, hit })
    }

    /// Goes on with a lane's search up to a slot whose keys may be the row's: its number is the `candidate` (`u32`), and the lane is still
    /// `searching` (`bool`). Else the search has ended.
    fn propose(
        &self,
        cx: &mut Context<'_>,
        start: Start,
        (pairs, searching, candidate): (&Pairs<'_>, Var, Var),
        place: impl FnOnce(&mut Context<'_>, V) -> V,
    ) -> Result<(), Unsupported> {
        let (no, yes) = (cx.builder.bool(false), cx.builder.bool(true));
        cx.builder.assign(searching, no);
        let may_be = |cx: &mut Context<'_>, number| {
            let place = place(cx, number);
            pairs.propose(cx, place)
        };
        self.walk(cx, start, may_be, |cx, number| {
            cx.builder.assign(searching, yes);
            cx.builder.assign(candidate, number);
        })
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
        cx.begin_loop();
        let open = cx.builder.read(searching);
        let any = cx.builder.value(Expr::Any(open));
        let done = cx.builder.not(any);
        cx.builder.break_if(done);
        cx.begin_if(open);
        self.propose_or_claim(cx, (start, word), (&pairs, searching))?;
        cx.end();
        let open = cx.builder.read(searching);
        let (other, is_known) = decide(cx, &pairs, open, together)?;
        cx.builder.assign(searching, other);
        cx.begin_if(is_known);
        let slot = cx.builder.read(start.slot);
        let pointer = self.pointer(cx, slot);
        known.meet(cx, start, (pointer, word), place);
        cx.end();
        cx.begin_if(other);
        let slot = cx.builder.read(start.slot);
        advance(cx, start, slot);
        cx.end();
        cx.end();
        Ok(Found { slot: start.slot, hit })
    }

    /// Goes on with a lane's search up to a slot whose keys may be the row's: then the lane is still `searching` (`bool`). Else it has put its
    /// word into a free one.
    fn propose_or_claim(
        &self,
        cx: &mut Context<'_>,
        (start, word): (Start, V),
        (pairs, searching): (&Pairs<'_>, Var),
    ) -> Result<(), Unsupported> {
        let (no, yes) = (cx.builder.bool(false), cx.builder.bool(true));
        cx.builder.assign(searching, no);
        let may_be = |cx: &mut Context<'_>, number| {
            let other = place_of(cx, number);
            pairs.propose(cx, other)
        };
        self.walk_to_claim(cx, (start, word), may_be, |cx, _| cx.builder.assign(searching, yes))
    }
}

/// Of lanes that have proposed keys (`open`): whether these are others than the row's, and whether they are the row's (`bool` each).
fn decide(
    cx: &mut Context<'_>,
    pairs: &Pairs<'_>,
    open: V,
    together: &dyn Together,
) -> Result<(V, V), Unsupported> {
    let differ = pairs.differ(cx, open, together)?;
    let b = &mut *cx.builder;
    let (other, same) = (b.and(open, differ), b.not(differ));
    Ok((other, b.and(open, same)))
}
