//! What the rule replaces, what it leaves and why, and how EXPLAIN shows it.

use std::sync::Arc;

use datafusion::arrow::array::{Array, Int64Array, ListArray, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use kelpie_session::testing::translate;
use kelpie_session::{KelpieSession, SessionOptions, Stage};

fn session(settings: &[(&str, &str)]) -> KelpieSession {
    let mut options = SessionOptions::default().with("kelpie.device", "cpu");
    for (name, value) in settings {
        options = options.with(*name, *value);
    }
    let session = KelpieSession::new(options).unwrap();
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>((0..4).map(|i| Some(vec![Some(i)])));
    let schema = Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("list", list.data_type().clone(), true),
    ]);
    let batch = RecordBatch::try_new(
        Arc::new(schema),
        vec![
            Arc::new(Int64Array::from(vec![Some(1), Some(2), Some(1), None])),
            Arc::new(Int64Array::from(vec![Some(10), None, Some(30), Some(40)])),
            Arc::new(StringArray::from(vec!["a", "b", "c", "d"])),
            Arc::new(list),
        ],
    )
    .unwrap();
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
    session.context().register_table("t", Arc::new(table)).unwrap();
    session
}

async fn plan(session: &KelpieSession, sql: &str) -> String {
    session.explain(sql, Stage::Plan).await.unwrap()
}

#[tokio::test]
async fn whole_plans_become_one_node() {
    let session = session(&[("kelpie.fallback", "deny")]);
    for sql in [
        "SELECT k, sum(v), count(*) FROM t WHERE v > 5 GROUP BY k ORDER BY k LIMIT 3",
        "SELECT k + v FROM t",
        "SELECT DISTINCT k FROM t",
        "SELECT count(DISTINCT k) FROM t",
        "SELECT sum(v) FILTER (WHERE k = 1) FROM t",
        "SELECT * FROM (SELECT k, v FROM t ORDER BY v LIMIT 2) q WHERE k IS NOT NULL",
    ] {
        let text = plan(&session, sql).await;
        assert!(text.starts_with("KelpieExec\n"), "{sql}\n{text}");
        assert!(text.contains("Scan: memory"), "{text}");
        let result = session.sql(sql).await.unwrap();
        assert!(result.timing.compiled && result.timing.reasons.is_empty(), "{sql}: {:?}", result.timing);
    }
}

#[tokio::test]
async fn trivial_plans_are_left_alone_and_never_denied() {
    let session = session(&[("kelpie.fallback", "deny")]);
    for sql in [
        "SELECT 1",
        "SELECT * FROM t",
        "SELECT k FROM t LIMIT 2",
        "VALUES (1), (2)",
        "SHOW TABLES",
        "SELECT table_name FROM information_schema.tables ORDER BY 1",
        "CREATE TABLE c AS SELECT k FROM t",
        "EXPLAIN SELECT list[1] + 1 FROM t",
    ] {
        let result = session.sql(sql).await;
        let result = result.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(
            !result.timing.compiled && result.timing.reasons.is_empty() || sql.starts_with("EXPLAIN"),
            "{sql}"
        );
    }
}

