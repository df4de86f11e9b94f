//! Truth values beside numbers, and numbers beside truth values: `b = 1`, `x AND 1`. And `1 || 2`, which are texts. DataFusion has no
//! operators for these, and no sums of truth values.

use std::ops::ControlFlow;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast, lit};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr as Syntax, FunctionArg, FunctionArgExpr, FunctionArguments, Select, SelectItem,
    UnaryOperator, Value,
};

use crate::syntax::{Flow, Walk, call, name_of, quoted, taken, visit, visit_part};

/// Aggregates of numbers, which take truth values for 0 and 1 in other engines.
pub(super) const SUMS: [&str; 2] = ["sum", "avg"];
/// The function that makes a number of a truth value, and leaves all else.
pub(super) const NUMBER_OF: &str = "kelpie_number_of";

/// Plans them before DataFusion does.
#[derive(Debug)]
pub(crate) struct Truths;

impl ExprPlanner for Truths {
    fn plan_binary_op(&self, raw: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        if let Some(nothing) = list_with_null(&raw, schema) {
            return Ok(PlannerResult::Planned(nothing));
        }
        let Some((op, wanted)) = meant(&raw.op) else { return Ok(PlannerResult::Original(raw)) };
        // What has no type yet, DataFusion says.
        let (Ok(left), Ok(right)) = (raw.left.get_type(schema), raw.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(raw));
        };
        let is_truth = |data_type: &DataType| *data_type == DataType::Boolean;
        let is_known = |data_type: &DataType| data_type.is_integer() || is_truth(data_type);
        let changes = match wanted {
            DataType::Utf8 => is_number(&left) && is_number(&right),
            _ => is_known(&left) && is_known(&right) && is_truth(&left) != is_truth(&right),
        };
        let both_numbers = wanted == DataType::Boolean && left.is_integer() && right.is_integer();
        if !changes && !both_numbers || has_unknown(&raw.left)? || has_unknown(&raw.right)? {
            return Ok(PlannerResult::Original(raw));
        }
        let typed = |expr: Expr, data_type: &DataType| match *data_type == wanted {
            true => expr,
            false => cast(expr, wanted.clone()),
        };
        let sides = (typed(raw.left, &left), typed(raw.right, &right));
        let planned = BinaryExpr::new(Box::new(sides.0), op, Box::new(sides.1));
        Ok(PlannerResult::Planned(Expr::BinaryExpr(planned)))
    }
}

/// A list beside NULL is NULL, as a text is. DataFusion takes that NULL for an element.
fn list_with_null(raw: &RawBinaryExpr, schema: &DFSchema) -> Option<Expr> {
    if raw.op != BinaryOperator::StringConcat {
        return None;
    }
    let (left, right) = (raw.left.get_type(schema).ok()?, raw.right.get_type(schema).ok()?);
    let list = match (left, right) {
        (list, DataType::Null) | (DataType::Null, list) => list,
        _ => return None,
    };
    let is_list = matches!(list, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..));
    is_list.then(|| cast(lit(ScalarValue::Null), list))
}

/// Whether there is something within an expression that is of truth values without a look at its operands, which may not go together.
fn has_unknown(expr: &Expr) -> Result<bool> {
    let is_unknown = |expr: &Expr| {
        matches!(expr, Expr::Between(_) | Expr::InList(_) | Expr::Like(_) | Expr::SimilarTo(_) | Expr::Not(_))
    };
    expr.exists(|expr| Ok(is_unknown(expr)))
}

/// An operator, and the type that its operands have together where they have none of their own.
fn meant(op: &BinaryOperator) -> Option<(Operator, DataType)> {
    Some(match op {
        BinaryOperator::Eq => (Operator::Eq, DataType::Int64),
        BinaryOperator::NotEq => (Operator::NotEq, DataType::Int64),
        BinaryOperator::Lt => (Operator::Lt, DataType::Int64),
        BinaryOperator::LtEq => (Operator::LtEq, DataType::Int64),
        BinaryOperator::Gt => (Operator::Gt, DataType::Int64),
        BinaryOperator::GtEq => (Operator::GtEq, DataType::Int64),
        BinaryOperator::And => (Operator::And, DataType::Boolean),
        BinaryOperator::Or => (Operator::Or, DataType::Boolean),
        BinaryOperator::StringConcat => (Operator::StringConcat, DataType::Utf8),
        _ => return None,
    })
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric() || *data_type == DataType::Boolean || data_type.is_temporal()
}

/// Whether an expression is a condition by its syntax.
pub(super) fn is_condition(expr: &Syntax) -> bool {
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
    match expr {
        Syntax::Nested(inner) => is_condition(inner),
        Syntax::Value(value) => matches!(value.value, Value::Boolean(_)),
        Syntax::BinaryOp { op, .. } => matches!(op, And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq),
        Syntax::UnaryOp { op, .. } => *op == UnaryOperator::Not,
        Syntax::IsNull(_) | Syntax::IsNotNull(_) | Syntax::IsTrue(_) | Syntax::IsNotTrue(_) => true,
        Syntax::IsFalse(_) | Syntax::IsNotFalse(_) => true,
        Syntax::IsDistinctFrom(..) | Syntax::IsNotDistinctFrom(..) => true,
        Syntax::Like { .. } | Syntax::ILike { .. } | Syntax::InList { .. } | Syntax::Between { .. } => true,
        Syntax::InSubquery { .. } | Syntax::Exists { .. } => true,
        _ => false,
    }
}

/// Whether a statement fails as it sums truth values of columns.
pub(crate) fn is_sum_of_truths(error: &DataFusionError) -> bool {
    let text = error.to_string();
    let is_of = |name: &&str| {
        let coerced = text.contains("coercion from Boolean to") && text.contains(&format!("'{name}'"));
        coerced || text.contains(&format!("'{name}(Boolean)'"))
    };
    SUMS.iter().any(is_of)
}

/// Makes numbers of what is summed, where it is a truth value.
pub(crate) fn sum_numbers(statement: &mut Statement) {
    let _ = visit(statement, &mut Sums { has_changed: false });
}

struct Sums {
    has_changed: bool,
}

impl Walk for Sums {
    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            let mut other = expr.clone();
            let mut sums = Sums { has_changed: false };
            let _ = visit_part(&mut other, &mut sums);
            if sums.has_changed {
                // A column is called as it is written.
                let alias = quoted(expr.to_string());
                *item = SelectItem::ExprWithAlias { expr: other, alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Syntax) -> Flow {
        if let Syntax::Function(function) = expr
            && name_of(function).is_some_and(|name| SUMS.contains(&name.as_str()))
            && let FunctionArguments::List(list) = &mut function.args
            && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] = list.args.as_mut_slice()
            && !matches!(value, Syntax::Function(inner) if name_of(inner).as_deref() == Some(NUMBER_OF))
        {
            *value = call(NUMBER_OF, vec![taken(value)]);
            self.has_changed = true;
        }
        ControlFlow::Continue(())
    }
}
