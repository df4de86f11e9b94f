//! Row loops that take several rows at once: which part of a pipeline's filters has a form for wide rows (`context::wide`), and
//! the loops that bring wide rows, and single ones where too few are left.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Scalar, Target};

use super::Pipeline;
use super::body::Body;
use super::row::for_range;
use super::speculation::Speculation;
use super::text_search::{Search, Searching};
use super::windows::Window;
use crate::context::{Context, Unsupported, WIDE_ROWS};
use crate::expr::{Expr, ExprKind, share_kept};
use crate::layout::ColumnInfo;
use crate::lower::{can_fail, conjuncts, lower_condition, supports_wide_rows};
use crate::operator::Flow;
use crate::operator::filter::Filter;
use crate::operator::roles::{Emitter, Job};
use crate::shape::LaunchShape;
use crate::types::DataType;

/// Of rows that find a match at a larger share, branches are taken as foretold.
pub(super) const MOST_FILTERED: f64 = 0.75;

/// What kernels are generated for.
type On<'a> = (&'a Target, &'a LaunchShape);

/// The filters before the first step of another kind than filters, runtime filters and projections, each in two parts.
#[derive(Debug, Default)]
pub(super) struct WideFilters {
    /// One a leading step.
    parts: Vec<Parts>,
    /// The share of rows that is thought to pass the part for wide rows.
    pub share: f64,
    /// A part that is left to single rows may fail.
    pub may_fail: bool,
    /// Why no part has a form for wide rows, where none has.
    pub lacks: Option<String>,
    /// The first condition that a search of batches of texts may decide, which is then in no part, or why the last one that might
    /// have been cannot be; `None` where there is no such condition, or none was looked for.
    pub search: Option<Result<Search, String>>,
    /// The runtime filters by which rows are selected one after the other, once that is chosen: numbers of steps.
    pub runtime_filters: Vec<usize>,
}

/// A step's condition in two parts, of which it is the AND.
#[derive(Debug, Default)]
struct Parts {
    /// What has a form for wide rows.
    wide: Option<Expr>,
    /// What has not.
    rest: Option<Filter>,
}

impl WideFilters {
    /// Splits the conditions of a pipeline over a table; where it `searches`, with a search of batches of texts, if one is possible.
    pub(super) fn of(pipeline: &Pipeline, on: On<'_>, searches: bool) -> WideFilters {
        let mut filters = WideFilters { share: 1.0, ..WideFilters::default() };
        let mut splitting = Splitting {
            pipeline,
            on,
            columns: pipeline.source.columns(),
            is_plain: true,
            may_fail: false,
            lacks: None,
            searches,
            search: None,
        };
        for (index, step) in pipeline.steps.iter().enumerate() {
            let parts = match (step.condition(), step.projection()) {
                (Some(condition), _) => splitting.split(index, condition, &mut filters.share),
                (None, Some(exprs)) => {
                    splitting.is_plain &= exprs.iter().all(|expr| matches!(expr.kind, ExprKind::Column(_)));
                    Parts::default()
                }
                (None, None) if step.runtime_filter().is_some() => Parts::default(),
                (None, None) => break,
            };
            filters.parts.push(parts);
            splitting.columns = step.columns(&splitting.columns).unwrap_or(splitting.columns);
        }
        (filters.may_fail, filters.search) = (splitting.may_fail, splitting.search);
        if filters.found().is_none() && filters.parts.iter().all(|parts| parts.wide.is_none()) {
            let lacks = splitting.lacks.unwrap_or_else(|| "there is no filter before other steps".into());
            filters.lacks = Some(lacks);
        }
        filters
    }

