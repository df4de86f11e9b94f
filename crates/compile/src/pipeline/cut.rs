//! Cuts a plan into pipelines at its pipeline breakers.

mod bounded_sort;
mod build_side;
mod coded_keys;
mod delivery;
mod dependence;
mod distinct;
mod eager_groups;
mod first_ranks;
mod group_site;
mod groups;
mod join;
mod join_parts;
mod key_extremes;
mod key_filter;
mod open;
mod properties;
mod ranked;
mod sets;
mod sorted_groups;
mod strides;
mod uses;
mod values;
mod window;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::bounded_sort::looks_at_batches;
use self::build_side::may_fail;
use self::eager_groups::with_groups_below;
use self::first_ranks::RankLimit;
use self::group_site::{GroupSite, group_operators};
use self::join_parts::Downstream;
use self::open::{Open, OpenRows};
use self::properties::RowProperties;
use self::uses::Uses;
use super::columns;
use super::{BlockRows, HOST_SORT_ROWS, Pipeline, Work};
use crate::MicroModel;
use crate::choices::Choices;
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind};
use crate::layout::{ColumnInfo, Direction};
use crate::operator::filter::Filter;
use crate::operator::output::OutputOperator;
use crate::operator::roles::Sink;
use crate::operator::scan::ScanSource;
use crate::operator::sort::{SortOperator, SortRows, SortSize, SortedRows};
use crate::plan::{Plan, SortKey};
use crate::program::{Growth, OutputLayout, Purpose, ScanInfo, SortForm, States};
use crate::shape::LaunchShape;
use crate::table::rows::{Layout, RowStore};
use crate::variant::axes::{CountPlaces, SortPlace};
use crate::variant::{Chooser, Site};

/// A cut plan.
pub(crate) struct Pipelines {
    pub states: States,
    /// In the order in which they run.
    pub pipelines: Vec<Pipeline>,
    pub output: OutputLayout,
    /// The rows of the result come in the order that the plan asks for without being sorted.
    pub is_in_order: bool,
}

/// Cuts a plan.
pub(crate) fn pipelines(
    plan: &Plan,
    scans: &[ScanInfo],
    shape: &LaunchShape,
    (choices, chooser): (&Choices<'_>, &Chooser<'_>),
) -> Result<Pipelines, Unsupported> {
    let &Choices { duplicates, micro_model, .. } = choices;
    let plan = &*with_groups_below(plan, scans, (chooser, micro_model))?;
    let mut cut = Cut {
        scans,
        shape,
        choices,
        chooser,
        duplicates,
        states: States::default(),
        done: Vec::new(),
        next_scan: 0,
        next_join: 0,
        next_groups: 0,
        groups: GroupSite::default(),
        next_group: 0,
        counts: None,
        downstream: Downstream::default(),
        uses: Uses::of_joins(plan),
        rank_limit: None,
    };
    if cut.count_places()? == CountPlaces::On {
        cut.counts = Some(cut.counts_of_rows());
    }
    let mut is_in_order = false;
    let mut output = match plan {
        Plan::Sort { input, keys, fetch } => {
            let rows = cut.open(input)?;
            match cut.sort_place((keys, *fetch), &rows)? {
                SortPlace::Input => {
                    is_in_order = true;
                    cut.output_in_order(plan, *fetch, rows)?
                }
                SortPlace::Device => cut.sort(plan, (keys, *fetch), rows)?,
                SortPlace::Host => cut.output(plan, None, rows)?,
            }
        }
        Plan::Limit { input, skip, fetch } => {
            let rows = cut.open(input)?;
            let limit = fetch.map(|fetch| fetch.saturating_add(*skip) as u64);
            cut.output(plan, limit, rows)?
        }
        _ => {
            let rows = cut.open(plan)?;
            cut.output(plan, None, rows)?
        }
    };
    if let Plan::Sort { keys, .. } = plan {
        note_order(&mut output, keys);
    }
    Ok(Pipelines { states: cut.states, pipelines: cut.done, output, is_in_order })
}

/// Notes that the rows of a result come in an order.
fn note_order(output: &mut OutputLayout, keys: &[SortKey]) {
    if let Some(SortKey { expr, descending, .. }) = keys.first()
        && let ExprKind::Column(first) = expr.kind
        && let Some(column) = output.columns.get_mut(first)
    {
        column.order = Some(if *descending { Direction::Descending } else { Direction::Ascending });
    }
}

