//! Arguments of window functions that are no constants: `lag(x, 1, y)` with a default of the row, and `ntile(n)` of a number that is computed.
//! DataFusion takes literals alone.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
    NullTreatment, Query, Select, SelectItem, Value, WindowType,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::window_orders;
use crate::syntax::{
    Flow, Walk, change_exprs, change_exprs_from_inside, has_expr, name_of, quoted, visit, visit_part,
};

/// Writes such calls as expressions of others.
pub(super) fn write_out(statement: &mut Statement) {
    let _ = visit(statement, &mut Arguments { has_changed: false });
}

struct Arguments {
    has_changed: bool,
}

impl Walk for Arguments {
    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            if !has_expr(expr, &|expr| written_out(expr).is_some()) {
                continue;
            }
            // A column is called as it is written.
            let alias = quoted(expr.to_string());
            let mut expr = expr.clone();
            let mut arguments = Arguments { has_changed: false };
            let _ = visit_part(&mut expr, &mut arguments);
            if arguments.has_changed {
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        // The bounds of a frame, and then the rest of the call.
        while let Some(written) = written_out(expr) {
            self.has_changed = true;
            *expr = written;
        }
        ControlFlow::Continue(())
    }
}

fn written_out(expr: &Expr) -> Option<Expr> {
    let Expr::Function(function) = expr else { return None };
    let name = name_of(function)?;
    function.over.as_ref()?;
    if let Some(ordered) = window_orders::written_out(function) {
        return Some(ordered);
    }
    match (name.as_str(), values(function)?.as_slice()) {
        ("lag" | "lead", [value, offset, default]) if varies(default) => {
            Some(with_default(function, value, offset, default))
        }
        ("ntile", [number]) if varies(number) => tile(function, number),
        _ => None,
    }
}

/// The arguments of a call; nothing where one has a name.
fn values(function: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let value = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    };
    list.args.iter().map(value).collect()
}

/// Whether an expression may have another value in each row, or one that is known only when the query runs.
fn varies(expr: &Expr) -> bool {
    visit_part(&mut expr.clone(), &mut Varying).is_break()
}

/// Stops at the first column, query or call.
struct Varying;

impl Walk for Varying {
    fn pre_visit_query(&mut self, _: &mut Query) -> Flow {
        ControlFlow::Break(None)
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Function(_) => ControlFlow::Break(None),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// `lag(x, n, y)` is `y` where there is no such row: where a constant of that row is NULL. Under IGNORE NULLS it is where no value is there.
fn with_default(function: &Function, value: &Expr, offset: &Expr, default: &Expr) -> Expr {
    let of = |value: Expr| {
        let mut shifted = function.clone();
        if let FunctionArguments::List(list) = &mut shifted.args {
            let arg = |value| FunctionArg::Unnamed(FunctionArgExpr::Expr(value));
            list.args = vec![arg(value), arg(offset.clone())];
        }
        Expr::Function(shifted)
    };
    let asked = if ignores_nulls(function) { value.clone() } else { Expr::value(Value::Boolean(true)) };
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition: Expr::IsNull(Box::new(of(asked))), result: default.clone() }],
        else_result: Some(Box::new(of(value.clone()))),
    }
}

fn ignores_nulls(function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else { return false };
    let is_clause = |clause: &FunctionArgumentClause| {
        matches!(clause, FunctionArgumentClause::IgnoreOrRespectNulls(NullTreatment::IgnoreNulls))
    };
    function.null_treatment == Some(NullTreatment::IgnoreNulls) || list.clauses.iter().any(is_clause)
}

/// The tile of a row by its number and that of all: as equal as they may be, the first ones with one more. A number that is not above 0 is
/// a division by zero.
fn tile(function: &Function, number: &Expr) -> Option<Expr> {
    const TILE: &str = "CASE WHEN \"row\" - 1 < (\"rows\" % \"n\") * (\"rows\" / \"n\" + 1) THEN (\"row\" - 1) / (\"rows\" / \"n\" + 1) + 1 \
                        ELSE \"rows\" % \"n\" + (\"row\" - 1 - (\"rows\" % \"n\") * (\"rows\" / \"n\" + 1)) / nullif(\"rows\" / \"n\", 0) + 1 END";
    const NUMBER: &str = "CAST(CASE WHEN \"number\" <= 0 THEN 0 ELSE \"number\" END AS BIGINT)";
    const WINDOW: &str = "CAST(\"call\" AS BIGINT)";
    let parsed = |text: &str| Parser::new(&GenericDialect).try_with_sql(text).ok()?.parse_expr().ok();
    let WindowType::WindowSpec(spec) = function.over.as_ref()? else { return None };
    let called = |name: &str, over: WindowType| {
        let Expr::Function(call) = crate::syntax::call(name, vec![]) else { return None };
        let call = Function { over: Some(over), filter: function.filter.clone(), ..call };
        Some(filled(parsed(WINDOW)?, &[("call", Expr::Function(call))]))
    };
    let mut of_all = spec.clone();
    of_all.order_by.clear();
    of_all.window_frame = None;
    let row = called("row_number", WindowType::WindowSpec(spec.clone()))?;
    let mut rows = called("count", WindowType::WindowSpec(of_all))?;
    change_exprs(&mut rows, &mut count_rows);
    let number = filled(parsed(NUMBER)?, &[("number", Expr::Nested(Box::new(number.clone())))]);
    let tile = filled(parsed(TILE)?, &[("row", row), ("rows", rows), ("n", number)]);
    Some(Expr::Nested(Box::new(tile)))
}

/// Makes `count()` one of rows.
fn count_rows(expr: &mut Expr) {
    if let Expr::Function(call) = expr
        && let FunctionArguments::List(list) = &mut call.args
        && list.args.is_empty()
    {
        list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Wildcard));
    }
}

/// An expression with others in the places of some names.
fn filled(mut expr: Expr, values: &[(&str, Expr)]) -> Expr {
    // From the inside, so that it does not come into the values.
    change_exprs_from_inside(&mut expr, &mut |expr| {
        if let Expr::Identifier(name) = expr
            && let Some((_, value)) = values.iter().find(|(wanted, _)| *wanted == name.value)
        {
            *expr = value.clone();
        }
    });
    expr
}
