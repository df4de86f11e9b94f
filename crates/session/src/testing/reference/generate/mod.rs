//! Random queries over the tables.

mod expressions;
mod from;

use fastrand::Rng;

use super::tree::{Body, Comparison, Expr, Function, Group, Query, Select, SetOperation, Type};

/// The tables' names.
pub(super) const TABLES: [&str; 3] = ["r", "t", "u"];

/// Texts of the tables.
pub(super) const WORDS: [&str; 4] = ["x", "yy", "", "é"];

fn type_of(column: &str) -> Type {
    if column == "s" { Type::Text } else { Type::Int }
}

/// A column that may be named.
#[derive(Debug, Clone)]
struct Column {
    /// Empty where it is the merged column of a join.
    relation: String,
    name: String,
    data_type: Type,
    /// Whether its name alone leads to it.
    is_plain: bool,
}

/// What an expression may be made of.
#[derive(Debug, Clone, Default)]
struct Level {
    columns: Vec<Column>,
    /// The keys of groups, where rows are grouped: nothing else may then be named outside aggregates.
    keys: Option<Vec<(Expr, Type)>>,
}

pub(super) struct Generator {
    rng: Rng,
    /// The queries around, the innermost last.
    levels: Vec<Level>,
    aliases: usize,
    queries: usize,
}

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator { rng: Rng::with_seed(seed), levels: Vec::new(), aliases: 0, queries: 0 }
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(0..100) < percent
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(0..of.len())]
    }

    fn any_type(&mut self) -> Type {
        self.pick(&[Type::Int, Type::Int, Type::Text, Type::Bool])
    }

    /// A query at the top.
    pub fn query(&mut self) -> Query {
        if self.chance(8) {
            let select = self.select(&[], 3);
            return Query { body: Body::Select(Box::new(Select { items: vec![], ..select })), limit: None };
        }
        let types: Vec<Type> = (0..self.rng.usize(1..4)).map(|_| self.any_type()).collect();
        self.query_of(&types, 3)
    }

    fn query_of(&mut self, types: &[Type], depth: usize) -> Query {
        self.queries += 1;
        let body = self.body(types, depth);
        let limit = self.chance(15).then(|| (self.rng.usize(0..3), self.rng.usize(0..5)));
        Query { body, limit }
    }

    fn body(&mut self, types: &[Type], depth: usize) -> Body {
        if depth > 1 && self.chance(20) {
            let operation = self.pick(&[SetOperation::Union, SetOperation::Except, SetOperation::Intersect]);
            let (left, right) = (self.body(types, depth - 1), self.body(types, depth - 1));
            let all = self.chance(60);
            return Body::Set { operation, all, left: Box::new(left), right: Box::new(right) };
        }
        Body::Select(Box::new(self.select(types, depth)))
    }

    /// A SELECT with columns of these types; with none of them, one of rows as they are.
    fn select(&mut self, types: &[Type], depth: usize) -> Select {
        let (from, columns) = self.from(depth);
        self.levels.push(Level { columns, keys: None });
        let filter = self.chance(60).then(|| self.expr(Type::Bool, depth));
        let group = if types.is_empty() || self.chance(65) { Group::None } else { self.group(depth) };
        let keys = match &group {
            Group::None => None,
            Group::Keys(keys) | Group::Sets { keys, .. } => Some(keys.clone()),
        };
        let keyed = keys.map(|keys| {
            let typed = keys.into_iter().map(|key| (key.clone(), self.type_of_key(&key)));
            typed.collect::<Vec<_>>()
        });
        let is_grouped = keyed.is_some();
        if let Some(level) = self.levels.last_mut() {
            level.keys = keyed;
        }
        let items = types.iter().map(|data_type| self.expr(*data_type, depth)).collect();
        let mut having = (is_grouped && self.chance(35)).then(|| self.expr(Type::Bool, depth));
        if matches!(&group, Group::Keys(keys) if keys.is_empty()) {
            // Without keys, only an aggregate makes one group of all rows.
            let count =
                Expr::Call { function: Function::Count, distinct: false, argument: None, filter: None };
            let holds = Expr::Compare(Comparison::GtEq, Box::new(count), Box::new(Expr::Int(0)));
            having = Some(match having {
                Some(having) => Expr::And(Box::new(having), Box::new(holds)),
                None => holds,
            });
        }
        let distinct = !types.is_empty() && self.chance(15);
        self.levels.pop();
        Select { distinct, items, from: Some(from), filter, group, having }
    }

    fn type_of_key(&self, key: &Expr) -> Type {
        match key {
            Expr::Column { relation, name } => {
                let columns = self.levels.last().map(|level| level.columns.as_slice()).unwrap_or_default();
                let is_meant = |column: &&Column| match relation {
                    Some(relation) => column.relation == *relation && column.name == *name,
                    None => column.is_plain && column.name == *name,
                };
                columns.iter().find(is_meant).map_or(Type::Int, |column| column.data_type)
            }
            _ => Type::Int,
        }
    }

    /// Keys are columns, or sums of them.
    fn group(&mut self, depth: usize) -> Group {
        let mut keys: Vec<Expr> = Vec::new();
        for _ in 0..self.rng.usize(0..3) {
            let data_type = self.pick(&[Type::Int, Type::Text]);
            let Some(key) = self.own_column(data_type) else { continue };
            let key = match data_type {
                Type::Int if self.chance(25) => {
                    Expr::Arithmetic('+', Box::new(key), Box::new(Expr::Int(self.rng.i64(1..4))))
                }
                _ => key,
            };
            // One column by two names is one key.
            let bare = |key: &Expr| match key {
                Expr::Column { name, .. } => name.clone(),
                key => key.to_string(),
            };
            if !keys.iter().any(|known| bare(known) == bare(&key)) {
                keys.push(key);
            }
        }
        if keys.len() > 1 && depth > 1 && self.chance(30) {
            let mut sets: Vec<Vec<usize>> = Vec::new();
            for _ in 0..self.rng.usize(1..4) {
                sets.push((0..keys.len()).filter(|_| self.rng.bool()).collect());
            }
            // Every key is in one of them.
            sets.push((0..keys.len()).collect());
            return Group::Sets { keys, sets };
        }
        Group::Keys(keys)
    }
}
