//! Aggregates of sorted groups through SQL, which are medians, percentiles and values at the ends of an order: over every type, by keys of
//! every type, over many rows, one row and none: compiled as a whole, with DataFusion's answers.

use kelpie_session::testing::{check_all, configurations, sessions, translate};

use super::aggregates::{DECIMALS, FLOATS, INTEGERS, columns};

/// In this order no two rows of `t` are alike, so that the first one is nobody's choice. DataFusion takes no key twice, so that it
/// is one without `column`.
fn unique(column: &str) -> &'static str {
    match column {
        "tsn" | "i64" | "d15" | "u32" => "d38, tss, w64, u64",
        _ => "tsn, i64, d15, u32",
    }
}

/// Medians, percentiles, and values at the ends of an order.
#[tokio::test(flavor = "multi_thread")]
async fn values_of_sorted_groups() {
    let mut statements: Vec<String> = Vec::new();
    let numbers = || INTEGERS.into_iter().chain(FLOATS).chain(DECIMALS).chain(["fx"]);
    for x in numbers() {
        // The last value is rewritten to the maximum, of which DataFusion leaves NaN out in groups.
        let most = if x == "fx" { "0.9" } else { "1.0" };
        let all = format!(
            "median({x}), count({x}), percentile_cont({x}, 0.25), percentile_cont({x}, {most}), \
             percentile_cont({x}, 0.333333333), median({x}) + 1 AS more, min(nn)"
        );
        for table in ["t", "one", "none", "t WHERE nn < 0", &format!("t WHERE {x} IS NULL")] {
            statements.push(format!("SELECT {all} FROM {table}"));
        }
        statements.push(format!("SELECT k, {all}, sum(nn) FROM t GROUP BY k"));
        statements.push(format!("SELECT i16, median({x}) FROM t GROUP BY i16"));
        statements.push(format!("SELECT b, median({x}) FILTER (WHERE k > 0) FROM t GROUP BY b"));
    }
    for x in columns().chain(["fx"]) {
        let unique = unique(x);
        let order = format!("ORDER BY {unique}");
        let all = format!(
            "first_value({x} {order}), last_value({x} {order}), nth_value({x}, 3 {order}), \
             nth_value({x}, -2 {order}), nth_value({x}, 400 {order}), count({x})"
        );
        for table in ["t", "one", "none"] {
            statements.push(format!("SELECT {all} FROM {table}"));
        }
        statements.push(format!("SELECT k, {all}, avg(nn) FROM t GROUP BY k"));
        let order = format!("ORDER BY {x} DESC, {unique}");
        statements
            .push(format!("SELECT g, first_value(nn {order}), last_value(s {order}) FROM t GROUP BY g"));
        let order = format!("ORDER BY {x} NULLS FIRST, {unique} DESC");
        statements.push(format!("SELECT k, last_value(f64 {order}), min(s) FROM t GROUP BY k"));
        let first = format!("first_value({x} ORDER BY {unique})");
        statements.push(format!("SELECT k, {first} IGNORE NULLS FROM t GROUP BY k"));
        statements.push(format!("SELECT k, {first} FILTER (WHERE b) FROM t GROUP BY k"));
        statements.push(format!("SELECT k, {first} FILTER (WHERE nn < 9) IGNORE NULLS FROM t GROUP BY k"));
    }
    check_all("values of sorted groups", configurations(), statements).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sorted_groups_by_keys_of_every_type() {
    let mut statements: Vec<String> = Vec::new();
    for key in columns().chain(["fx", "nul"]) {
        for keys in [key.to_string(), format!("{key}, g"), format!("k, {key}")] {
            let median = "median(i32), count(*), sum(i64), max(s), percentile_cont(i32, 0.9)";
            statements.push(format!("SELECT {keys}, {median} FROM t GROUP BY {keys}"));
        }
        let first = format!("first_value({key} ORDER BY {key} DESC, {})", unique(key));
        statements.push(format!("SELECT {key}, {first} FROM t WHERE nn < 9 GROUP BY {key}, g"));
        if INTEGERS.contains(&key) || FLOATS.contains(&key) || DECIMALS.contains(&key) || key == "fx" {
            statements.push(format!("SELECT {key}, median({key}) FROM t GROUP BY {key}, g"));
        }
    }
    statements.extend([
        "SELECT median(i32), median(f64), count(*) FROM t",
        "SELECT median(i32), median(f64), count(*) FROM none",
        "SELECT k, median(i32), sum(nn), median(f64), median(d5), percentile_cont(f64, 0.2), max(s) FROM t GROUP BY k",
        "SELECT fx, median(i32), median(f64), count(*) FROM t GROUP BY fx",
        "SELECT s, b, median(f64), first_value(nn ORDER BY tsn, i64, d15) FROM t GROUP BY s, b",
        "SELECT k, median(f64) FILTER (WHERE b), median(f64), median(f64) FILTER (WHERE NOT b) FROM t GROUP BY k",
        "SELECT k, g, median(nn), count(*) FROM t GROUP BY ROLLUP (k, g)",
        "SELECT k, g, median(nn), sum(nn), median(f64) FROM t GROUP BY GROUPING SETS ((k), (g), (), (k))",
        "SELECT k, median(nn) FROM none GROUP BY CUBE (k)",
    ].map(String::from));
    let long = "'a beginning of more than fifteen bytes ' || coalesce(s, g, '')";
    statements.extend([
        &format!("SELECT {long}, median(f64), count(*) FROM t GROUP BY 1"),
        &format!("SELECT k, first_value(s ORDER BY {long} DESC, tsn, i64, d15, u32) FROM t GROUP BY k"),
        &format!(
            "SELECT {long}, last_value({long} ORDER BY {long}, tsn, i64, d15, u32) FROM t GROUP BY 1"
        ),
        "SELECT percentile_cont(0.1) WITHIN GROUP (ORDER BY f64), count(*) FROM t",
        "SELECT k, percentile_cont(0.1) WITHIN GROUP (ORDER BY f64 DESC) FROM t GROUP BY k",
        "SELECT k, percentile_cont(0) WITHIN GROUP (ORDER BY d5), median(d5) FROM t GROUP BY k",
        "SELECT k % 2, median(nn) + 1, percentile_cont(nn, 0.75) - percentile_cont(nn, 0.25) FROM t GROUP BY 1",
        "SELECT k FROM t GROUP BY k HAVING median(nn) > 24",
        "SELECT k, median(nn) AS m FROM t GROUP BY k ORDER BY m DESC, k LIMIT 3",
        "SELECT max(m) FROM (SELECT g, median(f64) AS m FROM t GROUP BY g)",
        "SELECT median(m) FROM (SELECT i16, median(f64) AS m FROM t GROUP BY i16)",
        "SELECT median(a.nn) FROM t a JOIN t b ON a.k = b.k WHERE a.b AND NOT b.b",
        "SELECT k, median(nn) FROM (SELECT * FROM t UNION ALL SELECT * FROM one) GROUP BY k",
        "SELECT median(CAST(nn AS SMALLINT)), median(nn * 2), count(DISTINCT nn) FROM t GROUP BY g, k",
        "SELECT median(CAST(d38 * 100000000 AS DECIMAL(38, 8))) FROM t",
        "SELECT k, median(x) FROM (SELECT k, CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0)) * CAST(CASE WHEN nn < 30 THEN 1 ELSE -1 END AS DECIMAL(1, 0)) AS x FROM t) GROUP BY k",
    ].map(String::from));
    check_all("keys of sorted groups", configurations(), statements).await.unwrap();
}

/// What stays DataFusion's says why.
#[tokio::test]
async fn sorted_groups_that_are_not_compiled() {
    let (_, kelpie) = sessions(11, &[("kelpie.enabled", "false")]).unwrap();
    for (sql, part) in [
        (
            "SELECT median(nn), median(k) FROM (SELECT * FROM t LIMIT 50)",
            "two orders of rows that LIMIT picks are not compiled",
        ),
        (
            "SELECT median(nn), median(k) FROM (SELECT DISTINCT ON (g) g, nn, k FROM t ORDER BY g, i8)",
            "two orders of rows that are the first or last of others are not compiled",
        ),
        (
            "SELECT median(nn), median(k), median(i8), median(i16), median(i32), median(i64), median(u8), \
             median(u16), median(u32) FROM t",
            "more than 8 orders",
        ),
        ("SELECT median(DISTINCT nn), count(DISTINCT k) FROM t", "DISTINCT values in an order"),
        ("SELECT first_value(nn) FROM t", "without ORDER BY any row is the first one"),
    ] {
        let plan = kelpie.context().sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let reasons = translate(&plan).unwrap_err().join("\n");
        assert!(reasons.contains(part), "{sql}: {reasons}");
    }
}
