//! The first rows of each partition: what a filter above a window keeps by a rank (`row_number() <= k`, also `rank` and `dense_rank`).
//!
//! A row is among the first k of its partition only if the first key of its order is no greater than the k-th least of the partition. So
//! the rows are read twice: once for these bounds, which are groups of their own, and once for the rows themselves, which look up the
//! bound of their partition, as in a join; what is beyond it is neither stored nor sorted. What comes to the window is every row that may
//! be among the first, with all that tie with the last of them in that key, so that the window and the filter above it give what they
//! would have given. (A group keeps 2, 4, 8 or 16 values: bounds are those of the next such k.)
//!
//! All functions of the window have to see no more of a partition than the rows up to theirs.

use super::delivery::Wanted;
use super::join::JoinSite;
use super::join_parts::Downstream;
use super::{Cut, OpenRows};
use crate::context::Unsupported;
use crate::expr::{CompareOp, Expr, ExprKind, substitute};
use crate::lower::columns_of;
use crate::operator::aggregate::{Cells, key_values};
use crate::plan::{
    Aggregate, AggregateFunction, Few, FrameBound, Join, JoinKind, Plan, SortKey, Window, WindowCall,
    WindowFunction,
};
use crate::types::{DataType, Field, Literal};
use crate::variant::axes::WindowRows;
use crate::variant::{Site, all_but};

/// Rows from which on a sort of all of them takes longer than two ways through them: of a CPU, and of a GPU.
const LEAST_ROWS: u64 = 1 << 16;
const LEAST_ROWS_OF_GRIDS: u64 = 1 << 20;
/// How many rows come for each that a partition's bound may keep, at least.
const LEAST_ROWS_A_KEPT: u64 = 4;

/// What a filter keeps of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct RankLimit {
    /// The number of the function whose value is bounded.
    function: usize,
    /// The greatest value that is kept.
    most: u64,
}

impl RankLimit {
    /// What a filter over `input` keeps, where that is a window, possibly below projections, and it bounds a rank.
    pub(super) fn of(input: &Plan, predicate: &Expr) -> Option<RankLimit> {
        let (mut input, mut predicate) = (input, predicate.clone());
        let window = loop {
            match input {
                Plan::Project { input: below, exprs, .. } => {
                    predicate = substitute(&predicate, &|expr| match expr.kind {
                        ExprKind::Column(column) => exprs.get(column).cloned(),
                        _ => None,
                    });
                    input = below;
                }
                Plan::Filter { input: below, .. } => input = below,
                Plan::Window(window) => break window,
                _ => return None,
            }
        };
        let width = window.input.fields().len();
        let limits = window.functions.iter().enumerate().filter_map(|(function, own)| match own.call {
            WindowCall::RowNumber | WindowCall::Rank | WindowCall::DenseRank => {
                let most = most_of(&predicate, width + function)?;
                Some(RankLimit { function, most })
            }
            _ => None,
        });
        limits.min_by_key(|limit| limit.most)
    }
}

/// The greatest value of a column, a number from 1 on, with which a condition may be true, where it is bounded.
fn most_of(condition: &Expr, column: usize) -> Option<u64> {
    let is_column = |expr: &Expr| match &expr.kind {
        ExprKind::Cast { input, .. } if expr.data_type.is_integer() => input.kind == ExprKind::Column(column),
        kind => *kind == ExprKind::Column(column),
    };
    let number = |expr: &Expr| match expr.kind {
        ExprKind::Literal(Literal::Int(number)) => Some(u64::try_from(number.max(0)).unwrap_or(u64::MAX)),
        _ => None,
    };
    match &condition.kind {
        ExprKind::And(left, right) => most_of(left, column).into_iter().chain(most_of(right, column)).min(),
        ExprKind::Or(left, right) => Some(most_of(left, column)?.max(most_of(right, column)?)),
        ExprKind::Compare(CompareOp::Eq | CompareOp::Le, left, right) if is_column(left) => number(right),
        ExprKind::Compare(CompareOp::Eq | CompareOp::Ge, left, right) if is_column(right) => number(left),
        ExprKind::Compare(CompareOp::Lt, left, right) if is_column(left) => {
            number(right).map(|number| number.saturating_sub(1))
        }
        ExprKind::Compare(CompareOp::Gt, left, right) if is_column(right) => {
            number(left).map(|number| number.saturating_sub(1))
        }
        ExprKind::InList { input, list, negated: false } if is_column(input) => {
            list.iter().map(number).try_fold(0, |most, number| Some(number?.max(most)))
        }
        _ => None,
    }
}

/// Bounds of the rows of a window.
struct Bounds {
    /// What tells partitions apart.
    partition: Vec<Expr>,
    /// The first key of their order.
    key: SortKey,
    /// What bounds it in a partition.
    bound: Aggregate,
    /// How many values a partition keeps.
    kept: u64,
}

