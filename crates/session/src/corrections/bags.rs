//! EXCEPT ALL and INTERSECT ALL count copies: of {1, 1, 1} EXCEPT ALL {1}, two are left. DataFusion asks for each row only whether the
//! other side has it. Here the copies of a row are numbered on both sides, so that its second copy only meets the second one there.

use std::ops::ControlFlow;

use datafusion::common::Column;
use datafusion::error::Result;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, WindowFunctionDefinition,
};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Query, SetExpr, SetOperator, SetQuantifier, TableFactor, TableWithJoins, Values,
};

use crate::syntax::{Flow, Walk, as_alias, plain_query, quoted, select_all, visit};

/// The alias of a subquery whose rows get the numbers of their copies as another column.
const NUMBERED: &str = "kelpie: numbered copies";

/// The alias of a subquery that loses its last column.
const WITHOUT_NUMBERS: &str = "kelpie: without numbers of copies";

/// The column of numbers.
const NUMBER: &str = "kelpie: copy";

/// Makes EXCEPT ALL and INTERSECT ALL compare numbered copies, for [`NumberedCopies`] to plan.
pub(super) fn count_copies(statement: &mut Statement) {
    let _ = visit(statement, &mut Bags);
}

struct Bags;

impl Walk for Bags {
    // What a query has within it is done before, so that nothing is numbered twice.
    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        number(&mut query.body);
        ControlFlow::Continue(())
    }
}

/// Numbers the copies of both sides of such operations, from the innermost one on.
fn number(body: &mut SetExpr) {
    let SetExpr::SetOperation { left, op, set_quantifier, right } = body else { return };
    number(left);
    number(right);
    let counts = matches!(op, SetOperator::Except | SetOperator::Intersect);
    if counts && *set_quantifier == SetQuantifier::All {
        wrap(left, NUMBERED);
        wrap(right, NUMBERED);
        wrap(body, WITHOUT_NUMBERS);
    }
}

/// Makes `SELECT * FROM (body) AS alias` of a body.
fn wrap(body: &mut SetExpr, alias: &str) {
    let inner = std::mem::replace(
        body,
        SetExpr::Values(Values { explicit_row: false, value_keyword: false, rows: vec![] }),
    );
    let relation = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(plain_query(inner)),
        alias: Some(as_alias(quoted(alias))),
        sample: None,
    };
    *body = SetExpr::Select(Box::new(select_all(vec![TableWithJoins { relation, joins: vec![] }])));
}

/// Plans the subqueries that [`count_copies`] makes.
#[derive(Debug)]
pub(crate) struct NumberedCopies;

impl RelationPlanner for NumberedCopies {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        match relation {
            TableFactor::Derived { lateral, subquery, alias: Some(alias), sample }
                if [NUMBERED, WITHOUT_NUMBERS].contains(&alias.name.value.as_str()) =>
            {
                let numbers = alias.name.value == NUMBERED;
                let plan = context.plan(TableFactor::Derived { lateral, subquery, alias: None, sample })?;
                let plan = if numbers { numbered(plan)? } else { without_numbers(plan)? };
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation { plan, alias: None })))
            }
            relation => Ok(RelationPlanning::Original(Box::new(relation))),
        }
    }
}

fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}

fn numbered(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns = columns_of(&plan);
    let function = WindowFunctionDefinition::WindowUDF(row_number_udwf());
    let window = Expr::from(WindowFunction::new(function, vec![])).partition_by(columns.clone()).build()?;
    let name = window.schema_name().to_string();
    let number = Expr::Column(Column::new_unqualified(name)).alias(NUMBER);
    let columns = columns.into_iter().chain([number]);
    LogicalPlanBuilder::from(plan).window([window])?.project(columns)?.build()
}

fn without_numbers(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut columns = columns_of(&plan);
    columns.pop();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}
