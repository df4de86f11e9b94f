//! The rows of a series in a plan.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics, internal_err};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::functions_table::generate_series::GenericSeriesState;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalSortExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::memory::LazyMemoryExec;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use futures::stream;

use super::{Bounds, Series};
use crate::node_methods::no_input;

/// A leaf of a plan: the values of a series, in one column or in none where only their number matters.
#[derive(Debug)]
pub(crate) struct SeriesExec {
    series: Series,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SeriesExec {
    /// A series as a column of a schema, which has one or none.
    pub fn new(series: Series, schema: SchemaRef) -> SeriesExec {
        let options = SortOptions { descending: series.falls(), nulls_first: false };
        let order = schema.fields().first().map(|field| {
            let column = Arc::new(Column::new(field.name(), 0));
            [PhysicalSortExpr::new(column, options)]
        });
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(schema, order),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = properties.with_scheduling_type(SchedulingType::Cooperative);
        SeriesExec { series, properties: Arc::new(properties), metrics: ExecutionPlanMetricsSet::new() }
    }

    /// How many rows it has.
    pub(crate) fn rows(&self) -> Precision<usize> {
        self.series.rows()
    }
}

/// A plan in which DataFusion's series of numbers are these.
pub(crate) fn with_series(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    plan.transform_up(|node| {
        let series = node.downcast_ref::<LazyMemoryExec>().and_then(of_generator);
        Ok(match series {
            Some(series) => Transformed::yes(Arc::new(SeriesExec::new(series, node.schema())) as _),
            None => Transformed::no(node),
        })
    })
}

fn of_generator(exec: &LazyMemoryExec) -> Option<Series> {
    let [generator] = exec.generators().as_slice() else { return None };
    let generator = generator.read();
    let numbers = generator.as_any().downcast_ref::<GenericSeriesState<i64>>()?;
    let (start, stop, has_end) = (*numbers.start(), *numbers.end(), numbers.include_end());
    Series::of_numbers(Bounds { start, stop, has_end }, *numbers.step())
}

impl DisplayAs for SeriesExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = match self.rows() {
            Precision::Exact(rows) => rows.to_string(),
            Precision::Inexact(rows) => format!("about {rows}"),
            Precision::Absent => "unknown".to_string(),
        };
        write!(f, "SeriesExec: type={}, rows={rows}", self.series.data_type())
    }
}

impl ExecutionPlan for SeriesExec {
    no_input!("SeriesExec");

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let rows = self.rows();
        let bytes = rows.map(|rows| rows.saturating_mul(size_of::<i64>()));
        let mut column = ColumnStatistics::new_unknown();
        column.null_count = Precision::Exact(0);
        column.distinct_count = rows;
        if let Some((min, max)) = self.series.extremes() {
            let value = |value: i64| ScalarValue::Int64(Some(value)).cast_to(self.series.data_type());
            column.min_value = Precision::Exact(value(min)?);
            column.max_value = Precision::Exact(value(max)?);
        }
        let column_statistics = self.schema().fields().iter().map(|_| column.clone()).collect();
        Ok(Arc::new(Statistics { num_rows: rows, total_byte_size: bytes, column_statistics }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("SeriesExec has one partition, not {partition}");
        }
        let (schema, rows) = (self.schema(), context.session_config().batch_size());
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let batches = stream::unfold((self.series.values(), metrics), move |(mut values, metrics)| {
            let timer = metrics.elapsed_compute().timer();
            let batch = values.take(rows).map(|values| {
                metrics.record_output(values.len());
                let options = RecordBatchOptions::new().with_row_count(Some(values.len()));
                let columns = if schema.fields().is_empty() { vec![] } else { vec![values] };
                Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?)
            });
            drop(timer);
            async move { batch.map(|batch| (batch, (values, metrics))) }
        });
        let batches = RecordBatchStreamAdapter::new(self.schema(), Box::pin(batches));
        Ok(Box::pin(cooperative(batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