impl Bounds {
    /// Those by which a window has every row that may be among the first; the reason where there are none.
    fn of(window: &Window, limit: RankLimit, is_read_again: bool) -> Result<Bounds, &'static str> {
        let function = window.functions.get(limit.function).ok_or("the window has no such function")?;
        let keys = window.keys.get(..function.partition).unwrap_or_default();
        let key = window.keys.get(function.partition).filter(|_| function.order > function.partition);
        let key = key.ok_or("its rank goes by no order")?;
        let few = if limit.most <= 1 { None } else { Few::of(limit.most) };
        let is_wide = matches!(key.expr.data_type, DataType::Boolean | DataType::Null | DataType::Interval);
        match () {
            () if !window.functions.iter().all(|other| is_bounded(other, function.partition)) => {
                return Err("another function of the window sees rows behind the first ones");
            }
            () if limit.most > 1 && few.is_none() => {
                return Err("more rows of a partition are kept than a group keeps values");
            }
            () if keys.iter().any(|key| key.expr.data_type.is_float()) => {
                return Err("partitions tell the two zeros of a float apart otherwise than groups do");
            }
            () if is_wide => return Err("the first key of the order has too few values, or no order"),
            () if !is_read_again => return Err("its rows come from no table, and would be made twice"),
            () => {}
        }
        let function = match (few, key.descending) {
            (None, false) => AggregateFunction::Min,
            (None, true) => AggregateFunction::Max,
            (Some(few), false) => AggregateFunction::LeastBound(few),
            (Some(few), true) => AggregateFunction::GreatestBound(few),
        };
        let distinct = few.is_some() && is_dense(window, limit);
        let field = Field { name: "bound".into(), data_type: key.expr.data_type.clone(), nullable: true };
        let bound = Aggregate { function, argument: Some(key.expr.clone()), distinct, field };
        let partition = keys.iter().map(|key| key.expr.clone()).collect();
        Ok(Bounds { partition, key: key.clone(), bound, kept: few.map_or(1, |few| few.number() as u64) })
    }

    /// Whether a row may be among the first: over the groups' columns and behind them those of the rows.
    fn condition(&self) -> Expr {
        let boolean = |kind, nullable| Expr { kind, data_type: DataType::Boolean, nullable };
        let behind = self.partition.len() + 1;
        let key = shifted(&self.key.expr, behind);
        let bound = Expr::column(self.partition.len(), key.data_type.clone(), true);
        let order = if self.key.descending { CompareOp::Ge } else { CompareOp::Le };
        let compare = ExprKind::Compare(order, Box::new(key.clone()), Box::new(bound.clone()));
        let is_unbounded = boolean(ExprKind::IsNull(Box::new(bound)), false);
        let passes = boolean(compare, true);
        let passes = boolean(ExprKind::Or(Box::new(is_unbounded), Box::new(passes)), true);
        match key.nullable && self.key.nulls_first {
            true => {
                let is_null = boolean(ExprKind::IsNull(Box::new(key)), false);
                boolean(ExprKind::Or(Box::new(passes), Box::new(is_null)), true)
            }
            false => passes,
        }
    }

    /// The join by which rows find the bound of their partition. `rows`: the window's input.
    fn join(&self, rows: &Plan) -> Join {
        let column = |(place, key): (usize, &Expr)| {
            (Expr::column(place, key.data_type.clone(), key.nullable), key.clone())
        };
        let build = Plan::Aggregate {
            input: Box::new(rows.clone()),
            keys: self.partition.clone(),
            aggregates: vec![self.bound.clone()],
            names: vec![String::new(); self.partition.len()],
        };
        Join {
            kind: JoinKind::Inner,
            keys: self.partition.iter().enumerate().map(column).collect(),
            build,
            probe: rows.clone(),
            residual: Some(self.condition()),
            null_equal: true,
            null_aware: false,
        }
    }
}

/// Whether equal rows of the order count once.
fn is_dense(window: &Window, limit: RankLimit) -> bool {
    window.functions.get(limit.function).is_some_and(|function| function.call == WindowCall::DenseRank)
}

/// Whether what a function gives a row depends on no rows of its partition, which has so many keys, but those up to the row and its peers.
fn is_bounded(function: &WindowFunction, partition: usize) -> bool {
    let ends_before = matches!(
        function.frame.end,
        FrameBound::UnboundedPreceding | FrameBound::Preceding(_) | FrameBound::CurrentRow
    );
    let looks_back = match &function.call {
        WindowCall::RowNumber => return function.partition == partition,
        WindowCall::Rank | WindowCall::DenseRank => true,
        WindowCall::Shifted { offset, .. } => *offset <= 0,
        WindowCall::At { .. } | WindowCall::Aggregate { .. } => ends_before,
        WindowCall::PercentRank | WindowCall::CumeDist | WindowCall::Ntile(_) => false,
    };
    looks_back && function.partition == partition && function.order > partition
}

