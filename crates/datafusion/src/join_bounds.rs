//! Row groups of a table that have no row for the other side of a join.
//!
//! `FROM sales JOIN days … WHERE days.year = 2000` asks for a part of `sales`, as `WHERE sales.day BETWEEN …` would; but which part that is,
//! only the days tell. Where the rows of a large table lie in the order of such a key, as those of ledgers and logs do, and are not in memory,
//! the keys of the other side are computed before the query is run. Row groups whose bounds hold none of these keys are not read then: the
//! table is narrowed as it is by filters of its own (`row_group_pruning`). The plan stays as it is, and so do its answers.

use std::collections::BTreeSet;
use std::ptr;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, lit};
use kelpie_compile::expr::{Expr, ExprKind};
use kelpie_compile::plan::{Join, JoinKind, Plan, Scan};
use kelpie_engine::{CancelToken, Engine, EngineError, Query, QueryMetrics};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::source::{Data, ScanTable};
use crate::top_rows::{BoundedQuery, reads_parts, scans_of, value_of};
use crate::translate::pruned;
use crate::types;

/// Values of a table, of all columns that are asked for, from which on reading takes longer than finding out what need not be read.
const LEAST_VALUES: u64 = 2 << 20;

/// The other side of a join has at least so many times fewer rows to look at.
const FEWER_ROWS: u64 = 8;

/// Keys are looked up for so many joins of a query at most.
const MOST_LOOKED_UP: usize = 6;

/// So many ranges of keys are told apart.
const MOST_RANGES: usize = 16;

/// What joins say of the rows that a query's tables need, found once for a plan.
#[derive(Default)]
pub(crate) struct KnownBounds(Mutex<Option<Known>>);

impl KnownBounds {
    /// What was found before for a plan, with the values that stand in it.
    pub fn known_of(&self, plan: &Plan) -> Option<Vec<NarrowedTable>> {
        let known = self.0.lock();
        known.as_ref().filter(|known| known.plan == *plan).map(|known| known.found.clone())
    }
}

struct Known {
    /// What it was found for.
    plan: Plan,
    found: Vec<NarrowedTable>,
}

/// A table that is narrowed to the row groups that may have rows for joins.
#[derive(Clone)]
pub(crate) struct NarrowedTable {
    /// Its number in the plan.
    pub source: usize,
    pub table: Arc<ScanTable>,
}

/// A column of a table, of which only rows are wanted whose value is among keys.
#[derive(Debug, Clone, PartialEq)]
struct Restriction {
    source: usize,
    /// Position in the table.
    column: usize,
    /// A plan with the keys as its only column.
    keys: Plan,
}

/// The same for one of the scans of the table.
struct OfScan<'a> {
    scan: &'a Scan,
    restriction: Restriction,
}

/// The tables of a plan, and what its joins say of them.
pub(crate) struct JoinBounds {
    tables: Vec<Arc<ScanTable>>,
    known: Arc<KnownBounds>,
    context: Arc<TaskContext>,
    runtime: Handle,
}

impl JoinBounds {
    /// `None` where there is no runtime to read on.
    pub fn of(
        tables: &[Arc<ScanTable>],
        known: &Arc<KnownBounds>,
        context: &Arc<TaskContext>,
    ) -> Option<JoinBounds> {
        Some(JoinBounds {
            tables: tables.to_vec(),
            known: Arc::clone(known),
            context: Arc::clone(context),
            runtime: Handle::try_current().ok()?,
        })
    }

