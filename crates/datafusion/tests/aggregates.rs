//! Aggregates through SQL: every function over every type, with DISTINCT, with FILTER, in groups by keys of every type and
//! in grouping sets, over many rows, one row and none: compiled as a whole, with DataFusion's answers.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use datafusion::prelude::SessionContext;
use kelpie_datafusion::KelpieSession;
use kelpie_datafusion::testing::{Generated, Outcome, compare, sessions};

const INTEGERS: [&str; 10] = ["i8", "i16", "i32", "i64", "w64", "u8", "u16", "u32", "u64", "nn"];
const FLOATS: [&str; 2] = ["f32", "f64"];
const DECIMALS: [&str; 3] = ["d5", "d15", "d38"];
const OTHERS: [&str; 6] = ["b", "dt", "ts", "tsn", "tss", "s"];

fn configurations() -> Vec<Vec<(&'static str, &'static str)>> {
    let mut all = Vec::new();
    for micro_model in ["resolution", "pipelined"] {
        all.push(vec![("kelpie.device", "cpu"), ("kelpie.micro_model", micro_model)]);
        let simt = [("kelpie.device", "simt"), ("kelpie.simt_lanes", "32")];
        all.push(vec![simt[0], simt[1], ("kelpie.micro_model", micro_model)]);
    }
    all
}

/// Runs queries on both; panics with all that differ, fail, or are not compiled as a whole.
struct Check {
    plain: SessionContext,
    kelpie: KelpieSession,
    settings: String,
    wrong: Vec<String>,
}

impl Check {
    fn new(settings: &[(&str, &str)]) -> Check {
        let (plain, kelpie) = sessions(11, settings).unwrap();
        Check { plain, kelpie, settings: format!("{settings:?}"), wrong: Vec::new() }
    }

    async fn query(&mut self, sql: String) {
        let query = Generated { sql, ordered: false };
        let outcome = compare(&self.plain, &self.kelpie, &query).await;
        // Without a reason: DataFusion's optimizer knew the answer.
        let fine =
            matches!(&outcome, Outcome::Equal { compiled, reasons } if *compiled || reasons.is_empty());
        if !fine {
            self.wrong.push(format!("{}\n  {outcome:?}", query.sql));
        }
    }

    fn finish(self) {
        assert!(self.wrong.is_empty(), "{}:\n{}", self.settings, self.wrong.join("\n"));
    }
}

/// The aggregates of a column.
fn aggregates(column: &str, distinct: bool) -> Vec<String> {
    let mut functions = vec!["count", "min", "max"];
    if INTEGERS.contains(&column) {
        functions.extend(["sum", "avg", "bit_and", "bit_or", "bit_xor"]);
    } else if FLOATS.contains(&column) || DECIMALS.contains(&column) {
        functions.extend(["sum", "avg"]);
    } else if column == "b" {
        functions.extend(["bool_and", "bool_or"]);
    }
    let numeric = !OTHERS.contains(&column);
    if numeric && !distinct {
        functions.extend(["var_samp", "var_pop", "stddev", "stddev_pop"]);
    }
    let prefix = if distinct { "DISTINCT " } else { "" };
    functions.into_iter().map(|function| format!("{function}({prefix}{column})")).collect()
}

