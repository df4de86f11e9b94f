//! Forms of a step beside the one that consumes rows one by one: look-ups of batches, tests of many rows, and ranges whose rows other lanes
//! make.

use std::collections::BTreeSet;

use kelpie_kir::builder::V;

use super::roles::Next;
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;
use crate::table::key_rows::Positions;
use crate::table::probing::Begun;
use crate::table::shared_keys::Found;

/// The search for a row of a batch, when it has begun.
pub(crate) struct BegunSearch {
    pub begun: Begun,
    /// What was seen (`u32`), which is to be used so that no compiler leaves it out.
    pub seen: V,
    pub keys: Vec<Lowered>,
}

/// The look-ups of a batch of rows that a CPU's worker has in its memory, each of which does a part of it for all of them in a short loop.
pub(crate) trait BatchLookUps {
    /// Why it has none.
    fn why_not(&self) -> Option<&'static str>;

    /// Bytes, about, of a table whose look-ups in batches pay where it is larger than a cache; 0 where they do not, or it is unknown.
    fn far_bytes(&self) -> u64;

    /// Whether a search has a part of its own that begins it: it looks at a slot to know where the keys are that it compares.
    fn has_begun_searches(&self) -> bool;

    /// The keys, over the columns before the step.
    fn keys(&self) -> &[Expr];

    /// Begins the search for the current row.
    fn begin(&self, cx: &mut Context<'_>) -> Result<BegunSearch, Unsupported>;

    /// What the search for the current row finds, of which some keys may be known by their numbers: its cursor (`u32`), 0 where there is
    /// nothing.
    fn find(
        &self,
        cx: &mut Context<'_>,
        begun: Option<(Begun, Vec<(usize, Lowered)>)>,
    ) -> Result<V, Unsupported>;

    /// Looks at those of the `columns` behind the step that lie where the first match is: what was seen (`u64` each).
    fn look_at(&self, cx: &mut Context<'_>, number: V, columns: &BTreeSet<usize>) -> Vec<V>;

    /// As [`consume`](super::roles::Step::consume), of the current row, for which something was found.
    fn go_on_with(&self, cx: &mut Context<'_>, number: V, next: &mut Next<'_>) -> Result<(), Unsupported>;
}

/// A step that drops rows of the scan by a test that costs little, and can be made for any row.
pub(crate) trait RuntimeFilter {
    /// Whether the current row may go on, without a branch: 1, else 0 (`i64`).
    fn passes(&self, cx: &mut Context<'_>) -> Result<V, Unsupported>;

    /// Which of the rows that the current one stands for may go on, of those that are `active` (`bool` each), without a branch. What is
    /// looked at for others costs next to nothing. Only while nothing changes that by which rows are tested.
    fn pass_of(&self, cx: &mut Context<'_>, active: &[V]) -> Result<Vec<V>, Unsupported>;

    /// The share of rows that is thought to pass.
    fn share(&self) -> f64;
}

/// A step that makes a row for each number of a range, all of which are known before: other lanes can make them.
pub(crate) trait Expansion {
    /// Sets the range of the current row, in `u32`. It is empty before.
    fn range(&self, cx: &mut Context<'_>, range: Positions) -> Result<(), Unsupported>;

    /// The same where the row's keys have been looked for ([`key_search`](super::roles::Step::key_search)).
    fn range_of(&self, _cx: &mut Context<'_>, _: Found, _range: Positions) -> Result<(), Unsupported> {
        Err(Unsupported::internal("keys of an expansion that has none"))
    }

    /// Numbers of a range, at most.
    fn most(&self) -> u64;

    /// Whether the ranges of all rows are the same.
    fn is_even(&self) -> bool {
        false
    }

    /// The columns before the step that the rows of a range need, where `behind` are read of them.
    fn needed(&self, behind: &BTreeSet<usize>) -> BTreeSet<usize>;

    /// Makes the row with a number (`u32`) of the current row's range the current one, and lets it go on if it does.
    fn item(&self, cx: &mut Context<'_>, number: V, next: &mut Next<'_>) -> Result<(), Unsupported>;

    /// Whether all that counts of the new rows is if one goes on: then the row itself goes on, by [`Expansion::decided`].
    fn only_decides(&self) -> bool {
        false
    }

    /// The columns before the step that the row itself needs, where it goes on and `behind` are read of it.
    fn kept(&self, _behind: &BTreeSet<usize>) -> BTreeSet<usize> {
        BTreeSet::new()
    }

    /// Whether the columns that the rows of a range need are loaded before other lanes take them.
    fn loads_before(&self) -> bool {
        false
    }

    /// Lets the row itself go on, or not, where it is known if one of the new rows of its range does (`bool`).
    fn decided(
        &self,
        _cx: &mut Context<'_>,
        (_range, _found): (Positions, V),
        _next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        Err(Unsupported::internal("new rows go on, and not the row itself"))
    }
}
