//! Indexes over a store of rows: from a key to the rows that have it.
//!
//! *Direct*: one integer key of a dense range, whose slot is the key itself. Where a slot has one row at most, or only its
//! existence matters, a bitmap says which slots are taken: it is a 32nd of the rows' numbers, stays in a nearer cache, and
//! the numbers need no clearing. *Hashed*: any keys, by open addressing (`OpenTable`). *All*: no keys, every row is a
//! candidate.
//!
//! Where keys are unique, or one row of those with a key is enough, a slot has the row's number. Else its rows stand in a
//! bucket (`Buckets`), which takes a second pass over the store ([`Index::fill`]), or, where [`Wants::chained`], each row has
//! the number of the next. All rows that a search gives have its keys.

mod batches;
mod build;
mod filter;
mod look_ups;
mod parts;
mod place;
mod ranges;
mod search;
mod together;

pub(crate) use self::look_ups::SlotOfRow;
pub use self::place::BuildSide;
pub use self::ranges::Positions;
pub use self::search::Search;
pub(crate) use super::probing::Begun;

use std::fmt;

use kelpie_kir::builder::V;
use kelpie_kir::{CompareOp, Scalar, Type};

use super::bounds::KeyBounds;
use super::buckets::Buckets;
use super::probing::OpenTable;
use super::rows::RowStore;
use super::slots::Slots;
use super::together as lanes_together;
use crate::calibration::Limit;
use crate::context::{Argument, Constant, Context, Lowered, Repr, Unsupported};
use crate::layout::ColumnInfo;
use crate::lower::hashing::{HASH_RULE, is_wide};
use crate::program::States;
use crate::program::{Fill, Growth};
use crate::types::{DataType, Range};
use crate::variant::axes::{
    EmptySlots, HashFunction, IndexForm, IndexRows, KeyTextLanes, SlotClaims, SlotFill,
};
use crate::variant::{Site, estimate};

/// Most slots of a direct-addressed index: 4 GiB, of which a bitmap's 128 MiB are all that searches in vain look at.
const DIRECT_LIMIT: u64 = 1 << 30;
/// Bytes of a slot.
const SLOT_BYTES: u64 = 4;
/// Slots a row that a direct-addressed index may have, at most.
const DIRECT_SLOTS_PER_ROW: u64 = 8;

/// Slots a row, at most, that are cleared so that a lookup is one load.
const CLEARED_SLOTS_PER_ROW: u64 = 2;

/// An index over the first columns of a store, which are its keys.
#[derive(Debug, Clone)]
pub struct Index {
    kind: Kind,
    /// Rows with equal keys exist at most once: [`Index::insert`] reports a broken promise.
    pub unique: bool,
    null_equal: bool,
    /// Whether some side's values of each key go beyond 64 bits.
    wide: Vec<bool>,
    /// As what each key is told.
    told: Vec<Told>,
    /// Of the only key.
    bounds: Option<KeyBounds>,
    /// State of one `u32`, where keys are promised to be unique: it is known that they are not.
    broken: Option<usize>,
    /// Rows lie at their slots, or leave nothing but a bit there.
    placed: bool,
}

/// As what a key is told, which searches are given too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// As its value.
    Value,
    /// Texts, as the codes in their dictionary, which is the build side's.
    Code,
    /// Texts, as the codes that equal texts have in the probe side's dictionary of so many entries, which is what is stored of them. That
    /// of a text that is none of them is the number behind the last code: no search may find its row.
    LookedUp(u32),
}

