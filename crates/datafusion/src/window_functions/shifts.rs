//! `lead` and `lag` under IGNORE NULLS: the n-th value that is there, behind a row or before it. DataFusion's `lead` forgets values where more than
//! the next one is asked for.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, UInt64Array};
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::compute::{is_not_null, take};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::functions_window::lead_lag::{WindowShift, WindowShiftKind};
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{PartitionEvaluator, WindowUDF, WindowUDFImpl};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;

use crate::function_methods::of_inner;

/// `lead` or `lag` over the values that are there.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Present {
    /// DataFusion's.
    inner: Arc<WindowUDF>,
}

impl Present {
    pub fn new(inner: Arc<WindowUDF>) -> Present {
        Present { inner }
    }

    pub fn inner(&self) -> &WindowUDF {
        &self.inner
    }

    /// What is asked for, where that is written out.
    fn shift(&self, arguments: &PartitionEvaluatorArgs<'_>) -> Result<Option<Shift>> {
        let kind = self.inner.inner().downcast_ref::<WindowShift>().map(WindowShift::kind);
        let (Some(kind), [value, ..]) = (kind, arguments.input_fields()) else { return Ok(None) };
        let literal = |place: usize| match arguments.input_exprs().get(place) {
            None => Some(ScalarValue::Null),
            Some(expr) => expr.downcast_ref::<Literal>().map(|literal| literal.value().clone()),
        };
        let (Some(distance), Some(default)) = (literal(1), literal(2)) else { return Ok(None) };
        let ScalarValue::Int64(distance) = distance.cast_to(&DataType::Int64)? else { return Ok(None) };
        let distance = distance.unwrap_or(1);
        let is_ahead = (*kind == WindowShiftKind::Lead) != arguments.is_reversed();
        let ahead = if is_ahead { distance } else { distance.saturating_neg() };
        Ok(Some(Shift { ahead, default: default.cast_to(value.data_type())? }))
    }
}

impl WindowUDFImpl for Present {
    of_inner!(name, aliases, signature, expressions, coerce_types, documentation);

    fn field(&self, arguments: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.field(arguments)
    }

    fn partition_evaluator(
        &self,
        arguments: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        if arguments.ignore_nulls()
            && let Some(shift) = self.shift(&arguments)?
        {
            return Ok(Box::new(shift));
        }
        self.inner.partition_evaluator_factory(arguments)
    }
}

/// Which value a row looks at.
#[derive(Debug)]
struct Shift {
    /// How many values behind the row; before it, where it is negative.
    ahead: i64,
    /// What stands where there is no such value.
    default: ScalarValue,
}

impl PartitionEvaluator for Shift {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let Some(values) = values.first() else {
            return internal_err!("a value of other rows without values");
        };
        if self.ahead == 0 {
            return Ok(Arc::clone(values));
        }
        let nulls = values.logical_nulls();
        let is_there = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        let present: Vec<u64> = (0..rows).filter(|row| is_there(*row)).map(|row| row as u64).collect();
        // How many of them stand before a row.
        let mut before: i64 = 0;
        let wanted = (0..rows).map(|row| {
            let own = i64::from(is_there(row));
            let place = match self.ahead > 0 {
                true => (before + own).checked_add(self.ahead - 1),
                false => before.checked_add(self.ahead),
            };
            before += own;
            present.get(usize::try_from(place?).ok()?).copied()
        });
        let wanted: UInt64Array = wanted.collect();
        let found = take(values, &wanted, None)?;
        if self.default.is_null() {
            return Ok(found);
        }
        // A value that is there is not NULL.
        Ok(zip(&is_not_null(&wanted)?, &found, &self.default.to_scalar()?)?)
    }
}
