//! ORDER BY ALL of `SELECT *`: by the places of all columns, which are known once the query is planned without its order. DataFusion looks
//! for them by their names in lower case, and `SELECT * FROM (SELECT a + 1 FROM t)` has a column of another name.

use std::ops::ControlFlow;

use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{OrderByExpr, OrderByKind, Query};

use super::seek::seek_query;
use crate::syntax::{Flow, Walk, number, plain_query, statement_of, visit};

/// Writes such orders out, the innermost ones first. Where a query cannot be planned by itself, its order stays as it is.
pub(crate) async fn write_out(state: &SessionState, sql: &str, statement: &mut Statement) {
    if !sql.to_ascii_lowercase().contains("all") {
        return;
    }
    let mut skipped = 0;
    loop {
        let mut passed = skipped;
        let unordered = seek_query(statement, &mut |query| {
            is_next(query, &mut passed).then(|| plain_query(query.body.as_ref().clone()))
        });
        let Some(unordered) = unordered else { return };
        match state.statement_to_plan(statement_of(unordered)).await {
            Ok(plan) => {
                let columns = plan.schema().fields().len();
                let _ = visit(statement, &mut Places { columns, skipped });
            }
            Err(_) => skipped += 1,
        }
    }
}

fn is_by_all(query: &Query) -> bool {
    query.order_by.as_ref().is_some_and(|order| matches!(order.kind, OrderByKind::All(_)))
}

/// Whether a query is the one that is looked for, behind some others.
fn is_next(query: &Query, passed: &mut usize) -> bool {
    match (is_by_all(query), passed.checked_sub(1)) {
        (false, _) => false,
        (true, None) => true,
        (true, Some(left)) => {
            *passed = left;
            false
        }
    }
}

/// Orders the first such query by the places of its columns.
struct Places {
    columns: usize,
    skipped: usize,
}

impl Walk for Places {
    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        if !is_next(query, &mut self.skipped) {
            return ControlFlow::Continue(());
        }
        if let Some(order) = &mut query.order_by
            && let OrderByKind::All(options) = order.kind
        {
            let place = |place: usize| OrderByExpr { expr: number(place), options, with_fill: None };
            order.kind = OrderByKind::Expressions((1..=self.columns).map(place).collect());
        }
        ControlFlow::Break(None)
    }
}
