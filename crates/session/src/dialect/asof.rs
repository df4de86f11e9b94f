//! ASOF joins: each row of the left side meets the one row of the right side that equals it in some columns and comes last before it in
//! another one. No pair of rows is compared that is not in the answer. The times of both sides are sorted together, those of equal
//! columns by themselves, and the last one of the right side goes along with the rows (a window's running maximum, or minimum). Then each left
//! row knows the time of its partner, and an ordinary join finds that. Of right rows that share their columns and time one is taken.

use datafusion::common::{Column, ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{Sort, WindowFunction};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprFunctionExt, ExprSchemable, JoinType, LogicalPlan, LogicalPlanBuilder, Operator,
    WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, lit,
};
use datafusion::sql::sqlparser::ast::{Ident, Join, JoinConstraint, JoinOperator, ObjectName, TableFactor};

use super::functions::text;
use super::joins::is_asof;
use super::statements::{ASOF_INNER, ASOF_LEFT};
use crate::syntax::last_name;

/// Plans relations that end in an ASOF join.
#[derive(Debug)]
pub(super) struct AsofJoins;

impl RelationPlanner for AsofJoins {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let original = |relation| Ok(RelationPlanning::Original(Box::new(relation)));
        let TableFactor::NestedJoin { mut table_with_joins, alias: None } = relation else {
            return original(relation);
        };
        match table_with_joins.joins.pop_if(|last| is_asof(&last.join_operator)) {
            None => original(TableFactor::NestedJoin { table_with_joins, alias: None }),
            Some(last) => {
                let left = match table_with_joins.joins.is_empty() {
                    true => table_with_joins.relation,
                    false => TableFactor::NestedJoin { table_with_joins, alias: None },
                };
                let plan = planned(left, last, context)?;
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation { plan, alias: None })))
            }
        }
    }
}

fn planned(left: TableFactor, join: Join, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    let JoinOperator::AsOf { match_condition, constraint } = join.join_operator else {
        return plan_err!("an ASOF join is expected");
    };
    let (left, right) = (context.plan(left)?, context.plan(join.relation)?);
    let mut asof = Asof { left, right, keys: vec![], time: None, is_left: true, merged: vec![] };
    let both = asof.left.schema().join(asof.right.schema())?;
    match text(&match_condition) {
        Some(kind) if [ASOF_INNER, ASOF_LEFT].contains(&kind) => asof.is_left = kind == ASOF_LEFT,
        // Where the condition is apart, rows without a partner stay, as in the engines that write it so.
        _ => asof.add(&context.sql_to_expr(match_condition, &both)?)?,
    }
    match constraint {
        JoinConstraint::On(condition) => asof.add(&context.sql_to_expr(condition, &both)?)?,
        JoinConstraint::Using(names) => {
            let last = names.len().saturating_sub(1);
            for (place, name) in names.iter().enumerate() {
                let is_time = place == last && asof.time.is_none();
                asof.using(&context.normalize_ident(single(name)?), is_time)?;
            }
        }
        JoinConstraint::None => {}
        JoinConstraint::Natural => return plan_err!("NATURAL ASOF JOIN is not supported: write USING"),
    }
    asof.plan()
}

fn single(name: &ObjectName) -> Result<Ident> {
    match last_name(name) {
        Some(name) => Ok(name.clone()),
        None => plan_err!("{name} is no column"),
    }
}

/// What the left and the right side have of a column.
#[derive(Debug, Clone)]
struct Pair {
    left: Expr,
    right: Expr,
}

/// The columns by which one row comes before another.
#[derive(Debug, Clone)]
struct Time {
    pair: Pair,
    /// `left op right`.
    op: Operator,
}

struct Asof {
    left: LogicalPlan,
    right: LogicalPlan,
    /// What is equal.
    keys: Vec<Pair>,
    time: Option<Time>,
    /// Whether left rows without a partner stay.
    is_left: bool,
    /// Columns of the right side that USING merges with those of the left side.
    merged: Vec<Column>,
}

/// Names of columns that are only needed within.
fn of_left(place: usize) -> String {
    format!("kelpie: left {place}")
}

fn of_right(place: usize) -> String {
    format!("kelpie: right {place}")
}

fn key(place: usize) -> String {
    format!("kelpie: key {place}")
}

fn right_key(place: usize) -> String {
    format!("kelpie: right key {place}")
}

