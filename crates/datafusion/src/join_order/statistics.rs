//! Estimated rows and columns of DataFusion's plans, from the statistics of their files.
//!
//! Parquet has rows, minima and maxima, but no distinct counts. An integer column has at most as many distinct values
//! as its range is long, and as there are rows. Where the range is much shorter than the rows are many, that is the
//! count; otherwise it is only a bound, and `dense` is false.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, JoinType, ScalarValue};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};

use super::dictionary::distinct_texts;
use super::selectivity;
use crate::exec::KelpieExec;
use crate::node::unnests;
use crate::received::ReceivedExec;
use crate::series::SeriesExec;

type Node = Arc<dyn ExecutionPlan>;

/// What is estimated of a plan's result.
#[derive(Debug, Clone)]
pub(crate) struct Estimate {
    /// Rows.
    pub rows: f64,
    /// Rows of the table before filters.
    pub base_rows: f64,
    /// Its columns.
    pub columns: Vec<ColumnEstimate>,
}

/// What is estimated of a column. Values are numbers: of dates the days, of decimals the value.
#[derive(Debug, Clone, Default)]
pub(crate) struct ColumnEstimate {
    /// Distinct values; unknown where absent.
    pub distinct: Option<f64>,
    /// Distinct values before filters.
    pub domain: Option<f64>,
    /// Whether `domain` is a count rather than a bound.
    pub dense: bool,
    /// Smallest and largest value.
    pub range: Option<(f64, f64)>,
    /// Distance of neighbouring values; 0 where values are continuous.
    pub step: f64,
    /// Share of NULLs.
    pub nulls: f64,
}

impl ColumnEstimate {
    /// Distinct values among some rows; all of them where nothing is known.
    pub fn distinct_of(&self, rows: f64) -> f64 {
        self.distinct.unwrap_or(rows).min(rows).max(1.0)
    }
}

impl Estimate {
    /// Some rows of which no column is known.
    pub fn unknown(rows: f64, columns: usize) -> Estimate {
        Estimate { rows, base_rows: rows, columns: vec![ColumnEstimate::default(); columns] }
    }

    /// A share of the rows, drawn at random: of `d` values with `n` rows each, `d · (1 - (1 - share)^n)` stay (Cardenas).
    pub fn thinned(mut self, share: f64) -> Estimate {
        let share = share.clamp(0.0, 1.0);
        for column in &mut self.columns {
            if let Some(distinct) = &mut column.distinct {
                let each = self.rows / distinct.max(1.0);
                *distinct = (*distinct * (1.0 - (1.0 - share).powf(each))).max(1.0);
            }
        }
        self.rows = (self.rows * share).max(1.0);
        self
    }

    /// No more than some rows, drawn at random.
    pub fn at_most(mut self, rows: f64) -> Estimate {
        if rows < self.rows {
            let share = rows / self.rows;
            self = self.thinned(share);
        }
        self
    }

    fn columns_at(self, columns: &[usize]) -> Estimate {
        let columns = columns.iter().map(|i| self.columns.get(*i).cloned().unwrap_or_default()).collect();
        Estimate { columns, ..self }
    }

    /// What is known of an expression: of a column, also below a cast.
    pub fn of_expr(&self, expr: &Arc<dyn PhysicalExpr>) -> ColumnEstimate {
        column_of(expr).and_then(|i| self.columns.get(i)).cloned().unwrap_or_default()
    }
}

/// The column that an expression is, also below a cast that keeps its values.
pub(crate) fn column_of(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    match expr.downcast_ref::<CastExpr>() {
        Some(cast) if cast.cast_type().is_numeric() || cast.cast_type().is_string() => column_of(cast.expr()),
        Some(_) => None,
        None => expr.downcast_ref::<Column>().map(Column::index),
    }
}

/// Estimates plans.
#[derive(Default, Clone)]
pub(crate) struct Estimator {
    /// Footers of Parquet files.
    pub footers: Option<Arc<FileMetadataCache>>,
}

