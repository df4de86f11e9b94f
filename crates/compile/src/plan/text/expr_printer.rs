//! Expression to text.

use super::infer::{Gives, gives};
use super::lexer::quote;
use super::scope::Scope;
use super::values::{field_type_text, type_text, usual_type, value_text};
use super::words;
use crate::expr::{ArithmeticOp, Bins, Expr, ExprKind, Function};
use crate::types::{DataType, Literal};

/// How strongly operators bind their operands, from the weakest up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    /// Anything goes without brackets.
    Any,
    Or,
    And,
    Not,
    /// Comparisons, `is null`, `in`, `like`: none of them has another one as its operand.
    Compare,
    Concat,
    Sum,
    Product,
    Negate,
    /// Columns, constants, functions, brackets.
    Atom,
}

impl Strength {
    /// The next one: what the right operand of an operator has to have.
    pub(super) fn above(self) -> Strength {
        use Strength::*;
        match self {
            Any => Or,
            Or => And,
            And => Not,
            Not => Compare,
            Compare => Concat,
            Concat => Sum,
            Sum => Product,
            Product => Negate,
            Negate | Atom => Atom,
        }
    }

    pub(super) fn of_arithmetic(op: ArithmeticOp) -> Strength {
        match op {
            ArithmeticOp::Add
            | ArithmeticOp::AddExact
            | ArithmeticOp::Subtract
            | ArithmeticOp::SubtractExact => Strength::Sum,
            ArithmeticOp::Multiply
            | ArithmeticOp::MultiplyExact
            | ArithmeticOp::Divide
            | ArithmeticOp::Remainder => Strength::Product,
        }
    }
}

/// The text of an expression over the columns of `scope`.
pub(super) fn expr_text(expr: &Expr, scope: &Scope) -> String {
    text(expr, scope, Strength::Any)
}

/// A constant that is written without brackets around it and its type.
fn is_plain_literal(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Literal(literal) => {
            expr.nullable == (*literal == Literal::Null) && value_text(literal, &expr.data_type).is_some()
        }
        _ => false,
    }
}

fn has_usual_type(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Literal(literal) if usual_type(literal).as_ref() == Some(&expr.data_type))
}

/// What is said of the type of constants that are operands beside this expression: what a reader takes it for.
fn context(expr: &Expr) -> Option<&DataType> {
    (!is_plain_literal(expr) || !has_usual_type(expr)).then_some(&expr.data_type)
}

/// The texts of two operands, of which either says of which type a constant is that is the other.
fn pair(a: &Expr, b: &Expr, scope: &Scope, (left, right): (Strength, Strength)) -> (String, String) {
    // Of two constants neither says anything of the other, unless both do.
    let both_plain = is_plain_literal(a) && is_plain_literal(b);
    if both_plain && has_usual_type(a) && has_usual_type(b) {
        return (typed(a, scope, None, left), typed(b, scope, None, right));
    }
    if both_plain {
        return (with_type(a), with_type(b));
    }
    (typed(a, scope, context(b), left), typed(b, scope, context(a), right))
}

/// An expression; where it is a constant, with its type if that is another one than `known` or, where nothing is known, the usual one.
fn typed(expr: &Expr, scope: &Scope, known: Option<&DataType>, least: Strength) -> String {
    match (&expr.kind, known) {
        (ExprKind::Literal(literal), Some(known)) if is_plain_literal(expr) && *known == expr.data_type => {
            value_text(literal, known).unwrap_or_default()
        }
        (ExprKind::Literal(_), Some(_)) if is_plain_literal(expr) => with_type(expr),
        _ => text(expr, scope, least),
    }
}

/// A plain constant with its type before it.
fn with_type(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Literal(literal) => {
            let value = value_text(literal, &expr.data_type).unwrap_or_default();
            format!("{} {value}", type_text(&expr.data_type))
        }
        _ => String::new(),
    }
}

/// What an expression gives, where that does not follow from what it is printed as.
fn unforeseen(expr: &Expr, scope: &Scope) -> Option<Gives> {
    let foreseen = match &expr.kind {
        ExprKind::Column(index) => scope.field(*index).map(Gives::of_field),
        ExprKind::Literal(_) => is_plain_literal(expr).then(|| Gives::of(expr)),
        ExprKind::Scalar(_) => None,
        kind => gives(kind, &expr.data_type),
    };
    let said = Gives::of(expr);
    (foreseen.as_ref() != Some(&said)).then_some(said)
}

