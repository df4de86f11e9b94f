//! Join methods: how the rows of the probe side find those of the build side. A method is one file in `methods`, a line in [`choose`],
//! and a value of the axis `join` where it may be forced (`docs/adding-a-join-method.md`).
//!
//! A [`JoinMethod`] is asked before anything is declared whether it fits and why the rule takes it; what it plans is an [`AccessPath`],
//! which names the pipelines that build it and emits what puts a row in and what finds a key's rows.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::{V, Var};

use super::JoinOperator;
use super::build::{IndexRows, StoreBuildSide};
use super::facts::JoinFacts;
use super::fill_buckets::FillBuckets;
use super::index::Index;
use super::methods::{Direct, Hash, HashIndex, NestedLoop, Placed, Ranked, Sorted, SortedOrder};
use crate::MicroModel;
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;
use crate::operator::roles::Sink;
use crate::plan::Join;
use crate::program::States;
use crate::table::bitmap::Bitmap;
use crate::table::key_range::KeyRange;
use crate::table::key_rows::{KeyRows, Positions};
use crate::table::rows::RowStore;
use crate::variant::axes::{JoinForm, RowPlaces};
use crate::variant::{all_but, estimate};

/// Bytes of a row's number.
pub(super) const NUMBER_BYTES: u64 = 4;

/// A way to join, before it is chosen.
pub(super) trait JoinMethod {
    /// Why it can not join these sides, where that is so.
    fn why_not(&self, facts: &JoinFacts<'_>) -> Option<String>;

    /// Why the rule takes it, where it does. Asked only where it can.
    fn why(&self, facts: &JoinFacts<'_>) -> Option<Cow<'static, str>>;

    /// Declares the states of the build side's store and of what finds rows in it.
    fn plan(&self, facts: &JoinFacts<'_>, states: &mut States) -> Result<BuildSide, Unsupported>;
}

/// What a method has planned.
pub(super) struct BuildSide {
    pub store: RowStore,
    pub path: Box<dyn AccessPath>,
    pub rows: KeyRows,
}

/// Keys that are put in or looked up.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub index: &'a Index,
    pub values: &'a [Lowered],
}

impl<'a> Keys<'a> {
    /// The slot (`i64`) of the only key, which is within the range.
    pub fn slot(self, cx: &mut Context<'_>, range: KeyRange) -> Result<V, Unsupported> {
        let key = self.values.first().ok_or_else(|| Unsupported::internal("a slot without a key"))?;
        range.slot(cx, key)
    }

    /// Them, and of each whether some side's values go beyond 64 bits.
    pub fn pair(self) -> (&'a [Lowered], &'a [bool]) {
        (self.values, &self.index.wide)
    }
}

/// An only key whose values are slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct DenseKey {
    /// Keys beyond it find nothing.
    pub range: KeyRange,
    /// Which slots have rows, where a bitmap says so.
    pub taken: Option<Bitmap>,
}

/// What a method makes of the build side: how the rows of a key are reached.
pub(super) trait AccessPath: fmt::Debug + Send + Sync {
    /// What it is called; `rows` says how the rows of a key hang together.
    fn name(&self, rows: &str) -> String;

    /// The sinks of the pipelines that build it, in order. The first takes the build side's rows, each other one those of the store. From
    /// the second on they are one group: all of them run again where a state was too small.
    fn passes(&self, join: &Arc<JoinOperator>) -> Vec<Arc<dyn Sink>> {
        stored_and_indexed(join)
    }

    /// The key, where its values are slots.
    fn dense(&self) -> Option<DenseKey> {
        None
    }

    /// The hash table, where there is one.
    fn hash(&self) -> Option<&HashIndex> {
        None
    }

    /// The same, to be changed.
    fn hash_mut(&mut self) -> Option<&mut HashIndex> {
        None
    }

    /// The order of the rows, where searches are in one.
    fn sorted(&self) -> Option<&SortedOrder> {
        None
    }

    /// What of a join's condition is left to be checked of the rows that a search gives.
    fn left_to_check(&self, join: &Join) -> Option<Expr> {
        join.residual.clone()
    }

    /// What a search looks at beside the keys: expressions over the probe side's columns.
    fn values_read(&self) -> Vec<&Expr> {
        Vec::new()
    }

    /// States to clear before rows are put in, but for those of buckets.
    fn zeroed(&self) -> Vec<usize> {
        self.dense().and_then(|key| key.taken).map(|taken| taken.0).into_iter().collect()
    }

