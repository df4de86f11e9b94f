//! Indexes over a store of rows: from a key to the rows that have it. Rows of one slot are chained: `heads` has the
//! newest row of a slot (its position + 1; 0 = none), `next` the row before it.
//!
//! *Direct*: one integer key of a dense range, whose slot is the key itself, so that rows of a slot match without a
//! comparison. Where a slot has one row at most, or only its existence matters, a bitmap says which slots are taken: it is a
//! 32nd of the heads, stays in a nearer cache, and the heads need no clearing. *Hashed*: any keys; the rows of a slot are
//! compared. *All*: no keys, every row is a candidate.

use std::fmt;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, CompareOp, Scalar, Scope, Type};

use super::hashing::{hash_keys, is_wide};
use super::rows::RowStore;
use super::slots::{Slots, is_taken, push_front};
use crate::context::{Argument, Constant, Context, Lowered, Repr, Status, Unsupported};
use crate::pipeline::states_of::States;
use crate::pipeline::{ColumnInfo, Growth};
use crate::types::{DataType, Range};

/// Most slots of a direct-addressed index (4 bytes each).
const DIRECT_LIMIT: u64 = 1 << 28;
/// Slots a row that a direct-addressed index may have, at most.
const DIRECT_SLOTS_PER_ROW: u64 = 8;

/// An index over the first columns of a store, which are its keys.
#[derive(Debug, Clone)]
pub struct Index {
    kind: Kind,
    /// Rows with equal keys exist at most once: a broken promise is reported by [`Index::verify`].
    pub unique: bool,
    null_equal: bool,
    /// Whether some side's values of each key go beyond 64 bits.
    wide: Vec<bool>,
    /// State of two words, zero where no row is indexed: the greatest order key of the only key, and the greatest complement.
    bounds: Option<usize>,
}

/// Bounds while rows are indexed, a thread: see [`Index::bounds`].
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    greatest: Var,
    least: Var,
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
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    All,
    Direct { min: i128, max: i128, slots: Slots },
    Hashed { class: usize, heads: usize, next: usize },
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.kind, self.unique) {
            (Kind::All, _) => "every pair",
            (Kind::Direct { .. }, true) => "direct, unique",
            (Kind::Direct { .. }, false) => "direct",
            (Kind::Hashed { .. }, true) => "hash, unique",
            (Kind::Hashed { .. }, false) => "hash",
        })
    }
}

/// A search for the rows of a key: `cursor` (`u32`) is the next candidate's position + 1, or 0.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// The next candidate.
    pub cursor: Var,
}

impl Index {
    /// Chooses the kind and declares its states. `probe`: what is known of the probe side's keys.
    pub(crate) fn plan(
        store: &RowStore,
        probe: &[ColumnInfo],
        row_bound: u64,
        Wants { null_equal, unique, first_only }: Wants,
        states: &mut States,
    ) -> Index {
        let infos = store.infos();
        let keys = &infos[..probe.len()];
        let wide = keys.iter().zip(probe).map(|(a, b)| is_wide(a) || is_wide(b)).collect();
        let nullable_pair = null_equal && keys.iter().zip(probe).any(|(a, b)| a.nullable && b.nullable);
        let dense = match keys {
            [key] if !nullable_pair => dense_range(key, row_bound),
            _ => None,
        };
        let kind = match (keys, dense) {
            ([], _) => Kind::All,
            (_, Some((Range { min, max }, slots))) => {
                Kind::Direct { min, max, slots: Slots::plan(slots, store, unique, first_only, states) }
            }
            (_, None) => {
                let class = states.class(1, Growth::Sized(store.row_count()));
                let heads = states.state("heads", 4, class);
                Kind::Hashed { class, heads, next: states.state("next", 4, store.class) }
            }
        };
        let bounds = match keys {
            [key] if has_order(key) && !nullable_pair => {
                let class = states.class(2, Growth::Fixed);
                Some(states.state("key_bounds", 8, class))
            }
            _ => None,
        };
        Index { kind, unique: unique && !matches!(kind, Kind::All), null_equal, wide, bounds }
    }

    /// Whether there is anything to build.
    pub fn is_built(&self) -> bool {
        !matches!(self.kind, Kind::All)
    }