    /// The runtime filters among the leading steps that are worth a pass, by number, that which keeps fewest rows first; or why rows
    /// cannot be selected by them.
    pub(super) fn possible_runtime_filters(&self, pipeline: &Pipeline) -> Result<Vec<usize>, String> {
        let leading = pipeline.steps.iter().take(self.parts.len()).enumerate();
        let shares = leading.filter_map(|(index, step)| Some((index, step.runtime_filter()?.share())));
        let mut runtime_filters: Vec<(usize, f64)> =
            shares.filter(|(_, share)| *share <= MOST_FILTERED).collect();
        runtime_filters.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let runtime_filters: Vec<usize> = runtime_filters.into_iter().map(|(index, _)| index).collect();
        match () {
            () if runtime_filters.is_empty() => Err("runtime filters keep nearly all rows".into()),
            () if self.may_fail => Err("a filter may fail, and is to see the rows that others leave".into()),
            () => Ok(runtime_filters),
        }
    }

    /// The same, with runtime filters by which rows are selected.
    pub(super) fn with_runtime_filters(self, runtime_filters: Vec<usize>) -> WideFilters {
        WideFilters { runtime_filters, ..self }
    }

    /// The search of batches of texts, where there is one.
    pub(super) fn found(&self) -> Option<&Search> {
        self.search.as_ref()?.as_ref().ok()
    }

    /// The share of rows that is thought to be left for the search by the other conditions and by runtime filters.
    pub(super) fn share_searched(&self, pipeline: &Pipeline) -> f64 {
        let runtime_filters = pipeline
            .steps
            .iter()
            .take(self.parts.len())
            .filter_map(|step| Some(step.runtime_filter()?.share()));
        let own = self.found().map_or(1.0, |search| search.share);
        runtime_filters.product::<f64>() * self.share / own
    }

    /// Whether nothing of the pipeline's conditions is left to single rows.
    pub(super) fn is_all(&self, pipeline: &Pipeline) -> bool {
        let later = pipeline.steps.get(self.parts.len()..).unwrap_or_default();
        self.parts.iter().all(|parts| parts.rest.is_none())
            && later.iter().all(|step| step.condition().is_none())
    }

    /// The part of step `index`'s condition that single rows are left with; `None`: the step is not one whose condition was
    /// split.
    pub(super) fn rest(&self, index: usize) -> Option<Option<&Filter>> {
        self.parts.get(index).map(|parts| parts.rest.as_ref())
    }

    /// Binds the row and computes the part for wide rows of all conditions, over a wide row or a single one: a mask or `bool`. With a
    /// search of the batch that begins with a row.
    ///
    /// The windows of keys are left out for single ones: they only spare looking up what is not there.
    fn passes(
        &self,
        cx: &mut Context<'_>,
        pipeline: &Pipeline,
        (row, windows, search): (V, &[Window], Option<(&Searching<'_>, V)>),
    ) -> Result<V, Unsupported> {
        pipeline.source.bind(cx, row)?;
        let windows = if cx.wide().is_some() { windows } else { &[] };
        let within = windows.iter().filter_map(|window| window.holds(cx)).collect::<Vec<_>>();
        let found = search.map(|(search, from)| search.passes(cx, row, from));
        let mut passes = within.into_iter().chain(found).reduce(|a, b| cx.builder.and(a, b));
        for (parts, step) in self.parts.iter().zip(&pipeline.steps) {
            if let Some(exprs) = step.projection() {
                cx.push_projection(exprs);
            }
            if let Some(condition) = &parts.wide {
                let condition = lower_condition(cx, condition)?;
                passes = Some(match passes {
                    Some(passes) => cx.builder.and(passes, condition),
                    None => condition,
                });
            }
        }
        let passes = passes.unwrap_or_else(|| cx.builder.bool(true));
        Ok(cx.each_row(passes))
    }
}

/// The walk through the leading steps.
struct Splitting<'a> {
    pipeline: &'a Pipeline,
    on: On<'a>,
    /// The columns before the step.
    columns: Vec<ColumnInfo>,
    /// None of them is computed.
    is_plain: bool,
    /// A condition that is left to single rows may fail: it is to see the rows that those before it leave, no fewer.
    may_fail: bool,
    /// The last condition's reason for having no form for wide rows.
    lacks: Option<String>,
    /// A search of batches of texts is looked for.
    searches: bool,
    search: Option<Result<Search, String>>,
}

impl Splitting<'_> {
    /// Splits the condition of step `index`; the share of rows that passes is made smaller.
    fn split(&mut self, index: usize, condition: &Expr, share: &mut f64) -> Parts {
        let (mut wide, mut rest) = (Vec::new(), Vec::new());
        let ranges: Vec<_> = self.columns.iter().map(|info| info.range).collect();
        let range_of = |index: usize| ranges.get(index).copied().flatten();
        for conjunct in conjuncts(condition) {
            match supports(self.pipeline, index, conjunct, self.on) {
                Ok(()) if !self.may_fail => {
                    *share *= share_kept(conjunct, &range_of);
                    wide.push(conjunct.clone());
                }
                Ok(()) => rest.push(conjunct.clone()),
                Err(_) if self.is_search(conjunct) => *share *= share_kept(conjunct, &range_of),
                Err(lacks) => {
                    self.lacks = Some(lacks);
                    rest.push(conjunct.clone());
                    self.may_fail |= !self.is_plain || can_fail(conjunct, &range_of);
                }
            }
        }
        Parts { wide: all_of(wide), rest: all_of(rest).map(Filter) }
    }

