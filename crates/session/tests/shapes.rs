//! Shapes of statements whose plans are carried out in another way than they are written: sub-plans that are there several times are run
//! once, and what EXISTS asks under a comparison is answered by the least and the greatest value of each key. The answers are DataFusion's.

use kelpie_session::testing::{check_all, configurations};

const COLUMNS: [&str; 17] = [
    "b", "i8", "i32", "w64", "u8", "u64", "f32", "f64", "fx", "d5", "d38", "dt", "ts", "s", "g", "nn", "nul",
];
const EXTREMES: (&str, &str) = ("kelpie.variant.asked_rows", "extremes");

#[tokio::test(flavor = "multi_thread")]
async fn exists_with_a_comparison() {
    let mut statements = Vec::new();
    for (number, column) in COLUMNS.into_iter().enumerate() {
        for (turn, op) in ["<>", "<", ">=", ">", "<="].into_iter().enumerate() {
            let not = if (number + turn) % 2 == 0 { "NOT " } else { "" };
            let key = ["k", "g", "u8", "dt"][(number + 2 * turn) % 4];
            let other = ["t", "t", "t WHERE nn < 20", "none", "one"][(number + turn) % 5];
            let exists = format!(
                "{not}EXISTS (SELECT 1 FROM (SELECT * FROM {other}) b WHERE b.{key} = a.{key} AND b.{column} {op} a.{column})"
            );
            statements.push(format!("SELECT count(*), sum(nn), min({column}) FROM t a WHERE {exists}"));
            if turn < 2 {
                statements.push(format!("SELECT count(*), sum(nn) FROM t a WHERE nn < 9 OR {exists}"));
                statements.push(format!("SELECT i16, {column} FROM one a WHERE {exists}"));
            }
        }
    }
    let mut all = configurations();
    all.extend(configurations().into_iter().map(|mut settings| {
        settings.push(EXTREMES);
        settings
    }));
    check_all("EXISTS with a comparison", all, statements).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn exists_with_other_conditions() {
    let conditions = [
        // Of one row, or of one row each.
        "b.nn <> a.nn OR b.i64 > a.i64",
        "b.nn <> a.nn AND b.i64 > a.i64",
        "b.nn <> a.nn AND a.i32 > 0",
        "(b.nn > a.nn OR a.i32 > 0) AND a.u8 < 100",
        "b.nn + 1 > a.nn",
        "b.nn * 2 <> a.i32 + 3",
        "b.nn > a.nn AND b.nn < a.nn + 5",
        "b.s <> a.g",
        "b.s > a.s OR b.g < a.s",
        "b.nn IS DISTINCT FROM a.nn",
        "NOT (b.nn <> a.nn)",
        "b.nn / (a.nn + 1) > 1",
        "100 / (b.nn - 60) < a.nn",
        "b.i32 > a.i32 AND b.nn > 7 AND a.nn > 7",
        "CASE WHEN b.nn > 5 THEN b.nn <> a.nn ELSE a.nn > 3 END",
    ];
    let mut statements = Vec::new();
    for condition in conditions {
        for keys in ["b.k = a.k", "b.k = a.k AND b.g = a.g", "b.nn = a.nn + 1", "b.fx = a.fx"] {
            for not in ["", "NOT "] {
                statements.push(format!(
                    "SELECT count(*), sum(nn) FROM t a WHERE {not}EXISTS (SELECT 1 FROM t b WHERE {keys} AND ({condition}))"
                ));
            }
        }
        statements.push(format!(
            "SELECT a.nn, count(*) FROM t a WHERE a.k IN (SELECT b.k FROM t b WHERE {condition}) GROUP BY a.nn"
        ));
    }
    let all = configurations().into_iter().map(|mut settings| {
        settings.push(EXTREMES);
        settings
    });
    check_all("EXISTS with other conditions", all.collect(), statements).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn views_that_are_used_several_times() {
    let statements = [
        "WITH v AS (SELECT k, sum(nn) AS s FROM t GROUP BY k) SELECT a.k, a.s, b.s FROM v a JOIN v b ON a.k = b.k",
        "WITH v AS (SELECT k, sum(nn) AS s FROM t GROUP BY k) SELECT count(*) FROM v a WHERE a.s > (SELECT avg(s) FROM v)",
        "WITH v AS (SELECT k, sum(nn) AS s, min(i64) AS m FROM t GROUP BY k) SELECT * FROM v WHERE s = (SELECT max(s) FROM v)",
        // Uses read other columns, and other aggregates.
        "WITH v AS (SELECT k, g, sum(nn) AS s, max(i32) AS m, count(*) AS c FROM t GROUP BY k, g) \
         SELECT a.k, a.g, a.s, b.m FROM v a, v b WHERE a.k = b.k AND a.g = b.g AND a.s > b.c",
        "SELECT (SELECT sum(nn) FROM t WHERE k > 0), (SELECT sum(nn) FROM t WHERE k > 0) + 1, (SELECT max(i32) FROM t WHERE k > 0), \
         count(*) FROM t WHERE nn > (SELECT avg(nn) FROM t WHERE k > 0)",
        // Branches of a union; filters that are the same and not.
        "WITH v AS (SELECT k, g, count(*) AS c FROM t GROUP BY k, g) \
         SELECT k, sum(c) FROM v GROUP BY k UNION ALL SELECT 100, sum(c) FROM v UNION ALL SELECT k, c FROM v WHERE g = 'a'",
        "WITH v AS (SELECT k, g, count(*) AS c FROM t GROUP BY k, g) \
         SELECT * FROM v WHERE k = 1 UNION ALL SELECT * FROM v WHERE k = 2 UNION ALL SELECT * FROM v WHERE k = 1",
        "WITH v AS (SELECT k, count(*) AS c FROM t GROUP BY k HAVING count(*) > 3) SELECT a.c, b.k FROM v a JOIN v b ON a.c = b.c",
        // A view of a view, of joins, of first rows, of windows, of nothing.
        "WITH v AS (SELECT k, sum(nn) AS s FROM t GROUP BY k), w AS (SELECT s, count(*) AS c FROM v GROUP BY s) \
         SELECT v.k, w.c, x.c FROM v JOIN w ON v.s = w.s JOIN w x ON x.s = w.s",
        "WITH v AS (SELECT a.k, b.g, sum(a.nn + b.nn) AS s FROM t a JOIN t b ON a.i32 = b.i32 GROUP BY a.k, b.g) \
         SELECT a.k, b.g FROM v a JOIN v b ON a.s < b.s AND a.k = b.k",
        "WITH v AS (SELECT nn, i64, tsn FROM t ORDER BY tsn, i64, u32 LIMIT 50) SELECT count(*), max(a.i64) FROM v a JOIN v b ON a.nn = b.nn",
        "WITH v AS (SELECT k, nn, row_number() OVER (PARTITION BY k ORDER BY tsn, i64, u32) AS r FROM t) \
         SELECT count(*), sum(a.nn - b.nn) FROM v a JOIN v b ON a.k = b.k AND a.r = b.r + 1",
        "WITH v AS (SELECT k, count(*) AS c FROM none GROUP BY k) SELECT a.k FROM v a JOIN v b ON a.c = b.c",
        "WITH v AS (SELECT DISTINCT k, g FROM t) SELECT count(*) FROM v a LEFT JOIN v b ON a.g = b.g AND a.k < b.k",
        "WITH v AS (SELECT k, median(f64) AS m FROM t GROUP BY k) SELECT a.k FROM v a JOIN v b ON a.m = b.m",
        "WITH v AS (SELECT k, g, sum(nn) AS s FROM t GROUP BY ROLLUP (k, g)) SELECT count(*) FROM v a JOIN v b ON a.s = b.s",
        // Equal but for what is asked, or for the order of keys.
        "SELECT * FROM (SELECT k, sum(nn) AS s FROM t GROUP BY k) a JOIN (SELECT k, sum(nn) AS s FROM t WHERE nn < 40 GROUP BY k) b ON a.k = b.k",
        "SELECT * FROM (SELECT k, g, sum(nn) AS s FROM t GROUP BY k, g) a JOIN (SELECT g, k, sum(nn) AS s FROM t GROUP BY g, k) b ON a.s = b.s",
        // A subquery's value inside of what is there twice.
        "WITH v AS (SELECT k, count(*) AS c FROM t WHERE nn > (SELECT avg(nn) FROM t) GROUP BY k) SELECT a.c FROM v a JOIN v b ON a.k = b.k",
        // What fails where nobody comes to it, and what fails.
        "WITH v AS (SELECT k, sum(100 / (nn - 7)) AS s FROM t GROUP BY k) SELECT a.s FROM none n JOIN v a ON n.k = a.k JOIN v b ON b.k = n.k",
    ];
    let mut all = configurations();
    for settings in configurations() {
        all.push([settings.clone(), vec![("kelpie.shared_plans", "false")]].concat());
        all.push([settings, vec![("kelpie.macro_model", "batch"), ("kelpie.block_bytes", "1KB")]].concat());
    }
    let statements: Vec<String> = statements.iter().map(ToString::to_string).collect();
    check_all("views that are used several times", all, statements).await.unwrap();
}

/// A dimension with every kind of key: one whose keys come once, several times and not at all, texts that are computed, and NULLs.
const ITEMS: &str =
    "(SELECT nn AS id, g AS kind, s AS item, s || g AS both, nn % 3 AS class, i64 AS w FROM t)";

#[tokio::test(flavor = "multi_thread")]
async fn groups_by_columns_of_a_dimension() {
    let aggregates =
        "count(*), count(f.i32), sum(f.i32), sum(f.d15), min(f.s), max(f.f32), bit_and(f.u8), sum(f.f64)";
    let mut statements = Vec::new();
    for items in [
        "(SELECT DISTINCT nn AS id, 'item ' || CAST(nn AS varchar) AS item, 'kind ' || CAST(nn % 3 AS varchar) AS kind, nn % 7 AS class, 'x' AS both FROM t)",
        ITEMS,
    ] {
        for (facts, key) in [
            ("t", "f.nn"),
            ("t", "f.k"),
            ("t", "f.i8"),
            ("(SELECT * FROM t WHERE nn < 30)", "f.nn"),
            ("none", "f.nn"),
            ("one", "f.nn"),
        ] {
            let from = format!("FROM {facts} f JOIN {items} d ON {key} = d.id");
            statements.push(format!("SELECT d.kind, d.item, {aggregates} {from} GROUP BY d.kind, d.item"));
            statements.push(format!("SELECT upper(d.item), d.class + 1, {aggregates} {from} GROUP BY 1, 2"));
            statements.push(format!("SELECT d.kind, d.class, d.item, count(*), sum(f.nn), max(f.i64) {from} GROUP BY ROLLUP (d.kind, d.class, d.item)"));
            statements.push(format!("SELECT d.kind, d.both, count(*) {from} GROUP BY CUBE (d.kind, d.both)"));
            statements.push(format!(
                "SELECT d.item, avg(f.nn), count(DISTINCT f.g), sum(f.nn) {from} GROUP BY d.item"
            ));
            statements.push(format!("SELECT d.item, f.g, sum(f.nn) {from} GROUP BY d.item, f.g"));
            statements.push(format!("SELECT d.item, sum(f.nn + d.class) {from} GROUP BY d.item"));
            statements.push(format!("SELECT DISTINCT d.item, d.kind {from}"));
        }
    }
    // Sums that nobody asks for, or that others bring back, leave no type.
    let items = "(VALUES (2, 'b'), (3, 'c'), (4, 'c')) d(id, item)";
    let greatest = i64::MAX;
    let facts = format!(
        "(VALUES (1, {greatest}), (1, {greatest}), (2, 5), (3, {greatest}), (3, 1), (4, -9)) f(k, v)"
    );
    statements
        .push(format!("SELECT d.item, sum(f.v) FROM {facts} JOIN {items} ON f.k = d.id GROUP BY d.item"));
    let mut all = configurations();
    all.extend(configurations().into_iter().map(|mut settings| {
        settings.push(("kelpie.variant.groups_below", "join"));
        settings
    }));
    check_all("groups by columns of a dimension", all, statements).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn few_rows_beside_groups_of_all() {
    let few = [
        "(SELECT nn, k, g FROM t WHERE nn = 7)",
        "(SELECT nn, k, max(g) AS g FROM t WHERE i32 = 5 OR nn = 3 GROUP BY nn, k)",
        "(SELECT DISTINCT nn, k, g FROM t WHERE nn = 1)",
        "(SELECT nn, k, g FROM t WHERE k IS NULL AND nn = 2)",
        "(SELECT nn, k, g FROM none)",
        "(SELECT nn, k, g FROM t WHERE nn < 0)",
    ];
    let facts = [
        "(SELECT nn AS m, k AS j, sum(i64) AS s, count(*) AS c FROM t GROUP BY nn, k)",
        "(SELECT nn AS m, 1 AS j, max(s) AS s, count(*) AS c FROM t GROUP BY nn HAVING count(*) > 1)",
        "(SELECT m, j, s, c + 1 AS c FROM (SELECT nn AS m, k AS j, min(s) AS s, count(*) AS c FROM t GROUP BY nn, k))",
        "(SELECT nn AS m, k AS j, sum(i64) AS s, count(*) AS c FROM t GROUP BY ROLLUP (nn, k))",
    ];
    let mut statements = Vec::new();
    for few in few {
        for facts in facts {
            for join in ["a LEFT JOIN {} b", "a JOIN {} b", "a FULL JOIN {} b"] {
                let from = format!("{few} {}", join.replace("{}", facts));
                statements.push(format!("SELECT a.nn, a.k, a.g, b.m, b.s, b.c FROM {from} ON a.nn = b.m"));
                statements
                    .push(format!("SELECT a.nn, a.k, b.j, b.c FROM {from} ON a.nn = b.m AND a.k = b.j"));
                statements.push(format!("SELECT a.nn, b.c FROM {from} ON a.nn = b.m AND b.c > a.nn"));
            }
            statements.push(format!("SELECT a.nn, b.c FROM {facts} b RIGHT JOIN {few} a ON a.nn = b.m"));
            statements.push(format!("SELECT b.m, b.c FROM {facts} b LEFT JOIN {few} a ON a.nn = b.m"));
            statements
                .push(format!("SELECT b.m, b.c FROM {facts} b WHERE b.m NOT IN (SELECT nn FROM {few} a)"));
        }
    }
    check_all("few rows beside groups of all", configurations(), statements).await.unwrap();
}
