//! The first rows of a wide table in some order, of which a sort keeps a few.
//!
//! `SELECT * … ORDER BY t LIMIT 10` needs all of the column that it sorts by, and of the others ten rows. Where they are not in memory,
//! the query is run for the key alone first. Its tenth value bounds the rows that can be among the first ten, and the table is narrowed to
//! these as it is read. What is narrowed so is what filters narrow (`selection`): the plan stays as it is, and sorts what is left.
//!
//! Where rows are clustered by the key, as those of a log are by their times, not even the key is read: the query is run over the row groups
//! that come first by their bounds. If these have as many rows as are wanted, they are the first of all.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::TaskContext;
use datafusion::functions::math::isnan;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, IsNullExpr, lit};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use kelpie_compile::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, children};
use kelpie_compile::plan::{Aggregate, AggregateFunction, JoinKind, Plan, Scan, SortKey};
use kelpie_compile::types::{self, Literal};
use kelpie_engine::{CacheMode, CancelToken, Engine, EngineError, Query, QueryMetrics, QueryOutput};
use tokio::runtime::Handle;

use crate::derived::Derived;
use crate::selection::{MOST_SHARE, Selection, may_be_narrowed};
use crate::source::ScanTable;
use crate::translate::pruned;
use crate::types::literal;

/// The shares of a key's range whose row groups are looked at before all others.
const FIRST_SHARES: [f64; 2] = [1.0 / 32.0, 1.0 / 8.0];

/// Rows are clustered by the key where such a share of its range has no more than this share of them, and most of these row groups have no
/// others.
const MOST_FIRST: f64 = 0.25;

/// A sort that keeps few rows of a table.
pub(crate) struct TopRows {
    table: Arc<ScanTable>,
    /// Its number in the plan.
    source: usize,
    /// The position in the table of the key that the rows are sorted by before others, and those of the columns that are read.
    column: usize,
    columns: Vec<usize>,
    /// Whether enough others are wanted beside the key, of few enough rows, to read the key before them.
    is_wide: bool,
    descending: bool,
    nulls_first: bool,
    /// Rows that are wanted.
    fetch: usize,
    /// How many of the first values of the key are looked at, more than rows are wanted.
    more: usize,
    context: Arc<TaskContext>,
    runtime: Handle,
}