/// Estimates a plan; `None` where not even the rows of its tables are known.
pub(crate) fn estimate(node: &Node, estimator: &Estimator) -> Option<Estimate> {
    let width = node.schema().fields().len();
    if let Some(compiled) = node.downcast_ref::<KelpieExec>() {
        return estimate(compiled.original(), estimator);
    }
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        return of_scan(node, scan, estimator);
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let estimate = selectivity::filtered(estimate(filter.input(), estimator)?, filter.predicate());
        return Some(match filter.projection() {
            Some(columns) => estimate.columns_at(columns.as_ref()),
            None => estimate,
        });
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let input = estimate(projection.input(), estimator)?;
        let columns = projection.expr().iter().map(|e| input.of_expr(&e.expr)).collect();
        return Some(Estimate { columns, ..input });
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return of_aggregate(aggregate, width, estimator);
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let pair = (estimate(join.left(), estimator)?, estimate(join.right(), estimator)?);
        let joined = of_join(pair.0, pair.1, join.on(), join.filter().is_some(), *join.join_type());
        return Some(match &join.projection {
            Some(columns) => joined.columns_at(columns),
            None => joined,
        });
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let pair = (estimate(join.left(), estimator)?, estimate(join.right(), estimator)?);
        let joined = of_join(pair.0, pair.1, &[], join.filter().is_some(), *join.join_type());
        return Some(match join.projection() {
            Some(columns) => joined.columns_at(columns),
            None => joined,
        });
    }
    if let Some(join) = node.downcast_ref::<CrossJoinExec>() {
        return Some(of_join(
            estimate(join.left(), estimator)?,
            estimate(join.right(), estimator)?,
            &[],
            false,
            JoinType::Inner,
        ));
    }
    if node.is::<UnionExec>() || node.is::<InterleaveExec>() {
        let inputs = node
            .children()
            .into_iter()
            .map(|input| estimate(input, estimator))
            .collect::<Option<Vec<_>>>()?;
        return Some(Estimate::unknown(inputs.iter().map(|input| input.rows).sum(), width));
    }
    if node.is::<EmptyExec>() || node.is::<PlaceholderRowExec>() {
        return Some(Estimate::unknown(1.0, width));
    }
    if node.is::<SeriesExec>() {
        return of_series(node);
    }
    if let Some(received) = node.downcast_ref::<ReceivedExec>().filter(|received| received.is_constant()) {
        // How long lists are that become rows, nothing tells.
        let input = Some(received.received().input()).filter(|input| !unnests(input));
        return input.and_then(|input| estimate(input, estimator));
    }
    of_other(node, width, estimator)
}

fn of_series(node: &Node) -> Option<Estimate> {
    let statistics = StatisticsContext::new().compute(node.as_ref(), &StatisticsArgs::new()).ok()?;
    let rows = (*statistics.num_rows.get_value()? as f64).max(1.0);
    let schema = node.schema();
    let columns = statistics.column_statistics.iter().zip(schema.fields());
    let columns = columns.map(|(known, field)| of_column(known, field.data_type(), rows)).collect();
    Some(Estimate { rows, base_rows: rows, columns })
}

/// Nodes that hand on their input's rows, or of which only that is assumed.
fn of_other(node: &Node, width: usize, estimator: &Estimator) -> Option<Estimate> {
    let children = node.children();
    let input = match children.as_slice() {
        [input] => estimate(input, estimator)?,
        [input, ..] if node.is::<ScalarSubqueryExec>() => estimate(input, estimator)?,
        _ => return None,
    };
    let limit = node
        .downcast_ref::<GlobalLimitExec>()
        .map(|limit| limit.fetch())
        .or_else(|| node.downcast_ref::<LocalLimitExec>().map(|limit| Some(limit.fetch())))
        .unwrap_or_else(|| node.fetch());
    let input = match limit {
        Some(rows) => input.at_most(rows as f64),
        None => input,
    };
    Some(match input.columns.len() == width {
        true => input,
        false => Estimate::unknown(input.rows, width),
    })
}

