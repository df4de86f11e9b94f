//! Aggregates over frames that rows leave. DataFusion subtracts what leaves a frame: a sum of floats then never recovers from NaN, from
//! infinity, or from a number beside which others are lost; and what cannot be subtracted is an error.
//!
//! Sums, means and variances of floats are kept for two halves of a frame. In the older half each row has what it and all behind it in
//! that half come to, so that a row that leaves is left out; the newer half has its total. When the older one is used up, the newer one
//! takes its place. All others are aggregates of blocks of rows.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::bit_and_or_xor::bit_xor_udaf;
use datafusion::functions_aggregate::{
    all_default_aggregate_functions, average, correlation, count, covariance, min_max, regr, stddev, sum,
    variance,
};
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, GroupsAccumulator, LogicalPlan, ReversedUDAF,
};

use super::blocks::InBlocks;
use crate::corrections::exact::ExactSum;
use crate::corrections::map_expressions;
use crate::function_methods::of_inner;

/// A node whose moving aggregates subtract nothing that cannot be subtracted.
pub(crate) fn corrected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !matches!(plan, LogicalPlan::Window(_)) {
        return Ok(Transformed::no(plan));
    }
    let concerns = |expr: &Expr| {
        expr.exists(|expr| Ok(matches!(expr, Expr::WindowFunction(call) if moved(call).is_some())))
    };
    map_expressions(plan, concerns, |expr| expr.transform_up(mended))
}

fn mended(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::WindowFunction(mut call) => match moved(&call) {
            Some(inner) => {
                call.fun = WindowFunctionDefinition::AggregateUDF(moving(inner));
                Ok(Transformed::yes(Expr::WindowFunction(call)))
            }
            None => Ok(Transformed::no(Expr::WindowFunction(call))),
        },
        other => Ok(Transformed::no(other)),
    }
}

/// The aggregate of a call over frames that rows leave, if it is one that may have to be another.
fn moved(call: &WindowFunction) -> Option<&Arc<AggregateUDF>> {
    let WindowFunctionDefinition::AggregateUDF(function) = &call.fun else { return None };
    let implementation = function.inner().as_ref();
    // These have all that they need.
    let is_exact = implementation.is::<ExactSum>()
        || implementation.is::<count::Count>()
        || implementation.is::<min_max::Min>()
        || implementation.is::<min_max::Max>()
        || implementation.is::<Moving>();
    let is_left = !call.params.window_frame.start_bound.is_unbounded();
    (is_left && !is_exact).then_some(function)
}

/// An aggregate as one over frames that rows leave. There is one for each of DataFusion's: plans that are kept are found by the functions
/// that they call.
fn moving(inner: &Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    static KNOWN: LazyLock<Vec<Arc<AggregateUDF>>> =
        LazyLock::new(|| all_default_aggregate_functions().into_iter().map(of).collect());
    fn of(inner: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
        Arc::new(AggregateUDF::new_from_impl(Moving { inner }))
    }
    let is_known = |known: &&Arc<AggregateUDF>| super::own_aggregate(known) == inner.as_ref();
    KNOWN.iter().find(is_known).cloned().unwrap_or_else(|| of(Arc::clone(inner)))
}

/// An aggregate over frames that rows leave.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Moving {
    inner: Arc<AggregateUDF>,
}

impl Moving {
    pub fn inner(&self) -> &AggregateUDF {
        &self.inner
    }
}

impl AggregateUDFImpl for Moving {
    of_inner!(
        name, aliases, signature, return_type, return_field, accumulator, state_fields,
        groups_accumulator_supported, order_sensitivity, coerce_types, supports_null_handling_clause,
        documentation
    );

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(arguments)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if let Some(statistic) = Statistic::of(&self.inner, &arguments) {
            return Ok(Box::new(Halves::new(statistic)));
        }
        let own = self.inner.create_sliding_accumulator(arguments.clone())?;
        match own.supports_retract_batch() && subtracts_exactly(&self.inner) {
            true => Ok(own),
            false => Ok(Box::new(InBlocks::new(Arc::clone(&self.inner), &arguments))),
        }
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        _beneficial_ordering: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(None)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::Identical => ReversedUDAF::Identical,
            _ => ReversedUDAF::NotSupported,
        }
    }
}

/// Whether an aggregate comes to what the rest of a frame does once rows are subtracted from it. Products of floats lose digits so, and a
/// `bit_xor` from which all is taken is 0, where it should be NULL.
fn subtracts_exactly(function: &AggregateUDF) -> bool {
    let implementation = function.inner().as_ref();
    !(*function == *bit_xor_udaf()
        || implementation.is::<correlation::Correlation>()
        || implementation.is::<covariance::CovarianceSample>()
        || implementation.is::<covariance::CovariancePopulation>()
        || implementation.is::<regr::Regr>())
}

