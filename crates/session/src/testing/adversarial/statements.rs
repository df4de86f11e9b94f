//! Statements: expressions as keys of GROUP BY, DISTINCT, joins, IN, set operations and orders with a limit, in filters and
//! below aggregates.

use fastrand::Rng;

use super::super::compare::Nature;
use super::super::queries::Generated;
use super::expressions::{Expressions, Limits};
use super::grammar::{KINDS, Kind};
use super::tree::Node;

/// A generated query that can be made smaller.
#[derive(Debug, Clone)]
pub(super) struct Query {
    body: Node,
    /// Orders the answer by all of its columns, perhaps with a limit.
    order: Option<String>,
    /// Whether it leaves open for which rows an operand is computed.
    guarded: bool,
    /// Whether no two rows of the answer are equal.
    is_set: bool,
}

impl Query {
    pub fn generated(&self) -> Generated {
        let order = self.order.as_deref().unwrap_or_default();
        let sql = format!("{}{order}", self.body.sql());
        Generated { sql, ordered: self.order.is_some() }
    }

    pub fn nature(&self) -> Nature {
        Nature { guarded: self.guarded, is_set: self.is_set }
    }

    /// Every query that is one step smaller.
    pub fn smaller(&self) -> Vec<Query> {
        let whole = self.order.is_some().then(|| Query { order: None, ..self.clone() });
        let bodies = self.body.smaller().into_iter().map(|body| Query { body, ..self.clone() });
        whole.into_iter().chain(bodies).collect()
    }
}

/// Makes one query.
#[derive(Debug)]
pub(super) struct Statements {
    e: Expressions,
    /// Whether a value was used whose last digits depend on the order of the rows: the answer has no order then.
    inexact: bool,
    /// Whether no two rows of the answer are equal.
    is_set: bool,
}

const TABLES: [&str; 8] = ["x", "x", "x", "x", "y", "one", "none", "many"];

impl Statements {
    pub fn new(seed: u64) -> Statements {
        let mut rng = Rng::with_seed(seed);
        // A query that fails says little: most cannot. Without guards, a failure of DataFusion must be one of Kelpie.
        let limits = Limits { failing: rng.u8(0..5) < 2, guards: rng.u8(0..4) > 0 };
        let e = Expressions {
            rng,
            limits,
            aliases: vec![""],
            guarded: false,
            in_list: false,
            in_arithmetic: false,
        };
        Statements { e, inexact: false, is_set: false }
    }

    /// The one query.
    pub fn query(mut self) -> Query {
        let (body, columns) = match self.e.below(24) {
            0..4 => self.projection(),
            4..10 => self.grouped(),
            10..12 => self.distinct(),
            12..14 => self.aggregated(),
            14..17 => self.joined(),
            17..19 => self.with_subquery(),
            19..21 => self.set_operation(),
            21 => self.grouping_sets(),
            22 => self.narrow_keys(),
            _ => self.nested(),
        };
        let order = (!self.inexact && self.e.below(5) < 2).then(|| self.order(columns));
        Query { body, order, guarded: self.e.guarded, is_set: self.is_set }
    }

    /// An order by all columns, so that only equal rows may change places, and perhaps a limit.
    fn order(&mut self, columns: usize) -> String {
        let mut keys: Vec<usize> = (1..=columns).collect();
        self.e.rng.shuffle(&mut keys);
        let mut key = |key| {
            format!(
                "{key}{}",
                self.e.one(&["", "", " DESC", " NULLS FIRST", " DESC NULLS LAST", " NULLS LAST"])
            )
        };
        let keys: Vec<String> = keys.into_iter().map(&mut key).collect();
        let limit = match self.e.below(4) {
            0 => format!(" LIMIT {}", self.e.below(12)),
            1 => format!(" LIMIT {} OFFSET {}", self.e.below(30), self.e.below(6)),
            2 => " LIMIT 1000".into(),
            _ => String::new(),
        };
        format!(" ORDER BY {}{limit}", keys.join(", "))
    }

    fn table(&mut self) -> Node {
        Node::text(self.e.one(&TABLES))
    }

    /// Conditions of a WHERE clause: several leave open which of them a row is given first.
    fn filter(&mut self) -> Node {
        let count = if self.e.limits.guards { self.e.below(3) } else { self.e.below(2) };
        self.e.guarded |= count > 1;
        let conditions = (0..count).map(|_| self.e.expression(Kind::Bool, 2)).collect();
        Node::optional(" WHERE ", " AND ", conditions)
    }

