//! `-x` of an `x` without a sign. DataFusion's planner takes the sign before a signed number only, and numbers of rows have none until
//! its plan is analyzed: `-row_number() OVER ()`, and `-x` of a query whose column that is.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Select, SelectItem, UnaryOperator};

use crate::syntax::{Flow, Walk, call, name_of, quoted, taken, visit, visit_part};

/// The function that makes a signed number of one without a sign, and leaves all else.
pub(super) const SIGNED: &str = "kelpie_signed";

/// Whether a statement fails as it has a sign before such a number.
pub(crate) fn is_unsigned(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::Plan(text) if text.starts_with("Unary operator '-' only supports"))
}

/// Makes signed numbers of what has a sign before it.
pub(crate) fn make_signed(statement: &mut Statement) {
    let _ = visit(statement, &mut Signs { has_changed: false });
}

struct Signs {
    has_changed: bool,
}

impl Walk for Signs {
    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            let mut other = expr.clone();
            let mut signs = Signs { has_changed: false };
            let _ = visit_part(&mut other, &mut signs);
            if signs.has_changed {
                // A column is called as it is written.
                let alias = quoted(expr.to_string());
                *item = SelectItem::ExprWithAlias { expr: other, alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::UnaryOp { op: UnaryOperator::Minus, expr: number } = expr
            && !matches!(**number, Expr::Value(_) | Expr::Interval(_))
            && !matches!(number.as_ref(), Expr::Function(inner) if name_of(inner).as_deref() == Some(SIGNED))
        {
            **number = call(SIGNED, vec![taken(number)]);
            self.has_changed = true;
        }
        ControlFlow::Continue(())
    }
}
