//! Direct addressing: one integer key of a dense range is its own slot, where the number of its first row stands.
//!
//! Where keys are unique, a bitmap says which slots are taken: it stays in a nearer cache, and the numbers need no clearing.

use std::borrow::Cow;

use kelpie_kir::builder::{V, Var};

use super::existence::Existence;
use crate::context::{Context, Unsupported};
use crate::operator::join::facts::JoinFacts;
use crate::operator::join::method::{AccessPath, BuildSide, DenseKey, JoinMethod, Keys, NUMBER_BYTES};
use crate::program::{Growth, States};
use crate::table::array;
use crate::table::bitmap::Bitmap;
use crate::table::buckets::Buckets;
use crate::table::key_range::KeyRange;
use crate::table::key_rows::{KeyRows, Positions, put_first};
use crate::table::probing::{number_of, report_not_unique};
use crate::variant::axes::{EmptySlots, IndexRows};

/// Slots a row, at most, that are cleared so that a look-up is one load.
const CLEARED_SLOTS_PER_ROW: u64 = 2;

pub(in crate::operator::join) struct Direct;

#[derive(Debug)]
struct DirectIndex {
    range: KeyRange,
    slots: Slots,
}

/// What stands in the slots: the states are of one `u32` a slot.
#[derive(Debug, Clone, Copy)]
enum Slots {
    /// The number of the only row, where the bitmap says that there is one; `is_cleared`: others are 0.
    One { taken: Bitmap, heads: usize, is_cleared: bool },
    /// The number of the first row of a chain, or 0.
    Chained { heads: usize, next: usize },
    /// Where the bucket begins.
    Buckets(Buckets),
}

impl JoinMethod for Direct {
    fn why_not(&self, facts: &JoinFacts<'_>) -> Option<String> {
        match &facts.slots {
            Err(why_not) => Some(why_not.clone()),
            Ok(range) if !facts.has_room(range.slots() * NUMBER_BYTES) => {
                Some(format!("memory for {} slots", range.slots()))
            }
            Ok(_) => None,
        }
    }

    fn why(&self, facts: &JoinFacts<'_>) -> Option<Cow<'static, str>> {
        let (slots, limit) = (facts.slots.as_ref().ok()?.slots(), facts.slot_limit());
        match slots {
            slots if slots <= facts.slots_of_rows() => Some("a dense range of keys".into()),
            slots if slots <= limit.value => Some(limit.reason("a dense range of keys")),
            _ => None,
        }
    }

    fn plan(&self, facts: &JoinFacts<'_>, states: &mut States) -> Result<BuildSide, Unsupported> {
        let range = facts.slots.clone().map_err(Unsupported)?;
        let store = facts.store(states)?;
        if facts.first_only {
            let path = Box::new(Existence::plan(range, true, states));
            return Ok(BuildSide { store, path, rows: KeyRows::One });
        }
        let count = range.slots();
        let (slots, rows) = match facts.order()? {
            None => {
                let is_cleared = clears(facts, count)?;
                let class = states.class(count, Growth::Fixed);
                let taken = Bitmap::plan(count, states);
                (Slots::One { taken, heads: states.state("heads", 4, class), is_cleared }, KeyRows::One)
            }
            Some(IndexRows::Chains) => {
                let class = states.class(count, Growth::Fixed);
                let heads = states.state("heads", 4, class);
                let next = states.state("next", 4, store.class);
                (Slots::Chained { heads, next }, KeyRows::Chained(next))
            }
            Some(IndexRows::Buckets) => {
                let class = states.class(count + 1, Growth::Fixed);
                let buckets = Buckets::plan(class, &store, false, states);
                (Slots::Buckets(buckets), KeyRows::Buckets(buckets))
            }
        };
        Ok(BuildSide { store, path: Box::new(DirectIndex { range, slots }), rows })
    }
}

/// Whether the slots of unique keys are cleared, so that a search needs no bitmap.
fn clears(facts: &JoinFacts<'_>, slots: u64) -> Result<bool, Unsupported> {
    let most = facts.input.build.rows.bound.saturating_mul(CLEARED_SLOTS_PER_ROW);
    let rule = match () {
        () if !facts.input.shape.is_serial() => {
            (EmptySlots::Bitmap, "a lookup that finds nothing costs no transaction more")
        }
        () if slots > most => (EmptySlots::Bitmap, "there may be many more slots than rows"),
        () => (EmptySlots::Cleared, "most slots have a row"),
    };
    Ok(facts.input.site.choose(rule, |_| Ok(()))? == EmptySlots::Cleared)
}

impl AccessPath for DirectIndex {
    fn name(&self, rows: &str) -> String {
        format!("direct{rows}")
    }

    fn zeroed(&self) -> Vec<usize> {
        match self.slots {
            Slots::One { taken, heads, is_cleared: true } => vec![taken.0, heads],
            Slots::One { taken, .. } => vec![taken.0],
            Slots::Chained { heads, .. } => vec![heads],
            Slots::Buckets(_) => Vec::new(),
        }
    }

    fn dense(&self) -> Option<DenseKey> {
        let taken = match self.slots {
            Slots::One { taken, .. } => Some(taken),
            Slots::Chained { .. } | Slots::Buckets(_) => None,
        };
        Some(DenseKey { range: self.range, taken })
    }

    fn insert(&self, cx: &mut Context<'_>, keys: Keys<'_>, place: V) -> Result<(), Unsupported> {
        let slot = keys.slot(cx, self.range)?;
        match self.slots {
            Slots::Chained { heads, next } => {
                let heads = array(cx, "heads", heads);
                let head = cx.builder.offset(heads, slot);
                put_first(cx, head, next, place);
            }
            Slots::Buckets(buckets) => buckets.count(cx, slot, place),
            Slots::One { taken, heads, .. } => {
                let was_free = taken.take(cx, slot);
                let heads = array(cx, "heads", heads);
                let number = number_of(cx, place);
                cx.begin_if(was_free);
                let pointer = cx.builder.offset(heads, slot);
                cx.builder.store(pointer, number);
                if let Some(state) = keys.index.not_unique {
                    cx.begin_else();
                    report_not_unique(cx, state);
                }
                cx.end();
            }
        }
        Ok(())
    }

    fn search(&self, cx: &mut Context<'_>, keys: Keys<'_>, cursor: Var) -> Result<(), Unsupported> {
        let slot = keys.slot(cx, self.range)?;
        let (heads, is_open) = match self.slots {
            Slots::Buckets(buckets) => {
                buckets.open(cx, slot, cursor);
                return Ok(());
            }
            Slots::Chained { heads, .. } | Slots::One { heads, is_cleared: true, .. } => (heads, false),
            Slots::One { taken, heads, is_cleared: false } => {
                let is_taken = taken.is_taken(cx, slot);
                cx.begin_if(is_taken);
                (heads, true)
            }
        };
        let heads = array(cx, "heads", heads);
        let head = cx.builder.element(heads, slot);
        cx.builder.assign(cursor, head);
        if is_open {
            cx.end();
        }
        Ok(())
    }

    fn positions(&self, cx: &mut Context<'_>, keys: Keys<'_>, to: Positions) -> Result<(), Unsupported> {
        let slot = keys.slot(cx, self.range)?;
        to.set(cx, keys.index.buckets()?, slot);
        Ok(())
    }
}
