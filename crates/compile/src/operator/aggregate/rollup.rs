//! Coarser groups from finer ones: an aggregation whose rows are the groups of another that has its keys and more.
//!
//! What is handed on are not results but cells. A cell takes what another cell of its kind holds as it takes the contribution of a
//! row, as copies of a group in the memory of threads and blocks are merged too. So every function does it without a rule of
//! its own (means, variances, sums of decimals beyond their type, counts of nothing), and the coarser groups hold what they
//! would hold of the rows themselves, but that floats are added up in another order. That order is nobody's: it has always
//! been that in which threads and blocks come. Results, with the errors of sums beyond their type, are read of those groups
//! only that somebody wants. Only what counts equal values once cannot be told from cells.
//!
//! It can be told from the keys of the finer groups where the value is one of them: then each group of a coarser group has another
//! value, and brings it once ([`cells_of_values`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

use super::functions::{
    Cell, CellOp, Cells, Contribution, ContributionForm, Origin, counts_once, is_sparse, word_pointer,
};
use super::operator::AggregateOperator;
use crate::context::{Argument, Context, Lowered, Repr, Unsupported, register_of};
use crate::expr::{Expr, ExprKind, substitute};
use crate::layout::ColumnInfo;
use crate::operator::roles::Source;
use crate::plan::Aggregate;
use crate::program::RowCount;
use crate::types::{DataType, Range};

/// The cells of groups of `finer`'s groups, whose cells' parts are columns from `first` on.
pub(crate) fn cells_of_groups(
    finer: &AggregateOperator,
    grouped: bool,
    first: usize,
) -> Result<Cells, Unsupported> {
    let mut cells = finer.origin.cells(grouped)?;
    if !cells.distinct.is_empty() {
        return Err(Unsupported::internal("values that count once, of groups"));
    }
    take_groups((finer, first), &mut cells.cells.iter_mut())?;
    Ok(cells)
}

/// The same of aggregates some of which count equal values once, and what they are planned by. Of these the arguments are over the
/// columns of [`GroupCells`], where they are computed of one key of `finer` without making two values equal. The others are `finer`'s
/// aggregates, in their order.
pub(crate) fn cells_of_values(
    finer: &AggregateOperator,
    aggregates: &[Aggregate],
    grouped: bool,
) -> Result<(Cells, Origin), Unsupported> {
    let Origin { aggregates: known, columns, row_bound } = &*finer.origin;
    let mut known = known.iter();
    // They are planned over the columns of the rows, and behind these the keys of `finer`.
    let first = columns.len();
    let own = |aggregate: &Aggregate| match counts_once(aggregate) {
        true => {
            let argument =
                aggregate.argument.as_ref().map(|argument| renumbered(argument, &|key| key + first));
            Some(Aggregate { argument, ..aggregate.clone() })
        }
        false => known.next().cloned(),
    };
    let aggregates = aggregates.iter().map(own).collect::<Option<Vec<_>>>();
    let aggregates = aggregates.ok_or_else(|| Unsupported::internal("an aggregate that groups lack"))?;
    let columns = columns.iter().chain(&finer.key_columns).cloned().collect();
    let origin = Origin { aggregates, columns, row_bound: *row_bound };
    let mut cells = origin.cells(grouped)?;
    cells.distinct.clear();
    let (once, of_rows): (Vec<_>, Vec<_>) = cells.cells.iter_mut().partition(|cell| cell.distinct.is_some());
    take_groups((finer, finer.key_columns.len()), &mut of_rows.into_iter())?;
    for cell in once {
        cell.distinct = None;
        cell.is_sparse = is_sparse(cell, &origin.columns);
        for argument in &mut cell.contribution.arguments {
            *argument = renumbered(argument, &|column| column.saturating_sub(first));
        }
    }
    Ok((cells, origin))
}

/// The expression over columns with other numbers.
fn renumbered(expr: &Expr, number: &dyn Fn(usize) -> usize) -> Expr {
    substitute(expr, &|part| match part.kind {
        ExprKind::Column(column) => Some(Expr::column(number(column), part.data_type.clone(), part.nullable)),
        _ => None,
    })
}

/// Lets cells of rows take what the same cells of `finer`'s groups hold, the parts of whose cells are columns from `first` on.
fn take_groups(
    (finer, first): (&AggregateOperator, usize),
    cells: &mut dyn Iterator<Item = &mut Cell>,
) -> Result<(), Unsupported> {
    // Expressions of rows that waited in a batch were replaced, the order of cells was not.
    let known = finer.origin.cells(!finer.key_columns.is_empty())?;
    for cell in cells {
        let same = |known: &Cell| (known.op, &known.contribution) == (cell.op, &cell.contribution);
        let position = known.cells.iter().position(same);
        let parts = position.and_then(|position| part_columns(finer, position, (cell.op, first)));
        let parts = parts.ok_or_else(|| Unsupported::internal("a cell that finer groups do not have"))?;
        if matches!(cell.op, CellOp::Add | CellOp::AddWide) {
            cell.bounds = cell.total(finer.origin.row_bound);
        }
        let counts_rows = cell.contribution.form == ContributionForm::Row;
        cell.contribution = Contribution { form: ContributionForm::Group { counts_rows }, arguments: parts };
    }
    Ok(())
}

