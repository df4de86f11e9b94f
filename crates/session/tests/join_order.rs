//! The order of joins never changes an answer: queries that are hard to reorder, with the rule and without.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::datasource::MemTable;
use datafusion::physical_plan::displayable;
use kelpie_session::{KelpieSession, SessionOptions};

/// `big(a, b, c, f, s)` with 2,000 rows, `mid(a, x, y, f)` with 100, `small(x, name)` with 10, `one(y)` with one and
/// `none(a)` without rows; keys have NULLs and duplicates, floats both zeros and NaN.
fn tables() -> Vec<(&'static str, RecordBatch)> {
    let longs =
        |n: i64, f: &dyn Fn(i64) -> Option<i64>| Arc::new((0..n).map(f).collect::<Int64Array>()) as ArrayRef;
    let floats = |n: i64| {
        let values = [0.0, -0.0, f64::NAN, 1.5, 2.0];
        Arc::new((0..n).map(|i| (i % 7 != 0).then(|| values[(i % 5) as usize])).collect::<Float64Array>())
            as ArrayRef
    };
    let texts = |n: i64, m: i64| {
        Arc::new((0..n).map(|i| (i % 11 != 0).then(|| format!("s{}", i % m))).collect::<StringArray>())
            as ArrayRef
    };
    let batch = |columns: Vec<(&str, ArrayRef)>| {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap()
    };
    vec![
        (
            "big",
            batch(vec![
                ("a", longs(2000, &|i| (i % 13 != 0).then_some(i % 120))),
                ("b", longs(2000, &|i| Some(i % 9))),
                ("c", longs(2000, &|i| (i % 5 != 0).then_some(i % 3))),
                ("f", floats(2000)),
                ("s", texts(2000, 17)),
            ]),
        ),
        (
            "mid",
            batch(vec![
                ("a", longs(100, &|i| (i % 10 != 0).then_some(i))),
                ("x", longs(100, &|i| Some(i % 9))),
                ("y", longs(100, &|i| (i % 4 != 0).then_some(i % 4))),
                ("f", floats(100)),
            ]),
        ),
        ("small", batch(vec![("x", longs(10, &|i| (i != 3).then_some(i))), ("name", texts(10, 4))])),
        ("one", batch(vec![("y", longs(1, &|_| Some(2)))])),
        ("none", batch(vec![("a", longs(0, &|_| None))])),
    ]
}

fn session(settings: &[(&str, &str)]) -> KelpieSession {
    let mut options = SessionOptions::default().with("kelpie.enabled", "false");
    for (name, value) in settings {
        options = options.with(*name, *value);
    }
    let session = KelpieSession::new(options).unwrap();
    for (name, batch) in tables() {
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
        session.context().register_table(name, Arc::new(table)).unwrap();
    }
    session
}

async fn answer(session: &KelpieSession, sql: &str) -> Vec<String> {
    let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}\n{error}"));
    let mut rows = vec![];
    for batch in &result.batches {
        for row in 0..batch.num_rows() {
            let cells = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
            rows.push(cells.collect::<Vec<_>>().join("|"));
        }
    }
    rows.sort();
    let names: Vec<_> = result.schema.fields().iter().map(|f| format!("{f:?}")).collect();
    rows.push(names.join(","));
    rows
}

async fn plan(session: &KelpieSession, sql: &str) -> String {
    let plan = session.context().sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    displayable(plan.as_ref()).indent(false).to_string()
}