/// The time of a row, the side that it is of, the time of the right side's row, and that of the partner.
const TIME: &str = "kelpie: time";
const SIDE: &str = "kelpie: side";
const RIGHT_TIME: &str = "kelpie: right time";
const PARTNER: &str = "kelpie: partner";
const COPY: &str = "kelpie: copy";

fn column(name: impl Into<String>) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

const WANTED: &str = "an ASOF JOIN takes equalities and one inequality between a column of each side, such as \
                      ON a.k = b.k AND a.t >= b.t";

impl Asof {
    /// Adds conditions.
    fn add(&mut self, condition: &Expr) -> Result<()> {
        for part in split_conjunction(condition) {
            let Expr::BinaryExpr(BinaryExpr { left, op, right }) = part else {
                return plan_err!("{part}: {WANTED}");
            };
            let (pair, op) = match (self.is_of_left(left)?, self.is_of_left(right)?) {
                (true, false) => (Pair { left: *left.clone(), right: *right.clone() }, Some(*op)),
                (false, true) => (Pair { left: *right.clone(), right: *left.clone() }, op.swap()),
                _ => return plan_err!("{part}: {WANTED}"),
            };
            match op {
                Some(Operator::Eq) => self.keys.push(pair),
                Some(op @ (Operator::Gt | Operator::GtEq | Operator::Lt | Operator::LtEq))
                    if self.time.is_none() =>
                {
                    self.time = Some(Time { pair, op });
                }
                _ => return plan_err!("{part}: {WANTED}"),
            }
        }
        Ok(())
    }

    /// Whether all columns of an expression are the left side's; those of neither side are an error.
    fn is_of_left(&self, expr: &Expr) -> Result<bool> {
        let columns = expr.column_refs();
        let all = |plan: &LogicalPlan| columns.iter().all(|column| plan.schema().has_column(column));
        match () {
            () if columns.is_empty() => plan_err!("{expr}: {WANTED}"),
            () if all(&self.left) => Ok(true),
            () if all(&self.right) => Ok(false),
            () => plan_err!("{expr}: {WANTED}"),
        }
    }

    /// Adds a column of USING.
    fn using(&mut self, name: &str, is_time: bool) -> Result<()> {
        let of = |plan: &LogicalPlan| {
            let found = plan.schema().qualified_field_with_unqualified_name(name)?;
            Ok::<_, DataFusionError>(Column::from(found))
        };
        let (left, right) = (of(&self.left)?, of(&self.right)?);
        self.merged.push(right.clone());
        let pair = Pair { left: Expr::Column(left), right: Expr::Column(right) };
        match is_time {
            true => self.time = Some(Time { pair, op: Operator::GtEq }),
            false => self.keys.push(pair),
        }
        Ok(())
    }

    fn plan(self) -> Result<LogicalPlan> {
        let Some(time) = self.time.clone() else { return plan_err!("without an inequality: {WANTED}") };
        let partners = self.partners(&time)?;
        let with_time = self.with_times(&time)?;
        let mut keys: (Vec<Column>, Vec<Column>) = (0..self.keys.len())
            .map(|place| (Column::new_unqualified(key(place)), Column::new_unqualified(right_key(place))))
            .unzip();
        keys.0.push(Column::new_unqualified(PARTNER));
        keys.1.push(Column::new_unqualified(RIGHT_TIME));
        let kind = if self.is_left { JoinType::Left } else { JoinType::Inner };
        let joined = LogicalPlanBuilder::from(with_time).join(partners, kind, keys, None)?;
        let left = self.left.schema().columns().into_iter().enumerate();
        let left = left.map(|(place, own)| named_as(column(of_left(place)), own));
        let right = self.right.schema().columns().into_iter().enumerate();
        let right = right.filter(|(_, own)| !self.merged.contains(own));
        let right = right.map(|(place, own)| named_as(column(of_right(place)), own));
        joined.project(left.chain(right).collect::<Vec<_>>())?.build()
    }

