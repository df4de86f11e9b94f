//! `row_number`, `rank`, `dense_rank` and `ntile` as BIGINT, which SQL says that they are. DataFusion's are unsigned, so that the difference of two
//! of them, by which gaps and islands are found, is an error where it is below zero.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::{SortOptions, cast};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{LimitEffect, PartitionEvaluator, ReversedUDWF, WindowUDF, WindowUDFImpl};
use datafusion::physical_expr::PhysicalExpr;

use crate::function_methods::of_inner;

/// A function that numbers rows, from 1 on.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Numbers {
    /// DataFusion's, which numbers them.
    inner: Arc<WindowUDF>,
}

impl Numbers {
    pub fn new(inner: Arc<WindowUDF>) -> Numbers {
        Numbers { inner }
    }

    pub fn inner(&self) -> &WindowUDF {
        &self.inner
    }
}

impl WindowUDFImpl for Numbers {
    of_inner!(name, aliases, signature, expressions, coerce_types, documentation);

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }

    fn partition_evaluator(
        &self,
        arguments: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Signed(self.inner.partition_evaluator_factory(arguments)?)))
    }

    fn field(&self, arguments: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.inner.field(arguments)?;
        Ok(Arc::new(field.as_ref().clone().with_data_type(DataType::Int64)))
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.reverse_expr() {
            ReversedUDWF::Identical => ReversedUDWF::Identical,
            _ => ReversedUDWF::NotSupported,
        }
    }

    fn limit_effect(&self, arguments: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(arguments)
    }
}

/// Numbers of rows with a sign.
#[derive(Debug)]
struct Signed(Box<dyn PartitionEvaluator>);

impl PartitionEvaluator for Signed {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.0.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> Result<Range<usize>> {
        self.0.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.0.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        Ok(cast(&self.0.evaluate_all(values, rows)?, &DataType::Int64)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.0.evaluate(values, range)?.cast_to(&DataType::Int64)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        Ok(cast(&self.0.evaluate_all_with_rank(rows, ranks)?, &DataType::Int64)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.0.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.0.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.0.include_rank()
    }
}
