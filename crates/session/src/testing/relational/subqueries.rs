//! Subqueries in expressions: scalar ones, EXISTS and IN, correlated or not.

use super::super::queries::{KINDS, Kind};
use super::generator::{Generator, Scope, Value};
use super::tree::Tree;

impl Generator {
    /// A condition of WHERE, perhaps with a subquery.
    pub fn conjunct(&mut self, scope: &Scope, depth: usize) -> Tree {
        if depth == 0 || !self.once_in(4) {
            return self.predicate(scope, 2);
        }
        let subquery = self.subquery_predicate(scope, depth - 1);
        match self.once_in(8) {
            true => Tree::expression("({} OR {})", vec![self.predicate(scope, 1), subquery]),
            false => subquery,
        }
    }

    /// EXISTS, IN, or a comparison with a scalar subquery.
    pub fn subquery_predicate(&mut self, scope: &Scope, depth: usize) -> Tree {
        let inexact = std::mem::take(&mut self.inexact);
        let tree = match self.below(8) {
            0..3 => self.exists(scope, depth),
            3..6 => self.within(scope, depth),
            _ => {
                let kind = [Kind::Int, Kind::Int, Kind::Decimal, Kind::Text, Kind::Date][self.below(5)];
                let value = self.output(kind, scope).tree;
                let operator = Tree::text(self.one(&["=", "<", ">", "<=", ">="]));
                let subquery = self.scalar_subquery(kind, scope).tree;
                Tree::expression("({} {} {})", vec![value, operator, subquery])
            }
        };
        self.inexact = inexact;
        tree
    }

    fn exists(&mut self, scope: &Scope, depth: usize) -> Tree {
        let (from, inner, mut conjuncts) = self.from(depth.min(1));
        if !self.once_in(6) {
            conjuncts.extend(self.correlation(&inner, scope));
        }
        if self.once_in(2) {
            conjuncts.push(self.predicate(&inner, 1));
        }
        let filter = Tree::List { prefix: " WHERE ", separator: " AND ", least: 0, items: conjuncts };
        let exists = Tree::text(self.one(&["EXISTS", "NOT EXISTS"]));
        Tree::expression("{} (SELECT 1{}{})", vec![exists, from, filter])
    }

    fn within(&mut self, scope: &Scope, depth: usize) -> Tree {
        let kind = match scope.columns.len() {
            0 => KINDS[self.below(KINDS.len())],
            n => scope.columns[self.below(n)].kind,
        };
        let value = self.output(kind, scope).tree;
        let operator = Tree::text(self.one(&["IN", "IN", "NOT IN"]));
        if self.once_in(3) {
            let (subquery, ..) = self.derived(&[kind], depth.min(1));
            return Tree::expression("({} {} ({}))", vec![value, operator, subquery]);
        }
        let (from, inner, mut conjuncts) = self.from(depth.min(1));
        if self.once_in(3) {
            conjuncts.extend(self.correlation(&inner, scope));
        }
        if self.once_in(2) {
            conjuncts.push(self.predicate(&inner, 1));
        }
        let filter = Tree::List { prefix: " WHERE ", separator: " AND ", least: 0, items: conjuncts };
        let item = self.output(kind, &inner).tree;
        Tree::expression("({} {} (SELECT {}{}{}))", vec![value, operator, item, from, filter])
    }

    /// An aggregate over another FROM clause, for each row of the scope or once; or its first value in order.
    pub fn scalar_subquery(&mut self, kind: Kind, scope: &Scope) -> Value {
        let inexact = std::mem::take(&mut self.inexact);
        let (from, inner, mut conjuncts) = self.from(0);
        let first = self.once_in(6);
        if !first && self.once_in(2) {
            conjuncts.extend(self.correlation(&inner, scope));
        }
        if self.once_in(2) {
            conjuncts.push(self.predicate(&inner, 1));
        }
        let filter = Tree::List { prefix: " WHERE ", separator: " AND ", least: 0, items: conjuncts };
        let (item, pattern) = match first {
            true => (self.output(kind, &inner), "(SELECT {}{}{} ORDER BY 1 LIMIT 1)"),
            false => (self.aggregate(kind, &inner), "(SELECT {}{}{})"),
        };
        self.inexact = inexact;
        Value { plain: false, ..Value::of(kind, Tree::expression(pattern, vec![item.tree, from, filter])) }
    }

    /// Conditions between a subquery's rows and those around it: an equality, and sometimes more.
    fn correlation(&mut self, inner: &Scope, outer: &Scope) -> Vec<Tree> {
        let mut pairs = Vec::new();
        for a in &inner.columns {
            pairs.extend(outer.columns.iter().filter(|b| b.kind == a.kind).map(|b| (a, b)));
        }
        if pairs.is_empty() {
            return Vec::new();
        }
        let mut operators = vec!["="];
        if self.once_in(5) {
            operators.push(self.one(&["=", "<", "<>", ">="]));
        }
        let mut conditions = Vec::new();
        for operator in operators {
            let (a, b) = pairs[self.below(pairs.len())];
            let parts = vec![Tree::text(&a.name), Tree::text(operator), Tree::text(&b.name)];
            conditions.push(Tree::expression("{} {} {}", parts));
        }
        conditions
    }
}
