//! Operators that stand behind their first operand.

use super::Result;
use super::expr_parser::{Operand, deepest, made};
use super::expr_printer::Strength;
use super::lexer::Kind;
use super::scope::Scope;
use super::tokens::Tokens;
use super::words;
use crate::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Function, Regex};
use crate::types::DataType;

/// An operator, how strongly it binds its operands, and of how many tokens it is.
pub(super) struct Infix {
    pub(super) strength: Strength,
    operator: Operator,
    tokens: usize,
}

#[derive(Clone, Copy)]
enum Operator {
    Or,
    And,
    Compare(CompareOp),
    Distinct { negated: bool },
    IsNull { negated: bool },
    In { negated: bool },
    Like { negated: bool, case_insensitive: bool },
    Regex { negated: bool },
    Concat,
    Arithmetic(ArithmeticOp),
}

/// A matcher of an operator's words: the operator, and how many words it takes.
const WORDS: [(&[&str], Operator); 14] = [
    (&["or"], Operator::Or),
    (&["and"], Operator::And),
    (&["is", "not", "distinct", "from"], Operator::Distinct { negated: true }),
    (&["is", "distinct", "from"], Operator::Distinct { negated: false }),
    (&["is", "not", "null"], Operator::IsNull { negated: true }),
    (&["is", "null"], Operator::IsNull { negated: false }),
    (&["not", "in"], Operator::In { negated: true }),
    (&["in"], Operator::In { negated: false }),
    (&["not", "like"], Operator::Like { negated: true, case_insensitive: false }),
    (&["like"], Operator::Like { negated: false, case_insensitive: false }),
    (&["not", "ilike"], Operator::Like { negated: true, case_insensitive: true }),
    (&["ilike"], Operator::Like { negated: false, case_insensitive: true }),
    (&["~"], Operator::Regex { negated: false }),
    (&["!~"], Operator::Regex { negated: true }),
];

impl Operator {
    fn strength(self) -> Strength {
        match self {
            Operator::Or => Strength::Or,
            Operator::And => Strength::And,
            Operator::Concat => Strength::Concat,
            Operator::Arithmetic(op) => Strength::of_arithmetic(op),
            _ => Strength::Compare,
        }
    }
}

impl Tokens {
    /// The operator that is next, if it binds its operands at least so strongly.
    pub(super) fn infix(&self, least: Strength) -> Option<Infix> {
        let (operator, tokens) = self.operator()?;
        let strength = operator.strength();
        (strength >= least).then_some(Infix { strength, operator, tokens })
    }

    fn operator(&self) -> Option<(Operator, usize)> {
        if let Kind::Mark(mark) = self.peek() {
            let other = words::arithmetic_of(mark).map(Operator::Arithmetic);
            let other = other.or(words::compare_of(mark).map(Operator::Compare));
            if let Some(operator) = other.or((*mark == "||").then_some(Operator::Concat)) {
                return Some((operator, 1));
            }
        }
        let found = WORDS.iter().find(|(words, _)| self.are_next(words));
        found.map(|(words, operator)| (*operator, words.len()))
    }

    /// The operator, which is next, over its first operand and what stands behind it.
    pub(super) fn infixed(&mut self, scope: &Scope, left: Operand, infix: Infix) -> Result<Operand> {
        (0..infix.tokens).for_each(|_| drop(self.advance()));
        let made = match infix.operator {
            Operator::IsNull { negated } => {
                let (a, depth) = (Box::new(left.expr), left.depth);
                made(
                    if negated { ExprKind::IsNotNull(a) } else { ExprKind::IsNull(a) },
                    &DataType::Null,
                    depth,
                )
            }
            Operator::In { negated } => self.in_list(scope, left, negated)?,
            Operator::Regex { negated } => self.regex(left, negated)?,
            operator => self.binary(scope, left, (operator, infix.strength))?,
        };
        Ok(Operand { is_comparison: infix.strength == Strength::Compare, ..made })
    }

    fn binary(
        &mut self,
        scope: &Scope,
        mut left: Operand,
        (operator, strength): (Operator, Strength),
    ) -> Result<Operand> {
        let mut right = self.operand(scope, strength.above())?;
        if !matches!(operator, Operator::Like { .. }) {
            self.fit_both(&mut left, &mut right)?;
        }
        let depth = left.depth.max(right.depth);
        let (a, b) = (Box::new(left.expr), Box::new(right.expr));
        let kind = match operator {
            Operator::Or => ExprKind::Or(a, b),
            Operator::And => ExprKind::And(a, b),
            Operator::Compare(op) => ExprKind::Compare(op, a, b),
            Operator::Distinct { negated } => ExprKind::Distinct(negated, a, b),
            Operator::Like { negated, case_insensitive } => {
                ExprKind::Like { input: a, pattern: b, negated, case_insensitive }
            }
            Operator::Arithmetic(op) => ExprKind::Arithmetic(op, a, b),
            // The others are not made of two operands.
            _ => ExprKind::Function(Function::ConcatOperator, vec![*a, *b]),
        };
        Ok(made(kind, &DataType::Null, depth))
    }

    fn in_list(&mut self, scope: &Scope, left: Operand, negated: bool) -> Result<Operand> {
        self.mark("(")?;
        let mut list = self.closed_list(|tokens| tokens.operand(scope, Strength::Any))?;
        if left.bare.is_none() {
            list.iter_mut().try_for_each(|element| self.fit(element, &left.expr.data_type))?;
        }
        let depth = deepest(&list).max(left.depth);
        let list: Vec<Expr> = list.into_iter().map(|element| element.expr).collect();
        Ok(made(ExprKind::InList { input: Box::new(left.expr), list, negated }, &DataType::Null, depth))
    }

    fn regex(&mut self, left: Operand, negated: bool) -> Result<Operand> {
        let Kind::Text(pattern) = self.peek() else {
            return self.expected("a regular expression in single quotes");
        };
        match Regex::new(pattern, "") {
            Ok(regex) => {
                self.advance();
                let kind = ExprKind::Regex { input: Box::new(left.expr), regex, negated };
                Ok(made(kind, &DataType::Null, left.depth))
            }
            Err(error) => self.error_at(self.position(), error.to_string()),
        }
    }
}
