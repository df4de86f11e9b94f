//! The first rows of a wide table in some order, of which a sort keeps a few.
//!
//! `SELECT * … ORDER BY t LIMIT 10` needs all of the column that it sorts by, and of the others ten rows. Where they are not in memory,
//! the query is run for the key alone first. Its tenth value bounds the rows that can be among the first ten, and the table is narrowed to
//! these as it is read. What is narrowed so is what filters narrow (`selection`): the plan stays as it is, and sorts what is left.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::TaskContext;
use datafusion::functions::math::isnan;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, IsNullExpr, lit};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use kelpie_compile::expr::{ArithmeticOp, Expr, ExprKind};
use kelpie_compile::plan::{JoinKind, Plan, Scan, SortKey};
use kelpie_compile::types::Literal;
use kelpie_engine::{CacheMode, CancelToken, Engine, EngineError, Query, QueryMetrics};
use tokio::runtime::Handle;

use crate::derived::Derived;
use crate::selection::{MOST_SHARE, Selection, may_be_narrowed};
use crate::source::ScanTable;
use crate::translate::pruned;

/// A sort that keeps few rows of a table of many columns.
pub(crate) struct TopRows {
    table: Arc<ScanTable>,
    /// Its number in the plan.
    source: usize,
    /// The position in the table of the key that the rows are sorted by before others, and those of the columns that are read.
    column: usize,
    columns: Vec<usize>,
    descending: bool,
    nulls_first: bool,
    /// Rows that are wanted.
    fetch: usize,
    /// How many of the first values of the key are looked at, more than rows are wanted.
    more: usize,
    context: Arc<TaskContext>,
    runtime: Handle,
}

/// A query over the rows that may be among the first.
pub(crate) struct BoundedQuery {
    pub query: Query,
    /// What finding these took.
    pub metrics: QueryMetrics,
    /// What was done, for people.
    pub step: String,
}

impl TopRows {
    /// The sort that a query ends with, if it keeps few of many rows of a wide table.
    pub fn of(query: &Query, tables: &[Arc<ScanTable>], context: &Arc<TaskContext>) -> Option<TopRows> {
        let plan = &query.plan;
        let (input, keys, fetch) = last_sort(plan).filter(|_| reads_parts(query))?;
        let key = keys.first()?;
        let (source, column) = scanned(input, &key.expr)?;
        let mut scans = Vec::new();
        scans_of(plan, &mut scans);
        let mut of_source = scans.into_iter().filter(|scan| scan.source == source);
        let columns = match (of_source.next(), of_source.next()) {
            (Some(scan), None) => scan.columns.clone(),
            _ => return None,
        };
        let table = Arc::clone(tables.get(source)?);
        let rows = table.exact_rows()?;
        // As many as may be read: rows that are not wanted are among them where keys are equal.
        let more = (rows as f64 * MOST_SHARE) as usize;
        let data_type = table.stored().fields().get(column)?.data_type();
        if fetch >= more || !is_compared(data_type) || !may_be_narrowed(&table, column, &columns) {
            return None;
        }
        Some(TopRows {
            table,
            source,
            column,
            columns,
            descending: key.descending,
            nulls_first: key.nulls_first,
            fetch,
            more,
            context: Arc::clone(context),
            runtime: Handle::try_current().ok()?,
        })
    }

    /// The query over the rows that may be among the first, where its columns are not in memory, and few rows may be. An error is only
    /// that it was cancelled: whatever else goes wrong, the query itself meets too.
    pub fn bounded(
        &self,
        engine: &Engine,
        query: &Query,
        cancel: &CancelToken,
    ) -> Result<Option<BoundedQuery>, EngineError> {
        if engine.has_columns(query, self.source, &self.columns) {
            return Ok(None);
        }
        let Some((input, [key, ..], _)) = last_sort(&query.plan) else { return Ok(None) };
        let keys = Query { plan: keys_alone(input, key, self.more), ..query.clone() };
        let found = match engine.execute(&keys, cancel) {
            Ok(found) => found,
            Err(EngineError::Cancelled) => return Err(EngineError::Cancelled),
            Err(_) => return Ok(None),
        };
        let value = |row: usize| ScalarValue::try_from_array(found.batch.columns().first()?, row).ok();
        let rows = found.batch.num_rows();
        let last = self.fetch.checked_sub(1).filter(|last| *last < rows).and_then(value);
        // Where all that were looked at are equal from there on, nobody knows how many more are.
        let ends = |last: &ScalarValue| rows < self.more || Some(last) != value(rows - 1).as_ref();
        let Some(last) = last.filter(ends) else { return Ok(None) };
        let Some(condition) = self.condition(&last) else { return Ok(None) };
        let Some(table) = self.table_where(condition) else { return Ok(None) };
        let mut query = query.clone();
        if let Some(source) = query.sources.get_mut(self.source) {
            *source = Arc::new(table).bind(Arc::clone(&self.context), self.runtime.clone(), None);
        }
        let step =
            format!("rows behind the first {} in order are not read of {}", self.fetch, self.table.name());
        Ok(Some(BoundedQuery { query, metrics: found.metrics, step }))
    }

    fn table_where(&self, condition: Arc<dyn PhysicalExpr>) -> Option<ScanTable> {
        let condition = Derived::of_this_query(&condition, self.table.stored()).ok()?;
        let selection = Selection::of_key(&self.table, self.column, condition)?;
        Some(self.table.selecting(Arc::new(selection)))
    }

