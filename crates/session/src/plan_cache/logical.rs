//! What of a logical plan decides whether its physical plan is kept, and for which plans it stands.

use std::any::Any;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::DefaultTableSource;
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::builder::LogicalTableSource;
use datafusion::logical_expr::{
    AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, Signature, Volatility,
    WindowFunctionDefinition, WindowUDF,
};

/// Plans of more parts than this take their time anyway, and their memory is not worth it.
const MOST_PARTS: usize = 10_000;
/// Deeper ones would need a stack of their own to be compared or dropped.
const MOST_LEVELS: usize = 150;

/// A plan that always means the same over the same tables.
pub(crate) struct Repeatable {
    /// What it scans.
    pub tables: Vec<Arc<dyn TableProvider>>,
    functions: Vec<Function>,
    /// Types of its constants: DataFusion calls time stamps equal whatever their time zones.
    types: Vec<DataType>,
    /// The moments that stand in it as constants, in nanoseconds.
    moments: Vec<i64>,
}

impl Repeatable {
    /// What there is to know of a plan; `None` where it is no query, or its meaning depends on more than tables and options.
    pub fn of(plan: &LogicalPlan) -> Option<Repeatable> {
        let known = Repeatable { tables: vec![], functions: vec![], types: vec![], moments: vec![] };
        let mut reader = Reader { known, parts: 0 };
        reader.plan(plan, 1)?;
        Some(reader.known)
    }

    /// Whether the moment at which planning began stands in the plan: the next one is another.
    pub fn has_moment(&self, nanoseconds: i64) -> bool {
        self.moments.contains(&nanoseconds)
    }
}

/// Reads a plan in a fixed order. Its methods give `None` where the plan is not repeatable.
struct Reader {
    known: Repeatable,
    parts: usize,
}

impl Reader {
    fn count(&mut self, level: usize) -> Option<()> {
        self.parts += 1;
        (self.parts <= MOST_PARTS && level <= MOST_LEVELS).then_some(())
    }

