//! Calls of aggregates whose ORDER BY DataFusion drops: `any_value(x ORDER BY y)` is the first value in that order that is not NULL. And
//! lists such as `[t.a, 1]`, whose values DataFusion plans without the columns of queries around: as calls they are planned with them.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, Ident,
    NullTreatment, ObjectName, ObjectNamePart,
};

use crate::syntax::{self, Flow, Walk, names_columns, visit};

/// Writes such calls as others that mean what they say.
pub(super) fn rewrite(statement: &mut Statement) {
    let _ = visit(statement, &mut Calls);
}

struct Calls;

impl Walk for Calls {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::Function(call) => ordered_any_value(call),
            Expr::Array(array) if array.elem.iter().any(names_columns) => {
                *expr = syntax::call("make_array", std::mem::take(&mut array.elem));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// `any_value` with an order becomes `first_value` of what is not NULL.
fn ordered_any_value(call: &mut Function) {
    let is_any_value = match call.name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => name.value.eq_ignore_ascii_case("any_value"),
        _ => false,
    };
    let FunctionArguments::List(list) = &call.args else { return };
    let has_order = list.clauses.iter().any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_)));
    if !is_any_value || !has_order || call.over.is_some() {
        return;
    }
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] = list.args.as_slice() else { return };
    let is_there = Expr::IsNotNull(Box::new(Expr::Nested(Box::new(argument.clone()))));
    let filter = match call.filter.take() {
        None => is_there,
        Some(filter) => Expr::BinaryOp {
            left: Box::new(Expr::Nested(filter)),
            op: datafusion::sql::sqlparser::ast::BinaryOperator::And,
            right: Box::new(is_there),
        },
    };
    call.filter = Some(Box::new(filter));
    call.null_treatment = None::<NullTreatment>;
    call.name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new("first_value"))]);
}
