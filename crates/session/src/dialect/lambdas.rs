//! Functions of lists that take a lambda, `lambda x: x + 1` or `x -> x + 1`, and lists of expressions, `[x + 1 for x in l if x > 0]`.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, LambdaFunction,
    LambdaFunctionParameter, LambdaSyntax, ObjectName, ObjectNamePart, OneOrManyWithParens,
};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::words::{Change, Words};
use crate::operators::left_of;
use crate::syntax::{call, change_exprs_from_inside, literal, name_of, normal, taken};

/// What a list of expressions is written as, until its parts are known.
const COMPREHENSION: &str = "list of expressions";

/// Functions whose second argument is a lambda, and what they are here: of one parameter, and of two, the second of which is the
/// element's place.
const TAKERS: [(&str, &str, &str); 17] = [
    ("list_transform", "array_transform", "list_transform_places"),
    ("array_transform", "array_transform", "list_transform_places"),
    ("list_apply", "array_transform", "list_transform_places"),
    ("array_apply", "array_transform", "list_transform_places"),
    ("apply", "array_transform", "list_transform_places"),
    ("transform", "array_transform", "list_transform_places"),
    ("list_filter", "array_filter", "list_filter_places"),
    ("array_filter", "array_filter", "list_filter_places"),
    ("filter", "array_filter", "list_filter_places"),
    ("list_any_match", "array_any_match", "array_any_match"),
    ("array_any_match", "array_any_match", "array_any_match"),
    ("any_match", "array_any_match", "array_any_match"),
    ("array_first", "array_first", "array_first"),
    ("list_first", "array_first", "array_first"),
    ("list_reduce", "list_reduce", "list_reduce"),
    ("array_reduce", "list_reduce", "list_reduce"),
    ("reduce", "list_reduce", "list_reduce"),
];

/// `lambda x: …` is `x -> …`, and a list of expressions a call, for the parser.
pub(super) fn changes(words: &Words<'_>, changes: &mut Vec<Change>) {
    for place in (0..words.all.len()).filter(|place| words.is(*place, "lambda")) {
        let mut behind = place + 1;
        while matches!(
            words.token(behind),
            Some(Token::Word(_) | Token::Comma | Token::LParen | Token::RParen)
        ) {
            behind += 1;
        }
        if behind > place + 1 && words.is_token(behind, &Token::Colon) {
            let written = words.sql[words.byte(place + 1)..words.byte(behind)].trim();
            let text = match written.contains(',') && !written.starts_with('(') {
                true => format!("({written}) -> "),
                false => format!("{written} -> "),
            };
            changes.push(Change { from: words.byte(place), to: words.byte(behind + 1), text });
        }
    }
    comprehensions(words, changes);
}

/// An opened bracket or parenthesis.
struct Open {
    place: usize,
    is_list: bool,
    /// Behind `for x in`, of a list.
    has_names: bool,
    has_condition: bool,
}

fn comprehensions(words: &Words<'_>, changes: &mut Vec<Change>) {
    let mut open: Vec<Open> = Vec::new();
    let mut place = 0;
    while let Some(token) = words.token(place) {
        let byte = words.byte(place);
        match token {
            Token::LBracket | Token::LParen | Token::LBrace => {
                let is_list = *token == Token::LBracket;
                open.push(Open { place, is_list, has_names: false, has_condition: false });
            }
            Token::RBracket | Token::RParen | Token::RBrace => {
                let has_names = open.pop().is_some_and(|open| open.has_names);
                if has_names {
                    changes.push(Change { from: byte, to: byte + 1, text: "))".into() });
                }
            }
            _ => {}
        }
        let Some(list) = open.last_mut().filter(|open| open.is_list) else {
            place += 1;
            continue;
        };
        let opening = words.byte(list.place);
        if !list.has_names
            && words.is(place, "for")
            && let Some(behind) = after_names(words, place + 1)
        {
            let names = words.sql[words.byte(place + 1)..words.byte(behind)].trim();
            let names = if names.contains(',') { format!("({names})") } else { names.to_string() };
            list.has_names = true;
            let text = format!("\"{COMPREHENSION}\"({names} -> (");
            changes.push(Change { from: opening, to: opening + 1, text });
            changes.push(Change { from: byte, to: words.byte(behind + 1), text: "), (".into() });
            // What the list begins with is no condition.
            place = behind + 1;
            if let Some(Token::LBracket | Token::LParen | Token::LBrace) = words.token(place) {
                continue;
            }
        } else if list.has_names && !list.has_condition && words.is(place, "if") {
            list.has_condition = true;
            let behind = changes.iter().rposition(|change| change.from == opening);
            let names = behind.and_then(|at| changes.get(at)).and_then(|change| {
                let (_, call) = change.text.split_once("\"(")?;
                call.strip_suffix("(").map(ToString::to_string)
            });
            let text = format!("), {}(", names.unwrap_or_default());
            changes.push(Change { from: byte, to: words.byte(place + 1), text });
        }
        place += 1;
    }
}

/// The place of `in` behind one or two names.
fn after_names(words: &Words<'_>, mut place: usize) -> Option<usize> {
    let is_name = |place| matches!(words.token(place), Some(Token::Word(_)));
    if !is_name(place) {
        return None;
    }
    place += 1;
    if words.is_token(place, &Token::Comma) && is_name(place + 1) {
        place += 2;
    }
    words.is(place, "in").then_some(place)
}

