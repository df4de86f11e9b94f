//! Queries from a seed.

use fastrand::Rng;

/// A generated query.
#[derive(Debug, Clone)]
pub struct Generated {
    /// Its text.
    pub sql: String,
    /// Whether it orders its rows by all of its columns, so that the order of the answer is determined.
    pub ordered: bool,
}

/// Makes queries over the tables of [`tables`](super::tables).
#[derive(Debug)]
pub struct QueryGenerator {
    rng: Rng,
}

/// Kinds of value; coercion between the types of one kind is DataFusion's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Float,
    Decimal,
    Date,
    Timestamp,
    Text,
}

pub(super) const KINDS: [Kind; 7] =
    [Kind::Bool, Kind::Int, Kind::Float, Kind::Decimal, Kind::Date, Kind::Timestamp, Kind::Text];

impl QueryGenerator {
    /// A generator: the same seed gives the same queries.
    pub fn new(seed: u64) -> QueryGenerator {
        QueryGenerator { rng: Rng::with_seed(seed) }
    }

    /// The next query.
    pub fn query(&mut self) -> Generated {
        match self.below(10) {
            0..3 => self.projection(),
            3..5 => self.global_aggregate(),
            5..8 => self.grouped_aggregate(),
            8 => self.distinct(),
            _ => self.nested(),
        }
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.rng.usize(0..n)
    }

    pub(super) fn one(&mut self, words: &[&str]) -> String {
        let index = self.below(words.len());
        words[index].into()
    }

    pub(super) fn table(&mut self) -> String {
        self.one(&["t", "t", "t", "t", "t", "t", "one", "none"])
    }

    pub(super) fn filter(&mut self) -> String {
        match self.below(3) {
            0 => String::new(),
            _ => format!(" WHERE {}", self.bool(2)),
        }
    }

