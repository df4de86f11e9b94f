//! Indexes over a store of rows: from a key to the rows that have it.
//!
//! *Direct*: one integer key of a dense range, whose slot is the key itself. Where a slot has one row at most, or only its
//! existence matters, a bitmap says which slots are taken: it is a 32nd of the rows' numbers, stays in a nearer cache, and
//! the numbers need no clearing. *Hashed*: any keys, by open addressing (`OpenTable`). *All*: no keys, every row is a
//! candidate.
//!
//! *Ranked*: a bitmap of such a range, by which each key that there is has a rank, and what the slots would have stands at the ranks
//! (`table/ranks`): no more than there are rows.
//!
//! Where keys are unique, or one row of those with a key is enough, a slot has the row's number. Else its rows stand in a
//! bucket (`Buckets`), which takes a second pass over the store ([`Index::fill`]), or, where [`Wants::chained`], each row has
//! the number of the next. All rows that a search gives have its keys.

mod batches;
mod build;
mod filter;
mod form;
mod parts;
mod place;
mod ranges;
mod search;
mod together;

use self::form::Dense;
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
use super::ranks::{Ranks, RowsOfRank};
use super::rows::RowStore;
use super::slots::Slots;
use super::together as lanes_together;
use crate::calibration::Limit;
use crate::context::{Argument, Constant, Context, Lowered, Repr, Unsupported};
use crate::layout::ColumnInfo;
use crate::lower::hashing::{HASH_RULE, is_wide};
use crate::program::{Fill, Growth, States, WordRanks};
use crate::types::{DataType, Range};
use crate::variant::Site;
use crate::variant::axes::{HashFunction, KeyTextLanes};

/// Bytes of a slot.
const SLOT_BYTES: u64 = 4;

/// An index over the first columns of a store, which are its keys.
#[derive(Debug, Clone)]
pub struct Index {
    kind: Kind,
    /// Rows with equal keys exist at most once: [`Index::insert`] reports a broken promise.
    pub unique: bool,
    null_equal: bool,
    /// Whether some side's values of each key go beyond 64 bits.
    wide: Vec<bool>,
    /// How each key is encoded.
    encodings: Vec<KeyEncoding>,
    /// Of the only key.
    bounds: Option<KeyBounds>,
    /// State of one `u32`, where keys are promised to be unique: it is known that they are not.
    broken: Option<usize>,
    /// Rows lie at their slots, or leave nothing but a bit there.
    placed: bool,
}

/// How a key is encoded where it is put into the index, and for searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyEncoding {
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
    /// Bytes of the last cache, beyond which slots are looked at in memory.
    pub(crate) cache: Limit,
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
            (Kind::Direct { slots: Slots::Ranked(ranks), .. }, _) => match ranks.rows {
                RowsOfRank::One(_) => "ranks, unique",
                RowsOfRank::Chained(..) => "ranks, chains",
                RowsOfRank::Buckets(..) => "ranks, buckets",
            },
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
    /// Where they are addressed directly, or by their ranks.
    dense: Option<Dense>,
    /// NULLs of both sides equal each other.
    nullable_pair: bool,
    /// How each key is encoded.
    encodings: Vec<KeyEncoding>,
    /// Where rows lie at their slots: whether each slot will have one.
    placed: Option<bool>,
}

