//! The table of the parameters of a generic plan: one row, and a column for each parameter.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ScalarValue, Statistics, internal_err};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
};

use crate::node::pass_through;
use crate::node_methods::no_input;

/// Values of all parameters of a plan, none of them NULL.
pub type Values = Arc<[ScalarValue]>;

/// The table. The optimizer sees its columns and that it has one row; its values belong to one run.
#[derive(Debug)]
pub(super) struct ParametersTable {
    schema: SchemaRef,
    values: Values,
}

impl ParametersTable {
    /// A column of each name, with a value each.
    pub fn new(names: &[String], values: &Values) -> ParametersTable {
        let fields = names.iter().zip(values.iter());
        let fields = fields.map(|(name, value)| Field::new(name, value.data_type(), false));
        ParametersTable {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            values: Arc::clone(values),
        }
    }
}

#[async_trait]
impl TableProvider for ParametersTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = projection.cloned().unwrap_or_else(|| (0..self.values.len()).collect());
        let schema = Arc::new(self.schema.project(&columns)?);
        Ok(Arc::new(ParametersExec::new(schema, columns, Arc::clone(&self.values))))
    }
}

/// Some columns of the table, with the values of one run. What is kept has those of the run for which it was planned, and
/// copies of it get their own.
#[derive(Debug)]
pub struct ParametersExec {
    /// Which of the values are its columns.
    columns: Vec<usize>,
    values: Values,
    properties: Arc<PlanProperties>,
}

impl ParametersExec {
    fn new(schema: SchemaRef, columns: Vec<usize>, values: Values) -> ParametersExec {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = properties.with_scheduling_type(SchedulingType::Cooperative);
        ParametersExec { columns, values, properties: Arc::new(properties) }
    }

    /// The same with other values, which are of the same types.
    pub fn with_values(&self, values: &Values) -> ParametersExec {
        ParametersExec {
            columns: self.columns.clone(),
            values: Arc::clone(values),
            properties: Arc::clone(&self.properties),
        }
    }

    /// Its row, with other values.
    fn row(&self, values: &Values) -> Result<RecordBatch> {
        let column = |index: &usize| match values.get(*index) {
            Some(value) => value.to_array(),
            None => internal_err!("parameter {index} has no value"),
        };
        let columns: Vec<ArrayRef> = self.columns.iter().map(column).collect::<Result<_>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(1));
        Ok(RecordBatch::try_new_with_options(self.schema(), columns, &rows)?)
    }
}

impl DisplayAs for ParametersExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        match format {
            DisplayFormatType::TreeRender => write!(f, "{}", names.join(", ")),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "ParametersExec: {}", names.join(", "))
            }
        }
    }
}

impl ExecutionPlan for ParametersExec {
    no_input!("ParametersExec");

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("ParametersExec has one partition, not {partition}");
        }
        Ok(Box::pin(MemoryStream::try_new(vec![self.row(&self.values)?], self.schema(), None)?))
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::new(Statistics::new_unknown(&self.schema()).with_num_rows(Precision::Exact(1))))
    }
}

/// Whether a plan only computes something from parameters.
pub(crate) fn is_of_parameters(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match below(plan) {
        Some(input) => is_of_parameters(input),
        None => plan.is::<ParametersExec>(),
    }
}

/// The value of a plan that only computes something from parameters, over some values of theirs; over those that it was planned
/// with where none are given.
pub(crate) fn value(plan: &Arc<dyn ExecutionPlan>, values: Option<&Values>) -> Result<ScalarValue> {
    let row = row(plan, values)?;
    match row.columns() {
        [column] => ScalarValue::try_from_array(column, 0),
        columns => internal_err!("a parameter has {} values", columns.len()),
    }
}

fn row(plan: &Arc<dyn ExecutionPlan>, values: Option<&Values>) -> Result<RecordBatch> {
    if let Some(exec) = plan.downcast_ref::<ParametersExec>() {
        return exec.row(values.unwrap_or(&exec.values));
    }
    let Some(input) = below(plan) else {
        return internal_err!("{} computes no parameter", plan.name());
    };
    let row = row(input, values)?;
    let Some(projection) = plan.downcast_ref::<ProjectionExec>() else { return Ok(row) };
    let columns = projection.expr().iter().map(|projected| projected.expr.evaluate(&row)?.into_array(1));
    Ok(RecordBatch::try_new(projection.schema(), columns.collect::<Result<_>>()?)?)
}

/// The input of a node that computes no more than expressions.
fn below(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    match plan.downcast_ref::<ProjectionExec>() {
        Some(projection) => Some(projection.input()),
        None => pass_through(plan),
    }
}
