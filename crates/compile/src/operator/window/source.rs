//! The rows of a window in order, with the values of its functions, as a source.

use std::collections::BTreeSet;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use super::frames::RowInRuns;
use super::tree::FrameTree;
use super::valid_rows::ValidRows;
use super::{Call, Function, WindowOperator};
use crate::context::{Context, Lowered, Repr, Unsupported, register_of, register_type};
use crate::expr::{Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::lower::lower;
use crate::operator::roles::Source;
use crate::program::RowCount;
use crate::table::joined::Joined;
use crate::types::DataType;

/// The rows.
#[derive(Debug)]
pub(crate) struct WindowRows(pub Arc<WindowOperator>);

displayed!(WindowRows = "rows of a window");

/// A value of a function: a number, or what another row has in a stored column.
enum Found {
    Value(Lowered),
    /// The row (`i64`, readable) and whether there is one; the column, and what stands where there is none.
    Row {
        column: usize,
        row: V,
        present: V,
        default: Option<Expr>,
    },
}

impl Source for WindowRows {
    fn rows(&self) -> RowCount {
        RowCount::Counted(self.0.sort.delivered())
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        let stored = self.0.sort.infos().into_iter().take(self.0.width);
        stored.chain(self.0.functions.iter().map(|function| function.info.clone())).collect()
    }

    fn has_every_row(&self) -> bool {
        true
    }

    fn live(&self, _cx: &mut Context<'_>, _row: V) -> Option<V> {
        None
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let window = &*self.0;
        let stored = window.sort.infos().len();
        let columns = window.sort.columns_at(cx, 0..stored, row, None);
        cx.push_joined(columns);
        let mut own = RowInRuns::new(cx, window, row);
        let mut aggregates: Vec<Option<Vec<Lowered>>> = window.frames.iter().map(|_| None).collect();
        let mut found = Vec::new();
        for function in &window.functions {
            found.push(window.found(cx, &mut own, function, &mut aggregates)?);
        }
        window.push_found(cx, found, stored)
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        let window = &*self.0;
        let own = columns.iter().copied().filter(|column| *column < window.width);
        let looked_up = window.functions.iter().filter_map(|function| match function.call {
            Call::Shifted { column, .. } | Call::At { column, .. } => Some(column),
            _ => None,
        });
        let keys = window.range_keys.iter().map(|key| key.column);
        window.sort.read_columns(own.chain(looked_up).chain(keys), states);
        states.extend(window.runs.iter().flat_map(|runs| runs.states()));
        states.extend(window.valid_rows.iter().flat_map(|rows| rows.states()));
        states.extend(window.range_keys.iter().map(|key| key.values));
        let (whole, others): (Vec<_>, Vec<_>) = window.trees().partition(|tree| tree.partitions().is_some());
        states.extend(whole.into_iter().filter_map(FrameTree::partitions));
        states.extend(others.into_iter().flat_map(|tree| tree.levels().iter().copied()));
        states.insert(window.sort.delivered());
    }

    fn sums(&self) -> Vec<String> {
        let frames = self.0.frames.iter().filter_map(|frame| frame.tree.as_ref());
        frames.flat_map(|tree| tree.cells.names()).collect()
    }
}

impl WindowOperator {
    /// What a function gives at a row.
    fn found(
        &self,
        cx: &mut Context<'_>,
        row: &mut RowInRuns<'_>,
        function: &Function,
        aggregates: &mut [Option<Vec<Lowered>>],
    ) -> Result<Found, Unsupported> {
        let value = match &function.call {
            Call::Shifted { column, offset, default, valid_rows } => {
                let (row, present) = self.shifted(cx, row, function, (*offset, *valid_rows))?;
                return Ok(Found::Row { column: *column, row, present, default: default.clone() });
            }
            Call::At { column, place, valid_rows, frame } => {
                let (row, present) = self.at(cx, row, (*place, *valid_rows), *frame)?;
                return Ok(Found::Row { column: *column, row, present, default: None });
            }
            Call::Aggregate { frame, number } => {
                let own = self.frames.get(*frame).zip(aggregates.get_mut(*frame));
                let Some((frame, known)) = own else {
                    return Err(Unsupported::internal("an aggregate without its frame"));
                };
                let results = match known {
                    Some(results) => results,
                    None => {
                        let bounds = frame.bounds(cx, row)?;
                        let tree = frame.tree.as_ref();
                        let tree =
                            tree.ok_or_else(|| Unsupported::internal("an aggregate without its tree"))?;
                        let partition = row.run(cx, function.partition);
                        known.insert(tree.results(cx, bounds, partition.number)?)
                    }
                };
                let result = results.get(*number).cloned();
                return result
                    .map(Found::Value)
                    .ok_or_else(|| Unsupported::internal("an aggregate that is not there"));
            }
            ranked => self.ranked(cx, row, function, ranked),
        };
        let info = &function.info;
        let register = match info.range {
            Some(range) => register_of(range),
            None => register_type(&info.data_type, None),
        };
        let value = cx.builder.convert(value, register);
        Ok(Found::Value(Lowered { repr: Repr::Scalar(value), valid: None, range: info.range }))
    }

    /// A number that follows from a row's partition and peers: `i64` or `f64`.
    fn ranked(&self, cx: &mut Context<'_>, row: &mut RowInRuns<'_>, function: &Function, call: &Call) -> V {
        let partition = row.run(cx, function.partition);
        let one = cx.builder.i64(1);
        if let Call::RowNumber = call {
            let before = cx.builder.sub(row.row, partition.start);
            return cx.builder.add(before, one);
        }
        if let Call::Ntile(parts) = call {
            return ntile(cx, (row.row, partition.start, partition.end), *parts);
        }
        let peers = row.run(cx, function.order);
        let before = cx.builder.sub(peers.start, partition.start);
        let size = cx.builder.sub(partition.end, partition.start);
        match call {
            Call::DenseRank => {
                let first = row.first_number(cx, function.order, partition);
                let groups = cx.builder.sub(peers.number, first);
                cx.builder.add(groups, one)
            }
            Call::PercentRank => {
                let others = cx.builder.sub(size, one);
                // Of a single row 0 of 1.
                let others = cx.builder.binary(BinaryOp::Max, others, one);
                share(cx, before, others)
            }
            Call::CumeDist => {
                let until = cx.builder.sub(peers.end, partition.start);
                share(cx, until, size)
            }
            _ => cx.builder.add(before, one),
        }
    }

    /// The row so many after one in its partition, and whether there is one.
    fn shifted(
        &self,
        cx: &mut Context<'_>,
        row: &mut RowInRuns<'_>,
        function: &Function,
        (offset, valid_rows): (i64, Option<usize>),
    ) -> Result<(V, V), Unsupported> {
        let partition = row.run(cx, function.partition);
        let valid_rows = valid_rows.filter(|_| offset != 0);
        let Some(valid_rows) = valid_rows else {
            let distance = cx.builder.i64(offset);
            let target = cx.builder.add(row.row, distance);
            return Ok(within(cx, target, (partition.start, partition.end)));
        };
        let rows = self.valid_rows(valid_rows)?;
        let one = cx.builder.i64(1);
        // Before this row, or behind it, whether or not it has a value itself.
        let from = if offset > 0 { cx.builder.add(row.row, one) } else { row.row };
        let before = rows.before(cx, from);
        let distance = cx.builder.i64(if offset > 0 { offset - 1 } else { offset });
        let number = cx.builder.add(before, distance);
        let (least, end) = (rows.before(cx, partition.start), rows.before(cx, partition.end));
        let (number, present) = within(cx, number, (least, end));
        Ok((rows.row(cx, number, present), present))
    }

    /// The row at a place of a frame, and whether there is one.
    fn at(
        &self,
        cx: &mut Context<'_>,
        row: &mut RowInRuns<'_>,
        (place, valid_rows): (i64, Option<usize>),
        frame: usize,
    ) -> Result<(V, V), Unsupported> {
        let frame =
            self.frames.get(frame).ok_or_else(|| Unsupported::internal("a value without its frame"))?;
        let (start, end) = frame.bounds(cx, row)?;
        let rows = valid_rows.map(|rows| self.valid_rows(rows)).transpose()?;
        let (start, end) = match rows {
            Some(rows) => (rows.before(cx, start), rows.before(cx, end)),
            None => (start, end),
        };
        let distance = cx.builder.i64(if place > 0 { place - 1 } else { place });
        let target = cx.builder.add(if place > 0 { start } else { end }, distance);
        let (target, present) = within(cx, target, (start, end));
        Ok((rows.map_or(target, |rows| rows.row(cx, target, present)), present))
    }

    fn valid_rows(&self, number: usize) -> Result<&ValidRows, Unsupported> {
        self.valid_rows.get(number).ok_or_else(|| Unsupported::internal("rows that were not numbered"))
    }

    /// Makes the input's columns and what was found the row, which is that of the `stored` columns.
    fn push_found(&self, cx: &mut Context<'_>, found: Vec<Found>, stored: usize) -> Result<(), Unsupported> {
        let mut columns: Vec<Joined> = (0..stored).map(Joined::Below).collect();
        for found in &found {
            if let Found::Row { column, row, present, .. } = found {
                columns.extend(self.sort.columns_at(cx, [*column].into_iter(), *row, Some(*present)));
                let present = Lowered { repr: Repr::Scalar(*present), valid: None, range: None };
                columns.push(Joined::Value(present));
            }
        }
        cx.push_joined(columns);
        let mut place = stored;
        let mut columns: Vec<Joined> = (0..self.width).map(Joined::Below).collect();
        for (found, function) in found.into_iter().zip(&self.functions) {
            let default = match found {
                Found::Value(value) => {
                    columns.push(Joined::Value(value));
                    continue;
                }
                Found::Row { default, .. } => default,
            };
            let (value, present) = (place, place + 1);
            place += 2;
            columns.push(match default {
                None => Joined::Below(value),
                Some(default) => {
                    let data_type = function.info.data_type.clone();
                    let present = Expr::column(present, DataType::Boolean, false);
                    let value = Expr::column(value, data_type.clone(), true);
                    let branches = vec![(present, value)];
                    let kind = ExprKind::Case { branches, otherwise: Some(Box::new(default)) };
                    Joined::Value(lower(cx, &Expr { kind, data_type, nullable: true })?)
                }
            });
        }
        cx.push_joined(columns);
        Ok(())
    }
}

/// A number as one from the first to before the end, and whether it is one of these.
fn within(cx: &mut Context<'_>, number: V, (first, end): (V, V)) -> (V, V) {
    let b = &mut *cx.builder;
    let (from, to) = (b.ge(number, first), b.lt(number, end));
    let is_within = b.and(from, to);
    // Where there is no such row, that of the first place can be read all the same.
    let zero = b.i64(0);
    (b.select(is_within, number, zero), is_within)
}

/// One number (`i64`) over another, `f64`.
fn share(cx: &mut Context<'_>, part: V, whole: V) -> V {
    let b = &mut *cx.builder;
    let (part, whole) = (b.convert(part, Scalar::F64), b.convert(whole, Scalar::F64));
    b.div(part, whole)
}

/// The part of a partition that a row is in, from 1: the first parts have a row more where rows are left.
fn ntile(cx: &mut Context<'_>, (row, start, end): (V, V, V), parts: u64) -> V {
    let b = &mut *cx.builder;
    let (rows, place) = (b.sub(end, start), b.sub(row, start));
    let (parts, one) = (b.i64(i64::try_from(parts).unwrap_or(i64::MAX)), b.i64(1));
    let (size, larger) = (b.div(rows, parts), b.rem(rows, parts));
    let more = b.add(size, one);
    let in_larger = b.mul(larger, more);
    let is_larger = b.lt(place, in_larger);
    let left = b.div(place, more);
    let rest = b.sub(place, in_larger);
    // No row is behind the larger parts where the others are empty.
    let size = b.binary(BinaryOp::Max, size, one);
    let right = b.div(rest, size);
    let right = b.add(right, larger);
    let part = b.select(is_larger, left, right);
    b.add(part, one)
}
