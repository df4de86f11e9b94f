//! Pipelines that are not closed by a sink yet.

use std::sync::Arc;

use super::build_side::may_fail;
use super::computes;
use super::join_parts::PartCut;
use super::properties::RowProperties;
use crate::expr::{Expr, ExprKind, share_kept};
use crate::layout::ColumnInfo;
use crate::lower::columns_of;
use crate::operator::join::{BuildSideFilter, JoinOperator};
use crate::operator::materialize::{Materialize, MaterializedRows};
use crate::operator::project::Project;
use crate::operator::roles::{Sink, Source, Step};
use crate::plan::SortKey;
use crate::program::{Prune, Sorting};
use crate::shape::LaunchShape;
use crate::table::rows::RowStore;
use crate::types::{Field, Range};

/// An open pipeline: its rows flow on.
pub(super) struct Open {
    /// The pipelines before it in its chain.
    pub(super) before: Vec<ChainPart>,
    /// Where it is to be cut, in order.
    pub(super) cuts: Vec<PartCut>,
    pub(super) source: Arc<dyn Source>,
    pub(super) steps: Vec<Arc<dyn Step>>,
    /// An upper bound of its rows.
    pub(super) bound: u64,
    /// The source's rows, at most, where the grid shares them out among its threads and each becomes one row at most.
    pub(super) shared_out: Option<u64>,
    pub(super) prunes: Vec<Prune>,
    /// Counts of build rows without one of which nothing is delivered.
    pub(super) skips: Vec<usize>,
    /// The sort that makes the order of the source.
    pub(super) sorted: Option<Sorting>,
    /// The state that counts the source's rows, one `u64`, where these come in an order that somebody may ask for.
    pub(super) in_order: Option<usize>,
    /// The share of its rows that is thought to have a match in the joins that have no runtime filter.
    pub(super) matched: f64,
    /// What is known of its rows as a whole, for people.
    pub(super) known: Vec<String>,
}

impl Open {
    /// An open pipeline without steps.
    pub(super) fn new(source: impl Source + 'static, bound: u64) -> Open {
        Open::of(Arc::new(source), bound)
    }

    fn of(source: Arc<dyn Source>, bound: u64) -> Open {
        Open {
            before: Vec::new(),
            cuts: Vec::new(),
            source,
            steps: Vec::new(),
            bound,
            shared_out: None,
            prunes: Vec::new(),
            skips: Vec::new(),
            sorted: None,
            in_order: None,
            matched: 1.0,
            known: Vec::new(),
        }
    }

    /// As [`Open::new`], of a source whose rows the grid shares out among its threads.
    pub(super) fn shared_out(source: impl Source + 'static, rows: u64) -> Open {
        Open { shared_out: Some(rows), ..Open::new(source, rows) }
    }

    /// An upper bound of the rows that one thread brings to the sink.
    pub(super) fn thread_bound(&self, shape: &LaunchShape) -> u64 {
        self.shared_out.map_or(self.bound, |rows| shape.rows_of_thread(rows))
    }

    /// Ends it in memory, from where it goes on.
    pub(super) fn materialize(&mut self, rows: Arc<RowStore>) {
        let bound = self.bound;
        let after = MaterializedRows(Arc::clone(&rows));
        let after = match rows.is_dense() {
            true => Open::shared_out(after, bound),
            false => Open::new(after, bound),
        };
        let Open { mut before, source, steps, prunes, skips, shared_out, sorted, .. } =
            std::mem::replace(self, after);
        before.push(ChainPart {
            source,
            steps,
            prunes,
            skips: skips.clone(),
            rows,
            bound,
            shared_out,
            sorted,
        });
        (self.before, self.skips) = (before, skips);
    }

    /// Takes the pipelines before it in its chain out of it, each with its sink.
    pub(super) fn take_parts(&mut self) -> Vec<(Open, Arc<dyn Sink>)> {
        let open = |part: ChainPart| -> (Open, Arc<dyn Sink>) {
            let ChainPart { source, steps, prunes, skips, rows, bound, shared_out, sorted } = part;
            let open = Open { steps, shared_out, prunes, skips, sorted, ..Open::of(source, bound) };
            (open, Arc::new(Materialize(rows)))
        };
        std::mem::take(&mut self.before).into_iter().map(open).collect()
    }

    /// Nothing is delivered where a build side, whose rows are counted by the state `rows`, is empty.
    pub(super) fn skip_if_empty(&mut self, rows: usize) {
        self.before.iter_mut().for_each(|part| part.skips.push(rows));
        self.skips.push(rows);
    }

    /// The column of the scan that an expression is after the steps.
    pub(super) fn scan_column(&self, expr: &Expr) -> Option<usize> {
        let ExprKind::Column(mut column) = expr.kind else { return None };
        if !self.source.is_scan() {
            return None;
        }
        for step in self.steps.iter().rev() {
            column = step.below(column)?;
        }
        Some(column)
    }

