//! A session as sqllogictest sees it, which keeps what the last statement gave.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::physical_plan::common::collect;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use datafusion_sqllogictest::{
    DFColumnType, DFOutput, DFSqlLogicTestError, convert_batches, convert_schema_to_types, is_spark_path,
};
use sqllogictest::{AsyncDB, DBOutput};

use crate::answer::{Answer, Compiled};

/// What the last statement gave.
pub type Last = Arc<Mutex<Option<(Answer, Compiled)>>>;

/// A connection to a session.
pub struct Database {
    context: SessionContext,
    file: PathBuf,
    last: Last,
}

impl Database {
    /// A connection for a file; what its statements give stands in `last`.
    pub fn new(context: SessionContext, file: PathBuf, last: Last) -> Database {
        Database { context, file, last }
    }

    /// As DataFusion's runner does, which keeps neither the plan nor the schema.
    async fn execute(&self, sql: &str) -> Result<(Answer, Compiled, DFOutput), DFSqlLogicTestError> {
        let frame = self.context.sql(sql).await?;
        let task = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let schema = plan.schema();
        let stream = execute_stream(Arc::clone(&plan), task)?;
        let types = convert_schema_to_types(stream.schema().fields());
        let batches = collect(stream).await?;
        let rows = convert_batches(&schema, batches, is_spark_path(&self.file))?;
        let answer = Answer::Rows { schema, rows: rows.clone() };
        let output = match rows.is_empty() && types.is_empty() {
            true => DBOutput::StatementComplete(0),
            false => DBOutput::Rows { types, rows },
        };
        Ok((answer, Compiled::of(&plan), output))
    }
}

#[async_trait]
impl AsyncDB for Database {
    type Error = DFSqlLogicTestError;
    type ColumnType = DFColumnType;

    async fn run(&mut self, sql: &str) -> Result<DFOutput, DFSqlLogicTestError> {
        let (answer, compiled, output) = match self.execute(sql).await {
            Ok((answer, compiled, output)) => (answer, compiled, Ok(output)),
            Err(error) => (Answer::Failed(error.to_string()), Compiled::default(), Err(error)),
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((answer, compiled));
        output
    }

    async fn shutdown(&mut self) {}

    /// The name that conditions of records know.
    fn engine_name(&self) -> &str {
        "DataFusion"
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