    /// The query over less of its tables, where joins leave out row groups that are not in memory. An error is only that it was cancelled:
    /// whatever else goes wrong, the query itself meets too.
    pub fn bounded(
        &self,
        engine: &Engine,
        query: &Query,
        cancel: &CancelToken,
    ) -> Result<Option<BoundedQuery>, EngineError> {
        if !reads_parts(query) {
            return Ok(None);
        }
        let unread = self.unread(engine, query);
        if unread.is_empty() {
            return Ok(None);
        }
        let mut metrics = QueryMetrics::default();
        let found = match self.known.known_of(&query.plan) {
            Some(found) => found,
            None => {
                let restrictions = self.restrictions(&query.plan, &unread);
                let found = self.looked_up(engine, query, &restrictions, (cancel, &mut metrics))?;
                *self.known.0.lock() = Some(Known { plan: query.plan.clone(), found: found.clone() });
                found
            }
        };
        if found.is_empty() {
            return Ok(None);
        }
        let mut query = query.clone();
        for NarrowedTable { source, table } in found {
            if let Some(bound) = query.sources.get_mut(source) {
                *bound = table.bind(Arc::clone(&self.context), self.runtime.clone(), None);
            }
        }
        let step = "row groups without keys of the other sides of joins are not read".into();
        Ok(Some(BoundedQuery { query, metrics, step }))
    }

    fn table(&self, source: usize) -> Option<&Arc<ScanTable>> {
        self.tables.get(source)
    }

    /// The large tables of files of which columns have to be read.
    fn unread(&self, engine: &Engine, query: &Query) -> BTreeSet<usize> {
        let is_large = |table: &ScanTable, columns: usize| {
            let are_files = matches!(table.data(), Data::Files(_)) && table.conditions().is_empty();
            are_files && table.exact_rows().is_some_and(|rows| rows * columns as u64 >= LEAST_VALUES)
        };
        // Most queries end here, also those of many thousand nodes.
        if !self.tables.iter().any(|table| is_large(table, table.stored().fields().len())) {
            return BTreeSet::new();
        }
        let mut scans = Vec::new();
        scans_of(&query.plan, &mut scans);
        let scans = scans.into_iter().filter(|scan| {
            self.table(scan.source).is_some_and(|table| is_large(table, scan.columns.len()))
                && !engine.has_columns(query, scan.source, &scan.columns)
        });
        scans.map(|scan| scan.source).collect()
    }

    /// What the joins of a plan say of these tables: what holds for each of a table's scans, where its rows are clustered by the column.
    fn restrictions(&self, plan: &Plan, unread: &BTreeSet<usize>) -> Vec<Restriction> {
        let (mut found, mut scans) = (Vec::new(), Vec::new());
        self.visit(plan, &[], &mut found);
        found.retain(|found| unread.contains(&found.scan.source));
        scans_of(plan, &mut scans);
        let holds_for_all = |restriction: &Restriction| {
            let mut of_table = scans.iter().filter(|scan| scan.source == restriction.source);
            of_table
                .all(|scan| found.iter().any(|it| ptr::eq(it.scan, *scan) && it.restriction == *restriction))
        };
        let mut restrictions: Vec<Restriction> = Vec::new();
        for OfScan { restriction, .. } in &found {
            let is_new = !restrictions.contains(restriction);
            if is_new && holds_for_all(restriction) && self.is_clustered(restriction) {
                restrictions.push(restriction.clone());
            }
        }
        restrictions.sort_by_key(|restriction| self.rows_of(&restriction.keys));
        restrictions.truncate(MOST_LOOKED_UP);
        restrictions
    }

