//! Where what a row adds goes on its way to the table of all groups.

use kelpie_kir::builder::{V, Var};

use super::functions::Cells;
use super::local::{PreaggregationTable, RunAccumulator};
use super::parts::PartWindow;
use super::tables::{GroupEmitter, HashEmitter};
use crate::context::{Context, Unsupported};

/// The groups in one kernel, and near copies of some, or a window over those of a part, and what a thread has of one.
pub(super) struct Adder<'s> {
    pub groups: Box<dyn GroupEmitter + 's>,
    pub near: Option<PreaggregationTable>,
    /// The group that a thread met last, and whether rows are such that it is worth while (`bool`).
    pub last: Option<(RunAccumulator, Var)>,
    /// Whether nobody else adds to the groups of the part that rows are of (`bool`), where they come in parts to one worker each.
    pub alone: Option<Var>,
    pub window: Option<PartWindow>,
    pub cells: &'s Cells,
}

impl Adder<'_> {
    /// Adds contributions to the group in `slot`: to the thread's last group where it has one and rows are such as follow each other.
    pub fn add(&self, cx: &mut Context<'_>, slot: Option<V>, values: &[Vec<V>]) {
        let Some(slot) = slot else { return self.groups.add(cx, None, values) };
        let Some((last, is_worth_it)) = &self.last else { return self.add_behind(cx, slot, values) };
        let is_worth_it = cx.builder.read(*is_worth_it);
        cx.begin_if(is_worth_it);
        last.add(cx, self.cells, slot, values, &|cx, slot, values| self.add_behind(cx, slot, values));
        cx.begin_else();
        self.add_behind(cx, slot, values);
        cx.end();
    }

    /// The same in the window, else to its near copy, else to the table of all groups.
    fn add_behind(&self, cx: &mut Context<'_>, slot: V, values: &[Vec<V>]) {
        match &self.window {
            Some(window) => {
                window
                    .add(cx, self.cells, slot, values, &|cx, slot, values| self.add_shared(cx, slot, values));
            }
            None => self.add_shared(cx, slot, values),
        }
    }

    /// The same of a group that is in no window.
    fn add_shared(&self, cx: &mut Context<'_>, slot: V, values: &[Vec<V>]) {
        match &self.near {
            Some(near) => near.add(cx, self.cells, slot, values, &self.far()),
            None => self.groups.add(cx, Some(slot), values),
        }
    }

    /// The groups, which are found by their keys.
    pub fn found_by_keys(&self) -> Result<&HashEmitter<'_>, Unsupported> {
        self.groups.hashed().ok_or_else(|| Unsupported::internal("groups that are not found by their keys"))
    }

    /// After the last row.
    pub fn end(&self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        self.hand_over_last(cx);
        if let Some(near) = &self.near {
            near.end(cx, self.cells, &self.far());
        }
        self.groups.end(cx)
    }

    /// Adds what the thread has of its last group, where all add.
    pub fn hand_over_last(&self, cx: &mut Context<'_>) {
        if let Some((last, _)) = &self.last {
            last.end(cx, &|cx, slot, values| self.add_behind(cx, slot, values));
        }
    }

    pub fn far(&self) -> impl Fn(&mut Context<'_>, V, &[Vec<V>]) {
        |cx, slot, values| self.groups.add(cx, Some(slot), values)
    }
}
