//! The rows of a key side by side, in the bucket that its index has: what takes the matches of a probe row, a lane each or one after the
//! other, reads neighbouring memory (DogQC, section 3.2: coalesced reading of the bucket), where numbers of rows lead all over the store.
//!
//! The second pass over the store, which puts rows into their buckets, then writes the columns and not only a number. That costs as much
//! as reading each row once by its number, so it pays where rows are read several times, or many of a key at once.

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
/// Rows of a key on average, at least.
const ROWS_A_KEY: u64 = 4;
/// Columns of a row at most: each is written once more.
const MOST_COLUMNS: usize = 8;

/// Chooses what the buckets of an index have, and declares the states of the rows in them. `keys`: what is known of the store's keys;
/// `bound`: rows at most, of the build side and of the probe side.
pub(super) fn plan(
    (kind, index): (JoinKind, Index),
    (store, keys): (&RowStore, &[ColumnInfo]),
    (bound, probe_bound): (u64, u64),
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
        None if probe_bound < bound => numbers("fewer rows are looked up than are put into buckets"),
        None if store.columns().len() > MOST_COLUMNS => {
            numbers("rows are wide, and would be written once more")
        }
        None if has_many_rows(keys, bound) => (BucketEntries::Rows, "many rows of a key are read together"),
        None => numbers("keys are not known to have many rows"),
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

/// Whether keys are known to have many of so many rows on average, or some of them to be frequent.
fn has_many_rows(keys: &[ColumnInfo], bound: u64) -> bool {
    let width = |range: Range| u64::try_from(range.max - range.min + 1).ok();
    let values = |key: &ColumnInfo| {
        let most = key.dictionary.map(|(_, _, entries)| u64::from(entries)).or(key.range.and_then(width));
        most.into_iter().chain(key.scattered.map(|own| own.values)).min()
    };
    let all = keys.iter().map(values).try_fold(1u64, |all, own| Some(all.saturating_mul(own?)));
    let is_uneven = keys.iter().any(|key| key.scattered.is_some_and(|own| !own.are_even));
    is_uneven || all.is_some_and(|values| bound / ROWS_A_KEY >= values)
}
