//! Scans: the columns of a table that are used, then what the scan node computes over them.

use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::DataFusionError;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::utils::collect_columns;
use kelpie_compile::expr::{Expr, ExprKind};
use kelpie_compile::plan::{Plan, Scan};
use kelpie_compile::types::{DataType, Literal};

use super::derive::{Below, Deriver};
use super::expr::ExprTranslator;
use super::plans::{fields_at, project_columns};
use super::translator::Translator;
use crate::received::ReceivedExec;
use crate::source::ScanTable;
use crate::types;

/// A scan of files or of batches in memory, without its limit.
pub(super) fn scan(translator: &mut Translator, node: &DataSourceExec) -> Option<Plan> {
    let source = node.data_source();
    if let Some(memory) = source.downcast_ref::<MemorySourceConfig>() {
        memory_scan(translator, memory, (ScanTable::of_memory(memory), Some(node)))
    } else if let Some(config) = source.downcast_ref::<FileScanConfig>() {
        file_scan(translator, config, node)
    } else {
        translator.refuse("DataSourceExec: this kind of source is not compiled")
    }
}

/// All columns of rows that come from elsewhere, once.
pub(super) fn received(translator: &mut Translator, node: &ReceivedExec) -> Option<Plan> {
    let (table, schema) = (ScanTable::of_received(node.received()), node.received().schema());
    let columns: Vec<usize> = (0..schema.fields().len()).collect();
    table_scan(translator, (table, None), &schema, &columns)
}

/// The table of a scan.
pub(super) fn table(node: &DataSourceExec) -> Option<ScanTable> {
    let source = node.data_source();
    match source.downcast_ref::<FileScanConfig>() {
        Some(config) => ScanTable::of_files(config).ok(),
        None => source.downcast_ref::<MemorySourceConfig>().map(ScanTable::of_memory),
    }
}

/// A scan of a table of no row, or of one row of NULLs.
pub(super) fn constant(translator: &mut Translator, schema: &SchemaRef, rows: usize) -> Option<Plan> {
    // DataFusion gives NULLs also for columns that cannot be NULL: nothing reads them.
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(rows > 0));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let nulls = schema.fields().iter().map(|field| new_null_array(field.data_type(), rows)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), nulls, &options);
    let source = batch
        .map_err(DataFusionError::from)
        .and_then(|batch| MemorySourceConfig::try_new(&[vec![batch]], schema, None));
    match source {
        Ok(memory) => memory_scan(translator, &memory, (ScanTable::of_constants(&memory), None)),
        Err(error) => translator.refuse(&format!("a constant row: {}", error.strip_backtrace())),
    }
}

fn memory_scan(
    translator: &mut Translator,
    memory: &MemorySourceConfig,
    table: (ScanTable, Option<&DataSourceExec>),
) -> Option<Plan> {
    let schema = memory.original_schema();
    let columns = match memory.projection() {
        Some(columns) => columns.clone(),
        None => (0..schema.fields().len()).collect(),
    };
    let mut used = columns.clone();
    used.sort_unstable();
    used.dedup();
    let scan = table_scan(translator, table, &schema, &used)?;
    match used == columns {
        true => Some(scan),
        false => {
            let positions = columns.iter().map(|c| used.binary_search(c)).collect::<Result<Vec<_>, _>>();
            project_columns(scan, &positions.ok()?)
        }
    }
}

fn file_scan(translator: &mut Translator, config: &FileScanConfig, node: &DataSourceExec) -> Option<Plan> {
    let table = match ScanTable::of_files(config) {
        Ok(table) => table,
        Err(reason) => return translator.refuse(&format!("DataSourceExec: {reason}")),
    };
    let source = config.file_source();
    let schema = source.table_schema().table_schema();
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let projection = match source.projection() {
        Some(projection) => projection.clone(),
        None => ProjectionExprs::from_indices(&all, schema),
    };
    // Without push-down the predicate only prunes and a FilterExec above repeats it; with it the scan must filter.
    let predicate = source
        .downcast_ref::<ParquetSource>()
        .filter(|parquet| parquet.table_parquet_options().global.pushdown_filters)
        .and_then(|parquet| parquet.filter());

    let mut used = projection.column_indices();
    used.extend(predicate.iter().flat_map(collect_columns).map(|column| column.index()));
    used.sort_unstable();
    used.dedup();
    let scan = table_scan(translator, (table, Some(node)), schema, &used);
    let mut positions = vec![usize::MAX; schema.fields().len()];
    for (position, column) in used.iter().enumerate() {
        *positions.get_mut(*column)? = position;
    }
    let mut exprs = ExprTranslator {
        schema,
        positions: Some(&positions),
        reasons: &mut translator.reasons,
        scalars: &translator.scalars,
        derive: Some(Deriver {
            below: Below::Table(node),
            requests: &mut translator.requests,
            checked: translator.checked,
        }),
        operator: "DataSourceExec",
        level: 0,
    };
    let predicate = predicate.as_ref().map(|predicate| exprs.expr(predicate));
    let outputs: Vec<&Arc<dyn PhysicalExpr>> = projection.iter().map(|e| &e.expr).collect();
    let names: Vec<String> = projection.iter().map(|e| e.alias.clone()).collect();
    let outputs = exprs.outputs(outputs);

    let mut plan = scan?;
    if let Some(predicate) = predicate {
        plan = Plan::Filter { input: Box::new(plan), predicate: predicate? };
    }
    let outputs = outputs?;
    let unchanged = outputs.len() == used.len()
        && outputs.iter().enumerate().all(|(i, e)| e.kind == ExprKind::Column(i))
        && plan.fields().iter().map(|field| &field.name).eq(&names);
    Some(match unchanged {
        true => plan,
        false => Plan::Project { input: Box::new(plan), exprs: outputs, names },
    })
}

/// Some columns of a table. Those of types that Kelpie does not know are NULL: expressions over them do not compile, but may be
/// derived columns.
fn table_scan(
    translator: &mut Translator,
    (table, node): (ScanTable, Option<&DataSourceExec>),
    schema: &Schema,
    columns: &[usize],
) -> Option<Plan> {
    let known =
        |column: &usize| schema.fields().get(*column).is_some_and(|field| types::field(field).is_some());
    let present: Vec<usize> = columns.iter().copied().filter(known).collect();
    let fields = match fields_at(schema, &present) {
        Ok(fields) => fields,
        Err(reason) => return translator.refuse(&format!("DataSourceExec: {reason}")),
    };
    let (source, name) = (translator.tables.len(), table.name().to_string());
    translator.tables.push(Arc::new(table));
    translator.scans.push(node.map_or(0, |node| std::ptr::from_ref(node).addr()));
    let scan = Plan::Scan(Scan { source, table: name, columns: present.clone(), fields });
    if present.len() == columns.len() {
        return Some(scan);
    }
    let fields = scan.fields();
    let expr = |column: &usize| match present.binary_search(column) {
        Ok(place) => Expr::column(place, fields[place].data_type.clone(), fields[place].nullable),
        Err(_) => Expr::literal(Literal::Null, DataType::Boolean),
    };
    let exprs = columns.iter().map(expr).collect();
    let names = columns.iter().map(|column| schema.field(*column).name().clone()).collect();
    Some(Plan::Project { input: Box::new(scan), exprs, names })
}
