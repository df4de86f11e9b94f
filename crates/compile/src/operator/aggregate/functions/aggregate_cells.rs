//! Aggregate functions as cells: which cells a list of aggregates needs, what a row contributes to each, and how the
//! results are read from them.

use super::contribution::both;
use kelpie_kir::Scalar;
use kelpie_kir::Scope;
use kelpie_kir::builder::V;

use super::cell::{Cell, CellPlace, Contribution, ContributionForm, total_range};
use super::cells::{CellOp, word_pointer};
use super::contribution::contribution;
use super::deviations::ExactMoments;
use super::exact::{UpperBits, shift_for, upper_range};
use super::extremes::OrderKey;
use super::leading::Leading;
use super::packing::counts_rows;
use super::results::{MomentForm, ReadCell, Reading, ResultForm, SumCheck};
use super::sparse::{is_sparse, update_cell};
use crate::context::{Context, Lowered, Unsupported, register_of};
use crate::expr::{Expr, children, with_children};
use crate::layout::ColumnInfo;
use crate::lower::can_fail;
use crate::lower::column_of;
use crate::plan::{Aggregate, AggregateFunction, PairStatistic};
use crate::types::{DataType, Range};

/// The cells of a list of aggregates; equal cells are shared.
#[derive(Debug, Clone, Default)]
pub struct Cells {
    /// In the order of their words.
    pub cells: Vec<Cell>,
    /// Arguments of which a group counts equal values once.
    pub distinct: Vec<Expr>,
    readings: Vec<Reading>,
    /// Where the cells are that readings have the numbers of, once some are packed.
    pub(crate) places: Vec<CellPlace>,
}

/// What the cells of groups are planned by: those of coarser groups are too.
#[derive(Debug)]
pub(crate) struct Origin {
    pub aggregates: Vec<Aggregate>,
    /// The rows that were aggregated.
    pub columns: Vec<ColumnInfo>,
    pub row_bound: u64,
}

impl Origin {
    /// The cells of groups, or of the only one.
    pub fn cells(&self, grouped: bool) -> Result<Cells, Unsupported> {
        Cells::plan(&self.aggregates, &self.columns, self.row_bound, grouped)
    }
}

/// An aggregate while its cells are planned.
pub(crate) struct CellPlan<'a> {
    pub aggregate: &'a Aggregate,
    pub argument: &'a Expr,
    pub info: ColumnInfo,
    bounds: Option<Range>,
    pub distinct: Option<usize>,
    pub row_bound: u64,
}

