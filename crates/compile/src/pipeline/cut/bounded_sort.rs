//! Whether the rows of a sort that keeps few are looked at, a batch at a time, before anything else is done with them.

use super::{Open, OpenRows};
use crate::expr::{Expr, columns_read};
use crate::lower::can_fail;
use crate::types::DataType;

/// Where much is done with rows before a sort, whose first key is a column of what they are made of; or why they are not looked at before.
pub(super) fn looks_at_batches(rows: &OpenRows, first_key: Option<usize>) -> Result<(), &'static str> {
    let first_key = first_key.ok_or("there is no first key")?;
    rows.branches.iter().try_for_each(|open| {
        let key = open.steps.iter().rev().try_fold(first_key, |column, step| step.below(column));
        match key {
            None => Err("the first key is computed on the way"),
            Some(_) if !open.source.has_every_row() => Err("the source's rows are not all there"),
            Some(_) => is_long_way(open),
        }
    })
}

/// Texts are compared or searched, or rows are looked up, and each row that is passed over is no loss to anybody.
fn is_long_way(open: &Open) -> Result<(), &'static str> {
    let mut columns = open.source.columns();
    let mut is_long = false;
    for step in &open.steps {
        let is_text = |column: usize| {
            columns
                .get(column)
                .is_some_and(|info| info.data_type == DataType::Utf8 && info.dictionary.is_none())
        };
        let exprs = step.condition().into_iter().chain(step.projection().into_iter().flatten());
        let fails = |expr: &Expr| can_fail(expr, &|column| columns.get(column)?.range);
        match (step.condition(), step.projection()) {
            (Some(condition), _) => is_long |= columns_read(condition).into_iter().any(is_text),
            (None, Some(_)) => {}
            (None, None) => is_long = true,
        }
        if exprs.clone().any(fails) {
            return Err("a row that is passed over may be an error");
        }
        if step.keeps_unmatched() {
            return Err("build rows are noted whose rows are passed over");
        }
        columns = step.columns(&columns).unwrap_or(columns);
    }
    is_long.then_some(()).ok_or("little is done with rows before")
}
