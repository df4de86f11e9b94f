//! Functions and operators over types that they do not take.

use super::Worded;
use super::place::Tokens;

/// Functions that take numbers only, by the beginnings of their names.
const OF_NUMBERS: [&str; 26] = [
    "sum", "avg", "mean", "stddev", "var", "corr", "covar", "regr", "median", "abs", "ceil", "exp", "floor",
    "ln", "log", "mod", "power", "pow", "round", "sign", "sqrt", "trunc", "cos", "sin", "tan", "cbrt",
];

/// What DataFusion says of an argument or an operand, in the words of the statement.
pub(super) fn worded(message: &str, tokens: &Tokens<'_>) -> Option<Worded> {
    of_group(message, tokens)
        .or_else(|| of_operator(message))
        .or_else(|| of_count(message, tokens))
        .or_else(|| of_function(message, tokens))
        .or_else(|| of_operand(message))
}

/// A function with more or fewer arguments than it takes.
fn of_count(message: &str, tokens: &Tokens<'_>) -> Option<Worded> {
    if message.starts_with("Substring without for/from") {
        let place =
            ["substr", "substring"].iter().find_map(|name| tokens.arguments(name)).map(|call| call.bytes);
        return Some(Worded::at(
            "substr takes a text and where it begins: substr(text, start, length)",
            place,
        ));
    }
    let (before, rest) = message.split_once(" was called with ")?;
    let function = before.rsplit([' ', ':']).next()?;
    let (given, rest) = rest.split_once(" argument")?;
    let (_, wanted) = rest.split_once("requires ")?;
    let wanted = wanted.trim_start_matches("only ");
    let wanted = wanted.split(['.', ',']).next()?.trim();
    // Functions of a kind say it together, as `min/max`.
    let call = function.split('/').find_map(|name| tokens.arguments(name).map(|call| (name, call)));
    let (name, place) = call.map_or((function, None), |(name, call)| (name, Some(call.bytes)));
    Some(Worded::at(format!("{name} has {given} arguments and takes {wanted}"), place))
}

/// An operand of a type that an operator does not take.
fn of_operand(message: &str) -> Option<Worded> {
    let strip = |start: &str| message.strip_prefix(start);
    if let Some(types) = strip("There isn't a common type to coerce ")
        .and_then(|rest| rest.strip_suffix(" in LIKE expression"))
    {
        let (left, right) = types.split_once(" and ")?;
        return Some(Worded::at(
            format!("LIKE goes with texts, and not with {} and {}", kind_of(left), kind_of(right)),
            None,
        ));
    }
    if let Some(found) = strip("Unary operator 'NOT' requires a boolean expression, got ") {
        return Some(Worded::at(format!("NOT takes true or false, and not {}", kind_of(found)), None));
    }
    if message.starts_with("Unary operator '-' only supports") {
        return Some(Worded::at("the sign - takes numbers, intervals and timestamps", None));
    }
    let found = strip("Expected LIMIT to be an integer or null, but got ")?;
    Some(Worded::at(format!("LIMIT takes a number, and not {}", kind_of(found)), None))
}

/// A function whose arguments have other types than it takes.
fn of_function(message: &str, tokens: &Tokens<'_>) -> Option<Worded> {
    let (_, rest) = message
        .split_once("to satisfy a call to '")
        .or_else(|| message.split_once("Function '"))
        .or_else(|| message.split_once("function '"))
        .or_else(|| message.split_once("argument types '"))?;
    let function = rest.split(['\'', '(']).next()?.to_lowercase();
    let call = tokens.arguments(&function);
    let given = given_types(message);
    let arguments = call.as_ref().map(|call| call.arguments.clone()).unwrap_or_default();
    let described = |index: usize, data_type: &String| match arguments.get(index) {
        Some(argument) => format!("{argument} is {}", kind_of(data_type)),
        None => format!("an argument is {}", kind_of(data_type)),
    };
    let place = call.as_ref().map(|call| call.bytes.clone());
    let takes_numbers = OF_NUMBERS.iter().any(|name| {
        function
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(|c: char| c == '_' || c.is_ascii_digit()))
    });
    let wrong: Vec<String> = given
        .iter()
        .enumerate()
        .filter(|(_, data_type)| !is_number(data_type))
        .map(|(index, data_type)| described(index, data_type))
        .collect();
    if takes_numbers && !wrong.is_empty() {
        return Some(Worded::at(format!("{function} takes a number; {}", wrong.join(", ")), place));
    }
    if message.contains("expects") && message.contains("arguments") || given.is_empty() {
        return None;
    }
    let wanted = of_candidates(message).map_or(String::new(), |wanted| format!(" (it takes {wanted})"));
    let all: Vec<String> =
        given.iter().enumerate().map(|(index, data_type)| described(index, data_type)).collect();
    Some(Worded::at(format!("{function} does not take such arguments: {}{wanted}", all.join(", ")), place))
}

/// The types that a message says were given.
fn given_types(message: &str) -> Vec<String> {
    let between = |start: &str, end: &str| Some(message.split_once(start)?.1.split_once(end)?.0.to_string());
    let list = between("coercion from ", " to the signature").or_else(|| between("but received ", "."));
    let list = list.or_else(|| {
        let call = message.split_once("argument types '")?.1.split_once("'.")?.0;
        Some(call.split_once('(')?.1.strip_suffix(')')?.to_string())
    });
    split_types(&list.unwrap_or_default())
}