/// Makes lambdas of the arrows that stand where a function takes one.
pub(super) fn rewrite(expr: &mut Expr) {
    let Expr::Function(function) = expr else { return };
    let Some(name) = name_of(function) else { return };
    if name == COMPREHENSION {
        if let Some(written) = comprehension(function) {
            *expr = written;
            rewrite(expr);
        }
        return;
    }
    let Some((_, one, two)) = TAKERS.iter().find(|(taker, ..)| *taker == name) else { return };
    let Some(lambda) = values(function).into_iter().nth(1) else { return };
    let Some(parameters) = make_lambda(lambda) else { return };
    let meant = if parameters > 1 { two } else { one };
    if *meant != name {
        function.name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new(*meant))]);
    }
}

fn values(function: &mut Function) -> Vec<&mut Expr> {
    let FunctionArguments::List(list) = &mut function.args else { return vec![] };
    let value = |arg| match arg {
        &mut FunctionArg::Unnamed(FunctionArgExpr::Expr(ref mut value)) => Some(value),
        _ => None,
    };
    list.args.iter_mut().filter_map(value).collect()
}

/// A list of expressions as functions: of the elements that fulfil the condition, what the expression makes. Places are those of the
/// whole list: where the expression has a name for them, it and the condition are computed together, before elements are left out.
fn comprehension(function: &mut Function) -> Option<Expr> {
    let mut values = values(function).into_iter();
    let (transform, list) = (values.next()?, values.next()?);
    let list = taken(list);
    let Some(condition) = values.next() else {
        return Some(call("list_transform", vec![list, taken(transform)]));
    };
    if make_lambda(transform)? == 1 {
        let list = call("list_filter", vec![list, taken(condition)]);
        return Some(call("list_transform", vec![list, taken(transform)]));
    }
    make_lambda(condition)?;
    let (Expr::Lambda(both), Expr::Lambda(condition)) = (&mut *transform, taken(condition)) else {
        return None;
    };
    let fields = vec![literal("value"), taken(&mut both.body), literal("stays"), *condition.body];
    *both.body = call("named_struct", fields);
    let of_both = |name| {
        let params = parameters_of(vec![Ident::new("both")]);
        let field = call("get_field", vec![Expr::Identifier(Ident::new("both")), literal(name)]);
        Expr::Lambda(LambdaFunction { params, body: Box::new(field), syntax: LambdaSyntax::Arrow })
    };
    let list = call("list_transform", vec![list, taken(transform)]);
    let list = call("list_filter", vec![list, of_both("stays")]);
    Some(call("list_transform", vec![list, of_both("value")]))
}

fn parameters_of(mut names: Vec<Ident>) -> OneOrManyWithParens<LambdaFunctionParameter> {
    let parameter = |name| LambdaFunctionParameter { name, data_type: None };
    match (names.len(), names.pop()) {
        (1, Some(name)) => OneOrManyWithParens::One(parameter(name)),
        (_, last) => OneOrManyWithParens::Many(names.into_iter().chain(last).map(parameter).collect()),
    }
}

/// Makes a lambda of an expression that has an arrow as its first operator; the number of its parameters.
fn make_lambda(expr: &mut Expr) -> Option<usize> {
    if let Expr::Lambda(lambda) = expr {
        return Some(match &lambda.params {
            OneOrManyWithParens::One(_) => 1,
            OneOrManyWithParens::Many(all) => all.len(),
        });
    }
    let mut levels = 0;
    let mut first = &mut *expr;
    let names = loop {
        if let Expr::BinaryOp { left, op: BinaryOperator::Arrow, .. } = first
            && let Some(names) = names_of(left)
        {
            break names;
        }
        first = left_of(first)?;
        levels += 1;
    };
    let mut first = &mut *expr;
    for _ in 0..levels {
        first = left_of(first)?;
    }
    if let Expr::BinaryOp { right, .. } = first {
        *first = taken(right);
    }
    let number = names.len();
    // `x.a` is the field of a parameter; for DataFusion it would be the column of a table.
    change_exprs_from_inside(expr, &mut |expr| {
        if let Expr::CompoundIdentifier(parts) = expr
            && let [first, fields @ ..] = parts.as_slice()
            && names.iter().any(|name| normal(name) == normal(first))
        {
            let value = Expr::Identifier(first.clone());
            let field = |value, field: &Ident| call("get_field", vec![value, literal(normal(field))]);
            *expr = fields.iter().fold(value, field);
        }
    });
    let params = parameters_of(names);
    *expr = Expr::Lambda(LambdaFunction { params, body: Box::new(taken(expr)), syntax: LambdaSyntax::Arrow });
    Some(number)
}

/// The names that stand before an arrow.
fn names_of(expr: &Expr) -> Option<Vec<Ident>> {
    match expr {
        Expr::Identifier(name) => Some(vec![name.clone()]),
        Expr::Nested(inner) => names_of(inner),
        Expr::Tuple(names) => {
            let name = |name: &Expr| match name {
                Expr::Identifier(name) => Some(name.clone()),
                _ => None,
            };
            names.iter().map(name).collect()
        }
        _ => None,
    }
}
