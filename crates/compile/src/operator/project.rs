//! The projection: columns become expressions over them, each computed where it is first asked for.

use std::collections::BTreeSet;
use std::fmt;

use super::roles::{Next, Step};
use crate::context::{Context, Unsupported};
use crate::expr::{Expr, ExprKind, columns_read};
use crate::layout::ColumnInfo;
use crate::lower::columns_of;
use crate::operator::Flow;

/// A projection.
#[derive(Debug)]
pub(crate) struct Project(pub Vec<Expr>);

impl fmt::Display for Project {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("project")
    }
}

impl Step for Project {
    fn consume(
        &self,
        cx: &mut Context<'_>,
        flow: Flow,
        _speculative: bool,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        cx.push_projection(&self.0);
        next(cx, flow)
    }

    fn columns(&self, below: &[ColumnInfo]) -> Option<Vec<ColumnInfo>> {
        Some(columns_of(&self.0, below))
    }

    fn below(&self, column: usize) -> Option<usize> {
        match self.0.get(column)?.kind {
            ExprKind::Column(below) => Some(below),
            _ => None,
        }
    }

    fn read(&self, columns: &BTreeSet<usize>, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        let exprs = columns.iter().filter_map(|column| self.0.get(*column));
        exprs.flat_map(columns_read).collect()
    }

    fn projection(&self) -> Option<&[Expr]> {
        Some(&self.0)
    }
}
