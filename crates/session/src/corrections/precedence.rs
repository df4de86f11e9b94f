//! How operators group. The parser reads all that follows `IS DISTINCT FROM` as its right side, `b IS DISTINCT FROM (c AND d)`, and binds
//! `||` closer than `+`. Here chains of operators without parentheses are grouped anew, as the standard and PostgreSQL group them: IS
//! DISTINCT FROM before NOT, AND and OR, and `||` after arithmetic. And `NOT EXISTS (…) IS NULL` is read as `(NOT EXISTS (…)) IS NULL`, where
//! IS comes before NOT as it does everywhere else.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, Precedence};

use crate::operators::{asked, left_of, level_between};
use crate::syntax::{Flow, Walk, visit};

/// Groups the operators of a statement anew, where its parser grouped them wrongly.
pub(super) fn group(statement: &mut Statement) {
    let mut suspicion = Suspicion;
    if visit(statement, &mut suspicion).is_break() {
        let _ = visit(statement, &mut Regroup::default());
    }
}

/// Looks for an operator whose operands may be grouped wrongly: most statements have none.
struct Suspicion;

impl Walk for Suspicion {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let level = |operand: &Expr| Infix::of(operand).map_or(u8::MAX, |infix| infix.level());
        let expr = &*expr;
        let suspicious = match expr {
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                level(right) <= level(expr) || is_not(right) || is_not_exists(left)
            }
            Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } => {
                level(left) < level(expr) || level(right) <= level(expr)
            }
            Expr::BinaryOp { left, right, .. } => {
                let own = level(expr);
                is_not_exists(left) && own > level_of_not()
                    || level(left) < own
                    || level(right) <= own && is_concatenation(right)
            }
            _ => asked(expr).is_some_and(is_not_exists),
        };
        match suspicious {
            true => ControlFlow::Break(None),
            false => ControlFlow::Continue(()),
        }
    }
}

fn is_not(expr: &Expr) -> bool {
    matches!(expr, Expr::UnaryOp { op: UnaryOperator::Not, .. })
}

fn is_not_exists(expr: &Expr) -> bool {
    matches!(expr, Expr::Exists { negated: true, .. })
}

fn level_of_not() -> u8 {
    GenericDialect.prec_value(Precedence::UnaryNot)
}

fn is_concatenation(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::StringConcat, .. })
}

/// An operator between two operands.
#[derive(Debug, Clone)]
enum Infix {
    Distinct { negated: bool },
    Binary(BinaryOperator),
}

impl Infix {
    /// The operator of an expression without parentheses around it. Of an operator that is not known here, what it binds stays.
    fn of(expr: &Expr) -> Option<Infix> {
        let infix = match expr {
            Expr::IsDistinctFrom(..) => Infix::Distinct { negated: false },
            Expr::IsNotDistinctFrom(..) => Infix::Distinct { negated: true },
            Expr::BinaryOp { op, .. } => Infix::Binary(op.clone()),
            _ => return None,
        };
        (infix.level() > 0).then_some(infix)
    }

    /// How close it binds; 0 is unknown.
    fn level(&self) -> u8 {
        match self {
            Infix::Distinct { .. } => GenericDialect.prec_value(Precedence::Is),
            // Arrows are grouped where they become calls.
            Infix::Binary(
                BinaryOperator::Arrow
                | BinaryOperator::LongArrow
                | BinaryOperator::HashArrow
                | BinaryOperator::HashLongArrow,
            ) => 0,
            Infix::Binary(op) => level_between(op).unwrap_or(0),
        }
    }

    fn join(self, left: Box<Expr>, right: Box<Expr>) -> Expr {
        match self {
            Infix::Distinct { negated: false } => Expr::IsDistinctFrom(left, right),
            Infix::Distinct { negated: true } => Expr::IsNotDistinctFrom(left, right),
            Infix::Binary(op) => Expr::BinaryOp { left, op, right },
        }
    }
}

/// A chain in the order in which it is written.
#[derive(Debug)]
enum Item {
    Operand(Box<Expr>),
    Not,
    Infix(Infix),
}

/// Groups chains anew, each from its outermost operator.
#[derive(Default)]
struct Regroup {
    /// Where the inner operators of chains lie that are done.
    done: HashSet<usize>,
}