    /// The state of the bounds of the only key: the greatest order key (`i64` with the sign bit flipped, as `u64`) and the
    /// greatest complement of one.
    pub fn bounds(&self) -> Option<usize> {
        self.bounds
    }

    /// States to clear before the index is built.
    pub fn zeroed(&self) -> Vec<usize> {
        let own = match self.kind {
            Kind::All => None,
            Kind::Direct { slots: Slots::Single { bits, .. } | Slots::Exists { bits }, .. } => Some(bits),
            Kind::Direct { slots: Slots::Chained { heads, .. }, .. } | Kind::Hashed { heads, .. } => {
                Some(heads)
            }
        };
        own.into_iter().chain(self.bounds).collect()
    }

    /// The class that takes its size from the rows that there are.
    pub fn sized(&self) -> Option<usize> {
        match self.kind {
            Kind::Hashed { class, .. } => Some(class),
            Kind::All | Kind::Direct { .. } => None,
        }
    }

    /// Whether the promise that keys are unique needs [`Index::verify`].
    pub fn needs_verification(&self) -> bool {
        self.unique && matches!(self.kind, Kind::Hashed { .. })
    }

    // ---- building

    /// Before the row loop.
    pub fn begin(&self, cx: &mut Context<'_>) -> Option<Bounds> {
        self.bounds?;
        let zero = cx.builder.u64(0);
        Some(Bounds {
            greatest: cx.builder.var_of("greatest_key", zero),
            least: cx.builder.var_of("least_key", zero),
        })
    }

    /// After the row loop.
    pub fn end(&self, cx: &mut Context<'_>, bounds: Option<Bounds>) {
        let (Some(state), Some(bounds)) = (self.bounds, bounds) else { return };
        let words = cx.argument("key_bounds", Type::global(Scalar::U64), Argument::State(state));
        for (index, var) in [(0, bounds.greatest), (1, bounds.least)] {
            let index = cx.builder.i64(index);
            let pointer = cx.builder.offset(words, index);
            let own = cx.builder.read(var);
            let known = cx.builder.atomic_load(pointer, Scope::Device);
            let beyond = cx.builder.compare(CompareOp::Gt, own, known);
            cx.begin_if(beyond);
            cx.builder.atomic_discard(AtomicOp::Max, pointer, own, Scope::Device);
            cx.end();
        }
    }

    /// Takes the current row's key, which is not NULL, into the bounds.
    fn widen(&self, cx: &mut Context<'_>, key: &Lowered, bounds: Option<Bounds>) -> Result<(), Unsupported> {
        let Some(bounds) = bounds else { return Ok(()) };
        let value = scalar_of(key)?;
        let b = &mut *cx.builder;
        let value = b.convert(value, Scalar::I64);
        let top = b.i64(i64::MIN);
        let order = b.binary(BinaryOp::Xor, value, top);
        let order = b.bitcast(order, Scalar::U64);
        let complement = b.not(order);
        for (var, candidate) in [(bounds.greatest, order), (bounds.least, complement)] {
            let known = b.read(var);
            let new = b.binary(BinaryOp::Max, known, candidate);
            b.assign(var, new);
        }
        Ok(())
    }

    /// Opens `if` a key (one, not of a hashed index) may be in the index: a runtime filter by the bitmap. `None` where
    /// there is no bitmap.
    pub fn begin_if_taken(&self, cx: &mut Context<'_>, key: &Lowered) -> Result<Option<usize>, Unsupported> {
        let Kind::Direct { min, max, slots: Slots::Single { bits, .. } | Slots::Exists { bits } } = self.kind
        else {
            return Ok(None);
        };
        let value = scalar_of(key)?;
        let mut opened = 1;
        if let Some(live) = live(cx, key, value, (min, max)) {
            cx.begin_if(live);
            opened += 1;
        }
        let slot = offset_from(cx, value, min);
        let taken = is_taken(cx, bits, slot);
        cx.begin_if(taken);
        Ok(Some(opened))
    }

    /// Whether there is a bitmap.
    pub fn has_bitmap(&self) -> bool {
        matches!(self.kind, Kind::Direct { slots: Slots::Single { .. } | Slots::Exists { .. }, .. })
    }

