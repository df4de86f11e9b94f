//! A CPU's form of the local prefix sum: batches of rows in two passes, the first of which makes a selection vector in the
//! worker's memory; then there is one atomic a batch. Where filters have a form for wide rows, it is made of these. Runtime filters
//! make it shorter, one after the other and without a branch: a processor foretells badly which rows find a match, and a branch that
//! goes the other way costs it as much as trying five rows (Ross, "Selection Conditions in Main Memory", 2004).

mod key_windows;
mod text_search;
mod wide_filters;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Pointee, Scalar};

use self::key_windows::Window;
use self::text_search::Searching;
use self::wide_filters::WideFilters;
use super::batched::{Batched, Coming};
use super::morsels::Morsels;
use super::wide::for_wide_range;
use super::{Candidate, Emitted, MOST_SELECTED, Rest, RowLoopStrategy, runtime_filters, selection_rows};
use crate::context::{Context, Unsupported, WIDE_ROWS};
use crate::operator::Flow;
use crate::operator::roles::{Emitter, RuntimeFilter};
use crate::pipeline::body::Body;
use crate::pipeline::row::{Pass, for_range, for_range_unrolled};
use crate::pipeline::variants::Facts;
use crate::program::Prune;
use crate::table::places::Dense;
use crate::variant::axes::{KeyWindows, TextSearch, WritePlaces};

/// Rows of a selection vector.
#[derive(Default)]
pub(super) struct Selected {
    /// The filters in two parts, where a selection vector is made by that for wide rows, by runtime filters, or both; else all filters see
    /// row by row.
    filters: Option<WideFilters>,
    /// The steps by which rows are selected one after the other.
    runtime_filters: Vec<usize>,
    /// Keys that are compared with the bounds of finished build sides.
    windows: Vec<Prune>,
    /// By which steps the rows that are left are looked up together.
    batched: Option<Batched>,
    /// Rows of a batch.
    rows: u64,
}

impl Selected {
    /// Where filters, or runtime filters, make a selection vector; or why they do not.
    pub(super) fn possible(facts: &Facts<'_>) -> Result<Result<Selected, String>, Unsupported> {
        let filters = match facts.is_counted {
            true => Err("places are counted a row of the table".to_string()),
            false => split_filters(facts)?,
        };
        let possible = filters.as_ref().map_err(String::clone);
        let possible = possible.and_then(|filters| filters.possible_runtime_filters(facts.pipeline));
        let why_not = possible.as_ref().err().map(String::as_str);
        let takes_them = runtime_filters(facts, why_not)?;
        let runtime_filters = possible.ok().filter(|_| takes_them).unwrap_or_default();
        Ok(match filters {
            Ok(WideFilters { why_not: Some(why_not), .. }) if runtime_filters.is_empty() => Err(why_not),
            Ok(filters) => Ok(Selected { filters: Some(filters), runtime_filters, ..Selected::default() }),
            Err(why_not) => Err(why_not),
        })
    }

    /// The keys that are compared with bounds of build sides where rows are selected several at once.
    fn windows(&self, facts: &Facts<'_>) -> Result<Vec<Prune>, Unsupported> {
        let prunes = &facts.pipeline.prunes;
        let is_wide = self.filters.as_ref().is_some_and(|filters| filters.why_not.is_none());
        let why = Ok("comparing several keys costs less than looking one up");
        let takes_them = !prunes.is_empty()
            && is_wide
            && facts.takes([KeyWindows::Off, KeyWindows::On], None, why, None)?;
        Ok(if takes_them { prunes.clone() } else { Vec::new() })
    }
}

