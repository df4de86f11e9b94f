//! When groups are to be addressed directly by the values of their keys.

use std::borrow::Cow;

use crate::calibration::Limit;
use crate::context::Unsupported;
use crate::layout::ColumnInfo;
use crate::operator::aggregate::keys::{DenseKey, Input, KeyFacts, are_clustered, dense_domain};

/// Most slots of a direct-addressed table, where the last cache is not known to have room for more.
const SLOT_LIMIT: u64 = 1 << 20;
/// The same where rows come in parts: slots that are far from each other cost no more than others.
const PARTS_SLOT_LIMIT: u64 = 1 << 28;
/// The same where rows that follow each other come to slots near each other: what is in a cache then is where a worker has come to.
const CLUSTERED_SLOT_LIMIT: u64 = 1 << 26;
/// Slots of a table for clustered keys a row that comes, and their bytes, at most: all of them are cleared and read. With four slots of 32
/// bytes a row it takes about as long as a hash table on two cores. On an H100 groups of 60 million lines by their orders take 4.2 ms in a
/// hash table and 1.0 with a slot of 32 bytes a row, 15 million orders by themselves 2.4 and 0.4 with four of 16.
const CLUSTERED_SLOTS_A_ROW: u64 = 4;
const CLUSTERED_BYTES_A_ROW: u64 = 128;
/// Slots of a direct-addressed table of computed keys, at most, on a device whose threads share it. Where the keys are columns it is
/// known how many groups there are, else near copies may be tried in vain: up to twice the time of a hash table
/// (docs/experiments.md, "What holds of the paper").
const COMPUTED_SLOTS: u64 = (1 << 15) + 1;
/// Rows of a slot of a direct-addressed table from which on it may be mostly empty.
const DENSE_ROWS_A_SLOT: u64 = 8;
/// Bytes of a GPU's table beyond its cache, at most, and no more slots than rows that come: then most are taken, and a hash table of the same
/// groups has two and a half times as many slots, each with a key, that rows come to anywhere, too. How many come behind a join is hard to
/// tell: that few do costs no more than to clear and to read so much, a quarter of a millisecond.
const MOST_BYTES: u64 = 256 << 20;

/// Slots of a direct-addressed table of about so many groups of so many rows, at most, where these are added up part by part: the more
/// slots are empty, the more parts it takes. Of few slots a row it does not matter how many groups there are, which is hard to tell
/// where some have most of the rows.
pub(crate) fn dense_slots(groups: u64, rows: u64) -> u64 {
    groups.saturating_mul(4).max(rows / DENSE_ROWS_A_SLOT)
}

/// What the rule goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DenseLimits {
    /// Slots that the table may have.
    possible: u64,
    /// Slots that the last cache has room for, or where nothing is known of it [`SLOT_LIMIT`].
    cached: Limit,
    /// Slots that the groups are worth, by what is known of their number.
    worthwhile: u64,
    /// Rows that are thought to come, to slots of so many bytes.
    rows: u64,
    slot_bytes: u64,
    /// A CPU's worker takes rows that follow each other.
    is_serial: bool,
    /// Rows come in parts.
    in_parts: bool,
}

impl DenseLimits {
    pub(crate) fn of(keys: &KeyFacts, slot_bytes: u64, input: &Input<'_>) -> DenseLimits {
        let choices = input.choices;
        DenseLimits {
            possible: choices.direct_bytes.map_or(u64::MAX, |limit| limit / slot_bytes),
            cached: choices.calibration.group_slots(slot_bytes, SLOT_LIMIT),
            worthwhile: match input.groups {
                Some(groups) => dense_slots(groups, input.row_bound),
                None if keys.are_columns || input.is_serial() => u64::MAX,
                None => COMPUTED_SLOTS,
            },
            rows: input.expected_rows.min(input.row_bound),
            slot_bytes,
            is_serial: input.is_serial(),
            in_parts: input.parts.is_some(),
        }
    }

