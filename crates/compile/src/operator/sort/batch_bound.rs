//! Batches of a source's rows none of which can be among the first of an order: their keys are looked at before anything else is done with
//! them, as texts that are searched, and joins, cost more than a comparison.

use kelpie_kir::CompareOp;
use kelpie_kir::builder::V;

use super::top::TopHeap;
use super::words::Words;
use crate::context::{Context, Unsupported};
use crate::operator::roles::Source;

/// What the rows of a batch must not all be beyond.
#[derive(Debug, Clone)]
pub(crate) struct BatchBound {
    heap: TopHeap,
    /// Their first word, or the beginning of it, over the source's columns.
    first: Words,
    /// Rows that are equal to the bound may be among the first.
    takes_equal: bool,
}

impl BatchBound {
    /// By the heap of a sort, where its order begins with columns of the source. `below`: where a column of the sort is in the source.
    pub(super) fn of(
        heap: &TopHeap,
        words: &Words,
        below: &dyn Fn(usize) -> Option<usize>,
    ) -> Option<BatchBound> {
        let first = words.beginning(below)?;
        let is_all = first.bits() == words.bits() && words.is_exact() && words.count() == 1;
        Some(BatchBound { heap: heap.clone(), first, takes_equal: !is_all })
    }

    /// Whether a row of some (`i64`, from one up to another) may be among the first, `bool`.
    pub(crate) fn may_pass(
        &self,
        cx: &mut Context<'_>,
        source: &dyn Source,
        (from, to): (V, V),
    ) -> Result<V, Unsupported> {
        let few = self.heap.has_few(cx);
        let (passes, row) = (cx.builder.var_of("may_pass", few), cx.builder.var_of("tried", from));
        cx.begin_loop();
        let (current, known) = (cx.builder.read(row), cx.builder.read(passes));
        let is_end = cx.builder.ge(current, to);
        let done = cx.builder.or(is_end, known);
        cx.builder.break_if(done);
        source.bind(cx, current)?;
        let word = self.first.word(cx, 0)?;
        let bound = self.heap.bound(cx);
        let op = if self.takes_equal { CompareOp::Le } else { CompareOp::Lt };
        let passing = cx.builder.compare(op, word, bound);
        cx.builder.assign(passes, passing);
        let next = cx.builder.add_int(current, 1);
        cx.builder.assign(row, next);
        cx.end_row();
        cx.end();
        Ok(cx.builder.read(passes))
    }
}
