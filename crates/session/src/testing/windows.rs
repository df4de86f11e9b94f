//! Queries with window functions, over the tables of [`tables`](super::tables).
//!
//! What depends on the order of rows that an order does not tell apart is asked for in orders that tell all rows apart.

use super::queries::{Generated, QueryGenerator};

/// Columns that tell all rows apart, but for such as are NULL in all of them.
const LAST_KEYS: &str = "u64, tsn, d38, w64, f64, i64, u32";

impl QueryGenerator {
    /// The next query with windows.
    pub fn window_query(&mut self) -> Generated {
        let windows = 1 + self.below(3);
        let calls: Vec<String> =
            (0..windows).map(|place| format!("{} AS w{place}", self.window_call())).collect();
        let (table, filter) = (self.table(), self.filter());
        let names: Vec<String> = (0..windows).map(|place| format!("w{place}")).collect();
        let columns = ["i32", "g", "k", "d5"];
        let inner = format!("SELECT {}, {} FROM {table}{filter}", columns.join(", "), calls.join(", "));
        match self.below(10) {
            8 | 9 => self.first_of_each(),
            0 => {
                let sql =
                    format!("SELECT g, count(*), max({0}), min({0}) FROM ({inner}) q GROUP BY g", names[0]);
                Generated { sql, ordered: false }
            }
            1 => {
                let sql = format!("SELECT * FROM ({inner}) q WHERE {} IS NOT NULL AND k > 0", names[0]);
                Generated { sql, ordered: false }
            }
            2 => {
                // Over groups.
                let sql = "SELECT g, sum(i32) AS s, rank() OVER (ORDER BY sum(i32)) AS r, sum(sum(i32)) OVER \
                           (PARTITION BY g IS NULL ORDER BY g) AS a FROM";
                Generated { sql: format!("{sql} {table}{filter} GROUP BY g"), ordered: false }
            }
            3 => {
                let join =
                    format!("SELECT a.*, o.nn FROM ({inner}) a JOIN one o ON a.k IS DISTINCT FROM o.k");
                Generated { sql: join, ordered: false }
            }
            _ => Generated { sql: inner, ordered: false },
        }
    }

    /// The first rows of each partition.
    fn first_of_each(&mut self) -> Generated {
        let (table, filter) = (self.table(), self.filter());
        let (rank, total) = match self.below(3) {
            0 => ("row_number()", true),
            1 => ("rank()", false),
            _ => ("dense_rank()", false),
        };
        let partition = self.partition();
        let order = self.window_order(total);
        let more = match (self.below(4), total) {
            (0, true) => format!(", sum(i32) OVER ({partition}{order} ROWS UNBOUNDED PRECEDING) AS w1"),
            (1, true) => format!(", lag(s) OVER ({partition}{order}) AS w1"),
            (0, false) => format!(", count(*) OVER ({partition}{order}) AS w1"),
            (1, false) => format!(", count(*) OVER ({partition}) AS w1"),
            _ => String::new(),
        };
        let condition = self.one(&[
            "w0 <= 2", "w0 < 4", "w0 = 1", "w0 BETWEEN 1 AND 3", "w0 <= 10", "1 >= w0", "w0 IN (1, 5)",
            "w0 <= 2 AND k > 0", "w0 = 2 OR w0 = 1", "w0 <= 100",
        ]);
        let inner = format!(
            "SELECT i32, g, k, d5, {rank} OVER ({partition}{order}) AS w0{more} FROM {table}{filter}"
        );
        Generated { sql: format!("SELECT * FROM ({inner}) q WHERE {condition}"), ordered: false }
    }

    fn partition(&mut self) -> String {
        let keys = match self.below(8) {
            0 | 1 => return String::new(),
            2..5 => self.one(&["k", "g", "b", "nn"]),
            5 => self.one(&["k, g", "g, k", "b, k", "nn % 3", "u8, b"]),
            6 => self.one(&["s", "dt", "f32", "d5", "ts", "nul"]),
            _ => "k IS NULL, g".into(),
        };
        format!("PARTITION BY {keys} ")
    }

    fn direction(&mut self) -> String {
        self.one(&["", "", " DESC", " NULLS FIRST", " DESC NULLS LAST"])
    }

    /// An order; with `total`, one that tells all rows apart.
    fn window_order(&mut self, total: bool) -> String {
        let key = self.one(&["i32", "nn", "k", "d15", "f64", "s", "dt", "ts", "b", "u8", "g"]);
        let more = match self.below(3) {
            0 => format!(", {}{}", self.one(&["k", "g", "i16", "tss"]), self.direction()),
            _ => String::new(),
        };
        let last = if total { format!(", {LAST_KEYS}") } else { String::new() };
        format!("ORDER BY {key}{}{more}{last}", self.direction())
    }

