//! Deep and long statements give an answer or an error, on small stacks too: none aborts the process.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::datasource::MemTable;
use kelpie_session::testing::sample::is_whole;
use kelpie_session::{KelpieSession, SessionOptions};

const ROWS: i64 = 20;
/// Less than DataFusion's planner takes for a single level in some builds.
const STACK_BYTES: usize = 256 << 10;

fn session(settings: &[(&str, &str)]) -> KelpieSession {
    let mut options = SessionOptions::default().with("kelpie.device", "cpu").with("kelpie.min_rows", "0");
    for (name, value) in settings {
        options = options.with(*name, *value);
    }
    let session = KelpieSession::new(options).unwrap();
    let batch = RecordBatch::try_from_iter([
        ("a", Arc::new(Int64Array::from_iter_values(0..ROWS)) as ArrayRef),
        ("s", Arc::new(StringArray::from_iter_values((0..ROWS).map(|i| format!("s{}", i % 3))))),
    ]);
    let batch = batch.unwrap();
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
    session.context().register_table("t", Arc::new(table)).unwrap();
    session
}

/// Runs a future on a thread with a small stack, and all of its tasks on that thread too.
fn on_small_stack<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send + 'static) {
    let body = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().thread_stack_size(STACK_BYTES).build().unwrap().block_on(work());
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(body).unwrap().join().unwrap();
}

/// The only value of a query.
async fn value(session: &KelpieSession, sql: &str) -> Result<String, String> {
    let result = session.sql(sql).await.map_err(|error| error.to_string())?;
    assert_eq!(result.rows(), 1, "{sql:.100}");
    let column = result.batches.iter().find(|batch| batch.num_rows() > 0).unwrap().column(0);
    Ok(array_value_to_string(column, 0).unwrap())
}

fn chain(count: usize, between: &str, term: impl Fn(usize) -> String) -> String {
    (0..count).map(term).collect::<Vec<_>>().join(between)
}

fn nested(count: usize, before: impl Fn(usize) -> String, inside: &str, after: &str) -> String {
    format!("{}{inside}{}", (0..count).map(before).collect::<String>(), after.repeat(count))
}

fn check(cases: Vec<(String, String)>, settings: &'static [(&'static str, &'static str)]) {
    on_small_stack(move || async move {
        let session = session(settings);
        for (sql, expected) in cases {
            let found = value(&session, &sql).await;
            assert_eq!(found.as_deref(), Ok(expected.as_str()), "{sql:.100}");
            // Its plan can be shown too.
            let plan = session.sql(&format!("EXPLAIN {sql}")).await;
            assert!(plan.is_ok(), "{:?}: {sql:.100}", plan.err());
        }
    });
}

#[test]
fn long_chains() {
    let sum: i64 = (0..ROWS).sum();
    let mut cases = vec![
        (format!("SELECT sum({}) FROM t", chain(300, " + ", |_| "a".into())), (300 * sum).to_string()),
        (format!("SELECT {}", chain(300, "+", |_| "1".into())), "300".into()),
        (format!("SELECT max(length({})) FROM t", chain(300, " || ", |_| "s".into())), "600".into()),
        (
            format!(
                "SELECT count(*) FROM t WHERE {}",
                chain(1500, " OR ", |i| format!("a = {i} AND a <> 3"))
            ),
            (ROWS - 1).to_string(),
        ),
        (
            format!("SELECT count(*) FROM t WHERE {}", chain(700, " AND ", |i| format!("a + {i} <> 5"))),
            (ROWS - 6).to_string(),
        ),
        (format!("SELECT max(a{}) FROM t", "::INT::BIGINT".repeat(150)), (ROWS - 1).to_string()),
    ];
    // DataFusion's planner takes seconds for each.
    if is_whole() {
        let condition = chain(20_000, " OR ", |i| format!("a = {i} AND a <> 3"));
        cases.extend([
            (format!("SELECT count(*) FROM t WHERE {condition}"), (ROWS - 1).to_string()),
            (format!("SELECT sum({}) FROM t", chain(1500, " + ", |_| "a".into())), (1500 * sum).to_string()),
            (format!("SELECT max(length({})) FROM t", chain(1000, " || ", |_| "s".into())), "2000".into()),
        ]);
    }
    check(cases, &[]);
}

#[test]
fn long_plans() {
    let ctes = |count: usize, column: &str| -> String {
        let next = |i: usize| format!(", c{i} AS (SELECT {column} AS a FROM c{})", i - 1);
        format!("WITH c0 AS (SELECT a FROM t){} ", (1..=count).map(next).collect::<String>())
    };
    let mixed = (0..ROWS).map(|a| (0..60).fold(a, |a, _| (a + 1) % 7 - (a - 1) % 5)).max().unwrap();
    let mut cases = vec![
        (
            format!(
                "SELECT count(*) FROM ({})",
                chain(500, " UNION ALL ", |i| format!("SELECT a FROM t WHERE a > {i}"))
            ),
            (ROWS * (ROWS - 1) / 2).to_string(),
        ),
        (
            format!("SELECT count(*) FROM ({})", chain(60, " UNION ", |i| format!("SELECT a + {i} FROM t"))),
            (ROWS + 59).to_string(),
        ),
        (format!("{}SELECT max(a) FROM c300", ctes(300, "a + 1")), (ROWS - 1 + 300).to_string()),
        // Each reads the last twice: as a tree it is of 2⁴⁰ parts.
        (format!("{}SELECT max(a) FROM c40", ctes(40, "a + a")), ((ROWS - 1) << 40).to_string()),
        (format!("{}SELECT max(a) FROM c60", ctes(60, "(a + 1) % 7 - (a - 1) % 5")), mixed.to_string()),
    ];
    // DataFusion's planner takes seconds for each.
    if is_whole() {
        let all = chain(1500, " UNION ALL ", |i| format!("SELECT a FROM t WHERE a > {i}"));
        let union = chain(1000, " UNION ", |i| format!("SELECT a + {i} FROM t"));
        cases.extend([
            (format!("SELECT count(*) FROM ({all})"), (ROWS * (ROWS - 1) / 2).to_string()),
            (format!("SELECT count(*) FROM ({union})"), (ROWS + 999).to_string()),
        ]);
    }
    check(cases, &[]);
}