    /// What each join of a plan says of the scans below it. The subqueries are those whose values stand in it.
    fn visit<'a>(&self, plan: &'a Plan, subqueries: &[Plan], found: &mut Vec<OfScan<'a>>) {
        match plan {
            Plan::Scalars { input, subqueries: own } => {
                own.iter().for_each(|subquery| self.visit(subquery, &[], found));
                self.visit(input, own, found);
            }
            Plan::Join(join) => {
                self.visit_join(join, subqueries, found);
                [&join.build, &join.probe].into_iter().for_each(|side| self.visit(side, subqueries, found));
            }
            _ => plan.inputs().into_iter().for_each(|input| self.visit(input, subqueries, found)),
        }
    }

    fn visit_join<'a>(&self, join: &'a Join, subqueries: &[Plan], found: &mut Vec<OfScan<'a>>) {
        if join.null_equal || join.null_aware {
            return;
        }
        for (build, probe) in &join.keys {
            if needs_matching_probe_rows(join.kind) {
                self.restrict((&join.probe, probe), (&join.build, build), subqueries, found);
            }
            if needs_matching_build_rows(join.kind) {
                self.restrict((&join.build, build), (&join.probe, probe), subqueries, found);
            }
        }
    }

    /// What the keys of one side, a plan and an expression over its rows, say of the scans that the other's come from.
    fn restrict<'a>(
        &self,
        (side, key): (&'a Plan, &Expr),
        (other, other_key): (&Plan, &Expr),
        subqueries: &[Plan],
        found: &mut Vec<OfScan<'a>>,
    ) {
        let mut origins = Vec::new();
        origins_of(side, key, &mut origins);
        if origins.is_empty() || !leaves_rows_out(other) {
            return;
        }
        let keys = Plan::Project {
            input: Box::new(other.clone()),
            exprs: vec![other_key.clone()],
            names: vec!["key".into()],
        };
        let keys = match keys.waits_for_values() {
            true => Plan::Scalars { input: Box::new(keys), subqueries: subqueries.to_vec() },
            false => keys,
        };
        let Some(rows) = self.rows_of(&keys) else { return };
        let keys = pruned(&keys);
        for Origin { scan, column } in origins {
            let all = self.table(scan.source).and_then(|table| table.exact_rows()).unwrap_or(0);
            if rows <= all / FEWER_ROWS {
                let restriction = Restriction { source: scan.source, column, keys: keys.clone() };
                found.push(OfScan { scan, restriction });
            }
        }
    }

    /// Rows of the tables that a plan reads; `None` where that is not known, or they are others in each run.
    fn rows_of(&self, plan: &Plan) -> Option<u64> {
        let mut scans = Vec::new();
        scans_of(plan, &mut scans);
        let rows = scans.into_iter().map(|scan| {
            let table = self.table(scan.source)?;
            table.received().is_none().then(|| table.exact_rows())?
        });
        rows.sum()
    }

    /// Whether the rows of a table lie in order of a column, more or less: an end of its range is in few row groups.
    fn is_clustered(&self, restriction: &Restriction) -> bool {
        let ends = || -> Option<[Arc<dyn PhysicalExpr>; 2]> {
            let table = self.table(restriction.source)?;
            let range = table.expected().get(restriction.column)?.as_ref()?.range?;
            let eighth = range.max.checked_sub(range.min)? / 8;
            let field = table.stored().fields().get(restriction.column)?;
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), restriction.column));
            let (low, high) = (range.min + eighth, range.max - eighth);
            Some([
                compared(&column, Operator::LtEq, value_of(low, field.data_type())?),
                compared(&column, Operator::GtEq, value_of(high, field.data_type())?),
            ])
        };
        let is_in_few = |end: Arc<dyn PhysicalExpr>| {
            let table = self.table(restriction.source)?;
            let kept = table.filtered(end).kept_row_groups(&self.context)?.rows;
            (kept <= table.exact_rows()? / 2).then_some(())
        };
        ends().is_some_and(|ends| ends.into_iter().any(|end| is_in_few(end).is_some()))
    }

    /// The tables that are left smaller by the keys of the other sides.
    fn looked_up(
        &self,
        engine: &Engine,
        query: &Query,
        restrictions: &[Restriction],
        (cancel, metrics): (&CancelToken, &mut QueryMetrics),
    ) -> Result<Vec<NarrowedTable>, EngineError> {
        let mut known: Vec<(&Plan, Option<Vec<KeyRange>>)> = Vec::new();
        let mut narrowed: Vec<(usize, ScanTable)> = Vec::new();
        for Restriction { source, column, keys } in restrictions {
            let place = known.iter().position(|(plan, _)| *plan == keys).map_or_else(
                || {
                    let query = Query { plan: keys.clone(), ..query.clone() };
                    let found = match engine.execute(&query, cancel) {
                        Ok(found) => {
                            metrics.precede(&found.metrics);
                            ranges_of(&found.batch)
                        }
                        Err(EngineError::Cancelled) => return Err(EngineError::Cancelled),
                        Err(_) => None,
                    };
                    known.push((keys, found));
                    Ok(known.len() - 1)
                },
                Ok,
            )?;
            let ranges = known.get(place).and_then(|(_, ranges)| ranges.as_ref());
            let (Some(ranges), Some(table)) = (ranges, self.table(*source)) else { continue };
            let Some(condition) = condition(table, *column, ranges) else { continue };
            match narrowed.iter_mut().find(|(narrowed, _)| narrowed == source) {
                Some((_, table)) => table.filter_by(condition),
                None => narrowed.push((*source, table.filtered(condition))),
            }
        }
        let is_worth_it = |table: &ScanTable| {
            let kept = table.kept_row_groups(&self.context).map(|kept| kept.rows);
            kept.zip(table.exact_rows()).is_some_and(|(kept, all)| kept <= all / 2)
        };
        let narrowed = narrowed.into_iter().filter(|(_, table)| is_worth_it(table));
        Ok(narrowed.map(|(source, table)| NarrowedTable { source, table: Arc::new(table) }).collect())
    }
}

