//! A projection as a layer of the current row: its columns are computed when they are first asked for.

use std::rc::Rc;

use super::infer_range;
use crate::context::{Context, Lowered, Origin, RowLayer, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::types::Range;

#[derive(Debug)]
struct Projection(Vec<Expr>);

impl RowLayer for Projection {
    fn origin(&self, column: usize) -> Option<Origin<'_>> {
        let expr = self.0.get(column)?;
        Some(match expr.kind {
            ExprKind::Column(below) => Origin::Below(below),
            _ => Origin::Computed(expr),
        })
    }

    fn load(&self, cx: &mut Context<'_>, column: usize) -> Result<Lowered, Unsupported> {
        let missing = || Unsupported(format!("column {column} is out of range"));
        cx.lower(self.0.get(column).ok_or_else(missing)?)
    }

    fn range(&self, column: usize, below: &dyn Fn(usize) -> Option<Range>) -> Option<Range> {
        infer_range(self.0.get(column)?, below)
    }
}

impl Context<'_> {
    /// Puts a projection on the row: columns are now those of `exprs`.
    pub fn push_projection(&mut self, exprs: &[Expr]) {
        self.push_layer(Rc::new(Projection(exprs.to_vec())));
    }
}