    fn plan(&mut self, plan: &LogicalPlan, level: usize) -> Option<()> {
        self.count(level)?;
        match plan {
            LogicalPlan::TableScan(scan) => {
                let source: &dyn Any = scan.source.as_ref();
                let provider = &source.downcast_ref::<DefaultTableSource>()?.table_provider;
                let any: &dyn Any = provider.as_ref();
                // The table of a recursive query is a part of the plan.
                if !any.is::<CteWorkTable>() {
                    self.known.tables.push(Arc::clone(provider));
                }
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Values(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Unnest(_)
            | LogicalPlan::RecursiveQuery(_) => {}
            LogicalPlan::Statement(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::Extension(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::DescribeTable(_) => return None,
        }
        let visited = plan.apply_expressions(|expr| Ok(goes_on(self.expr(expr, level + 1))));
        if visited.ok()? == TreeNodeRecursion::Stop {
            return None;
        }
        plan.inputs().into_iter().try_for_each(|input| self.plan(input, level + 1))
    }

    fn expr(&mut self, expr: &Expr, level: usize) -> Option<()> {
        self.count(level)?;
        match expr {
            Expr::ScalarVariable(..) | Expr::Placeholder(_) => return None,
            Expr::Literal(value, _) => {
                self.known.types.push(value.data_type());
                if let ScalarValue::TimestampNanosecond(Some(moment), _) = value {
                    self.known.moments.push(*moment);
                }
            }
            Expr::ScalarFunction(call) => self.function(Function::Scalar(Arc::clone(&call.func)))?,
            Expr::HigherOrderFunction(call) => {
                self.function(Function::HigherOrder(Arc::clone(&call.func)))?;
            }
            Expr::AggregateFunction(call) => self.function(Function::Aggregate(Arc::clone(&call.func)))?,
            Expr::WindowFunction(call) => self.function(match &call.fun {
                WindowFunctionDefinition::AggregateUDF(function) => Function::Aggregate(Arc::clone(function)),
                WindowFunctionDefinition::WindowUDF(function) => Function::Window(Arc::clone(function)),
            })?,
            Expr::ScalarSubquery(subquery) => self.plan(&subquery.subquery, level + 1)?,
            Expr::Exists(exists) => self.plan(&exists.subquery.subquery, level + 1)?,
            Expr::InSubquery(within) => self.plan(&within.subquery.subquery, level + 1)?,
            Expr::SetComparison(compared) => self.plan(&compared.subquery.subquery, level + 1)?,
            _ => {}
        }
        let visited = expr.apply_children(|child| Ok(goes_on(self.expr(child, level + 1))));
        (visited.ok()? != TreeNodeRecursion::Stop).then_some(())
    }

    /// Notes a function; `None` where its values are not the same for the same arguments.
    fn function(&mut self, function: Function) -> Option<()> {
        let is_fixed = function.volatility() == Volatility::Immutable;
        self.known.functions.push(function);
        is_fixed.then_some(())
    }
}

fn goes_on(read: Option<()>) -> TreeNodeRecursion {
    match read {
        Some(()) => TreeNodeRecursion::Continue,
        None => TreeNodeRecursion::Stop,
    }
}

/// A function of a plan.
#[derive(Clone)]
enum Function {
    Scalar(Arc<ScalarUDF>),
    HigherOrder(Arc<HigherOrderUDF>),
    Aggregate(Arc<AggregateUDF>),
    Window(Arc<WindowUDF>),
}

impl Function {
    fn volatility(&self) -> Volatility {
        let of = |signature: &Signature| signature.volatility;
        match self {
            Function::Scalar(function) => of(function.signature()),
            Function::HigherOrder(function) => function.signature().volatility,
            Function::Aggregate(function) => of(function.signature()),
            Function::Window(function) => of(function.signature()),
        }
    }

    /// Whether it is the very same, not only one of the same name.
    fn is(&self, other: &Function) -> bool {
        match (self, other) {
            (Function::Scalar(a), Function::Scalar(b)) => Arc::ptr_eq(a, b),
            (Function::HigherOrder(a), Function::HigherOrder(b)) => Arc::ptr_eq(a, b),
            (Function::Aggregate(a), Function::Aggregate(b)) => Arc::ptr_eq(a, b),
            (Function::Window(a), Function::Window(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// A logical plan, but for the tables that it scans: those may not be kept alive.
pub(super) struct LogicalKey {
    hash: u64,
    plan: LogicalPlan,
    functions: Vec<Function>,
    types: Vec<DataType>,
}

impl LogicalKey {
    /// Of a plan and what is known of it.
    pub fn of(plan: &LogicalPlan, known: &Repeatable) -> Result<LogicalKey> {
        let without_tables = plan.clone().transform_down_with_subqueries(|plan| match plan {
            LogicalPlan::TableScan(mut scan) => {
                scan.source = Arc::new(LogicalTableSource::new(scan.source.schema()));
                Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
            }
            plan => Ok(Transformed::no(plan)),
        });
        Ok(LogicalKey {
            hash: hash_of(plan),
            plan: without_tables?.data,
            functions: known.functions.clone(),
            types: known.types.clone(),
        })
    }

    /// Whether it is that of a plan, whose hash is known already.
    pub fn is_of(&self, hash: u64, plan: &LogicalPlan, known: &Repeatable) -> bool {
        // DataFusion compares scans without their tables.
        self.hash == hash
            && self.types == known.types
            && self.functions.len() == known.functions.len()
            && self.functions.iter().zip(&known.functions).all(|(a, b)| a.is(b))
            && self.plan == *plan
    }
}

/// The hash of a plan, but for the tables that it scans.
pub(super) fn hash_of(plan: &LogicalPlan) -> u64 {
    let mut hasher = DefaultHasher::new();
    plan.hash(&mut hasher);
    hasher.finish()
}
