//! Outer joins of which only the rows without a match are kept: `a LEFT JOIN b ON a.k = b.k WHERE b.k IS NULL` has the rows of an anti join,
//! and NULLs for `b`. An anti join makes no pairs, reads nothing of `b` but its keys, and takes part in the order of joins.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, NullEquality, ScalarValue};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::{Column, IsNullExpr, Literal};
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;

type Node = Arc<dyn ExecutionPlan>;

/// The plan with anti joins in place of such outer joins.
pub(crate) fn with_anti_joins(plan: &Node) -> Result<Node> {
    let made = Arc::clone(plan).transform_up(|node| {
        Ok(match anti_join(&node)? {
            Some(anti) => Transformed::yes(anti),
            None => Transformed::no(node),
        })
    });
    Ok(made?.data)
}

/// An outer join whose one side may be missing, or a choice of its columns.
struct Outer<'a> {
    join: &'a HashJoinExec,
    /// What its columns are among those of both sides.
    columns: Vec<usize>,
    /// The left side is kept, and the right one may be missing.
    keeps_left: bool,
    /// The first column of the side that is kept among those of both, and how many it has.
    kept: (usize, usize),
}

impl Outer<'_> {
    fn of(node: &Node) -> Option<Outer<'_>> {
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            let outer = Outer::of(projection.input())?;
            let chosen = projection.expr().iter().map(|e| e.expr.downcast_ref::<Column>().map(Column::index));
            let columns = chosen.map(|column| outer.columns.get(column?).copied()).collect::<Option<_>>()?;
            return Some(Outer { columns, ..outer });
        }
        let join = node.downcast_ref::<HashJoinExec>()?;
        let (left, right) = (join.left().schema().fields().len(), join.right().schema().fields().len());
        let (keeps_left, kept) = match join.join_type() {
            JoinType::Left => (true, (0, left)),
            JoinType::Right => (false, (left, right)),
            _ => return None,
        };
        let is_plain = join.null_equality() == NullEquality::NullEqualsNothing && node.fetch().is_none();
        let columns = match &join.projection {
            Some(columns) => columns.to_vec(),
            None => (0..left + right).collect(),
        };
        is_plain.then_some(Outer { join, columns, keeps_left, kept })
    }

    /// Its place on the side that is kept, if a column of both sides is there.
    fn place_of_kept(&self, of_both: usize) -> Option<usize> {
        let (first, width) = self.kept;
        of_both.checked_sub(first).filter(|place| *place < width)
    }

    /// Whether a column is NULL just where its other side is missing: it is a key there, or never NULL by itself.
    fn tells_missing(&self, column: usize) -> bool {
        let of_both = self.columns.get(column).filter(|column| self.place_of_kept(**column).is_none());
        let Some(of_both) = of_both.copied() else { return false };
        let (side, place) = match self.keeps_left {
            true => (self.join.right(), of_both - self.kept.1),
            false => (self.join.left(), of_both),
        };
        let is_key = self.join.on().iter().any(|(left, right)| {
            let key = if self.keeps_left { right } else { left };
            key.downcast_ref::<Column>().is_some_and(|key| key.index() == place)
        });
        is_key || !side.schema().field(place).is_nullable()
    }

    /// The rows without a match, with some of the columns, which have this schema.
    fn anti(&self, columns: &[usize], schema: &SchemaRef) -> Result<Node> {
        let join = self.join;
        let kind = if self.keeps_left { JoinType::LeftAnti } else { JoinType::RightAnti };
        let anti = HashJoinExec::try_new(
            Arc::clone(join.left()),
            Arc::clone(join.right()),
            join.on().to_vec(),
            join.filter().cloned(),
            &kind,
            None,
            *join.partition_mode(),
            join.null_equality(),
            false,
        )?;
        let anti_schema = anti.schema();
        let exprs = columns.iter().map(|column| {
            let field = schema.field(*column);
            let place = self.columns.get(*column).and_then(|column| self.place_of_kept(*column));
            let expr: Arc<dyn PhysicalExpr> = match place {
                Some(place) => Arc::new(Column::new(anti_schema.field(place).name(), place)),
                None => Arc::new(Literal::new(ScalarValue::try_from(field.data_type())?)),
            };
            Ok(ProjectionExpr { expr, alias: field.name().clone() })
        });
        let exprs = exprs.collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(ProjectionExec::try_new(exprs, Arc::new(anti))?))
    }
}

/// The anti join that a filter above an outer join is; `None` where it is none.
fn anti_join(node: &Node) -> Result<Option<Node>> {
    let Some(filter) = node.downcast_ref::<FilterExec>().filter(|_| node.fetch().is_none()) else {
        return Ok(None);
    };
    let Some(outer) = Outer::of(filter.input()) else { return Ok(None) };
    let tells_missing = |condition: &&Arc<dyn PhysicalExpr>| {
        let column =
            condition.downcast_ref::<IsNullExpr>().and_then(|null| null.arg().downcast_ref::<Column>());
        column.is_some_and(|column| outer.tells_missing(column.index()))
    };
    let (telling, others): (Vec<_>, Vec<_>) =
        split_conjunction(filter.predicate()).into_iter().partition(tells_missing);
    if telling.is_empty() {
        return Ok(None);
    }
    let schema = filter.input().schema();
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let columns = filter.projection().as_ref().map_or(all.as_slice(), |columns| columns.as_ref());
    if others.is_empty() {
        return outer.anti(columns, &schema).map(Some);
    }
    let input = outer.anti(&all, &schema)?;
    let rest = FilterExecBuilder::new(conjunction(others.into_iter().cloned()), input);
    let rest = rest.apply_projection(Some(columns.to_vec()))?.build()?;
    Ok(Some(Arc::new(rest)))
}
