//! Tables, derived tables and joins, and which columns can be named over them.

use super::super::evaluate::COLUMNS;
use super::super::tree::{Comparison, Expr, From, JoinKind, On, Type};
use super::{Column, Generator, Level, TABLES, type_of};

impl Generator {
    pub(super) fn from(&mut self, depth: usize) -> (From, Vec<Column>) {
        let (mut from, mut columns) = self.relation(depth);
        for _ in 0..self.pick(&[0, 0, 0, 1, 1, 2]) {
            let (right, right_columns) = self.relation(depth);
            if right_columns.iter().any(|r| columns.iter().any(|l| l.relation == r.relation)) {
                continue;
            }
            let kind = self.pick(&[JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full]);
            let both: Vec<Column> = columns.iter().chain(&right_columns).cloned().collect();
            let shared = shared(&columns, &right_columns);
            let on = match self.rng.u8(0..10) {
                0 => On::Cross,
                1..=3 if !shared.is_empty() && is_unambiguous(&columns, &right_columns, &shared) => {
                    On::Natural
                }
                4..=6 if !shared.is_empty() => {
                    let keys: Vec<String> = shared.iter().filter(|_| self.rng.bool()).cloned().collect();
                    On::Using(if keys.is_empty() { vec![shared[0].clone()] } else { keys })
                }
                _ => {
                    self.levels.push(Level { columns: plain(both.clone()), keys: None });
                    let condition = self.condition();
                    self.levels.pop();
                    On::Condition(condition)
                }
            };
            let keys = match &on {
                On::Using(keys) => keys.clone(),
                On::Natural => shared,
                On::Cross | On::Condition(_) => vec![],
            };
            let kind = if matches!(on, On::Cross) { JoinKind::Inner } else { kind };
            columns = merged(columns, right_columns, &keys);
            from = From::Join { kind, left: Box::new(from), right: Box::new(right), on };
        }
        (from, plain(columns))
    }

    fn relation(&mut self, depth: usize) -> (From, Vec<Column>) {
        self.aliases += 1;
        let alias = format!("q{}", self.aliases);
        if depth > 1 && self.chance(15) {
            let types: Vec<Type> = (0..self.rng.usize(1..4)).map(|_| self.any_type()).collect();
            // A derived table sees nothing of what stands around it.
            let around = std::mem::take(&mut self.levels);
            let query = self.query_of(&types, depth - 1);
            self.levels = around;
            let columns = types.into_iter().enumerate().map(|(place, data_type)| Column {
                relation: alias.clone(),
                name: format!("c{place}"),
                data_type,
                is_plain: true,
            });
            return (From::Derived { query: Box::new(query), alias: alias.clone() }, columns.collect());
        }
        let name = self.pick(&TABLES);
        let alias = self.chance(70).then_some(alias);
        let relation = alias.clone().unwrap_or_else(|| name.to_string());
        let columns = COLUMNS.iter().map(|column| Column {
            relation: relation.clone(),
            name: (*column).to_string(),
            data_type: type_of(column),
            is_plain: true,
        });
        (From::Table { name, alias }, columns.collect())
    }

    /// A condition of a join: without subqueries.
    fn condition(&mut self) -> Expr {
        let data_type = self.pick(&[Type::Int, Type::Text]);
        let (Some(a), Some(b)) = (self.own_column(data_type), self.own_column(data_type)) else {
            return Expr::Bool(true);
        };
        let first = match self.rng.u8(0..6) {
            0 => Expr::Distinct { negated: true, left: Box::new(a), right: Box::new(b) },
            1 => Expr::Compare(Comparison::LtEq, Box::new(a), Box::new(b)),
            _ => Expr::Compare(Comparison::Eq, Box::new(a), Box::new(b)),
        };
        match self.chance(30) {
            true => Expr::And(Box::new(first), Box::new(self.expr(Type::Bool, 0))),
            false => first,
        }
    }
}

/// Names that are one column of each side.
fn shared(left: &[Column], right: &[Column]) -> Vec<String> {
    let count = |columns: &[Column], name: &str| {
        columns.iter().filter(|column| column.is_plain && column.name == name).count()
    };
    let all = |columns: &[Column], name: &str| {
        columns
            .iter()
            .filter(|column| column.name == name && (column.is_plain || !column.relation.is_empty()))
            .count()
    };
    let mut names: Vec<String> = Vec::new();
    for column in left.iter().filter(|column| column.is_plain) {
        let name = &column.name;
        let is_one = count(left, name) == 1 && count(right, name) == 1 && all(right, name) == 1;
        let fits = right.iter().any(|other| other.name == *name && other.data_type == column.data_type);
        if is_one && fits && !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Whether NATURAL joins by just these names.
fn is_unambiguous(left: &[Column], right: &[Column], shared: &[String]) -> bool {
    left.iter().all(|l| shared.contains(&l.name) || right.iter().all(|r| r.name != l.name))
}

/// The columns of a join by these keys: a hidden one keeps its relation.
fn merged(left: Vec<Column>, right: Vec<Column>, keys: &[String]) -> Vec<Column> {
    let mut all = Vec::new();
    for column in left.into_iter().chain(right) {
        if keys.contains(&column.name) && column.is_plain {
            if !all.iter().any(|known: &Column| known.relation.is_empty() && known.name == column.name) {
                all.push(Column { relation: String::new(), ..column.clone() });
            }
            if !column.relation.is_empty() {
                all.push(Column { is_plain: false, ..column });
            }
        } else {
            all.push(column);
        }
    }
    all
}

/// Columns of which those are plain that share their name with no other plain one.
fn plain(columns: Vec<Column>) -> Vec<Column> {
    let is_single = |column: &Column| {
        column.is_plain
            && columns.iter().filter(|other| other.is_plain && other.name == column.name).count() == 1
    };
    let single: Vec<bool> = columns.iter().map(is_single).collect();
    // A merged column that is not the only one of its name cannot be named at all.
    let all =
        columns.into_iter().zip(single).filter(|(column, single)| *single || !column.relation.is_empty());
    all.map(|(column, single)| Column { is_plain: single, ..column }).collect()
}
