//! Parameters of prepared statements that the optimizer cannot look into, so that one plan serves all values: a *generic* plan.
//!
//! DataFusion's EXECUTE puts the values of its parameters into the statement as constants. Here each constant carries a mark that
//! says which parameter it is ([`marked`]), and [`GenericQuery::of`] makes scalar subqueries of all that depends on nothing but
//! parameters: `x < date '1998-12-01' - $1` becomes `x < (SELECT date '1998-12-01' - "$1" FROM parameters)`. DataFusion
//! optimizes around such a subquery and computes it once a run. Kelpie computes it when it makes the copy of the plan for a run
//! (`value`), and puts a literal in its place, as if the value had stood in the statement.
//!
//! Some parameters stay constants, which makes them a part of the plan, of which there is then one for each: NULL and truth
//! values, as whole conditions hang on them, and limits, which are no expressions.

mod table;

use std::any::Any;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use datafusion::catalog::TableProvider;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue, TableReference, not_impl_err};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    Execute, Expr, LogicalPlan, LogicalPlanBuilder, TableProviderFilterPushDown, Volatility, scalar_subquery,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use crate::corrections::map_expressions;
use table::ParametersTable;
pub use table::{ParametersExec, Values};
pub(crate) use table::{is_of_parameters, value};

/// The name of the metadata of a constant that is a parameter; their value is the parameter's number. A statement may give
/// metadata to its own constants, but cannot know this name.
static MARK: LazyLock<String> =
    LazyLock::new(|| format!("kelpie.parameter.{:016x}", RandomState::new().hash_one(TABLE)));
/// The name of the table of parameters.
const TABLE: &str = "parameters";

/// Whether a table is one of parameters.
pub fn is_parameters(table: &dyn TableProvider) -> bool {
    let any: &dyn Any = table;
    any.is::<ParametersTable>()
}

/// An EXECUTE whose values are marked as parameters, so that they are found again in the statement's plan. `None` where one
/// of them is no constant.
pub fn marked(state: &SessionState, execute: &Execute) -> Option<Execute> {
    let context = SimplifyContext::builder()
        .with_config_options(Arc::clone(state.config_options()))
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    let simplifier = ExprSimplifier::new(context);
    let mark = |(number, expr): (usize, &Expr)| match simplifier.simplify(expr.clone()) {
        Ok(Expr::Literal(value, None)) => {
            let mark = BTreeMap::from([(MARK.clone(), number.to_string())]);
            Some(Expr::Literal(value, Some(FieldMetadata::new(mark))))
        }
        _ => None,
    };
    let parameters = execute.parameters.iter().enumerate().map(mark).collect::<Option<Vec<_>>>()?;
    Some(Execute { name: execute.name.clone(), parameters })
}

/// The number of a parameter, where an expression is one.
fn number(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Literal(_, Some(metadata)) => metadata.inner().get(MARK.as_str())?.parse().ok(),
        _ => None,
    }
}

/// The number and value of a parameter that is to be one of the generic plan.
fn parameter(expr: &Expr) -> Option<(usize, &ScalarValue)> {
    let number = number(expr)?;
    match expr {
        Expr::Literal(ScalarValue::Boolean(_), _) => None,
        Expr::Literal(value, _) => (!value.is_null()).then_some((number, value)),
        _ => None,
    }
}

fn has_mark(expr: &Expr) -> bool {
    expr.exists(|part| Ok(number(part).is_some())).unwrap_or(false)
}

/// A query whose parameters are columns of a table.
#[derive(Debug)]
pub struct GenericQuery {
    /// The query over that table.
    pub plan: LogicalPlan,
    /// What the parameters are in the statement that it was made of.
    pub values: Values,
}

