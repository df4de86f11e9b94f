//! The filter: keeps the rows where a predicate is true; false and NULL drop the row.

use kelpie_kir::Type;
use kelpie_kir::builder::V;

use crate::context::{Context, Unsupported};
use crate::expr::{Expr, lower_condition};
use crate::operator::Flow;

/// Emits the filter. Under a flag, a predicate that may not be computed for a dead row (`speculative` is false) is
/// guarded by the flag.
pub fn consume(
    cx: &mut Context<'_>,
    predicate: &Expr,
    speculative: bool,
    flow: Flow,
) -> Result<Flow, Unsupported> {
    match flow {
        Flow::Branch { depth } => {
            let pass = is_true(cx, predicate)?;
            cx.begin_if(pass);
            Ok(Flow::Branch { depth: depth + 1 })
        }
        Flow::Flag { active: Some(active) } if !speculative => {
            let passed = cx.builder.var("pass", Type::BOOL);
            let no = cx.builder.bool(false);
            cx.builder.assign(passed, no);
            cx.begin_if(active);
            let pass = is_true(cx, predicate)?;
            cx.builder.assign(passed, pass);
            cx.end();
            Ok(Flow::Flag { active: Some(cx.builder.read(passed)) })
        }
        Flow::Flag { active } => {
            let pass = is_true(cx, predicate)?;
            let active = match active {
                Some(active) => cx.builder.and(active, pass),
                None => pass,
            };
            Ok(Flow::Flag { active: Some(active) })
        }
    }
}

/// `bool`: the predicate is true, not false and not NULL.
pub fn is_true(cx: &mut Context<'_>, predicate: &Expr) -> Result<V, Unsupported> {
    lower_condition(cx, predicate)
}