    /// Whether a condition becomes the search of batches of texts, of which there is one.
    fn is_search(&mut self, conjunct: &Expr) -> bool {
        if !self.searches || matches!(self.search, Some(Ok(_))) {
            return false;
        }
        let search = Search::of(self.pipeline, &self.columns, conjunct, self.on);
        let search = search.map(|search| match self.may_fail {
            true => Err("a filter before may fail, and is to see the rows that others leave".to_string()),
            false => search,
        });
        let is_search = matches!(search, Some(Ok(_)));
        self.search = search.or(self.search.take());
        is_search
    }
}

/// The AND of conditions.
fn all_of(conditions: Vec<Expr>) -> Option<Expr> {
    conditions.into_iter().reduce(|a, b| Expr {
        nullable: a.nullable || b.nullable,
        kind: ExprKind::And(Box::new(a), Box::new(b)),
        data_type: DataType::Boolean,
    })
}

/// Whether a condition of step `index` has a form for wide rows.
fn supports(pipeline: &Pipeline, index: usize, condition: &Expr, on: On<'_>) -> Result<(), String> {
    supports_wide_rows(on, |cx| {
        let row = cx.builder.i64(0);
        pipeline.source.bind(cx, row)?;
        for exprs in pipeline.steps.iter().take(index).filter_map(|step| step.projection()) {
            cx.push_projection(exprs);
        }
        lower_condition(cx, condition).map(drop)
    })
}

/// Whether all of a pipeline has a form for wide rows, or what it lacks. `job`: what its sink begins with, given the number of
/// rows.
pub(super) fn supports_all<'a>(
    pipeline: &'a Pipeline,
    speculation: &Speculation<'_>,
    on: On<'_>,
    job: impl FnOnce(V) -> Job<'a>,
) -> Result<(), String> {
    if !pipeline.source.is_scan() {
        return Err("the source is no table".into());
    }
    if !speculation.of_all_steps() {
        return Err("a step does more than to filter and project by cheap expressions".into());
    }
    pipeline.sink.takes_wide_rows()?;
    supports_wide_rows(on, |cx| {
        let row = cx.builder.i64(0);
        let mut emitter = pipeline.sink.begin(cx, &job(row))?;
        pipeline.source.bind(cx, row)?;
        let mut flow = Flow::Flag { active: None };
        for step in &pipeline.steps {
            step.consume(cx, flow, true, &mut |_, behind| {
                flow = behind;
                Ok(())
            })?;
        }
        emitter.row(cx, row, flow)
    })
}