    /// The right side's rows, one of each time.
    fn partners(&self, time: &Time) -> Result<LogicalPlan> {
        let own = self.right.schema().columns().into_iter().enumerate();
        let own = own.map(|(place, own)| (of_right(place), Expr::Column(own)));
        let keys = self.keys.iter().enumerate().map(|(place, pair)| (right_key(place), pair.right.clone()));
        let named: Vec<(String, Expr)> =
            own.chain(keys).chain([(RIGHT_TIME.to_string(), time.pair.right.clone())]).collect();
        let shown: Vec<Expr> = named.iter().map(|(name, _)| column(name.as_str())).collect();
        let columns: Vec<Expr> = named.into_iter().map(|(name, expr)| expr.alias(name)).collect();
        let mut by: Vec<Expr> = (0..self.keys.len()).map(|place| column(right_key(place))).collect();
        by.push(column(RIGHT_TIME));
        let function = WindowFunctionDefinition::WindowUDF(row_number_udwf());
        let number = Expr::from(WindowFunction::new(function, vec![])).partition_by(by.clone()).build()?;
        let number_name = number.schema_name().to_string();
        let is_there = by.into_iter().map(Expr::is_not_null).reduce(Expr::and).unwrap_or_else(|| lit(true));
        LogicalPlanBuilder::from(self.right.clone())
            .project(columns)?
            .filter(is_there)?
            .window([number])?
            .project(shown.iter().cloned().chain([column(number_name).alias(COPY)]).collect::<Vec<_>>())?
            .filter(column(COPY).eq(lit(1_u64)))?
            .project(shown)?
            .build()
    }

    /// The left side's rows with the times of their partners.
    fn with_times(&self, time: &Time) -> Result<LogicalPlan> {
        let (left, right) = (self.left.schema(), self.right.schema());
        let backward = matches!(time.op, Operator::Gt | Operator::GtEq);
        // A right row of the same time comes first where it is a partner, and after the left one where it is none.
        let right_first = matches!(time.op, Operator::GtEq | Operator::LtEq);
        let (of_the_left, of_the_right) = if right_first { (1_i32, 0_i32) } else { (0, 1) };
        let null = |data_type: &_| Ok::<_, DataFusionError>(lit(ScalarValue::try_from(data_type)?));
        let (mut own, mut other) = (Vec::new(), Vec::new());
        for (place, (of, field)) in left.columns().into_iter().zip(left.fields()).enumerate() {
            own.push(Expr::Column(of).alias(of_left(place)));
            other.push(null(field.data_type())?.alias(of_left(place)));
        }
        for (place, pair) in self.keys.iter().enumerate() {
            own.push(pair.left.clone().alias(key(place)));
            other.push(pair.right.clone().alias(key(place)));
        }
        own.extend([
            time.pair.left.clone().alias(TIME),
            lit(of_the_left).alias(SIDE),
            null(&time.pair.right.get_type(right)?)?.alias(RIGHT_TIME),
        ]);
        other.extend([
            time.pair.right.clone().alias(TIME),
            lit(of_the_right).alias(SIDE),
            time.pair.right.clone().alias(RIGHT_TIME),
        ]);
        let others = self.keys.iter().map(|pair| pair.right.clone()).chain([time.pair.right.clone()]);
        let is_there = others.map(Expr::is_not_null).reduce(Expr::and).unwrap_or_else(|| lit(true));
        let other = LogicalPlanBuilder::from(self.right.clone()).filter(is_there)?.project(other)?.build()?;
        let both = LogicalPlanBuilder::from(self.left.clone()).project(own)?.union(other)?;
        let function = if backward { max_udaf() } else { min_udaf() };
        let function = WindowFunctionDefinition::AggregateUDF(function);
        // Rows without a time are before all others, where no partner has been yet.
        let by = |expr: Expr, ascending| Sort { expr, asc: ascending, nulls_first: true };
        let partner = Expr::from(WindowFunction::new(function, vec![column(RIGHT_TIME)]))
            .partition_by((0..self.keys.len()).map(|place| column(key(place))).collect())
            .order_by(vec![by(column(TIME), backward), by(column(SIDE), true)])
            .window_frame(WindowFrame::new_bounds(
                WindowFrameUnits::Rows,
                WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
                WindowFrameBound::CurrentRow,
            ))
            .build()?;
        let name = partner.schema_name().to_string();
        let shown = (0..left.fields().len()).map(|place| column(of_left(place)));
        let shown = shown.chain((0..self.keys.len()).map(|place| column(key(place))));
        let shown: Vec<Expr> = shown.chain([column(SIDE), column(name).alias(PARTNER)]).collect();
        both.window([partner])?.project(shown)?.filter(column(SIDE).eq(lit(of_the_left)))?.build()
    }
}

/// A column with the name and table that it had.
fn named_as(expr: Expr, own: Column) -> Expr {
    match own.relation {
        Some(relation) => expr.alias_qualified(Some(relation), own.name),
        None => expr.alias(own.name),
    }
}
