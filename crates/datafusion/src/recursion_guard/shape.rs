//! How deep and how large a physical plan is, found without recursion.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, InListExpr, Literal};
use datafusion::physical_plan::ExecutionPlan;
use kelpie_engine::with_stack;

use crate::exec::KelpieExec;

/// Operators of a plan that Kelpie translates: each is tried, and may become kernels.
const OPERATOR_LIMIT: usize = 1_000;
/// Levels of operators that Kelpie translates.
pub(crate) const LEVEL_LIMIT: usize = 200;
/// Parts of a plan's expressions that Kelpie translates: the time of a kernel's compiler grows faster than they do.
const PART_LIMIT: usize = 10_000;
/// Where a walk gives up: an expression whose parts are shared is no larger than that in memory, but may be as a tree.
const WALK_LIMIT: usize = 4_000_000;
/// What Kelpie's walks take where nothing is deep, and for a level, in a build without optimization.
const BASE_BYTES: usize = 768 << 10;
const LEVEL_BYTES: usize = 16 << 10;

/// The measures of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Levels of operators.
    pub levels: usize,
    /// Operators.
    pub operators: usize,
    /// Levels of the deepest expression.
    pub expr_levels: usize,
    /// Parts of all expressions.
    pub parts: usize,
}

impl Shape {
    /// Measures a plan.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Shape {
        let mut shape = Shape::default();
        let mut open = vec![(plan, 1)];
        while let Some((node, level)) = open.pop() {
            shape.levels = shape.levels.max(level);
            shape.operators += 1;
            let (levels, parts) = own_exprs(node);
            shape.expr_levels = shape.expr_levels.max(levels);
            shape.parts = shape.parts.saturating_add(parts);
            open.extend(inputs(node).into_iter().map(|child| (child, level + 1)));
        }
        shape
    }

    /// Why Kelpie leaves all of a plan to DataFusion, where it does.
    pub fn refusal(&self) -> Option<String> {
        let too_many = |what: &str, found: usize, limit: usize| {
            (found > limit).then(|| format!("the plan has {found} {what}, and at most {limit} are compiled"))
        };
        too_many("levels of operators", self.levels, LEVEL_LIMIT)
            .or_else(|| too_many("operators", self.operators, OPERATOR_LIMIT))
            .or_else(|| too_many("parts of expressions", self.parts, PART_LIMIT))
    }
}

/// Runs `work`, which walks a plan by recursion, where there is enough stack.
pub fn with_room<R>(plan: &Arc<dyn ExecutionPlan>, work: impl FnOnce() -> R) -> R {
    let shape = Shape::of(plan);
    with_stack(BASE_BYTES + (shape.levels + shape.expr_levels).saturating_mul(LEVEL_BYTES), work)
}

/// The inputs of a node; what a compiled node replaces, and keeps, is an input of it.
fn inputs(node: &Arc<dyn ExecutionPlan>) -> Vec<&Arc<dyn ExecutionPlan>> {
    match node.downcast_ref::<KelpieExec>() {
        Some(compiled) => vec![compiled.original()],
        None => node.children(),
    }
}

/// Levels of the deepest of a node's own expressions, and parts of all of them.
pub(crate) fn own_exprs(node: &Arc<dyn ExecutionPlan>) -> (usize, usize) {
    let (mut levels, mut parts) = (0, 0);
    let visited = node.apply_expressions(&mut |expr| {
        let (expr_levels, expr_parts) = walk(expr, parts_of);
        levels = levels.max(expr_levels);
        parts += expr_parts;
        Ok(TreeNodeRecursion::Continue)
    });
    // The callback does not fail; what a node fails to show is not known to be shallow.
    match visited {
        Ok(_) => (levels, parts),
        Err(_) => (usize::from(u16::MAX), parts),
    }
}

/// Levels of an expression, where a chain of AND or OR is one: those that Kelpie compiles.
pub(crate) fn expr_depth(expr: &Arc<dyn PhysicalExpr>) -> usize {
    walk(expr, |expr| match expr.downcast_ref::<BinaryExpr>() {
        Some(binary) if matches!(binary.op(), Operator::And | Operator::Or) => operands(expr, *binary.op()),
        _ => parts_of(expr),
    })
    .0
}

/// The operands of a chain of one connective, from left to right.
pub(crate) fn operands(expr: &Arc<dyn PhysicalExpr>, connective: Operator) -> Vec<&Arc<dyn PhysicalExpr>> {
    let mut found = Vec::new();
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        match expr.downcast_ref::<BinaryExpr>() {
            Some(binary) if *binary.op() == connective => open.extend([binary.right(), binary.left()]),
            _ => found.push(expr),
        }
    }
    found
}

/// The operands; the constants of an IN list are data, not parts.
fn parts_of(expr: &Arc<dyn PhysicalExpr>) -> Vec<&Arc<dyn PhysicalExpr>> {
    let mut operands = expr.children();
    if expr.is::<InListExpr>() {
        operands.retain(|operand| !operand.is::<Literal>());
    }
    operands
}

/// Levels and parts of a tree.
fn walk<'a>(
    expr: &'a Arc<dyn PhysicalExpr>,
    children: impl Fn(&'a Arc<dyn PhysicalExpr>) -> Vec<&'a Arc<dyn PhysicalExpr>>,
) -> (usize, usize) {
    let (mut deepest, mut parts) = (0, 0);
    let mut open = vec![(expr, 1)];
    while let Some((expr, level)) = open.pop() {
        deepest = deepest.max(level);
        parts += 1;
        if parts < WALK_LIMIT {
            open.extend(children(expr).into_iter().map(|child| (child, level + 1)));
        }
    }
    (deepest, parts)
}