fn columns() -> impl Iterator<Item = &'static str> {
    INTEGERS.into_iter().chain(FLOATS).chain(DECIMALS).chain(OTHERS)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_function_of_every_type() {
    for settings in configurations() {
        let mut check = Check::new(&settings);
        for column in columns() {
            let all = aggregates(column, false).join(", ");
            for table in ["t", "one", "none", "t WHERE nn < 0", &format!("t WHERE {column} IS NULL")] {
                check.query(format!("SELECT {all} FROM {table}")).await;
            }
            check.query(format!("SELECT k, {all} FROM t GROUP BY k")).await;
            check.query(format!("SELECT i64 % 5, {all} FROM none GROUP BY 1")).await;
        }
        check.finish();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn distinct_beside_other_aggregates() {
    for settings in configurations() {
        let mut check = Check::new(&settings);
        for column in columns() {
            let all = aggregates(column, true).join(", ");
            for table in ["t", "one", "none"] {
                check.query(format!("SELECT count(*), {all} FROM {table}")).await;
            }
            // DataFusion cannot do an exclusive or of distinct values in groups.
            let mut grouped = aggregates(column, true);
            grouped.retain(|aggregate| !aggregate.starts_with("bit_xor"));
            let grouped = grouped.join(", ");
            check.query(format!("SELECT k, count(*), sum(nn), {grouped} FROM t GROUP BY k")).await;
            check
                .query(format!("SELECT count(DISTINCT {column}), count(DISTINCT k), sum(DISTINCT nn) FROM t"))
                .await;
        }
        for sql in [
            "SELECT count(DISTINCT fx), count(*) FROM t",
            "SELECT s, count(DISTINCT fx), count(DISTINCT f32), count(DISTINCT g) FROM t GROUP BY s",
            "SELECT count(DISTINCT k) FILTER (WHERE nn < 25), count(DISTINCT k), count(k) FILTER (WHERE b) FROM t",
            "SELECT g, sum(DISTINCT k) FILTER (WHERE b), avg(DISTINCT d15) FILTER (WHERE NOT b) FROM t GROUP BY g",
            "SELECT count(DISTINCT 1), count(*) FROM t",
            "SELECT count(DISTINCT k), count(DISTINCT nn + k), avg(DISTINCT k + 1) FROM t HAVING count(*) > 3",
        ] {
            check.query(sql.into()).await;
        }
        check.finish();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_type() {
    for settings in configurations() {
        let mut check = Check::new(&settings);
        for column in columns().chain(["fx", "nul"]) {
            for keys in [column.to_string(), format!("{column}, g"), format!("k, {column}")] {
                check
                    .query(format!(
                        "SELECT {keys}, count(*), sum(i64), min(s), max(d38) FROM t GROUP BY {keys}"
                    ))
                    .await;
            }
        }
        for sql in [
            "SELECT fx + 1, max(dt) FROM t GROUP BY 1",
            "SELECT -fx, count(b), bool_or(b) FROM t GROUP BY 1",
            "SELECT substr(s, 1, 2), count(*), max(s) FROM t GROUP BY 1",
            "SELECT CASE WHEN b THEN k END, count(*) FROM t GROUP BY 1",
            "SELECT k, b, g, count(*) FROM t GROUP BY k, b, g HAVING max(f64) > 0",
        ] {
            check.query(sql.into()).await;
        }
        check.finish();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_and_grouping_sets() {
    for settings in configurations() {
        let mut check = Check::new(&settings);
        for sql in [
            "SELECT count(*) FILTER (WHERE b), sum(d15) FILTER (WHERE k > 0), avg(i32) FILTER (WHERE b IS NULL) FROM t",
            "SELECT g, min(s) FILTER (WHERE nn > 40), stddev(f64) FILTER (WHERE b), count(*) FROM t GROUP BY g",
            "SELECT g, max(d38) FILTER (WHERE false), bool_and(b) FILTER (WHERE b IS NOT NULL) FROM t GROUP BY g",
            "SELECT k, g, count(*), sum(nn) FROM t GROUP BY ROLLUP (k, g)",
            "SELECT k, g, b, count(*), min(s), avg(d15) FROM t GROUP BY CUBE (k, g, b)",
            "SELECT k, g, count(*) FROM t GROUP BY GROUPING SETS ((k), (g), (k, g), (), (k))",
            "SELECT g, count(*), max(s) FROM none GROUP BY GROUPING SETS ((), (g), ())",
            "SELECT count(*), sum(nn) FROM t GROUP BY GROUPING SETS ((), ())",
            "SELECT count(*), sum(nn) FROM none GROUP BY GROUPING SETS (())",
            "SELECT k, count(DISTINCT g), count(DISTINCT nn) FROM t GROUP BY ROLLUP (k)",
            "SELECT k, g, count(*) FROM none GROUP BY ROLLUP (k, g)",
            "SELECT b, sum(nn) FROM t GROUP BY GROUPING SETS ((b), ()) HAVING sum(nn) > 100",
        ] {
            check.query(sql.into()).await;
        }
        check.finish();
    }
}

/// Partial and final steps become one aggregate.
#[tokio::test(flavor = "multi_thread")]
async fn steps_of_many_partitions() {
    let (plain, _) = sessions(11, &[]).unwrap();
    let settings = [
        ("kelpie.device", "cpu"),
        ("datafusion.execution.target_partitions", "4"),
        ("datafusion.optimizer.repartition_aggregations", "true"),
        ("datafusion.optimizer.enable_round_robin_repartition", "true"),
    ];
    let mut check = Check { plain, ..Check::new(&settings) };
    for sql in [
        "SELECT k, sum(d15), avg(d15), min(s), stddev(f64), count(*) FROM t GROUP BY k",
        "SELECT count(DISTINCT k), count(DISTINCT g), sum(i64) FROM t",
        "SELECT bool_and(b), bit_xor(i32), var_pop(i32), max(d38) FROM t",
        "SELECT k, g, count(*), avg(i32) FROM t GROUP BY CUBE (k, g)",
    ] {
        check.query(sql.into()).await;
    }
    check.finish();
}

/// DataFusion sums decimals for an average in 256 bits: where 128 do not hold the sum, its operators take over.
#[tokio::test(flavor = "multi_thread")]
async fn sums_beyond_128_bits() {
    let (plain, kelpie) = sessions(11, &[("kelpie.device", "cpu")]).unwrap();
    let scaled = "CAST(a.nn AS DECIMAL(38, 0)) * CAST('100000000000000000000000000000000' AS DECIMAL(33, 0))";
    for sql in [
        format!("SELECT avg({scaled}) FROM t a CROSS JOIN t b"),
        format!("SELECT a.k, avg({scaled}) FROM t a CROSS JOIN t b GROUP BY a.k"),
        format!("SELECT avg({scaled}), avg({scaled} * 1000) FROM t a"),
        format!("SELECT sum({scaled} * 1000), min({scaled}), max({scaled}) FROM t a CROSS JOIN t b"),
    ] {
        let query = Generated { sql, ordered: false };
        let outcome = compare(&plain, &kelpie, &query).await;
        assert!(
            matches!(outcome, Outcome::Equal { .. } | Outcome::BothFailed(_)),
            "{}: {outcome:?}",
            query.sql
        );
        println!("{outcome:?}");
    }
}