/// Queries whose FROM order is bad, so that the rule acts.
const QUERIES: [&str; 38] = [
    "SELECT * FROM big, mid, small WHERE big.a = mid.a AND mid.x = small.x AND small.name = 's1'",
    "SELECT count(*) FROM big, mid, small WHERE big.a = mid.a AND mid.x = small.x",
    "SELECT small.name, big.s, mid.a FROM big JOIN mid ON big.a = mid.a JOIN small ON mid.x = small.x JOIN one ON one.y = mid.y",
    // One class with two members in a relation.
    "SELECT * FROM big, mid, one WHERE big.b = mid.x AND big.c = mid.x AND one.y = mid.y",
    "SELECT * FROM big, mid, small WHERE big.b = small.x AND big.c = small.x AND mid.x = small.x",
    "SELECT * FROM big, mid, mid m, one WHERE big.f = mid.f AND big.f = m.f AND m.y = one.y AND mid.y = one.y",
    "SELECT * FROM mid, mid m, small WHERE mid.f = m.f AND mid.a = m.a AND mid.x = small.x AND small.name = 's2'",
    // Cycles and cliques.
    "SELECT count(*) FROM big, mid, small WHERE big.a = mid.a AND mid.x = small.x AND big.b = small.x",
    "SELECT count(*) FROM big b1, big b2, mid, one WHERE b1.a = mid.a AND b2.a = mid.a AND b1.b = b2.b AND mid.y = one.y",
    // Conditions over several relations, alone and beside keys.
    "SELECT count(*) FROM big, mid, small WHERE big.a = mid.a AND mid.x < small.x AND small.name = 's1'",
    "SELECT count(*) FROM big, mid, small, one WHERE big.a = mid.a AND mid.x = small.x AND big.b + small.x > mid.y + one.y",
    "SELECT count(*) FROM big, mid, small WHERE big.a = mid.a AND mid.x = small.x AND (big.b = 1 AND small.name = 's1' OR big.b = 2 AND small.name = 's2')",
    "SELECT count(*) FROM mid, small, one WHERE mid.x > small.x AND small.x > one.y",
    // Cross products.
    "SELECT count(*) FROM mid, small, one",
    "SELECT * FROM big, mid, small, one WHERE big.a = mid.a AND small.name = 's1' AND mid.x = 2",
    "SELECT count(*) FROM big, mid, none WHERE big.a = mid.a",
    "SELECT * FROM big, mid, none WHERE big.a = mid.a AND mid.a = none.a",
    // Semi and anti joins, above and between joins.
    "SELECT * FROM big, mid WHERE big.a = mid.a AND big.a IN (SELECT a FROM mid WHERE x = 3)",
    "SELECT * FROM big, mid, small WHERE big.a = mid.a AND mid.x = small.x AND mid.a NOT IN (SELECT x FROM small WHERE x IS NOT NULL)",
    "SELECT * FROM big, mid WHERE big.a = mid.a AND mid.y NOT IN (SELECT x FROM small)",
    "SELECT * FROM big, mid WHERE big.a = mid.a AND mid.y NOT IN (SELECT a FROM none)",
    "SELECT count(*) FROM big, mid WHERE big.a = mid.a AND EXISTS (SELECT 1 FROM mid m WHERE m.a = big.a AND m.x <> mid.x)",
    "SELECT count(*) FROM big, mid WHERE big.a = mid.a AND NOT EXISTS (SELECT 1 FROM big o WHERE o.a = big.a AND o.b <> big.b AND o.c = 1)",
    "SELECT count(*) FROM big b JOIN mid ON b.a = mid.a WHERE b.a IN (SELECT a FROM big GROUP BY a HAVING count(*) > 16) AND mid.x = 1",
    "SELECT b.a, b.b FROM big b JOIN mid ON b.a = mid.a INTERSECT SELECT a, x FROM mid",
    "SELECT b.a FROM big b JOIN mid ON b.a = mid.a JOIN one ON one.y = mid.y EXCEPT SELECT x FROM small",
    // Reducers by several keys, of which the smaller side builds.
    "SELECT * FROM big WHERE EXISTS (SELECT 1 FROM mid WHERE mid.a = big.a AND mid.x = big.b)",
    "SELECT * FROM big WHERE NOT EXISTS (SELECT 1 FROM mid WHERE mid.a = big.a AND mid.x = big.b AND mid.y <> big.c)",
    "SELECT o.s FROM big o JOIN (SELECT b, c, max(a) AS m FROM big GROUP BY b, c) g ON o.b = g.b AND o.c = g.c AND o.a = g.m",
    // Aggregates by a key of which the query asks for few values.
    "SELECT sum(big.b) FROM big, mid WHERE big.a = mid.a AND mid.x = 4 AND mid.y = 1 AND big.b < (SELECT avg(b.b) FROM big b WHERE b.a = mid.a)",
    "SELECT * FROM mid JOIN (SELECT a, c, count(*) AS n FROM big GROUP BY a, c) g ON g.a = mid.a WHERE mid.x = 4 AND mid.y = 1",
    "SELECT * FROM mid WHERE mid.x = 4 AND mid.y = 3 AND mid.a IN (SELECT a FROM big GROUP BY a HAVING min(b) < 3)",
    "SELECT * FROM mid WHERE mid.x = 4 AND mid.y = 3 AND NOT EXISTS (SELECT 1 FROM (SELECT a, max(b) AS m FROM big GROUP BY a) g WHERE g.a = mid.a AND g.m > 7)",
    // Outer joins are leaves; what can fail sees no rows that it did not see.
    "SELECT * FROM big JOIN mid ON big.a = mid.a LEFT JOIN small ON mid.x = small.x JOIN one ON one.y = mid.y",
    "SELECT * FROM (SELECT big.a, mid.x FROM big FULL JOIN mid ON big.a = mid.a AND big.b > 3) q, small, one WHERE q.x = small.x AND small.x > one.y",
    "SELECT count(*) FROM big, mid, small WHERE big.a = mid.a AND mid.x = small.x AND mid.x > 0 AND big.b > 0 AND 10 / big.b > 10 / mid.x",
    "SELECT count(*) FROM big, mid, small WHERE big.a = mid.a AND mid.x = small.x AND (SELECT count(*) FROM one) = 1 AND big.b > (SELECT y FROM one)",
    // Names that stand twice, literals and no column at all.
    "SELECT mid.a, big.a, m.a, 1 FROM big, mid, mid m, one WHERE big.a = mid.a AND m.a = mid.a AND m.y = one.y ORDER BY 1, 2 LIMIT 10",
];

