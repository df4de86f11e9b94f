//! Rows that several parts of a statement read are computed once where they would differ from each other: what calls a volatile function
//! and is named by WITH, or is read on both sides of a join that a subquery becomes. Each row of `WITH r AS (SELECT random() x …)` has one
//! `x`, however often `r` is read; DataFusion computes `r` for each time.

mod rows;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, internal_err};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::{
    DdlStatement, Expr, Extension, LogicalPlan, SubqueryAlias, UserDefinedLogicalNodeCore,
};

pub(crate) use rows::SharedPlanner;

use super::expressions::has_expr;

/// Rows that are read in several places, which share a number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SharedRows {
    number: usize,
    input: Arc<LogicalPlan>,
}

impl PartialOrd for SharedRows {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.number.partial_cmp(&other.number)
    }
}

impl UserDefinedLogicalNodeCore for SharedRows {
    fn name(&self) -> &str {
        "SharedRows"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRows: {}", self.number)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (inputs.pop(), inputs.is_empty()) {
            (Some(input), true) => Ok(SharedRows { number: self.number, input: Arc::new(input) }),
            _ => internal_err!("SharedRows has one child"),
        }
    }
}

/// Rows that are computed once, whoever reads this plan or a copy of it.
pub(super) fn shared(plan: Arc<LogicalPlan>) -> LogicalPlan {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    LogicalPlan::Extension(Extension { node: Arc::new(SharedRows { number, input: plan }) })
}

/// Whether computing a plan again gives other rows.
pub(super) fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    let is_shared =
        matches!(plan, LogicalPlan::Extension(extension) if extension.node.name() == "SharedRows");
    Ok(!is_shared && has_expr(plan, Expr::is_volatile_node)?)
}

/// Where a plan lies that is a copy of others: copies share their schema.
type Place = usize;

fn place(alias: &SubqueryAlias) -> Place {
    Arc::as_ptr(&alias.schema) as usize
}

/// The queries that WITH names, as they are read; not those of a view that is read several times, each of which is a query of its own.
#[derive(Default)]
struct Named {
    times: HashMap<Place, usize>,
    /// The definitions of views, by where they are read.
    within: HashMap<Place, Vec<Place>>,
    /// The shared rows, or nothing where they need not be shared.
    made: HashMap<Place, Option<LogicalPlan>>,
}

impl Named {
    fn look(&mut self, plan: &LogicalPlan) -> Result<()> {
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::SubqueryAlias(alias) = node {
                *self.times.entry(place(alias)).or_default() += 1;
                if !matches!(alias.input.as_ref(), LogicalPlan::SubqueryAlias(_)) {
                    let places = self.within.entry(Arc::as_ptr(alias.input.schema()) as usize).or_default();
                    if !places.contains(&place(alias)) {
                        places.push(place(alias));
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    fn is_view_again(&self, alias: &SubqueryAlias) -> bool {
        let input = Arc::as_ptr(alias.input.schema()) as usize;
        self.within.get(&input).is_some_and(|places| places.len() > 1)
    }

    fn with_shared(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        Ok(plan.transform_down_with_subqueries(|node| self.replaced(node))?.data)
    }

    fn replaced(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::SubqueryAlias(alias) = node else { return Ok(Transformed::no(node)) };
        if self.is_view_again(&alias) {
            return Ok(Transformed::new(LogicalPlan::SubqueryAlias(alias), false, TreeNodeRecursion::Jump));
        }
        let place = place(&alias);
        if self.times.get(&place).is_none_or(|times| *times < 2) {
            return Ok(Transformed::no(LogicalPlan::SubqueryAlias(alias)));
        }
        if let Some(Some(rows)) = self.made.get(&place) {
            return Ok(Transformed::new(rows.clone(), true, TreeNodeRecursion::Jump));
        }
        let is_looked_at = self.made.contains_key(&place);
        let plan = LogicalPlan::SubqueryAlias(alias.clone());
        if is_looked_at || !is_volatile(&plan)? || !stands_alone(&plan)? {
            self.made.insert(place, None);
            return Ok(Transformed::no(plan));
        }
        // What it reads may be shared, too.
        let input = Arc::new(self.with_shared(alias.input.as_ref().clone())?);
        let rows = SubqueryAlias::try_new(input, alias.alias)?;
        let rows = shared(Arc::new(LogicalPlan::SubqueryAlias(rows)));
        self.made.insert(place, Some(rows.clone()));
        Ok(Transformed::new(rows, true, TreeNodeRecursion::Jump))
    }
}

/// Makes rows of the queries that WITH names and that are read more than once shared, where they call volatile functions.
pub(crate) fn share(plan: LogicalPlan) -> Result<LogicalPlan> {
    // Whoever reads a view has rows of its own.
    if matches!(plan, LogicalPlan::Ddl(DdlStatement::CreateView(_)))
        || !has_expr(&plan, Expr::is_volatile_node)?
    {
        return Ok(plan);
    }
    let mut named = Named::default();
    named.look(&plan)?;
    named.with_shared(plan)
}

/// Whether rows depend neither on a row around them nor on the round of a recursive query.
fn stands_alone(plan: &LogicalPlan) -> Result<bool> {
    let mut alone = true;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source)?;
            let provider: &dyn std::any::Any = provider.as_ref();
            alone &= !provider.is::<CteWorkTable>();
        }
        alone &= !node.contains_outer_reference();
        Ok(if alone { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(alone)
}

/// A plan that computes rows each time that they are read, for a planner that does not know how to share them.
pub(crate) fn apart(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_down_with_subqueries(|node| match &node {
        LogicalPlan::Extension(extension) => match extension.node.inputs().as_slice() {
            [input] if extension.node.name() == "SharedRows" => Ok(Transformed::yes((*input).clone())),
            _ => Ok(Transformed::no(node)),
        },
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(plan.data)
}
