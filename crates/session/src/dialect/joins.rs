//! Joins as DataFusion has them: SEMI and ANTI JOIN keep the left side's columns, and what an ASOF JOIN joins becomes a relation of its
//! own, for [`AsofJoins`](super::asof::AsofJoins) to plan.

use datafusion::sql::sqlparser::ast::{JoinOperator, TableFactor, TableWithJoins};

/// Writes such joins out; `is_nested` where the tables are a relation in parentheses already.
pub(super) fn write_out(table: &mut TableWithJoins, is_nested: bool) {
    for join in &mut table.joins {
        match &join.join_operator {
            JoinOperator::Semi(constraint) => join.join_operator = JoinOperator::LeftSemi(constraint.clone()),
            JoinOperator::Anti(constraint) => join.join_operator = JoinOperator::LeftAnti(constraint.clone()),
            _ => {}
        }
    }
    while let Some(place) = table.joins.iter().position(|join| is_asof(&join.join_operator)) {
        let last = place + 1 == table.joins.len();
        if is_nested && last {
            return;
        }
        let others = table.joins.split_off(place + 1);
        let inner = std::mem::replace(table, TableWithJoins { relation: nothing(), joins: others });
        table.relation = TableFactor::NestedJoin { table_with_joins: Box::new(inner), alias: None };
    }
}

pub(super) fn is_asof(operator: &JoinOperator) -> bool {
    matches!(operator, JoinOperator::AsOf { .. })
}

/// What stands in a place until something else does.
fn nothing() -> TableFactor {
    TableFactor::UNNEST {
        alias: None,
        array_exprs: vec![],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    }
}
