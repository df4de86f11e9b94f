//! The forms of an index: whether keys of a range are slots, or have ranks, or are hashed; and what else is chosen of it.

use super::place::BuildSide;
use super::{SLOT_BYTES, Wants};
use crate::calibration::Limit;
use crate::context::Unsupported;
use crate::layout::ColumnInfo;
use crate::types::{DataType, Range};
use crate::variant::axes::{EmptySlots, IndexForm, IndexRows, SlotFill};
use crate::variant::{Site, estimate};

/// Most slots of a direct-addressed index: 4 GiB, of which a bitmap's 128 MiB are all that searches in vain look at.
const DIRECT_LIMIT: u64 = 1 << 30;
/// Slots a row that a direct-addressed index may have, at most.
const DIRECT_SLOTS_PER_ROW: u64 = 8;

/// Slots a row, at most, that are cleared so that a lookup is one load.
const CLEARED_SLOTS_PER_ROW: u64 = 2;

/// Values of a range that have two bits each, the bitmap's and the count's, in a byte.
const RANKED_VALUES_PER_BYTE: u64 = 4;
/// Values of the range for each row from which on the rule has ranks where the slots have no room in a cache.
const RANKED_VALUES_PER_ROW: u64 = 8;

/// A range of keys whose values are slots, or have ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dense {
    /// The values.
    pub range: Range,
    /// How many they are.
    pub slots: u64,
    /// What leads to rows stands at the ranks of keys.
    pub is_ranked: bool,
}

