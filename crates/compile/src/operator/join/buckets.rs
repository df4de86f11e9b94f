//! The rows of a key side by side, in the bucket that its index has: what takes the matches of a probe row, a lane each or one after the
//! other, reads neighbouring memory (DogQC, section 3.2: coalesced reading of the bucket), where numbers of rows lead all over the store.
//!
//! The second pass over the store, which puts rows into their buckets, then writes the columns and not only a number. That costs as much
//! as reading each row some three to six times by its number (`docs/log/performance.md`), so it pays where rows are read more often.

use super::keeps_build;
use crate::context::Unsupported;
use crate::layout::ColumnInfo;
use crate::plan::JoinKind;
use crate::program::States;
use crate::table::index::Index;
use crate::table::rows::RowStore;
use crate::types::Range;
use crate::variant::Site;
use crate::variant::axes::BucketEntries;

/// Rows of a build side from which on the rule has rows in buckets.
const LEAST_ROWS: u64 = 1 << 20;
/// How often a row is thought to be read, at least.
const LEAST_READS: u64 = 8;
/// Columns of a row at most: each is written once more.
const MOST_COLUMNS: usize = 8;

/// Chooses what the buckets of an index have, and declares the states of the rows in them. Of the build side: its store, what is
/// known of its keys, and how many rows there are at most; of the probe side the latter two.
pub(super) fn plan(
    (kind, index): (JoinKind, Index),
    (store, keys, bound): (&RowStore, &[ColumnInfo], u64),
    (probe_keys, probe_bound): (&[ColumnInfo], u64),
    (is_serial, site): (bool, Site<'_>),
    states: &mut States,
) -> Result<(Index, Option<RowStore>), Unsupported> {
    if index.prefix_sum().is_none() {
        return Ok((index, None));
    }
    let lacks = keeps_build(kind).then_some("build rows are marked by their numbers");
    let numbers = |why| (BucketEntries::Numbers, why);
    let rule = match lacks {
        Some(lacks) => numbers(lacks),
        None if is_serial => numbers("a worker's cache has what numbers lead to"),
        None if bound < LEAST_ROWS => numbers("the build side is small"),
        None if store.columns().len() > MOST_COLUMNS => {
            numbers("rows are wide, and would be written once more")
        }
        None if reads([keys, probe_keys], probe_bound).is_some_and(|reads| reads >= LEAST_READS) => {
            (BucketEntries::Rows, "rows are read so often that it pays to write them once more")
        }
        None => numbers("rows are not known to be read often"),
    };
    let chosen = site.choose(rule, |entries| match (entries, lacks) {
        (BucketEntries::Rows, Some(lacks)) => Err(lacks.into()),
        _ => Ok(()),
    })?;
    match chosen {
        BucketEntries::Numbers => Ok((index, None)),
        BucketEntries::Rows => Ok((index.with_rows_in_buckets(), Some(store.again(states)?))),
    }
}

/// How often each row of a build side is read on average, about, where it is known how many values the keys of either side have: as many
/// pairs as the rows of both sides by the values of the side that has more of them.
fn reads(sides: [&[ColumnInfo]; 2], probe_bound: u64) -> Option<u64> {
    let most =
        sides.map(|keys| keys.iter().map(values).try_fold(1u64, |all, own| Some(all.saturating_mul(own?))));
    let [build, probe] = most;
    Some(probe_bound / build?.max(probe?).max(1))
}

/// How many values a key has, at most, or about.
fn values(key: &ColumnInfo) -> Option<u64> {
    // The range of a wide decimal has no width that is a number of 128 bits.
    let width = |range: Range| u64::try_from(range.max.checked_sub(range.min)?.checked_add(1)?).ok();
    let most = key.dictionary.map(|(_, _, entries)| u64::from(entries)).or(key.range.and_then(width));
    most.into_iter().chain(key.scattered.map(|own| own.values)).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DataType;

    /// A key of so many values.
    fn key(values: i128) -> [ColumnInfo; 1] {
        let range = Some(Range { min: 1, max: values });
        [ColumnInfo::new(DataType::Int64, false, range)]
    }

    #[test]
    fn a_range_of_any_width_is_a_range() {
        let [wide] = key(5);
        let wide = ColumnInfo { range: Some(Range { min: i128::MIN, max: i128::MAX }), ..wide };
        assert_eq!(values(&wide), None);
        let wide = ColumnInfo { range: Some(Range { min: 0, max: i128::MAX }), ..wide };
        assert_eq!(values(&wide), None);
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