    /// Slots at most; and those beyond the cache that the rule takes at most, where it takes any, and why. A GPU's warps add up rows of the
    /// same slot before where rows follow each other.
    fn most(&self, are_clustered: bool) -> (u64, Option<(u64, &'static str)>) {
        let DenseLimits { cached, rows, .. } = *self;
        let slot_bytes = self.slot_bytes.max(1);
        let (most, beyond) = if self.in_parts {
            (PARTS_SLOT_LIMIT, None)
        } else if are_clustered {
            let a_row = CLUSTERED_SLOTS_A_ROW.min(CLUSTERED_BYTES_A_ROW / slot_bytes);
            let why = "rows that follow each other come to slots near each other";
            (cached.value.max(CLUSTERED_SLOT_LIMIT), Some((rows.saturating_mul(a_row), why)))
        } else if !self.is_serial {
            let most = MOST_BYTES / slot_bytes;
            let why = "as many rows come as there are slots, and a hash table has more";
            (cached.value.max(most), Some((rows.min(most).min(self.worthwhile), why)))
        } else {
            (cached.value, None)
        };
        (most.min(self.possible), beyond)
    }
}

/// Keys that may have a dense domain.
pub(crate) struct DenseKeys {
    /// It and its slots, or why there is none.
    domain: Result<(Vec<DenseKey>, u64), String>,
    limits: DenseLimits,
    /// Slots beyond the cache that the rule takes at most, where it takes any, and why.
    beyond: Option<(u64, &'static str)>,
}

impl DenseKeys {
    pub(crate) fn of(keys: &[ColumnInfo], limits: &DenseLimits) -> DenseKeys {
        let (most, beyond) = limits.most(are_clustered(keys));
        DenseKeys { domain: dense_domain(keys, most), limits: *limits, beyond }
    }

    /// Why there is no such table.
    pub(crate) fn why_not(&self) -> Option<String> {
        self.domain.as_ref().err().cloned()
    }

    pub(crate) fn slots(&self) -> Option<u64> {
        Some(self.domain.as_ref().ok()?.1)
    }

    /// Why the rule takes it, where it does for so many rows at most.
    pub(crate) fn why(&self, row_bound: u64) -> Option<Cow<'static, str>> {
        let (slots, cached) = (self.slots()?, self.limits.cached);
        // A table much larger than the input would cost more to clear and to read than it saves.
        let most = row_bound.saturating_mul(4).max(4096).min(self.limits.worthwhile);
        match self.beyond {
            Some((beyond, why)) if slots > cached.value => (slots <= beyond).then(|| why.into()),
            _ if slots > most => None,
            // Fewer slots are taken whatever the cache is.
            _ if slots <= SLOT_LIMIT => Some("a dense domain of keys".into()),
            _ => Some(cached.reason("a dense domain of keys")),
        }
    }

    pub(crate) fn into_keys(self) -> Result<Vec<DenseKey>, Unsupported> {
        self.domain.map(|(keys, _)| keys).map_err(Unsupported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{DataType, Range};

    fn key(min: i128, max: i128) -> ColumnInfo {
        ColumnInfo::new(DataType::Int32, false, Some(Range { min, max }))
    }

    /// Of a worker to which so many rows come, of slots of so many bytes.
    fn limits(rows: u64, slot_bytes: u64) -> DenseLimits {
        DenseLimits {
            possible: u64::MAX,
            cached: Limit::fixed(SLOT_LIMIT),
            worthwhile: u64::MAX,
            rows,
            slot_bytes,
            is_serial: true,
            in_parts: false,
        }
    }

    #[test]
    fn the_rule_wants_no_table_much_larger_than_the_input() {
        let of =
            |worthwhile| DenseKeys::of(&[key(0, 99_999)], &DenseLimits { worthwhile, ..limits(1 << 30, 16) });
        let keys = of(u64::MAX);
        assert!(of(100_000).why(1_000_000).is_some() && of(99_999).why(1_000_000).is_none());
        assert_eq!(keys.why_not(), None);
        assert!(keys.why(1_000_000).is_some());
        assert!(keys.why(10_000).is_none());
    }

    #[test]
    fn clustered_keys_may_have_more_slots_where_as_many_rows_come() {
        let clustered = ColumnInfo { is_clustered: true, ..key(0, 5_999_999) };
        let few = || key(0, 3);
        let fits = |keys: &[ColumnInfo], limits| {
            let keys = DenseKeys::of(keys, &limits);
            keys.why_not().is_none() && keys.why(6_000_000).is_some()
        };
        assert!(fits(std::slice::from_ref(&clustered), limits(1_500_000, 16)));
        assert!(!fits(std::slice::from_ref(&clustered), limits(1_000_000, 16)));
        assert!(!fits(std::slice::from_ref(&clustered), limits(2_000_000, 64)));
        assert!(fits(&[clustered.clone(), few()], limits(24_000_000, 16)));
        assert!(!fits(&[clustered, key(0, 99)], limits(u64::MAX, 16)));
        assert!(!fits(&[key(0, 5_999_999)], limits(u64::MAX, 16)));
        // Of few slots it does not matter.
        assert!(fits(&[few()], limits(0, 16)));
    }
}
