//! What a query means: row by row, by nested loops, in SQL's three values of truth. Nothing of it is clever.

use std::cmp::Ordering;

use super::tree::{Body, Comparison, Expr, From, Function, Group, JoinKind, On, Query, Select, SetOperation};

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

    fn from(&mut self, from: &From) -> Relation {
        match from {
            From::Table { name, alias } => {
                let rows =
                    self.tables.iter().find(|table| table.name == *name).map(|table| table.rows.clone());
                let relation = alias.clone().unwrap_or_else(|| (*name).to_string());
                let names = COLUMNS.iter().map(|column| (*column).to_string()).collect();
                Relation::new(relation, names, rows.unwrap_or_default())
            }
            From::Derived { query, alias } => {
                let rows = self.query(query);
                let names = (0..query.body.columns()).map(|place| format!("c{place}")).collect();
                Relation::new(alias.clone(), names, rows)
            }
            From::Join { kind, left, right, on } => {
                let (left, right) = (self.from(left), self.from(right));
                self.join(*kind, left, right, on)
            }
        }
    }

    fn join(&mut self, kind: JoinKind, left: Relation, right: Relation, on: &On) -> Relation {
        let keys: Vec<String> = match on {
            On::Using(keys) => keys.clone(),
            On::Natural => {
                let names = |relation: &Relation| -> Vec<String> {
                    relation
                        .nulls
                        .iter()
                        .filter(|cell| !cell.is_hidden)
                        .map(|cell| cell.name.clone())
                        .collect()
                };
                let right = names(&right);
                names(&left).into_iter().filter(|name| right.contains(name)).collect()
            }
            On::Cross | On::Condition(_) => Vec::new(),
        };
        let merged = |l: &Scope, r: &Scope| merge(kind, &keys, l, r);
        let nulls = merged(&left.nulls, &right.nulls);
        let mut rows = Vec::new();
        let mut met = vec![false; right.rows.len()];
        for l in &left.rows {
            let mut has_met = false;
            for (place, r) in right.rows.iter().enumerate() {
                let both: Scope = l.iter().chain(r).cloned().collect();
                let holds = match on {
                    On::Cross => true,
                    On::Condition(condition) => self.with_row(&both, |all| all.is_true(condition)),
                    On::Using(_) | On::Natural => keys.iter().all(|key| {
                        let (l, r) = (named(l, key), named(r, key));
                        l != Value::Null && l == r
                    }),
                };
                if holds {
                    rows.push(merged(l, r));
                    (has_met, met[place]) = (true, true);
                }
            }
            if !has_met && matches!(kind, JoinKind::Left | JoinKind::Full) {
                rows.push(merged(l, &right.nulls));
            }
        }
        if matches!(kind, JoinKind::Right | JoinKind::Full) {
            let alone = right.rows.iter().zip(&met).filter(|(_, met)| !**met);
            rows.extend(alone.map(|(r, _)| merged(&left.nulls, r)));
        }
        Relation { rows, nulls }
    }

    fn is_true(&mut self, expr: &Expr) -> bool {
        self.value(expr) == Value::Bool(true)
    }

    fn truth(&mut self, expr: &Expr) -> Option<bool> {
        match self.value(expr) {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    fn value(&mut self, expr: &Expr) -> Value {
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

/// Rows of a FROM, and one of NULLs.
struct Relation {
    rows: Vec<Scope>,
    nulls: Scope,
}

impl Relation {
    fn new(relation: String, names: Vec<String>, rows: Vec<Row>) -> Relation {
        let row = |values: Row| -> Scope {
            let cells = names.iter().zip(values).map(|(name, value)| {
                let (relation, name) = (relation.clone(), name.clone());
                Cell { relation, name, value, is_hidden: false }
            });
            cells.collect()
        };
        let nulls = row(vec![Value::Null; names.len()]);
        Relation { rows: rows.into_iter().map(row).collect(), nulls }
    }
}

/// A row of a join, with the keys of both sides merged.
fn merge(kind: JoinKind, keys: &[String], left: &Scope, right: &Scope) -> Scope {
    let is_key = |cell: &Cell| !cell.is_hidden && keys.contains(&cell.name);
    let mut row = Scope::new();
    let mut hidden = Scope::new();
    for cell in left {
        if !is_key(cell) {
            row.push(cell.clone());
            continue;
        }
        let (l, r) = (cell.value.clone(), named(right, &cell.name));
        let value = match kind {
            JoinKind::Inner | JoinKind::Left => l,
            JoinKind::Right => r,
            JoinKind::Full => {
                if l == Value::Null {
                    r
                } else {
                    l
                }
            }
        };
        row.push(Cell { relation: String::new(), name: cell.name.clone(), value, is_hidden: false });
        hidden.push(Cell { is_hidden: true, ..cell.clone() });
    }
    for cell in right {
        match is_key(cell) {
            true => hidden.push(Cell { is_hidden: true, ..cell.clone() }),
            false => row.push(cell.clone()),
        }
    }
    row.extend(hidden.into_iter().filter(|cell| !cell.relation.is_empty()));
    row
}

fn named(row: &Scope, name: &str) -> Value {
    let cell = row.iter().find(|cell| !cell.is_hidden && cell.name == name);
    cell.map_or(Value::Null, |cell| cell.value.clone())
}

/// What `*` shows.
fn visible(row: &Scope) -> Row {
    row.iter().filter(|cell| !cell.is_hidden).map(|cell| cell.value.clone()).collect()
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
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        Value::Bool(value) => value.to_string(),
    }
}
