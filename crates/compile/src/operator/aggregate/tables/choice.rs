//! The ways to find the groups of rows by their keys: the one place that names all of them.

use super::dense_rule::{DenseKeys, DenseLimits};
use super::direct::DirectTable;
use super::group_table::GroupTable;
use super::hashed::HashGroups;
use super::single::SingleGroup;
use crate::context::Unsupported;
use crate::operator::aggregate::functions::Cells;
use crate::operator::aggregate::keys::{Input, KeyFacts, KeySplit};
use crate::program::States;
use crate::variant::axes::GroupForm;
use crate::variant::estimate;

/// The table of an aggregation, whose states are declared. The rule takes a direct-addressed table wherever that suits.
pub(crate) fn choose(
    split: &KeySplit,
    keys: &KeyFacts,
    cells: &mut Cells,
    input: &Input<'_>,
    states: &mut States,
) -> Result<Box<dyn GroupTable>, Unsupported> {
    if keys.count == 0 {
        return Ok(Box::new(SingleGroup::plan(cells, input, states)?));
    }
    // The cell that counts rows is added where it is not there yet.
    let slot_bytes = u64::from(cells.words() + 1) * 8;
    let dense = DenseKeys::of(&split.columns, &DenseLimits::of(keys, slot_bytes, input));
    let why_not_direct = match split.dependent.is_empty() {
        true => dense.why_not(),
        false => Some("keys that follow from others are stored by who puts a group in".to_string()),
    };
    let why_direct = if why_not_direct.is_none() { dense.why(input.row_bound) } else { None };
    let rule = match &why_direct {
        Some(why) => (GroupForm::Direct, why.as_ref()),
        None => (GroupForm::Hash, "keys have no small dense domain"),
    };
    let of_slots =
        |slots: u64| format!(", direct {}", estimate::table(slots, slots.saturating_mul(slot_bytes)));
    let groups = input.groups.or_else(|| input.keys_foreseen(&split.columns));
    let rows = estimate::rows_to_groups(input.rows_told(), groups);
    let text = format!("{rows}{}", dense.slots().map_or(String::new(), of_slots));
    let chosen = input.site.choose_by((rule, Some(text)), |form| match form {
        GroupForm::Direct => why_not_direct.clone().map_or(Ok(()), Err),
        GroupForm::Hash => Ok(()),
    })?;
    Ok(match chosen {
        GroupForm::Direct => {
            let present = cells.row_count();
            Box::new(DirectTable::plan(dense.into_keys()?, present, cells, input, states)?)
        }
        GroupForm::Hash => Box::new(HashGroups::plan(split, cells, input, states)?),
    })
}
