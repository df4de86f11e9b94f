//! The group that a thread met last, in its registers: rows that come to it one after the other are added up there, and go to where
//! all threads add only when another group's row comes.
//!
//! Threads that meet in a frequent value's group wait for each other at its cells, in a block's memory too. Of rows that have found no
//! place in their part nearly all are such ([`partition`](crate::operator::partition)): a comparison a row replaces their atomics, and neither
//! lanes nor threads have to be together for it (Karnagel et al., section 5, has the problem, not this answer).

use kelpie_kir::builder::{V, Var};

use super::cells::combine_registers;
use super::functions::Cells;
use crate::context::{Context, Unsupported};
use crate::variant::Site;
use crate::variant::axes::LastGroup as Axis;

/// Adds contributions to the group in a slot (`i64`), where all threads do.
pub(super) type AddBehind<'a> = dyn Fn(&mut Context<'_>, V, &[Vec<V>]) + 'a;

/// What a thread has of one group.
pub(super) struct LastGroup {
    /// The group's slot (`i64`); less than any where there is none.
    slot: Var,
    /// One a cell, one a part.
    cells: Vec<Vec<Var>>,
}

/// No slot, whoever gives slots their numbers.
const NONE: i64 = i64::MIN;

impl LastGroup {
    /// Whether threads keep their last group. `beyond_parts`: rows may come here that have found no place in their part; `follows`: rows
    /// that follow each other have keys near each other, and so the same often.
    pub fn plan(
        cells: &Cells,
        (beyond_parts, follows): (bool, bool),
        site: Site<'_>,
    ) -> Result<bool, Unsupported> {
        let is_plain = cells.cells.iter().all(|cell| cell.op.is_plain());
        let lacks = (!is_plain).then_some("texts are compared in the table of all groups");
        let rule = match (lacks, beyond_parts) {
            (Some(lacks), _) => (Axis::Off, lacks),
            (None, true) => (Axis::On, "rows that found no place in their part are mostly of one group"),
            (None, false) if follows => (Axis::On, "rows that follow each other have keys near each other"),
            (None, false) => {
                (Axis::Off, "rows that follow each other in a thread seldom have the same group")
            }
        };
        let chosen = site.choose(rule, |value| match (value, lacks) {
            (Axis::On, Some(lacks)) => Err(lacks.into()),
            _ => Ok(()),
        })?;
        Ok(chosen == Axis::On)
    }

    /// Begins with no group.
    pub fn begin(cx: &mut Context<'_>, cells: &Cells) -> LastGroup {
        let none = cx.builder.i64(NONE);
        let slot = cx.builder.var_of("last_group", none);
        let cells = cells.cells.iter().map(|cell| {
            let nothing = cell.op.nothing(cx);
            nothing.into_iter().map(|part| cx.builder.var_of("last_cell", part)).collect()
        });
        LastGroup { slot, cells: cells.collect() }
    }

    /// Adds contributions to the group in `slot` (`i64`); by `behind` those of the last one, where it is another.
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
        self.end(cx, behind);
        cx.builder.assign(self.slot, slot);
        for (cell, own) in cells.cells.iter().zip(&self.cells) {
            for (part, nothing) in own.iter().zip(cell.op.nothing(cx)) {
                cx.builder.assign(*part, nothing);
            }
        }
        cx.end();
        for ((cell, own), value) in cells.cells.iter().zip(&self.cells).zip(values) {
            combine_registers(cx, cell.op, own, value);
        }
    }

    /// Hands over what the thread has, if anything, and has nothing then.
    pub fn end(&self, cx: &mut Context<'_>, behind: &AddBehind<'_>) {
        let (last, none) = (cx.builder.read(self.slot), cx.builder.i64(NONE));
        let any = cx.builder.ne(last, none);
        cx.begin_if(any);
        let totals: Vec<Vec<V>> =
            self.cells.iter().map(|cell| cell.iter().map(|part| cx.builder.read(*part)).collect()).collect();
        behind(cx, last, &totals);
        cx.builder.assign(self.slot, none);
        cx.end();
    }
}
