//! Windows as SQL has them and DataFusion has not: ORDER BY within an aggregate over a window, `list(x ORDER BY y) OVER (…)`, and so
//! `arg_max(x, y) OVER (…)`; and bounds of frames that are computed of constants.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Ident, NullTreatment, ObjectName, ObjectNamePart, OrderByExpr, UnaryOperator, Value,
    WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};

use crate::syntax::{call, name_of, number};

/// Aggregates whose value is the same in any order of their rows.
const WITHOUT_ORDER: [&str; 20] = [
    "sum", "avg", "mean", "count", "min", "max", "median", "stddev", "stddev_pop", "stddev_samp", "var",
    "var_pop", "var_samp", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor", "corr", "covar_pop",
];

/// What a call over a window is in other words.
pub(super) fn written_out(function: &Function) -> Option<Expr> {
    let WindowType::WindowSpec(spec) = function.over.as_ref()? else { return None };
    if let Some(folded) = with_folded_bounds(function, spec) {
        return Some(folded);
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    let keys = list.clauses.iter().find_map(|clause| match clause {
        FunctionArgumentClause::OrderBy(keys) => Some(keys),
        _ => None,
    })?;
    let name = name_of(function)?;
    if WITHOUT_ORDER.contains(&name.as_str()) {
        return Some(Expr::Function(without_order(function)));
    }
    let of_whole = spec.order_by.is_empty() && spec.window_frame.as_ref().is_none_or(is_whole);
    if list.duplicate_treatment.is_some() {
        return None;
    }
    match (name.as_str(), function.filter.as_deref()) {
        ("first_value" | "last_value", Some(filter)) => {
            let (value, filter) = of_present(list.args.first()?, filter)?;
            let ([key], "first_value") = (keys.as_slice(), name.as_str()) else { return None };
            most(function, value, key, filter)
        }
        ("array_agg" | "string_agg" | "first_value" | "last_value", _) if of_whole => {
            let mut ordered = without_order(function);
            ordered.over = Some(WindowType::WindowSpec(WindowSpec {
                order_by: keys.clone(),
                window_frame: Some(whole()),
                ..spec.clone()
            }));
            Some(Expr::Function(ordered))
        }
        _ => None,
    }
}

fn without_order(function: &Function) -> Function {
    let mut plain = function.clone();
    if let FunctionArguments::List(list) = &mut plain.args {
        list.clauses.retain(|clause| !matches!(clause, FunctionArgumentClause::OrderBy(_)));
    }
    plain
}

/// All rows of a partition.
fn whole() -> WindowFrame {
    WindowFrame {
        units: WindowFrameUnits::Rows,
        start_bound: WindowFrameBound::Preceding(None),
        end_bound: Some(WindowFrameBound::Following(None)),
    }
}

fn is_whole(frame: &WindowFrame) -> bool {
    matches!(frame.start_bound, WindowFrameBound::Preceding(None))
        && matches!(frame.end_bound, Some(WindowFrameBound::Following(None)))
}

/// The value of a call whose filter leaves out rows in which it is NULL, and what else the filter says.
fn of_present<'a>(value: &'a FunctionArg, filter: &'a Expr) -> Option<(&'a Expr, Vec<&'a Expr>)> {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = value else { return None };
    let mut conditions = Vec::new();
    conjuncts(filter, &mut conditions);
    let asks = |condition: &Expr| matches!(condition, Expr::IsNotNull(asked) if asked.as_ref() == value);
    let is_present = conditions.iter().any(|condition| asks(condition));
    is_present.then(|| (value, conditions.into_iter().filter(|condition| !asks(condition)).collect()))
}

fn conjuncts<'a>(condition: &'a Expr, all: &mut Vec<&'a Expr>) {
    match condition {
        Expr::Nested(inner) => conjuncts(inner, all),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            conjuncts(left, all);
            conjuncts(right, all);
        }
        condition => all.push(condition),
    }
}

/// The value of the row whose key is least or greatest, of the rows of each frame.
fn most(function: &Function, value: &Expr, key: &OrderByExpr, filter: Vec<&Expr>) -> Option<Expr> {
    let name = if key.options.asc == Some(false) { "kelpie_arg_max" } else { "kelpie_arg_min" };
    let asks_key = |condition: &Expr| matches!(condition, Expr::IsNotNull(asked) if **asked == key.expr);
    if key.options.nulls_first.is_some() || !filter.iter().any(|condition| asks_key(condition)) {
        return None;
    }
    let Expr::Function(called) = call(name, vec![value.clone(), key.expr.clone()]) else { return None };
    let rest = filter
        .into_iter()
        .filter(|condition| !asks_key(condition))
        .cloned()
        .map(|condition| Expr::Nested(Box::new(condition)));
    let filter = rest.reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    });
    Some(Expr::Function(Function {
        filter: filter.map(Box::new),
        over: function.over.clone(),
        null_treatment: None::<NullTreatment>,
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        ..called
    }))
}

/// A call whose frame has numbers for bounds, where these were computed of others.
fn with_folded_bounds(function: &Function, spec: &WindowSpec) -> Option<Expr> {
    let frame = spec.window_frame.as_ref()?;
    let start = folded(&frame.start_bound);
    let end = frame.end_bound.as_ref().map(folded);
    if start.is_none() && end.iter().flatten().next().is_none() {
        return None;
    }
    let frame = WindowFrame {
        units: frame.units,
        start_bound: start.unwrap_or_else(|| frame.start_bound.clone()),
        end_bound: end.flatten().or_else(|| frame.end_bound.clone()),
    };
    let over = WindowSpec { window_frame: Some(frame), ..spec.clone() };
    Some(Expr::Function(Function { over: Some(WindowType::WindowSpec(over)), ..function.clone() }))
}

/// A bound with its number; nothing where it is one already, or none can be told.
fn folded(bound: &WindowFrameBound) -> Option<WindowFrameBound> {
    let told = |distance: &Expr| match distance {
        Expr::Value(_) => None,
        distance => constant(distance).filter(|number| *number >= 0),
    };
    let made = |distance: i64| Some(Box::new(number(distance)));
    match bound {
        WindowFrameBound::Preceding(Some(distance)) => {
            told(distance).map(|distance| WindowFrameBound::Preceding(made(distance)))
        }
        WindowFrameBound::Following(Some(distance)) => {
            told(distance).map(|distance| WindowFrameBound::Following(made(distance)))
        }
        _ => None,
    }
}

/// A whole number that is computed of others.
fn constant(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Nested(inner) => constant(inner),
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => constant(expr)?.checked_neg(),
        Expr::Cast {
            expr, data_type: DataType::Int(_) | DataType::Integer(_) | DataType::BigInt(_), ..
        } => constant(expr),
        Expr::BinaryOp { left, op, right } => {
            let (left, right) = (constant(left)?, constant(right)?);
            match op {
                BinaryOperator::Plus => left.checked_add(right),
                BinaryOperator::Minus => left.checked_sub(right),
                BinaryOperator::Multiply => left.checked_mul(right),
                _ => None,
            }
        }
        _ => None,
    }
}