fn of_scan(node: &Node, scan: &DataSourceExec, estimator: &Estimator) -> Option<Estimate> {
    let statistics = StatisticsContext::new().compute(node.as_ref(), &StatisticsArgs::new()).ok()?;
    let schema = node.schema();
    let Some(rows) = statistics.num_rows.get_value() else {
        // Text files have no statistics: a hundred bytes a row.
        let config = scan.data_source().downcast_ref::<FileScanConfig>()?;
        let bytes: u64 =
            config.file_groups.iter().flat_map(FileGroup::iter).map(|file| file.effective_size()).sum();
        return Some(Estimate::unknown((bytes as f64 / 100.0).max(1.0), schema.fields().len()));
    };
    let rows = (*rows as f64).max(1.0);
    let files = scan.data_source().downcast_ref::<FileScanConfig>().zip(estimator.footers.as_deref());
    let columns = schema.fields().iter().enumerate().map(|(i, field)| {
        let known = statistics.column_statistics.get(i);
        let mut column = known.map(|known| of_column(known, field.data_type(), rows)).unwrap_or_default();
        if column.distinct.is_none() && field.data_type().is_string() {
            let texts = files.and_then(|(config, footers)| distinct_texts(config, footers, field.name()));
            column.distinct = texts.map(|texts| texts.clamp(1.0, rows));
            column.domain = column.distinct;
        }
        column
    });
    Some(Estimate { rows, base_rows: rows, columns: columns.collect() })
}

/// Tables of at most so many rows are lists of names, in which no text stands twice.
const SMALL_TABLE_ROWS: f64 = 100.0;

fn of_column(known: &ColumnStatistics, data_type: &DataType, rows: f64) -> ColumnEstimate {
    let value = |p: &Precision<ScalarValue>| p.get_value().and_then(number);
    let range = value(&known.min_value).zip(value(&known.max_value)).filter(|(min, max)| min <= max);
    let step = step(data_type);
    let values = match (known.distinct_count.get_value(), range) {
        (Some(distinct), _) => Some(*distinct as f64),
        (None, Some((min, max))) if step > 0.0 => Some((max - min) / step + 1.0),
        (None, _) if rows <= SMALL_TABLE_ROWS => Some(rows),
        _ => None,
    };
    let domain = values.map(|values| values.min(rows));
    let dense = values.is_some_and(|values| 2.0 * values <= rows);
    let nulls = known.null_count.get_value().map_or(0.0, |nulls| (*nulls as f64 / rows).min(1.0));
    ColumnEstimate { distinct: domain, domain, dense, range, step, nulls }
}

/// The distance of neighbouring values of a type; 0 where there is none.
fn step(data_type: &DataType) -> f64 {
    match data_type {
        DataType::Decimal128(_, scale) => 10f64.powi(-i32::from(*scale)),
        t if t.is_integer()
            || matches!(t, DataType::Date32 | DataType::Timestamp(..) | DataType::Boolean) =>
        {
            1.0
        }
        _ => 0.0,
    }
}

/// A constant as a number.
pub(crate) fn number(value: &ScalarValue) -> Option<f64> {
    Some(match value {
        ScalarValue::Boolean(Some(v)) => f64::from(u8::from(*v)),
        ScalarValue::Int8(Some(v)) => f64::from(*v),
        ScalarValue::Int16(Some(v)) => f64::from(*v),
        ScalarValue::Int32(Some(v)) | ScalarValue::Date32(Some(v)) => f64::from(*v),
        ScalarValue::Int64(Some(v))
        | ScalarValue::TimestampSecond(Some(v), _)
        | ScalarValue::TimestampMillisecond(Some(v), _)
        | ScalarValue::TimestampMicrosecond(Some(v), _)
        | ScalarValue::TimestampNanosecond(Some(v), _) => *v as f64,
        ScalarValue::UInt8(Some(v)) => f64::from(*v),
        ScalarValue::UInt16(Some(v)) => f64::from(*v),
        ScalarValue::UInt32(Some(v)) => f64::from(*v),
        ScalarValue::UInt64(Some(v)) => *v as f64,
        ScalarValue::Float32(Some(v)) if v.is_finite() => f64::from(*v),
        ScalarValue::Float64(Some(v)) if v.is_finite() => *v,
        ScalarValue::Decimal128(Some(v), _, scale) => *v as f64 * 10f64.powi(-i32::from(*scale)),
        _ => return None,
    })
}