fn text(expr: &Expr, scope: &Scope, least: Strength) -> String {
    if let Some(Gives { data_type, nullable }) = unforeseen(expr, scope) {
        let plain = plain_text(expr, scope).text;
        return format!("({plain} : {})", field_type_text(&data_type, nullable));
    }
    let printed = plain_text(expr, scope);
    if printed.strength < least { format!("({})", printed.text) } else { printed.text }
}

/// An operator between its operands, the left one of which may be the same without brackets.
struct Infix<'a> {
    strength: Strength,
    left: &'a Expr,
    word: &'static str,
    right: &'a Expr,
}

fn infix(expr: &Expr) -> Option<Infix<'_>> {
    let (strength, left, word, right) = match &expr.kind {
        ExprKind::Or(a, b) => (Strength::Or, &**a, "or", &**b),
        ExprKind::And(a, b) => (Strength::And, &**a, "and", &**b),
        ExprKind::Arithmetic(op, a, b) => {
            (Strength::of_arithmetic(*op), &**a, words::arithmetic(*op).unwrap_or_default(), &**b)
        }
        ExprKind::Function(Function::ConcatOperator, arguments) => match arguments.as_slice() {
            [a, b] => (Strength::Concat, a, "||", b),
            _ => return None,
        },
        _ => return None,
    };
    Some(Infix { strength, left, word, right })
}

/// A chain of operators that bind alike, as `a + b - c`. It may be long, so it is walked in a loop.
fn chain_text(last: Infix<'_>, scope: &Scope) -> String {
    let strength = last.strength;
    let mut chain = vec![last];
    while let Some(before) =
        chain.last().and_then(|link| infix(link.left).filter(|_| unforeseen(link.left, scope).is_none()))
        && before.strength == strength
    {
        chain.push(before);
    }
    let mut out = String::new();
    for (index, link) in chain.iter().rev().enumerate() {
        let right = match index {
            0 => {
                let (left, right) = pair(link.left, link.right, scope, (strength, strength.above()));
                out = left;
                right
            }
            _ => typed(link.right, scope, context(link.left), strength.above()),
        };
        out.push_str(&format!(" {} {right}", link.word));
    }
    out
}

/// The text of an operator without brackets around it.
struct Printed {
    strength: Strength,
    text: String,
}

/// An expression, whatever it gives.
fn plain_text(expr: &Expr, scope: &Scope) -> Printed {
    use Strength::*;
    let operand = |operand: &Expr, least| text(operand, scope, least);
    let not = |negated: &bool| if *negated { "not " } else { "" };
    let compared = |text: String| Printed { strength: Compare, text };
    let equated = |a: &Expr, word: &str, b: &Expr| {
        let (a, b) = pair(a, b, scope, (Concat, Concat));
        compared(format!("{a} {word} {b}"))
    };
    let atom = |text: String| Printed { strength: Atom, text };
    if let Some(infix) = infix(expr) {
        return Printed { strength: infix.strength, text: chain_text(infix, scope) };
    }
    match &expr.kind {
        ExprKind::Column(index) => atom(scope.name(*index)),
        ExprKind::Literal(literal) => atom(literal_text(literal, &expr.data_type)),
        ExprKind::Scalar(index) => atom(format!("scalar({index})")),
        ExprKind::Compare(op, a, b) => equated(a, words::compare(*op).unwrap_or_default(), b),
        ExprKind::Distinct(negated, a, b) => equated(a, &format!("is {}distinct from", not(negated)), b),
        ExprKind::Not(a) => Printed { strength: Not, text: format!("not {}", operand(a, Not)) },
        ExprKind::Negate(a) if is_plain_literal(a) => {
            Printed { strength: Negate, text: format!("-({})", operand(a, Any)) }
        }
        ExprKind::Negate(a) => Printed { strength: Negate, text: format!("-{}", operand(a, Atom)) },
        ExprKind::IsNull(a) => compared(format!("{} is null", operand(a, Concat))),
        ExprKind::IsNotNull(a) => compared(format!("{} is not null", operand(a, Concat))),
        ExprKind::Case { branches, otherwise } => atom(case_text(branches, otherwise.as_deref(), scope)),
        ExprKind::Cast { input, safe } => {
            let word = if *safe { "try_cast" } else { "cast" };
            atom(format!("{word}({} as {})", operand(input, Any), type_text(&expr.data_type)))
        }
        ExprKind::InList { input, list, negated } => {
            let list: Vec<String> = list.iter().map(|e| typed(e, scope, context(input), Any)).collect();
            compared(format!("{} {}in ({})", operand(input, Concat), not(negated), list.join(", ")))
        }
        ExprKind::Like { input, pattern, negated, case_insensitive } => {
            let word = if *case_insensitive { "ilike" } else { "like" };
            compared(format!(
                "{} {}{word} {}",
                operand(input, Concat),
                not(negated),
                operand(pattern, Concat)
            ))
        }
        ExprKind::Regex { input, regex, negated } => {
            let (input, word) = (operand(input, Concat), if *negated { "!~" } else { "~" });
            compared(format!("{input} {word} {}", quote(&regex.pattern, '\'')))
        }
        ExprKind::Function(function, arguments) => atom(call_text(*function, arguments, scope)),
        // These are printed above.
        ExprKind::Arithmetic(..) | ExprKind::And(..) | ExprKind::Or(..) => atom(String::new()),
    }
}