    /// What holds for the rows whose key is no later than a value; `None` where nothing tells.
    fn condition(&self, last: &ScalarValue) -> Option<Arc<dyn PhysicalExpr>> {
        let schema = self.table.stored();
        let field = schema.fields().get(self.column)?;
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), self.column));
        let is_null = || Arc::new(IsNullExpr::new(Arc::clone(&column))) as Arc<dyn PhysicalExpr>;
        if last.is_null() {
            return self.nulls_first.then(is_null);
        }
        let last = bound(last.cast_to(field.data_type()).ok()?, self.descending)?;
        let op = if self.descending { Operator::GtEq } else { Operator::LtEq };
        let compared = BinaryExpr::new(Arc::clone(&column), op, lit(last));
        let mut condition: Arc<dyn PhysicalExpr> = Arc::new(compared);
        // NaN is the greatest value whatever its sign is, which comparing does not know.
        if self.descending && field.data_type().is_floating() {
            condition = either(condition, is_nan(&column, schema)?);
        }
        if self.nulls_first && field.is_nullable() {
            condition = either(condition, is_null());
        }
        Some(condition)
    }
}

/// Whether a query's tables may be read in part, and nothing is counted of how they are.
fn reads_parts(query: &Query) -> bool {
    query.options.cache != CacheMode::All && !query.options.meter
}

/// A bound as it is compared with: both zeros are one value, of which comparing takes the negative one for less.
fn bound(last: ScalarValue, descending: bool) -> Option<ScalarValue> {
    let zero = if descending { -0.0 } else { 0.0 };
    Some(match last {
        ScalarValue::Float64(Some(value)) if value.is_nan() => return None,
        ScalarValue::Float32(Some(value)) if value.is_nan() => return None,
        ScalarValue::Float64(Some(0.0)) => ScalarValue::Float64(Some(zero)),
        ScalarValue::Float32(Some(0.0)) => ScalarValue::Float32(Some(zero as f32)),
        last if last.is_null() => return None,
        last => last,
    })
}

fn either(left: Arc<dyn PhysicalExpr>, right: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(left, Operator::Or, right))
}

fn is_nan(column: &Arc<dyn PhysicalExpr>, schema: &SchemaRef) -> Option<Arc<dyn PhysicalExpr>> {
    let field = Arc::new(Field::new("isnan", DataType::Boolean, true));
    let options = Arc::new(ConfigOptions::new());
    let call = ScalarFunctionExpr::new("isnan", isnan(), vec![Arc::clone(column)], field, options);
    call.data_type(schema).ok()?;
    Some(Arc::new(call))
}

/// Whether values of a type are in the order in which they are sorted.
fn is_compared(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_integer()
        || matches!(data_type, Float32 | Float64 | Decimal128(..) | Date32 | Date64 | Timestamp(..))
        || matches!(data_type, Time32(_) | Time64(_) | Utf8 | LargeUtf8 | Utf8View)
}

/// The sort at the end of a plan: its input, its keys, and how many rows it keeps.
fn last_sort(plan: &Plan) -> Option<(&Plan, &[SortKey], usize)> {
    match plan {
        Plan::Project { input, .. } | Plan::Limit { input, .. } => last_sort(input),
        Plan::Sort { input, keys, fetch: Some(fetch) } if *fetch > 0 => Some((input, keys, *fetch)),
        _ => None,
    }
}

/// Where an expression over a plan's rows is a column of a table of which each row makes rows by itself: the number of the table in the
/// plan, and the column's position in it.
fn scanned(plan: &Plan, expr: &Expr) -> Option<(usize, usize)> {
    let column = match &expr.kind {
        ExprKind::Column(column) => *column,
        // Both zeros are one value.
        ExprKind::Arithmetic(ArithmeticOp::Add, value, zero) if is_zero(zero) => return scanned(plan, value),
        _ => return None,
    };
    match plan {
        Plan::Scan(scan) => Some((scan.source, *scan.columns.get(column)?)),
        Plan::Filter { input, .. } => scanned(input, expr),
        Plan::Project { input, exprs, .. } => scanned(input, exprs.get(column)?),
        Plan::Join(join) => {
            use JoinKind::*;
            let width = join.build.fields().len();
            let at = |column: usize| Expr { kind: ExprKind::Column(column), ..expr.clone() };
            match join.kind {
                Inner if column < width => scanned(&join.build, expr),
                Inner | ProbeOuter => scanned(&join.probe, &at(column.checked_sub(width)?)),
                BuildOuter if column < width => scanned(&join.build, expr),
                BuildSemi | BuildMark => scanned(&join.build, expr),
                ProbeSemi | ProbeMark => scanned(&join.probe, expr),
                BuildAnti if !join.null_aware => scanned(&join.build, expr),
                ProbeAnti if !join.null_aware => scanned(&join.probe, expr),
                BuildOuter | FullOuter | BuildAnti | ProbeAnti => None,
            }
        }
        _ => None,
    }
}

fn is_zero(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Literal(Literal::Float(0.0)))
}

fn scans_of<'a>(plan: &'a Plan, scans: &mut Vec<&'a Scan>) {
    if let Plan::Scan(scan) = plan {
        scans.push(scan);
    }
    plan.inputs().into_iter().for_each(|input| scans_of(input, scans));
}

/// The first values of a key, in their order.
fn keys_alone(input: &Plan, key: &SortKey, fetch: usize) -> Plan {
    let sort = Plan::Sort { input: Box::new(input.clone()), keys: vec![key.clone()], fetch: Some(fetch) };
    pruned(&Plan::Project { input: Box::new(sort), exprs: vec![key.expr.clone()], names: vec!["key".into()] })
}