/// What the searches of an index will want.
#[derive(Debug, Clone, Copy)]
pub struct Wants {
    /// NULL keys equal each other.
    pub null_equal: bool,
    /// The promise that keys are unique.
    pub unique: bool,
    /// Only whether there is a row with the keys.
    pub first_only: bool,
    /// Rows with a key are chained, not in a bucket. On a CPU that is faster wherever it was measured (TPC-H, SF 1, 2 cores):
    /// the second pass and the prefix sum over all slots make an index take 1.4 times (2.7 million rows) to 4 times as long
    /// (Q9: 0.3 million rows over 6 million slots), and a probe gains less than a tenth, as what is chained is in its caches
    /// alike. On a SIMT device each step of a chain is a transaction of its own.
    pub chained: bool,
    /// Workers are single threads, with caches of their own: a CPU's.
    pub serial: bool,
    /// Slots that a direct-addressed index may have whatever the rows: they stay in a CPU's second-level cache and their bitmap in a
    /// GPU's first-level cache, and a lookup is one load.
    pub(crate) least_slots: Limit,
    /// Bytes that a direct-addressed index may take.
    pub direct_bytes: Option<u64>,
    /// Why rows are not to lie at their slots, where that is so for the join's kind.
    pub not_placed: Option<&'static str>,
    /// Whether the micro model leaves it open where rows lie.
    pub places_by_rule: bool,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    All,
    Direct { min: i128, max: i128, slots: Slots },
    Hashed { table: OpenTable, rows: SlotRows },
}

/// The rows of a slot of an [`OpenTable`].
#[derive(Debug, Clone, Copy)]
enum SlotRows {
    One,
    /// State of one `u32` a row: the number of the next one.
    Chained(usize),
    Buckets(Buckets),
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.kind, self.unique) {
            (Kind::All, _) => "every pair",
            (Kind::Direct { slots: Slots::Placed { full: true, .. }, .. }, _) => "rows at their keys, all",
            (Kind::Direct { slots: Slots::Placed { .. }, .. }, _) => "rows at their keys",
            (Kind::Direct { .. }, true) => "direct, unique",
            (Kind::Direct { slots: Slots::Many(_), .. }, _) => "direct, buckets",
            (Kind::Direct { slots: Slots::Chained { .. }, .. }, _) => "direct, chains",
            (Kind::Direct { .. }, _) => "direct",
            (Kind::Hashed { .. }, true) => "hash, unique",
            (Kind::Hashed { rows: SlotRows::Buckets(_), .. }, _) => "hash, buckets",
            (Kind::Hashed { rows: SlotRows::Chained(_), .. }, _) => "hash, chains",
            (Kind::Hashed { rows: SlotRows::One, .. }, _) => "hash",
        })
    }
}

/// How keys are found, which is chosen before there is a store.
#[derive(Debug)]
pub(crate) struct KeyForm {
    /// Where they are addressed directly: their range, and how many slots there are.
    dense: Option<(Range, u64)>,
    /// NULLs of both sides equal each other.
    nullable_pair: bool,
    /// As what each key is told.
    told: Vec<Told>,
    /// Where rows lie at their slots: whether each slot will have one.
    placed: Option<bool>,
}

