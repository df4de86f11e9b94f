//! Aggregate functions as cells: which cells a list of aggregates needs, what a row contributes to each, and how the
//! results are read from them.

use kelpie_kir::Scalar;
use kelpie_kir::builder::V;

use super::cells::CellOp;
use super::deviations::{self, ExactMoments};
use super::exact::{UpperBits, shift_for, upper_bits, upper_range};
use super::extremes::{OrderKey, pack_text};
use super::levels::group_contribution;
use super::packing::{self, CellPlace, Field, packed_contribution};
use super::reading::{Reading, ResultForm, SumCheck};
use super::sparse;
use crate::context::{Context, Lowered, Repr, Unsupported, register_of};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::lower::column_of;
use crate::lower::{can_fail, lower};
use crate::plan::{Aggregate, AggregateFunction};
use crate::types::{DataType, Range};

/// What a row contributes to a cell; nothing where the argument is NULL.
#[derive(Debug, Clone, PartialEq)]
pub enum Contribution {
    /// 1.
    Row,
    /// 1.
    Valid(Expr),
    /// The argument.
    Value(Expr),
    /// The bits of the argument, a decimal, from this one on.
    UpperBits {
        /// The argument.
        argument: Expr,
        /// The lowest bit.
        shift: u32,
    },
    /// The order key of the argument, or its complement (so that a minimum is a maximum).
    Key {
        /// The argument.
        argument: Expr,
        /// Its key.
        key: OrderKey,
        /// For a minimum.
        complement: bool,
    },
    /// The argument, a text.
    Text(Expr),
    /// The bits of the argument, or their complement (so that an "and" is an "or").
    Bits {
        /// The argument.
        argument: Expr,
        /// For an "and".
        complement: bool,
    },
    /// The moments of the argument alone.
    Moments(Expr),
    /// The argument, an integer or decimal, times itself.
    Square(Expr),
    /// What the same cell of a finer group holds.
    Group {
        /// Its parts.
        parts: Vec<Expr>,
        /// It counts rows.
        counts_rows: bool,
    },
    /// What rows contribute to several cells, as fields of a word.
    Packed {
        /// From the lowest bit on.
        fields: Vec<Field>,
        /// What they are made of.
        arguments: Vec<Expr>,
    },
}

impl Contribution {
    /// The expressions that are evaluated, to be replaced by equal ones.
    pub fn arguments_mut(&mut self) -> &mut [Expr] {
        match self {
            Contribution::Row => &mut [],
            Contribution::Group { parts, .. } => parts,
            Contribution::Packed { arguments, .. } => arguments,
            Contribution::Valid(argument)
            | Contribution::Value(argument)
            | Contribution::Text(argument)
            | Contribution::Moments(argument)
            | Contribution::Square(argument)
            | Contribution::UpperBits { argument, .. }
            | Contribution::Key { argument, .. }
            | Contribution::Bits { argument, .. } => std::slice::from_mut(argument),
        }
    }

    /// The expressions that are evaluated.
    pub fn arguments(&self) -> &[Expr] {
        match self {
            Contribution::Row => &[],
            Contribution::Group { parts, .. } => parts,
            Contribution::Packed { arguments, .. } => arguments,
            Contribution::Valid(argument)
            | Contribution::Value(argument)
            | Contribution::Text(argument)
            | Contribution::Moments(argument)
            | Contribution::Square(argument)
            | Contribution::UpperBits { argument, .. }
            | Contribution::Key { argument, .. }
            | Contribution::Bits { argument, .. } => std::slice::from_ref(argument),
        }
    }
}

/// A cell of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// How it is updated.
    pub op: CellOp,
    /// With what.
    pub contribution: Contribution,
    /// The set of [`Cells::distinct`] that lets a row contribute only where its value is new.
    pub distinct: Option<usize>,
    /// Position of its first word in the group's words.
    pub word: u32,
    /// Bounds of a row's contribution to a sum of integers, or of the keys of a maximum.
    pub bounds: Option<Range>,
    /// Rows often contribute nothing to it.
    pub is_sparse: bool,
}

