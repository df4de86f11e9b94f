//! Functions and operators over types that they do not take.

use super::place::Tokens;
use super::{Worded, plain};

/// Functions that take numbers only, by the beginnings of their names.
const OF_NUMBERS: [&str; 26] = [
    "sum", "avg", "mean", "stddev", "var", "corr", "covar", "regr", "median", "abs", "ceil", "exp", "floor",
    "ln", "log", "mod", "power", "pow", "round", "sign", "sqrt", "trunc", "cos", "sin", "tan", "cbrt",
];

/// Ways to call a function that are shown, at most.
const CANDIDATES: usize = 3;

/// What DataFusion says of an argument or an operand, in the words of the statement.
pub(super) fn worded(message: &str, tokens: &Tokens<'_>) -> Option<Worded> {
    of_group(message, tokens)
        .or_else(|| of_operator(message))
        .or_else(|| of_function(message, tokens))
        .or_else(|| of_operand(message))
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
    if let Some((predicate, found)) = strip("Cannot create filter with non-boolean predicate '")
        .and_then(|rest| rest.split_once("' returning "))
    {
        return Some(Worded::at(
            format!("a condition is true or false; {predicate} is {}", kind_of(found)),
            None,
        ));
    }
    if message == "Column count doesn't match insert query!" {
        return Some(Worded::at("INSERT has another number of values than there are columns", None));
    }
    if let Some(ending) = strip("There is no registered file format with ext ") {
        return Some(Worded::at(
            format!(".{ending} is not written; .parquet, .csv, .json and .arrow are"),
            None,
        ));
    }
    let found = strip("Expected LIMIT to be an integer or null, but got ")?;
    Some(Worded::at(format!("LIMIT takes a number, and not {}", kind_of(found)), None))
}

/// A function with other arguments than it takes.
fn of_function(message: &str, tokens: &Tokens<'_>) -> Option<Worded> {
    if message.starts_with("Substring without for/from") {
        let place =
            ["substr", "substring"].iter().find_map(|name| tokens.arguments(name)).map(|call| call.bytes);
        return Some(Worded::at(
            "substr takes a text and where it begins: substr(text, start, length)",
            place,
        ));
    }
    let (function, given) = called(message)?;
    if function.starts_with("kelpie_") {
        // What stands for an operator: it says itself what it takes.
        let own = message.split_once("coercion failed with: ")?.1.split(". No function matches").next()?;
        return Some(Worded::at(plain(own), None));
    }
    let call = tokens.arguments(&function);
    if let ("array_element", None, Some(taken)) = (function.as_str(), &call, given.first()) {
        return Some(Worded::at(
            format!("[…] takes an item of a list; what stands before it is {}", kind_of(taken)),
            None,
        ));
    }
    let arguments = call.as_ref().map(|call| call.arguments.clone()).unwrap_or_default();
    let place = call.map(|call| call.bytes);
    let takes = candidates(message);
    let of_count = [
        "expects ",
        "does not support zero arguments",
        "was called with ",
        "at least one argument",
        "requires ",
    ];
    let is_count =
        of_count.iter().any(|words| message.contains(words)) && !message.contains("but received String");
    let fits = takes.iter().any(|candidate| candidate.matches(',').count() + 1 == given.len());
    if given.is_empty() || (is_count && !fits) {
        let count = match given.len() {
            0 => "no arguments".to_string(),
            1 => "1 argument".to_string(),
            count => format!("{count} arguments"),
        };
        let takes = if takes.is_empty() {
            "which are too few or too many".into()
        } else {
            format!("and is {}", takes.join(" or "))
        };
        return Some(Worded::at(format!("{function} has {count}, {takes}"), place));
    }
    let described = |(index, data_type): (usize, &String)| match arguments.get(index) {
        Some(argument) => format!("{argument} is {}", kind_of(data_type)),
        None => format!("an argument is {}", kind_of(data_type)),
    };
    let goes_on = |rest: &str| rest.is_empty() || rest.starts_with(|c: char| c == '_' || c.is_ascii_digit());
    let takes_numbers = OF_NUMBERS.iter().any(|name| function.strip_prefix(name).is_some_and(goes_on));
    let wrong = given.iter().enumerate().filter(|(_, data_type)| !is_number(data_type));
    let wrong: Vec<String> = wrong.map(described).collect();
    if takes_numbers && !wrong.is_empty() {
        return Some(Worded::at(format!("{function} takes a number; {}", wrong.join(", ")), place));
    }
    let all: Vec<String> = given.iter().enumerate().map(described).collect();
    let takes = if takes.is_empty() { String::new() } else { format!("; it is {}", takes.join(" or ")) };
    Some(Worded::at(format!("{function} does not take that: {}{takes}", all.join(", ")), place))
}