    /// An order by all of `columns` columns, perhaps with a limit, or nothing.
    fn order(&mut self, columns: usize) -> (String, bool) {
        if self.below(2) == 0 {
            return (String::new(), false);
        }
        let mut keys: Vec<usize> = (1..=columns).collect();
        self.rng.shuffle(&mut keys);
        let keys: Vec<String> = keys
            .into_iter()
            .map(|key| format!("{key}{}", self.one(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"])))
            .collect();
        let limit = match self.below(4) {
            0 => format!(" LIMIT {}", self.below(20)),
            1 => format!(" LIMIT {} OFFSET {}", self.below(20), self.below(20)),
            _ => String::new(),
        };
        (format!(" ORDER BY {}{limit}", keys.join(", ")), true)
    }

    fn finish(&mut self, select: String, columns: usize) -> Generated {
        let (order, ordered) = self.order(columns);
        Generated { sql: format!("{select}{order}"), ordered }
    }

    fn projection(&mut self) -> Generated {
        let columns = 1 + self.below(3);
        let exprs: Vec<String> = (0..columns).map(|i| format!("{} AS c{i}", self.any(3))).collect();
        let select = format!("SELECT {} FROM {}{}", exprs.join(", "), self.table(), self.filter());
        self.finish(select, columns)
    }

    fn distinct(&mut self) -> Generated {
        let columns = 1 + self.below(2);
        let exprs: Vec<String> = (0..columns).map(|i| format!("{} AS c{i}", self.key())).collect();
        let select = format!("SELECT DISTINCT {} FROM {}{}", exprs.join(", "), self.table(), self.filter());
        self.finish(select, columns)
    }

    fn global_aggregate(&mut self) -> Generated {
        let aggregates: Vec<String> = (0..1 + self.below(4)).map(|_| self.aggregate(false)).collect();
        let sql = format!("SELECT {} FROM {}{}", aggregates.join(", "), self.table(), self.filter());
        Generated { sql, ordered: false }
    }

    fn grouped_aggregate(&mut self) -> Generated {
        let keys: Vec<String> = (0..1 + self.below(3)).map(|_| self.key()).collect();
        let aggregates: Vec<String> = (0..1 + self.below(3)).map(|_| self.aggregate(true)).collect();
        let named: Vec<String> = keys
            .iter()
            .enumerate()
            .map(|(i, key)| format!("{key} AS k{i}"))
            .chain(aggregates.iter().enumerate().map(|(i, a)| format!("{a} AS a{i}")))
            .collect();
        let having = match self.below(4) {
            0 => format!(" HAVING count(*) > {}", self.below(4)),
            _ => String::new(),
        };
        let positions: Vec<String> = (1..=keys.len()).map(|i| i.to_string()).collect();
        let select = format!(
            "SELECT {} FROM {}{} GROUP BY {}{having}",
            named.join(", "),
            self.table(),
            self.filter(),
            positions.join(", ")
        );
        self.finish(select, named.len())
    }

    fn nested(&mut self) -> Generated {
        let (key, table, filter) = (self.key(), self.table(), self.filter());
        let inner =
            format!("SELECT {key} AS x, count(*) AS n, sum(i32) AS y FROM {table}{filter} GROUP BY 1");
        let sql = match self.below(2) {
            0 => format!("SELECT count(*), sum(n), max(y), min(x) FROM ({inner}) q"),
            _ => format!(
                "SELECT n, count(*), max(y + n) FROM ({inner}) q WHERE n > {} GROUP BY n",
                self.below(3)
            ),
        };
        Generated { sql, ordered: false }
    }

    /// Something to group by, mostly of few values.
    fn key(&mut self) -> String {
        match self.below(12) {
            0..3 => self.one(&["k", "g", "b", "nn"]),
            3..5 => self.one(&["i8", "d5", "s", "dt", "u8", "i16"]),
            5 => self.one(&["u64", "d38", "ts", "tss", "w64", "f32", "d15", "nul"]),
            6 => "date_part('year', dt)".into(),
            7 => "date_trunc('year', ts)".into(),
            8 => format!("substr(s, {}, 2)", self.below(3)),
            9 => format!("{} % 5", self.one(&["i32", "nn", "i64", "u16"])),
            10 => self.bool(1),
            _ => self.any(1),
        }
    }

    fn aggregate(&mut self, grouped: bool) -> String {
        let call = match self.below(10) {
            0 => "count(*)".to_string(),
            1 => format!("count({})", self.any(1)),
            2 => format!(
                "sum({})",
                self.one(&["i8", "i16", "i32", "i64", "u8", "u16", "u32", "nn", "w64", "nul"])
            ),
            3 => format!(
                "sum({})",
                self.one(&["d5", "d15", "d15 * d5", "d5 * (1 - d5)", "f64", "f32", "f64 * f32"])
            ),
            4 => format!("avg({})", self.one(&["i32", "u8", "d5", "d15", "f64", "f32", "nn", "k"])),
            5 => format!("sum({})", self.int(1)),
            6 | 7 => format!("min({})", self.extreme_argument(grouped)),
            _ => format!("max({})", self.extreme_argument(grouped)),
        };
        match self.below(12) {
            0 => format!("{call} FILTER (WHERE {})", self.bool(1)),
            _ => call,
        }
    }

    /// In DataFusion a group's minimum and maximum of floats depend on the order of the rows where there is a NaN.
    fn extreme_argument(&mut self, grouped: bool) -> String {
        let kind = KINDS[self.below(KINDS.len())];
        match kind {
            Kind::Float if grouped => self.one(&["f32", "f64", "f64 + f32", "- f64", "abs(f32)"]),
            _ => self.expr(kind, 1),
        }
    }

    fn any(&mut self, depth: usize) -> String {
        let kind = KINDS[self.below(KINDS.len())];
        self.expr(kind, depth)
    }

    fn expr(&mut self, kind: Kind, depth: usize) -> String {
        if depth > 0 && self.below(6) == 0 {
            return self.choice(kind, depth - 1);
        }
        match kind {
            Kind::Bool => self.bool(depth),
            Kind::Int => self.int(depth),
            Kind::Float => self.float(depth),
            Kind::Decimal => self.decimal(depth),
            Kind::Date => self.date(depth),
            Kind::Timestamp => self.timestamp(depth),
            Kind::Text => self.text(depth),
        }
    }

    /// CASE, COALESCE, NULLIF.
    fn choice(&mut self, kind: Kind, depth: usize) -> String {
        let (a, b) = (self.expr(kind, depth), self.expr(kind, depth));
        match self.below(5) {
            0 => format!("CASE WHEN {} THEN {a} ELSE {b} END", self.bool(depth)),
            1 => format!("CASE WHEN {} THEN {a} WHEN {} THEN {b} END", self.bool(depth), self.bool(depth)),
            2 if self.below(2) == 0 => format!("CASE fx WHEN -0.0 THEN {a} WHEN 'NaN'::DOUBLE THEN {b} END"),
            2 => format!("CASE k WHEN 1 THEN {a} WHEN 2 THEN {b} END"),
            3 => format!("coalesce({a}, {b})"),
            _ => format!("nullif({a}, {b})"),
        }
    }

    fn bool(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.one(&[
                "b", "i32 > 0", "g = 'abc'", "d5 < 0", "s IS NULL", "dt >= DATE '1969-06-01'", "fx < 1.0",
            ]);
        }
        let kind = KINDS[self.below(KINDS.len())];
        match self.below(12) {
            0..4 => {
                let (a, b) = (self.expr(kind, depth - 1), self.expr(kind, depth - 1));
                let operator = self.one(&["=", "<>", "<", "<=", ">", ">="]);
                format!("({a} {operator} {b})")
            }
            4 => format!("({} AND {})", self.bool(depth - 1), self.bool(depth - 1)),
            5 => format!("({} OR {})", self.bool(depth - 1), self.bool(depth - 1)),
            6 => format!("(NOT {})", self.bool(depth - 1)),
            7 => format!("({} {})", self.expr(kind, depth - 1), self.one(&["IS NULL", "IS NOT NULL"])),
            8 => {
                let (a, b, c) = (self.expr(kind, depth - 1), self.leaf(kind), self.leaf(kind));
                format!("({a} {} {b} AND {c})", self.one(&["BETWEEN", "NOT BETWEEN"]))
            }
            9 => {
                let list: Vec<String> = (0..1 + self.below(5)).map(|_| self.literal(kind)).collect();
                let a = self.expr(kind, depth - 1);
                format!("({a} {} ({}))", self.one(&["IN", "NOT IN"]), list.join(", "))
            }
            10 => {
                let pattern =
                    self.one(&["a%", "%a", "%b%", "_b_", "", "%", "%日%", "100\\%", "a_c", "%l%o%", "na_ve"]);
                let a = self.text(depth - 1);
                format!("({a} {} '{pattern}')", self.one(&["LIKE", "NOT LIKE", "ILIKE"]))
            }
            _ => {
                let (a, b) = (self.expr(kind, depth - 1), self.expr(kind, depth - 1));
                format!("({a} {} {b})", self.one(&["IS DISTINCT FROM", "IS NOT DISTINCT FROM"]))
            }
        }
    }

    fn leaf(&mut self, kind: Kind) -> String {
        match self.below(3) {
            0 => self.expr(kind, 0),
            _ => self.literal(kind),
        }
    }

    fn literal(&mut self, kind: Kind) -> String {
        match kind {
            Kind::Bool => self.one(&["TRUE", "FALSE", "NULL"]),
            Kind::Int => {
                self.one(&["0", "1", "-1", "3", "100", "-128", "255", "70000", "-4000000000", "NULL"])
            }
            Kind::Float => self.one(&["0.0", "1.5", "-2.25", "1e300", "'NaN'::DOUBLE", "-0.0", "250.5"]),
            Kind::Decimal => self.one(&[
                "CAST(1.50 AS DECIMAL(5, 2))",
                "CAST(-99.99 AS DECIMAL(15, 2))",
                "CAST(0 AS DECIMAL(38, 10))",
                "CAST('123456789.0123456789' AS DECIMAL(38, 10))",
            ]),
            Kind::Date => self
                .one(&["DATE '1970-01-01'", "DATE '1950-02-28'", "DATE '2000-02-29'", "DATE '1899-12-31'"]),
            Kind::Timestamp => self.one(&[
                "TIMESTAMP '1970-01-01 00:00:00'",
                "TIMESTAMP '1969-12-31 23:59:59.999'",
                "TIMESTAMP '2024-02-29 12:34:56.789'",
            ]),
            Kind::Text => {
                self.one(&["''", "'abc'", "'A'", "'naïve'", "'日本語'", "'zz top'", "'under_score'"])
            }
        }
    }

    fn int(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.below(4) {
                0 => self.literal(Kind::Int),
                _ => {
                    self.one(&["i8", "i16", "i32", "i64", "w64", "u8", "u16", "u32", "u64", "k", "nn", "nul"])
                }
            };
        }
        let d = depth - 1;
        match self.below(13) {
            0 => format!("({} + {})", self.int(d), self.int(d)),
            1 => format!("({} - {})", self.int(d), self.int(d)),
            2 => format!("({} * {})", self.int(d), self.int(d)),
            3 => format!("({} / nullif({}, 0))", self.int(d), self.int(d)),
            4 => format!("({} % nullif({}, 0))", self.int(d), self.int(d)),
            5 => format!("abs({})", self.one(&["i32", "k", "i64", "d5", "nn"])),
            6 => format!("(- {})", self.one(&["i32", "k", "i64", "i16", "nn"])),
            7 => format!("{}({})", self.one(&["character_length", "octet_length"]), self.text(d)),
            8 => {
                let part = self.one(&[
                    "year", "quarter", "month", "week", "day", "dow", "doy", "hour", "minute", "second",
                ]);
                let value = if self.below(2) == 0 { self.date(d) } else { self.timestamp(d) };
                format!("date_part('{part}', {value})")
            }
            9 => format!(
                "TRY_CAST({} AS {})",
                self.float(d),
                self.one(&["INT", "BIGINT", "SMALLINT", "INT UNSIGNED"])
            ),
            10 => format!("CAST({} AS BIGINT)", self.one(&["b", "d5", "d15", "i8", "u32", "f64"])),
            11 => {
                format!("TRY_CAST({} AS {})", self.int(d), self.one(&["TINYINT", "INT", "BIGINT UNSIGNED"]))
            }
            _ => self.int(0),
        }
    }

    fn float(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.below(4) {
                0 => self.literal(Kind::Float),
                _ => self.one(&["f32", "f64", "fx"]),
            };
        }
        let d = depth - 1;
        match self.below(9) {
            0 => format!("({} + {})", self.float(d), self.float(d)),
            1 => format!("({} - {})", self.float(d), self.float(d)),
            2 => format!("({} * {})", self.float(d), self.float(d)),
            3 => format!("({} / {})", self.float(d), self.float(d)),
            4 => format!("{}({})", self.one(&["abs", "floor", "ceil", "round", "-"]), self.float(d)),
            5 => format!("round({}, {})", self.one(&["f64", "f32"]), self.below(4)),
            6 => format!("CAST({} AS DOUBLE)", self.int(d)),
            7 => format!("CAST({} AS {})", self.decimal(d), self.one(&["DOUBLE", "REAL"])),
            _ => self.float(0),
        }
    }