    /// Adds the row at `place` (`i64`), whose keys are the first columns of the current row. Rows with a NULL key are left out
    /// unless NULLs are equal.
    pub fn insert(&self, cx: &mut Context<'_>, place: V, bounds: Option<Bounds>) -> Result<(), Unsupported> {
        let keys = self.keys_of_row(cx)?;
        let opened = self.leave_out_nulls(cx, &keys);
        if let [key] = keys.as_slice() {
            self.widen(cx, key, bounds)?;
        }
        match self.kind {
            Kind::All => {}
            Kind::Direct { min, slots, .. } => {
                let value = scalar_of(&keys[0])?;
                let slot = offset_from(cx, value, min);
                slots.insert(cx, slot, place);
            }
            Kind::Hashed { heads, next, .. } => {
                let slot = self.hashed_slot(cx, &keys, heads);
                push_front(cx, (heads, next), slot, place);
            }
        }
        if opened {
            cx.end();
        }
        Ok(())
    }

    /// Reports rows of the finished index whose key an older row has too. The row at `place` is the current row.
    pub fn verify(&self, cx: &mut Context<'_>, store: &RowStore, place: V) -> Result<(), Unsupported> {
        let Kind::Hashed { next, .. } = self.kind else { return Ok(()) };
        let keys = self.keys_of_row(cx)?;
        let opened = self.leave_out_nulls(cx, &keys);
        let next = array(cx, "next", next);
        let older = cx.builder.element(next, place);
        let search = Search { cursor: cx.builder.var_of("older", older) };
        cx.begin_loop();
        let other = self.advance(cx, search);
        let same = self.matches(cx, store, &keys, other)?;
        cx.begin_if(same);
        cx.builder.report(Status::Duplicate as u32);
        cx.builder.break_loop();
        cx.end();
        cx.end();
        if opened {
            cx.end();
        }
        Ok(())
    }

