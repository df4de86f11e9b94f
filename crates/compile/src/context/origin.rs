//! Where values of the current row come from.

use super::{Context, Joined, Layer};
use crate::expr::{Expr, ExprKind};

impl Context<'_> {
    /// Whether an expression over the current row is a value that lies in memory as it is. Its range is then that of what was
    /// stored. The range of a value that this kernel computes holds only as far as every step of its lowering keeps to its
    /// own, so that what is indexed by it is guarded besides.
    pub(crate) fn is_stored(&self, expr: &Expr) -> bool {
        match expr.kind {
            ExprKind::Column(index) => self.layer_is_stored(self.current, index),
            _ => false,
        }
    }

    fn layer_is_stored(&self, layer: usize, index: usize) -> bool {
        let below = |column| layer.checked_sub(1).is_some_and(|below| self.layer_is_stored(below, column));
        match self.layers.get(layer) {
            Some(Layer::Scan { .. }) => true,
            Some(Layer::Project(exprs)) => match exprs.get(index).map(|expr| &expr.kind) {
                Some(ExprKind::Column(column)) => below(*column),
                _ => false,
            },
            Some(Layer::Joined(columns)) => match columns.get(index) {
                Some(Joined::Stored { .. }) => true,
                Some(Joined::Below(column)) => below(*column),
                _ => false,
            },
            Some(Layer::Values(_)) | None => false,
        }
    }
}
