//! A tree of joins as relations, reducers and conditions.
//!
//! The tree is made of inner joins, cross products, semi and anti joins, and of the filters and projections (of columns
//! alone) between them. Its leaves are whatever else stands below. Columns of all relations are numbered through:
//! expressions of the flat form read those numbers.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::utils::{collect_columns, split_conjunction};
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;

use super::enumerate::JoinTree;
use super::failing::may_fail;
use super::graph::NodeSet;

type Node = Arc<dyn ExecutionPlan>;
type Expr = Arc<dyn PhysicalExpr>;

/// A tree of joins without its order.
#[derive(Debug, Default)]
pub(crate) struct Flat {
    /// By node.
    pub items: Vec<Item>,
    /// Relation and position there of each column.
    pub columns: Vec<(usize, usize)>,
    /// Pairs of columns that are equal.
    pub equalities: Vec<(usize, usize)>,
    /// Everything else that must be true.
    pub predicates: Vec<Predicate>,
}

/// A node of the flat form.
#[derive(Debug)]
pub(crate) enum Item {
    /// A plan; its columns are numbered from `first`.
    Relation { plan: Node, first: usize },
    /// The other side of a semi or anti join.
    Reducer(ReducerItem),
}

impl Item {
    /// Its plan.
    pub fn plan(&self) -> &Node {
        match self {
            Item::Relation { plan, .. } => plan,
            Item::Reducer(reducer) => &reducer.plan,
        }
    }
}

/// The other side of a semi or anti join.
#[derive(Debug)]
pub(crate) struct ReducerItem {
    pub plan: Node,
    pub anti: bool,
    /// A column of the side that is kept, and an expression over `plan`.
    pub keys: Vec<(usize, PhysicalExprRef)>,
    pub filter: Option<ReducerFilter>,
    pub null_equality: NullEquality,
    pub null_aware: bool,
    /// Nodes that must be joined first.
    pub needs: NodeSet,
}

/// The residual condition of a reducer: an expression over columns of its own.
#[derive(Debug)]
pub(crate) struct ReducerFilter {
    pub expression: Expr,
    pub schema: SchemaRef,
    pub columns: Vec<FilterColumn>,
}

/// Where a residual condition takes a column from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FilterColumn {
    /// The side that is kept; a column of the flat form.
    Kept(usize),
    /// The reducer.
    Reducer(usize),
}

/// A condition over numbered columns.
#[derive(Debug)]
pub(crate) struct Predicate {
    pub expr: Expr,
    /// Nodes that must be joined first.
    pub nodes: NodeSet,
    /// See [`may_fail`].
    pub may_fail: bool,
}

/// A subtree: its output columns and its order.
pub(crate) struct Subtree {
    pub outputs: Vec<usize>,
    pub tree: JoinTree,
}

