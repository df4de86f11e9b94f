//! Casts from text.

use super::cast::Converted;
use super::value::unsupported;
use crate::context::{Context, Lowered, Unsupported};
use crate::types::DataType;

/// Parses a text.
pub(super) fn parse(
    _cx: &mut Context<'_>,
    _value: &Lowered,
    to: &DataType,
) -> Result<Converted, Unsupported> {
    unsupported(format!("cast from Utf8 to {to}"))
}