impl KeyForm {
    /// Chooses it. `probe`: what is known of the probe side's keys; `told`: as what each is told.
    pub(crate) fn choose(
        columns: &[ColumnInfo],
        (probe, told): (&[ColumnInfo], Vec<Told>),
        build: &BuildSide,
        (wants, site): (Wants, Site<'_>),
    ) -> Result<KeyForm, Unsupported> {
        let keys: Vec<ColumnInfo> = columns.iter().zip(&told).map(|(key, told)| told.numbers(key)).collect();
        let nullable_pair = wants.null_equal && keys.iter().zip(probe).any(|(a, b)| a.nullable && b.nullable);
        let dense = match keys.is_empty() {
            true => None,
            false => form(&keys, nullable_pair, build.bound, (wants, site))?,
        };
        let has_all = told.iter().all(|told| !matches!(told, Told::LookedUp(_)));
        let placed = place::choose(columns, (probe.len(), has_all), dense, build, (wants, site))?;
        Ok(KeyForm { dense, nullable_pair, told, placed })
    }

    /// Places of the store where rows lie at their slots.
    pub(crate) fn slots(&self) -> Option<u64> {
        self.dense.filter(|_| self.placed.is_some()).map(|(_, slots)| slots)
    }
}

impl Index {
    /// Chooses the kind and declares its states. `probe`: what is known of the probe side's keys.
    pub(crate) fn plan(
        form: KeyForm,
        (store, row_bound): (&RowStore, u64),
        probe: &[ColumnInfo],
        (wants, site): (Wants, Site<'_>),
        states: &mut States,
    ) -> Result<Index, Unsupported> {
        let Wants { null_equal, unique, first_only, .. } = wants;
        let KeyForm { dense, nullable_pair, told, placed } = form;
        let infos = store.infos();
        let keys = &infos[..probe.len()];
        let wide = keys.iter().zip(probe).map(|(a, b)| is_wide(a) || is_wide(b)).collect();
        let chained = keys.is_empty() || unique || first_only || chains(wants, site)?;
        let wants = Wants { chained, ..wants };
        let kind = match (keys, dense) {
            ([], _) => Kind::All,
            (_, Some((Range { min, max }, slots))) if placed.is_some() && !first_only => {
                Kind::Direct { min, max, slots: Slots::placed(slots, placed == Some(true), states) }
            }
            (_, Some((Range { min, max }, slots))) => {
                let cleared = unique && !first_only && clears((slots, row_bound), wants, site)?;
                Kind::Direct { min, max, slots: Slots::plan(slots, store, (wants, cleared), states) }
            }
            (_, None) => {
                let half = (SlotFill(50), "short searches, in twice the slots");
                let fill = Fill::of(site.choose(half, |_| Ok(()))?);
                let function = site.choose((HashFunction::Murmur3, HASH_RULE), |_| Ok(()))?;
                let texts = match wants.serial {
                    true => KeyTextLanes::Lane,
                    false => lanes_together::choose(&store.columns()[..keys.len()], site)?,
                };
                let claims = claims(unique || first_only, site)?;
                let table = OpenTable::plan(store, (fill, function, texts), states).with_claims(claims);
                let rows = match (unique || first_only, chained) {
                    (true, _) => SlotRows::One,
                    (false, true) => SlotRows::Chained(states.state("next", 4, store.class)),
                    (false, false) => SlotRows::Buckets(Buckets::plan(table.class, store, true, states)),
                };
                Kind::Hashed { table, rows }
            }
        };
        let bounds = match keys {
            // Of texts there are none: zones know nothing of codes.
            [key] if !nullable_pair && told == [Told::Value] => KeyBounds::plan(key, states),
            _ => None,
        };
        let unique = unique && !matches!(kind, Kind::All);
        let broken = unique.then(|| {
            let class = states.class(1, Growth::Fixed);
            states.state("broken_promise", 4, class)
        });
        Ok(Index { kind, unique, null_equal, wide, told, bounds, broken, placed: placed.is_some() })
    }

    /// Whether there is anything to build.
    pub fn is_built(&self) -> bool {
        !matches!(self.kind, Kind::All)
    }

    /// The state of the bounds of the only key ([`KeyBounds`]).
    pub fn bounds(&self) -> Option<usize> {
        self.bounds.map(|KeyBounds(state)| state)
    }

    /// States to clear before the index is built.
    pub fn zeroed(&self) -> Vec<usize> {
        let mut states: Vec<usize> = self.bounds().into_iter().chain(self.prefix_sum()).collect();
        states.extend(self.broken);
        match self.kind {
            Kind::Direct { slots: Slots::Single { bits, heads, cleared: true }, .. } => {
                states.extend([bits, heads]);
            }
            Kind::Direct { slots: Slots::Single { bits, .. }, .. }
            | Kind::Direct { slots: Slots::Placed { bits, .. } | Slots::Exists { bits }, .. } => {
                states.push(bits)
            }
            Kind::Direct { slots: Slots::Chained { heads, .. }, .. } => states.push(heads),
            Kind::Hashed { table, .. } => {
                states.push(table.words());
                states.extend(table.bloom().map(|bloom| bloom.words));
            }
            Kind::Direct { slots: Slots::Many(_), .. } | Kind::All => {}
        }
        states
    }

    /// Whether searches look at the keys in the store.
    pub fn reads_keys(&self) -> bool {
        matches!(self.kind, Kind::Hashed { .. })
    }

    /// The classes that take their size from the rows that there are.
    pub fn sized(&self) -> Vec<usize> {
        match self.kind {
            Kind::Hashed { table, .. } => {
                [table.class].into_iter().chain(table.bloom().map(|bloom| bloom.class)).collect()
            }
            Kind::All | Kind::Direct { .. } => Vec::new(),
        }
    }

    /// The same where the rows of a key lie at the positions of their bucket, if there are buckets.
    pub(crate) fn with_rows_in_buckets(mut self) -> Index {
        match &mut self.kind {
            Kind::Direct { slots: Slots::Many(buckets), .. }
            | Kind::Hashed { rows: SlotRows::Buckets(buckets), .. } => *buckets = buckets.with_rows(),
            Kind::All | Kind::Direct { .. } | Kind::Hashed { .. } => {}
        }
        self
    }

    fn buckets(&self) -> Option<Buckets> {
        match self.kind {
            Kind::Direct { slots: Slots::Many(buckets), .. } => Some(buckets),
            Kind::Hashed { rows: SlotRows::Buckets(buckets), .. } => Some(buckets),
            Kind::All | Kind::Direct { .. } | Kind::Hashed { .. } => None,
        }
    }

    /// Where there are buckets, which [`Index::fill`] is to fill: the state (of `u32`) to be replaced by its exclusive prefix
    /// sum before that.
    pub fn prefix_sum(&self) -> Option<usize> {
        self.buckets().map(|buckets| buckets.offsets())
    }
}

/// The range and the slots of a direct-addressed index, where that is chosen.
fn form(
    keys: &[ColumnInfo],
    nullable_pair: bool,
    row_bound: u64,
    (wants, site): (Wants, Site<'_>),
) -> Result<Option<(Range, u64)>, Unsupported> {
    let direct = match keys {
        [key] if nullable_pair => Err(format!("NULLs of {} are keys", key.data_type)),
        [key] => direct_range(key),
        _ => Err("several keys".into()),
    };
    let direct = direct.and_then(|(range, slots)| match wants.direct_bytes {
        Some(most) if slots * SLOT_BYTES > most => Err(format!("memory for {slots} slots")),
        _ => Ok((range, slots)),
    });
    let (most, least) = (row_bound.saturating_mul(DIRECT_SLOTS_PER_ROW), wants.least_slots);
    // Many rows decide by themselves.
    let limit = if most >= least.value { Limit::fixed(most) } else { least };
    let (form, reason) = match &direct {
        Ok((_, slots)) if *slots <= most => (IndexForm::Direct, "a dense range of keys".into()),
        Ok((_, slots)) if *slots <= limit.value => (IndexForm::Direct, limit.reason("a dense range of keys")),
        Ok(_) => (IndexForm::Hash, limit.reason("a sparse range of keys")),
        Err(_) => (IndexForm::Hash, "keys have no range".into()),
    };
    let (kind, slots) = match &direct {
        Ok((_, slots)) => ("direct", *slots),
        Err(_) => ("hash", row_bound.saturating_mul(2).checked_next_power_of_two().unwrap_or(u64::MAX)),
    };
    let table = estimate::table(slots, slots.saturating_mul(SLOT_BYTES));
    let rule = ((form, &*reason), Some(format!("at most {row_bound} rows, {kind} {table}")));
    let chosen = site.choose_by(rule, |value| match (value, &direct) {
        (IndexForm::Direct, Err(lacks)) => Err(lacks.clone()),
        _ => Ok(()),
    })?;
    Ok(direct.ok().filter(|_| chosen == IndexForm::Direct))
}

/// Whether rows with equal keys are chained.
fn chains(wants: Wants, site: Site<'_>) -> Result<bool, Unsupported> {
    let rule = match wants.chained {
        true => (IndexRows::Chains, "a CPU's caches hold chains as well as buckets"),
        false => (IndexRows::Buckets, "each step of a chain is a transaction"),
    };
    Ok(site.choose(rule, |_| Ok(()))? == IndexRows::Chains)
}

/// Whether the slots of unique keys are cleared, so that a search needs no bitmap.
fn clears((slots, rows): (u64, u64), wants: Wants, site: Site<'_>) -> Result<bool, Unsupported> {
    let rule = match () {
        () if !wants.serial => (EmptySlots::Bitmap, "a lookup that finds nothing costs no transaction more"),
        () if slots > rows.saturating_mul(CLEARED_SLOTS_PER_ROW) => {
            (EmptySlots::Bitmap, "there may be many more slots than rows")
        }
        () => (EmptySlots::Cleared, "most slots have a row"),
    };
    Ok(site.choose(rule, |_| Ok(()))? == EmptySlots::Cleared)
}

/// Whether a slot of unique keys is looked at before it is claimed. Of keys that many rows have most slots are found taken.
fn claims(is_one: bool, site: Site<'_>) -> Result<SlotClaims, Unsupported> {
    if !is_one {
        return Ok(SlotClaims::Look);
    }
    let rule = (SlotClaims::Look, "what it is worth to claim slots at once was not measured");
    site.choose(rule, |_| Ok(()))
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

pub(super) fn array(cx: &mut Context<'_>, name: &str, state: usize) -> V {
    cx.argument(name, Type::global(Scalar::U32), Argument::State(state))
}

impl Told {
    /// What is known of a stored key as a number that a search may be for.
    fn numbers(self, key: &ColumnInfo) -> ColumnInfo {
        let range = match self {
            Told::Value => return key.clone(),
            Told::Code => key.dictionary.map(|(_, _, entries)| code_range(entries)),
            Told::LookedUp(entries) => Some(code_range(entries)),
        };
        let (data_type, nullable) = (DataType::Int32, key.nullable);
        ColumnInfo::new(data_type, nullable, range)
    }
}

/// The codes of a dictionary of so many entries.
fn code_range(entries: u32) -> Range {
    Range { min: 0, max: i128::from(entries.max(1)) - 1 }
}

/// A key of the build side that is told by its code, as a number.
fn code_of(cx: &mut Context<'_>, key: &Lowered) -> Result<Lowered, Unsupported> {
    let code = match &key.repr {
        Repr::Text(text) => text.code,
        Repr::Scalar(_) => None,
    };
    let code = code.ok_or_else(|| Unsupported("a dictionary column lost its codes".into()))?;
    let value = cx.builder.convert(code.value, Scalar::I32);
    Ok(Lowered { repr: Repr::Scalar(value), valid: key.valid, range: Some(code_range(code.entries)) })
}

pub(super) fn scalar_of(key: &Lowered) -> Result<V, Unsupported> {
    match key.repr {
        Repr::Scalar(value) => Ok(value),
        Repr::Text(_) => Err(Unsupported("a key changed its representation".into())),
    }
}

/// Whether a value is within bounds; `None` where its own range says so.
fn in_range(cx: &mut Context<'_>, value: V, range: Option<Range>, (min, max): (i128, i128)) -> Option<V> {
    if range.is_some_and(|range| range.min >= min && range.max <= max) {
        return None;
    }
    let wide = wide_type(cx, value);
    let value = cx.builder.convert(value, wide);
    let (low, high) = (cx.constant(Constant::Int(wide, min)), cx.constant(Constant::Int(wide, max)));
    let (above, below) = (cx.builder.ge(value, low), cx.builder.compare(CompareOp::Le, value, high));
    Some(cx.builder.and(above, below))
}

/// `value - min` as `i64`.
fn offset_from(cx: &mut Context<'_>, value: V, min: i128) -> V {
    let wide = wide_type(cx, value);
    let value = cx.builder.convert(value, wide);
    if min == 0 {
        return cx.builder.convert(value, Scalar::I64);
    }
    let min = cx.constant(Constant::Int(wide, min));
    let difference = cx.builder.sub(value, min);
    cx.builder.convert(difference, Scalar::I64)
}

fn wide_type(cx: &mut Context<'_>, value: V) -> Scalar {
    match cx.builder.scalar(value) {
        Scalar::I128 => Scalar::I128,
        _ => Scalar::I64,
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
