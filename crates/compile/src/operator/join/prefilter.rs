//! A runtime filter: the rows whose column may have a match in a join further on, by the bitmap of its index.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::JoinOperator;
use crate::context::{Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::Flow;
use crate::operator::roles::{Next, Step};

/// A runtime filter.
#[derive(Debug)]
pub(crate) struct Prefilter {
    /// The join further on.
    pub join: Arc<JoinOperator>,
    /// Its key's column.
    pub column: usize,
}

impl fmt::Display for Prefilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("runtime filter")
    }
}

impl Step for Prefilter {
    fn consume(
        &self,
        cx: &mut Context<'_>,
        flow: Flow,
        _speculative: bool,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        let Flow::Branch = flow else {
            return Err(Unsupported::internal("a runtime filter under a flag"));
        };
        let key = cx.column(self.column)?;
        let opened = self.join.index().begin_if_taken(cx, &key)?.unwrap_or(0);
        next(cx, Flow::Branch)?;
        for _ in 0..opened {
            cx.end();
        }
        Ok(())
    }

    fn columns(&self, _below: &[ColumnInfo]) -> Option<Vec<ColumnInfo>> {
        None
    }

    fn below(&self, column: usize) -> Option<usize> {
        Some(column)
    }

    fn read(&self, columns: &BTreeSet<usize>, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        columns.iter().copied().chain([self.column]).collect()
    }

    fn drops(&self) -> bool {
        true
    }

    fn diverges(&self) -> bool {
        true
    }
}
