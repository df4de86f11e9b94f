//! What Kelpie reads where the statistics of a file hide a value from DataFusion.

use std::fs::File;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array, RecordBatch};
use datafusion::arrow::datatypes::{Float64Type, Int64Type};
use datafusion::parquet::arrow::ArrowWriter;
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

async fn session(column: ArrayRef) -> (TempDir, KelpieSession) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t.parquet");
    let batch = RecordBatch::try_from_iter_with_nullable([("x", column, true)]).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let options = SessionOptions::default().with("kelpie.device", "cpu");
    let session = KelpieSession::new(options).unwrap();
    // Few rows are Kelpie's too, where there is an option for it.
    let _ = session.set("kelpie.min_rows", "0");
    session.register_path("t", &path).await.unwrap();
    (folder, session)
}

/// Parquet's least and greatest values leave NaN out: where they are equal, DataFusion reads the column as that value.
#[tokio::test(flavor = "multi_thread")]
async fn statistics_that_hide_a_nan_are_not_believed() {
    let (_folder, session) = session(Arc::new(Float64Array::from(vec![2.5, f64::NAN, 2.5]))).await;
    let result = session.sql("SELECT sum(x) AS s, count(DISTINCT x) AS n FROM t").await.unwrap();
    assert!(result.timing.compiled, "{:?}", result.timing.reasons);
    assert!(result.batches[0].column(0).as_primitive::<Float64Type>().value(0).is_nan());
    assert_eq!(result.batches[0].column(1).as_primitive::<Int64Type>().value(0), 2);
    let result = session.sql("SELECT x, count(*) AS n FROM t GROUP BY x ORDER BY n").await.unwrap();
    assert_eq!(result.rows(), 2);
}

/// Nor for minima and maxima, which DataFusion would answer without reading anything.
#[tokio::test(flavor = "multi_thread")]
async fn extremes_of_floats_are_not_taken_from_statistics() {
    let (_folder, session) = session(Arc::new(Float64Array::from(vec![2.5, f64::NAN, 1.0]))).await;
    let extremes = async |sql| {
        let result = session.sql(sql).await.unwrap();
        let column = |index| result.batches[0].column(index).as_primitive::<Float64Type>().value(0);
        (column(0), column(1))
    };
    for rows in ["0", "1000000"] {
        session.set("kelpie.min_rows", rows).unwrap();
        for sql in ["SELECT min(x), max(x) FROM t", "SELECT min(x), max(x), count(*) FROM t"] {
            let (least, greatest) = extremes(sql).await;
            assert_eq!(least, 1.0, "{sql}");
            assert!(greatest.is_nan(), "{sql}: {greatest}");
        }
    }
    let plan = session.context().sql("SELECT count(*) FROM t").await.unwrap();
    let plan = plan.create_physical_plan().await.unwrap();
    let plan = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
    assert!(plan.contains("PlaceholderRowExec"), "how many rows there are is known:\n{plan}");
    // On DataFusion's operators, and DataFusion alone.
    session.set("kelpie.enabled", "false").unwrap();
    assert!(extremes("SELECT min(x), max(x) FROM t").await.1.is_nan());
    session.set("kelpie.corrections", "false").unwrap();
    assert_eq!(extremes("SELECT min(x), max(x) FROM t").await, (1.0, 2.5));
}
