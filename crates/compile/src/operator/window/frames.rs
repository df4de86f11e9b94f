//! The frame of a row: which rows of its partition a function sees there.

use kelpie_kir::BinaryOp;
use kelpie_kir::builder::V;

use super::WindowOperator;
use super::runs::{KeyRuns, Run};
use super::tree::FrameTree;
use crate::context::{Context, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::plan::{Frame, FrameBound, FrameUnits};
use crate::types::Literal;

/// More rows than there can be: distances beyond that are as good.
const FAR: i128 = 1 << 40;

/// A frame that functions have.
#[derive(Debug)]
pub(super) struct RowFrame {
    pub partition: usize,
    pub order: usize,
    pub frame: Frame,
    /// The key of the operator that distances are measured by.
    pub range_key: Option<usize>,
    /// What aggregates over it are made of.
    pub tree: Option<FrameTree>,
}

/// A row of a window among others, and the runs that it is in as far as they are known.
pub(super) struct RowInRuns<'o> {
    pub window: &'o WindowOperator,
    /// Its number in the order, and how many rows there are; `i64`.
    pub row: V,
    pub rows: V,
    known: Vec<(usize, Run)>,
}

impl<'o> RowInRuns<'o> {
    pub fn new(cx: &mut Context<'_>, window: &'o WindowOperator, row: V) -> RowInRuns<'o> {
        let rows = window.rows(cx);
        RowInRuns { window, row, rows, known: Vec::new() }
    }

    /// The row's run by so many first keys.
    pub fn run(&mut self, cx: &mut Context<'_>, keys: usize) -> Run {
        if let Some((_, run)) = self.known.iter().find(|(other, _)| *other == keys) {
            return *run;
        }
        let zero = cx.builder.i64(0);
        let run = match self.runs_of(keys) {
            None => Run { number: zero, start: zero, end: self.rows },
            Some(runs) => {
                let number = runs.number(cx, self.row);
                let (start, end) = (runs.start(cx, number), runs.end(cx, number));
                // Rows that are no more than what was counted are read behind these, whatever stands there.
                let start = cx.builder.binary(BinaryOp::Min, start, self.row);
                Run { number, start, end: cx.builder.binary(BinaryOp::Min, end, self.rows) }
            }
        };
        self.known.push((keys, run));
        run
    }

    fn runs_of(&self, keys: usize) -> Option<&'o KeyRuns> {
        self.window.runs.iter().find(|runs| runs.keys == keys)
    }

    /// The run of another row that there is, of which only the number is known.
    fn number_of(&self, cx: &mut Context<'_>, keys: usize, row: V) -> V {
        match self.runs_of(keys) {
            None => cx.builder.i64(0),
            Some(runs) => {
                let zero = cx.builder.i64(0);
                let row = cx.builder.binary(BinaryOp::Max, row, zero);
                runs.number(cx, row)
            }
        }
    }

    /// The number of the first run by some keys in a partition.
    pub fn first_number(&self, cx: &mut Context<'_>, keys: usize, partition: Run) -> V {
        self.number_of(cx, keys, partition.start)
    }

    /// Where the run with a number begins, or ends.
    fn edge_of(&self, cx: &mut Context<'_>, keys: usize, number: V, is_end: bool) -> V {
        match (self.runs_of(keys), is_end) {
            (None, false) => cx.builder.i64(0),
            (None, true) => self.rows,
            (Some(runs), false) => runs.start(cx, number),
            (Some(runs), true) => runs.end(cx, number),
        }
    }
}

impl RowFrame {
    /// The first row that a function sees and the one behind the last (`i64` each): those of its partition from one to the other,
    /// which may be none.
    pub fn bounds(&self, cx: &mut Context<'_>, row: &mut RowInRuns<'_>) -> Result<(V, V), Unsupported> {
        let start = self.bound(cx, row, &self.frame.start, false)?;
        let end = self.bound(cx, row, &self.frame.end, true)?;
        let partition = row.run(cx, self.partition);
        let b = &mut *cx.builder;
        // Rows outside are not to be looked at in any case.
        let start = b.binary(BinaryOp::Max, start, partition.start);
        let end = b.binary(BinaryOp::Min, end, partition.end);
        Ok((start, b.binary(BinaryOp::Max, end, start)))
    }

