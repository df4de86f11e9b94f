//! Queries drawn at random over columns of odd distributions: what no rule was made for.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use datafusion::arrow::array::{ArrayRef, Int32Array};
use datafusion::catalog::TableProvider;

use super::memory::{self, below, random};

/// Rows of the table of facts at scale factor 1; that of dimensions has a thousandth of them, and a hundredth.
const ROWS: f64 = 10e6;
/// Queries that are drawn.
const QUERIES: u64 = 200;
/// What the random numbers of queries begin with; columns have others.
const SEED: u64 = 200;

/// The columns of facts, by what their values are like.
const COLUMNS: [&str; 10] =
    ["few", "hundreds", "many", "unique", "ascending", "runs", "zipf", "half_one", "sparse", "measure"];

/// Tables, and queries over them.
pub struct Generated {
    pub tables: Vec<(&'static str, Arc<dyn TableProvider>)>,
    /// With a name each.
    pub queries: Vec<(String, String)>,
}

/// Rows of facts at a scale.
pub fn rows(scale: f64) -> u64 {
    (ROWS * scale).max(1000.0) as u64
}

/// Makes the tables, and draws the queries.
pub fn make(rows: u64, threads: usize) -> Result<Generated> {
    let table =
        |rows: u64| memory::table(&memory::integers(&COLUMNS), rows, threads, &|part| columns(part, rows));
    let tables = vec![
        ("facts", table(rows)?),
        ("small", table((rows / 1000).max(10))?),
        ("large", table(rows / 100)?),
    ];
    let queries = (0..QUERIES).map(|number| (format!("g{number}"), query(number, rows))).collect();
    Ok(Generated { tables, queries })
}

/// The columns of a range of a table's rows.
fn columns(part: Range<u64>, rows: u64) -> Vec<ArrayRef> {
    let value = |column: u64, row: u64| -> i32 {
        let bits = random(column, row);
        let drawn = match COLUMNS[column as usize] {
            "few" => below(7, bits),
            "hundreds" => below(700, bits),
            "many" => below((rows / 20).max(1), bits),
            "unique" => row.wrapping_mul(0x9e37_79b1) % rows.next_power_of_two(),
            "ascending" => row,
            "runs" => row / (1 + rows / 50_000),
            // Each power of two is as frequent as any other.
            "zipf" => (2f64.powf(below(1 << 20, bits) as f64 / f64::from(1 << 20) * 18.0)) as u64,
            "half_one" => {
                if bits.is_multiple_of(2) {
                    1
                } else {
                    below(1 << 16, bits >> 8)
                }
            }
            "sparse" => below(5_000, bits) * 400_009,
            _ => below(1_000_000, bits),
        };
        drawn as i32
    };
    let column = |column: u64| -> ArrayRef {
        Arc::new(part.clone().map(|row| value(column, row)).collect::<Int32Array>())
    };
    (0..COLUMNS.len() as u64).map(column).collect()
}

/// Draws parts of one query.
struct Draw {
    number: u64,
    drawn: u64,
}

impl Draw {
    fn below(&mut self, count: u64) -> u64 {
        self.drawn += 1;
        below(count, random(SEED, self.number << 16 | self.drawn))
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A query: of facts, perhaps joined with one of the other tables, filtered, grouped or sorted.
fn query(number: u64, rows: u64) -> String {
    let mut draw = Draw { number, drawn: 0 };
    let keys: &[&str] = &["few", "hundreds", "many", "unique", "runs", "zipf", "half_one", "sparse"];
    let joined = draw.of(&["", "", "small", "large"]);
    let (from, of_other) = match joined {
        "" => ("facts f".to_string(), false),
        other => {
            let key = draw.of(&["hundreds", "many", "sparse", "unique"]);
            // One row of the other table a key at most, or about as many as there are.
            let distinct = if draw.below(2) == 0 {
                format!("(select {key}, min(few) few, min(measure) measure from {other} group by {key})")
            } else {
                format!("(select * from {other} where ascending % 7 = 0)")
            };
            (format!("facts f join {distinct} d on f.{key} = d.{key}"), true)
        }
    };
    let mut conditions = Vec::new();
    for _ in 0..draw.below(4) {
        let condition = match draw.below(5) {
            0 => format!("f.measure < {}", 1 + draw.below(1_000_000)),
            1 => format!("f.ascending >= {}", draw.below(rows)),
            2 => format!("f.few <> {}", draw.below(7)),
            3 => format!("f.zipf between {} and {}", draw.below(100), 100 + draw.below(100_000)),
            _ => format!("f.half_one = {}", 1 + draw.below(2)),
        };
        conditions.push(condition);
    }
    if of_other && draw.below(2) == 0 {
        conditions.push(format!("d.few < {}", 1 + draw.below(7)));
    }
    let filter =
        if conditions.is_empty() { String::new() } else { format!(" where {}", conditions.join(" and ")) };
    let aggregates: &[&str] = &[
        "count(*)",
        "sum(f.measure)",
        "min(f.measure), max(f.ascending)",
        "avg(f.measure)",
        "sum(f.measure), sum(f.zipf), count(*)",
        "count(distinct f.few)",
    ];
    let aggregate = draw.of(aggregates);
    match draw.below(5) {
        0 => format!("select {aggregate} from {from}{filter}"),
        1 => {
            let key = draw.of(keys);
            format!(
                "select f.measure, f.{key} from {from}{filter} order by f.measure, f.{key}, f.ascending limit 50"
            )
        }
        kind => {
            let mut by: Vec<String> =
                (0..1 + draw.below(2)).map(|_| format!("f.{}", draw.of(keys))).collect();
            by.dedup();
            let by = by.join(", ");
            let groups = format!("select {by}, {aggregate} from {from}{filter} group by {by}");
            match kind {
                2 => format!("{groups} order by {by} limit 100"),
                _ => format!("select count(*) from ({groups})"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_differ_and_are_the_same_each_time() {
        let all: Vec<String> = (0..QUERIES).map(|number| query(number, 1000)).collect();
        let mut distinct = all.clone();
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() > 150, "{}", distinct.len());
        assert_eq!(all, (0..QUERIES).map(|number| query(number, 1000)).collect::<Vec<_>>());
    }
}