impl Cells {
    /// Whether threads that add to some of them wait for a lock.
    pub(crate) fn have_locks(&self) -> bool {
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
    pub(crate) fn find_sparse(&mut self, columns: &[ColumnInfo]) {
        for cell in &mut self.cells {
            cell.is_sparse = is_sparse(cell, columns);
        }
    }

    /// Whether contributions of other threads may be looked at in registers, to any of them.
    pub fn are_plain(&self) -> bool {
        self.cells.iter().all(|cell| cell.op.is_plain())
    }

    /// Adds a row's contributions to the group at `base`.
    pub fn update(&self, cx: &mut Context<'_>, base: V, values: &[Vec<V>], scope: Scope) {
        for (cell, value) in self.cells.iter().zip(values) {
            let pointer = word_pointer(cx, base, cell.word);
            update_cell(cx, cell, pointer, value, scope);
        }
    }

    /// What cell `index`, of one part, of the group at `base` holds now.
    pub fn current(&self, cx: &mut Context<'_>, base: V, index: usize) -> Option<V> {
        let pointer = word_pointer(cx, base, self.cells.get(index)?.word);
        Some(cx.builder.atomic_load(pointer, Scope::Device))
    }

    /// Words of a group.
    pub fn words(&self) -> u32 {
        self.cells.iter().map(|cell| cell.op.words()).sum()
    }

    /// The cell that counts rows, added where it is not there yet.
    pub fn row_count(&mut self) -> usize {
        let has_count = |cell: &Cell| match &cell.contribution.form {
            ContributionForm::Group { counts_rows } => *counts_rows,
            ContributionForm::Packed { fields } => counts_rows(fields),
            _ => false,
        };
        let known = self.cells.iter().position(has_count);
        known.unwrap_or_else(|| self.cell(CellOp::Add, Contribution::ROW, None, Some(Range::new(0, 1))))
    }

    pub(crate) fn cell(
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
        let field = aggregate.field.clone();
        let Some(argument) = &aggregate.argument else {
            if aggregate.function != AggregateFunction::Count {
                return Err(Unsupported(format!("{:?} without an argument", aggregate.function)));
            }
            let value = self.row_count();
            let (form, range) = (ResultForm::Count, count_range(row_bound));
            return Ok(Reading { field, value, count: value, can_be_empty: false, form, range });
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
        if let Some(form) = moment_form(aggregate.function) {
            let moments = Contribution::of(ContributionForm::Moments, argument);
            let value = self.cell(CellOp::Moments, moments, distinct, None);
            let form = ResultForm::Moments { form, grouped };
            return Ok(Reading { field, value, count: value, can_be_empty: true, form, range: None });
        }
        if let AggregateFunction::OfPairs(statistic) = aggregate.function {
            let value = self.pair_cell(argument, statistic)?;
            let form = ResultForm::OfPairs(statistic);
            return Ok(Reading { field, value, count: value, can_be_empty: true, form, range: None });
        }
        if let AggregateFunction::LeastBound(_) | AggregateFunction::GreatestBound(_) = aggregate.function {
            let (value, form, range) = self.plan_bound(&plan)?;
            return Ok(Reading { field, value, count: value, can_be_empty: true, form, range });
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
                let contribution = Contribution::of(ContributionForm::Valid, argument);
                Some(self.cell(CellOp::Add, contribution, distinct, Some(Range::new(0, 1))))
            }
        };
        let (value, form, range) = match aggregate.function {
            AggregateFunction::Count => {
                (count.unwrap_or_default(), ResultForm::Count, count_range(row_bound))
            }
            AggregateFunction::Sum | AggregateFunction::SumExact => self.plan_checked_sum(&plan)?,
            AggregateFunction::Avg => self.plan_average(&plan)?,
            AggregateFunction::Min | AggregateFunction::Max => self.plan_extreme(&plan)?,
            _ => self.plan_bits(&plan)?,
        };
        Ok(Reading { field, value, count: count.unwrap_or(value), can_be_empty, form, range })
    }

    /// The cell of pairs; a statistic in which both values of a pair are alike may have that of the pairs the other way round.
    fn pair_cell(&mut self, argument: &Expr, statistic: PairStatistic) -> Result<usize, Unsupported> {
        let [first, second] = children(argument)[..] else {
            return Err(Unsupported("a statistic of pairs over something else".into()));
        };
        // A pair is its first value, where neither is NULL.
        let contribution = |pair: Expr, other: &Expr| Contribution {
            form: ContributionForm::PairMoments,
            arguments: vec![pair, other.clone()],
        };
        let turned = with_children(argument, vec![second.clone(), first.clone()]);
        let turned = contribution(Expr { data_type: second.data_type.clone(), ..turned }, first);
        let known = self.cells.iter().position(|cell| cell.contribution == turned);
        match known.filter(|_| statistic.is_symmetric()) {
            Some(cell) => Ok(cell),
            None => Ok(self.cell(CellOp::PairMoments, contribution(argument.clone(), second), None, None)),
        }
    }

    /// A sum whose result is within its type, or an error.
    fn plan_checked_sum(
        &mut self,
        plan: &CellPlan<'_>,
    ) -> Result<(usize, ResultForm, Option<Range>), Unsupported> {
        let (value, range) = self.plan_sum(plan)?;
        let data_type = &plan.aggregate.field.data_type;
        let is_checked = matches!(data_type, DataType::Decimal128 { .. })
            || plan.aggregate.function == AggregateFunction::SumExact && data_type.is_integer();
        let limits = data_type.full_range().filter(|_| is_checked);
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
        let contribution = Contribution::of(ContributionForm::UpperBits { shift }, plan.argument);
        let bounds = plan.bounds.map(|bounds| upper_range(bounds, shift));
        let total = bounds.and_then(|bounds| total_range(bounds, plan.row_bound));
        let is_narrow = total.is_some_and(|total| register_of(total) != Scalar::I128);
        let op = if is_narrow { CellOp::Add } else { CellOp::AddWide };
        UpperBits { cell: self.cell(op, contribution, plan.distinct, bounds), shift }
    }

    fn plan_sum(&mut self, plan: &CellPlan<'_>) -> Result<(usize, Option<Range>), Unsupported> {
        let contribution = Contribution::of(ContributionForm::Value, plan.argument);
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
            integer
                if integer.is_integer()
                    && narrow.is_none()
                    && plan.aggregate.function == AggregateFunction::SumExact =>
            {
                (CellOp::AddWide, total)
            }
            // Others wrap at 64 bits, as DataFusion's.
            integer if integer.is_integer() || matches!(integer, DataType::Duration { .. }) => {
                (CellOp::Add, narrow)
            }
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
            (from @ DataType::Duration { .. }, to) if from == to => {
                return Ok((value, ResultForm::WholeMean, None));
            }
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
        if plan.info.data_type == DataType::Utf8 {
            let op = if is_minimum { CellOp::MinText } else { CellOp::MaxText };
            let text = Contribution::of(ContributionForm::Text, plan.argument);
            return Ok((self.cell(op, text, None, None), ResultForm::Text, None));
        }
        let Some(key) = OrderKey::of(&plan.info.data_type, plan.bounds) else {
            return Err(Unsupported(format!("minimum and maximum of {}", plan.info.data_type)));
        };
        let contribution =
            Contribution::of(ContributionForm::Key { key, complement: is_minimum }, plan.argument);
        let bounds = plan.bounds.and_then(|bounds| key.bounds(bounds, is_minimum));
        let value = self.cell(key.op(), contribution, None, bounds);
        Ok((value, ResultForm::Extreme { key, complement: is_minimum }, plan.info.range))
    }

    /// The word that no more than so many are greater than, of the arguments' keys or of their complements.
    fn plan_bound(&mut self, plan: &CellPlan<'_>) -> Result<(usize, ResultForm, Option<Range>), Unsupported> {
        let (count, complement) = match plan.aggregate.function {
            AggregateFunction::LeastBound(count) => (count, true),
            AggregateFunction::GreatestBound(count) => (count, false),
            other => return Err(Unsupported::internal(format!("{other:?} as a bound"))),
        };
        let key = OrderKey::of(&plan.info.data_type, plan.bounds).filter(|key| key.op() == CellOp::Max);
        let Some(key) = key else {
            return Err(Unsupported(format!("several extremes of {}", plan.info.data_type)));
        };
        let contribution = Contribution::of(ContributionForm::Key { key, complement }, plan.argument);
        let op = CellOp::Leading(Leading { count, distinct: plan.aggregate.distinct });
        let value = self.cell(op, contribution, None, None);
        Ok((value, ResultForm::Bound { key, complement }, plan.info.range))
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
        let contribution = Contribution::of(ContributionForm::Bits { complement }, plan.argument);
        Ok((self.cell(op, contribution, plan.distinct, None), ResultForm::Bits { complement }, None))
    }

    /// What the aggregates are called.
    pub fn names(&self) -> Vec<String> {
        self.readings.iter().map(|reading| reading.name().to_string()).collect()
    }

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

    /// The aggregates' results; `read` gives a cell.
    pub fn results_of(
        &self,
        cx: &mut Context<'_>,
        read: &mut ReadCell<'_>,
    ) -> Result<Vec<Lowered>, Unsupported> {
        self.readings.iter().map(|reading| reading.result(cx, read)).collect()
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
        self.results_of(cx, &mut read)
    }
}

/// Why groups cannot be made of finer groups, if they cannot.
pub(crate) fn why_not_rollup(aggregates: &[Aggregate]) -> Option<String> {
    let once = aggregates.iter().find(|aggregate| counts_once(aggregate));
    once.map(|aggregate| format!("{} counts equal values once", aggregate.field.name))
}

/// Whether it makes a difference to an aggregate that a group has a value several times.
pub(crate) fn counts_once(aggregate: &Aggregate) -> bool {
    aggregate.distinct && !ignores_duplicates(aggregate.function)
}

/// Whether DISTINCT changes nothing, or is the cell's own business.
pub(crate) fn ignores_duplicates(function: AggregateFunction) -> bool {
    use AggregateFunction::*;
    matches!(function, Min | Max | BitAnd | BitOr | LeastBound(_) | GreatestBound(_))
}

/// Which moment a function is.
pub(crate) fn moment_form(function: AggregateFunction) -> Option<MomentForm> {
    let (is_root, is_sample) = match function {
        AggregateFunction::VarSample => (false, true),
        AggregateFunction::VarPopulation => (false, false),
        AggregateFunction::StddevSample => (true, true),
        AggregateFunction::StddevPopulation => (true, false),
        _ => return None,
    };
    Some(MomentForm { is_root, is_sample })
}

fn count_range(row_bound: u64) -> Option<Range> {
    Some(Range::new(0, i64::try_from(row_bound).unwrap_or(i64::MAX)))
}
