//! The first row of each key through SQL, which is `row_number()` below a filter that keeps number 1: by keys and in orders of every
//! type, over many rows, one row and none: compiled as a whole, with DataFusion's answers.

use datafusion::arrow::util::pretty::pretty_format_batches;
use kelpie_session::testing::{Check, check_all, configurations, sessions, translate};

const COLUMNS: [&str; 22] = [
    "i8", "i16", "i32", "i64", "w64", "u8", "u16", "u32", "u64", "nn", "f32", "f64", "d5", "d15", "d38", "b",
    "dt", "ts", "tsn", "tss", "s", "g",
];

/// In this order no two rows of `t` are alike, so that the first one is nobody's choice.
const UNIQUE: &str = "tsn, i64, d15, u32";

/// The first rows of a table: what is asked for, `PARTITION BY` and `ORDER BY`, and the condition.
fn first(columns: &str, table: &str, over: &str, condition: &str) -> String {
    format!(
        "SELECT {columns} FROM (SELECT *, row_number() OVER ({over}) AS r FROM {table}) WHERE {condition}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_orders_of_every_type() {
    let mut statements = Vec::new();
    for column in COLUMNS {
        let by_key = format!("PARTITION BY k ORDER BY {column} DESC, {UNIQUE}");
        for table in ["t", "one", "none", "t WHERE nn < 0"] {
            statements.push(first("*", table, &by_key, "r = 1"));
        }
        if !["f32", "f64"].contains(&column) {
            let over = format!("PARTITION BY {column} ORDER BY {UNIQUE}");
            statements.push(first(&format!("{column} AS c, nn AS n, r, s AS t"), "t", &over, "r = 1"));
            let over = format!("PARTITION BY k, {column} ORDER BY {UNIQUE}");
            statements.push(first("*", "t", &over, "r < 2"));
            statements.push(first("count(*)", "t", &over, "r <= 1"));
        }
        for order in ["NULLS FIRST", "DESC NULLS LAST", "ASC NULLS LAST", "DESC NULLS FIRST"] {
            let over = format!("PARTITION BY g ORDER BY {column} {order}, {UNIQUE} DESC NULLS LAST");
            statements.push(first(&format!("g, {column} AS c, s AS t, f64 AS f"), "t", &over, "1 = r"));
        }
        // Nothing but what is ordered by.
        let over = format!("PARTITION BY k ORDER BY {column} DESC NULLS LAST");
        statements.push(first(&format!("k, {column} AS c"), "t", &over, "r = 1"));
    }
    check_all("first rows by every type", configurations(), statements).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_partition() {
    let mut statements = Vec::new();
    for table in ["t", "one", "none", "t WHERE nn < 0", "t WHERE k IS NULL"] {
        for order in [UNIQUE, "s DESC NULLS LAST, d38, tss, w64, u64", "f64 + 1, d38, tss, w64, u64"] {
            statements.push(first("*", table, &format!("ORDER BY {order}"), "r = 1"));
        }
        statements.push(first("count(*), sum(r)", table, "", "r = 1"));
        statements.push(first("k, r", table, "PARTITION BY k", "r = 1"));
    }
    check_all("first rows of one partition", configurations(), statements).await.unwrap();
}

/// Which of several rows is first is open where the order does not tell them apart; that it is one of them is not.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_the_order_does_not_tell_apart() {
    let row = ["k", "tsn", "i64", "d15", "u32", "g"];
    let same = row.map(|column| format!("(f.{column} IS NOT DISTINCT FROM t.{column})")).join(" AND ");
    let overs =
        ["PARTITION BY k ORDER BY g DESC NULLS LAST", "PARTITION BY k, g", "PARTITION BY k, g ORDER BY g"];
    let statements = overs.map(|over| {
        let first = first(&row.join(", "), "t", over, "r = 1");
        format!("SELECT f.k, f.g, count(*) FROM ({first}) f JOIN t ON {same} GROUP BY f.k, f.g")
    });
    check_all("rows told apart by nothing", configurations(), statements).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_around() {
    let by_key = &format!("PARTITION BY k ORDER BY {UNIQUE}");
    let number = &format!("row_number() OVER ({by_key})");
    let statements = [
        // Other conditions, on keys too, and several on the number.
        first("k, s, r", "t", by_key, "r = 1 AND nn > 20 AND k > 0"),
        first("k, s", "t", by_key, "r <= 1 AND (f64 > 0 OR s IS NULL) AND r >= 1"),
        first("k, s", "t", by_key, "r = 1 AND r > 1"),
        first("nn, nn * 2 AS double, upper(s), r + 1 AS more", "t", by_key, "r = 1"),
        // Numbers in expressions above.
        format!(
            "SELECT s, r FROM (SELECT s, r, nn + r AS x FROM (SELECT *, {number} AS r FROM t)) WHERE r = 1 AND x > 10"
        ),
        // Expressions as keys and in the order.
        first(
            "k, s, r",
            "t",
            &format!("PARTITION BY nn % 10, upper(g) ORDER BY nn + 1 DESC, {UNIQUE}"),
            "r = 1",
        ),
        first(
            "s",
            "t",
            &format!("PARTITION BY CASE WHEN b THEN k END ORDER BY length(s) DESC, {UNIQUE}"),
            "r = 1",
        ),
        first("k, s", "t", &format!("PARTITION BY k, k ORDER BY k, {UNIQUE}, k DESC"), "r = 1"),
        // A filter below, joins, groups and unions below and above.
        first("k, nn, s", "(SELECT * FROM t WHERE b AND nn > 5)", by_key, "r = 1"),
        first(
            "k, n",
            "(SELECT k, count(*) AS n, min(s) AS s FROM t GROUP BY k, g)",
            "PARTITION BY k ORDER BY n DESC, s",
            "r = 1",
        ),
        first("sum(nn), count(*)", "t", by_key, "r = 1"),
        first("max(nn)", "(SELECT * FROM t UNION ALL SELECT * FROM one)", by_key, "r = 1"),
        format!(
            "SELECT a.k, a.s, b.nn FROM t a JOIN ({}) b ON a.k = b.k AND a.nn = b.nn",
            first("k, nn", "t", by_key, "r = 1")
        ),
        // Orders of the result.
        format!("{} ORDER BY k DESC LIMIT 3", first("k, nn", "t", by_key, "r = 1")),
        format!("SELECT k, nn, s FROM t QUALIFY {number} = 1"),
        // Two numbers by one window, of which one is asked for.
        format!("SELECT nn, a, b FROM (SELECT nn, {number} AS a, {number} + 1 AS b FROM t) WHERE a = 1"),
        // First rows of first rows.
        format!(
            "SELECT g, nn FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY {UNIQUE}) AS q FROM ({})) WHERE q = 1",
            first("*", "t", &format!("PARTITION BY g, k ORDER BY {UNIQUE} DESC"), "r = 1")
        ),
        "SELECT k, (SELECT min(u.nn) FROM one u) AS x FROM (SELECT k, nn, row_number() OVER (PARTITION BY k ORDER BY nn DESC) AS r FROM t) WHERE r = 1 AND nn > (SELECT avg(nn) FROM t)".into(),
    ];
    check_all("around first rows", configurations(), statements).await.unwrap();
}

/// Windows of which other rows are asked for too.
#[tokio::test(flavor = "multi_thread")]
async fn other_windows() {
    let by_key = &format!("PARTITION BY k ORDER BY {UNIQUE}");
    let mut check = Check::new(&[("kelpie.device", "cpu")]).unwrap();
    for sql in [
        first("k, s", "t", by_key, "r = 2"),
        first("k, s", "t", by_key, "r <= 2"),
        first("k, s", "t", by_key, "r >= 1"),
        first("k, s", "t", by_key, "r = 1 OR nn = 3"),
        first("k, s, r", "t", by_key, "nn = 1"),
        "SELECT k, nn FROM (SELECT k, nn, rank() OVER (PARTITION BY k ORDER BY nn) AS r FROM t) WHERE r = 1"
            .to_string(),
        format!(
            "SELECT k, x FROM (SELECT k, sum(nn) OVER (PARTITION BY k) AS x, row_number() OVER ({by_key}) AS r FROM t) WHERE r = 1"
        ),
        format!(
            "SELECT k, r, q FROM (SELECT k, row_number() OVER ({by_key}) AS r, row_number() OVER (PARTITION BY g ORDER BY {UNIQUE}) AS q FROM t) WHERE r = 1 AND q = 1"
        ),
    ] {
        check.query(&sql).await;
    }
    check.finish();
}

#[tokio::test]
async fn the_window_is_part_of_what_is_compiled() {
    let (_, kelpie) = sessions(11, &[("kelpie.device", "cpu"), ("kelpie.min_rows", "0")]).unwrap();
    let sql = first("k, s", "t", &format!("PARTITION BY k ORDER BY {UNIQUE}"), "r = 1");
    let shown = kelpie.context().sql(&format!("EXPLAIN {sql}")).await.unwrap().collect().await.unwrap();
    let shown = pretty_format_batches(&shown).unwrap().to_string();
    assert!(shown.contains("KelpieExec") && !shown.contains("KelpieReport"), "{shown}");
    let (_, plain) = sessions(11, &[("kelpie.enabled", "false")]).unwrap();
    for partitions in ["1", "4"] {
        let set = format!("SET datafusion.execution.target_partitions = {partitions}");
        plain.context().sql(&set).await.unwrap().collect().await.unwrap();
        let plan = plain.context().sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
        let translated = format!("{:?}", translate(&plan).unwrap().plan);
        assert!(translated.contains("Ranked"), "{translated}");
    }
}

#[tokio::test]
async fn explain_says_how_windows_are_carried_out_and_why() {
    let (_, kelpie) = sessions(11, &[("kelpie.device", "cpu"), ("kelpie.min_rows", "0")]).unwrap();
    let best =
        "SELECT * FROM (SELECT k, rank() OVER (PARTITION BY g ORDER BY i32) AS r FROM t) q WHERE r <= 2";
    for (sql, expected) in [
        (
            "SELECT k, row_number() OVER (PARTITION BY g ORDER BY i32) FROM t",
            "window of row_number: a sort by 2 keys",
        ),
        (
            "SELECT k, g, i32, row_number() OVER (PARTITION BY g ORDER BY i32), rank() OVER (ORDER BY g) FROM t",
            "window of row_number, rank: a shared sort by 2 keys: it is the order of 2 windows",
        ),
        (
            "SELECT k, row_number() OVER (PARTITION BY g ORDER BY i32), rank() OVER (ORDER BY g) FROM t",
            "a shared sort by 2 keys",
        ),
        (
            "SELECT k, sum(i32) OVER (PARTITION BY g) FROM t",
            "window over whole partitions, 1 in all: a table of groups",
        ),
        ("SELECT k, row_number() OVER () FROM t", "window of row_number: no sort"),
        (best, "all rows are sorted: few rows are sorted at once"),
        (
            "SELECT g, i32, rank() OVER (ORDER BY g, i32) FROM t ORDER BY g, i32",
            "sort: left out: rows come in this order",
        ),
    ] {
        let shown = kelpie.context().sql(&format!("EXPLAIN ANALYZE {sql}")).await.unwrap();
        let shown = pretty_format_batches(&shown.collect().await.unwrap()).unwrap().to_string();
        assert!(shown.contains(expected), "{sql}\n{shown}");
    }
}
