//! Scalar subqueries, and parameters of generic plans, which are subqueries that each run has the values of.

use std::convert::Infallible;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::not_impl_err;
use datafusion::error::Result;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use kelpie_compile::expr::{Expr, ExprKind, substitute};
use kelpie_compile::plan::Plan;
use kelpie_compile::types::Literal;

use super::translated::{Generic, KnownScalar, Translated};
use super::translator::Translator;
use crate::node::Node;
use crate::parameters::{Values, is_of_parameters, value};
use crate::types;

/// From here on the numbers of `ExprKind::Scalar` are those of parameters; below they are positions in `Plan::Scalars`.
const FIRST: usize = usize::MAX / 2;

/// The place of a parameter in expressions.
pub(super) fn place(number: usize) -> ExprKind {
    ExprKind::Scalar(FIRST + number)
}

/// The number of the parameter whose place an expression is.
fn number(expr: &Expr) -> Option<usize> {
    match expr.kind {
        ExprKind::Scalar(index) => index.checked_sub(FIRST),
        _ => None,
    }
}

/// Whether an expression is the place of a parameter, where the compiler will find a literal.
pub(super) fn is_place(expr: &Expr) -> bool {
    number(expr).is_some()
}

impl Translator {
    /// The subqueries do not see each other's values, nor do they see those of the enclosing node. Those that only compute something
    /// from parameters are no plans to run: their values are there when a copy of the plan is made for a run.
    pub(super) fn scalars(&mut self, node: &ScalarSubqueryExec) -> Option<Plan> {
        let outer = std::mem::take(&mut self.scalars);
        let (mut known, mut subqueries) = (Vec::new(), Vec::new());
        for link in node.subqueries() {
            let expr = ScalarSubqueryExpr::new(ArrowType::Null, true, link.index, node.results().clone());
            let kind = match is_of_parameters(&link.plan) {
                true => {
                    self.parameters.push(Arc::clone(&link.plan));
                    place(self.parameters.len() - 1)
                }
                false => {
                    subqueries.push(self.plan(&link.plan));
                    ExprKind::Scalar(subqueries.len() - 1)
                }
            };
            known.push(KnownScalar { expr, kind });
        }
        self.scalars = known;
        let input = self.plan(node.input());
        self.scalars = outer;
        let (input, subqueries) = (input?, subqueries.into_iter().collect::<Option<Vec<_>>>()?);
        Some(match subqueries.is_empty() {
            true => input,
            false => Plan::Scalars { input: Box::new(input), subqueries },
        })
    }

    /// The plan with the values of its parameters that it was planned with, and the one without.
    pub(super) fn with_first_values(&mut self, plan: Plan) -> Option<(Plan, Option<Arc<Generic>>)> {
        if self.parameters.is_empty() {
            return Some((plan, None));
        }
        let generic = Generic::new(plan, std::mem::take(&mut self.parameters));
        match generic.filled(None) {
            Ok(plan) => Some((plan, Some(Arc::new(generic)))),
            Err(error) => self.refuse(&error.strip_backtrace()),
        }
    }
}

impl Translated {
    /// The same with the values of a run; `None` where it has no parameters.
    pub(crate) fn with_values(&self, values: &Values) -> Result<Option<Translated>> {
        let Some(generic) = &self.generic else { return Ok(None) };
        let plan = generic.filled(Some(values))?;
        Ok(Some(Translated { plan, tables: self.tables.clone(), generic: Some(Arc::clone(generic)) }))
    }
}

impl Generic {
    pub(super) fn new(plan: Plan, parameters: Vec<Node>) -> Generic {
        Generic { plan, parameters }
    }

    /// The plan with values: those that it was planned with where none are given.
    pub(super) fn filled(&self, values: Option<&Values>) -> Result<Plan> {
        let literal = |parameter: &Node| {
            let value = value(parameter, values)?;
            match types::literal(&value) {
                Some(literal) => Ok(literal),
                None => not_impl_err!("constants of type {} are not compiled", value.data_type()),
            }
        };
        let literals = self.parameters.iter().map(literal).collect::<Result<Vec<_>>>()?;
        Ok(filled(&self.plan, &literals))
    }
}

fn filled(plan: &Plan, literals: &[Literal]) -> Plan {
    let replace = |expr: &Expr| {
        let literal = literals.get(number(expr)?)?.clone();
        let nullable = expr.nullable || literal == Literal::Null;
        Some(Expr { kind: ExprKind::Literal(literal), data_type: expr.data_type.clone(), nullable })
    };
    let plan = plan.map_exprs(&|expr| substitute(expr, &replace));
    let inputs = plan.map_inputs::<Infallible>(&mut |input| Ok(filled(input, literals)));
    inputs.unwrap_or_else(|never| match never {})
}
