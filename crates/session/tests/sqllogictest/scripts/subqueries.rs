//! Scalar subqueries, correlated subqueries, common table expressions.

use super::Script;

pub fn script() -> Script {
    let mut script = Script::new("subqueries", "Subqueries and common table expressions.");
    let rows = |rows: &[&str]| rows.iter().map(|row| (*row).to_string()).collect::<Vec<_>>();
    script.table(
        "t",
        "k INT, v INT, s VARCHAR",
        &rows(&["1, 10, 'a'", "1, 20, 'b'", "2, 30, 'a'", "NULL, 40, NULL", "3, NULL, 'c'"]),
    );
    script.table(
        "u",
        "k INT, w INT, s VARCHAR",
        &rows(&["1, 15, 'a'", "2, 5, 'b'", "2, 50, 'a'", "4, 1, 'd'", "NULL, 7, 'a'"]),
    );
    script.table("e", "k INT, w INT, s VARCHAR", &[]);
    for sql in [
        "SELECT k, (SELECT max(w) FROM u) FROM t",
        "SELECT k, (SELECT max(w) FROM e) FROM t",
        "SELECT k, (SELECT count(*) FROM e) FROM t",
        "SELECT k, v FROM t WHERE v > (SELECT avg(w) FROM u)",
        "SELECT k, v FROM t WHERE v > (SELECT max(w) FROM e)",
        "SELECT k, v FROM t WHERE v = (SELECT w * 2 FROM u WHERE w = 15)",
        "SELECT k, v FROM t WHERE v < (SELECT w FROM u WHERE w > 1000)",
        "SELECT k, v, (SELECT sum(w) FROM u WHERE u.k = t.k) FROM t",
        "SELECT k, v, (SELECT count(*) FROM u WHERE u.k = t.k) FROM t",
        "SELECT k, v, (SELECT count(w) + 1 FROM u WHERE u.k = t.k) FROM t",
        "SELECT k, v, (SELECT min(u.s) FROM u WHERE u.s = t.s AND u.w > 10) FROM t",
        "SELECT k, v FROM t WHERE v > (SELECT min(w) FROM u WHERE u.k = t.k)",
        "SELECT k, v FROM t WHERE (SELECT count(*) FROM u WHERE u.k = t.k) = 0",
        "SELECT k, v FROM t WHERE v > 2 * (SELECT avg(w) FROM u WHERE u.k = t.k)",
        "SELECT k, sum(v) FROM t GROUP BY k HAVING sum(v) > (SELECT min(w) FROM u)",
        "SELECT s, count(*) FROM t WHERE k IN (SELECT k FROM u) GROUP BY s",
        "SELECT k, v FROM t WHERE k IN (SELECT k FROM u WHERE u.s = t.s)",
        "SELECT k, v FROM t WHERE k NOT IN (SELECT k FROM u WHERE k IS NOT NULL)",
        "SELECT k, v FROM t WHERE k NOT IN (SELECT k FROM u)",
        "SELECT k, v FROM t WHERE k NOT IN (SELECT k FROM e)",
        "SELECT k, v FROM t WHERE k + 1 IN (SELECT k FROM u)",
        "SELECT k, v FROM t WHERE EXISTS (SELECT * FROM u WHERE u.k = t.k AND u.w > t.v)",
        "SELECT k, v FROM t WHERE NOT EXISTS (SELECT * FROM u WHERE u.k = t.k AND u.w > t.v)",
        "SELECT k, v FROM t WHERE EXISTS (SELECT * FROM u WHERE u.k = t.k AND u.s <> t.s)",
        "SELECT k, v FROM t WHERE EXISTS (SELECT * FROM u WHERE u.w > t.v)",
        "SELECT k, v FROM t WHERE EXISTS (SELECT 1 FROM u)",
        "SELECT k, v FROM t WHERE NOT EXISTS (SELECT 1 FROM e)",
        "SELECT k, v FROM t WHERE v = 40 OR EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
        "SELECT k, v FROM t WHERE v = 40 OR k IN (SELECT k FROM u WHERE w > 10)",
        "SELECT k, v FROM t WHERE v = 40 OR k NOT IN (SELECT k FROM u WHERE w > 10)",
        "SELECT k, v FROM t WHERE v IN (SELECT max(w) - 20 FROM u)",
        "SELECT k, v FROM t WHERE k IN (SELECT k FROM u GROUP BY k HAVING count(*) > 1)",
        "SELECT q.k, q.n FROM (SELECT k, count(*) AS n FROM t GROUP BY k) q WHERE q.n > 1",
        "SELECT q.k, r.m FROM (SELECT k, sum(v) AS n FROM t GROUP BY k) q JOIN (SELECT k, max(w) AS m FROM u GROUP BY k) r ON q.k = r.k",
        "WITH q AS (SELECT k, sum(v) AS n FROM t GROUP BY k) SELECT * FROM q WHERE n > 20",
        "WITH q AS (SELECT k, sum(v) AS n FROM t GROUP BY k) SELECT a.k, b.n FROM q a JOIN q b ON a.k = b.k",
        "WITH q AS (SELECT k, sum(v) AS n FROM t GROUP BY k) SELECT k FROM q WHERE n = (SELECT max(n) FROM q)",
        "WITH a AS (SELECT k FROM t), b AS (SELECT k FROM a WHERE k > 1) SELECT a.k, b.k FROM a LEFT JOIN b ON a.k = b.k",
        "WITH q AS (SELECT k FROM t UNION SELECT k FROM u) SELECT count(*), sum(k) FROM q",
        "SELECT (SELECT max(v) FROM t) - (SELECT min(w) FROM u)",
        "SELECT count(*) FROM t WHERE v > (SELECT min(w) FROM u) AND v < (SELECT max(w) FROM u)",
        "SELECT k, CASE WHEN v > (SELECT avg(w) FROM u) THEN 'high' ELSE 'low' END FROM t",
    ] {
        script.query(sql);
    }
    for sql in [
        "SELECT k, v FROM t ORDER BY v - (SELECT min(w) FROM u) DESC NULLS LAST",
        "SELECT v FROM t WHERE v > (SELECT w FROM u ORDER BY w LIMIT 1) ORDER BY v",
        "SELECT k FROM (SELECT k FROM t WHERE k IN (SELECT k FROM u)) q ORDER BY k DESC LIMIT 2",
    ] {
        script.ordered(sql);
    }
    script
}
