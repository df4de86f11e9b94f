//! Statements: SELECTs with any clause, set operations, common table expressions.

use fastrand::Rng;

use super::super::Scale;
use super::super::queries::{Generated, KINDS, Kind};
use super::tables::{Column, Table};
use super::tree::Tree;

/// A generated query that can be made smaller.
#[derive(Debug, Clone)]
pub(super) struct Query {
    body: Tree,
    /// Orders the answer by all of its columns, perhaps with a limit.
    order: Option<String>,
}

impl Query {
    pub fn generated(&self) -> Generated {
        let order = self.order.as_deref().unwrap_or_default();
        let sql = format!("{}{order}", self.body.sql());
        Generated { sql, ordered: self.order.is_some() }
    }

    /// Every query that is one step smaller.
    pub fn smaller(&self) -> Vec<Query> {
        let mut smaller = Vec::new();
        if self.order.is_some() {
            smaller.push(Query { body: self.body.clone(), order: None });
        }
        let bodies = self.body.smaller().into_iter();
        smaller.extend(bodies.map(|body| Query { body, order: self.order.clone() }));
        smaller
    }
}

/// What a FROM clause may name.
#[derive(Debug, Clone)]
pub(super) struct Relation {
    pub sql: Tree,
    pub columns: Vec<Column>,
    /// Upper bound of its rows.
    pub rows: usize,
}

/// The columns that expressions may use, and an upper bound of the rows.
#[derive(Debug, Clone)]
pub(super) struct Scope {
    pub columns: Vec<Column>,
    pub rows: usize,
}

/// Makes queries over the tables of a seed.
#[derive(Debug)]
pub(super) struct Generator {
    pub rng: Rng,
    pub scale: Scale,
    /// Tables and common table expressions.
    pub relations: Vec<Relation>,
    pub aliases: usize,
    /// Whether values are allowed whose last digits depend on the order of the rows: only where nothing follows.
    pub inexact: bool,
    /// Whether there are such values.
    is_inexact: bool,
}

/// How deep subqueries nest.
pub(super) const DEPTH: usize = 2;

impl Generator {
    pub fn new(seed: u64, tables: &[Table], scale: Scale) -> Generator {
        let relation = |table: &Table| Relation {
            sql: Tree::text(&table.name),
            columns: table.columns.clone(),
            rows: table.rows,
        };
        Generator {
            rng: Rng::with_seed(seed),
            scale,
            relations: tables.iter().map(relation).collect(),
            aliases: 0,
            inexact: false,
            is_inexact: false,
        }
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.rng.usize(0..n)
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn one<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    pub fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("r{}", self.aliases)
    }

    /// The one query of this generator.
    pub fn query(mut self) -> Query {
        let mut expressions = Vec::new();
        if self.once_in(8) {
            for i in 0..1 + self.below(2) {
                let kinds = self.kinds(1 + i);
                let (tree, columns, rows) = self.body(&kinds, 1);
                let name = format!("w{i}");
                expressions.push(Tree::sequence("{} AS ({})", vec![Tree::text(&name), tree]));
                let relation = Relation { sql: Tree::text(name), columns, rows };
                // Likely to be used, perhaps more than once.
                self.relations.extend([relation.clone(), relation.clone(), relation]);
            }
        }
        let count = 1 + self.below(4);
        let kinds = self.kinds(count);
        self.inexact = self.once_in(4);
        let (body, columns, _) = self.body(&kinds, DEPTH);
        let with = Tree::List { prefix: "WITH ", separator: ", ", least: 0, items: expressions };
        let space = if matches!(&with, Tree::List { items, .. } if items.is_empty()) { "" } else { " " };
        let order = (!self.is_inexact && self.below(5) < 3).then(|| self.order(columns.len()));
        Query { body: Tree::Sequence(vec![with, Tree::text(space), body]), order }
    }

