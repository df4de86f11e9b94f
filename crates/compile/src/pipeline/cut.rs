//! Cuts a plan into pipelines at its pipeline breakers.

mod groups;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::columns;
use super::{HOST_SORT_ROWS, Pipeline};
use crate::MicroModel;
use crate::choices::Choices;
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::lower::columns_of;
use crate::operator::filter::Filter;
use crate::operator::join::{
    FillBuckets, IndexRows, JoinOperator, KeptRows, MarkMatches, Prefilter, Probe, StoreBuildSide, StoredRows,
};
use crate::operator::materialize::{Materialize, MaterializedRows};
use crate::operator::output::OutputOperator;
use crate::operator::project::Project;
use crate::operator::roles::{Sink, Source, Step};
use crate::operator::scan::ScanSource;
use crate::operator::sort::{SortOperator, SortRows, SortedRows};
use crate::plan::{Join, JoinKind, Plan, SortKey};
use crate::program::{Growth, OutputLayout, Prune, Purpose, ScanInfo, Sorting, States};
use crate::shape::LaunchShape;
use crate::table::rows::{Layout, RowStore};
use crate::types::Literal;
use crate::variant::axes::{Pruning, SortPlace};
use crate::variant::{Chooser, Site};

/// A cut plan.
pub(crate) struct Pipelines {
    pub states: States,
    /// In the order in which they run.
    pub pipelines: Vec<Pipeline>,
    pub output: OutputLayout,
}

