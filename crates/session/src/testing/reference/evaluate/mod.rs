//! What a query means: row by row, by nested loops, in SQL's three values of truth. Nothing of it is clever.

mod expressions;
mod from;

pub(super) use expressions::shown;
use from::visible;

use super::tree::{Body, Expr, Group, Query, Select, SetOperation};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Value {
    Bool(bool),
    Int(i64),
    Text(String),
    /// Comes last in an order.
    Null,
}

pub(super) type Row = Vec<Value>;

/// A table: rows of `a`, `b` and `s`.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub name: &'static str,
    pub rows: Vec<Row>,
}

/// The columns of every table.
pub(super) const COLUMNS: [&str; 3] = ["a", "b", "s"];

/// A column of a row of a FROM.
#[derive(Debug, Clone)]
struct Cell {
    /// Empty where it is the merged column of a join.
    relation: String,
    name: String,
    value: Value,
    /// Whether only its relation's name leads to it: a merged column has taken its place.
    is_hidden: bool,
}

type Scope = Vec<Cell>;

/// The rows of a group, and its keys.
#[derive(Debug, Clone, Default)]
struct Members {
    rows: Vec<Scope>,
    keys: Vec<Value>,
}

/// Evaluates queries over some tables.
pub(super) struct Evaluator<'a> {
    tables: &'a [Table],
    /// The rows around, the innermost last.
    scopes: Vec<Scope>,
    groups: Vec<Members>,
}

impl Evaluator<'_> {
    pub fn new(tables: &[Table]) -> Evaluator<'_> {
        Evaluator { tables, scopes: Vec::new(), groups: Vec::new() }
    }

    pub fn query(&mut self, query: &Query) -> Vec<Row> {
        let mut rows = self.body(&query.body);
        if let Some((skip, keep)) = query.limit {
            rows.sort();
            rows = rows.into_iter().skip(skip).take(keep).collect();
        }
        rows
    }

    fn body(&mut self, body: &Body) -> Vec<Row> {
        match body {
            Body::Select(select) => self.select(select),
            Body::Set { operation, all, left, right } => {
                let (mut left, mut right) = (self.body(left), self.body(right));
                if !*all {
                    (left, right) = (distinct(left), distinct(right));
                }
                match operation {
                    SetOperation::Union => {
                        left.extend(right);
                        if *all { left } else { distinct(left) }
                    }
                    SetOperation::Except => {
                        left.retain(|row| !take_one(&mut right, row));
                        left
                    }
                    SetOperation::Intersect => {
                        left.retain(|row| take_one(&mut right, row));
                        left
                    }
                }
            }
        }
    }

    fn select(&mut self, select: &Select) -> Vec<Row> {
        let mut rows = match &select.from {
            Some(from) => self.from(from).rows,
            None => vec![Scope::new()],
        };
        if let Some(filter) = &select.filter {
            rows.retain(|row| self.with_row(row, |all| all.is_true(filter)));
        }
        let mut found = Vec::new();
        match &select.group {
            Group::None => {
                for row in &rows {
                    found.push(self.with_row(row, |all| match select.items.is_empty() {
                        true => visible(row),
                        false => select.items.iter().map(|item| all.value(item)).collect(),
                    }));
                }
            }
            Group::Keys(keys) => {
                let all: Vec<usize> = (0..keys.len()).collect();
                self.grouped(select, (keys, &all), &rows, &mut found);
            }
            Group::Sets { keys, sets } => {
                for set in sets {
                    self.grouped(select, (keys, set), &rows, &mut found);
                }
            }
        }
        if select.distinct { distinct(found) } else { found }
    }

    /// Adds the rows of the groups by some of the keys.
    fn grouped(
        &mut self,
        select: &Select,
        (keys, set): (&[Expr], &[usize]),
        rows: &[Scope],
        found: &mut Vec<Row>,
    ) {
        let mut groups: Vec<Members> = Vec::new();
        if set.is_empty() {
            let keys = vec![Value::Null; keys.len()];
            groups.push(Members { rows: rows.to_vec(), keys });
        } else {
            for row in rows {
                let values = self.with_row(row, |all| {
                    let key = |(place, key)| if set.contains(&place) { all.value(key) } else { Value::Null };
                    keys.iter().enumerate().map(key).collect::<Vec<_>>()
                });
                match groups.iter_mut().find(|group| group.keys == values) {
                    Some(group) => group.rows.push(row.clone()),
                    None => groups.push(Members { rows: vec![row.clone()], keys: values }),
                }
            }
        }
        for group in groups {
            self.groups.push(group);
            // Of a group's own row, only the keys may be named.
            self.scopes.push(Scope::new());
            if select.having.as_ref().is_none_or(|having| self.is_true(having)) {
                found.push(select.items.iter().map(|item| self.value(item)).collect());
            }
            self.scopes.pop();
            self.groups.pop();
        }
    }

    fn with_row<T>(&mut self, row: &Scope, f: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(row.clone());
        let result = f(self);
        self.scopes.pop();
        result
    }
}

fn distinct(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort();
    rows.dedup();
    rows
}

/// Takes a copy of a row out of some; whether there was one.
fn take_one(rows: &mut Vec<Row>, row: &Row) -> bool {
    match rows.iter().position(|other| other == row) {
        Some(place) => {
            rows.swap_remove(place);
            true
        }
        None => false,
    }
}