    fn window_call(&mut self) -> String {
        match self.below(10) {
            0 => {
                let call = match self.below(4) {
                    0 => format!("ntile({})", self.one(&["1", "2", "1000", "5000"])),
                    _ => "row_number()".into(),
                };
                format!("{call} OVER ({}{})", self.partition(), self.window_order(true))
            }
            1 | 2 => {
                let call = self.one(&["rank()", "dense_rank()", "percent_rank()", "cume_dist()"]);
                format!("{call} OVER ({}{})", self.partition(), self.window_order(false))
            }
            3 => self.shifted(),
            4 => {
                let column = self.looked_up();
                let call = match self.below(3) {
                    0 => format!("nth_value({column}, {})", self.one(&["1", "2", "3", "7"])),
                    1 => format!("first_value({column})"),
                    _ => format!("last_value({column})"),
                };
                let nulls = self.one(&["", "", " IGNORE NULLS"]);
                let (partition, order) = (self.partition(), self.window_order(true));
                let frame = self.rows_frame();
                format!("{call}{nulls} OVER ({partition}{order}{frame})")
            }
            _ => self.window_aggregate(),
        }
    }

    fn looked_up(&mut self) -> String {
        self.one(&[
            "i32", "s", "g", "d15", "f32", "dt", "ts", "b", "w64", "d38", "substr(s, 2, 3)", "i32 + nn",
        ])
    }

    fn shifted(&mut self) -> String {
        let function = self.one(&["lag", "lead"]);
        let call = match self.below(3) {
            0 => format!("{function}({})", self.looked_up()),
            1 => format!("{function}({}, {})", self.looked_up(), self.one(&["0", "2", "3", "40"])),
            _ => self.one(&[
                "lag(i32, 2, -1)", "lead(s, 1, 'none')", "lag(d15, 1, 1.50)", "lead(dt, 1, '1999-12-31')",
            ]),
        };
        // Where rows come in several batches, DataFusion's lead forgets some of those behind NULLs.
        let nulls = if call.starts_with("lag") { self.one(&["", " IGNORE NULLS"]) } else { String::new() };
        format!("{call}{nulls} OVER ({}{})", self.partition(), self.window_order(true))
    }

    fn bound(&mut self, distances: &[&str], is_end: bool) -> String {
        match self.below(6) {
            0 => if is_end { "UNBOUNDED FOLLOWING" } else { "UNBOUNDED PRECEDING" }.into(),
            1 => "CURRENT ROW".into(),
            2 | 3 => format!("{} PRECEDING", self.one(distances)),
            _ => format!("{} FOLLOWING", self.one(distances)),
        }
    }

    fn frame(&mut self, units: &str, distances: &[&str]) -> String {
        if self.below(4) == 0 {
            return format!(" {units} BETWEEN UNBOUNDED PRECEDING AND {}", self.bound(distances, true));
        }
        format!(" {units} BETWEEN {} AND {}", self.bound(distances, false), self.bound(distances, true))
    }

    fn rows_frame(&mut self) -> String {
        match self.below(3) {
            0 => String::new(),
            _ => self.frame("ROWS", &["0", "1", "3", "50"]),
        }
    }

    fn window_aggregate(&mut self) -> String {
        let call = match self.below(9) {
            0 => "count(*)".into(),
            1 => format!("count({})", self.looked_up()),
            2 | 3 => format!("sum({})", self.one(&["i32", "nn", "k", "d5", "d15", "u8", "f64"])),
            4 => format!("avg({})", self.one(&["i32", "k", "d5", "d15", "f64", "f32"])),
            5 => return self.growing_aggregate(),
            6 => format!("{}({})", self.one(&["bit_and", "bit_or"]), self.one(&["i32", "k", "u8"])),
            _ => format!("{}({})", self.one(&["min", "max"]), self.looked_up()),
        };
        let call = match self.below(6) {
            0 => {
                format!("{call} FILTER (WHERE {})", self.one(&["k > 0", "b", "i32 IS NOT NULL AND g <> 'a'"]))
            }
            _ => call,
        };
        let partition = self.partition();
        let over = match self.below(6) {
            0 => partition,
            1 => format!("{partition}{}", self.window_order(false)),
            2 => format!(
                "{partition}{}{}",
                self.window_order(true),
                self.frame("ROWS", &["0", "1", "3", "50"])
            ),
            3 => format!("{partition}{}{}", self.window_order(false), self.frame("GROUPS", &["0", "1", "2"])),
            _ => self.ranged(&partition),
        };
        format!("{call} OVER ({over})")
    }

    /// An aggregate out of which DataFusion takes rows wrongly, or by rounding, over frames that only grow.
    fn growing_aggregate(&mut self) -> String {
        let function = self.one(&["stddev", "var_pop", "bit_xor"]);
        let call = format!("{function}({})", self.one(&["i32", "k", "u8"]));
        match self.below(2) {
            0 => format!("{call} OVER ({})", self.partition()),
            _ => format!("{call} OVER ({}{})", self.partition(), self.window_order(false)),
        }
    }

    /// A frame over a range of one key.
    fn ranged(&mut self, partition: &str) -> String {
        let (key, distances): (&str, &[&str]) = match self.below(6) {
            0 => ("i32", &["0", "10", "5000"]),
            1 => ("nn", &["0", "1", "7"]),
            2 => ("f32", &["0.0", "0.5", "100.25"]),
            3 => ("d5", &["0", "1.5", "100"]),
            4 => ("dt", &["INTERVAL '1 day'", "INTERVAL '2 months'", "INTERVAL '3 years'"]),
            _ => ("ts", &["INTERVAL '1 hour'", "INTERVAL '1 month'", "INTERVAL '400 days'"]),
        };
        format!("{partition}ORDER BY {key}{}{}", self.direction(), self.frame("RANGE", distances))
    }
}