/// Cuts a plan.
pub(crate) fn pipelines(
    plan: &Plan,
    scans: &[ScanInfo],
    shape: &LaunchShape,
    (choices, chooser): (&Choices<'_>, &Chooser<'_>),
) -> Result<Pipelines, Unsupported> {
    let &Choices { duplicates, .. } = choices;
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
        next_aggregate: 0,
        next_group: 0,
        counts: None,
    };
    if choices.micro_model.counts_places() {
        let class = cut.states.class(1, Growth::Fixed);
        cut.counts = Some(cut.states.state("counts", 4, class));
    }
    let output = match plan {
        Plan::Sort { input, keys, fetch } => {
            let rows = cut.open(input)?;
            match cut.sort_place(keys, rows.bound())? {
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
    Ok(Pipelines { states: cut.states, pipelines: cut.done, output })
}

/// An open pipeline: its rows flow on.
struct Open {
    /// The pipelines before it in its chain.
    before: Vec<ChainPart>,
    source: Arc<dyn Source>,
    steps: Vec<Arc<dyn Step>>,
    /// An upper bound of its rows.
    bound: u64,
    /// The source's rows, at most, where the grid shares them out among its threads and each becomes one row at most.
    shared_out: Option<u64>,
    prunes: Vec<Prune>,
    /// Counts of build rows without one of which nothing is delivered.
    skips: Vec<usize>,
    /// The sort that makes the order of the source.
    sorted: Option<Sorting>,
}

impl Open {
    /// An open pipeline without steps.
    fn new(source: impl Source + 'static, bound: u64) -> Open {
        let (before, steps, prunes, skips) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Open { before, source: Arc::new(source), steps, bound, shared_out: None, prunes, skips, sorted: None }
    }

    /// As [`Open::new`], of a source whose rows the grid shares out among its threads.
    fn shared_out(source: impl Source + 'static, rows: u64) -> Open {
        Open { shared_out: Some(rows), ..Open::new(source, rows) }
    }

    /// An upper bound of the rows that one thread brings to the sink.
    fn thread_bound(&self, shape: &LaunchShape) -> u64 {
        self.shared_out.map_or(self.bound, |rows| shape.rows_of_thread(rows))
    }

    /// Ends it in memory, from where it goes on.
    fn materialize(&mut self, rows: Arc<RowStore>) {
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

    /// Nothing is delivered where a build side, whose rows are counted by the state `rows`, is empty.
    fn skip_if_empty(&mut self, rows: usize) {
        self.before.iter_mut().for_each(|part| part.skips.push(rows));
        self.skips.push(rows);
    }

    /// The column of the scan that an expression is after the steps.
    fn scan_column(&self, expr: &Expr) -> Option<usize> {
        let ExprKind::Column(mut column) = expr.kind else { return None };
        if !self.source.is_scan() {
            return None;
        }
        for step in self.steps.iter().rev() {
            column = step.below(column)?;
        }
        Some(column)
    }

    /// Leaves out rows of the scan that a join further on would drop: by the bounds of its keys, and where the join is not
    /// the first and its build side is `filtered`, by its bitmap.
    fn filter_early(&mut self, operator: &Arc<JoinOperator>, filtered: bool) {
        let Some(column) = operator.filtering_key().and_then(|key| self.scan_column(key)) else { return };
        if let Some(bounds) = operator.index().bounds() {
            self.prunes.push(Prune { column, bounds });
        }
        let keeps_columns = |step: &Arc<dyn Step>| step.columns(&[]).is_none();
        let is_first = self.steps.iter().all(|step| keeps_columns(step) || step.projection().is_some());
        if is_first || !filtered || !operator.index().has_bitmap() {
            return;
        }
        let position = self.steps.iter().position(|step| !keeps_columns(step)).unwrap_or(self.steps.len());
        self.steps.insert(position, Arc::new(Prefilter { join: Arc::clone(operator), column }));
    }

    /// Whether each of the source's rows becomes one row at most, without a loop.
    fn is_single(&self) -> bool {
        !self.steps.iter().any(|step| step.expands())
    }

    /// Whether all its rows lie in memory, as columns.
    fn is_stored_whole(&self) -> bool {
        let passes = |step: &Arc<dyn Step>| step.projection().is_some_and(|exprs| !computes(exprs));
        (self.source.is_scan() || self.source.is_materialized()) && self.steps.iter().all(passes)
    }

    /// Whether some of the source's rows may have been dropped.
    fn is_filtered(&self) -> bool {
        !self.source.is_scan() || self.steps.iter().any(|step| step.projection().is_none())
    }
}

/// A pipeline that ends in memory, for the next one of its chain.
struct ChainPart {
    source: Arc<dyn Source>,
    steps: Vec<Arc<dyn Step>>,
    prunes: Vec<Prune>,
    skips: Vec<usize>,
    rows: Arc<RowStore>,
    bound: u64,
    shared_out: Option<u64>,
    sorted: Option<Sorting>,
}

/// The rows of a plan: those of one or several open pipelines, whose columns agree.
struct OpenRows {
    branches: Vec<Open>,
    columns: Vec<ColumnInfo>,
}

impl OpenRows {
    fn bound(&self) -> u64 {
        self.branches.iter().fold(0, |sum, open| sum.saturating_add(open.bound))
    }

    fn push(&mut self, step: impl Step + 'static) {
        let step: Arc<dyn Step> = Arc::new(step);
        self.branches.iter_mut().for_each(|open| open.steps.push(Arc::clone(&step)));
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
    next_aggregate: usize,
    next_group: usize,
    /// The state that takes the counts of dense writes, where they are counted.
    counts: Option<usize>,
}

impl Cut<'_> {
    /// Ends the plan's rows in the result, of `limit` rows at most.
    fn output(
        &mut self,
        plan: &Plan,
        limit: Option<u64>,
        rows: OpenRows,
    ) -> Result<OutputLayout, Unsupported> {
        let (fields, bound) = (plan.fields(), rows.bound());
        let states = self.states.of(Purpose::Output);
        let output = match limit {
            None => OutputOperator::plan(&fields, &rows.columns, bound, states)?,
            Some(limit) => OutputOperator::plan_limited(&fields, &rows.columns, bound, limit, states)?,
        };
        let layout = output.layout();
        self.close(rows.branches, Arc::new(output));
        Ok(layout)
    }

    /// Who puts the result's rows in order.
    fn sort_place(&self, keys: &[SortKey], bound: u64) -> Result<SortPlace, Unsupported> {
        let most = self.choices.host_sort_rows.unwrap_or(HOST_SORT_ROWS);
        let rule = match keys.is_empty() || bound <= most {
            true => (SortPlace::Host, "so few rows are sorted before a kernel starts"),
            false => (SortPlace::Device, "many rows"),
        };
        self.chooser.choose("sort", rule, |value| match value {
            SortPlace::Device if keys.is_empty() => Err("there are no keys".into()),
            SortPlace::Device | SortPlace::Host => Ok(()),
        })
    }

    /// Stores the rows for a sort, and delivers them from there.
    fn sort(
        &mut self,
        plan: &Plan,
        (keys, fetch): (&[SortKey], Option<usize>),
        rows: OpenRows,
    ) -> Result<OutputLayout, Unsupported> {
        let bound = rows.bound();
        let size = (bound, rows.branches.len());
        let operator = SortOperator::plan(keys, fetch, &rows.columns, size, self.states.of(Purpose::Store))?;
        let operator = Arc::new(operator);
        self.close(rows.branches, Arc::new(SortRows(Arc::clone(&operator))));
        let bound = fetch.map_or(bound, |fetch| bound.min(fetch as u64));
        let (fields, infos) = (plan.fields(), operator.infos());
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
    fn close(&mut self, branches: Vec<Open>, sink: Arc<dyn Sink>) {
        let group = self.next_group;
        self.next_group += 1;
        let mut zeroed = sink.needs().zeroed;
        for mut open in branches {
            let mut continues = false;
            for part in std::mem::take(&mut open.before) {
                let ChainPart { source, steps, prunes, skips, rows, bound, shared_out, sorted } = part;
                let part =
                    Open { before: Vec::new(), source, steps, bound, shared_out, prunes, skips, sorted };
                let zeroed = std::mem::take(&mut zeroed);
                self.end(part, Arc::new(Materialize(rows)), (group, continues), zeroed);
                continues = true;
            }
            let zeroed = std::mem::take(&mut zeroed);
            self.end(open, Arc::clone(&sink), (group, continues), zeroed);
        }
    }

    /// Ends an open pipeline, all of which is one pipeline.
    fn end(
        &mut self,
        open: Open,
        sink: Arc<dyn Sink>,
        (group, continues): (usize, bool),
        zeroed: Vec<usize>,
    ) {
        let Open { source, steps, prunes, skips, bound, shared_out, sorted, .. } = open;
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
            shared_out,
            sorted,
        });
    }

    /// Ends open pipelines in memory, each in its own, and goes on from there.
    fn materialize(&mut self, rows: &mut OpenRows) -> Result<(), Unsupported> {
        for open in &mut rows.branches {
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

    /// The open pipelines that deliver `plan`'s rows, and what is known of the columns.
    fn open(&mut self, plan: &Plan) -> Result<OpenRows, Unsupported> {
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
                    layouts: info.layouts.clone(),
                    columns: columns.clone(),
                };
                let open = Open::shared_out(source, info.rows);
                Ok(OpenRows { branches: vec![open], columns })
            }
            Plan::Filter { input, predicate } => {
                let mut rows = self.open(input)?;
                rows.push(Filter(predicate.clone()));
                self.end_operator(rows)
            }
            Plan::Project { input, exprs, .. } => {
                let mut rows = self.open(input)?;
                rows.push(Project(exprs.clone()));
                rows.columns = columns_of(exprs, &rows.columns);
                match computes(exprs) {
                    true => self.end_operator(rows),
                    false => Ok(rows),
                }
            }
            Plan::Aggregate { input, keys, aggregates, .. } => self.aggregate(input, keys, aggregates),
            Plan::Join(join) => self.join(join),
            Plan::Union { inputs, .. } => self.union(inputs),
            Plan::Scalars { .. } => Err(Unsupported("a scalar subquery without its value".into())),
            Plan::Sort { .. } | Plan::Limit { .. } => {
                Err(Unsupported("a sort or limit inside a stage: the engine ends the stage there".into()))
            }
        }
    }

    /// Whether a finished build side leaves out rows of the probe side's scans.
    fn prunes(&self, site: &Site<'_>, operator: &JoinOperator) -> Result<bool, Unsupported> {
        if operator.filtering_key().is_none() {
            return Ok(false);
        }
        let rule = (Pruning::On, "rows that are left out cost nothing");
        Ok(site.choose(rule, |_| Ok(()))? == Pruning::On)
    }

    fn union(&mut self, inputs: &[Plan]) -> Result<OpenRows, Unsupported> {
        let mut all: Option<OpenRows> = None;
        for input in inputs {
            let rows = self.open(input)?;
            all = Some(match all {
                None => rows,
                Some(mut all) => {
                    all.branches.extend(rows.branches);
                    let pairs = all.columns.iter().zip(&rows.columns);
                    all.columns = pairs.map(|(a, b)| columns::unify(a, b)).collect();
                    all
                }
            });
        }
        all.ok_or_else(|| Unsupported("a union of nothing".into()))
    }

    fn join(&mut self, join: &Join) -> Result<OpenRows, Unsupported> {
        let ordinal = self.next_join;
        self.next_join += 1;
        let build = self.open(&join.build)?;
        let before_probe = self.done.len();
        let mut probe = self.open(&join.probe)?;
        let after_probe = self.done.len();
        let build_bound = build.bound();
        let unique = JoinOperator::wants_unique(join) && !self.duplicates.contains(&ordinal);
        let layout = self.layout();
        let site = format!("join{ordinal}");
        let site = Site { chooser: self.chooser, name: &site };
        let operator = JoinOperator::plan(
            (join, ordinal, site),
            (&build.columns, build_bound),
            &probe.columns,
            (unique, self.shape.is_serial(), self.choices.direct_bytes),
            (layout, self.states.of(Purpose::Table)),
        )?;
        let operator = Arc::new(operator);
        let build_fields = build.columns.len();
        let filtered = build.branches.iter().any(Open::is_filtered);
        self.close(build.branches, Arc::new(StoreBuildSide(Arc::clone(&operator))));
        let stored = || Open::new(StoredRows(Arc::clone(&operator)), build_bound);
        if operator.index().is_built() {
            self.close(vec![stored()], Arc::new(IndexRows(Arc::clone(&operator))));
        }
        if operator.index().prefix_sum().is_some() {
            // Buckets are filled in the group in which they are counted.
            let group = self.next_group.saturating_sub(1);
            self.end(stored(), Arc::new(FillBuckets(Arc::clone(&operator))), (group, false), Vec::new());
        }
        // The build side goes first: where it is empty, nothing of the probe side may run.
        self.done[before_probe..].rotate_left(after_probe - before_probe);
        if operator.needs_build_rows() {
            let rows = operator.store().row_count();
            let built = self.done.len() - after_probe;
            let inside = self.done[before_probe + built..].iter_mut().map(|pipeline| &mut pipeline.skips);
            inside.for_each(|skips| skips.push(rows));
            probe.branches.iter_mut().for_each(|open| open.skip_if_empty(rows));
        }
        let kept = Open::new(KeptRows(Arc::clone(&operator)), build_bound);
        if self.prunes(&site, &operator)? {
            probe.branches.iter_mut().for_each(|open| open.filter_early(&operator, filtered));
        }
        if let JoinKind::BuildSemi | JoinKind::BuildAnti | JoinKind::BuildMark = join.kind {
            self.close(probe.branches, Arc::new(MarkMatches(Arc::clone(&operator))));
            return Ok(OpenRows { branches: vec![kept], columns: operator.columns().to_vec() });
        }
        let expansion = operator.expansion(build_bound);
        for open in &mut probe.branches {
            open.steps.push(Arc::new(Probe(Arc::clone(&operator))));
            open.bound = open.bound.saturating_mul(expansion);
            // What a thread sees is no longer a share of a table's rows.
            open.shared_out = open.shared_out.filter(|_| expansion == 1);
        }
        let mut rows =
            self.end_operator(OpenRows { branches: probe.branches, columns: operator.columns().to_vec() })?;
        if let JoinKind::BuildOuter | JoinKind::FullOuter = join.kind {
            let nulls = join.probe.fields().into_iter().map(|field| Expr {
                kind: ExprKind::Literal(Literal::Null),
                data_type: field.data_type,
                nullable: true,
            });
            let own = operator.columns()[..build_fields].iter().enumerate();
            let own = own.map(|(index, info)| Expr::column(index, info.data_type.clone(), info.nullable));
            let exprs = own.chain(nulls).collect();
            rows.branches.push(Open { steps: vec![Arc::new(Project(exprs))], ..kept });
        }
        Ok(rows)
    }
}

/// Whether a projection computes something, and does not only pass columns on.
fn computes(exprs: &[Expr]) -> bool {
    exprs.iter().any(|expr| !matches!(expr.kind, ExprKind::Column(_) | ExprKind::Literal(_)))
}
