//! Chains of AND and OR as balanced trees.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value, VisitMut, VisitorMut};

/// Chains that are shorter stay as the parser makes them.
const SHORTEST: usize = 64;

/// Balances every long chain of ANDs or ORs of a statement. Both are associative in three-valued logic, and SQL leaves open
/// which operands are evaluated where others decide; but left-deep, a chain is as deep as it is long, and DataFusion takes
/// the square of that to plan it.
pub fn balance(statement: &mut Statement) {
    let _ = match statement {
        Statement::Statement(statement) => statement.as_mut().visit(&mut Balance),
        Statement::Explain(explain) => return balance(&mut explain.statement),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.visit(&mut Balance),
            CopyToSource::Relation(_) => return,
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => return,
    };
}

struct Balance;

impl VisitorMut for Balance {
    type Break = ();

    /// Before its operands are visited, so that the visitor does not go down the whole chain.
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } = expr {
            let op = op.clone();
            if length(expr, &op) >= SHORTEST {
                *expr = balanced(operands(expr, &op), &op);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Operands of a left-deep chain.
fn length(mut expr: &Expr, chain: &BinaryOperator) -> usize {
    let mut operands = 1;
    while let Expr::BinaryOp { left, op, .. } = expr
        && op == chain
    {
        operands += 1;
        expr = left;
    }
    operands
}

/// Takes a left-deep chain apart; the operands from left to right.
fn operands(expr: &mut Expr, chain: &BinaryOperator) -> Vec<Expr> {
    let mut operands = Vec::new();
    let mut rest = take(expr);
    loop {
        match rest {
            Expr::BinaryOp { left, op, right } if op == *chain => {
                operands.push(*right);
                rest = *left;
            }
            first => {
                operands.push(first);
                operands.reverse();
                return operands;
            }
        }
    }
}

fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::value(Value::Null))
}

/// Operands in their order, joined in pairs, the pairs in pairs.
fn balanced(mut operands: Vec<Expr>, op: &BinaryOperator) -> Expr {
    while operands.len() > 1 {
        let mut pairs = Vec::with_capacity(operands.len().div_ceil(2));
        let mut rest = operands.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => {
                    Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) }
                }
                None => left,
            });
        }
        operands = pairs;
    }
    operands.pop().unwrap_or_else(|| Expr::value(Value::Null))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    fn parsed(sql: &str) -> Statement {
        DFParser::parse_sql(sql).unwrap().pop_front().unwrap()
    }

    #[test]
    fn long_chains_are_balanced_and_read_the_same() {
        let chain = |op: &str| (0..1000).map(|i| format!("a = {i}")).collect::<Vec<_>>().join(op);
        for sql in [
            format!("SELECT 1 FROM t WHERE {}", chain(" OR ")),
            format!("SELECT 1 FROM t WHERE {}", chain(" AND ")),
            format!(
                "SELECT {} FROM t WHERE EXISTS (SELECT 1 FROM u WHERE ({}))",
                chain(" OR "),
                chain(" AND ")
            ),
            format!("EXPLAIN SELECT CASE WHEN {} THEN 1 ELSE 2 END FROM t", chain(" OR ")),
        ] {
            let mut statement = parsed(&sql);
            assert_eq!(statement.to_string(), sql);
            balance(&mut statement);
            assert_eq!(statement.to_string(), sql);
            // No chain is left to balance, so none is deep.
            let longest = longest_chain(&mut statement);
            assert!(longest < 20, "{longest}: {sql:.60}");
        }
    }

    #[test]
    fn short_chains_stay() {
        let sql = "SELECT 1 FROM t WHERE a OR b OR c AND d AND e OR f";
        let mut statement = parsed(sql);
        balance(&mut statement);
        assert_eq!(statement, parsed(sql));
    }

    fn longest_chain(statement: &mut Statement) -> usize {
        struct Longest(usize);
        impl VisitorMut for Longest {
            type Break = ();
            fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
                for op in [BinaryOperator::And, BinaryOperator::Or] {
                    self.0 = self.0.max(length(expr, &op));
                }
                ControlFlow::Continue(())
            }
        }
        let mut longest = Longest(0);
        match statement {
            Statement::Explain(explain) => return longest_chain(&mut explain.statement),
            Statement::Statement(statement) => {
                let _ = statement.as_mut().visit(&mut longest);
            }
            _ => {}
        }
        longest.0
    }
}
