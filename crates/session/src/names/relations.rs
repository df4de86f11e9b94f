//! Names that relations of FROM have in other engines: `FROM t, (SELECT … WHERE u.i = t.i)` knows `t` without LATERAL, and the column of
//! `generate_series(1, 3) AS g` is `g`, that of `range(3)` is `range`. They are tried where a name is not found otherwise: what DataFusion
//! plans by itself keeps its names.

use std::ops::ControlFlow;

use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    JoinOperator, ObjectNamePart, Select, SelectItem, SetExpr, TableAliasColumnDef, TableFactor,
};

use crate::syntax::{Flow, Walk, as_alias, normal, quoted, visit};

/// The plan of a statement whose relations are known by such names; nothing where that changes nothing, or does not help.
pub(super) async fn planned(state: &SessionState, statement: &Statement) -> Option<LogicalPlan> {
    for (lateral, series) in [(true, false), (false, true), (true, true)] {
        let mut named = Relations { lateral, series, changed: [false, false] };
        let mut statement = statement.clone();
        let _ = visit(&mut statement, &mut named);
        if named.changed == [lateral, series]
            && let Ok(plan) = state.statement_to_plan(statement).await
        {
            return Some(plan);
        }
    }
    None
}

struct Relations {
    lateral: bool,
    series: bool,
    /// Whether anything was lateral, and any series was named.
    changed: [bool; 2],
}

impl Walk for Relations {
    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        for (place, table) in select.from.iter_mut().enumerate() {
            if self.lateral && place > 0 {
                self.changed[0] |= made_lateral(&mut table.relation);
            }
            for join in &mut table.joins {
                let may_be = matches!(
                    join.join_operator,
                    JoinOperator::Join(_)
                        | JoinOperator::Inner(_)
                        | JoinOperator::Left(_)
                        | JoinOperator::LeftOuter(_)
                        | JoinOperator::CrossJoin(_)
                );
                if self.lateral && may_be {
                    self.changed[0] |= made_lateral(&mut join.relation);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        self.changed[1] |= self.series && named_as_function(factor);
        ControlFlow::Continue(())
    }
}

fn made_lateral(factor: &mut TableFactor) -> bool {
    match factor {
        TableFactor::Derived { lateral, .. } if !*lateral => {
            *lateral = true;
            true
        }
        _ => false,
    }
}

/// Gives the column of a series the name of its alias, or of its function.
fn named_as_function(factor: &mut TableFactor) -> bool {
    let (alias, function) = match factor {
        TableFactor::Table { name, alias, args: Some(_), .. } => {
            let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return false };
            let name = normal(name);
            if name != "generate_series" && name != "range" {
                return false;
            }
            (alias, Some(name))
        }
        // As `corrections::row_functions` writes them.
        TableFactor::Derived { subquery, alias, .. } => {
            let SetExpr::Select(select) = subquery.body.as_ref() else { return false };
            let is_series = matches!(
                select.projection.as_slice(),
                [SelectItem::ExprWithAlias { alias, .. }] if alias.value == "value" && alias.quote_style.is_some()
            );
            if !is_series || !select.from.is_empty() {
                return false;
            }
            (alias, None)
        }
        _ => return false,
    };
    let alias = match (alias, function) {
        (Some(alias), _) => alias,
        (none, Some(function)) => none.insert(as_alias(quoted(function))),
        (None, None) => return false,
    };
    if !alias.columns.is_empty() {
        return false;
    }
    alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
    true
}
