//! A subquery of a FROM that has no rows of its own, such as `t, unnest(t.list)`: what it makes is made of each row around it, in its place.
//! No join is needed, nor the distinct values of what it refers to.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::{
    EmptyRelation, Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, SubqueryAlias,
};

/// The rows of a join whose right side is made of each row of the left side; nothing where it is not.
pub(super) fn made_of_each_row(join: &Join, made: &mut usize) -> Result<Option<LogicalPlan>> {
    if join.join_type != JoinType::Inner {
        return Ok(None);
    }
    // What cannot be written so is a join as any other.
    let Ok(Some(rows)) = (Beside { rows: &join.left, made }).plan(&join.right) else { return Ok(None) };
    let names = join.schema.columns();
    let columns = rows.schema().columns().into_iter().zip(names).enumerate();
    let width = join.left.schema().fields().len();
    let columns = columns.map(|(place, (column, name))| match place < width {
        true => Expr::Column(column),
        false => Expr::Column(column).alias_qualified(name.relation, name.name),
    });
    let mut rows = LogicalPlanBuilder::from(rows.clone()).project(columns.collect::<Vec<_>>())?;
    let on = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
    if let Some(condition) = on.chain(join.filter.clone()).reduce(Expr::and) {
        rows = rows.filter(condition)?;
    }
    rows.build().map(Some)
}

/// Makes a plan's rows of each of some rows, whose columns come before those of the plan.
struct Beside<'a> {
    rows: &'a Arc<LogicalPlan>,
    /// Columns that have got names, of the whole statement.
    made: &'a mut usize,
}

impl Beside<'_> {
    /// The rows that a plan has for each of those around it; nothing where it has rows of its own.
    fn plan(&mut self, plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        match plan {
            LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. }) => {
                Ok(Some(self.rows.as_ref().clone()))
            }
            LogicalPlan::Subquery(subquery) => self.plan(&subquery.subquery),
            // Its columns are found by their places.
            LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => self.plan(input),
            LogicalPlan::Projection(Projection { expr, input, .. }) => {
                let Some(inner) = self.plan(input)? else { return Ok(None) };
                let mut columns: Vec<Expr> =
                    self.rows.schema().columns().into_iter().map(Expr::Column).collect();
                for expr in expr {
                    // A name that nothing else has: two projections of one name, one with a table before it, would be ambiguous.
                    *self.made += 1;
                    let inside = self.inside(expr, input, &inner)?.unalias();
                    columns.push(inside.alias(format!("__kelpie_row_{}", self.made)));
                }
                LogicalPlanBuilder::from(inner).project(columns)?.build().map(Some)
            }
            LogicalPlan::Filter(filter) => {
                let Some(inner) = self.plan(&filter.input)? else { return Ok(None) };
                let condition = self.inside(&filter.predicate, &filter.input, &inner)?;
                LogicalPlanBuilder::from(inner).filter(condition)?.build().map(Some)
            }
            LogicalPlan::Unnest(unnest) => {
                let Some(inner) = self.plan(&unnest.input)? else { return Ok(None) };
                let lists = unnest.exec_columns.iter().map(|list| self.column(list, &unnest.input, &inner));
                let Some(lists) = lists.collect::<Option<Vec<_>>>() else { return Ok(None) };
                let rows = LogicalPlanBuilder::from(inner);
                rows.unnest_columns_with_options(lists, unnest.options.clone())?.build().map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A column of a plan where its rows are made beside others.
    fn column(&self, column: &Column, plan: &LogicalPlan, made: &LogicalPlan) -> Option<Column> {
        let place = plan.schema().maybe_index_of_column(column)?;
        made.schema().columns().into_iter().nth(self.rows.schema().fields().len() + place)
    }

    /// An expression over a plan, which may refer to columns of the rows around it, where both stand beside each other.
    fn inside(&self, expr: &Expr, plan: &LogicalPlan, made: &LogicalPlan) -> Result<Expr> {
        let inside = expr.clone().transform(|expr| match &expr {
            Expr::OuterReferenceColumn(_, column) if self.rows.schema().has_column(column) => {
                Ok(Transformed::yes(Expr::Column(column.clone())))
            }
            Expr::Column(column) => match self.column(column, plan, made) {
                Some(column) => Ok(Transformed::yes(Expr::Column(column))),
                None => Ok(Transformed::no(expr)),
            },
            _ => Ok(Transformed::no(expr)),
        })?;
        Ok(inside.data)
    }
}