/// The filters in two parts, of which one may be a search of batches of texts; or why no selection vector is made of them.
fn split_filters(facts: &Facts<'_>) -> Result<Result<WideFilters, String>, Unsupported> {
    let Facts { pipeline, environment, .. } = *facts;
    let on = (environment.target, environment.shape);
    let is_possible = |filters: &WideFilters| match facts.places {
        WritePlaces::Selection if !filters.is_all(pipeline) => {
            Err("the result is written from selections, and a filter has no form for several rows"
                .to_string())
        }
        _ => Ok(()),
    };
    let mut filters = WideFilters::of(pipeline, on, true);
    if let Some(search) = &filters.search {
        let why_not = search.as_ref().map_err(String::clone).and_then(|_| is_possible(&filters)).err();
        let why = search.as_ref().map_or(Err(""), |search| search.why(filters.share_searched(pipeline)));
        let values = [TextSearch::Rows, TextSearch::Batches];
        if !facts.takes(values, why_not.as_deref(), facts.in_resolution(why), None)? {
            filters = WideFilters::of(pipeline, on, false);
        }
    }
    Ok(is_possible(&filters).map(|()| filters))
}

impl Candidate for Selected {
    fn why(&self) -> Result<&'static str, &'static str> {
        let filters = self.filters.as_ref();
        match () {
            () if filters.is_some_and(|filters| filters.found().is_some()) => {
                Ok("texts are searched batch by batch")
            }
            () if !self.runtime_filters.is_empty() => Ok("branches of joins would be foretold badly"),
            () if filters.is_some_and(|filters| filters.share > MOST_SELECTED) => {
                Err("filters keep nearly all rows")
            }
            () => Ok("branches of filters would be foretold badly"),
        }
    }

    fn settle(&mut self, facts: &Facts<'_>) -> Result<(), Unsupported> {
        self.windows = self.windows(facts)?;
        self.batched = Batched::choose(facts)?;
        self.rows = selection_rows(facts)?;
        if let Some(batched) = &mut self.batched {
            batched.rows = self.rows;
        }
        Ok(())
    }
}

impl RowLoopStrategy for Selected {
    fn rest(&self, step: usize) -> Rest<'_> {
        match &self.filters {
            _ if self.runtime_filters.contains(&step) => Rest::Nothing,
            Some(filters) => filters.rest(step),
            None => Rest::Step,
        }
    }

    fn emit(&self, body: &Body<'_>, cx: &mut Context<'_>, emitter: &mut dyn Emitter) -> Emitted {
        let morsels = Morsels::of(body, cx)?;
        // A wide row is written as a whole behind those that are selected.
        let room = self.rows as u32 + u32::from(WIDE_ROWS);
        let selection = cx.builder.shared("selection", Pointee::Scalar(Scalar::U32), room);
        let look_ups = self.batched.as_ref().and_then(|batched| batched.begin(body, cx, Some(selection)));
        let array = body.sink.staged().filter(|_| body.variants.places == WritePlaces::Selection);
        let flow = body.variants.alone.flow();
        let selecting = Selecting { selected: self, body, selection };
        morsels.each(cx, emitter, &mut |cx, rows, emitter| {
            selecting.each_batch(cx, rows, &mut |cx, batch| match (array, &look_ups) {
                (Some(array), _) => write(body, cx, batch, array),
                (None, Some(look_ups)) => look_ups.batch(cx, Coming::Selected(batch), emitter),
                (None, None) => {
                    batch.each(cx, |cx, _, row| body.row_in(cx, row, (flow, Pass::Rest), emitter))
                }
            })
        })
    }
}

/// Rows that were selected: so many, as distances from a row, in a selection vector.
pub(super) struct Batch {
    pub(super) from: V,
    pub(super) selection: V,
    pub(super) count: V,
}

