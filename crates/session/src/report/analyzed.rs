//! EXPLAIN ANALYZE, with the pipelines before the plan.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use futures::StreamExt;
use kelpie_datafusion::recursion_guard::with_room;
use kelpie_datafusion::{ANALYZED, KelpieOptions, for_each_compiled, one_input, uncompiled_reasons};
use kelpie_engine::Engine;

use super::QueryReport;

/// Puts what the pipelines did before the rows of an EXPLAIN ANALYZE, which runs the query.
#[derive(Debug)]
pub(crate) struct AnalyzedExec {
    input: Arc<dyn ExecutionPlan>,
    engine: Arc<Engine>,
}

impl AnalyzedExec {
    /// A plan, with the pipelines where it is an EXPLAIN ANALYZE as a plan of text.
    pub fn over(plan: Arc<dyn ExecutionPlan>, engine: &Arc<Engine>) -> Arc<dyn ExecutionPlan> {
        let schema = plan.schema();
        let columns: Vec<(&str, &DataType)> =
            schema.fields().iter().map(|field| (field.name().as_str(), field.data_type())).collect();
        let is_text = columns == [("plan_type", &DataType::Utf8), ("plan", &DataType::Utf8)];
        match analyzed(&plan).is_some() && is_text {
            true => Arc::new(AnalyzedExec { input: plan, engine: Arc::clone(engine) }),
            false => plan,
        }
    }

    fn with_input(&self, input: Arc<dyn ExecutionPlan>) -> AnalyzedExec {
        AnalyzedExec { input, engine: Arc::clone(&self.engine) }
    }
}

/// The EXPLAIN ANALYZE within a plan.
fn analyzed(plan: &Arc<dyn ExecutionPlan>) -> Option<&AnalyzeExec> {
    match plan.downcast_ref::<AnalyzeExec>() {
        Some(analyze) => Some(analyze),
        None => plan.children().into_iter().find_map(analyzed),
    }
}

/// The rows, once the query has run.
async fn report(
    plan: Arc<dyn ExecutionPlan>,
    (engine, options): (Arc<Engine>, KelpieOptions),
    mut rows: SendableRecordBatchStream,
) -> Result<RecordBatch> {
    let schema = rows.schema();
    let mut batches = Vec::new();
    while let Some(batch) = rows.next().await.transpose()? {
        batches.push(batch);
    }
    if let Some(text) = with_room(&plan, || text(&plan, &engine, &options)) {
        batches.insert(0, row(&schema, text)?);
    }
    Ok(concat_batches(&schema, &batches)?)
}

/// What is said of the pipelines; nothing where nothing was compiled, as the plan itself says why.
fn text(plan: &Arc<dyn ExecutionPlan>, engine: &Arc<Engine>, options: &KelpieOptions) -> Option<String> {
    let analyze = analyzed(plan)?;
    let (mut parts, mut reasons) = (Vec::new(), uncompiled_reasons(analyze.input(), engine, options));
    for_each_compiled(analyze.input(), &mut |exec| {
        let Some(run) = exec.last_run() else { return };
        match run.fallback {
            Some(reason) => reasons.push(reason.to_string()),
            None => parts.push(run.metrics),
        }
    });
    let report = QueryReport::of_parts(&parts, reasons, engine);
    (!parts.is_empty()).then(|| report.to_text(analyze.verbose()))
}

fn row(schema: &SchemaRef, text: String) -> Result<RecordBatch> {
    let columns = ["Pipelines".to_string(), text];
    let columns = columns.map(|value| Arc::new(StringArray::from(vec![value])) as ArrayRef);
    Ok(RecordBatch::try_new(Arc::clone(schema), columns.into())?)
}

impl DisplayAs for AnalyzedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnalyzedExec: pipelines first")
    }
}

impl ExecutionPlan for AnalyzedExec {
    one_input!(ANALYZED);

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let options = KelpieOptions::of(context.session_config().options());
        let rows = self.input.execute(partition, context)?;
        let of_query = (Arc::clone(&self.engine), options);
        let batch = futures::stream::once(report(Arc::clone(&self.input), of_query, rows));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batch)))
    }
}
