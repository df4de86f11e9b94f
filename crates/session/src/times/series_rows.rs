//! A series whose bounds are constants as the rows of a query: a table, and not a list that is made while the statement is planned.

use std::sync::Arc;

use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, NullHandling, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{EmptyRelation, Expr, LogicalPlan, LogicalPlanBuilder, Projection, Unnest};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use kelpie_datafusion::{KelpieOptions, SeriesTable};

use super::series::{is_series, values};

/// Makes such tables, before constants are folded.
#[derive(Debug)]
pub(super) struct SeriesRows;

impl OptimizerRule for SeriesRows {
    fn name(&self) -> &str {
        "kelpie_series_rows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let made = match &plan {
            LogicalPlan::Unnest(unnest) if KelpieOptions::of(&config.options()).corrections => {
                table_of(unnest, config)?
            }
            _ => None,
        };
        Ok(made.map_or_else(|| Transformed::no(plan), Transformed::yes))
    }
}

/// The table whose rows are those of `unnest(generate_series(…))` over a single row.
fn table_of(unnest: &Unnest, config: &dyn OptimizerConfig) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Projection(Projection { expr, input, .. }) = unnest.input.as_ref() else {
        return Ok(None);
    };
    let is_one_row =
        matches!(input.as_ref(), LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. }));
    let fields: Vec<_> = unnest.schema.iter().collect();
    let ([list], [(_, element)], [(name, field)], []) = (
        expr.as_slice(),
        unnest.list_type_columns.as_slice(),
        fields.as_slice(),
        unnest.struct_type_columns.as_slice(),
    ) else {
        return Ok(None);
    };
    let Expr::ScalarFunction(call) = list.clone().unalias_nested().data else { return Ok(None) };
    // An empty list would be a row, too, where empty lists are kept.
    let drops_empty = unnest.options.null_handling != NullHandling::PreserveAndExpandEmpty;
    if !is_one_row || element.depth != 1 || !drops_empty || !is_series(&call.func) {
        return Ok(None);
    }
    // What is wrong with a call, it says itself when it runs.
    let Some(arguments) = constants(call.args, config) else { return Ok(None) };
    let Ok(Some(series)) = values(&call.func, &arguments) else { return Ok(None) };
    if series.data_type() != field.data_type() {
        return Ok(None);
    }
    let table = provider_as_source(Arc::new(SeriesTable::new(series)));
    let rows = LogicalPlanBuilder::scan(call.func.name(), table, None)?;
    let column = Expr::Column(Column::new_unqualified(SeriesTable::COLUMN));
    let column = column.alias_qualified(name.cloned(), field.name());
    rows.project([column])?.build().map(Some)
}

/// The values of arguments that are constants.
fn constants(arguments: Vec<Expr>, config: &dyn OptimizerConfig) -> Option<Vec<ScalarValue>> {
    if arguments.iter().any(|argument| argument.exists(|expr| Ok(is_unknown(expr))).unwrap_or(true)) {
        return None;
    }
    let context = SimplifyContext::builder()
        .with_config_options(config.options())
        .with_query_execution_start_time(config.query_execution_start_time())
        .build();
    let simplifier = ExprSimplifier::new(context);
    let value = |argument| match simplifier.simplify(argument).ok()? {
        Expr::Literal(value, _) if !value.is_null() => Some(value),
        _ => None,
    };
    arguments.into_iter().map(value).collect()
}

/// What is known only when the statement runs.
fn is_unknown(expr: &Expr) -> bool {
    let is_subquery = matches!(expr, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_));
    is_subquery || matches!(expr, Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::Placeholder(_))
}
