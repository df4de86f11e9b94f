//! Runtime filters: whether rows of the probe side may find a match, before they are looked up. By the bitmap of slots of a
//! direct-addressed index, of one key; or by the Bloom filter of a hash table ([`OpenTable`]), of any number of keys.

use kelpie_kir::builder::V;
use kelpie_kir::{CompareOp, Scalar};

use super::search::live;
use super::{Index, Kind, in_range, offset_from, scalar_of};
use crate::context::{Constant, Context, Lowered, Unsupported};
use crate::program::States;
use crate::table::probing::OpenTable;
use crate::table::rows::RowStore;
use crate::table::slots::{Slots, is_taken, is_taken_for_good, taken_bit};
use crate::types::Range;

/// By what it is known of keys that they are not in the index.
enum Filter {
    /// The state of a bitmap, and the bounds of the keys that have a bit.
    Bitmap(usize, (i128, i128)),
    /// A table that has a Bloom filter.
    Bloom(OpenTable),
}

impl Index {
    /// Whether keys are found by open addressing.
    pub(crate) fn is_hashed(&self) -> bool {
        matches!(self.kind, Kind::Hashed { .. })
    }

    /// The same with a Bloom filter, where keys of a store's rows are found by open addressing.
    pub(crate) fn with_bloom(self, store: &RowStore, states: &mut States) -> Index {
        let kind = match self.kind {
            Kind::Hashed { table, rows } => Kind::Hashed { table: table.with_bloom(store, states), rows },
            Kind::All | Kind::Direct { .. } => self.kind,
        };
        Index { kind, ..self }
    }

    /// Whether there is a bitmap or a Bloom filter.
    pub fn has_filter(&self) -> bool {
        self.filter().is_some()
    }

    /// Whether there is a Bloom filter.
    pub fn has_bloom(&self) -> bool {
        matches!(self.filter(), Some(Filter::Bloom(_)))
    }

    /// Opens `if`s, so many, where keys may be in the index. `None` where there is no filter.
    pub fn begin_if_taken(
        &self,
        cx: &mut Context<'_>,
        keys: &[Lowered],
    ) -> Result<Option<usize>, Unsupported> {
        let Some(filter) = self.filter() else { return Ok(None) };
        let (live, taken) = match filter {
            Filter::Bitmap(bits, (min, max)) => {
                let key = only(keys)?;
                let value = scalar_of(key)?;
                let live = live(cx, key, value, (min, max));
                if let Some(live) = live {
                    cx.begin_if(live);
                }
                let slot = offset_from(cx, value, min);
                (live, is_taken(cx, bits, slot))
            }
            Filter::Bloom(table) => {
                let live = self.none_is_null(cx, keys);
                if let Some(live) = live {
                    cx.begin_if(live);
                }
                (live, self.by_bloom(cx, table, keys, None)?)
            }
        };
        cx.begin_if(taken);
        Ok(Some(1 + usize::from(live.is_some())))
    }

