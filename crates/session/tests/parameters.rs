//! Statements with values for their placeholders, and what a statement needs before it is planned.

use std::collections::HashMap;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::{ParamValues, ScalarValue};
use kelpie_session::{KelpieSession, Needs, SessionOptions};

async fn session() -> KelpieSession {
    let session = KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap();
    session.sql("CREATE TABLE t (k BIGINT, s VARCHAR, d DATE)").await.unwrap();
    session.sql("INSERT INTO t VALUES (1, 'a', '2024-01-01'), (2, NULL, NULL)").await.unwrap();
    session
}

async fn answer(session: &KelpieSession, sql: &str, values: ParamValues) -> Result<String, String> {
    let rows = async {
        let mut query = session.start_with(sql, Some(values)).await?;
        let mut batches = Vec::new();
        while let Some(batch) = query.next().await? {
            batches.push(batch);
        }
        Ok::<_, datafusion::error::DataFusionError>(batches)
    };
    let batches = rows.await.map_err(|error| error.strip_backtrace())?;
    Ok(pretty_format_batches(&batches).unwrap().to_string().lines().skip(3).collect())
}

fn list(values: &[ScalarValue]) -> ParamValues {
    ParamValues::List(values.iter().cloned().map(ScalarAndMetadata::from).collect())
}

#[tokio::test]
async fn values_stand_where_placeholders_do() {
    let session = session().await;
    let (one, text) = (ScalarValue::from(1_i64), ScalarValue::from("a"));
    for _ in 0..3 {
        let found = answer(&session, "SELECT s FROM t WHERE k = $1", list(std::slice::from_ref(&one))).await;
        assert!(found.unwrap().starts_with("| a |"));
    }
    let named = HashMap::from([("what".to_string(), ScalarAndMetadata::from(text.clone()))]);
    let found = answer(&session, "SELECT k FROM t WHERE s = $what", ParamValues::Map(named)).await;
    assert!(found.unwrap().starts_with("| 1 |"));
    // The same text with another value is another statement.
    let found = answer(&session, "SELECT s FROM t WHERE k = $1", list(&[ScalarValue::from(2_i64)])).await;
    assert!(found.unwrap().starts_with("|   |"));
    // A text takes the type of its place.
    let found =
        answer(&session, "SELECT k FROM t WHERE d < $1", list(&[ScalarValue::from("2024-02-01")])).await;
    assert!(found.unwrap().starts_with("| 1 |"));
}

#[tokio::test]
async fn rows_are_inserted_in_the_types_of_the_table() {
    let session = session().await;
    let rows = [
        [ScalarValue::from(3_i32), ScalarValue::from("c"), ScalarValue::from("2024-03-03")],
        [ScalarValue::Null, ScalarValue::Null, ScalarValue::Null],
        [ScalarValue::from(4.0), ScalarValue::from(5_i64), ScalarValue::Date32(Some(0))],
    ];
    for row in rows {
        answer(&session, "INSERT INTO t VALUES ($1, $2, $3)", list(&row)).await.unwrap();
    }
    let found = session.sql("SELECT sum(k), max(s), min(d), count(*) FROM t").await.unwrap().batches;
    let text = pretty_format_batches(&found).unwrap().to_string();
    assert!(
        text.contains("| 10")
            && text.contains("| c ")
            && text.contains("1970-01-01")
            && text.contains("| 5 "),
        "{text}"
    );
    let wrong =
        answer(&session, "INSERT INTO t VALUES ($1, NULL, NULL)", list(&[ScalarValue::from("x")])).await;
    assert!(wrong.unwrap_err().contains('x'));
}

#[tokio::test]
async fn as_many_values_as_placeholders() {
    let session = session().await;
    let (one, two) = (ScalarValue::from(1_i64), ScalarValue::from(2_i64));
    for (sql, values, expected) in [
        ("SELECT $1, $2", vec![one.clone()], "2 parameters and 1 values: there is none for $2"),
        ("SELECT $1", vec![one.clone(), two], "1 parameters and 2 values: it has no $2"),
        ("SELECT 1", vec![one], "0 parameters and 1 values: it has no $1"),
    ] {
        let error = answer(&session, sql, list(&values)).await.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn what_a_statement_needs() {
    let session = session().await;
    for (sql, is_query, missing) in [
        ("SELECT * FROM t JOIN Frame USING (k) JOIN \"Other\" ON true", true, vec!["Frame", "Other"]),
        ("WITH c AS (SELECT 1) SELECT * FROM c, T", true, vec![]),
        ("SELECT * FROM s.frame", true, vec![]),
        ("EXPLAIN SELECT * FROM frame", true, vec!["frame"]),
        ("EXPLAIN ANALYZE INSERT INTO t SELECT * FROM frame", false, vec!["frame"]),
        ("INSERT INTO frame SELECT * FROM other", false, vec!["other"]),
        ("CREATE TABLE frame AS SELECT * FROM other", false, vec!["other"]),
        ("CREATE VIEW frame AS SELECT * FROM other", false, vec!["other"]),
        ("DROP TABLE frame", false, vec![]),
        ("SET kelpie.device = 'cpu'", false, vec![]),
        ("SHOW TABLES", true, vec![]),
    ] {
        let missing_tables = missing.into_iter().map(str::to_string).collect();
        assert_eq!(session.needs(sql).await.unwrap(), Needs { is_query, missing_tables }, "{sql}");
    }
    assert!(session.needs("SELEC 1").await.is_err());
}
