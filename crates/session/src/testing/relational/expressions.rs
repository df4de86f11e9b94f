//! Values, predicates and aggregates over a scope.

use super::super::queries::KINDS;
use super::super::queries::Kind;
use super::generator::{Generator, Scope, Value};
use super::tables::{Column, literal};
use super::tree::Tree;

impl Generator {
    fn literal(&mut self, kind: Kind) -> Tree {
        match self.once_in(25) {
            true => {
                let name = match kind {
                    Kind::Bool => "BOOLEAN",
                    Kind::Int => "INT",
                    Kind::Float => "DOUBLE",
                    Kind::Decimal => "DECIMAL(9, 2)",
                    Kind::Date => "DATE",
                    Kind::Timestamp => "TIMESTAMP",
                    Kind::Text => "VARCHAR",
                };
                Tree::text(format!("CAST(NULL AS {name})"))
            }
            false => Tree::text(literal(&mut self.rng, kind)),
        }
    }

    /// A column of a kind; with `plain`, one that may be computed with.
    fn column<'a>(&mut self, kind: Kind, scope: &'a Scope, plain: bool) -> Option<&'a Column> {
        let fits = |column: &&Column| column.kind == kind && (column.plain || !plain);
        let columns: Vec<&Column> = scope.columns.iter().filter(fits).collect();
        match columns.len() {
            0 => None,
            n => Some(columns[self.below(n)]),
        }
    }

    fn leaf(&mut self, kind: Kind, scope: &Scope) -> Tree {
        match self.column(kind, scope, true) {
            Some(column) if !self.once_in(6) => Tree::Expression(vec![Tree::text(&column.name)]),
            None if !self.once_in(6) => self.made_of_integers(kind, scope),
            _ => Tree::Expression(vec![self.literal(kind)]),
        }
    }

    /// A value of a kind that the scope has no column of.
    fn made_of_integers(&mut self, kind: Kind, scope: &Scope) -> Tree {
        let Some(column) = self.column(Kind::Int, scope, true) else {
            return Tree::Expression(vec![self.literal(kind)]);
        };
        let column = vec![Tree::text(&column.name)];
        match kind {
            Kind::Bool => Tree::expression("({} > 5)", column),
            Kind::Int => Tree::expression("{}", column),
            Kind::Float => Tree::expression("CAST({} AS DOUBLE)", column),
            Kind::Decimal => Tree::expression("CAST({} AS DECIMAL(20, 2))", column),
            Kind::Text if self.once_in(5) => Tree::expression("CAST({} AS VARCHAR)", column),
            Kind::Text => Tree::expression("CASE WHEN {} % 2 = 0 THEN 'k1' ELSE '日本ß2' END", column),
            Kind::Date => {
                Tree::expression("CASE WHEN {} < 9 THEN DATE '1969-12-31' ELSE DATE '2024-02-29' END", column)
            }
            Kind::Timestamp => {
                Tree::expression("CASE WHEN {} < 9 THEN TIMESTAMP '1969-12-31 23:59:59' END", column)
            }
        }
    }

    /// A value of the select list: mostly a column.
    pub fn output(&mut self, kind: Kind, scope: &Scope) -> Value {
        match self.column(kind, scope, false) {
            Some(column) if !self.once_in(4) => of_column(column),
            _ => Value::of(kind, self.value(kind, scope, 2)),
        }
    }

    /// Something to group by, of a kind that the scope has.
    pub fn key(&mut self, kind: Kind, scope: &Scope) -> Value {
        let direct = !self.once_in(6);
        match (self.column(kind, scope, false), self.column(kind, scope, true)) {
            (Some(column), _) if direct => of_column(column),
            (_, Some(column)) => {
                let column = Tree::text(&column.name);
                let pattern = match kind {
                    Kind::Int => "({} % 3)",
                    Kind::Float | Kind::Decimal => "({} + 1)",
                    Kind::Text => "substr({}, 1, 3)",
                    Kind::Date | Kind::Timestamp => "date_trunc('year', {})",
                    Kind::Bool => "({} IS NULL)",
                };
                Value::of(kind, Tree::expression(pattern, vec![column]))
            }
            (Some(column), None) => of_column(column),
            (None, None) => Value::of(kind, self.value(kind, scope, 1)),
        }
    }

    /// A value that is exact, of columns that may be computed with.
    pub fn value(&mut self, kind: Kind, scope: &Scope, depth: usize) -> Tree {
        if depth == 0 {
            return self.leaf(kind, scope);
        }
        let d = depth - 1;
        if self.once_in(8) {
            let condition = self.predicate(scope, d);
            let (a, b) = (self.value(kind, scope, d), self.value(kind, scope, d));
            return match self.below(3) {
                0 => Tree::expression("coalesce({}, {})", vec![a, b]),
                1 => Tree::expression("CASE WHEN {} THEN {} END", vec![condition, a]),
                _ => Tree::expression("CASE WHEN {} THEN {} ELSE {} END", vec![condition, a, b]),
            };
        }
        match kind {
            Kind::Bool => self.predicate(scope, depth),
            Kind::Int => match self.below(8) {
                0 => self.pair("({} + {})", kind, scope, d),
                1 => self.pair("({} - {})", kind, scope, d),
                2 => Tree::expression("({} * 2)", vec![self.value(kind, scope, d)]),
                3 => Tree::expression("({} % 7)", vec![self.value(kind, scope, d)]),
                4 => Tree::expression("character_length({})", vec![self.value(Kind::Text, scope, d)]),
                5 => Tree::expression("date_part('year', {})", vec![self.value(Kind::Date, scope, d)]),
                _ => self.leaf(kind, scope),
            },
            Kind::Float => match self.below(4) {
                0 => self.pair("({} + {})", kind, scope, d),
                1 => Tree::expression("({} * CAST(2.0 AS DOUBLE))", vec![self.value(kind, scope, d)]),
                2 => Tree::expression("CAST({} AS DOUBLE)", vec![self.leaf(Kind::Int, scope)]),
                _ => self.leaf(kind, scope),
            },
            Kind::Decimal => match self.below(5) {
                0 => self.pair("({} + {})", kind, scope, d),
                1 => self.pair("({} - {})", kind, scope, d),
                2 => Tree::expression("({} * CAST(1.5 AS DECIMAL(3, 1)))", vec![self.leaf(kind, scope)]),
                _ => self.leaf(kind, scope),
            },
            Kind::Date => match self.below(4) {
                0 => Tree::expression("({} + INTERVAL '1 month')", vec![self.leaf(kind, scope)]),
                1 => Tree::expression("CAST({} AS DATE)", vec![self.leaf(Kind::Timestamp, scope)]),
                _ => self.leaf(kind, scope),
            },
            Kind::Timestamp => match self.below(4) {
                0 => Tree::expression("date_trunc('month', {})", vec![self.leaf(kind, scope)]),
                1 => Tree::expression("CAST({} AS TIMESTAMP)", vec![self.leaf(Kind::Date, scope)]),
                _ => self.leaf(kind, scope),
            },
            Kind::Text => match self.below(8) {
                0 => Tree::expression("substr({}, 2, 4)", vec![self.value(kind, scope, d)]),
                1 => Tree::expression("upper({})", vec![self.value(kind, scope, d)]),
                2 => Tree::expression("CAST({} AS VARCHAR)", vec![self.leaf(Kind::Int, scope)]),
                3 if self.once_in(3) => self.pair("({} || {})", kind, scope, d),
                _ => self.leaf(kind, scope),
            },
        }
    }

    fn pair(&mut self, pattern: &str, kind: Kind, scope: &Scope, depth: usize) -> Tree {
        let (a, b) = (self.value(kind, scope, depth), self.value(kind, scope, depth));
        Tree::expression(pattern, vec![a, b])
    }

    /// A condition on the columns of a scope.
    pub fn predicate(&mut self, scope: &Scope, depth: usize) -> Tree {
        let kind = match scope.columns.len() {
            0 => KINDS[self.below(KINDS.len())],
            n => scope.columns[self.below(n)].kind,
        };
        let operator = Tree::text(self.one(&["=", "<>", "<", "<=", ">", ">="]));
        let d = depth.saturating_sub(1);
        match self.below(if depth == 0 { 8 } else { 14 }) {
            0..3 => {
                let (a, b) = (self.output(kind, scope).tree, self.literal(kind));
                Tree::expression("({} {} {})", vec![a, operator, b])
            }
            3 => {
                let (a, b) = (self.output(kind, scope).tree, self.output(kind, scope).tree);
                Tree::expression("({} {} {})", vec![a, operator, b])
            }
            4 => {
                let test = Tree::text(self.one(&["IS NULL", "IS NOT NULL", "IS NOT NULL"]));
                Tree::expression("({} {})", vec![self.output(kind, scope).tree, test])
            }
            5 => match self.column(Kind::Bool, scope, false) {
                Some(column) => Tree::Expression(vec![Tree::text(&column.name)]),
                None => self.like(scope),
            },
            6 | 7 => self.like(scope),
            8 => {
                let (a, b) = (self.value(kind, scope, d), self.value(kind, scope, d));
                Tree::expression("({} {} {})", vec![a, operator, b])
            }
            9 => {
                let (a, b, c) = (self.leaf(kind, scope), self.literal(kind), self.literal(kind));
                let between = Tree::text(self.one(&["BETWEEN", "NOT BETWEEN"]));
                Tree::expression("({} {} {} AND {})", vec![a, between, b, c])
            }
            10 => {
                let items = (0..1 + self.below(5)).map(|_| self.literal(kind)).collect();
                let list = Tree::List { prefix: "", separator: ", ", least: 1, items };
                let within = Tree::text(self.one(&["IN", "IN", "NOT IN"]));
                Tree::expression("({} {} ({}))", vec![self.leaf(kind, scope), within, list])
            }
            11 => {
                let (a, b) = (self.predicate(scope, d), self.predicate(scope, d));
                Tree::expression("({} AND {})", vec![a, b])
            }
            12 => {
                let (a, b) = (self.predicate(scope, d), self.predicate(scope, d));
                Tree::expression("({} OR {})", vec![a, b])
            }
            _ => Tree::expression("(NOT {})", vec![self.predicate(scope, d)]),
        }
    }

    fn like(&mut self, scope: &Scope) -> Tree {
        let text = self.leaf(Kind::Text, scope);
        let test = match self.once_in(12) {
            true => self.one(&["~ '^k[0-9]+$'", "~ 'beginning: [1-5]'", "!~ '本.*1'"]),
            false => self.one(&[
                "LIKE 'k1%'", "LIKE '%1'", "LIKE '%日本%'", "LIKE 'a longer%'", "LIKE '_1_'",
                "NOT LIKE '%common%'", "NOT LIKE '%2%'", "LIKE '%x%'",
            ]),
        };
        Tree::expression("({} {})", vec![text, Tree::text(test)])
    }

    /// An aggregate of a kind.
    pub fn aggregate(&mut self, kind: Kind, scope: &Scope) -> Value {
        let mut value = self.aggregate_call(kind, scope);
        if self.once_in(10) {
            let condition = self.predicate(scope, 1);
            value.tree = Tree::sequence(
                "{}{}",
                vec![value.tree, Tree::optional(Tree::sequence(" FILTER (WHERE {})", vec![condition]))],
            );
        }
        value
    }

    fn aggregate_call(&mut self, kind: Kind, scope: &Scope) -> Value {
        let call = |pattern: &str, argument: Tree, plain| Value {
            plain,
            ..Value::of(kind, Tree::sequence(pattern, vec![argument]))
        };
        match (kind, self.below(10)) {
            (Kind::Bool, 0..5) => {
                let pattern = self.one(&["bool_and({})", "bool_or({})"]);
                call(pattern, self.predicate(scope, 1), true)
            }
            (Kind::Int, 0..2) => Value::of(kind, Tree::text("count(*)")),
            (Kind::Int, 2..4) => {
                let counted = KINDS[self.below(KINDS.len())];
                let pattern = self.one(&["count({})", "count(DISTINCT {})"]);
                call(pattern, self.output(counted, scope).tree, true)
            }
            (Kind::Int | Kind::Decimal, 4..7) => {
                let pattern = self.one(&["sum({})", "sum({})", "sum({})", "sum(DISTINCT {})"]);
                call(pattern, self.value(kind, scope, 1), false)
            }
            (Kind::Decimal, 7) => call("avg({})", self.leaf(kind, scope), false),
            (Kind::Float, 0..6) => {
                let argument = [Kind::Int, Kind::Float][self.below(2)];
                let argument = self.leaf(argument, scope);
                match self.inexact_aggregate() {
                    Some(name) => call(&format!("{name}({{}})"), argument, false),
                    None => {
                        let pattern = self.one(&["sum(CAST({} AS DOUBLE))", "avg({})"]);
                        call(pattern, argument, false)
                    }
                }
            }
            _ => {
                let pattern = self.one(&["min({})", "max({})"]);
                // The least of floats with NaN depends on the order of the rows: only of plain columns.
                match self.column(kind, scope, kind == Kind::Float) {
                    Some(column) if self.once_in(4) => self.ranked(kind, column),
                    Some(column) if !self.once_in(4) => call(pattern, Tree::text(&column.name), column.plain),
                    _ => call(pattern, self.value(kind, scope, 1), true),
                }
            }
        }
    }

    /// A value of the sorted rows of a group: of rows that the order does not tell apart, one is as good as another.
    fn ranked(&mut self, kind: Kind, column: &Column) -> Value {
        let ends = &["first_value({} ORDER BY {} DESC)", "last_value({} ORDER BY {})"];
        let pattern = match (kind, self.once_in(2)) {
            (Kind::Decimal, true) => "median({})",
            (Kind::Float, true) => self.one(&["median({})", "percentile_cont({}, 0.3)"]),
            _ => self.one(ends),
        };
        let tree = Tree::text(pattern.replace("{}", &column.name));
        let plain = column.plain && kind != Kind::Decimal;
        Value { plain, ..Value::of(kind, tree) }
    }

    /// Conditions of HAVING.
    pub fn having(&mut self, scope: &Scope) -> Vec<Tree> {
        let kind = [Kind::Int, Kind::Int, Kind::Text, Kind::Decimal, Kind::Date][self.below(5)];
        let inexact = std::mem::take(&mut self.inexact);
        let (aggregate, literal) = (self.aggregate(kind, scope).tree, self.literal(kind));
        self.inexact = inexact;
        let operator = Tree::text(self.one(&[">", "<", "<>", ">="]));
        let mut conditions = vec![Tree::expression("{} {} {}", vec![aggregate, operator, literal])];
        if self.once_in(4) {
            conditions.push(Tree::expression("count(*) > {}", vec![Tree::text(self.below(3).to_string())]));
        }
        conditions
    }
}

fn of_column(column: &Column) -> Value {
    Value {
        tree: Tree::Expression(vec![Tree::text(&column.name)]),
        kind: column.kind,
        plain: column.plain,
        most: Some(column.most),
    }
}
