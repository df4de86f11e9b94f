//! Walking the expression tree.

use super::{Expr, ExprKind, Function as ScalarFunction};

/// The direct operands, in order.
pub fn children(expr: &Expr) -> Vec<&Expr> {
    use ExprKind::*;
    match &expr.kind {
        Column(_) | Literal(_) | Scalar(_) => Vec::new(),
        Arithmetic(_, a, b) | Compare(_, a, b) | Distinct(_, a, b) | And(a, b) | Or(a, b) => vec![a, b],
        Not(a) | Negate(a) | IsNull(a) | IsNotNull(a) | Cast { input: a, .. } => vec![a],
        Case { branches, otherwise } => {
            let pairs = branches.iter().flat_map(|(condition, result)| [condition, result]);
            pairs.chain(otherwise.as_deref()).collect()
        }
        InList { input, list, .. } => std::iter::once(&**input).chain(list).collect(),
        Like { input, pattern, .. } => vec![input, pattern],
        Regex { input, .. } => vec![input],
        Function(_, arguments) => arguments.iter().collect(),
    }
}

/// The columns that an expression reads, once each.
pub fn columns_read(expr: &Expr) -> Vec<usize> {
    let mut columns = Vec::new();
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        if let ExprKind::Column(index) = expr.kind
            && !columns.contains(&index)
        {
            columns.push(index);
        }
        open.extend(children(expr));
    }
    columns
}

/// Whether an expression is a pair, whose values are stored each for itself.
pub(crate) fn is_pair(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Function(ScalarFunction::Pair, _))
}

/// The expression with every part that `replace` has something for replaced by it.
pub fn substitute(expr: &Expr, replace: &dyn Fn(&Expr) -> Option<Expr>) -> Expr {
    match replace(expr) {
        Some(other) => other,
        None => {
            let parts = children(expr).into_iter().map(|part| substitute(part, replace));
            with_children(expr, parts.collect())
        }
    }
}

/// The expression with other operands: as many as [`children`] gives (missing ones stay as they are).
pub fn with_children(expr: &Expr, children: Vec<Expr>) -> Expr {
    use ExprKind::*;
    let mut next = children.into_iter();
    let mut take = |old: &Expr| next.next().unwrap_or_else(|| old.clone());
    let mut take_box = |old: &Expr| Box::new(take(old));
    let kind = match &expr.kind {
        Column(index) => Column(*index),
        Literal(literal) => Literal(literal.clone()),
        Scalar(index) => Scalar(*index),
        Arithmetic(op, a, b) => Arithmetic(*op, take_box(a), take_box(b)),
        Compare(op, a, b) => Compare(*op, take_box(a), take_box(b)),
        Distinct(negated, a, b) => Distinct(*negated, take_box(a), take_box(b)),
        And(a, b) => And(take_box(a), take_box(b)),
        Or(a, b) => Or(take_box(a), take_box(b)),
        Not(a) => Not(take_box(a)),
        Negate(a) => Negate(take_box(a)),
        IsNull(a) => IsNull(take_box(a)),
        IsNotNull(a) => IsNotNull(take_box(a)),
        Cast { input, safe } => Cast { input: take_box(input), safe: *safe },
        Case { branches, otherwise } => Case {
            branches: branches.iter().map(|(c, r)| (*take_box(c), *take_box(r))).collect(),
            otherwise: otherwise.as_deref().map(take_box),
        },
        InList { input, list, negated } => InList {
            input: take_box(input),
            list: list.iter().map(|element| *take_box(element)).collect(),
            negated: *negated,
        },
        Like { input, pattern, negated, case_insensitive } => Like {
            input: take_box(input),
            pattern: take_box(pattern),
            negated: *negated,
            case_insensitive: *case_insensitive,
        },
        Regex { input, regex, negated } => {
            Regex { input: take_box(input), regex: regex.clone(), negated: *negated }
        }
        Function(function, arguments) => {
            Function(*function, arguments.iter().map(|argument| *take_box(argument)).collect())
        }
    };
    Expr { kind, data_type: expr.data_type.clone(), nullable: expr.nullable }
}