#[tokio::test(flavor = "multi_thread")]
async fn answers_and_schemas_do_not_depend_on_the_order() {
    let plain = session(&[("kelpie.join_order", "false")]);
    let ordered = session(&[]);
    let parallel = session(&[
        ("datafusion.execution.target_partitions", "3"),
        ("datafusion.optimizer.repartition_joins", "true"),
        ("datafusion.optimizer.repartition_aggregations", "true"),
        ("datafusion.optimizer.enable_round_robin_repartition", "true"),
        ("datafusion.optimizer.enable_dynamic_filter_pushdown", "true"),
        ("datafusion.optimizer.hash_join_single_partition_threshold", "0"),
        ("datafusion.optimizer.hash_join_single_partition_threshold_rows", "0"),
        ("datafusion.execution.batch_size", "64"),
    ]);
    let mut changed = 0;
    for sql in QUERIES {
        let expected = answer(&plain, sql).await;
        assert_eq!(answer(&ordered, sql).await, expected, "{sql}\n{}", plan(&ordered, sql).await);
        assert_eq!(answer(&parallel, sql).await, expected, "{sql}\n{}", plan(&parallel, sql).await);
        changed += usize::from(plan(&ordered, sql).await != plan(&plain, sql).await);
    }
    assert!(changed * 2 >= QUERIES.len(), "the rule acts on {changed} only");
}

#[tokio::test]
async fn what_cannot_be_moved_stays() {
    let (plain, ordered) = (session(&[("kelpie.join_order", "false")]), session(&[]));
    for sql in [
        "SELECT a FROM big WHERE b > 3",
        "SELECT * FROM big LEFT JOIN mid ON big.a = mid.a",
        "SELECT * FROM big FULL JOIN mid ON big.a = mid.a AND big.b < mid.x",
    ] {
        assert_eq!(plan(&ordered, sql).await, plan(&plain, sql).await, "{sql}");
    }
    // A volatile condition stays above the joins that it stood above.
    let sql = "SELECT count(*) FROM big, mid, small WHERE big.a = mid.a AND mid.x = small.x AND random() + big.b < mid.x";
    assert!(plan(&ordered, sql).await.contains("random()"));
    ordered.sql(sql).await.unwrap();
}

#[tokio::test]
async fn few_keys_reach_the_aggregate() {
    let session = session(&[]);
    let sql = "SELECT sum(big.b) FROM big, mid WHERE big.a = mid.a AND mid.x = 4 AND mid.y = 1 \
               AND big.b < (SELECT avg(b.b) FROM big b WHERE b.a = mid.a)";
    let text = plan(&session, sql).await;
    let aggregate = text.find("gby=[a@0 as a]").unwrap_or_else(|| panic!("{text}"));
    assert!(text[aggregate..].contains("join_type=RightSemi"), "{text}");
}

