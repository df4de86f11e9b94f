//! Steps behind groups that look up rows of them: at ranks of an order, at its ends, or all of them as one text.

mod end_rows;
mod group_text;
mod ranked_values;
mod text_rows;

pub(crate) use self::end_rows::{EndRow, EndRows};
pub(crate) use self::ranked_values::{RankedColumn, RankedValues};
pub(crate) use self::text_rows::{TextCopies, TextLengths, TextRows};
