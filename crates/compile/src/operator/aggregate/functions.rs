//! Aggregate functions as cells: which cells a list of aggregates needs, what a row contributes to each, and how the
//! results are read from them.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, OverflowOp, Scalar};

use super::cells::{self, CellOp};
use crate::context::{Context, Lowered, Repr, Status, Unsupported, register_of};
use crate::expr::{Expr, lower};
use crate::pipeline::ColumnInfo;
use crate::plan::{Aggregate, AggregateFunction};
use crate::types::{DataType, Range};

/// What a row contributes to a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Contribution {
    /// 1.
    Row,
    /// 1 where the argument is not NULL.
    Valid(Expr),
    /// The argument; nothing where it is NULL.
    Value(Expr),
    /// The order key of the argument, or its complement (so that a minimum is a maximum); nothing where it is NULL.
    Key {
        /// The argument.
        argument: Expr,
        /// For a minimum.
        complement: bool,
    },
}

/// A cell of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// How it is updated.
    pub op: CellOp,
    /// With what.
    pub contribution: Contribution,
    /// Position of its first word in the group's words.
    pub word: u32,
    /// Bounds of a row's contribution to a sum of integers.
    pub bounds: Option<Range>,
}

/// How an aggregate's result is read from the cells.
#[derive(Debug, Clone)]
struct Reading {
    aggregate: Aggregate,
    /// The cell of the sum, extreme or count.
    value: usize,
    /// The cell that counts the rows that took part.
    count: usize,
    /// Whether a group (which has at least one row) can be without a row that took part.
    can_be_empty: bool,
    range: Option<Range>,
}

/// The cells of a list of aggregates; equal cells are shared.
#[derive(Debug, Clone, Default)]
pub struct Cells {
    /// In the order of their words.
    pub cells: Vec<Cell>,
    readings: Vec<Reading>,
}

impl Cells {
    /// Plans the cells. `row_bound`: an upper bound of the rows, which decides how wide sums must be. `grouped`: a
    /// group exists only where a row made it.
    pub fn plan(
        aggregates: &[Aggregate],
        columns: &[ColumnInfo],
        row_bound: u64,
        grouped: bool,
    ) -> Result<Cells, Unsupported> {
        let mut cells = Cells::default();
        for aggregate in aggregates {
            let reading = cells.plan_one(aggregate, columns, row_bound, grouped)?;
            cells.readings.push(reading);
        }
        Ok(cells)
    }

    /// Words of a group.
    pub fn words(&self) -> u32 {
        self.cells.iter().map(|cell| cell.op.words()).sum()
    }

    /// The cell that counts rows, added where it is not there yet.
    pub fn row_count(&mut self) -> usize {
        self.cell(CellOp::Add, Contribution::Row, Some(Range::new(0, 1)))
    }

    fn cell(&mut self, op: CellOp, contribution: Contribution, bounds: Option<Range>) -> usize {
        let known = self.cells.iter().position(|cell| cell.op == op && cell.contribution == contribution);
        known.unwrap_or_else(|| {
            let word = self.words();
            self.cells.push(Cell { op, contribution, word, bounds });
            self.cells.len() - 1
        })
    }

    fn plan_one(
        &mut self,
        aggregate: &Aggregate,
        columns: &[ColumnInfo],
        row_bound: u64,
        grouped: bool,
    ) -> Result<Reading, Unsupported> {
        let aggregate = aggregate.clone();
        let Some(argument) = aggregate.argument.clone() else {
            if aggregate.function != AggregateFunction::Count {
                return Err(Unsupported(format!("{:?} without an argument", aggregate.function)));
            }
            let value = self.row_count();
            return Ok(Reading {
                aggregate,
                value,
                count: value,
                can_be_empty: false,
                range: count_range(row_bound),
            });
        };
        let info = crate::pipeline::column_of(&argument, columns);
        let count = match info.nullable {
            true => self.cell(CellOp::Add, Contribution::Valid(argument.clone()), Some(Range::new(0, 1))),
            false => self.row_count(),
        };
        let can_be_empty = info.nullable || !grouped;
        let bounds = info.range.or_else(|| info.data_type.full_range());
        let (value, range) = match aggregate.function {
            AggregateFunction::Count => (count, count_range(row_bound)),
            AggregateFunction::Sum | AggregateFunction::Avg => {
                self.plan_sum(argument, &info, bounds, row_bound)?
            }
            AggregateFunction::Min | AggregateFunction::Max => {
                let complement = aggregate.function == AggregateFunction::Min;
                (self.plan_extreme(argument, &info, bounds, complement)?, info.range)
            }
        };
        Ok(Reading { aggregate, value, count, can_be_empty, range })
    }