impl KeyForm {
    /// Chooses it. `probe`: what is known of the probe side's keys; `encodings`: how each is encoded.
    pub(crate) fn choose(
        columns: &[ColumnInfo],
        (probe, encodings): (&[ColumnInfo], Vec<KeyEncoding>),
        build: &BuildSide,
        (wants, site): (Wants, Site<'_>),
    ) -> Result<KeyForm, Unsupported> {
        let keys: Vec<ColumnInfo> =
            columns.iter().zip(&encodings).map(|(key, encoding)| encoding.numbers(key)).collect();
        let nullable_pair = wants.null_equal && keys.iter().zip(probe).any(|(a, b)| a.nullable && b.nullable);
        let dense = match keys.is_empty() {
            true => None,
            false => form::choose(&keys, nullable_pair, build, (wants, site))?,
        };
        let has_all = encodings.iter().all(|encoding| !matches!(encoding, KeyEncoding::LookedUp(_)));
        let placed = place::choose(columns, (probe.len(), has_all), dense, build, (wants, site))?;
        Ok(KeyForm { dense, nullable_pair, encodings, placed })
    }

    /// Places of the store where rows lie at their slots.
    pub(crate) fn slots(&self) -> Option<u64> {
        self.dense.filter(|_| self.placed.is_some()).map(|dense| dense.slots)
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
        let KeyForm { dense, nullable_pair, encodings, placed } = form;
        let infos = store.infos();
        let keys = &infos[..probe.len()];
        let wide = keys.iter().zip(probe).map(|(a, b)| is_wide(a) || is_wide(b)).collect();
        let chained = keys.is_empty() || unique || first_only || form::chains(wants, site)?;
        let wants = Wants { chained, ..wants };
        let kind = match (keys, dense) {
            ([], _) => Kind::All,
            (_, Some(Dense { range: Range { min, max }, slots, is_ranked })) => {
                let slots = if is_ranked {
                    Slots::Ranked(Ranks::plan(slots, store, (unique, chained), states))
                } else if placed.is_some() && !first_only {
                    Slots::placed(slots, placed == Some(true), states)
                } else {
                    let cleared = unique && !first_only && form::clears((slots, row_bound), wants, site)?;
                    Slots::plan(slots, store, (wants, cleared), states)
                };
                Kind::Direct { min, max, slots }
            }
            (_, None) => {
                let fill = Fill::of(site.choose(form::fill(wants, row_bound), |_| Ok(()))?);
                let function = site.choose((HashFunction::Murmur3, HASH_RULE), |_| Ok(()))?;
                let texts = match wants.serial {
                    true => KeyTextLanes::Lane,
                    false => lanes_together::choose(&store.columns()[..keys.len()], site)?,
                };
                let table = OpenTable::plan(store, (fill, function, texts), states);
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
            [key] if !nullable_pair && encodings == [KeyEncoding::Value] => KeyBounds::plan(key, states),
            _ => None,
        };
        let unique = unique && !matches!(kind, Kind::All);
        let broken = unique.then(|| {
            let class = states.class(1, Growth::Fixed);
            states.state("broken_promise", 4, class)
        });
        Ok(Index { kind, unique, null_equal, wide, encodings, bounds, broken, placed: placed.is_some() })
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
            Kind::Direct { slots: Slots::Ranked(ranks), .. } => states.extend(ranks.zeroed()),
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
            Kind::Direct { slots: Slots::Ranked(ranks), .. } => match ranks.rows {
                RowsOfRank::Buckets(_, class) => vec![class],
                RowsOfRank::One(_) | RowsOfRank::Chained(..) => Vec::new(),
            },
            Kind::All | Kind::Direct { .. } => Vec::new(),
        }
    }

    /// The same where the rows of a key lie at the positions of their bucket, if there are buckets.
    pub(crate) fn with_rows_in_buckets(mut self) -> Index {
        match &mut self.kind {
            Kind::Direct { slots: Slots::Many(buckets), .. }
            | Kind::Hashed { rows: SlotRows::Buckets(buckets), .. } => *buckets = buckets.with_rows(),
            Kind::Direct { slots: Slots::Ranked(ranks), .. } => *ranks = ranks.with_rows_in_buckets(),
            Kind::All | Kind::Direct { .. } | Kind::Hashed { .. } => {}
        }
        self
    }

    /// Where keys have ranks: what is to be made of the bitmap between [`Index::insert`] and a second pass over the rows
    /// ([`Index::number`]).
    pub(crate) fn word_ranks(&self) -> Option<WordRanks> {
        match self.kind {
            Kind::Direct { slots: Slots::Ranked(ranks), .. } => Some(ranks.words()),
            Kind::All | Kind::Direct { .. } | Kind::Hashed { .. } => None,
        }
    }

    fn buckets(&self) -> Option<Buckets> {
        match self.kind {
            Kind::Direct { slots: Slots::Many(buckets), .. } => Some(buckets),
            Kind::Hashed { rows: SlotRows::Buckets(buckets), .. } => Some(buckets),
            Kind::Direct { slots: Slots::Ranked(ranks), .. } => ranks.buckets(),
            Kind::All | Kind::Direct { .. } | Kind::Hashed { .. } => None,
        }
    }

    /// Where there are buckets, which [`Index::fill`] is to fill: the state (of `u32`) to be replaced by its exclusive prefix
    /// sum before that.
    pub fn prefix_sum(&self) -> Option<usize> {
        self.buckets().map(|buckets| buckets.offsets())
    }
}

pub(super) fn array(cx: &mut Context<'_>, name: &str, state: usize) -> V {
    cx.argument(name, Type::global(Scalar::U32), Argument::State(state))
}

impl KeyEncoding {
    /// What is known of a stored key as a number that a search may be for.
    fn numbers(self, key: &ColumnInfo) -> ColumnInfo {
        let range = match self {
            KeyEncoding::Value => return key.clone(),
            KeyEncoding::Code => key.dictionary.map(|(_, _, entries)| code_range(entries)),
            KeyEncoding::LookedUp(entries) => Some(code_range(entries)),
        };
        let (data_type, nullable) = (DataType::Int32, key.nullable);
        ColumnInfo::new(data_type, nullable, range)
    }
}

/// The codes of a dictionary of so many entries.
fn code_range(entries: u32) -> Range {
    Range { min: 0, max: i128::from(entries.max(1)) - 1 }
}

/// A key of the build side that is encoded by its code, as a number.
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