    fn kinds(&mut self, count: usize) -> Vec<Kind> {
        let kind = |g: &mut Generator| match g.below(3) {
            0 => KINDS[g.below(KINDS.len())],
            _ => [Kind::Int, Kind::Text, Kind::Decimal][g.below(3)],
        };
        (0..count).map(|_| kind(self)).collect()
    }

    /// An order by all columns, so that only equal rows may change places, and perhaps a limit.
    fn order(&mut self, columns: usize) -> String {
        let mut keys: Vec<usize> = (1..=columns).collect();
        self.rng.shuffle(&mut keys);
        let directions =
            ["", "", " DESC", " ASC NULLS FIRST", " DESC NULLS LAST", " NULLS LAST", " DESC NULLS FIRST"];
        let keys: Vec<String> =
            keys.into_iter().map(|key| format!("{key}{}", self.one(&directions))).collect();
        let limit = match self.below(6) {
            0 | 1 => format!(" LIMIT {}", self.below(25)),
            2 => format!(" LIMIT {} OFFSET {}", self.below(25), self.below(10)),
            3 if self.once_in(3) => format!(" OFFSET {}", self.below(20)),
            _ => String::new(),
        };
        format!(" ORDER BY {}{limit}", keys.join(", "))
    }

    /// A query with columns `c0` and on of some kinds: its text, columns and rows at most.
    pub fn body(&mut self, kinds: &[Kind], depth: usize) -> (Tree, Vec<Column>, usize) {
        if depth == 0 || !self.once_in(7) {
            return self.select(kinds, depth);
        }
        self.inexact = false;
        let (first, mut columns, mut rows) = self.select(kinds, depth);
        let mut operands = Vec::new();
        for _ in 0..1 + usize::from(self.once_in(4)) {
            let operator = self.one(&[
                "UNION", "UNION ALL", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL",
            ]);
            let (tree, others, more) = self.select(kinds, depth - 1);
            operands.push(Tree::sequence("{}{}", vec![Tree::text(format!(" {operator} ")), tree]));
            rows += more;
            for (column, other) in columns.iter_mut().zip(others) {
                column.most += other.most;
                column.plain &= other.plain;
            }
        }
        let operands = Tree::List { prefix: "", separator: "", least: 0, items: operands };
        (Tree::Sequence(vec![first, operands]), columns, rows)
    }

    /// A derived table's query: perhaps its first rows in an order of all columns.
    pub fn derived(&mut self, kinds: &[Kind], depth: usize) -> (Tree, Vec<Column>, usize) {
        let (tree, columns, rows) = self.body(kinds, depth);
        if !self.once_in(5) {
            return (tree, columns, rows);
        }
        let limit = 1 + self.below(20);
        let keys: Vec<String> = (1..=columns.len()).map(|key| key.to_string()).collect();
        let order = format!(" ORDER BY {} DESC LIMIT {limit}", keys.join(", "));
        (Tree::Sequence(vec![tree, Tree::optional(Tree::text(order))]), columns, rows.min(limit))
    }

    fn select(&mut self, kinds: &[Kind], depth: usize) -> (Tree, Vec<Column>, usize) {
        let inexact = std::mem::take(&mut self.inexact);
        let (from, scope, mut conjuncts) = self.from(depth);
        self.inexact = inexact;
        for _ in 0..[0, 0, 1, 1, 1, 2, 3][self.below(7)] {
            conjuncts.push(self.conjunct(&scope, depth));
        }
        let filter = Tree::List { prefix: " WHERE ", separator: " AND ", least: 0, items: conjuncts };
        match self.below(20) {
            0..8 => self.projection(kinds, (&scope, depth), "SELECT ", [from, filter]),
            8..10 => self.projection(kinds, (&scope, depth), "SELECT DISTINCT ", [from, filter]),
            10..18 => self.grouped(kinds, &scope, [from, filter]),
            _ => {
                let items = kinds.iter().map(|kind| self.aggregate(*kind, &scope)).collect::<Vec<_>>();
                let (items, columns) = named(items, 1);
                (Tree::Sequence(vec![items_list("SELECT ", items), from, filter]), columns, 1)
            }
        }
    }

