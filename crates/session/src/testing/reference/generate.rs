//! Random queries over the tables.

use fastrand::Rng;

use super::evaluate::COLUMNS;
use super::tree::{
    Body, Comparison, Expr, From, Function, Group, JoinKind, On, Query, Select, SetOperation, Type,
};

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

    fn from(&mut self, depth: usize) -> (From, Vec<Column>) {
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

    /// A column of the innermost query.
    fn own_column(&mut self, data_type: Type) -> Option<Expr> {
        let level = self.levels.last()?;
        let found: Vec<Column> =
            level.columns.iter().filter(|column| column.data_type == data_type).cloned().collect();
        let column = found.get(self.rng.usize(0..found.len().max(1)))?;
        let by_name = column.relation.is_empty() || column.is_plain && self.chance(40);
        let relation = (!by_name).then(|| column.relation.clone());
        Some(Expr::Column { relation, name: column.name.clone() })
    }

    /// A column of a query around.
    fn outer_column(&mut self, data_type: Type) -> Option<Expr> {
        let (_, around) = self.levels.split_last()?;
        // DataFusion looks one query further out only.
        let level = around.last().filter(|level| level.keys.is_none())?;
        let hidden = |column: &Column| {
            self.levels
                .last()
                .is_some_and(|own| own.columns.iter().any(|own| own.relation == column.relation))
        };
        let found: Vec<Column> = level
            .columns
            .iter()
            .filter(|column| column.data_type == data_type && !column.relation.is_empty() && !hidden(column))
            .cloned()
            .collect();
        let column = found.get(self.rng.usize(0..found.len().max(1)))?;
        Some(Expr::Column { relation: Some(column.relation.clone()), name: column.name.clone() })
    }

    fn leaf(&mut self, data_type: Type) -> Expr {
        let keys = self.levels.last().and_then(|level| level.keys.clone());
        if let Some(keys) = keys {
            if self.chance(60) && data_type != Type::Bool {
                return self.call(data_type);
            }
            let fitting: Vec<usize> = (0..keys.len()).filter(|key| keys[*key].1 == data_type).collect();
            if !fitting.is_empty() {
                let number = self.pick(&fitting);
                return Expr::Key { number, written: Box::new(keys[number].0.clone()) };
            }
        } else if self.chance(80) {
            let outer = if self.chance(25) { self.outer_column(data_type) } else { None };
            if let Some(column) = outer.or_else(|| self.own_column(data_type)) {
                return column;
            }
        }
        if self.chance(12) {
            return Expr::Null(data_type);
        }
        match data_type {
            Type::Int => Expr::Int(self.rng.i64(0..5)),
            Type::Text => Expr::Text(self.pick(&WORDS)),
            Type::Bool => Expr::Bool(self.rng.bool()),
        }
    }

    fn call(&mut self, data_type: Type) -> Expr {
        let functions: &[Function] = match data_type {
            Type::Int => &[Function::Count, Function::Count, Function::Sum, Function::Min, Function::Max],
            Type::Text | Type::Bool => &[Function::Min, Function::Max],
        };
        let function = self.pick(functions);
        let level = self.levels.last_mut().and_then(|level| level.keys.take());
        let argument_type =
            if function == Function::Count { self.pick(&[Type::Int, Type::Text]) } else { data_type };
        let argument = match function {
            Function::Count if self.chance(40) => None,
            _ => Some(Box::new(self.own_column(argument_type).unwrap_or(Expr::Null(argument_type)))),
        };
        let filter = self.chance(15).then(|| Box::new(self.comparison(0)));
        let distinct = argument.is_some() && self.chance(20);
        if let Some(own) = self.levels.last_mut() {
            own.keys = level;
        }
        Expr::Call { function, distinct, argument, filter }
    }

    fn expr(&mut self, data_type: Type, depth: usize) -> Expr {
        if depth == 0 || self.chance(30) {
            return if data_type == Type::Bool { self.comparison(0) } else { self.leaf(data_type) };
        }
        let depth = depth - 1;
        match (data_type, self.rng.u8(0..10)) {
            (Type::Bool, _) => self.boolean(depth),
            (_, 0) => Expr::Case {
                when: Box::new(self.expr(Type::Bool, depth)),
                then: Box::new(self.expr(data_type, depth)),
                otherwise: Box::new(self.expr(data_type, depth)),
            },
            (_, 1) => Expr::Coalesce(Box::new(self.expr(data_type, depth)), Box::new(self.leaf(data_type))),
            (_, 2) => Expr::NullIf(Box::new(self.expr(data_type, depth)), Box::new(self.leaf(data_type))),
            (_, 3) if self.may_ask() => self.scalar(data_type, depth),
            (Type::Int, 4..=6) => {
                let operator = self.pick(&['+', '-', '*']);
                Expr::Arithmetic(
                    operator,
                    Box::new(self.expr(Type::Int, depth)),
                    Box::new(self.expr(Type::Int, depth)),
                )
            }
            (Type::Text, 4..=5) => {
                Expr::Concat(Box::new(self.expr(Type::Text, depth)), Box::new(self.leaf(Type::Text)))
            }
            _ => self.leaf(data_type),
        }
    }

    /// Whether another subquery may stand here.
    fn may_ask(&self) -> bool {
        self.queries < 6 && self.levels.len() < 3
    }

    fn scalar(&mut self, data_type: Type, depth: usize) -> Expr {
        let types = [if data_type == Type::Bool { Type::Int } else { data_type }];
        let mut query = self.query_of(&types, depth.min(1));
        query.limit = None;
        // At most one row: an aggregate of all.
        if let Body::Select(select) = &mut query.body {
            select.group = Group::Keys(vec![]);
            select.distinct = false;
            select.having = None;
            let column = select.from.as_ref().and_then(|from| own_column_of(from, types[0]));
            let column = column.unwrap_or(Expr::Null(types[0]));
            select.items.clear();
            let function = self.pick(&[Function::Min, Function::Max, Function::Count]);
            let function = if types[0] == Type::Text { Function::Max } else { function };
            let argument = Some(Box::new(column));
            select.items.push(Expr::Call { function, distinct: false, argument, filter: None });
        }
        Expr::Scalar(Box::new(query))
    }

    fn boolean(&mut self, depth: usize) -> Expr {
        let (a, b) = (self.expr(Type::Bool, depth), self.expr(Type::Bool, depth));
        match self.rng.u8(0..10) {
            0..=2 => Expr::And(Box::new(a), Box::new(b)),
            3..=4 => Expr::Or(Box::new(a), Box::new(b)),
            5 => Expr::Not(Box::new(a)),
            6 => Expr::IsNull { negated: self.rng.bool(), of: Box::new(a) },
            7..=8 if self.may_ask() => self.asked(depth),
            _ => self.comparison(depth),
        }
    }

    /// A condition with a subquery.
    fn asked(&mut self, depth: usize) -> Expr {
        let data_type = self.pick(&[Type::Int, Type::Text]);
        let negated = self.chance(40);
        match self.rng.u8(0..4) {
            0 => {
                let types = [data_type];
                Expr::Exists { negated, query: Box::new(self.query_of(&types, depth.min(1))) }
            }
            1..=2 => {
                let of = Box::new(self.leaf(data_type));
                Expr::Within { negated, of, query: Box::new(self.query_of(&[data_type], depth.min(1))) }
            }
            _ => {
                let of = Box::new(self.leaf(data_type));
                let comparison = self.any_comparison();
                let query = Box::new(self.query_of(&[data_type], depth.min(1)));
                Expr::Quantified { of, comparison, all: negated, query }
            }
        }
    }

    fn any_comparison(&mut self) -> Comparison {
        self.pick(&[
            Comparison::Eq,
            Comparison::NotEq,
            Comparison::Lt,
            Comparison::LtEq,
            Comparison::Gt,
            Comparison::GtEq,
        ])
    }

    fn comparison(&mut self, depth: usize) -> Expr {
        let data_type = self.pick(&[Type::Int, Type::Int, Type::Text]);
        let (a, b) = (self.expr(data_type, depth), self.expr(data_type, depth));
        let negated = self.rng.bool();
        match self.rng.u8(0..10) {
            0 => Expr::Distinct { negated, left: Box::new(a), right: Box::new(b) },
            1 => Expr::IsNull { negated, of: Box::new(a) },
            2 => {
                let high = Box::new(self.leaf(data_type));
                Expr::Between { negated, of: Box::new(a), low: Box::new(b), high }
            }
            3 => {
                // The parser takes a subquery that begins a list for all of it.
                let list = vec![self.leaf(data_type), b, self.leaf(data_type)];
                Expr::InList { negated, of: Box::new(a), list }
            }
            _ => Expr::Compare(self.any_comparison(), Box::new(a), Box::new(b)),
        }
    }
}

/// A column of a table of a FROM. An aggregate of a column from further out would be one of the query there.
fn own_column_of(from: &From, data_type: Type) -> Option<Expr> {
    match from {
        From::Table { name, alias } => {
            let relation = alias.clone().unwrap_or_else(|| (*name).to_string());
            let name = if data_type == Type::Text { "s" } else { "b" };
            Some(Expr::Column { relation: Some(relation), name: name.into() })
        }
        From::Derived { .. } => None,
        From::Join { left, right, .. } => {
            own_column_of(left, data_type).or_else(|| own_column_of(right, data_type))
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