    /// Whether keys may be in the index, without a branch: 1 or 0 (`i64`). `None` where there is no filter.
    pub fn may_have(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Result<Option<V>, Unsupported> {
        let Some(filter) = self.filter() else { return Ok(None) };
        let (bits, (min, max)) = match filter {
            Filter::Bitmap(bits, bounds) => (bits, bounds),
            Filter::Bloom(table) => {
                let mut found = self.by_bloom(cx, table, keys, None)?;
                if let Some(live) = self.none_is_null(cx, keys) {
                    found = cx.builder.and(found, live);
                }
                return Ok(Some(cx.builder.convert(found, Scalar::I64)));
            }
        };
        let key = only(keys)?;
        let value = scalar_of(key)?;
        let live = live(cx, key, value, (min, max));
        let slot = offset_from(cx, value, min);
        let Some(live) = live else { return Ok(Some(taken_bit(cx, bits, slot))) };
        let zero = cx.builder.i64(0);
        let slot = cx.builder.select(live, slot, zero);
        let taken = taken_bit(cx, bits, slot);
        Ok(Some(cx.builder.select(live, taken, zero)))
    }

    /// Whether a row is `active` (`bool`) and its keys may be in the index, by the filter of an index that is finished: without a
    /// branch and in few instructions. All rows that are not active look at the same word. `None` where there is no filter.
    pub fn may_have_if(
        &self,
        cx: &mut Context<'_>,
        keys: &[Lowered],
        active: V,
    ) -> Result<Option<V>, Unsupported> {
        let Some(filter) = self.filter() else { return Ok(None) };
        let (bits, (min, max)) = match filter {
            Filter::Bitmap(bits, bounds) => (bits, bounds),
            Filter::Bloom(table) => {
                let live = match self.none_is_null(cx, keys) {
                    Some(live) => cx.builder.and(active, live),
                    None => active,
                };
                let found = self.by_bloom(cx, table, keys, Some(live))?;
                return Ok(Some(cx.builder.and(live, found)));
            }
        };
        let key = only(keys)?;
        let value = scalar_of(key)?;
        let (slot, within) = narrow_slot(cx, (value, key.range), (min, max));
        let mut live = active;
        for condition in within.into_iter().chain(key.valid) {
            live = cx.builder.and(live, condition);
        }
        let zero = cx.builder.u32(0);
        let slot = cx.builder.select(live, slot, zero);
        let taken = is_taken_for_good(cx, bits, slot);
        Ok(Some(cx.builder.and(live, taken)))
    }

    fn filter(&self) -> Option<Filter> {
        match self.kind {
            Kind::Direct { min, max, slots } => match slots {
                Slots::Single { bits, .. } | Slots::Placed { bits, .. } | Slots::Exists { bits } => {
                    Some(Filter::Bitmap(bits, (min, max)))
                }
                Slots::Ranked(ranks) => Some(Filter::Bitmap(ranks.bits(), (min, max))),
                Slots::Chained { .. } | Slots::Many(_) => None,
            },
            Kind::Hashed { table, .. } => table.bloom().map(|_| Filter::Bloom(table)),
            Kind::All => None,
        }
    }

    /// Whether no key is NULL; `None` where none can be, or NULLs equal each other and are in the index as any value.
    fn none_is_null(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Option<V> {
        if self.null_equal { None } else { self.all_valid(cx, keys) }
    }

    /// [`OpenTable::may_have`], of a table that has a Bloom filter.
    fn by_bloom(
        &self,
        cx: &mut Context<'_>,
        table: OpenTable,
        keys: &[Lowered],
        active: Option<V>,
    ) -> Result<V, Unsupported> {
        let found = table.may_have(cx, (keys, &self.wide), active);
        found.ok_or_else(|| Unsupported::internal("a table without a Bloom filter"))
    }
}

/// The only key.
fn only(keys: &[Lowered]) -> Result<&Lowered, Unsupported> {
    match keys {
        [key] => Ok(key),
        _ => Err(Unsupported::internal("a bitmap of several keys")),
    }
}

/// The slot of a value (`u32`), and whether the value is within the bounds of the slots, `None` where its own range says so. The slot of
/// one that is not is anything.
pub(super) fn narrow_slot(
    cx: &mut Context<'_>,
    (value, range): (V, Option<Range>),
    (min, max): (i128, i128),
) -> (V, Option<V>) {
    let is_narrow = match cx.builder.scalar(value) {
        Scalar::I8 | Scalar::U8 | Scalar::I16 | Scalar::U16 | Scalar::I32 => {
            min >= i32::MIN.into() && max <= i32::MAX.into()
        }
        _ => false,
    };
    if !is_narrow {
        let within = in_range(cx, value, range, (min, max));
        let slot = offset_from(cx, value, min);
        return (cx.builder.convert(slot, Scalar::U32), within);
    }
    // In 32 bits what is below the least one is beyond the greatest.
    let value = cx.builder.convert(value, Scalar::I32);
    let least = cx.constant(Constant::Int(Scalar::I32, min));
    let distance = cx.builder.sub(value, least);
    let slot = cx.builder.bitcast(distance, Scalar::U32);
    if range.is_some_and(|range| range.min >= min && range.max <= max) {
        return (slot, None);
    }
    let last = cx.constant(Constant::Int(Scalar::U32, max - min));
    (slot, Some(cx.builder.compare(CompareOp::Le, slot, last)))
}
