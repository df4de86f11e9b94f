//! Expressions that do not compile become columns of the table that they read (`crate::derived`).
//!
//! While a plan is translated, such an expression is pushed down DataFusion's operators to the one scan that it reads, and
//! stands in Kelpie's plan as a column beyond all others. Once the whole plan is there, each of these is added to its scan,
//! and handed up from there to where it is used. What nothing but the result has is left to DataFusion, which computes it for
//! the rows of the result only.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::ColumnIndex;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use kelpie_compile::expr::{Expr, ExprKind, check, children, substitute, with_children};
use kelpie_compile::plan::{Join, JoinKind, Plan, SortKey};
use kelpie_compile::types::Field;

use super::expr::ExprTranslator;
use super::prune::columns_of;
use super::{Node, Reasons, Translator, pass_through, project_columns};
use crate::derived::{Derived, keeps_null, mapped};
use crate::exec::KelpieExec;
use crate::join_order::rows_estimate;
use crate::source::ScanTable;
use crate::types;

/// Positions from here on stand for requests.
const REQUESTS: usize = 1 << 40;
/// Where fewer rows than this share of the table come to an expression, it is computed for those only: by DataFusion.
const LEAST_SHARE: f64 = 0.1;

type PhysicalRef = Arc<dyn PhysicalExpr>;

/// An expression that is to be a column.
#[derive(Debug)]
pub(super) struct Request {
    /// The address of the scan's node.
    scan: usize,
    /// The address of the node over whose rows the expression is.
    below: usize,
    /// Taken when it is added to the scan.
    expr: PhysicalRef,
    field: Field,
    /// Why the expression does not compile.
    reasons: Vec<String>,
}

/// What expressions are computed over.
#[derive(Debug, Clone, Copy)]
pub(super) enum Below<'a> {
    /// The rows of a node.
    Node(&'a Node),
    /// Columns that a join takes from both sides.
    Sides(&'a Node, &'a Node, &'a [ColumnIndex]),
    /// The columns of a scan's table.
    Table(&'a DataSourceExec),
}

/// What an expression that does not compile asks.
#[derive(Debug)]
pub(crate) struct Deriver<'a> {
    pub(super) below: Below<'a>,
    pub(super) requests: &'a mut Vec<Request>,
    pub(super) checked: bool,
}

impl ExprTranslator<'_> {
    /// The expression, unless it is to be tried and no code can be generated for it.
    pub(super) fn tried(&mut self, e: &PhysicalRef, compiled: Expr) -> Option<Expr> {
        if !self.derive.as_ref().is_some_and(|deriver| deriver.checked) {
            return Some(compiled);
        }
        let operands =
            children(&compiled).into_iter().enumerate().map(|(index, operand)| match operand.kind {
                ExprKind::Literal(_) => operand.clone(),
                _ => Expr::column(index, operand.data_type.clone(), true),
            });
        let mut reasons = Vec::new();
        check(&with_children(&compiled, operands.collect()), &mut reasons);
        if reasons.is_empty() {
            return Some(compiled);
        }
        let first = self.reasons.len();
        reasons.into_iter().for_each(|reason| self.reasons.push(reason));
        self.derived(e, first)
    }

    /// The column that stands for an expression which does not compile for the reasons from `first` on.
    pub(super) fn derived(&mut self, e: &PhysicalRef, first: usize) -> Option<Expr> {
        if e.is::<Column>() || e.is::<Literal>() {
            return None;
        }
        let deriver = self.derive.as_mut()?;
        let data_type = types::column_type(&e.data_type(self.schema).ok()?)?;
        let nullable = e.nullable(self.schema).unwrap_or(true);
        let (scan, expr) = match located(e, deriver.below) {
            Ok(found) => found,
            Err(None) => return None,
            Err(Some(reason)) => return self.refuse(e, &format!("not a column of its own: {reason}")),
        };
        let reasons = self.reasons.split_off(first);
        let field = Field { name: e.to_string(), data_type: data_type.clone(), nullable };
        let below = match deriver.below {
            Below::Node(node) => address(node),
            Below::Sides(..) | Below::Table(_) => 0,
        };
        deriver.requests.push(Request { scan, below, expr, field, reasons });
        Some(Expr::column(REQUESTS + deriver.requests.len() - 1, data_type, nullable))
    }
}

