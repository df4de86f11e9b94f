//! A series as a table.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;

use super::{Series, SeriesExec};
use crate::options::KelpieOptions;

/// Rows of a batch for workers.
const WORKERS_ROWS: usize = 1 << 16;

/// A table of one column.
#[derive(Debug)]
pub struct SeriesTable {
    series: Series,
    schema: SchemaRef,
}

impl SeriesTable {
    /// The column.
    pub const COLUMN: &'static str = "value";

    /// The table of a series.
    pub fn new(series: Series) -> SeriesTable {
        // What it stands for are the elements of a list, which may be NULL.
        let column = Field::new(SeriesTable::COLUMN, series.data_type().clone(), true);
        SeriesTable { series, schema: Arc::new(Schema::new(vec![column])) }
    }
}

#[async_trait]
impl TableProvider for SeriesTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if KelpieOptions::of(state.config_options()).for_workers {
            // Workers get rows, as they know no series.
            let mut values = self.series.values();
            let batches = std::iter::from_fn(|| values.take(WORKERS_ROWS));
            let batches = batches.map(|values| RecordBatch::try_new(self.schema(), vec![values]));
            let rows = batches.collect::<Result<Vec<RecordBatch>, _>>()?;
            let source = MemorySourceConfig::try_new(&[rows], self.schema(), projection.cloned())?;
            return Ok(DataSourceExec::from_data_source(source));
        }
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema(),
        };
        Ok(Arc::new(SeriesExec::new(self.series.clone(), schema)))
    }
}
