//! First look-ups of several rows of a thread at once, without a branch: all of them look at the bitmap or at their slot in a hash table,
//! then all at what that leads to, so that the loads of all rows are in flight together.
//!
//! Where keys are slots, or have ranks, a search is ended by that. In a hash table it is ended where the first slot is empty or has the
//! row's keys; others go on behind it, each when its row does ([`Index::search_behind_first`]).

use kelpie_kir::Scalar;
use kelpie_kir::builder::{V, Var};

use super::filter::narrow_slot;
use super::search::Search;
use super::{Index, Kind, array, scalar_of};
use crate::context::{Context, Lowered, Unsupported};
use crate::table::buckets::Buckets;
use crate::table::probing::OpenTable;
use crate::table::ranks::{Ranks, RowsOfRank};
use crate::table::rows::RowStore;
use crate::table::slots::{Slots, is_taken_for_good};

/// The number of a search that its first slot has not ended. No row has it: there are fewer rows than slots, which are 2³² at most.
const OPEN: u32 = u32::MAX;

/// Where a row is looked up.
#[derive(Debug, Clone)]
pub(crate) struct SlotOfRow {
    /// Its slot, `u32`; 0 where it has none.
    slot: V,
    /// Whether it has one (`bool`).
    live: V,
    /// What it looks for there, in a hash table.
    sought: Option<Sought>,
}

/// Keys, and their tag (`u32`).
#[derive(Debug, Clone)]
struct Sought {
    keys: Vec<Lowered>,
    tag: V,
}

impl Index {
    /// What it lacks for several rows to be looked up at once.
    pub(crate) fn lacks_look_ups(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Direct { slots: Slots::Exists { .. }, .. } => Some("only a bit is looked at"),
            Kind::All => Some("every row of a build side is tried"),
            Kind::Direct { .. } | Kind::Hashed { .. } => None,
        }
    }

    /// Where a row is looked up that is `active` (`bool`), whose keys are given: numbers.
    pub(crate) fn slot_of_row(
        &self,
        cx: &mut Context<'_>,
        keys: &[Lowered],
        active: V,
    ) -> Result<SlotOfRow, Unsupported> {
        let zero = cx.builder.u32(0);
        match (self.kind, keys) {
            (Kind::Direct { min, max, .. }, [key]) => {
                let value = scalar_of(key)?;
                let (slot, within) = narrow_slot(cx, (value, key.range), (min, max));
                let mut live = active;
                for condition in within.into_iter().chain(key.valid) {
                    live = cx.builder.and(live, condition);
                }
                Ok(SlotOfRow { slot: cx.builder.select(live, slot, zero), live, sought: None })
            }
            (Kind::Hashed { table, .. }, keys) => {
                let valid = if self.null_equal { None } else { self.all_valid(cx, keys) };
                let live = valid.map_or(active, |valid| cx.builder.and(active, valid));
                let begun = table.first_slot(cx, keys, &self.wide);
                let slot = cx.builder.select(live, begun.slot, zero);
                let sought = Some(Sought { keys: keys.to_vec(), tag: begun.tag });
                Ok(SlotOfRow { slot, live, sought })
            }
            _ => Err(Unsupported::internal("the slot of keys that are none")),
        }
    }

    /// What searches for rows find at their slots, as [`Search`] has it: 0 where there is nothing; or that they go on
    /// ([`Index::is_open`]).
    pub(crate) fn look_up(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        rows: &[SlotOfRow],
    ) -> Result<Vec<V>, Unsupported> {
        match self.kind {
            Kind::Direct { slots, .. } => by_slots(cx, slots, rows),
            Kind::Hashed { table, .. } => self.by_first_slots(cx, (table, store), rows),
            Kind::All => Err(Unsupported::internal("several rows are looked up where there are no keys")),
        }
    }

    /// The same in a hash table: all rows look at their first slots, then all at the keys of those that have their tags.
    fn by_first_slots(
        &self,
        cx: &mut Context<'_>,
        (table, store): (OpenTable, &RowStore),
        rows: &[SlotOfRow],
    ) -> Result<Vec<V>, Unsupported> {
        let (zero, open) = (cx.builder.u32(0), cx.builder.u32(OPEN));
        let words: Vec<V> = rows.iter().map(|row| table.word_at(cx, row.slot)).collect();
        let mut seen = Vec::new();
        for (row, word) in rows.iter().zip(words) {
            let sought = row.sought.as_ref();
            let sought = sought.ok_or_else(|| Unsupported::internal("a slot of no keys in a hash table"))?;
            let slot = table.see(cx, sought.tag, word);
            let is_candidate = cx.builder.and(row.live, slot.alike);
            // Rows without a candidate look at the same place.
            let candidate = cx.builder.select(is_candidate, slot.number, zero);
            let taken = cx.builder.not(slot.empty);
            let goes_on = cx.builder.and(row.live, taken);
            seen.push((sought, is_candidate, candidate, goes_on));
        }
        let places: Vec<V> =
            seen.iter().map(|(_, _, candidate, _)| self.first_place(cx, *candidate)).collect();
        let mut numbers = Vec::new();
        for ((sought, is_candidate, candidate, goes_on), place) in seen.into_iter().zip(places) {
            let same = table.has_keys(cx, store, &sought.keys, place)?;
            let b = &mut *cx.builder;
            let found = b.and(is_candidate, same);
            let otherwise = b.select(goes_on, open, zero);
            numbers.push(b.select(found, candidate, otherwise));
        }
        Ok(numbers)
    }

    /// Whether the search of a row that has been looked up goes on behind its first slot (`bool`); `None` where none does.
    pub(crate) fn is_open(&self, cx: &mut Context<'_>, number: V) -> Option<V> {
        let is_hashed = matches!(self.kind, Kind::Hashed { .. });
        is_hashed.then(|| {
            let open = cx.builder.u32(OPEN);
            cx.builder.eq(number, open)
        })
    }

    /// The rest of the search of a row whose keys are not in its first slot, which is not empty; it was live.
    pub(crate) fn search_behind_first(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        keys: &[Lowered],
    ) -> Result<Search, Unsupported> {
        let Kind::Hashed { table, rows } = self.kind else {
            return Err(Unsupported::internal("a search that goes on where its slot is known"));
        };
        let zero = cx.builder.u32(0);
        let cursor = cx.builder.var_of("cursor", zero);
        let keys = (keys, self.wide.as_slice());
        table.find_behind_first(cx, store, keys, cursor, |cx, number| rows.first_place(cx, number))?;
        Ok(Search { cursor })
    }

    /// The place (`i64`) of what was found, where keys are unique; 0, where a store always has a place, where nothing was, or not yet.
    pub(crate) fn place_found(&self, cx: &mut Context<'_>, number: V) -> V {
        let is_open = self.is_open(cx, number);
        let b = &mut *cx.builder;
        let (zero, one) = (b.u32(0), b.u32(1));
        let mut is_none = b.eq(number, zero);
        if let Some(is_open) = is_open {
            is_none = b.or(is_none, is_open);
        }
        let place = b.sub(number, one);
        let place = b.select(is_none, zero, place);
        b.convert(place, Scalar::I64)
    }

    /// The search that has found what is in `number`.
    pub(crate) fn search_found(&self, cx: &mut Context<'_>, number: V) -> Search {
        let cursor: Var = cx.builder.var_of("cursor", number);
        Search { cursor }
    }
}

