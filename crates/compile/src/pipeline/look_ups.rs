//! The first look-ups of the rows that a thread has tried, or just holds, in a table that comes next: all at once, before the rows go on one
//! by one. (Rows in flight together: Chen et al., "Improving hash join performance through prefetching", 2004, whose groups these are,
//! in registers.)

use kelpie_kir::builder::{V, Var};

use super::Pipeline;
use super::body::Body;
use super::speculation::Speculation;
use crate::context::{Context, LookedUp, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::operator::roles::LookUps;
use crate::table::index::SlotOfRow;

/// Registers that keep what was looked up, row by row, where it is found in a branch.
pub(super) struct KeptRows {
    rows: Vec<Vec<Var>>,
    /// One of the rows.
    form: LookedUp,
}

impl KeptRows {
    /// Keeps what was found of all rows.
    pub fn keep(cx: &mut Context<'_>, found: &[LookedUp]) -> Option<KeptRows> {
        let form = found.first()?.clone();
        Some(KeptRows { rows: found.iter().map(|row| row.keep(cx)).collect(), form })
    }

    /// Keeps what was found of the row of a number (`u32`).
    pub fn replace(&self, cx: &mut Context<'_>, number: V, found: &LookedUp) {
        for (row, vars) in (0..).zip(&self.rows) {
            let row = cx.builder.u32(row);
            let is_it = cx.builder.eq(number, row);
            for (var, register) in vars.iter().zip(found.registers()) {
                let before = cx.builder.read(*var);
                let value = cx.builder.select(is_it, register, before);
                cx.builder.assign(*var, value);
            }
        }
    }

    /// What is kept.
    pub fn read(&self, cx: &mut Context<'_>) -> Vec<LookedUp> {
        self.rows.iter().map(|vars| self.form.kept_in(cx, vars)).collect()
    }
}

impl Pipeline {
    /// The look-ups of a step, which is one that has some.
    pub(super) fn look_ups(&self, step: usize) -> Result<&dyn LookUps, Unsupported> {
        let step = self.steps.get(step).and_then(|step| step.look_ups());
        step.ok_or_else(|| Unsupported::internal("a step that looks nothing up"))
    }

    /// What the rows lack, which have come through `leading` steps, to be looked up by the next step together.
    pub(super) fn lacks_look_ups(
        &self,
        leading: usize,
        speculation: &Speculation<'_>,
    ) -> Result<(), &'static str> {
        let Some(look_ups) = self.steps.get(leading).and_then(|step| step.look_ups()) else {
            return Err("rows come to no look-up next");
        };
        let is_stored = |key: &Expr| {
            let ExprKind::Column(column) = key.kind else { return false };
            let mut before = self.steps.iter().take(leading).rev();
            before.try_fold(column, |column, step| step.below(column)).is_some()
        };
        // Keys are made of rows too that do not come to the step.
        let is_costly =
            |(number, key): (usize, &Expr)| !is_stored(key) && speculation.is_costly_key((leading, number));
        match look_ups.keys()?.iter().enumerate().any(is_costly) {
            true => Err("keys take more than a few instructions, or can fail"),
            false => Ok(()),
        }
    }
}

impl Body<'_> {
    /// Looks up rows at their slots by a step.
    pub(super) fn look_up(
        &self,
        cx: &mut Context<'_>,
        step: usize,
        slots: &[SlotOfRow],
    ) -> Result<Vec<LookedUp>, Unsupported> {
        let columns = self.read_behind(step + 1);
        self.pipeline.look_ups(step)?.look_up(cx, slots, &columns)
    }
}