impl Batch {
    /// `body(place, row)` for each of them.
    pub(super) fn each(
        &self,
        cx: &mut Context<'_>,
        body: impl FnOnce(&mut Context<'_>, V, V) -> Emitted,
    ) -> Emitted {
        let zero = cx.builder.i64(0);
        for_range(cx, "place", zero, self.count, |cx, place| {
            let (row, _) = self.row(cx, place);
            body(cx, place, row)
        })
    }

    /// The row at a place of the selection vector, and its distance (`u32`).
    fn row(&self, cx: &mut Context<'_>, place: V) -> (V, V) {
        let distance = cx.builder.offset(self.selection, place);
        let distance = cx.builder.load(distance);
        let wide = cx.builder.convert(distance, Scalar::I64);
        (cx.builder.add(self.from, wide), distance)
    }
}

/// Writes the selected rows to their places in an array.
fn write(body: &Body<'_>, cx: &mut Context<'_>, batch: &Batch, array: &dyn Dense) -> Emitted {
    let places = cx.builder.bitcast(batch.count, Scalar::U64);
    let first = array.reserve(cx, places);
    batch.each(cx, |cx, place, row| {
        body.pipeline.source.bind(cx, row)?;
        body.steps(cx, (Flow::Branch, Pass::Projections), &mut |cx, _| {
            let place = cx.builder.bitcast(place, Scalar::U64);
            let position = cx.builder.add(first, place);
            array.write(cx, position, body.needed)
        })?;
        cx.end_row();
        cx.end_scratch_row();
        Ok(())
    })
}

/// The selection in a kernel, into a vector in the worker's memory.
struct Selecting<'s> {
    selected: &'s Selected,
    body: &'s Body<'s>,
    selection: V,
}

/// The rows of a batch (`i64`), and how many of them are selected so far.
struct Range {
    from: V,
    to: V,
    selected: Var,
}