/// What a function takes, as `array_element(array, index)`, where its names for that say something to people.
fn of_candidates(message: &str) -> Option<String> {
    let (_, list) = message.split_once("Candidate functions:\n")?;
    let vague = |line: &str| {
        ["UserDefined", "Any", "Coercible", "Uniform", "Exact", "Variadic", "Numeric"]
            .iter()
            .any(|word| line.contains(word))
    };
    let lines: Vec<&str> =
        list.lines().map(str::trim).filter(|line| !line.is_empty() && !vague(line)).collect();
    if lines.is_empty() { None } else { Some(lines.join(" or ")) }
}

/// `Utf8, Decimal128(15, 2)` one by one.
fn split_types(list: &str) -> Vec<String> {
    let (mut depth, mut types) = (0i32, vec![String::new()]);
    for letter in list.chars() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                types.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = types.last_mut() {
            last.push(letter);
        }
    }
    types.into_iter().map(|name| name.trim().to_string()).filter(|name| !name.is_empty()).collect()
}

fn is_number(data_type: &str) -> bool {
    let data_type = data_type.split_once("(DataType: ").map_or(data_type, |(_, found)| found);
    ["Int", "UInt", "Float", "Decimal", "Null"].iter().any(|start| data_type.starts_with(start))
        && !data_type.starts_with("Interval")
}

/// A type of Arrow as people call it.
fn kind_of(data_type: &str) -> &str {
    // Some messages say the class of a type, and the type in brackets.
    let data_type =
        data_type.split_once("(DataType: ").map_or(data_type, |(_, found)| found.trim_end_matches(')'));
    let begins = |starts: &[&str]| starts.iter().any(|start| data_type.starts_with(start));
    match () {
        () if begins(&["Interval", "Duration"]) => "an interval",
        () if is_number(data_type) => "a number",
        () if begins(&["Utf8", "LargeUtf8"]) => "text",
        () if begins(&["Dictionary"]) && data_type.contains("Utf8") => "text",
        () if begins(&["Boolean"]) => "true or false",
        () if begins(&["Date"]) => "a date",
        () if begins(&["Timestamp"]) => "a timestamp",
        () if begins(&["Time"]) => "a time of day",
        () if begins(&["List", "LargeList", "FixedSizeList", "ListView"]) => "a list",
        () if begins(&["Struct"]) => "a struct",
        () if begins(&["Map"]) => "a map",
        () if begins(&["Binary", "LargeBinary", "FixedSizeBinary"]) => "bytes",
        () => data_type,
    }
}

/// An operator between values that have nothing to do with each other.
fn of_operator(message: &str) -> Option<Worded> {
    let rest = message
        .strip_prefix("Cannot infer common argument type for comparison operation ")
        .or_else(|| message.strip_prefix("Cannot infer common argument type for logical boolean operation "))
        .or_else(|| message.strip_prefix("Cannot infer common argument type for operation "))
        .or_else(|| message.strip_prefix("Cannot infer common argument type for regex operation "))
        .or_else(|| message.strip_prefix("Cannot infer common string type for string concat operation "))
        .or_else(|| message.strip_prefix("Cannot coerce arithmetic expression "))?;
    let rest = rest.strip_suffix(" to valid types").unwrap_or(rest);
    let (left, operator, right) = operands(rest)?;
    let text = format!(
        "the operator {operator} does not go with {} on the left and {} on the right",
        kind_of(&left),
        kind_of(&right)
    );
    Some(Worded::at(text, None))
}

/// `Utf8 + Timestamp(ns, "+01:00")`: what stands outside of brackets between blanks.
fn operands(text: &str) -> Option<(String, String, String)> {
    let mut depth = 0i32;
    let mut blanks = Vec::new();
    for (place, letter) in text.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ' ' if depth == 0 => blanks.push(place),
            _ => {}
        }
    }
    let (first, last) = (*blanks.first()?, *blanks.last()?);
    let middle = text.get(first + 1..last).filter(|middle| !middle.is_empty())?;
    Some((text[..first].to_string(), middle.to_string(), text[last + 1..].to_string()))
}

/// A column beside an aggregate that is no key.
fn of_group(message: &str, tokens: &Tokens<'_>) -> Option<Worded> {
    if !message.contains("must be in GROUP BY or an aggregate function") {
        return None;
    }
    let (_, rest) = message.split_once("column \"")?;
    let column = rest.split_once("\" must appear")?.0;
    let parts: Vec<&str> = column.split('.').collect();
    let name = parts.last()?;
    let place = tokens.name(&parts, false).or_else(|| tokens.name(&[name], false));
    let text = format!(
        "the column `{name}` stands beside an aggregate: it has to be in GROUP BY, or in an aggregate such as min({name})"
    );
    Some(Worded::at(text, place))
}

/// A mistake of the user's that DataFusion takes for one of its own.
pub(super) fn mistaken(message: &str) -> Option<Worded> {
    if let Some((_, address)) = message.split_once("No suitable object store found for ") {
        let address = address.split(". See ").next().unwrap_or(address);
        return Some(Worded::at(format!("{address}: only local files can be tables or be written"), None));
    }
    None
}

/// A statement that the tables of files do not take.
pub(super) fn not_there(message: &str) -> Option<Worded> {
    let (statement, _) = message.split_once(" not supported for ")?;
    let is_write = ["UPDATE", "DELETE", "TRUNCATE"].contains(&statement);
    is_write.then(|| {
        Worded::at(
            format!(
                "{statement} is not there for tables of files: write a new one with COPY or CREATE TABLE … AS"
            ),
            None,
        )
    })
}
