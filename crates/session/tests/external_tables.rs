//! CREATE EXTERNAL TABLE of local files is the table of their path; options that no reader knows are errors.

use std::fs;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::parquet::arrow::ArrowWriter;
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

const DEVICES: [&str; 2] = ["cpu", "simt"];

fn session(device: &str) -> KelpieSession {
    let options = SessionOptions::default().with("kelpie.device", device);
    KelpieSession::new(options.with("kelpie.min_rows", "0")).unwrap()
}

async fn rows(session: &KelpieSession, sql: &str) -> Vec<String> {
    let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = result.batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
    rows.map(|(batch, row)| {
        let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
        values.collect::<Vec<_>>().join(" ")
    })
    .collect()
}

async fn create(session: &KelpieSession, name: &str, format: &str, place: &str) {
    let sql = format!("create external table {name} stored as {format} location '{place}'");
    session.sql(&sql).await.unwrap();
}

fn parquet(values: Vec<i64>) -> Vec<u8> {
    let column: ArrayRef = Arc::new(Int64Array::from(values));
    let batch = RecordBatch::try_from_iter([("k", column)]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn external_tables_are_read_as_paths_are() {
    let folder = TempDir::new().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    for name in ["lines", "parts", "year"] {
        fs::create_dir(place(name)).unwrap();
    }
    // One array, kinds that differ, keys that come late; a semicolon, names in another order; columns of folders.
    fs::write(place("array.json"), r#"[{"a": 1, "b": {"c": [1, 2]}}, {"a": "x"}, {"z": 2.5}]"#).unwrap();
    fs::write(place("lines/1.json"), "{\"a\": 1}\n{\"a\": 9223372036854775808}\n").unwrap();
    fs::write(place("semicolon.csv"), "a;b\n00123;1,5\n7;x\n").unwrap();
    fs::write(place("parts/1.csv"), "a,b\n1,2\n").unwrap();
    fs::write(place("parts/2.csv"), "B,a\n20,10\n").unwrap();
    fs::create_dir(place("year/year=2024")).unwrap();
    fs::write(place("year/year=2024/x.parquet"), parquet(vec![1, 2])).unwrap();
    for device in DEVICES {
        let session = session(device);
        create(&session, "array", "json", &place("array.json")).await;
        assert_eq!(
            rows(&session, "select a, z from array order by z nulls first, a").await,
            ["1 ", "x ", " 2.5"]
        );
        create(&session, "lines", "json", &place("lines")).await;
        assert_eq!(rows(&session, "select max(a) from lines").await, ["9223372036854775808"]);
        create(&session, "semicolon", "csv", &format!("file://{}", place("semicolon.csv"))).await;
        assert_eq!(rows(&session, "select a, b from semicolon order by a").await, ["00123 1,5", "7 x"]);
        create(&session, "parts", "csv", &place("parts/")).await;
        assert_eq!(rows(&session, "select sum(a), sum(b) from parts").await, ["11 22"]);
        create(&session, "year", "parquet", &place("year")).await;
        assert_eq!(rows(&session, "select year, sum(k) from year group by year").await, ["2024 3"]);
        // A file that comes later is read, and checked.
        let new = place(&format!("year/year=2024/{device}.parquet"));
        fs::write(&new, parquet(vec![10])).unwrap();
        assert_eq!(rows(&session, "select sum(k) from year").await, ["13"]);
        let mut cut = parquet(vec![1; 100]);
        cut.truncate(cut.len() / 2);
        fs::write(&new, cut).unwrap();
        let error = session.sql("select sum(k) from year").await.unwrap_err().to_string();
        assert!(error.contains(&format!("{device}.parquet")), "{error}");
        fs::remove_file(&new).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_statement_says_of_its_own_holds() {
    let folder = TempDir::new().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    fs::write(place("plain.csv"), "1|2\n3|4\n").unwrap();
    fs::write(place("named.dat"), "a,b\n1,2\n").unwrap();
    for device in DEVICES {
        let session = session(device);
        let sql = format!(
            "create external table p (x varchar, y bigint) stored as csv location '{}' \
             options ('format.delimiter' '|', 'format.has_header' 'false')",
            place("plain.csv")
        );
        session.sql(&sql).await.unwrap();
        assert_eq!(rows(&session, "select x, y + 1 from p order by x").await, ["1 3", "3 5"]);
        create(&session, "named", "csv", &place("named.dat")).await;
        assert_eq!(rows(&session, "select a, b from named").await, ["1 2"]);
    }
}

/// Columns, folders of partitions and options that a statement gives; a damaged file among them is an error that names it.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_and_columns_that_a_statement_gives_hold() {
    let folder = TempDir::new().unwrap();
    for (part, values) in [("p=1", vec![1, 2]), ("p=2", vec![3])] {
        let place = folder.path().join("t").join(part);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("a.parquet"), parquet(values)).unwrap();
        let place = folder.path().join("c").join(part);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("a.csv"), "7;x\n8;\n").unwrap();
    }
    let place = |name: &str| folder.path().join(name).display().to_string();
    for device in DEVICES {
        let session = session(device);
        let sql = format!(
            "create external table t (k bigint, p int) stored as parquet partitioned by (p) location '{}/'",
            place("t")
        );
        session.sql(&sql).await.unwrap();
        assert_eq!(rows(&session, "select k, p from t order by k").await, ["1 1", "2 1", "3 2"]);
        assert_eq!(rows(&session, "select p, count(*) from t where p > 1 group by p").await, ["2 1"]);
        let sql = format!(
            "create external table c (n bigint, s varchar, p varchar) stored as csv partitioned by (p) \
             location '{}/' options ('format.delimiter' ';', 'format.has_header' 'false')",
            place("c")
        );
        session.sql(&sql).await.unwrap();
        assert_eq!(
            rows(&session, "select p, sum(n), count(*) from c group by p order by p").await,
            ["1 15 2", "2 15 2"]
        );
    }
    let damaged = folder.path().join("t/p=2/a.parquet");
    let mut bytes = fs::read(&damaged).unwrap();
    let length = bytes.len();
    bytes.truncate(length - 9);
    fs::write(&damaged, bytes).unwrap();
    let sql = format!(
        "create external table t (k bigint, p int) stored as parquet partitioned by (p) location '{}/'",
        place("t")
    );
    let session = session("cpu");
    let error = match session.sql(&sql).await {
        Ok(_) => session.sql("select sum(k) from t").await.unwrap_err(),
        Err(error) => error,
    };
    assert!(error.to_string().contains("p=2/a.parquet"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn units_of_int96_that_there_are_not_are_errors() {
    const NAME: &str = "datafusion.execution.parquet.coerce_int96";
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t.parquet").display().to_string();
    fs::write(&path, parquet(vec![1])).unwrap();
    let session = session("cpu");
    create(&session, "t", "parquet", &path).await;
    for value in ["foo", "nanoseconds", ""] {
        let of_table = format!(
            "create external table u stored as parquet location '{path}' options ('format.coerce_int96' '{value}')"
        );
        for sql in [format!("set {NAME} = '{value}'"), of_table] {
            let error = session.sql(&sql).await.unwrap_err().to_string();
            assert!(error.contains("coerce_int96") && error.contains("ns, us, ms, s"), "{sql}: {error}");
        }
        let error = session.set(NAME, value).unwrap_err().to_string();
        assert!(error.contains("ns, us, ms, s"), "{error}");
        let error =
            KelpieSession::new(SessionOptions::default().with(NAME, value)).err().unwrap().to_string();
        assert!(error.contains("ns, us, ms, s"), "{error}");
    }
    for unit in ["ns", "US", "ms", "s"] {
        session.sql(&format!("set {NAME} = '{unit}'")).await.unwrap();
        assert_eq!(rows(&session, "select k from t").await, ["1"]);
    }
}
