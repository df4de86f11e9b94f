//! Rows of times that come from several places, each with a unit of its own, and of floats beside decimals: VALUES and UNION.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Expr, ExprSchemable, Join, LogicalPlan, Operator, Projection, Union, Values, binary_expr,
};

use super::floats::{self, before_decimal};
use super::operands::{bring_together, cast};

/// Gives each column of VALUES one unit, where a value is one that nanoseconds do not hold, and makes it one of floats where it has some.
pub(super) fn of_values(Values { schema, mut values }: Values) -> Result<Transformed<LogicalPlan>> {
    let empty = DFSchema::empty();
    let mut fields: Vec<_> = schema.iter().map(|(name, field)| (name.cloned(), Arc::clone(field))).collect();
    let mut changed = false;
    for (place, (_, field)) in fields.iter_mut().enumerate() {
        let mut column: Vec<&mut Expr> = values.iter_mut().filter_map(|row| row.get_mut(place)).collect();
        if field.data_type().is_decimal() && make_floats(&mut column) {
            *field = Arc::new(field.as_ref().clone().with_data_type(DataType::Float64));
            changed = true;
            continue;
        }
        bring_together(&mut column, |_| &empty, false)?;
        let types = column.iter().map(|value| value.get_type(&empty)).collect::<Result<Vec<_>>>()?;
        let is_coarse = |data_type: &&DataType| matches!(data_type, DataType::Timestamp(unit, _) if *unit != TimeUnit::Nanosecond);
        let DataType::Timestamp(known, _) = field.data_type() else { continue };
        let Some(coarse) = types.iter().find(is_coarse).cloned() else { continue };
        if *known != TimeUnit::Nanosecond {
            continue;
        }
        for (value, _) in column.iter_mut().zip(&types).filter(|(_, data_type)| **data_type != coarse) {
            cast(value, coarse.clone());
        }
        *field = Arc::new(field.as_ref().clone().with_data_type(coarse));
        changed = true;
    }
    if !changed {
        return Ok(Transformed::no(LogicalPlan::Values(Values { schema, values })));
    }
    let schema: DFSchemaRef = Arc::new(DFSchema::new_with_metadata(fields, schema.metadata().clone())?);
    Ok(Transformed::yes(LogicalPlan::Values(Values { schema, values })))
}

/// Makes a column of VALUES one of floats, where a value of it was a float before it became a decimal; whether one was.
fn make_floats(column: &mut [&mut Expr]) -> bool {
    if !column.iter().any(|value| before_decimal(value).1) {
        return false;
    }
    for value in column {
        **value = before_decimal(value).0.clone();
        if value.get_type(&DFSchema::empty()).is_ok_and(|data_type| data_type != DataType::Float64) {
            cast(value, DataType::Float64);
        }
    }
    true
}

/// Gives each column of a UNION one unit.
pub(super) fn of_union(union: Union) -> Result<Transformed<LogicalPlan>> {
    let mut inputs: Vec<Input> = union.inputs.iter().map(Input::of).collect();
    let mut changed = false;
    for place in 0..union.schema.fields().len() {
        let schemas: Vec<DFSchemaRef> = inputs.iter().map(|input| Arc::clone(&input.schema)).collect();
        let mut column: Vec<&mut Expr> =
            inputs.iter_mut().filter_map(|input| input.exprs.get_mut(place)).collect();
        if column.len() == schemas.len() {
            changed |= bring_together(&mut column, |input| &schemas[input], false)?;
        }
    }
    if !changed {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let inputs = inputs.into_iter().map(Input::projected).collect::<Result<Vec<_>>>()?;
    Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
}

/// Compares keys of a join exactly, where one is of nanoseconds and the other of a unit that is not: as many of the coarser ones, and
/// nothing behind that. Decimals beside floats are compared as these.
pub(super) fn of_join(mut join: Join) -> Transformed<LogicalPlan> {
    let (left, right) = (Arc::clone(join.left.schema()), Arc::clone(join.right.schema()));
    let unit = |expr: &Expr, schema: &DFSchema| match expr.get_type(schema) {
        Ok(DataType::Timestamp(unit, _)) => Some(unit),
        _ => None,
    };
    let (mut wholes, mut are_floats) = (Vec::new(), false);
    for (a, b) in &mut join.on {
        let side = |side: usize| if side == 0 { left.as_ref() } else { right.as_ref() };
        are_floats |= floats::bring_together(&mut [&mut *a, &mut *b], side);
        let (fine, schema, coarse) = match (unit(a, &left), unit(b, &right)) {
            (Some(TimeUnit::Nanosecond), Some(unit)) if unit != TimeUnit::Nanosecond => (a, &left, unit),
            (Some(unit), Some(TimeUnit::Nanosecond)) if unit != TimeUnit::Nanosecond => (b, &right, unit),
            _ => continue,
        };
        let Ok(DataType::Timestamp(_, zone)) = fine.get_type(schema) else { continue };
        let whole = fine.clone();
        cast(fine, DataType::Timestamp(coarse, zone.clone()));
        let mut back = fine.clone();
        cast(&mut back, DataType::Timestamp(TimeUnit::Nanosecond, zone));
        // A NULL is whole.
        wholes.push(binary_expr(whole, Operator::IsNotDistinctFrom, back));
    }
    let changed = are_floats || !wholes.is_empty();
    join.filter = conjunction(wholes.into_iter().chain(join.filter));
    Transformed::new_transformed(LogicalPlan::Join(join), changed)
}

/// An input of a UNION: what its columns are computed by.
struct Input {
    plan: Arc<LogicalPlan>,
    exprs: Vec<Expr>,
    names: Vec<Expr>,
    schema: DFSchemaRef,
}

impl Input {
    fn of(plan: &Arc<LogicalPlan>) -> Input {
        let (plan, names) = match plan.as_ref() {
            LogicalPlan::Projection(projection) => (Arc::clone(&projection.input), projection.expr.clone()),
            _ => (Arc::clone(plan), plan.schema().iter().map(Expr::from).collect()),
        };
        let exprs = names.iter().cloned().map(Expr::unalias).collect();
        Input { schema: Arc::clone(plan.schema()), plan, exprs, names }
    }

    fn projected(self) -> Result<Arc<LogicalPlan>> {
        let keep = NamePreserver::new_for_projection();
        let exprs = self.exprs.into_iter().zip(self.names).map(|(expr, name)| keep.save(&name).restore(expr));
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs.collect(), self.plan)?)))
    }
}
