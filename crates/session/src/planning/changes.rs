//! Statements that are done while they are planned: those that change rows, and those that concern the session alone.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::collect;
use datafusion::sql::parser::Statement;

use super::{Planning, Task, physical_plan, plan_of};
use crate::constraints::statements::follow;
use crate::dialect::Types;
use crate::row_changes::{Outcome, Queries, Relation, Within, carry_out, name_of_change};
use crate::sequences::Sequences;
use crate::transactions::Transactions;
use crate::variables::{Variables, assigned};
use crate::views::renewed;

impl Planning {
    /// Follows a statement that begins or ends a transaction, sets a variable, or makes and drops what only the session knows: sequences,
    /// indexes, comments; whether it was one of these.
    pub(super) async fn is_of_session(&self, state: &SessionState, statement: &Statement) -> Result<bool> {
        if let Some(name) = assigned(statement) {
            let queries = WithRelations { planning: self, state };
            let plan = queries.plan(statement.clone(), &[]).await?;
            let rows = queries.run(&plan).await?;
            if let Some(variables) = state.config().get_extension::<Variables>() {
                variables.set(&name, &rows)?;
            }
            return Ok(true);
        }
        if let Some(sequences) = state.config().get_extension::<Sequences>()
            && sequences.follow(statement)?
        {
            return Ok(true);
        }
        if let Some(types) = state.config().get_extension::<Types>()
            && types.follow(statement)?
        {
            // What is cast to them may be another thing now.
            self.statements.forget();
            return Ok(true);
        }
        if follow(statement, state, self.database.as_deref()).await? {
            self.sweep();
            return Ok(true);
        }
        let Some(transactions) = state.config().get_extension::<Transactions>() else { return Ok(false) };
        let is_one = transactions.follow(statement, state, self.database.is_some()).await?;
        if is_one {
            self.sweep();
        }
        Ok(is_one)
    }

    /// What a statement that changes rows answers, or what explains it; nothing where it is another one.
    pub(super) async fn changes_rows(
        &self,
        state: &SessionState,
        statement: &mut Statement,
    ) -> Result<Option<Task>> {
        if name_of_change(statement).is_none() {
            return Ok(None);
        }
        let queries = WithRelations { planning: self, state };
        let within = Within { state, database: self.database.as_deref(), queries: &queries };
        let plan = match carry_out(statement, &within).await? {
            Outcome::Other => return Ok(None),
            Outcome::Explains(statement, relations) => queries.plan(statement, &relations).await?,
            Outcome::Done(rows) => {
                self.sweep();
                let rows = MemTable::try_new(rows.schema(), vec![vec![rows]])?;
                LogicalPlanBuilder::scan("changed", provider_as_source(Arc::new(rows)), None)?.build()?
            }
        };
        let planned = physical_plan(state, &plan).await?;
        Ok(Some((planned, Arc::new(TaskContext::from(state)))))
    }
}

/// Plans and runs the queries of a statement that changes rows.
struct WithRelations<'a> {
    planning: &'a Planning,
    state: &'a SessionState,
}

#[async_trait]
impl Queries for WithRelations<'_> {
    async fn plan(&self, statement: Statement, relations: &[Relation]) -> Result<LogicalPlan> {
        let mut state = self.state.clone();
        for relation in relations {
            state.register_udtf(relation.name, Arc::new(relation.clone()));
        }
        renewed::renew(&state, &statement).await?;
        let again = statement.clone();
        let plan = plan_of(&state, statement, (&self.planning.text, &|| Ok(again.clone()))).await?;
        match &self.planning.parameters {
            Some(values) => plan.with_param_values(values.clone()),
            None => Ok(plan),
        }
    }

    async fn run(&self, plan: &LogicalPlan) -> Result<Vec<RecordBatch>> {
        let planned = physical_plan(self.state, plan).await?;
        collect(planned.plan, Arc::new(TaskContext::from(self.state))).await
    }
}
