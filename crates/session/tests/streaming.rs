//! Rows come as they are made: in bounded memory, with errors that are DataFusion's, and no longer than anybody takes them.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use kelpie_session::{KelpieSession, SessionOptions};

/// `id`: the row; `one`: always 1; `s`: some 60 bytes of text.
fn table(rows: i64) -> Arc<MemTable> {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..rows))),
        ("one", Arc::new(Int64Array::from_iter_values((0..rows).map(|_| 1)))),
        ("s", Arc::new(StringArray::from_iter_values((0..rows).map(|id| format!("{id:0>60}"))))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap())
}

fn session(fallback: &str, rows: i64) -> KelpieSession {
    let options = SessionOptions::default().with("kelpie.device", "cpu").with("kelpie.fallback", fallback);
    let session = KelpieSession::new(options).unwrap();
    session.context().register_table("t", table(rows)).unwrap();
    session
}

/// A line of this process's status in MB, on Linux.
fn status_mb(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':').trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb / 1024)
}

/// Runs a test of this program once more, in a process of its own; false in that process.
fn has_run_alone(test: &str) -> bool {
    const ALONE: &str = "KELPIE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return false;
    }
    let mut process = std::process::Command::new(std::env::current_exe().unwrap());
    let output = process.args(["--exact", test]).env(ALONE, "1").output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains("1 passed"), "{out}");
    true
}

/// A self-join whose answer is some 600 MB, twice that where it would be on the device and on the host. The peak is that of
/// the process, which other tests would raise.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_answer_takes_bounded_memory() {
    if has_run_alone("streaming::a_large_answer_takes_bounded_memory") {
        return;
    }
    let side = 2500;
    let session = session("deny", side);
    let sql = "select a.id + b.id x, a.s || '' s from t a join t b on a.one = b.one";
    let before = status_mb("VmHWM");
    let mut running = session.start(sql).await.unwrap();
    let (mut rows, mut sum, mut batches) = (0, 0, 0);
    while let Some(batch) = running.next().await.unwrap() {
        assert!(batch.num_rows() <= 8192);
        sum += batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
        rows += batch.num_rows() as i64;
        batches += 1;
    }
    let timing = running.finish();
    assert!(timing.compiled, "{:?}", timing.reasons);
    assert_eq!((rows, sum), (side * side, side * side * (side - 1)));
    assert!(batches >= rows / 8192);
    if let (Some(before), Some(after)) = (before, status_mb("VmHWM")) {
        assert!(after - before < 700, "{} MB at most before, {after} MB after", before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_answer_stops_the_engine() {
    let session = session("deny", 4000);
    let sql = "select a.id x, b.id y, a.one from t a join t b on a.one = b.one";
    for batches in [0, 1, 3] {
        let mut running = session.start(sql).await.unwrap();
        for _ in 0..batches {
            assert!(running.next().await.unwrap().is_some());
        }
        drop(running);
        // The next query does not wait for what nobody takes: it would for ever.
        let next = session.sql("select count(*) from t where id > 3");
        let answered = tokio::time::timeout(Duration::from_secs(60), next).await;
        answered.expect("the next query waits for one that was dropped").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_that_of_datafusion_and_comes_before_any_row() {
    let rows = 100_000;
    let plain = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    plain.register_table("t", table(rows)).unwrap();
    let queries = [
        "select s, 10 / (id - 99999) from t",
        "select s, cast(case when id = 99999 then id else 1 end as smallint) from t",
        "select s, arrow_cast(case when id = 99999 then id else one end, 'Int8') from t where id > 100",
    ];
    for sql in queries {
        let expected = plain.sql(sql).await.unwrap().collect().await.unwrap_err();
        let allowed = session("allow", rows).sql(sql).await.unwrap_err();
        let (said, expected_said) =
            (allowed.find_root().strip_backtrace(), expected.find_root().strip_backtrace());
        // A number that a type does not hold is told in the words of the statement.
        let is_worded = said.contains("99999 is beyond the range of its type");
        assert!(said == expected_said || is_worded, "{said}, not {expected_said}");
        let denying = session("deny", rows);
        let mut running = denying.start(sql).await.unwrap();
        let error = running.next().await.unwrap_err();
        let kinds = [&error, &expected].map(|error| std::mem::discriminant(error.find_root()));
        assert_eq!(kinds[0], kinds[1], "{error}, not {expected}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kernels_do_not_handle_runs_elsewhere_before_any_row() {
    let session = session("allow", 3000);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..3000))),
        (
            "s",
            Arc::new(StringArray::from_iter_values(
                (0..3000).map(|id| if id < 2999 { "2020-01-01" } else { "2020-01-02T03:04:05" }),
            )),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
    session.context().register_table("u", Arc::new(table)).unwrap();
    let sql = "select id, cast(s as date) d from u where id >= 0 order by id";
    let result = session.sql(sql).await.unwrap();
    assert_eq!(result.rows(), 3000);
    let reasons = &result.timing.reasons;
    assert!(reasons.iter().any(|reason| reason.contains("kernels do not handle")), "{reasons:?}");
    let last = result.batches.last().unwrap();
    let dates = cast(last.column(1), &DataType::Utf8).unwrap();
    assert_eq!(dates.as_string::<i32>().value(dates.len() - 1), "2020-01-02");
}