/// Keys from the first to the last of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeyRange {
    first: i128,
    last: i128,
}

/// The ranges that the values of the only column of some rows are in, without the widest gaps between them; `None` for what is no integer
/// inside.
fn ranges_of(rows: &RecordBatch) -> Option<Vec<KeyRange>> {
    let mut keys = integers(rows.columns().first()?)?;
    keys.sort_unstable();
    keys.dedup();
    let mut gaps: Vec<usize> = (1..keys.len()).filter(|at| keys[*at] - keys[*at - 1] > 1).collect();
    if gaps.len() >= MOST_RANGES {
        gaps.select_nth_unstable_by_key(MOST_RANGES - 2, |at| std::cmp::Reverse(keys[*at] - keys[*at - 1]));
        gaps.truncate(MOST_RANGES - 1);
        gaps.sort_unstable();
    }
    let starts = std::iter::once(0).chain(gaps.iter().copied());
    let ends = gaps.iter().copied().chain([keys.len()]);
    let range = |(start, end): (usize, usize)| {
        Some(KeyRange { first: *keys.get(start)?, last: *keys.get(end.checked_sub(1)?)? })
    };
    Some(starts.zip(ends).filter_map(range).collect())
}

/// Values that are integers inside; NULLs match nothing, and are left out.
fn integers(column: &ArrayRef) -> Option<Vec<i128>> {
    if let DataType::Decimal128(..) = column.data_type() {
        return Some(column.as_primitive_opt::<Decimal128Type>()?.iter().flatten().collect());
    }
    let is_integer = column.data_type().is_integer() && *column.data_type() != DataType::UInt64;
    if !is_integer && !matches!(column.data_type(), DataType::Date32 | DataType::Timestamp(..)) {
        return None;
    }
    let integers = cast(column, &DataType::Int64).ok()?;
    // A cast that fails gives NULL, and the key would be missed.
    if integers.null_count() != column.null_count() {
        return None;
    }
    Some(integers.as_primitive_opt::<Int64Type>()?.iter().flatten().map(i128::from).collect())
}

/// What holds for the rows of a table whose column is in some ranges: in none, where there are none.
fn condition(table: &ScanTable, column: usize, ranges: &[KeyRange]) -> Option<Arc<dyn PhysicalExpr>> {
    let field = table.stored().fields().get(column)?;
    let data_type = field.data_type();
    let column_expr: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), column));
    if ranges.is_empty() {
        let least = table.expected().get(column)?.as_ref()?.range?.min;
        return Some(compared(&column_expr, Operator::Lt, value_of(least, data_type)?));
    }
    let mut any: Option<Arc<dyn PhysicalExpr>> = None;
    let within = types::data_type(data_type)?.full_range()?;
    for KeyRange { first, last } in ranges {
        // What the column's type does not have matches nothing.
        let (first, last) = ((*first).max(within.min), (*last).min(within.max));
        if first > last {
            continue;
        }
        let from = compared(&column_expr, Operator::GtEq, value_of(first, data_type)?);
        let to = compared(&column_expr, Operator::LtEq, value_of(last, data_type)?);
        let range: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(from, Operator::And, to));
        any = Some(match any {
            Some(any) => Arc::new(BinaryExpr::new(any, Operator::Or, range)),
            None => range,
        });
    }
    any
}

