//! Windows before types are brought together: numbers of rows as BIGINT, frames over keys of which DataFusion knows no distances, and what IGNORE
//! NULLS looks at.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion, TreeNodeRewriter};
use datafusion::common::{DFSchema, ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, Union, WindowFrame, WindowFrameBound, WindowFrameUnits,
};
use kelpie_datafusion::{LogicalRule, mended_window_function};

use crate::times::{is_interval, length_of};

/// Mends windows. To be registered before DataFusion's own rules.
pub(crate) const WINDOW_TYPES: LogicalRule = LogicalRule {
    name: "kelpie_window_types",
    applies: |options| options.corrections,
    rewrite: |plan| {
        if !has_windows(&plan)? {
            return Ok(plan);
        }
        let mut mending = Mending { recursive_queries: 0, has_changed: false };
        Ok(plan.rewrite_with_subqueries(&mut mending)?.data)
    },
};

fn has_windows(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::Window(_));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Goes through a plan from the inside out.
struct Mending {
    /// Recursive queries around a node. Their columns have the types that their first term had when it was planned.
    recursive_queries: usize,
    /// Whether a window has changed: what stands above may have got other types too.
    has_changed: bool,
}

impl TreeNodeRewriter for Mending {
    type Node = LogicalPlan;

    fn f_down(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        self.recursive_queries += usize::from(matches!(plan, LogicalPlan::RecursiveQuery(_)));
        Ok(Transformed::no(plan))
    }

    fn f_up(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        self.recursive_queries -= usize::from(matches!(plan, LogicalPlan::RecursiveQuery(_)));
        let mended = match plan {
            LogicalPlan::Window(_) => self.window(plan)?,
            plan => Transformed::no(plan),
        };
        self.has_changed |= mended.transformed;
        match (self.has_changed, &mended.data) {
            // Its schema would stay as it was.
            (true, LogicalPlan::Union(union)) => {
                let union = Union::try_new_with_loose_types(union.inputs.clone())?;
                Ok(Transformed::yes(LogicalPlan::Union(union)))
            }
            (true, _) => mended.map_data(LogicalPlan::recompute_schema),
            (false, _) => Ok(mended),
        }
    }
}

impl Mending {
    fn window(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let schema = merge_schema(&plan.inputs());
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let mended = expr.transform_up(|expr| {
                let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
                let has_function = self.mend_function(&mut call);
                let has_frame = mend_frame(&mut call, &schema)?;
                Ok(Transformed::new_transformed(Expr::WindowFunction(call), has_function || has_frame))
            })?;
            Ok(mended.update_data(|expr| name.restore(expr)))
        })
    }

    /// Puts another function in the place of one that gives another type or other values than SQL's; whether it is such a one.
    fn mend_function(&self, call: &mut WindowFunction) -> bool {
        let WindowFunctionDefinition::WindowUDF(function) = &call.fun else { return false };
        let ignores_nulls = call.params.null_treatment == Some(NullTreatment::IgnoreNulls);
        // What looks at other rows keeps its type.
        let keeps_type = call.params.args.len() > 1 || ignores_nulls;
        if self.recursive_queries > 0 && !keeps_type {
            return false;
        }
        let Some(mended) = mended_window_function(function, ignores_nulls) else { return false };
        call.fun = WindowFunctionDefinition::WindowUDF(mended);
        true
    }
}

/// Writes a frame as one that DataFusion knows; whether it had to.
fn mend_frame(call: &mut WindowFunction, schema: &DFSchema) -> Result<bool> {
    let params = &mut call.params;
    let frame = &mut params.window_frame;
    let bounds = [&frame.start_bound, &frame.end_bound];
    let distance = bounds.into_iter().find_map(distance).cloned();
    let is_range = frame.units == WindowFrameUnits::Range;
    let mut has_lengths = false;
    if !is_range || distance.is_none() {
        for key in params.order_by.iter_mut().filter(|key| is_interval(&key.expr, schema)) {
            key.expr = length_of(std::mem::take(&mut key.expr));
            has_lengths = true;
        }
    }
    let Some(key) = params.order_by.first().filter(|_| is_range) else { return Ok(has_lengths) };
    let data_type = key.expr.get_type(schema)?;
    match (&data_type, distance) {
        (DataType::Date32 | DataType::Date64, Some(_)) => {
            let start = of_days(&mut frame.start_bound);
            Ok(of_days(&mut frame.end_bound) || start)
        }
        (DataType::Timestamp(..), Some(distance)) if is_whole(&distance) => plan_err!(
            "RANGE over the time {} takes an interval, such as INTERVAL '1' DAY, and not the number {distance}",
            key.expr
        ),
        (data_type, None) if !has_distances(data_type) => {
            // Rows up to the current one and its peers: both frames are the same.
            let (start, end) = (frame.start_bound.clone(), frame.end_bound.clone());
            *frame = WindowFrame::new_bounds(WindowFrameUnits::Groups, start, end);
            Ok(true)
        }
        (data_type, Some(distance)) if !has_distances(data_type) => {
            plan_err!("RANGE {distance} over {}: a {data_type} has no distances", key.expr)
        }
        _ => Ok(has_lengths),
    }
}

/// How far a bound is from the current row, where it is at a distance.
fn distance(bound: &WindowFrameBound) -> Option<&ScalarValue> {
    match bound {
        WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance) => {
            Some(distance).filter(|distance| !distance.is_null())
        }
        WindowFrameBound::CurrentRow => None,
    }
}

/// Whether a distance is written as a number, and not as an interval.
fn is_whole(distance: &ScalarValue) -> bool {
    distance.try_as_str().flatten().is_some_and(|written| written.trim().parse::<i64>().is_ok())
}

/// Makes a distance between dates that is a whole number one of days, where DataFusion reads months; whether it is one.
fn of_days(bound: &mut WindowFrameBound) -> bool {
    let (WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance)) = bound else {
        return false;
    };
    let is_whole = is_whole(distance);
    if is_whole {
        *distance = ScalarValue::Utf8(Some(format!("{} days", distance.to_string().trim())));
    }
    is_whole
}

/// Whether DataFusion takes keys of a type for those of a RANGE frame.
fn has_distances(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => has_distances(values),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => true,
        DataType::Boolean | DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => true,
        other => other.is_numeric() || other.is_string() || other.is_null(),
    }
}