/// Queries in which something fails that DataFusion never comes to, since a build side before it is without rows, though its
/// statistics do not say so.
const GUARDED: [&str; 8] = [
    "SELECT count(*) FROM mid, mid m, big WHERE mid.f = m.f AND mid.a + m.a < -5 AND m.a = big.a AND CAST(big.s AS BIGINT) = 5",
    "SELECT count(*) FROM mid, mid m, big WHERE mid.f = m.f AND mid.x * m.x = 5 AND mid.y = m.y + 100 AND m.a = big.a AND CAST(big.s AS BIGINT) = 5",
    "SELECT count(*) FROM mid JOIN mid m ON mid.f = m.f JOIN big ON m.a = big.a WHERE mid.x + 100 < m.x AND CAST(big.s AS BIGINT) = 5",
    "SELECT count(*) FROM mid JOIN mid m ON mid.y = m.y AND mid.x + 100 < m.x JOIN big ON m.a = big.a AND 1 / (big.b - big.b) = 5",
    "SELECT count(*) FROM mid JOIN mid m ON mid.y = m.y AND mid.x + 100 < m.x JOIN big ON m.a = big.a JOIN big o ON o.a = big.a AND CAST(o.s AS DOUBLE) = 5",
    "SELECT count(*) FROM mid JOIN mid m ON mid.y = m.y AND mid.x + 100 < m.x JOIN (SELECT a, CAST(s AS BIGINT) AS n FROM big) q ON m.a = q.a AND q.n = 3",
    "SELECT count(*) FROM mid JOIN mid m ON mid.y = m.y AND mid.x + 100 < m.x JOIN (SELECT a, sum(CAST(s AS BIGINT)) AS n FROM big GROUP BY a) q ON m.a = q.a AND q.n = 3",
    "SELECT count(*) FROM big JOIN mid ON big.a = mid.a AND mid.x + 100 < big.b JOIN small ON CAST(small.name AS BIGINT) = mid.x",
];

/// What DataFusion's order does not come to does not fail in another: on DataFusion's operators, in Kelpie, and where
/// these take over from it.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_fail_stays_behind_what_may_be_empty() {
    let plain = session(&[("kelpie.join_order", "false")]);
    let compiled = [("kelpie.enabled", "true"), ("kelpie.device", "cpu"), ("kelpie.min_rows", "0")];
    let sessions = [
        session(&[]),
        session(&compiled),
        session(&[&compiled[..], &[("kelpie.fallback", "deny")]].concat()),
    ];
    let mut passed = 0;
    for sql in GUARDED {
        let expected = plain.sql(sql).await.map(|result| result.rows());
        passed += usize::from(expected.is_ok());
        for session in &sessions {
            let found = session.sql(sql).await.map(|result| result.rows());
            assert_eq!(
                found.as_ref().ok(),
                expected.as_ref().ok(),
                "{sql}\n{found:?}\n{expected:?}\n{}",
                plan(session, sql).await
            );
        }
    }
    assert!(passed >= GUARDED.len() / 2, "DataFusion comes to nearly all of them");
}

/// A table of which the statistics say that it has rows, and no NULL, never keeps DataFusion from running what is behind it: there a
/// subquery whose values are cast may be built. Of a table with NULLs, or of which a filter keeps some, it is not known.
#[tokio::test]
async fn what_may_fail_goes_before_a_table_that_has_rows() {
    // DataFusion's estimates choose sides by what it knows of its own functions.
    let as_it_is = ("kelpie.corrections", "false");
    let (plain, ordered) = (session(&[as_it_is, ("kelpie.join_order", "false")]), session(&[as_it_is]));
    let above_average = |filter: &str, key: &str| {
        format!(
            "SELECT count(*) FROM big WHERE {filter} b > (SELECT CAST(0.4 * avg(x.b) AS DECIMAL(12, 4)) FROM big x WHERE x.{key} = big.{key})"
        )
    };
    for (sql, is_built) in [
        (above_average("", "b"), true),
        (above_average("", "a"), false),
        (above_average("b < 5 AND", "b"), false),
    ] {
        let text = plan(&ordered, &sql).await;
        assert!(text.contains("CAST("), "{text}");
        assert_eq!(text.contains("join_type=RightSemi"), is_built, "{sql}\n{text}");
        assert_eq!(answer(&ordered, &sql).await, answer(&plain, &sql).await, "{sql}");
    }
}