/// The scan that an expression reads, and the expression over its table; else why not, where that is worth a line.
fn located(e: &PhysicalRef, below: Below<'_>) -> Result<(usize, PhysicalRef), Option<String>> {
    let (node, expr) = match below {
        Below::Table(scan) => return checked(scan, e.clone()).map_err(Some),
        Below::Node(node) => (node, Arc::clone(e)),
        Below::Sides(left, right, columns) => {
            let side = |side, node| {
                let expr = mapped(e, &|column| {
                    let from = columns.get(column.index()).filter(|from| from.side == side)?;
                    Some(Arc::new(Column::new(column.name(), from.index)) as PhysicalRef)
                });
                expr.map(|expr| (node, expr))
            };
            side(JoinSide::Left, left).or_else(|| side(JoinSide::Right, right)).ok_or(None)?
        }
    };
    let (scan_node, expr) = pushed(expr, node)?;
    let scan = scan_node.downcast_ref::<DataSourceExec>().ok_or(None)?;
    let found = checked(scan, expr).map_err(Some)?;
    if let (Some(here), Some(all)) = (rows_estimate(node), rows_estimate(&scan_node))
        && here < all * LEAST_SHARE
    {
        return Err(Some("less than a tenth of the table's rows come to it".into()));
    }
    Ok(found)
}

/// Whether an expression over a scan's table may be a column of it.
fn checked(scan: &DataSourceExec, expr: PhysicalRef) -> Result<(usize, PhysicalRef), String> {
    let table = super::scan::table(scan).ok_or("the table is not read by Kelpie")?;
    let derived = Derived::new(&expr, table.stored())?;
    match derived.failure(table.identity()) {
        Some(reason) => Err(format!("computed for every row, it fails: {reason}")),
        None => Ok((std::ptr::from_ref(scan).addr(), expr)),
    }
}

/// The scan below a node, and an expression over the node's columns as one over the scan's table.
fn pushed(expr: PhysicalRef, node: &Node) -> Result<(Node, PhysicalRef), Option<String>> {
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        let expr = mapped(&expr, &|column| table_column(scan, column.index())).ok_or(None)?;
        return Ok((Arc::clone(node), expr));
    }
    if let Some(compiled) = node.downcast_ref::<KelpieExec>() {
        return pushed(expr, compiled.original());
    }
    if node.fetch().is_some() {
        return Err(None);
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let expr = match filter.projection() {
            Some(columns) => at(&expr, columns.as_ref()).ok_or(None)?,
            None => expr,
        };
        return pushed(expr, filter.input());
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let below = mapped(&expr, &|column| Some(Arc::clone(&projection.expr().get(column.index())?.expr)));
        return pushed(below.ok_or(None)?, projection.input());
    }
    if let Some(input) = pass_through(node) {
        return pushed(expr, input);
    }
    if node.is::<SortExec>() || node.is::<SortPreservingMergeExec>() {
        let children = node.children();
        return pushed(expr, children.first().ok_or(None)?);
    }
    if let Some(scalars) = node.downcast_ref::<ScalarSubqueryExec>() {
        return pushed(expr, scalars.input());
    }
    let join = joined(node).ok_or(None)?;
    let expr = match join.projection {
        Some(columns) => at(&expr, &columns).ok_or(None)?,
        None => expr,
    };
    let width = join.left.schema().fields().len();
    let (left, right) = match join.kind {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => (true, false),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => (false, true),
        _ => (true, true),
    };
    let offset = if left { width } else { 0 };
    let columns = collect_columns(&expr);
    let (side, from, padded) = if left && columns.iter().all(|column| column.index() < width) {
        (join.left, 0, matches!(join.kind, JoinType::Right | JoinType::Full))
    } else if right && columns.iter().all(|column| column.index() >= offset) {
        (join.right, offset, matches!(join.kind, JoinType::Left | JoinType::Full))
    } else {
        return Err(Some("it reads columns of several tables".into()));
    };
    let fields = side.schema().fields().len();
    let expr = mapped(&expr, &|column| {
        let index = column.index().checked_sub(from).filter(|index| *index < fields)?;
        Some(Arc::new(Column::new(column.name(), index)) as PhysicalRef)
    });
    let expr = expr.ok_or(None)?;
    if padded && !keeps_null(&expr, &side.schema()) {
        return Err(Some("it has a value for the rows that an outer join fills with NULL".into()));
    }
    pushed(expr, side)
}