    /// Where the frame begins, or what is behind its end.
    fn bound(
        &self,
        cx: &mut Context<'_>,
        row: &mut RowInRuns<'_>,
        bound: &FrameBound,
        is_end: bool,
    ) -> Result<V, Unsupported> {
        let partition = row.run(cx, self.partition);
        let (distance, is_before) = match bound {
            FrameBound::UnboundedPreceding => return Ok(partition.start),
            FrameBound::UnboundedFollowing => return Ok(partition.end),
            FrameBound::CurrentRow if self.frame.units == FrameUnits::Rows => {
                let one = cx.builder.i64(i64::from(is_end));
                return Ok(cx.builder.add(row.row, one));
            }
            FrameBound::CurrentRow => {
                let peers = row.run(cx, self.order);
                return Ok(if is_end { peers.end } else { peers.start });
            }
            FrameBound::Preceding(distance) => (distance, true),
            FrameBound::Following(distance) => (distance, false),
        };
        if self.frame.units == FrameUnits::Range {
            return self.range_bound(cx, row, distance, (is_before, is_end));
        }
        let distance = rows_of(distance)?;
        let distance = cx.builder.i64(if is_before { -distance } else { distance });
        if self.frame.units == FrameUnits::Rows {
            let one = cx.builder.i64(i64::from(is_end));
            let bound = cx.builder.add(row.row, distance);
            let bound = cx.builder.add(bound, one);
            let bound = cx.builder.binary(BinaryOp::Max, bound, partition.start);
            return Ok(cx.builder.binary(BinaryOp::Min, bound, partition.end));
        }
        Ok(self.group_bound(cx, row, distance, is_end))
    }

    /// The bound that lies so many groups of peers (`i64`) behind the row's own, or before it.
    fn group_bound(&self, cx: &mut Context<'_>, row: &mut RowInRuns<'_>, distance: V, is_end: bool) -> V {
        let (partition, peers) = (row.run(cx, self.partition), row.run(cx, self.order));
        let one = cx.builder.i64(1);
        let last = cx.builder.sub(partition.end, one);
        let first = row.number_of(cx, self.order, partition.start);
        let last = row.number_of(cx, self.order, last);
        let b = &mut *cx.builder;
        let number = b.add(peers.number, distance);
        let (is_below, is_above) = (b.lt(number, first), b.lt(last, number));
        let clamped = b.binary(BinaryOp::Max, number, first);
        let clamped = b.binary(BinaryOp::Min, clamped, last);
        let edge = row.edge_of(cx, self.order, clamped, is_end);
        let b = &mut *cx.builder;
        let edge = b.select(is_below, partition.start, edge);
        b.select(is_above, partition.end, edge)
    }

    /// The bound at a distance of keys. Rows without a key see each other instead, and no others see them.
    fn range_bound(
        &self,
        cx: &mut Context<'_>,
        row: &mut RowInRuns<'_>,
        distance: &Expr,
        (is_before, is_end): (bool, bool),
    ) -> Result<V, Unsupported> {
        let key = self.range_key.and_then(|key| row.window.range_keys.get(key));
        let key = key.ok_or_else(|| Unsupported::internal("a frame over a range without a key"))?;
        let partition = row.run(cx, self.partition);
        let (target, valid) = key.moved(cx, distance, is_before)?;
        let Some(valid) = valid else {
            return Ok(key.search(cx, (partition.start, partition.end), target, is_end));
        };
        let peers = row.run(cx, self.order);
        let (from, to) = self.with_keys(cx, row, key.column, key.key.nulls_first)?;
        let found = key.search(cx, (from, to), target, is_end);
        let own = if is_end { peers.end } else { peers.start };
        Ok(cx.builder.select(valid, found, own))
    }

    /// The rows of the partition that have a key: those without are peers of each other at one end of it.
    fn with_keys(
        &self,
        cx: &mut Context<'_>,
        row: &mut RowInRuns<'_>,
        column: usize,
        nulls_first: bool,
    ) -> Result<(V, V), Unsupported> {
        let partition = row.run(cx, self.partition);
        let zero = cx.builder.i64(0);
        let at = match nulls_first {
            true => partition.start,
            false => {
                let one = cx.builder.i64(1);
                let last = cx.builder.sub(partition.end, one);
                cx.builder.binary(BinaryOp::Max, last, zero)
            }
        };
        let columns = row.window.sort.columns_at(cx, [column].into_iter(), at, None);
        cx.push_joined(columns);
        let value = cx.column(0)?;
        cx.pop_layer();
        let number = row.number_of(cx, self.order, at);
        let edge = row.edge_of(cx, self.order, number, nulls_first);
        let Some(valid) = value.valid else { return Ok((partition.start, partition.end)) };
        let b = &mut *cx.builder;
        Ok(match nulls_first {
            true => (b.select(valid, partition.start, edge), partition.end),
            false => (partition.start, b.select(valid, partition.end, edge)),
        })
    }
}

/// A distance of rows or groups.
fn rows_of(distance: &Expr) -> Result<i64, Unsupported> {
    match &distance.kind {
        ExprKind::Literal(Literal::Int(rows)) => Ok((*rows).clamp(0, FAR) as i64),
        _ => Err(Unsupported::internal("a frame whose distance is no number of rows")),
    }
}
