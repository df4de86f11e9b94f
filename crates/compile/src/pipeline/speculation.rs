//! What may be computed for rows that are dead, and whether rows stay together.

use std::collections::BTreeSet;

use super::Pipeline;
use crate::expr::{Expr, columns_read};
use crate::layout::ColumnInfo;
use crate::lower::{can_fail, is_cheap};

/// What of a pipeline may be computed for rows that are not live: what cannot fail and costs little, also through the
/// projections that it stands on.
pub(super) struct Speculation<'a> {
    /// The columns at the source, then behind each projection or join: the projection, and what is known of the columns.
    layers: Vec<(Option<&'a [Expr]>, Vec<ColumnInfo>)>,
    /// Of each step whether it may.
    steps: Vec<bool>,
    /// All of them may, and the source's rows.
    all: bool,
    /// Keys that are computed where rows are looked up and may not: the step, and the number of the key.
    costly_keys: BTreeSet<(usize, usize)>,
}

impl<'a> Speculation<'a> {
    pub(super) fn of(pipeline: &'a Pipeline) -> Speculation<'a> {
        let layers = vec![(None, pipeline.source.columns())];
        let mut speculation =
            Speculation { layers, steps: Vec::new(), all: false, costly_keys: BTreeSet::new() };
        for (index, step) in pipeline.steps.iter().enumerate() {
            let keys = step.batch_look_ups().map_or(&[][..], |look_ups| look_ups.keys());
            let costly = keys.iter().enumerate().filter(|(_, key)| !speculation.may(key));
            let costly: Vec<_> = costly.map(|(number, _)| (index, number)).collect();
            speculation.costly_keys.extend(costly);
            let may = match step.condition() {
                Some(condition) => speculation.may(condition),
                None => step.projection().is_some(),
            };
            speculation.steps.push(may);
            let below = speculation.layers.last().map_or(&[][..], |(_, columns)| columns);
            if let Some(columns) = step.columns(below) {
                speculation.layers.push((step.projection(), columns));
            }
        }
        speculation.all = pipeline.source.is_speculative() && speculation.steps.iter().all(|may| *may);
        speculation
    }

    /// Whether a step may be carried out for rows that are not live.
    pub(super) fn of_step(&self, index: usize) -> bool {
        self.steps.get(index).copied().unwrap_or(false)
    }

    /// Whether a key of a step that looks rows up costs more than a few instructions, or can fail.
    pub(super) fn is_costly_key(&self, key: (usize, usize)) -> bool {
        self.costly_keys.contains(&key)
    }

    /// Whether all steps may.
    pub(super) fn of_all_steps(&self) -> bool {
        self.all
    }

    /// Whether an expression over the columns behind all steps may be computed for rows that are not live.
    pub(super) fn of_result(&self, expr: &Expr) -> bool {
        self.all && self.may(expr)
    }

    /// Goes down layer by layer with the columns that are read there, each once: the same column may be read on many ways.
    fn may(&self, expr: &Expr) -> bool {
        let mut exprs = vec![expr];
        for (projected, columns) in self.layers.iter().rev() {
            let range_of = |index: usize| columns.get(index).and_then(|column: &ColumnInfo| column.range);
            if exprs.iter().any(|expr| can_fail(expr, &range_of) || !is_cheap(expr, &range_of)) {
                return false;
            }
            let Some(projected) = projected else { return true };
            let read: BTreeSet<usize> = exprs.into_iter().flat_map(columns_read).collect();
            let below: Option<Vec<&Expr>> = read.into_iter().map(|column| projected.get(column)).collect();
            match below {
                Some(below) => exprs = below,
                None => return false,
            }
        }
        false
    }
}