/// A constant; where its type is none that it can have, as one that has only its text.
fn literal_text(literal: &Literal, data_type: &DataType) -> String {
    let usual = usual_type(literal);
    let is_usual = usual.as_ref() == Some(data_type);
    match value_text(literal, data_type) {
        Some(value) if is_usual => value,
        Some(value) => format!("{} {value}", type_text(data_type)),
        None => match usual {
            Some(usual) => value_text(literal, &usual).unwrap_or_default(),
            None => {
                let value = value_text(literal, &DataType::Interval).unwrap_or_default();
                format!("Interval {value}")
            }
        },
    }
}

fn case_text(branches: &[(Expr, Expr)], otherwise: Option<&Expr>, scope: &Scope) -> String {
    let first = branches.first().map(|(_, result)| result);
    let result = |index: usize, expr: &Expr| match first.filter(|_| index > 0) {
        Some(first) => typed(expr, scope, context(first), Strength::Any),
        None => text(expr, scope, Strength::Any),
    };
    let mut out = String::from("case");
    for (index, (condition, expr)) in branches.iter().enumerate() {
        let condition = text(condition, scope, Strength::Any);
        out.push_str(&format!(" when {condition} then {}", result(index, expr)));
    }
    if let Some(expr) = otherwise {
        out.push_str(&format!(" else {}", result(branches.len(), expr)));
    }
    out.push_str(" end");
    out
}

fn call_text(function: Function, arguments: &[Expr], scope: &Scope) -> String {
    let argument = |(index, expr): (usize, &Expr)| match arguments.first() {
        Some(first) if index > 0 && is_of_one_type(function) => {
            typed(expr, scope, context(first), Strength::Any)
        }
        _ => text(expr, scope, Strength::Any),
    };
    let arguments = arguments.iter().enumerate().map(argument);
    let (name, constant) = match function {
        Function::Part(bits) => ("part", Some(bits.to_string())),
        Function::DatePart(part) => ("date_part", words::date_part(part).map(str::to_string)),
        Function::DateBin(Bins { width, first }) => ("date_bin", Some(format!("{width}, {first}"))),
        Function::DateTrunc(to) => ("date_trunc", words::granularity(to).map(str::to_string)),
        other => (words::function(other).unwrap_or_default(), None),
    };
    let arguments: Vec<String> = constant.into_iter().chain(arguments).collect();
    format!("{name}({})", arguments.join(", "))
}

/// Whether constants among a function's arguments are of the first one's type.
pub(super) fn is_of_one_type(function: Function) -> bool {
    use Function::*;
    matches!(function, Coalesce | NullIf | Greatest | Least | Bits(_))
}

/// The texts of two expressions over the columns of either side of a join that are equal.
pub(super) fn equality_text((a, left): (&Expr, &Scope), (b, right): (&Expr, &Scope)) -> String {
    format!("{} = {}", text(a, left, Strength::Concat), text(b, right, Strength::Concat))
}