    fn projection(
        &mut self,
        kinds: &[Kind],
        (scope, depth): (&Scope, usize),
        select: &'static str,
        [from, filter]: [Tree; 2],
    ) -> (Tree, Vec<Column>, usize) {
        let value = |g: &mut Generator, kind: Kind| match g.below(12) {
            0 if depth > 0 => g.scalar_subquery(kind, scope),
            1 if depth > 0 && kind == Kind::Bool => Value::of(kind, g.subquery_predicate(scope, depth - 1)),
            _ => g.output(kind, scope),
        };
        let items: Vec<Value> = kinds.iter().map(|kind| value(self, *kind)).collect();
        let (items, columns) = named(items, scope.rows);
        (Tree::Sequence(vec![items_list(select, items), from, filter]), columns, scope.rows)
    }

    fn grouped(
        &mut self,
        kinds: &[Kind],
        scope: &Scope,
        [from, filter]: [Tree; 2],
    ) -> (Tree, Vec<Column>, usize) {
        let mut keys = Vec::new();
        let mut items = Vec::new();
        for kind in kinds {
            // A literal in GROUP BY would be a position.
            let known = scope.columns.iter().any(|column| column.kind == *kind);
            if known && self.below(5) < 2 {
                let key = self.key(*kind, scope);
                add_key(&mut keys, &key.tree);
                items.push(key);
            } else {
                items.push(self.aggregate(*kind, scope));
            }
        }
        // A key that is not shown, or the only one.
        if (keys.is_empty() || self.once_in(6)) && !scope.columns.is_empty() {
            let kind = scope.columns[self.below(scope.columns.len())].kind;
            add_key(&mut keys, &self.key(kind, scope).tree);
        }
        let having = match self.once_in(4) {
            true => self.having(scope),
            false => Vec::new(),
        };
        let having = Tree::List { prefix: " HAVING ", separator: " AND ", least: 0, items: having };
        let (items, columns) = named(items, scope.rows);
        let group = Tree::List { prefix: " GROUP BY ", separator: ", ", least: 0, items: keys };
        let select = items_list("SELECT ", items);
        (Tree::Sequence(vec![select, from, filter, group, having]), columns, scope.rows)
    }

    /// An aggregate whose last digits depend on the order of the rows, where that does no harm.
    pub fn inexact_aggregate(&mut self) -> Option<&'static str> {
        if !self.inexact || !self.once_in(2) {
            return None;
        }
        self.is_inexact = true;
        Some(self.one(&["stddev", "stddev_pop", "var", "var_pop", "stddev_samp"]))
    }
}

/// A value of the select list.
pub(super) struct Value {
    pub tree: Tree,
    pub kind: Kind,
    pub plain: bool,
    /// Upper bound of the rows that share it, where known.
    pub most: Option<usize>,
}

impl Value {
    /// A computed value.
    pub fn of(kind: Kind, tree: Tree) -> Value {
        Value { tree, kind, plain: true, most: None }
    }
}

/// A key of GROUP BY, each once.
fn add_key(keys: &mut Vec<Tree>, key: &Tree) {
    if !keys.iter().any(|known| known.sql() == key.sql()) {
        keys.push(key.clone());
    }
}

fn items_list(select: &'static str, items: Vec<Tree>) -> Tree {
    Tree::List { prefix: select, separator: ", ", least: 1, items }
}

/// Values as items `… AS c0` of a select list, and as columns of a result of at most so many rows.
fn named(values: Vec<Value>, rows: usize) -> (Vec<Tree>, Vec<Column>) {
    let named = |(i, value): (usize, Value)| {
        let name = format!("c{i}");
        let most = value.most.unwrap_or(rows).min(rows).max(1);
        let column = Column { name: name.clone(), kind: value.kind, most, plain: value.plain };
        (Tree::sequence("{} AS {}", vec![value.tree, Tree::text(name)]), column)
    };
    values.into_iter().enumerate().map(named).unzip()
}
