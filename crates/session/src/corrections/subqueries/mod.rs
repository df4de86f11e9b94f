//! Subqueries wherever they stand, with SQL's three values of truth.
//!
//! DataFusion makes joins of EXISTS and IN that are conditions of a WHERE, and of scalar subqueries that compare columns for equality. What
//! it takes otherwise is wrong or fails: EXISTS over an aggregate, which always has a row; HAVING within a subquery; IN as a value, which
//! is NULL where it cannot be told; subqueries that compare by `<`. Here each of these becomes a column of a join with the rows around it,
//! before DataFusion looks at it.

mod dependent;
mod grouped;
mod nodes;
mod outer_joins;
mod outer_types;
mod plain;
mod row_by_row;
mod running;
mod sets;
mod single;

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema, NullEquality, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, max, min};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, exists,
    lit, not, not_exists, when,
};
use kelpie_datafusion::{LogicalRule, map_named};

use super::expressions::{has_expr, subquery_of};
use super::shared::{is_volatile, shared};
use dependent::OuterValues;
use nodes::{rewritten, with_own_schema};
use outer_types::with_outer_types;
use plain::{
    has_one_row, has_own_names, is_correlated, is_grouped_by_equal_columns, is_pulled_up, refers_to,
};

/// Makes columns of joins of the subqueries that DataFusion does not make joins of itself, or not rightly.
pub(crate) const SUBQUERY_VALUES: LogicalRule = LogicalRule {
    name: "kelpie_subquery_values",
    applies: |options| options.corrections,
    rewrite: |plan| {
        if !has_any(&plan)? {
            return Ok(plan);
        }
        let plan = with_outer_types(plan)?;
        let mut made = 0;
        // A subquery without rows is NULL, whatever its column says: what is above learns it from the join.
        let plan = plan.transform_down_with_subqueries(grouped::by_their_columns)?.data;
        let rewritten =
            plan.transform_up_with_subqueries(|node| rewritten(with_own_schema(node)?, &mut made))?;
        Ok(rewritten.data)
    },
};

/// Whether a plan has subqueries, as values or LATERAL.
pub(super) fn has_any(plan: &LogicalPlan) -> Result<bool> {
    Ok(has_expr(plan, is_subquery)? || plan.exists(|node| Ok(matches!(node, LogicalPlan::Subquery(_))))?)
}

fn is_subquery(expr: &Expr) -> bool {
    subquery_of(expr).is_some()
}

/// Where a subquery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is a condition that rows must fulfil.
    Condition,
    /// It is part of one, where NULL is as good as FALSE.
    PartOfCondition,
    /// Its value is asked for.
    Value,
}

/// The rows around subqueries, with a column for each of these.
struct Around<'a> {
    rows: Arc<LogicalPlan>,
    /// The rows as they were: each of them is one of `rows`, however many columns it has got.
    base: Arc<LogicalPlan>,
    /// Subqueries that have become columns, of the whole statement.
    made: &'a mut usize,
    changed: bool,
    /// Whether DataFusion takes scalar subqueries in such a place.
    takes_scalars: bool,
}

