//! AT TIME ZONE becomes the function that knows both of its meanings.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Value};

use crate::syntax::{Flow, Walk, call, visit};
use crate::times::AT_TIME_ZONE;

/// Writes every AT TIME ZONE of a statement as a call.
pub(super) fn as_calls(statement: &mut Statement) {
    let _ = visit(statement, &mut Zones);
}

struct Zones;

impl Walk for Zones {
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::AtTimeZone { timestamp, time_zone } = expr {
            let nothing = || Expr::value(Value::Null);
            let time = std::mem::replace(timestamp.as_mut(), nothing());
            let zone = std::mem::replace(time_zone.as_mut(), nothing());
            *expr = call(AT_TIME_ZONE, vec![time, zone]);
        }
        ControlFlow::Continue(())
    }
}