    fn items(
        &mut self,
        count: usize,
        letter: &str,
        mut item: impl FnMut(&mut Statements) -> Node,
    ) -> Vec<Node> {
        (0..count).map(|i| Node::pattern(format!("{{}} AS {letter}{i}"), vec![item(self)])).collect()
    }

    fn projection(&mut self) -> (Node, usize) {
        let count = 1 + self.e.below(4);
        let items = self.items(count, "c", |s| s.e.any(3));
        let (table, filter) = (self.table(), self.filter());
        let body = Node::pattern("SELECT {} FROM {}{}", vec![Node::list("", ", ", items), table, filter]);
        (body, count)
    }

    fn distinct(&mut self) -> (Node, usize) {
        self.is_set = true;
        let count = 1 + self.e.below(3);
        let items = self.items(count, "c", |s| s.any_key());
        let (table, filter) = (self.table(), self.filter());
        let body =
            Node::pattern("SELECT DISTINCT {} FROM {}{}", vec![Node::list("", ", ", items), table, filter]);
        (body, count)
    }

    fn any_key(&mut self) -> Node {
        let kind = self.e.kind();
        self.e.key(kind)
    }

    fn grouped(&mut self) -> (Node, usize) {
        self.is_set = true;
        let (keys, aggregates) = (1 + self.e.below(3), self.e.below(4));
        let mut items = self.items(keys, "k", |s| s.any_key());
        items.extend(self.items(aggregates, "a", Statements::aggregate));
        let (table, filter) = (self.table(), self.filter());
        let having = match self.e.once_in(4) {
            true => vec![self.having()],
            false => Vec::new(),
        };
        let positions: Vec<String> = (1..=keys).map(|i| i.to_string()).collect();
        let body = Node::pattern(
            format!("SELECT {{}} FROM {{}}{{}} GROUP BY {}{{}}", positions.join(", ")),
            vec![Node::list("", ", ", items), table, filter, Node::optional(" HAVING ", " AND ", having)],
        );
        (body, keys + aggregates)
    }

    fn having(&mut self) -> Node {
        let least = self.e.below(4);
        match self.e.below(3) {
            0 => Node::pattern("max({}) IS NOT NULL", vec![self.e.column(Kind::Text)]),
            1 => Node::pattern("sum({}) > 0", vec![self.e.named(Kind::Int, "k")]),
            _ => Node::text(format!("count(*) > {least}")),
        }
    }

    fn aggregated(&mut self) -> (Node, usize) {
        let count = 1 + self.e.below(5);
        let items = self.items(count, "a", Statements::aggregate);
        let (table, filter) = (self.table(), self.filter());
        (Node::pattern("SELECT {} FROM {}{}", vec![Node::list("", ", ", items), table, filter]), count)
    }

    /// An aggregate whose value does not depend on the order of the rows, or is marked as one that does.
    fn aggregate(&mut self) -> Node {
        let kind = self.e.kind();
        let mut call = match self.e.below(14) {
            0 => Node::text("count(*)"),
            1 => Node::pattern("count({})", vec![self.e.any(2)]),
            2 => Node::pattern("count(DISTINCT {})", vec![self.e.key(kind)]),
            3 => Node::pattern("sum({})", vec![self.e.expression(Kind::Int, 2)]),
            4 => {
                let column = self.e.one(&["d5", "d9", "d18", "d5 * d9", "q", "d5 + k", "i8", "u64"]);
                self.call("sum", column)
            }
            5 => {
                let column = self.e.one(&["i8", "i16", "i32", "u8", "k", "d5", "d9", "q", "z"]);
                self.call("avg", column)
            }
            6 => Node::pattern("sum(DISTINCT {})", vec![self.e.column(Kind::Int)]),
            7 => {
                let name = self.e.one(&["bit_and", "bit_or", "bit_xor"]);
                Node::pattern(format!("{name}({{}})"), vec![self.e.column(Kind::Int)])
            }
            8 => {
                let name = self.e.one(&["bool_and", "bool_or"]);
                Node::pattern(format!("{name}({{}})"), vec![self.e.expression(Kind::Bool, 2)])
            }
            9 => {
                self.inexact = true;
                let name = self.e.one(&["stddev", "var_pop", "stddev_pop", "var"]);
                let column = self.e.one(&["q", "k", "i8", "u16"]);
                self.call(name, column)
            }
            _ => {
                let name = self.e.one(&["min", "max"]);
                // A group's minimum of floats with NaN depends on the order of the rows, in DataFusion.
                let argument = match kind {
                    Kind::Float => self.e.named(Kind::Float, "q"),
                    kind => self.e.expression(kind, 2),
                };
                Node::pattern(format!("{name}({{}})"), vec![argument])
            }
        };
        if self.e.limits.guards && self.e.once_in(8) {
            self.e.guarded = true;
            call = Node::pattern("{} FILTER (WHERE {})", vec![call, self.e.expression(Kind::Bool, 1)]);
        }
        call
    }