/// The columns that have a cell's parts, where those of all cells are columns from `first` on.
fn part_columns(
    finer: &AggregateOperator,
    position: usize,
    (op, first): (CellOp, usize),
) -> Option<Vec<Expr>> {
    let known = finer.cells.unpacked();
    known.get(position).filter(|(known, _)| *known == op)?;
    let before: usize = known.iter().take(position).map(|(op, _)| op.parts().len()).sum();
    let columns = (first + before..).zip(op.parts());
    Some(columns.map(|(column, part)| Expr::column(column, part_type(*part), false)).collect())
}

/// A type whose registers hold any bits of a part.
fn part_type(part: Scalar) -> DataType {
    match part {
        Scalar::F64 => DataType::Float64,
        Scalar::I128 => DataType::Decimal128 { precision: 38, scale: 0 },
        _ => DataType::Int64,
    }
}

/// The groups with what their cells hold: keys, then the parts of each cell.
#[derive(Debug)]
pub(crate) struct GroupCells(pub Arc<AggregateOperator>);

displayed!(GroupCells = "cells of groups");

impl Source for GroupCells {
    fn rows(&self) -> RowCount {
        RowCount::Class(self.0.table.class())
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        self.0.key_columns.iter().map(ColumnInfo::stored).chain(columns_of_parts(&self.0)).collect()
    }

    fn live(&self, cx: &mut Context<'_>, row: V) -> Option<V> {
        self.0.table.present(cx, &self.0.cells, row)
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let AggregateOperator { table, key_columns, .. } = &*self.0;
        let mut columns = table.keys(cx, key_columns, row);
        columns.extend(parts_at(cx, &self.0, row));
        cx.begin_values(columns);
        Ok(())
    }

    /// All columns of a group are always there.
    fn read(&self, _columns: &BTreeSet<usize>, _states: &mut BTreeSet<usize>) {}
}

/// What is known of the parts of all cells.
fn columns_of_parts(groups: &AggregateOperator) -> impl Iterator<Item = ColumnInfo> {
    let parts = groups.cells.unpacked().into_iter().flat_map(|(op, _)| op.parts());
    parts.map(|part| ColumnInfo::new(part_type(*part), false, None))
}

/// The parts of all cells of the group in a slot (`i64`).
fn parts_at(cx: &mut Context<'_>, groups: &AggregateOperator, slot: V) -> Vec<Lowered> {
    let base = groups.table.words(cx, &groups.cells, slot);
    let mut parts = Vec::new();
    for (_, place) in groups.cells.unpacked() {
        let (_, own) = groups.cells.read(cx, place, &mut |cx, word| word_pointer(cx, base, word));
        for part in own {
            let value = match cx.builder.scalar(part) {
                Scalar::U64 => cx.builder.bitcast(part, Scalar::I64),
                _ => part,
            };
            parts.push(Lowered { repr: Repr::Scalar(value), valid: None, range: None });
        }
    }
    parts
}

/// Sorted runs of groups in the order in which their keys were merged: the parts of each cell, then the place of the group that
/// equal keys are to be one in.
#[derive(Debug)]
pub(crate) struct MergedCells {
    pub groups: Arc<AggregateOperator>,
    /// State that counts the groups, one `u64`.
    pub count: usize,
    /// State of one `u32` a group: where they lie, in order.
    pub order: usize,
    /// State of one `u32` a group in that order.
    pub places: usize,
}

impl MergedCells {
    pub fn place(&self) -> Expr {
        Expr::column(columns_of_parts(&self.groups).count(), DataType::Int64, false)
    }
}

displayed!(MergedCells = "merged cells of groups");

impl Source for MergedCells {
    fn rows(&self) -> RowCount {
        RowCount::Counted(self.count)
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        columns_of_parts(&self.groups).chain([place_column()]).collect()
    }

    fn has_every_row(&self) -> bool {
        true
    }

    fn live(&self, _cx: &mut Context<'_>, _row: V) -> Option<V> {
        None
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let order = cx.argument("order", Type::global(Scalar::U32), Argument::State(self.order));
        let slot = cx.builder.element(order, row);
        let slot = cx.builder.convert(slot, Scalar::I64);
        let mut columns = parts_at(cx, &self.groups, slot);
        columns.push(place_at(cx, self.places, row));
        cx.begin_values(columns);
        Ok(())
    }

    /// All columns of a group are always there.
    fn read(&self, _columns: &BTreeSet<usize>, _states: &mut BTreeSet<usize>) {}
}

/// What is known of places.
pub(crate) fn place_column() -> ColumnInfo {
    ColumnInfo::new(DataType::Int64, false, Some(PLACES))
}

/// The place of the row with a number (`i64`), from a state of one `u32` a row.
pub(crate) fn place_at(cx: &mut Context<'_>, state: usize, row: V) -> Lowered {
    let places = cx.argument("places", Type::global(Scalar::U32), Argument::State(state));
    let place = cx.builder.element(places, row);
    let place = cx.builder.convert(place, register_of(PLACES));
    Lowered { repr: Repr::Scalar(place), valid: None, range: Some(PLACES) }
}

/// Places of groups.
const PLACES: Range = Range { min: 0, max: (1 << 31) - 1 };
