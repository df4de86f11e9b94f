//! Joins. DataFusion's left side is Kelpie's build side.

use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use kelpie_compile::expr::Expr;
use kelpie_compile::plan::{Join, JoinKind, Plan};

use super::derive::Below;
use super::plans::project_columns;
use super::translator::Translator;
use crate::node::Node;

/// What a join says of its pairs.
struct Condition<'a> {
    join_type: JoinType,
    on: &'a [(PhysicalExprRef, PhysicalExprRef)],
    filter: Option<&'a JoinFilter>,
    null_equality: NullEquality,
    null_aware: bool,
}

/// A join of any of DataFusion's four operators, without its limit; `None` where the node is none of them.
pub(super) fn join(translator: &mut Translator, node: &Node) -> Option<Option<Plan>> {
    Some(if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        hash_join(translator, join)
    } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let condition = Condition { filter: join.filter(), ..pairs(*join.join_type()) };
        let plan = translator.join(join.left(), join.right(), &condition, "NestedLoopJoinExec");
        projected(plan, join.projection().as_deref())
    } else if let Some(join) = node.downcast_ref::<CrossJoinExec>() {
        translator.join(join.left(), join.right(), &pairs(JoinType::Inner), "CrossJoinExec")
    } else if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
        let condition = Condition {
            on: join.on(),
            filter: join.filter().as_ref(),
            null_equality: join.null_equality(),
            ..pairs(join.join_type())
        };
        translator.join(unsorted(join.left()), unsorted(join.right()), &condition, "SortMergeJoinExec")
    } else {
        return None;
    })
}

/// Every pair of rows.
fn pairs(join_type: JoinType) -> Condition<'static> {
    let null_equality = NullEquality::NullEqualsNothing;
    Condition { join_type, on: &[], filter: None, null_equality, null_aware: false }
}

fn hash_join(translator: &mut Translator, join: &HashJoinExec) -> Option<Plan> {
    let condition = Condition {
        join_type: *join.join_type(),
        on: join.on(),
        filter: join.filter(),
        null_equality: join.null_equality(),
        null_aware: join.null_aware,
    };
    let plan = translator.join(join.left(), join.right(), &condition, "HashJoinExec");
    projected(plan, join.projection.as_deref())
}

fn projected(plan: Option<Plan>, projection: Option<&[usize]>) -> Option<Plan> {
    match projection {
        Some(columns) => project_columns(plan?, columns),
        None => plan,
    }
}

/// The input of a sort that only serves a merge join.
fn unsorted(node: &Node) -> &Node {
    match node.downcast_ref::<SortExec>() {
        Some(sort) if sort.fetch().is_none() => sort.input(),
        _ => node,
    }
}

impl Translator {
    fn join(
        &mut self,
        left: &Node,
        right: &Node,
        condition: &Condition<'_>,
        operator: &'static str,
    ) -> Option<Plan> {
        let (build, probe) = (self.plan(left), self.plan(right));
        let keys: Vec<_> =
            condition.on.iter().map(|(l, r)| self.join_key(left, l, right, r, operator)).collect();
        let residual = match condition.filter {
            Some(filter) => self.residual(filter, left, right, operator).map(Some),
            None => Some(None),
        };
        Some(Plan::Join(Box::new(Join {
            build: build?,
            probe: probe?,
            kind: kind(condition.join_type),
            keys: keys.into_iter().collect::<Option<_>>()?,
            residual: residual?,
            null_equal: condition.null_equality == NullEquality::NullEqualsNull,
            null_aware: condition.null_aware,
        })))
    }

    fn join_key(
        &mut self,
        left: &Node,
        left_key: &PhysicalExprRef,
        right: &Node,
        right_key: &PhysicalExprRef,
        operator: &'static str,
    ) -> Option<(Expr, Expr)> {
        let build = self.exprs_over(Below::Node(left), &left.schema(), operator).expr(left_key);
        let probe = self.exprs_over(Below::Node(right), &right.schema(), operator).expr(right_key);
        let (build, probe) = (build?, probe?);
        if build.data_type != probe.data_type {
            let types = format!("{} and {} are not joined", build.data_type, probe.data_type);
            return self.refuse(&format!("{operator}: {left_key} = {right_key}: {types}"));
        }
        Some((build, probe))
    }

    /// The filter indexes columns of its own, which the join takes from both sides.
    fn residual(
        &mut self,
        filter: &JoinFilter,
        left: &Node,
        right: &Node,
        operator: &'static str,
    ) -> Option<Expr> {
        let (build, probe) = (left.schema().fields().len(), right.schema().fields().len());
        let position = |column: &ColumnIndex| match column.side {
            JoinSide::Left if column.index < build => column.index,
            JoinSide::Right if column.index < probe => build + column.index,
            // Out of range: the translator refuses an expression that reads it.
            _ => usize::MAX,
        };
        let positions: Vec<usize> = filter.column_indices().iter().map(position).collect();
        let below = Below::Sides(left, right, filter.column_indices());
        let mut translator = self.exprs_over(below, filter.schema(), operator);
        translator.positions = Some(&positions);
        translator.expr(filter.expression())
    }
}

fn kind(join_type: JoinType) -> JoinKind {
    match join_type {
        JoinType::Inner => JoinKind::Inner,
        JoinType::Left => JoinKind::BuildOuter,
        JoinType::Right => JoinKind::ProbeOuter,
        JoinType::Full => JoinKind::FullOuter,
        JoinType::LeftSemi => JoinKind::BuildSemi,
        JoinType::LeftAnti => JoinKind::BuildAnti,
        JoinType::LeftMark => JoinKind::BuildMark,
        JoinType::RightSemi => JoinKind::ProbeSemi,
        JoinType::RightAnti => JoinKind::ProbeAnti,
        JoinType::RightMark => JoinKind::ProbeMark,
    }
}