    /// Opens `if` no key is NULL, unless NULLs are equal to each other.
    fn leave_out_nulls(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> bool {
        match self.all_valid(cx, keys) {
            Some(valid) if !self.null_equal || matches!(self.kind, Kind::Direct { .. }) => {
                cx.begin_if(valid);
                true
            }
            _ => false,
        }
    }

    fn keys_of_row(&self, cx: &mut Context<'_>) -> Result<Vec<Lowered>, Unsupported> {
        (0..self.wide.len()).map(|index| cx.column(index)).collect()
    }

    // ---- probing

    /// Begins the search for rows whose keys equal `keys`.
    pub fn search(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        keys: &[Lowered],
    ) -> Result<Search, Unsupported> {
        let zero = cx.builder.u32(0);
        let cursor = cx.builder.var_of("cursor", zero);
        let valid = if self.null_equal { None } else { self.all_valid(cx, keys) };
        match self.kind {
            Kind::All => {
                let count = cx.argument(
                    "place_count",
                    Type::global(Scalar::U64),
                    Argument::State(store.place_count()),
                );
                let count = cx.builder.load(count);
                let count = cx.builder.convert(count, Scalar::U32);
                cx.builder.assign(cursor, count);
            }
            Kind::Direct { min, max, slots } => {
                let value = scalar_of(&keys[0])?;
                let live = live(cx, &keys[0], value, (min, max));
                if let Some(live) = live {
                    cx.begin_if(live);
                }
                let slot = offset_from(cx, value, min);
                slots.search(cx, slot, cursor);
                if live.is_some() {
                    cx.end();
                }
            }
            Kind::Hashed { heads, .. } => {
                if let Some(valid) = valid {
                    cx.begin_if(valid);
                }
                let slot = self.hashed_slot(cx, keys, heads);
                let heads = array(cx, "heads", heads);
                let head = cx.builder.element(heads, slot);
                cx.builder.assign(cursor, head);
                if valid.is_some() {
                    cx.end();
                }
            }
        }
        Ok(Search { cursor })
    }

    /// Takes the next candidate: its place (`i64`). Leaves the innermost loop where there is none.
    pub fn advance(&self, cx: &mut Context<'_>, search: Search) -> V {
        let current = cx.builder.read(search.cursor);
        let zero = cx.builder.u32(0);
        let none = cx.builder.eq(current, zero);
        cx.builder.break_if(none);
        let one = cx.builder.u32(1);
        let place = cx.builder.sub(current, one);
        let wide = cx.builder.convert(place, Scalar::I64);
        let following = match self.kind {
            Kind::All => place,
            Kind::Direct { slots: Slots::Single { .. } | Slots::Exists { .. }, .. } => cx.builder.u32(0),
            Kind::Direct { slots: Slots::Chained { next, .. }, .. } | Kind::Hashed { next, .. } => {
                let next = array(cx, "next", next);
                cx.builder.element(next, wide)
            }
        };
        cx.builder.assign(search.cursor, following);
        wide
    }

    /// Whether every candidate of a search has the keys.
    pub fn is_exact(&self) -> bool {
        !matches!(self.kind, Kind::Hashed { .. })
    }

    /// Whether the row at `place` has the keys.
    pub fn matches(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        keys: &[Lowered],
        place: V,
    ) -> Result<V, Unsupported> {
        let mut same: Option<V> = None;
        if !self.is_exact() {
            for (key, column) in keys.iter().zip(store.columns()) {
                let equal = column.equals(cx, key, place)?;
                same = Some(match same {
                    Some(same) => cx.builder.and(same, equal),
                    None => equal,
                });
            }
        }
        Ok(match same {
            Some(same) => same,
            None => cx.builder.bool(true),
        })
    }

    /// Whether no key is NULL; `None` where none can be.
    fn all_valid(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Option<V> {
        let mut all: Option<V> = None;
        for valid in keys.iter().filter_map(|key| key.valid) {
            all = Some(match all {
                Some(all) => cx.builder.and(all, valid),
                None => valid,
            });
        }
        all
    }

    fn hashed_slot(&self, cx: &mut Context<'_>, keys: &[Lowered], heads: usize) -> V {
        let pairs: Vec<_> = keys.iter().zip(self.wide.iter().copied()).collect();
        let hash = hash_keys(cx, &pairs);
        let capacity = cx.argument("slots", Scalar::I64, Argument::StateCapacity(heads));
        let hash = cx.builder.bitcast(hash, Scalar::I64);
        let one = cx.builder.i64(1);
        let mask = cx.builder.sub(capacity, one);
        cx.builder.and(hash, mask)
    }
}

/// Whether a key that is looked up is within bounds and not NULL; `None` where it always is. One side is never NULL: a NULL
/// of the other equals nothing, whatever the rule.
fn live(cx: &mut Context<'_>, key: &Lowered, value: V, bounds: (i128, i128)) -> Option<V> {
    match (in_range(cx, value, key.range, bounds), key.valid) {
        (Some(within), Some(valid)) => Some(cx.builder.and(within, valid)),
        (within, valid) => within.or(valid),
    }
}

/// Whether a key is an integer of 64 bits inside.
fn has_order(key: &ColumnInfo) -> bool {
    let range = key.range.or_else(|| key.data_type.full_range());
    !matches!(key.data_type, DataType::Utf8 | DataType::Boolean)
        && range.is_some_and(|range| range.within(Range::new(i64::MIN, i64::MAX)))
}

/// The range and the slots of a direct-addressed index over a key, if it is dense enough.
fn dense_range(key: &ColumnInfo, row_bound: u64) -> Option<(Range, u64)> {
    if key.data_type.is_float() || matches!(key.data_type, DataType::Utf8 | DataType::Boolean) {
        return None;
    }
    let range = key.range?;
    if !range.within(Range::new(i64::MIN, i64::MAX)) {
        return None;
    }
    let slots = u64::try_from(range.max.checked_sub(range.min)?.checked_add(1)?).ok()?;
    let dense = row_bound.saturating_mul(DIRECT_SLOTS_PER_ROW).max(1024);
    (slots <= DIRECT_LIMIT && slots <= dense).then_some((range, slots))
}

pub(super) fn array(cx: &mut Context<'_>, name: &str, state: usize) -> V {
    cx.argument(name, Type::global(Scalar::U32), Argument::State(state))
}

fn scalar_of(key: &Lowered) -> Result<V, Unsupported> {
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