impl Selecting<'_> {
    /// Two passes a batch of the rows from one up to another: the filters, or their part for wide rows, make the selection vector, then
    /// `use_batch` uses it.
    fn each_batch(
        &self,
        cx: &mut Context<'_>,
        (start, end): (V, V),
        use_batch: &mut dyn FnMut(&mut Context<'_>, &Batch) -> Emitted,
    ) -> Emitted {
        let Selected { filters, windows, rows, .. } = self.selected;
        let windows = windows.iter().map(|prune| Window::begin(cx, prune)).collect::<Vec<_>>();
        let search = filters.as_ref().and_then(WideFilters::found);
        let search = search.map(|search| search.begin(cx, *rows as u32));
        let batch = cx.builder.var_of("batch", start);
        cx.begin_loop();
        let from = cx.builder.read(batch);
        let done = cx.builder.ge(from, end);
        cx.builder.break_if(done);
        let to = cx.builder.add_int(from, *rows as i64);
        let to = cx.builder.binary(BinaryOp::Min, to, end);
        let none = cx.builder.i64(0);
        let range = Range { from, to, selected: cx.builder.var_of("selected", none) };
        let mut runtime_filters = self.runtime_filters()?.into_iter();
        match filters {
            Some(filters) if filters.why_not.is_none() => {
                let may_pass = search.as_ref().map(|search| search.batch(cx, (from, to)));
                if let Some(may_pass) = may_pass {
                    cx.begin_if(may_pass);
                }
                self.select_wide(cx, &range, (filters, &windows), search.as_ref())?;
                if may_pass.is_some() {
                    cx.end();
                }
            }
            Some(_) => {
                let first =
                    runtime_filters.next().ok_or_else(|| Unsupported::internal("nothing selects rows"))?;
                for_range_unrolled(cx, "row", from, to, &mut |cx, row| {
                    let distance = cx.builder.sub(row, from);
                    let distance = cx.builder.convert(distance, Scalar::U32);
                    self.sift(cx, first, (row, distance), range.selected)
                })?
            }
            None => for_range(cx, "row", from, to, |cx, row| self.select(cx, row, &range))?,
        }
        for runtime_filter in runtime_filters {
            // A distance is written at its own place or before, so never over one that was not read yet.
            let before = Batch { from, selection: self.selection, count: cx.builder.read(range.selected) };
            cx.builder.assign(range.selected, none);
            let zero = cx.builder.i64(0);
            for_range_unrolled(cx, "place", zero, before.count, &mut |cx, place| {
                let row = before.row(cx, place);
                self.sift(cx, runtime_filter, row, range.selected)
            })?;
        }
        let count = cx.builder.read(range.selected);
        use_batch(cx, &Batch { from, selection: self.selection, count })?;
        cx.builder.assign(batch, to);
        cx.end();
        Ok(())
    }

    /// The runtime filters by which rows are selected.
    fn runtime_filters(&self) -> Result<Vec<&dyn RuntimeFilter>, Unsupported> {
        let steps = &self.body.pipeline.steps;
        let of_step = |index: &usize| steps.get(*index).and_then(|step| step.runtime_filter());
        let runtime_filters = self.selected.runtime_filters.iter().map(of_step);
        runtime_filters.collect::<Option<_>>().ok_or_else(|| Unsupported::internal("no step selects rows"))
    }

    /// Appends a row, given with its distance, to the selection vector if it passes a runtime filter: without a branch.
    fn sift(
        &self,
        cx: &mut Context<'_>,
        runtime_filter: &dyn RuntimeFilter,
        (row, distance): (V, V),
        selected: Var,
    ) -> Emitted {
        self.body.pipeline.source.bind(cx, row)?;
        let passes = runtime_filter.passes(cx)?;
        let b = &mut *cx.builder;
        let count = b.read(selected);
        let pointer = b.offset(self.selection, count);
        b.store(pointer, distance);
        let count = b.add(count, passes);
        b.assign(selected, count);
        cx.end_row();
        Ok(())
    }

    /// Appends the row to the selection vector if it passes the filters: without a branch where that is possible.
    fn select(&self, cx: &mut Context<'_>, row: V, range: &Range) -> Emitted {
        let flow = match self.body.variants.speculation.of_all_steps() {
            true => Flow::Flag { active: None },
            false => Flow::Branch,
        };
        self.body.enter(cx, row, (flow, Pass::Filters), &mut |cx, flow| {
            let count = cx.builder.read(range.selected);
            let pointer = cx.builder.offset(self.selection, count);
            let distance = cx.builder.sub(row, range.from);
            let distance = cx.builder.convert(distance, Scalar::U32);
            cx.builder.store(pointer, distance);
            let step = match flow.active() {
                Some(active) => cx.builder.convert(active, Scalar::I64),
                None => cx.builder.i64(1),
            };
            let count = cx.builder.add(count, step);
            cx.builder.assign(range.selected, count);
            Ok(())
        })?;
        cx.end_row();
        cx.end_scratch_row();
        Ok(())
    }

    /// Appends the rows that pass the filters' part for wide rows.
    fn select_wide(
        &self,
        cx: &mut Context<'_>,
        range: &Range,
        (filters, windows): (&WideFilters, &[Window]),
        search: Option<&Searching<'_>>,
    ) -> Emitted {
        let &Range { from, to, selected } = range;
        let iota = cx.builder.iota(Scalar::U32, WIDE_ROWS);
        for_wide_range(cx, (from, to), &mut |cx, row, is_wide| {
            if is_wide {
                cx.begin_wide();
            }
            self.body.pipeline.source.bind(cx, row)?;
            // For single rows windows are left out: they only spare looking up what is not there.
            let windows = if is_wide { windows } else { &[] };
            let within = windows.iter().filter_map(|window| window.holds(cx)).collect::<Vec<_>>();
            let found = search.map(|search| search.passes(cx, row, from));
            let tried = within.into_iter().chain(found).reduce(|a, b| cx.builder.and(a, b));
            let passes = filters.passes(cx, &self.body.pipeline.steps, tried);
            cx.end_wide();
            let passes = passes?;
            let b = &mut *cx.builder;
            let count = b.read(selected);
            let pointer = b.offset(self.selection, count);
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
