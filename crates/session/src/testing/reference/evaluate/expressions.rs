//! The value of an expression for a row or a group.

use std::cmp::Ordering;

use super::super::tree::{Comparison, Expr, Function, Query};
use super::{Cell, Evaluator, Value};

impl Evaluator<'_> {
    pub(super) fn is_true(&mut self, expr: &Expr) -> bool {
        self.value(expr) == Value::Bool(true)
    }

    fn truth(&mut self, expr: &Expr) -> Option<bool> {
        match self.value(expr) {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn value(&mut self, expr: &Expr) -> Value {
        match expr {
            Expr::Column { relation, name } => self.column(relation.as_deref(), name),
            Expr::Int(number) => Value::Int(*number),
            Expr::Text(text) => Value::Text((*text).to_string()),
            Expr::Bool(value) => Value::Bool(*value),
            Expr::Null(_) => Value::Null,
            Expr::Key { number, .. } => {
                let keys = self.groups.last().map(|group| group.keys.clone()).unwrap_or_default();
                keys.get(*number).cloned().unwrap_or(Value::Null)
            }
            Expr::Compare(comparison, a, b) => {
                of_truth(compared(*comparison, &self.value(a), &self.value(b)))
            }
            Expr::Distinct { negated, left, right } => {
                Value::Bool((self.value(left) != self.value(right)) != *negated)
            }
            Expr::And(a, b) => of_truth(and(self.truth(a), self.truth(b))),
            Expr::Or(a, b) => of_truth(or(self.truth(a), self.truth(b))),
            Expr::Not(of) => of_truth(self.truth(of).map(|value| !value)),
            Expr::IsNull { negated, of } => Value::Bool((self.value(of) == Value::Null) != *negated),
            Expr::Arithmetic(operator, a, b) => match (self.value(a), self.value(b)) {
                (Value::Int(a), Value::Int(b)) => Value::Int(match operator {
                    '+' => a.wrapping_add(b),
                    '-' => a.wrapping_sub(b),
                    _ => a.wrapping_mul(b),
                }),
                _ => Value::Null,
            },
            Expr::Concat(a, b) => match (self.value(a), self.value(b)) {
                (Value::Null, _) | (_, Value::Null) => Value::Null,
                (a, b) => Value::Text(shown(&a) + &shown(&b)),
            },
            Expr::Between { negated, of, low, high } => {
                let (of, low, high) = (self.value(of), self.value(low), self.value(high));
                let (above, below) =
                    (compared(Comparison::GtEq, &of, &low), compared(Comparison::LtEq, &of, &high));
                of_truth(and(above, below).map(|within| within != *negated))
            }
            Expr::InList { negated, of, list } => {
                let of = self.value(of);
                let equal = list.iter().map(|item| compared(Comparison::Eq, &of, &self.value(item)));
                of_truth(equal.fold(Some(false), or).map(|within| within != *negated))
            }
            Expr::Case { when, then, otherwise } => {
                if self.is_true(when) {
                    self.value(then)
                } else {
                    self.value(otherwise)
                }
            }
            Expr::Coalesce(a, b) => match self.value(a) {
                Value::Null => self.value(b),
                value => value,
            },
            Expr::NullIf(a, b) => {
                let (a, b) = (self.value(a), self.value(b));
                if compared(Comparison::Eq, &a, &b) == Some(true) { Value::Null } else { a }
            }
            Expr::Call { function, distinct, argument, filter } => {
                self.call(*function, *distinct, argument.as_deref(), filter.as_deref())
            }
            subquery => self.subquery(subquery),
        }
    }

    fn subquery(&mut self, expr: &Expr) -> Value {
        match expr {
            Expr::Exists { negated, query } => Value::Bool(self.query(query).is_empty() == *negated),
            Expr::Scalar(query) => self
                .query(query)
                .into_iter()
                .next()
                .and_then(|row| row.into_iter().next())
                .unwrap_or(Value::Null),
            Expr::Within { negated, of, query } => {
                let of = self.value(of);
                let equal =
                    self.first_column(query).into_iter().map(|value| compared(Comparison::Eq, &of, &value));
                of_truth(equal.fold(Some(false), or).map(|within| within != *negated))
            }
            Expr::Quantified { of, comparison, all, query } => {
                let of = self.value(of);
                let holds =
                    self.first_column(query).into_iter().map(|value| compared(*comparison, &of, &value));
                of_truth(if *all { holds.fold(Some(true), and) } else { holds.fold(Some(false), or) })
            }
            _ => Value::Null,
        }
    }

    fn first_column(&mut self, query: &Query) -> Vec<Value> {
        self.query(query).into_iter().filter_map(|row| row.into_iter().next()).collect()
    }

    fn column(&self, relation: Option<&str>, name: &str) -> Value {
        let is_meant = |cell: &&Cell| match relation {
            Some(relation) => cell.relation == relation && cell.name == name,
            None => !cell.is_hidden && cell.name == name,
        };
        let mut scopes = self.scopes.iter().rev();
        let found = scopes.find_map(|scope| scope.iter().find(is_meant));
        found.map_or(Value::Null, |cell| cell.value.clone())
    }

    fn call(
        &mut self,
        function: Function,
        is_distinct: bool,
        argument: Option<&Expr>,
        filter: Option<&Expr>,
    ) -> Value {
        // Arguments are of the rows of the group.
        let Some(group) = self.groups.pop() else { return Value::Null };
        let own = self.scopes.pop();
        let mut values = Vec::new();
        for row in &group.rows {
            let value = self.with_row(row, |all| {
                let counts = filter.is_none_or(|filter| all.is_true(filter));
                counts.then(|| argument.map_or(Value::Bool(true), |argument| all.value(argument)))
            });
            values.extend(value.filter(|value| *value != Value::Null));
        }
        self.scopes.extend(own);
        self.groups.push(group);
        if is_distinct {
            values.sort();
            values.dedup();
        }
        match function {
            Function::Count => Value::Int(values.len() as i64),
            Function::Min => values.into_iter().min().unwrap_or(Value::Null),
            Function::Max => values.into_iter().max().unwrap_or(Value::Null),
            Function::Sum if values.is_empty() => Value::Null,
            Function::Sum => Value::Int(values.iter().fold(0, |sum, value| match value {
                Value::Int(number) => sum.wrapping_add(*number),
                _ => sum,
            })),
        }
    }
}

fn of_truth(value: Option<bool>) -> Value {
    value.map_or(Value::Null, Value::Bool)
}

fn and(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn or(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

fn compared(comparison: Comparison, a: &Value, b: &Value) -> Option<bool> {
    if *a == Value::Null || *b == Value::Null {
        return None;
    }
    let order = a.cmp(b);
    Some(match comparison {
        Comparison::Eq => order == Ordering::Equal,
        Comparison::NotEq => order != Ordering::Equal,
        Comparison::Lt => order == Ordering::Less,
        Comparison::LtEq => order != Ordering::Greater,
        Comparison::Gt => order == Ordering::Greater,
        Comparison::GtEq => order != Ordering::Less,
    })
}

/// A value as text.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        Value::Bool(value) => value.to_string(),
    }
}