fn compared(column: &Arc<dyn PhysicalExpr>, op: Operator, value: ScalarValue) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(Arc::clone(column), op, lit(value)))
}

/// Whether a join has no use for probe rows without a match.
fn needs_matching_probe_rows(kind: JoinKind) -> bool {
    use JoinKind::*;
    matches!(kind, Inner | BuildOuter | BuildSemi | BuildAnti | BuildMark | ProbeSemi)
}

/// Whether a join has no use for build rows without a match.
fn needs_matching_build_rows(kind: JoinKind) -> bool {
    use JoinKind::*;
    matches!(kind, Inner | ProbeOuter | ProbeSemi | ProbeAnti | ProbeMark | BuildSemi)
}

/// A column of a scan.
struct Origin<'a> {
    scan: &'a Scan,
    /// Position in the table.
    column: usize,
}

/// The columns of scans that an expression over the rows of a plan is, where rows that are left out of a scan only take away the plan's rows
/// that have their values.
fn origins_of<'a>(plan: &'a Plan, expr: &Expr, origins: &mut Vec<Origin<'a>>) {
    let column = match &expr.kind {
        ExprKind::Column(column) => *column,
        // A number is the same in another type of integers; keys that the column's own type does not have match nothing.
        ExprKind::Cast { input, .. } if expr.data_type.is_integer() && input.data_type.is_integer() => {
            return origins_of(plan, input, origins);
        }
        _ => return,
    };
    match plan {
        Plan::Scan(scan) => {
            origins.extend(scan.columns.get(column).map(|column| Origin { scan, column: *column }));
        }
        Plan::Filter { input, .. } | Plan::Scalars { input, .. } | Plan::Sort { input, fetch: None, .. } => {
            origins_of(input, expr, origins);
        }
        Plan::Project { input, exprs, .. } => {
            exprs.get(column).into_iter().for_each(|expr| origins_of(input, expr, origins));
        }
        // All rows of a group have its key.
        Plan::Aggregate { input, keys, .. } => {
            keys.get(column).into_iter().for_each(|key| origins_of(input, key, origins));
        }
        Plan::Union { inputs, .. } => inputs.iter().for_each(|input| origins_of(input, expr, origins)),
        Plan::Join(join) => {
            use JoinKind::*;
            let width = join.build.fields().len();
            let of_probe = |column: usize| Expr { kind: ExprKind::Column(column), ..expr.clone() };
            match join.kind {
                Inner | BuildOuter if column < width => origins_of(&join.build, expr, origins),
                Inner | ProbeOuter if column >= width => {
                    origins_of(&join.probe, &of_probe(column - width), origins);
                }
                BuildSemi | BuildMark => origins_of(&join.build, expr, origins),
                ProbeSemi | ProbeMark => origins_of(&join.probe, expr, origins),
                BuildAnti if !join.null_aware => origins_of(&join.build, expr, origins),
                ProbeAnti if !join.null_aware => origins_of(&join.probe, expr, origins),
                _ => {}
            }
        }
        _ => {}
    }
}

/// Whether a plan may have fewer rows than the table that it reads.
fn leaves_rows_out(plan: &Plan) -> bool {
    match plan {
        Plan::Scan(_) => false,
        Plan::Project { input, .. } | Plan::Sort { input, fetch: None, .. } => leaves_rows_out(input),
        _ => true,
    }
}
