//! `+`, `-` and `*` of integers, which fail where their type does not hold the result.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::physical_expr_common::datum::apply;

use super::bounds::Bounds;

/// What is done to two integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ExactOp {
    /// +
    Add,
    /// -
    Subtract,
    /// *
    Multiply,
}

impl ExactOp {
    /// That of an operator.
    pub(super) fn of(op: Operator) -> Option<ExactOp> {
        match op {
            Operator::Plus => Some(ExactOp::Add),
            Operator::Minus => Some(ExactOp::Subtract),
            Operator::Multiply => Some(ExactOp::Multiply),
            _ => None,
        }
    }

    /// The operation on two expressions of one integer type.
    pub(super) fn call(self, left: Expr, right: Expr) -> Expr {
        static FUNCTIONS: LazyLock<[Arc<ScalarUDF>; 3]> = LazyLock::new(|| {
            [ExactOp::Add, ExactOp::Subtract, ExactOp::Multiply]
                .map(|op| Arc::new(ScalarUDF::new_from_impl(Exact::new(op))))
        });
        let [add, subtract, multiply] = &*FUNCTIONS;
        let function = match self {
            ExactOp::Add => add,
            ExactOp::Subtract => subtract,
            ExactOp::Multiply => multiply,
        };
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), vec![left, right]))
    }

    /// Bounds of the result, by those of the operands; `None` where they are beyond 128 bits.
    pub(super) fn bounds(self, a: Bounds, b: Bounds) -> Option<Bounds> {
        let result = |a: i128, b: i128| match self {
            ExactOp::Add => a.checked_add(b),
            ExactOp::Subtract => a.checked_sub(b),
            ExactOp::Multiply => a.checked_mul(b),
        };
        let corners = [result(a.0, b.0)?, result(a.0, b.1)?, result(a.1, b.0)?, result(a.1, b.1)?];
        Some((corners.into_iter().min()?, corners.into_iter().max()?))
    }
}

/// The function that an operation on integers becomes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Exact {
    op: ExactOp,
    signature: Signature,
}

impl Exact {
    pub(crate) fn new(op: ExactOp) -> Exact {
        Exact { op, signature: Signature::any(2, Volatility::Immutable) }
    }

    /// What it does.
    pub(crate) fn op(&self) -> ExactOp {
        self.op
    }
}

impl ScalarUDFImpl for Exact {
    fn name(&self) -> &str {
        match self.op {
            ExactOp::Add => "exact_add",
            ExactOp::Subtract => "exact_subtract",
            ExactOp::Multiply => "exact_multiply",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [argument, _] => Ok(argument.clone()),
            _ => exec_err!("{} takes two arguments, not {}", self.name(), arguments.len()),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> =
            arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = arguments.args.as_slice() else {
            return exec_err!("{} takes two arguments, not {}", self.name(), arguments.args.len());
        };
        match self.op {
            ExactOp::Add => apply(left, right, numeric::add),
            ExactOp::Subtract => apply(left, right, numeric::sub),
            ExactOp::Multiply => apply(left, right, numeric::mul),
        }
    }
}