    fn plan_sum(
        &mut self,
        argument: Expr,
        info: &ColumnInfo,
        bounds: Option<Range>,
        row_bound: u64,
    ) -> Result<(usize, Option<Range>), Unsupported> {
        if info.data_type.is_float() {
            return Ok((self.cell(CellOp::AddFloat, Contribution::Value(argument), None), None));
        }
        let bounds = match (&info.data_type, bounds) {
            (DataType::Decimal128 { .. }, Some(bounds)) => bounds,
            // Sums of integers wrap at 64 bits, as DataFusion's.
            (integer, Some(bounds)) if integer.is_integer() => {
                let total =
                    total_range(bounds, row_bound).filter(|total| register_of(*total) != Scalar::I128);
                return Ok((self.cell(CellOp::Add, Contribution::Value(argument), Some(bounds)), total));
            }
            (other, _) => return Err(Unsupported(format!("sum of {other}"))),
        };
        let total = total_range(bounds, row_bound);
        let op = match total {
            Some(total) if register_of(total) != Scalar::I128 => CellOp::Add,
            _ => CellOp::AddWide,
        };
        Ok((self.cell(op, Contribution::Value(argument), Some(bounds)), total))
    }

    fn plan_extreme(
        &mut self,
        argument: Expr,
        info: &ColumnInfo,
        bounds: Option<Range>,
        complement: bool,
    ) -> Result<usize, Unsupported> {
        match (&info.data_type, bounds) {
            (DataType::Utf8, _) => return Err(Unsupported("minimum and maximum of text".into())),
            (_, Some(bounds)) if register_of(bounds) == Scalar::I128 => {
                return Err(Unsupported(format!("minimum and maximum of {} beyond 64 bits", info.data_type)));
            }
            _ => {}
        }
        Ok(self.cell(CellOp::Max, Contribution::Key { argument, complement }, None))
    }

    /// The aggregates' columns.
    pub fn columns(&self) -> Vec<ColumnInfo> {
        let describe = |reading: &Reading| ColumnInfo {
            data_type: reading.aggregate.field.data_type.clone(),
            nullable: reading.can_be_empty && reading.aggregate.function != AggregateFunction::Count,
            range: reading.range.filter(|_| reading.aggregate.function != AggregateFunction::Avg),
            dictionary: None,
        };
        self.readings.iter().map(describe).collect()
    }

    /// The current row's contribution to a cell: zero where `active` is false.
    pub fn contribution(cx: &mut Context<'_>, cell: &Cell, active: Option<V>) -> Result<V, Unsupported> {
        let (value, live) = match &cell.contribution {
            Contribution::Row => (cx.builder.u64(1), active),
            Contribution::Valid(argument) => {
                let argument = lower(cx, argument)?;
                (cx.builder.u64(1), both(cx, active, argument.valid))
            }
            Contribution::Value(argument) => {
                let argument = lower(cx, argument)?;
                let live = both(cx, active, argument.valid);
                let Repr::Scalar(value) = argument.repr else {
                    return Err(Unsupported("sum of text".into()));
                };
                (addend(cx, cell.op, value), live)
            }
            Contribution::Key { argument, complement } => {
                let argument = lower(cx, argument)?;
                let live = both(cx, active, argument.valid);
                let key = cells::order_key(cx, &argument)?;
                (if *complement { cx.builder.not(key) } else { key }, live)
            }
        };
        Ok(match live {
            None => value,
            Some(live) => {
                let zero = cx.builder.zero(cell.op.scalar());
                cx.builder.select(live, value, zero)
            }
        })
    }