impl Cell {
    /// Whether what it takes may be a text in scratch memory.
    pub fn takes_texts(&self) -> bool {
        !self.op.is_plain() && !matches!(self.contribution, Contribution::Group { .. })
    }

    /// What a sum of integers of so many rows may come to, and on the way.
    pub fn total(&self, rows: u64) -> Option<Range> {
        let bounds = self.bounds.filter(|_| matches!(self.op, CellOp::Add | CellOp::AddWide))?;
        let rows = i128::from(rows);
        let (min, max) = (bounds.min.min(0).checked_mul(rows)?, bounds.max.max(0).checked_mul(rows)?);
        Some(Range { min, max })
    }
}

/// The cells of a list of aggregates; equal cells are shared.
#[derive(Debug, Clone, Default)]
pub struct Cells {
    /// In the order of their words.
    pub cells: Vec<Cell>,
    /// Arguments of which a group counts equal values once.
    pub distinct: Vec<Expr>,
    readings: Vec<Reading>,
    /// Where the cells are that readings have the numbers of, once some are packed.
    pub(super) places: Vec<CellPlace>,
}

/// An aggregate while its cells are planned.
pub(super) struct CellPlan<'a> {
    pub aggregate: &'a Aggregate,
    pub argument: &'a Expr,
    pub info: ColumnInfo,
    bounds: Option<Range>,
    pub distinct: Option<usize>,
    pub row_bound: u64,
}