#[test]
fn nested_deeply() {
    let when = |i: usize| format!("CASE WHEN a = {i} THEN {i} ELSE ");
    let sum: i64 = (0..ROWS).sum();
    check(
        vec![
            (nested(300, |_| "SELECT * FROM (".into(), "SELECT count(*) FROM t", ")"), ROWS.to_string()),
            (nested(1000, |_| "SELECT * FROM (".into(), "SELECT count(*) FROM t", ")"), ROWS.to_string()),
            (format!("SELECT sum({}) FROM t", nested(300, when, "0", " END")), sum.to_string()),
            (format!("SELECT sum({}) FROM t", nested(1000, when, "0", " END")), sum.to_string()),
            (format!("SELECT {}", nested(1000, |_| "(".into(), "1", ")")), "1".into()),
            (format!("SELECT count(*) FROM t WHERE {}a > 3", "NOT ".repeat(1000)), (ROWS - 4).to_string()),
            (
                format!("SELECT max({}) FROM t", nested(60, |_| "abs(".into(), "a", ")")),
                (ROWS - 1).to_string(),
            ),
        ],
        &[],
    );
}

#[test]
fn too_deep_is_an_error_that_says_so() {
    on_small_stack(|| async {
        let session = session(&[]);
        for sql in [
            format!("SELECT {}", chain(50_000, "+", |_| "1".into())),
            format!("SELECT sum({}) FROM t", chain(50_000, " + ", |_| "a".into())),
            format!("SELECT {}", nested(100_000, |_| "(".into(), "1", ")")),
            format!("SELECT {}", nested(50_000, |_| "CASE WHEN true THEN ".into(), "1", " END")),
            nested(50_000, |_| "SELECT * FROM (".into(), "SELECT 1", ")"),
        ] {
            let error = value(&session, &sql).await.unwrap_err();
            assert!(error.contains("nested too deeply") && error.contains("12000"), "{error:.300}");
            assert!(error.len() < 300, "{error:.300}");
        }
        let error = value(&session, &nested(1000, |_| "SELECT (".into(), "SELECT 1", ")")).await.unwrap_err();
        assert!(
            error.contains("1000 subqueries inside each other in expressions, and at most 32"),
            "{error:.300}"
        );
        // The parser's own limit, where it is set.
        let session = self::session(&[("datafusion.sql_parser.recursion_limit", "50")]);
        let error = value(&session, &format!("SELECT {}", nested(200, |_| "(".into(), "1", ")"))).await;
        assert!(error.unwrap_err().contains("RecursionLimitExceeded (current limit: 50)"));
        // What is long but not deep is not refused.
        let values = chain(20_000, ", ", |i| format!("({i}, -1)"));
        assert_eq!(
            value(&session, &format!("SELECT count(*) FROM (VALUES {values})")).await.unwrap(),
            "20000"
        );
    });
}

#[test]
fn what_a_session_keeps_may_be_deep() {
    on_small_stack(|| async {
        let session = session(&[]);
        let sum = chain(300, " + ", |_| "a".into());
        session.sql(&format!("CREATE VIEW v AS SELECT {sum} AS x FROM t")).await.unwrap();
        session.sql(&format!("PREPARE p AS SELECT max({sum}) FROM t")).await.unwrap();
        let expected = (300 * (ROWS - 1)).to_string();
        assert_eq!(value(&session, "SELECT max(x) FROM v").await.unwrap(), expected);
        assert_eq!(value(&session, "EXECUTE p").await.unwrap(), expected);
    });
}

#[test]
fn reasons_are_short() {
    on_small_stack(|| async {
        let session = session(&[]);
        let result =
            session.sql(&format!("SELECT sum({}) FROM t", chain(300, " + ", |_| "a".into()))).await.unwrap();
        assert!(!result.timing.compiled);
        let reasons = result.timing.reasons.join("\n");
        assert!(reasons.contains("nested 300 deep, and at most 128 levels are compiled"), "{reasons:.300}");
        assert!(reasons.len() < 500, "{reasons:.300}");
        // A chain of conditions is not deep.
        let filter = chain(200, " OR ", |i| format!("a * 2 = {i} AND a < {i}"));
        let result = session.sql(&format!("SELECT count(*) FROM t WHERE {filter}")).await.unwrap();
        assert!(result.timing.compiled, "{:?}", result.timing.reasons);
    });
}

#[tokio::test]
async fn planning_that_takes_long_can_be_left() {
    let session = session(&[]);
    // DataFusion plans such queries in a time that doubles with each.
    let sql = nested(30, |_| "SELECT (".into(), "SELECT 1", ")");
    let (leave, left) = tokio::sync::oneshot::channel();
    // This test has one thread: if planning kept it, nobody would be told to leave.
    tokio::spawn(async { leave.send(()) });
    tokio::select! {
        biased;
        answered = session.sql(&sql) => assert!(answered.is_ok(), "{answered:?}"),
        left = left => left.unwrap(),
    }
}
