//! The sink of a sort: stores rows with the words of their keys.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builtin, Scalar};

use super::SortOperator;
use super::batch_bound::BatchBound;
use super::beginning::Beginning;
use super::top::TopHeap;
use crate::context::{Context, Unsupported};
use crate::operator::Flow;
use crate::operator::dense::DenseEmitter;
use crate::operator::roles::{Arrival, Emitter, Job, Needs, Sink};
use crate::program::{HostAction, Task, When};
use crate::table::chunks::Chunk;
use crate::table::places::{Dense, DenseTarget};

/// Stores the rows of a sort.
#[derive(Debug)]
pub(crate) struct SortRows(pub Arc<SortOperator>);

impl fmt::Display for SortRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sort")
    }
}

impl Sink for SortRows {
    fn needs(&self) -> Needs {
        let SortOperator { count, class, .. } = *self.0;
        let around = HostAction::each(When::OnGrow, vec![class], Task::Grow);
        Needs { zeroed: vec![count], produced: Some(count), around }
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        let columns = self.0.columns.iter().enumerate();
        let stored = columns.filter(|(_, column)| column.is_used(states)).map(|(index, _)| index);
        stored.chain(self.0.words.columns()).collect()
    }

    fn target(&self) -> Option<DenseTarget> {
        let SortOperator { count, class, single, chunks, has_heap, .. } = *self.0;
        // Of few rows that are wanted, few are stored.
        let chunks = chunks.filter(|_| !has_heap);
        Some(DenseTarget { total: count, class, limit: None, keeps_places: single, chunks })
    }

    fn takes_places(&self) -> Option<(usize, bool)> {
        Some((self.0.class, self.0.has_heap))
    }

    fn learns_from_rows(&self) -> bool {
        self.0.has_heap
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        let sort = self.0.as_ref();
        if job.counting.is_some() || job.arrival.has_flags() {
            return Ok(Box::new(DenseEmitter::begin(sort, cx, job)));
        }
        let wanted = sort.fetch.filter(|_| sort.has_heap);
        let heap = wanted.map(|wanted| TopHeap::begin(cx, wanted));
        let leading = sort.words.leading_text().filter(|_| heap.is_some());
        let beginning = leading.map(|key| Beginning::begin(cx, key));
        let positional = job.arrival == Arrival::All && sort.single && heap.is_none();
        if positional {
            sort.count_all(cx, job.rows);
        }
        let chunk = Dense::begin(sort, cx, job.places);
        Ok(Box::new(SortEmitter { sort, heap, beginning, positional, chunk, needed: job.needed }))
    }
}

impl SortOperator {
    /// The first thread notes that all `rows` (`i64`) of the source are stored: no counter is needed for their places.
    fn count_all(&self, cx: &mut Context<'_>, rows: V) {
        let (block, thread) = (cx.builder.builtin(Builtin::BlockId), cx.builder.builtin(Builtin::ThreadId));
        let (both, zero) = (cx.builder.binary(BinaryOp::Or, block, thread), cx.builder.u32(0));
        let first = cx.builder.eq(both, zero);
        cx.begin_if(first);
        let counter = self.counter(cx);
        let rows = cx.builder.bitcast(rows, Scalar::U64);
        cx.builder.store(counter, rows);
        cx.end();
    }
}

/// Stores one row after the other.
struct SortEmitter<'s> {
    sort: &'s SortOperator,
    /// Bounds the first rows, where only these are wanted.
    heap: Option<TopHeap>,
    /// What their texts have in common, where these come first among the keys.
    beginning: Option<Beginning>,
    /// A row's place is its number in the source.
    positional: bool,
    /// Where a worker takes several places at a time.
    chunk: Option<Chunk>,
    needed: &'s BTreeSet<usize>,
}

impl Emitter for SortEmitter<'_> {
    fn batch_bound(&self, below: &dyn Fn(usize) -> Option<usize>) -> Option<BatchBound> {
        let heap = self.heap.as_ref().filter(|_| self.sort.bounds_batches && self.beginning.is_none())?;
        BatchBound::of(heap, self.sort.words.as_words()?, below)
    }

    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        let sort = self.sort;
        let Some(heap) = &self.heap else {
            let place = if self.positional { row } else { sort.take(cx, self.chunk) };
            return sort.store(cx, place, None, self.needed);
        };
        let chunk = self.chunk;
        let take = &mut |cx: &mut Context<'_>| sort.take(cx, chunk);
        let bounded = self.beginning.as_ref().map(|beginning| beginning.word(cx)).transpose()?.flatten();
        if let Some((word, always)) = bounded {
            let place = heap.begin_if_kept(cx, (word, false, Some(always)), take);
            sort.store(cx, place, None, self.needed)?;
            cx.end();
            return Ok(());
        }
        if let Some(bits) = sort.words.leading_bits(cx)? {
            // Rows of which many have the same first key, as counts have, are bounded by the beginning of the text behind it too.
            let place = heap.begin_if_kept(cx, (bits, false, None), take);
            sort.store(cx, place, None, self.needed)?;
            cx.end();
            return Ok(());
        }
        let word = sort.words.word(cx, 0)?;
        let is_exact = sort.words.is_exact() && sort.words.count() == 1;
        let place = heap.begin_if_kept(cx, (word, is_exact, None), take);
        sort.store(cx, place, Some(word), self.needed)?;
        cx.end();
        Ok(())
    }

    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        Dense::end(self.sort, cx, self.chunk);
        Ok(())
    }
}