impl Body<'_> {
    /// A wide row, from row `row` of the source on, through all steps into the sink.
    pub(super) fn wide_row(
        &self,
        cx: &mut Context<'_>,
        row: V,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        cx.begin_wide();
        let done = self.row(cx, row, Flow::Flag { active: None }, emitter);
        cx.end_wide();
        done
    }

    /// The rows of a thread of a SIMT device, which are those of a wide row from `row` on: one by one where some are before the
    /// first that is worked on, `first`, or beyond the end.
    pub(super) fn rows_of_thread(
        &self,
        cx: &mut Context<'_>,
        row: V,
        (first, job): (V, &Job<'_>),
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let b = &mut *cx.builder;
        let size = b.i64(WIDE_ROWS.into());
        let end = b.add(row, size);
        let (begins, ends) = (b.ge(row, first), b.ge(job.rows, end));
        let is_whole = b.and(begins, ends);
        cx.begin_if(is_whole);
        self.wide_row(cx, row, emitter)?;
        cx.begin_else();
        let from = cx.builder.binary(BinaryOp::Max, row, first);
        let to = cx.builder.binary(BinaryOp::Min, end, job.rows);
        let flow = if job.flags { Flow::Flag { active: None } } else { Flow::Branch };
        for_range(cx, "row", from, to, |cx, row| self.row(cx, row, flow, emitter))?;
        cx.end();
        Ok(())
    }

    /// Appends the rows of `from..to` that pass the filters' part for wide rows to the selection vector, as distances from
    /// `base`; `selected` counts them.
    pub(super) fn select_wide(
        &self,
        cx: &mut Context<'_>,
        (filters, windows, search): (&WideFilters, &[Window], Option<&Searching<'_>>),
        (from, to): (V, V),
        (selection, selected): (V, Var),
    ) -> Result<(), Unsupported> {
        let iota = cx.builder.iota(Scalar::U32, WIDE_ROWS);
        for_wide_range(cx, (from, to), &mut |cx, row, is_wide| {
            if is_wide {
                cx.begin_wide();
            }
            let search = search.map(|search| (search, from));
            let passes = filters.passes(cx, self.pipeline, (row, windows, search));
            cx.end_wide();
            let passes = passes?;
            let b = &mut *cx.builder;
            let count = b.read(selected);
            let pointer = b.offset(selection, count);
            let distance = b.sub(row, from);
            let distance = b.convert(distance, Scalar::U32);
            let added = match is_wide {
                true => {
                    let distances = b.add(iota, distance);
                    let added = b.compress(pointer, distances, passes);
                    b.convert(added, Scalar::I64)
                }
                false => {
                    b.store(pointer, distance);
                    b.convert(passes, Scalar::I64)
                }
            };
            let count = b.add(count, added);
            b.assign(selected, count);
            cx.end_row();
            Ok(())
        })
    }
}

/// `for row in from..to` over `i64`, [`WIDE_ROWS`] at once where there are so many from a multiple of it on: `body(row, whether
/// it is a wide row)` is emitted twice.
pub(super) fn for_wide_range(
    cx: &mut Context<'_>,
    (from, to): (V, V),
    body: &mut dyn FnMut(&mut Context<'_>, V, bool) -> Result<(), Unsupported>,
) -> Result<(), Unsupported> {
    let index = cx.builder.var_of("row", from);
    cx.begin_loop();
    let row = cx.builder.read(index);
    let done = cx.builder.ge(row, to);
    cx.builder.break_if(done);
    let b = &mut *cx.builder;
    let (below, zero) = (b.i64(i64::from(WIDE_ROWS) - 1), b.i64(0));
    let odd = b.and(row, below);
    let is_first = b.eq(odd, zero);
    cx.begin_if(is_first);
    cx.begin_loop();
    let row = cx.builder.read(index);
    let size = cx.builder.i64(WIDE_ROWS.into());
    let next = cx.builder.add(row, size);
    let beyond = cx.builder.lt(to, next);
    cx.builder.break_if(beyond);
    body(cx, row, true)?;
    cx.builder.assign(index, next);
    cx.end();
    cx.end();
    let row = cx.builder.read(index);
    let is_left = cx.builder.lt(row, to);
    cx.begin_if(is_left);
    body(cx, row, false)?;
    let one = cx.builder.i64(1);
    let next = cx.builder.add(row, one);
    cx.builder.assign(index, next);
    cx.end();
    cx.end();
    Ok(())
}