/// An expression over columns that stand so many places further on.
fn shifted(expr: &Expr, places: usize) -> Expr {
    substitute(expr, &|expr| match expr.kind {
        ExprKind::Column(column) => Some(Expr { kind: ExprKind::Column(column + places), ..expr.clone() }),
        _ => None,
    })
}

/// Whether rows may as well be made twice: they come from a table, and are the same each time.
fn is_read_again(rows: &Plan) -> bool {
    match rows {
        Plan::Scan(_) => true,
        Plan::Filter { input, .. } | Plan::Project { input, .. } => is_read_again(input),
        _ => false,
    }
}

impl Cut<'_> {
    /// The rows that a window is to store, of which a filter above it may keep few.
    pub(super) fn window_input(
        &mut self,
        window: &Window,
        limit: Option<RankLimit>,
    ) -> Result<OpenRows, Unsupported> {
        let scan = self.next_scan;
        let rows = self.open(&window.input)?;
        self.begin_groups();
        let Some(limit) = limit else { return Ok(rows) };
        let bounds = Bounds::of(window, limit, is_read_again(&window.input)).map_err(String::from);
        let bounds = bounds.and_then(|bounds| self.planned_bounds(bounds, &rows));
        let (rule, estimate) = match &bounds {
            Err(why_not) => ((WindowRows::All, why_not.as_str()), None),
            Ok(bounds) => self.window_rows_by_size(bounds, &rows),
        };
        let (site, why_not) = (self.groups.to_string(), bounds.as_ref().err());
        let site = Site { chooser: self.chooser, name: &site };
        let chosen = site.choose_by((rule, estimate), all_but(WindowRows::First, &why_not))?;
        match bounds {
            Ok(bounds) if chosen == WindowRows::First => self.first_rows(window, &bounds, (rows, scan)),
            _ => Ok(rows),
        }
    }

    /// The bounds, where there is a cell for them.
    fn planned_bounds(&self, bounds: Bounds, rows: &OpenRows) -> Result<Bounds, String> {
        let cells = Cells::plan(std::slice::from_ref(&bounds.bound), &rows.columns, rows.bound(), true);
        cells.map(|_| bounds).map_err(|why_not| why_not.to_string())
    }

    /// Which rows are sorted by how many there are, and what that is thought to be.
    fn window_rows_by_size(
        &self,
        bounds: &Bounds,
        rows: &OpenRows,
    ) -> ((WindowRows, &'static str), Option<String>) {
        let least = if self.shape.is_serial() { LEAST_ROWS } else { LEAST_ROWS_OF_GRIDS };
        let infos = columns_of(&bounds.partition, &rows.columns);
        let mut values = infos.iter().map(key_values);
        let partitions = values.try_fold(1, |all: u64, own| Some(all.saturating_mul(own?)));
        let comes = rows.expected();
        let Some(partitions) = partitions else {
            return ((WindowRows::All, "how many partitions there are is not known"), None);
        };
        let kept = partitions.min(rows.bound()).saturating_mul(bounds.kept);
        let estimate = format!("{comes} rows, {kept} of them first");
        let rule = match () {
            () if comes < least => (WindowRows::All, "few rows are sorted at once"),
            () if kept.saturating_mul(LEAST_ROWS_A_KEPT) > comes => {
                (WindowRows::All, "the first rows of all partitions are many of all rows")
            }
            () => (WindowRows::First, "most rows are beyond the bounds of their partitions"),
        };
        (rule, Some(estimate))
    }

    /// The rows that may be among the first. `rows`: those of the window's input, the first time; `scan`: the number of its scan.
    fn first_rows(
        &mut self,
        window: &Window,
        bounds: &Bounds,
        (rows, scan): (OpenRows, usize),
    ) -> Result<OpenRows, Unsupported> {
        let site = self.groups;
        self.groups = site.of_bounds();
        let name = self.groups.to_string();
        let aggregates = std::slice::from_ref(&bounds.bound);
        let groups = self.aggregate(rows, &bounds.partition, (aggregates, Wanted::Rows))?.rows();
        self.groups = site;
        let (behind, join) = (groups.columns.len(), bounds.join(&window.input));
        let before_probe = self.done.len();
        // The same table, once more.
        self.next_scan = scan;
        let rows = self.open(&window.input)?;
        let width = rows.columns.len();
        // Joins of the plan have lower numbers, and so have those whose sides are changed.
        let number = 2 * self.uses.len() + self.next_groups;
        let at = JoinSite {
            join: &join,
            ordinal: number,
            assumption: number,
            site: Site { chooser: self.chooser, name: &name },
            downstream: Downstream::default(),
        };
        let mut first = self.joined(&at, groups, rows, before_probe)?;
        let own = first.columns.iter().enumerate().skip(behind).take(width);
        let own = own.map(|(place, info)| Expr::column(place, info.data_type.clone(), info.nullable));
        let own: Vec<Expr> = own.collect();
        first.project(own);
        Ok(first)
    }
}
