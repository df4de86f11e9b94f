//! The filter: keeps the rows where a predicate is true; false and NULL drop the row.

use std::collections::BTreeSet;
use std::fmt;

use kelpie_kir::Type;
use kelpie_kir::builder::V;

use super::roles::{Next, Step};
use crate::context::{Context, Unsupported};
use crate::expr::{Expr, columns_read};
use crate::layout::ColumnInfo;
use crate::lower::lower_condition;
use crate::operator::Flow;

/// A filter.
#[derive(Debug)]
pub(crate) struct Filter(pub Expr);

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("filter")
    }
}

impl Step for Filter {
    fn consume(
        &self,
        cx: &mut Context<'_>,
        flow: Flow,
        speculative: bool,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        keep_where(cx, (flow, speculative), &mut |cx| lower_condition(cx, &self.0), next)
    }

    fn columns(&self, _below: &[ColumnInfo]) -> Option<Vec<ColumnInfo>> {
        None
    }

    fn below(&self, column: usize) -> Option<usize> {
        Some(column)
    }

    fn read(&self, columns: &BTreeSet<usize>, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        columns.iter().copied().chain(columns_read(&self.0)).collect()
    }

    fn condition(&self) -> Option<&Expr> {
        Some(&self.0)
    }
}

/// The rows that pass a test (`bool`) go on. Under a flag, a test that may not be computed for a dead row is guarded by the flag.
pub(super) fn keep_where(
    cx: &mut Context<'_>,
    (flow, speculative): (Flow, bool),
    passes: &mut dyn FnMut(&mut Context<'_>) -> Result<V, Unsupported>,
    next: &mut Next<'_>,
) -> Result<(), Unsupported> {
    let active = match flow {
        Flow::Branch => {
            let pass = passes(cx)?;
            cx.begin_if(pass);
            next(cx, Flow::Branch)?;
            cx.end();
            return Ok(());
        }
        Flow::Flag { active: Some(active) } if !speculative => {
            let passed = cx.builder.var("pass", Type::BOOL);
            let no = cx.builder.bool(false);
            cx.builder.assign(passed, no);
            cx.begin_if(active);
            let pass = passes(cx)?;
            cx.builder.assign(passed, pass);
            cx.end();
            cx.builder.read(passed)
        }
        Flow::Flag { active } => {
            let pass = passes(cx)?;
            active.map_or(pass, |active| cx.builder.and(active, pass))
        }
    };
    next(cx, Flow::Flag { active: Some(active) })
}
