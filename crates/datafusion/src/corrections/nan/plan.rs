//! The one NaN in what DataFusion's operators read, and the NULLs of structs in their fields.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal, lit};
use datafusion::physical_expr::utils::{collect_columns, conjunction, split_conjunction};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;

use super::{are_mended, canonical_batch};
use crate::decimals::check_decimals;
use crate::exec::KelpieExec;
use crate::node::Node;
use crate::node_methods::{one_input, rows_of_input};
use crate::parameters::ParametersExec;
use crate::received::ReceivedExec;

/// A plan whose scans give floats with the one NaN. What is compiled in it reads by Kelpie's own readers.
pub(crate) fn with_one_nan(plan: Node) -> Result<Node> {
    let made = plan.transform_up(|node| {
        let decimals = has_decimals_of_files(&node);
        let is_source = node.children().is_empty()
            && (decimals || are_mended(&node.schema()))
            && !node.is::<KelpieExec>()
            && !node.is::<EmptyExec>()
            && !node.is::<PlaceholderRowExec>()
            && !node.is::<WorkTableExec>()
            && !node.is::<ParametersExec>()
            && !node.is::<ReceivedExec>();
        match is_source {
            true => {
                Ok(Transformed::yes(Arc::new(OneNanExec { input: by_sound_bounds(node)?, decimals }) as Node))
            }
            false => Ok(Transformed::no(node)),
        }
    })?;
    Ok(made.data)
}

/// Whether a scan reads decimals of Parquet files, which may have more digits than their type.
fn has_decimals_of_files(scan: &Node) -> bool {
    let is_parquet = scan
        .downcast_ref::<DataSourceExec>()
        .and_then(|source| source.data_source().downcast_ref::<FileScanConfig>())
        .is_some_and(|config| config.file_source().is::<ParquetSource>());
    is_parquet && scan.schema().fields().iter().any(|field| field.data_type().is_decimal())
}

/// A scan that leaves out no part of a file for its bounds of floats, which say nothing of NaN, where NaN could be wanted.
fn by_sound_bounds(scan: Node) -> Result<Node> {
    let Some(source) = scan.downcast_ref::<DataSourceExec>() else { return Ok(scan) };
    let Some(config) = source.data_source().downcast_ref::<FileScanConfig>() else { return Ok(scan) };
    let Some(parquet) = config.file_source().downcast_ref::<ParquetSource>() else { return Ok(scan) };
    let Some(predicate) = parquet.filter() else { return Ok(scan) };
    // There it decides which rows come, and not only which parts of a file are read.
    if parquet.table_parquet_options().global.pushdown_filters {
        return Ok(scan);
    }
    let schema = Arc::clone(parquet.table_schema().table_schema());
    let conjuncts = split_conjunction(&predicate);
    let sound: Vec<_> =
        conjuncts.iter().filter(|part| is_sound(part, &schema)).map(|part| Arc::clone(part)).collect();
    if sound.len() == conjuncts.len() {
        return Ok(scan);
    }
    let sound = if sound.is_empty() { lit(true) } else { conjunction(sound) };
    let parquet = Arc::new(parquet.with_predicate(sound));
    let config = FileScanConfigBuilder::from(config.clone()).with_source(parquet).build();
    Ok(Arc::new(source.clone().with_data_source(Arc::new(config))))
}

/// Whether no NaN passes a condition, or no float is in it.
fn is_sound(condition: &Arc<dyn PhysicalExpr>, schema: &SchemaRef) -> bool {
    let is_float = |column: &Column| {
        schema.fields().get(column.index()).is_none_or(|field| super::has_floats(field.data_type()))
    };
    if !collect_columns(condition).iter().any(is_float) {
        return true;
    }
    let Some(binary) = condition.downcast_ref::<BinaryExpr>() else { return false };
    let is_column = |side: &Arc<dyn PhysicalExpr>| side.is::<Column>();
    let is_number = |side: &Arc<dyn PhysicalExpr>| {
        side.downcast_ref::<Literal>().is_some_and(|literal| match literal.value() {
            ScalarValue::Float64(value) => value.is_none_or(|value| !value.is_nan()),
            ScalarValue::Float32(value) => value.is_none_or(|value| !value.is_nan()),
            _ => false,
        })
    };
    match binary.op() {
        Operator::Lt | Operator::LtEq => is_column(binary.left()) && is_number(binary.right()),
        Operator::Gt | Operator::GtEq => is_number(binary.left()) && is_column(binary.right()),
        Operator::Eq => {
            is_column(binary.left()) && is_number(binary.right())
                || is_number(binary.left()) && is_column(binary.right())
        }
        _ => false,
    }
}

/// Rows as they come, with the one NaN in place of all others.
#[derive(Debug)]
pub(crate) struct OneNanExec {
    input: Node,
    /// Whether decimals of more digits than their type are an error.
    decimals: bool,
}

impl OneNanExec {
    fn with_input(&self, input: Node) -> OneNanExec {
        OneNanExec { input, decimals: self.decimals }
    }
}

impl DisplayAs for OneNanExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OneNanExec{}", if self.decimals { ": decimals checked" } else { "" })
    }
}

impl ExecutionPlan for OneNanExec {
    one_input!("OneNanExec");
    rows_of_input!();

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, context)?;
        let decimals = self.decimals;
        let made = rows.map(move |batch| {
            let batch = batch?;
            if decimals {
                check_decimals(&batch).map_err(ArrowError::ParquetError)?;
            }
            canonical_batch(batch).map_err(DataFusionError::from)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), made)))
    }
}
