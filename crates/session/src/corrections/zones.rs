//! Times as they are written: AT TIME ZONE becomes the function that knows both of its meanings, and what the type of a time would get
//! wrong is said by another.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{CastKind, DataType, Expr, Query, TimezoneInfo, TypedString, Value};

use crate::syntax::{Flow, Walk, call, cast, literal, name_of, visit};
use crate::times::{AT_TIME_ZONE, is_beyond};

/// Functions that say what time it is.
const NOW: [&str; 4] = ["now", "current_timestamp", "transaction_timestamp", "get_current_timestamp"];

/// Writes every AT TIME ZONE of a statement as a call, and times whose unit decides as casts to it.
pub(super) fn as_calls(statement: &mut Statement) {
    let _ = visit(statement, &mut Zones::default());
}

#[derive(Default)]
struct Zones {
    /// Queries around with WITH RECURSIVE, whose columns are of the type that its first rows are planned with.
    recursive: usize,
}

fn is_recursive(query: &Query) -> bool {
    query.with.as_ref().is_some_and(|with| with.recursive)
}

impl Walk for Zones {
    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        self.recursive += usize::from(is_recursive(query));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        self.recursive -= usize::from(is_recursive(query));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::AtTimeZone { timestamp, time_zone } => {
                let mut time = taken(timestamp);
                // What time it is now is one for all zones, whatever type it has here.
                if is_now(&time) {
                    time = cast(time, DataType::Timestamp(None, TimezoneInfo::WithTimeZone));
                }
                *expr = call(AT_TIME_ZONE, vec![time, taken(time_zone)]);
            }
            // Nanoseconds are asked for: texts of rows are microseconds else, which hold all years.
            Expr::Cast { kind, expr: inner, data_type: DataType::Timestamp(Some(9), zone), .. }
                if *kind != CastKind::TryCast && is_local(zone) =>
            {
                let unit = literal("Timestamp(Nanosecond, None)");
                *expr = call("arrow_cast", vec![taken(inner), unit]);
            }
            Expr::Cast { expr: inner, data_type: DataType::Timestamp(None, zone), .. }
                if self.recursive > 0 && is_local(zone) =>
            {
                let text =
                    if let Expr::Value(value) = inner.as_ref() { value.value.clone() } else { Value::Null };
                if let Some(made) = in_microseconds(text) {
                    *expr = made;
                }
            }
            Expr::TypedString(TypedString { data_type: DataType::Timestamp(None, zone), value, .. })
                if self.recursive > 0 && is_local(zone) =>
            {
                if let Some(made) = in_microseconds(value.value.clone()) {
                    *expr = made;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn is_now(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else { return false };
    name_of(function).is_some_and(|name| NOW.contains(&name.as_str()))
}

fn taken(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::value(Value::Null))
}

fn is_local(zone: &TimezoneInfo) -> bool {
    matches!(zone, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone)
}

/// A time that nanoseconds do not hold.
fn in_microseconds(text: Value) -> Option<Expr> {
    let Value::SingleQuotedString(text) = text else { return None };
    let unit = literal("Timestamp(Microsecond, None)");
    is_beyond(&text, None).then(|| call("arrow_cast", vec![literal(text), unit]))
}
