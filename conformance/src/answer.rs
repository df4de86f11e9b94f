//! What a statement gives.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use kelpie_session::{ANALYZED, KelpieExec};

/// The result of a statement.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Rows of text, which may be none.
    Rows {
        /// Names and types of the columns.
        schema: SchemaRef,
        /// The values, as DataFusion's runner prints them.
        rows: Vec<Vec<String>>,
    },
    /// An error.
    Failed(String),
    /// A panic.
    Panicked(String),
}

/// What of a plan Kelpie ran.
#[derive(Debug, Clone, Default)]
pub struct Compiled {
    /// Something.
    pub any: bool,
    /// All of it.
    pub whole: bool,
    /// Something that was compiled ran on DataFusion's operators in the end.
    pub fell_back: bool,
    /// Why, where it failed in Kelpie.
    pub failed: Option<String>,
}

/// How [`KelpieExec`] tells that it failed, in the line of EXPLAIN ANALYZE.
const FAILED: &str = "failed in Kelpie: ";

/// The name of the node that lists the reasons of what is not compiled on top of an explained plan.
const REPORT: &str = "KelpieReport";

impl Compiled {
    /// What Kelpie ran of a plan that was executed.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Compiled {
        let mut compiled = Compiled { whole: is_whole(plan), ..Compiled::default() };
        compiled.add(plan);
        compiled.whole &= !compiled.fell_back;
        compiled
    }

    fn add(&mut self, node: &Arc<dyn ExecutionPlan>) {
        if node.is::<KelpieExec>() {
            self.any = true;
            let fallbacks = node.metrics().and_then(|metrics| metrics.sum_by_name("fallbacks"));
            if fallbacks.is_some_and(|count| count.as_usize() > 0) {
                self.fell_back = true;
                let text = DisplayableExecutionPlan::new(node.as_ref()).one_line().to_string();
                let failed = text.lines().find_map(|line| line.split_once(FAILED));
                self.failed = failed.map(|(_, error)| error.to_string()).or(self.failed.take());
            }
        }
        node.children().into_iter().for_each(|child| self.add(child));
    }
}

/// Whether a plan is Kelpie's but for nodes around it that compute nothing.
fn is_whole(node: &Arc<dyn ExecutionPlan>) -> bool {
    use datafusion::datasource::sink::DataSinkExec;
    let around =
        node.is::<AnalyzeExec>() || node.is::<DataSinkExec>() || [REPORT, ANALYZED].contains(&node.name());
    node.is::<KelpieExec>() || around && node.children().into_iter().all(is_whole)
}

#[cfg(test)]
mod tests {
    use anyhow::Result;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::physical_plan::collect;
    use datafusion::prelude::SessionContext;
    use kelpie_engine::Engine;

    use super::*;

    async fn compiled(context: &SessionContext, sql: &str) -> Result<Compiled> {
        let plan = context.sql(sql).await?.create_physical_plan().await?;
        collect(Arc::clone(&plan), context.task_ctx()).await?;
        Ok(Compiled::of(&plan))
    }

    #[tokio::test]
    async fn what_kelpie_ran_is_seen() -> Result<()> {
        let builder = SessionStateBuilder::new().with_default_features();
        let state = kelpie_session::install(builder, Arc::new(Engine::new())).build();
        let context = SessionContext::new_with_state(state);
        for sql in [
            "SET kelpie.device = 'cpu'",
            "CREATE TABLE t AS SELECT v AS k, v AS x, '0.' || repeat('1', 400) AS digits FROM generate_series(1, 9) AS s(v)",
        ] {
            context.sql(sql).await?.collect().await?;
        }
        for (sql, any, whole, fell_back) in [
            ("SELECT k, sum(x) FROM t GROUP BY k", true, true, false),
            ("EXPLAIN ANALYZE SELECT k, sum(x) FROM t GROUP BY k", true, true, false),
            ("SELECT k, approx_median(x) FROM t GROUP BY k", false, false, false),
            ("SELECT approx_median(s) FROM (SELECT k, sum(x) AS s FROM t GROUP BY k)", true, false, false),
            ("SELECT sum(CAST(digits AS DOUBLE)) FROM t", true, false, true),
        ] {
            let found = compiled(&context, sql).await?;
            assert_eq!((found.any, found.whole, found.fell_back), (any, whole, fell_back), "{sql}");
            assert_eq!(found.failed, None, "{sql}");
        }
        Ok(())
    }
}
