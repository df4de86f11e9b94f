//! What is left to DataFusion though it compiles, as Kelpie would only add work:
//!
//! - a query over tables of few rows: generating code takes longer than the query;
//! - a limit without a sort over a scan: DataFusion stops reading after the first rows;
//! - expressions over all rows of a large table that nothing filters, groups, joins or sorts: DataFusion hands each batch from
//!   its reader to the result, while Kelpie would store all of them first;
//! - an aggregation with so many aggregates over so few rows that compilers take longer for its kernel than its rows would: their time grows
//!   with the square of their number;
//! - every pair of two large inputs (cross joins, joins by neither an equality nor an inequality): Kelpie's kernels emit pair by pair
//!   what DataFusion copies by the batch. A GPU has enough lanes for many more of them.
//!
//! Nothing is left where `kelpie.fallback` is `deny`.

use std::sync::Arc;

use datafusion::common::JoinSide;
use datafusion::common::stats::Precision;
use datafusion::datasource::physical_plan::{FileScanConfig, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_expr::utils::{collect_columns, split_conjunction};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use kelpie_engine::{DeviceChoice, DeviceKind, Engine};

use crate::corrections::exact::{Exact, ExactOp};
use crate::join_order::estimated_rows;
use crate::node::Node;
use crate::node::{name_of, pass_through};
use crate::options::{Fallback, KelpieOptions};
use crate::translate::{Reasons, Refused};

/// Below so many rows of a scan Kelpie filters all of them in the time that DataFusion takes to begin.
const EARLY_ROWS: f64 = 100_000.0;

/// A limit is worth stopping for where at most this share of the rows is asked for.
const EARLY_SHARE: f64 = 0.1;

/// Pairs that are joined without an equality: on processors, and on a GPU.
const PAIRS: (f64, f64) = (1e6, 1e9);

/// With more pairs a query takes minutes wherever it runs, and Kelpie's kernels can be interrupted: DataFusion's nested loops
/// go on until they find a pair.
const ENDLESS_PAIRS: f64 = 1e11;

/// With at most so many rows on a side, pairs are no more work than rows.
const FEW_ROWS: f64 = 2.0;

/// Why a query as a whole is left: its tables have few rows, and exactly known.
pub(super) fn whole(plan: &Node, options: &KelpieOptions) -> Option<String> {
    let least = options.least_rows();
    if least == 0 {
        return None;
    }
    let rows = table_rows(plan)?;
    (rows < least)
        .then(|| format!("left to DataFusion: its tables have {rows} rows, and kelpie.min_rows is {least}"))
}

/// A part of a plan takes so many times the rows of a whole one: it hands its rows on through one more stream, and what it
/// saves is only a part of the query's time.
const PART: usize = 10;

/// Whether a part of a plan is left, as its tables have few rows.
pub(super) fn small_part(part: &Node, options: &KelpieOptions) -> bool {
    let least = options.least_rows().saturating_mul(PART);
    least > 0 && table_rows(part).is_some_and(|rows| rows < least)
}

/// Rows of all tables of a plan, where each knows them.
fn table_rows(node: &Node) -> Option<usize> {
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        let statistics = StatisticsContext::new().compute(node.as_ref(), &StatisticsArgs::new()).ok()?;
        let files = scan.data_source().downcast_ref::<FileScanConfig>();
        let filters = files.is_some_and(|config| config.file_source().filter().is_some());
        return match statistics.num_rows {
            Precision::Exact(rows) => Some(rows),
            // The table's rows, called inexact as the scan may filter them.
            Precision::Inexact(rows) if filters => Some(rows),
            Precision::Inexact(_) | Precision::Absent => None,
        };
    }
    let children = node.children();
    if children.is_empty() && !super::is_trivial(node) {
        return None;
    }
    children.into_iter().try_fold(0usize, |sum, child| Some(sum.saturating_add(table_rows(child)?)))
}

/// So many aggregates are compiled whatever the rows are: in some ten milliseconds.
const MANY_AGGREGATES: usize = 32;

/// On a GPU no more than so many are: its compilers take minutes for them.
const MOST_AGGREGATES: usize = 512;

/// Rows for each pair of aggregates of which compiling takes as long as a kernel saves in few runs: 64 aggregates take 35 milliseconds to
/// compile, 250 a third of a second, 1,000 ten, and a core's kernel saves about a nanosecond for a row and an aggregate.
const ROWS_OF_PAIRS: f64 = 10.0;

/// The input of an aggregation, or of the one below it whose groups it puts together.
fn aggregated(aggregation: &Node) -> &Node {
    let mut node = aggregation;
    loop {
        let [input] = node.children()[..] else { return node };
        let mut below = input;
        while let Some(next) = pass_through(below) {
            below = next;
        }
        if !below.is::<AggregateExec>() {
            return input;
        }
        node = below;
    }
}