impl<'a> Around<'a> {
    fn new(rows: &Arc<LogicalPlan>, made: &'a mut usize) -> Around<'a> {
        let (rows, base) = (Arc::clone(rows), Arc::clone(rows));
        Around { rows, base, made, changed: false, takes_scalars: true }
    }

    /// Around expressions that DataFusion takes no scalar subqueries in.
    fn without_scalars(rows: &Arc<LogicalPlan>, made: &'a mut usize) -> Around<'a> {
        Around { takes_scalars: false, ..Around::new(rows, made) }
    }

    fn replace_all(&mut self, exprs: &[Expr], names: &NamePreserver) -> Result<Vec<Expr>> {
        let mut replace = |expr| self.replace(expr, Place::Value).map(Transformed::yes);
        exprs.iter().map(|expr| Ok(map_named(expr.clone(), names, &mut replace)?.data)).collect()
    }

    /// An expression with columns in place of the subqueries that are made columns of.
    fn replace(&mut self, expr: Expr, place: Place) -> Result<Expr> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right })
                if place != Place::Value =>
            {
                let left = self.replace(*left, Place::PartOfCondition)?;
                let right = self.replace(*right, Place::PartOfCondition)?;
                Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
            }
            Expr::Not(inner) if place == Place::Condition => match *inner {
                Expr::Exists(exists) => {
                    self.replace(Expr::Exists(Exists { negated: !exists.negated, ..exists }), place)
                }
                Expr::InSubquery(within) => {
                    self.replace(Expr::InSubquery(InSubquery { negated: !within.negated, ..within }), place)
                }
                inner => Ok(not(self.replace(inner, Place::Value)?)),
            },
            Expr::Exists(exists) => {
                if place != Place::Value && self.is_pulled_up(&exists.subquery.subquery)? {
                    return Ok(Expr::Exists(exists));
                }
                match self.exists(&exists.subquery.subquery)? {
                    Some(value) => Ok(if exists.negated { not(value) } else { value }),
                    None => Ok(Expr::Exists(exists)),
                }
            }
            Expr::InSubquery(within) => {
                let expr = Box::new(self.replace(*within.expr, Place::Value)?);
                self.within(InSubquery { expr, ..within }, place)
            }
            Expr::SetComparison(comparison) => {
                let expr = Box::new(self.replace(*comparison.expr, Place::Value)?);
                self.compared(SetComparison { expr, ..comparison }, place)
            }
            Expr::ScalarSubquery(subquery) => {
                let plan = &subquery.subquery;
                let is_plain = || -> Result<bool> {
                    Ok(is_grouped_by_equal_columns(plan)?
                        && refers_to(plan, &self.rows)?
                        && has_own_names(plan)?)
                };
                if !is_correlated(plan)? {
                    let Some(plan) = single::or_null(plan)? else {
                        return Ok(Expr::ScalarSubquery(subquery));
                    };
                    self.changed = true;
                    return Ok(Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), ..subquery }));
                }
                if self.takes_scalars && is_plain()? {
                    return Ok(Expr::ScalarSubquery(subquery));
                }
                Ok(self.scalar(plan)?.unwrap_or(Expr::ScalarSubquery(subquery)))
            }
            expr => {
                let replaced =
                    expr.map_children(|child| self.replace(child, Place::Value).map(Transformed::yes))?;
                Ok(replaced.data)
            }
        }
    }

    /// Whether DataFusion makes a join of a subquery with the rows around it.
    fn is_pulled_up(&self, plan: &LogicalPlan) -> Result<bool> {
        Ok(is_pulled_up(plan)? && refers_to(plan, &self.rows)? && has_own_names(plan)?)
    }

    /// DataFusion looks for the expression that a subquery gives: rows that are written out have none.
    fn with_output(&mut self, within: InSubquery) -> Result<InSubquery> {
        let plan = &within.subquery.subquery;
        if plan.head_output_expr()?.is_some() {
            return Ok(within);
        }
        self.changed = true;
        let columns = plan.schema().columns().into_iter().map(Expr::Column);
        let plan = LogicalPlanBuilder::new_from_arc(Arc::clone(plan)).project(columns)?.build()?;
        let subquery = Subquery { subquery: Arc::new(plan), ..within.subquery };
        Ok(InSubquery { subquery, ..within })
    }

    fn qualifier(&mut self, what: &str) -> String {
        self.changed = true;
        *self.made += 1;
        format!("__kelpie_{what}_{}", self.made)
    }

    /// The rows are read once more for the values that a subquery refers to, which must be the same.
    fn share_rows(&mut self) -> Result<()> {
        if is_volatile(&self.rows)? {
            self.rows = Arc::new(shared(Arc::clone(&self.rows)));
            self.base = Arc::clone(&self.rows);
        }
        Ok(())
    }

    /// The values that a subquery refers to. They are read from the rows as they were where these have them: were it those with the
    /// columns of other subqueries, each subquery of an expression would have all earlier ones in it, and so twice as many as the last.
    fn values_of(&mut self, plan: &LogicalPlan) -> Result<Option<OuterValues>> {
        self.share_rows()?;
        let inner = self.qualifier("outer");
        let Some(values) = OuterValues::of(&self.rows, plan, inner)? else { return Ok(None) };
        let has_all = values.columns().iter().all(|column| self.base.schema().has_column(column));
        Ok(Some(if has_all { values.of_rows(&self.base) } else { values }))
    }

    /// Whether a subquery has rows, where that can be a column.
    fn exists(&mut self, plan: &LogicalPlan) -> Result<Option<Expr>> {
        let plan = without_limit(plan)?;
        if !is_correlated(plan)? {
            self.changed = true;
            let rows = LogicalPlanBuilder::from(plan.clone()).limit(0, Some(1))?;
            let rows = rows.aggregate(Vec::<Expr>::new(), [count(lit(1_i64)).alias("rows")])?;
            let rows = rows.project([Expr::Column(Column::new_unqualified("rows")).gt(lit(0_i64))])?;
            return Ok(Some(scalar_subquery(rows.build()?)));
        }
        let Some(values) = self.values_of(plan)? else { return Ok(None) };
        let Some(rows) = values.rows_of(plan)? else { return Ok(None) };
        // Where there are no values, a constant tells whether there are rows.
        let keys = (0..values.columns().len()).map(|place| Expr::Column(values.value(place)));
        let keys = keys.chain(values.columns().is_empty().then(|| lit(true)));
        let rows = LogicalPlanBuilder::from(rows).project(keys)?.distinct()?.build()?;
        let found = self.qualifier("exists");
        self.join(&values, rows, &found, lit(true))?;
        Ok(Some(Expr::Column(Column::new(Some(found), VALUE)).is_not_null()))
    }

    /// The value of a subquery, where that can be a column. More than one row is an error when the query runs.
    fn scalar(&mut self, plan: &LogicalPlan) -> Result<Option<Expr>> {
        let Some(values) = self.values_of(plan)? else { return Ok(None) };
        let Some(rows) = values.rows_of(plan)? else { return Ok(None) };
        let (Some(column), found) = (plan.schema().columns().into_iter().next(), self.qualifier("scalar"))
        else {
            return Ok(None);
        };
        let (rows, value) = match has_one_row(plan) {
            true => (rows, Expr::Column(column)),
            false => single::checked(rows, &values, column)?,
        };
        self.join(&values, rows, &found, value)?;
        Ok(Some(Expr::Column(Column::new(Some(found), VALUE))))
    }

    /// Joins rows of the values that a subquery refers to, at most one of each, with the rows around it.
    fn join(&mut self, values: &OuterValues, rows: LogicalPlan, qualifier: &str, value: Expr) -> Result<()> {
        let keys = (0..values.columns().len()).map(|place| {
            Expr::Column(values.value(place))
                .alias_qualified(Some(qualifier), format!("{qualifier}_v{place}"))
        });
        let columns = keys.chain([value.alias_qualified(Some(qualifier), VALUE)]);
        let rows = LogicalPlanBuilder::from(rows).project(columns)?.build()?;
        let found = (0..values.columns().len())
            .map(|place| Column::new(Some(qualifier), format!("{qualifier}_v{place}")));
        let around = LogicalPlanBuilder::new_from_arc(Arc::clone(&self.rows));
        let joined = match values.columns() {
            [] => around.join_on(rows, JoinType::Left, [lit(true)])?,
            columns => around.join_detailed(
                rows,
                JoinType::Left,
                (columns.to_vec(), found.collect()),
                None,
                NullEquality::NullEqualsNull,
            )?,
        };
        self.rows = Arc::new(joined.build()?);
        Ok(())
    }

    /// `x IN (…)`: TRUE where a row equals x, else NULL where one might, as x or the row is NULL.
    fn within(&mut self, within: InSubquery, place: Place) -> Result<Expr> {
        let plan = &within.subquery.subquery;
        let Some(column) = plan.schema().columns().into_iter().next() else {
            return Ok(Expr::InSubquery(within));
        };
        let column = Expr::Column(column);
        let x_may_be_null = within.expr.contains_outer() || within.expr.nullable(self.rows.schema())?;
        let row_may_be_null = column.nullable(plan.schema())?;
        let is_plain = match place {
            // It is compared here with what stands further out.
            _ if within.expr.contains_outer() => false,
            // A constant would be compared before the join, where NULLs are lost.
            Place::Condition if within.negated => {
                !is_correlated(plan)? && !within.expr.column_refs().is_empty()
            }
            Place::Condition => self.is_pulled_up(plan)?,
            Place::PartOfCondition => !within.negated && self.is_pulled_up(plan)? && has_column(plan),
            Place::Value => false,
        };
        if is_plain {
            return self.with_output(within).map(Expr::InSubquery);
        }
        if let Some(exists) = as_exists(&within, place)? {
            self.changed = true;
            return self.replace(exists, place);
        }
        let condition = self.outer(&within.expr)?.eq(column.clone());
        let equal = filtered(plan, condition.clone())?;
        if within.negated && place == Place::Condition && !x_may_be_null && !row_may_be_null {
            // DataFusion knows NOT IN of one key alone, and where nothing is NULL this is the same.
            self.changed = true;
            return self.replace(not_exists(Arc::new(equal)), place);
        }
        // NULL is as good as FALSE.
        let is_two_valued = place != Place::Value && !within.negated || !x_may_be_null && !row_may_be_null;
        if !is_two_valued && is_large(plan)? {
            return Ok(match self.decided(plan, condition)? {
                Some(found) if within.negated => not(as_truth(found, true)?),
                Some(found) => as_truth(found, true)?,
                None => Expr::InSubquery(within),
            });
        }
        let Some(is_equal) = self.exists(&equal)? else {
            return Ok(Expr::InSubquery(within));
        };
        if is_two_valued {
            return Ok(if within.negated { not(is_equal) } else { is_equal });
        }
        let null = || lit(ScalarValue::Boolean(None));
        let mut value = when(is_equal, lit(true));
        if x_may_be_null {
            let Some(has_rows) = self.exists(plan)? else { return Ok(Expr::InSubquery(within)) };
            value = value.when(within.expr.as_ref().clone().is_null().and(has_rows), null());
        }
        if row_may_be_null {
            let nulls = filtered(plan, column.is_null())?;
            let Some(has_null) = self.exists(&nulls)? else { return Ok(Expr::InSubquery(within)) };
            value = value.when(has_null, null());
        }
        let value = value.otherwise(lit(false))?;
        Ok(if within.negated { not(value) } else { value })
    }

    /// Whether rows of a subquery fulfil a condition, by one look at them: 1 where one does, 0 where one might, as it is NULL, and NULL
    /// where all rows are known not to.
    fn decided(&mut self, plan: &LogicalPlan, condition: Expr) -> Result<Option<Expr>> {
        let rows = filtered(plan, condition.clone().is_not_false())?;
        let Some(values) = self.values_of(&rows)? else { return Ok(None) };
        let Some(rows) = values.rows_of(&rows)? else { return Ok(None) };
        let fulfils = when(values.inside(condition)?, lit(1_i64)).otherwise(lit(0_i64))?;
        let value = Column::new_unqualified("__kelpie_value");
        let rows = LogicalPlanBuilder::from(rows)
            .aggregate(values.values(), [max(fulfils).alias(value.name.as_str())])?
            .build()?;
        let found = self.qualifier("decided");
        self.join(&values, rows, &found, Expr::Column(value))?;
        Ok(Some(Expr::Column(Column::new(Some(found), VALUE))))
    }

    /// `x < ANY (…)` and `x < ALL (…)`.
    fn compared(&mut self, comparison: SetComparison, place: Place) -> Result<Expr> {
        let SetComparison { expr, subquery, op, quantifier } = &comparison;
        let is_all = *quantifier == SetQuantifier::All;
        match (op, is_all) {
            (Operator::Eq, false) | (Operator::NotEq, true) => {
                // DataFusion takes a column of the same name within the subquery for the one around it.
                self.changed = true;
                let within = InSubquery { expr: expr.clone(), subquery: subquery.clone(), negated: is_all };
                return self.within(within, place);
            }
            (Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq, _)
                if !is_correlated(&subquery.subquery)? =>
            {
                return self.compared_with_bound(&comparison);
            }
            _ => {}
        }
        let Some(column) = subquery.subquery.schema().columns().into_iter().next() else {
            return Ok(Expr::SetComparison(comparison));
        };
        let compared = self.outer(expr)?;
        let compared =
            Expr::BinaryExpr(BinaryExpr::new(Box::new(compared), *op, Box::new(Expr::Column(column))));
        let decides = if is_all { not(compared.clone()) } else { compared.clone() };
        if is_large(&subquery.subquery)? {
            return match self.decided(&subquery.subquery, decides)? {
                Some(found) => as_truth(found, !is_all),
                None => Ok(Expr::SetComparison(comparison)),
            };
        }
        let decides = self.exists(&filtered(&subquery.subquery, decides)?)?;
        let unknown = self.exists(&filtered(&subquery.subquery, compared.is_null())?)?;
        let (Some(decides), Some(unknown)) = (decides, unknown) else {
            return Ok(Expr::SetComparison(comparison));
        };
        let mut value = when(decides, lit(!is_all)).when(unknown, lit(ScalarValue::Boolean(None)));
        value.otherwise(lit(is_all))
    }

    /// The same of rows that do not depend on the row around them: the least or greatest of them decides.
    fn compared_with_bound(&mut self, comparison: &SetComparison) -> Result<Expr> {
        let SetComparison { expr, subquery, op, quantifier } = comparison;
        let is_all = *quantifier == SetQuantifier::All;
        let found = self.qualifier("bound");
        let Some(column) = subquery.subquery.schema().columns().into_iter().next().map(Expr::Column) else {
            return Ok(Expr::SetComparison(comparison.clone()));
        };
        let is_greater = matches!(op, Operator::Gt | Operator::GtEq);
        let bound = if is_greater == is_all { max(column.clone()) } else { min(column.clone()) };
        let calls = [bound.alias("bound"), count(lit(1_i64)).alias("rows"), count(column).alias("values")];
        let rows = LogicalPlanBuilder::new_from_arc(Arc::clone(&subquery.subquery));
        let rows = rows.aggregate(Vec::<Expr>::new(), calls)?.alias(found.as_str())?.build()?;
        self.rows =
            Arc::new(LogicalPlanBuilder::new_from_arc(Arc::clone(&self.rows)).cross_join(rows)?.build()?);
        let part = |name: &str| Expr::Column(Column::new(Some(found.as_str()), name));
        let compared = Expr::BinaryExpr(BinaryExpr::new(expr.clone(), *op, Box::new(part("bound"))));
        let is_empty = part("rows").eq(lit(0_i64));
        let unknown = expr.as_ref().clone().is_null().or(part("values").lt(part("rows")));
        let decides = if is_all { not(compared) } else { compared };
        let mut value = when(is_empty, lit(is_all)).when(decides, lit(!is_all));
        value.when(unknown, lit(ScalarValue::Boolean(None))).otherwise(lit(is_all))
    }

    /// An expression of the rows around a subquery, as the subquery refers to it.
    fn outer(&self, expr: &Expr) -> Result<Expr> {
        let outer = expr.clone().transform(|expr| match expr {
            Expr::Column(column) => {
                let field = Arc::clone(self.rows.schema().field_from_column(&column)?);
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            expr => Ok(Transformed::no(expr)),
        })?;
        Ok(outer.data)
    }
}