impl GenericQuery {
    /// That of a plan with marked constants. `None` where no parameter is left in it; an error where one stands where no
    /// subquery may.
    pub fn of(plan: LogicalPlan) -> Result<Option<GenericQuery>> {
        let mut values = BTreeMap::new();
        plan.apply_with_subqueries(|node| {
            if has_constants_only(node) {
                return Ok(TreeNodeRecursion::Continue);
            }
            node.apply_expressions(|expr| {
                expr.apply(|part| {
                    values.extend(parameter(part).map(|(number, value)| (number, value.clone())));
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        if values.is_empty() {
            return Ok(None);
        }
        let names = values.keys().copied().map(column_name).collect::<Vec<_>>();
        let values: Values = values.into_values().collect();
        let table = provider_as_source(Arc::new(ParametersTable::new(&names, &values)));
        let scan = LogicalPlanBuilder::scan(TABLE, table, None)?.build()?;
        let plan = plan.transform_up_with_subqueries(|node| generic_node(node, &scan)).data()?;
        Ok(Some(GenericQuery { plan, values }))
    }
}

/// Whether a node has no expressions that are computed: its parameters stay constants.
fn has_constants_only(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Limit(_))
}

fn column_name(number: usize) -> String {
    format!("${}", number + 1)
}

/// A node with its parameters read from a scan of their table.
fn generic_node(node: LogicalPlan, scan: &LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match node {
        LogicalPlan::TableScan(mut table) if table.filters.iter().any(has_mark) => {
            let filters: Vec<&Expr> = table.filters.iter().collect();
            let supported = table.source.supports_filters_pushdown(&filters)?;
            let is_exact = |(filter, kind): (&Expr, &TableProviderFilterPushDown)| {
                has_mark(filter) && *kind == TableProviderFilterPushDown::Exact
            };
            // What a table filters by itself stands nowhere else, and its columns may be gone. All else is filtered above too.
            if filters.len() != supported.len() || table.filters.iter().zip(&supported).any(is_exact) {
                return not_impl_err!("a parameter in a filter that its table applies");
            }
            table.filters.retain(|filter| !has_mark(filter));
            Ok(Transformed::yes(LogicalPlan::TableScan(table)))
        }
        LogicalPlan::Values(values) if values.values.iter().flatten().any(has_mark) => {
            not_impl_err!("a parameter in VALUES")
        }
        node if has_constants_only(&node) => node.map_expressions(without_marks),
        node => map_expressions(node, |expr| Ok(has_mark(expr)), |expr| generic_expr(expr, scan)),
    }
}

fn without_marks(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|part| match (number(&part), part) {
        (Some(_), Expr::Literal(value, _)) => Ok(Transformed::yes(Expr::Literal(value, None))),
        (_, part) => Ok(Transformed::no(part)),
    })
}

/// The expression with a subquery for each of its largest parts that depend on parameters only.
fn generic_expr(expr: Expr, scan: &LogicalPlan) -> Result<Transformed<Expr>> {
    let replaced = expr.transform_down(|part| {
        if is_closed(&part)? && has_parameter(&part)? {
            let subquery =
                LogicalPlanBuilder::from(scan.clone()).project(vec![over_columns(part)?])?.build()?;
            return Ok(Transformed::new(scalar_subquery(Arc::new(subquery)), true, TreeNodeRecursion::Jump));
        }
        Ok(match part {
            // DataFusion makes a join of a list whose only element is a subquery.
            Expr::InList(InList { expr, mut list, negated }) if list.len() == 1 => {
                let (element, expr) = (list.remove(0), *expr);
                Transformed::yes(if negated { expr.not_eq(element) } else { expr.eq(element) })
            }
            part => Transformed::no(part),
        })
    })?;
    let changed = replaced.transformed;
    without_marks(replaced.data).map(|expr| Transformed { transformed: expr.transformed || changed, ..expr })
}

fn has_parameter(expr: &Expr) -> Result<bool> {
    expr.exists(|part| Ok(parameter(part).is_some()))
}

/// The expression over the columns of the table of parameters.
fn over_columns(expr: Expr) -> Result<Expr> {
    let columns = expr.transform_up(|part| match parameter(&part).map(|(number, _)| column_name(number)) {
        Some(name) => {
            let column = Column::new(Some(TableReference::bare(TABLE)), name);
            Ok(Transformed::yes(Expr::Column(column)))
        }
        None => Ok(Transformed::no(part)),
    });
    without_marks(columns.data()?).data()
}

/// Whether the value of an expression is the same for all rows and all times, as its parts are constants.
fn is_closed(expr: &Expr) -> Result<bool> {
    let is_open = expr.exists(|part| {
        Ok(match part {
            Expr::ScalarFunction(call) => call.func.signature().volatility != Volatility::Immutable,
            Expr::Literal(..)
            | Expr::BinaryExpr(_)
            | Expr::Like(_)
            | Expr::SimilarTo(_)
            | Expr::Not(_)
            | Expr::IsNotNull(_)
            | Expr::IsNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNotFalse(_)
            | Expr::IsNotUnknown(_)
            | Expr::Negative(_)
            | Expr::Between(_)
            | Expr::Case(_)
            | Expr::Cast(_)
            | Expr::TryCast(_)
            | Expr::InList(_) => false,
            _ => true,
        })
    })?;
    Ok(!is_open)
}
