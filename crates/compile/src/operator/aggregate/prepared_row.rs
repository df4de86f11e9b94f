//! Rows that are prepared for their groups: what is read of them, before anything is added.

use kelpie_kir::builder::V;

use super::adder::Adder;
use super::functions::keep_better;
use super::keys::{GroupRow, KeyCount, KeyWord, insert_values};
use super::operator::AggregateOperator;
use super::ordered::Round;
use super::tables::{GroupEmitter, Located};
use crate::context::{Context, Unsupported};
use crate::lower::lower;
use crate::table::shared_keys::Found;

/// A row that was prepared: the slot of its group where there are several, and its contribution to each cell (the cell's
/// parts).
pub(crate) struct PreparedRow {
    slot: Option<V>,
    /// Whether the row is live (`bool`), where it has a slot all the same.
    active: Option<V>,
    values: Vec<Vec<V>>,
}

/// The words of a row's keys, where they are known: of its group, and of its values in the sets. Or its group.
#[derive(Default)]
pub(super) struct Words {
    pub group: Option<KeyWord>,
    pub sets: Vec<KeyWord>,
    pub found: Option<Found>,
}

/// Everything that only reads, but for sets of distinct values.
pub(crate) fn prepare(
    cx: &mut Context<'_>,
    plan: &AggregateOperator,
    counts: &[KeyCount],
    located: Located,
    words: &Words,
) -> Result<PreparedRow, Unsupported> {
    let Located { slot, active, keys } = located;
    let is_new = match plan.sets.is_empty() {
        true => Vec::new(),
        false => {
            let keys = match keys {
                Some(keys) => keys,
                None => plan.group_keys.telling.iter().map(|key| lower(cx, key)).collect::<Result<_, _>>()?,
            };
            insert_values(cx, &plan.sets, counts, &GroupRow { keys: &keys, active }, &words.sets)?
        }
    };
    let values = plan.cells.contributions(cx, active, &is_new)?;
    // What the only group is given is added up in registers.
    Ok(PreparedRow { slot, active: active.filter(|_| slot.is_some()), values })
}

/// Adds a row to its group: now, or once its branches are closed.
pub(crate) fn add(
    cx: &mut Context<'_>,
    plan: &AggregateOperator,
    (groups, round): (&Adder<'_>, Option<&Round>),
    row: &PreparedRow,
) -> Result<(), Unsupported> {
    let values = kept(cx, plan, &*groups.groups, row)?;
    // A dead row contributes nothing, and issues no atomics.
    if let Some(active) = row.active {
        cx.begin_if(active);
    }
    match (round, row.slot) {
        (Some(round), Some(slot)) => {
            round.note(cx, &plan.cells, (slot, &values), |cx, slot, values| {
                groups.add(cx, Some(slot), values);
            });
        }
        (_, slot) => groups.add(cx, slot, &values),
    }
    if row.active.is_some() {
        cx.end();
    }
    Ok(())
}

/// A row's contributions without texts that its group does not take; the others are copied, where they are in scratch
/// memory.
fn kept(
    cx: &mut Context<'_>,
    plan: &AggregateOperator,
    groups: &dyn GroupEmitter,
    row: &PreparedRow,
) -> Result<Vec<Vec<V>>, Unsupported> {
    let mut kept = row.values.clone();
    if !cx.uses_scratch() {
        return Ok(kept);
    }
    for (index, (cell, value)) in plan.cells.cells.iter().zip(&mut kept).enumerate() {
        let &[new] = value.as_slice() else { continue };
        if !cell.takes_texts() {
            continue;
        }
        let old = groups.current(cx, row.slot, index);
        let old = old.ok_or_else(|| Unsupported::internal("a text cell that cannot be looked at"))?;
        *value = vec![keep_better(cx, cell.op, old, new)?];
    }
    Ok(kept)
}