/// What a node is to the tree.
enum Shape<'a> {
    Inner(&'a HashJoinExec),
    Loop(&'a NestedLoopJoinExec),
    Cross(&'a CrossJoinExec),
    /// `true` where the left side is kept.
    Reduce(&'a HashJoinExec, bool),
    Project(&'a ProjectionExec),
    Filter(&'a FilterExec),
}

/// Whether a node belongs to a tree of joins.
pub(crate) fn is_tree(node: &Node) -> bool {
    shape(node).is_some()
}

fn shape(node: &Node) -> Option<Shape<'_>> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return hash_join_shape(join).filter(|_| node.fetch().is_none());
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let plain = projection.expr().iter().all(|e| e.expr.is::<Column>());
        return (plain && is_tree(projection.input())).then_some(Shape::Project(projection));
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let movable = filter.fetch().is_none() && !is_volatile(filter.predicate());
        return (movable && is_tree(filter.input())).then_some(Shape::Filter(filter));
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let movable = join.filter().is_none_or(|filter| !is_volatile(filter.expression()));
        return (*join.join_type() == JoinType::Inner && movable).then_some(Shape::Loop(join));
    }
    node.downcast_ref::<CrossJoinExec>().map(Shape::Cross)
}

fn hash_join_shape(join: &HashJoinExec) -> Option<Shape<'_>> {
    let kept_left = match join.join_type() {
        JoinType::Inner => None,
        JoinType::LeftSemi | JoinType::LeftAnti => Some(true),
        JoinType::RightSemi | JoinType::RightAnti => Some(false),
        _ => return None,
    };
    if join.filter().is_some_and(|filter| is_volatile(filter.expression())) {
        return None;
    }
    let (left, right) = (join.left().schema(), join.right().schema());
    let movable = |(l, r): &(PhysicalExprRef, PhysicalExprRef)| {
        // Keys of two types, which some plans have, are an error as soon as there are rows on both sides.
        let same_type = match (l.data_type(&left), r.data_type(&right)) {
            (Ok(left), Ok(right)) => left == right,
            _ => false,
        };
        let columns =
            (l.is::<Column>() || kept_left == Some(false)) && (r.is::<Column>() || kept_left == Some(true));
        same_type && columns
    };
    if !join.on().iter().all(movable) {
        return None;
    }
    match kept_left {
        Some(kept_left) => Some(Shape::Reduce(join, kept_left)),
        None => (join.null_equality() == NullEquality::NullEqualsNothing).then_some(Shape::Inner(join)),
    }
}

/// Whether an expression gives another value each time.
pub(crate) fn is_volatile(expr: &Expr) -> bool {
    datafusion::physical_expr_common::physical_expr::is_volatile(expr)
}

/// The node with each leaf of its tree replaced by what `map` makes of it. A reducer is a leaf, whatever it is.
pub(crate) fn map_leaves(node: &Node, map: &mut dyn FnMut(&Node) -> Result<Node>) -> Result<Node> {
    let reducer = match shape(node) {
        None => return map(node),
        Some(Shape::Reduce(_, kept_left)) => Some(usize::from(kept_left)),
        Some(_) => None,
    };
    let children = node.children().into_iter().enumerate();
    let children = children.map(|(i, child)| match reducer == Some(i) {
        true => map(child),
        false => map_leaves(child, map),
    });
    let children = children.collect::<Result<Vec<_>>>()?;
    replace_children_if_necessary(Arc::clone(node), children)
}

impl Flat {
    /// Adds a tree; `None` where it has more nodes than a graph can hold, or an expression that cannot be read.
    pub fn add(&mut self, node: &Node) -> Option<Subtree> {
        match shape(node) {
            None => self.relation(node),
            Some(Shape::Inner(join)) => {
                let (left, right) = (self.add(join.left())?, self.add(join.right())?);
                for (l, r) in join.on() {
                    let (l, r) = (l.downcast_ref::<Column>()?, r.downcast_ref::<Column>()?);
                    let pair = (*left.outputs.get(l.index())?, *right.outputs.get(r.index())?);
                    self.equalities.push(pair);
                }
                self.inner(left, right, join.filter(), join.projection.as_deref())
            }
            Some(Shape::Loop(join)) => {
                let (left, right) = (self.add(join.left())?, self.add(join.right())?);
                self.inner(left, right, join.filter(), join.projection().as_deref())
            }
            Some(Shape::Cross(join)) => {
                let (left, right) = (self.add(join.left())?, self.add(join.right())?);
                self.inner(left, right, None, None)
            }
            Some(Shape::Reduce(join, kept_left)) => self.reduce(join, kept_left),
            Some(Shape::Project(projection)) => {
                let input = self.add(projection.input())?;
                let column = |e: &Expr| input.outputs.get(e.downcast_ref::<Column>()?.index()).copied();
                let outputs = projection.expr().iter().map(|e| column(&e.expr)).collect::<Option<_>>()?;
                Some(Subtree { outputs, ..input })
            }
            Some(Shape::Filter(filter)) => {
                let input = self.add(filter.input())?;
                self.conjuncts(
                    filter.predicate(),
                    &filter.input().schema(),
                    &|i| input.outputs.get(i).copied(),
                    input.tree.nodes(),
                )?;
                Some(Subtree {
                    outputs: project(input.outputs, filter.projection().as_deref())?,
                    tree: input.tree,
                })
            }
        }
    }

    fn next(&self) -> Option<usize> {
        Some(self.items.len()).filter(|n| *n < NodeSet::CAPACITY)
    }

    fn relation(&mut self, node: &Node) -> Option<Subtree> {
        let (item, first) = (self.next()?, self.columns.len());
        let width = node.schema().fields().len();
        self.columns.extend((0..width).map(|i| (item, i)));
        self.items.push(Item::Relation { plan: Arc::clone(node), first });
        Some(Subtree { outputs: (first..first + width).collect(), tree: JoinTree::Leaf(item) })
    }

    fn inner(
        &mut self,
        left: Subtree,
        right: Subtree,
        filter: Option<&JoinFilter>,
        projection: Option<&[usize]>,
    ) -> Option<Subtree> {
        let tree = JoinTree::join(left.tree, right.tree);
        if let Some(filter) = filter {
            let column = |i: usize| {
                let column = filter.column_indices().get(i)?;
                match column.side {
                    JoinSide::Left => left.outputs.get(column.index).copied(),
                    JoinSide::Right => right.outputs.get(column.index).copied(),
                    JoinSide::None => None,
                }
            };
            self.conjuncts(filter.expression(), filter.schema(), &column, tree.nodes())?;
        }
        let outputs = [left.outputs, right.outputs].concat();
        Some(Subtree { outputs: project(outputs, projection)?, tree })
    }

    fn reduce(&mut self, join: &HashJoinExec, kept_left: bool) -> Option<Subtree> {
        let (kept, other) = if kept_left { (join.left(), join.right()) } else { (join.right(), join.left()) };
        let kept = self.add(kept)?;
        let item = self.next()?;
        let mut keys = Vec::new();
        for (l, r) in join.on() {
            let (column, inner) = if kept_left { (l, r) } else { (r, l) };
            let column = column.downcast_ref::<Column>()?;
            keys.push((*kept.outputs.get(column.index())?, Arc::clone(inner)));
        }
        let mut needs = NodeSet::default();
        let filter = match join.filter() {
            Some(filter) => {
                let side = if kept_left { JoinSide::Left } else { JoinSide::Right };
                let filter = reducer_filter(filter, side, &kept.outputs)?;
                for column in &filter.columns {
                    if let FilterColumn::Kept(column) = column {
                        needs = needs.union(NodeSet::of(self.columns.get(*column)?.0));
                    }
                }
                if can_fail(&filter.expression) {
                    needs = kept.tree.nodes();
                }
                Some(filter)
            }
            None => None,
        };
        self.items.push(Item::Reducer(ReducerItem {
            plan: Arc::clone(other),
            anti: matches!(join.join_type(), JoinType::LeftAnti | JoinType::RightAnti),
            keys,
            filter,
            null_equality: join.null_equality(),
            null_aware: join.null_aware,
            needs,
        }));
        let leaf = JoinTree::Leaf(item);
        let tree = if kept_left { JoinTree::join(kept.tree, leaf) } else { JoinTree::join(leaf, kept.tree) };
        Some(Subtree { outputs: project(kept.outputs, join.projection.as_deref())?, tree })
    }

    /// Adds the conjuncts of a predicate that stood on top of some nodes.
    fn conjuncts(
        &mut self,
        predicate: &Expr,
        schema: &Schema,
        column: &dyn Fn(usize) -> Option<usize>,
        below: NodeSet,
    ) -> Option<()> {
        for conjunct in split_conjunction(predicate) {
            let expr = replace_columns(conjunct, &|c| Some(Column::new(c.name(), column(c.index())?)))?;
            let mut nodes = NodeSet::default();
            for column in collect_columns(&expr) {
                nodes = nodes.union(NodeSet::of(self.columns.get(column.index())?.0));
            }
            // What can fail must not see rows that it did not see before: it waits for all that stood below it.
            if nodes.is_empty() || can_fail(&expr) {
                nodes = below;
            }
            let may_fail = may_fail(conjunct.as_ref(), schema);
            self.predicates.push(Predicate { expr, nodes, may_fail });
        }
        Some(())
    }
}

fn project(outputs: Vec<usize>, projection: Option<&[usize]>) -> Option<Vec<usize>> {
    match projection {
        Some(columns) => columns.iter().map(|i| outputs.get(*i).copied()).collect(),
        None => Some(outputs),
    }
}

fn reducer_filter(filter: &JoinFilter, kept: JoinSide, outputs: &[usize]) -> Option<ReducerFilter> {
    let columns = filter.column_indices().iter().map(|column| {
        Some(match column.side {
            side if side == kept => FilterColumn::Kept(*outputs.get(column.index)?),
            JoinSide::None => return None,
            _ => FilterColumn::Reducer(column.index),
        })
    });
    Some(ReducerFilter {
        expression: Arc::clone(filter.expression()),
        schema: Arc::clone(filter.schema()),
        columns: columns.collect::<Option<_>>()?,
    })
}

/// The expression with another column for each; `None` where one has none.
pub(crate) fn replace_columns(expr: &Expr, replace: &dyn Fn(&Column) -> Option<Column>) -> Option<Expr> {
    let mut known = true;
    let replaced = Arc::clone(expr).transform(|e| {
        let Some(column) = e.downcast_ref::<Column>() else { return Ok(Transformed::no(e)) };
        match replace(column) {
            Some(column) => Ok(Transformed::yes(Arc::new(column) as Expr)),
            None => {
                known = false;
                Ok(Transformed::no(e))
            }
        }
    });
    replaced.data().ok().filter(|_| known)
}

/// Whether an expression may be an error for some values: all but comparisons, logic and casts that always succeed.
fn can_fail(expr: &Expr) -> bool {
    let mut fails = false;
    let walked = expr.apply(|e| {
        let safe = e.is::<Column>()
            || e.is::<Literal>()
            || e.is::<NotExpr>()
            || e.is::<IsNullExpr>()
            || e.is::<IsNotNullExpr>()
            || e.is::<InListExpr>()
            || e.is::<LikeExpr>()
            || e.is::<ScalarSubqueryExpr>()
            || e.downcast_ref::<BinaryExpr>().is_some_and(|binary| is_safe_operator(binary.op()))
            || e.downcast_ref::<CastExpr>().is_some_and(|cast| is_safe_target(cast.cast_type()));
        fails |= !safe;
        Ok(if fails { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    fails || walked.is_err()
}

fn is_safe_operator(operator: &Operator) -> bool {
    use Operator::*;
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | And | Or | IsDistinctFrom | IsNotDistinctFrom)
}

/// Text can hold any value; only text does not always become another type.
fn is_safe_target(target: &DataType) -> bool {
    target.is_string()
}

/// An expression over one relation's columns alone, whose first has a number.
pub(crate) fn shifted(expr: &Expr, first: usize) -> Option<Expr> {
    replace_columns(expr, &|c| Some(Column::new(c.name(), c.index().checked_sub(first)?)))
}