    /// The aggregates' results; `words` gives the address (`ptr<u64>`) of a word of the group.
    pub fn results(
        &self,
        cx: &mut Context<'_>,
        mut words: impl FnMut(&mut Context<'_>, u32) -> V,
    ) -> Result<Vec<Lowered>, Unsupported> {
        let mut results = Vec::new();
        for reading in &self.readings {
            let cell = &self.cells[reading.value];
            let pointer = words(cx, cell.word);
            let value = cells::read_cell(cx, cell.op, pointer);
            let count_pointer = words(cx, self.cells[reading.count].word);
            let count = cx.builder.load(count_pointer);
            results.push(reading.result(cx, cell.op, value, count)?);
        }
        Ok(results)
    }
}

impl Reading {
    fn result(&self, cx: &mut Context<'_>, op: CellOp, value: V, count: V) -> Result<Lowered, Unsupported> {
        let b = &mut *cx.builder;
        let zero = b.u64(0);
        let valid = self.can_be_empty.then(|| b.ne(count, zero));
        let data_type = &self.aggregate.field.data_type;
        let scalar = |value, valid, range| Ok(Lowered { repr: Repr::Scalar(value), valid, range });
        match self.aggregate.function {
            AggregateFunction::Count => {
                let register = self.range.map_or(Scalar::I64, register_of);
                let value = b.convert(value, register);
                scalar(value, None, self.range)
            }
            AggregateFunction::Sum => {
                let range = self.range.or_else(|| data_type.full_range());
                let value = sum_value(cx, op, value, range, data_type);
                scalar(value, valid, range.filter(|_| !data_type.is_float()))
            }
            AggregateFunction::Min | AggregateFunction::Max => {
                let key = match self.aggregate.function {
                    AggregateFunction::Min => b.not(value),
                    _ => value,
                };
                let range = self.range.or_else(|| data_type.full_range());
                let register = register_type(data_type, range);
                // Without a row the key is 0, whose value is some extreme; it is NULL, so any value will do.
                let value = cells::value_of_order_key(cx, key, register);
                scalar(value, valid, range.filter(|_| !data_type.is_float()))
            }
            AggregateFunction::Avg => {
                let value = average(cx, op, value, count, &self.aggregate, valid)?;
                let range = data_type.full_range();
                scalar(value, valid, range)
            }
        }
    }
}

/// The register type of a value of `data_type` within `range`.
pub fn register_type(data_type: &DataType, range: Option<Range>) -> Scalar {
    match data_type {
        DataType::Boolean => Scalar::Bool,
        DataType::Float32 => Scalar::F32,
        DataType::Float64 => Scalar::F64,
        _ => range.or_else(|| data_type.full_range()).map_or(Scalar::I64, register_of),
    }
}

fn count_range(row_bound: u64) -> Option<Range> {
    Some(Range::new(0, i64::try_from(row_bound).unwrap_or(i64::MAX)))
}

/// Bounds of the sum of up to `rows` values.
fn total_range(bounds: Range, rows: u64) -> Option<Range> {
    let rows = i128::from(rows);
    let (min, max) = (bounds.min.min(0).checked_mul(rows)?, bounds.max.max(0).checked_mul(rows)?);
    Some(Range { min, max })
}

fn both(cx: &mut Context<'_>, a: Option<V>, b: Option<V>) -> Option<V> {
    match (a, b) {
        (Some(a), Some(b)) => Some(cx.builder.and(a, b)),
        (one, other) => one.or(other),
    }
}

/// A value as what the cell adds.
fn addend(cx: &mut Context<'_>, op: CellOp, value: V) -> V {
    let b = &mut *cx.builder;
    match op {
        CellOp::Add => {
            let wide = b.convert(value, Scalar::I64);
            b.bitcast(wide, Scalar::U64)
        }
        other => b.convert(value, other.scalar()),
    }
}

/// A sum as a value of its type.
fn sum_value(cx: &mut Context<'_>, op: CellOp, sum: V, range: Option<Range>, data_type: &DataType) -> V {
    let b = &mut *cx.builder;
    match op {
        CellOp::AddFloat => {
            b.convert(sum, if *data_type == DataType::Float32 { Scalar::F32 } else { Scalar::F64 })
        }
        CellOp::AddWide => {
            let register = range.map_or(Scalar::I128, register_of);
            b.convert(sum, register)
        }
        CellOp::Add | CellOp::Max => {
            let register = range.map_or(Scalar::I64, register_of);
            match data_type {
                DataType::UInt64 => b.convert(sum, register),
                _ => {
                    let signed = b.bitcast(sum, Scalar::I64);
                    b.convert(signed, register)
                }
            }
        }
    }
}

/// The mean: floats by division; decimals as DataFusion's `DecimalAverager`: the sum scaled up to the result's scale,
/// divided towards zero.
fn average(
    cx: &mut Context<'_>,
    op: CellOp,
    sum: V,
    count: V,
    aggregate: &Aggregate,
    valid: Option<V>,
) -> Result<V, Unsupported> {
    let result = &aggregate.field.data_type;
    if op == CellOp::AddFloat {
        let count = cx.builder.convert(count, Scalar::F64);
        return Ok(cx.builder.div(sum, count));
    }
    let argument = aggregate.argument.as_ref().map(|argument| &argument.data_type);
    let (Some(DataType::Decimal128 { scale: from, .. }), DataType::Decimal128 { scale: to, .. }) =
        (argument, result)
    else {
        return Err(Unsupported(format!("average of type {result} over integers")));
    };
    let digits = u32::try_from(to - from).map_err(|_| Unsupported(format!("average of type {result}")))?;
    let register = result.full_range().map_or(Scalar::I128, register_of);
    let b = &mut *cx.builder;
    let sum = match op {
        CellOp::Add => b.bitcast(sum, Scalar::I64),
        _ => sum,
    };
    let sum = b.convert(sum, Scalar::I128);
    let factor = b.int(Scalar::I128, 10i128.pow(digits));
    let overflow = b.overflows(OverflowOp::Mul, sum, factor);
    let overflow = match valid {
        Some(valid) => b.and(overflow, valid),
        None => overflow,
    };
    b.begin_if(overflow);
    b.report(Status::Overflow as u32);
    b.end();
    let scaled = b.mul(sum, factor);
    let count = b.convert(count, Scalar::I128);
    let mean = b.binary(BinaryOp::Div, scaled, count);
    Ok(b.convert(mean, register))
}
