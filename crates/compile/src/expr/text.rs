//! Text.
use kelpie_kir::CompareOp;
use kelpie_kir::builder::V;

use super::value::unsupported;
use crate::context::{Context, Lowered, Unsupported};

/// Compares by bytes.
pub(super) fn compare(
    _cx: &mut Context<'_>,
    _op: CompareOp,
    _a: &Lowered,
    _b: &Lowered,
) -> Result<V, Unsupported> {
    unsupported("comparison of text is not compiled yet")
}
