//! Statements of all kinds, written as plans and read back; those that cannot be say why.

use datafusion::common::{ParamValues, ScalarValue};
use kelpie_substrait::Form;

use crate::common::{error, rows_of, text, there_and_back, with_tables};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_statement_says_its_plan_says() {
    let (session, mut wrong) = (with_tables().await, Vec::new());
    for sql in [
        "SELECT 1 AS one, 'a' AS b, NULL AS n",
        "SELECT * FROM t ORDER BY x DESC NULLS LAST LIMIT 2 OFFSET 1",
        "SELECT DISTINCT k FROM t ORDER BY k NULLS FIRST",
        "SELECT t.k, label FROM t LEFT JOIN d ON t.k = d.k AND x > 1 ORDER BY 1, 2, x",
        "SELECT t.k FROM t JOIN d ON t.k = d.k AND t.x = t.k + 0.5",
        "SELECT t.k FROM t JOIN d ON t.k IS NOT DISTINCT FROM d.k ORDER BY 1",
        "SELECT a.k FROM t a, t b, t c WHERE a.k = b.k AND b.x < c.x AND a.name = c.name ORDER BY 1",
        "SELECT k, label, x FROM t FULL JOIN d USING (k) ORDER BY k, x",
        "SELECT a.k, b.k AS other FROM t a JOIN t b ON a.k = b.k AND a.x < b.x ORDER BY 1, 2",
        "SELECT k, count(*) FILTER (WHERE x > 1) AS n, count(DISTINCT name) AS names FROM t GROUP BY k ORDER BY k",
        "SELECT k, name, sum(x) AS s FROM t GROUP BY ROLLUP (k, name) ORDER BY 1, 2, 3",
        "SELECT k FROM t WHERE name IN ('ä', 'b') OR name LIKE 'c%' ORDER BY k",
        "SELECT CASE WHEN x > 2 THEN 'much' WHEN x > 1 THEN 'some' ELSE 'little' END AS c FROM t ORDER BY x",
        "SELECT k FROM t UNION ALL SELECT k FROM d ORDER BY 1",
        "SELECT k FROM t INTERSECT SELECT k FROM d ORDER BY 1",
        "SELECT k FROM t EXCEPT SELECT k FROM d ORDER BY 1",
        "SELECT row_number() OVER (PARTITION BY k ORDER BY x) AS n, sum(x) OVER (ORDER BY x ROWS BETWEEN 1 \
         PRECEDING AND CURRENT ROW) AS s FROM t ORDER BY k, x",
        "SELECT date '2024-02-29' + INTERVAL '1' MONTH AS d, timestamp '2024-01-01 00:00:00' AS t",
        "SELECT upper(name) || '!' AS u, abs(-k) AS a, x::int AS i FROM t ORDER BY x",
        // Subqueries, and columns of the queries around them.
        "SELECT k FROM d WHERE EXISTS (SELECT 1 FROM t WHERE t.k = d.k AND x > 2) ORDER BY k",
        "SELECT k FROM d WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.k = d.k) ORDER BY k",
        "SELECT k, (SELECT max(x) FROM t WHERE t.k = d.k) AS most FROM d ORDER BY k",
        "SELECT k FROM d WHERE k NOT IN (SELECT k FROM t WHERE k IS NOT NULL) ORDER BY k",
        "SELECT k FROM t WHERE x > (SELECT avg(x) FROM t u WHERE u.k = t.k) ORDER BY k",
        "SELECT max(x) AS m, k FROM t GROUP BY k HAVING max(x) > (SELECT max(x) FROM t u WHERE u.k < t.k) ORDER BY 1",
        "SELECT k + 1 AS n FROM t WHERE k + 1 IN (SELECT k + 1 FROM d WHERE d.k = t.k) ORDER BY 1",
        "SELECT label FROM d WHERE k IN (SELECT k FROM t WHERE EXISTS (SELECT 1 FROM t u WHERE u.k = t.k AND \
         u.x > t.x)) ORDER BY 1",
        "WITH big AS (SELECT * FROM t WHERE x > 1) SELECT a.k, count(*) AS n FROM big a, big b GROUP BY 1 ORDER BY 1",
        "SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS v(n, s) ORDER BY n",
    ] {
        let expected = text(&session.sql(sql).await.unwrap());
        match there_and_back(&session, sql).await {
            Ok(found) if found == expected => {}
            Ok(found) => wrong.push(format!("{sql}:\n{found}\n{expected}")),
            Err(error) => wrong.push(format!("{sql}: {}", kelpie_session::message(&error))),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plan_cannot_say_is_an_error() {
    let session = with_tables().await;
    for (sql, says) in [
        ("SELECT first_value(x) IGNORE NULLS OVER (ORDER BY k) FROM t", "cannot say"),
        ("SELECT sum(x) FILTER (WHERE k = 1) OVER (ORDER BY k) FROM t", "cannot say"),
        ("SELECT unnest([1, 2])", "cannot say"),
        (
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
            "cannot say",
        ),
        ("CREATE TABLE u AS SELECT 1", "only a query"),
        ("EXPLAIN SELECT 1", "only a query"),
        ("SELECT missing FROM t", "missing"),
        ("SELECT k FROM nowhere", "nowhere"),
        ("SELEC 1", "SELEC"),
    ] {
        let said = error(kelpie_substrait::write(&session, sql, Form::Json).await);
        assert!(said.contains(says) && said.len() < 500, "{sql}: {said}");
    }
    let deep = format!("SELECT {}k{} FROM t", "abs(".repeat(60), ")".repeat(60));
    for form in [Form::Binary, Form::Json] {
        let said = error(kelpie_substrait::write(&session, &deep, form).await);
        assert!(said.contains("cannot be written as a plan that can be read again"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_given_to_plans() {
    let session = with_tables().await;
    let sql = "SELECT k, x FROM t WHERE k = $1 ORDER BY x";
    let plan = kelpie_substrait::write(&session, sql, Form::Binary).await.unwrap();
    let described = kelpie_substrait::describe(&session, plan.clone()).await.unwrap();
    assert!(described.is_query);
    assert_eq!(described.parameters.len(), 1);
    assert_eq!(described.schema.fields().len(), 2);
    let values = ParamValues::from(vec![ScalarValue::from(1i64)]);
    let expected = session.sql("SELECT k, x FROM t WHERE k = 1 ORDER BY x").await.unwrap();
    let rows = rows_of(&session, plan.clone(), Some(values)).await.unwrap();
    assert!(text(&expected).ends_with(&rows), "{rows}");
    error(rows_of(&session, plan, None).await);
    // Nothing of it is left.
    assert_eq!(session.tables(), ["d", "t"]);
}
