//! Which part of a pipeline's filters has a form for wide rows (`context::wide`), by which a selection vector is made.

use std::sync::Arc;

use kelpie_kir::Target;
use kelpie_kir::builder::V;

use super::text_search::Search;
use crate::context::{Context, Unsupported};
use crate::expr::{Expr, ExprKind, share_kept};
use crate::layout::ColumnInfo;
use crate::lower::{can_fail, conjuncts, lower_condition, supports_wide_rows};
use crate::operator::filter::Filter;
use crate::operator::roles::Step;
use crate::pipeline::Pipeline;
use crate::pipeline::row_loop::{MOST_FILTERED, Rest};
use crate::shape::LaunchShape;
use crate::types::DataType;

/// What kernels are generated for.
type On<'a> = (&'a Target, &'a LaunchShape);

/// The filters before the first step of another kind than filters, runtime filters and projections, each in two parts.
#[derive(Debug, Default)]
pub(super) struct WideFilters {
    /// One a leading step; `None` where it is no filter.
    parts: Vec<Option<Parts>>,
    /// The share of rows that is thought to pass the part for wide rows.
    pub share: f64,
    /// A part that is left to single rows may fail: it is to see the rows that those before it leave, no fewer.
    may_fail: bool,
    /// Why no part has a form for wide rows, where none has.
    pub why_not: Option<String>,
    /// The first condition that a search of batches of texts may decide, which is then in no part, or why the last one that might
    /// have been cannot be; `None` where there is no such condition, or none was looked for.
    pub search: Option<Result<Search, String>>,
}

/// A step's condition in two parts, of which it is the AND.
#[derive(Debug)]
struct Parts {
    /// What has a form for wide rows.
    wide: Option<Expr>,
    /// What has not.
    rest: Option<Filter>,
}

impl WideFilters {
    /// Splits the conditions of a pipeline over a table; where it `searches`, with a search of batches of texts, if one is possible.
    pub(super) fn of(pipeline: &Pipeline, on: On<'_>, searches: bool) -> WideFilters {
        let filters = WideFilters { share: 1.0, ..WideFilters::default() };
        let mut splitting =
            Splitting { pipeline, on, columns: pipeline.source.columns(), is_plain: true, searches, filters };
        for (index, step) in pipeline.steps.iter().enumerate() {
            let parts = match (step.condition(), step.projection()) {
                (Some(condition), _) => Some(splitting.split(index, condition)),
                (None, Some(exprs)) => {
                    splitting.is_plain &= exprs.iter().all(|expr| matches!(expr.kind, ExprKind::Column(_)));
                    None
                }
                (None, None) if step.runtime_filter().is_some() => None,
                (None, None) => break,
            };
            splitting.filters.parts.push(parts);
            splitting.columns = step.columns(&splitting.columns).unwrap_or(splitting.columns);
        }
        let mut filters = splitting.filters;
        let has_wide = filters.parts.iter().flatten().any(|parts| parts.wide.is_some());
        filters.why_not = match has_wide || filters.found().is_some() {
            true => None,
            false => filters.why_not.or_else(|| Some("there is no filter before other steps".into())),
        };
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
        match () {
            () if runtime_filters.is_empty() => Err("runtime filters keep nearly all rows".into()),
            () if self.may_fail => Err("a filter may fail, and is to see the rows that others leave".into()),
            () => Ok(runtime_filters.into_iter().map(|(index, _)| index).collect()),
        }
    }

    /// The search of batches of texts, where there is one.
    pub(super) fn found(&self) -> Option<&Search> {
        self.search.as_ref()?.as_ref().ok()
    }

    /// The share of rows that is thought to be left for the search by the other conditions and by runtime filters.
    pub(super) fn share_searched(&self, pipeline: &Pipeline) -> f64 {
        let leading = pipeline.steps.iter().take(self.parts.len());
        let runtime_filters = leading.filter_map(|step| Some(step.runtime_filter()?.share()));
        let own = self.found().map_or(1.0, |search| search.share);
        runtime_filters.product::<f64>() * self.share / own
    }

    /// Whether nothing of the pipeline's conditions is left to single rows.
    pub(super) fn is_all(&self, pipeline: &Pipeline) -> bool {
        let later = pipeline.steps.get(self.parts.len()..).unwrap_or_default();
        self.parts.iter().flatten().all(|parts| parts.rest.is_none())
            && later.iter().all(|step| step.condition().is_none())
    }

    /// What of a step single rows are left with.
    pub(super) fn rest(&self, step: usize) -> Rest<'_> {
        match self.parts.get(step) {
            Some(Some(parts)) => parts.rest.as_ref().map_or(Rest::Nothing, Rest::Filter),
            _ => Rest::Step,
        }
    }

    /// Computes the part for wide rows of all conditions on the current row, a wide or a single one, which has passed what was `tried`: a
    /// mask or `bool`.
    pub(super) fn passes(
        &self,
        cx: &mut Context<'_>,
        steps: &[Arc<dyn Step>],
        tried: Option<V>,
    ) -> Result<V, Unsupported> {
        let mut passes = tried;
        for (parts, step) in self.parts.iter().zip(steps) {
            if let Some(exprs) = step.projection() {
                cx.push_projection(exprs);
            }
            if let Some(condition) = parts.as_ref().and_then(|parts| parts.wide.as_ref()) {
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
    /// A search of batches of texts is looked for.
    searches: bool,
    /// What was found so far, with the last condition's reason for having no form for wide rows.
    filters: WideFilters,
}

impl Splitting<'_> {
    /// Splits the condition of step `index`; the share of rows that passes is made smaller.
    fn split(&mut self, index: usize, condition: &Expr) -> Parts {
        let (mut wide, mut rest) = (Vec::new(), Vec::new());
        let ranges: Vec<_> = self.columns.iter().map(|info| info.range).collect();
        let range_of = |index: usize| ranges.get(index).copied().flatten();
        for conjunct in conjuncts(condition) {
            match supports(self.pipeline, index, conjunct, self.on) {
                Ok(()) if !self.filters.may_fail => {
                    self.filters.share *= share_kept(conjunct, &range_of);
                    wide.push(conjunct.clone());
                }
                Ok(()) => rest.push(conjunct.clone()),
                Err(_) if self.is_search(conjunct) => {
                    self.filters.share *= share_kept(conjunct, &range_of);
                }
                Err(why_not) => {
                    self.filters.why_not = Some(why_not);
                    rest.push(conjunct.clone());
                    self.filters.may_fail |= !self.is_plain || can_fail(conjunct, &range_of);
                }
            }
        }
        Parts { wide: all_of(wide), rest: all_of(rest).map(Filter) }
    }

    /// Whether a condition becomes the search of batches of texts, of which there is one.
    fn is_search(&mut self, conjunct: &Expr) -> bool {
        if !self.searches || self.filters.found().is_some() {
            return false;
        }
        let search = Search::of(self.pipeline, &self.columns, conjunct, self.on);
        let search = search.map(|search| match self.filters.may_fail {
            true => Err("a filter before may fail, and is to see the rows that others leave".to_string()),
            false => search,
        });
        let is_search = matches!(search, Some(Ok(_)));
        self.filters.search = search.or(self.filters.search.take());
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
