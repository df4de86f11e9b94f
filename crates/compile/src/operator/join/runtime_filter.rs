//! A runtime filter: the rows whose columns may have a match in a join further on, by the bitmap or the Bloom filter of its index.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::Scalar;
use kelpie_kir::builder::V;

use super::JoinOperator;
use super::index::Index;
use crate::context::{Context, Lowered, Repr, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::Flow;
use crate::operator::roles::{Next, RuntimeFilter, Step};
use crate::table::bitmap::Bitmap;
use crate::table::key_range::KeyRange;

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
        self.join.index().may_have(cx, &keys)
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
            passes.push(self.join.index().may_have_if(cx, &of_row, *active)?);
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
        let opened = self.join.index().begin_if_taken(cx, &keys)?;
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

/// By what it is known of keys that no build row has them.
enum Filter {
    /// The bits of a range's keys.
    Bitmap(Bitmap, KeyRange),
    /// The Bloom filter of a hash table, for any number of keys.
    Bloom,
}

impl Index {
    fn filter(&self) -> Option<Filter> {
        match (self.path.hash(), self.path.dense()) {
            (Some(hash), _) => hash.table.bloom().map(|_| Filter::Bloom),
            (None, Some(key)) => key.taken.map(|taken| Filter::Bitmap(taken, key.range)),
            (None, None) => None,
        }
    }

    /// Whether there is a bitmap or a Bloom filter.
    pub(crate) fn has_filter(&self) -> bool {
        self.filter().is_some()
    }

    pub(crate) fn has_bloom(&self) -> bool {
        matches!(self.filter(), Some(Filter::Bloom))
    }

    /// Opens `if`s, so many, where a build row may have the keys.
    fn begin_if_taken(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Result<usize, Unsupported> {
        let guard = self.may_be_found(cx, keys)?.map(|live| cx.begin_if(live));
        let taken = match (self.filter(), keys) {
            (Some(Filter::Bitmap(taken, range)), [key]) => {
                let slot = range.slot(cx, key)?;
                taken.is_taken(cx, slot)
            }
            _ => self.by_bloom(cx, keys, None)?,
        };
        cx.begin_if(taken);
        Ok(1 + usize::from(guard.is_some()))
    }

    /// Whether a build row may have the keys, without a branch: 1 or 0 (`i64`).
    fn may_have(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Result<V, Unsupported> {
        let (Some(Filter::Bitmap(taken, range)), [key]) = (self.filter(), keys) else {
            let mut found = self.by_bloom(cx, keys, None)?;
            if let Some(live) = self.no_nulls(cx, keys) {
                found = cx.builder.and(found, live);
            }
            return Ok(cx.builder.convert(found, Scalar::I64));
        };
        let live = range.has_key(cx, key)?;
        let slot = range.slot(cx, key)?;
        let Some(live) = live else { return Ok(taken.taken_bit(cx, slot)) };
        let zero = cx.builder.i64(0);
        let slot = cx.builder.select(live, slot, zero);
        let taken = taken.taken_bit(cx, slot);
        Ok(cx.builder.select(live, taken, zero))
    }

    /// Whether a row is `active` (`bool`) and a build row may have its keys, by a filter that is finished: without a branch and in few
    /// instructions. All rows that are not active look at the same word.
    fn may_have_if(&self, cx: &mut Context<'_>, keys: &[Lowered], active: V) -> Result<V, Unsupported> {
        let (Some(Filter::Bitmap(taken, range)), [key]) = (self.filter(), keys) else {
            let live = self.no_nulls(cx, keys).map_or(active, |live| cx.builder.and(active, live));
            let found = self.by_bloom(cx, keys, Some(live))?;
            return Ok(cx.builder.and(live, found));
        };
        let (slot, within) = range.narrow_slot(cx, key)?;
        let conditions = within.into_iter().chain(key.valid);
        let live = conditions.fold(active, |live, condition| cx.builder.and(live, condition));
        let zero = cx.builder.u32(0);
        let slot = cx.builder.select(live, slot, zero);
        let taken = taken.is_taken_for_good(cx, slot);
        Ok(cx.builder.and(live, taken))
    }

    /// [`OpenTable::may_have`](crate::table::probing::OpenTable::may_have) of the hash table.
    fn by_bloom(&self, cx: &mut Context<'_>, keys: &[Lowered], active: Option<V>) -> Result<V, Unsupported> {
        let found = self.hash()?.table.may_have(cx, (keys, &self.wide), active);
        found.ok_or_else(|| Unsupported::internal("a table without a Bloom filter"))
    }
}