/// The same where keys are slots: all rows look at the bits, where there are some, then all at what stands in the slots.
fn by_slots(cx: &mut Context<'_>, slots: Slots, rows: &[SlotOfRow]) -> Result<Vec<V>, Unsupported> {
    let (bits, heads) = match slots {
        Slots::Single { bits, heads, cleared } => ((!cleared).then_some(bits), Some(heads)),
        Slots::Chained { heads, .. } => (None, Some(heads)),
        Slots::Placed { bits, full } => ((!full).then_some(bits), None),
        Slots::Ranked(ranks) => return Ok(by_ranks(cx, ranks, rows)),
        Slots::Many(buckets) => {
            let rows: Vec<_> = rows.iter().map(|row| (row.slot, row.live)).collect();
            return Ok(by_buckets(cx, buckets, &rows));
        }
        Slots::Exists { .. } => return Err(Unsupported::internal("several rows are looked up among bits")),
    };
    let zero = cx.builder.u32(0);
    let mut at_slots = Vec::new();
    for SlotOfRow { slot, live, .. } in rows {
        at_slots.push(match bits {
            Some(bits) => {
                let taken = is_taken_for_good(cx, bits, *slot);
                let found = cx.builder.and(*live, taken);
                // Rows that find nothing look at the same word: what costs memory is where there is a row.
                (cx.builder.select(found, *slot, zero), found)
            }
            None => (*slot, *live),
        });
    }
    let number = |(slot, found): (V, V)| {
        let number = match heads {
            Some(heads) => {
                let heads = array(cx, "heads", heads);
                cx.builder.element(heads, slot)
            }
            None => {
                let one = cx.builder.u32(1);
                cx.builder.add(slot, one)
            }
        };
        cx.builder.select(found, number, zero)
    };
    Ok(at_slots.into_iter().map(number).collect())
}

/// The same where keys have ranks: all rows look at the bits, then all at the counts, then all at what stands at the ranks.
fn by_ranks(cx: &mut Context<'_>, ranks: Ranks, rows: &[SlotOfRow]) -> Vec<V> {
    let bits: Vec<_> = rows.iter().map(|row| ranks.bit(cx, row.slot)).collect();
    let mut at_ranks = Vec::new();
    for (row, bit) in rows.iter().zip(bits) {
        let taken = bit.is_set(cx);
        let found = cx.builder.and(row.live, taken);
        at_ranks.push((ranks.rank_if(cx, bit, found), found));
    }
    let numbers = match ranks.rows {
        RowsOfRank::One(numbers) | RowsOfRank::Chained(numbers, _) => numbers,
        RowsOfRank::Buckets(buckets, _) => return by_buckets(cx, buckets, &at_ranks),
    };
    let zero = cx.builder.u32(0);
    let load = |(rank, found)| {
        let numbers = array(cx, "ranked_rows", numbers);
        let number = cx.builder.element(numbers, rank);
        cx.builder.select(found, number, zero)
    };
    at_ranks.into_iter().map(load).collect()
}

/// The first positions + 1 of the buckets of slots or ranks (`u32`), where these are `found` (`bool`) and have rows.
fn by_buckets(cx: &mut Context<'_>, buckets: Buckets, rows: &[(V, V)]) -> Vec<V> {
    let zero = cx.builder.u32(0);
    let first = |(slot, found): &(V, V)| {
        let slot = cx.builder.convert(*slot, Scalar::I64);
        let (begin, end) = buckets.bounds(cx, slot);
        let b = &mut *cx.builder;
        let has_rows = b.ne(begin, end);
        let (has_rows, one) = (b.and(*found, has_rows), b.u32(1));
        let first = b.add(begin, one);
        b.select(has_rows, first, zero)
    };
    rows.iter().map(first).collect()
}
