//! Lane refill between the steps of matching texts (DogQC, section 4: LIKE and regular expressions keep their state from one step to the
//! next): each lane looks at the text of a row of its own, some bytes a step, and takes another row when its match is decided.
//!
//! Where each lane matches its row's text to the end, lanes whose texts are short, or whose matches are decided early, wait for the
//! longest of the warp's texts. Here lanes whose match is decided keep the row until fewer lanes than a threshold are busy. Then rows
//! that go on do so together, and lanes without a text take rows that have just arrived in the warp. Where there are none of these
//! either, the warp comes back with new ones, and lanes that are in the middle of a text stay there: the row and the registers of its
//! match are all that waits, a row a lane. When no more rows arrive, the warp goes on with as few lanes as there are.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Scalar, Type};

use super::refill;
use super::walk::{Arrived, BusyLanes};
use crate::context::lanes::{ballot, count};
use crate::context::{Context, Unsupported};
use crate::lower::Matching;

/// Rows whose texts are to be matched, one in each lane.
pub(crate) struct Candidates<'r> {
    pub matching: &'r Matching,
    /// Whether there is one, `bool`.
    pub is_there: V,
    /// What the match begins with.
    pub text: &'r [V],
    /// What the row stands on.
    pub row: &'r [V],
}

/// What follows for rows whose texts are as they should be: whether this lane has one (`bool`), and its registers. Stands at uniform
/// control flow of the warp.
pub(crate) type Decided<'t> = dyn FnMut(&mut Context<'_>, V, &[V]) -> Result<(), Unsupported> + 't;

/// Where the lanes of a warp are in their texts, from one turn of the row loop to the next.
pub(crate) struct MatchRefill {
    /// Whether this lane has a row whose match is not decided, `bool`; false where the kernel begins.
    open: Var,
    /// Where the match is.
    text: Vec<Var>,
    /// What the row stands on.
    row: Vec<Var>,
    /// Lanes with open matches at which the warp goes on.
    threshold: u32,
}

impl MatchRefill {
    /// For matches and rows in registers of these types. `threshold`: of 32 lanes.
    pub(crate) fn new(cx: &mut Context<'_>, text: &[Type], row: &[Type], threshold: u64) -> MatchRefill {
        let threshold = refill::lanes_of(cx, threshold);
        let open = cx.builder.var("open", Scalar::Bool);
        let [text, row] = [("matching", text), ("matched", row)]
            .map(|(name, types)| types.iter().map(|ty| cx.builder.var(name, *ty)).collect());
        MatchRefill { open, text, row, threshold }
    }

    /// Takes steps through the texts that have arrived and those that lanes are in, as long as there are enough; where `is_last` (`bool`,
    /// the same in the warp), to their ends. `mark`: the number of the mark that lanes come by with each step. `decided` is passed
    /// through at least once. At uniform control flow of the warp.
    pub(crate) fn emit(
        &self,
        cx: &mut Context<'_>,
        candidates: &Candidates<'_>,
        (is_last, mark): (V, u32),
        decided: &mut Decided<'_>,
    ) -> Result<(), Unsupported> {
        let b = &mut *cx.builder;
        let (no, one, threshold) = (b.bool(false), b.u32(1), b.u32(self.threshold));
        let least = b.select(is_last, one, threshold);
        let arrived = Arrived::new(cx, candidates.is_there);
        // Nobody's row waits here for the next turn: they go on before the warp leaves the loop.
        let passed = cx.builder.var_of("passed", no);
        cx.begin_loop();
        let open = cx.builder.read(self.open);
        let mask = ballot(cx, open);
        let lanes = count(cx, mask);
        let waits = arrived.waits(cx);
        let b = &mut *cx.builder;
        let busy = b.var_of("busy", lanes);
        // In the end rows that go on wait for the last one, but lanes take what there is.
        let wanted = b.select(waits, threshold, least);
        let is_few = b.lt(lanes, wanted);
        cx.begin_if(is_few);
        let b = &mut *cx.builder;
        let (goes_on, row) =
            (b.read(passed), self.row.iter().map(|register| b.read(*register)).collect::<Vec<V>>());
        b.assign(passed, no);
        decided(cx, goes_on, &row)?;
        cx.begin_if(waits);
        let lanes = BusyLanes { mask, has_own: open, count: busy };
        self.take(cx, candidates, &arrived, &lanes);
        cx.end();
        cx.end();
        let b = &mut *cx.builder;
        let lanes = b.read(busy);
        let done = b.lt(lanes, least);
        b.break_if(done);
        let open = b.read(self.open);
        cx.begin_if(open);
        if cx.target.counts_marks {
            cx.builder.mark(mark);
        }
        let verdict = candidates.matching.step(cx, &self.text)?;
        let b = &mut *cx.builder;
        let (stays, holds) = (b.not(verdict.is_decided), b.and(verdict.is_decided, verdict.holds));
        b.assign(self.open, stays);
        b.assign(passed, holds);
        cx.end();
        cx.end();
        Ok(())
    }

    /// Lanes without an open match begin with rows that have arrived; those with one are `busy`.
    fn take(&self, cx: &mut Context<'_>, candidates: &Candidates<'_>, arrived: &Arrived, busy: &BusyLanes) {
        let vars = self.text.iter().chain(&self.row).copied();
        let values = candidates.text.iter().chain(candidates.row).copied();
        let takes = arrived.deal(cx, busy, vars.zip(values));
        let now = cx.builder.or(busy.has_own, takes);
        cx.builder.assign(self.open, now);
    }
}