/// The range of a direct-addressed index, or of one by ranks, where that is chosen.
pub(super) fn choose(
    keys: &[ColumnInfo],
    nullable_pair: bool,
    build: &BuildSide,
    (wants, site): (Wants, Site<'_>),
) -> Result<Option<Dense>, Unsupported> {
    let row_bound = build.bound;
    let dense = match keys {
        [key] if nullable_pair => Err(format!("NULLs of {} are keys", key.data_type)),
        [key] => direct_range(key),
        _ => Err("several keys".into()),
    };
    let has_room = |bytes: u64| wants.direct_bytes.is_none_or(|most| bytes <= most);
    let direct = dense.clone().and_then(|(range, slots)| match has_room(slots * SLOT_BYTES) {
        false => Err(format!("memory for {slots} slots")),
        true => Ok((range, slots)),
    });
    let ranked = dense.and_then(|(range, slots)| match () {
        () if wants.first_only => Err("bits alone say whether there is a row".into()),
        () if !has_room(slots / RANKED_VALUES_PER_BYTE) => Err(format!("memory for {slots} bits")),
        () => Ok((range, slots)),
    });
    let (most, least) = (row_bound.saturating_mul(DIRECT_SLOTS_PER_ROW), wants.least_slots);
    // Many rows decide by themselves.
    let limit = if most >= least.value { Limit::fixed(most) } else { least };
    let (form, reason) = match (&direct, &ranked) {
        (Ok((_, slots)), Ok(_)) if *slots <= limit.value && ranks_pay(*slots, build, wants) => {
            (IndexForm::Rank, wants.cache.reason("a cache has room for bits and counts, and not for slots"))
        }
        (Ok((_, slots)), _) if *slots <= most => (IndexForm::Direct, "a dense range of keys".into()),
        (Ok((_, slots)), _) if *slots <= limit.value => {
            (IndexForm::Direct, limit.reason("a dense range of keys"))
        }
        (Ok(_), _) => (IndexForm::Hash, limit.reason("a sparse range of keys")),
        (Err(_), _) => (IndexForm::Hash, "keys have no range".into()),
    };
    let (kind, slots) = match &direct {
        Ok((_, slots)) => ("direct", *slots),
        Err(_) => ("hash", row_bound.saturating_mul(2).checked_next_power_of_two().unwrap_or(u64::MAX)),
    };
    let table = estimate::table(slots, slots.saturating_mul(SLOT_BYTES));
    let rule = ((form, &*reason), Some(format!("at most {row_bound} rows, {kind} {table}")));
    let chosen = site.choose_by(rule, |value| match (value, &direct, &ranked) {
        (IndexForm::Direct, Err(lacks), _) | (IndexForm::Rank, _, Err(lacks)) => Err(lacks.clone()),
        _ => Ok(()),
    })?;
    let of = |dense: Result<(Range, u64), String>, is_ranked| {
        dense.ok().map(|(range, slots)| Dense { range, slots, is_ranked })
    };
    Ok(match chosen {
        IndexForm::Direct => of(direct, false),
        IndexForm::Rank => of(ranked, true),
        IndexForm::Hash => None,
    })
}

/// Whether the rule has ranks for so many values. Where several rows may have a key, all slots are cleared and, for buckets, summed up: on an
/// H200 TPC-H 4, 12 and 21 take 0.58, 0.63 and 0.57 of the time with ranks. Slots of unique keys are not even cleared, and are one look-up less
/// (5 and 7: 0.93 and 0.88 with slots); what a CPU makes of ranks was not measured.
fn ranks_pay(slots: u64, build: &BuildSide, wants: Wants) -> bool {
    let rows = build.expected.unwrap_or(build.bound);
    !wants.unique && !wants.serial && spares_misses((slots, rows), RANKED_VALUES_PER_ROW, wants.cache.value)
}

/// Whether there are `least` values of a range for each row, and a cache has room for the bits, the counts and the rows' numbers, but not for
/// a slot a value.
fn spares_misses((slots, rows): (u64, u64), least: u64, cache: u64) -> bool {
    let bytes = (slots / RANKED_VALUES_PER_BYTE).saturating_add(rows.saturating_mul(SLOT_BYTES));
    slots / rows.max(1) >= least && slots.saturating_mul(SLOT_BYTES) > cache && bytes <= cache
}

/// Whether rows with equal keys are chained.
pub(super) fn chains(wants: Wants, site: Site<'_>) -> Result<bool, Unsupported> {
    let rule = match wants.chained {
        true => (IndexRows::Chains, "a CPU's caches hold chains as well as buckets"),
        false => (IndexRows::Buckets, "each step of a chain is a transaction"),
    };
    Ok(site.choose(rule, |_| Ok(()))? == IndexRows::Chains)
}

/// How many slots of a hash table of at most so many rows may be taken. On an H200, with all joins of TPC-H and SSB by hash tables, a quarter
/// takes 0.89 and 0.83 of the time of a half, but 1.05 where a table is then larger than the cache (TPC-H 9).
pub(super) fn fill(wants: Wants, rows: u64) -> (SlotFill, &'static str) {
    let bytes = rows.saturating_mul(SLOT_BYTES).saturating_mul(4);
    match () {
        () if !wants.serial && bytes <= wants.cache.value / 2 => {
            (SlotFill(25), "most searches end at their first slot, and the table stays in the cache")
        }
        () => (SlotFill(50), "short searches, in twice the slots"),
    }
}

/// Whether the slots of unique keys are cleared, so that a search needs no bitmap.
pub(super) fn clears((slots, rows): (u64, u64), wants: Wants, site: Site<'_>) -> Result<bool, Unsupported> {
    let rule = match () {
        () if !wants.serial => (EmptySlots::Bitmap, "a lookup that finds nothing costs no transaction more"),
        () if slots > rows.saturating_mul(CLEARED_SLOTS_PER_ROW) => {
            (EmptySlots::Bitmap, "there may be many more slots than rows")
        }
        () => (EmptySlots::Cleared, "most slots have a row"),
    };
    Ok(site.choose(rule, |_| Ok(()))? == EmptySlots::Cleared)
}

/// The range of a key whose values can be slots, and how many these are; or what it lacks.
fn direct_range(key: &ColumnInfo) -> Result<(Range, u64), String> {
    let data_type = &key.data_type;
    if data_type.is_float() || matches!(data_type, DataType::Utf8 | DataType::Boolean) {
        return Err(format!("keys of {data_type} are no slots"));
    }
    let range = key.range.filter(|range| range.within(Range::new(i64::MIN, i64::MAX)));
    let range = range.ok_or("the range of the keys is not known")?;
    let slots = range.max.checked_sub(range.min).and_then(|span| u64::try_from(span.checked_add(1)?).ok());
    match slots {
        Some(slots) if slots <= DIRECT_LIMIT => Ok((range, slots)),
        _ => Err(format!("the range of the keys has more than {DIRECT_LIMIT} values")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(data_type: DataType, range: Option<Range>) -> ColumnInfo {
        ColumnInfo::new(data_type, false, range)
    }

    #[test]
    fn an_integer_of_a_small_range_is_a_slot() {
        let days = Range { min: -719_528, max: 10_000 };
        assert_eq!(direct_range(&key(DataType::Date32, Some(days))), Ok((days, 729_529)));
        let widest = Range { min: i128::from(i64::MIN), max: i128::from(i64::MIN) + 9 };
        assert_eq!(direct_range(&key(DataType::Int64, Some(widest))), Ok((widest, 10)));
    }

    /// Slots of 240 MB, of which bits and counts are 15, beside a cache of 50.
    #[test]
    fn ranks_spare_misses_where_bits_alone_fit_a_cache() {
        let cache = 50 << 20;
        for (slots, rows, spares) in [
            (60_000_000, 1_000_000, true),
            (60_000_000, 0, true),
            // Many rows, whose numbers fit no cache, or are too many for the range.
            (60_000_000, 10_000_000, false),
            (120_000_000, 14_000_000, false),
            // Slots that fit themselves, and bits that do not.
            (12_000_000, 1_000, false),
            (400_000_000, 1_000, false),
        ] {
            assert_eq!(spares_misses((slots, rows), 8, cache), spares, "{slots} {rows}");
        }
    }

    #[test]
    fn what_is_no_slot_has_a_reason() {
        let most = Some(Range { min: i64::MIN.into(), max: i64::MAX.into() });
        let beyond = Some(Range { min: i128::MIN, max: i128::MAX });
        for (key, reason) in [
            (key(DataType::Float64, None), "keys of Float64 are no slots"),
            (key(DataType::Int64, None), "the range of the keys is not known"),
            (key(DataType::Int64, most), "the range of the keys has more than 1073741824 values"),
            (
                key(DataType::Decimal128 { precision: 38, scale: 0 }, beyond),
                "the range of the keys is not known",
            ),
        ] {
            let lacks = direct_range(&key).expect_err("no slot");
            assert_eq!(lacks.to_lowercase(), reason.to_lowercase());
        }
    }
}