fn of_aggregate(aggregate: &AggregateExec, width: usize, estimator: &Estimator) -> Option<Estimate> {
    let input = estimate(aggregate.input(), estimator)?;
    let keys = aggregate.group_expr().expr();
    if keys.is_empty() {
        return Some(Estimate::unknown(1.0, width));
    }
    let mut columns: Vec<ColumnEstimate> = keys.iter().map(|(key, _)| input.of_expr(key)).collect();
    let groups: f64 = columns.iter().map(|column| column.distinct_of(input.rows)).product();
    columns.resize(width, ColumnEstimate::default());
    let rows = groups.min(input.rows);
    Some(Estimate { rows, base_rows: rows, columns })
}

/// Share of the rows that a condition beside the keys is taken to keep.
pub(crate) const RESIDUAL: f64 = 0.5;

fn of_join(
    left: Estimate,
    right: Estimate,
    on: &[(PhysicalExprRef, PhysicalExprRef)],
    filter: bool,
    join_type: JoinType,
) -> Estimate {
    let residual = if filter { RESIDUAL } else { 1.0 };
    let pairs: Vec<(ColumnEstimate, ColumnEstimate)> =
        on.iter().map(|(l, r)| (left.of_expr(l), right.of_expr(r))).collect();
    let product = |side: &Estimate, columns: &mut dyn Iterator<Item = &ColumnEstimate>| -> f64 {
        columns.map(|column| column.distinct_of(side.rows)).product::<f64>().min(side.rows)
    };
    let values_left = product(&left, &mut pairs.iter().map(|(l, _)| l));
    let values_right = product(&right, &mut pairs.iter().map(|(_, r)| r));
    let inner = left.rows * right.rows * residual / values_left.max(values_right);
    let keeps_left = (values_right / values_left).min(1.0) * residual;
    let keeps_right = (values_left / values_right).min(1.0) * residual;
    let drops = |keeps: f64| (1.0 - keeps).max(SMALLEST_ANTI);
    let both = |left: &Estimate, right: &Estimate, rows: f64| {
        let columns = left.columns.iter().chain(&right.columns).cloned().collect();
        Estimate { rows: rows.max(1.0), base_rows: rows.max(1.0), columns }
    };
    // Rows without a match have NULLs for the other side.
    let missing = |side: &Estimate, (kept, keeps): (&Estimate, f64), rows: f64| {
        let share = (kept.rows * drops(keeps) / rows.max(1.0)).min(1.0);
        let mut side = side.clone();
        side.columns.iter_mut().for_each(|column| column.nulls += (1.0 - column.nulls) * share);
        side
    };
    let marked = |side: &Estimate| {
        let mut side = side.clone();
        side.columns.push(ColumnEstimate::default());
        side
    };
    match join_type {
        JoinType::Inner => both(&left, &right, inner),
        JoinType::Left => {
            let rows = inner.max(left.rows);
            both(&left, &missing(&right, (&left, keeps_left), rows), rows)
        }
        JoinType::Right => {
            let rows = inner.max(right.rows);
            both(&missing(&left, (&right, keeps_right), rows), &right, rows)
        }
        JoinType::Full => {
            let rows = inner.max(left.rows).max(right.rows);
            let of_right = missing(&right, (&left, keeps_left), rows);
            both(&missing(&left, (&right, keeps_right), rows), &of_right, rows)
        }
        JoinType::LeftSemi => left.thinned(keeps_left),
        JoinType::LeftAnti => left.thinned(drops(keeps_left)),
        JoinType::RightSemi => right.thinned(keeps_right),
        JoinType::RightAnti => right.thinned(drops(keeps_right)),
        JoinType::LeftMark => marked(&left),
        JoinType::RightMark => marked(&right),
    }
}

/// An anti join is taken to keep at least this share: estimates of matches are not that exact.
pub(crate) const SMALLEST_ANTI: f64 = 0.1;
