//! A CPU's form of the local prefix sum: batches of rows in two passes, the first of which makes a selection vector in the
//! worker's memory; then there is one atomic a batch. Where filters have a form for wide rows, it is made of these. Runtime filters
//! make it shorter, one after the other and without a branch: a processor foretells badly which rows find a match, and a branch that
//! goes the other way costs it as much as trying five rows (Ross, "Selection Conditions in Main Memory", 2004).

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Scalar};

use super::body::Body;
use super::row::{Pass, for_range, for_range_unrolled};
use super::wide::WideFilters;
use super::windows::Window;
use crate::context::{Context, Unsupported};
use crate::operator::Flow;
use crate::operator::roles::RuntimeFilter;
use crate::table::places::Dense;

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
        body: impl FnOnce(&mut Context<'_>, V, V) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
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

impl Body<'_> {
    /// Two passes a batch: the filters, or their part for wide rows, make the selection vector, then `use_batch` uses it.
    pub(super) fn batches(
        &self,
        cx: &mut Context<'_>,
        (start, end): (V, V),
        selection: V,
        use_batch: &mut dyn FnMut(&mut Context<'_>, &Batch) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        let windows = self.variants.windows.iter().map(|prune| Window::begin(cx, prune)).collect::<Vec<_>>();
        let search = self.variants.wide_filters.as_ref().and_then(WideFilters::found);
        let search = search.map(|search| search.begin(cx, self.variants.selection.0 as u32));
        let batch = cx.builder.var_of("batch", start);
        cx.begin_loop();
        let from = cx.builder.read(batch);
        let done = cx.builder.ge(from, end);
        cx.builder.break_if(done);
        let size = cx.builder.i64(self.variants.selection.0 as i64);
        let to = cx.builder.add(from, size);
        let to = cx.builder.binary(BinaryOp::Min, to, end);
        let none = cx.builder.i64(0);
        let selected = cx.builder.var_of("selected", none);
        let mut runtime_filters = self.runtime_filters()?.into_iter();
        match &self.variants.wide_filters {
            Some(filters) if filters.lacks.is_none() => {
                let may_pass = search.as_ref().map(|search| search.batch(cx, (from, to)));
                if let Some(may_pass) = may_pass {
                    cx.begin_if(may_pass);
                }
                let filters = (filters, &windows[..], search.as_ref());
                self.select_wide(cx, filters, (from, to), (selection, selected))?;
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
                    self.sift(cx, first, (row, distance), (selection, selected))
                })?
            }
            None => {
                for_range(cx, "row", from, to, |cx, row| self.select(cx, row, from, selection, selected))?
            }
        }
        for runtime_filter in runtime_filters {
            // A distance is written at its own place or before, so never over one that was not read yet.
            let before = Batch { from, selection, count: cx.builder.read(selected) };
            cx.builder.assign(selected, none);
            let zero = cx.builder.i64(0);
            for_range_unrolled(cx, "place", zero, before.count, &mut |cx, place| {
                let row = before.row(cx, place);
                self.sift(cx, runtime_filter, row, (selection, selected))
            })?;
        }
        let count = cx.builder.read(selected);
        use_batch(cx, &Batch { from, selection, count })?;
        cx.builder.assign(batch, to);
        cx.end();
        Ok(())
    }

    /// Writes the selected rows to their places in an array.
    pub(super) fn write(
        &self,
        cx: &mut Context<'_>,
        batch: &Batch,
        array: &dyn Dense,
    ) -> Result<(), Unsupported> {
        let places = cx.builder.bitcast(batch.count, Scalar::U64);
        let first = array.reserve(cx, places);
        batch.each(cx, |cx, place, row| {
            self.pipeline.source.bind(cx, row)?;
            self.steps(cx, 0, Flow::Branch, Pass::Projections, &mut |cx, _| {
                let place = cx.builder.bitcast(place, Scalar::U64);
                let position = cx.builder.add(first, place);
                array.write(cx, position, self.needed)
            })?;
            cx.end_row();
            cx.end_scratch_row();
            Ok(())
        })
    }

    /// The runtime filters by which rows are selected.
    fn runtime_filters(&self) -> Result<Vec<&dyn RuntimeFilter>, Unsupported> {
        let of_step = |index: &usize| self.pipeline.steps.get(*index).and_then(|step| step.runtime_filter());
        let runtime_filters = self.variants.runtime_filters().iter().map(of_step);
        runtime_filters.collect::<Option<_>>().ok_or_else(|| Unsupported::internal("no step selects rows"))
    }

    /// Appends a row, given with its distance, to the selection vector if it passes a runtime filter: without a branch.
    fn sift(
        &self,
        cx: &mut Context<'_>,
        runtime_filter: &dyn RuntimeFilter,
        (row, distance): (V, V),
        (selection, selected): (V, Var),
    ) -> Result<(), Unsupported> {
        self.pipeline.source.bind(cx, row)?;
        let passes = runtime_filter.passes(cx)?;
        let b = &mut *cx.builder;
        let count = b.read(selected);
        let pointer = b.offset(selection, count);
        b.store(pointer, distance);
        let count = b.add(count, passes);
        b.assign(selected, count);
        cx.end_row();
        Ok(())
    }

    /// Appends the row to the selection vector if it passes the filters: without a branch where that is possible.
    fn select(
        &self,
        cx: &mut Context<'_>,
        row: V,
        from: V,
        selection: V,
        selected: Var,
    ) -> Result<(), Unsupported> {
        let flow =
            if self.variants.speculation.of_all_steps() { Flow::Flag { active: None } } else { Flow::Branch };
        self.enter(cx, row, flow, Pass::Filters, &mut |cx, flow| {
            let count = cx.builder.read(selected);
            let pointer = cx.builder.offset(selection, count);
            let offset = cx.builder.sub(row, from);
            let offset = cx.builder.convert(offset, Scalar::U32);
            cx.builder.store(pointer, offset);
            let step = match flow.active() {
                Some(active) => cx.builder.convert(active, Scalar::I64),
                None => cx.builder.i64(1),
            };
            let count = cx.builder.add(count, step);
            cx.builder.assign(selected, count);
            Ok(())
        })?;
        cx.end_row();
        cx.end_scratch_row();
        Ok(())
    }
}
