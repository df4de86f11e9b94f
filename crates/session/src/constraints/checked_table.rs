//! Tables that look at rows before they take them. INSERT is planned with such a table in the place of the one that it names, by a rule, so
//! that no way into the table leads around it: prepared statements, COPY FROM, and what an embedder runs through DataFusion's context.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Constraints, TableReference, plan_err};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, LogicalPlan, TableType, WriteOp};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use kelpie_datafusion::{KelpieOptions, one_input};

use super::checked_rows::{Checks, Turn, refuse_named, rows_there, table_of};
use super::rules::Rules;

/// Puts tables that look at rows in the place of those that INSERT and DELETE name.
#[derive(Debug)]
pub(crate) struct CheckedInserts;

impl AnalyzerRule for CheckedInserts {
    fn name(&self) -> &str {
        "kelpie_checked_inserts"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let LogicalPlan::Dml(mut write) = plan else { return Ok(plan) };
        if !KelpieOptions::of(config).corrections {
            return Ok(LogicalPlan::Dml(write));
        }
        let Ok(inner) = source_as_provider(&write.target) else { return Ok(LogicalPlan::Dml(write)) };
        let any: &dyn Any = inner.as_ref();
        let is_one = any.is::<CheckedTable>();
        match write.op {
            WriteOp::Insert(_) | WriteOp::Delete if !is_one => {
                let table = CheckedTable { inner, name: write.table_name.clone() };
                write.target = provider_as_source(Arc::new(table));
            }
            WriteOp::Update if says_something(inner.as_ref()) => {
                return plan_err!(
                    "UPDATE of {}, which has constraints, is not to be prepared: nothing would see to them",
                    write.table_name
                );
            }
            _ => {}
        }
        Ok(LogicalPlan::Dml(write))
    }
}

fn says_something(table: &dyn TableProvider) -> bool {
    let rules = Rules::of(table);
    rules.compare_rows() || !rules.checks.is_empty() || !rules.types.is_empty()
}

/// A table that rows are inserted into.
#[derive(Debug)]
struct CheckedTable {
    inner: Arc<dyn TableProvider>,
    name: TableReference,
}

impl CheckedTable {
    async fn insert(
        &self,
        session: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        mode: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(state) = session.as_any().downcast_ref::<SessionState>() else {
            return self.inner.insert_into(session, input, mode).await;
        };
        // What is prepared may be older than what the table says of its rows.
        let now = table_of(&self.name, state).await.ok().flatten();
        let table = now.unwrap_or_else(|| Arc::clone(&self.inner));
        let input = match Checks::of(&self.name, table.as_ref(), state)? {
            Some(checks) => {
                let others = (mode == InsertOp::Append).then(|| Arc::clone(&table));
                Arc::new(CheckedExec::new(input, Arc::new(checks), others)) as _
            }
            None => input,
        };
        table.insert_into(session, input, mode).await
    }

    /// A DELETE that is DataFusion's own, since it was prepared.
    async fn delete(&self, session: &dyn Session, filters: Vec<Expr>) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(state) = session.as_any().downcast_ref::<SessionState>() {
            refuse_named(&self.name, state).await?;
        }
        self.inner.delete_from(session, filters).await
    }
}

impl TableProvider for CheckedTable {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.inner.constraints()
    }

    fn table_type(&self) -> TableType {
        self.inner.table_type()
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.inner.get_column_default(column)
    }

    fn scan<'a, 'b, 'c, 'd, 'e>(
        &'a self,
        session: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        filters: &'d [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'e, Result<Arc<dyn ExecutionPlan>>>
    where
        'a: 'e,
        'b: 'e,
        'c: 'e,
        'd: 'e,
        Self: 'e,
    {
        self.inner.scan(session, projection, filters, limit)
    }

    fn insert_into<'a, 'b, 'c>(
        &'a self,
        session: &'b dyn Session,
        rows: Arc<dyn ExecutionPlan>,
        mode: InsertOp,
    ) -> BoxFuture<'c, Result<Arc<dyn ExecutionPlan>>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        Box::pin(self.insert(session, rows, mode))
    }

    fn delete_from<'a, 'b, 'c>(
        &'a self,
        session: &'b dyn Session,
        filters: Vec<Expr>,
    ) -> BoxFuture<'c, Result<Arc<dyn ExecutionPlan>>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        Box::pin(self.delete(session, filters))
    }
}