/// What is made of floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statistic {
    Sum,
    Mean,
    VarianceSample,
    VariancePopulation,
    DeviationSample,
    DeviationPopulation,
}

impl Statistic {
    fn of(function: &AggregateUDF, arguments: &AccumulatorArgs<'_>) -> Option<Statistic> {
        let is_float = |field: &FieldRef| field.data_type().is_floating();
        let of_floats = arguments.expr_fields.iter().all(is_float) && !arguments.is_distinct;
        if !of_floats || *arguments.return_type() != DataType::Float64 {
            return None;
        }
        let implementation = function.inner().as_ref();
        Some(if implementation.is::<sum::Sum>() {
            Statistic::Sum
        } else if implementation.is::<average::Avg>() {
            Statistic::Mean
        } else if implementation.is::<variance::VarianceSample>() {
            Statistic::VarianceSample
        } else if implementation.is::<variance::VariancePopulation>() {
            Statistic::VariancePopulation
        } else if implementation.is::<stddev::Stddev>() {
            Statistic::DeviationSample
        } else if implementation.is::<stddev::StddevPop>() {
            Statistic::DeviationPopulation
        } else {
            return None;
        })
    }

    fn value(self, of: Moments) -> Option<f64> {
        let Moments { count, sum, squares, .. } = of;
        let count = count as f64;
        let sample = || (of.count > 1).then(|| squares / (count - 1.0));
        let population = || (of.count > 0).then(|| squares / count);
        match self {
            Statistic::Sum => (of.count > 0).then_some(sum),
            Statistic::Mean => (of.count > 0).then(|| sum / count),
            Statistic::VarianceSample => sample(),
            Statistic::VariancePopulation => population(),
            Statistic::DeviationSample => sample().map(f64::sqrt),
            Statistic::DeviationPopulation => population().map(f64::sqrt),
        }
    }
}

/// What some rows come to.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    /// Values that are there.
    count: u64,
    sum: f64,
    mean: f64,
    /// The squares of how far values are from the mean.
    squares: f64,
}

impl Moments {
    fn of(value: Option<f64>) -> Moments {
        value.map_or_else(Moments::default, |value| Moments {
            count: 1,
            sum: value,
            mean: value,
            squares: 0.0,
        })
    }

    /// With rows behind these (Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979).
    fn with(self, other: Moments) -> Moments {
        if self.count == 0 || other.count == 0 {
            return if self.count == 0 { other } else { self };
        }
        let (own, others) = (self.count as f64, other.count as f64);
        let apart = other.mean - self.mean;
        let all = own + others;
        Moments {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            mean: self.mean + apart * (others / all),
            squares: self.squares + other.squares + apart * apart * (own * others / all),
        }
    }
}

/// The two halves of a frame.
#[derive(Debug)]
struct Halves {
    statistic: Statistic,
    /// For each older row what it and those behind it come to, the oldest last.
    older: Vec<Moments>,
    newer: Vec<Moments>,
    /// What the newer ones come to.
    total: Moments,
}

impl Halves {
    fn new(statistic: Statistic) -> Halves {
        Halves { statistic, older: Vec::new(), newer: Vec::new(), total: Moments::default() }
    }
}

fn floats(arguments: &[ArrayRef]) -> Result<Float64Array> {
    let Some(values) = arguments.first() else { return internal_err!("a moving aggregate of nothing") };
    Ok(cast(values, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}

impl Accumulator for Halves {
    fn update_batch(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        for value in floats(arguments)?.iter() {
            let row = Moments::of(value);
            self.total = self.total.with(row);
            self.newer.push(row);
        }
        Ok(())
    }

    fn retract_batch(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        for _ in 0..arguments.first().map_or(0, |values| values.len()) {
            if self.older.is_empty() {
                let mut behind = Moments::default();
                for row in self.newer.drain(..).rev() {
                    behind = row.with(behind);
                    self.older.push(behind);
                }
                self.total = Moments::default();
            }
            self.older.pop();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let older = self.older.last().copied().unwrap_or_default();
        Ok(ScalarValue::Float64(self.statistic.value(older.with(self.total))))
    }

    fn size(&self) -> usize {
        size_of_val(self) + (self.older.capacity() + self.newer.capacity()) * size_of::<Moments>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a moving aggregate has no part for others")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        internal_err!("a moving aggregate takes no parts of others")
    }
}