struct Cut<'a> {
    scans: &'a [ScanInfo],
    shape: &'a LaunchShape,
    choices: &'a Choices<'a>,
    chooser: &'a Chooser<'a>,
    duplicates: &'a BTreeSet<usize>,
    states: States,
    /// Finished pipelines.
    done: Vec<Pipeline>,
    next_scan: usize,
    next_join: usize,
    /// Operators that make groups and are carried out.
    next_groups: usize,
    /// The aggregation that is planned.
    groups: GroupSite,
    next_group: usize,
    /// The state that takes the counts of dense writes, where they are counted.
    counts: Option<usize>,
    /// What the rows that are opened come to in the same pipeline.
    downstream: Downstream,
    /// What the rows of the probe side of each join come to, by the plan.
    uses: Vec<Uses>,
    /// What the filter above keeps of the window that is opened next.
    rank_limit: Option<RankLimit>,
}

impl<'a> Cut<'a> {
    /// How much a sort of these rows stores.
    fn sort_size(&self, rows: &OpenRows) -> SortSize<'a> {
        SortSize { rows: rows.bound(), branches: rows.branches.len(), shape: Some(self.shape) }
    }
}

impl Cut<'_> {
    /// Ends the plan's rows in the result, of `limit` rows at most.
    fn output(
        &mut self,
        plan: &Plan,
        limit: Option<u64>,
        mut rows: OpenRows,
    ) -> Result<OutputLayout, Unsupported> {
        let (fields, bound) = (plan.fields(), rows.bound());
        rows.note("result", &fields);
        let infos = self.of_result(rows.columns.clone());
        let states = self.states.of(Purpose::Output);
        let output = match limit {
            None => OutputOperator::plan(&fields, &infos, (bound, self.shape), states)?,
            Some(limit) => OutputOperator::plan_limited(&fields, &infos, bound, limit, states)?,
        };
        let layout = output.layout();
        self.close(rows.branches, Arc::new(output));
        Ok(layout)
    }

    /// Ends the plan's rows, which come in its order, in the result, the first `fetch` of them.
    fn output_in_order(
        &mut self,
        plan: &Plan,
        fetch: Option<usize>,
        rows: OpenRows,
    ) -> Result<OutputLayout, Unsupported> {
        match (rows.counted(), fetch) {
            (Some(counted), None) => self.ordered_output(plan, counted, rows),
            _ => {
                // Rows whose places are counted before they are written keep the order of their source.
                self.counts = Some(self.counts_of_rows());
                self.output(plan, fetch.map(|fetch| fetch as u64), rows)
            }
        }
    }

    /// Ends the plan's rows, which come in its order, in the result; `counted`: the state that counts them.
    fn ordered_output(
        &mut self,
        plan: &Plan,
        counted: usize,
        mut rows: OpenRows,
    ) -> Result<OutputLayout, Unsupported> {
        let (fields, bound) = (plan.fields(), rows.bound());
        rows.note("result", &fields);
        let infos = self.of_result(rows.columns.clone());
        let states = self.states.of(Purpose::Output);
        let output = OutputOperator::plan_ordered(&fields, &infos, bound, counted, states)?;
        let layout = output.layout();
        self.close(rows.branches, Arc::new(output));
        Ok(layout)
    }

    /// What is known of the columns of the result, as it is written: the host knows no dictionaries.
    fn of_result(&self, mut infos: Vec<ColumnInfo>) -> Vec<ColumnInfo> {
        if !self.choices.keeps_rows {
            infos.iter_mut().for_each(|info| info.dictionary = None);
        }
        infos
    }

    /// Whether rows that are written densely are counted before.
    fn count_places(&self) -> Result<CountPlaces, Unsupported> {
        let rule = match self.choices.micro_model.counts_places() {
            true => (CountPlaces::On, "the micro model counts, then writes"),
            false => (CountPlaces::Off, "places are found while rows are written"),
        };
        self.chooser.choose("writes", rule, |_| Ok(()))
    }

    /// The state that takes counts of rows.
    fn counts_of_rows(&mut self) -> usize {
        self.counts.unwrap_or_else(|| {
            let class = self.states.class(1, Growth::Fixed);
            self.states.state("counts", 4, class)
        })
    }

    /// Who puts the result's rows in order.
    fn sort_place(
        &self,
        (keys, fetch): (&[SortKey], Option<usize>),
        rows: &OpenRows,
    ) -> Result<SortPlace, Unsupported> {
        let most = self.choices.host_sort_rows.unwrap_or(HOST_SORT_ROWS);
        let (lacks, is_small) = (rows.lacks_order(keys), rows.bound() <= most);
        // Where rows are dropped, to count them takes as long on a CPU as to sort those that are left.
        let is_whole = rows.has_every_row() || (rows.counted().is_some() && fetch.is_none());
        let rule = match lacks {
            None if is_whole => (SortPlace::Input, "rows come in this order"),
            _ if keys.is_empty() || is_small => {
                (SortPlace::Host, "so few rows are sorted before a kernel starts")
            }
            _ => (SortPlace::Device, "many rows"),
        };
        self.chooser.choose("sort", rule, |value| match (value, lacks) {
            (SortPlace::Input, Some(lacks)) => Err(lacks.into()),
            (SortPlace::Device, _) if keys.is_empty() => Err("there are no keys".into()),
            _ => Ok(()),
        })
    }

    /// How the device sorts.
    fn sort_form(&self, site: &str) -> Result<SortForm, Unsupported> {
        SortForm::choose(Site { chooser: self.chooser, name: site }, self.shape)
    }

    /// Stores the rows for a sort, and delivers them from there.
    fn sort(
        &mut self,
        plan: &Plan,
        (keys, fetch): (&[SortKey], Option<usize>),
        mut rows: OpenRows,
    ) -> Result<OutputLayout, Unsupported> {
        let bound = rows.bound();
        rows.note("rows", &plan.fields());
        let size = self.sort_size(&rows);
        let form = self.sort_form("sort")?;
        let site = Site { chooser: self.chooser, name: "sort" };
        let states = self.states.of(Purpose::Store);
        let operator = SortOperator::plan(keys, fetch, &rows.columns, size, states)?.with_form(form);
        let first_key = keys.first().and_then(|key| match key.expr.kind {
            ExprKind::Column(column) => Some(column),
            _ => None,
        });
        let batches = looks_at_batches(&rows, first_key);
        let operator = Arc::new(operator.with_bound((site, self.shape), batches)?);
        self.close(rows.branches, Arc::new(SortRows(Arc::clone(&operator))));
        let bound = fetch.map_or(bound, |fetch| bound.min(fetch as u64));
        let (fields, mut infos) = (plan.fields(), self.of_result(operator.infos()));
        // Equal values of the first key are next to each other now.
        if let Some(ExprKind::Column(first)) = keys.first().map(|key| &key.expr.kind)
            && let Some(info) = infos.get_mut(*first)
        {
            (info.scattered, info.has_frequent) = (None, false);
        }
        let states = self.states.of(Purpose::Output);
        let output = OutputOperator::plan_ordered(&fields, &infos, bound, operator.delivered(), states)?;
        let sorting = operator.sorting(Some(output.class()));
        let mut open = Open::new(SortedRows(operator), bound);
        open.sorted = Some(sorting);
        let layout = output.layout();
        self.close(vec![open], Arc::new(output));
        Ok(layout)
    }

    /// Ends open pipelines in one sink.
    fn close(&mut self, mut branches: Vec<Open>, sink: Arc<dyn Sink>) {
        branches.iter_mut().for_each(|open| self.cut_at_parts(open));
        let group = self.take_group();
        let mut zeroed = sink.needs().zeroed;
        for mut open in branches {
            let mut continues = false;
            for (part, sink) in open.take_parts() {
                self.end(part, sink, (group, continues), std::mem::take(&mut zeroed));
                continues = true;
            }
            self.end(open, Arc::clone(&sink), (group, continues), std::mem::take(&mut zeroed));
        }
    }

    /// The number of a group of pipelines, which nobody else gets.
    fn take_group(&mut self) -> usize {
        self.next_group += 1;
        self.next_group - 1
    }

    /// Ends an open pipeline, all of which is one pipeline.
    fn end(&mut self, open: Open, sink: Arc<dyn Sink>, of: (usize, bool), zeroed: Vec<usize>) {
        self.end_with(open, sink, of, zeroed, Work::default());
    }

    /// As [`Self::end`], where the engine has more to do for it.
    fn end_with(
        &mut self,
        open: Open,
        sink: Arc<dyn Sink>,
        (group, continues): (usize, bool),
        zeroed: Vec<usize>,
        work: Work,
    ) {
        let foreseen = open.source.is_scan().then(|| sink.estimated_rows(open.expected())).flatten();
        let Open { source, steps, prunes, skips, bound, shared_out, sorted, known, .. } = open;
        let counts = self.counts;
        self.done.push(Pipeline {
            source,
            steps,
            sink,
            group,
            zeroed,
            prunes,
            skips,
            continues,
            counts,
            bound,
            foreseen,
            shared_out,
            sorted,
            known,
            work,
        });
    }

    /// Ends open pipelines in memory, each in its own, and goes on from there.
    fn materialize(&mut self, rows: &mut OpenRows) -> Result<(), Unsupported> {
        for open in &mut rows.branches {
            self.cut_at_parts(open);
            if open.source.is_materialized() && open.steps.is_empty() {
                continue;
            }
            let (layout, states) = (self.layout(), self.states.of(Purpose::Store));
            let stored = RowStore::plan(&rows.columns, open.bound, layout, states)?;
            open.materialize(Arc::new(stored));
        }
        Ok(())
    }

    /// Under operator-at-a-time an operator's rows go through memory to the next.
    fn end_operator(&mut self, mut rows: OpenRows) -> Result<OpenRows, Unsupported> {
        if self.choices.micro_model == MicroModel::OperatorAtATime {
            self.materialize(&mut rows)?;
        }
        Ok(rows)
    }

    /// How stores of rows give out their places.
    fn layout(&self) -> Layout {
        match self.counts {
            Some(_) => Layout::Dense,
            None => Layout::of(self.shape),
        }
    }

    /// The open pipelines that deliver `plan`'s rows, and what is known of the columns. `downstream`: what the rows come to there.
    fn open_before(&mut self, plan: &Plan, downstream: Downstream) -> Result<OpenRows, Unsupported> {
        let outer = std::mem::replace(&mut self.downstream, downstream);
        let rows = self.open(plan);
        self.downstream = outer;
        rows
    }

    /// The open pipelines that deliver `plan`'s rows, and what is known of the columns.
    fn open(&mut self, plan: &Plan) -> Result<OpenRows, Unsupported> {
        let goes_on =
            matches!(plan, Plan::Filter { .. } | Plan::Project { .. } | Plan::Join(_) | Plan::Union { .. });
        if !goes_on && self.downstream != Downstream::default() {
            return self.open_before(plan, Downstream::default());
        }
        match plan {
            Plan::Scan(node) => {
                let scan = self.next_scan;
                self.next_scan += 1;
                let info = self
                    .scans
                    .get(scan)
                    .ok_or_else(|| Unsupported(format!("scan {scan} is not described")))?;
                let columns = columns::of_scan(scan, node, info);
                let source = ScanSource {
                    scan,
                    table: node.table.clone(),
                    types: node.fields.iter().map(|field| field.data_type.clone()).collect(),
                    layouts: info.columns.iter().map(|facts| facts.layout.clone()).collect(),
                    codes: info.columns.iter().map(|facts| facts.codes).collect(),
                    columns: columns.clone(),
                };
                let properties = RowProperties::of_scan(&columns, &info.columns);
                let open = Open::shared_out(source, info.rows);
                // Nobody asks where there are no joins.
                let is_safe = !self.uses.is_empty();
                let properties = RowProperties { is_safe, ..properties };
                let mut rows = OpenRows { properties, ..OpenRows::new(vec![open], columns) };
                rows.note("scan", &node.fields);
                Ok(rows)
            }
            Plan::Filter { input, predicate } => {
                self.rank_limit = RankLimit::of(input, predicate).or(self.rank_limit.take());
                let mut rows = self.open(input)?;
                rows.properties.is_safe &= !may_fail(predicate, &rows.columns);
                rows.push(Filter(predicate.clone()));
                self.end_operator(rows)
            }
            Plan::Project { input, exprs, .. } => {
                let mut rows = self.open(input)?;
                rows.project(exprs.clone());
                match computes(exprs) {
                    true => self.end_operator(rows),
                    false => Ok(rows),
                }
            }
            Plan::Aggregate { input, keys, aggregates, names } => {
                self.groups = GroupSite::of(self.next_groups + group_operators(input));
                match self.coded((input, keys), aggregates, names)? {
                    Some(coded) => self.open_coded(&coded),
                    None => self.aggregate_values((input, keys), aggregates),
                }
            }
            Plan::GroupingSets(sets) => self.grouping_sets(sets),
            Plan::Ranked(ranked) => self.ranked(ranked),
            Plan::Window(window) => self.window(window),
            Plan::Join(join) => self.join(join),
            Plan::Union { inputs, .. } => self.union(inputs),
            Plan::Scalars { .. } => Err(Unsupported("a scalar subquery without its value".into())),
            Plan::Sort { .. } | Plan::Limit { .. } => {
                Err(Unsupported("a sort or limit inside a stage: the engine ends the stage there".into()))
            }
        }
    }

    fn union(&mut self, inputs: &[Plan]) -> Result<OpenRows, Unsupported> {
        let all = inputs.iter().map(|input| self.open(input)).collect::<Result<Vec<_>, _>>()?;
        united(all)
    }
}

/// The rows of several plans whose columns agree.
fn united(all: Vec<OpenRows>) -> Result<OpenRows, Unsupported> {
    let all = all.into_iter().reduce(|mut all, rows| {
        all.branches.extend(rows.branches);
        let pairs = all.columns.iter().zip(&rows.columns);
        all.columns = pairs.map(|(a, b)| columns::unify(a, b)).collect();
        // Rows of different inputs may agree by chance.
        let is_safe = all.properties.is_safe && rows.properties.is_safe;
        all.properties = RowProperties { is_safe, ..RowProperties::default() };
        all
    });
    all.ok_or_else(|| Unsupported("a union of nothing".into()))
}

/// Whether a projection computes something, and does not only pass columns on.
fn computes(exprs: &[Expr]) -> bool {
    exprs.iter().any(|expr| !matches!(expr.kind, ExprKind::Column(_) | ExprKind::Literal(_)))
}
