//! The ways to find the groups of rows by their keys: the one place that names all of them. A new one is a file with its
//! [`Strategy`], a value of the axis `group_table`, and a line in [`of_keys`].

use std::borrow::Cow;

use super::domain::{Coming, DenseKeys, SLOT_LIMIT};
use super::functions::Cells;
use super::groups::GroupTable;
use super::hashed::HashedKeys;
use super::{Input, declare};
use crate::choices::Choices;
use crate::context::Unsupported;
use crate::layout::ColumnInfo;
use crate::shape::LaunchShape;
use crate::variant::axes::GroupForm;
use crate::variant::estimate;

/// Slots of a direct-addressed table of computed keys, at most, on a device whose threads share it. Where the keys are columns it is
/// known how many groups there are, else near copies may be tried in vain: up to twice the time of a hash table
/// (docs/experiments.md, "What holds of the paper").
const COMPUTED_SLOTS: u64 = (1 << 15) + 1;
/// Rows of a slot of a direct-addressed table from which on it may be mostly empty.
const DENSE_ROWS_A_SLOT: u64 = 8;

/// Slots of a direct-addressed table of about so many groups of so many rows, at most, where these are added up part by part: the more
/// slots are empty, the more parts it takes. Of few slots a row it does not matter how many groups there are, which is hard to tell
/// where some have most of the rows.
pub(super) fn dense_slots(groups: u64, rows: u64) -> u64 {
    groups.saturating_mul(4).max(rows / DENSE_ROWS_A_SLOT)
}

/// A way to find groups, before it is chosen.
pub(super) trait Strategy {
    /// Its value of the axis.
    fn form(&self) -> GroupForm;

    /// What it presupposes and these keys lack.
    fn lacks(&self) -> Option<String>;

    /// Why the rule takes it, where it does for so many rows at most. Asked only where nothing is lacking.
    fn suits(&self, row_bound: u64) -> Option<Cow<'static, str>>;

    /// Slots of its table, where they are known before: for people.
    fn slots(&self) -> Option<u64> {
        None
    }

    /// Plans the table and declares its state.
    fn plan(
        self: Box<Self>,
        cells: &mut Cells,
        input: &Input<'_>,
        on: (&LaunchShape, &Choices<'_>),
        states: &mut declare::States,
    ) -> Result<Box<dyn GroupTable>, Unsupported>;
}

/// The table of an aggregation with keys. The rule takes the first way that suits; the last one suits always. `carried`: keys that are
/// stored with their group, with their places among all; `are_columns`: no other key is computed.
pub(super) fn of_keys(
    (keys, carried, are_columns): (&[ColumnInfo], &[(usize, ColumnInfo)], bool),
    cells: &mut Cells,
    input: &Input<'_>,
    on: (&LaunchShape, &Choices<'_>),
    states: &mut declare::States,
) -> Result<Box<dyn GroupTable>, Unsupported> {
    // The cell that counts rows is added where it is not there yet.
    let bytes = u64::from(cells.words() + 1) * 8;
    let limit = on.1.direct_bytes.map_or(u64::MAX, |limit| limit / bytes);
    let slots = on.1.calibration.group_slots(bytes, SLOT_LIMIT);
    let suiting = match input.groups {
        Some(groups) => dense_slots(groups, input.row_bound),
        None if are_columns || input.is_serial => u64::MAX,
        None => COMPUTED_SLOTS,
    };
    let mut ways: Vec<Box<dyn Strategy>> = vec![
        Box::new(DenseKeys::of(keys, (limit, slots), suiting, Coming::of(input, bytes))),
        Box::new(HashedKeys::of(keys, carried)),
    ];
    let lacks = |way: &dyn Strategy| match way.form() {
        GroupForm::Direct if !carried.is_empty() => {
            Some("keys that follow from others are stored by who puts a group in".to_string())
        }
        _ => way.lacks(),
    };
    let lacks: Vec<(GroupForm, Option<String>)> =
        ways.iter().map(|way| (way.form(), lacks(&**way))).collect();
    let suits = |form: GroupForm| lacks.iter().any(|(known, lacks)| *known == form && lacks.is_none());
    let mut suiting = ways.iter().filter(|way| suits(way.form()));
    let rule = suiting.find_map(|way| way.suits(input.row_bound).map(|reason| (way.form(), reason)));
    let (form, reason) = rule.ok_or_else(|| Unsupported::internal("no way to find groups suits"))?;
    let of_slots = |slots: u64| format!(", direct {}", estimate::table(slots, slots.saturating_mul(bytes)));
    let of_slots = ways.iter().find_map(|way| way.slots()).map_or(String::new(), of_slots);
    let groups = input.groups.or_else(|| input.keys_foreseen(keys));
    let text = format!("{}{of_slots}", estimate::rows_to_groups(input.rows_told(), groups));
    let rule = ((form, &*reason), Some(text));
    let chosen = input.site.choose_by(rule, |value| match lacks.iter().find(|(form, _)| *form == value) {
        Some((_, None)) => Ok(()),
        Some((_, Some(lacks))) => Err(lacks.clone()),
        None => Err("no table does it".into()),
    })?;
    let position = ways.iter().position(|way| way.form() == chosen);
    let way = position.map(|position| ways.swap_remove(position));
    way.ok_or_else(|| Unsupported::internal("a choice that is not there"))?.plan(cells, input, on, states)
}
