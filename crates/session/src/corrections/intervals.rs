//! Intervals in all units that people write. DataFusion knows no quarters and no millennia, refuses a unit that comes twice (`1 year 1 year`)
//! and times of day (`1 day 02:30:00`), and does not say which unit it does not know. Here such a text becomes one of months, days and
//! seconds that means the same.

use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{CastKind, DataType, DateTimeField, Expr, Interval, Value};

use crate::syntax::{Flow, Walk, ended, visit};
use crate::times::in_known_units;

/// Writes the intervals of a statement in units that DataFusion knows. An unknown unit is an error.
pub(super) fn write_out(statement: &mut Statement) -> Result<()> {
    ended(visit(statement, &mut Intervals))
}

struct Intervals;

impl Walk for Intervals {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let text = match expr {
            Expr::Interval(interval) => as_text(interval),
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr,
                data_type: DataType::Interval { .. },
                ..
            } => literal(expr),
            _ => None,
        };
        let written = match text.map(|text| in_known_units(&text)).transpose() {
            Ok(written) => written.flatten(),
            Err(error) => return ControlFlow::Break(Some(error)),
        };
        let Some(text) = written else {
            // Frames of windows take no interval of a number.
            if let Expr::Interval(Interval { value, last_field: None, .. }) = expr
                && let Expr::Value(number) = value.as_ref()
                && let Value::Number(number, false) = &number.value
            {
                **value = Expr::value(Value::SingleQuotedString(number.to_string()));
            }
            return ControlFlow::Continue(());
        };
        let value = Box::new(Expr::value(Value::SingleQuotedString(text)));
        match expr {
            Expr::Interval(interval) => {
                (interval.value, interval.leading_field) = (value, None);
            }
            Expr::Cast { expr, .. } => *expr = value,
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn literal(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            Value::Number(number, false) => Some(number.to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// What an interval says, with its unit; nothing where that is no literal or a range of units.
fn as_text(interval: &Interval) -> Option<String> {
    let Interval { value, leading_field, leading_precision: None, last_field: None, .. } = interval else {
        return None;
    };
    let text = literal(value)?;
    let unit = match leading_field {
        None => return Some(text),
        Some(DateTimeField::Custom(name)) => name.value.clone(),
        Some(unit) => unit.to_string(),
    };
    Some(format!("{text} {unit}"))
}