impl Walk for Regroup {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if asked(expr).is_some_and(is_not_exists)
            && let Some(Expr::Exists { negated, .. }) = left_of(expr)
        {
            *negated = false;
            let question = Box::new(std::mem::replace(expr, Expr::value(Value::Null)));
            *expr = Expr::UnaryOp { op: UnaryOperator::Not, expr: question };
            return ControlFlow::Continue(());
        }
        let is_link = |expr: &Expr| Infix::of(expr).is_some() || is_not(expr);
        if !is_link(expr) || self.done.remove(&(&raw const *expr as usize)) {
            return ControlFlow::Continue(());
        }
        let chain = taken(std::mem::replace(expr, Expr::value(Value::Null)));
        *expr = grouped(chain);
        let mut links: Vec<&Expr> = vec![expr];
        while let Some(link) = links.pop() {
            let (first, second) = match link {
                Expr::IsDistinctFrom(left, right)
                | Expr::IsNotDistinctFrom(left, right)
                | Expr::BinaryOp { left, right, .. } => (Some(left), Some(right)),
                Expr::UnaryOp { expr, .. } => (Some(expr), None),
                _ => (None, None),
            };
            for operand in first.into_iter().chain(second).filter(|operand| is_link(operand)) {
                self.done.insert(&raw const **operand as usize);
                links.push(operand);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Takes a chain apart, without recursion: chains may be long.
fn taken(expr: Expr) -> Vec<Item> {
    let mut chain = Vec::new();
    let mut rest = vec![Item::Operand(Box::new(expr))];
    while let Some(item) = rest.pop() {
        let Item::Operand(expr) = item else {
            chain.push(item);
            continue;
        };
        let infix = Infix::of(&expr);
        match (*expr, infix) {
            (
                Expr::IsDistinctFrom(left, right)
                | Expr::IsNotDistinctFrom(left, right)
                | Expr::BinaryOp { left, right, .. },
                Some(infix),
            ) => rest.extend([Item::Operand(right), Item::Infix(infix), Item::Operand(left)]),
            (Expr::UnaryOp { op: UnaryOperator::Not, expr }, _) => {
                rest.extend([Item::Operand(expr), Item::Not])
            }
            (Expr::Exists { subquery, negated: true }, _) => {
                let exists = Box::new(Expr::Exists { subquery, negated: false });
                rest.extend([Item::Operand(exists), Item::Not]);
            }
            (expr, _) => chain.push(Item::Operand(Box::new(expr))),
        }
    }
    chain
}

/// Groups a chain by how close its operators bind; those of one level from left to right.
fn grouped(chain: Vec<Item>) -> Expr {
    let not_level = level_of_not();
    let (mut operands, mut waiting): (Vec<Box<Expr>>, Vec<Item>) = (Vec::new(), Vec::new());
    let reduce = |operands: &mut Vec<Box<Expr>>, operator: Item| match operator {
        Item::Not => {
            if let Some(expr) = operands.pop() {
                operands.push(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr }));
            }
        }
        Item::Infix(infix) => {
            if let (Some(right), Some(left)) = (operands.pop(), operands.pop()) {
                operands.push(Box::new(infix.join(left, right)));
            }
        }
        Item::Operand(expr) => operands.push(expr),
    };
    for item in chain {
        match item {
            Item::Operand(expr) => operands.push(expr),
            // What it applies to follows.
            Item::Not => waiting.push(Item::Not),
            Item::Infix(infix) => {
                let binds = |before: &Item| match before {
                    Item::Not => not_level >= infix.level(),
                    Item::Infix(before) => before.level() >= infix.level(),
                    Item::Operand(_) => false,
                };
                while let Some(before) = waiting.pop_if(|before| binds(before)) {
                    reduce(&mut operands, before);
                }
                waiting.push(Item::Infix(infix));
            }
        }
    }
    while let Some(operator) = waiting.pop() {
        reduce(&mut operands, operator);
    }
    // A chain has at least one operand, and one more than operators between two.
    operands.pop().map_or_else(|| Expr::value(Value::Null), |expr| *expr)
}