/// The function of a message, and the types that it was given.
fn called(message: &str) -> Option<(String, Vec<String>)> {
    if let Some((_, rest)) = message.split_once("argument types '") {
        let (function, types) = rest.split_once("'.")?.0.split_once('(')?;
        return Some((function.to_lowercase(), split_types(types.strip_suffix(')')?)));
    }
    let (_, rest) = message.split_once("to satisfy a call to '")?;
    let (function, rest) = rest.split_once('\'')?;
    let types = rest.split_once("coercion from ")?.1.split_once(" to the signature")?.0;
    Some((function.to_lowercase(), split_types(types)))
}

/// What a function takes, as `substr(str, start_pos)`, where its names for that say something to people.
fn candidates(message: &str) -> Vec<String> {
    let Some((_, list)) = message.split_once("Candidate functions:\n") else { return Vec::new() };
    let vague = ["UserDefined", "Any", "Coercible", "Uniform", "Exact", "Variadic", "Comparable"];
    let lines = list
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !vague.iter().any(|word| line.contains(word)));
    let shown = |line: &str| {
        let (name, arguments) = line.split_once('(')?;
        let arguments = split_types(arguments.strip_suffix(')')?);
        let shown = arguments.iter().map(|argument| match argument.split_once(": ") {
            Some((name, data_type)) => format!("{name}: {}", bare_kind(data_type)),
            None => bare_kind(argument).to_string(),
        });
        Some(format!("{name}({})", shown.collect::<Vec<_>>().join(", ")))
    };
    let mut found = Vec::new();
    for candidate in lines.filter_map(shown) {
        if !found.contains(&candidate) && found.len() < CANDIDATES {
            found.push(candidate);
        }
    }
    found
}

/// A type without the article.
fn bare_kind(data_type: &str) -> &str {
    let kind = if data_type == "Numeric" { "number" } else { kind_of(data_type) };
    kind.trim_start_matches("a ").trim_start_matches("an ")
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
        () if begins(&["Utf8", "LargeUtf8", "String"]) => "text",
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

/// What is not there: where window functions stand, and writes to tables of files.
pub(super) fn not_there(message: &str) -> Option<Worded> {
    if message.starts_with("Physical plan does not support logical expression WindowFunction") {
        return Some(Worded::at(
            "a window function cannot stand here: name it in a subquery, or use QUALIFY",
            None,
        ));
    }
    if message.starts_with("Physical plan does not support logical expression Wildcard") {
        return Some(Worded::at("a * cannot stand here: only count(*) takes it", None));
    }
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

/// A message that is clear but for what it calls text.
pub(super) fn with_text(message: &str) -> Option<Worded> {
    // `Utf8("x")` is a value, and a part of the names of columns.
    if !message.contains("Utf8") || message.contains("Utf8(") || message.contains('`') {
        return None;
    }
    let names = ["LargeUtf8", "Utf8View", "Utf8"];
    Some(Worded::at(names.iter().fold(message.to_string(), |text, name| text.replace(name, "text")), None))
}
