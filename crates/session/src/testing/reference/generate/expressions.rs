//! Expressions, with aggregates and subqueries among them.

use super::super::tree::{Body, Comparison, Expr, From, Function, Group, Type};
use super::{Column, Generator, WORDS};

impl Generator {
    /// A column of the innermost query.
    pub(super) fn own_column(&mut self, data_type: Type) -> Option<Expr> {
        let level = self.levels.last()?;
        let found: Vec<Column> =
            level.columns.iter().filter(|column| column.data_type == data_type).cloned().collect();
        let column = found.get(self.rng.usize(0..found.len().max(1)))?;
        let by_name = column.relation.is_empty() || column.is_plain && self.chance(40);
        let relation = (!by_name).then(|| column.relation.clone());
        Some(Expr::Column { relation, name: column.name.clone() })
    }

    /// A column of any of the queries around.
    fn outer_column(&mut self, data_type: Type) -> Option<Expr> {
        let mut found: Vec<Column> = Vec::new();
        for (place, level) in self.levels.iter().enumerate().rev().skip(1) {
            let hidden = |column: &Column| {
                let mut within = self.levels[place + 1..].iter().flat_map(|level| &level.columns);
                within.any(|own| own.relation == column.relation)
            };
            let fits = |column: &&Column| {
                column.data_type == data_type && !column.relation.is_empty() && !hidden(column)
            };
            // Of groups, nothing but keys may be named.
            if level.keys.is_none() {
                found.extend(level.columns.iter().filter(fits).cloned());
            }
        }
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

    pub(super) fn expr(&mut self, data_type: Type, depth: usize) -> Expr {
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
                let mut list = vec![self.leaf(data_type), self.leaf(data_type)];
                list.insert(self.rng.usize(0..3), b);
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
