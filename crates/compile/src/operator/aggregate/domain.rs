//! Keys whose values make a dense domain: a group's place follows from them.

use std::borrow::Cow;

use super::direct::DirectTable;
use super::functions::Cells;
use super::groups::GroupTable;
use super::tables::Strategy;
use super::{Input, declare};
use crate::calibration::Limit;
use crate::choices::Choices;
use crate::context::Unsupported;
use crate::layout::{CodedColumn, ColumnInfo};
use crate::shape::LaunchShape;
use crate::types::{DataType, Range};
use crate::variant::axes::GroupForm;

/// Most slots of a direct-addressed table, where the last cache is not known to have room for more.
pub(super) const SLOT_LIMIT: u64 = 1 << 20;
/// The same where rows come in parts: slots that are far from each other cost no more than others.
const PARTS_SLOT_LIMIT: u64 = 1 << 28;

/// The same where rows that follow each other come to slots near each other: what is in a cache then is where a worker has come to.
const CLUSTERED_SLOT_LIMIT: u64 = 1 << 26;
/// Values of a key beside clustered ones, at most: a worker comes to as many places of the table in turn.
const FEW_VALUES: u64 = 64;
/// Slots of a table for clustered keys a row that comes, and their bytes, at most: all of them are cleared and read. With four slots of 32
/// bytes a row it takes about as long as a hash table on two cores. On an H100 groups of 60 million lines by their orders take 4.2 ms in a
/// hash table and 1.0 with a slot of 32 bytes a row, 15 million orders by themselves 2.4 and 0.4 with four of 16.
const CLUSTERED_SLOTS_A_ROW: u64 = 4;
const CLUSTERED_BYTES_A_ROW: u64 = 128;
/// Bytes of a GPU's table beyond its cache, at most, and no more slots than rows that come: then most are taken, and a hash table of the same
/// groups has two and a half times as many slots, each with a key, that rows come to anywhere, too. How many come behind a join is hard to
/// tell: that few do costs no more than to clear and to read so much, a quarter of a millisecond.
const MOST_BYTES: u64 = 256 << 20;

/// A key of a dense domain.
#[derive(Debug, Clone)]
pub struct DenseKey {
    /// Smallest value; 0 for codes.
    pub(super) min: i128,
    /// The distance of neighbouring values.
    pub(super) step: u64,
    /// Values, without NULL.
    pub(super) values: u64,
    pub(super) nullable: bool,
    /// Slots between neighbouring values of this key.
    pub(super) stride: u64,
    /// The column whose codes tell its values, where they are no numbers at equal distances.
    pub(super) coded: Option<CodedColumn>,
}

impl DenseKey {
    /// Whether 32 bits have the distances of all values from the least.
    pub(super) fn is_narrow(&self) -> bool {
        let most = self.values.saturating_sub(1).checked_mul(self.step);
        most.is_some_and(|most| most <= u32::MAX.into())
    }
}

/// The values that a key may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Values {
    /// The smallest; 0 of codes.
    min: i128,
    /// The distance of neighbours.
    step: u64,
    /// How many, without NULL.
    count: u64,
}

/// The values of a key, where they are known.
fn dense_values(key: &ColumnInfo) -> Option<Values> {
    if let Some(coded) = key.coded {
        return Some(Values { min: 0, step: 1, count: u64::from(coded.entries) });
    }
    match (key.dictionary, key.range) {
        (Some((_, _, entries)), _) => Some(Values { min: 0, step: 1, count: u64::from(entries) }),
        _ if key.data_type == DataType::Boolean => Some(Values { min: 0, step: 1, count: 2 }),
        (None, Some(range)) => {
            let spaced = key.spacing.and_then(|spacing| Some((spacing.within(range)?, spacing.step)));
            let (Range { min, max }, step) = spaced.unwrap_or((range, 1));
            let (width, step) = (u64::try_from(max.checked_sub(min)?).ok()?, u64::try_from(step).ok()?);
            Some(Values { min, step, count: (width / step).checked_add(1)? })
        }
        _ => None,
    }
}

/// How many values a key has at most, without NULL, where that is known.
pub fn values_of(key: &ColumnInfo) -> Option<u64> {
    Some(dense_values(key)?.count)
}

