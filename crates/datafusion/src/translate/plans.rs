//! Plans of Kelpie's around others, simplified where they can be.

use datafusion::arrow::datatypes::Schema;
use kelpie_compile::expr::{Expr, ExprKind, substitute};
use kelpie_compile::plan::{JoinKind, Plan};
use kelpie_compile::types::Field;

use crate::types;

/// The first rows after some. What is below a limit, for each partition or all of them, often has a weaker one already.
pub(super) fn limited(plan: Plan, skip: usize, fetch: Option<usize>) -> Plan {
    match (plan, fetch) {
        // A sort that keeps no more rows is a limit already.
        (Plan::Sort { input, keys, fetch: Some(inner) }, Some(fetch)) if skip == 0 && inner <= fetch => {
            Plan::Sort { input, keys, fetch: Some(inner) }
        }
        (Plan::Limit { input, skip: 0, fetch: Some(inner) }, Some(fetch))
            if skip.saturating_add(fetch) <= inner =>
        {
            Plan::Limit { input, skip, fetch: Some(fetch) }
        }
        (plan, fetch) => Plan::Limit { input: Box::new(plan), skip, fetch },
    }
}

/// Some columns of a plan, in an order.
pub(super) fn project_columns(plan: Plan, columns: &[usize]) -> Option<Plan> {
    let fields = plan.fields();
    let chosen = columns.iter().map(|i| fields.get(*i)).collect::<Option<Vec<&Field>>>()?;
    let exprs = columns
        .iter()
        .zip(&chosen)
        .map(|(i, field)| Expr {
            kind: ExprKind::Column(*i),
            data_type: field.data_type.clone(),
            nullable: field.nullable,
        })
        .collect();
    let names = chosen.iter().map(|field| field.name.clone()).collect();
    Some(projected(plan, exprs, names))
}

/// A projection; of one that only picks columns, or that picks the columns of one, the two are one.
pub(super) fn projected(input: Plan, exprs: Vec<Expr>, names: Vec<String>) -> Plan {
    let picks = |exprs: &[Expr]| exprs.iter().all(|expr| matches!(expr.kind, ExprKind::Column(_)));
    match input {
        Plan::Project { input, exprs: below, .. } if picks(&exprs) || picks(&below) => {
            let through = |expr: &Expr| match expr.kind {
                ExprKind::Column(place) => below.get(place).cloned(),
                _ => None,
            };
            let exprs = exprs.iter().map(|expr| substitute(expr, &through)).collect();
            Plan::Project { input, exprs, names }
        }
        input => Plan::Project { input: Box::new(input), exprs, names },
    }
}

/// The columns of a schema at some positions, or the first that has no Kelpie type.
pub(super) fn fields_at(schema: &Schema, columns: &[usize]) -> Result<Vec<Field>, String> {
    columns
        .iter()
        .map(|i| {
            let field = schema.fields().get(*i).ok_or("a column is out of range")?;
            types::field(field).ok_or_else(|| {
                format!("column {}: the type {} is not compiled", field.name(), field.data_type())
            })
        })
        .collect()
}

/// Whether rows may as well be read twice: they come from a table, and are the same each time.
fn is_read_again(rows: &Plan) -> bool {
    match rows {
        Plan::Scan(_) => true,
        Plan::Filter { input, .. } | Plan::Project { input, .. } => is_read_again(input),
        _ => false,
    }
}

/// The rows that windows over others may as well read again: these themselves, or those to which aggregates were joined.
pub(super) fn read_again(rows: &Plan) -> Option<&Plan> {
    if is_read_again(rows) {
        return Some(rows);
    }
    let Plan::Project { input, exprs, .. } = rows else { return None };
    let Plan::Join(join) = &**input else { return None };
    let Plan::Aggregate { input: base, .. } = &join.build else { return None };
    let groups = join.build.fields().len();
    let is_joined = join.null_equal && join.kind == JoinKind::Inner && join.residual.is_none();
    let is_first = |(place, expr): (usize, &Expr)| expr.kind == ExprKind::Column(groups + place);
    let mut first = exprs.iter().take(base.fields().len()).enumerate();
    (is_joined && first.all(is_first) && read_again(&join.probe) == Some(base)).then_some(base)
}