/// Why an aggregation is left, if it has too many aggregates for its rows.
fn many_aggregates(node: &Node, has_gpu: impl FnOnce() -> bool) -> Option<String> {
    let aggregates = node.downcast_ref::<AggregateExec>()?.aggr_expr().len();
    if aggregates <= MANY_AGGREGATES {
        return None;
    }
    let input = aggregated(node);
    let is_worth_it =
        estimated_rows(input).is_some_and(|rows| rows > (aggregates as f64).powi(2) * ROWS_OF_PAIRS);
    // Whoever asks for the GPU opens it, which takes a while.
    let is_too_many = aggregates > MOST_AGGREGATES && has_gpu();
    (is_too_many || !is_worth_it)
        .then(|| format!("compiling a kernel of {aggregates} aggregates takes longer than its rows"))
}

/// What is left of a plan: nodes that must not be part of a compiled one, with the reasons.
pub(super) fn parts(plan: &Node, engine: &Engine, options: &KelpieOptions) -> (Refused, Vec<String>) {
    let mut parts = Parts { engine, options, refused: Refused::default(), reasons: Reasons::default() };
    if options.fallback != Fallback::Deny {
        parts.visit(plan, Above { root: true, all_rows: true, ..Above::default() });
    }
    (parts.refused, parts.reasons.into_vec())
}

/// What stands above a node.
#[derive(Clone, Copy, Default)]
struct Above {
    /// Nothing but projections and limits.
    root: bool,
    /// Nothing that takes a row away, adds one, or waits for all of them.
    all_rows: bool,
    /// A limit that stops what is here after its first rows.
    limit: bool,
    /// A join below such a limit.
    join: bool,
    /// A join of so many pairs that only kernels end when they are cancelled.
    endless: bool,
}

/// Whether a node joins so many pairs of rows that DataFusion's nested loops do not end, not even when they are cancelled.
pub(crate) fn has_endless_pairs(node: &Node) -> bool {
    let rows = || node.children().into_iter().map(estimated_rows).product::<Option<f64>>();
    joins_pairs(node) && rows().is_some_and(|pairs| pairs > ENDLESS_PAIRS)
}

fn joins_pairs(node: &Node) -> bool {
    node.is::<CrossJoinExec>() || node.is::<NestedLoopJoinExec>()
}

struct Parts<'a> {
    engine: &'a Engine,
    options: &'a KelpieOptions,
    refused: Refused,
    reasons: Reasons,
}

impl Parts<'_> {
    /// Whether a node or one below it is left.
    fn visit(&mut self, node: &Node, above: Above) -> bool {
        let reason = self.reason(node, above);
        let mut left = reason.is_some();
        if let Some(reason) = reason {
            self.reasons.push(format!("left to DataFusion: {}: {reason}", name_of(node)));
        }
        let children = node.children();
        for (index, child) in children.into_iter().enumerate() {
            left |= self.visit(child, below(node, index, above));
        }
        if left {
            self.refused.insert(node);
        }
        left
    }

    fn reason(&self, node: &Node, above: Above) -> Option<String> {
        if above.limit && (above.root || above.join) && node.is::<DataSourceExec>() {
            let rows = estimated_rows(node);
            return rows
                .is_none_or(|rows| rows > EARLY_ROWS)
                .then(|| "a limit without a sort stops reading after the first rows".into());
        }
        if above.all_rows && scans_all(node) && estimated_rows(node).is_none_or(|rows| rows > EARLY_ROWS) {
            return Some("every row is a part of the result".into());
        }
        if let Some(reason) = many_aggregates(node, || self.has_gpu()) {
            return Some(reason);
        }
        let [left, right] = node.children()[..] else { return None };
        // Under a limit DataFusion stops at the first pairs, where kernels go through all matches of an inequality.
        let stops = above.limit || stops_early(node);
        let filter = node.downcast_ref::<NestedLoopJoinExec>().and_then(|join| join.filter());
        if !joins_pairs(node) || !stops && filter.is_some_and(has_range) {
            return None;
        }
        match (estimated_rows(left), estimated_rows(right)) {
            (Some(left), Some(right)) if left.min(right) <= FEW_ROWS => None,
            (Some(left), Some(right)) if left * right <= PAIRS.0 || left * right > ENDLESS_PAIRS => None,
            // What comes of it are the pairs of a larger one.
            (Some(_), Some(_)) if above.endless => None,
            (Some(left), Some(right)) if left * right <= PAIRS.1 && self.has_gpu() => None,
            (Some(left), Some(right)) => {
                Some(format!("{left:.0} times {right:.0} pairs of rows without an equality"))
            }
            _ => Some("pairs of rows without an equality, and how many is not known".into()),
        }
    }

    fn has_gpu(&self) -> bool {
        let usable =
            |(kind, device): &(DeviceKind, Result<_, _>)| *kind == DeviceKind::Cuda && device.is_ok();
        match self.options.query.device {
            DeviceChoice::Auto | DeviceChoice::Cuda => self.engine.devices().iter().any(usable),
            DeviceChoice::Cpu | DeviceChoice::Simt => false,
        }
    }
}

