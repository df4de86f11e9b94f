//! Expressions that do not compile become columns of the table that they read (`crate::derived`).
//!
//! While a plan is translated, such an expression is pushed down DataFusion's operators to the one scan that it reads, and
//! stands in Kelpie's plan as a column beyond all others. Once the whole plan is there, each of these is added to its scan,
//! and handed up from there to where it is used. What nothing but the result has is left to DataFusion, which computes it for
//! the rows of the result only.

mod add;
mod request;

use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::unnest::UnnestExec;
use kelpie_compile::expr::{Expr, ExprKind, children, with_children};
use kelpie_compile::lower::check;
use kelpie_compile::types::Field;

pub(super) use self::add::added;
pub(super) use self::request::{Below, Deriver, REQUESTS, Request};
use super::expr::ExprTranslator;
use super::translator::Translator;
use crate::derived::{Derived, keeps_null, mapped};
use crate::exec::KelpieExec;
use crate::join_order::rows_estimate;
use crate::node::{Node, pass_through};
use crate::source::ScanTable;
use crate::types;
use crate::unnested::Unnested;

/// Where filters let fewer rows than this share of the table come to an expression, it is computed for those only.
const LEAST_SHARE: f64 = 0.1;

/// Up to this share it is too, until it is asked for again and again: nobody knows how often it will be.
const SHARE_FOR_NOW: f64 = 0.5;

type PhysicalRef = Arc<dyn PhysicalExpr>;

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
        let Located { scan, expr, derived, conditions } = match located(e, deriver.below) {
            Ok(located) => located,
            Err(None) => return None,
            Err(Some(reason)) => return self.refuse(e, &format!("not a column of its own: {reason}")),
        };
        if conditions.is_empty() {
            derived.is_computed_whole();
        }
        let reasons = self.reasons.split_off(first);
        let field = Field { name: e.to_string(), data_type: data_type.clone(), nullable };
        let below = match deriver.below {
            Below::Node(node) => address(node),
            Below::Sides(..) | Below::Table(_) => 0,
        };
        deriver.requests.push(Request { scan, below, expr, conditions, is_element: false, field, reasons });
        Some(Expr::column(REQUESTS + deriver.requests.len() - 1, data_type, nullable))
    }
}

/// An expression over the table of a scan.
struct Located {
    /// The address of the scan's node.
    scan: usize,
    expr: PhysicalRef,
    derived: Derived,
    /// As in [`Request`].
    conditions: Vec<PhysicalRef>,
}