/// Keys that may have a dense domain.
pub(super) struct DenseKeys {
    /// It and its slots, or what it lacks.
    domain: Result<(Vec<DenseKey>, u64), String>,
    /// Slots that the rule takes at most.
    suiting: u64,
    /// Slots that the last cache has room for.
    cached: Limit,
    /// Slots beyond the cache that the rule takes at most, where it takes any, and why.
    beyond: Option<(u64, &'static str)>,
}

/// Whether rows that follow each other have keys near each other.
pub(super) fn are_clustered(keys: &[ColumnInfo]) -> bool {
    let is_few = |key: &ColumnInfo| values_of(key).is_some_and(|values| values <= FEW_VALUES);
    keys.iter().any(|key| key.is_clustered) && keys.iter().all(|key| key.is_clustered || is_few(key))
}

impl DenseKeys {
    /// `limit`: slots that the table may have; `cached`: those that the last cache has room for, or where nothing is known of it
    /// [`SLOT_LIMIT`]; `suiting`: those that the rule takes at most.
    pub(super) fn of(
        keys: &[ColumnInfo],
        (limit, cached): (u64, Limit),
        suiting: u64,
        coming: Coming,
    ) -> DenseKeys {
        let (most, beyond) = match coming {
            Coming::InParts => (PARTS_SLOT_LIMIT, None),
            Coming::AsTheyAre { rows, slot_bytes, .. } if are_clustered(keys) => {
                let a_row = CLUSTERED_SLOTS_A_ROW.min(CLUSTERED_BYTES_A_ROW / slot_bytes.max(1));
                let why = "rows that follow each other come to slots near each other";
                (cached.value.max(CLUSTERED_SLOT_LIMIT), Some((rows.saturating_mul(a_row), why)))
            }
            Coming::AsTheyAre { rows, slot_bytes, is_serial: false } => {
                let (most, why) = (
                    MOST_BYTES / slot_bytes.max(1),
                    "as many rows come as there are slots, and a hash table has more",
                );
                (cached.value.max(most), Some((rows.min(most).min(suiting), why)))
            }
            Coming::AsTheyAre { .. } => (cached.value, None),
        };
        DenseKeys { domain: domain(keys, most.min(limit)), suiting, cached, beyond }
    }
}

/// How rows come to a table.
#[derive(Debug, Clone, Copy)]
pub(super) enum Coming {
    /// As they are; so many are thought to come, to slots of so many bytes. A CPU's worker takes rows that follow each other, and a GPU's
    /// warps add up those of the same slot before where rows follow each other.
    AsTheyAre { rows: u64, slot_bytes: u64, is_serial: bool },
    /// In parts.
    InParts,
}

impl Coming {
    /// Of an aggregation's input, whose groups have so many bytes.
    pub(super) fn of(input: &Input<'_>, slot_bytes: u64) -> Coming {
        match input.parts {
            Some(_) => Coming::InParts,
            None => Coming::AsTheyAre {
                rows: input.expected_rows.min(input.row_bound),
                slot_bytes,
                is_serial: input.is_serial,
            },
        }
    }
}

impl Strategy for DenseKeys {
    fn form(&self) -> GroupForm {
        GroupForm::Direct
    }

    fn lacks(&self) -> Option<String> {
        self.domain.as_ref().err().cloned()
    }

    fn suits(&self, row_bound: u64) -> Option<Cow<'static, str>> {
        // A table much larger than the input would cost more to clear and to read than it saves.
        let most = row_bound.saturating_mul(4).max(4096).min(self.suiting);
        let (_, slots) = self.domain.as_ref().ok()?;
        if *slots > self.cached.value
            && let Some((beyond, why)) = self.beyond
        {
            return (*slots <= beyond).then(|| why.into());
        }
        if *slots > most {
            return None;
        }
        // Fewer slots are taken whatever the cache is.
        let decisive = if *slots > SLOT_LIMIT { self.cached } else { Limit::fixed(SLOT_LIMIT) };
        Some(decisive.reason("a dense domain of keys"))
    }

    fn slots(&self) -> Option<u64> {
        Some(self.domain.as_ref().ok()?.1)
    }

