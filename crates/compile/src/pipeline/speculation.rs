//! What may be computed for rows that are dead, and whether rows stay together.

use std::collections::BTreeSet;

use super::body::Body;
use super::columns::{self, ColumnInfo};
use super::{Source, Step};
use crate::expr::{Expr, can_fail, columns_read, is_cheap};

impl Body<'_, '_> {
    /// Joins branch and loop: what follows them stands at divergent control flow.
    pub(super) fn has_joins(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Join(_) | Step::Prefilter(..)))
    }

    /// Whether there is a row at every place of the source.
    pub(super) fn source_is_dense(&self) -> bool {
        match self.source {
            Source::Scan { .. } => true,
            Source::Rows(rows) => rows.is_dense(),
            Source::Groups(_) | Source::Store(_) | Source::BuildRows(_) | Source::Sorted(_) => false,
        }
    }

    pub(super) fn is_simt(&self) -> bool {
        self.environment.target.lanes > 1 || self.environment.target.block_threads > 1
    }

    pub(super) fn filters_are_speculative(&self) -> bool {
        self.source_is_dense()
            && self.steps.iter().enumerate().all(|(index, step)| match step {
                Step::Filter(predicate) => self.is_speculative(index, predicate),
                Step::Project(_) => true,
                Step::Join(_) | Step::Prefilter(..) => false,
            })
    }

    /// Whether an expression over the columns before step `index` may be computed for rows that are dead: it cannot
    /// fail, and costs little, also through the projections that it stands on.
    pub(super) fn is_speculative(&self, index: usize, expr: &Expr) -> bool {
        let layers = self.layers(index);
        speculative_over(expr, &layers)
    }

    /// The projections before step `index`, outermost last, each with what is known of the columns under it.
    fn layers(&self, index: usize) -> Vec<(Option<&[Expr]>, Vec<ColumnInfo>)> {
        let first = match self.source {
            Source::Scan { scan, node } => match self.environment.scans.get(*scan) {
                Some(info) => columns::of_scan(*scan, node, info),
                None => Vec::new(),
            },
            Source::Groups(operator) => operator.columns(),
            Source::Store(join) => join.store().infos(),
            Source::BuildRows(join) => join.columns().to_vec(),
            Source::Rows(rows) => rows.infos(),
            Source::Sorted(sort) => sort.infos(),
        };
        let mut layers: Vec<(Option<&[Expr]>, Vec<ColumnInfo>)> = vec![(None, first)];
        for step in &self.steps[..index] {
            match step {
                Step::Filter(_) | Step::Prefilter(..) => {}
                Step::Project(exprs) => {
                    let below = layers.last().map(|(_, columns)| columns.clone()).unwrap_or_default();
                    layers.push((Some(exprs), columns::of_projection(exprs, &below)));
                }
                Step::Join(join) => layers.push((None, join.columns().to_vec())),
            }
        }
        layers
    }
}

/// Goes down layer by layer with the columns that are read there, each once: the same column may be read on many ways.
fn speculative_over(expr: &Expr, layers: &[(Option<&[Expr]>, Vec<ColumnInfo>)]) -> bool {
    let mut exprs = vec![expr];
    for (projected, columns) in layers.iter().rev() {
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
