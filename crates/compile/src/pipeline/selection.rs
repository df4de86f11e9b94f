//! A CPU's form of the local prefix sum: batches of rows in two passes, the first of which makes a selection vector in the
//! worker's memory; then there is one atomic a batch.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Scalar};

use super::body::Body;
use super::row::{Pass, for_range};
use crate::context::{Context, Unsupported};
use crate::operator::Flow;
use crate::table::places::Dense;

impl Body<'_> {
    /// Two passes a batch: the filters make the selection vector, then the selected rows are written to their places.
    pub(super) fn batches(
        &self,
        cx: &mut Context<'_>,
        (start, end): (V, V),
        selection: V,
        array: &dyn Dense,
    ) -> Result<(), Unsupported> {
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
        for_range(cx, "row", from, to, |cx, row| self.select(cx, row, from, selection, selected))?;
        let count = cx.builder.read(selected);
        let places = cx.builder.bitcast(count, Scalar::U64);
        let first = array.reserve(cx, places);
        let zero = cx.builder.i64(0);
        for_range(cx, "place", zero, count, |cx, place| {
            let offset = cx.builder.offset(selection, place);
            let offset = cx.builder.load(offset);
            let offset = cx.builder.convert(offset, Scalar::I64);
            let row = cx.builder.add(from, offset);
            self.pipeline.source.bind(cx, row)?;
            self.steps(cx, 0, Flow::Branch, Pass::Projections, &mut |cx, _| {
                let place = cx.builder.bitcast(place, Scalar::U64);
                let position = cx.builder.add(first, place);
                array.write(cx, position, self.needed)
            })?;
            cx.end_row();
            Ok(())
        })?;
        cx.builder.assign(batch, to);
        cx.end();
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
        Ok(())
    }
}