    /// The columns of the scan that keys of a join further on are, where each is one and rows may be left out by them. An outer join
    /// between makes rows of NULLs of build rows that then meet nobody: these must not find NULLs.
    pub(super) fn scan_columns(&self, operator: &JoinOperator, keys: &[Expr]) -> Option<Vec<usize>> {
        if operator.finds_nulls() && self.steps.iter().any(|step| step.keeps_unmatched()) {
            return None;
        }
        keys.iter().map(|key| self.scan_column(key)).collect()
    }

    /// Leaves out rows of the scan that a join further on would drop: by the bounds of its keys, and where its build side is
    /// `filtered`, by its bitmap; by a Bloom filter of it in any case, which is there for nothing else. `in_parts`: rows come to the join in parts.
    pub(super) fn filter_early(
        &mut self,
        operator: &Arc<JoinOperator>,
        (filtered, share): (bool, f64),
        in_parts: bool,
    ) {
        let columns = self.scan_columns(operator, operator.filtering_keys());
        let Some(columns) = columns.filter(|columns| !columns.is_empty()) else {
            self.matched *= if filtered { share } else { 1.0 };
            return;
        };
        if let (Some(bounds), [column]) = (operator.index().bounds(), columns.as_slice()) {
            self.prunes.push(Prune { column: *column, bounds });
        }
        let keeps_columns = |step: &Arc<dyn Step>| step.columns(&[]).is_none();
        let is_first = self.steps.iter().all(|step| keeps_columns(step) || step.projection().is_some());
        let has_bloom = operator.index().has_bloom();
        if !(filtered && operator.index().has_filter() || has_bloom) {
            self.matched *= if filtered { share } else { 1.0 };
            return;
        }
        let position = self.steps.iter().position(|step| !keeps_columns(step)).unwrap_or(self.steps.len());
        // A search in a hash table does not look at the Bloom filter.
        let is_next = is_first && !in_parts && !has_bloom;
        let join = Arc::clone(operator);
        self.steps.insert(position, Arc::new(BuildSideFilter { join, columns, share, is_next }));
        let behind = self.cuts.iter_mut().filter(|cut| cut.step >= position);
        behind.for_each(|cut| cut.step += 1);
    }

    /// Whether each of the source's rows becomes one row at most, without a loop.
    pub(super) fn is_single(&self) -> bool {
        !self.steps.iter().any(|step| step.expands())
    }

    /// Whether rows are looked up in the tables of joins.
    pub(super) fn has_probes(&self) -> bool {
        let only_looks_at_columns = |step: &Arc<dyn Step>| {
            step.projection().is_some() || step.condition().is_some() || step.runtime_filter().is_some()
        };
        !self.steps.iter().all(only_looks_at_columns)
    }

    /// Whether all its rows lie in memory, as columns.
    pub(super) fn is_stored_whole(&self) -> bool {
        let passes = |step: &Arc<dyn Step>| step.projection().is_some_and(|exprs| !computes(exprs));
        (self.source.is_scan() || self.source.is_materialized()) && self.steps.iter().all(passes)
    }

    /// The state that counts its rows, where they are all of the source's, in the source's order.
    pub(super) fn ordered_rows(&self) -> Option<usize> {
        let passes = |step: &Arc<dyn Step>| step.projection().is_some();
        self.in_order.filter(|_| self.before.is_empty() && self.steps.iter().all(passes))
    }

    /// Why its rows do not follow each other as those of its source, whose order is known.
    fn lacks_order(&self) -> Option<&'static str> {
        match () {
            () if !self.before.is_empty() => Some("rows go through memory before"),
            () if !self.cuts.is_empty() => Some("rows come in parts"),
            () if self.steps.iter().any(|step| step.expands()) => Some("a row may become several"),
            () if !self.source.is_scan() && self.in_order.is_none() => {
                Some("the source's rows come in any order")
            }
            () => None,
        }
    }

    /// Whether rows of a table come, of which filters alone drop some.
    pub(super) fn is_table(&self) -> bool {
        let stays = |step: &Arc<dyn Step>| step.projection().is_some() || step.condition().is_some();
        self.source.is_scan() && self.steps.iter().all(stays)
    }

    /// Whether every row of a table comes, once: there are as many as its bound says.
    pub(super) fn has_every_row(&self) -> bool {
        let passes = |step: &Arc<dyn Step>| step.projection().is_some();
        self.source.is_scan() && self.prunes.is_empty() && self.steps.iter().all(passes)
    }

    /// The share of the source's rows that is thought to be left by filters and by the filtered build sides of joins.
    pub(super) fn share(&self) -> f64 {
        // Of rows that come from no table it is not known how many were left out before.
        let (mut share, mut columns) =
            (if self.source.is_scan() { 1.0 } else { UNKNOWN }, self.source.columns());
        for step in &self.steps {
            if let Some(condition) = step.condition() {
                share *= share_kept(condition, &|index: usize| columns.get(index).and_then(value_range));
            }
            share *= step.runtime_filter().map_or(1.0, |runtime_filter| runtime_filter.share());
            columns = step.columns(&columns).unwrap_or(columns);
        }
        share
    }

    /// The rows that are thought to come to what is next.
    pub(super) fn expected(&self) -> u64 {
        (self.bound as f64 * (self.share() * self.matched).clamp(0.0, 1.0)) as u64
    }

    /// Whether some of the source's rows may have been dropped.
    pub(super) fn is_filtered(&self) -> bool {
        !self.source.is_scan() || self.steps.iter().any(|step| step.projection().is_none())
    }
}

