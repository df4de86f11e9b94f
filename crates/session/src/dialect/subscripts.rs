//! Subscripts of texts and maps: `s[2]`, `s[2:3]`, `m[k]` of a key that is computed. DataFusion takes what is no map for a list.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::functions::expr_fn::{substr, substring};
use datafusion::functions_nested::expr_fn::{array_element, map_extract};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, ScalarUDF, cast, lit};

use super::by_row::{ByRow, Definition, Kind};

/// Plans them before DataFusion does.
#[derive(Debug)]
pub(crate) struct Subscripts;

impl ExprPlanner for Subscripts {
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        // What has no type yet, DataFusion says.
        let Ok(data_type) = access.expr.get_type(schema) else {
            return Ok(PlannerResult::Original(access));
        };
        let RawFieldAccessExpr { expr, field_access } = access;
        let is_text = match &data_type {
            DataType::Dictionary(_, values) => values.is_string(),
            data_type => data_type.is_string(),
        };
        let key_type = key_of(&data_type);
        match field_access {
            GetFieldAccess::ListIndex { key } if is_text => {
                Ok(PlannerResult::Planned(slice(expr, *key.clone(), *key)))
            }
            GetFieldAccess::ListRange { start, stop, stride } if is_text => {
                if number(&stride) != Some(1) {
                    return plan_err!("a slice of a text has no steps");
                }
                Ok(PlannerResult::Planned(slice(expr, *start, *stop)))
            }
            GetFieldAccess::ListIndex { key }
                if let Some(wanted) = &key_type
                    && let Some(key) = key_as(&key, wanted, schema) =>
            {
                Ok(PlannerResult::Planned(array_element(map_extract(expr, key), lit(1_i64))))
            }
            field_access => Ok(PlannerResult::Original(RawFieldAccessExpr { expr, field_access })),
        }
    }
}

/// The type of a map's keys; nothing of what is no map.
fn key_of(data_type: &DataType) -> Option<DataType> {
    let DataType::Map(entries, _) = data_type else { return None };
    let DataType::Struct(fields) = entries.data_type() else { return None };
    fields.first().map(|key| key.data_type().clone())
}

/// A key as a map of such keys has it; nothing where DataFusion plans it well: of one that is written out it looks for the same type.
fn key_as(key: &Expr, wanted: &DataType, schema: &DFSchema) -> Option<Expr> {
    let own = key.get_type(schema).ok()?;
    let is_same = own == *wanted || own.is_string() && wanted.is_string();
    match (is_same, key.column_refs().is_empty()) {
        (true, true) => None,
        (true, false) => Some(key.clone()),
        (false, _) => Some(cast(key.clone(), wanted.clone())),
    }
}

/// A whole number that is written out.
fn number(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int64(number), _) => *number,
        Expr::Negative(inner) => number(inner).and_then(i64::checked_neg),
        _ => None,
    }
}

/// The letters of a text from one place to another, both of them included: counted from 1, and from the end where they are negative.
fn slice(text: Expr, from: Expr, to: Expr) -> Expr {
    match (number(&from), number(&to)) {
        (Some(from), Some(-1)) if from > 0 => substr(text, lit(from)),
        (Some(from), Some(to)) if from > 0 && to >= from => substring(text, lit(from), lit(to - from + 1)),
        _ => ScalarUDF::new_from_impl(ByRow::from(text_slice())).call(vec![text, from, to]),
    }
}

/// The function of slices whose bounds are computed, or counted from the end.
pub(super) fn text_slice() -> Definition {
    Definition {
        name: "text_slice",
        aliases: &[],
        parameters: &[Kind::Text, Kind::Integer, Kind::Integer],
        least: 3,
        result: DataType::Utf8,
        body: |row| {
            let text = row.text(0);
            let all = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            // Places from the end, as those from the first letter on.
            let place = |number: Option<i64>| match number.unwrap_or(0) {
                number if number < 0 => all.saturating_add(number).saturating_add(1),
                number => number,
            };
            let (from, to) = (place(row.integer(1)).max(1), place(row.integer(2)).min(all));
            let skipped = usize::try_from(from - 1).unwrap_or(0);
            let taken = usize::try_from(to.saturating_sub(from).saturating_add(1)).unwrap_or(0);
            let letters: String = text.chars().skip(skipped).take(taken).collect();
            Ok(ScalarValue::Utf8(Some(letters)))
        },
    }
}
