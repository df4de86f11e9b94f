//! Errors with what they are of: limits of arithmetic, and what subqueries cannot refer to.

use datafusion::error::DataFusionError;

/// More digits than an integer of 64 bits has.
const DIGITS: usize = 20;

/// An error, with what decimals hold where it is one of theirs: Arrow names the two numbers only. And with what a subquery refers to in
/// vain, of which DataFusion names the column only.
pub(crate) fn with_limit(error: DataFusionError) -> DataFusionError {
    const OVERFLOW: &str = "Overflow happened on: ";
    const OUTER: &str = "does not support logical expression OuterReferenceColumn";
    let text = error.to_string();
    if text.contains(OUTER) {
        return error.context(
            "a subquery refers to a row around it where that is not implemented, such as in an aggregate of the query around",
        );
    }
    let of_decimals = text.split_once(OVERFLOW).is_some_and(|(_, numbers)| {
        numbers.split(|letter: char| !letter.is_ascii_digit()).any(|number| number.len() >= DIGITS)
    });
    match of_decimals {
        true => error.context(
            "a decimal (Decimal128) has 38 digits, before and behind the point; fewer behind it, or DOUBLE, leave more room",
        ),
        false => error,
    }
}