    fn decimal(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.below(4) {
                0 => self.literal(Kind::Decimal),
                _ => self.one(&["d5", "d15", "d38"]),
            };
        }
        let d = depth - 1;
        match self.below(9) {
            0 => format!("({} + {})", self.decimal(d), self.decimal(d)),
            1 => format!("({} - {})", self.decimal(d), self.decimal(d)),
            2 => format!(
                "({} * {})",
                self.one(&["d5", "d15"]),
                self.one(&["d5", "d15", "(1 - d5)", "(1 + d5)"])
            ),
            3 => format!("({} / nullif({}, 0))", self.one(&["d5", "d15"]), self.one(&["d5", "i8"])),
            4 => format!("abs({})", self.decimal(d)),
            5 => format!("CAST({} AS DECIMAL(12, 2))", self.one(&["i8", "i16", "i32", "k", "d5", "f32"])),
            6 => format!("TRY_CAST({} AS DECIMAL(6, 1))", self.decimal(d)),
            7 => format!("{}({})", self.one(&["round", "floor", "ceil"]), self.one(&["d5", "d15"])),
            _ => self.decimal(0),
        }
    }

    fn date(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.below(4) {
                0 => self.literal(Kind::Date),
                _ => "dt".into(),
            };
        }
        match self.below(4) {
            0 => {
                let interval = self.one(&["1 day", "90 days", "1 month", "13 months", "1 year", "-3 months"]);
                format!("({} {} INTERVAL '{interval}')", self.date(depth - 1), self.one(&["+", "-"]))
            }
            1 => format!("CAST({} AS DATE)", self.timestamp(depth - 1)),
            _ => self.date(0),
        }
    }

    fn timestamp(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.below(4) {
                0 => self.literal(Kind::Timestamp),
                _ => self.one(&["ts", "tsn", "tss"]),
            };
        }
        match self.below(5) {
            0 => {
                let interval =
                    self.one(&["1 day", "2 hours", "1 month", "15 minutes", "1 year", "90 seconds"]);
                format!("({} {} INTERVAL '{interval}')", self.timestamp(depth - 1), self.one(&["+", "-"]))
            }
            1 | 2 => {
                let part = self.one(&["year", "quarter", "month", "week", "day", "hour", "minute", "second"]);
                format!("date_trunc('{part}', {})", self.timestamp(depth - 1))
            }
            3 => format!("CAST({} AS TIMESTAMP)", self.date(0)),
            _ => self.timestamp(0),
        }
    }

    fn text(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.below(5) {
                0 => self.literal(Kind::Text),
                _ => self.one(&["s", "g", "s"]),
            };
        }
        let d = depth - 1;
        match self.below(7) {
            0 => format!("substr({}, {})", self.text(d), self.one(&["1", "2", "0", "-1", "5"])),
            1 => format!(
                "substr({}, {}, {})",
                self.text(d),
                self.one(&["1", "2", "0", "-1", "k"]),
                self.below(4)
            ),
            2 => format!("{}({})", self.one(&["upper", "lower"]), self.one(&["g", "g", "s"])),
            3 => format!("CAST({} AS VARCHAR)", self.one(&["i32", "b", "dt", "u8", "d5"])),
            _ => self.text(0),
        }
    }
}
