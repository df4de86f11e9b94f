//! One group of a thread, in its registers: rows that come to it are added up there, and go to where all threads add only when another
//! group takes its place.
//!
//! Threads that meet in a frequent value's group wait for each other at its cells, in a block's memory too. Of rows that have found no
//! place in their part nearly all are such ([`partition`](crate::operator::partition)): a comparison a row replaces their atomics, and neither
//! lanes nor threads have to be together for it (Karnagel et al., section 5, has the problem, not this answer).
//!
//! Another group takes its place with its first row, where rows of a group follow each other. Among rows of one frequent group that are
//! mixed with some of others, threads would hand over and wait each time one of these comes. There the group is that which most rows
//! have, by a vote: each row of it is one for it, each other one against it, which is added where all add (Boyer and Moore, "MJRTY",
//! 1991; of the votes only the last ones count, so that the group may change).

use kelpie_kir::BinaryOp;
use kelpie_kir::builder::{V, Var};

use crate::context::{Context, Unsupported};
use crate::operator::aggregate::functions::{Cells, combine_registers};
use crate::operator::aggregate::keys::Facts;
use crate::variant::axes::RunAccumulator as Axis;

/// Adds contributions to the group in a slot (`i64`), where all threads do.
pub(crate) type AddBehind<'a> = dyn Fn(&mut Context<'_>, V, &[Vec<V>]) + 'a;

/// What a thread has of one group.
pub(crate) struct RunAccumulator {
    /// The group's slot (`i64`); less than any where there is none.
    slot: Var,
    /// One a cell, one a part.
    cells: Vec<Vec<Var>>,
    /// Votes for the group, `i32`, where they decide.
    votes: Option<Var>,
}

/// Votes that a group has at most: another that has more rows from now on soon has its place.
const MOST_VOTES: i32 = 8;

/// No slot, whoever gives slots their numbers.
const NONE: i64 = i64::MIN;

impl RunAccumulator {
    /// Whether threads keep a group, and which.
    pub fn choose(facts: &Facts<'_>) -> Result<Axis, Unsupported> {
        let why_not = (!facts.are_plain).then_some("texts are compared in the table of all groups");
        let beyond_parts = facts.window.is_some() || facts.is_alone && !facts.keys.are_even;
        let rule = match why_not {
            Some(why_not) => (Axis::Off, why_not),
            None if beyond_parts => {
                (Axis::Majority, "rows that found no place in their part are mostly of one group")
            }
            None if facts.follow_each_other() => {
                (Axis::On, "rows that follow each other have keys near each other")
            }
            None => (Axis::Off, "rows that follow each other in a thread seldom have the same group"),
        };
        facts.input.site.choose(rule, |value| match (value, why_not) {
            (Axis::On | Axis::Majority, Some(why_not)) => Err(why_not.into()),
            _ => Ok(()),
        })
    }

    /// Begins with no group. `form`: not `Off`.
    pub fn begin(cx: &mut Context<'_>, cells: &Cells, form: Axis) -> RunAccumulator {
        let none = cx.builder.i64(NONE);
        let slot = cx.builder.var_of("run_accumulator", none);
        let cells = cells.cells.iter().map(|cell| {
            let nothing = cell.op.nothing(cx);
            nothing.into_iter().map(|part| cx.builder.var_of("last_cell", part)).collect()
        });
        let cells = cells.collect();
        let votes = (form == Axis::Majority).then(|| {
            let none = cx.builder.i32(0);
            cx.builder.var_of("votes", none)
        });
        RunAccumulator { slot, cells, votes }
    }

