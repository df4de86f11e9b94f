//! `min` and `max` of floats in groups. DataFusion's begin with the greatest and the least finite float, so that a group of infinities has one of
//! these, and skip NaN, which is the greatest of all floats.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, internal_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::min_max::{Max, Min, max_udaf, min_udaf};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, merge_schema};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, ExprSchemable, GroupsAccumulator, LogicalPlan,
    ReversedUDAF,
};

use crate::function_methods::of_inner;

/// A node whose groups have the least and greatest of all floats.
pub(super) fn corrected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let is_grouped = matches!(&plan, LogicalPlan::Aggregate(aggregate) if !aggregate.group_expr.is_empty());
    if !is_grouped {
        return Ok(Transformed::no(plan));
    }
    let schema = merge_schema(&plan.inputs());
    let concerns = |expr: &Expr| {
        expr.exists(|expr| Ok(matches!(expr, Expr::AggregateFunction(call) if is_of_floats(call, &schema))))
    };
    super::map_expressions(plan, concerns, |expr| {
        expr.transform_up(|expr| match expr {
            Expr::AggregateFunction(mut call) if is_of_floats(&call, &schema) => {
                call.func = extreme(call.func.inner().is::<Max>());
                Ok(Transformed::yes(Expr::AggregateFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        })
    })
}

/// One for all: plans that are kept are found by the functions that they call.
fn extreme(is_greatest: bool) -> Arc<AggregateUDF> {
    static BOTH: LazyLock<[Arc<AggregateUDF>; 2]> = LazyLock::new(|| {
        [Extreme::named("min", false), Extreme::named("max", true)]
            .map(|extreme| Arc::new(AggregateUDF::new_from_impl(extreme)))
    });
    let [least, greatest] = &*BOTH;
    Arc::clone(if is_greatest { greatest } else { least })
}

fn is_of_floats(call: &AggregateFunction, schema: &DFSchema) -> bool {
    let implementation = call.func.inner().as_ref();
    let is_float =
        |argument: &Expr| matches!(argument.get_type(schema), Ok(DataType::Float32 | DataType::Float64));
    (implementation.is::<Min>() || implementation.is::<Max>()) && call.params.args.iter().all(is_float)
}

/// The least or the greatest float.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Extreme {
    name: &'static str,
    is_greatest: bool,
    /// DataFusion's, which is right where there are no groups.
    inner: Arc<AggregateUDF>,
}

impl Extreme {
    /// The function under a name.
    pub fn named(name: &'static str, is_greatest: bool) -> Extreme {
        let inner = if is_greatest { max_udaf() } else { min_udaf() };
        Extreme { name, is_greatest, inner }
    }

    pub fn inner(&self) -> &AggregateUDF {
        &self.inner
    }

    pub fn is_greatest(&self) -> bool {
        self.is_greatest
    }
}

impl AggregateUDFImpl for Extreme {
    of_inner!(
        signature, return_type, coerce_types, accumulator, create_sliding_accumulator, state_fields,
        groups_accumulator_supported, documentation
    );

    fn name(&self) -> &str {
        self.name
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match arguments.return_type() {
            DataType::Float64 => Ok(Box::new(Extremes::<Float64Type>::new(self.is_greatest))),
            DataType::Float32 => Ok(Box::new(Extremes::<Float32Type>::new(self.is_greatest))),
            _ => self.inner.create_groups_accumulator(arguments),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The least or greatest value of each group.
#[derive(Debug)]
struct Extremes<T: ArrowPrimitiveType> {
    is_greatest: bool,
    values: Vec<T::Native>,
    /// Whether a group has a value.
    seen: Vec<bool>,
}

impl<T: ArrowPrimitiveType> Extremes<T> {
    fn new(is_greatest: bool) -> Extremes<T> {
        Extremes { is_greatest, values: Vec::new(), seen: Vec::new() }
    }
}

impl<T> GroupsAccumulator for Extremes<T>
where
    T: ArrowPrimitiveType + Send + Sync,
    T::Native: PartialOrd,
{
    fn update_batch(
        &mut self,
        arguments: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        let Some(values) = arguments.first() else { return internal_err!("an extreme of nothing") };
        let values = values.as_primitive::<T>();
        self.values.resize(total, T::Native::default());
        self.seen.resize(total, false);
        for (row, (group, value)) in groups.iter().zip(values.iter()).enumerate() {
            let is_kept = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            let (Some(value), true) = (value, is_kept) else { continue };
            if let (Some(found), Some(seen)) = (self.values.get_mut(*group), self.seen.get_mut(*group)) {
                let is_further = match self.is_greatest {
                    true => is_greater(value, *found),
                    false => is_greater(*found, value),
                };
                if !*seen || is_further {
                    *found = value;
                    *seen = true;
                }
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.update_batch(states, groups, None, total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let values = emit_to.take_needed(&mut self.values);
        let seen = emit_to.take_needed(&mut self.seen);
        Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), Some(seen.into()))))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn convert_to_state(
        &self,
        arguments: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let Some(values) = arguments.first() else { return internal_err!("an extreme of nothing") };
        let values = values.as_primitive::<T>().iter().enumerate().map(|(row, value)| {
            value.filter(|_| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)))
        });
        let kept: PrimitiveArray<T> = values.collect();
        Ok(vec![Arc::new(kept)])
    }

    fn size(&self) -> usize {
        self.values.capacity() * size_of::<T::Native>() + self.seen.capacity()
    }
}

/// Whether a float is greater than another: NaN is the greatest, and no greater than itself.
fn is_greater<F: PartialOrd + Copy>(value: F, other: F) -> bool {
    // It has no place in an order, not even beside itself.
    let is_nan = |float: F| float.partial_cmp(&float).is_none();
    value > other || (is_nan(value) && !is_nan(other))
}