impl Cells {
    /// Whether threads that add to some of them wait for a lock.
    pub(super) fn have_locks(&self) -> bool {
        self.cells.iter().any(|cell| cell.op.is_locked())
    }

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
        cells.find_sparse(columns);
        Ok(cells)
    }

    /// Finds the cells to which rows with these columns often contribute nothing.
    pub(super) fn find_sparse(&mut self, columns: &[ColumnInfo]) {
        for cell in &mut self.cells {
            cell.is_sparse = sparse::is_sparse(cell, columns);
        }
    }

    /// Words of a group.
    pub fn words(&self) -> u32 {
        self.cells.iter().map(|cell| cell.op.words()).sum()
    }

    /// The cell that counts rows, added where it is not there yet.
    pub fn row_count(&mut self) -> usize {
        let has_count = |cell: &Cell| match &cell.contribution {
            Contribution::Group { counts_rows, .. } => *counts_rows,
            Contribution::Packed { fields, .. } => packing::counts_rows(fields),
            _ => false,
        };
        let known = self.cells.iter().position(has_count);
        known.unwrap_or_else(|| self.cell(CellOp::Add, Contribution::Row, None, Some(Range::new(0, 1))))
    }

    pub(super) fn cell(
        &mut self,
        op: CellOp,
        contribution: Contribution,
        distinct: Option<usize>,
        bounds: Option<Range>,
    ) -> usize {
        let same =
            |cell: &Cell| cell.op == op && cell.contribution == contribution && cell.distinct == distinct;
        self.cells.iter().position(same).unwrap_or_else(|| {
            let word = self.words();
            self.cells.push(Cell { op, contribution, distinct, word, bounds, is_sparse: false });
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
        let Some(argument) = &aggregate.argument else {
            if aggregate.function != AggregateFunction::Count {
                return Err(Unsupported(format!("{:?} without an argument", aggregate.function)));
            }
            let value = self.row_count();
            return Ok(Reading::new(
                aggregate,
                value,
                value,
                false,
                ResultForm::Count,
                count_range(row_bound),
            ));
        };
        let info = column_of(argument, columns);
        let distinct = (aggregate.distinct && !ignores_duplicates(aggregate.function)).then(|| {
            let known = self.distinct.iter().position(|known| known == argument);
            known.unwrap_or_else(|| {
                self.distinct.push(argument.clone());
                self.distinct.len() - 1
            })
        });
        let bounds = info.range.or_else(|| info.data_type.full_range());
        let nullable = info.nullable;
        let plan = CellPlan { aggregate, argument, info, bounds, distinct, row_bound };
        if let Some(exact) = ExactMoments::of(aggregate.function, argument, columns, row_bound) {
            return Ok(self.plan_exact_moments(&plan, exact));
        }
        if let Some((form, contribution)) = moments(aggregate.function, argument) {
            let value = self.cell(CellOp::Moments, contribution, distinct, None);
            return Ok(Reading::new(
                aggregate,
                value,
                value,
                true,
                ResultForm::Moments { form, grouped },
                None,
            ));
        }
        let can_be_empty = nullable || !grouped;
        let counts =
            can_be_empty || matches!(aggregate.function, AggregateFunction::Count | AggregateFunction::Avg);
        // An argument that may fail is evaluated, though its rows are counted without.
        let range_of = |column: usize| columns.get(column).and_then(|column| column.range);
        let evaluates = aggregate.function == AggregateFunction::Count && can_fail(argument, &range_of);
        let count = match (nullable || evaluates, distinct) {
            _ if !counts => None,
            (false, None) => Some(self.row_count()),
            _ => {
                let contribution = Contribution::Valid(argument.clone());
                Some(self.cell(CellOp::Add, contribution, distinct, Some(Range::new(0, 1))))
            }
        };
        let (value, form, range) = match aggregate.function {
            AggregateFunction::Count => {
                (count.unwrap_or_default(), ResultForm::Count, count_range(row_bound))
            }
            AggregateFunction::Sum => self.plan_checked_sum(&plan)?,
            AggregateFunction::Avg => self.plan_average(&plan)?,
            AggregateFunction::Min | AggregateFunction::Max => self.plan_extreme(&plan)?,
            _ => self.plan_bits(&plan)?,
        };
        Ok(Reading::new(aggregate, value, count.unwrap_or(value), can_be_empty, form, range))
    }

    /// A sum whose result is within its type, or an error.
    fn plan_checked_sum(
        &mut self,
        plan: &CellPlan<'_>,
    ) -> Result<(usize, ResultForm, Option<Range>), Unsupported> {
        let (value, range) = self.plan_sum(plan)?;
        let data_type = &plan.aggregate.field.data_type;
        let limits = data_type.full_range().filter(|_| matches!(data_type, DataType::Decimal128 { .. }));
        let Some(limits) = limits else { return Ok((value, ResultForm::Sum { check: None }, range)) };
        let is_proven = range.is_some_and(|range| range.within(limits));
        let check = (!is_proven).then(|| {
            let upper = range.is_none().then(|| self.upper_bits(plan));
            SumCheck { number: self.readings.len() as u32, limits, upper }
        });
        let within = |range: Range| Range { min: range.min.max(limits.min), max: range.max.min(limits.max) };
        Ok((value, ResultForm::Sum { check }, range.map(within)))
    }

    /// The cell of a sum's upper bits, where its range is not known to be within 128 bits.
    fn upper_bits(&mut self, plan: &CellPlan<'_>) -> UpperBits {
        let shift = shift_for(plan.row_bound);
        let contribution = Contribution::UpperBits { argument: plan.argument.clone(), shift };
        let bounds = plan.bounds.map(|bounds| upper_range(bounds, shift));
        let total = bounds.and_then(|bounds| total_range(bounds, plan.row_bound));
        let is_narrow = total.is_some_and(|total| register_of(total) != Scalar::I128);
        let op = if is_narrow { CellOp::Add } else { CellOp::AddWide };
        UpperBits { cell: self.cell(op, contribution, plan.distinct, bounds), shift }
    }

    fn plan_sum(&mut self, plan: &CellPlan<'_>) -> Result<(usize, Option<Range>), Unsupported> {
        let contribution = Contribution::Value(plan.argument.clone());
        if plan.info.data_type.is_float() {
            return Ok((self.cell(CellOp::AddFloat, contribution, plan.distinct, None), None));
        }
        let Some(bounds) = plan.bounds else {
            return Err(Unsupported(format!("sum of {}", plan.info.data_type)));
        };
        let total = total_range(bounds, plan.row_bound);
        let narrow = total.filter(|total| register_of(*total) != Scalar::I128);
        let (op, range) = match &plan.info.data_type {
            DataType::Decimal128 { .. } if narrow.is_none() => (CellOp::AddWide, total),
            DataType::Decimal128 { .. } => (CellOp::Add, total),
            // Sums of integers wrap at 64 bits, as DataFusion's.
            integer if integer.is_integer() => (CellOp::Add, narrow),
            other => return Err(Unsupported(format!("sum of {other}"))),
        };
        Ok((self.cell(op, contribution, plan.distinct, Some(bounds)), range))
    }

    fn plan_average(
        &mut self,
        plan: &CellPlan<'_>,
    ) -> Result<(usize, ResultForm, Option<Range>), Unsupported> {
        let (value, range) = self.plan_sum(plan)?;
        let from = match (&plan.info.data_type, &plan.aggregate.field.data_type) {
            (float, _) if float.is_float() => return Ok((value, ResultForm::Mean, None)),
            (DataType::Decimal128 { scale, .. }, DataType::Decimal128 { .. }) => *scale,
            (from, to) => return Err(Unsupported(format!("average of {from} as {to}"))),
        };
        // DataFusion sums in 256 bits where 128 may not do.
        let upper = range.is_none().then(|| self.upper_bits(plan));
        Ok((value, ResultForm::DecimalMean { from, upper }, None))
    }

    fn plan_extreme(
        &mut self,
        plan: &CellPlan<'_>,
    ) -> Result<(usize, ResultForm, Option<Range>), Unsupported> {
        let is_minimum = plan.aggregate.function == AggregateFunction::Min;
        let argument = plan.argument.clone();
        if plan.info.data_type == DataType::Utf8 {
            let op = if is_minimum { CellOp::MinText } else { CellOp::MaxText };
            return Ok((self.cell(op, Contribution::Text(argument), None, None), ResultForm::Text, None));
        }
        let Some(key) = OrderKey::of(&plan.info.data_type, plan.bounds) else {
            return Err(Unsupported(format!("minimum and maximum of {}", plan.info.data_type)));
        };
        let contribution = Contribution::Key { argument, key, complement: is_minimum };
        let bounds = plan.bounds.and_then(|bounds| key.bounds(bounds, is_minimum));
        let value = self.cell(key.op(), contribution, None, bounds);
        Ok((value, ResultForm::Extreme { key, complement: is_minimum }, plan.info.range))
    }

    fn plan_bits(&mut self, plan: &CellPlan<'_>) -> Result<(usize, ResultForm, Option<Range>), Unsupported> {
        if !plan.info.data_type.is_integer() {
            return Err(Unsupported(format!("bits of {}", plan.info.data_type)));
        }
        let complement = plan.aggregate.function == AggregateFunction::BitAnd;
        let op = match plan.aggregate.function {
            AggregateFunction::BitXor => CellOp::Xor,
            _ => CellOp::Or,
        };
        let contribution = Contribution::Bits { argument: plan.argument.clone(), complement };
        Ok((self.cell(op, contribution, plan.distinct, None), ResultForm::Bits { complement }, None))
    }

    /// What the aggregates are called.
    pub fn names(&self) -> Vec<String> {
        self.readings.iter().map(|reading| reading.name().to_string()).collect()
    }

    /// The aggregates' columns.
    pub fn columns(&self) -> Vec<ColumnInfo> {
        self.readings.iter().map(Reading::column).collect()
    }

    /// The current row's contribution to each cell: nothing where `active` is false. `is_new[i]`: the value is new in
    /// set i of [`Cells::distinct`].
    pub fn contributions(
        &self,
        cx: &mut Context<'_>,
        active: Option<V>,
        is_new: &[V],
    ) -> Result<Vec<Vec<V>>, Unsupported> {
        // What is lowered here is looked at, and copied where it is kept: text need not outlive the row.
        let was_open = cx.open_scratch(true);
        let mut parts = Vec::with_capacity(self.cells.len());
        for cell in &self.cells {
            let active = both(cx, active, cell.distinct.and_then(|set| is_new.get(set).copied()));
            parts.push(contribution(cx, cell, active)?);
        }
        cx.open_scratch(was_open);
        Ok(parts)
    }

    /// The aggregates' results; `words` gives the address (`ptr<u64>`) of a word of the group.
    pub fn results(
        &self,
        cx: &mut Context<'_>,
        mut words: impl FnMut(&mut Context<'_>, u32) -> V,
    ) -> Result<Vec<Lowered>, Unsupported> {
        let unpacked = self.unpacked();
        let mut read = |cx: &mut Context<'_>, cell: usize| {
            let place = unpacked.get(cell).map_or(CellPlace::Whole(cell), |(_, place)| *place);
            self.read(cx, place, &mut words)
        };
        self.readings.iter().map(|reading| reading.result(cx, &mut read)).collect()
    }
}

/// Whether DISTINCT changes nothing.
pub(super) fn ignores_duplicates(function: AggregateFunction) -> bool {
    use AggregateFunction::*;
    matches!(function, Min | Max | BitAnd | BitOr)
}

/// Which moment a function is, as (square root, sample).
pub(super) fn moment_form(function: AggregateFunction) -> Option<(bool, bool)> {
    match function {
        AggregateFunction::VarSample => Some((false, true)),
        AggregateFunction::VarPopulation => Some((false, false)),
        AggregateFunction::StddevSample => Some((true, true)),
        AggregateFunction::StddevPopulation => Some((true, false)),
        _ => None,
    }
}

fn moments(function: AggregateFunction, argument: &Expr) -> Option<((bool, bool), Contribution)> {
    Some((moment_form(function)?, Contribution::Moments(argument.clone())))
}

pub(super) fn contribution(
    cx: &mut Context<'_>,
    cell: &Cell,
    active: Option<V>,
) -> Result<Vec<V>, Unsupported> {
    if let (Contribution::Group { parts, .. }, None) = (&cell.contribution, cx.wide()) {
        return group_contribution(cx, (cell.op, parts), active);
    }
    if let (Contribution::Packed { fields, arguments }, None) = (&cell.contribution, cx.wide()) {
        return Ok(vec![packed_contribution(cx, (fields, arguments), active)?]);
    }
    let argument = cell.contribution.arguments().first().map(|argument| lower(cx, argument)).transpose()?;
    let live = both(cx, active, argument.as_ref().and_then(|argument| argument.valid));
    let scalar = match argument.as_ref().map(|argument| &argument.repr) {
        Some(Repr::Scalar(value)) => Some(*value),
        _ => None,
    };
    let no_text = || Unsupported("an aggregate of text".into());
    if let Some(rows) = cx.wide() {
        return wide_contribution(cx, cell, (scalar, live), rows);
    }
    let parts = match &cell.contribution {
        Contribution::Row | Contribution::Valid(_) => vec![cx.builder.u64(1)],
        Contribution::Value(_) => vec![addend(cx, cell.op, scalar.ok_or_else(no_text)?)],
        Contribution::UpperBits { shift, .. } => {
            let bits = upper_bits(cx, scalar.ok_or_else(no_text)?, *shift);
            vec![addend(cx, cell.op, bits)]
        }
        Contribution::Key { key, complement, .. } => {
            let key = key.encode(cx, scalar.ok_or_else(no_text)?);
            vec![if *complement { cx.builder.not(key) } else { key }]
        }
        Contribution::Bits { complement, .. } => {
            let bits = cx.builder.convert(scalar.ok_or_else(no_text)?, Scalar::U64);
            vec![if *complement { cx.builder.not(bits) } else { bits }]
        }
        Contribution::Moments(_) => {
            let value = cx.builder.convert(scalar.ok_or_else(no_text)?, Scalar::F64);
            let (one, zero) = (cx.builder.f64(1.0), cx.builder.f64(0.0));
            // No distance; of what is not finite NaN, also beside others.
            let squares = cx.builder.sub(value, value);
            vec![one, value, zero, squares]
        }
        Contribution::Square(_) => vec![deviations::square(cx, cell, scalar.ok_or_else(no_text)?)],
        Contribution::Text(_) => {
            let argument = argument.ok_or_else(no_text)?;
            vec![pack_text(cx, &argument.repr, live)?]
        }
        Contribution::Group { .. } | Contribution::Packed { .. } => {
            return Err(Unsupported::internal("several groups at once"));
        }
    };
    let Some(live) = live else { return Ok(parts) };
    let nothing = cell.op.nothing(cx);
    Ok(parts.iter().zip(nothing).map(|(part, nothing)| cx.builder.select(live, *part, nothing)).collect())
}

/// What a wide row contributes: of rows that are counted their number, else a vector. Dead rows are taken out before a value is
/// made longer.
fn wide_contribution(
    cx: &mut Context<'_>,
    cell: &Cell,
    (argument, live): (Option<V>, Option<V>),
    rows: u8,
) -> Result<Vec<V>, Unsupported> {
    let argument = argument.map(|argument| cx.each_row(argument));
    let value = match (&cell.contribution, argument) {
        (Contribution::Row | Contribution::Valid(_), _) => {
            return Ok(vec![cx.count_rows(live, rows, Scalar::U64)]);
        }
        (Contribution::Value(_), Some(value)) if cell.op == CellOp::Add => {
            let zero = cx.builder.scalar(value);
            let zero = cx.builder.zero(zero);
            let value = live.map_or(value, |live| cx.builder.select(live, value, zero));
            return Ok(vec![addend(cx, cell.op, value)]);
        }
        (Contribution::UpperBits { shift, .. }, Some(value)) => {
            let bits = upper_bits(cx, value, *shift);
            addend(cx, cell.op, bits)
        }
        (Contribution::Key { key, complement, .. }, Some(value)) => {
            let key = key.encode(cx, value);
            if *complement { cx.builder.not(key) } else { key }
        }
        (Contribution::Bits { complement, .. }, Some(value)) => {
            let bits = cx.builder.convert(value, Scalar::U64);
            if *complement { cx.builder.not(bits) } else { bits }
        }
        _ => return Err(Unsupported("a contribution of several rows at once".into())),
    };
    let zero = cx.builder.zero(Scalar::U64);
    Ok(vec![live.map_or(value, |live| cx.builder.select(live, value, zero))])
}

fn count_range(row_bound: u64) -> Option<Range> {
    Some(Range::new(0, i64::try_from(row_bound).unwrap_or(i64::MAX)))
}

/// Bounds of the sum of up to `rows` values.
pub(super) fn total_range(bounds: Range, rows: u64) -> Option<Range> {
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
pub(super) fn addend(cx: &mut Context<'_>, op: CellOp, value: V) -> V {
    let b = &mut *cx.builder;
    match op {
        CellOp::Add => {
            let wide = b.convert(value, Scalar::I64);
            b.bitcast(wide, Scalar::U64)
        }
        CellOp::AddFloat => b.convert(value, Scalar::F64),
        _ => b.convert(value, Scalar::I128),
    }
}