/// The scan that an expression reads, and the expression over its table; else why not, where that is worth a line.
fn located(e: &PhysicalRef, below: Below<'_>) -> Result<Located, Option<String>> {
    let (node, expr) = match below {
        Below::Table(scan) => {
            let table = table(scan, None).map_err(Some)?;
            return checked((scan, &table), Arc::clone(e), Vec::new()).map_err(Some);
        }
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
    let mut passed = Passed::default();
    let (scan_node, expr) = pushed(expr, node, &mut passed)?;
    let Passed { filters, unnest } = passed;
    let scan = scan_node.downcast_ref::<DataSourceExec>().ok_or(None)?;
    let table = table(scan, unnest.as_ref()).map_err(Some)?;
    let checked = |expr, conditions| checked((scan, &table), expr, conditions).map_err(Some);
    let share = |node: &Node| match (rows_estimate(node), rows_estimate(&scan_node)) {
        (Some(here), Some(all)) if all > 0.0 => here / all,
        _ => 1.0,
    };
    let kept = filters.first().map_or(1.0, share);
    let conditions = if kept < SHARE_FOR_NOW { conditions(&filters, &table) } else { None };
    if (conditions.is_none() || kept >= LEAST_SHARE) && share(node) < LEAST_SHARE {
        return Err(Some("less than a tenth of the table's rows come to it".into()));
    }
    let located = checked(expr, conditions.unwrap_or_default())?;
    if kept >= LEAST_SHARE && !located.conditions.is_empty() {
        let part: Vec<String> = located.conditions.iter().map(ToString::to_string).collect();
        if !located.derived.is_seldom_asked_for(&part.join(" AND ")) {
            return checked(located.expr, Vec::new());
        }
    }
    Ok(located)
}

/// A condition over a node's columns as one over the table of the one scan below it, and that scan's address.
pub(super) fn over_table(condition: &PhysicalRef, node: &Node) -> Option<(usize, PhysicalRef)> {
    let (scan, condition) = pushed(Arc::clone(condition), node, &mut Passed::default()).ok()?;
    Some((std::ptr::from_ref(scan.downcast_ref::<DataSourceExec>()?).addr(), condition))
}

/// The table of a scan, with the elements of what becomes rows above it.
fn table(scan: &DataSourceExec, unnest: Option<&Node>) -> Result<ScanTable, String> {
    let mut table = super::scan::table(scan).ok_or("the table is not read by Kelpie")?;
    if let Some(unnest) = unnest.and_then(|node| node.downcast_ref::<UnnestExec>()) {
        let (of, unnested) = unnested(unnest)?;
        if of.downcast_ref::<DataSourceExec>().is_some_and(|of| std::ptr::eq(of, scan)) {
            table.unnest(unnested);
        }
    }
    Ok(table)
}

/// The scan whose lists become rows, and these lists over its table.
pub(super) fn unnested(unnest: &UnnestExec) -> Result<(Node, Unnested), String> {
    if !unnest.struct_column_indices().is_empty() {
        return Err("structs become columns".into());
    }
    let (mut lists, mut of) = (Vec::new(), None::<(Node, ScanTable)>);
    let schema = unnest.input().schema();
    for list in unnest.list_column_indices() {
        if list.depth != 1 {
            return Err("lists of lists become rows at once".into());
        }
        let name = schema.field(list.index_in_input_schema).name();
        let column = Arc::new(Column::new(name, list.index_in_input_schema)) as PhysicalRef;
        let mut passed = Passed::default();
        let pushed = pushed(column, unnest.input(), &mut passed);
        let (node, expr) = pushed.map_err(|why| why.unwrap_or("its lists are of no table".into()))?;
        let scan = node.downcast_ref::<DataSourceExec>().ok_or("its lists are of no table")?;
        if passed.unnest.is_some() {
            return Err("rows of elements become rows again".into());
        }
        if of.as_ref().is_some_and(|(known, _)| !Arc::ptr_eq(known, &node)) {
            return Err("its lists are of several tables".into());
        }
        let (_, table) = of.get_or_insert((Arc::clone(&node), table(scan, None)?));
        let list = Derived::new(&expr, table.stored())?;
        if let Some(reason) = list.failure(table.identity()) {
            return Err(format!("{}, computed for every row, fails: {reason}", list.field().name()));
        }
        lists.push(list);
    }
    let (node, table) = of.ok_or("it has no lists")?;
    let unnested = Unnested::new(lists, table.stored().fields().len(), unnest.options().null_handling)?;
    Ok((node, unnested))
}

/// Whether an expression over a scan's table may be a column of it.
fn checked(
    (scan, table): (&DataSourceExec, &ScanTable),
    expr: PhysicalRef,
    conditions: Vec<PhysicalRef>,
) -> Result<Located, String> {
    let derived = Derived::new(&expr, table.stored())?;
    match derived.failure(table.identity()) {
        Some(reason) if conditions.is_empty() => Err(format!("computed for every row, it fails: {reason}")),
        _ => {
            let scan = std::ptr::from_ref(scan).addr();
            Ok(Located { scan, expr, derived, conditions })
        }
    }
}

/// The conditions of filters above a scan over its table, the lowest first; nothing where one of them cannot be evaluated
/// while the table is read.
fn conditions(filters: &[Node], table: &ScanTable) -> Option<Vec<PhysicalRef>> {
    let condition = |node: &Node| {
        let filter = node.downcast_ref::<FilterExec>()?;
        let mut passed = Passed::default();
        let (_, condition) = pushed(Arc::clone(filter.predicate()), filter.input(), &mut passed).ok()?;
        Derived::of_this_query(&condition, table.stored()).is_ok().then_some(condition)
    };
    filters.iter().rev().map(condition).collect()
}

/// What is on the way from a node down to a scan.
#[derive(Debug, Default)]
struct Passed {
    /// The filters that nothing but the scan's rows come to, the lowest last.
    filters: Vec<Node>,
    /// What makes rows of the scan's lists.
    unnest: Option<Node>,
}

/// On the way down positions from here on stand for elements of lists that become rows.
const ELEMENTS: usize = 1 << 41;

/// An expression over the rows below a node: each column is replaced, but for elements of lists.
fn below(expr: &PhysicalRef, replace: &dyn Fn(&Column) -> Option<PhysicalRef>) -> Option<PhysicalRef> {
    mapped(expr, &|column| match column.index() >= ELEMENTS {
        true => Some(Arc::new(column.clone()) as PhysicalRef),
        false => replace(column),
    })
}

/// The scan below a node, and an expression over the node's columns as one over the scan's table.
fn pushed(
    expr: PhysicalRef,
    node: &Node,
    passed: &mut Passed,
) -> Result<(Node, PhysicalRef), Option<String>> {
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        let width = super::scan::table(scan).map_or(0, |table| table.stored().fields().len());
        let expr = mapped(&expr, &|column| match column.index().checked_sub(ELEMENTS) {
            Some(list) => Some(Arc::new(Column::new("", width + list)) as PhysicalRef),
            None => table_column(scan, column.index()),
        });
        return Ok((Arc::clone(node), expr.ok_or(None)?));
    }
    if let Some(unnest) = node.downcast_ref::<UnnestExec>() {
        let lists = unnest.list_column_indices();
        let expr = below(&expr, &|column| {
            let list = lists.iter().position(|list| list.index_in_input_schema == column.index());
            let place = list.map_or(column.index(), |list| ELEMENTS + list);
            Some(Arc::new(Column::new(column.name(), place)) as PhysicalRef)
        });
        if passed.unnest.replace(Arc::clone(node)).is_some() || !unnest.struct_column_indices().is_empty() {
            return Err(None);
        }
        return pushed(expr.ok_or(None)?, unnest.input(), passed);
    }
    if let Some(compiled) = node.downcast_ref::<KelpieExec>() {
        return pushed(expr, compiled.original(), passed);
    }
    if node.fetch().is_some() {
        return Err(None);
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let expr = match filter.projection() {
            Some(columns) => at(&expr, columns.as_ref()).ok_or(None)?,
            None => expr,
        };
        passed.filters.push(Arc::clone(node));
        return pushed(expr, filter.input(), passed);
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let through = |column: &Column| Some(Arc::clone(&projection.expr().get(column.index())?.expr));
        return pushed(below(&expr, &through).ok_or(None)?, projection.input(), passed);
    }
    if let Some(input) = pass_through(node) {
        return pushed(expr, input, passed);
    }
    if node.is::<SortExec>() || node.is::<SortPreservingMergeExec>() {
        let children = node.children();
        return pushed(expr, children.first().ok_or(None)?, passed);
    }
    if let Some(scalars) = node.downcast_ref::<ScalarSubqueryExec>() {
        return pushed(expr, scalars.input(), passed);
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
    // Elements are of a side that a join does not tell.
    if columns.iter().any(|column| column.index() >= ELEMENTS) {
        return Err(None);
    }
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
    passed.filters.clear();
    pushed(expr, side, passed)
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
    below(expr, &|column| {
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