/// The operands of a difference of integers that fails where their type does not hold it.
fn exact_difference(expr: &Arc<dyn PhysicalExpr>) -> Option<&[Arc<dyn PhysicalExpr>; 2]> {
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    let exact = call.fun().inner().as_ref().downcast_ref::<Exact>()?;
    (exact.op() == ExactOp::Subtract).then(|| call.args().try_into().ok()).flatten()
}

/// Whether a join's condition has an inequality between its sides: then not all pairs are tried, but the rows of a range are searched for.
fn has_range(filter: &JoinFilter) -> bool {
    let side = |expr: &Arc<dyn PhysicalExpr>| -> Option<JoinSide> {
        let columns = collect_columns(expr);
        let mut sides = columns.iter().map(|column| Some(filter.column_indices().get(column.index())?.side));
        let first = sides.next()??;
        sides.all(|side| side == Some(first)).then_some(first)
    };
    // As `a - b < 5` and `abs(a - b) < 5` are.
    let is_distance = |expr: &Arc<dyn PhysicalExpr>| {
        let inner = expr.downcast_ref::<ScalarFunctionExpr>().filter(|function| function.name() == "abs");
        let inner = inner.and_then(|function| function.args().first()).unwrap_or(expr);
        let is_between =
            |left, right| matches!((side(left), side(right)), (Some(left), Some(right)) if left != right);
        match (inner.downcast_ref::<BinaryExpr>(), exact_difference(inner)) {
            (Some(difference), _) if *difference.op() == Operator::Minus => {
                is_between(difference.left(), difference.right())
            }
            (_, Some([left, right])) => is_between(left, right),
            _ => false,
        }
    };
    let is_range = |condition: &Arc<dyn PhysicalExpr>| {
        condition.downcast_ref::<BinaryExpr>().is_some_and(|compared| {
            let is_ordering =
                matches!(compared.op(), Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq);
            let sides = (side(compared.left()), side(compared.right()));
            is_ordering
                && (matches!(sides, (Some(left), Some(right)) if left != right)
                    || is_distance(compared.left())
                    || is_distance(compared.right()))
        })
    };
    split_conjunction(filter.expression()).into_iter().any(is_range)
}

/// Whether a node is a scan that filters nothing itself.
fn scans_all(node: &Node) -> bool {
    let scan = node.downcast_ref::<DataSourceExec>();
    let filters = |config: &FileScanConfig| {
        let parquet = config.file_source().downcast_ref::<ParquetSource>();
        // Without push-down the predicate only prunes, and a filter above repeats it.
        parquet.is_some_and(|parquet| parquet.table_parquet_options().global.pushdown_filters)
            && config.file_source().filter().is_some()
    };
    scan.is_some_and(|scan| !scan.data_source().downcast_ref::<FileScanConfig>().is_some_and(filters))
}

/// What stands above a node's input.
fn below(node: &Node, index: usize, above: Above) -> Above {
    let limit = above.limit || stops_early(node);
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        // DISTINCT below a limit: it stops at so many groups.
        let stops = aggregate.limit_options().is_some_and(|limit| limit.descending().is_none());
        return Above { limit: stops, root: above.root, ..Above::default() };
    }
    if node.is::<ProjectionExec>() || node.is::<GlobalLimitExec>() || node.is::<LocalLimitExec>() {
        return Above { limit, ..above };
    }
    if node.is::<ScalarSubqueryExec>() {
        return if index == 0 { above } else { Above::default() };
    }
    // Without a sort below, a merge hands on partitions that were sorted already.
    let hands_on = pass_through(node).is_some()
        || node.is::<FilterExec>()
        || node.is::<UnionExec>()
        || node.is::<InterleaveExec>()
        || node.is::<SortPreservingMergeExec>();
    let probe = node.is::<HashJoinExec>() || joins_pairs(node);
    let endless = probe && above.endless || has_endless_pairs(node);
    match (hands_on, probe) {
        (true, _) => {
            let all_rows = above.all_rows && !node.is::<FilterExec>();
            Above { limit, all_rows, ..above }
        }
        (_, true) if index == 1 => Above { limit, join: limit, root: above.root, all_rows: false, endless },
        _ => Above { endless, ..Above::default() },
    }
}

/// Whether a node asks for few of its input's rows.
fn stops_early(node: &Node) -> bool {
    let fetch = if let Some(limit) = node.downcast_ref::<GlobalLimitExec>() {
        limit.fetch().map(|fetch| fetch.saturating_add(limit.skip()))
    } else if let Some(limit) = node.downcast_ref::<LocalLimitExec>() {
        Some(limit.fetch())
    } else {
        node.fetch()
    };
    let Some(fetch) = fetch else { return false };
    let rows = node
        .children()
        .into_iter()
        .filter_map(estimated_rows)
        .fold(None, |most: Option<f64>, rows| Some(most.map_or(rows, |most| most.max(rows))));
    rows.is_none_or(|rows| fetch as f64 <= rows * EARLY_SHARE)
}
