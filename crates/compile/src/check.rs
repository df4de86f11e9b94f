//! What a plan must keep to before it is compiled: every column that an expression reads exists and has the type that the
//! expression takes it for, and what is joined or united is represented alike. Registers do not say what they hold, so that a
//! plan which breaks this would give wrong values, not errors.

use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind, children};
use crate::lower::alike;
use crate::plan::{Plan, SortKey};
use crate::types::{DataType, Field};

/// Checks a plan.
pub(crate) fn check(plan: &Plan) -> Result<(), Unsupported> {
    let inputs = plan.inputs();
    inputs.iter().try_for_each(|input| check(input))?;
    match plan {
        Plan::Scan(_) | Plan::Limit { .. } | Plan::Scalars { .. } => Ok(()),
        Plan::Filter { input, predicate } => {
            columns_are(&[predicate], &input.fields())?;
            same("a filter", &DataType::Boolean, &predicate.data_type)
        }
        Plan::Project { input, exprs, .. } => columns_are(&exprs.iter().collect::<Vec<_>>(), &input.fields()),
        Plan::Aggregate { input, keys, aggregates, .. } => {
            let arguments = aggregates.iter().filter_map(|aggregate| aggregate.argument.as_ref());
            columns_are(&keys.iter().chain(arguments).collect::<Vec<_>>(), &input.fields())
        }
        Plan::GroupingSets(sets) => {
            columns_are(&sets.exprs().collect::<Vec<_>>(), &sets.input.fields())?;
            sets.lacks().map_or(Ok(()), |lacks| Err(Unsupported(lacks)))
        }
        Plan::Ranked(ranked) => {
            columns_are(&ranked.exprs().collect::<Vec<_>>(), &ranked.input.fields())?;
            ranked.lacks().map_or(Ok(()), |lacks| Err(Unsupported(lacks)))
        }
        Plan::Window(window) => {
            columns_are(&window.exprs().collect::<Vec<_>>(), &window.input.fields())?;
            window.lacks().map_or(Ok(()), |lacks| Err(Unsupported(lacks)))
        }
        Plan::Sort { input, keys, .. } => {
            let exprs: Vec<&Expr> = keys.iter().map(|SortKey { expr, .. }| expr).collect();
            columns_are(&exprs, &input.fields())
        }
        Plan::Join(join) => {
            let (build, probe) = (join.build.fields(), join.probe.fields());
            for (left, right) in &join.keys {
                columns_are(&[left], &build)?;
                columns_are(&[right], &probe)?;
                same("a join key", &left.data_type, &right.data_type)?;
            }
            let pair: Vec<Field> = build.into_iter().chain(probe).collect();
            join.residual.iter().try_for_each(|residual| {
                columns_are(&[residual], &pair)?;
                same("a join filter", &DataType::Boolean, &residual.data_type)
            })
        }
        Plan::Union { inputs, fields } => inputs.iter().try_for_each(|input| {
            let own = input.fields();
            if own.len() != fields.len() {
                return Err(Unsupported(format!("UNION of {} and {} columns", fields.len(), own.len())));
            }
            let pairs = fields.iter().zip(&own);
            pairs.into_iter().try_for_each(|(to, from)| unites(&to.data_type, &from.data_type))
        }),
    }
}

/// As [`same`], where a column without a type is like no other: nobody gives its NULLs another's representation.
fn unites(a: &DataType, b: &DataType) -> Result<(), Unsupported> {
    match (a == &DataType::Null) == (b == &DataType::Null) {
        true => same("UNION", a, b),
        false => Err(Unsupported(format!("UNION of {a} and {b}"))),
    }
}

fn same(what: &str, a: &DataType, b: &DataType) -> Result<(), Unsupported> {
    match alike(a, b) {
        true => Ok(()),
        false => Err(Unsupported(format!("{what} of {a} and {b}"))),
    }
}

/// Whether the columns that expressions read are those of `fields`.
fn columns_are(exprs: &[&Expr], fields: &[Field]) -> Result<(), Unsupported> {
    let mut open = exprs.to_vec();
    while let Some(expr) = open.pop() {
        open.extend(children(expr));
        let ExprKind::Column(index) = expr.kind else { continue };
        let field =
            fields.get(index).ok_or_else(|| Unsupported(format!("column {index} is out of range")))?;
        if !alike(&field.data_type, &expr.data_type) {
            let (name, is, taken) = (&field.name, &field.data_type, &expr.data_type);
            return Err(Unsupported(format!("column {name} is of type {is}, not {taken}")));
        }
    }
    Ok(())
}