/// A column of a scan over the scan's table.
fn table_column(scan: &DataSourceExec, column: usize) -> Option<PhysicalRef> {
    let source = scan.data_source();
    let at = |index| Some(Arc::new(Column::new("", index)) as PhysicalRef);
    if source.fetch().is_some() {
        return None;
    }
    if let Some(memory) = source.downcast_ref::<MemorySourceConfig>() {
        return match memory.projection() {
            Some(columns) => at(*columns.get(column)?),
            None => at(column),
        };
    }
    let config = source.downcast_ref::<FileScanConfig>()?;
    match config.file_source().projection() {
        Some(projection) => projection.iter().nth(column).map(|e| Arc::clone(&e.expr)),
        None => at(column),
    }
}

/// The expression with columns numbered by a projection below it.
fn at(expr: &PhysicalRef, columns: &[usize]) -> Option<PhysicalRef> {
    mapped(expr, &|column| {
        let index = *columns.get(column.index())?;
        Some(Arc::new(Column::new(column.name(), index)) as PhysicalRef)
    })
}

struct Joined<'a> {
    left: &'a Node,
    right: &'a Node,
    kind: JoinType,
    projection: Option<Vec<usize>>,
}

fn joined(node: &Node) -> Option<Joined<'_>> {
    let plain = |left, right, kind| Joined { left, right, kind, projection: None };
    Some(if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let projection = join.projection.as_deref().map(<[usize]>::to_vec);
        Joined { projection, ..plain(join.left(), join.right(), *join.join_type()) }
    } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let projection = join.projection().as_deref().map(<[usize]>::to_vec);
        Joined { projection, ..plain(join.left(), join.right(), *join.join_type()) }
    } else if let Some(join) = node.downcast_ref::<CrossJoinExec>() {
        plain(join.left(), join.right(), JoinType::Inner)
    } else if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
        plain(join.left(), join.right(), join.join_type())
    } else {
        return None;
    })
}

fn address(node: &Node) -> usize {
    Arc::as_ptr(node).cast::<()>().addr()
}

/// Adds the reasons against expressions that only the result of a plan has, which is not translated for other reasons.
pub(super) fn explain_result(translator: &mut Translator, root: &Node) {
    let mut node = root;
    loop {
        let projection = node.downcast_ref::<ProjectionExec>();
        let handed_on = pass_through(node).is_some()
            || node.is::<SortExec>()
            || node.is::<SortPreservingMergeExec>()
            || node.is::<GlobalLimitExec>()
            || node.is::<LocalLimitExec>();
        let children = node.children();
        let [input] = children.as_slice() else { return };
        if projection.is_some() {
            let below = address(input);
            let Translator { requests, reasons, .. } = translator;
            let of_result = requests.iter().filter(|request| request.below == below);
            of_result.flat_map(|request| &request.reasons).for_each(|reason| reasons.push(reason.clone()));
        } else if !handed_on {
            return;
        }
        node = input;
    }
}

/// Adds what a translated plan requests to its scans. `scans` are the addresses of the nodes of the tables' scans.
pub(super) fn added(plan: Plan, translator: &mut Translator) -> Option<Plan> {
    if translator.requests.is_empty() || !mentions(&plan) {
        return Some(plan);
    }
    let requests = std::mem::take(&mut translator.requests);
    let Translator { tables, scans, reasons, .. } = translator;
    let mut adding = Adding { requests: &requests, tables, scans, reasons };
    let plan = adding.resolved(plan, &Used::default())?;
    Some(super::prune::pruned(&plan))
}

/// Whether a plan has a request.
fn mentions(plan: &Plan) -> bool {
    let found = std::cell::Cell::new(false);
    plan.map_exprs(&|expr| {
        found.set(found.get() || requested(expr).next().is_some());
        expr.clone()
    });
    found.get() || plan.inputs().into_iter().any(mentions)
}

fn requested(expr: &Expr) -> impl Iterator<Item = usize> {
    columns_of(expr).into_iter().filter_map(|column| column.checked_sub(REQUESTS))
}

/// The columns of a plan that something else than the result has.
#[derive(Debug, Default)]
enum Used {
    #[default]
    None,
    Some(BTreeSet<usize>),
    All,
}

impl Used {
    fn contains(&self, column: usize) -> bool {
        match self {
            Used::None => false,
            Used::Some(columns) => columns.contains(&column),
            Used::All => true,
        }
    }