    fn plan(
        self: Box<Self>,
        cells: &mut Cells,
        input: &Input<'_>,
        on: (&LaunchShape, &Choices<'_>),
        states: &mut declare::States,
    ) -> Result<Box<dyn GroupTable>, Unsupported> {
        let (domain, _) = self.domain.map_err(Unsupported)?;
        let present = cells.row_count();
        Ok(Box::new(DirectTable::plan(domain, present, cells, (input.row_bound, input), on, states)?))
    }
}

/// The dense domain of the keys and its slots, or what it lacks. `most`: slots that the table may have.
fn domain(keys: &[ColumnInfo], most: u64) -> Result<(Vec<DenseKey>, u64), String> {
    let mut stride = 1u64;
    let mut dense = Vec::new();
    for key in keys {
        let Values { min, step, count: values } = dense_values(key)
            .ok_or_else(|| format!("a key of {} has no known range of less than 64 bits", key.data_type))?;
        dense.push(DenseKey { min, step, values, nullable: key.nullable, stride, coded: key.coded });
        let own = values.checked_add(u64::from(key.nullable));
        stride = own
            .and_then(|own| stride.checked_mul(own))
            .filter(|slots| *slots <= most)
            .ok_or_else(|| format!("the keys have more than {most} values"))?;
    }
    Ok((dense, stride))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Spacing;

    fn key(range: Option<(i128, i128)>, nullable: bool) -> ColumnInfo {
        let range = range.map(|(min, max)| Range { min, max });
        ColumnInfo::new(DataType::Int32, nullable, range)
    }

    #[test]
    fn each_key_has_a_stride_and_null_a_place_of_its_own() {
        let text = ColumnInfo {
            data_type: DataType::Utf8,
            nullable: false,
            range: None,
            dictionary: Some((0, 0, 7)),
            scattered: None,
            is_clustered: false,
            spacing: None,
            origin: None,
            coded: None,
        };
        let (keys, slots) = domain(&[key(Some((-1, 3)), true), text], u64::MAX).expect("a dense domain");
        assert_eq!(slots, 42);
        let strides: Vec<_> = keys.iter().map(|key| (key.min, key.values, key.stride)).collect();
        assert_eq!(strides, [(-1, 5, 1), (0, 7, 6)]);
    }

    #[test]
    fn values_at_equal_distances_have_a_slot_each() {
        let spaced = |range, first, step| {
            let key = ColumnInfo { spacing: Spacing::new(first, step), ..key(Some(range), false) };
            dense_values(&key).map(|values| (values.min, values.step, values.count))
        };
        assert_eq!(spaced((100, 5000), 100, 100), Some((100, 100, 50)));
        // The bounds need be none of the values, nor what they are counted from.
        assert_eq!(spaced((-70, 130), 1100, 100), Some((0, 100, 2)));
        assert_eq!(spaced((5, 5), 5, 100), Some((5, 100, 1)));
        // No value is there at all.
        assert_eq!(spaced((1, 99), 0, 100), Some((1, 1, 99)));
        let day = 86_400_000_000_000;
        let range = (i128::from(i64::MIN), i128::from(i64::MAX));
        assert_eq!(spaced(range, 0, day), Some((-106_751 * day, day as u64, 213_503)));
        assert_eq!(spaced(range, 0, 1), None);
        assert_eq!(spaced((i128::MIN, i128::MAX), 0, day), None);
    }

    #[test]
    fn a_domain_that_is_too_large_or_unknown_has_a_reason() {
        let thousand = || key(Some((0, 999)), false);
        assert!(domain(&[thousand(), thousand()], u64::MAX).is_ok());
        let lacks = domain(&[thousand(), thousand()], 500_000).expect_err("too many slots");
        assert_eq!(lacks, "the keys have more than 500000 values");
        let lacks = domain(&[thousand(), key(Some((i64::MIN.into(), i64::MAX.into())), false)], u64::MAX);
        assert!(lacks.is_err_and(|lacks| lacks.contains("no known range")));
        assert!(domain(&[key(None, false)], u64::MAX).is_err_and(|lacks| lacks.contains("no known range")));
    }

    #[test]
    fn the_rule_wants_no_table_much_larger_than_the_input() {
        let limits = (u64::MAX, Limit::fixed(SLOT_LIMIT));
        let coming = Coming::AsTheyAre { rows: 1 << 30, slot_bytes: 16, is_serial: true };
        let of = |suiting| DenseKeys::of(&[key(Some((0, 99_999)), false)], limits, suiting, coming);
        let keys = of(u64::MAX);
        assert!(of(100_000).suits(1_000_000).is_some() && of(99_999).suits(1_000_000).is_none());
        assert_eq!(keys.lacks(), None);
        assert!(keys.suits(1_000_000).is_some());
        assert!(keys.suits(10_000).is_none());
    }

    #[test]
    fn clustered_keys_may_have_more_slots_where_as_many_rows_come() {
        let limits = (u64::MAX, Limit::fixed(SLOT_LIMIT));
        let clustered = ColumnInfo { is_clustered: true, ..key(Some((0, 5_999_999)), false) };
        let few = || key(Some((0, 3)), false);
        let suits = |keys: &[ColumnInfo], coming| {
            let keys = DenseKeys::of(keys, limits, u64::MAX, coming);
            keys.lacks().is_none() && keys.suits(6_000_000).is_some()
        };
        let coming = |rows| Coming::AsTheyAre { rows, slot_bytes: 16, is_serial: true };
        let wide = Coming::AsTheyAre { rows: 2_000_000, slot_bytes: 64, is_serial: true };
        assert!(suits(std::slice::from_ref(&clustered), coming(1_500_000)));
        assert!(!suits(std::slice::from_ref(&clustered), coming(1_000_000)));
        assert!(!suits(std::slice::from_ref(&clustered), wide));
        assert!(suits(&[clustered.clone(), few()], coming(24_000_000)));
        assert!(!suits(&[clustered, key(Some((0, 99)), false)], coming(u64::MAX)));
        assert!(!suits(&[key(Some((0, 5_999_999)), false)], coming(u64::MAX)));
        // Of few slots it does not matter.
        assert!(suits(&[few()], coming(0)));
    }
}
