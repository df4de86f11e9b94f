//! Which expressions can be computed for several rows at once, as vectors: found by lowering them over a wide row
//! (`context::wide`) into a scratch module, so that it can not differ from what is emitted.

use kelpie_kir::{Builder, Target};

use super::facts::{Found, scan};
use super::logic::{Connective, operands};
use crate::context::{Context, Unsupported};
use crate::expr::Expr;
use crate::shape::LaunchShape;

/// The conditions that an expression is the AND of, left to right.
pub(crate) fn conjuncts(expr: &Expr) -> Vec<&Expr> {
    operands(Connective::And, expr)
}

/// Whether what `emit` emits has a form for wide rows, or what it lacks. It must neither fail nor branch: what is computed for
/// eight rows is computed for those, too, that no condition leaves.
pub(crate) fn supports_wide_rows(
    (target, shape): (&Target, &LaunchShape),
    emit: impl FnOnce(&mut Context<'_>) -> Result<(), Unsupported>,
) -> Result<(), String> {
    if !target.has_vectors() {
        return Err("the device has no vectors".into());
    }
    let mut builder = Builder::new();
    builder.begin_kernel("scratch");
    let mut cx = Context::shaped(&mut builder, target, shape.clone());
    cx.begin_wide();
    let emitted = emit(&mut cx).and_then(|()| cx.check_possible());
    let lacks = |what: &dyn std::fmt::Display| format!("no form for several rows at once: {what}");
    emitted.map_err(|reason| lacks(&reason.broken_invariant().unwrap_or(&reason.0)))?;
    builder.end_kernel();
    let module = builder.finish().map_err(|error| lacks(&error))?;
    let mut found = None;
    for (_, kernel) in module.kernels.iter() {
        scan(kernel, &kernel.body, &mut |what| match what {
            Found::Report => found = Some("it can fail"),
            Found::Expensive => found = found.or(Some("it branches or calls a function")),
            Found::Statement => {}
        });
    }
    found.map_or(Ok(()), |what| Err(lacks(&what)))
}