    fn with(&self, more: BTreeSet<usize>) -> Used {
        match self {
            Used::None => Used::Some(more),
            Used::Some(columns) => Used::Some(columns.union(&more).copied().collect()),
            Used::All => Used::All,
        }
    }
}

struct Adding<'a> {
    requests: &'a [Request],
    tables: &'a mut [Arc<ScanTable>],
    scans: &'a [usize],
    reasons: &'a mut Reasons,
}

impl Adding<'_> {
    fn refuse<T>(&mut self, request: usize) -> Option<T> {
        if let Some(request) = self.requests.get(request) {
            request.reasons.iter().for_each(|reason| self.reasons.push(reason.clone()));
            if request.reasons.is_empty() {
                self.reasons.push(format!("{} is not compiled", request.field.name));
            }
        }
        None
    }

    /// The plan without requests.
    fn resolved(&mut self, plan: Plan, used: &Used) -> Option<Plan> {
        Some(match plan {
            Plan::Scan(_) => plan,
            Plan::Filter { input, predicate } => {
                let input = self.resolved(*input, &used.with(columns_of(&predicate)))?;
                let width = input.fields().len();
                let (input, mut exprs) = self.provided(input, vec![predicate])?;
                cut(Plan::Filter { input: Box::new(input), predicate: exprs.pop()? }, width)?
            }
            Plan::Project { input, exprs, names } => {
                let mut below = BTreeSet::new();
                for (index, expr) in exprs.iter().enumerate() {
                    match (used.contains(index), requested(expr).next()) {
                        (true, _) => below.extend(columns_of(expr)),
                        (false, Some(request)) => return self.refuse(request),
                        (false, None) => {}
                    }
                }
                let input = self.resolved(*input, &Used::Some(below))?;
                let (input, exprs) = self.provided(input, exprs)?;
                Plan::Project { input: Box::new(input), exprs, names }
            }
            Plan::Aggregate { input, keys, mut aggregates, names } => {
                let input = self.resolved(*input, &Used::All)?;
                let count = keys.len();
                let arguments = aggregates.iter().filter_map(|aggregate| aggregate.argument.clone());
                let exprs = keys.into_iter().chain(arguments).collect();
                let (input, mut keys) = self.provided(input, exprs)?;
                let mut arguments = keys.split_off(count).into_iter();
                for aggregate in &mut aggregates {
                    if aggregate.argument.is_some() {
                        aggregate.argument = Some(arguments.next()?);
                    }
                }
                Plan::Aggregate { input: Box::new(input), keys, aggregates, names }
            }
            Plan::Join(join) => self.resolved_join(*join)?,
            Plan::Union { inputs, fields } => {
                let inputs = inputs.into_iter().map(|input| self.resolved(input, used));
                Plan::Union { inputs: inputs.collect::<Option<_>>()?, fields }
            }
            Plan::Scalars { input, subqueries } => {
                let subqueries = subqueries.into_iter().map(|plan| self.resolved(plan, &Used::All));
                let subqueries = subqueries.collect::<Option<_>>()?;
                Plan::Scalars { input: Box::new(self.resolved(*input, used)?), subqueries }
            }
            Plan::Sort { input, keys, fetch } => {
                let columns = keys.iter().flat_map(|key| columns_of(&key.expr)).collect();
                let input = self.resolved(*input, &used.with(columns))?;
                let width = input.fields().len();
                let exprs = keys.iter().map(|key| key.expr.clone()).collect();
                let (input, exprs) = self.provided(input, exprs)?;
                let keys = keys.into_iter().zip(exprs).map(|(key, expr)| SortKey { expr, ..key });
                cut(Plan::Sort { input: Box::new(input), keys: keys.collect(), fetch }, width)?
            }
            Plan::Limit { input, skip, fetch } => {
                Plan::Limit { input: Box::new(self.resolved(*input, used)?), skip, fetch }
            }
        })
    }

    fn resolved_join(&mut self, join: Join) -> Option<Plan> {
        let Join { build, probe, keys, residual, .. } = join.clone();
        let build = self.resolved(build, &Used::All)?;
        let probe = self.resolved(probe, &Used::All)?;
        let (width, probe_width) = (build.fields().len(), probe.fields().len());
        let (build_keys, probe_keys) = keys.into_iter().unzip();
        let (mut build, build_keys) = self.provided(build, build_keys)?;
        let (mut probe, probe_keys) = self.provided(probe, probe_keys)?;
        let mut residual = residual;
        if let Some(predicate) = &mut residual {
            // Where each request of the residual condition is, on which side.
            let mut places = Vec::new();
            for request in requested(predicate) {
                let scan = self.requests.get(request)?.scan;
                let place = if self.reaches(&build, scan) {
                    let (plan, place) = self.provide(build, request)?;
                    build = plan;
                    (request, None, place)
                } else {
                    let (plan, place) = self.provide(probe, request)?;
                    probe = plan;
                    (request, Some(()), place)
                };
                places.push(place);
            }
            let (wider, fields) = (build.fields().len(), [build.fields(), probe.fields()].concat());
            let moved = |index: usize| match index.checked_sub(REQUESTS) {
                Some(request) => {
                    let place = places.iter().find(|(known, ..)| *known == request);
                    place.map_or(usize::MAX, |(_, probe, place)| probe.map_or(*place, |()| wider + place))
                }
                None if index >= width => index - width + wider,
                None => index,
            };
            *predicate = moved_columns(predicate, &moved, &fields);
        }
        let keys = build_keys.into_iter().zip(probe_keys).collect();
        let (build_now, probe_now) = (build.fields().len(), probe.fields().len());
        let widths = [(width, build_now), (probe_width, probe_now)];
        let kept = kept_columns(join.kind, widths);
        let plan = Plan::Join(Box::new(Join { build, probe, keys, residual, ..join }));
        match kept.len() == plan.fields().len() {
            true => Some(plan),
            false => project_columns(plan, &kept),
        }
    }

    /// Expressions with their requests as columns of a plan, which has further ones for that.
    fn provided(&mut self, mut plan: Plan, exprs: Vec<Expr>) -> Option<(Plan, Vec<Expr>)> {
        let requests: BTreeSet<usize> = exprs.iter().flat_map(requested).collect();
        let mut places = Vec::new();
        for request in requests {
            let (wider, place) = self.provide(plan, request)?;
            plan = wider;
            places.push((request, place));
        }
        if places.is_empty() {
            return Some((plan, exprs));
        }
        let fields = plan.fields();
        let moved = |index: usize| match index.checked_sub(REQUESTS) {
            Some(request) => {
                places.iter().find(|(known, _)| *known == request).map_or(usize::MAX, |(_, place)| *place)
            }
            None => index,
        };
        let exprs = exprs.iter().map(|expr| moved_columns(expr, &moved, &fields)).collect();
        Some((plan, exprs))
    }

    /// A plan with a request as a further column behind its own, or where it is already.
    fn provide(&mut self, plan: Plan, request: usize) -> Option<(Plan, usize)> {
        let scan = self.requests.get(request)?.scan;
        if !self.reaches(&plan, scan) {
            return self.refuse(request);
        }
        match plan {
            Plan::Scan(mut scan) => {
                let asked = self.requests.get(request)?;
                let table = self.tables.get_mut(scan.source).and_then(Arc::get_mut);
                let made = table.and_then(|table| {
                    let derived = Derived::new(&asked.expr, table.stored()).ok()?;
                    let nullable = derived.field().is_nullable();
                    Some((table.derive(derived), nullable))
                });
                let Some((column, nullable)) = made else { return self.refuse(request) };
                let known = scan.columns.iter().position(|known| *known == column);
                let place = known.unwrap_or(scan.columns.len());
                if known.is_none() {
                    scan.columns.push(column);
                    let nullable = nullable || asked.field.nullable;
                    scan.fields.push(Field { nullable, ..asked.field.clone() });
                }
                Some((Plan::Scan(scan), place))
            }
            Plan::Filter { input, predicate } => {
                let (input, place) = self.provide(*input, request)?;
                Some((Plan::Filter { input: Box::new(input), predicate }, place))
            }
            Plan::Sort { input, keys, fetch } => {
                let (input, place) = self.provide(*input, request)?;
                Some((Plan::Sort { input: Box::new(input), keys, fetch }, place))
            }
            Plan::Scalars { input, subqueries } => {
                let (input, place) = self.provide(*input, request)?;
                Some((Plan::Scalars { input: Box::new(input), subqueries }, place))
            }
            Plan::Project { input, mut exprs, mut names } => {
                let (input, place) = self.provide(*input, request)?;
                let field = input.fields().get(place)?.clone();
                let known = exprs.iter().position(|expr| expr.kind == ExprKind::Column(place));
                let index = known.unwrap_or(exprs.len());
                if known.is_none() {
                    exprs.push(Expr::column(place, field.data_type, field.nullable));
                    names.push(field.name);
                }
                Some((Plan::Project { input: Box::new(input), exprs, names }, index))
            }
            Plan::Join(join) => self.provide_joined(*join, request),
            _ => self.refuse(request),
        }
    }

    fn provide_joined(&mut self, join: Join, request: usize) -> Option<(Plan, usize)> {
        let scan = self.requests.get(request)?.scan;
        let Join { mut build, mut probe, mut residual, .. } = join.clone();
        let (width, probe_width) = (build.fields().len(), probe.fields().len());
        let on_build = self.reaches(&build, scan);
        let place = match on_build {
            true => {
                let (plan, place) = self.provide(build, request)?;
                build = plan;
                place
            }
            false => {
                let (plan, place) = self.provide(probe, request)?;
                probe = plan;
                place
            }
        };
        let wider = build.fields().len();
        if let Some(predicate) = &mut residual {
            let fields = [build.fields(), probe.fields()].concat();
            let moved = |index: usize| if index >= width { index - width + wider } else { index };
            *predicate = moved_columns(predicate, &moved, &fields);
        }
        let probe_now = probe.fields().len();
        let mut kept = kept_columns(join.kind, [(width, wider), (probe_width, probe_now)]);
        let index = match (on_build, join.kind) {
            (true, _) => place,
            (false, JoinKind::ProbeSemi | JoinKind::ProbeAnti | JoinKind::ProbeMark) => place,
            (false, _) => wider + place,
        };
        let plan = Plan::Join(Box::new(Join { build, probe, residual, ..join }));
        if kept.len() == plan.fields().len() {
            return Some((plan, index));
        }
        let known = kept.iter().position(|column| *column == index);
        let place = known.unwrap_or(kept.len());
        if known.is_none() {
            kept.push(index);
        }
        Some((project_columns(plan, &kept)?, place))
    }

    /// Whether a column of a scan can be handed up to a plan's rows.
    fn reaches(&self, plan: &Plan, scan: usize) -> bool {
        match plan {
            Plan::Scan(found) => self.scans.get(found.source) == Some(&scan),
            Plan::Filter { input, .. } | Plan::Project { input, .. } | Plan::Scalars { input, .. } => {
                self.reaches(input, scan)
            }
            Plan::Sort { input, fetch: None, .. } => self.reaches(input, scan),
            Plan::Join(join) => match join.kind {
                JoinKind::BuildSemi | JoinKind::BuildAnti | JoinKind::BuildMark => {
                    self.reaches(&join.build, scan)
                }
                JoinKind::ProbeSemi | JoinKind::ProbeAnti | JoinKind::ProbeMark => {
                    self.reaches(&join.probe, scan)
                }
                _ => self.reaches(&join.build, scan) != self.reaches(&join.probe, scan),
            },
            Plan::Sort { .. } | Plan::Limit { .. } | Plan::Aggregate { .. } | Plan::Union { .. } => false,
        }
    }
}

