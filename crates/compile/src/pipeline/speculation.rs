//! What may be computed for rows that are dead, and whether rows stay together.

use super::body::Body;
use super::columns::{self, ColumnInfo};
use super::{Source, Step};
use crate::expr::{self, Expr, ExprKind, can_fail, is_cheap};

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

fn speculative_over(expr: &Expr, layers: &[(Option<&[Expr]>, Vec<ColumnInfo>)]) -> bool {
    let Some(((exprs, columns), below)) = layers.split_last() else { return false };
    let range_of = |index: usize| columns.get(index).and_then(|column: &ColumnInfo| column.range);
    if can_fail(expr, &range_of) || !is_cheap(expr, &range_of) {
        return false;
    }
    match exprs {
        None => true,
        Some(exprs) => columns_read(expr)
            .into_iter()
            .all(|column| exprs.get(column).is_some_and(|e| speculative_over(e, below))),
    }
}

/// The columns that an expression reads.
fn columns_read(expr: &Expr) -> Vec<usize> {
    match expr.kind {
        ExprKind::Column(index) => vec![index],
        _ => expr::children(expr).into_iter().flat_map(columns_read).collect(),
    }
}
