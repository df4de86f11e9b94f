//! Texts that are no value of the type that is asked for.

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;

use super::Worded;
use super::place::Tokens;

const INTEGER: &str = "whole number";

/// What Arrow says of a text, in the words of the statement.
pub(super) fn worded(root: &DataFusionError, tokens: &Tokens<'_>) -> Option<Worded> {
    let message = match root {
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            ArrowError::CastError(message) | ArrowError::ParseError(message) => message,
            ArrowError::InvalidArgumentError(message) => return of_null(message),
            _ => return None,
        },
        DataFusionError::Execution(message) => message,
        _ => return None,
    };
    if let Some(said) = of_decimal(message) {
        return Some(Worded::at(said, None));
    }
    if let Some(number) = of_number(message) {
        return Some(Worded::at(format!("{number} is beyond the range of its type"), tokens.literal(number)));
    }
    let (text, wanted) = of_cast(message).or_else(|| of_time(message)).or_else(|| of_interval(message))?;
    let is_integer =
        text.trim().strip_prefix(['-', '+']).unwrap_or(text.trim()).bytes().all(|byte| byte.is_ascii_digit());
    let said = match wanted == INTEGER && is_integer && !text.trim().is_empty() {
        true => format!("{text} is beyond the range of its type"),
        false => format!("'{text}' is no {wanted}"),
    };
    Some(Worded::at(said, tokens.literal(text)))
}

/// `Column 'column1' is declared as non-nullable but contains null values`, of the rows of VALUES, whose columns have no other names.
fn of_null(message: &str) -> Option<Worded> {
    let (_, rest) = message.split_once("Column '")?;
    let (column, _) = rest.split_once("' is declared as non-nullable")?;
    let place = column.strip_prefix("column").filter(|place| place.parse::<usize>().is_ok());
    let of = place.map_or_else(|| column.to_string(), |place| format!("its value {place}"));
    Some(Worded::at(format!("constraint violated: NOT NULL: a row has NULL for {of}"), None))
}

/// `Cannot cast string 'x' to value of Int64 type`.
fn of_cast(message: &str) -> Option<(&str, String)> {
    let starts = ["Cannot cast string '", "Cannot cast value '"];
    let (_, rest) = starts.iter().find_map(|start| message.split_once(start))?;
    let (text, rest) = rest.rsplit_once("' to value of ")?;
    Some((text, wanted(rest.strip_suffix(" type").unwrap_or(rest))))
}

/// `Can't cast value 99999999999 to type Int32`.
fn of_number(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("Can't cast value ")?;
    Some(rest.split_once(" to type ")?.0)
}

/// `Cannot cast to Decimal128(38, 10). Overflowing on 123`, where the number is one of the source's last digits.
fn of_decimal(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("Cannot cast to Decimal")?;
    let (data_type, rest) = rest.split_once("). Overflowing on ")?;
    let (_, digits) = data_type.split_once('(')?;
    let (precision, scale) = digits.split_once(", ")?;
    let before = precision.parse::<i32>().ok()? - scale.parse::<i32>().ok()?;
    let number = rest.split(|letter: char| !letter.is_ascii_digit() && letter != '-').next()?;
    let said = format!(
        "a decimal ({number}, without its point) does not fit DECIMAL({precision}, {scale}), which has {before} digits before the point"
    );
    Some(match precision {
        "38" | "76" => format!(
            "{said}. What stands side by side in UNION, CASE, COALESCE, IN or VALUES becomes one type, of {precision} digits at most: \
             cast one of them to fewer digits behind the point, or to DOUBLE"
        ),
        _ => said,
    })
}

/// `Error parsing timestamp from 'x': error parsing date`.
fn of_time(message: &str) -> Option<(&str, String)> {
    let (_, rest) = message.split_once("Error parsing timestamp from '")?;
    let (text, why) = rest.rsplit_once("': ")?;
    let more = if why.is_empty() { String::new() } else { format!(" ({why})") };
    Some((text, format!("timestamp{more}")))
}

/// `Invalid input syntax for type interval: "x"`.
fn of_interval(message: &str) -> Option<(&str, String)> {
    let (_, rest) = message.split_once("Invalid input syntax for type interval: \"")?;
    Some((rest.split_once('"')?.0, "interval, such as '3 days'".into()))
}

/// A type of Arrow as people call its values.
fn wanted(data_type: &str) -> String {
    let begins = |starts: &[&str]| starts.iter().any(|start| data_type.starts_with(start));
    let name = match () {
        () if begins(&["Date"]) => "date, such as '2024-12-31'",
        () if begins(&["Timestamp"]) => "timestamp, such as '2024-12-31 23:59:00'",
        () if begins(&["Time"]) => "time of day, such as '23:59:00'",
        () if begins(&["Boolean"]) => "true or false",
        () if begins(&["Int8", "Int16", "Int32", "Int64", "UInt"]) => INTEGER,
        () if begins(&["Float", "Decimal"]) => "number",
        () => data_type,
    };
    name.to_string()
}