    /// A call on columns, which get the alias of a relation.
    fn call(&mut self, name: &str, columns: &str) -> Node {
        let alias = {
            let aliases = self.e.aliases.clone();
            self.e.one(&aliases)
        };
        let named = |word: &str| match word.starts_with(|c: char| c.is_alphabetic()) {
            true => format!("{alias}{word}"),
            false => word.into(),
        };
        let columns: Vec<String> = columns.split(' ').map(named).collect();
        Node::text(format!("{name}({})", columns.join(" ")))
    }

    /// Two relations joined on expressions: rows without a partner need not be computed.
    fn joined(&mut self) -> (Node, usize) {
        self.e.guarded = true;
        let (left, right) = (self.table(), Node::text(self.e.one(&["y", "y", "x", "one", "none"])));
        let kind = self.e.kind();
        let mut conditions = Vec::new();
        for _ in 0..1 + usize::from(self.e.once_in(4)) {
            conditions.push(self.equal(kind));
        }
        self.e.aliases = vec!["a.", "b."];
        if self.e.once_in(4) {
            conditions.push(self.e.expression(Kind::Bool, 1));
        }
        let join =
            self.e.one(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]);
        if join.contains("SEMI") || join.contains("ANTI") {
            self.e.aliases = vec!["a."];
        }
        let from = Node::pattern(
            format!("{{}} a {join} {{}} b ON {{}}"),
            vec![left, right, Node::list("", " AND ", conditions)],
        );
        match self.e.below(3) {
            0 => {
                let count = 1 + self.e.below(4);
                let items = self.items(count, "a", Statements::aggregate);
                (Node::pattern("SELECT {} FROM {}", vec![Node::list("", ", ", items), from]), count)
            }
            1 => {
                let mut items = self.items(1, "k", |s| s.any_key());
                items.extend(self.items(2, "a", Statements::aggregate));
                (Node::pattern("SELECT {} FROM {} GROUP BY 1", vec![Node::list("", ", ", items), from]), 3)
            }
            _ => {
                let count = 1 + self.e.below(3);
                let items = self.items(count, "c", |s| s.e.any(1));
                let filter = self.filter();
                (Node::pattern("SELECT {} FROM {}{}", vec![Node::list("", ", ", items), from, filter]), count)
            }
        }
    }

    /// A condition that keys of the two relations are equal.
    fn equal(&mut self, kind: Kind) -> Node {
        self.e.aliases = vec!["a."];
        let left = self.e.key(kind);
        self.e.aliases = vec!["b."];
        let right = self.e.key(kind);
        Node::pattern("{} = {}", vec![left, right])
    }

    fn with_subquery(&mut self) -> (Node, usize) {
        self.e.guarded = true;
        let kind = self.e.kind();
        let (outer, inner) = (self.table(), Node::text(self.e.one(&["y", "y", "x", "one", "none"])));
        let equal = self.equal(kind);
        self.e.aliases = vec!["b."];
        let (wanted, condition) = (self.e.key(kind), self.e.expression(Kind::Bool, 1));
        let extreme = match kind {
            Kind::Float => self.e.named(Kind::Float, "q"),
            kind => self.e.expression(kind, 1),
        };
        self.e.aliases = vec!["a."];
        let key = self.e.key(kind);
        let condition = Node::optional(" WHERE ", " AND ", vec![condition]);
        let predicate = match self.e.below(6) {
            0 | 1 => Node::pattern("{} IN (SELECT {} FROM {} b{})", vec![key, wanted, inner, condition]),
            2 => Node::pattern("{} NOT IN (SELECT {} FROM {} b{})", vec![key, wanted, inner, condition]),
            3 => Node::pattern("EXISTS (SELECT 1 FROM {} b WHERE {})", vec![inner, equal]),
            4 => Node::pattern("NOT EXISTS (SELECT 1 FROM {} b WHERE {})", vec![inner, equal]),
            _ => Node::pattern("{} >= (SELECT min({}) FROM {} b{})", vec![key, extreme, inner, condition]),
        };
        let count = 1 + self.e.below(3);
        let items = match self.e.once_in(2) {
            true => self.items(count, "a", Statements::aggregate),
            false => self.items(count, "c", |s| s.e.any(1)),
        };
        let body = Node::pattern(
            "SELECT {} FROM {} a WHERE {}",
            vec![Node::list("", ", ", items), outer, predicate],
        );
        (body, count)
    }

    fn set_operation(&mut self) -> (Node, usize) {
        let operator = self
            .e
            .one(&["UNION", "UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"]);
        self.e.guarded |= !operator.starts_with("UNION");
        self.is_set = !operator.ends_with("ALL");
        let kinds: Vec<Kind> = (0..1 + self.e.below(3)).map(|_| self.e.kind()).collect();
        let mut operand = || {
            let mut kinds = kinds.iter();
            let items = self.items(kinds.len(), "c", |s| match kinds.next() {
                Some(kind) => s.e.key(*kind),
                None => Node::text("NULL"),
            });
            let (table, filter) = (self.table(), self.filter());
            Node::pattern("SELECT {} FROM {}{}", vec![Node::list("", ", ", items), table, filter])
        };
        let operands = vec![operand(), operand()];
        (Node::pattern(format!("{{}} {operator} {{}}"), operands), kinds.len())
    }

    /// The keys are columns, and no filter makes one constant: DataFusion gives a set's group several times where a key of
    /// another set is constant. They are different columns: it takes two names of one column for equal in every set, and
    /// leaves the second out of ORDER BY.
    fn grouping_sets(&mut self) -> (Node, usize) {
        let mut columns: Vec<(Kind, &str)> =
            KINDS.iter().flat_map(|kind| kind.columns().iter().map(|column| (*kind, *column))).collect();
        self.e.rng.shuffle(&mut columns);
        let mut columns = columns.into_iter();
        let keys = self.items(2, "k", |s| match columns.next() {
            Some((kind, column)) => s.e.named(kind, column),
            None => Node::text("NULL"),
        });
        let aggregates = self.items(1, "v", |s| s.e.expression(Kind::Int, 1));
        let sets = self.e.one(&[
            "ROLLUP (k0, k1)",
            "CUBE (k0, k1)",
            "GROUPING SETS ((k0), (k1), ())",
            "k0, ROLLUP (k1)",
        ]);
        let table = self.table();
        let filter = Node::optional(" WHERE ", " AND ", vec![Node::text("id % 5 <> 3")]);
        let items = keys.into_iter().chain(aggregates).collect();
        let body = Node::pattern(
            format!(
                "SELECT k0, k1, grouping(k0) AS g, count(*) AS n, max(v0) AS m FROM (SELECT {{}} FROM {{}}{{}}) r \
                 GROUP BY {sets}"
            ),
            vec![Node::list("", ", ", items), table, filter],
        );
        (body, 5)
    }

    /// Keys of a type that a wide column is cast to, where a filter leaves only rows that fit, or nearly.
    fn narrow_keys(&mut self) -> (Node, usize) {
        let (target, low, high) = self.e.one(&[
            ("TINYINT", "-128", "127"),
            ("TINYINT UNSIGNED", "0", "255"),
            ("SMALLINT", "-32768", "32767"),
            ("DECIMAL(3, 1)", "-99", "99"),
        ]);
        let high = if self.e.limits.failing && self.e.once_in(2) { "70000" } else { high };
        let column = self.e.one(&["i16", "i32", "i64", "u8", "u32", "d18", "q", "z", "id"]);
        let keys = self.e.one(&[
            "DISTINCT CAST(c AS T) AS k",
            "CAST(c AS T) AS k, count(*) AS n",
            "count(DISTINCT CAST(c AS T)) AS k",
        ]);
        let (group, columns) =
            if keys.contains('n') && keys.contains('*') { (" GROUP BY 1", 2) } else { ("", 1) };
        let keys = keys.replace("c AS T", &format!("{column} AS {target}"));
        let table = self.table();
        let body = Node::pattern(
            format!("SELECT {keys} FROM {{}} WHERE {column} BETWEEN {low} AND {high}{group}"),
            vec![table],
        );
        (body, columns)
    }

    /// Groups of groups.
    fn nested(&mut self) -> (Node, usize) {
        let mut items = self.items(2, "k", |s| s.any_key());
        items.extend(self.items(1, "v", |s| s.e.expression(Kind::Int, 1)));
        let (table, filter) = (self.table(), self.filter());
        let inner = Node::pattern("SELECT {} FROM {}{}", vec![Node::list("", ", ", items), table, filter]);
        let body = Node::pattern(
            "SELECT n, count(*) AS c, max(m) AS x FROM (SELECT k0, count(DISTINCT k1) AS n, min(v0) AS m FROM ({}) r \
             GROUP BY k0) q GROUP BY n",
            vec![inner],
        );
        (body, 3)
    }
}
