//! What keeps rows that cannot be among the first of an order from being stored: on a CPU the heap of each worker ([`top`]); on a
//! GPU, whose threads are too many to have one each, a bound for all of them. It comes from the rows that stand first in the
//! source: a launch over some of them stores their words, the k-th smallest of which is no smaller than the k-th smallest of all,
//! whatever comes later. A second launch over the rest stores the rows whose word is not above it. Of N rows in random order, s of
//! which came first, some k · N / s are stored; of groups in a hash table the order is random whatever they are sorted by.
//!
//! Rows whose word is the bound itself are stored, as later words may decide.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{CompareOp, Scalar, Type};

use super::{SortOperator, top};
use crate::context::{Argument, Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::Flow;
use crate::operator::filter::keep_where;
use crate::operator::roles::{Next, Step};
use crate::primitives::block_sort;
use crate::program::{BlockRows, Bounding, States};
use crate::shape::LaunchShape;
use crate::variant::Site;
use crate::variant::axes::TopBound;

/// Rows that come first for each one that is wanted, at least: else a large share of the others would be within the bound.
const FIRST_FOR_ONE: u64 = 8;
/// Rows of a source for each of those that come first, at least: with fewer, what is not stored is no more than what comes first.
const ROWS_FOR_FIRST: u64 = 4;

impl SortOperator {
    /// Chooses what bounds the rows that are stored. `lacks`: why the rows of the source cannot come in two launches.
    pub(crate) fn with_bound(
        self,
        site: Site<'_>,
        shape: &LaunchShape,
        lacks: Option<&str>,
        states: &mut States,
    ) -> Result<SortOperator, Unsupported> {
        let Some(wanted) = self.fetch.filter(|wanted| *wanted > 0) else { return Ok(self) };
        let few = wanted <= top::MAX_ROWS;
        let rule = match shape.is_serial() && few {
            true => (TopBound::Heap, "each worker knows the smallest words that it has seen"),
            false if few => (TopBound::Off, "the first of rows that come in another order bound nothing"),
            false => (TopBound::Off, "many rows are wanted"),
        };
        let first = block_sort::most_rows(shape);
        let chosen = site.choose(rule, |value| match value {
            TopBound::Off => Ok(()),
            TopBound::Heap if !shape.is_serial() => Err("threads are too many to have a heap each".into()),
            TopBound::Heap if !few => Err("the heap would leave a worker's cache".into()),
            TopBound::Heap => Ok(()),
            TopBound::Sample if shape.is_serial() => Err("a worker has a heap, which knows more".into()),
            TopBound::Sample if wanted.saturating_mul(FIRST_FOR_ONE) > first => {
                Err("too many rows are wanted".into())
            }
            TopBound::Sample => lacks.map_or(Ok(()), |lacks| Err(lacks.into())),
        })?;
        let bound = (chosen == TopBound::Sample).then(|| states.counter("word_bound"));
        Ok(SortOperator { has_heap: chosen == TopBound::Heap, bound, ..self })
    }

    /// How the first rows bound the others, where they do, and in what blocks the rows of the source come then.
    pub(crate) fn bounding(&self, shape: &LaunchShape) -> Option<(Bounding, BlockRows)> {
        let (bound, wanted, words) = (self.bound?, self.fetch?, *self.word_states.first()?);
        let rows = block_sort::most_rows(shape);
        let blocks = BlockRows::First { rows, least: rows.saturating_mul(ROWS_FOR_FIRST) };
        Some((Bounding { rows: self.count, words, wanted, bound }, blocks))
    }
}

/// Keeps the rows that may be among the first of a sort.
#[derive(Debug)]
pub(crate) struct WithinBound(pub Arc<SortOperator>);

impl fmt::Display for WithinBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("first rows")
    }
}

impl WithinBound {
    /// Whether the current row is not beyond the bound, `bool`.
    fn passes(&self, cx: &mut Context<'_>) -> Result<V, Unsupported> {
        let state = self.0.bound.ok_or_else(|| Unsupported::internal("a bound without a state"))?;
        let word = self.0.words.word(cx, 0)?;
        let bound = cx.argument("word_bound", Type::global(Scalar::U64), Argument::State(state));
        let bound = cx.builder.load(bound);
        let bound = cx.builder.not(bound);
        Ok(cx.builder.compare(CompareOp::Le, word, bound))
    }
}

impl Step for WithinBound {
    fn consume(
        &self,
        cx: &mut Context<'_>,
        flow: Flow,
        speculative: bool,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        keep_where(cx, (flow, speculative), &mut |cx| self.passes(cx), next)
    }

    fn columns(&self, _below: &[ColumnInfo]) -> Option<Vec<ColumnInfo>> {
        None
    }

    fn below(&self, column: usize) -> Option<usize> {
        Some(column)
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        states.extend(self.0.bound);
        columns.iter().copied().chain(self.0.words.columns()).collect()
    }

    fn drops(&self) -> bool {
        true
    }
}
