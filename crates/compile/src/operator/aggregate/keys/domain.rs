//! Keys whose values make a dense domain: a group's place follows from them.

use crate::layout::{CodedColumn, ColumnInfo};
use crate::types::{DataType, Range};

/// Values of a key beside clustered ones, at most: a worker comes to as many places of the table in turn.
const FEW_VALUES: u64 = 64;
/// A key of a dense domain.
#[derive(Debug, Clone)]
pub struct DenseKey {
    /// Smallest value; 0 for codes.
    pub(crate) min: i128,
    /// The distance of neighbouring values.
    pub(crate) step: u64,
    /// Values, without NULL.
    pub(crate) values: u64,
    pub(crate) nullable: bool,
    /// Slots between neighbouring values of this key.
    pub(crate) stride: u64,
    /// The column whose codes tell its values, where they are no numbers at equal distances.
    pub(crate) coded: Option<CodedColumn>,
}

impl DenseKey {
    /// Whether 32 bits have the distances of all values from the least.
    pub(crate) fn is_narrow(&self) -> bool {
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

/// Whether rows that follow each other have keys near each other.
pub(crate) fn are_clustered(keys: &[ColumnInfo]) -> bool {
    let is_few = |key: &ColumnInfo| values_of(key).is_some_and(|values| values <= FEW_VALUES);
    keys.iter().any(|key| key.is_clustered) && keys.iter().all(|key| key.is_clustered || is_few(key))
}

/// The dense domain of the keys and its slots, or why there is none. `most`: slots that the table may have.
pub(crate) fn dense_domain(keys: &[ColumnInfo], most: u64) -> Result<(Vec<DenseKey>, u64), String> {
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

/// About how many groups of rows there are that are far from each other, where that is known: at least one key has many values, and
/// of the others it is known how many they have.
pub(crate) fn scattered_groups(keys: &[ColumnInfo]) -> Option<u64> {
    let some = keys.iter().any(|key| key.scattered.is_some());
    let all = keys.iter().map(key_values).reduce(|all, own| Some(all?.saturating_mul(own?)));
    all.flatten().filter(|_| some)
}

/// How many values a key has at most, or about, where that is known; NULL is one.
pub(crate) fn key_values(key: &ColumnInfo) -> Option<u64> {
    let most = values_of(key).map(|values| values.saturating_add(key.nullable.into()));
    most.into_iter().chain(key.scattered.map(|own| own.values)).min()
}

/// How many groups there are at most, where that is known of all keys; NULL is a value.
pub(crate) fn groups_known(keys: &[ColumnInfo]) -> Option<u64> {
    let values = |key: &ColumnInfo| Some(values_of(key)?.saturating_add(key.nullable.into()));
    keys.iter().map(values).try_fold(1, |all: u64, own| Some(all.saturating_mul(own?)))
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
            has_frequent: false,
            is_clustered: false,
            spacing: None,
            origin: None,
            coded: None,
        };
        let (keys, slots) =
            dense_domain(&[key(Some((-1, 3)), true), text], u64::MAX).expect("a dense domain");
        assert_eq!(slots, 42);
        let strides: Vec<_> = keys.iter().map(|key| (key.min, key.values, key.stride)).collect();
        assert_eq!(strides, [(-1, 5, 1), (0, 7, 6)]);
    }

    #[test]
    fn a_key_of_which_nothing_is_known_bounds_no_groups() {
        let known = [key(Some((0, 9)), false), key(Some((1, 3)), true)];
        assert_eq!(groups_known(&known), Some(40));
        assert_eq!(groups_known(&[key(Some((5, 5)), true)]), Some(2));
        assert_eq!(groups_known(&[key(Some((0, 9)), false), key(None, false)]), None);
        assert_eq!(groups_known(&[key(None, true)]), None);
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
        assert!(dense_domain(&[thousand(), thousand()], u64::MAX).is_ok());
        let why_not = dense_domain(&[thousand(), thousand()], 500_000).expect_err("too many slots");
        assert_eq!(why_not, "the keys have more than 500000 values");
        let why_not =
            dense_domain(&[thousand(), key(Some((i64::MIN.into(), i64::MAX.into())), false)], u64::MAX);
        assert!(why_not.is_err_and(|why_not| why_not.contains("no known range")));
        assert!(
            dense_domain(&[key(None, false)], u64::MAX)
                .is_err_and(|why_not| why_not.contains("no known range"))
        );
    }
}