/// Rows that are as their table says.
#[derive(Debug)]
struct CheckedExec {
    input: Arc<dyn ExecutionPlan>,
    checks: Arc<Checks>,
    /// The table whose rows they come to; nothing where they take the place of all.
    others: Option<Arc<dyn TableProvider>>,
    properties: Arc<PlanProperties>,
}

impl CheckedExec {
    fn new(
        input: Arc<dyn ExecutionPlan>,
        checks: Arc<Checks>,
        others: Option<Arc<dyn TableProvider>>,
    ) -> CheckedExec {
        // Nobody has to look for NULLs once more: DataFusion's stream that does lets go of this one, and so of its turn, before the rows are
        // in their place.
        let fields = input.schema();
        let fields = fields.fields().iter().zip(checks.schema.fields()).map(|(field, of_table)| {
            field.as_ref().clone().with_nullable(field.is_nullable() && of_table.is_nullable())
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        ));
        CheckedExec { input, checks, others, properties }
    }

    fn with_input(&self, input: Arc<dyn ExecutionPlan>) -> CheckedExec {
        CheckedExec::new(input, Arc::clone(&self.checks), self.others.clone())
    }
}

impl DisplayAs for CheckedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.checks.rules.keys.iter().map(ToString::to_string);
        let all = keys.chain(self.checks.rules.checks.iter().map(ToString::to_string));
        write!(f, "CheckedExec: {}", all.collect::<Vec<_>>().join(", "))
    }
}

impl ExecutionPlan for CheckedExec {
    one_input!("CheckedExec");

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, Arc::clone(&context))?;
        let (checks, schema) = (Arc::clone(&self.checks), self.schema());
        if !checks.rules.compare_rows() {
            let rows = rows.map(move |rows| {
                let rows = rows?;
                checks.hold_alone(&rows)?;
                Ok(RecordBatch::try_new(Arc::clone(&schema), rows.columns().to_vec())?)
            });
            return Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)));
        }
        let reservation = MemoryConsumer::new("CheckedExec").register(context.memory_pool());
        let together = Box::pin(together((rows, schema), checks, self.others.clone(), reservation));
        Ok(Box::pin(CheckedRows { schema: self.schema(), state: State::Waits(together) }))
    }
}

/// Rows that go together with those of their table, which nobody else changes until they are there.
struct Together {
    rows: std::vec::IntoIter<RecordBatch>,
    _turn: Turn,
    _reservation: MemoryReservation,
}

async fn together(
    (mut rows, schema): (SendableRecordBatchStream, SchemaRef),
    checks: Arc<Checks>,
    others: Option<Arc<dyn TableProvider>>,
    reservation: MemoryReservation,
) -> Result<Together> {
    let mut all = Vec::new();
    while let Some(rows) = rows.next().await.transpose()? {
        checks.hold_alone(&rows)?;
        reservation.try_grow(rows.get_array_memory_size())?;
        all.push(RecordBatch::try_new(Arc::clone(&schema), rows.columns().to_vec())?);
    }
    let turn = Turn::of(&checks.state).await;
    let others = match others {
        Some(table) => {
            // Files of a database are others than when the statement was planned.
            let now = table_of(&checks.name, &checks.state).await?.unwrap_or(table);
            rows_there(&checks.name, now).await?
        }
        None => None,
    };
    checks.hold_together(&all, others.as_ref()).await?;
    Ok(Together { rows: all.into_iter(), _turn: turn, _reservation: reservation })
}

/// The stream of such rows. They hold their turn as long as it is there, which is until they are written.
struct CheckedRows {
    schema: SchemaRef,
    state: State,
}

enum State {
    Waits(Pin<Box<dyn Future<Output = Result<Together>> + Send>>),
    Gives(Together),
    Failed,
}

impl Stream for CheckedRows {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let rows = self.get_mut();
        loop {
            match &mut rows.state {
                State::Waits(together) => match ready!(together.as_mut().poll(context)) {
                    Ok(together) => rows.state = State::Gives(together),
                    Err(error) => {
                        rows.state = State::Failed;
                        return Poll::Ready(Some(Err(error)));
                    }
                },
                State::Gives(together) => return Poll::Ready(together.rows.next().map(Ok)),
                State::Failed => return Poll::Ready(None),
            }
        }
    }
}

impl RecordBatchStream for CheckedRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
