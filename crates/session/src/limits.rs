//! Errors of arithmetic, with the limit that they are of.

use datafusion::error::DataFusionError;

/// More digits than an integer of 64 bits has.
const DIGITS: usize = 20;

/// An error, with what decimals hold where it is one of theirs: Arrow names the two numbers only.
pub(crate) fn with_limit(error: DataFusionError) -> DataFusionError {
    const OVERFLOW: &str = "Overflow happened on: ";
    let text = error.to_string();
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