    /// Adds contributions to the group in `slot` (`i64`) if it is the thread's, or becomes it: then what there is of the one before goes
    /// `behind`. Else they go there themselves.
    pub fn add(
        &self,
        cx: &mut Context<'_>,
        cells: &Cells,
        slot: V,
        values: &[Vec<V>],
        behind: &AddBehind<'_>,
    ) {
        let last = cx.builder.read(self.slot);
        let is_other = cx.builder.ne(slot, last);
        cx.begin_if(is_other);
        match self.votes {
            None => {
                let totals = self.totals(cx);
                self.hand_over(cx, (last, &totals), behind);
                self.take(cx, cells, slot);
            }
            Some(votes) => self.vote_against(cx, cells, (slot, values), (last, votes), behind),
        }
        cx.end();
        let Some(votes) = self.votes else { return self.combine(cx, cells, values) };
        let own = cx.builder.read(self.slot);
        let is_own = cx.builder.eq(slot, own);
        cx.begin_if(is_own);
        self.combine(cx, cells, values);
        let b = &mut *cx.builder;
        let (now, one, most) = (b.read(votes), b.i32(1), b.i32(MOST_VOTES));
        let more = b.add(now, one);
        let more = b.binary(BinaryOp::Min, more, most);
        b.assign(votes, more);
        cx.end();
    }

    /// A row of another group than the thread's, `last`, which leaves where it has no votes: then the row's group takes its place. Else the
    /// row itself is handed over. Threads of a warp that do the one or the other do it together.
    fn vote_against(
        &self,
        cx: &mut Context<'_>,
        cells: &Cells,
        (slot, values): (V, &[Vec<V>]),
        (last, votes): (V, Var),
        behind: &AddBehind<'_>,
    ) {
        let b = &mut *cx.builder;
        let (now, none, one) = (b.read(votes), b.i32(0), b.i32(1));
        let stays = b.lt(none, now);
        let fewer = b.sub(now, one);
        let fewer = b.binary(BinaryOp::Max, fewer, none);
        b.assign(votes, fewer);
        let leaves = b.select(stays, slot, last);
        let mut totals = self.totals(cx);
        for (total, value) in totals.iter_mut().flatten().zip(values.iter().flatten()) {
            *total = cx.builder.select(stays, *value, *total);
        }
        self.hand_over(cx, (leaves, &totals), behind);
        let goes = cx.builder.not(stays);
        cx.begin_if(goes);
        self.take(cx, cells, slot);
        cx.end();
    }

    /// The group in a slot becomes the thread's, with nothing yet.
    fn take(&self, cx: &mut Context<'_>, cells: &Cells, slot: V) {
        cx.builder.assign(self.slot, slot);
        for (cell, own) in cells.cells.iter().zip(&self.cells) {
            for (part, nothing) in own.iter().zip(cell.op.nothing(cx)) {
                cx.builder.assign(*part, nothing);
            }
        }
    }

    /// Adds contributions to the thread's group.
    fn combine(&self, cx: &mut Context<'_>, cells: &Cells, values: &[Vec<V>]) {
        for ((cell, own), value) in cells.cells.iter().zip(&self.cells).zip(values) {
            combine_registers(cx, cell.op, own, value);
        }
    }

    /// Hands over what the thread has, if anything, and has nothing then.
    pub fn end(&self, cx: &mut Context<'_>, behind: &AddBehind<'_>) {
        let (last, totals) = (cx.builder.read(self.slot), self.totals(cx));
        self.hand_over(cx, (last, &totals), behind);
        let none = cx.builder.i64(NONE);
        cx.builder.assign(self.slot, none);
        if let Some(votes) = self.votes {
            let none = cx.builder.i32(0);
            cx.builder.assign(votes, none);
        }
    }

    /// What the thread has of its group.
    fn totals(&self, cx: &mut Context<'_>) -> Vec<Vec<V>> {
        self.cells.iter().map(|cell| cell.iter().map(|part| cx.builder.read(*part)).collect()).collect()
    }

    /// Adds contributions to the group in a slot (`i64`), if there is one, by `behind`.
    fn hand_over(&self, cx: &mut Context<'_>, (slot, totals): (V, &[Vec<V>]), behind: &AddBehind<'_>) {
        let any = cx.builder.ne_int(slot, NONE);
        cx.begin_if(any);
        behind(cx, slot, totals);
        cx.end();
    }
}