#[tokio::test]
async fn what_stays_is_listed_with_every_reason() {
    let session = session(&[]);
    let sql = "SELECT a.k, list[1], regexp_replace(a.s, 'a', 'b'), approx_median(a.k) OVER (ORDER BY a.k) FROM t a JOIN \
               (SELECT k, sum(v) AS v FROM t GROUP BY k) b ON a.k = b.k WHERE random() < 2";
    let text = plan(&session, sql).await;
    assert!(text.starts_with("KelpieReport"), "{text}");
    for part in ["WindowAggExec", "regexp_replace", "random", "  ! ", "KelpieExec"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // Plain execution has no report in its plan, and the grouped side runs compiled.
    let windowed =
        "SELECT r, count(*) FROM (SELECT approx_median(k) OVER (ORDER BY k) AS r FROM t) q GROUP BY r";
    let result = session.sql(windowed).await.unwrap();
    assert!(!result.timing.compiled);
    assert!(result.timing.reasons.iter().any(|r| r.contains("WindowAggExec")), "{:?}", result.timing);

    session.set("kelpie.fallback", "deny").unwrap();
    let error = session.sql(sql).await.unwrap_err().to_string();
    for part in ["kelpie.fallback", "WindowAggExec", "regexp_replace", "random"] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    session.set("kelpie.enabled", "false").unwrap();
    assert_eq!(session.sql("SELECT v FROM t ORDER BY v DESC").await.unwrap().rows(), 4);
}

#[tokio::test]
async fn explain_analyze_shows_pipelines() {
    let session = session(&[]);
    let result = session.sql("EXPLAIN ANALYZE SELECT k, sum(v) FROM t GROUP BY k").await.unwrap();
    let text = pretty_format_batches(&result.batches).unwrap().to_string();
    for part in ["KelpieExec", "pipeline 0", "rows_in=4", "GB/s", "launches=", "output_rows=3", "compile="] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    session.set("kelpie.meter", "true").unwrap();
    let result = session.sql("EXPLAIN ANALYZE SELECT k, sum(v) FROM t GROUP BY k").await.unwrap();
    let text = pretty_format_batches(&result.batches).unwrap().to_string();
    for part in ["accessed (read+written) input=", "passes over", "link time=", "memory-bound time="] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    session.set("kelpie.meter", "false").unwrap();
    session.set("kelpie.profile", "lanes").unwrap();
    for (device, part) in [
        ("cpu", "lanes: a CPU's warps have one"),
        ("simt", "lanes: pipeline 0, aggregate"),
        ("simt", "4: 100.0 %"),
    ] {
        session.set("kelpie.device", device).unwrap();
        let result = session.sql("EXPLAIN ANALYZE VERBOSE SELECT k, sum(v) FROM t GROUP BY k").await.unwrap();
        let text = pretty_format_batches(&result.batches).unwrap().to_string();
        assert!(text.contains(part), "{part}\n{text}");
    }
    session.set("kelpie.profile", "off").unwrap();
    session.set("kelpie.device", "cpu").unwrap();
    for stage in [Stage::Pipelines, Stage::Kir, Stage::Code] {
        let text = session.explain("SELECT k, sum(v) FROM t GROUP BY k", stage).await.unwrap();
        assert!(!text.is_empty());
    }
    let error = session.explain("SELECT 1", Stage::Kir).await.unwrap_err().to_string();
    assert!(error.contains("nothing of this query is compiled"), "{error}");
}

/// VERBOSE counts lanes by itself, where a device's warps have several; a plan of the same text without it counts none.
#[tokio::test]
async fn explain_analyze_verbose_counts_lanes() {
    let session = session(&[]);
    let sql = "SELECT k, sum(v) FROM t GROUP BY k";
    let expected = session.sql(sql).await.unwrap();
    for (device, part) in [("cpu", "* lanes: a CPU's warps have one"), ("simt", "4: 100.0 %")] {
        session.set("kelpie.device", device).unwrap();
        for (how, counts) in [("VERBOSE ", true), ("", false), ("VERBOSE ", true)] {
            let result = session.sql(&format!("EXPLAIN ANALYZE {how}{sql}")).await.unwrap();
            let text = pretty_format_batches(&result.batches).unwrap().to_string();
            assert_eq!(text.contains("* lanes: "), counts, "{device} {how}\n{text}");
            assert!(!counts || text.contains(part), "{part}\n{text}");
        }
        let again = session.sql(sql).await.unwrap();
        assert_eq!(again.rows(), expected.rows());
    }
}

#[tokio::test]
async fn plans_for_many_partitions_fold_into_one() {
    let session = session(&[
        ("datafusion.execution.target_partitions", "4"),
        ("datafusion.optimizer.repartition_aggregations", "true"),
        ("datafusion.optimizer.enable_round_robin_repartition", "true"),
        ("datafusion.execution.batch_size", "2"),
    ]);
    for sql in [
        "SELECT k, sum(v), avg(v) FROM t GROUP BY k",
        "SELECT min(v), count(*) FROM t",
        "SELECT k, v FROM t WHERE v > 1 ORDER BY v DESC LIMIT 2",
    ] {
        let text = plan(&session, sql).await;
        assert!(text.starts_with("KelpieExec\n"), "{sql}\n{text}");
        session.sql(sql).await.unwrap();
    }
    let result = session.sql("SELECT v FROM t WHERE v > 1 ORDER BY v DESC").await.unwrap();
    let values: Vec<i64> = result
        .batches
        .iter()
        .flat_map(|b| b.column(0).as_any().downcast_ref::<Int64Array>().unwrap().values().to_vec())
        .collect();
    assert_eq!(values, [40, 30, 10]);
    assert!(result.batches.len() > 1, "batches of the session's size");
}

#[tokio::test]
async fn translation_collects_every_reason_of_a_tree() {
    let session = session(&[("kelpie.enabled", "false")]);
    let sql = "SELECT list[1], s ~ k::text, find_in_set(s, 'a,b') FROM t WHERE random() < 0.5";
    let plan = session.context().sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let reasons = translate(&plan).unwrap_err();
    let text = reasons.join("\n");
    for part in ["patterns that are not constant", "find_in_set", "random"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}