/// What is known once the query was run for its key alone.
pub(crate) enum Bounded {
    /// It has no rows at all; what finding that took.
    Nothing(Box<QueryMetrics>),
    Query(Box<BoundedQuery>),
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
    /// The sort that a query ends with, if it keeps few of the rows of a table.
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
        if !is_compared(data_type) {
            return None;
        }
        let is_wide = fetch < more && may_be_narrowed(&table, column, &columns);
        Some(TopRows {
            table,
            source,
            column,
            columns,
            is_wide,
            descending: key.descending,
            nulls_first: key.nulls_first,
            fetch,
            more,
            context: Arc::clone(context),
            runtime: Handle::try_current().ok()?,
        })
    }

    /// The answer, where its columns are not in memory, and it is found among rows whose row groups come first. An error is only that it
    /// was cancelled.
    pub fn of_first_groups(
        &self,
        engine: &Engine,
        query: &Query,
        cancel: &CancelToken,
    ) -> Result<Option<QueryOutput>, EngineError> {
        if engine.has_columns(query, self.source, &self.columns) {
            return Ok(None);
        }
        for share in FIRST_SHARES {
            let Some(first) = self.first_groups(query, share) else { continue };
            let found = match engine.execute(&first, cancel) {
                Ok(found) => found,
                Err(EngineError::Cancelled) => return Err(EngineError::Cancelled),
                Err(_) => return Ok(None),
            };
            if all_rows(&query.plan).is_some_and(|all| found.batch.num_rows() == all) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The query over the rows in a share of the range of their key, if these are in few row groups.
    fn first_groups(&self, query: &Query, share: f64) -> Option<Query> {
        let range = self.table.expected().get(self.column)?.as_ref()?.range?;
        let distance = (range.max.checked_sub(range.min)? as f64 * share) as i128;
        let last = if self.descending { range.max - distance } else { range.min + distance };
        let data_type = self.table.stored().fields().get(self.column)?.data_type();
        let last = value_of(last, data_type)?;
        let table = self.table.filtered(self.condition(&last)?);
        let (kept, rows) =
            (table.kept_row_groups(&self.context)?.rows as f64, self.table.exact_rows()? as f64);
        if kept < self.fetch as f64 || kept > rows * MOST_FIRST {
            return None;
        }
        // Where rows lie anywhere, these row groups have some that come later too.
        let mixed = table.filtered(self.later_than(&last)?);
        if mixed.kept_row_groups(&self.context)?.rows as f64 * 2.0 > kept {
            return None;
        }
        let plan = self.with_last(&query.plan, &last)?;
        let mut query = Query { plan, ..query.clone() };
        *query.sources.get_mut(self.source)? =
            Arc::new(table).bind(Arc::clone(&self.context), self.runtime.clone(), None);
        Some(query)
    }

    /// What holds for the rows whose key is later than a value.
    fn later_than(&self, last: &ScalarValue) -> Option<Arc<dyn PhysicalExpr>> {
        let field = self.table.stored().fields().get(self.column)?;
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), self.column));
        let op = if self.descending { Operator::Lt } else { Operator::Gt };
        Some(Arc::new(BinaryExpr::new(column, op, lit(last.clone()))))
    }

    /// A plan without the rows of the table whose key is later than a value.
    fn with_last(&self, plan: &Plan, last: &ScalarValue) -> Option<Plan> {
        let Plan::Scan(scan) = plan else {
            let with_last = &mut |input: &Plan| self.with_last(input, last).ok_or(());
            return plan.map_inputs(with_last).ok();
        };
        if scan.source != self.source {
            return Some(plan.clone());
        }
        let place = scan.columns.iter().position(|column| *column == self.column)?;
        let field = scan.fields.get(place)?;
        let column = Box::new(Expr::column(place, field.data_type.clone(), field.nullable));
        let boolean = |kind, nullable| Expr { kind, data_type: types::DataType::Boolean, nullable };
        let op = if self.descending { CompareOp::Ge } else { CompareOp::Le };
        let last = Box::new(Expr::literal(literal(last)?, field.data_type.clone()));
        let mut predicate = boolean(ExprKind::Compare(op, column.clone(), last), field.nullable);
        if self.nulls_first && field.nullable {
            let is_null = boolean(ExprKind::IsNull(column), false);
            predicate = boolean(ExprKind::Or(Box::new(predicate), Box::new(is_null)), true);
        }
        Some(Plan::Filter { input: Box::new(plan.clone()), predicate })
    }

    /// The query over the rows that may be among the first, where its columns are not in memory, and few rows may be. An error is only
    /// that it was cancelled: whatever else goes wrong, the query itself meets too.
    pub fn bounded(
        &self,
        engine: &Engine,
        query: &Query,
        cancel: &CancelToken,
    ) -> Result<Option<Bounded>, EngineError> {
        if !self.is_wide || engine.has_columns(query, self.source, &self.columns) {
            return Ok(None);
        }
        let Some((input, [key, ..], _)) = last_sort(&query.plan) else { return Ok(None) };
        let keys = Query { plan: keys_alone(input, key, self.more), ..query.clone() };
        let found = match engine.execute(&keys, cancel) {
            Ok(found) => found,
            Err(EngineError::Cancelled) => return Err(EngineError::Cancelled),
            Err(_) => return Ok(None),
        };
        if found.batch.num_rows() == 0 {
            return Ok(Some(Bounded::Nothing(Box::new(found.metrics))));
        }
        let Some(last) = self.last_of(&found.batch) else { return Ok(None) };
        if !self.are_few(engine, (query, input), &last, cancel)? {
            return Ok(None);
        }
        let condition = self.condition(&last);
        let Some(condition) = condition else { return Ok(None) };
        let Some(table) = self.table_where(condition) else { return Ok(None) };
        let mut query = query.clone();
        if let Some(source) = query.sources.get_mut(self.source) {
            *source = Arc::new(table).bind(Arc::clone(&self.context), self.runtime.clone(), None);
        }
        let step =
            format!("rows behind the first {} in order are not read of {}", self.fetch, self.table.name());
        let bounded = BoundedQuery { query, metrics: found.metrics, step };
        Ok(Some(Bounded::Query(Box::new(bounded))))
    }

    /// The last of the values that rows have which are among the first, if it bounds them.
    fn last_of(&self, keys: &RecordBatch) -> Option<ScalarValue> {
        let value = |row: usize| ScalarValue::try_from_array(keys.columns().first()?, row).ok();
        let rows = keys.num_rows();
        let last = value(self.fetch.min(rows).checked_sub(1)?)?;
        // Where all that were looked at are equal from there on, nobody knows how many more are.
        let ends = rows < self.more || Some(&last) != value(rows - 1).as_ref();
        ends.then_some(last)
    }

    /// Whether few rows of the table have a key up to a value: more than those that the query has found, where something between leaves rows
    /// out.
    fn are_few(
        &self,
        engine: &Engine,
        (query, input): (&Query, &Plan),
        last: &ScalarValue,
        cancel: &CancelToken,
    ) -> Result<bool, EngineError> {
        if last.is_null() || matches!(input, Plan::Scan(_)) {
            return Ok(true);
        }
        let mut scans = Vec::new();
        scans_of(input, &mut scans);
        let scan = scans.into_iter().find(|scan| scan.source == self.source);
        let Some(mut rows) = scan.and_then(|scan| self.with_last(&Plan::Scan(scan.clone()), last)) else {
            return Ok(false);
        };
        for predicate in simple_filters(input, self.source) {
            rows = Plan::Filter { input: Box::new(rows), predicate };
        }
        let field = types::Field { name: "rows".into(), data_type: types::DataType::Int64, nullable: false };
        let count = Aggregate { function: AggregateFunction::Count, argument: None, distinct: false, field };
        let count = Plan::Aggregate {
            input: Box::new(rows),
            keys: Vec::new(),
            aggregates: vec![count],
            names: Vec::new(),
        };
        let count = Query { plan: pruned(&count), ..query.clone() };
        match engine.execute(&count, cancel) {
            Ok(found) => {
                let rows =
                    found.batch.columns().first().and_then(|rows| rows.as_primitive_opt::<Int64Type>());
                let rows = rows.and_then(|rows| rows.values().first().copied());
                Ok(rows.is_some_and(|rows| rows <= self.more as i64))
            }
            Err(EngineError::Cancelled) => Err(EngineError::Cancelled),
            Err(_) => Ok(false),
        }
    }

    fn table_where(&self, condition: Arc<dyn PhysicalExpr>) -> Option<ScanTable> {
        let condition = Derived::of_this_query(&condition, self.table.stored()).ok()?;
        let selection = Selection::of_key(&self.table, self.column, condition)?;
        Some(self.table.selecting(Some(Arc::new(selection))))
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

/// What filters right above the scan of a table compare with constants, by which it is narrowed too ([`Selection::of_key`]).
fn simple_filters(plan: &Plan, source: usize) -> Vec<Expr> {
    let mut found = Vec::new();
    let mut below = plan;
    while let Plan::Filter { input, predicate } = below {
        let mut conjuncts = vec![predicate];
        while let Some(conjunct) = conjuncts.pop() {
            match &conjunct.kind {
                ExprKind::And(left, right) => conjuncts.extend([left.as_ref(), right.as_ref()]),
                _ if is_simple(conjunct) => found.push(conjunct.clone()),
                _ => {}
            }
        }
        below = input;
    }
    match below {
        Plan::Scan(scan) if scan.source == source => found,
        Plan::Scan(_) => Vec::new(),
        _ => plan.inputs().into_iter().flat_map(|input| simple_filters(input, source)).collect(),
    }
}

fn is_simple(expr: &Expr) -> bool {
    use ExprKind::*;
    let is_one = matches!(
        expr.kind,
        Column(_)
            | Literal(_)
            | Compare(..)
            | And(..)
            | Or(..)
            | Not(_)
            | IsNull(_)
            | IsNotNull(_)
            | InList { .. }
            | Like { .. }
    );
    is_one && children(expr).into_iter().all(is_simple)
}

/// How many rows a plan has if the sort at its end keeps as many as it may.
fn all_rows(plan: &Plan) -> Option<usize> {
    match plan {
        Plan::Project { input, .. } => all_rows(input),
        Plan::Limit { input, skip, fetch } => {
            let rows = all_rows(input)?.saturating_sub(*skip);
            Some(fetch.map_or(rows, |fetch| rows.min(fetch)))
        }
        Plan::Sort { fetch, .. } => *fetch,
        _ => None,
    }
}

/// A value of a type that is an integer inside.
pub(crate) fn value_of(integer: i128, data_type: &DataType) -> Option<ScalarValue> {
    match data_type {
        DataType::Decimal128(precision, scale) => {
            Some(ScalarValue::Decimal128(Some(integer), *precision, *scale))
        }
        DataType::Date32 => Some(ScalarValue::Date32(Some(i32::try_from(integer).ok()?))),
        data_type if data_type.is_integer() || matches!(data_type, DataType::Timestamp(..)) => {
            ScalarValue::Int64(Some(i64::try_from(integer).ok()?)).cast_to(data_type).ok()
        }
        _ => None,
    }
}

/// Whether a query's tables may be read in part, and nothing is counted of how they are.
pub(crate) fn reads_parts(query: &Query) -> bool {
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

pub(crate) fn scans_of<'a>(plan: &'a Plan, scans: &mut Vec<&'a Scan>) {
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