/// The share of rows that is left where nothing is known.
const UNKNOWN: f64 = 1.0 / 3.0;

/// The bounds of a column's values; of a dictionary's, of its codes.
fn value_range(column: &ColumnInfo) -> Option<Range> {
    let codes = |(_, _, entries): (_, _, u32)| Range { min: 0, max: i128::from(entries.max(1)) - 1 };
    column.range.or(column.dictionary.map(codes))
}

/// A pipeline that ends in memory, for the next one of its chain.
pub(super) struct ChainPart {
    pub(super) source: Arc<dyn Source>,
    pub(super) steps: Vec<Arc<dyn Step>>,
    pub(super) prunes: Vec<Prune>,
    pub(super) skips: Vec<usize>,
    pub(super) rows: Arc<RowStore>,
    pub(super) bound: u64,
    pub(super) shared_out: Option<u64>,
    pub(super) sorted: Option<Sorting>,
}

/// The rows of a plan: those of one or several open pipelines, whose columns agree.
pub(super) struct OpenRows {
    pub(super) branches: Vec<Open>,
    pub(super) columns: Vec<ColumnInfo>,
    /// What holds of them as a whole.
    pub(super) properties: RowProperties,
}

impl OpenRows {
    /// Rows of which nothing is known as a whole.
    pub(super) fn new(branches: Vec<Open>, columns: Vec<ColumnInfo>) -> OpenRows {
        OpenRows { branches, columns, properties: RowProperties::default() }
    }

    /// What is known of those of some keys that do not follow from the others.
    pub(super) fn telling(&self, keys: &[Expr]) -> Vec<ColumnInfo> {
        let infos = columns_of(keys, &self.columns);
        let followers = self.properties.dependences.projected(keys).followers(&infos);
        let telling = infos.into_iter().enumerate().filter(|(key, _)| !followers.contains(key));
        telling.map(|(_, info)| info).collect()
    }

    /// The rows become those of a projection.
    pub(super) fn project(&mut self, exprs: Vec<Expr>) {
        let is_safe = self.properties.is_safe && !exprs.iter().any(|expr| may_fail(expr, &self.columns));
        self.columns = columns_of(&exprs, &self.columns);
        self.properties = RowProperties { is_safe, ..self.properties.projected(&exprs) };
        self.push(Project(exprs));
    }

    /// Why rows do not come in an order, or would not be written in it where their places are counted before.
    pub(super) fn lacks_order(&self, keys: &[SortKey]) -> Option<&'static str> {
        match self.branches.as_slice() {
            _ if !self.properties.are_in_order(keys) => Some("rows are not known to come in this order"),
            [open] => open.lacks_order(),
            _ => Some("several pipelines write rows"),
        }
    }

    /// The state that counts the rows, where they are all of a source that counts them, in its order.
    pub(super) fn counted(&self) -> Option<usize> {
        match self.branches.as_slice() {
            [open] => open.ordered_rows(),
            _ => None,
        }
    }

    /// Whether every row of a table comes, once.
    pub(super) fn has_every_row(&self) -> bool {
        matches!(self.branches.as_slice(), [open] if open.has_every_row())
    }

    /// Notes what is known of the rows, which have such columns: of the source's or of the result's (`whose`).
    pub(super) fn note(&mut self, whose: &str, fields: &[Field]) {
        let known = self.properties.describe(fields);
        if !known.is_empty() {
            self.branches.iter_mut().for_each(|open| open.known.push(format!("{whose}: {known}")));
        }
    }

    pub(super) fn bound(&self) -> u64 {
        self.branches.iter().fold(0, |sum, open| sum.saturating_add(open.bound))
    }

    /// The rows that are thought to come.
    pub(super) fn expected(&self) -> u64 {
        self.branches.iter().fold(0, |sum, open| sum.saturating_add(open.expected()))
    }

    /// Whether some of the rows may have been dropped, and the share that is thought to be left.
    pub(super) fn narrowed(&self) -> (bool, f64) {
        let share = self.branches.iter().map(Open::share).fold(0.0, f64::max);
        (self.branches.iter().any(Open::is_filtered), share)
    }

    pub(super) fn push(&mut self, step: impl Step + 'static) {
        let step: Arc<dyn Step> = Arc::new(step);
        self.branches.iter_mut().for_each(|open| open.steps.push(Arc::clone(&step)));
    }
}
