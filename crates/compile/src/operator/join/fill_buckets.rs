//! The pass that puts the rows of a store into the buckets of their keys, and what it puts there.
//!
//! Buckets have numbers of rows, or the rows of a key side by side: then what takes the matches of a probe row, a lane each or one after the
//! other, reads neighbouring memory (DogQC, section 3.2: coalesced reading of the bucket), where numbers of rows lead all over the store. To
//! write the columns and not only a number costs as much as reading each row some three to six times by its number
//! (`docs/log/performance.md`), so it pays where rows are read more often.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;

use super::facts::JoinFacts;
use super::{JoinOperator, keeps_build};
use crate::context::{Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job, Needs, Sink};
use crate::program::{HostAction, Task, When};
use crate::table::buckets::Buckets;
use crate::table::key_rows::KeyRows;
use crate::table::rows::RowStore;
use crate::variant::all_but;
use crate::variant::axes::BucketEntries;

/// Rows of a build side from which on the rule has rows in buckets.
const LEAST_ROWS: u64 = 1 << 20;
/// How often a row is thought to be read, at least.
const LEAST_READS: u64 = 8;
/// Columns of a row at most: each is written once more.
const MOST_COLUMNS: usize = 8;

/// Whether buckets have the rows themselves: that is chosen where there are buckets.
pub(super) fn take_rows(facts: &JoinFacts<'_>, rows: KeyRows, store: &RowStore) -> Result<bool, Unsupported> {
    let KeyRows::Buckets(_) = rows else { return Ok(false) };
    let input = facts.input;
    let why_not = keeps_build(input.join.kind).then_some("build rows are marked by their numbers");
    let keys = facts.stored.get(..facts.keys.len()).unwrap_or_default();
    let numbers = |why| (BucketEntries::Numbers, why);
    let rule = match why_not {
        Some(why_not) => numbers(why_not),
        None if input.shape.is_serial() => numbers("a worker's cache has what numbers lead to"),
        None if input.build.rows.bound < LEAST_ROWS => numbers("the build side is small"),
        None if store.columns().len() > MOST_COLUMNS => {
            numbers("rows are wide, and would be written once more")
        }
        None if reads([keys, &facts.probe_keys], input.probe.rows.bound)
            .is_some_and(|reads| reads >= LEAST_READS) =>
        {
            (BucketEntries::Rows, "rows are read so often that it pays to write them once more")
        }
        None => numbers("rows are not known to be read often"),
    };
    let chosen = input.site.choose(rule, all_but(BucketEntries::Rows, &why_not))?;
    Ok(chosen == BucketEntries::Rows)
}

/// How often each row of a build side is read on average, about, where it is known how many values the keys of either side have: as many
/// pairs as the rows of both sides by the values of the side that has more of them.
fn reads(sides: [&[ColumnInfo]; 2], probe_bound: u64) -> Option<u64> {
    let most = sides.map(|keys| {
        keys.iter().map(ColumnInfo::values).try_fold(1u64, |all, own| Some(all.saturating_mul(own?)))
    });
    let [build, probe] = most;
    Some(probe_bound / build?.max(probe?).max(1))
}

/// Puts the rows of the store, which are counted, into their buckets.
#[derive(Debug)]
pub(super) struct FillBuckets {
    join: Arc<JoinOperator>,
    buckets: Buckets,
}

impl FillBuckets {
    /// The pass of a join whose rows stand in buckets.
    pub fn of(join: &Arc<JoinOperator>) -> Option<Arc<dyn Sink>> {
        let buckets = join.index.rows.buckets()?;
        Some(Arc::new(FillBuckets { join: Arc::clone(join), buckets }))
    }
}

impl fmt::Display for FillBuckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("buckets")
    }
}

impl Sink for FillBuckets {
    fn needs(&self) -> Needs {
        let around = HostAction::each(When::BeforeChain, vec![self.buckets.offsets()], Task::PrefixSum);
        Needs { zeroed: Vec::new(), produced: Some(self.join.index.store.row_count()), around }
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        let rows = self.join.index.bucket_rows.as_ref().map(|rows| rows.needed(states)).unwrap_or_default();
        (0..self.join.probe_keys.len()).chain(rows).collect()
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(FillEmitter { sink: self, needed: job.needed }))
    }
}

struct FillEmitter<'s> {
    sink: &'s FillBuckets,
    /// States that later pipelines read.
    needed: &'s BTreeSet<usize>,
}

impl Emitter for FillEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        let FillBuckets { join, buckets } = self.sink;
        let index = &join.index;
        index.if_indexed(cx, |cx, keys| {
            let slot = match (buckets.noted_slot(cx, row), index.path.dense()) {
                (Some(slot), _) => slot,
                (None, Some(key)) => keys.slot(cx, key.range)?,
                (None, None) => return Err(Unsupported::internal("a bucket's slot")),
            };
            let (begin, is_first, position) = buckets.put(cx, slot, row);
            if let Some(rows) = &index.bucket_rows {
                rows.write_at(cx, position, self.needed)?;
            }
            if let Some(hash) = index.path.hash() {
                // From now on the slot leads to the bucket.
                cx.begin_if(is_first);
                let one = cx.builder.u32(1);
                let number = cx.builder.add(begin, one);
                hash.table.renumber(cx, slot, number);
                cx.end();
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{DataType, Range};

    /// A key of so many values.
    fn key(values: i128) -> [ColumnInfo; 1] {
        let range = Some(Range { min: 1, max: values });
        [ColumnInfo::new(DataType::Int64, false, range)]
    }

    #[test]
    fn a_range_of_any_width_is_a_range() {
        let [wide] = key(5);
        let wide = ColumnInfo { range: Some(Range { min: i128::MIN, max: i128::MAX }), ..wide };
        assert_eq!(wide.values(), None);
        let wide = ColumnInfo { range: Some(Range { min: 0, max: i128::MAX }), ..wide };
        assert_eq!(wide.values(), None);
    }

    /// A row is read as often as there are probe rows for each value of either side.
    #[test]
    fn reads_are_pairs_by_rows() {
        assert_eq!(reads([&key(10_000), &key(10_000)], 6_000_000), Some(600));
        assert_eq!(reads([&key(312_500), &key(10_000_000)], 10_000_000), Some(1));
        assert_eq!(reads([&key(6_000_000), &key(100)], 100), Some(0));
        let unknown = ColumnInfo { range: None, ..key(1)[0].clone() };
        assert_eq!(reads([&key(10), &[unknown]], 1_000), None);
    }
}
