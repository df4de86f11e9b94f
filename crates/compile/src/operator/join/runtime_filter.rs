//! A runtime filter: the rows whose columns may have a match in a join further on, by the bitmap or the Bloom filter of its index.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;

use super::JoinOperator;
use crate::context::{Context, Lowered, Repr, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::Flow;
use crate::operator::roles::{Next, RuntimeFilter, Step};

/// A runtime filter.
#[derive(Debug)]
pub(crate) struct BuildSideFilter {
    /// The join further on.
    pub join: Arc<JoinOperator>,
    /// Its keys' columns: one, where the index has a bitmap.
    pub columns: Vec<usize>,
    /// The share of rows that is thought to pass.
    pub share: f64,
    /// The join follows at once, and looks at the bitmap itself where rows go one by one.
    pub is_next: bool,
}

impl fmt::Display for BuildSideFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.join.index().has_bloom() { "bloom filter" } else { "runtime filter" })
    }
}

impl BuildSideFilter {
    /// The keys of the current row, which is one of the scan.
    fn keys(&self, cx: &mut Context<'_>) -> Result<Vec<Lowered>, Unsupported> {
        let of_column = |key: (usize, &usize)| match self.join.code_of_column(cx, (key.0, *key.1))? {
            Some(code) => Ok(code),
            None => cx.column(*key.1),
        };
        self.columns.iter().enumerate().map(of_column).collect()
    }
}

impl RuntimeFilter for BuildSideFilter {
    fn passes(&self, cx: &mut Context<'_>) -> Result<V, Unsupported> {
        let keys = self.keys(cx)?;
        match self.join.index().may_have(cx, &keys)? {
            Some(passes) => Ok(passes),
            None => Ok(cx.builder.i64(1)),
        }
    }

    fn pass_of(&self, cx: &mut Context<'_>, active: &[V]) -> Result<Vec<V>, Unsupported> {
        let keys = self.keys(cx)?;
        let of_rows = |cx: &mut Context<'_>, values: V, row: usize| match cx.wide() {
            Some(_) => {
                let values = cx.each_row(values);
                cx.builder.lane(values, row as u8)
            }
            None => values,
        };
        let mut passes = Vec::new();
        for (row, active) in active.iter().enumerate() {
            if cx.wide().is_some() {
                cx.begin_repetition(row == 0);
            }
            let mut of_row = Vec::new();
            for Lowered { repr, valid, range } in &keys {
                let Repr::Scalar(values) = repr else {
                    return Err(Unsupported::internal("a text has no bit"));
                };
                let repr = Repr::Scalar(of_rows(cx, *values, row));
                let valid = valid.map(|valid| of_rows(cx, valid, row));
                of_row.push(Lowered { repr, valid, range: *range });
            }
            let found = self.join.index().may_have_if(cx, &of_row, *active)?;
            passes.push(found.unwrap_or(*active));
        }
        if cx.wide().is_some() {
            cx.end_repetition();
        }
        Ok(passes)
    }

    fn share(&self) -> f64 {
        self.share
    }
}

impl Step for BuildSideFilter {
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
        if self.is_next {
            return next(cx, Flow::Branch);
        }
        let keys = self.keys(cx)?;
        let opened = self.join.index().begin_if_taken(cx, &keys)?.unwrap_or(0);
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
        columns.iter().chain(&self.columns).copied().collect()
    }

    fn drops(&self) -> bool {
        !self.is_next
    }

    fn runtime_filter(&self) -> Option<&dyn RuntimeFilter> {
        Some(self)
    }

    fn diverges(&self) -> bool {
        !self.is_next
    }
}