/// The columns that a join had before its sides got further ones: `(before, now)` of the build and the probe side.
fn kept_columns(kind: JoinKind, [(build, build_now), (probe, probe_now)]: [(usize, usize); 2]) -> Vec<usize> {
    use JoinKind::*;
    match kind {
        Inner | BuildOuter | ProbeOuter | FullOuter => {
            (0..build).chain(build_now..build_now + probe).collect()
        }
        BuildSemi | BuildAnti => (0..build).collect(),
        ProbeSemi | ProbeAnti => (0..probe).collect(),
        BuildMark => (0..build).chain([build_now]).collect(),
        ProbeMark => (0..probe).chain([probe_now]).collect(),
    }
}

/// An expression whose columns stand elsewhere.
fn moved_columns(expr: &Expr, moved: &dyn Fn(usize) -> usize, fields: &[Field]) -> Expr {
    substitute(expr, &|e| match e.kind {
        ExprKind::Column(index) => {
            let index = moved(index);
            let nullable = fields.get(index).map_or(e.nullable, |field| field.nullable);
            Some(Expr::column(index, e.data_type.clone(), nullable))
        }
        _ => None,
    })
}

/// The plan with its first columns only.
fn cut(plan: Plan, width: usize) -> Option<Plan> {
    match plan.fields().len() == width {
        true => Some(plan),
        false => project_columns(plan, &(0..width).collect::<Vec<_>>()),
    }
}
