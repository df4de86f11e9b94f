//! Keys that follow from others: rows that agree in the others agree in them too, so that they tell no groups apart. (A customer's name,
//! where groups are by the customer's number too.) They are neither hashed nor compared, and mostly not even loaded: whoever puts a
//! group into the table stores them beside it, for the result. What is left may be one word.
//!
//! Only a hash table knows who puts a group in. Which keys follow is found where the plan is cut (`pipeline/cut/dependence`).

use kelpie_kir::builder::V;

use super::input::Input;
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::lower::{lasting, lower};
use crate::program::States;
use crate::table::packed::pack;
use crate::table::stored::{RecordLayout, StoredColumn};
use crate::variant::axes::DependentKeys;

/// The keys of an aggregation over rows of one kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowKeys {
    /// Those that tell groups apart.
    pub telling: Vec<Expr>,
    /// Those that follow from them, and are stored with their group.
    pub dependent: Vec<Expr>,
}

/// The keys of a grouping by what becomes of them.
#[derive(Debug, Default)]
pub(crate) struct KeySplit {
    pub keys: RowKeys,
    /// What is known of those that tell groups apart.
    pub columns: Vec<ColumnInfo>,
    /// What is known of the others, each with its place among all keys.
    pub dependent: Vec<(usize, ColumnInfo)>,
}

impl KeySplit {
    /// Chooses what becomes of keys that follow from others.
    pub fn choose(keys: &[Expr], columns: &[ColumnInfo], input: &Input<'_>) -> Result<KeySplit, Unsupported> {
        let followers = &input.followers;
        let chosen = match keys {
            [] | [_] => DependentKeys::Compared,
            _ => {
                let all_follow = format!("{} of {} keys follow from the others", followers.len(), keys.len());
                let rule = match () {
                    () if followers.is_empty() => {
                        (DependentKeys::Compared, "no key is known to follow from the others")
                    }
                    () if are_stored_beside(keys.len() - followers.len(), columns) => {
                        (DependentKeys::Carried, all_follow.as_str())
                    }
                    () => (DependentKeys::Compared, "all keys are told apart by one word"),
                };
                input.site.choose(rule, |value| match value {
                    DependentKeys::Carried if followers.is_empty() => {
                        Err("no key is known to follow from the others".into())
                    }
                    DependentKeys::Carried | DependentKeys::Compared => Ok(()),
                })?
            }
        };
        let mut split = KeySplit::default();
        for (place, (key, column)) in keys.iter().zip(columns).enumerate() {
            if chosen == DependentKeys::Carried && followers.contains(&place) {
                split.keys.dependent.push(key.clone());
                split.dependent.push((place, column.clone()));
            } else {
                split.keys.telling.push(key.clone());
                split.columns.push(column.clone());
            }
        }
        Ok(split)
    }
}

/// What is known of the keys of a grouping before it is planned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownKeys<'k> {
    /// Those that follow from no others.
    pub keys: &'k [ColumnInfo],
    /// About how many combinations of their values there are, where these are many and far from each other.
    pub multi_column_distinct: Option<u64>,
    /// Others are stored with their group.
    pub has_dependent: bool,
}

/// Whether keys are stored beside the others by rule, where so many of `all` follow from no others.
pub(crate) fn are_stored_beside(telling: usize, all: &[ColumnInfo]) -> bool {
    telling < all.len() && pack(all).is_none()
}

/// Keys that are stored beside the slots of a table by whoever puts a group in, in a record a slot. Nobody looks at them before the
/// launch is over.
#[derive(Debug, Clone, Default)]
pub(crate) struct DependentColumns {
    /// Each with its place among all keys, in order.
    columns: Vec<(usize, StoredColumn)>,
}

impl DependentColumns {
    /// Declares their states, of as many values as a class has.
    pub fn plan(
        keys: &[(usize, ColumnInfo)],
        class: usize,
        states: &mut States,
    ) -> Result<DependentColumns, Unsupported> {
        let mut layout = RecordLayout::default();
        let columns = keys.iter().map(|(_, column)| StoredColumn::plan_record(column, true, &mut layout));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        if columns.is_empty() {
            return Ok(DependentColumns::default());
        }
        let words = layout.stride(0).max(1);
        let state = states.state("carried", 8 * words, class);
        let columns = columns.into_iter().map(|column| column.in_records(state, words));
        Ok(DependentColumns { columns: keys.iter().map(|(place, _)| *place).zip(columns).collect() })
    }

    pub fn len(&self) -> usize {
        self.columns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Stores the current row's, which are computed here, with the new group in a slot (`i64`).
    pub fn store(&self, cx: &mut Context<'_>, keys: &[Expr], slot: V) -> Result<(), Unsupported> {
        if keys.len() != self.columns.len() {
            return Err(Unsupported::internal("a group without the keys that follow from its others"));
        }
        let was_open = cx.open_scratch(false);
        for ((_, column), key) in self.columns.iter().zip(keys) {
            let value = lower(cx, key)?;
            let value = lasting(cx, &value, was_open);
            column.store_own(cx, &value, slot)?;
        }
        cx.open_scratch(was_open);
        Ok(())
    }

    /// Puts those of the group in a slot (`i64`) at their places among its `keys`. `load` loads one of them.
    pub fn join(
        &self,
        mut keys: Vec<Lowered>,
        load: &mut dyn FnMut(&StoredColumn) -> Lowered,
    ) -> Vec<Lowered> {
        for (place, column) in &self.columns {
            let value = load(column);
            keys.insert((*place).min(keys.len()), value);
        }
        keys
    }
}