/// The value that one fulfilling row decides, by what [`Around::decided`] has found.
fn as_truth(found: Expr, decided: bool) -> Result<Expr> {
    when(found.clone().eq(lit(1_i64)), lit(decided))
        .when(found.is_not_null(), lit(ScalarValue::Boolean(None)))
        .otherwise(lit(!decided))
}

/// Whether a plan is so large that it is better read once, by a condition that no index serves, than several times: a subquery within a
/// subquery has become a part of it, and so on, where each level would be as many times as large as the last.
fn is_large(plan: &LogicalPlan) -> Result<bool> {
    const NODES: usize = 30;
    let mut nodes = 0;
    plan.apply_with_subqueries(|_| {
        nodes += 1;
        Ok(if nodes > NODES { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(nodes > NODES)
}

/// What the column is called that a subquery has become.
const VALUE: &str = "value";

/// Whether the first column of a plan is one as it stands: DataFusion names others twice in such a place.
fn has_column(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => has_column(&alias.input),
        LogicalPlan::Filter(filter) => has_column(&filter.input),
        LogicalPlan::Projection(projection) => matches!(projection.expr.first(), Some(Expr::Column(_))),
        LogicalPlan::TableScan(_) => true,
        _ => false,
    }
}

/// `TRUE IN (SELECT condition …)` where it is as well whether rows fulfil the condition: DataFusion knows joins for that.
fn as_exists(within: &InSubquery, place: Place) -> Result<Option<Expr>> {
    let LogicalPlan::Projection(projection) = within.subquery.subquery.as_ref() else { return Ok(None) };
    let ([condition], true) = (projection.expr.as_slice(), *within.expr == lit(true)) else {
        return Ok(None);
    };
    let condition = condition.clone().unalias();
    let is_meant = match within.negated {
        true => place == Place::Condition && !condition.nullable(projection.input.schema())?,
        false => place != Place::Value,
    };
    if !is_meant {
        return Ok(None);
    }
    let rows = LogicalPlanBuilder::new_from_arc(Arc::clone(&projection.input)).filter(condition)?.build()?;
    Ok(Some(if within.negated { not_exists(Arc::new(rows)) } else { exists(Arc::new(rows)) }))
}

fn filtered(plan: &LogicalPlan, condition: Expr) -> Result<LogicalPlan> {
    LogicalPlanBuilder::from(plan.clone()).filter(condition)?.build()
}

/// A plan without a limit that leaves at least a row of any.
fn without_limit(plan: &LogicalPlan) -> Result<&LogicalPlan> {
    use datafusion::logical_expr::{FetchType, SkipType};
    match plan {
        LogicalPlan::Limit(limit) => {
            let leaves_one = matches!(limit.get_skip_type()?, SkipType::Literal(0))
                && matches!(limit.get_fetch_type()?, FetchType::Literal(fetch) if fetch.is_none_or(|rows| rows > 0));
            Ok(if leaves_one { &limit.input } else { plan })
        }
        plan => Ok(plan),
    }
}

fn scalar_subquery(plan: LogicalPlan) -> Expr {
    let (outer_ref_columns, spans) = (Vec::new(), Default::default());
    Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans })
}