    /// The classes that take their size from the rows that there are.
    fn sized(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Puts in the row at `place` (`i64`), whose keys a search may be for, or counts it into its bucket.
    fn insert(&self, _cx: &mut Context<'_>, _keys: Keys<'_>, _place: V) -> Result<(), Unsupported> {
        Err(Unsupported::internal("rows that are put into no index"))
    }

    /// Sets the cursor, which is 0, to the first row with the keys, which may be there.
    fn search(&self, cx: &mut Context<'_>, keys: Keys<'_>, cursor: Var) -> Result<(), Unsupported>;

    /// Sets positions, which are of none, to those of the rows with the keys, which may be there.
    fn positions(&self, _cx: &mut Context<'_>, _: Keys<'_>, _to: Positions) -> Result<(), Unsupported> {
        Err(Unsupported::internal("positions of rows that stand in no bucket"))
    }

    /// Bytes, about, that searches look at where so many rows are put in, each with so many bytes of keys: at least.
    fn bytes_searched(&self, _rows: u64, _key_bytes: u64) -> u64 {
        self.dense().map_or(0, |key| key.range.slots().saturating_mul(NUMBER_BYTES))
    }
}

/// The passes of an index over a store.
pub(super) fn stored_and_indexed(join: &Arc<JoinOperator>) -> Vec<Arc<dyn Sink>> {
    let mut sinks: Vec<Arc<dyn Sink>> =
        vec![Arc::new(StoreBuildSide(Arc::clone(join))), Arc::new(IndexRows(Arc::clone(join)))];
    sinks.extend(FillBuckets::of(join));
    sinks
}

/// Chooses the method of a join. Where keys are slots, it is a second question whether the rows lie there.
pub(super) fn choose(facts: &JoinFacts<'_>) -> Result<Box<dyn JoinMethod>, Unsupported> {
    let form = choose_form(facts)?;
    let placed = Placed { form: (!facts.keys.is_empty()).then_some(form) };
    let why_not = placed.why_not(facts);
    let why = placed.why(facts);
    let rule = match (&why_not, &why) {
        (Some(why_not), _) => (RowPlaces::Packed, why_not.as_str()),
        (None, Some(why)) => (RowPlaces::Slot, &**why),
        (None, None) if facts.input.choices.micro_model != MicroModel::Resolution => {
            (RowPlaces::Packed, "the micro model stores rows, then indexes them")
        }
        (None, None) => (RowPlaces::Packed, "rows with several columns would lie far apart"),
    };
    let places = facts.input.site.choose(rule, all_but(RowPlaces::Slot, &why_not))?;
    Ok(match places {
        RowPlaces::Slot => Box::new(placed),
        RowPlaces::Packed => of_form(form),
    })
}

fn of_form(form: JoinForm) -> Box<dyn JoinMethod> {
    match form {
        JoinForm::Direct => Box::new(Direct),
        JoinForm::Hash => Box::new(Hash),
        JoinForm::Rank => Box::new(Ranked),
        JoinForm::Sorted => Box::new(Sorted),
        JoinForm::Loop => Box::new(NestedLoop),
    }
}

/// How keys are found. The rule takes the first method that gives a reason; the last one always does.
fn choose_form(facts: &JoinFacts<'_>) -> Result<JoinForm, Unsupported> {
    let forms = [JoinForm::Sorted, JoinForm::Rank, JoinForm::Direct, JoinForm::Loop, JoinForm::Hash];
    let why_not = |form| of_form(form).why_not(facts);
    let why = |form| of_form(form).why(facts).map(|reason| (form, reason));
    let rule = forms.into_iter().filter(|form| why_not(*form).is_none()).find_map(why);
    let (form, reason) = rule.ok_or_else(|| Unsupported::internal("no method joins these sides"))?;
    let bound = facts.input.build.rows.bound;
    let (kind, slots) = match (&facts.slots, why_not(JoinForm::Direct)) {
        (Ok(range), None) => ("direct", range.slots()),
        _ => ("hash", bound.saturating_mul(2).checked_next_power_of_two().unwrap_or(u64::MAX)),
    };
    let table = estimate::table(slots, slots.saturating_mul(NUMBER_BYTES));
    let rule = ((form, &*reason), Some(format!("at most {bound} rows, {kind} {table}")));
    facts.input.site.choose_by(rule, |form| why_not(form).map_or(Ok(()), Err))
}
